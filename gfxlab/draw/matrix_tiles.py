"""A matrix instruction: which lane holds which elements of the tiles that it multiplies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from gfxlab.draw import svg
from gfxlab.simulator.instructions import matrix

_LEFT, _TOP, _GAP = 40, 66, 22
_SIDE = 208.0  # pixels of D
_READABLE = 12.0  # pixels of a cell that has room for a number

_Cell = tuple[int, int]  # row, column


def matrix_unit(mnemonic: str, arch: str = "gfx942", lane: int = 0) -> svg.Picture:
    """Draw D = A B + C as one matrix instruction computes it, with all that one lane holds.

        draw.matrix_unit("v_mfma_f32_32x32x8_f16", lane=5)
        draw.matrix_unit("v_wmma_f32_16x16x16_f16", arch="gfx1100")

    Args:
        mnemonic: a v_mfma_... or v_wmma_... instruction.
        arch: where it runs; WMMA lies otherwise in the registers of gfx11 than in those of gfx12.
        lane: whose elements to mark; the numbers count them, in the order of its registers.

    Raises:
        ValueError: it is no matrix instruction that can be drawn, or the wave has no such lane.
    """
    held = matrix.layout(mnemonic, arch)
    if not 0 <= lane < held.lanes:
        raise ValueError(f"a wave of {arch} has lanes 0 to {held.lanes - 1}; got lane {lane}")
    size = _SIDE / held.n
    inner = held.k * size
    x, y = _LEFT + inner + _GAP, _TOP + inner + _GAP
    canvas = svg.Canvas()
    title = f"{mnemonic} on {arch}: {held.m} x {held.n} results, {held.k} products each, in one instruction"
    canvas.text(10, 18, title, "b")
    numbered = ", numbered as its registers are" if size >= _READABLE else ""
    canvas.text(10, 35, f"marked: all that lane {lane} of {held.lanes} holds{numbered}", "q")
    _draw(canvas, "A", _LEFT, y, size, (held.m, held.k), _operand(held), lane)
    _draw(canvas, "B", x, _TOP, size, (held.k, held.n), [_swapped(cells) for cells in _operand(held)], lane)
    _draw(canvas, "D, and C", x, y, size, (held.m, held.n), _result(held), lane)
    facts = _facts(held, lane)
    bottom = canvas.legend(canvas.height + 10, _groups(held))
    for i, fact in enumerate(facts):
        canvas.text(10, bottom + 12 + 17 * i, fact)
    return canvas.picture(title, "\n".join([title, *(f"  {fact}" for fact in facts)]))


def _groups(held: matrix.Layout) -> list[tuple[str, str]]:
    """A tint for the lanes of each group: one lane a column of D."""
    firsts = range(0, held.lanes, held.n)
    return [(svg.colour(i), f"lanes {first} to {first + held.n - 1}") for i, first in enumerate(firsts)]


def _operand(held: matrix.Layout) -> list[list[_Cell]]:
    """The elements of A that each lane holds, in the order of its registers."""
    return [[(int(row), int(k)) for k in ks] for row, ks in zip(held.row, held.operand)]


def _result(held: matrix.Layout) -> list[list[_Cell]]:
    return [[divmod(int(place), held.n) for place in places] for places in held.result]


def _swapped(cells: Iterable[_Cell]) -> list[_Cell]:
    return [(column, row) for row, column in cells]


def _draw(
    canvas: svg.Canvas,
    name: str,
    x: float,
    y: float,
    size: float,
    shape: tuple[int, int],
    cells: list[list[_Cell]],
    lane: int,
) -> None:
    """One matrix: lanes that hold the same rows and columns as neighbours share a tint; one lane is marked."""
    rows, columns = shape
    group = rows if name == "A" else columns
    for first in range(0, len(cells), group):
        owned = np.zeros(shape, bool)
        for one in cells[first : first + group]:
            owned[tuple(np.transpose(one))] = True
        boxes = ((x + column * size, y + row * size, width * size, size) for row, column, width in _runs(owned))
        canvas.region(boxes, svg.colour(first // group), f"lanes {first} to {first + group - 1}", 0.22)
    for row in range(1, rows):
        canvas.line(x, y + row * size, x + columns * size, y + row * size)
    for column in range(1, columns):
        canvas.line(x + column * size, y, x + column * size, y + rows * size)
    for number, (row, column) in enumerate(cells[lane]):
        left, top = x + column * size, y + row * size
        words = f"lane {lane}, element {number}: row {row}, column {column}"
        canvas.box(left, top, size, size, svg.colour(lane // group), words, 0.6)
        if size >= _READABLE:
            canvas.text(left + size / 2, top + size / 2 + 3.5, str(number), "sc")
    canvas.outline(x, y, columns * size, rows * size, "o")
    canvas.text(x, y - 6, f"{name} ({rows} x {columns})", "sq")


def _runs(owned: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Neighbours in a row as (row, first column, how many)."""
    for row, cells in enumerate(owned):
        edges = np.flatnonzero(np.diff(np.r_[False, cells, False]))
        yield from ((row, int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2]))


def _facts(held: matrix.Layout, lane: int) -> list[str]:
    """What the lane holds, in words."""
    at, ks = int(held.row[lane]), _spans(held.operand[lane])
    rows, columns = np.divmod(held.result[lane], held.n)
    copies = held.operand.size // held.k // held.m
    often = "once" if copies == 1 else f"{copies} times"
    return [
        f"lane {lane}: row {at} of A and column {at} of B, each for k = {ks} (the wave holds A and B {often})",
        f"lane {lane}: column {_spans(np.unique(columns))} of D, rows {_spans(rows)}",
    ]


def _spans(numbers: Iterable[int]) -> str:
    """`0-3, 8-11` for rising numbers."""
    numbers = sorted(map(int, numbers))
    starts = [numbers[0], *(b for a, b in pairwise(numbers) if b != a + 1)]
    ends = [*(a for a, b in pairwise(numbers) if b != a + 1), numbers[-1]]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends))
