"""A launch, bound once: `kernel[grid](*args, **kwargs)` as everybody needs it.

`bind` gives each parameter its argument by name and resolves the grid.  The interpreter's hooks, the simulator, the
AMD report and the trace all take the `Launch` that it makes; none of them reads a signature of its own.
What the compiler is told of such a launch is a `Specialisation`, what the GPU is given is a list of `Value`s: both are
found by Triton's own code (`gfxlab.engine`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Grid = Sequence[int] | int | Callable[[dict[str, Any]], Sequence[int]]


@dataclass(eq=False)
class Launch:
    """One launch of a kernel.

    kernel: as it is decorated. positional, keywords: as they were given. args: every parameter by name, defaults
    included. grid: programs on the three axes; (0, 0, 0) until it is known.
    """

    kernel: Any
    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    args: dict[str, Any]
    grid: tuple[int, int, int] = (0, 0, 0)

    @property
    def fn(self) -> Callable:
        """The kernel's Python function."""
        return unwrap(self.kernel)

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def meta(self) -> dict[str, Any]:
        """The keyword arguments that are no parameters of the kernel: num_warps, num_stages and the like."""
        return {name: value for name, value in self.keywords.items() if name not in self.args}

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors given, by parameter; those in a tuple as `name[0]`, that of a tensor descriptor as its name."""
        return {name: tensor for key, value in self.args.items() for name, tensor in tensors(key, value)}


@dataclass(frozen=True)
class Specialisation:
    """What the launcher would compile for: argument types, constants, alignment facts and options."""

    signature: dict[str, Any]  # a type; of a tuple a tuple of types
    constexprs: dict[tuple[int, ...], Any]
    attrs: dict[tuple[int, ...], list]
    options: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Value:
    """One value that the GPU is given: a parameter's name, Triton's type ("*fp16", "i32", ...), a tensor or number."""

    name: str
    kind: str
    content: Any


def bind(kernel: Any, args: Sequence[Any], kwargs: dict[str, Any], grid: Grid | None = None) -> Launch:
    """Give each parameter of the kernel its argument, and ask the grid how many programs there are.

    Args:
        grid: one to three numbers, one number alone, or a function of the arguments by name; None: not known yet.

    Raises:
        TypeError: the arguments are not the kernel's; the message shows its parameters.
    """
    fn = unwrap(kernel)
    signature = inspect.signature(fn)
    named = {name: value for name, value in kwargs.items() if name in signature.parameters}
    try:
        bound = signature.bind(*args, **named)
    except TypeError as error:
        raise TypeError(f"{fn.__name__}({', '.join(signature.parameters)}): {error}") from None
    bound.apply_defaults()
    launch = Launch(kernel, tuple(args), dict(kwargs), dict(bound.arguments))
    if grid is not None:
        launch.grid = sizes(grid, launch.args)
    return launch


def sizes(grid: Grid, args: dict[str, Any]) -> tuple[int, int, int]:
    """Programs on the three axes.

    Raises:
        TypeError, RuntimeError: as `programs`.
    """
    found = grid(args) if callable(grid) else grid
    return programs(found if isinstance(found, Sequence) else (found,))


def programs(grid: Sequence[Any]) -> tuple[int, int, int]:
    """A grid of one to three axes as three numbers.

    Raises:
        TypeError: an axis is no whole number, such as n / BLOCK.
        RuntimeError: an axis is negative: the launch that HIP refuses.
    """
    try:
        found = (*map(operator.index, grid), 1, 1, 1)[:3]
    except TypeError:
        raise TypeError(f"a grid has whole numbers, not {tuple(grid)}: take triton.cdiv(n, BLOCK)") from None
    if min(found) < 0:
        raise RuntimeError(f"Triton Error [HIP]: invalid configuration: a grid of {found} has a negative axis")
    return found


def parameters(kernel: Any) -> tuple[str, ...]:
    """The names of a kernel's parameters."""
    return tuple(inspect.signature(unwrap(kernel)).parameters)


def unwrap(kernel: Any) -> Any:
    """The Python function under @triton.jit, @triton.autotune and @triton.heuristics."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in one argument, with a name each."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from tensors(f"{name}[{i}]", item)
    elif hasattr(value, "base"):  # a tensor descriptor or a TensorWrapper
        yield from tensors(name, value.base)
