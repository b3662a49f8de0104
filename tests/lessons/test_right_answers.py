"""No right answer is rejected, however it is written: other grids, loops, imports, atomics, locks, autotune.

`right_answers/lNN.py` holds them, each behind a line `# %% number | what is different`.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from course_lab.check import grade

ALWAYS = re.compile(r"\b(print|aliased|names imported|autotune|methods|lock|last program|in a list|rank|by an axis)\b")
AT_LEAST = 20  # of each lesson


def answers():
    """(number, what is different, code) of every right answer."""
    for path in sorted((Path(__file__).parent / "right_answers").glob("l*.py")):
        for cell in re.split(r"^# %% ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            head, code = cell.split("\n", 1)
            yield *head.split(" | "), code


def parameters():
    for number, what, code in answers():
        marks = () if ALWAYS.search(what) else (pytest.mark.slow,)
        yield pytest.param(number, code, id=f"{number}-{what}", marks=marks)


@pytest.mark.parametrize("number, code", list(parameters()))
def test_a_right_answer_passes(number, code):
    report = grade(number, code)
    assert report.passed, report


def test_every_lesson_has_many():
    counts = Counter(number.split(".")[0] for number, _, _ in answers())
    assert min(counts.values()) >= AT_LEAST, counts
