# %% [markdown]
# # Exercises 04: RoPE in every layout
#
# Six exercises on turning pairs. Read [04 RoPE](../notebooks/04_rope.ipynb) first. Exercise 4.2 is the kernel of the
# lesson, 4.5 the one that the model runs, and 4.6 is for those who want more.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 4.1` gives the next of three hints, `%solution 4.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="4.1"
# One program turns one head of one token. Its pairs are neox pairs: element `i` and element `i + half`. The position of
# a token is its number. The pointers already stand at the head and at the token's row of the tables.
#
# - **Inputs**: `x` of shape `(T, heads, D)`, contiguous, float32 or bfloat16, `D` even; `cos` and `sin` of shape
#   `(P, D / 2)`, contiguous, float32, `P` at least `T`
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**, for token `t`, head `h`, with `half = D // 2`:
#
#   ```python
#   for i in range(half):
#       a, b = x[t, h, i], x[t, h, i + half]
#       y[t, h, i] = a * cos[t, i] - b * sin[t, i]
#       y[t, h, i + half] = b * cos[t, i] + a * sin[t, i]
#   ```
#
# In this lesson too, compute in float32 and round once, at the store.


# %% exercise="4.1"
@triton.jit
def rope_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, half, BLOCK: tl.constexpr):
    """One program, one head of one token."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pair = tl.arange(0, BLOCK)
    mask = pair < half
    x_ptr += (token * heads + head) * 2 * half
    y_ptr += (token * heads + head) * 2 * half
    cos_ptr += token * half
    sin_ptr += token * half
    ### BEGIN SOLUTION
    cos = tl.load(cos_ptr + pair, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + pair, mask=mask, other=0.0)
    a = tl.load(x_ptr + pair, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + half + pair, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + pair, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + half + pair, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rope(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_kernel[(T, heads)](x, y, cos, sin, heads, D // 2, BLOCK=triton.next_power_of_2(D // 2))
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** A lane holds both elements of its pair, so it needs nobody else: no reduction, no LDS, no barrier. `a` and
# `b` keep their old values until both results are computed. Write `a = a * cos - b * sin` first, and the second line
# turns something that is turned already.
#
# The mask is the same for all six accesses, since they all count pairs. Without it the lanes past `half` would reach
# into the other half of the head, or into the next head, which exist; only in the last head do they leave the tensor.
# That is why a missing mask here gives wrong numbers long before it gives an error.

# %% [markdown] exercise_header="4.2"
# One program turns all heads of one token, and finds its token by strides, as in rung 4. The lesson's kernel counted
# the positions. Here each comes from memory, by strides of its own, and half of a head need be no power of two.
#
# - **Inputs**: `x` of shape `(B, S, heads, D)`, float32, float16 or bfloat16. **Any strides**, but that of the last
#   dimension is 1: it may be a transposed tensor of layout sbhd, or a slice of something wider; `positions` of shape
#   `(B, S)`, integers, any strides, also 0; `cos` and `sin` of shape `(P, D / 2)`, contiguous, float32 or bfloat16
# - **Output**: a new contiguous tensor of the shape and dtype of `x`
# - **Definition**, with `half = D // 2`:
#
#   ```python
#   for b, s, h in itertools.product(range(B), range(S), range(heads)):
#       p = positions[b, s]
#       for i in range(half):
#           first, second = x[b, s, h, i], x[b, s, h, i + half]
#           y[b, s, h, i] = first * cos[p, i] - second * sin[p, i]
#           y[b, s, h, i + half] = second * cos[p, i] + first * sin[p, i]
#   ```
#
# Any number of heads: 9 as well as 8.


# %% exercise="4.2"
@triton.jit
def rope_tokens_kernel(
    x_ptr, y_ptr, positions_ptr, cos_ptr, sin_ptr,
    stride_xb, stride_xs, stride_xh, stride_yb, stride_ys, stride_yh, stride_pb, stride_ps,
    heads, half, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, all heads of token s of sequence b."""
    s, b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    ### BEGIN SOLUTION
    mask_p = pair < half
    mask = (offs_h < heads) & mask_p
    row = tl.load(positions_ptr + b * stride_pb + s * stride_ps).to(tl.int64)
    cos = tl.load(cos_ptr + row * half + pair, mask=mask_p, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row * half + pair, mask=mask_p, other=0.0).to(tl.float32)
    x_ptr += b * stride_xb + s * stride_xs + offs_h * stride_xh + pair
    y_ptr += b * stride_yb + s * stride_ys + offs_h * stride_yh + pair
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + half, (second * cos + first * sin).to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rope_tokens(x, positions, cos, sin):
    B, S, heads, D = x.shape
    y = torch.empty((B, S, heads, D), dtype=x.dtype, device=x.device)
    strides = (*x.stride()[:3], *y.stride()[:3], *positions.stride())
    blocks = {"BLOCK_H": triton.next_power_of_2(heads), "BLOCK": triton.next_power_of_2(D // 2)}
    rope_tokens_kernel[(S, B)](x, y, positions, cos, sin, *strides, heads, D // 2, **blocks)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** Two questions, kept apart: where does the token lie, and which position has it? Strides answer the first, a
# tensor answers the second. The layout never appears in the kernel.
#
# The angles have the shape `(1, BLOCK)` and the elements `(BLOCK_H, BLOCK)`: broadcasting spreads the row over the
# heads, and it is loaded once. The angles' mask knows only pairs, for they have no heads.
#
# `row` becomes int64 before it is multiplied, and so do `s` and `b`: a batch of long sequences passes $2^{31}$
# elements.

# %% [markdown] exercise_header="4.3"
# The other style: neighbours are pairs, elements `2i` and `2i + 1`. Load each head in one piece, take the pairs apart
# in registers, turn them, and put them together again. One program takes all heads of one token; its position is its
# number. The lesson made one long row of the heads, and loaded the angles once for each. Keep the heads as an axis, and
# load them once.
#
# - **Inputs**: `x` of shape `(T, heads, D)`, contiguous, float32 or bfloat16, `D` a power of two; `cos` and `sin` of
#   shape `(P, D / 2)`, contiguous, float32
# - **Output**: a new tensor of the shape and dtype of `x`
# - **Definition**:
#
#   ```python
#   for i in range(D // 2):
#       a, b = x[t, h, 2 * i], x[t, h, 2 * i + 1]
#       y[t, h, 2 * i] = a * cos[t, i] - b * sin[t, i]
#       y[t, h, 2 * i + 1] = b * cos[t, i] + a * sin[t, i]
#   ```


# %% exercise="4.3"
@triton.jit
def rope_neighbours_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr, BLOCK_H: tl.constexpr):
    """One program, all heads of one token."""
    token = tl.program_id(0).to(tl.int64)
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    offs = (token * heads + offs_h) * D + tl.arange(0, D)[None, :]
    pair = tl.arange(0, D // 2)[None, :]
    ### BEGIN SOLUTION
    mask = offs_h < heads
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    a, b = tl.split(x.reshape(BLOCK_H, D // 2, 2))
    y = tl.join(a * cos - b * sin, b * cos + a * sin).reshape(BLOCK_H, D)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rope_neighbours(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_neighbours_kernel[(T,)](x, y, cos, sin, heads, D=D, BLOCK_H=triton.next_power_of_2(heads))
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `x_ptr + 2 * pair` would be right, too, but each of its loads takes every other element: narrow, and half of
# what is fetched is left over. One load without gaps is as wide as loads can be.
#
# The reshape gives the two elements of a pair an axis of their own, the last one, and `tl.split` cuts the last axis.
# `tl.join` makes a new last axis, so after it the same reshape, backwards, restores the order. Lanes own whole pairs,
# so none of this moves a value from one lane to another.

# %% [markdown] exercise_header="4.4"
# This kernel turns `x` **in place**. Its own test passes: a single token at position 0. It has **two** bugs. Repair
# what you see, and let the report tell you what is left.
#
# - **Inputs**: `x` of shape `(T, heads, D)`, contiguous, float32 or bfloat16, `D` even; `cos` and `sin` of shape
#   `(P, D / 2)`, contiguous, float32
# - **Output**: nothing is returned; `x` itself holds the result
# - **Definition**: as in exercise 4.1, with `x` in the place of `y`


# %% exercise="4.4"
@triton.jit
def rope_inplace_kernel(x_ptr, cos_ptr, sin_ptr, heads, half, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr):
    """One program, all heads of one token."""
    token = tl.program_id(0).to(tl.int64)
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    mask_p = pair < half
    cos = tl.load(cos_ptr + token * half + pair, mask=mask_p, other=0.0)
    sin = tl.load(sin_ptr + token * half + pair, mask=mask_p, other=0.0)
    x_ptr += (token * heads + offs_h) * 2 * half + pair
    ### BEGIN BROKEN
    mask = (offs_h < BLOCK_H) & mask_p
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr, (first * cos - second * sin).to(x_ptr.dtype.element_ty), mask=mask)
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr + half, (second * cos + first * sin).to(x_ptr.dtype.element_ty), mask=mask)
    ### END BROKEN
    ### BEGIN SOLUTION
    mask = (offs_h < heads) & mask_p
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr, (first * cos - second * sin).to(x_ptr.dtype.element_ty), mask=mask)
    tl.store(x_ptr + half, (second * cos + first * sin).to(x_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def rope_inplace(x, cos, sin):
    T, heads, D = x.shape
    blocks = {"BLOCK_H": triton.next_power_of_2(heads), "BLOCK": triton.next_power_of_2(D // 2)}
    rope_inplace_kernel[(T,)](x, cos, sin, heads, D // 2, **blocks)


# %% [markdown] tags=["solution-only"]
# **Why, the mask.** With 8 heads a block of 8 fits. With 9 the block has 16 rows, and rows 9 to 15 are the next token's
# first heads: legal addresses. This program turns them by *its* angle, and the next program turns them again. Only
# behind the last token does anything leave the tensor.
#
# **Why, the second load.** It looks like a harmless repetition. But the first half has been written over by then, so
# the second half is computed from a partner that is turned already. What a program needs after a store must be in
# registers before it.
#
# **What this report can't tell you.** A block of all elements and a second block of their partners, each loaded before
# the store, passes here. The check looks for the race: on a simulated GPU it lets one wave of a program store before
# another has loaded, and an answer that gets other numbers then has failed (`wave-race`). But at these sizes an element
# and its partner lie in one wave, which loads both before it stores. In another layout the partner may belong to a wave
# that has stored already. Pairs are safe in any layout, because one lane reads and writes both elements.

# %% [markdown] exercise_header="4.5"
# What the model really runs. Cut each row of the projection into heads of queries, keys and values, and turn the
# queries and keys, in **one** launch. One program takes one token; its block holds all heads of the row, `q_heads + 2 *
# kv_heads` of them.
#
# - **Inputs**: `qkv` of shape `(T, (q_heads + 2 * kv_heads) * D)`, float32, float16 or bfloat16: in each row first all
#   heads of queries, then those of keys, then those of values; its rows may be further apart than they are long; `cos`
#   and `sin` of shape `(P, D / 2)`, contiguous, float32; `positions` of shape `(T,)`, contiguous; and the
#   numbers `q_heads`, `kv_heads` and `head_dim`, which is D
# - **Output**: `(q, k, v)`, new tensors of shapes `(T, q_heads, D)`, `(T, kv_heads, D)`, `(T, kv_heads, D)`, in the
#   dtype of `qkv`. Values are copied bit for bit, whatever they are, infinity and NaN too
# - **Definition**:
#
#   ```python
#   heads = qkv.view(T, q_heads + 2 * kv_heads, D)
#   q = turned(heads[:, :q_heads])  # token t by the angles of row positions[t], as in exercise 4.2
#   k = turned(heads[:, q_heads : q_heads + kv_heads])
#   v = heads[:, q_heads + kv_heads :]
#   ```


# %% exercise="4.5"
@triton.jit
def split_qkv_rope_kernel(
    qkv_ptr, cos_ptr, sin_ptr, positions_ptr, q_ptr, k_ptr, v_ptr,
    stride_t, q_heads, kv_heads, half, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, one token: all heads of its row."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_H)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    mask_p = pair < half
    ### BEGIN SOLUTION
    mask = (head < q_heads + 2 * kv_heads) & mask_p
    row = tl.load(positions_ptr + token).to(tl.int64)
    cos = tl.load(cos_ptr + row * half + pair, mask=mask_p, other=0.0)
    sin = tl.load(sin_ptr + row * half + pair, mask=mask_p, other=0.0)
    x_ptr = qkv_ptr + token * stride_t + head * 2 * half + pair
    a = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    turns = head < q_heads + kv_heads
    first = tl.where(turns, a * cos - b * sin, a).to(q_ptr.dtype.element_ty)
    second = tl.where(turns, b * cos + a * sin, b).to(q_ptr.dtype.element_ty)

    q_ptr += (token * q_heads + head) * 2 * half + pair
    mask_q = (head < q_heads) & mask_p
    tl.store(q_ptr, first, mask=mask_q)
    tl.store(q_ptr + half, second, mask=mask_q)

    k_head = head - q_heads
    k_ptr += (token * kv_heads + k_head) * 2 * half + pair
    mask_k = (k_head >= 0) & (k_head < kv_heads) & mask_p
    tl.store(k_ptr, first, mask=mask_k)
    tl.store(k_ptr + half, second, mask=mask_k)

    v_head = k_head - kv_heads
    v_ptr += (token * kv_heads + v_head) * 2 * half + pair
    mask_v = (v_head >= 0) & (v_head < kv_heads) & mask_p
    tl.store(v_ptr, first, mask=mask_v)
    tl.store(v_ptr + half, second, mask=mask_v)
    ### END SOLUTION


def split_qkv_rope(qkv, cos, sin, positions, q_heads, kv_heads, head_dim):
    T = len(qkv)
    q, k, v = (qkv.new_empty((T, heads, head_dim)) for heads in (q_heads, kv_heads, kv_heads))
    blocks = {
        "BLOCK_H": triton.next_power_of_2(q_heads + 2 * kv_heads),
        "BLOCK": triton.next_power_of_2(head_dim // 2),
    }
    sizes = qkv.stride(0), q_heads, kv_heads, head_dim // 2
    split_qkv_rope_kernel[(T,)](qkv, cos, sin, positions, q, k, v, *sizes, **blocks)
    return q, k, v


# %% [markdown] tags=["solution-only"]
# **Why.** The row is read once, in one tile of heads and pairs. The three outputs take different rows of that tile, and
# a mask says which. `head - q_heads` is negative for the queries, so both ends need a comparison.
#
# Why not set `cos` to 1 and `sin` to 0 for the values, and turn everything? Because `b * 0` is NaN when `b` is
# infinite. `tl.where` chooses between two finished results, and what is not chosen does not matter.
#
# The course's kernel gives a program heads of one kind only. Then no lane computes a rotation that is thrown away, and
# more programs run at once. For the 15 heads of SmolLM2 one tile of 16 wastes little.

# %% [markdown] exercise_header="4.6"
# Packed sequences, and only a part of each head turns. A program takes all heads of one token. It has to find out in
# which sequence the token is: position 0 is where its sequence begins.
#
# - **Inputs**: `x` of shape `(T, heads, D)`, contiguous, float32 or bfloat16; `cu_seqlens` of shape `(sequences + 1,)`,
#   integers: sequence `i` has tokens `cu_seqlens[i]` to `cu_seqlens[i + 1] - 1`, and none if the two are equal; `cos`
#   and `sin` of shape `(P, half)`, contiguous, float32, with `2 * half` at most `D`
# - **Output**: a new tensor of the shape and dtype of `x`. The first `2 * half` elements of each head are turned, in
#   neox pairs `i` and `i + half`. The others are copied
# - **Definition**:
#
#   ```python
#   for i in range(sequences):
#       for t in range(cu_seqlens[i], cu_seqlens[i + 1]):
#           p = t - cu_seqlens[i]
#           y[t, :, : 2 * half] = turned(x[t, :, : 2 * half], p)  # by the angles of row p
#           y[t, :, 2 * half :] = x[t, :, 2 * half :]
#   ```


# %% exercise="4.6"
@triton.jit
def rope_packed_kernel(
    x_ptr, y_ptr, cu_seqlens_ptr, cos_ptr, sin_ptr, sequences, heads, D, half,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, all heads of one token. BLOCK_B: at least `sequences`; BLOCK_D: at least D - 2 * half."""
    token = tl.program_id(0)
    offs_b = tl.arange(0, BLOCK_B)
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    x_ptr += (token.to(tl.int64) * heads + offs_h) * D
    y_ptr += (token.to(tl.int64) * heads + offs_h) * D
    ### BEGIN SOLUTION
    starts = tl.load(cu_seqlens_ptr + offs_b, mask=offs_b < sequences, other=0)
    begin = tl.max(tl.where(starts <= token, starts, 0), axis=0)  # of the last sequence that has begun
    row = (token - begin).to(tl.int64)

    mask_p = pair < half
    mask = (offs_h < heads) & mask_p
    cos = tl.load(cos_ptr + row * half + pair, mask=mask_p, other=0.0)
    sin = tl.load(sin_ptr + row * half + pair, mask=mask_p, other=0.0)
    a = tl.load(x_ptr + pair, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + half + pair, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + pair, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + half + pair, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=mask)

    rest = 2 * half + tl.arange(0, BLOCK_D)[None, :]
    mask_rest = (offs_h < heads) & (rest < D)
    tl.store(y_ptr + rest, tl.load(x_ptr + rest, mask=mask_rest, other=0.0), mask=mask_rest)
    ### END SOLUTION


def rope_packed(x, cu_seqlens, cos, sin):
    T, heads, D = x.shape
    sequences, half = len(cu_seqlens) - 1, cos.shape[1]
    y = torch.empty_like(x)
    sizes = {"BLOCK_B": sequences, "BLOCK_H": heads, "BLOCK": half, "BLOCK_D": max(D - 2 * half, 1)}
    blocks = {name: triton.next_power_of_2(size) for name, size in sizes.items()}
    rope_packed_kernel[(T,)](x, y, cu_seqlens, cos, sin, sequences, heads, D, half, **blocks)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The begin of the token's sequence is the largest start that is not behind the token. `tl.max` is a reduction,
# so the idle lanes must hold something that never wins: 0 is the start of the first sequence, and no start is smaller.
# An empty sequence begins where the next one does, so it changes nothing.
#
# Searching in every program sounds wasteful. It is one load of a few numbers that all programs share, so they come from
# cache. The alternative is a kernel of its own that writes a position for each token.
#
# The plain part is copied without a detour through float32. Everything that says "half" means half of the *turned*
# part: the pairs, the table, and where the rest begins.

# %% tags=["nbval-ignore-output"]
progress()
