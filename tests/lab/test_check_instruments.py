"""How well a right answer does it: bytes, comparison with the solution, card, picture, and doing without them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from small_exercises import (
    COPY,
    COPY_SOLUTION,
    DOUBLE,
    DOUBLE_SOLUTION,
    IN_PLACE,
    IN_PLACE_SOLUTION,
    ROW_SUM,
    ROW_SUM_SOLUTION,
    SOLUTIONS,
    matrix,
)

from course_kernels import matmul
from course_lab.authoring.exercise import Case
from course_lab.check import grade, instruments, measured
from course_lab.check.grading import make_job, make_runs
from gfxlab import hardware, sandbox, units
from gfxlab.code import compiler
from gfxlab.tracing import trace


def card(exercise, code, solution=None):
    report = grade(exercise, code, card=True, solution=solution)
    assert report.passed, str(report)
    return report.card


@pytest.fixture
def measured_codes(monkeypatch):
    """The answers that were measured, in order."""
    codes, real = [], sandbox.run

    def run(job, payload, **options):
        if job.endswith(":measure"):
            codes.append(payload["job"]["code"])
        return real(job, payload, **options)

    monkeypatch.setattr(sandbox, "run", run)
    monkeypatch.setattr(instruments, "_solutions", {})
    return codes


TWO_LAUNCHES = """\
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(z_ptr + offs, x + tl.load(y_ptr + offs, mask=offs < n, other=0.0), mask=offs < n)


def double(x):
    half, y = torch.empty_like(x), torch.empty_like(x)
    zeros = torch.zeros_like(x)
    add_kernel[(triton.cdiv(x.numel(), 128),)](x, zeros, half, x.numel(), BLOCK=128)
    add_kernel[(triton.cdiv(x.numel(), 128),)](half, x, y, x.numel(), BLOCK=128)
    return y
