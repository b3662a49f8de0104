# %% [markdown]
# # Exercises 07: KV cache
#
# Six exercises on the memory of a language model. Read [07 KV cache](../notebooks/07_kv_cache.ipynb) first. 7.3 is what
# every layer of a served model runs for each token, 7.4 and 7.5 are attention over pages, and 7.6 is for those who want
# more.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 7.1` gives the next of three hints, `%solution 7.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.
#
# Caches are written **in place**. The check compares all of a cache afterwards: what should be there, and what should
# still be there.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="7.1"
# Store the keys and values of new tokens, both in **one** launch. One program takes one token. A token's heads lie side
# by side, so that its row has `WIDTH = KH * D` numbers; the rows of `k` and `v` may be further apart than that, because
# both are usually cut out of one `qkv`.
#
# - **Inputs**: `k` and `v` of shape `(T, KH, D)`, float32, float16 or bfloat16; `k_cache` and `v_cache` of shape
#   `(S_max, KH, D)`, contiguous, the same dtype; `positions` of shape `(T,)`, int64, no two alike
# - **Output**: none; the caches are changed
# - **Definition**:
#
#   ```python
#   for t in range(T):
#       k_cache[positions[t]] = k[t]
#       v_cache[positions[t]] = v[t]
#   ```


# %% exercise="7.1"
@triton.jit
def append_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, positions_ptr, stride_kt, stride_vt, WIDTH, BLOCK: tl.constexpr
):
    """One program, one token."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    ### BEGIN SOLUTION
    position = tl.load(positions_ptr + token)
    k = tl.load(k_ptr + token * stride_kt + cols, mask=mask, other=0.0)
    v = tl.load(v_ptr + token * stride_vt + cols, mask=mask, other=0.0)
    tl.store(k_cache_ptr + position * WIDTH + cols, k, mask=mask)
    tl.store(v_cache_ptr + position * WIDTH + cols, v, mask=mask)
    ### END SOLUTION


def append_kv(k, v, k_cache, v_cache, positions):
    T, KH, D = k.shape
    block = triton.next_power_of_2(KH * D)
    append_kernel[(T,)](k, v, k_cache, v_cache, positions, k.stride(0), v.stride(0), KH * D, BLOCK=block)


# %% [markdown] tags=["solution-only"]
# **Why.** The program's number says which token it *reads*. Where it *writes* is data, and has to be loaded first. The
# two addresses have nothing in common but the columns: rows of `k` are `stride_kt` apart, rows of the cache `WIDTH`.
#
# No conversion to float32 here, though the rule says so. Nothing is computed: the bits go from one place to another.

# %% [markdown] exercise_header="7.2"
# Now with pages. Slot `s` is place `s % PAGE` of page `s // PAGE`. Some engines keep the keys and the values of a page
# next to each other, so pages of the same cache lie `stride_page` apart, which may be more than a page is long. Inside
# a page the rows follow each other. Padding tokens have slot -1 and go nowhere.
#
# - **Inputs**: `k` and `v` of shape `(T, KH, D)`, contiguous; `k_cache` and `v_cache` of shape `(pages, PAGE, KH, D)`,
#   both with the same strides; `slot_mapping` of shape `(T,)`, int64, -1 or a slot
# - **Output**: none; the caches are changed
# - **Definition**:
#
#   ```python
#   for t in range(T):
#       if slot_mapping[t] >= 0:
#           page, place = divmod(slot_mapping[t], PAGE)
#           k_cache[page, place] = k[t]
#           v_cache[page, place] = v[t]
#   ```


# %% exercise="7.2"
@triton.jit
def pages_kernel(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, stride_page, PAGE, WIDTH, BLOCK: tl.constexpr):
    """One program, one token."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    k = tl.load(k_ptr + token * WIDTH + cols, mask=mask, other=0.0)
    v = tl.load(v_ptr + token * WIDTH + cols, mask=mask, other=0.0)
    ### BEGIN SOLUTION
    slot = tl.load(slots_ptr + token)
    exists = slot >= 0
    offs = (slot // PAGE) * stride_page + (slot % PAGE) * WIDTH + cols
    tl.store(k_cache_ptr + offs, k, mask=mask & exists)
    tl.store(v_cache_ptr + offs, v, mask=mask & exists)
    ### END SOLUTION


def write_pages(k, v, k_cache, v_cache, slot_mapping):
    T, KH, D = k.shape
    block = triton.next_power_of_2(KH * D)
    pages_kernel[(T,)](k, v, k_cache, v_cache, slot_mapping, k_cache.stride(0), k_cache.shape[1], KH * D, BLOCK=block)


# %% [markdown] tags=["solution-only"]
# **Why.** Where pages follow each other without a gap, `slot * WIDTH` would do. With a gap, only the quotient and the
# remainder tell where the slot is.
#
# `exists` is one number, true or false for the whole program, and `mask & exists` switches all lanes off. You could
# also write `if slot >= 0:` around the stores. Both are right; the mask has the advantage that it is the same for a
# program that takes several tokens.

# %% [markdown] exercise_header="7.3"
# The kernel of the lesson, for a cache in pages: turn the queries and return them, turn the keys and store them, store
# the values, in **one** launch. Pages have no gaps here, so slot `s` is row `s` of the cache. One program takes one
# head of one token; `program_id(1)` counts query heads, then key heads, then value heads. What all three have in common
# goes into the device function `move_head`.
#
# `D` is a power of two, and element `i` of a head is turned together with element `i + D / 2`. The angle belongs to the
# token's **position**, the place to its **slot**.
#
# - **Inputs**: `q` of shape `(T, QH, D)`, `k` and `v` of shape `(T, KH, D)`, rows perhaps further apart than they are
#   long; `k_cache`, `v_cache` of shape `(pages, PAGE, KH, D)`, contiguous; `slot_mapping` and `positions` of shape
#   `(T,)`, int64, slots -1 for padding; `cos` and `sin` of shape `(P, D / 2)`, float32
# - **Output**: `q_out`, turned, of the shape and dtype of `q`, for padding tokens too; the caches are changed
# - **Definition**:
#
#   ```python
#   def turn(x, t):
#       a, b, c, s = x[: D // 2], x[D // 2 :], cos[positions[t]], sin[positions[t]]
#       return torch.cat([a * c - b * s, b * c + a * s])
#
#   for t in range(T):
#       for h in range(QH):
#           q_out[t, h] = turn(q[t, h], t)
#       if slot_mapping[t] >= 0:
#           page, place = divmod(slot_mapping[t], PAGE)
#           for h in range(KH):
#               k_cache[page, place, h] = turn(k[t, h], t)
#               v_cache[page, place, h] = v[t, h]
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="7.3"
@triton.jit
def move_head(x_ptr, out_ptr, cos_ptr, sin_ptr, position, exists, HALF: tl.constexpr, TURN: tl.constexpr):
    """One head from x_ptr to out_ptr, turned if TURN says so; stored only where `exists` is true."""
    i = tl.arange(0, HALF)
    ### BEGIN SOLUTION
    a = tl.load(x_ptr + i).to(tl.float32)
    b = tl.load(x_ptr + HALF + i).to(tl.float32)
    if TURN:
        cos = tl.load(cos_ptr + position * HALF + i)
        sin = tl.load(sin_ptr + position * HALF + i)
        a, b = a * cos - b * sin, b * cos + a * sin
    mask = (i < HALF) & exists
    tl.store(out_ptr + i, a.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(out_ptr + HALF + i, b.to(out_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


@triton.jit
def rope_cache_kernel(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, positions_ptr, cos_ptr, sin_ptr,
    stride_qt, stride_kt, stride_vt, QH: tl.constexpr, KH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """One program, one head of one token."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots_ptr + token)
    position = tl.load(positions_ptr + token)
    ### BEGIN SOLUTION
    if head < QH:
        x_ptr = q_ptr + token * stride_qt + head * 2 * HALF
        out_ptr = q_out_ptr + (token * QH + head) * 2 * HALF
        move_head(x_ptr, out_ptr, cos_ptr, sin_ptr, position, True, HALF, True)
    elif head < QH + KH:
        k_head = head - QH
        x_ptr = k_ptr + token * stride_kt + k_head * 2 * HALF
        out_ptr = k_cache_ptr + (slot * KH + k_head) * 2 * HALF
        move_head(x_ptr, out_ptr, cos_ptr, sin_ptr, position, slot >= 0, HALF, True)
    else:
        v_head = head - QH - KH
        x_ptr = v_ptr + token * stride_vt + v_head * 2 * HALF
        out_ptr = v_cache_ptr + (slot * KH + v_head) * 2 * HALF
        move_head(x_ptr, out_ptr, cos_ptr, sin_ptr, position, slot >= 0, HALF, False)
    ### END SOLUTION


def rope_and_cache(q, k, v, k_cache, v_cache, slot_mapping, positions, cos, sin):
    (T, QH, D), KH = q.shape, k.shape[1]
    q_out = torch.empty((T, QH, D), dtype=q.dtype, device=q.device)
    strides = q.stride(0), k.stride(0), v.stride(0)
    rope_cache_kernel[(T, QH + 2 * KH)](
        q, k, v, q_out, k_cache, v_cache, slot_mapping, positions, cos, sin, *strides, QH=QH, KH=KH, HALF=D // 2
    )
    return q_out


# %% [markdown] tags=["solution-only"]
# **Why.** The three sorts of programs share everything but two addresses, the turn, and whether the head has a place.
# So the branches choose, and the work is written once, in a device function. `TURN` is a constant of the compiler: the
# values' copy of the function has no rotation in it.
#
# It is tempting to let the branches only set `x_ptr` and `out_ptr`, and to load and store once after them. That works
# too, but older compilers (Triton 3.6) cannot make AMD code of an `if` that yields one of several pointers.
#
# Both halves are loaded before either is stored, and both are turned from the *old* values: `a, b = ...` in one line.
# With two lines the second would use the new `a`.
#
# A padding token has slot -1. Its keys and values go nowhere, its query is turned like any other: nobody will look at
# it, but the memory must not be left undefined.

# %% [markdown] exercise_header="7.4"
# This attention over pages is in use somewhere, and its test passes: one sequence, 32 tokens. With two sequences of
# other lengths it is wrong. It has **two** bugs. Repair what you see, and let the report tell you what is left.
#
# - **Inputs**: `q` of shape `(B, QH, D)`, `D` a power of two; `k_cache` and `v_cache` of shape `(pages, PAGE, KH, D)`,
#   all contiguous, float32 or bfloat16; `block_table` of shape `(B, n)`, whose rows may be further apart than they are
#   long, and `seq_lens` of shape `(B,)`, int32. Entries of the table past a sequence's length may be anything
# - **Output**: a tensor of the shape and dtype of `q`. A sequence without tokens gets zeros
# - **Definition**:
#
#   ```python
#   for b in range(B):
#       rows = [divmod(j, PAGE) for j in range(seq_lens[b])]
#       for h in range(QH):
#           g = h // (QH // KH)
#           keys = torch.stack([k_cache[block_table[b, i], place, g] for i, place in rows])
#           values = torch.stack([v_cache[block_table[b, i], place, g] for i, place in rows])
#           o[b, h] = torch.softmax(keys @ q[b, h] / math.sqrt(D), dim=0) @ values
#   ```


# %% exercise="7.4"
@triton.jit
def decode_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, table_ptr, lens_ptr, o_ptr, stride_tb, scale, QH, KH, PAGE,
    D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one query head of one sequence. scale: that of the scores, times log2(e)."""
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kv_head = head // (QH // KH)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (sequence * QH + head) * D + d).to(tl.float32)
    length = tl.load(lens_ptr + sequence)
    row_max, row_sum, acc = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for start in range(0, length, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        exists = j < length
        ### BEGIN BROKEN
        page = tl.load(table_ptr + j // PAGE, mask=exists, other=0).to(tl.int64)
        row = ((page * PAGE + j % PAGE) * KH + kv_head)[:, None] * D + d[None, :]
        k = tl.load(k_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(k * q[None, :], axis=1) * scale
        ### END BROKEN
        ### BEGIN SOLUTION
        page = tl.load(table_ptr + sequence * stride_tb + j // PAGE, mask=exists, other=0).to(tl.int64)
        row = ((page * PAGE + j % PAGE) * KH + kv_head)[:, None] * D + d[None, :]
        k = tl.load(k_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        scores = tl.where(exists, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        ### END SOLUTION
        new_max = tl.maximum(row_max, tl.max(scores, axis=0))
        p, rescale = tl.exp2(scores - new_max), tl.exp2(row_max - new_max)
        row_sum, row_max = row_sum * rescale + tl.sum(p, axis=0), new_max
        acc = acc * rescale + tl.sum(p[:, None] * v, axis=0)
    o = acc / tl.where(row_sum == 0.0, 1.0, row_sum)
    tl.store(o_ptr + (sequence * QH + head) * D + d, o.to(o_ptr.dtype.element_ty))


def paged_decode_attention(q, k_cache, v_cache, block_table, seq_lens):
    (B, QH, D), (PAGE, KH) = q.shape, k_cache.shape[1:3]
    o = torch.empty((B, QH, D), dtype=q.dtype, device=q.device)
    scale = math.log2(math.e) / math.sqrt(D)
    decode_kernel[(B, QH)](
        q, k_cache, v_cache, block_table, seq_lens, o, block_table.stride(0), scale, QH, KH, PAGE, D=D, BLOCK_N=16
    )
    return o


# %% [markdown] tags=["solution-only"]
# **Why, first bug.** Every sequence has a row of its own in the block table. Without `sequence * stride_tb` all of them
# read the pages of sequence 0: one user gets another's text. With one sequence in the test, nobody can see it.
#
# **Why, second bug.** Keys past the end were loaded as 0, so their scores are 0. But the softmax takes $2^0 = 1$ of
# that, not nothing. Their values are 0 too, so the numerator stays right and only the sum grows: every result is a
# little too small. What a softmax ignores is a score of $-\infty$. With 32 tokens and blocks of 16 no lane is idle.

# %% [markdown] exercise_header="7.5"
# The second launch of a split: merge the results of the parts. Part `i` of a row has a result and an LSE, the
# **base-2** logarithm of the sum under its softmax. A part without any token has an LSE of $-\infty$ and zeros. If all
# parts of a row are like that, the result is zeros.
#
# - **Inputs**: `parts` of shape `(rows, S, D)`, float32 or float16; `lse` of shape `(rows, S)`, float32; both
#   contiguous, any `S` and `D`
# - **Output**: a tensor of shape `(rows, D)` and the dtype of `parts`
# - **Definition**:
#
#   ```python
#   for r in range(rows):
#       total = sum(2 ** lse[r, i] for i in range(S))
#       for d in range(D):
#           out[r, d] = sum(2 ** lse[r, i] * parts[r, i, d] for i in range(S)) / total   # 0 if total is 0
#   ```
#
# Compute in float32 and round once, at the store.
#
# An LSE may be several hundred, and $2^{300}$ is infinity in float32. You know what to do about that.


# %% exercise="7.5"
@triton.jit
def merge_kernel(parts_ptr, lse_ptr, out_ptr, S, D, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    mask_s, mask_d = s < S, d < D
    ### BEGIN SOLUTION
    lse = tl.load(lse_ptr + row * S + s, mask=mask_s, other=-float("inf"))
    top = tl.max(lse, axis=0)
    weight = tl.exp2(lse - tl.where(top == -float("inf"), 0.0, top))
    total = tl.sum(weight, axis=0)
    weight = weight / tl.where(total == 0.0, 1.0, total)

    offs = (row * S + s[:, None]) * D + d[None, :]
    mask = mask_s[:, None] & mask_d[None, :]
    parts = tl.load(parts_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    out = tl.sum(parts * weight[:, None], axis=0)
    tl.store(out_ptr + row * D + d, out.to(out_ptr.dtype.element_ty), mask=mask_d)
    ### END SOLUTION


def merge_parts(parts, lse):
    rows, S, D = parts.shape
    out = torch.empty((rows, D), dtype=parts.dtype, device=parts.device)
    blocks = {"BLOCK_S": triton.next_power_of_2(S), "BLOCK_D": triton.next_power_of_2(D)}
    merge_kernel[(rows,)](parts, lse, out, S, D, **blocks)
    return out


# %% [markdown] tags=["solution-only"]
# **Why.** It is a softmax over the parts, and everything you know of softmax applies: subtract the maximum before the
# power, and let idle lanes hold $-\infty$, which becomes a weight of 0.
#
# Two guards are for a row of nothing. If all LSE are $-\infty$, then $-\infty - (-\infty)$ is NaN; so the maximum is
# replaced by 0, and all weights become 0. Then their sum is 0, and must not be divided by.

# %% [markdown] exercise_header="7.6"
# Keys into a **packed** cache of **fp8**. With one byte a number, 16 bytes are 16 numbers: `X` is 16. Number `d` of a
# key is number `d % X` of piece `d // X`. The cache is contiguous, of shape `(pages, KH, D / X, PAGE, X)`: all first
# pieces of a page's tokens lie side by side, then all second pieces, and so on, for each head.
#
# One program takes one token, all its heads. `FP8_MAX` is the largest number of the cache's type: 448 of e4m3fn, 57344
# of e5m2, which has one more bit of exponent and one less behind the leading one.
#
# - **Inputs**: `k` of shape `(T, KH, D)`, contiguous, float32 or bfloat16, `D` a multiple of 16; `k_cache` as above,
#   `float8_e4m3fn` or `float8_e5m2`; `slot_mapping` of shape `(T,)`, int64, -1 or a slot; `scale`, a number
# - **Output**: none; the cache is changed
# - **Definition**:
#
#   ```python
#   for t in range(T):
#       if slot_mapping[t] >= 0:
#           page, place = divmod(slot_mapping[t], PAGE)
#           for h in range(KH):
#               for d in range(D):
#                   y = min(max(k[t, h, d] / scale, -FP8_MAX), FP8_MAX)
#                   k_cache[page, h, d // X, place, d % X] = y   # rounded to fp8
#   ```
#
# Divide and clamp in float32, and round once.


# %% exercise="7.6"
@triton.jit
def pack_kernel(
    k_ptr, cache_ptr, slots_ptr, scale, KH, D, PAGE,
    X: tl.constexpr, FP8_MAX: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, one token."""
    token = tl.program_id(0).to(tl.int64)
    h, d = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_D)[None, :]
    mask = (h < KH) & (d < D)
    ### BEGIN SOLUTION
    slot = tl.load(slots_ptr + token)
    page, place = slot // PAGE, slot % PAGE
    k = tl.load(k_ptr + (token * KH + h) * D + d, mask=mask, other=0.0).to(tl.float32)
    y = tl.clamp(k / scale, -FP8_MAX, FP8_MAX)
    piece = (page * KH + h) * (D // X) + d // X
    offs = (piece * PAGE + place) * X + d % X
    tl.store(cache_ptr + offs, y.to(cache_ptr.dtype.element_ty), mask=mask & (slot >= 0))
    ### END SOLUTION


def pack_keys(k, k_cache, slot_mapping, scale):
    T, KH, D = k.shape
    PAGE, X = k_cache.shape[3:]
    blocks = {"BLOCK_H": triton.next_power_of_2(KH), "BLOCK_D": triton.next_power_of_2(D)}
    largest = torch.finfo(k_cache.dtype).max
    pack_kernel[(T,)](k, k_cache, slot_mapping, scale, KH, D, PAGE, X=X, FP8_MAX=largest, **blocks)


# %% [markdown] tags=["solution-only"]
# **Why.** Read the shape of the cache from the left, and multiply as you go: page, then head, then piece, then place,
# then the number in its piece. Each index is multiplied by the product of all sizes to its right.
#
# `X` is a constant of the compiler, and a power of two. So `d // X` and `d % X` are a shift and a mask, and the
# compiler sees that 16 neighbours are stored side by side: one store of 16 bytes.
#
# The clamp is needed because what a conversion makes of a number out of range differs: the largest number, infinity, or
# NaN, by type and by machine. And one infinite key is enough to make NaN of everything that ever looks at it.

# %% tags=["nbval-ignore-output"]
progress()
