"""Inputs that the specs of several lessons make, and results before their rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_lab.authoring.exercise import Suspect
from course_lab.authoring.far_rows import at_the_end, counted_from, spread

FAR = 1 << 30  # rows this many elements apart: row 2 and its offset need more than 32 bits


def normal(*shape: int, generator: Generator, dtype=torch.float32, scale: float = 1.0, mean: float = 0.0) -> Tensor:
    """Normally distributed numbers of this shape."""
    return (mean + scale * torch.randn(shape, generator=generator)).to(dtype)


def with_gaps(x: Tensor, gap: int, dim: int = -1) -> Tensor:
    """The same numbers as a slice of a tensor that is `gap` longer along `dim`."""
    lengths = [size + gap * (i == dim % x.dim()) for i, size in enumerate(x.shape)]
    strides = [math.prod(lengths[i + 1 :]) for i in range(x.dim())]
    return spread(x, tuple(strides))


def vast(make: Callable, indices: int, *tensors: int, per_row: int = 1) -> Callable[[Generator], tuple]:
    """The same inputs; those at `tensors` are the end of tensors with more than 2^31 elements.

    indices: the position of the numbers that name a place there, `per_row` places to a row. Those below 0 stay.
    """

    def make_vast(generator: Generator) -> tuple:
        args = list(make(generator))
        rows = (1 << 31) // math.prod(args[tensors[0]].shape[1:])
        for position in tensors:
            args[position] = at_the_end(args[position], rows)
        args[indices] = counted_from(args[indices], rows * per_row)
        return tuple(args)

    return make_vast


def laid_out(x: Tensor, *dims: int) -> Tensor:
    """The same numbers, in memory in another order of the dimensions: (1, 0) is a transposed matrix."""
    back = [dims.index(dim) for dim in range(len(dims))]
    return x.permute(dims).contiguous().permute(back)


def widened(reference: Callable, inplace: tuple[int, ...] = ()) -> Callable[..., tuple[Tensor, ...]]:
    """The reference on arguments in float64: what it returns there, and writes in place, is not rounded."""

    def exact(*args) -> tuple[Tensor, ...]:
        wide = [_wide(argument) for argument in args]
        result = reference(*wide)
        returned = () if result is None else result if isinstance(result, tuple) else (result,)
        return (*returned, *(wide[position] for position in inplace))

    return exact


def _wide(argument: object) -> object:
    is_float = isinstance(argument, Tensor) and argument.dtype.is_floating_point
    return argument.double() if is_float else argument


# What stands for SiLU by mistake: its name in a sentence, and the function.
OTHER_ACTIVATIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("GELU", torch.nn.functional.gelu),
    ("GELU in its tanh form", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ("ReLU", torch.relu),
    ("x * sigmoid(1.702 x)", lambda x: x * torch.sigmoid(1.702 * x)),
    ("hard swish", torch.nn.functional.hardswish),
    ("tanh", torch.tanh),
)


def other_activations(formula: Callable[[Callable[[Tensor], Tensor]], Callable[..., Tensor]]) -> tuple[Suspect, ...]:
    """Suspects of an exercise with SiLU; formula: from an activation to the exercise's result with it."""
    sentence = "The activation is {}. The definition has x times its own sigmoid."
    return tuple(
        Suspect("other-activation", sentence.format(name), formula(function)) for name, function in OTHER_ACTIVATIONS
    )
