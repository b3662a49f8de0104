"""Prove the checks against mistakes that nobody chose: every operator on every solution.

    judged = judge("2.1")           # each generated mutant, and what became of it
    print(table(judged))

A mutant that passes is either a case that the exercise lacks, or no mistake at all. The latter stand in the lesson's
`equivalents.py`, each with its reason; where such a line fits nothing that survives, it is out of date.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course_lab.authoring import lessons, quickly
from course_lab.authoring.exercise import Exercise
from course_lab.authoring.operators import OPERATORS, Generated, generate
from course_lab.authoring.operators.equivalent import Equivalent
from course_lab.check import grade
from gfxlab.tables import Table

STORED = "generated.json"


@dataclass(frozen=True)
class Judged:
    """One generated mutant of one exercise. reason: why it is right that it passes, or ""."""

    exercise: str
    mutant: Generated
    killed: bool
    reason: str = ""

    @property
    def survives(self) -> bool:
        return not self.killed and not self.reason

    def __str__(self) -> str:
        line = self.mutant.code.splitlines()[self.mutant.line - 1].strip()
        return f"{self.exercise}  {self.mutant.operator}  line {self.mutant.line}: {self.mutant.says}  |  {line}"


def judge(number: str, *, every: int = 1, first: int = 0) -> list[Judged]:
    """Grade the generated mutants of exercise `number`: all, or each `every`-th beginning with `first`.

    Most die in the interpreter, where they are tried quickly; what passes there is graded as a learner's answer is.
    """
    exercise, known = lessons.exercise(number), lessons.equivalents(number)
    chosen = list(generate(lessons.solution(number)))[first::every]
    # what a driver tells is judged outside, case by case
    passing = [True] * len(chosen) if exercise.judge else quickly.passing(number, [one.code for one in chosen])
    return [_judged(exercise, mutant, passes, known) for mutant, passes in zip(chosen, passing)]


def _judged(exercise: Exercise, mutant: Generated, passes: bool, known: Iterable[Equivalent]) -> Judged:
    if not passes or not grade(exercise, mutant.code, search=False).passed:
        return Judged(exercise.number, mutant, killed=True)
    reason = next((one.reason for one in known if one.fits(mutant)), "")
    return Judged(exercise.number, mutant, killed=False, reason=reason)


def numbers() -> list[str]:
    """Every exercise of every lesson."""
    return [exercise.number for lesson in lessons.all() for exercise in lesson.exercises]


def counts(judged: Iterable[Judged]) -> dict[str, dict[str, list[int]]]:
    """Exercise -> operator -> [made, killed, argued to be no mistake]."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in judged:
        row = found.setdefault(one.exercise, {}).setdefault(one.mutant.operator, [0, 0, 0])
        for i, yes in enumerate((True, one.killed, bool(one.reason))):
            row[i] += yes
    return found


def store(judged: Iterable[Judged], path: Path) -> None:
    """Write the counts of these exercises into the file, beside those of others."""
    known = stored(path)
    known |= counts(judged)
    text = json.dumps(dict(sorted(known.items(), key=_by_number)), indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _by_number(item: tuple[str, object]) -> tuple[int, ...]:
    return tuple(int(part) for part in item[0].split("."))


def stored(path: Path) -> dict[str, dict[str, list[int]]]:
    """The counts that were stored; empty when there are none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def table(found: dict[str, dict[str, list[int]]], whose: str = "exercise") -> str:
    """Markdown: mutants made, killed and argued to be no mistake, by operator and by whose solution they change."""
    exercises, operators = Counter(), Counter()
    for exercise, row in found.items():
        for operator, numbers_ in row.items():
            for i, count in enumerate(numbers_):
                exercises[exercise, i] += count
                operators[operator, i] += count
    known = [name for name in OPERATORS if operators[name, 0]]
    return "\n\n".join([_markdown("operator", known, operators), _markdown(whose, list(found), exercises)])


def _markdown(heading: str, keys: list[str], count: Counter) -> str:
    counted = {key: [count[key, i] for i in range(3)] for key in keys}
    counted["all"] = [sum(column) for column in zip(*counted.values())] or [0, 0, 0]
    rows = [
        (key, *map(str, (made, killed, argued, made - killed - argued)))
        for key, (made, killed, argued) in counted.items()
    ]
    return Table(rows, (heading, "made", "killed", "no mistake", "left"), numbers=4).markdown()
