"""A program's name: its place in the grid, as `tl.program_id` gives it."""

from __future__ import annotations

from collections.abc import Sequence


def dimensions(grid: Sequence[int]) -> int:
    """How many of the grid's three dimensions are in use."""
    return max((i + 1 for i, size in enumerate(grid) if size > 1), default=1)


def format_grid(grid: Sequence[int]) -> str:
    """`4`, `4 x 2` or `4 x 2 x 3`."""
    return " x ".join(str(int(size)) for size in grid[: dimensions(grid)])


def format_program(program: Sequence[int], grid: Sequence[int] | None = None) -> str:
    """`3`, `(3, 1)` or `(3, 1, 2)`: as many numbers as the grid has dimensions.

    Where the grid is not known: as many as it takes to the last that is not 0.
    """
    used = dimensions(grid) if grid is not None else max((i + 1 for i, n in enumerate(program) if n), default=1)
    numbers = [int(n) for n in program[:used]]
    return str(numbers[0]) if used == 1 else f"({', '.join(map(str, numbers))})"


def place(number: int, grid: Sequence[int]) -> tuple[int, int, int]:
    """The place of a program by its number in the order of launch, in which x counts fastest."""
    width, height, _ = grid
    return number % width, number // width % height, number // width // height
