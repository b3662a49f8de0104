"""`course grade`: read a class's submissions, grade what is not graded yet, write the pages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tqdm import tqdm

from course_lab.authoring import lessons
from course_lab.classroom import bubble, pages, pool
from course_lab.classroom.results import Results, ResultsError
from course_lab.classroom.submissions import Submission, learners, read, wanted_exercises
from course_lab.classroom.verdicts import Assignment

UNSAFE = "--unsafe: what learners wrote runs with your rights, and with your files within reach."
_EVERY = 60.0  # seconds between two lines of progress where nobody watches a bar


@dataclass(frozen=True)
class Graded:
    """What came of a class: submissions that were graded now, and those that had been before."""

    results: Results
    now: int
    before: int
    seed: str

    def __str__(self) -> str:
        done = f"{self.now} graded" + (f", {self.before} were graded already" if self.before else "")
        return f"{done}; seed {self.seed}. Open {self.results.folder / 'index.html'}"


def grade_class(
    place: Path,
    out: Path,
    *,
    seed: str | None = None,
    exercises: Iterable[str] = (),
    jobs: int | None = None,
    unsafe: bool = False,
    scheduler: str | None = None,
    tls: tuple[str, str, str] | None = None,
) -> Graded:
    """Grade every submission in `place` into the folder `out`, and go on where a grading was stopped.

    seed: of the hidden cases; None takes the folder's own, or draws one.  exercises: "2.1", or "2" for a lesson; ()
    takes every exercise of the lessons that somebody has begun.  jobs: graders at once; None takes one for each core.
    scheduler: the address of a Dask scheduler, whose workers grade in place of this machine's processes.
    tls: its authority, certificate and key, as paths.

    Raises:
        SubmissionsError, ResultsError, NoSandbox, LessonError: with what to do.
    """
    found = learners(place)
    chosen = numbers(exercises) if exercises else sorted(wanted_exercises(_read_all(found)), key=in_order)
    if not chosen:
        raise ResultsError(f"Nothing in {place} is an answer to an exercise: a cell begins with `%%exercise 2.1`.")
    if not unsafe and scheduler is None and (reason := bubble.why_not()):
        raise bubble.NoSandbox(f"{reason} (`--unsafe` grades without a sandbox: learners' code gets your rights.)")
    results = Results(out)
    with results.held():
        assignment = results.assignment(chosen, seed, unsafe)
        hidden = (*assignment.hidden, str(place.resolve()))
        assignment = Assignment(assignment.exercises, assignment.seed, unsafe, hidden)
        left = [name_and_path for name_and_path in found if not results.is_done(read(*name_and_path), assignment)]
        with Progress(len(left), len(chosen), len(found) - len(left)) as progress:
            for result in _engine(scheduler, tls)(_read_all(left), assignment, jobs or cores(), progress.heard):
                results.store(result)
                progress.stored()
        pages.write_all(results, [name for name, _ in found], assignment)
    return Graded(results, len(left), len(found) - len(left), assignment.seed)


def _engine(scheduler: str | None, tls: tuple[str, str, str] | None) -> Callable[..., Iterator[dict[str, Any]]]:
    if scheduler is None:
        return pool.grade_all
    from course_lab.classroom import cluster

    return cluster.at(scheduler, tls)


def _read_all(found: list[tuple[str, Path]]) -> Iterator[Submission]:
    return (read(name, path) for name, path in found)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def numbers(words: Iterable[str]) -> list[str]:
    """Exercises by number, "2" standing for all of lesson 2; `LessonError` names the known ones."""
    found: list[str] = []
    for word in words:
        if "." in word:
            found.append(lessons.exercise(word).number)
        else:
            found += [exercise.number for exercise in lessons.lesson(word.zfill(2)).exercises]
    return list(dict.fromkeys(found))


def in_order(number: str) -> tuple[int, int, str]:
    """The order of exercises: 2.10 comes after 2.9."""
    lesson, _, place = number.partition(".")
    return int(lesson), int(place) if place.isdigit() else 0, place


class Progress:
    """A bar that counts exercises and says when all will be done; a line now and then where nobody sees a bar."""

    def __init__(self, submissions: int, exercises: int, before: int) -> None:
        self._submissions, self._done, self._exercises = submissions, 0, exercises
        self._started = self._said = time.monotonic()
        self._watched = sys.stderr.isatty()
        tqdm.monitor_interval = 0  # its thread and the forks of the graders do not go together
        self._bar = tqdm(
            total=submissions * exercises,
            desc="grading",
            unit="exercise",
            disable=not self._watched,
            leave=False,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} exercises{postfix}",
        )
        if before and submissions:
            print(f"{before} submissions are graded already, {submissions} are left.", file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def heard(self, submission: Submission, number: str, verdict: dict[str, Any] | None) -> None:
        """One exercise is begun (None) or judged."""
        if verdict is not None:
            self._bar.update(1)
            self._bar.set_postfix_str(f"{submission.learner[:20]} {number}, done at {self._finish()}", refresh=False)

    def stored(self) -> None:
        """One submission is on disk."""
        self._done += 1
        now = time.monotonic()
        if not self._watched and (now - self._said > _EVERY or self._done == self._submissions):
            self._said = now
            done = f"{self._done} of {self._submissions} submissions"
            print(f"{done}, all of them at {self._finish()}", file=sys.stderr, flush=True)

    def _finish(self) -> str:
        part = self._bar.n / self._bar.total if self._watched and self._bar.total else self._done / self._submissions
        if not part:
            return "..."
        left = (time.monotonic() - self._started) * (1 - part) / part
        end = datetime.now() + timedelta(seconds=left)
        return f"{end:%H:%M}" if left < 12 * 3600 else f"{end:%a %H:%M}"
