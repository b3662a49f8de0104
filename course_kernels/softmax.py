"""Row-wise softmax.

    y[r, c] = exp(x[r, c] - max_r) / sum_c exp(x[r, c] - max_r)

Written out in PyTorch's operations these are five kernels that read or write the matrix eight times.  Fused, each
element is read once and written once: 2 * rows * cols * itemsize bytes.  A row that does not fit into registers is read
twice: first for the running maximum and sum of the online form, in which a larger maximum rescales the sum so far, then
for the result.

x: (..., cols), float32, float16 or bfloat16.  Returns the same shape and dtype; computed in float32, rounded once.

Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .backend import uses_triton


@triton.jit
def _load_row(x_ptr, offs, mask, EVICT: tl.constexpr):
    """Elements of a row in float32; masked lanes hold -inf, the identity of max."""
    return tl.load(x_ptr + offs, mask=mask, other=-float("inf"), eviction_policy=EVICT).to(tl.float32)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program, BLOCK_M whole rows."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < rows) & (offs_n < cols)

    x = _load_row(x_ptr, offs_m * stride_xm + offs_n, mask, "")
    row_max = tl.max(x, axis=1, keep_dims=True)
    numerator = tl.exp(x - tl.where(offs_m < rows, row_max, 0.0))  # a row past the end is all -inf: -inf - -inf is NaN
    y = numerator * (1.0 / tl.sum(numerator, axis=1, keep_dims=True))
    tl.store(y_ptr + offs_m * cols + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_long_kernel(x_ptr, y_ptr, stride_xm, cols, BLOCK_N: tl.constexpr):
    """One program, one row of any width: every lane keeps a maximum and a sum of its own until the row ends."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * cols

    lane_max = tl.full((BLOCK_N,), -float("inf"), tl.float32)
    lane_sum = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        x = _load_row(x_ptr, offs_n, offs_n < cols, "evict_last")  # stay cached for the second walk
        # Of exp(old max - new max) and exp(x - new max) one is exp(0) = 1: a single exponential gives the other.
        gap = x - tl.where(lane_max == -float("inf"), 0.0, lane_max)  # -inf - -inf would be NaN, for ever
        other = tl.exp(-tl.abs(gap))
        lane_sum = tl.where(x > lane_max, lane_sum * other + 1.0, lane_sum + other)
        lane_max = tl.maximum(lane_max, x)

    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)  # a row of -inf: -inf - -inf, NaN as in PyTorch
    scale = 1.0 / row_sum
    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < cols
        y = tl.exp(_load_row(x_ptr, offs_n, mask, "evict_first") - row_max) * scale
        tl.store(y_ptr + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)


@torch_op(lambda x: x.new_empty(x.shape))
def softmax_forward(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row. x: (rows, cols)."""
    rows, cols = x.shape
    y = x.new_empty((rows, cols))
    if cols <= launch.longest_held(x):
        grid, meta = launch.whole_rows(x)
        launch.run(softmax_kernel, grid, x, y, x.stride(0), rows, cols, **meta)
    else:
        grid, meta = launch.long_rows(x)
        launch.run(softmax_long_kernel, grid, x, y, x.stride(0), cols, **meta)
    return y


@remembered
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
            A row that is all -inf, or holds +inf or NaN, gives NaN, as in PyTorch. No gradient flows to it.

    Returns:
        Shape and dtype of x.

    Raises:
        TypeError: another dtype.
        ValueError: x is a scalar, requires grad, or has strides other than the above.
    """
    checks.floating(x=x)
    checks.not_differentiable(x=x)
    checks.row_vectors(x)
    x_rows = checks.rows_of(x=x)
    if x.numel() == 0 or not uses_triton(x):
        return reference.softmax(x)
    return checks.in_shape_of(x, softmax_forward(x_rows))
