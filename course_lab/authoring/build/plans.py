"""The instructor's guide: timetables and misconceptions of each lesson, from the lessons' own minutes and mutants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from course_lab.authoring import lessons
from course_lab.authoring.exercise import Exercise, Mutant
from course_lab.authoring.lessons import Lesson
from gfxlab.tables import Table

PAGE = "workshop/README.md"
TALK = 5  # minutes at the board that begin each lesson
_MISCONCEPTIONS = 7  # of each lesson


@dataclass(frozen=True)
class Block:
    """A lesson in a timetable: its short path, and exercises beyond it."""

    lesson: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pause:
    """What is no lesson."""

    name: str
    minutes: int


_COFFEE, _LUNCH = Pause("coffee", 15), Pause("lunch", 60)
PLANS = {
    "Half a day: from nothing to a fused kernel": (
        (Block("00"), Block("01"), _COFFEE, Block("02"), Block("03"), Pause("what comes next, results", 10)),
    ),
    "One day: the short path": (
        (Block("00"), Block("01"), _COFFEE, Block("02"), Block("03"), _LUNCH, Block("04"), Block("05"), _COFFEE)
        + (Block("06"), Block("07"), Pause("what comes next, results", 10)),
    ),
    "Two days: with fusions, repairs, the clinic and the model": (
        (Block("00"), Block("01", ("1.3", "1.4")), _COFFEE, Block("02", ("2.3", "2.4")), _LUNCH)
        + (Block("03", ("3.3", "3.4")), _COFFEE, Block("04", ("4.3",)), Pause("questions", 10)),
        (Block("05"), Block("06", ("6.3",)), _COFFEE, Block("07", ("7.3",)), _LUNCH)
        + (Block("08"), _COFFEE, Block("09", ("9.1",)), Pause("what comes next, results", 15)),
    ),
}


def timetables() -> str:
    """Markdown: each plan day by day, from nine o'clock."""
    parts = []
    for name, days in PLANS.items():
        for number, day in enumerate(days, start=1):
            title = f"{name}, day {number}" if len(days) > 1 else name
            rows, end = _timetable(day)
            parts += [f"### {title}", f"From 9:00 to {_clock(end)}.", Table(rows, _HEAD, numbers=0).markdown()]
    return "\n\n".join(parts)


_HEAD = ("at", "what", "minutes", "exercises")


def _timetable(day: tuple[Block | Pause, ...]) -> tuple[list[tuple[str, ...]], int]:
    """The rows of a day, and the minutes since midnight at which it ends."""
    rows, now = [], 9 * 60
    for part in day:
        row, minutes = _pause(part) if isinstance(part, Pause) else _block(part)
        rows.append((_clock(now), *row))
        now += minutes
    return rows, now


def _pause(pause: Pause) -> tuple[tuple[str, ...], int]:
    return (f"*{pause.name}*", str(pause.minutes), ""), pause.minutes


def _block(block: Block) -> tuple[tuple[str, ...], int]:
    """Words, reading and exercises; what is done between the paragraphs of a lesson counts as reading it."""
    lesson = lessons.lesson(block.lesson)
    asked = [*_everybodys(lesson), *map(lessons.exercise, block.more)]
    steps = sum(step.minutes for step in lesson.steps)
    reading = (lesson.core_minutes or lesson.minutes or 0) + steps
    work = sum(exercise.minutes for exercise in asked)
    told = f"{TALK} + {reading} + {work} = {TALK + reading + work}"
    link = f"[{lesson.title}](../notebooks/{lesson.name}.ipynb)"
    return (link, told, ", ".join(f"{e.number} ({e.minutes})" for e in asked)), TALK + reading + work


def _everybodys(lesson: Lesson) -> list[Exercise]:
    """Those of the short path; where there is none, those that are required."""
    wanted = lesson.core or lesson.required
    return [exercise for exercise in lesson.exercises if exercise.number in wanted]


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"


def misconceptions() -> str:
    """Markdown: for each lesson what learners do, and the diagnosis that shows it, from wrong answers under test."""
    parts = []
    for lesson in lessons.all():
        rows = [
            (name, f"[`{code}`](../docs/field_guide.md#{code})", number) for name, code, number in _wrong_in(lesson)
        ]
        parts += [f"#### {lesson.title}", Table(rows, ("what they write", "diagnosis", "in"), numbers=0).markdown()]
    return "\n\n".join(parts)


def _wrong_in(lesson: Lesson) -> Iterator[tuple[str, str, str]]:
    """Name, diagnosis and exercise of wrong answers, each diagnosis once, those of everybody's exercises first."""
    first = {exercise.number for exercise in _everybodys(lesson)}
    seen: set[str] = set()
    for number, mutant in sorted(_mutants(lesson), key=lambda pair: pair[0] not in first):
        if mutant.diagnosis not in seen and len(seen) < _MISCONCEPTIONS:
            seen.add(mutant.diagnosis)
            yield mutant.name, mutant.diagnosis, number


def _mutants(lesson: Lesson) -> Iterator[tuple[str, Mutant]]:
    for number, mutants in lesson.mutants.items():
        yield from ((number, mutant) for mutant in mutants)
