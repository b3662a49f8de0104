"""Try many answers to one exercise quickly: whether all of its cases pass in the interpreter, and nothing more.

One process makes the inputs and the references once.  Each answer has a fork of it, which stops at the first case that
fails; the cases that fail most for their seconds come first, which is learned on the way.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lab.authoring import lessons
from course_lab.authoring.exercise import Exercise
from course_lab.authoring.far_rows import is_spread, spread
from course_lab.check import child, client
from course_lab.check.grading import make_job, make_runs
from course_lab.check.protocol import Job
from course_lab.check.verdict import CaseRun
from gfxlab import sandbox

_PATIENCE = 10.0  # so many times its processor time an answer may take by the clock


def passing(number: str, codes: list[str]) -> list[bool]:
    """For each of these texts, which must be of our own making, whether every case of exercise `number` passes.

    An answer of which nothing is known, because the process that tried them died, counts as one that passes.
    """
    seconds = _PATIENCE * lessons.exercise(number).time_limit * (len(codes) + 1)
    payload = {"number": number, "codes": tuple(codes)}
    parts = sandbox.run(f"{__name__}:try_all", payload, time_limit=seconds, memory_limit=None).parts
    known = [bool(part["passes"]) for part in parts]
    return known + [True] * (len(codes) - len(known))


def try_all(payload: dict[str, Any]) -> Iterator[dict[str, bool]]:
    """The job of `passing`: {"passes": ...} for each of the payload's "codes"."""
    child.prepare()
    trial = Trial(lessons.exercise(payload["number"]))
    for code in payload["codes"]:
        yield {"passes": trial.passes(code)}


@dataclass
class _Part:
    """A case, with its second call where there is one.  Of so many tries so many failed, and took so many seconds."""

    runs: list[CaseRun]
    tries: int = 0
    failures: float = 0.0
    seconds: float = 0.0

    @property
    def worth(self) -> float:
        """How likely it fails, for a second of it; what was never tried comes first."""
        return (self.failures + 0.5) / (self.seconds + 0.01) if self.tries else float("inf")


class Trial:
    """An exercise with its inputs and references, on which answers are tried one after the other."""

    def __init__(self, exercise: Exercise) -> None:
        runs = iter(make_runs(exercise))
        self._exercise = exercise
        self._job = make_job(exercise, "", [])
        self._parts = [_Part([next(runs) for _ in case.calls()]) for case in exercise.cases]

    def passes(self, code: str) -> bool:
        """Whether every case passes, within the exercise's time."""
        parts = sorted(self._parts, key=lambda part: -part.worth)
        reader, writer = os.pipe()
        worker = os.fork()
        if not worker:
            self._in_fork(parts, replace(self._job, code=code), writer)
        os.close(writer)
        status = os.waitpid(worker, 0)[1]
        with open(reader) as told:
            spent = [float(line) for line in told if line.endswith("\n")]
        for part, seconds in zip(parts, spent):
            part.tries, part.seconds = part.tries + 1, part.seconds + seconds
        if spent and os.WIFEXITED(status) and status:
            parts[len(spent) - 1].failures += 1
        return not status

    def _in_fork(self, parts: list[_Part], job: Job, writer: int) -> None:
        """Never returns; its exit status is 0 where all pass. The seconds of each part go into the pipe."""
        status = 1
        try:
            limit = int(self._exercise.time_limit) + 1
            sandbox.limit_resources(_PATIENCE * limit, client.MEMORY)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            status = int(not _all_pass(parts, job, writer))
        finally:
            os._exit(status)


def _all_pass(parts: list[_Part], job: Job, writer: int) -> bool:
    cases = (tuple(map(_unshared, run.args)) for part in parts for run in part.runs)
    seen = child.tried(replace(job, cases=tuple(cases)))
    next(seen)  # what it defines: nothing follows where that failed
    for part in parts:
        begun = time.process_time()
        passed = all(run.passed for run in [replace(run, seen=next(seen, None)) for run in part.runs])
        os.write(writer, f"{time.process_time() - begun}\n".encode())
        if not passed:
            return False
    return True


def _unshared(value: Any) -> Any:
    """What no other fork can write: memory that is only taken where it is touched is shared by all forks."""
    return spread(value, value.stride()) if isinstance(value, torch.Tensor) and is_spread(value) else value
