"""Derived tolerances: a right rounding is inside, a second one and a sum in 16 bits are not."""

import dataclasses

import pytest
import torch
from small_exercises import DOUBLE, DOUBLE_SOLUTION

from course_lab.authoring.exercise import Tolerance
from course_lab.authoring.tolerance import each, in_float32
from course_lab.check import grade
from course_lab.check.verdict import compare
from course_lessons.makers import FAR, laid_out, normal, widened, with_gaps

NARROW = [torch.bfloat16, torch.float16, torch.float8_e4m3fn]


def outside(got, exact, about):
    """How many elements of `got` are outside the tolerance."""
    return int(compare(exact, got, Tolerance(about["atol"], about["rtol"]), got.dtype).wrong.sum())


@pytest.mark.parametrize("dtype", NARROW)
def test_one_rounding_is_inside_and_two_are_not(dtype):
    exact = torch.linspace(0.1, 3.0, 4001, dtype=torch.float64)
    once = exact.float().to(dtype)
    twice = (exact * 0.7).to(dtype).double() / 0.7
    assert outside(once, exact, in_float32()) == 0
    assert outside(twice.float().to(dtype), exact, in_float32()) > 20


def test_a_product_rounded_to_bfloat16_before_fp8_shows():
    exact = torch.linspace(0.1, 3.0, 4001, dtype=torch.float64)
    twice = exact.bfloat16().float().to(torch.float8_e4m3fn)
    assert outside(twice, exact, in_float32()) > 10


@pytest.mark.parametrize("terms", [10, 1000, 30_000])
def test_a_long_sum_in_float32_is_inside_and_one_in_bfloat16_is_not(terms):
    x = torch.rand(20, terms, generator=torch.Generator().manual_seed(terms))
    exact = x.double().sum(-1)
    in_turn = x[:, 0].clone()
    narrow = x[:, 0].bfloat16()
    for column in x.T[1:]:
        in_turn += column
        narrow += column.bfloat16()
    assert outside(in_turn, exact, in_float32(terms)) == 0
    assert outside(narrow.float(), exact, in_float32(terms)) > 10


def test_a_subnormal_number_may_be_rounded_too():
    exact = torch.linspace(0, 2.0**-8, 999, dtype=torch.float64)
    assert outside(exact.float().to(torch.float8_e4m3fn), exact, in_float32()) == 0


def test_nan_and_infinity_are_what_they_are():
    exact = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e9], dtype=torch.float64)
    assert outside(exact.half(), exact, in_float32()) == 0  # 1e9 is infinity in float16
    assert outside(exact.flip(0).half(), exact, in_float32()) == 4


def test_several_outputs_have_tolerances_of_their_own():
    about = each(in_float32(4, size=1.0), in_float32(100))
    assert [one.atol > 0 for one in about["tolerances"]] == [True, False] and about["atol"] > 0


def test_an_answer_is_compared_with_the_result_before_its_rounding():
    third = dataclasses.replace(DOUBLE, exact=lambda x: (x.double() * 2 + 1e-3,))
    assert grade(DOUBLE, DOUBLE_SOLUTION).passed
    assert not grade(third, DOUBLE_SOLUTION).passed


def test_a_widened_reference_returns_and_leaves_float64():
    def reference(x, n, out):
        out.copy_(x / 3)
        return (x / 3).to(x.dtype)

    x = torch.ones(4, dtype=torch.bfloat16)
    returned, left = widened(reference, inplace=(2,))(x, 3, torch.zeros(4, dtype=torch.bfloat16))
    assert returned.dtype == left.dtype == torch.float64
    assert returned.tolist() == left.tolist() == [1 / 3] * 4


def test_layouts_keep_the_numbers():
    x = normal(3, 4, 5, generator=torch.Generator().manual_seed(0))
    gaps, turned = with_gaps(x, 2, dim=1), laid_out(x, 1, 0, 2)
    assert gaps.stride() == (30, 5, 1) and torch.equal(gaps, x)
    assert turned.stride() == (5, 15, 1) and torch.equal(turned, x) and FAR * 2 >= 2**31
