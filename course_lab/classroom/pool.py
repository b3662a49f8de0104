"""Grader processes on this machine, one submission at a time each; one that dies costs one answer, and is replaced.

Each is forked from a process that has imported everything, so it starts at once; after some submissions it gives way to
a fresh one, so memory stays flat.  The learner's code is in none of them: it is in the sandbox that each one starts.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.submissions import Submission
from course_lab.classroom.verdicts import Assignment, bound_memory, given_up, grade_submission

_LIFETIME = 40  # submissions, after which a process is replaced
_PATIENCE = 900.0  # seconds that one exercise may take, known mistakes and all
_MOST_LOST = 100
_PR_SET_PDEATHSIG = 1
_context = multiprocessing.get_context("fork")


@dataclass
class Task:
    """One submission to be graded.

    known: verdicts that stand; last: the exercise that is being judged; lost: graders that died with it.
    """

    submission: Submission
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: str = ""
    lost: int = 0


Tell = Callable[[Submission, str, dict[str, Any] | None], object]


def grade_all(
    submissions: Iterable[Submission],
    assignment: Assignment,
    jobs: int,
    tell: Tell = lambda submission, number, verdict: None,
) -> Iterator[dict[str, Any]]:
    """Results as they come. `submissions` is read no faster than it is graded.

    tell: hears of every exercise, before it (None) and with its verdict.
    """
    waiting = deque[Task]()
    coming = iter(submissions)
    workers: list[_Worker] = []
    try:
        while True:
            while len([one for one in workers if one.task]) < jobs:
                task = waiting.popleft() if waiting else _next(coming)
                if task is None:
                    break
                idle = next((one for one in workers if one.task is None), None)
                if idle is None:
                    idle = _Worker.start(assignment)
                    workers.append(idle)
                idle.give(task)
            if not any(one.task for one in workers):
                return
            for worker in _heard(workers):
                result = worker.listen(tell)
                if result is not None:
                    yield result
                if worker.is_over:
                    if worker.task:
                        waiting.append(worker.task)
                    worker.end()
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.end()


def _next(coming: Iterator[Submission]) -> Task | None:
    submission = next(coming, None)
    return None if submission is None else Task(submission)


def _heard(workers: list[_Worker]) -> list[_Worker]:
    """Those that have something to say, have died, or have been silent for too long."""
    ready = connection.wait([one.pipe for one in workers], timeout=1.0)
    late = [one for one in workers if one.task and time.monotonic() - one.since > _PATIENCE]
    return [one for one in workers if one.pipe in ready or one in late]


@dataclass
class _Worker:
    process: Any
    pipe: connection.Connection
    task: Task | None = None
    done: int = 0
    since: float = 0.0
    is_over: bool = False

    @classmethod
    def start(cls, assignment: Assignment) -> _Worker:
        mine, its = _context.Pipe()
        process = _context.Process(target=_serve, args=(its, mine, assignment, os.getpid()), name="course grader")
        process.start()
        its.close()
        return cls(process, mine)

    def give(self, task: Task) -> None:
        self.task, self.since = task, time.monotonic()
        task.last = ""
        with suppress(OSError):  # it has died: `listen` finds out
            self.pipe.send((task.submission, task.known))

    def listen(self, tell: Tell) -> dict[str, Any] | None:
        """What it says: a verdict for its task, or the whole result; its end costs the exercise that it was at."""
        try:
            if time.monotonic() - self.since > _PATIENCE and not self.pipe.poll():
                raise TimeoutError(f"it took more than {_PATIENCE:g} seconds")
            kind, *content = self.pipe.recv()
        except (EOFError, OSError) as error:
            self._lost(error, tell)
            return None
        self.since = time.monotonic()
        if kind == "error":
            raise content[0]
        if kind == "verdict":
            self._note(*content, tell)
            return None
        self.task, self.done = None, self.done + 1
        self.is_over = self.done >= _LIFETIME
        return content[0]

    def _note(self, number: str, verdict: dict[str, Any] | None, tell: Tell) -> None:
        self.task.last = number if verdict is None else ""
        if verdict is not None:
            self.task.known[number] = verdict
        tell(self.task.submission, number, verdict)

    def _lost(self, error: Exception, tell: Tell) -> None:
        self.is_over = True
        if self.task is None:
            return
        self.task.lost += 1
        if self.task.lost > _MOST_LOST:
            raise ClassroomError(f"The graders of {self.task.submission.learner} keep dying: is there enough memory?")
        self.process.join(1)
        how = str(error) if isinstance(error, TimeoutError) else f"its process ended with {self.process.exitcode}"
        number = self.task.last or next(iter(self.task.submission.answers), "")
        if number:
            self._note(number, given_up(number, how), tell)

    def end(self) -> None:
        with suppress(OSError):
            self.pipe.close()
        self.process.join(0.2)
        self.process.kill()
        self.process.join()


def _serve(pipe: connection.Connection, other: connection.Connection, assignment: Assignment, parent: int) -> None:
    other.close()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        os._exit(1)
    bound_memory()
    with suppress(EOFError, OSError):
        while True:
            submission, known = pipe.recv()
            try:
                result = grade_submission(
                    submission, assignment, lambda number, verdict: pipe.send(("verdict", number, verdict)), known
                )
            except ClassroomError as error:  # no sandbox: nothing can be graded
                pipe.send(("error", error))
                return
            pipe.send(("result", result))


def die_with_parent() -> None:
    """A grader that lost its master must not go on: its sandboxes end with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
