"""A search has so much processor time: what else the machine does takes nothing of it."""

import pytest
from small_exercises import DOUBLE, DOUBLE_SOLUTION

from course_lab.check import budget as module
from course_lab.check import client
from course_lab.check.budget import Budget
from course_lab.check.grading import make_job, make_runs

SLEEPS = f"import time\ntime.sleep(0.25)\n{DOUBLE_SOLUTION}"
WORKS = f"import time\nends = time.process_time() + 0.25\nwhile time.process_time() < ends: pass\n{DOUBLE_SOLUTION}"


@pytest.fixture
def patient(monkeypatch):
    """On a machine that has little time for this."""
    monkeypatch.setattr(module, "_PATIENCE", 40.0)


def reached(code: str, count: int, budget: Budget) -> int:
    runs = make_runs(DOUBLE)[:1]
    return sum(bool(made) for made in client.run_answers(make_job(DOUBLE, "", runs), [code] * count, budget))


def test_waiting_is_not_working(patient):
    budget = Budget(0.8)
    assert reached(SLEEPS, 5, budget) == 5 and budget.spent < 0.8


def test_work_ends_the_search_and_the_next_one_begins_with_what_is_left(patient):
    budget = Budget(0.8)
    assert 2 <= reached(WORKS, 9, budget) <= 4
    assert budget.left == 0 and reached(SLEEPS, 1, budget) == 0


def test_the_clock_ends_what_never_would():
    assert reached(SLEEPS.replace("0.25", "60"), 1, Budget(0.4)) == 0
