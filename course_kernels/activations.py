"""Activations, alone and gated.

    activation:   y = f(x)
    act_and_mul:  y[r, c] = f(x[r, c]) * x[r, c + d]        x: (rows, 2 * d), the gate first, then its factor

| kind        | f(x)                                                                                            |
|-------------|-------------------------------------------------------------------------------------------------|
| `silu`      | x / (1 + exp(-x))                                                                               |
| `gelu`      | x * (1 + erf(x / sqrt(2))) / 2                                                                  |
| `gelu_tanh` | x * (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)),  u = sqrt(2 / pi) * (x + 0.044715 * x^3)           |
| `relu`      | max(x, 0)                                                                                       |

The textbook tanh, (exp(2u) - 1) / (exp(2u) + 1), is inf / inf from u = 45 on; a sigmoid cannot overflow into NaN.

Everything is computed in float32 and rounded once.  Unfused, PyTorch writes f(gate) and reads it back: 5 * rows * d
elements move; fused 3.  Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks and Gimpel, "Gaussian Error Linear
Units", 2016.
"""

from functools import partial

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import apply, once_differentiable, remembered, torch_op
from .backend import uses_triton

KINDS = ("silu", "gelu", "gelu_tanh", "relu")

SQRT_HALF = tl.constexpr(0.7071067811865476)
NORMAL_DENSITY = tl.constexpr(0.3989422804014327)  # 1 / sqrt(2 pi), the normal distribution's density at 0
TWO_SQRT_2_OVER_PI = tl.constexpr(1.5957691216057308)
CUBIC = tl.constexpr(0.044715)


@triton.jit
def _two_u(x):
    """2 u of the tanh form."""
    return (x + x * x * x * CUBIC) * TWO_SQRT_2_OVER_PI


@triton.jit
def activate(x, KIND: tl.constexpr):
    """f(x) for a float32 block."""
    if KIND == "silu":
        return tl.fdiv(x, 1.0 + tl.exp(-x))  # x * sigmoid(x), with one rounding and one multiplication less
    elif KIND == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * SQRT_HALF))
    elif KIND == "gelu_tanh":
        return x * tl.sigmoid(_two_u(x))
    else:
        tl.static_assert(KIND == "relu", "unknown activation")
        return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def derivative(x, KIND: tl.constexpr):
    """f'(x) for a float32 block."""
    if KIND == "silu":
        s = tl.sigmoid(x)
        return s * (1.0 + x * (1.0 - s))
    elif KIND == "gelu":
        return 0.5 * (1.0 + tl.erf(x * SQRT_HALF)) + x * tl.exp(-0.5 * x * x) * NORMAL_DENSITY
    elif KIND == "gelu_tanh":
        s = tl.sigmoid(_two_u(x))
        square = tl.minimum(x * x, 1e30)  # no inf, which 0 = 1 - s would turn into NaN
        return s + x * s * (1.0 - s) * TWO_SQRT_2_OVER_PI * (1.0 + 3.0 * square * CUBIC)
    else:
        tl.static_assert(KIND == "relu", "unknown activation")
        return tl.where(x <= 0, 0.0, 1.0)  # 1 for NaN, as in PyTorch


