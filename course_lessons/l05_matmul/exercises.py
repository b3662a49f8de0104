# %% [markdown]
# # Exercises 05: matmul
#
# Six exercises on kernels that multiply matrices. Read [05 Matmul](../notebooks/05_matmul.ipynb) first. Exercise 5.2 is
# the kernel of the lesson for any size, 5.3 and 5.5 fuse what a model does next, and 5.6 is for those who want more.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 5.1` gives the next of three hints, `%solution 5.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="5.1"
# One program, one tile, one `tl.dot`. No side of the matrices is longer than 32, so a single program can hold all of
# both. Load two tiles, multiply them, store one. Products of float32 are to be exact float32 products on every GPU.
#
# - **Inputs**: `a` of shape `(M, K)` and `b` of shape `(K, N)`, contiguous; `M`, `N` and `K` from 1 to 32; float32,
#   float16 or bfloat16
# - **Output**: a float32 tensor of shape `(M, N)`
# - **Definition**:
#
#   ```python
#   for m in range(M):
#       for n in range(N):
#           c[m, n] = sum(a[m, k] * b[k, n] for k in range(K))
#   ```


# %% exercise="5.1"
@triton.jit
def one_tile_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    """One program: all of c."""
    rows = tl.arange(0, BLOCK)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    ### BEGIN SOLUTION
    a = tl.load(a_ptr + rows * K + cols, mask=(rows < M) & (cols < K), other=0.0)
    b = tl.load(b_ptr + rows * N + cols, mask=(rows < K) & (cols < N), other=0.0)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows * N + cols, c, mask=(rows < M) & (cols < N))
    ### END SOLUTION


