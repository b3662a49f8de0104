"""A second opinion on an answer that the interpreter finds right: the same cases on a simulated AMD GPU.

The machine code rounds where hardware rounds, fills masked lanes as hardware does, and all programs run at the same
time.  So it can disagree with the interpreter, and then the reason is worth knowing.  A kernel that AMD's compiler
refuses is wrong.  What the simulator cannot do or finish says nothing about the answer: that is a quiet line.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch

from course_lab.authoring.far_rows import is_spread
from course_lab.check import answer, client
from course_lab.check.diagnosis import race_diagnosis
from course_lab.check.protocol import Job
from course_lab.check.sentences import Diagnosis, diagnosis
from course_lab.check.verdict import CaseRun
from gfxlab.code.card import cards_of

ARCH = "gfx942"
_ENGINE = f"simulated {ARCH}"
_SECONDS = 10.0
_MOST_CASES = 3
_MOST_BYTES = 1 << 20  # of the arguments of a case
_known: ContextVar[dict[tuple[str, str], Opinion] | None] = ContextVar("known", default=None)


@dataclass(frozen=True)
class Opinion:
    """runs: the cases that went wrong there. diagnosis: why, or None. note: one quiet line. engine: where it agrees."""

    runs: tuple[CaseRun, ...] = ()
    diagnosis: Diagnosis | None = None
    note: str = ""
    engine: str = ""

    @property
    def is_plain(self) -> bool:
        """Right there as well, and nothing to be said of any line."""
        return not self.runs and self.diagnosis is None and self.note.startswith("Right") and "care" not in self.note


def second_opinion(job: Job, tree: ast.Module, runs: list[CaseRun]) -> Opinion:
    """Run the smallest cases that need a kernel on the simulator.

    job: what the child did on the interpreter (its cases are replaced). runs: those that passed there.
    """
    gpu = cards_of(ARCH).split(",")[0]
    again = [_on_simulator(run, gpu) for run in _smallest(runs)]
    if not again:
        return Opinion()
    known = _known.get()
    if known is None:
        return _formed(job, tree, runs, again, gpu)
    key = job.number, _text(tree)
    if key not in known:
        opinion = _formed(job, tree, runs, again, gpu)
        if not opinion.is_plain:
            return opinion
        known[key] = opinion
    return known[key]


@contextlib.contextmanager
def remembering(known: dict[tuple[str, str], Opinion]) -> Iterator[None]:
    """Inside the block, what was found right of a text is not tried again on the same numbers.

    known: by exercise and text, comments aside; it belongs to one draw of the cases. In a class many answers are alike.
    """
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)


def _text(tree: ast.Module) -> str:
    try:
        return hashlib.sha256(ast.dump(tree).encode(errors="replace")).hexdigest()
    except RecursionError:
        return secrets.token_hex(16)  # nobody else's


def _formed(job: Job, tree: ast.Module, runs: list[CaseRun], again: list[CaseRun], gpu: str) -> Opinion:
    job = replace(job, cases=tuple(run.args for run in again), simulate=ARCH)
    attempt = client.run_cases(job, time_limit=_SECONDS)
    done = [replace(run, seen=seen) for run, seen in zip(again, attempt.seen)]
    wrong = [run for run in done if _speaks(run) and not run.passed]
    if wrong:
        return Opinion(tuple(wrong), _reason(wrong[0], runs, tree, gpu))
    if apart := _one_wave_after_the_other(job, [run for run in done if run.values_right], runs):
        return Opinion((apart,), diagnosis("wave-race", gpu=gpu, tensor=_in_place(tree)))
    if strange := [sentence for run in done for sentence in run.seen.wrong]:
        return Opinion(note=f"Right on a simulated {gpu} as well, but take care: {strange[0]}", engine=_ENGINE)
    silent = next((run.seen.problem.message for run in done if run.seen.problem), "")
    if silent or len(done) < len(again):
        why = silent.partition(". ")[0].rstrip(".") or attempt.silence
        return Opinion(note=f"Not tried on a simulated {gpu}: {why}.")
    tried = f"{len(done)} of {len(runs)} cases tried"
    return Opinion(note=f"Right on a simulated {gpu} as well ({tried}).", engine=_ENGINE)


def _one_wave_after_the_other(job: Job, done: list[CaseRun], before: list[CaseRun]) -> CaseRun | None:
    """Cases that change memory in place once more, its waves not in step; the first that is wrong then."""
    in_place = {run.case.name for run in before if any(launch.in_place for launch in run.own_launches)}
    again = [run for run in done if run.case.name.rpartition(", on ")[0] in in_place][:1]
    for order in ("forwards", "backwards") if again else ():
        apart = replace(job, cases=tuple(run.args for run in again), order=order)
        for run, seen in zip(again, client.run_cases(apart, time_limit=_SECONDS).seen):
            case = replace(run.case, name=f"{run.case.name}, one wave after the other")
            run = replace(run, case=case, seen=seen)
            if run.values_wrong:
                return run
    return None


def _in_place(tree: ast.Module) -> str:
    return next(iter(answer.loaded_and_stored(tree)), "memory")


def _on_simulator(run: CaseRun, gpu: str) -> CaseRun:
    case = replace(run.case, name=f"{run.case.name}, on a simulated {gpu}")
    return replace(run, case=case, seen=None, engine="simulator")


def _smallest(runs: list[CaseRun]) -> list[CaseRun]:
    """The smallest case of each dtype, the narrowest dtype first: there the rounding is.

    One in which a side is 1 comes last, for the softmax of a single score is 1 whatever the score; and before it those
    that allow for large errors.
    """
    first: dict[torch.dtype, CaseRun] = {}
    candidates = [run for run in runs if run.needs_kernel and run.own_launches]
    for run in sorted(candidates, key=lambda run: (_is_thin(run), _is_loose(run, candidates), _bytes(run))):
        if _bytes(run) <= _MOST_BYTES and not any(map(is_spread, _tensors(run))):
            first.setdefault(_dtype(run), run)
    return sorted(first.values(), key=lambda run: _dtype(run).itemsize)[:_MOST_CASES]


def _is_thin(run: CaseRun) -> bool:
    """Whether a matrix has a side of 1."""
    return any(1 in tensor.shape for tensor in _tensors(run) if tensor.dim() == 2)


def _is_loose(run: CaseRun, others: list[CaseRun]) -> bool:
    """Whether other cases of this dtype have tolerances far smaller."""
    return run.case.atol > 10 * min(other.case.atol for other in others if _dtype(other) == _dtype(run))


def _bytes(run: CaseRun) -> int:
    return sum(tensor.nbytes for tensor in _tensors(run))


def _tensors(run: CaseRun) -> list[torch.Tensor]:
    return [value for value in run.args if isinstance(value, torch.Tensor)]


def _dtype(run: CaseRun) -> torch.dtype:
    dtypes = [tensor.dtype for tensor in _tensors(run)]
    return next((dtype for dtype in dtypes if dtype.is_floating_point), dtypes[0] if dtypes else torch.float32)


def _speaks(run: CaseRun) -> bool:
    """False where the simulator or the compiler gave up, which is no fault of the answer."""
    problem = run.seen.problem
    return problem is None or problem.fault or problem.refused


# ---- why the two disagree --------------------------------------------------------------------------------------------


def _reason(run: CaseRun, before: list[CaseRun], tree: ast.Module, gpu: str) -> Diagnosis:
    if run.seen.problem and run.seen.problem.refused:
        return diagnosis("compiler-refuses", arch=ARCH, message=run.seen.problem.message)
    if run.seen.problem:
        return diagnosis("simulator-fault", gpu=gpu, message=run.seen.problem.message)
    for launch in (launch for one in before for launch in one.own_launches if launch.race):
        return race_diagnosis(launch.race)
    return diagnosis("simulator-differs", gpu=gpu, why=_why(run, before, tree))


def _why(run: CaseRun, before: list[CaseRun], tree: ast.Module) -> str:
    unfilled = [line for one in before for launch in one.own_launches for line in launch.unfilled]
    if both := answer.loaded_and_stored(tree):
        return f"All programs run at the same time there: does one read from {both[0]} what another one writes?"
    if _dtype(run) == torch.float32 and answer.calls(tree, "dot"):
        return "There tl.dot keeps fewer bits of float32 unless it is told otherwise. Which of its arguments says so?"
    if unfilled:
        return f"Line {unfilled[0]} leaves masked lanes without a value, and nobody promises what they hold there."
    if _dtype(run).itemsize < 4:
        name = str(_dtype(run)).removeprefix("torch.")
        return f"The machine rounds every {name} result, also those in between. Which of them should be float32?"
    return "It adds in another order and rounds differently. Does a small rounding error grow somewhere?"
