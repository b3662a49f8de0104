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
_WIDE = 1 << 31  # integers from here on are 64 bits wide in a kernel
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
    gpu = _gpu()
    again = [_on_simulator(run) for run in _chosen(runs, tree)]
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


def _gpu() -> str:
    return cards_of(ARCH).split(",")[0]


def _suffix() -> str:
    """Behind the name of a case that is run once more there."""
    return f", on a simulated {_gpu()}"


def _on_simulator(run: CaseRun) -> CaseRun:
    case = replace(run.case, name=run.case.name + _suffix())
    return replace(run, case=case, seen=None, engine="simulator")


def _chosen(runs: list[CaseRun], tree: ast.Module) -> list[CaseRun]:
    """The smallest cases, and one more where others give a kernel arguments that the compiler takes in another way.

    An argument that is 1 or None is a constant to it, without a tensor's methods. The interpreter knows no difference.
    """
    smallest, small, asked = _smallest(runs), _small(runs), _asked(tree)
    compiled = {kind for run in smallest for kind in _kinds(run)}
    new = {run.case.name: {k for k in _kinds(run) - compiled if k[2] != "1" or k[1] in asked} for run in small}
    others = [run for run in small if new[run.case.name]]
    return smallest + sorted(others, key=lambda run: (-len(new[run.case.name]), _bytes(run)))[:1]


def _kinds(run: CaseRun) -> set[tuple[str, str, str]]:
    """Kernel, argument, and what sort of argument the compiler makes of it."""
    found = set()
    for launch in run.own_launches:
        sorts = dict.fromkeys(launch.tensors, "tensor") | {name: _sort(value) for name, value in launch.constants}
        found |= {(launch.name, name, sort) for name, sort in sorts.items()}
    return found


def _sort(value: int | float | bool | str | None) -> str:
    if type(value) is not int:
        return "None" if value is None else "value"
    return "1" if value == 1 else "wide" if abs(value) >= _WIDE else "value"


def _asked(tree: ast.Module) -> set[str]:
    """Names of which a method is called, `n.to(tl.int64)`, alone or in arithmetic, which for a constant is one too.

    Where a function has them of an argument, all names count that a call hands on.
    """
    nodes = list(ast.walk(tree))
    made = [(target, node.value) for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    asked = {name for node in nodes if isinstance(node, ast.Attribute) for name in _in_arithmetic(node.value)}
    for _ in made:
        more = {name for target, value in made if _in_arithmetic(target) & asked for name in _in_arithmetic(value)}
        if more <= asked:
            break
        asked |= more
    calls = [call for call in nodes if isinstance(call, ast.Call)]
    defined = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    handed = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in defined]
    for call in handed:
        if {argument.arg for argument in defined[call.func.id].args.args} & asked:
            asked |= {name for value in call.args for name in _in_arithmetic(value)}
    return asked


def _in_arithmetic(node: ast.AST) -> set[str]:
    """The names of an expression of names and operators alone."""
    if isinstance(node, ast.Name):
        return {node.id}
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    return {name for part in parts for name in _in_arithmetic(part)}


def _small(runs: list[CaseRun]) -> list[CaseRun]:
    """Those that need a kernel and are small enough for the simulator."""
    candidates = [run for run in runs if run.needs_kernel and run.own_launches]
    return [run for run in candidates if _bytes(run) <= _MOST_BYTES and not any(map(is_spread, _tensors(run)))]


def _smallest(runs: list[CaseRun]) -> list[CaseRun]:
    """The smallest case of each dtype, the narrowest dtype first: there the rounding is.

    One in which a side is 1 comes last, for the softmax of a single score is 1 whatever the score; and before it those
    that allow for large errors.
    """
    first: dict[torch.dtype, CaseRun] = {}
    candidates = [run for run in runs if run.needs_kernel and run.own_launches]
    for run in sorted(_small(runs), key=lambda run: (_is_thin(run), _is_loose(run, candidates), _bytes(run))):
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
        message = run.seen.problem.message.rstrip(".") + _made_constant(run, before)
        return diagnosis("compiler-refuses", arch=ARCH, message=message)
    if run.seen.problem:
        return diagnosis("simulator-fault", gpu=gpu, message=run.seen.problem.message)
    for launch in (launch for one in before for launch in one.own_launches if launch.race):
        return race_diagnosis(launch.race)
    return diagnosis("simulator-differs", gpu=gpu, why=_why(run, before, tree))


def _made_constant(run: CaseRun, before: list[CaseRun]) -> str:
    """Which arguments the compiler knows in the case that it refuses, and not in others; "" where there are none."""
    ours = next(one for one in before if one.case.name == run.case.name.removesuffix(_suffix()))
    elsewhere = {kind for one in before for kind in _kinds(one)} - _kinds(ours)
    known = [kind for kind in sorted(_kinds(ours)) if kind[2] in ("1", "None")]
    odd = [f"`{name}` is {sort}" for kernel, name, sort in known if (kernel, name) in {kind[:2] for kind in elsewhere}]
    if not odd:
        return ""
    return f". In the case {ours.case.name!r} {' and '.join(odd)}: the compiler makes a constant of that"


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
