"""A wrong answer is followed step by step beside the solution: where does it lead away?"""

from dataclasses import replace

import pytest
from small_exercises import (
    COPY,
    COPY_SOLUTION,
    DOUBLE,
    DOUBLE_SOLUTION,
    ROW_SUM,
    ROW_SUM_SOLUTION,
    ROW_SUM_WALKED,
    matrix,
)

from course_lab.authoring.exercise import Case
from course_lab.check import answer, grading, steps
from course_lab.check.answer import parse

OTHERWISE = """\
@triton.jit
def total_of(values):
    return tl.sum(values, axis=0)


@triton.jit
def my_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=inside, other=0.0).to(tl.float32)
    half = x * 0.5
    squares = total_of(half * half) * 4.0
    tl.store(y_ptr + row * stride_ym + cols, (x / squares).to(y_ptr.dtype.element_ty), mask=inside)


def normalise(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    my_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
"""


def followed(exercise, code, solution) -> str:
    """What is said of an answer that no search was asked about."""
    runs = grading.make_runs(exercise)
    assert grading._run_on_interpreter(exercise, code, answer.parse(code), runs, lambda stage: None) is None
    return steps.Beside(grading.make_job(exercise, code, runs), solution, runs).astray()


@pytest.mark.parametrize(
    "old, new, place",
    [
        ("x / squares", "x / squares * 1.5", "`x / squares * 1.5` in line 14"),
        ("total_of(half * half) * 4.0", "total_of(half * half) * 4.0 + 0.1", "total_of(half * half) * 4.0 + 0.1"),
        ("total_of(half * half) * 4.0", "total_of(half) * 4.0", "`x * 0.5` in line 12"),
        ("row * stride_xm + cols, mask=inside", "row * stride_xm + cols // 2, mask=inside", "Others are loaded there"),
        ("inside = cols < N", "inside = cols < N - 1", "`N - 1` in line 10"),
    ],
)
def test_the_step_that_leads_away_is_named_and_another_way_to_the_same_number_is_not(old, new, place):
    wrong = OTHERWISE.replace(old, new)
    assert wrong != OTHERWISE
    said = followed(ROW_SUM, wrong, ROW_SUM_SOLUTION)
    assert place in said and " and at" not in said, said


MEANS = """\
@triton.jit
def my_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, N, 16):
        cols = start + tl.arange(0, 16)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += tl.sum(x * x, axis=0) / tl.minimum(16, N - start)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride_ym + cols, (x / total).to(y_ptr.dtype.element_ty), mask=cols < N)
"""


def test_a_sum_of_a_part_is_a_way_and_no_mistake():
    """Right answers add up by blocks or by lanes; what is done to such a sum may be the mistake."""
    wrong = MEANS + OTHERWISE[OTHERWISE.index("\n\ndef normalise") :]
    said = followed(ROW_SUM, wrong, ROW_SUM_SOLUTION)
    assert "`tl.sum(x * x, axis=0)`" not in said and "in line 8" in said, said


def test_what_a_loop_left_unfinished_is_named():
    solution = OTHERWISE.replace(
        "squares = total_of(half * half) * 4.0",
        "squares = 0.0\n    for i in range(4):\n        squares += tl.sum(half * half, axis=0)",
    )
    said = followed(ROW_SUM, solution.replace("range(4)", "range(3)"), solution)
    assert "`squares` goes into `x / squares` in line 16 as it is on the way" in said, said


def test_blocks_of_other_lengths_are_compared_with_blocks_of_their_length():
    wrong = DOUBLE_SOLUTION.replace("x.numel(), 128)", "x.numel(), 64)").replace("BLOCK=128", "BLOCK=64")
    assert "`x * 3` in line 6" in followed(DOUBLE, wrong.replace("x * 2", "x * 3"), DOUBLE_SOLUTION)


@pytest.mark.parametrize("length", ["16", "triton.next_power_of_2(N) // 2"])
def test_a_length_is_put_in_by_its_name_where_another_number_is_equal(length):
    """By value the 16 of the sum would be changed as well; and a length may be computed."""
    solution = ROW_SUM_WALKED.replace("BLOCK=16", f"BLOCK={length}")
    solution = solution.replace("total = tl.sum", "total = 0.0625 * 16 * tl.sum")
    wrong = ROW_SUM_WALKED.replace("BLOCK=16", "BLOCK=32").replace("x / total", "x / total * 1.5")
    assert "`x / total * 1.5`" in followed(ROW_SUM, wrong, solution)


