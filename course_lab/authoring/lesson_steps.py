"""Short exercises inside a lesson, and the inputs that they are graded on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lab.authoring.exercise import Case, Exercise, Suspect

MINUTES = 3


def step(
    number: str,
    title: str,
    entry: str,
    reference: Callable[..., Any],
    *cases: Case,
    hints: tuple[str, str, str],
    suspects: tuple[Suspect, ...] = (),
    minutes: int = MINUTES,
    inplace: tuple[int, ...] = (),
) -> Exercise:
    """An exercise of a few minutes and without stars, numbered "2.a", that is answered in the lesson itself."""
    return Exercise(number, title, 0, minutes, entry, reference, cases, hints, suspects, inplace=inplace)


def case(name: str, *inputs: Any, atol: float = 1e-5, rtol: float = 1e-5, dtype: torch.dtype = torch.float32) -> Case:
    """A case from `inputs`: a shape (tuple) becomes a normal tensor of it, a function gets the generator, and
    everything else is passed on as it is. The tolerance is that of float32 arithmetic unless another is given."""

    def make(generator: torch.Generator) -> tuple[Any, ...]:
        return tuple(_input(what, generator, dtype) for what in inputs)

    return Case(name, make, atol, rtol)


def _input(what: Any, generator: torch.Generator, dtype: torch.dtype) -> Any:
    if isinstance(what, tuple):
        return torch.randn(what, generator=generator).to(dtype)
    return what(generator) if callable(what) else what