@triton.jit
def _tile(rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WHOLE: tl.constexpr):
    """Rows (int64), columns and mask of this program's tile; the tiles are numbered row by row.

    WHOLE: a tile holds rows of BLOCK_N columns, so that nothing needs to be divided or masked there.
    """
    pid = tl.program_id(0)
    tiles_n = 1 if WHOLE else tl.cdiv(cols, BLOCK_N)
    offs_m = (pid // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = (pid % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask_n = offs_n < (BLOCK_N if WHOLE else cols)
    return offs_m, offs_n, mask_n if BLOCK_M == 1 else (offs_m < rows) & mask_n


@triton.jit
def activation_kernel(
    x_ptr, y_ptr, stride_xm, rows, cols,
    KIND: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one tile."""
    offs_m, offs_n, mask = _tile(rows, cols, BLOCK_M, BLOCK_N, WHOLE)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs_m * cols + offs_n, activate(x, KIND).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def activation_backward_kernel(
    dy_ptr, x_ptr, dx_ptr, stride_xm, rows, cols,
    KIND: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one tile: dx = dy * f'(x)."""
    offs_m, offs_n, mask = _tile(rows, cols, BLOCK_M, BLOCK_N, WHOLE)
    offs_y = offs_m * cols + offs_n
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + offs_y, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + offs_y, (dy * derivative(x, KIND)).to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def act_and_mul_kernel(
    x_ptr, y_ptr, stride_xm, stride_ym, rows, cols,
    KIND: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one tile of the result: the gate lies `cols` elements before its factor."""
    offs_m, offs_n, mask = _tile(rows, cols, BLOCK_M, BLOCK_N, WHOLE)
    gate_ptr = x_ptr + offs_m * stride_xm + offs_n
    gate = tl.load(gate_ptr, mask=mask, other=0.0).to(tl.float32)
    factor = tl.load(gate_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = activate(gate, KIND) * factor
    tl.store(y_ptr + offs_m * stride_ym + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def act_and_mul_backward_kernel(
    dy_ptr, x_ptr, dx_ptr, stride_xm, rows, cols,
    KIND: tl.constexpr, WHOLE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one tile: f(gate) is computed again, which is cheaper than having stored it."""
    offs_m, offs_n, mask = _tile(rows, cols, BLOCK_M, BLOCK_N, WHOLE)
    gate_ptr = x_ptr + offs_m * stride_xm + offs_n
    gate = tl.load(gate_ptr, mask=mask, other=0.0).to(tl.float32)
    factor = tl.load(gate_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + offs_m * cols + offs_n, mask=mask, other=0.0).to(tl.float32)

    dx_ptr += offs_m * (2 * cols) + offs_n
    tl.store(dx_ptr, (dy * factor * derivative(gate, KIND)).to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(dx_ptr + cols, (dy * activate(gate, KIND)).to(dx_ptr.dtype.element_ty), mask=mask)


@torch_op(lambda x, kind: x.new_empty(x.shape))
def activation_forward(x: torch.Tensor, kind: str) -> torch.Tensor:
    """f(x). x: (rows, cols)."""
    rows, cols = x.shape
    y = x.new_empty((rows, cols))
    grid, meta = launch.tiles(y)
    launch.run(activation_kernel, grid, x, y, x.stride(0), rows, cols, kind, meta["BLOCK_N"] == cols, **meta)
    return y


@torch_op(lambda x, y, kind: None, mutates=("y",))
def act_and_mul_forward(x: torch.Tensor, y: torch.Tensor, kind: str) -> None:
    """Write f(first half of x) * second half of x. x: (rows, 2 * cols); y: (rows, cols)."""
    rows, cols = y.shape
    grid, meta = launch.tiles(y)
    launch.run(
        act_and_mul_kernel,
        grid,
        x,
        y,
        x.stride(0),
        y.stride(0),
        rows,
        cols,
        kind,
        WHOLE=cols == meta["BLOCK_N"],
        **meta,
    )


@torch_op(lambda dy, x, kind: dy.new_empty(dy.shape))
def activation_backward(dy: torch.Tensor, x: torch.Tensor, kind: str) -> torch.Tensor:
    """dx. dy: (rows, cols), contiguous; x: (rows, cols)."""
    rows, cols = dy.shape
    dx = torch.empty_like(dy)
    grid, meta = launch.tiles(dy)
    launch.run(
        activation_backward_kernel,
        grid,
        dy,
        x,
        dx,
        x.stride(0),
        rows,
        cols,
        kind,
        WHOLE=cols == meta["BLOCK_N"],
        **meta,
    )
    return dx


@torch_op(lambda dy, x, kind: x.new_empty(x.shape))
def act_and_mul_backward(dy: torch.Tensor, x: torch.Tensor, kind: str) -> torch.Tensor:
    """dx. dy: (rows, cols), contiguous; x: (rows, 2 * cols)."""
    rows, cols = dy.shape
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid, meta = launch.tiles(dy)
    launch.run(
        act_and_mul_backward_kernel,
        grid,
        dy,
        x,
        dx,
        x.stride(0),
        rows,
        cols,
        kind,
        WHOLE=cols == meta["BLOCK_N"],
        **meta,
    )
    return dx


class Activation(torch.autograd.Function):
    """x: (rows, cols)."""

    @staticmethod
    def forward(ctx, x, kind):
        ctx.save_for_backward(x)
        ctx.kind = kind
        return activation_forward(x, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return activation_backward(dy.contiguous(), x, ctx.kind), None


class ActAndMul(torch.autograd.Function):
    """x: (rows, 2 * cols)."""

    @staticmethod
    def forward(ctx, x, kind):
        ctx.save_for_backward(x)
        ctx.kind = kind
        y = x.new_empty((x.shape[0], x.shape[1] // 2))
        act_and_mul_forward(x, y, kind)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return act_and_mul_backward(dy.contiguous(), x, ctx.kind), None


def check_kind(kind: str) -> None:
    """`kind` is one of KINDS; an unknown name must never mean "no activation".

    Raises:
        ValueError: it is not.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")


def check_gated_width(x: torch.Tensor) -> None:
    """The last dimension splits into gate and factor.

    Raises:
        ValueError: it is odd.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"x needs an even last dimension, gate and factor side by side; got shape {tuple(x.shape)}")


@remembered
def activation(x: torch.Tensor, kind: str) -> torch.Tensor:
    """f(x), element by element; differentiable.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        kind: "silu", "gelu" (exact), "gelu_tanh" or "relu".

    Returns:
        Shape and dtype of x.

    Raises:
        TypeError: another dtype.
        ValueError: an unknown kind, x a scalar, or strides other than the above.
    """
    check_kind(kind)
    checks.floating(x=x)
    checks.row_vectors(x)
    x_rows = checks.rows_of(x=x)
    if x.numel() == 0 or not uses_triton(x):
        return reference.activation(x, kind)
    return checks.in_shape_of(x, apply(Activation, x_rows, kind))


@partial(remembered, writes=("out",))
def act_and_mul(x: torch.Tensor, kind: str, out: torch.Tensor | None = None) -> torch.Tensor:
    """f(gate) * factor for the two halves of the last dimension; differentiable without `out`.

    Args:
        x: (..., 2 * d), gate first; float32, float16 or bfloat16; unit stride along the row, one from row to row.
        kind: "silu" (SwiGLU), "gelu" or "gelu_tanh" (GeGLU), "relu" (ReGLU).
        out: (..., d), dtype and device of x; written and returned. Strides as for x. It may be one half of x, and
            shares no memory with it else.

    Returns:
        (..., d), dtype of x.

    Raises:
        TypeError: another dtype.
        ValueError: an unknown kind, an odd width, an `out` that does not fit, strides other than the above, or `out`
            together with an x that requires grad or that shares memory with it, but for one half of x.
    """
    check_kind(kind)
    checks.floating(x=x)
    checks.row_vectors(x)
    check_gated_width(x)
    x_rows = checks.rows_of(x=x)
    if out is not None:
        return _act_and_mul_into(out, x, x_rows, kind)
    if x.numel() == 0 or not uses_triton(x):
        return reference.act_and_mul(x, kind)
    return apply(ActAndMul, x_rows, kind).view(*x.shape[:-1], -1)


def _act_and_mul_into(out: torch.Tensor, x: torch.Tensor, x_rows: torch.Tensor, kind: str) -> torch.Tensor:
    """`act_and_mul` with the caller's memory for the result."""
    checks.floating(x=x, out=out)
    checks.shape((*x.shape[:-1], x.shape[-1] // 2), out=out)
    if out.dtype != x.dtype:
        raise TypeError(f"out must have the dtype of x, {x.dtype}, got {out.dtype}")
    checks.no_overlap(out=out)
    if not _is_half_of(out, x):
        checks.apart({"out": out}, {"x": x})
    checks.not_differentiable(x=x, out=out)
    out_rows = checks.rows_of(out=out)
    if x.numel() == 0 or not uses_triton(x):
        return out.copy_(reference.act_and_mul(x, kind))
    act_and_mul_forward(x_rows, out_rows, kind)
    return out


def _is_half_of(out: torch.Tensor, x: torch.Tensor) -> bool:
    """out is the gate or the factor itself: a program reads both before it writes there, and no other reads them."""
    if torch.compiler.is_compiling() or checks.without_memory(out):
        return False
    start, size = x.data_ptr(), x.itemsize
    return out.data_ptr() in (start, start + out.shape[-1] * size) and out.stride() == x.stride()


@remembered
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """SwiGLU, silu(gate) * factor for the two halves of the last dimension: `act_and_mul(x, "silu")`; differentiable.

    Args:
        x: (..., 2 * d), gate first; float32, float16 or bfloat16; unit stride along the row, one from row to row.

    Returns:
        (..., d), dtype of x.

    Raises:
        TypeError: another dtype.
        ValueError: an odd width, or strides other than the above.
    """
    return act_and_mul(x, "silu")


@remembered
def gelu_tanh_and_mul(x: torch.Tensor) -> torch.Tensor:
    """GeGLU with the tanh form of gelu: `act_and_mul(x, "gelu_tanh")`; differentiable.

    Args:
        x: (..., 2 * d), gate first; float32, float16 or bfloat16; unit stride along the row, one from row to row.

    Returns:
        (..., d), dtype of x.

    Raises:
        TypeError: another dtype.
        ValueError: an odd width, or strides other than the above.
    """
    return act_and_mul(x, "gelu_tanh")
