# %% [markdown]
# # Exercises 02: RMSNorm
#
# Six exercises on kernels that reduce a row. Read [02 RMSNorm](../notebooks/02_rmsnorm.ipynb) first. Exercise 2.2 is
# the kernel of the lesson, 2.3 the one that a model really runs, and 2.6 is for those who want more.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 2.1` gives the next of three hints, `%solution 2.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="2.1"
# One reduction per row, and nothing else: the mean of the squares of each row. The kernel already knows its row and its
# columns. Load the row, reduce it, store one number.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N`, float32 or float16. Rows may be further apart than `N`: use `stride_xm`
# - **Output**: a float32 tensor of shape `(M,)`
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       out[r] = sum(x[r, c] ** 2 for c in range(N)) / N
#   ```


# %% exercise="2.1"
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / N
    tl.store(out_ptr + row, mean_square)
    ### END SOLUTION


def row_mean_square(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M,)](x, out, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return out


# %% [markdown] tags=["solution-only"]
# **Why.** The lanes past the end of the row take part in `tl.sum` like all others: a reduction has no mask. So they
# must hold what does not change the sum, and `other=0.0` puts it there. They must not change the *count* either, so the
# sum is divided by `N`, the number of elements, and never by `BLOCK`, the number of lanes.
#
# `.to(tl.float32)` comes before the square. In float16, 300 squared is infinity.
#
# The store needs no mask. `mean_square` is one number, and program `r` writes exactly one element, `out[r]`.

# %% [markdown] exercise_header="2.2"
# The kernel of the lesson. One program owns one row.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N`, float32, float16 or bfloat16; `weight` of shape `(N,)`, perhaps of
#   another dtype; `eps`, a number
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       mean_square = sum(x[r, c] ** 2 for c in range(N)) / N
#       for c in range(N):
#           y[r, c] = x[r, c] / math.sqrt(mean_square + eps) * weight[c]
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="2.2"
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    ### BEGIN SOLUTION
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / N
    y = x * tl.rsqrt(mean_square + eps) * w
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rms_norm(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    ### BEGIN SOLUTION
    block = triton.next_power_of_2(N)
    rms_norm_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=block)
    ### END SOLUTION
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The row is read once and stays in registers between the sum and the division. That is the whole gain over the
# composed version, which writes each intermediate matrix to memory and reads it back.
#
# `eps` stands inside the root. For ordinary rows nobody can tell the difference; for a row of tiny values, `eps` is
# what keeps the result small, and outside the root it would be 300 times too weak (the root of 1e-5 is 3e-3).
#
# Nothing assumes a dtype. Whatever `x` and `weight` hold is widened to float32, and the result is rounded to whatever
# `y` holds: `y_ptr.dtype.element_ty`. Nothing assumes that rows are `N` apart either; that is what the strides are for.

# %% [markdown] exercise_header="2.3"
# What 60 of the 61 norms of SmolLM2 really do: add to the residual stream, and normalise the sum. Do both in **one**
# launch, and return both results. The sum is rounded to the dtype of `x` before it is normalised, because the rounded
# sum is what the next layer gets to see.
#
# - **Inputs**: `x` and `residual` of shape `(M, N)` and the same dtype, float32, float16 or bfloat16; `weight` of shape
#   `(N,)`; `eps`, a number. Neither input may be changed
# - **Output**: `(y, new_residual)`, both of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   new_residual = x + residual                 # rounded to the dtype of x
#   y = rms_norm(new_residual, weight, eps)     # as in exercise 2.2
#   ```


# %% exercise="2.3"
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, w_ptr, y_ptr, new_residual_ptr, stride_xm, stride_rm, stride_ym, N, eps, BLOCK: tl.constexpr
):
    """One program, one row. y and new_residual have the same strides."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * stride_rm + cols, mask=mask, other=0.0).to(tl.float32)
    new_residual = (x + residual).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + row * stride_ym + cols, new_residual, mask=mask)

    total = new_residual.to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(total * total, axis=0) / N
    y = total * tl.rsqrt(mean_square + eps) * w
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def add_rms_norm(x, residual, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    new_residual = torch.empty_like(y)
    strides = x.stride(0), residual.stride(0), y.stride(0)
    block = triton.next_power_of_2(N)
    add_rms_norm_kernel[(M,)](x, residual, weight, y, new_residual, *strides, N, eps, BLOCK=block)
    return y, new_residual


# %% [markdown] tags=["solution-only"]
# **Why.** Two launches would write the sum to memory and read it back at once. Here it never leaves the registers
# before it is normalised: four trips over the matrix instead of five, and one launch instead of two.
#
# The sum goes down to the dtype of the output and back up to float32. That looks like a waste, and it is the point:
# later layers read the *rounded* residual. Normalise the unrounded sum, and `y` belongs to a residual that nobody has.
# The fused kernel would no longer give what `add` followed by `rms_norm` gives, and in bfloat16 some tokens would
# change.

# %% [markdown] exercise_header="2.4"
# This LayerNorm is in use somewhere, and its test passes: `torch.randn(64, 1024)`, tolerance 1e-2. It has **two** bugs.
# Repair what you see, and let the report tell you what is left. LayerNorm subtracts the mean first, then divides by the
# standard deviation.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N`, float32 or bfloat16; `weight` and `bias` of shape `(N,)`; `eps`, a
#   number
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       mean = sum(x[r, c] for c in range(N)) / N
#       variance = sum((x[r, c] - mean) ** 2 for c in range(N)) / N
#       for c in range(N):
#           y[r, c] = (x[r, c] - mean) / math.sqrt(variance + eps) * weight[c] + bias[c]
#   ```


# %% exercise="2.4"
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    ### BEGIN BROKEN
    centred = x - mean
    variance = tl.sum(centred * centred, axis=0) / N
    y = centred / (tl.sqrt(variance) + eps) * w + b
    ### END BROKEN
    ### BEGIN SOLUTION
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / N
    y = centred * tl.rsqrt(variance + eps) * w + b
    ### END SOLUTION
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm(x, weight, bias, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    layer_norm_kernel[(M,)](x, weight, bias, y, x.stride(0), y.stride(0), N, eps, BLOCK=block)
    return y


# %% [markdown] tags=["solution-only"]
# **Why, first bug.** `other=0.0` is right for the first sum. But then the mean is subtracted from *every* lane, and an
# idle lane holds `0 - mean`. Its square joins the variance. The idle lanes must be put back to the identity of the sum,
# with `tl.where`, each time a reduction follows arithmetic. With a mean near zero the error hides in the tolerance, and
# with a width of 1024 there is no idle lane at all: the test could not fail.
#
# **Why, second bug.** `eps` was added to the standard deviation instead of the variance. You can see it only where the
# variance is about as small as `eps`.

# %% [markdown] exercise_header="2.5"
# A row that does not fit into registers is walked block by block, twice: once for the statistics, once for the result.
# `BLOCK` is 1024 here, however wide the row is. Leave it.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N` from 1 to a million, float32 or bfloat16; `weight` of shape `(N,)`;
#   `eps`, a number
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**: as in exercise 2.2


# %% exercise="2.5"
@triton.jit
def rms_norm_long_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    """One program, one row of any width, BLOCK elements at a time."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * stride_ym
    ### BEGIN SOLUTION
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)

    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rms_norm_long(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_long_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=1024)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The first loop keeps `BLOCK` partial sums, one for each column of the block, and adds them up once at the
