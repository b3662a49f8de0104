"""LayerNorm, alone and fused with the addition of the residual stream before it.

    y[r, c] = x_hat[r, c] * weight[c] + bias[c],    x_hat[r, c] = (x[r, c] - mean[r]) * rstd[r]
    mean[r] = mean_c(x[r, c]),    var[r] = mean_c((x[r, c] - mean[r])^2),    rstd[r] = 1 / sqrt(var[r] + eps)

with x = round(a + residual) in the fused form, which returns that sum as well: the next layer adds to it again.

Backward, with g = dy * weight:

    dx = rstd * (g - mean_c(g) - x_hat * mean_c(g * x_hat)),    dweight = sum_r(dy * x_hat),    dbias = sum_r(dy)

| tensor                          | shape             | dtype                                            |
|---------------------------------|-------------------|--------------------------------------------------|
| x, residual, y, new_residual    | (..., cols)       | float32, float16 or bfloat16, the same for all   |
| weight, bias                    | (cols,)           | any of the three                                 |
| mean, rstd                      | (...)             | float32                                          |

Everything is computed in float32 and rounded once, at the store.  The matrix is read once and written once: 2 * rows *
cols * itemsize bytes; with the addition 4 times rows * cols * itemsize instead of 5.  A row that does not fit into
registers is read twice.

The mean of the squares minus the square of the mean would cancel to nothing where the mean is large.  So a row in
registers is first centred, then squared; in a walked row every lane keeps a mean and a sum of squared deviations of its
own (Welford), and these are combined at the end (Chan, Golub and LeVeque).  Both begin by subtracting the row's first
element, exactly or nearly so: a mean in float32 is off by its last place, and a large rstd would magnify that.

The backward pass computes mean and rstd anew: a row in registers has them for two sums.  Asked for, they are results
(8 * rows bytes), as other libraries keep them, and the backward pass reads them; rounded, as said above.

Ba, Kiros and Hinton, "Layer Normalization", 2016; Welford, "Note on a method for calculating corrected sums of squares
and products", 1962; Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983.  The partial rows of
dweight and dbias follow Triton's layer-norm tutorial, without its locks: the order of the additions never changes.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import apply, once_differentiable, remembered, torch_op
from ._column_sum import column_sums
from .backend import uses_triton


@triton.jit
def _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, EVICT: tl.constexpr):
    """x, or the rounded x + residual, in float32; masked lanes hold 0."""
    x = tl.load(x_ptr + offs_x, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)
    if residual_ptr is not None:
        x += tl.load(residual_ptr + offs_r, mask=mask, other=0.0, eviction_policy=EVICT).to(tl.float32)
        x = x.to(x_ptr.dtype.element_ty).to(tl.float32)  # the next layer sees the rounded sum: normalise the same
    return x


@triton.jit
def _normalise(x, first, mask, cols, eps):
    """x_hat, mean and rstd of a tile of whole rows, given the first element of each."""
    x = tl.where(mask, x - first, 0.0)
    mean = tl.sum(x, axis=1, keep_dims=True) / cols
    centred = tl.where(mask, x - mean, 0.0)  # without the mask each padded lane would add mean**2 to the variance
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / cols + eps)
    return centred * rstd, first + mean, rstd


@triton.jit
def _normalise_saved(x, mean_ptr, rstd_ptr, mask, mask_m):
    """x_hat and rstd of a tile of whole rows, given where the mean and the rstd of each are."""
    rstd = tl.load(rstd_ptr, mask=mask_m, other=0.0).to(tl.float32)
    return tl.where(mask, x - tl.load(mean_ptr, mask=mask_m, other=0.0).to(tl.float32), 0.0) * rstd, rstd


@triton.jit
def _welford(x, mask, mean, squares, share):
    """Take one more element into each lane's mean and sum of squared deviations; `share` is 1 / (elements so far)."""
    delta = tl.where(mask, x - mean, 0.0)
    mean += delta * share
    return mean, squares + delta * (x - mean)


@triton.jit
def _combine(lane_mean, squares, count, cols, eps):
    """The lanes' means and sums of squared deviations as mean and rstd of the row."""
    mean = tl.sum(lane_mean * count, axis=0) / cols
    centred = lane_mean - mean
    return mean, tl.rsqrt(tl.sum(squares + centred * centred * count, axis=0) / cols + eps)


