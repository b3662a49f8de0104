# %% [markdown]
# # Exercises 03: Fused activations
#
# Six exercises on kernels in which every element stands alone, or nearly. Read
# [03 Fused activations](../notebooks/03_fused_activations.ipynb) first. Exercise 3.2 is the kernel that SmolLM2 runs
# thirty times in every forward pass, 3.5 and 3.6 are for those who want more.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 3.1` gives the next of three hints, `%solution 3.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="3.1"
# The activation by itself, right for every number that a float32 can hold. The lesson's kernels for a single curve are
# for float32; this one takes numbers of 16 bits as well, which `tl.exp` refuses. The launch is written already.
#
# - **Inputs**: `x` of shape `(n,)`, any `n`, float32, float16 or bfloat16
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   for i in range(n):
#       y[i] = x[i] / (1 + math.exp(-x[i]))  # the limit, where math.exp would overflow
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="3.1"
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = x / (1.0 + tl.exp(-x))
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def silu(x):
    n = x.numel()
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `tl.exp` overflows to infinity beyond 88.7. Here that happens only for very negative `x`, in the denominator:
# `x / inf` is zero, which is the limit. Written as `x * exp(x) / (1 + exp(x))`, the same formula overflows above *and*
# below the fraction, and `inf / inf` is NaN.
#
# `.to(tl.float32)` comes first: `tl.exp` refuses 16-bit numbers, and rounding in between would cost digits.

# %% [markdown] exercise_header="3.2"
# The kernel of the lesson. A row of `x` holds a gate and its factor, side by side.
#
# - **Inputs**: `x` of shape `(M, 2 * d)`, any `d`, float32, float16 or bfloat16. Rows may be further apart than `2 * d`
# - **Output**: a new tensor of shape `(M, d)`, dtype of `x`
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       for c in range(d):
#           y[r, c] = silu(x[r, c]) * x[r, d + c]  # silu as in exercise 3.1
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="3.2"
@triton.jit
def silu_and_mul_kernel(x_ptr, y_ptr, stride_xm, stride_ym, d, BLOCK: tl.constexpr):
    """One program: BLOCK columns of one row of y."""
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    mask = cols < d
    gate_ptr = x_ptr + row * stride_xm + cols
    gate = tl.load(gate_ptr, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + d, mask=mask, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def silu_and_mul(x):
    M, d = x.shape[0], x.shape[1] // 2
    y = torch.empty((M, d), dtype=x.dtype, device=x.device)
    ### BEGIN SOLUTION
    grid = (triton.cdiv(d, 512), M)
    silu_and_mul_kernel[grid](x, y, x.stride(0), y.stride(0), d, BLOCK=512)
    ### END SOLUTION
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The activation of the gate never reaches memory. It is multiplied in the register where it was computed.
# Three trips over a matrix instead of five.
#
# The mask belongs to *one half*: `cols < d`. A lane with `cols >= d` would still find legal addresses, first in the
# other half and then in the next row. So nothing would crash without it, and the wrong elements would be written.
#
# The two strides differ even for contiguous tensors: a row of `x` is twice as long as a row of `y`.

# %% [markdown] exercise_header="3.3"
# One kernel for a whole family. `KIND` is a `constexpr`, so the compiler keeps the branch that is asked for and throws
# the others away. The kernel and its launch are written; write the function that it calls.
#
# - **Inputs**: `x` of shape `(M, 2 * d)`, any `d`, float32 or float16; `kind`, one of four names
# - **Output**: a new tensor of shape `(M, d)`, dtype of `x`
# - **Definition**:
#
#   ```python
#   def f(x):
#       u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
#       return {
#           "silu": x / (1 + math.exp(-x)),
#           "gelu": x * (1 + math.erf(x / math.sqrt(2))) / 2,
#           "gelu_tanh": x * (1 + math.tanh(u)) / 2,
#           "relu": max(x, 0),
#       }[kind]
#
#   for r in range(M):
#       for c in range(d):
#           y[r, c] = f(x[r, c]) * x[r, d + c]
#   ```
#
# Triton has `tl.exp`, `tl.sigmoid`, `tl.erf`, `tl.sqrt` and `tl.maximum`, and no tanh that runs everywhere. Inputs go
# up to 1000 here. The numbers: `sqrt(2)` is 1.4142135623730951, `sqrt(2 / pi)` is 0.7978845608028654.


# %% exercise="3.3"
@triton.jit
def activate(x, KIND: tl.constexpr):
    """f(x) for a block of float32."""
    ### BEGIN SOLUTION
    if KIND == "silu":
        return x * tl.sigmoid(x)
    elif KIND == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x / 1.4142135623730951))
    elif KIND == "gelu_tanh":
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return x * tl.sigmoid(2.0 * u)
    else:
        tl.static_assert(KIND == "relu", "unknown activation")
        return tl.maximum(x, 0.0)
    ### END SOLUTION


