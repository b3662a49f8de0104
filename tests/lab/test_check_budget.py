"""A search has so much processor time: what else the machine does takes nothing of it, and waiting does."""

import threading
import time

import pytest
from small_exercises import DOUBLE, DOUBLE_SOLUTION

from course_lab.check import client, grade
from course_lab.check.budget import Budget
from course_lab.check.grading import make_job, make_runs

SLEEPS = f"import time\ntime.sleep(0.25)\n{DOUBLE_SOLUTION}"
WORKS = f"import time\nends = time.process_time() + 0.25\nwhile time.process_time() < ends: pass\n{DOUBLE_SOLUTION}"


def reached(code: str, count: int, budget: Budget) -> int:
    runs = make_runs(DOUBLE)[:1]
    return sum(bool(made) for made in client.run_answers(make_job(DOUBLE, "", runs), [code] * count, budget))


def test_work_ends_the_search_and_the_next_one_begins_with_what_is_left():
    budget = Budget(0.8)
    assert 2 <= reached(WORKS, 9, budget) <= 4
    assert budget.left == 0 and reached(SLEEPS, 1, budget) == 0


@pytest.mark.parametrize("never_ends", [SLEEPS.replace("0.25", "60"), f"while True: pass\n{DOUBLE_SOLUTION}"])
def test_what_never_ends_takes_what_is_left_and_no_more(never_ends):
    budget, begun = Budget(0.6), time.monotonic()
    assert reached(never_ends, 3, budget) == 0 and budget.left == 0
    assert reached(never_ends, 3, budget) == 0
    assert time.monotonic() - begun < 8  # four times as long where others work beside it, and its end


def test_what_is_under_way_when_nobody_waits_any_more_is_ended():
    job, begun = make_job(DOUBLE, "while True: pass\n", make_runs(DOUBLE)[:1]), time.monotonic()

    def ask():
        return client.run_cases(job, time_limit=60)

    with client.meanwhile(ask, lambda: client.at_once(ask, ask)) as answers:
        time.sleep(0.3)
    assert time.monotonic() - begun < 10 and all(one.done() for one in answers)


def test_a_search_leaves_nothing_behind():
    wrong = DOUBLE_SOLUTION.replace("x * 2", "x * x")  # known from its numbers, while its place is sought
    assert grade(DOUBLE, wrong.replace("double_kernel", "kernel"), mistakes=list).diagnosis
    assert grade(DOUBLE, DOUBLE_SOLUTION.replace("offs < n", "offs < n // 2"), solution=DOUBLE_SOLUTION).diagnosis
    assert not [thread.name for thread in threading.enumerate() if "ThreadPool" in thread.name]
