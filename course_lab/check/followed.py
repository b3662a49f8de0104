"""The child's half of `steps`: run an answer whose kernels hand over what each of their expressions gives."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from course_lab.check import answer, child, guard
from gfxlab.engine import hooks, values

NAME = "_followed"  # of the function that the kernels call
_MOST = 40_000  # values


def follow(payload: dict[str, Any]) -> dict[str, torch.Tensor]:
    """{"steps": int64 (n, 4), "figures": float64 (n, 7)}: for each value, in order, its step and program, its figures.

    payload: {"job": a `Job` with one case, "seconds": after so much processor time nothing more is noted}.
    """
    job = child.start(payload)
    notes = _Notes(time.process_time() + payload["seconds"])
    entry = answer.execute(job.number, job.code, {NAME: notes}).get(job.entry)
    if callable(entry):
        with hooks.guard("record"), hooks.poison(False), guard.Allocations():
            try:
                entry(*job.cases[0])
            except BaseException as error:  # what it did until then counts
                child.describe(error, job.number)
    return {
        "steps": torch.tensor(notes.steps, dtype=torch.int64).reshape(-1, 4),
        "figures": torch.tensor(notes.figures, dtype=torch.float64).reshape(-1, 7),
    }


class _Notes:
    """Called by a kernel with the number of an expression and its value, which it gives back."""

    def __init__(self, until: float) -> None:
        self.steps: list[tuple[int, int, int, int]] = []
        self.figures: list[tuple[float, ...]] = []
        self._until = until

    def __call__(self, step: int, value: Any) -> Any:
        if len(self.steps) < _MOST and time.process_time() < self._until:
            for one in value if isinstance(value, tuple) else (value,):
                if (found := _figures(one)) is not None:
                    self.steps.append((step, *values.program()))
                    self.figures.append(found)
        return value


def _figures(value: Any) -> tuple[float, ...] | None:
    """What tells blocks apart whatever their shape and order: sums and extremes of what is finite, and what is not.

    Six figures, and how many bits the numbers have; 0 for integers, 1 for conditions.
    """
    known = getattr(value, NAME, None)  # a value that has a name is seen often
    if known is None and (found := values.held(value)) is not None:
        known = _figures_of(*found)
        setattr(value, NAME, known)
    return known


def _figures_of(data: np.ndarray, dtype: Any) -> tuple[float, ...]:
    wide = data.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    condition = data.dtype == np.bool_
    bits = float(dtype.primitive_bitwidth) if dtype.is_floating() else float(condition)
    odd = float(np.isnan(wide).any()) + 2.0 * float(np.isposinf(wide).any()) + 4.0 * float(np.isneginf(wide).any())
    if not finite.size:
        return 0.0, 0.0, 0.0, 0.0, 0.0, odd, bits
    size = np.abs(finite)
    squares = np.flatnonzero(wide) if condition else finite * finite  # of a condition, the lanes in which it holds
    return (
        float(finite.sum()), float(size.sum()), float(squares.sum()),
        float(finite.max()), float(finite.min()), odd, bits,
    )  # fmt: skip
