"""One submission graded: an opinion on a kernel is formed once for a text, and nonsense costs one answer."""

from __future__ import annotations

import pytest

from course_lab.authoring import lessons
from course_lab.check import simulated
from course_lab.classroom import verdicts
from course_lab.classroom.submissions import Found, Submission
from course_lab.classroom.verdicts import Assignment, grade_submission

SOLUTION = lessons.solution("1.1")


@pytest.fixture
def formed(monkeypatch) -> list[str]:
    """The numbers of the exercises for which the simulator was asked."""
    asked, real = [], simulated._formed
    monkeypatch.setattr(simulated, "_formed", lambda job, *rest: (asked.append(job.number), real(job, *rest))[1])
    monkeypatch.setattr(verdicts, "_opinions", {})
    return asked


def graded(code: str, seed: str = "s") -> dict:
    found = Submission("a", {"1.1": Found("a.ipynb, cell 1", code)})
    return grade_submission(found, Assignment(("1.1",), seed, unsafe=True))["exercises"]["1.1"]


@pytest.mark.slow
def test_the_simulator_is_asked_once_for_a_text_and_a_seed(formed):
    first, again = graded(SOLUTION), graded(SOLUTION + "\n# a comment")
    assert first["status"] == again["status"] == "passed" and first["notes"] == again["notes"] and len(formed) == 1
    graded(SOLUTION.replace("256", "128"))
    graded(SOLUTION, "another seed")
    assert len(formed) == 3


def test_an_answer_that_cannot_be_judged_costs_nothing_else(monkeypatch):
    def nonsense(*_, **__):
        raise IndexError("an event that is not there")

    monkeypatch.setattr(verdicts, "grade", nonsense)
    verdict = graded(SOLUTION)
    assert verdict["status"] == "unreadable" and "an event that is not there" in verdict["sentence"]