@pytest.mark.parametrize("launch", ["**{'BLOCK': 128}", "block"])
def test_the_solution_may_write_its_lengths_of_blocks_in_a_dictionary_or_under_a_name(launch):
    solution = DOUBLE_SOLUTION.replace("BLOCK=128", "BLOCK=block" if launch == "block" else launch)
    solution = solution.replace("x * 2", "x * (256 / 128)") if launch != "block" else solution  # 128 is no length here
    solution = solution.replace("    y =", "    block = 128\n    y =") if launch == "block" else solution
    wrong = DOUBLE_SOLUTION.replace("128", "64").replace("x * 2", "x * 3")
    assert "`x * 3` in line 6" in followed(DOUBLE, wrong, solution)


def test_a_case_of_one_row_or_key_is_followed_last():
    def of(rows, width):
        made = Case(f"{rows} x {width}", matrix(rows, width), 0.0, 0.0)
        return grading._make_run(COPY, made)

    alone, tiny, small, large = of(1, 90), of(4, 5), of(6, 7), of(9, 90)
    assert sorted([alone, tiny, large, small], key=steps._how_telling) == [small, large, tiny, alone]


def test_a_program_that_walks_in_a_loop_is_not_told_that_it_is_too_few():
    few = COPY_SOLUTION.replace("triton.cdiv(N, 16))", "1)")
    walks = few.replace("    offs_n =", "    for start in range(1):\n        pass\n    offs_n =")
    assert walks != few
    runs = grading.make_runs(COPY)
    grading._run_on_interpreter(COPY, walks, answer.parse(walks), runs, lambda stage: None)
    assert steps.Beside(grading.make_job(COPY, walks, runs), COPY_SOLUTION, runs).too_few_programs() == ""


def test_a_mask_in_a_tile_of_another_shape_is_not_blamed():
    """It holds in other lanes than the solution's, and is right; with a tile alike it would be named."""
    tile = OTHERWISE.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, ROWS: tl.constexpr")
    tile = tile.replace(
        "cols = tl.arange(0, BLOCK)", "cols = tl.arange(0, BLOCK)[None, :] * ROWS + tl.arange(0, ROWS)[:, None]"
    )
    tile = tile.replace("tl.sum(values, axis=0)", "tl.sum(tl.sum(values, axis=1), axis=0)")
    tile = tile.replace("BLOCK=triton.next_power_of_2(N)", "BLOCK=triton.next_power_of_2(N), ROWS=2")
    said = followed(ROW_SUM, tile.replace("x / squares", "x / squares * 1.5"), ROW_SUM_SOLUTION)
    assert "cols < N" not in said, said


def test_what_is_right_leads_nowhere():
    steps_of = steps.instrument(OTHERWISE)
    assert parse(steps_of.code) and len(steps_of.steps) > 20
    case = replace(ROW_SUM, cases=ROW_SUM.cases[1:2])
    assert followed(case, OTHERWISE, ROW_SUM_SOLUTION) == "", "nothing is wrong"


def test_an_axis_with_too_few_programs_is_named():
    wrong = COPY_SOLUTION.replace("triton.cdiv(N, 16))", "1)")
    assert wrong != COPY_SOLUTION
    runs = grading.make_runs(COPY)
    grading._run_on_interpreter(COPY, wrong, answer.parse(wrong), runs, lambda stage: None)
    said = steps.Beside(grading.make_job(COPY, wrong, runs), COPY_SOLUTION, runs).too_few_programs()
    assert said.startswith("Along axis 1 of the grid there is 1 program, too few"), said


def test_a_number_that_a_launch_should_not_give_is_named():
    wrong = COPY_SOLUTION.replace("x.stride(0), x.stride(1), y.stride(0)", "x.stride(0), 2 * x.stride(1), y.stride(0)")
    assert wrong != COPY_SOLUTION
    runs = grading.make_runs(COPY)
    grading._run_on_interpreter(COPY, wrong, answer.parse(wrong), runs, lambda stage: None)
    job = grading.make_job(COPY, wrong, runs)
    assert steps.Beside(job, COPY_SOLUTION, runs).other_argument().startswith("In your launch `stride_xn` is ")
    assert steps.Beside(job, wrong, runs).other_argument() == ""
