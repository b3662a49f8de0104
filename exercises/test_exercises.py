"""Grade the answers in the exercise notebooks: one test for each named case.

pytest exercises/                              your answers; exercises that you haven't begun are skipped
pytest exercises/ -k 2.1                       one exercise
COURSE_TARGET=solutions pytest exercises/      the solutions instead
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from course_lab import check
from course_lab.authoring import lessons
from course_lab.authoring.notebooks import NotebookError, answer_code

TARGET = os.environ.get("COURSE_TARGET", "exercises")
FOLDER = Path(__file__).resolve().parent.parent / TARGET


def _cases() -> list:
    """One parameter set for each case of the lessons whose notebooks belong here."""
    return [
        pytest.param(FOLDER / f"{lesson.name}.ipynb", exercise.number, case.name, id=f"{exercise.number}-{case.name}")
        for lesson in lessons.all()
        if (FOLDER / f"{lesson.name}.ipynb").exists() or lesson.is_built_in(FOLDER.parent)
        for exercise in lesson.exercises
        for case in exercise.cases
    ]


@cache
def _report(notebook: Path, number: str) -> check.Report:
    return check.grade(number, answer_code(notebook, number))


@pytest.mark.parametrize("notebook, number, case", _cases())
def test_exercise(notebook: Path, number: str, case: str) -> None:
    try:
        report = _report(notebook, number)
    except NotebookError as error:
        pytest.fail(str(error), pytrace=False)
    if report.status == "not-attempted":
        pytest.skip(f"exercise {number}: not attempted yet")
    passed = {result.name for result in report.cases if result.passed}
    if case not in passed:
        pytest.fail(str(report), pytrace=False)