@triton.jit
def layer_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, new_residual_ptr, mean_ptr, rstd_ptr,
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
    bias = tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)
    first = _load_sum(x_ptr, residual_ptr, offs_m * stride_xm, offs_m * stride_rm, offs_m < rows, "")
    x_hat, mean, rstd = _normalise(x, first, mask, cols, eps)
    y = x_hat * weight + bias

    offs_y = offs_m * cols + offs_n  # what is allocated here is contiguous
    tl.store(y_ptr + offs_y, y.to(y_ptr.dtype.element_ty), mask=mask)
    if residual_ptr is not None:
        tl.store(new_residual_ptr + offs_y, x.to(new_residual_ptr.dtype.element_ty), mask=mask)
    if mean_ptr is not None:
        tl.store(mean_ptr + offs_m, mean, mask=offs_m < rows)
        tl.store(rstd_ptr + offs_m, rstd, mask=offs_m < rows)


@triton.jit
def layer_norm_long_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, new_residual_ptr, mean_ptr, rstd_ptr,
    stride_xm, stride_rm, cols, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one row wider than BLOCK_N: first the statistics, then the result."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_N)
    first = _load_sum(x_ptr, residual_ptr, row * stride_xm, row * stride_rm, True, "")
    lane_mean = tl.zeros((BLOCK_N,), tl.float32)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, cols, BLOCK_N):
        offs_n = start + offs
        mask = offs_n < cols
        offs_x, offs_r = row * stride_xm + offs_n, row * stride_rm + offs_n
        x = _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, "evict_last")  # stay cached for the second walk
        lane_mean, squares = _welford(x - first, mask, lane_mean, squares, BLOCK_N / (start + BLOCK_N))
    mean, rstd = _combine(lane_mean, squares, tl.cdiv(cols - offs, BLOCK_N), cols, eps)
    if mean_ptr is not None:
        tl.store(mean_ptr + row, first + mean)
        tl.store(rstd_ptr + row, rstd)

    for start in range(0, cols, BLOCK_N):
        offs_n = start + offs
        mask = offs_n < cols
        offs_x, offs_r = row * stride_xm + offs_n, row * stride_rm + offs_n
        x = _load_sum(x_ptr, residual_ptr, offs_x, offs_r, mask, "evict_first")
        weight = tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        y = (x - first - mean) * rstd * weight + bias
        tl.store(y_ptr + row * cols + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)
        if residual_ptr is not None:
            new_residual = x.to(new_residual_ptr.dtype.element_ty)
            tl.store(new_residual_ptr + row * cols + offs_n, new_residual, mask=mask)


