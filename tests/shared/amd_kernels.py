"""Small kernels for the tests of the instruments."""

from __future__ import annotations

import triton
import triton.language as tl

SCALE = 3
TWICE: tl.constexpr = tl.constexpr(2)
TABLE = {1: 2}


def plain_helper(x):
    return x * 2


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)


@triton.jit
def row_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * n + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + pid, tl.sum(x * x, 0))


@triton.jit
def dot(a_ptr, b_ptr, c_ptr, M: tl.constexpr):
    offs_m = tl.arange(0, M)
    offs = offs_m[:, None] * M + offs_m[None, :]
    a = tl.load(a_ptr + offs)
    b = tl.load(b_ptr + offs)
    tl.store(c_ptr + offs, tl.dot(a, b).to(c_ptr.dtype.element_ty))


@triton.jit
def long_dot(a_ptr, b_ptr, c_ptr, n_blocks, M: tl.constexpr):
    offs_m = tl.arange(0, M)
    offs = offs_m[:, None] * M + offs_m[None, :]
    acc = tl.zeros((M, M), tl.float32)
    for i in range(n_blocks):
        acc += tl.dot(tl.load(a_ptr + i * M * M + offs), tl.load(b_ptr + i * M * M + offs))
    tl.store(c_ptr + offs, acc)


@triton.jit
def square(x):
    return x * x


@triton.jit
def uses_names(x_ptr, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr = "square"):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    if ACTIVATION == "square":
        x = square(x)
    tl.store(x_ptr + offs, x * TWICE)


@triton.jit
def copy_2d(x_ptr, y_ptr, n_rows, n_cols, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * stride + offs_n[None, :]
    mask = (offs_m[:, None] < n_rows) & (offs_n[None, :] < n_cols)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask, other=0.0), mask=mask)


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    index = tl.load(index_ptr + offs, mask=mask, other=0)
    tl.store(out_ptr + offs, tl.load(x_ptr + index, mask=mask, other=0.0), mask=mask)


@triton.jit
def all_write_one(out_ptr):
    tl.store(out_ptr, tl.program_id(0).to(tl.float32))


@triton.jit
def count(out_ptr):
    tl.atomic_add(out_ptr, 1.0)


# ---- kernels that the interpreter runs and the compiler refuses ------------------------------------------------------


@triton.jit
def bad_lambda(x_ptr):
    double = lambda v: v * 2  # noqa: E731
    tl.store(x_ptr, double(1.0))


@triton.jit
def bad_dict(x_ptr):
    table = {1: 2}  # noqa: F841
    tl.store(x_ptr, 1.0)


@triton.jit
def bad_break(x_ptr, n):
    for i in range(n):
        if i > 3:
            break


@triton.jit
def bad_if(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    if offs < n:
        tl.store(x_ptr + offs, 1.0)


@triton.jit
def bad_loop(x_ptr, n):
    acc = 0
    for _ in range(n):
        acc += 0.5
    tl.store(x_ptr, acc)


@triton.jit
def bad_global(x_ptr):
    tl.store(x_ptr, SCALE * 1.0)


@triton.jit
def bad_helper(x_ptr):
    tl.store(x_ptr, plain_helper(1.0))


@triton.jit
def bad_table(x_ptr):
    tl.store(x_ptr, TABLE[1] * 1.0)


@triton.jit
def bad_exp(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(x_ptr + offs, tl.exp(x))


@triton.jit
def calls_bad_if(x):
    if x > 0:
        x = x * 2
    return x


@triton.jit
def bad_inside(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, calls_bad_if(offs))
