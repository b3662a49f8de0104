"""The league: scores that are counts, the same whenever they are asked for."""

from __future__ import annotations

import pytest

from course_lab import journal
from course_lab.authoring import lessons
from course_lab.check.grading import make_runs
from course_lab.classroom import league
from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.results import Results
from course_lab.classroom.submissions import Submission
from course_lab.classroom.verdicts import Assignment, abandoned

SOLUTION = lessons.solution("1.1")
TWICE = SOLUTION.replace(
    "    return z", "    scale_and_add_kernel[(triton.cdiv(n, 256),)](x, y, z, alpha, n, BLOCK=256)\n    return z"
)


def test_a_score_is_the_mean_of_what_the_solution_takes_of_it():
    assert league.score((100, 100, 100), (100, 100, 100)) == 1.0
    assert league.score((100, 100, 100), (50, 50, 50)) == 2.0
    assert league.score((100, 100, 100), (200, 100, 50)) == 1.0
    assert league.score((0, 0, 0), (0, 0, 0)) == 1.0


@pytest.mark.parametrize("number", [one.number for lesson in lessons.all() for one in lesson.exercises][1::6])
def test_the_sizes_are_the_same_at_every_call_and_small_enough(number):
    first, again = (league.sizes(make_runs(lessons.exercise(number), "league")) for _ in range(2))
    assert [run.case.name for run in first] == [run.case.name for run in again] and len(first) <= 2
    for one, other in zip(first, again):
        assert all(a.equal(b) for a, b in zip(one.args, other.args) if hasattr(a, "equal"))


def test_a_folder_without_results_is_said(tmp_path):
    with pytest.raises(ClassroomError, match="course grade"):
        league.of_class(tmp_path)


def test_nobody_is_in_the_league_before_an_answer_is_right(course_home):
    assert "No right answer" in str(league.of_oneself())


@pytest.mark.slow
def test_ones_own_attempts_are_ranked_and_the_compiler_is_named(course_home):
    for code in (SOLUTION, TWICE, SOLUTION):
        journal.record("1.1", "attempt", status="passed", code=code, entry="scale_and_add")
    table = league.of_oneself(["1.1"])
    assert [one.score for one in table.entries] == [1.0, 0.5] and "Triton" in str(table)
    assert league.of_oneself(["1.1"]) == table


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_class_is_ranked_and_what_is_wrong_is_left_out(tmp_path, sandbox):
    results = Results(tmp_path / "results")
    with results.held():
        for who, code in {"ada": SOLUTION, "bob": TWICE, "eve": "import os\nos._exit(0)"}.items():
            stored = abandoned(Submission(who, {}), Assignment(("1.1",), "s"), "")
            stored["exercises"]["1.1"] |= {"status": "passed", "code": code}
            results.store(stored)
    table = league.of_class(results.folder, jobs=2)
    assert [(one.who, one.score) for one in table.entries] == [("ada", 1.0), ("bob", 0.5)]
    assert len(table.left_out) == 1 and "eve" in table.left_out[0]
