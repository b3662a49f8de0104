"""`course league`: who does with the least what all do right, counted on a simulated MI300X.

Scores need no GPU and no luck: instructions, bytes and cache lines of one call at sizes that stay the same, each as the
reference solution's count divided by the answer's; their geometric mean is the score.  1.00 is as good as the solution,
2.00 takes half.  A compiler of another version makes other instructions, so the table names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

from course_lab.authoring import lessons, source
from course_lab.authoring.far_rows import is_spread
from course_lab.check import client
from course_lab.check.grading import make_job, make_runs
from course_lab.check.protocol import ProtocolError, read
from course_lab.check.verdict import CaseRun, compare
from course_lab.classroom.bubble import Bubble
from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.results import Results
from course_lab.journal import events
from gfxlab.tables import Table

ARCH = "gfx942"
_SEED = "league"  # the same numbers for everybody, for ever
_SIZES = 2
_MOST_BYTES = 1 << 20  # of the arguments of a case
_SECONDS = 60.0
_JOB = "course_lab.classroom.effort:count"
Counts = tuple[int, int, int]


@dataclass(frozen=True)
class Entry:
    """One answer in the league. who: a learner, or the time of an attempt. counts: summed over the sizes."""

    exercise: str
    who: str
    counts: Counts
    score: float


@dataclass(frozen=True)
class League:
    """The entries by exercise, the best first, and those that could not be counted, with why."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.entries:
            return "\n".join(["No right answer to rank yet.", *self.left_out])
        parts = [self._table(number) for number in dict.fromkeys(entry.exercise for entry in self.entries)]
        parts.append(f"Counted on a simulated MI300X ({ARCH}); compiler: Triton {triton.__version__}.")
        return "\n\n".join([*parts, *self.left_out])

    def _table(self, number: str) -> str:
        rows, rank, before = [], 0, None
        for place, one in enumerate((entry for entry in self.entries if entry.exercise == number), start=1):
            rank, before = (rank if one.score == before else place), one.score
            rows.append((str(rank), one.who, f"{one.score:.2f}", *(f"{count:,}" for count in one.counts)))
        head = ("", "who", "score", "instructions", "bytes", "cache lines")
        return f"{number} {lessons.exercise(number).title}\n{Table(rows, head).text()}"


def of_class(results: Path, exercises: Iterable[str] = (), jobs: int = 1) -> League:
    """Rank a graded class by exercise; the answers are run in sandboxes again.

    Raises:
        ClassroomError: there are no results in the folder.
    """
    chosen, stored = set(exercises), Results(results)
    answers = [
        (number, result["learner"], verdict["code"])
        for result in (stored.all() if stored.submissions.is_dir() else ())
        for number, verdict in result["exercises"].items()
        if verdict["status"] == "passed" and (not chosen or number in chosen)
    ]
    if not answers and not stored.submissions.is_dir():
        raise ClassroomError(f"{results} holds no results: `course grade SUBMISSIONS --out {results}` makes them.")
    return _ranked(answers, lambda: Bubble((results.resolve(),)), jobs)


def of_oneself(exercises: Iterable[str] = ()) -> League:
    """Rank a learner's own right answers over time, from the progress record; each text once, at its first time."""
    chosen, seen = set(exercises), {}
    for event in events():
        number, code = event["exercise"], event.get("code")
        if event.get("status") == "passed" and code and (not chosen or number in chosen):
            seen.setdefault((number, source.fingerprint(code)), (number, str(event.get("time"))[:16], code))
    return _ranked(list(seen.values()), None, 1)


def _ranked(answers: list[tuple[str, str, str]], bubble: Callable[[], Bubble] | None, jobs: int) -> League:
    """answers: exercise, who, code.  bubble: makes the sandbox of one learner's answers; None takes the check's own."""
    reference: dict[str, Counts] = {}
    for number in dict.fromkeys(number for number, _, _ in answers):
        found = _counted(number, lessons.solution(number), None)
        if isinstance(found, tuple):
            reference[number] = found
    by_who: dict[str, list[tuple[str, str]]] = {}
    for number, who, code in answers:
        if number in reference:
            by_who.setdefault(who, []).append((number, code))

    def count(who: str) -> list[tuple[str, str, Counts | str]]:
        if bubble is None:
            return [(number, who, _counted(number, code, None)) for number, code in by_who[who]]
        with bubble() as box:
            return [(number, who, _counted(number, code, box.run)) for number, code in by_who[who]]

    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        counted = [one for of_one in pool.map(count, by_who) for one in of_one]
    entries = [Entry(n, who, c, score(reference[n], c)) for n, who, c in counted if isinstance(c, tuple)]
    left_out = [f"{n} of {who} is left out: {c}." for n, who, c in counted if isinstance(c, str)]
    return League(tuple(sorted(entries, key=lambda one: (_place(one.exercise), -one.score, one.who))), tuple(left_out))


def _place(number: str) -> tuple[int, int, str]:
    lesson, _, exercise = number.partition(".")
    return int(lesson), int(exercise) if exercise.isdigit() else 0, exercise


def score(reference: Counts, counts: Counts) -> float:
    """The geometric mean of how many times the reference takes what this takes, to two places."""
    ratios = [max(wanted, 1) / max(taken, 1) for wanted, taken in zip(reference, counts)]
    return round(math.prod(ratios) ** (1 / len(ratios)), 2)


def sizes(runs: list[CaseRun]) -> list[CaseRun]:
    """The largest cases that the simulator takes in a moment: those that tell most."""
    usable = [run for run in runs if run.needs_kernel and _bytes(run) <= _MOST_BYTES and not _is_far(run)]
    return sorted(usable, key=lambda run: (-_bytes(run), run.case.name))[:_SIZES]


def _tensors(run: CaseRun) -> list[torch.Tensor]:
    return [value for value in run.args if isinstance(value, torch.Tensor)]


def _bytes(run: CaseRun) -> int:
    return sum(tensor.nbytes for tensor in _tensors(run))


def _is_far(run: CaseRun) -> bool:
    return any(map(is_spread, _tensors(run)))


def _counted(number: str, code: str, run: client.Run | None) -> Counts | str:
    """The counts of an answer, or why there are none, without a full stop."""
    exercise = lessons.exercise(number)
    cases = sizes(make_runs(exercise, _SEED))
    if not cases:
        return "no case of the exercise fits the simulator"
    job = make_job(exercise, code, cases, simulate=ARCH)
    with client.answers_run_by(run):
        outcome = client.run_answer(_JOB, job, {"arch": ARCH}, time_limit=_SECONDS)
    if outcome.status != "ok":
        return (outcome.error.message if outcome.error else outcome.status).partition(". ")[0].rstrip(".")[:200]
    try:
        counts = read(tuple[tuple[int, int, int], ...], outcome.value["counts"])
        outputs = read(tuple[tuple[torch.Tensor, ...], ...], outcome.value["outputs"])
    except (ProtocolError, KeyError, TypeError):
        return "what was counted cannot be read"
    if len(counts) != len(cases) or not all(map(_is_right, cases, outputs)):
        return "it is wrong at these sizes"
    return tuple(sum(column) for column in zip(*counts))


def _is_right(run: CaseRun, outputs: tuple[torch.Tensor, ...]) -> bool:
    together = list(zip(run.expected, outputs, run.dtypes))
    right = all(compare(e, got, run.case.tolerance(i), dtype).right for i, (e, got, dtype) in enumerate(together))
    return len(outputs) == len(run.expected) and right