# end. A `tl.sum` inside the loop would be right as well, but it would send the waves through LDS and a barrier in every
# turn.
#
# The second loop reads `x` again. That costs a third trip over the row where the one-block kernel makes two. It is
# still far cheaper than spilled registers: the second reading often comes from cache, and it is wide.
#
# The last block is nearly always cut short, so the mask is computed from `start`, inside the loop.

# %% [markdown] exercise_header="2.6"
# Short rows waste lanes: a row of 12 elements occupies a program of at least one wave. Give each program `BLOCK_M` rows
# instead. Offsets and masks become two-dimensional, and the sum runs along `axis=1`.
#
# - **Inputs**: `x` of shape `(M, N)`, `N` up to 128, any `M`, float32 or float16; `weight` of shape `(N,)`; `eps`, a
#   number
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**: as in exercise 2.2


# %% exercise="2.6"
@triton.jit
def rms_norm_short_kernel(
    x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program, BLOCK_M rows."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    ### BEGIN SOLUTION
    mask_n = offs_n < N
    mask = (offs_m < M)[:, None] & mask_n[None, :]
    x_offs = offs_m[:, None] * stride_xm + offs_n[None, :]
    y_offs = offs_m[:, None] * stride_ym + offs_n[None, :]
    x = tl.load(x_ptr + x_offs, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=1) / N
    y = x * tl.rsqrt(mean_square + eps)[:, None] * w[None, :]
    tl.store(y_ptr + y_offs, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rms_norm_short(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    ### BEGIN SOLUTION
    blocks = {"BLOCK_M": 16, "BLOCK_N": triton.next_power_of_2(N)}
    grid = (triton.cdiv(M, 16),)
    rms_norm_short_kernel[grid](x, weight, y, x.stride(0), y.stride(0), M, N, eps, **blocks)
    ### END SOLUTION
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `[:, None]` makes a column of row numbers, `[None, :]` a row of column numbers; their sum is a whole tile of
# offsets. `axis=1` is the axis that disappears, so `mean_square` has one number for each row, and `[:, None]` spreads
# it over that row again.
#
# The weight needs only the mask of the columns. The rows need a mask because `M` is not always a multiple of `BLOCK_M`;
# without it, the last program would write rows that do not exist.

# %% tags=["nbval-ignore-output"]
progress()
