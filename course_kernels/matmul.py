"""Matrix multiplication with an activation in the epilogue.

    c[m, n] = f(sum_k a[m, k] * b[k, n])

| tensor | shape  | dtype                                                                |
|--------|--------|----------------------------------------------------------------------|
| a      | (M, K) | float32, float16 or bfloat16; any strides, so transposes are free     |
| b      | (K, N) | that of a; any strides                                               |
| c      | (M, N) | any of the three, contiguous                                         |

Sums are kept in float32 and rounded once, after the activation.  Products of float32 are exact float32 products:
left to itself, Triton would round the operands to 10 bits (TF32) where the matrix units can, on MI300X too.

Each operand is loaded once for every tile of the other: (M * K * N / BLOCK_N + K * N * M / BLOCK_M) * itemsize bytes,
most of them from the L2 cache thanks to the order of the tiles (`_tile_order`).  An activation of its own would read
and write c again: 2 * M * N * itemsize bytes.

One row of a has too few tiles for a GPU: a decoder's step would wait for a few compute units to read all of b.  So with
few rows each sum is cut into parts, and a second kernel adds them up: 8 bytes a part move for each element of c.

The tiling is that of Triton's matrix-multiplication tutorial; its rows wrap around at the edges, these are masked.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._remembered import remembered
from ._tile_order import grouped_tile, xcd_remap
from ._torch_op import torch_op
from .activations import KINDS, activate
from .backend import uses_triton


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    stride_am, stride_ak, stride_bk, stride_bn,
    M, N, K,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, XCDS: tl.constexpr,
):  # fmt: skip
    """One program, one tile of c, or of one of the parts (M, N) that c has where program_id(1) is above 0."""
    tile = xcd_remap(tl.program_id(0), tl.num_programs(0), XCDS)
    pid_m, pid_n = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask_m, mask_n = offs_m < M, offs_n < N

    share = tl.cdiv(tl.cdiv(K, tl.num_programs(1)), BLOCK_K) * BLOCK_K
    first = tl.program_id(1) * share
    offs_k = tl.arange(0, BLOCK_K)
    step = tl.full((), BLOCK_K, tl.int64)  # times a stride: past 2**31 in a wide transposed operand
    a_ptrs = a_ptr + offs_m * stride_am + (first + offs_k[None, :]).to(tl.int64) * stride_ak
    b_ptrs = b_ptr + (first + offs_k[:, None]).to(tl.int64) * stride_bk + offs_n * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(first, min(first + share, K), BLOCK_K):
        mask_k = offs_k < K - start
        a = tl.load(a_ptrs, mask=mask_m & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk

    if ACTIVATION is not None:
        acc = activate(acc, ACTIVATION)
    c_ptr += tl.program_id(1).to(tl.int64) * M * N
    tl.store(c_ptr + offs_m * N + offs_n, acc.to(c_ptr.dtype.element_ty), mask=mask_m & mask_n)


@triton.jit
def sum_parts_kernel(
    parts_ptr, c_ptr, size, parts, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program, BLOCK_N elements of c: the sum of their parts, and its activation."""
    offs_m = tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < parts) & (offs_n < size)
    total = tl.sum(tl.load(parts_ptr + offs_m * size + offs_n, mask=mask, other=0.0), axis=0, keep_dims=True)
    if ACTIVATION is not None:
        total = activate(total, ACTIVATION)
    tl.store(c_ptr + offs_n, total.to(c_ptr.dtype.element_ty), mask=offs_n < size)


@torch_op(lambda a, b, out_dtype, *_: a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype))
def matmul_forward(
    a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, activation: str | None, allow_tf32: bool
) -> torch.Tensor:
    """f(a @ b). a: (M, K); b: (K, N)."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=out_dtype, device=a.device)
    (tiles, parts), meta = launch.matmul_tiles(a, M, N, K)
    numbers = *a.stride(), *b.stride(), M, N, K
    precision = launch.dot_precision(a, allow_tf32)
    if parts == 1:
        launch.run(matmul_kernel, (tiles, 1), a, b, c, *numbers, activation, precision, **meta)
    else:
        sums = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)
        launch.run(matmul_kernel, (tiles, parts), a, b, sums, *numbers, None, precision, **meta)
        grid, meta = launch.sum_of_parts(c, parts)
        launch.run(sum_parts_kernel, grid, sums, c, M * N, parts, activation, **meta)
    return c


@remembered
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    activation: str | None = None,
    allow_tf32: bool = False,
) -> torch.Tensor:
    """activation(a @ b), summed in float32.

    Args:
        a: (M, K); float32, float16 or bfloat16; any strides. No gradient flows to it.
        b: (K, N); dtype and device of a; any strides. No gradient flows to it.
        out_dtype: dtype of the result, one of the three; that of a if None.
        activation: "silu", "gelu" (exact), "gelu_tanh", "relu", or None for none.
        allow_tf32: let float32 operands be rounded to 10 bits of mantissa where that is faster.

    Returns:
        (M, N), contiguous, in `out_dtype`; zeros before the activation where K is 0.

    Raises:
        TypeError: another dtype, or two different ones.
        ValueError: not two matrices whose inner sizes agree, an unknown activation, tensors on different devices, or
            one that requires grad.
    """
    checks.floating(a=a, b=b)
    checks.not_differentiable(a=a, b=b)
    checks.rank(2, "(M, K)", a=a)
    checks.rank(2, "(K, N)", b=b)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a has {a.shape[1]} columns but b has {b.shape[0]} rows; they must be equal")
    checks.same_dtype(a=a, b=b)
    out_dtype = a.dtype if out_dtype is None else out_dtype
    if out_dtype not in checks.FLOATING:
        raise TypeError(f"out_dtype must be float32, float16 or bfloat16, got {out_dtype}")
    if activation is not None and activation not in KINDS:
        raise ValueError(f"activation must be None or one of {', '.join(KINDS)}; got {activation!r}")
    if a.numel() == 0 or b.numel() == 0 or not uses_triton(a):
        return reference.matmul(a, b, out_dtype, activation)
    return matmul_forward(a, b, out_dtype, activation, allow_tf32)
