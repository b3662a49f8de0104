"""The second opinion: an answer that the interpreter finds right, on a simulated AMD GPU."""

import ast
from dataclasses import replace

import pytest
import torch
from small_exercises import DOUBLE, DOUBLE_SOLUTION, HINTS, vector

from course_lab.authoring.exercise import Case, Exercise
from course_lab.check import child, client, grade, grading, simulated
from course_lab.check.protocol import Definition, Job, LaunchSeen, Seen
from gfxlab import sandbox
from gfxlab.simulator import IllegalAccess, SimulationError, UnknownInstruction

RUNNING_SUM = Exercise(
    "91.8",
    "Running sum",
    2,
    5,
    "running_sum",
    lambda x: x.cumsum(0),
    (Case("8 elements", vector(8), 1e-5, 1e-5),),
    HINTS,
)
# program p reads what program p - 1 wrote: right only where programs run one after the other
CHAIN = """\
@triton.jit
def chain_kernel(x_ptr, y_ptr):
    p = tl.program_id(0)
    tl.store(y_ptr + p + 1, tl.load(y_ptr + p) + tl.load(x_ptr + p))


def running_sum(x):
    y = torch.zeros(len(x) + 1)
    chain_kernel[(len(x),)](x, y)
    return y[1:]
"""
SQUARE = Exercise(
    number="91.9",
    title="Square a matrix",
    stars=2,
    minutes=5,
    entry="square",
    reference=lambda x: (x.double() @ x.double()).float(),
    cases=(Case("32 rows", lambda g: (torch.randn(32, 32, generator=g),), 1e-5, 1e-5),),
    hints=HINTS,
)
SQUARE_SOLUTION = """\
@triton.jit
def square_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, tl.dot(x, x, input_precision="ieee"))


def square(x):
    y = torch.empty_like(x)
    square_kernel[(1,)](x, y, N=32)
    return y
"""


def test_a_right_answer_is_right_in_the_machine_code_too():
    report = grade(DOUBLE, DOUBLE_SOLUTION)
    assert report.passed
    assert report.note == "Right on a simulated MI300X as well (2 of 3 cases tried)."
    assert report.note in str(report)
    assert report.note in report._repr_html_()
    assert len(report.cases) == len(DOUBLE.cases)


def test_programs_that_wait_for_each_other_are_found_out():
    report = grade(RUNNING_SUM, CHAIN)
    assert report.status == "failed"
    assert [(case.name, case.status) for case in report.cases] == [
        ("8 elements", "passed"),
        ("8 elements, programs reversed", "failed"),
    ]
    assert report.diagnosis.code == "race"
    assert "Program 0 touches element 1 of y_ptr in line 4 and program 1 in line 4" in report.diagnosis.sentence
    assert "7 of 8 elements of the output are wrong" in str(report)


def test_the_simulator_finds_it_too(monkeypatch):
    monkeypatch.setattr(grading, "_luck", lambda *_: None)
    report = grade(RUNNING_SUM, CHAIN)
    assert report.diagnosis.code == "race" and "of y_ptr" in report.diagnosis.sentence
    assert report.cases[-1].name == "8 elements, on a simulated MI300X"


def test_a_product_in_fewer_bits_is_found_out():
    assert grade(SQUARE, SQUARE_SOLUTION).passed
    report = grade(SQUARE, SQUARE_SOLUTION.replace(', input_precision="ieee"', ""))
    assert report.diagnosis.code == "simulator-differs"
    assert "tl.dot keeps fewer bits of float32" in report.diagnosis.sentence


def test_a_wrong_answer_is_not_asked_about_again(monkeypatch):
    monkeypatch.setattr(simulated, "second_opinion", lambda *_: pytest.fail("the interpreter has said enough"))
    assert grade(DOUBLE, DOUBLE_SOLUTION.replace("x * 2", "x * 3")).status == "failed"


def test_programs_that_store_to_one_place_are_told_to_take_care():
    twice = DOUBLE_SOLUTION.replace(
        "    tl.store(", "    tl.store(y_ptr, tl.program_id(0).to(tl.float32))\n    tl.store("
    )
    late = twice.replace("    return y", "    first_kernel[(1,)](x, y)\n    return y")
    late += """
@triton.jit
def first_kernel(x_ptr, y_ptr):
    tl.store(y_ptr, 2 * tl.load(x_ptr))
"""
    report = grade(replace(DOUBLE, cases=DOUBLE.cases[:1]), late)
    assert report.passed
    assert report.note.startswith("Right on a simulated MI300X as well, but take care: ")
    assert "y_ptr" in report.note


def opinion(monkeypatch, outcome):
    """The report on a right answer when the simulating child ends so; its records are made by `outcome`."""
    real = client.run_cases
    monkeypatch.setattr(client, "run_cases", lambda job, **how: outcome(job) if job.simulate else real(job, **how))
    return grade(DOUBLE, DOUBLE_SOLUTION)


def ended(job: Job, error: Exception) -> client.Attempt:
    """Every case ended so."""
    seen = Seen(problem=child.describe(error, "91.1"))
    return client.Attempt(Definition(), (seen,) * len(job.cases), sandbox.Outcome("ok"))


class Instruction:
    text, source = "v_new_f32 v0, v1", None


@pytest.mark.parametrize("error", [UnknownInstruction(Instruction()), ValueError("the compiler gave up. Sorry.")])
def test_what_the_simulator_cannot_do_is_a_quiet_line(monkeypatch, error):
    report = opinion(monkeypatch, lambda job: ended(job, error))
    assert report.passed
    assert report.note.startswith("Not tried on a simulated MI300X: the ")
    assert "v_new_f32" in report.note or report.note.endswith("the compiler gave up.")


