"""The parent's way to a child: a `Job` goes out, what the child saw comes back, whatever the child did.

Everything that the check asks of another process goes through here, so that a child that dies, lies or fills the disk
is met in one place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import torch
import triton

from course_lab.authoring import lessons
from course_lab.check.budget import Budget
from course_lab.check.protocol import Definition, Found, Job, ProtocolError, Seen, clean, read, wire
from course_lab.journal import home
from gfxlab import sandbox
from gfxlab.sandbox import Confined, Error, Outcome

MEMORY = 2 << 30  # beyond what torch and triton hold
_AT_ONCE = 2  # children of one question; a laptop has as many processors to spare
_CHILD = "course_lab.check.child"
_EXAMINED = "course_lab.check.examined"
Run = Callable[..., Outcome]  # as `sandbox.run`
Asked = TypeVar("Asked")
_of_answers: ContextVar[Run | None] = ContextVar("answers", default=None)
_over: ContextVar[tuple[threading.Event, ...]] = ContextVar("over", default=())  # once set, nobody waits any more


def takes_turns() -> bool:
    """Whether answers run one after the other here, whoever asks."""
    return _of_answers.get() is not None


@contextlib.contextmanager
def meanwhile(*asked: Callable[[], Asked]) -> Iterator[list[Future[Asked]]]:
    """Inside the block children are asked in other threads, as if in this one; what is under way at its end is ended.

    What a learner wrote runs where it runs here.
    """
    over, pool = threading.Event(), ThreadPoolExecutor(_AT_ONCE)
    token = _over.set((*_over.get(), over))
    contexts = [copy_context() for _ in asked]
    _over.reset(token)
    try:
        yield [pool.submit(context.run, ask) for context, ask in zip(contexts, asked)]
    finally:
        over.set()
        pool.shutdown(cancel_futures=True)


def at_once(*asked: Callable[[], Asked]) -> list[Asked]:
    """The answers to questions that are asked of children at the same time."""
    if len(asked) == 1:
        return [asked[0]()]
    with meanwhile(*asked) as answers:
        return [one.result() for one in answers]


def _nobody_waits() -> bool:
    return any(over.is_set() for over in _over.get())


@dataclass(frozen=True, eq=False)
class Attempt:
    """What came of a job.

    definition: None when the child died while it ran the cell.  seen: the cases that it got through, in order.
    outcome: how the child ended.
    """

    definition: Definition | None
    seen: tuple[Seen, ...]
    outcome: Outcome

    @property
    def defines_entry(self) -> bool:
        """The cell ran to its end and defines the function that the check calls."""
        tried = self.seen or self.outcome.status != "ok"
        return self.definition is not None and self.definition.problem is None and bool(tried)

    @property
    def silence(self) -> str:
        """Why the child said no more, in one sentence without a full stop; "" when it said everything."""
        problem = self.definition.problem if self.definition else None
        error = self.outcome.error
        message = f"{problem.type}: {problem.message}" if problem else error.message if error else ""
        return message.partition(". ")[0].rstrip(".")


@contextlib.contextmanager
def answers_run_by(run: Run | None) -> Iterator[None]:
    """Inside the block, what a learner wrote is run by `run`, which takes what `sandbox.run` takes; None: as ever.

    The author's own code (known mistakes) stays with `sandbox.run`: it must not come where a learner's code is.
    """
    token = _of_answers.set(run)
    try:
        yield
    finally:
        _of_answers.reset(token)


def run_cases(
    job: Job,
    *,
    time_limit: float,
    memory_limit: int | None = MEMORY,
    on_part: Callable[[int], None] | None = None,
    trusted: bool = False,
) -> Attempt:
    """Execute an answer and call its entry on each case. trusted: the code is the author's own."""
    outcome = _run(f"{_CHILD}:run_cases", job, {}, time_limit, memory_limit, on_part, trusted=trusted)
    try:
        definition = read(Definition, outcome.parts[0], clean) if outcome.parts else None
        seen = tuple(read(Seen, part, clean) for part in outcome.parts[1 : 1 + len(job.cases)])
    except ProtocolError as error:
        return Attempt(None, (), _unreadable(outcome, error))
    return Attempt(definition, seen, outcome)


def run_answers(
    job: Job, codes: list[str], budget: Budget, *, seconds: float | None = None, trusted: bool = False
) -> list[tuple[tuple[torch.Tensor, ...], ...]]:
    """Execute several answers on every case: for each answer that was reached, the outputs of the cases that worked.

    seconds: of the budget's processor time, all that is left when None; what was spent is taken off.  Nothing is left
    after what never ends.  trusted: all of them are the author's own, and none is a learner's with a change.
    """
    more = {"codes": tuple(codes), "seconds": budget.left if seconds is None else min(seconds, budget.left)}
    outcome = _run(f"{_CHILD}:run_answers", job, more, budget.limit, MEMORY, trusted=trusted)
    try:
        spent = max((float(part["spent"]) for part in outcome.parts), default=0.0)
        budget.spent += budget.left if outcome.status == "timeout" else spent
        return [read(tuple[tuple[torch.Tensor, ...], ...], part["outputs"]) for part in outcome.parts]
    except (ProtocolError, KeyError, TypeError, ValueError):
        return []