"""


# ---- the figures -----------------------------------------------------------------------------------------------------


def test_a_right_answer_gets_bytes_machine_code_and_a_picture():
    shown = card(DOUBLE, DOUBLE_SOLUTION)
    lines = shown.text.splitlines()
    assert lines[0] == "How well? On the case “1024 elements, a multiple of the block”, for MI300X, MI325X"
    assert lines[1] == "  8,192 bytes moved, the least possible: a score of 100%."
    assert "double_kernel on gfx942" in lines
    assert "double_kernel: stores to y_ptr (1024 elements, 8 programs)" in lines
    assert "8,192 bytes moved" in shown.html and "waves per SIMD" in shown.html and "<svg" in shown.html
    assert "reference solution" not in shown.text


def test_least_times_are_those_of_a_prompt_and_not_of_a_toy_case():
    shown = card(DOUBLE, DOUBLE_SOLUTION).text
    assert "2,048 tokens of SmolLM2, 576 numbers each: 1,152 times this case" in shown
    time = hardware.lower_bound(1152 * 8192, 0, "MI300X").seconds
    line = next(line for line in shown.splitlines() if line.strip().startswith("least time, MI300X"))
    assert units.format_seconds(time) in line and "8 KiB" in shown, "the bytes are the case's own"


def test_the_report_shows_the_card_in_every_form():
    report = grade(DOUBLE, DOUBLE_SOLUTION, card=True)
    assert report.card.text in str(report) and report.card.html in report._repr_html_()
    assert grade(DOUBLE, DOUBLE_SOLUTION).card is None


def test_a_wrong_answer_is_not_measured(measured_codes):
    assert grade(DOUBLE, DOUBLE_SOLUTION.replace("x * 2", "x * 3"), card=True).card is None
    assert grade(ROW_SUM, "x = 1", card=True).card is None
    assert measured_codes == []


def test_what_one_kernel_leaves_for_the_next_is_not_needed():
    shown = card(DOUBLE, TWO_LAUNCHES, DOUBLE_SOLUTION)
    lines = shown.text.splitlines()
    assert lines[1:5] == [
        "  The reference solution does better (2):",
        "  ! 2 kernels launched where one would do.",
        "  ! 24,576 bytes moved where 8,192 would do.",
        "  24,576 bytes moved, the reference solution moves 8,192: a score of 33%.",
    ]
    assert "2 kernels launched where one would do." in shown.html


def test_the_score_is_against_the_solution_and_without_one_against_the_least():
    moved = "  24,576 bytes moved, the"
    assert card(DOUBLE, TWO_LAUNCHES).text.splitlines()[1] == f"{moved} least possible is 8,192: a score of 33%."
    shown = card(DOUBLE, TWO_LAUNCHES, TWO_LAUNCHES).text.splitlines()[1]
    assert shown == f"{moved} reference solution moves 24,576: a score of 100%."


def test_an_argument_that_is_written_counts_both_ways():
    assert "  800 bytes moved, the least possible: a score of 100%." in card(IN_PLACE, IN_PLACE_SOLUTION).text


def test_elements_that_are_read_again_are_named():
    twice = ROW_SUM_SOLUTION.replace(
        "    tl.store(",
        "    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)\n    tl.store(",
    )
    lines = card(ROW_SUM, twice, ROW_SUM_SOLUTION).text.splitlines()
    assert lines[2] == "  ! 3,072 bytes moved where 2,048 would do."
    assert lines[4] == "  x_ptr: each element is asked for 2 times; only a cache can save that."


@dataclass
class Touched:
    """As much of a traced launch as the count needs."""

    args: dict[str, torch.Tensor]
    counts: dict[str, np.ndarray]

    @property
    def tensors(self):
        return tuple(self.args)

    def tensor(self, name):
        return self.args[name]

    def times(self, name, kind):
        return self.counts[kind]


def test_views_of_one_storage_count_once():
    x, y = torch.zeros(8), torch.zeros(8)
    ones, none = np.ones(4, np.uint32), np.zeros(4, np.uint32)
    first = Touched({"a": x[:4]}, {"load": ones, "store": none})
    second = Touched({"a": x[2:6], "b": torch.zeros(4)}, {"load": ones, "store": none})
    part = np.array([1, 0, 2, 1], np.uint32)
    out = Touched({"y": y[4:]}, {"load": none, "store": part})
    assert measured.least_bytes([first, second, out], [x], [y]) == (6 + 3) * 4


# ---- against the solution --------------------------------------------------------------------------------------------


def test_an_answer_as_good_as_the_solution_is_told_so():
    lines = card(DOUBLE, DOUBLE_SOLUTION, DOUBLE_SOLUTION.replace("x * 2", "x + x")).text.splitlines()
    assert lines[2] == "  No worse than the reference solution in bytes, launches and machine code."
    assert not any(line.startswith("  !") for line in lines)


def test_narrower_loads_are_named_and_the_solution_is_not_shown():
    wide = DOUBLE_SOLUTION.replace("128", "1024").replace("double_kernel", "secret_kernel")
    scattered = wide.replace("secret", "my").replace(
        "BLOCK + tl.arange(0, BLOCK)", "BLOCK + (tl.arange(0, BLOCK) * 5) % BLOCK"
    )
    shown = card(DOUBLE, scattered, wide)
    assert "  ! 4 x 32-bit loads where one 128-bit load would do." in shown.text
    assert "  ! 4 x 32-bit stores where one 128-bit store would do." in shown.text
    assert "4 x 32-bit loads where one 128-bit load would do." in shown.html
    assert "secret" not in shown.text + shown.html


def test_the_solution_is_measured_once_and_away_from_the_answer(measured_codes):
    solution = DOUBLE_SOLUTION.replace("x * 2", "x + x")
    card(DOUBLE, DOUBLE_SOLUTION, solution)
    card(DOUBLE, DOUBLE_SOLUTION, solution)
    assert sorted(measured_codes) == sorted([DOUBLE_SOLUTION, DOUBLE_SOLUTION, solution])


def test_a_solution_that_cannot_be_measured_is_left_out():
    assert "reference" not in card(DOUBLE, DOUBLE_SOLUTION, "def double(x): return 2 * x").text


# ---- the case --------------------------------------------------------------------------------------------------------


def test_the_roomiest_even_case_is_taken():
    cases = (
        Case("small", matrix(1, 16), 1e-5, 1e-5),
        Case("large", matrix(9, 32), 1e-5, 1e-5),
        Case("larger, but odd", matrix(9, 33), 1e-5, 1e-5),
        Case("larger, but a slice", matrix(99, 32, strided=True), 1e-5, 1e-5),
        Case("none", matrix(0, 32), 1e-5, 1e-5),
    )
    assert instruments.roomiest(make_runs(replace(ROW_SUM, cases=cases))).case.name == "large"
    assert instruments.roomiest(make_runs(replace(ROW_SUM, cases=cases[2:]))).case.name == "larger, but odd"


# ---- the picture -----------------------------------------------------------------------------------------------------


def test_an_exercise_may_name_the_picture_of_its_family():
    assert "stores to y_ptr" in card(COPY, COPY_SOLUTION).text
    walked = replace(COPY, picture="tile_walk")
    assert "stores to y_ptr" in card(walked, COPY_SOLUTION).text, "it has no a_ptr: back to the map"
    names = COPY_SOLUTION.replace("x_ptr", "q_ptr")
    assert "stores to y_ptr" in card(replace(COPY, picture="no_such_picture"), names).text


def test_a_picture_with_steps_is_cut_short(monkeypatch):
    with trace() as launch:
        matmul(torch.randn(640, 16), torch.randn(16, 512))
    whole = measured._picture(launch[0], "tile_walk")
    monkeypatch.setattr(measured, "_MOST_FRAMES", 1)
    short = measured._picture(launch[0], "tile_walk")
    assert whole["html"].count("<svg") > short["html"].count("<svg") == 1
    assert "tiles" in short["text"] and len(short["text"]) < len(whole["text"])


def test_the_heaviest_kernel_is_the_one_that_is_shown():
    light = DOUBLE_SOLUTION.replace("    return y", "    light_kernel[(1,)](y)\n    return y")
    light += "\n\n@triton.jit\ndef light_kernel(y_ptr):\n    tl.store(y_ptr, tl.load(y_ptr))\n"
    shown = card(DOUBLE, light).text
    assert "\ndouble_kernel on gfx942" in shown and "light_kernel" not in shown
    assert "8,200 bytes moved" in shown


# ---- what may be missing ---------------------------------------------------------------------------------------------


def test_a_child_that_dies_leaves_a_sentence(monkeypatch):
    real = sandbox.run

    def run(job, payload, **options):
        if job.endswith(":measure"):
            return sandbox.Outcome("timeout", error=sandbox.Error("TimeoutError", "not finished after 20 seconds"))
        return real(job, payload, **options)

    monkeypatch.setattr(sandbox, "run", run)
    sentence = "The instruments have nothing to say here: not finished after 20 seconds."
    shown = card(DOUBLE, DOUBLE_SOLUTION)
    assert shown.text == sentence and sentence in shown.html


def test_what_the_hardware_refuses_is_a_warning_on_the_card():
    greedy = DOUBLE_SOLUTION.replace("BLOCK=128)", "BLOCK=128, num_warps=32)")
    runs = make_runs(DOUBLE)
    shown = instruments.look(make_job(DOUBLE, greedy, runs), "", runs, DOUBLE_SOLUTION, "gfx942")
    assert "  ! double_kernel: num_warps=32 makes workgroups of 32 x 64 = 2048 threads" in shown.text
    assert "num_warps=32" in shown.html and "on gfx942" not in shown.text
    assert "in bytes and launches." in shown.text


@pytest.mark.parametrize(
    "error", [RuntimeError("0 compatible backends for target (hip). (...)"), ImportError("no amd")]
)
def test_a_triton_without_its_amd_part_says_so(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(compiler, "compile", fail)
    with trace() as launch:
        matmul(torch.randn(64, 32), torch.randn(32, 64))
    report, refused = measured._compiled(launch[0], "gfx942")
    assert report is None
    assert refused == f"This Triton does not compile for gfx942: {str(error).partition('. ')[0]}."


def test_an_unwatched_launch_says_that_bytes_were_not_counted():
    blind = instruments.Measured(launches=1, blind="Triton 9 hides loads.")
    assert blind.bytes_line(None) == "Bytes were not counted. Triton 9 hides loads."
    assert instruments.remarks(blind, instruments.Measured(launches=1, moved=8)) == []


def test_answers_that_only_differ_in_figures_are_one_report():
    one, other = (grade(DOUBLE, DOUBLE_SOLUTION, card=wanted) for wanted in (True, False))
    assert one == other


@pytest.mark.parametrize("exercise", SOLUTIONS, ids=lambda exercise: exercise.entry)
def test_every_small_solution_is_no_worse_than_itself(exercise):
    text = card(exercise, SOLUTIONS[exercise], SOLUTIONS[exercise]).text
    assert "No worse than the reference solution in bytes, launches and machine code." in text
