"""Prove the checks: every wrong kernel of a lesson must be rejected, with the diagnosis that its author names.

table = kill_table(["2.1"])     # None: every exercise of every lesson
print(table)
assert not table.survivors
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from course_lab.authoring.edits import apply
from course_lab.authoring.exercise import Exercise, Mutant
from course_lab.check import grade
from gfxlab.tables import Table


@dataclass(frozen=True)
class Row:
    """One graded answer: what the check had to say about it, and what it said ('passed' or a diagnosis code)."""

    exercise: str
    mutant: str
    expected: str
    got: str
    sentence: str = ""

    @property
    def as_expected(self) -> bool:
        return self.expected == self.got


@dataclass(frozen=True, repr=False)
class KillTable:
    """exercise x answer x expected x got; prints as a table."""

    rows: tuple[Row, ...]

    @property
    def survivors(self) -> tuple[Row, ...]:
        """Mutants that passed or got another diagnosis, and solutions that did not pass."""
        return tuple(row for row in self.rows if not row.as_expected)

    def __str__(self) -> str:
        rows = [(row.exercise, row.mutant, row.expected, row.got) for row in self.rows]
        wrong = [i for i, row in enumerate(self.rows) if not row.as_expected]
        table = Table(rows, ("exercise", "answer", "expected", "got"), marked=wrong, mark="✗")
        return "\n".join([table.text(), f"{len(self.rows) - len(self.survivors)} of {len(self.rows)} as expected"])

    __repr__ = __str__


def judge(exercise: Exercise, solution: str, mutants: Iterable[Mutant]) -> list[Row]:
    """Grade the solution, which must pass, and each mutant of it."""
    answers = [("the solution", "passed", solution)]
    answers += [(mutant.name, mutant.diagnosis, apply(mutant, solution)) for mutant in mutants]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:  # the work is done in child processes
        return list(pool.map(lambda answer: _row(exercise, *answer), answers))


def _row(exercise: Exercise, name: str, expected: str, code: str) -> Row:
    report = grade(exercise, code)
    code_got, sentence = report.diagnosis or ("passed", "")
    return Row(exercise.number, name, expected, code_got, sentence)


def kill_table(numbers: Iterable[str] | None = None) -> KillTable:
    """Judge the mutants of these exercises ("2.1"), or of all."""
    from course_lab.authoring import lessons

    wanted = None if numbers is None else set(numbers)
    rows: list[Row] = []
    for lesson in lessons.all():
        for exercise in (*lesson.exercises, *lesson.steps):
            if wanted is None or exercise.number in wanted:
                solution = lessons.solution(exercise.number)
                rows += judge(exercise, solution, lesson.mutants.get(exercise.number, ()))
    return KillTable(tuple(rows))
