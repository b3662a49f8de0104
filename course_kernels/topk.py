"""The k largest elements of each row, the largest first, and their places; or the k smallest.

Value and place become one integer, compared as such:

    key[r, c] = ordered(x[r, c]) * 2^32 + (2^31 - 1 - c)

where `ordered` reads the bits of a float32 as an integer that rises as the float does, with NaN above +inf; where the
smallest are asked for, its bits are turned over, so that it falls.  No two keys are equal, so nothing has to be said
about ties, infinities or rows with few finite elements again: of equal elements the one with the lowest index comes
first.  (Kernels that overwrite what they have taken with -3.4e38 return
that number from rows of -inf; those that select by multiplying with 0 or 1 turn inf into NaN.)

| tensor  | shape       | dtype                                              |
|---------|-------------|----------------------------------------------------|
| x       | (..., cols) | float32, float16 or bfloat16                       |
| values  | (..., k)    | that of x, bit for bit elements of x               |
| indices | (..., k)    | int64                                              |

A small k is chosen in each chunk of a long row, and again from what the chunks leave: a few by rounds of a maximum,
more by a bitonic network that keeps k of every 2 k.  A larger k sorts the row: pieces first, by counting for each key
the larger ones, and then merged in pairs by bisection (Satish, Harris and Garland, "Designing efficient sorting
algorithms for manycore GPUs", 2009).

With a small k x is read once; sorting it all would move it several times.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .backend import uses_triton

LOWEST = tl.constexpr(-(2**31))  # below every ordered(x)
HIGHEST = tl.constexpr(2**31 - 1)
NO_KEY = tl.constexpr(-(2**63))  # below every key


@triton.jit
def _keys(x, offs_n, mask, LARGEST: tl.constexpr):
    """int64 keys of a block of floats; masked lanes get distinct ones below all others."""
    x = x.to(tl.float32)
    x = tl.where(x == 0, 0.0, x)  # -0.0 equals 0.0
    bits = x.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & HIGHEST)  # the bits of negative floats rise as these fall
    ordered = tl.where(x != x, HIGHEST, ordered)
    if not LARGEST:
        ordered = ~ordered  # of NaN LOWEST, as of masked lanes, whose columns are higher
    ordered = tl.where(mask, ordered, LOWEST)
    return (ordered.to(tl.int64) << 32) | (HIGHEST - offs_n)


@triton.jit
def select_kernel(
    x_ptr, keys_ptr, stride_xm, rows, cols, chunks, k,
    LARGEST: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program, one chunk of BLOCK_M rows: the k largest keys of each, in order. x: floats, or keys chosen before.

    By rounds where BLOCK_K is 0, else sorted in BLOCK_K >= k lanes.
    """
    pid = tl.program_id(0)
    chunk = pid % chunks
    offs_m = (pid // chunks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < rows) & (offs_n < cols)

    if x_ptr.dtype.element_ty == tl.int64:
        keys = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=NO_KEY)
    else:
        keys = _keys(tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0), offs_n, mask, LARGEST)
    chosen_ptrs = keys_ptr + (offs_m * chunks + chunk) * k
    if BLOCK_K > 0:
        offs_k = tl.arange(0, BLOCK_K)[None, :]
        tl.store(chosen_ptrs + offs_k, tl.topk(keys, BLOCK_K), mask=(offs_m < rows) & (offs_k < k))
    else:
        for i in range(k):
            largest = tl.max(keys, axis=1, keep_dims=True)
            tl.store(chosen_ptrs + i, largest, mask=offs_m < rows)
            keys = tl.where(keys == largest, NO_KEY, keys)


