"""Cases that take long run in two children, unless an answer may keep something from one to the next."""

from dataclasses import replace

import pytest
from small_exercises import DOUBLE, DOUBLE_SOLUTION, ROW_SUM, ROW_SUM_SOLUTION, ROW_SUM_WALKED, vector

from course_lab.authoring.exercise import Case
from course_lab.check import answer, client, grade, halves
from course_lab.check.grading import make_runs

AGAIN = replace(
    DOUBLE, cases=tuple(Case(f"{n} elements", vector(n), 1e-5, 1e-5, again=n == 40) for n in (20, 40, 60, 80))
)
KEPT = "kept = {}\n\n\n" + DOUBLE_SOLUTION.replace("y = torch", "y = kept[0] = torch")


@pytest.mark.parametrize(
    "code, keeps",
    [
        (DOUBLE_SOLUTION, False),
        (ROW_SUM_SOLUTION, False),
        (ROW_SUM_WALKED, False),
        (
            '"""A remark."""\nimport math\nBLOCK: tl.constexpr = tl.constexpr(128)\nSIZES = (1, -2.0)\n'
            + DOUBLE_SOLUTION,
            False,
        ),
        (DOUBLE_SOLUTION.replace("return y", "y[0] = y[0]\n    return y"), False),
        (KEPT, True),
        (DOUBLE_SOLUTION.replace("return y", "double.last = y\n    return y"), True),
        (DOUBLE_SOLUTION.replace("return y", "global last\n    last = y\n    return y"), True),
        (DOUBLE_SOLUTION.replace("double(x):", "double(x, kept={}):"), True),
        (DOUBLE_SOLUTION.replace("double(x):", "double(x, *, kept=[]):"), True),
        (DOUBLE_SOLUTION.replace("def double(", "@functools.cache\ndef double("), True),
        (DOUBLE_SOLUTION.replace("@triton.jit", "@triton.autotune(configs=[], key=['n'])\n@triton.jit"), True),
        ("for n in range(3):\n    pass\n" + DOUBLE_SOLUTION, True),
        ("class Kept:\n    last = None\n" + DOUBLE_SOLUTION, True),
        (DOUBLE_SOLUTION.replace("return y", "torch.set_default_dtype(x.dtype)\n    return y"), True),
        (DOUBLE_SOLUTION.replace("return y", "torch.last = y\n    return y"), True),
    ],
)
def test_what_may_keep_something(code, keeps):
    assert halves.keeps(answer.parse(code)) is keeps


@pytest.mark.parametrize(
    "took, sizes",
    [
        ((1, 0.1, 0.1, 0.1, 0.5), (1, 4)),
        ((0.1, 1, 0.2, 1, 0.1), (3, 2)),
        ((0.1, 0.1, 0.1, 0.1, 1), (4, 1)),
        ((0.1,) * 5, (5,)),
    ],
)
def test_each_child_has_half_of_what_takes_long_and_a_second_call_stays_with_the_first(took, sizes, monkeypatch):
    runs = make_runs(AGAIN)
    monkeypatch.setattr(halves, "_seconds", {(AGAIN.number, run.case.name): one for run, one in zip(runs, took)})
    parts = halves.shares(AGAIN, answer.parse(DOUBLE_SOLUTION), runs)
    assert tuple(map(len, parts)) == sizes and [run for part in parts for run in part] == runs
    assert halves.shares(AGAIN, answer.parse(KEPT), runs) == [runs]
    with monkeypatch.context() as shared:
        shared.setenv("COURSE_QUEUE", "a folder")
        assert halves.shares(AGAIN, answer.parse(DOUBLE_SOLUTION), runs) == [runs]
    with client.answers_run_by(lambda *_, **__: None):
        assert halves.shares(AGAIN, answer.parse(DOUBLE_SOLUTION), runs) == [runs]


@pytest.mark.parametrize(
    "exercise, code",
    [
        (DOUBLE, DOUBLE_SOLUTION),
        (DOUBLE, DOUBLE_SOLUTION.replace("offs < n", "offs < n - 1")),
        (DOUBLE, DOUBLE_SOLUTION.replace("    y = torch", "    assert len(x) != 1000\n    y = torch")),
        (DOUBLE, DOUBLE_SOLUTION.replace("def double(", "def other(")),
        (DOUBLE, f"{DOUBLE_SOLUTION}\n1 / 0\n"),
        (ROW_SUM, ROW_SUM_SOLUTION.replace("axis=0", "axis=1")),
    ],
)
def test_two_children_say_what_one_says(exercise, code, monkeypatch):
    jobs, real = [], client.run_cases
    monkeypatch.setattr(client, "run_cases", lambda job, **how: jobs.append(len(job.cases)) or real(job, **how))
    alone = str(grade(exercise, code, search=False))
    assert jobs[0] == len(make_runs(exercise))
    monkeypatch.setattr(halves, "_WORTH", 0.0)
    monkeypatch.setattr(halves, "note", lambda *_: None)
    monkeypatch.setattr(halves, "_seconds", {(exercise.number, case.name): 1.0 for case in exercise.cases})
    jobs.clear()
    assert str(grade(exercise, code, search=False)) == alone
    assert min(jobs[:2]) > 0 and sum(jobs[:2]) == len(make_runs(exercise))