def one_tile(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    one_tile_kernel[(1,)](a, b, c, M, N, K, BLOCK=32)
    return c


# %% [markdown] tags=["solution-only"]
# **Why.** The same two ranges serve all three matrices; what differs is which size each is compared with, and how far
# apart rows lie. `a` has rows of `K`, the other two have rows of `N`.
#
# Both operands need `other=0.0`. A place beyond `K` in `a` meets a place beyond `K` in `b`, and their product joins the
# sum. If only one of the two is 0, the other one must at least be finite: 0 times NaN is NaN.
#
# The operands stay in their own dtype, because that is what the matrix units multiply. `tl.dot` gives float32 anyway.
# `input_precision="ieee"` matters for float32 on an MI300X, where the matrix units otherwise keep 10 bits of each
# operand. The interpreter cannot show that. The check runs your answer on a simulated MI300X as well, and can.

# %% [markdown] exercise_header="5.2"
# Each program owns one tile of `c` and walks along `K`, as in the lesson. But here `K` may be anything: the last step
# can be cut short. What must the places hold that do not exist, and in which of the operands?
#
# - **Inputs**: `a` of shape `(M, K)` and `b` of shape `(K, N)`, of the same dtype: float32, float16 or bfloat16. Any
#   sizes, any strides: `b` is often a transposed weight
# - **Output**: a new tensor of shape `(M, N)` and the dtype of `a`
# - **Definition**: as in exercise 5.1, summed in float32 and rounded once


# %% exercise="5.2"
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program, one tile of c."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    offs_k = tl.arange(0, BLOCK_K)
    ### BEGIN SOLUTION
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k_a = start + offs_k[None, :]
        k_b = start + offs_k[:, None]
        a = tl.load(a_ptr + offs_m * stride_am + k_a * stride_ak, mask=(offs_m < M) & (k_a < K), other=0.0)
        b = tl.load(b_ptr + k_b * stride_bk + offs_n * stride_bn, mask=(k_b < K) & (offs_n < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + offs_m * stride_cm + offs_n, c, mask=(offs_m < M) & (offs_n < N))
    ### END SOLUTION


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    ### BEGIN SOLUTION
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    strides = *a.stride(), *b.stride(), c.stride(0)
    matmul_kernel[grid](a, b, c, *strides, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    ### END SOLUTION
    return c


# %% [markdown] tags=["solution-only"]
# **Why.** `acc` lives in registers from the first step to the last; only the two operand tiles come and go. It is
# float32 whatever the operands are, and it is handed to `tl.dot`, because the matrix unit adds to an accumulator in the
# same instruction that multiplies.
#
# The mask along `K` is computed inside the loop, and it is on *both* operands. `k_a` lies along the columns of `a`,
# `k_b` along the rows of `b`.
#
# A transposed weight needs no code: its strides say it all. `w.T` copies nothing, and neither does the kernel.

# %% [markdown] exercise_header="5.3"
# A linear layer with what follows it, in one launch: add the bias and apply SiLU while the tile is still in registers.
# The loop is there, but for the weight, which PyTorch stores as `(N, K)`, one row for each output.
#
# - **Inputs**: `x` of shape `(M, K)`, `weight` of shape `(N, K)`, `bias` of shape `(N,)`, contiguous and of the same
#   dtype: float32, float16 or bfloat16
# - **Output**: a new tensor of shape `(M, N)` and the dtype of `x`
# - **Definition**:
#
#   ```python
#   for m in range(M):
#       for n in range(N):
#           total = bias[n] + sum(x[m, k] * weight[n, k] for k in range(K))
#           y[m, n] = total / (1 + math.exp(-total))
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="5.3"
@triton.jit
def linear_silu_kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program, one tile of y."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k_x = start + tl.arange(0, BLOCK_K)[None, :]
        k_w = start + tl.arange(0, BLOCK_K)[:, None]
        x = tl.load(x_ptr + offs_m * K + k_x, mask=(offs_m < M) & (k_x < K), other=0.0)
        ### BEGIN SOLUTION
        w = tl.load(w_ptr + offs_n * K + k_w, mask=(offs_n < N) & (k_w < K), other=0.0)
        ### END SOLUTION
        acc = tl.dot(x, w, acc, input_precision="ieee")
    ### BEGIN SOLUTION
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    total = acc + bias
    y = total * tl.sigmoid(total)
    tl.store(y_ptr + offs_m * N + offs_n, y.to(y_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))
    ### END SOLUTION


def linear_silu(x, weight, bias):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    linear_silu_kernel[grid](x, weight, bias, y, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The tile of the weight is `(BLOCK_K, BLOCK_N)`, as `tl.dot` wants it, but its elements lie in memory as
# `(N, K)`: column `n` of the tile is row `n` of the weight. So `offs_n` gets the stride `K`, and `k_w` the stride 1.
# Neighbours along `K` are neighbours in memory, which is what wide loads need.
#
# The bias and the activation come *after* the loop. SiLU is not linear: the sum of the SiLUs of partial sums is
# something else. `offs_n` already has the shape `(1, BLOCK_N)`, so the bias spreads over the rows by itself.
#
# All of it happens in float32, before the one rounding. Two launches would round the sum, write it, and read it back.

# %% [markdown] exercise_header="5.4"
# This kernel takes its tiles in an order that suits the eight dies of an MI300X: neighbouring tiles for each die, in
# bands of four rows of tiles. It is in use, and its test passes: `torch.randn(512, 512)`. It has **two** bugs. Some
# tiles are computed twice and others never. Both bugs are in `tile_of`.
#
# - **Inputs**: `a` of shape `(M, K)` and `b` of shape `(K, N)`, contiguous, float32 or float16, `K` up to 32
# - **Output**: a new tensor of shape `(M, N)` and the dtype of `a`
# - **Definition**: as in exercise 5.1. Each tile is computed by exactly one program


# %% exercise="5.4"
@triton.jit
def tile_of(pid, programs, tiles_m, tiles_n, XCDS: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of the tile of a program."""
    xcd = pid % XCDS  # the hardware deals out programs in turn
    nth = pid // XCDS
    ### BEGIN BROKEN
    tile = xcd * (programs // XCDS) + nth
    band = tile // (GROUP_M * tiles_n)
    place = tile % (GROUP_M * tiles_n)
    rows = GROUP_M
    ### END BROKEN
    ### BEGIN SOLUTION
    tile = xcd * (programs // XCDS) + tl.minimum(xcd, programs % XCDS) + nth
    band = tile // (GROUP_M * tiles_n)
    place = tile % (GROUP_M * tiles_n)
    rows = tl.minimum(tiles_m - band * GROUP_M, GROUP_M)
    ### END SOLUTION
    return band * GROUP_M + place % rows, place // rows


@triton.jit
def ordered_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, XCDS: tl.constexpr, GROUP_M: tl.constexpr
):
    """One program, one tile of c."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    pid_m, pid_n = tile_of(tl.program_id(0), tl.num_programs(0), tiles_m, tiles_n, XCDS, GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    k_a, k_b = tl.arange(0, BLOCK_K)[None, :], tl.arange(0, BLOCK_K)[:, None]
    a = tl.load(a_ptr + offs_m * K + k_a, mask=(offs_m < M) & (k_a < K), other=0.0)
    b = tl.load(b_ptr + k_b * N + offs_n, mask=(k_b < K) & (offs_n < N), other=0.0)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + offs_m * N + offs_n, c.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))


def ordered_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    ordered_matmul_kernel[grid](a, b, c, M, N, K, BLOCK=16, BLOCK_K=32, XCDS=8, GROUP_M=4)
    return c


# %% [markdown] tags=["solution-only"]
# **Why, first bug.** Of 25 programs, die 0 gets four (0, 8, 16, 24) and each of the others three. The short formula
# gives every die `25 // 8 = 3` places, so the fourth program of die 0 lands on the first place of die 1. One tile is
# computed twice, and the last one never. Each die must begin where the dies before it end: `min(xcd, programs % XCDS)`
# counts the longer ones among them.
#
# **Why, second bug.** The last band may have fewer than `GROUP_M` rows of tiles. With a fixed number of rows, some of
# its programs compute rows that do not exist, masked and without harm, and for as many tiles on the right nobody is
# left.
#
# With 512 x 512 there are 32 rows of 32 tiles: 8 divides their number, 4 divides their rows, and both bugs sleep. An
# order of tiles must be a *bijection* for every number of tiles, and that is what to test.

# %% [markdown] exercise_header="5.5"
# The first half of SmolLM2's MLP, in one launch. The model stores two weights in one matrix: the first half of its rows
# is the gate, the second half is what it gates. Each program computes a tile of both products, from the same tile of
# `x`, and stores one tile.
#
# - **Inputs**: `x` of shape `(M, K)` and `gate_up` of shape `(2 * N, K)`, contiguous and of the same dtype: float32,
#   float16 or bfloat16
# - **Output**: a new tensor of shape `(M, N)` and the dtype of `x`
# - **Definition**:
#
#   ```python
#   for m in range(M):
#       for n in range(N):
#           gate = sum(x[m, k] * gate_up[n, k] for k in range(K))
#           up = sum(x[m, k] * gate_up[N + n, k] for k in range(K))
#           y[m, n] = gate / (1 + math.exp(-gate)) * up
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="5.5"
@triton.jit
def gated_linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program, one tile of y."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    ### BEGIN SOLUTION
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k_x = start + tl.arange(0, BLOCK_K)[None, :]
        k_w = start + tl.arange(0, BLOCK_K)[:, None]
        mask_w = (offs_n < N) & (k_w < K)
        x = tl.load(x_ptr + offs_m * K + k_x, mask=(offs_m < M) & (k_x < K), other=0.0)
        w_gate = tl.load(w_ptr + offs_n * K + k_w, mask=mask_w, other=0.0)
        w_up = tl.load(w_ptr + (N + offs_n) * K + k_w, mask=mask_w, other=0.0)
        gate = tl.dot(x, w_gate, gate, input_precision="ieee")
        up = tl.dot(x, w_up, up, input_precision="ieee")
    y = gate * tl.sigmoid(gate) * up
    tl.store(y_ptr + offs_m * N + offs_n, y.to(y_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))
    ### END SOLUTION


def gated_linear(x, gate_up):
    (M, K), N = x.shape, gate_up.shape[0] // 2
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    gated_linear_kernel[grid](x, gate_up, y, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The activation needs gate and up of the *same* column, and in the product of `x` with the whole matrix these
# lie `N` columns apart, in the tiles of two programs. So one program computes both tiles. It loads `x` once for two
# products, and instead of `2 * N` columns it stores `N`: the matrix in between is neither written nor read back.
#
# The price is registers: two accumulators. With tiles of 128 x 128 and four waves each takes 64 registers of every
# lane. That is why such kernels use narrower tiles than a plain product.
#
# The mask compares `offs_n` with `N`, not with the `2 * N` rows that exist. Past `N` the gate would read rows of up:
# legal addresses, wrong numbers.

# %% [markdown] exercise_header="5.6"
# A convolution with a 3 x 3 window, as a matrix product that nobody unfolds. The rows of the product are the `H * W`
# pixels, its columns are the `F` filters. Each of the nine *taps* multiplies the image, shifted by that tap, by a
# `(C, F)` matrix. Pixels outside the image count as 0.
#
# - **Inputs**: `x` of shape `(H, W, C)` and `weight` of shape `(3, 3, C, F)`, contiguous, `C` up to 32, of the same
#   dtype: float32, float16 or bfloat16
# - **Output**: a new tensor of shape `(H, W, F)` and the dtype of `x`
# - **Definition**:
#
#   ```python
#   for h in range(H):
#       for w in range(W):
#           for f in range(F):
#               y[h, w, f] = sum(
#                   x[h + r - 1, w + s - 1, c] * weight[r, s, c, f]
#                   for r in range(3) for s in range(3) for c in range(C)
#                   if 0 <= h + r - 1 < H and 0 <= w + s - 1 < W
#               )
#   ```
#
# Sum in float32 and round once, at the store.


# %% exercise="5.6"
@triton.jit
def conv3x3_kernel(
    x_ptr, weight_ptr, y_ptr, H, W, C, F, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program: BLOCK_M pixels of BLOCK_N filters."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_f = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    c_x = tl.arange(0, BLOCK_K)[None, :]
    c_w = tl.arange(0, BLOCK_K)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for tap in range(9):
        r, s = tap // 3, tap % 3
        ### BEGIN SOLUTION
        h = offs_m // W + r - 1
        w = offs_m % W + s - 1
        inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
        x = tl.load(x_ptr + (h * W + w) * C + c_x, mask=inside & (c_x < C), other=0.0)
        weight = tl.load(weight_ptr + (tap * C + c_w) * F + offs_f, mask=(c_w < C) & (offs_f < F), other=0.0)
        acc = tl.dot(x, weight, acc, input_precision="ieee")
        ### END SOLUTION
    mask = (offs_m < H * W) & (offs_f < F)
    tl.store(y_ptr + offs_m * F + offs_f, acc.to(y_ptr.dtype.element_ty), mask=mask)


def conv3x3(x, weight):
    (H, W, C), F = x.shape, weight.shape[3]
    y = torch.empty((H, W, F), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(H * W, 32), triton.cdiv(F, 32))
    conv3x3_kernel[grid](x, weight, y, H, W, C, F, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** Row `m` of the product is pixel `(m // W, m % W)`. The shift of a tap applies to row and column of the
# *image*, and so does the test for its border. Shifting `m` itself by `(r - 1) * W + s - 1` gives the same address, but
# at the left and right border that address belongs to a pixel of the neighbouring row. It is legal, so no guard stops
# it, and the result is wrong in two columns only.
#
# Rows of the tile past the last pixel need no mask of their own in the load: their `h` is too large for some taps and
# their pixel is never stored. What must not happen is a read outside the image, and `inside` prevents that.
#
# Nothing was unfolded. An im2col matrix would hold every pixel nine times, in memory; here the nine readings come one
# after another from a tensor that fits into the caches.

# %% tags=["nbval-ignore-output"]
progress()
