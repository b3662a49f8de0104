"""The second half of a weight gradient: the partial rows of all programs, added up.

    out[c] = sum_r(x[r, c])

x: (rows, cols) float32, contiguous.  The order of the additions is fixed, so the same input gives the same bits.
"""

import torch
import triton
import triton.language as tl

from . import launch


@triton.jit
def column_sum_kernel(x_ptr, out_ptr, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program, BLOCK_N columns: BLOCK_M running sums for each, added to one another at the end."""
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, rows, BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        mask = (offs_m < rows) & (offs_n < cols)
        sums += tl.load(x_ptr + offs_m * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(sums, axis=0, keep_dims=True)
    tl.store(out_ptr + offs_n, total.to(out_ptr.dtype.element_ty), mask=offs_n < cols)


def column_sum(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The sum of the rows of x, rounded once to `dtype`."""
    rows, cols = x.shape
    out = torch.empty(cols, dtype=dtype, device=x.device)
    grid, meta = launch.column_sums(x)
    launch.run(column_sum_kernel, grid, x, out, rows, cols, **meta)
    return out
