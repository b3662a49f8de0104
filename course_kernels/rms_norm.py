"""RMSNorm, alone and fused with the addition of the residual stream before it.

    y[r, c] = x[r, c] * rstd[r] * weight[c],    rstd[r] = 1 / sqrt(mean_c(x[r, c]^2) + eps)

with x = round(a + residual) in the fused form, which returns that sum as well: the next layer adds to it again.

Backward, with x_hat = x * rstd and g = dy * weight:

    dx = rstd * (g - x_hat * mean_c(g * x_hat)),    dweight = sum_r(dy * x_hat)

| tensor                          | shape             | dtype                                            |
|---------------------------------|-------------------|--------------------------------------------------|
| x, residual, y, new_residual    | (..., cols)       | float32, float16 or bfloat16, the same for all   |
| weight                          | (cols,)           | any of the three                                 |

Everything is computed in float32 and rounded once, at the store (Hugging Face's Llama rounds x * rstd as well, before
the weight).  Fused, the matrix is read once and written once: 2 * rows * cols * itemsize bytes; with the addition 4
times rows * cols * itemsize instead of 5.  A row that does not fit into registers is read twice.

Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.  The partial rows of dweight follow Triton's
layer-norm tutorial, without its locks: the order of the additions never changes.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import apply, once_differentiable, remembered, torch_op
from ._column_sum import column_sum
from .backend import uses_triton


@triton.jit
def _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, EVICT: tl.constexpr):
    """x, or the rounded x + residual, in float32; masked lanes hold 0 and so add nothing to a sum of squares."""
    x = tl.load(x_ptr + offs_x, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)
    if residual_ptr is not None:
        x += tl.load(residual_ptr + offs_r, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)
        x = x.to(x_ptr.dtype.element_ty).to(tl.float32)  # the next layer sees the rounded sum: normalise the same
    return x


@triton.jit
def rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr,
    stride_xm, stride_rm, rows, cols, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WHOLE: tl.constexpr = False,
):  # fmt: skip
    """One program, BLOCK_M whole rows; WHOLE: of BLOCK_N columns, so that no lane is masked."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask_n = offs_n < (BLOCK_N if WHOLE else cols)
    mask = mask_n if BLOCK_M == 1 else (offs_m < rows) & mask_n

    offs_x, offs_r = offs_m * stride_xm + offs_n, offs_m * stride_rm + offs_n
    x = _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, "")
    weight = tl.load(weight_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # cols, not BLOCK_N: padding is no element
    y = x * rstd * weight

    offs_y = offs_m * cols + offs_n  # what is allocated here is contiguous
    tl.store(y_ptr + offs_y, y.to(y_ptr.dtype.element_ty), mask=mask)
    if residual_ptr is not None:
        tl.store(new_residual_ptr + offs_y, x.to(new_residual_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_long_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr,
    stride_xm, stride_rm, cols, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one row of any width: first the sum of squares, then the result."""
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < cols
        offs_x, offs_r = row * stride_xm + offs_n, row * stride_rm + offs_n
        x = _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, "evict_last")  # stay cached for the second walk
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)

    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < cols
        offs_x, offs_r = row * stride_xm + offs_n, row * stride_rm + offs_n
        x = _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, "evict_first")
        weight = tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * cols + offs_n, (x * rstd * weight).to(y_ptr.dtype.element_ty), mask=mask)
        if residual_ptr is not None:
            new_residual = x.to(new_residual_ptr.dtype.element_ty)
            tl.store(new_residual_ptr + row * cols + offs_n, new_residual, mask=mask)


@triton.jit
def rms_norm_backward_kernel(
    dy_ptr, d_new_residual_ptr, x_ptr, weight_ptr, dx_ptr, dweight_rows_ptr,
    stride_xm, rows, cols, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A resident program: tile after tile of BLOCK_M whole rows, and one partial row of dweight at the end."""
    pid = tl.program_id(0)
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask_n = offs_n < cols
    weight = tl.load(weight_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)

    for start in range(pid * BLOCK_M, rows, tl.num_programs(0) * BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        mask = (offs_m < rows) & mask_n
        offs_y = offs_m * cols + offs_n
        x = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offs_y, mask=mask, other=0.0).to(tl.float32)

        rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # cheaper than having stored it
        x_hat = x * rstd
        g = dy * weight
        dx = rstd * (g - x_hat * (tl.sum(g * x_hat, axis=1, keep_dims=True) / cols))
        if d_new_residual_ptr is not None:  # the sum was an output too: its gradient joins
            dx += tl.load(d_new_residual_ptr + offs_y, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offs_y, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x_hat

    dweight_row = tl.sum(dweight, axis=0, keep_dims=True)
    tl.store(dweight_rows_ptr + pid.to(tl.int64) * cols + offs_n, dweight_row, mask=mask_n)


@triton.jit
def rms_norm_long_statistics_kernel(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, projection_ptr,
    stride_xm, cols, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one long row: the two numbers that its gradient needs, rstd and mean(g * x_hat)."""
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    products = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < cols
        x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
        products += dy * weight * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(projection_ptr + row, tl.sum(products, axis=0) / cols * rstd)


@triton.jit
def rms_norm_long_backward_kernel(
    dy_ptr, d_new_residual_ptr, x_ptr, weight_ptr, rstd_ptr, projection_ptr, dx_ptr, dweight_rows_ptr,
    stride_xm, rows, cols,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_N columns of every n-th long row: dx, and one piece of a partial row of dweight."""
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < cols
    weight = tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK_N,), tl.float32)

    for m in range(tl.program_id(1), rows, tl.num_programs(1)):
        row = tl.cast(m, tl.int64)
        rstd = tl.load(rstd_ptr + row)
        x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
        x_hat = x * rstd
        dx = rstd * (dy * weight - x_hat * tl.load(projection_ptr + row))
        if d_new_residual_ptr is not None:
            dx += tl.load(d_new_residual_ptr + row * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + offs_n, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x_hat

    tl.store(dweight_rows_ptr + tl.program_id(1).to(tl.int64) * cols + offs_n, dweight, mask=mask)


@torch_op(lambda x, residual, weight, eps: [x.new_empty(x.shape) for _ in range(1 if residual is None else 2)])
def rms_norm_forward(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> list[torch.Tensor]:
    """[y] or, given a residual, [y, x + residual]. x, residual: (rows, cols)."""
    rows, cols = x.shape
    y = x.new_empty((rows, cols))
    new_residual = None if residual is None else torch.empty_like(y)
    tensors = x, residual, weight, y, new_residual
    strides = x.stride(0), 0 if residual is None else residual.stride(0)
    streams = 1 if residual is None else 2
    if launch.holds_wide_row(x):
        grid, meta = launch.whole_rows(x)
        whole = cols == meta["BLOCK_N"]
        launch.run(rms_norm_kernel, grid, *tensors, *strides, rows, cols, eps, WHOLE=whole, **meta)
    else:
        grid, meta = launch.long_rows(x, streams)
        launch.run(rms_norm_long_kernel, grid, *tensors, *strides, cols, eps, **meta)
    return [y] if residual is None else [y, new_residual]


@torch_op(lambda dy, d_new_residual, x, weight, eps: (dy.new_empty(dy.shape), weight.new_empty(weight.shape)))
def rms_norm_backward(
    dy: torch.Tensor, d_new_residual: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """dx and dweight. dy, d_new_residual: (rows, cols), contiguous, or None; x: the matrix that was normalised."""
    rows, cols = x.shape
    dx = torch.empty_like(dy)
    if cols <= launch.sizes().max_row:
        grid, meta = launch.resident_rows(x)
        dweight_rows = torch.empty((grid[0], cols), dtype=torch.float32, device=x.device)
        tensors = dy, d_new_residual, x, weight, dx, dweight_rows
        launch.run(rms_norm_backward_kernel, grid, *tensors, x.stride(0), rows, cols, eps, **meta)
    else:
        rstd, projection = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        grid, meta = launch.long_sums(x)
        tensors = dy, x, weight, rstd, projection
        launch.run(rms_norm_long_statistics_kernel, grid, *tensors, x.stride(0), cols, eps, **meta)

        grid, meta = launch.column_blocks(x)
        dweight_rows = torch.empty((grid[1], cols), dtype=torch.float32, device=x.device)
        tensors = dy, d_new_residual, x, weight, rstd, projection, dx, dweight_rows
        launch.run(rms_norm_long_backward_kernel, grid, *tensors, x.stride(0), rows, cols, **meta)
    return dx, column_sum(dweight_rows, weight.dtype)


class RMSNorm(torch.autograd.Function):
    """Both forms: y without a residual, (y, new_residual) with one. x, residual: (rows, cols)."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        y, *new_residual = rms_norm_forward(x, residual, weight, eps)
        ctx.save_for_backward(*new_residual or [x], weight)
        ctx.eps = eps
        return (y, *new_residual) if new_residual else y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, d_new_residual=None):
        normalised, weight = ctx.saved_tensors
        fused = d_new_residual is not None
        d_new_residual = d_new_residual.contiguous() if fused else None
        dx, dweight = rms_norm_backward(dy.contiguous(), d_new_residual, normalised, weight, ctx.eps)
        return dx, dx if fused else None, dweight, None


@remembered
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last dimension: x / sqrt(mean(x^2) + eps) * weight; differentiable in x and weight.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        weight: (cols,); any of the three dtypes, contiguous.
        eps: added to the mean square, inside the root.

    Returns:
        Shape and dtype of x.

    Raises:
        TypeError: another dtype, or an eps that is no number.
        ValueError: the weight does not fit the row, tensors on different devices, or strides other than the above.
    """
    checks.floating(x=x, weight=weight)
    checks.row_vectors(x, weight=weight)
    checks.number(eps=eps)
    x_rows = checks.rows_of(x=x)
    if x.numel() == 0 or not uses_triton(x):
        return reference.rms_norm(x, weight, eps)
    return checks.in_shape_of(x, apply(RMSNorm, x_rows, None, weight, eps))


@remembered
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add x to the residual stream and normalise the sum: differentiable in x, residual and weight.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        residual: shape, dtype and device of x; its own strides. Not modified.
        weight: (cols,); any of the three dtypes, contiguous.
        eps: added to the mean square, inside the root.

    Returns:
        (y, new_residual): new_residual = x + residual, rounded to their dtype; y = rms_norm(new_residual, ...).

    Raises:
        TypeError: another dtype, x and residual of two, or an eps that is no number.
        ValueError: shapes that do not fit, tensors on different devices, or strides other than the above.
    """
    checks.floating(x=x, residual=residual, weight=weight)
    checks.same_shape_and_dtype(x=x, residual=residual)
    checks.row_vectors(x, weight=weight)
    checks.number(eps=eps)
    x_rows, residual_rows = checks.rows_of(x=x), checks.rows_of(residual=residual)
    if x.numel() == 0 or not uses_triton(x):
        return reference.add_rms_norm(x, residual, weight, eps)
    y, new_residual = apply(RMSNorm, x_rows, residual_rows, weight, eps)
    return checks.in_shape_of(x, y), checks.in_shape_of(x, new_residual)
