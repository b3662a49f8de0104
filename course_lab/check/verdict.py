"""Compare what an answer returned with the reference, in the parent process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from course_lab.authoring.exercise import Case, Tolerance
from course_lab.authoring.far_rows import is_far, is_spread, spread
from course_lab.check.protocol import Change, Event, LaunchSeen, Seen
from gfxlab import transport
from gfxlab.sandbox import Outcome


@dataclass(frozen=True)
class Comparison:
    """One output against the reference: `wrong` marks the elements outside the tolerance.

    `expected` and `got` are float64 (int64 for integer outputs) arrays of the same shape; when shape or dtype differ
    (`problem`), nothing is compared.  step: how far two roundings of one number may be apart, as a part of it.
    """

    expected: np.ndarray
    got: np.ndarray
    wrong: np.ndarray
    tolerance: Tolerance
    step: float = 0.0
    problem: str | None = None
    wanted: str = ""
    received: str = ""

    @property
    def right(self) -> bool:
        return self.problem is None and not self.wrong.any()

    @property
    def first(self) -> tuple[int, ...]:
        """Index of the first wrong element."""
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(self.wrong)), self.wrong.shape))

    def close(self, expected: np.ndarray, got: np.ndarray, times: float = 1.0) -> np.ndarray:
        """Where other numbers are within this output's tolerance, or so many times that."""
        return close(expected, got, times * self.tolerance.atol, times * self.tolerance.rtol + self.step)


def compare(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance, dtype: torch.dtype) -> Comparison:
    """Compare element by element, within the tolerance; NaN matches NaN, infinity the same infinity.

    An expected result that is more exact than `got` can be is rounded as `got` was: what is right are the roundings of
    all numbers within the tolerance.

    dtype: the dtype that `got` must have.
    """
    nothing = np.zeros(0)
    if got.shape != expected.shape:
        shapes = str(tuple(expected.shape)), str(tuple(got.shape))
        return Comparison(nothing, nothing, nothing.astype(bool), tolerance, 0.0, "wrong-shape", *shapes)
    if got.dtype != dtype:
        dtypes = str(dtype).removeprefix("torch."), str(got.dtype).removeprefix("torch.")
        return Comparison(nothing, nothing, nothing.astype(bool), tolerance, 0.0, "wrong-dtype", *dtypes)
    e, g = numbers(expected), numbers(got)
    if expected.dtype != torch.float64 or dtype.itemsize > 2:
        step = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        return Comparison(e, g, ~close(e, g, tolerance.atol, tolerance.rtol), tolerance, step)
    near = (tolerance.atol + tolerance.rtol * expected.abs()).nan_to_num(0.0, posinf=0.0)
    low, high = (numbers((expected + side).float().to(dtype)) for side in (-near, near))
    right = (low <= g) & (g <= high) | np.isnan(e) & np.isnan(g)
    return Comparison(e, g, ~right, tolerance, torch.finfo(dtype).eps)


def numbers(tensor: torch.Tensor) -> np.ndarray:
    """The values as float64, integers and booleans as int64."""
    wide = torch.float64 if tensor.dtype.is_floating_point else torch.int64
    return tensor.detach().cpu().to(wide).numpy()


