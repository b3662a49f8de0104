"""Every lesson: rules kept, notebooks as built, stubs no attempt, solutions right, each mutant diagnosed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from course_lab import check
from course_lab.authoring import build, edits, lessons, mutants, source
from course_lab.authoring.build import learner, rules
from course_lab.authoring.exercise import Exercise
from course_lab.check.sentences import SENTENCES

REPOSITORY = Path(__file__).resolve().parents[2]
LESSONS = [lesson for lesson in lessons.all() if lesson.is_built_in(REPOSITORY)]


def _exercises() -> Iterator[Exercise]:
    """The exercises of the lessons that can be read; of the others test_the_rules_are_kept gives the reason."""
    for lesson in LESSONS:
        if not rules.problems(lesson):
            yield from (*lesson.exercises, *lesson.steps)


EXERCISES = [exercise.number for exercise in _exercises()]
# Of a lesson beside the short path, the mutants of what is optional wait for `make test-full`.
OPTIONAL = {exercise.number for lesson in LESSONS if lesson.required for exercise in lesson.exercises}
OPTIONAL -= {number for lesson in LESSONS for number in lesson.required}


# `make test` grades the exercises' solutions once, where they stand: `pytest --nbval solutions/` fails for one that
# does not pass. The steps inside a lesson stand in no such notebook.
IN_NOTEBOOKS = {exercise.number for lesson in LESSONS for exercise in lesson.exercises}
SOLUTIONS = [pytest.param(number, marks=pytest.mark.slow) if number in IN_NOTEBOOKS else number for number in EXERCISES]

EVERY = 3  # mutant of an exercise


def _mutants() -> Iterator:
    """Every mutant; `make test` takes every third of an exercise, and for each rule at least one that it recognises.

    What an exercise recognises by a formula of its own takes its turn with the rest; `make test-full` takes them all.
    """
    taken: set[str] = set()
    for lesson in LESSONS:
        for number in filter(lesson.mutants.__contains__, EXERCISES):
            for place, mutant in enumerate(lesson.mutants[number]):
                of_a_new_rule = mutant.diagnosis in SENTENCES and mutant.diagnosis not in taken
                turn = number not in OPTIONAL and (place % EVERY == 0 or of_a_new_rule)
                taken |= {mutant.diagnosis} if turn else set()
                marks = () if turn else pytest.mark.slow
                yield pytest.param(number, mutant, id=f"{number}-{mutant.name}", marks=marks)


MUTANTS = list(_mutants())


def test_the_course_has_lessons():
    assert LESSONS


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_rules_are_kept(lesson):
    assert rules.problems(lesson) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_table_of_lessons_has_its_subject_and_time(lesson):
    assert lesson.subject and lesson.minutes


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_reading_time_is_honest(lesson):
    """A hundred words of prose take a minute, running and looking comes on top; the lesson says the same figure."""
    text = "\n".join(cell.text for cell in source.read(lesson.file("lesson.py")) if cell.kind == "markdown")
    body = re.sub(r"```.*?```", "", text.partition("### From formula to code")[0], flags=re.DOTALL)
    at_least = len(body.split()) / 100
    assert at_least <= lesson.minutes <= 1.5 * at_least
    assert f"takes about {lesson.minutes} minutes" in " ".join(body.split())


def test_the_notebooks_are_what_their_source_gives():
    report = build.build_notebooks(check=True)
    assert report.ok, str(report)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_committed_exercises_are_nobodys_work(lesson):
    """The working copy may hold answers; what is committed must be as the builder made it."""
    text = _committed(lesson.notebook("exercises"))
    if text is not None:
        assert not learner.in_use(nbformat.reads(text, as_version=4))


def _committed(path: Path) -> str | None:
    """The text of the file at the last commit; None where there is no git or no such file yet."""
    if shutil.which("git") is None:
        return None
    name = f"HEAD:{path.relative_to(REPOSITORY).as_posix()}"
    done = subprocess.run(["git", "show", name], cwd=REPOSITORY, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


@pytest.mark.parametrize("number", EXERCISES)
def test_the_stub_is_no_attempt(number):
    assert check.grade(number, lessons.stub(number)).status == "not-attempted"


@pytest.mark.parametrize("number", SOLUTIONS)
def test_the_solution_passes(number):
    report = check.grade(number, lessons.solution(number))
    assert report.passed, str(report)


@pytest.mark.parametrize("number, mutant", MUTANTS)
def test_the_mutant_is_diagnosed(number, mutant):
    code = edits.apply(mutant, lessons.solution(number))
    report = mutants.graded(lessons.exercise(number), lessons.stub(number), code)
    assert report.status == "failed", "the mutant passes"
    assert report.diagnosis is not None and report.diagnosis.code == mutant.diagnosis, str(report)
