"""The second half of weight gradients: the partial rows of all programs, added up.

    out[c] = sum_r(x[r, c])

x: (rows, cols) float32, contiguous, or two such, for a weight and a bias: few rows take no longer than the launch.  The
order of the additions is fixed, so the same input gives the same bits.
"""

import torch
import triton
import triton.language as tl

from . import launch


@triton.jit
def _sum_columns(x_ptr, out_ptr, offs_n, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """BLOCK_N columns: BLOCK_M running sums for each, added to one another at the end."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, rows, BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        mask = (offs_m < rows) & (offs_n < cols)
        sums += tl.load(x_ptr + offs_m * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(sums, axis=0, keep_dims=True)
    tl.store(out_ptr + offs_n, total.to(out_ptr.dtype.element_ty), mask=offs_n < cols)


@triton.jit
def column_sum_kernel(
    x_ptr, other_ptr, out_ptr, other_out_ptr, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program, BLOCK_N columns of x, or of the other, if there is one."""
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    if tl.program_id(1) == 0:
        _sum_columns(x_ptr, out_ptr, offs_n, rows, cols, BLOCK_M, BLOCK_N)
    elif other_ptr is not None:
        _sum_columns(other_ptr, other_out_ptr, offs_n, rows, cols, BLOCK_M, BLOCK_N)


def column_sum(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The sum of the rows of x, rounded once to `dtype`."""
    out = torch.empty(x.shape[1], dtype=dtype, device=x.device)
    (programs,), meta = launch.column_sums(x)
    launch.run(column_sum_kernel, (programs, 1), x, None, out, None, *x.shape, **meta)
    return out


def column_sums(pair: torch.Tensor, dtypes: tuple[torch.dtype, torch.dtype]) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of two matrices of one shape, pair[0] and pair[1], in one launch."""
    x, other = pair
    outs = [torch.empty(x.shape[1], dtype=dtype, device=x.device) for dtype in dtypes]
    (programs,), meta = launch.column_sums(x)
    launch.run(column_sum_kernel, (programs, 2), x, other, *outs, *x.shape, **meta)
    return outs[0], outs[1]
