"""Reductions and scans by a function of the kernel's own: right, in order, and quick."""

import time

import pytest
import torch
import triton
import triton.language as tl

from gfxlab.engine import dual_mode
from gfxlab.simulator import using


@pytest.fixture(autouse=True)
def interpreted():
    dual_mode.enable()


@triton.jit
def second(a, b):
    return b


@triton.jit
def add_counted(a, n, b, m):
    return a + b, n + m


@triton.jit
def linear(a, b, c, d):
    """x -> a x + b, then x -> c x + d: associative, and the order matters."""
    return a * c, b * c + d


@triton.jit
def larger_by_if(a, b):
    return a if a > b else b


@triton.jit
def reductions_kernel(x_ptr, sum_ptr, count_ptr, last_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    total, count = tl.reduce((x, tl.full((M, N), 1, tl.int32)), 1, add_counted)
    tl.store(sum_ptr + m, total)
    tl.store(count_ptr + m, count)
    tl.store(last_ptr + n, tl.reduce(x, 0, second))


@triton.jit
def scan_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr, REVERSE: tl.constexpr):
    n = tl.arange(0, N)
    both = (tl.load(a_ptr + n), tl.load(b_ptr + n))
    tl.store(y_ptr + n, tl.associative_scan(both, 0, linear, reverse=REVERSE)[1])


@triton.jit
def one_by_one_kernel(x_ptr, y_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(y_ptr, tl.reduce(x, 0, larger_by_if))


def test_a_pair_along_an_axis_and_the_order():
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    total, count, last = torch.empty(4), torch.empty(4, dtype=torch.int32), torch.empty(64)
    reductions_kernel[(1,)](x, total, count, last, M=4, N=64)
    torch.testing.assert_close(total, x.sum(1))
    assert count.tolist() == [64] * 4 and torch.equal(last, x[3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_pairs_in_order(dtype, reverse):
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.rand(32, generator=generator).to(dtype) for _ in range(2))
    y, state, want = torch.empty(32, dtype=dtype), 0.0, []
    scan_kernel[(1,)](a, b, y, N=32, REVERSE=reverse)
    for i in reversed(range(32)) if reverse else range(32):
        state = state * float(a[i]) + float(b[i])
        want.append(state)
    want = torch.tensor(want[::-1] if reverse else want)
    torch.testing.assert_close(y.float(), want, rtol=1e-5 if dtype == torch.float32 else 0.05, atol=1e-5)


def test_a_long_row_is_quick_and_as_on_the_machine():
    x, outs = torch.ones(1, 32768), [torch.empty(1), torch.empty(1, dtype=torch.int32), torch.empty(32768)]
    started = time.process_time()
    reductions_kernel[(1,)](x, *outs, M=1, N=32768)
    assert time.process_time() - started < 2.0, "one call for each element takes many seconds"
    assert outs[0].item() == outs[1].item() == 32768
    y, z = torch.empty(32), torch.empty(32)
    a, b = torch.rand(32), torch.rand(32)
    scan_kernel[(1,)](a, b, y, N=32, REVERSE=False)
    with using("gfx942", quiet=True):
        scan_kernel[(1,)](a, b, z, N=32, REVERSE=False)
    torch.testing.assert_close(y, z)


def test_a_function_for_single_numbers_is_called_on_each():
    x, y = torch.randn(16, generator=torch.Generator().manual_seed(2)), torch.empty(1)
    one_by_one_kernel[(1,)](x, y, N=16)
    assert y.item() == x.max()