@triton.jit
def act_and_mul_kernel(x_ptr, y_ptr, stride_xm, d, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < d
    gate = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + d + cols, mask=mask, other=0.0).to(tl.float32)
    y = activate(gate, KIND) * up
    tl.store(y_ptr + row * d + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def act_and_mul(x, kind):
    M, d = x.shape[0], x.shape[1] // 2
    y = torch.empty((M, d), dtype=x.dtype, device=x.device)
    act_and_mul_kernel[(triton.cdiv(d, 256), M)](x, y, x.stride(0), d, kind, BLOCK=256)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `tanh(u) = 2 * sigmoid(2 * u) - 1`, so `(1 + tanh(u)) / 2` *is* `sigmoid(2 * u)`: the tanh form of GELU needs
# no tanh at all. Written as `(exp(2 * u) - 1) / (exp(2 * u) + 1)`, it is NaN for every gate above 10.
#
# The last branch is not a plain `else`. An `else` that returns something sensible makes every misspelt name mean that
# something. `tl.static_assert` is checked while the kernel is compiled, so it costs nothing when it runs.

# %% [markdown] exercise_header="3.4"
# This kernel turns each row into 8-bit numbers and one scale. Its test passes: for `torch.rand(64, 1024)`, `q * scale`
# lies within 0.04 of `x`. It has **two** bugs. Repair what you see, and let the report tell you what is left.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N`, float32 or bfloat16
# - **Output**: `(q, scale)`: `q` of shape `(M, N)` and dtype `torch.float8_e4m3fn`, `scale` of shape `(M,)` and dtype
#   float32. The largest number of this dtype is 448
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       amax = max(1e-10, max(abs(x[r, c]) for c in range(N)))
#       scale[r] = amax / 448
#       for c in range(N):
#           q[r, c] = min(max(x[r, c] / scale[r], -448), 448)  # rounded to 8 bits by the store
#   ```


# %% exercise="3.4"
@triton.jit
def quant_kernel(x_ptr, q_ptr, scale_ptr, stride_xm, N, FP8_MAX: tl.constexpr, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    ### BEGIN BROKEN
    amax = tl.max(x, axis=0)
    scale = amax / FP8_MAX
    ### END BROKEN
    ### BEGIN SOLUTION
    amax = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)
    scale = amax / FP8_MAX
    ### END SOLUTION
    q = tl.clamp(x / scale, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)  # a NaN should be seen
    tl.store(q_ptr + row * N + cols, q.to(q_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row, scale)


def quant_fp8(x):
    M, N = x.shape
    q = torch.empty((M, N), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty(M, dtype=torch.float32, device=x.device)
    quant_kernel[(M,)](x, q, scale, x.stride(0), N, FP8_MAX=448.0, BLOCK=triton.next_power_of_2(N))
    return q, scale


# %% [markdown] tags=["solution-only"]
# **Why, first bug.** The scale must cover the largest *magnitude*. `torch.rand` has no negative numbers, so the test
# could not see the difference. With them, a large negative number lies beyond the range and is clamped; in a row
# without any positive number the scale itself is negative, or zero because of the idle lanes.
#
# **Why, second bug.** A row of zeros has amax 0 and scale 0, and `0 / 0` is NaN. Such rows occur: padded tokens, or a
# token for which ReLU shut every gate. The floor of 1e-10 gives a finite scale, and zeros.

# %% [markdown] exercise_header="3.5"
# Dropout as a training step uses it: forwards with the residual, backwards with the *same* elements dropped, and no
# mask in memory. Element `i`, counted row by row, is kept where `tl.rand(seed, i) >= p`. Write both kernels; the
# launches are given, each on as many programs as it takes.
#
# - **Inputs**: `x`, `residual` and `dy` of shape `(M, N)`, contiguous, float32 or float16; `p`, a number with
#   0 <= p < 1; `seed`, an integer
# - **Output**: `(y, dx)`, both of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   for i in range(M * N):
#       keep = rand(seed, i) >= p
#       y[i] = residual[i] + (x[i] / (1 - p) if keep else 0)
#       dx[i] = dy[i] / (1 - p) if keep else 0
#   ```
#
# A dropped element adds nothing, even if it is infinite.


# %% exercise="3.5"
@triton.jit
def forward_kernel(x_ptr, residual_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    """y = residual + dropped x, for a block of elements."""
    ### BEGIN SOLUTION
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    keep = tl.rand(seed, offs) >= p
    y = residual + tl.where(keep, x / (1.0 - p), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


@triton.jit
def backward_kernel(dy_ptr, dx_ptr, n, p, seed, BLOCK: tl.constexpr):
    """dx = dropped dy, for a block of elements."""
    ### BEGIN SOLUTION
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    dy = tl.load(dy_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    dx = tl.where(tl.rand(seed, offs) >= p, dy / (1.0 - p), 0.0)
    tl.store(dx_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def dropout_step(x, residual, dy, p, seed):
    n = x.numel()
    y, dx = torch.empty_like(x), torch.empty_like(x)
    forward_kernel[(triton.cdiv(n, 512),)](x, residual, y, n, p, seed, BLOCK=512)
    backward_kernel[(triton.cdiv(n, 1024),)](dy, dx, n, p, seed, BLOCK=1024)
    return y, dx


# %% [markdown] tags=["solution-only"]
# **Why.** `tl.rand` has no state. It is a function of the seed and a counter, so both kernels get the same number for
# element `i` as long as both count elements in the same way. That is why the *global* index goes in. A column number or
# `tl.arange(0, BLOCK)` alone would repeat the pattern in every block, and here the blocks of the two kernels do not
# even have the same length.
#
# `tl.where` chooses. A product with the mask would not do: `inf * 0` is NaN.

# %% [markdown] exercise_header="3.6"
# The whole end of the gate in one launch: SwiGLU, and 8-bit numbers with one scale for each *group* of neighbours. One
# program takes one group of one row. The product stays in float32 until it is rounded to 8 bits.
#
# - **Inputs**: `x` of shape `(M, 2 * d)`, any `d`, float32 or bfloat16; `group`, a power of two
# - **Output**: `(q, scale)`: `q` of shape `(M, d)` and dtype `torch.float8_e4m3fn`; `scale` of shape
#   `(M, cdiv(d, group))` and dtype float32. The last group of a row may be shorter
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       y = [silu(x[r, c]) * x[r, d + c] for c in range(d)]
#       for g in range(cdiv(d, group)):
#           part = y[g * group : (g + 1) * group]
#           scale[r, g] = max(1e-10, max(abs(v) for v in part)) / 448
#           q[r, g * group : (g + 1) * group] = [v / scale[r, g] for v in part]  # clamped, rounded
#   ```


# %% exercise="3.6"
@triton.jit
def silu_mul_quant_kernel(x_ptr, q_ptr, scale_ptr, stride_xm, d, FP8_MAX: tl.constexpr, GROUP: tl.constexpr):
    """One program, one group of one row."""
    group = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    ### BEGIN SOLUTION
    cols = group * GROUP + tl.arange(0, GROUP)
    mask = cols < d
    gate_ptr = x_ptr + row * stride_xm + cols
    gate = tl.load(gate_ptr, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + d, mask=mask, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up

    scale = tl.maximum(tl.max(tl.abs(y), axis=0), 1e-10) / FP8_MAX
    q = tl.clamp(y / scale, -FP8_MAX, FP8_MAX)
    tl.store(q_ptr + row * d + cols, q.to(q_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row * tl.num_programs(0) + group, scale)
    ### END SOLUTION


def silu_mul_quant(x, group):
    M, d = x.shape[0], x.shape[1] // 2
    groups = triton.cdiv(d, group)
    q = torch.empty((M, d), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((M, groups), dtype=torch.float32, device=x.device)
    ### BEGIN SOLUTION
    silu_mul_quant_kernel[(groups, M)](x, q, scale, x.stride(0), d, FP8_MAX=448.0, GROUP=group)
    ### END SOLUTION
    return q, scale


# %% [markdown] tags=["solution-only"]
# **Why.** A group is as long as the block of one program, so its maximum is one `tl.max`, and no program needs another.
# With one scale for a whole row that would not work: a program would have to own the row.
#
# The idle lanes of the last group hold `0 * 0.5 * 0 = 0`, and zero never wins a maximum of magnitudes: `other=0.0` is
# the right identity here. The product is not rounded to the dtype of `x` before it is quantised. Two roundings are
# worse than one, and nobody ever reads the first.
#
# `tl.num_programs(0)` is how many groups a row has, since the grid has one program for each.

# %% tags=["nbval-ignore-output"]
progress()