@triton.jit
def layer_norm_backward_kernel(
    dy_ptr, d_new_residual_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_rows_ptr, dbias_rows_ptr,
    stride_xm, rows, cols, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A resident program: tile after tile of whole rows; at the end one partial row of dweight and of dbias."""
    pid = tl.program_id(0)
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask_n = offs_n < cols
    weight = tl.load(weight_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)

    for start in range(pid * BLOCK_M, rows, tl.num_programs(0) * BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        mask = (offs_m < rows) & mask_n
        offs_y = offs_m * cols + offs_n
        x = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offs_y, mask=mask, other=0.0).to(tl.float32)

        if mean_ptr is None:
            first = tl.load(x_ptr + offs_m * stride_xm, mask=offs_m < rows, other=0.0).to(tl.float32)
            x_hat, _, rstd = _normalise(x, first, mask, cols, eps)
        else:
            x_hat, rstd = _normalise_saved(x, mean_ptr + offs_m, rstd_ptr + offs_m, mask, offs_m < rows)
        g = dy * weight
        mean_g = tl.sum(g, axis=1, keep_dims=True) / cols
        projection = tl.sum(g * x_hat, axis=1, keep_dims=True) / cols
        dx = rstd * (g - mean_g - x_hat * projection)
        if d_new_residual_ptr is not None:  # the sum was an output too: its gradient joins
            dx += tl.load(d_new_residual_ptr + offs_y, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offs_y, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x_hat
        dbias += dy

    offs_p = pid.to(tl.int64) * cols + offs_n
    tl.store(dweight_rows_ptr + offs_p, tl.sum(dweight, axis=0, keep_dims=True), mask=mask_n)
    tl.store(dbias_rows_ptr + offs_p, tl.sum(dbias, axis=0, keep_dims=True), mask=mask_n)


@triton.jit
def layer_norm_long_statistics_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, statistics_ptr,
    stride_xm, rows, cols, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one long row: the four numbers that its gradient needs, mean, rstd, mean(g) and mean(g * x_hat)."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_N)
    first = tl.load(x_ptr + row * stride_xm if mean_ptr is None else mean_ptr + row).to(tl.float32)
    lane_mean = tl.zeros((BLOCK_N,), tl.float32)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    gs = tl.zeros((BLOCK_N,), tl.float32)
    products = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, cols, BLOCK_N):
        offs_n = start + offs
        mask = offs_n < cols
        x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32) - first
        dy = tl.load(dy_ptr + row * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
        g = dy * tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
        if mean_ptr is None:
            lane_mean, squares = _welford(x, mask, lane_mean, squares, BLOCK_N / (start + BLOCK_N))
        gs += g
        products += g * x

    if mean_ptr is None:
        mean, rstd = _combine(lane_mean, squares, tl.cdiv(cols - offs, BLOCK_N), cols, eps)
    else:  # x had the mean subtracted
        mean, rstd = 0.0, tl.load(rstd_ptr + row).to(tl.float32)
    mean_g = tl.sum(gs, axis=0) / cols
    tl.store(statistics_ptr + row, first + mean)
    tl.store(statistics_ptr + rows + row, rstd)
    tl.store(statistics_ptr + 2 * rows + row, mean_g)
    tl.store(statistics_ptr + 3 * rows + row, (tl.sum(products, axis=0) / cols - mean * mean_g) * rstd)


@triton.jit
def layer_norm_long_backward_kernel(
    dy_ptr, d_new_residual_ptr, x_ptr, weight_ptr, statistics_ptr, dx_ptr, dweight_rows_ptr, dbias_rows_ptr,
    stride_xm, rows, cols,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_N columns of every n-th long row: dx, and one piece of the partial rows."""
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_n < cols
    weight = tl.load(weight_ptr + offs_n, mask=mask, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK_N,), tl.float32)
    dbias = tl.zeros((BLOCK_N,), tl.float32)

    for m in range(tl.program_id(1), rows, tl.num_programs(1)):
        row = tl.cast(m, tl.int64)
        mean, rstd = tl.load(statistics_ptr + row), tl.load(statistics_ptr + rows + row)
        mean_g, projection = tl.load(statistics_ptr + 2 * rows + row), tl.load(statistics_ptr + 3 * rows + row)
        x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
        x_hat = (x - mean) * rstd
        dx = rstd * (dy * weight - mean_g - x_hat * projection)
        if d_new_residual_ptr is not None:
            dx += tl.load(d_new_residual_ptr + row * cols + offs_n, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + offs_n, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x_hat
        dbias += dy

    offs_p = tl.program_id(1).to(tl.int64) * cols + offs_n
    tl.store(dweight_rows_ptr + offs_p, dweight, mask=mask)
    tl.store(dbias_rows_ptr + offs_p, dbias, mask=mask)


def _empty_results(x, residual, weight, bias, eps, return_statistics=False) -> list[torch.Tensor]:
    streams = 1 if residual is None else 2
    rows = 2 if return_statistics else 0
    return [
        *(x.new_empty(x.shape) for _ in range(streams)),
        *(x.new_empty(x.shape[0], dtype=torch.float32) for _ in range(rows)),
    ]


@torch_op(_empty_results)
def layer_norm_forward(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    return_statistics: bool = False,
) -> list[torch.Tensor]:
    """[y] or, given a residual, [y, x + residual]; if asked for, mean and rstd after them, float32, (rows,).

    x, residual: (rows, cols).
    """
    rows, cols = x.shape
    results = _empty_results(x, residual, weight, bias, eps, return_statistics)
    mean, rstd = results[-2:] if return_statistics else (None, None)
    tensors = x, residual, weight, bias, results[0], None if residual is None else results[1], mean, rstd
    strides = x.stride(0), 0 if residual is None else residual.stride(0)
    if launch.holds_row(x):
        grid, meta = launch.whole_rows(x)
        whole = cols == meta["BLOCK_N"]
        launch.run(layer_norm_kernel, grid, *tensors, *strides, rows, cols, eps, WHOLE=whole, **meta)
    else:
        grid, meta = launch.long_rows(x, 1 if residual is None else 2, vectors=2)
        launch.run(layer_norm_long_kernel, grid, *tensors, *strides, cols, eps, **meta)
    return results


@torch_op(lambda dy, d_new_residual, x, weight, bias, *_: tuple(t.new_empty(t.shape) for t in (dy, weight, bias)))
def layer_norm_backward(
    dy: torch.Tensor,
    d_new_residual: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    mean: torch.Tensor | None = None,
    rstd: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dx, dweight, dbias.

    dy, d_new_residual: (rows, cols), contiguous, or None; x: the matrix that was normalised; mean, rstd: (rows,),
    float32, as `layer_norm_forward` returns them, or None, and they are computed again.
    """
    rows, cols = x.shape
    dx = torch.empty_like(dy)
    if cols <= launch.sizes().max_row:
        grid, meta = launch.resident_rows(x)
        partial = torch.empty((2, grid[0], cols), dtype=torch.float32, device=x.device)
        tensors = dy, d_new_residual, x, weight, mean, rstd, dx, *partial
        launch.run(layer_norm_backward_kernel, grid, *tensors, x.stride(0), rows, cols, eps, **meta)
    else:
        statistics = torch.empty((4, rows), dtype=torch.float32, device=x.device)
        grid, meta = launch.long_sums(x)
        tensors = dy, x, weight, mean, rstd, statistics
        launch.run(layer_norm_long_statistics_kernel, grid, *tensors, x.stride(0), rows, cols, eps, **meta)

        grid, meta = launch.column_blocks(x)
        partial = torch.empty((2, grid[1], cols), dtype=torch.float32, device=x.device)
        tensors = dy, d_new_residual, x, weight, statistics, dx, *partial
        launch.run(layer_norm_long_backward_kernel, grid, *tensors, x.stride(0), rows, cols, **meta)
    return dx, *column_sums(partial, (weight.dtype, bias.dtype))


class LayerNorm(torch.autograd.Function):
    """y, then new_residual if there is a residual, then mean and rstd if asked for. x, residual: (rows, cols)."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps, return_statistics=False):
        results = layer_norm_forward(x, residual, weight, bias, eps, return_statistics)
        statistics = results[-2:] if return_statistics else ()
        ctx.save_for_backward(x if residual is None else results[1], weight, bias, *statistics)
        if return_statistics:
            ctx.mark_non_differentiable(*statistics)
        ctx.eps, ctx.fused = eps, residual is not None
        return tuple(results) if len(results) > 1 else results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, *others):
        normalised, weight, bias, *statistics = ctx.saved_tensors
        d_new_residual = others[0].contiguous() if ctx.fused else None
        arguments = dy.contiguous(), d_new_residual, normalised, weight, bias, ctx.eps, *statistics
        dx, dweight, dbias = layer_norm_backward(*arguments)
        return dx, dx if ctx.fused else None, dweight, dbias, None, None


@remembered
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5, *, return_statistics: bool = False
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """LayerNorm over the last dimension: (x - mean(x)) / sqrt(var(x) + eps) * weight + bias; differentiable.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        weight, bias: (cols,); any of the three dtypes, contiguous.
        eps: added to the variance (that of the population, divided by cols), inside the root.
        return_statistics: also return mean and rstd, and keep them for the backward pass, which else computes them
            again.

    Returns:
        Shape and dtype of x; or (y, mean, rstd), mean and rstd in float32 with the shape of x without cols. As in
        `torch.native_layer_norm` no gradient flows to them.

    Raises:
        TypeError: another dtype, or an eps that is no number.
        ValueError: weight or bias does not fit the row, tensors on different devices, or strides other than the above.
    """
    checks.floating(x=x, weight=weight, bias=bias)
    checks.row_vectors(x, weight=weight, bias=bias)
    checks.number(eps=eps)
    x_rows = checks.rows_of(x=x)
    if x.numel() == 0 or not uses_triton(x):
        y = reference.layer_norm(x, weight, bias, eps)
        return (y, *reference.layer_norm_statistics(x, eps)) if return_statistics else y
    if not return_statistics:
        return checks.in_shape_of(x, apply(LayerNorm, x_rows, None, weight, bias, eps))
    y, mean, rstd = apply(LayerNorm, x_rows, None, weight, bias, eps, True)
    return checks.in_shape_of(x, y), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


@remembered
def add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float = 1e-5,
    *,
    return_statistics: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Add x to the residual stream and normalise the sum; differentiable in x, residual, weight and bias.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        residual: shape, dtype and device of x; its own strides. Not modified.
        weight, bias: (cols,); any of the three dtypes, contiguous.
        eps: added to the variance, inside the root.
        return_statistics: as in `layer_norm`.

    Returns:
        (y, new_residual): new_residual = x + residual, rounded to their dtype; y = layer_norm(new_residual, ...). Or
        (y, new_residual, mean, rstd), the last two of new_residual, as `layer_norm` returns them.

    Raises:
        TypeError: another dtype, x and residual of two, or an eps that is no number.
        ValueError: shapes that do not fit, tensors on different devices, or strides other than the above.
    """
    checks.floating(x=x, residual=residual, weight=weight, bias=bias)
    checks.same_shape_and_dtype(x=x, residual=residual)
    checks.row_vectors(x, weight=weight, bias=bias)
    checks.number(eps=eps)
    x_rows, residual_rows = checks.rows_of(x=x), checks.rows_of(residual=residual)
    if x.numel() == 0 or not uses_triton(x):
        y, new_residual = reference.add_layer_norm(x, residual, weight, bias, eps)
        statistics = reference.layer_norm_statistics(new_residual, eps) if return_statistics else ()
        return y, new_residual, *statistics
    results = apply(LayerNorm, x_rows, residual_rows, weight, bias, eps, return_statistics)
    streams = (checks.in_shape_of(x, rows) for rows in results[:2])
    return *streams, *(statistic.view(x.shape[:-1]) for statistic in results[2:])