@pytest.mark.parametrize("status", ["timeout", "crash", "memory"])
def test_a_simulating_child_that_dies_is_a_quiet_line(monkeypatch, status):
    died = sandbox.Outcome(status, error=sandbox.Error("Error", "it died"))
    report = opinion(monkeypatch, lambda _: client.Attempt(Definition(), (), died))
    assert report.passed
    assert report.note == "Not tried on a simulated MI300X: it died."


@pytest.mark.parametrize("error", [IllegalAccess("lane 5 loads element 9"), SimulationError("not all waves meet")])
def test_a_fault_of_the_machine_code_is_told_in_its_sentence(monkeypatch, error):
    report = opinion(monkeypatch, lambda job: ended(job, error))
    assert report.status == "failed"
    assert report.diagnosis.code == "simulator-fault"
    assert str(error) in report.diagnosis.sentence
    assert report.note == ""


def test_one_right_case_does_not_hide_a_wrong_one(monkeypatch):
    real = client.run_cases

    def outcome(job):
        found = real(job, time_limit=10)
        found.seen[1].outputs[0].add_(1)
        return found

    report = opinion(monkeypatch, outcome)
    assert [case.name for case in report.cases if not case.passed] == [
        "1000 elements, not a multiple, on a simulated MI300X"
    ]


def test_the_child_says_what_is_a_fault():
    code = DOUBLE_SOLUTION.replace("offs < n", "offs < n + 5")
    job = Job("91.1", code, "double", cases=((torch.ones(100),),), simulate="gfx942")
    problem = client.run_cases(job, time_limit=10).seen[0].problem
    assert (problem.type, problem.fault) == ("IllegalAccess", True)
    assert "element 100 of" in problem.message


def test_every_dtype_has_its_smallest_case_and_none_is_large():
    every = [("float32", 1000), ("float32", 600), ("bfloat16", 700), ("float16", 900), ("float32", 1 << 20)]
    cases = tuple(Case(f"{n} {name}", vector(n, getattr(torch, name)), 1e-2, 1e-2) for name, n in every)
    runs = simulated_cases(replace(DOUBLE, cases=cases))
    assert [run.case.name for run in simulated._smallest(runs)] == ["700 bfloat16", "900 float16", "600 float32"]
    assert [run.case.name for run in simulated._smallest(runs[:3])] == ["700 bfloat16", "600 float32"]
    assert simulated._smallest(runs[4:]) == []


def simulated_cases(exercise):
    from course_lab.check.grading import make_runs

    launched = Seen(launches=(LaunchSeen("double_kernel"),))
    return [replace(run, seen=launched) for run in make_runs(exercise)]


def test_what_the_compiler_refuses_is_wrong_in_the_learners_line():
    outside = DOUBLE_SOLUTION.replace("@triton.jit", "TWO = 2\n\n@triton.jit").replace("x * 2", "x * TWO")
    report = grade(DOUBLE, outside)
    assert report.diagnosis.code == "compiler-refuses"
    assert "a kernel cannot read the global variable TWO" in report.diagnosis.sentence
    assert report.excerpt[0] == "line 8:     tl.store(y_ptr + offs, x * TWO, mask=mask)"


ADD = Exercise(
    "91.7",
    "Add a number",
    1,
    5,
    "add",
    lambda x, n: x + n,
    tuple(
        Case(f"{n} more", lambda g, n=n, size=size: (torch.randn(size, generator=g), n), 1e-6, 1e-6)
        for n, size in ((3, 100), (1, 200))
    ),
    HINTS,
)
ADD_SOLUTION = """\
@triton.jit
def add_kernel(x_ptr, y_ptr, n, size, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < size)
    tl.store(y_ptr + offs, x + n, mask=offs < size)


def add(x, n):
    y = torch.empty_like(x)
    add_kernel[(1,)](x, y, n, len(x), BLOCK=256)
    return y
"""


def test_a_method_of_what_is_a_constant_in_a_larger_case_is_found_out():
    report = grade(ADD, ADD_SOLUTION)
    assert report.passed and "(1 of 2 cases tried)" in report.note
    found = grade(ADD, ADD_SOLUTION.replace("x + n,", "x + n.to(tl.float32),")).diagnosis
    assert found.code == "compiler-refuses" and "In the case '1 more' `n` is 1" in found.sentence


@pytest.mark.parametrize(
    "line, asked",
    [
        ("y = (n * m + row).to(tl.int64)", {"n", "m", "row"}),
        ("k = n * m; y = k.to(tl.int64)", {"k", "n", "m"}),
        ("y = tl.load(p + n).to(tl.int64)", set()),
        ("def wide(a): return a.to(tl.int64)\ny = wide(n)", {"a", "n"}),
    ],
)
def test_names_of_which_a_method_is_called_alone_or_in_arithmetic(line, asked):
    assert simulated._asked(ast.parse(line)) - {"tl"} == asked


def test_what_no_workgroup_can_hold_is_wrong():
    greedy = DOUBLE_SOLUTION.replace("BLOCK=128)", "BLOCK=128, num_warps=32)")
    report = grade(DOUBLE, greedy)
    assert report.diagnosis.code == "compiler-refuses" and "2048 threads" in report.diagnosis.sentence
    odd = grade(DOUBLE, DOUBLE_SOLUTION.replace("BLOCK=128)", "BLOCK=128, num_warps=3)")).diagnosis
    assert odd.code == "compiler-refuses" and "must be a power of two, got 3" in odd.sentence