def first_launch(job: Job, arch: str, *, time_limit: float = 10.0) -> dict[str, str] | None:
    """The AMD card of the first kernel of the first case, {"text": ..., "html": ...}; None where there is none."""
    outcome = _run(f"{_CHILD}:first_launch", job, {"arch": arch}, time_limit, MEMORY)
    value = outcome.value if outcome.status == "ok" else None
    return {key: str(value[key]) for key in ("text", "html")} if value else None


def measure(job: Job, arch: str, picture: str, *, time_limit: float) -> Outcome:
    """The figures of one case; see `measured.measure`."""
    more = {"arch": arch, "picture": picture}
    return _run("course_lab.check.measured:measure", job, more, time_limit, MEMORY)


def finding(job: Job, part: str, *, time_limit: float) -> Found | str:
    """What an answer to a patient says before its repair; a sentence where its process did not get through."""
    outcome = _run(f"{_EXAMINED}:finding", job, {"part": part}, time_limit, MEMORY)
    if outcome.status != "ok":
        return outcome.error.message if outcome.error else outcome.status
    try:
        return read(Found, outcome.value, clean)
    except ProtocolError as error:
        return f"its result cannot be read ({error})"


def author_test(job: Job, name: str, test: str, *, time_limit: float) -> str:
    """Why the author's test fails on an answer, "" when it passes."""
    outcome = _run(f"{_EXAMINED}:author_test", job, {"name": name, "test": test}, time_limit, MEMORY)
    if outcome.status != "ok":
        return outcome.error.message if outcome.error else outcome.status
    return clean(str(outcome.value.get("failed", "")))


def cost(job: Job, arch: str, *, time_limit: float, trusted: bool = False) -> dict[str, int] | None:
    """Bytes and wave instructions of one call on a simulated GPU; None where it cannot be run there."""
    outcome = _run(f"{_EXAMINED}:cost", job, {"arch": arch}, time_limit, MEMORY, trusted=trusted)
    value = outcome.value if outcome.status == "ok" else None
    return {key: int(value[key]) for key in ("bytes", "instructions")} if value else None


def built(job: Job, arch: str, *, time_limit: float, trusted: bool = False) -> tuple[str, int] | None:
    """(why a launch is refused, or "", spilled registers) of one call on `arch`; None where nothing can be said."""
    outcome = _run(f"{_EXAMINED}:built", job, {"arch": arch}, time_limit, MEMORY, trusted=trusted)
    value = outcome.value if outcome.status == "ok" else None
    return (clean(str(value["refused"])), int(value["spills"])) if value else None


def followed(job: Job, seconds: float, *, trusted: bool = False) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Steps and figures of the values that an instrumented answer hands over (see `followed`); None where it fails."""
    outcome = _run("course_lab.check.followed:follow", job, {"seconds": seconds}, 8 * seconds, MEMORY, trusted=trusted)
    try:
        steps, figures = (read(torch.Tensor, outcome.value[name]) for name in ("steps", "figures"))
    except (ProtocolError, KeyError, TypeError, ValueError):
        return None
    shaped = steps.ndim == 2 == figures.ndim and steps.shape[1] == 4 and figures.shape == (len(steps), 7)
    return (steps, figures) if shaped and steps.dtype == torch.int64 and figures.dtype == torch.float64 else None


def run_answer(function: str, job: Job, more: dict[str, Any], *, time_limit: float) -> Outcome:
    """Run `function` ("module:name") of ours on an answer, where answers are run; `more` joins the job's payload."""
    return _run(function, job, more, time_limit, MEMORY)


def _run(
    function: str,
    job: Job,
    more: dict[str, Any],
    time_limit: float,
    memory_limit: int | None,
    on_part: Callable[[int], None] | None = None,
    trusted: bool = False,
) -> Outcome:
    limits = {"time_limit": time_limit, "memory_limit": memory_limit, "on_part": on_part}
    if _nobody_waits():
        return Outcome("timeout", error=Error("TimeoutError", "nobody waits for it any more"))
    elsewhere = _of_answers.get()
    if elsewhere is not None and not trusted:
        return elsewhere(function, {"job": wire(job), **more}, **limits)
    confined = _files() if job.device == "cpu" else None  # a GPU's driver writes where it likes
    try:
        return sandbox.run(
            function,
            {"job": wire(job), **more},
            **limits,
            confined=confined,
            imports=job.imports,
            stopped=_nobody_waits,
        )
    except OSError as error:
        why = f"the check could not write its files below {tempfile.gettempdir()} ({error.strerror or error})"
        return Outcome("crash", error=Error("OSError", why))


def _files() -> Confined:
    """Our own packages and Triton's cache are read, but no solution and not the journal, wherever these lie."""
    packages = (importlib.util.find_spec(name) for name in ("gfxlab", "course_kernels", "course_lab"))
    folders = [folder for found in packages if found for folder in found.submodule_search_locations or ()]
    return Confined((*folders, triton.knobs.cache.dir), (str(home()), *_with_solutions()))


@lru_cache(maxsize=1)
def _with_solutions() -> tuple[str, ...]:
    """The folders of the lessons, and of the notebooks with their answers where these lie beside them."""
    folders = {lesson.path for lesson in lessons.all()}
    beside = {folder.parent.parent / name for folder in folders for name in ("solutions", "tests")}
    return tuple(map(str, folders | beside))


def _unreadable(outcome: Outcome, error: Exception) -> Outcome:
    return replace(outcome, status="crash", error=Error("Crash", f"its result cannot be read ({error})"), parts=())
