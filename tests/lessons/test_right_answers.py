"""No right answer is rejected, however it is written: other grids, loops, imports, atomics, locks, autotune."""

import pytest
from right_answers import ANSWERS

from course_lab.check import grade

ALWAYS = ("print", "aliased", "names imported", "autotune", "methods", "lock", "last program", "descriptor")


def parameters():
    for number, what, code in ANSWERS:
        marks = () if any(word in what for word in ALWAYS) else (pytest.mark.slow,)
        yield pytest.param(number, code, id=f"{number}-{what}", marks=marks)


@pytest.mark.parametrize("number, code", list(parameters()))
def test_a_right_answer_passes(number, code):
    report = grade(number, code)
    assert report.passed, report
