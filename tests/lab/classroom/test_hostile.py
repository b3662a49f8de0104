"""Every submission of hostile.md: contained, told what happened, and no harm to the exercise after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from handed_in import hand_in, of_answers, right
from hostile import ALL, Hostile

from course_lab.authoring import lessons
from course_lab.classroom import bubble, reach, run
from course_lab.classroom.results import Results

TABLE = Path(__file__).parents[3] / "docs" / "grading.md"


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> dict[str, dict]:
    """All of them as one class, graded once."""
    if reason := bubble.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("hostile")
    for one in ALL:
        hand_in(folder / "submissions", one.name, of_answers({"1.1": one.code, "1.2": right("1.2")}))
    run.grade_class(folder / "submissions", folder / "results", exercises=["1.1", "1.2"], jobs=4, seed="hostile")
    assert (folder / "results" / "index.html").exists()
    return {result["learner"]: result["exercises"] for result in Results(folder / "results").all()}


def test_there_are_at_least_thirty_and_all_are_in_the_table():
    text = TABLE.read_text(encoding="utf-8")
    assert len(ALL) >= 30 and not [one.name for one in ALL if f"| {one.name} |" not in text]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("one", ALL, ids=[one.name for one in ALL])
def test_it_is_contained(one: Hostile, graded):
    verdict = graded[one.name]["1.1"]
    assert verdict["status"] in one.ends, verdict
    assert one.says in f"{verdict['sentence']} {' '.join(verdict['excerpt'])}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("one", ALL, ids=[one.name for one in ALL])
def test_the_exercise_after_it_is_graded_as_ever(one: Hostile, graded):
    assert graded[one.name]["1.2"]["status"] == "passed", graded[one.name]["1.2"]["sentence"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_of_them_is_left_on_the_machine(graded):
    inside = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if b"classroom.inside" in command_line(pid)]
    assert not inside and not Path("/tmp/pickled").exists() and not Path("/tmp/forged").exists()


def command_line(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""


# ---- what an answer reaches for --------------------------------------------------------------------------------------


def every_answer() -> list[tuple[str, str]]:
    numbers = [one.number for lesson in lessons.all() for one in (*lesson.exercises, *lesson.steps)]
    return [(number, code) for number in numbers for code in (lessons.stub(number), lessons.solution(number))]


def test_no_answer_of_the_lessons_reaches_for_more_than_its_tools():
    assert not [(number, found) for number, code in every_answer() if (found := reach.reaches(code))]


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "from sys import modules",
        "from . import x",
        "import torch.utils",
        "from triton import runtime",
        "torch.os.system('x')",
        "torch.allclose = print",
        "tl.load = print",
        "import torch as t\nt.sys",
        "t = torch\nt.os",
        "(lambda: torch)().os",
        "f(torch)",
        "x.__globals__",
        "().__class__.__subclasses__()",
        "getattr(x, 'a' + 'b')",
        "getattr(x, '__globals__')",
        "setattr(torch.Tensor, 'copy_', print)",
        "setattr(x, '__class__', y)",
        "setattr(*x)",
        "s = setattr",
        "__import__('os')",
        "eval('1')",
        "open('x')",
        "x.data_ptr()",
        "y.as_strided((1,), (1,))",
        "torch.Tensor.copy_ = print",
        "def f():\n    import gc\n    return gc",
    ],
)
def test_what_reaches_further_is_seen(code):
    assert reach.reaches(code)


def test_what_is_nested_too_deeply_to_be_looked_at_is_not_let_through():
    assert reach.reaches("import os\nx = " + "-" * 5000 + "1")


@pytest.mark.parametrize(
    "code", ["import math", "import torch.nn.functional as F\nF.relu(x)", "tl.math.exp(x)", "x.load(1)", "("]
)
def test_what_an_exercise_needs_is_not(code):
    assert not reach.reaches(code)
