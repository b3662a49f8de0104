# %% [markdown]
# # Exercises 06: online-softmax attention
#
# Six exercises on the way from a row of scores to attention. Read [06 Online-softmax
# attention](../notebooks/06_attention.ipynb) first. Exercise 6.3 is the kernel of the lesson for any number of keys,
# 6.4 the one that reads SmolLM2's prompts, and 6.6 is for those who want more.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 6.1` gives the next of three hints, `%solution 6.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="6.1"
# The softmax of each row. Two reductions, one after the other, and one value that keeps the idle lanes out of both.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N`, float32, float16 or bfloat16. Rows may be further apart than `N`. Single
#   elements may be $-\infty$
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       m = max(x[r, c] for c in range(N))
#       total = sum(math.exp(x[r, c] - m) for c in range(N))
#       for c in range(N):
#           y[r, c] = math.exp(x[r, c] - m) / total
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="6.1"
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** $-\infty$ is the identity of the maximum, and $e^{-\infty - m} = 0$ is the identity of the sum. So the idle
# lanes are set once, at the load, and stay right through the arithmetic in between. (In the LayerNorm of lesson 02 one
# value did not do for both.)
#
# The maximum is subtracted so that no exponential can overflow: from 89 on, $e^x$ is too large for float32. The result
# is the same, since numerator and sum shrink by the same factor.

# %% [markdown] exercise_header="6.2"
# The log-sum-exp of each row, in **one** walk over it. `BLOCK` is 64 here, however wide the row is: leave it. Keep a
# running maximum and a running sum, and rescale the sum when the maximum rises.
#
# A block may hold nothing but $-\infty$, also the first one. So may a whole row: its result is $-\infty$.
#
# - **Inputs**: `x` of shape `(M, N)`, any `N`, float32 or float16. Rows may be further apart than `N`
# - **Output**: a float32 tensor of shape `(M,)`
# - **Definition**:
#
#   ```python
#   for r in range(M):
#       out[r] = math.log(sum(math.exp(x[r, c]) for c in range(N)))
#   ```
#
# Each element is loaded once.


