"""A class's results as its pages need them: the grid of verdicts in memory, everything else read again where needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from course_lab.authoring import lessons
from course_lab.classroom.results import Results, read_result

MISSING = {"status": "missing", "headline": "", "cases": [], "diagnosis": "", "sentence": "", "code": ""}


@dataclass(frozen=True)
class Mark:
    """One field of the grid: status, diagnosis, cases that are right and all of them."""

    status: str
    diagnosis: str = ""
    right: int = 0
    cases: int = 0


@dataclass(frozen=True)
class Gathered:
    """learners: in order.  exercises: the columns.  grid: marks by learner and exercise.  titles: of the exercises.

    minutes: what the progress records say, by learner and exercise.  problems: of reading, by learner.
    """

    results: Results
    learners: tuple[str, ...]
    exercises: tuple[str, ...]
    grid: dict[str, dict[str, Mark]]
    titles: dict[str, str]
    minutes: dict[str, dict[str, float]]
    problems: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, results: Results, learners: set[str], exercises: tuple[str, ...]) -> Gathered:
        """Read the results of these learners, those of others who were graded into the same folder left out."""
        grid: dict[str, dict[str, Mark]] = {}
        minutes, problems = {}, {}
        for result in results.all():
            name = result["learner"]
            if name in learners:
                grid[name] = {number: _mark(result["exercises"].get(number, MISSING)) for number in exercises}
                minutes[name] = _minutes(result.get("minutes"))
                problems[name] = tuple(map(str, result.get("problems") or ()))
        titles = {number: _title(number) for number in exercises}
        return cls(results, tuple(sorted(grid)), exercises, grid, titles, minutes, problems)

    def each(self) -> Iterator[dict[str, Any]]:
        """The whole result of each learner, one at a time."""
        for name in self.learners:
            if (result := read_result(self.results.file(name))) is not None:
                yield result

    def page(self, learner: str) -> str:
        """The file name of a learner's feedback."""
        return self.results.file(learner).with_suffix(".html").name

    def diagnoses(self) -> Counter[tuple[str, str]]:
        """How often each (exercise, diagnosis) was found."""
        marks = ((number, mark) for row in self.grid.values() for number, mark in row.items())
        return Counter((number, mark.diagnosis) for number, mark in marks if mark.diagnosis)


def _mark(verdict: dict[str, Any]) -> Mark:
    cases = [case for case in verdict.get("cases") or () if isinstance(case, dict)]
    right = sum(case.get("status") == "passed" for case in cases)
    return Mark(verdict["status"], str(verdict.get("diagnosis", "")), right, len(cases))


def _minutes(value: Any) -> dict[str, float]:
    found = value.items() if isinstance(value, dict) else ()
    return {str(number): float(spent) for number, spent in found if isinstance(spent, (int, float))}


def _title(number: str) -> str:
    with suppress(lessons.LessonError):
        return lessons.exercise(number).title
    return ""