@triton.jit
def rank_kernel(x_ptr, keys_ptr, stride_xm, cols, chunks, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    """One program, one chunk of a row: its keys, sorted. A key's place is the number of larger ones."""
    row = (tl.program_id(0) // chunks).to(tl.int64)
    first = tl.program_id(0) % chunks * BLOCK
    offs = first + tl.arange(0, BLOCK)
    mask = offs < cols
    keys = _keys(tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=0.0), offs, mask, LARGEST)
    place = tl.sum((keys[None, :] > keys[:, None]).to(tl.int32), axis=1)
    tl.store(keys_ptr + row * (chunks * BLOCK) + first + place, keys)


@triton.jit
def merge_kernel(keys_ptr, merged_ptr, width, run, BLOCK: tl.constexpr):
    """One program, BLOCK keys: neighbouring runs of a row, each sorted from the largest down, become one run.

    A key's place is the number of keys before it in its own run and of larger keys in the other, found by bisection.
    """
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    keys_ptr += row * width
    offs = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = offs < width
    keys = tl.load(keys_ptr + offs, mask=mask, other=NO_KEY)

    other = ((offs // run) ^ 1) * run
    larger = tl.zeros_like(offs)
    step = run  # a power of two
    while step > 0:
        probe = larger + step - 1
        inside = mask & (probe < run) & (other + probe < width)  # the last run may have no other
        probed = tl.load(keys_ptr + other + probe, mask=inside, other=NO_KEY)
        larger += tl.where(probed > keys, step, 0)
        step //= 2
    place = offs // (2 * run) * (2 * run) + offs % run + larger
    tl.store(merged_ptr + row * width + place, keys, mask=mask)


@triton.jit
def pick_kernel(
    keys_ptr, x_ptr, values_ptr, indices_ptr, stride_km, stride_xm, rows, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one tile of the result: a key's place, and the element that stands there."""
    tiles_n = tl.cdiv(k, BLOCK_N)
    offs_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < rows) & (offs_n < k)

    keys = tl.load(keys_ptr + offs_m * stride_km + offs_n, mask=mask, other=0)
    indices = HIGHEST - (keys & HIGHEST)
    values = tl.load(x_ptr + offs_m * stride_xm + indices, mask=mask, other=0.0)
    tl.store(values_ptr + offs_m * k + offs_n, values, mask=mask)
    tl.store(indices_ptr + offs_m * k + offs_n, indices, mask=mask)


def _select(x: torch.Tensor, k: int, largest: bool) -> torch.Tensor:
    """The k largest keys of each row, the largest first. x: (rows, cols), floats or keys."""
    rows, cols = x.shape
    grid, meta = launch.chunks(x, k)
    chunks = triton.cdiv(cols, meta["BLOCK_N"])
    keys = torch.empty((rows, chunks * k), dtype=torch.int64, device=x.device)
    launch.run(select_kernel, grid, x, keys, x.stride(0), rows, cols, chunks, k, LARGEST=largest, **meta)
    return keys if chunks == 1 else _select(keys, k, largest)


def _sort(x: torch.Tensor, largest: bool) -> torch.Tensor:
    """All keys of each row, the largest first, and keys of no element behind them. x: (rows, cols)."""
    rows, cols = x.shape
    grid, meta = launch.ranked_chunks(x)
    run, chunks = meta["BLOCK"], triton.cdiv(cols, meta["BLOCK"])
    width = chunks * run
    keys, merged = torch.empty((2, rows, width), dtype=torch.int64, device=x.device)
    launch.run(rank_kernel, grid, x, keys, x.stride(0), cols, chunks, LARGEST=largest, **meta)
    grid, meta = launch.merged_chunks(keys)
    while run < width:
        launch.run(merge_kernel, grid, keys, merged, width, run, **meta)
        keys, merged, run = merged, keys, 2 * run
    return keys


def _outputs(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for values and indices."""
    return x.new_empty((x.shape[0], k)), x.new_empty((x.shape[0], k), dtype=torch.int64)


@torch_op(lambda x, k, largest=True: _outputs(x, k))
def topk_forward(x: torch.Tensor, k: int, largest: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices of the k largest, or smallest, elements. x: (rows, cols), 1 <= k <= cols."""
    values, indices = _outputs(x, k)
    keys = _select(x, k, largest) if k <= launch.sizes().max_chosen else _sort(x, largest)
    grid, meta = launch.tiles(values)
    launch.run(pick_kernel, grid, keys, x, values, indices, keys.stride(0), x.stride(0), x.shape[0], k, **meta)
    return values, indices


@remembered
def topk(x: torch.Tensor, k: int, *, largest: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest elements along the last dimension, the largest first, and their indices; or the k smallest.

    NaN counts as larger than +inf, as in PyTorch; of equal elements (NaN among themselves, 0.0 and -0.0) the lowest
    index comes first, where PyTorch promises no order.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
            No gradient flows to it.
        k: 0 to cols.
        largest: False for the smallest, the smallest first: NaN comes last then.

    Returns:
        values (..., k), dtype of x, and indices (..., k), int64: values == x.gather(-1, indices).

    Raises:
        TypeError: another dtype, or a k that is no integer.
        ValueError: k outside 0 to cols, x a scalar or one that requires grad, or strides other than the above.
    """
    checks.floating(x=x)
    checks.not_differentiable(x=x)
    checks.row_vectors(x)
    k = checks.whole_number(k=k)
    if not 0 <= k <= x.shape[-1]:
        raise ValueError(f"k must be from 0 to the width of x, {x.shape[-1]}; got {k}")
    x_rows = checks.rows_of(x=x)
    if x.numel() == 0 or k == 0 or not uses_triton(x):
        return reference.topk(x, k, largest)
    values, indices = topk_forward(x_rows, k, largest)
    return values.view(*x.shape[:-1], k), indices.view(*x.shape[:-1], k)
