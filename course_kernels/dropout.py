"""Dropout, fused with the addition of the residual stream after it.

    y[i] = residual[i] + (x[i] / (1 - p) if kept[i] else 0),    kept[i] = uniform(seed, i) >= p

`uniform` is word i % 4 of the counter-based generator Philox-4x32-10, with the seed as key and i // 4 as counter.  The
index i counts the elements in logical order: whatever the strides, the same seed drops the same elements.  So nothing
needs to be stored for the backward pass, which draws the same numbers again: dx = dy / (1 - p) where kept, else 0.

PyTorch moves 5 matrices and a mask of one byte an element forward, 2 and the mask backward; fused it is 3 and 2.  One
call of Philox serves four elements, or its multiplications would take longer than the memory.

x, residual: (..., cols), equal shape and dtype, float32, float16 or bfloat16; computed in float32, rounded once.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011; drawing the mask twice instead of
storing it follows Triton's dropout tutorial.
"""

from functools import partial

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import apply, once_differentiable, remembered, torch_op
from .backend import uses_triton


@triton.jit
def _uniform(seed, pid, BLOCK: tl.constexpr):
    """A number in [0, 1) for each of this program's BLOCK elements."""
    counters = pid * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    u0, u1, u2, u3 = tl.rand4x(seed, counters)
    return tl.join(tl.join(u0, u2), tl.join(u1, u3)).reshape(BLOCK)  # u0[0], u1[0], u2[0], u3[0], u0[1], ...


@triton.jit
def _place(offs, cols, stride_m, CONTIGUOUS: tl.constexpr):
    """Where elements lie, from their logical index; the division is for matrices with gaps between the rows only."""
    if CONTIGUOUS:
        return offs
    else:
        return offs // cols * stride_m + offs % cols


@triton.jit
def dropout_add_kernel(
    x_ptr, residual_ptr, y_ptr,
    stride_xm, stride_rm, size, cols, p, scale, seed,
    CONTIGUOUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK elements; without a residual it is the backward pass."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < size

    x = tl.load(x_ptr + _place(offs, cols, stride_xm, CONTIGUOUS), mask=mask, other=0.0).to(tl.float32)
    y = tl.where(_uniform(seed, pid, BLOCK) >= p, x * scale, 0.0)  # not x * kept: inf * 0 is NaN
    if residual_ptr is not None:
        y += tl.load(residual_ptr + _place(offs, cols, stride_rm, CONTIGUOUS), mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@torch_op(lambda x, residual, p, seed: x.new_empty(x.shape))
def dropout_add_forward(x: torch.Tensor, residual: torch.Tensor | None, p: float, seed: int) -> torch.Tensor:
    """Dropped x, plus the residual if there is one. x, residual: (rows, cols)."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    contiguous = x.is_contiguous() and (residual is None or residual.is_contiguous())
    strides = x.stride(0), 0 if residual is None else residual.stride(0)
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid, meta = launch.elementwise(x)
    launch.run(
        dropout_add_kernel, grid, x, residual, y, *strides, x.numel(), x.shape[1], p, scale, seed, contiguous, **meta
    )
    return y


class DropoutAdd(torch.autograd.Function):
    """x, residual: (rows, cols)."""

    @staticmethod
    def forward(ctx, x, residual, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropout_add_forward(x, residual, p, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        dx = dropout_add_forward(dy.contiguous(), None, ctx.p, ctx.seed) if ctx.needs_input_grad[0] else None
        return dx, dy, None, None


def check_probability(p: float) -> None:
    """p is a probability.

    Raises:
        TypeError: it is no number.
        ValueError: it lies outside [0, 1].
    """
    if not isinstance(p, (int, float)):
        raise TypeError(f"p must be a number, got {type(p).__name__}")
    if not 0 <= p <= 1:
        raise ValueError(f"p must be a probability, 0 <= p <= 1, got {p}")


def check_seed(seed: int) -> int:
    """The seed, a number that both PyTorch and Triton hold in 64 bits.

    Raises:
        TypeError: it is no int.
        ValueError: it lies outside [0, 2**63).
    """
    seed = checks.whole_number(seed=seed)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be at least 0 and below 2**63, got {seed}")
    return seed


@partial(remembered, number="seed")
def dropout_add(x: torch.Tensor, residual: torch.Tensor, p: float, seed: int, training: bool = True) -> torch.Tensor:
    """residual + dropout(x): each element of x is dropped with probability p, the others divided by 1 - p.

    Differentiable in x and residual.  The backward pass and the PyTorch reference drop the same elements.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        residual: shape, dtype and device of x; its own strides. Not modified.
        p: probability of dropping, 0 to 1. With 1 the result is the residual.
        seed: 0 <= seed < 2**63. The same seed drops the same elements: take another for each call.
        training: False drops nothing: the result is x + residual.

    Returns:
        Shape and dtype of x. What is dropped adds nothing, even where x is inf or NaN.

    Raises:
        TypeError: another dtype, x and residual of two, a p that is no number or a seed that is no int.
        ValueError: p or seed out of range, shapes or devices that differ, or strides other than the above.
    """
    checks.floating(x=x, residual=residual)
    checks.same_shape_and_dtype(x=x, residual=residual)
    checks.row_vectors(x)
    check_probability(p)
    seed = check_seed(seed)
    x_rows, residual_rows = checks.rows_of(x=x), checks.rows_of(residual=residual)
    if x.numel() == 0 or not uses_triton(x):
        return reference.dropout_add(x, residual, p, seed, training)
    return checks.in_shape_of(x, apply(DropoutAdd, x_rows, residual_rows, float(p) if training else 0.0, seed))
