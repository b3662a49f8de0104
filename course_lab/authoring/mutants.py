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

from course_lab.authoring import source
from course_lab.authoring.edits import apply
from course_lab.authoring.exercise import Exercise, Mutant
from course_lab.check import grade
from course_lab.check.report import Report
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


def judge(exercise: Exercise, stub: str, solution: str, mutants: Iterable[Mutant]) -> list[Row]:
    """Grade the solution, which must pass, and each mutant of it."""
    answers = [("the solution", "passed", solution)]
    answers += [(mutant.name, mutant.diagnosis, apply(mutant, solution)) for mutant in mutants]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:  # the work is done in child processes
        return list(pool.map(lambda one: _row(exercise, stub, *one), answers))


def graded(exercise: Exercise, stub: str, code: str) -> Report:
    """The check's report by its rules alone, also on the broken code of a repair."""
    untouched = source.bare(code) == source.bare(stub)
    return grade(exercise, code, stub=None if untouched else stub, search=False)


def _row(exercise: Exercise, stub: str, name: str, expected: str, code: str) -> Row:
    code_got, sentence = graded(exercise, stub, code).diagnosis or ("passed", "")
    return Row(exercise.number, name, expected, code_got, sentence)


def kill_table(numbers: Iterable[str] | None = None) -> KillTable:
    """Judge the mutants of these exercises ("2.1"), or of all."""
    from course_lab.authoring import lessons

    wanted = None if numbers is None else set(numbers)
    rows: list[Row] = []
    for lesson in lessons.all():
        for exercise in (*lesson.exercises, *lesson.steps):
            if wanted is None or exercise.number in wanted:
                stub, solution = lessons.stub(exercise.number), lessons.solution(exercise.number)
                rows += judge(exercise, stub, solution, lesson.mutants.get(exercise.number, ()))
    return KillTable(tuple(rows))
