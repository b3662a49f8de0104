"""Grade your answers: one test for each named case.

pytest exercises/                              your answers; exercises that you haven't begun are skipped
pytest exercises/ -k 2.1                       one exercise
COURSE_TARGET=solutions pytest exercises/      the solutions instead; or work/exercises, or exercises

Your answer is that in work/exercises/, or in exercises/ where work/ has only the stub.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from course_lab import check
from course_lab.authoring import lessons
from course_lab.authoring.lessons import Lesson
from course_lab.authoring.notebooks import NotebookError, answer_code
from course_lab.work.copies import answer_file, shown

ROOT = Path(__file__).resolve().parent.parent
TARGET = os.environ.get("COURSE_TARGET")


def _cases() -> list:
    """One parameter set for each case of the lessons whose notebooks belong here."""
    return [
        pytest.param(lesson, exercise.number, case, id=f"{exercise.number}-{case}")
        for lesson in lessons.all()
        if _path(lesson).exists() or lesson.is_built_in(ROOT)
        for exercise in lesson.exercises
        for case in exercise.ticks
    ]


def _path(lesson: Lesson) -> Path:
    return ROOT / (TARGET or "exercises") / f"{lesson.name}.ipynb"


@cache
def _graded(lesson: Lesson, number: str) -> tuple[Path, check.Report]:
    mine = lesson.is_built_in(ROOT) and not TARGET
    path = answer_file(lesson, number) if mine else _path(lesson)
    return path, check.grade(number, answer_code(path, number))


@pytest.mark.parametrize("lesson, number, case", _cases())
def test_exercise(lesson: Lesson, number: str, case: str) -> None:
    try:
        path, report = _graded(lesson, number)
    except NotebookError as error:
        pytest.fail(str(error), pytrace=False)
    if report.status == "not-attempted":
        pytest.skip(f"exercise {number}: not attempted yet")
    passed = {result.name for result in report.cases if result.passed}
    if case not in passed:
        pytest.fail(f"{shown(path, ROOT)}:\n{report}", pytrace=False)