def close(expected: np.ndarray, got: np.ndarray, atol: float, rtol: float) -> np.ndarray:
    """Where `got` is within the tolerance."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - expected) <= atol + rtol * np.abs(expected)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return np.where(np.isfinite(expected) & np.isfinite(got), near, same)


def fresh(args: tuple[Any, ...]) -> list[Any]:
    """Copies of the arguments of a case, strides kept, that may be written."""
    return [_copy(a) if isinstance(a, torch.Tensor) else a for a in args]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return spread(tensor, tensor.stride()) if is_spread(tensor) else transport.with_strides(tensor, tensor.stride())


@dataclass
class CaseRun:
    """One case of one answer: what went in, what was expected, what the child reported.

    seen: what the child saw, None when the child did not get through this case.
    end: how the child died in this case, None when it did not.
    expects: what the child was not told of this case (see `Case.hidden`).
    driven: the exercise's own driver made the outputs, and saw to it that kernels ran (see `Exercise.driver`).
    """

    case: Case
    args: tuple[Any, ...]
    expected: tuple[torch.Tensor, ...]
    dtypes: tuple[torch.dtype, ...]
    inplace: tuple[int, ...] = ()
    torch_may_finish: bool = False
    contiguous: bool = False
    max_launches: int | None = None
    no_idle: bool = False
    demand: Callable[[tuple[Any, ...], tuple[LaunchSeen, ...]], str] | None = None
    driven: bool = False
    expects: tuple[Any, ...] = ()
    seen: Seen | None = None
    end: Outcome | None = None
    printed: str = ""
    engine: str = "interpreter"

    @property
    def reached(self) -> bool:
        return self.seen is not None or self.end is not None

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        return self.seen.outputs if self.seen else ()

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """One for each output; empty when the number of outputs is wrong or the call failed."""
        if not self.seen or self.seen.problem or len(self.outputs) != len(self.expected):
            return []
        together = enumerate(zip(self.expected, self.outputs, self.dtypes, strict=True))
        compared = [compare(e, g, self.case.tolerance(i), dtype) for i, (e, g, dtype) in together]
        returned = len(self.expected) - len(self.inplace)
        return [self._dense(c, g) if i < returned else c for i, (c, g) in enumerate(zip(compared, self.outputs))]

    def _dense(self, compared: Comparison, got: torch.Tensor) -> Comparison:
        """`compared`, or where the text asks for a contiguous result and `got` is none, that problem."""
        if not self.contiguous or compared.problem or got.is_contiguous():
            return compared
        received = f"the shape {tuple(got.shape)} with the strides {got.stride()}"
        return replace(compared, problem="wrong-layout", wanted="contiguous", received=received)

    @property
    def values_right(self) -> bool:
        return bool(self.comparisons) and all(c.right for c in self.comparisons)

    @property
    def values_wrong(self) -> bool:
        """Outputs of the right shape and dtype hold wrong numbers."""
        return bool(self.comparisons) and not any(c.problem for c in self.comparisons) and not self.values_right

    @property
    def own_launches(self) -> list[LaunchSeen]:
        return [launch for launch in self.seen.launches if launch.mine] if self.seen else []

    @property
    def modified(self) -> list[Change]:
        """Arguments that were changed and ought not to be."""
        return [m for m in self.seen.modified if m.position not in self.inplace] if self.seen else []

    @property
    def shares(self) -> list[tuple[int, int]]:
        """(output, argument): what was returned is no tensor of its own, but lies in the memory of an argument."""
        pairs = enumerate(self.seen.shares) if self.seen and not self.driven else ()
        return [(output, position) for output, position in pairs if position >= 0]

    @property
    def needs_kernel(self) -> bool:
        """There is something to compute: not every expected output is empty."""
        return self.engine == "interpreter" and not self.driven and any(e.numel() for e in self.expected)

    @property
    def made_by_torch(self) -> bool:
        """A kernel ran, but no element of some returned tensor was stored by one, or PyTorch wrote over it."""
        if not self.seen or self.torch_may_finish or not self.needs_kernel:
            return False
        if any(self.seen.written_over):
            return True
        return any(writer is None and self._asks_for_a_write(i) for i, writer in enumerate(self.seen.writers))

    @property
    def unread(self) -> int:
        """Position of an argument as large as a result whose numbers no kernel got, -1 for none.

        PyTorch computed something from it, and the kernel the rest.  Smaller ones may be prepared, and those with fewer
        dimensions: a weight, a table of angles.  So may what is stored in place: tokens without a slot can be left out.
        """
        if not self.seen or self.inplace or self.torch_may_finish or not self.needs_kernel or not self.own_launches:
            return -1
        reached = {at for launch in self.own_launches for at in launch.reached}
        result = max(self.expected, key=torch.Tensor.numel)
        for at, value in enumerate(self.args):
            if at in reached or not isinstance(value, torch.Tensor):
                continue
            if value.is_floating_point() and value.dim() >= result.dim() and value.numel() >= result.numel():
                return at
        return -1

    def _asks_for_a_write(self, output: int) -> bool:
        """It has elements; and if it is an argument, it is not to stay as it is."""
        returned = len(self.expected) - len(self.inplace)
        if output < returned:
            return bool(self.outputs[output].numel())
        expected, before = self.expected[output], self.args[self.inplace[output - returned]]
        return not close(numbers(before), numbers(expected), 0.0, 0.0).all()

    @cached_property
    def unmet(self) -> str:
        """What of the text's demands was not met, in a sentence; "" when there is nothing to complain about."""
        if self.demand is None or self.engine != "interpreter" or not self.own_launches:
            return ""
        return self.demand(self.args, tuple(self.own_launches))

    @property
    def too_many_launches(self) -> bool:
        return self.max_launches is not None and self.seen is not None and len(self.own_launches) > self.max_launches

    @property
    def passed(self) -> bool:
        if not self.values_right or self.seen.faults or self.seen.damaged or self.seen.stale or self.modified:
            return False
        if self.shares:
            return False
        if self.needs_kernel and (not self.own_launches or self.made_by_torch or self.unread >= 0):
            return False
        return not (self.too_many_launches or self.unmet)

    def writer(self, output: int, index: tuple[int, ...]) -> Event | None:
        """The store that wrote this element last; None when no kernel wrote it."""
        writers = self.seen.writers[output]
        event = int(writers[index]) if writers is not None else -1
        return self.event(event)

    def event(self, number: int) -> Event | None:
        """A store by its number."""
        return self.seen.events[number] if 0 <= number < len(self.seen.events) else None


def right_outputs(made: tuple[torch.Tensor, ...], run: CaseRun) -> bool:
    """Whether these outputs are right in this case."""
    if len(made) != len(run.expected):
        return False
    together = enumerate(zip(run.expected, made, run.dtypes))
    return all(compare(e, g, run.case.tolerance(i), dtype).right for i, (e, g, dtype) in together)


def is_plain(run: CaseRun) -> bool:
    """Whether a case was run in the interpreter, and can be again at little cost."""
    return run.engine == "interpreter" and run.seen is not None and not any(map(is_far, _tensors(run)))


def total_bytes(run: CaseRun) -> int:
    """How much the arguments of a case hold."""
    return sum(tensor.nbytes for tensor in _tensors(run))


def _tensors(run: CaseRun) -> list[torch.Tensor]:
    return [value for value in run.args if isinstance(value, torch.Tensor)]
