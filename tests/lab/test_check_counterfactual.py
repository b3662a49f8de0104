"""Whose numbers are these: a wrong answer is told the mistake that gives just its numbers, in its own names."""

import pytest
from small_exercises import ROW_SUM, ROW_SUM_SOLUTION

from course_lab.check import client, counterfactual, grade, repair

OWN = ROW_SUM_SOLUTION.replace("normalise_kernel", "my_kernel").replace("total", "squares")


@pytest.fixture
def asked(monkeypatch):
    """How many mistakes were run, each time."""
    counts, real = [], client.run_answers

    def run(job, codes, budget, **options):
        counts.append(len(codes))
        return real(job, codes, budget, **options)

    monkeypatch.setattr(client, "run_answers", run)
    monkeypatch.setattr(counterfactual, "_seen", {})
    monkeypatch.setattr(repair, "place", lambda *about, **how: "")  # which runs answers of its own
    return counts


def explained(answer: str):
    report = grade(ROW_SUM, answer, solution=ROW_SUM_SOLUTION)
    assert report.status == "failed"
    return report.diagnosis


def test_the_mistake_is_said_and_remembered(asked):
    wrong = OWN.replace("tl.sum(x * x", "tl.sum(x")
    first = explained(wrong)
    assert first.sentence.startswith("Your numbers are those of a kernel that ") and "total" not in first.sentence
    run = sum(asked)
    assert run > 10 and explained(wrong) == first
    assert sum(asked) - run <= 2 * counterfactual._MOST, "what a mistake does on a case is known by then"


def test_numbers_of_no_mistake_are_followed_to_their_step(asked):
    odd = explained(OWN.replace("(x / squares)", "(x / squares + 0.37 * cols)"))
    assert odd.code == "astray" and "Your numbers" not in odd.sentence and "0.37 * cols" in odd.sentence


def test_what_a_rule_is_sure_of_is_not_asked(asked):
    assert explained(OWN.replace("x_ptr + row", "x_ptr + row + zzz")).code == "exception"
    assert asked == []


def test_without_a_solution_nobody_is_asked(asked):
    assert grade(ROW_SUM, OWN.replace("(x / squares)", "(x * squares)")).status == "failed" and asked == []


@pytest.mark.parametrize(
    "says, words",
    [
        ("uses `stride_xm` where `N` belongs", "uses `stride_xm` where `N` belongs"),
        ("loads `x_ptr` twice", "loads `x_ptr` twice"),
        ("loads `w_ptr` and `stride_wm` into `row_total`", "loads a tensor and a stride into a value"),
        ("adds `a + offs_w`", "adds one of its expressions"),
    ],
)
def test_names_are_the_learners(says, words):
    question = counterfactual.Question(client.Job("91.2", OWN, "normalise", ()), "", [], ("x",))
    assert counterfactual.in_own_names(says, question) == words
