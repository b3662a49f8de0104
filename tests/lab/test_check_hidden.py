"""What right numbers on the cases of an exercise may hide, and what memory that nobody has set does to a result."""

import pytest
import torch
import triton
import triton.language as tl

from course_lab.check import grade
from gfxlab.engine import hooks

SUM = """
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    part = tl.sum(x * x, axis=0) / N
    tl.atomic_add(out_ptr + row, part)


def row_mean_square(x):
    M, N = x.shape
    out = torch.zeros(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M, triton.cdiv(N, 256))](x, out, x.stride(0), N, BLOCK=256)
    return out
"""
PLAIN = "tl.store(out_ptr + row, tl.load(out_ptr + row) + part)"
TUNED = SUM.replace("(M, triton.cdiv(N, 256))", 'lambda meta: (M, triton.cdiv(N, meta["BLOCK"]))')
TUNED = TUNED.replace(", N, BLOCK=256)", ", N)").replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 64})], key=["N"])\n@triton.jit',
)

SHIFT = """
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offs = block * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) + c, mask=mask)


def shift(x, c):
    y = torch.empty_like(x)
    shift_kernel[(8,)](x, y, c, x.numel(), BLOCK=4096)
    return y
"""


@triton.jit
def count_kernel(out_ptr, ATOMIC: tl.constexpr):
    if ATOMIC:
        tl.atomic_add(out_ptr, 1)
    else:
        tl.store(out_ptr, tl.load(out_ptr) + 1)


def counted(atomic):
    out = torch.zeros(1, dtype=torch.int32)
    count_kernel[(4,)](out, ATOMIC=atomic)
    return int(out)


def code_of(answer, number="2.1"):
    report = grade(number, answer)
    return report.diagnosis.code if report.diagnosis else report.status


def test_programs_that_add_to_what_they_find_race_in_any_order():
    assert code_of(SUM) == "passed"
    assert code_of(SUM.replace("tl.atomic_add(out_ptr + row, part)", PLAIN)) == "race"


def test_a_tuner_that_leaves_its_sums_is_seen():
    assert code_of(TUNED) == "tuned-in-place"
    assert code_of(TUNED.replace('key=["N"]', 'key=["N"], reset_to_zero=["out_ptr"]')) == "passed"


def test_adding_to_memory_that_nobody_set_is_told():
    assert code_of(SUM.replace("torch.zeros", "torch.empty")) == "unset-memory"


@pytest.mark.parametrize(
    "old, new, wanted",
    [
        ("", "", "passed"),
        ("tl.cdiv(n, BLOCK)", "16", "partly-written"),
        ("BLOCK=4096", "BLOCK=triton.next_power_of_2(x.numel())", "exception"),
    ],
    ids=["turns for all", "turns for so many", "one block for all"],
)
def test_a_grid_that_does_not_grow_meets_a_million_elements(old, new, wanted):
    assert code_of(SHIFT.replace(old, new), "0.2") == wanted


def test_turns_that_go_wrong_where_programs_are_no_longer_one_a_block_are_met():
    """Eight programs are enough for each small case, and one of the turns of a large one steps too far."""
    few = SHIFT.replace("(8,)", "(min(8, triton.cdiv(x.numel(), 4096)),)")
    assert code_of(few, "0.2") == "passed"
    too_far = few.replace("tl.num_programs(0)):", "tl.num_programs(0) + 1):")
    assert too_far != few and code_of(too_far, "0.2") == "partly-written"


def test_a_suspect_of_one_number_is_not_the_mask_of_a_load():
    answer = """
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, tl.minimum(tl.maximum(x, hi), lo), mask=offs < n)


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    clamp_kernel[(triton.cdiv(x.numel(), 128),)](x, y, lo, hi, x.numel(), BLOCK=128)
    return y
"""
    assert code_of(answer, "0.3") == "swapped-limits"


def test_at_once_every_program_finds_what_lay_there():
    """Four programs add 1 to one number: one after the other, at once, and at once with atomics."""
    assert counted(atomic=False) == 4
    with hooks.at_once("out_ptr"):
        assert counted(atomic=False) == 1
        assert counted(atomic=True) == 4