# %% exercise="6.2"
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    """One program, one row of any width, BLOCK elements at a time."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    row_max = -float("inf")
    row_sum = 0.0
    ### BEGIN SOLUTION
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        centre = tl.where(new_max == -float("inf"), 0.0, new_max)
        row_sum = row_sum * tl.exp(row_max - centre) + tl.sum(tl.exp(x - centre), axis=0)
        row_max = new_max
    tl.store(out_ptr + row, row_max + tl.log(row_sum))
    ### END SOLUTION


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(M,)](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% [markdown] tags=["solution-only"]
# **Why.** `row_sum` is always relative to `row_max`. When the maximum rises from `row_max` to `new_max`, every term of
# the sum is too large by the same factor, and one multiplication by `exp(row_max - new_max)` mends them all. It is at
# most 1, so nothing can overflow.
#
# While nothing but $-\infty$ has come, `new_max` is $-\infty$ too, and $-\infty - (-\infty)$ is NaN. Any finite
# `centre` avoids that: $e^{-\infty - 0} = 0$, so the sum stays 0. `row_max` itself must stay $-\infty$. If it became 0,
# a row of scores around -200 would be summed relative to 0, and would vanish.
#
# In the end `log(0)` is $-\infty$, so a row of $-\infty$ needs no case of its own.

# %% [markdown] exercise_header="6.3"
# Attention of one head, without a causal mask. A program takes 16 queries and walks over all keys, 32 at a time. The
# scores never reach memory. In rung 3 the keys made whole blocks; here there may be any number of them.
#
# - **Inputs**: `q` of shape `(Sq, D)`, `k` and `v` of shape `(Sk, D)`, contiguous, float32, float16 or bfloat16; `D` is
#   a power of two from 16 to 128, `Sq` and `Sk` are any
# - **Output**: a new tensor of the shape and dtype of `q`
# - **Definition**:
#
#   ```python
#   for i in range(Sq):
#       s = [sum(q[i, d] * k[j, d] for d in range(D)) / math.sqrt(D) for j in range(Sk)]
#       total = sum(math.exp(s[j]) for j in range(Sk))
#       for d in range(D):
#           o[i, d] = sum(math.exp(s[j]) / total * v[j, d] for j in range(Sk))
#   ```
#
# Give both products `input_precision="ieee"`, so that float32 keeps all its bits. Scores, `acc` and `row_sum` are
# float32; `p` is rounded to the dtype of `v`, as operand of the second product.


# %% exercise="6.3"
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program, BLOCK_M queries."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    mask_m = offs_m[:, None] < Sq
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d, mask=mask_m, other=0.0)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, Sk, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        ### BEGIN SOLUTION
        mask_n = offs_n < Sk
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d, mask=mask_n[:, None], other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d, mask=mask_n[:, None], other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(mask_n, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp(scores - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
        ### END SOLUTION
    ### BEGIN SOLUTION
    o = acc / row_sum[:, None]
    tl.store(o_ptr + offs_m[:, None] * D + offs_d, o.to(o_ptr.dtype.element_ty), mask=mask_m)
    ### END SOLUTION


def head_attention(q, k, v):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    grid = (triton.cdiv(Sq, 16),)
    attention_kernel[grid](q, k, v, o, Sq, Sk, D**-0.5, D=D, BLOCK_M=16, BLOCK_N=32)
    return o


# %% [markdown] tags=["solution-only"]
# **Why.** `acc` and `row_sum` are two sums over the same exponentials, one with a value behind each term and one
# without. So both are rescaled, by the same factor, and their quotient is the weighted mean. The division waits for the
# end: it is the same for all blocks.
#
# Keys past the end are loaded as zeros, which is right for the product. But their *score* is then 0, and $e^{0 - m}$
# counts in the sum. So the scores get their $-\infty$ after the product. With scores around zero the error is small.
# With scores around -20 the keys that do not exist take everything.
#
# `p.to(v.dtype)` does nothing in float32. In half precision it makes the product one for the matrix units. The sum adds
# up p before it is rounded.

# %% [markdown] exercise_header="6.4"
# Prefill, as the model calls it: many heads, a batch, keys shared by groups of heads, a causal mask, and tensors as
# they come, in **one** launch. Scale, mask, softmax and both products are fused. Leave out the tiles that no query
# sees.
#
# - **Inputs**: `q` of shape `(B, H, S, D)`, `k` and `v` of shape `(B, KH, Sk, D)`, float32, float16 or bfloat16; `H` is
#   a multiple of `KH`, and query head `h` uses key head `h // (H // KH)`; `Sk >= S`; `D` is a power of two from
#   16 to 128. Strides are any, but for the last dimension, where elements lie side by side; batch and heads may be
#   more than 2^31 elements apart, the tokens of one head are not. `k` and `v` have the same strides
# - **Output**: a new tensor of the shape and dtype of `q`
# - **Definition**: as in exercise 6.3 for every head, where query `i` sees the keys `j <= i + Sk - S`
#
# Solve it, and the lesson's cell `my_kernel("6.4", ...)` runs your kernel in the model.


# %% exercise="6.4"
@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ob, stride_oh, stride_om,
    H, S, Sk, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_M queries of one head. v has the strides of k."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    batch = (tl.program_id(1) // H).to(tl.int64)
    head = (tl.program_id(1) % H).to(tl.int64)
    ### BEGIN SOLUTION
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head // GROUP * stride_kh
    v_ptr += batch * stride_kb + head // GROUP * stride_kh
    o_ptr += batch * stride_ob + head * stride_oh
    mask_m = offs_m[:, None] < S
    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + offs_d, mask=mask_m, other=0.0)

    keys_seen = tl.minimum(offs_m + 1 + Sk - S, Sk)
    end = tl.max(keys_seen, axis=0)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask_n = offs_n[:, None] < Sk
        k = tl.load(k_ptr + offs_n[:, None] * stride_kn + offs_d, mask=mask_n, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * stride_kn + offs_d, mask=mask_n, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_n < keys_seen[:, None], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
    o = acc / row_sum[:, None]
    tl.store(o_ptr + offs_m[:, None] * stride_om + offs_d, o.to(o_ptr.dtype.element_ty), mask=mask_m)
    ### END SOLUTION


def prefill_attention(q, k, v):
    (B, H, S, D), (_, KH, Sk, _) = q.shape, k.shape
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    strides = *q.stride()[:3], *k.stride()[:3], *o.stride()[:3]
    ### BEGIN SOLUTION
    scale = D**-0.5 * math.log2(math.e)
    grid = (triton.cdiv(S, 16), B * H)
    constants = {"GROUP": H // KH, "D": D, "BLOCK_M": 16, "BLOCK_N": 16}
    prefill_kernel[grid](q, k, v, o, *strides, H, S, Sk, scale, **constants)
    ### END SOLUTION
    return o


# %% [markdown] tags=["solution-only"]
# **Why.** `keys_seen` is one number for each query. It does three jobs: it is the mask, its largest is the end of the
# loop, and the padding past the last key is in it too (`tl.minimum(..., Sk)`).
#
# `head // GROUP` lets neighbours share keys. `head % KH` would share them as well, and no shape or size would tell you
# that they are the wrong ones.
#
# $\log_2 e$ is folded into the scale on the host, so that the kernel takes `tl.exp2`. No guard for $-\infty$ is needed
# here: with `Sk >= S` every query sees key 0, and key 0 is in the first block.
#
# Nothing is made contiguous. The model's keys are a slice of its cache, with the heads of a token side by side; a copy
# of them would cost as much as reading them.

# %% [markdown] exercise_header="6.5"
# A sliding window: each query sees the last `window` keys up to its own. This kernel's test has 64 queries, 64 keys and
# a window of 100. It passes, and the kernel has **two** bugs. Repair what you see, and let the report tell you what is
# left.
#
# - **Inputs**: `q` of shape `(Sq, D)`, `k` and `v` of shape `(Sk, D)`, contiguous, float32 or bfloat16; `window`, at
#   least 1; `D` is a power of two from 16 to 128
# - **Output**: a new tensor of the shape and dtype of `q`. A query that sees no key gets zeros
# - **Definition**: as in exercise 6.3, where query `i` sees the keys with `last - window < j <= last`, and `last = i +
#   Sk - Sq`


# %% exercise="6.5"
@triton.jit
def window_kernel(q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, window, D: tl.constexpr, BLOCK: tl.constexpr):
    """One program, BLOCK queries."""
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_d = tl.arange(0, D)
    mask_m = offs_m[:, None] < Sq
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d, mask=mask_m, other=0.0)
    keys_seen = offs_m + 1 + Sk - Sq
    first = tl.maximum(tl.min(keys_seen, axis=0) - window, 0) // BLOCK * BLOCK
    end = tl.minimum(tl.max(keys_seen, axis=0), Sk)
    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(first, end, BLOCK):
        offs_n = start + tl.arange(0, BLOCK)
        mask_n = offs_n[:, None] < Sk
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        ### BEGIN BROKEN
        seen = (offs_n < keys_seen[:, None]) & (offs_n > keys_seen[:, None] - window) & (offs_n < Sk)
        scores = tl.where(seen, scores, -1e4)
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp(scores - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        ### END BROKEN
        ### BEGIN SOLUTION
        seen = (offs_n < keys_seen[:, None]) & (offs_n >= keys_seen[:, None] - window) & (offs_n < Sk)
        scores = tl.where(seen, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        centre = tl.where(new_max == -float("inf"), 0.0, new_max)
        p = tl.exp(scores - centre[:, None])
        rescale = tl.exp(row_max - centre)
        ### END SOLUTION
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
    ### BEGIN BROKEN
    o = acc / row_sum[:, None]
    ### END BROKEN
    ### BEGIN SOLUTION
    o = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    ### END SOLUTION
    tl.store(o_ptr + offs_m[:, None] * D + offs_d, o.to(o_ptr.dtype.element_ty), mask=mask_m)


def window_attention(q, k, v, window):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    window_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, Sq, Sk, D**-0.5, window, D=D, BLOCK=16)
    return o


# %% [markdown] tags=["solution-only"]
# **Why, first bug.** `keys_seen` counts keys, so the last one has the number `keys_seen - 1`, and the first of the
# window is `keys_seen - window`. The `>` left it out, and each query saw one key too few. In a test whose window
# reaches back to the very beginning, there is no such key.
#
# **Why, second bug.** -10000 is a score like any other. A query without keys then has equal weights for everything in
# its block, and gets their mean. A real score wipes that out, which is why it works for everybody else. With $-\infty$
# the weights are 0, as they should be, and two guards are needed: one where $-\infty$ would be subtracted from itself,
# and one where 0 would be divided by 0.

# %% [markdown] exercise_header="6.6"
# The gradient of the queries. Forward has left its result `o` and the LSE of each query. From the LSE follow the
# weights, without a maximum and without rescaling. A program takes 16 queries and walks over the keys, 16 at a time.
#
# - **Inputs**: `q` of shape `(Sq, D)`, `k` and `v` of shape `(Sk, D)`; `o` and its gradient `do` of shape `(Sq, D)`,
#   all contiguous and of the same dtype, float32, float16 or bfloat16; `lse` of shape `(Sq,)`, float32, natural
#   logarithm; `D` is a power of two from 16 to 128
# - **Output**: `dq`, of the shape and dtype of `q`
# - **Definition**:
#
#   ```python
#   for i in range(Sq):
#       delta = sum(o[i, d] * do[i, d] for d in range(D))
#       for j in range(Sk):
#           s = sum(q[i, d] * k[j, d] for d in range(D)) / math.sqrt(D)
#           p = math.exp(s - lse[i])
#           dp = sum(do[i, d] * v[j, d] for d in range(D))
#           ds = p * (dp - delta) / math.sqrt(D)
#           for d in range(D):
#               dq[i, d] += ds * k[j, d]
#   ```
#
# All sums are float32; `ds` is rounded to the dtype of `k`, as operand of the last product.


# %% exercise="6.6"
@triton.jit
def query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, do_ptr, dq_ptr, Sq, Sk, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_M queries."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    rows = offs_m[:, None] * D + offs_d
    mask_m = offs_m[:, None] < Sq
    ### BEGIN SOLUTION
    q = tl.load(q_ptr + rows, mask=mask_m, other=0.0)
    do = tl.load(do_ptr + rows, mask=mask_m, other=0.0)
    o = tl.load(o_ptr + rows, mask=mask_m, other=0.0).to(tl.float32)
    delta = tl.sum(o * do.to(tl.float32), axis=1)
    lse = tl.load(lse_ptr + offs_m, mask=offs_m < Sq, other=0.0)

    dq = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, Sk, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask_n = offs_n < Sk
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d, mask=mask_n[:, None], other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d, mask=mask_n[:, None], other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(mask_n, scores, -float("inf"))
        p = tl.exp(scores - lse[:, None])
        dp = tl.dot(do, v.T, input_precision="ieee")
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    tl.store(dq_ptr + rows, (dq * scale).to(dq_ptr.dtype.element_ty), mask=mask_m)
    ### END SOLUTION


def query_gradient(q, k, v, o, lse, do):
    (Sq, D), Sk = q.shape, len(k)
    dq = torch.empty_like(q)
    grid = (triton.cdiv(Sq, 16),)
    query_gradient_kernel[grid](q, k, v, o, lse, do, dq, Sq, Sk, D**-0.5, D=D, BLOCK_M=16, BLOCK_N=16)
    return dq


# %% [markdown] tags=["solution-only"]
# **Why.** Three products a block instead of two: the scores again, $dO \, V^T$, and the one that adds to the result. In
# return the matrix P never had to be kept, and there is no softmax to compute. The LSE holds both the maximum and the
# sum, so $e^{s - \text{lse}}$ is a finished weight.
#
# `delta` needs no keys. The gradient of a softmax subtracts the weighted mean of `dp` from each `dp`, and this mean is
# $\sum_j p_{ij} \, dO_i \cdot v_j = dO_i \cdot o_i$.
#
# Keys past the end have k = 0, so their `ds` is multiplied by zero, and one might leave them as they are. But $e^{0 -
# \text{lse}}$ overflows where all scores of a query lie far below zero, and infinity times 0 is NaN.
#
# The factor of the scores is the same for all keys. It waits until after the loop.

# %% tags=["nbval-ignore-output"]
progress()
