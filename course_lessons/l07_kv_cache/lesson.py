# %% [markdown]
# # 07 KV cache
#
# A model writes one token at a time, and looks back at everything that came before. In this lesson you give it a
# memory, fill and read it with kernels of your own, and then run the whole step that makes a token on your kernels:
# everything that you have written so far meets here.
#
# You need lessons 02 (reductions), 04 (RoPE, heads) and 06 (online softmax). It takes about 50 minutes, without the
# exercises. Its short path takes about 20, and ends with a token; the other layouts of a cache are parts of their own.
#
# **In doing so, you will learn**
#
# - why making a token is limited by memory, and which bytes it moves
# - how keys and values get into a cache in one launch, and into pages
# - how attention reads pages, and how to share one sequence among many programs
# - what a whole token takes, when every operation is a kernel of yours
# - optional: what a launch costs; the packed layout, fp8, and what multi-head latent attention stores instead of keys

# %% tags=["nbval-ignore-output"]
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

import course_kernels
import course_lab
from course_kernels import reference
from course_lab import bench, model, my_kernel
from gfxlab import amd_report, draw, engines, hardware, simulator, trace, using
from gfxlab.tracing import eager

llm = model.load(device="cpu")  # on the CPU, so that every launch below can be watched
config = llm.config
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Where this sits in the model
#
# Writing has two phases. First the model reads the prompt, all of its tokens at once: the
# [prefill](06_attention.ipynb#Glossary). Then it makes one token after the other, each from all that came before. That
# is [**decode**](#Glossary), and a chat spends most of its time there.
#
# The new token's query looks at the keys and values of all earlier tokens. You could compute those again for every new
# token. **Predict.** With 99 tokens there already, how much work is that, compared with computing them only for the new
# one?

# %%
again = llm.operations(tokens=100)
step = llm.operations(tokens=1, context=99)
print("billion operations")
print(f"everything again:   {again.flops / 1e9:6.2f}")
print(f"only the new token: {step.flops / 1e9:6.2f}, {again.flops / step.flops:.0f} times less")

# %% [markdown]
# The longer the text, the greater the difference. It is allowed because an earlier token never looks at a later one:
# its keys and values stay what they are. So they are kept, for every layer. That is the [**KV cache**](#Glossary).

# %% [markdown] exercise_header="7.a"
# Put rows into their places: row `i` of `x` goes to row `places[i]` of the cache, which is changed in place. (A load
# from a single address gives a single number.)


# %% exercise="7.a"
@triton.jit
def store_rows_kernel(x_ptr, cache_ptr, places_ptr, N, BLOCK: tl.constexpr):
    """One program, one row."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    ### BEGIN SOLUTION
    place = tl.load(places_ptr + token)
    x = tl.load(x_ptr + token * N + cols, mask=mask)
    tl.store(cache_ptr + place * N + cols, x, mask=mask)
    ### END SOLUTION


def store_rows(x, cache, places):
    rows, N = x.shape
    store_rows_kernel[(rows,)](x, cache, places, N, BLOCK=triton.next_power_of_2(N))


# %% [markdown]
# What is left for one token is small. Is it fast, then? Compare operations with bytes, as in lesson 01:

# %%
print(f"100 tokens at once: {again.flops / again.bytes:5.1f} operations a byte")
print(f"one token:          {step.flops / step.bytes:5.1f} operations a byte")
points = [draw.Point("100 tokens", again.flops, again.bytes), draw.Point("one token", step.flops, step.bytes)]
draw.roofline(points, "MI300X", unit="fp32 matrix")

# %% [markdown]
# With 100 tokens at once each weight that was read is used 100 times, and the model stands where the two roofs meet.
# With one token it is used **once**: a multiplication and an addition for four bytes. The [matrix
# units](05_matmul.ipynb#Glossary) wait for memory. Decode is memory-bound, so only bytes count, and launches.
#
# ### Which bytes? (optional)
#
# Weights are read once for a whole *batch*, that is, for all sequences that are decoded together. The
# cache is not shared: each sequence reads its own. In bfloat16:

# %%
weights = 2 * sum(w.numel() for layer in llm.weights.layers for w in vars(layer).values())
weights += 2 * llm.weights.embedding.numel()
token = 2 * 2 * config.num_layers * config.num_kv_heads * config.head_dim  # keys and values, 2 bytes each
print(f"weights: {weights / 1e6:.0f} MB, cache: {token:,} bytes a token")
loads = {"1 sequence of 1,000 tokens": 1_000, "1 sequence of 8,000": 8_000, "32 sequences of 8,000": 256_000}
draw.bytes_bar(
    {name: {"weights": weights, "cache": token * tokens} for name, tokens in loads.items()},
    "bytes read to make a token for each sequence, bfloat16",
)

# %% [markdown]
# Short and alone, the weights are everything. Long and together, the cache is. A served model lives at the lower end of
# this picture, which explains most of this lesson: fewer bytes in the cache (grouped heads, fp8, MLA), no space in it
# wasted (rung 3), and reading it at the speed of memory (rung 5).
#
# ### The step in PyTorch
#
# The other cost is launches. This is the model as one writes it in PyTorch; `F.scaled_dot_product_attention` is
# PyTorch's own fused attention:


# %%
def norm(x, weight, eps):
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def add_norm(x, residual, weight, eps):
    total = x + residual
    return norm(total, weight, eps), total


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def split_and_turn(qkv, cos, sin, positions, q_heads, kv_heads, head_dim, style):
    q, k, v = qkv.view(len(qkv), -1, head_dim).split([q_heads, kv_heads, kv_heads], dim=1)
    cos, sin = cos[positions][:, None], sin[positions][:, None]
    return turn(q, cos, sin), turn(k, cos, sin), v


# %% tags=["nbval-ignore-output"]
def attend(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def swiglu(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


plain = {
    "rms_norm": norm,
    "add_rms_norm": add_norm,
    "split_qkv_rope": split_and_turn,
    "attention": attend,
    "silu_and_mul": swiglu,
}
prompt = llm.tokenizer.encode("One, two, three,")
cache = llm.new_cache(64)
with llm.using(**plain):
    first = llm.next_token(prompt, cache)  # the prompt: prefill
    with eager.count() as pytorch:
        second = llm.next_token([first], cache)  # one token: decode
assert 900 < pytorch.kernels < 1600
print(f"{pytorch.kernels} kernels and {pytorch.bytes / 1e6:.1f} MB for one token")

# %% [markdown]
# More than a thousand launches for one token, and nearly all of the bytes are weights. Remember both numbers. At the
# end you will put them beside yours.
#
# ## The idea on paper
#
# In each layer, token $t$ brings a query, a key and a value for each of its [heads](04_rope.ipynb#Glossary). Query and
# key are turned by the angles of position $t$, then the key and the value are stored, and the query looks at all that
# is there:
#
# $$ K_t = \mathrm{RoPE}_t(k_t), \quad V_t = v_t, \qquad o = \sum_{j \le t} \mathrm{softmax}_j\!\left(\tfrac{q \cdot
# K_j}{\sqrt D}\right) V_j $$
#
# The key is stored *turned*. Its own position never changes, so it is turned once, not at every look. Values are not
# turned at all.
#
# | on paper | in memory |
# |---|---|
# | $K_j$, $V_j$ of all heads | row $j$ of `k_cache` and `v_cache`, each `(S_max, KH, D)` |
# | store token $t$ | write row $t$: `KH * D` numbers, side by side |
# | $q$ of head $h$ | looks at head `h // (QH // KH)` of the rows: [grouped heads](04_rope.ipynb#Glossary) |
#
# ## Rung 1: a row into the cache
#
# Take real data: the queries, keys and values of layer 5 while the model reads a prompt of six tokens.

# %%
qkv, cos, sin, positions, QH, KH, D = llm.activations("layers.5.rope", prompt)
print("qkv      ", tuple(qkv.shape), f"in each row {QH} query heads, {KH} key heads, {KH} value heads of {D}")
print("positions", positions.tolist())
q, k, v = reference.split_qkv_rope(qkv, cos, sin, positions, QH, KH, D)  # cut and turned by PyTorch, to compare with

# %% [markdown]
# ### A kernel that only stores (optional)
#
# The naive kernel only stores: yours of 7.a (until it has passed, the course's), launched once for the keys and once
# for the values. The heads of a token are one row.
#
# **Predict.** A row has 192 numbers: how long must the block be? And how many programs run when *one* token is decoded?

# %%
store_rows = my_kernel("7.a")
k_cache, v_cache = torch.zeros(8, KH * D), torch.zeros(8, KH * D)  # room for 8 tokens
with trace() as launches:
    store_rows(k.reshape(6, KH * D), k_cache, positions)
    store_rows(v.reshape(6, KH * D), v_cache, positions)
print("stored:", torch.equal(k_cache[:6].view(6, KH, D), k) and torch.equal(v_cache[:6].view(6, KH, D), v))
launches[0].picture("cache_ptr")

# %% [markdown]
# Six tokens, six programs, six rows of 192. For one token each launch would be a single program on one of the 304
# compute units of an MI300X, and both together move 3 KB. Their time is the time of *launching*. One launch can store
# both (exercise 7.1). Better still if it does something else on the way.
#
# ## Rung 2: turn and store in one launch
#
# Storing the keys and values of one token, 192 numbers each, reads and writes 3 KB: the time of a launch. So let the
# same launch do what comes before: queries and keys are turned. As separate kernels: turn q, turn k, store k and v.
#
# **Predict.** k is read and written by its rotation, then read and written again by the store. How many of these four
# trips are left if one kernel does it all?
#
# One program takes one head of one token, and `program_id(1)` says which: a query head, a key head or a value head. The
# three sorts differ in two things, whether they turn and where they go. `store_head` is a
# [device function](03_fused_activations.ipynb#Glossary):


# %%
@triton.jit
def store_head(out_ptr, a, b, HALF: tl.constexpr):
    i = tl.arange(0, HALF)
    tl.store(out_ptr + i, a.to(out_ptr.dtype.element_ty))
    tl.store(out_ptr + HALF + i, b.to(out_ptr.dtype.element_ty))


@triton.jit
def rope_cache_kernel(
    qkv_ptr, q_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, positions_ptr, cos_ptr, sin_ptr,
    QH: tl.constexpr, KH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """One program, one head of one token."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, HALF)
    x_ptr = qkv_ptr + (token * (QH + 2 * KH) + head) * 2 * HALF
    a = tl.load(x_ptr + i).to(tl.float32)
    b = tl.load(x_ptr + HALF + i).to(tl.float32)
    if head < QH + KH:  # queries and keys turn
        angle = tl.load(positions_ptr + token) * HALF + i
        cos, sin = tl.load(cos_ptr + angle), tl.load(sin_ptr + angle)
        a, b = a * cos - b * sin, b * cos + a * sin
    slot = tl.load(slots_ptr + token)
    if head < QH:
        store_head(q_ptr + (token * QH + head) * 2 * HALF, a, b, HALF)
    elif head < QH + KH:
        store_head(k_cache_ptr + (slot * KH + head - QH) * 2 * HALF, a, b, HALF)
    else:
        store_head(v_cache_ptr + (slot * KH + head - QH - KH) * 2 * HALF, a, b, HALF)


def rope_cache(qkv, k_cache, v_cache, slots, positions):
    q = torch.empty(len(qkv), QH, D)
    grid = (len(qkv), QH + 2 * KH)
    rope_cache_kernel[grid](qkv, q, k_cache, v_cache, slots, positions, cos, sin, QH=QH, KH=KH, HALF=D // 2)
    return q


# %% [markdown]
# The kernel reads the angles from row `position` of the tables, and stores to row `slot` of the cache. For now these
# are the same number. A head has a power of two of elements, so no mask is needed here.

# %%
k_cache, v_cache = torch.zeros(6, KH, D), torch.zeros(6, KH, D)
with trace() as one:
    q_fused = rope_cache(qkv, k_cache, v_cache, slots=torch.arange(6), positions=positions)
torch.testing.assert_close(q_fused, q)
torch.testing.assert_close(k_cache, k)
assert torch.equal(v_cache, v)
print("same as PyTorch, up to float32 rounding")
one.ledger()

# %% [markdown]
# ### Against separate kernels (optional)
#
# Now against the separate kernels of the course, and against PyTorch:

# %% tags=["nbval-ignore-output"]
heads = qkv.view(6, -1, D).split([QH, KH, KH], dim=1)  # views: splitting costs nothing
with trace() as separate:
    turned = [course_kernels.rope(x, cos, sin, layout="thd", positions=positions) for x in heads[:2]]
    one_sequence = (x[None] for x in (turned[1], heads[2], k_cache, v_cache, positions))
    course_kernels.kv_cache_update(None, *one_sequence)
with eager.count() as composed:
    _, k_new, v_new = split_and_turn(qkv, cos, sin, positions, QH, KH, D, "neox")
    k_cache[positions], v_cache[positions] = k_new, v_new
moved = {
    f"PyTorch, {composed.kernels} kernels": composed.bytes,
    f"separate, {len(separate)} launches": sum(x.ledger().least for x in separate),
    "fused, 1 launch": one.ledger().least,
}
assert composed.kernels > 15 and len(separate) == 3 and len(one) == 1
draw.bytes_bar(moved, "six tokens of one layer into the cache")

# %% [markdown]
# The fused kernel reads each number once and writes it once: of four trips of the keys two are left. Against PyTorch it
# is a quarter of the bytes. But with one token even PyTorch moves only some KB, and what counts is the first number in
# each name: 18 launches, or 3, or 1. In each of 30 layers.
#
# ## Rung 3: pages
#
# A contiguous cache has a row for every position that a sequence *might* reach. How long a text gets, nobody knows in
# advance. So most of it lies idle: 20 to 38 % were in use in the systems that Kwon and others looked at (*Efficient
# Memory Management for Large Language Model Serving with PagedAttention*, 2023). They proposed what an operating system
# does: [**pages**](#Glossary).
#
# - The cache is cut into pages of a few tokens, here 8. (vLLM says *block*, hence `block_table`.)
# - A place for one token is a [**slot**](#Glossary). Slot $s$ is place `s % 8` of page `s // 8`.
# - A sequence gets a page when it needs one, any page that is free. Which pages it has, in order, stands in its row of
#   the [**block table**](#Glossary).
# - A kernel that stores is told the slot of each new token: the [**slot mapping**](#Glossary).
#
# Token 13 of a sequence is in its page number 1, place 5. If the table says that page number 1 is page 6 of the cache,
# then the slot is 6 · 8 + 5 = 53.
#
# ### How much lies idle? (optional)
#
# **Predict.** 64 chats, each may reach 8192 tokens, and they are 100 to 1500 tokens long. What part of the
# reserved memory holds something?

# %%
lengths = torch.randint(100, 1500, (64,), generator=generator)
reserved, used = 64 * 8192, int(lengths.sum())
print(f"tokens:   {used:,}")
print(f"reserved: {reserved * token / 1e9:.1f} GB, in use: {used / reserved:.0%}")
in_pages = int((-(-lengths // 16)).sum()) * 16
print(f"in pages of 16: {in_pages * token / 1e9:.1f} GB, in use: {used / in_pages:.1%}")

# %% [markdown]
# Nearly all of it lies idle.
#
# ### Three sequences
#
# Of 21, 5 and 12 tokens, and pages that are free in no particular order:

# %%
PAGE = 8
free = [3, 6, 0, 7, 4, 1, 5, 2]  # in no particular order: other sequences have come and gone
seq_lens = torch.tensor([21, 5, 12], dtype=torch.int32)
block_table = torch.full((3, 4), -1, dtype=torch.int32)
slots = []
for sequence, length in enumerate(seq_lens.tolist()):
    for j in range(length):
        if j % PAGE == 0:
            block_table[sequence, j // PAGE] = free.pop(0)
        slots.append(int(block_table[sequence, j // PAGE]) * PAGE + j % PAGE)
slots = torch.tensor(slots)
print(block_table)
print("slots of sequence 1:", slots[21:26].tolist())

# %% [markdown]
# Kernels compute slots as well:

# %% [markdown] exercise_header="7.b"
# Of one sequence: the slot of each of its tokens. `table` holds its pages in order, a page has `PAGE` slots.


# %% exercise="7.b"
@triton.jit
def slots_kernel(tokens_ptr, table_ptr, slots_ptr, n, PAGE, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    j = tl.load(tokens_ptr + offs, mask=mask, other=0)
    ### BEGIN SOLUTION
    page = tl.load(table_ptr + j // PAGE, mask=mask, other=0)
    tl.store(slots_ptr + offs, page * PAGE + j % PAGE, mask=mask)
    ### END SOLUTION


def slots_of(tokens, table, page):
    slots = torch.empty_like(tokens)
    slots_kernel[(triton.cdiv(len(tokens), 64),)](tokens, table, slots, len(tokens), page, BLOCK=64)
    return slots


# %% [markdown]
# What has to change in the kernel that stores? Nothing. A page is 8 rows of the cache side by side, so slot $s$ of all
# pages together is row $s$. The kernel already stores to the row that it is told. Only the two numbers differ now: the
# **position** turns the key, the **slot** says where it goes.

# %%
pool = torch.randn(38, 15 * D, generator=generator)  # the qkv rows of the 38 tokens
positions = torch.cat([torch.arange(length) for length in seq_lens.tolist()])
k_pages, v_pages = torch.zeros(8, PAGE, KH, D), torch.zeros(8, PAGE, KH, D)
with trace() as launch:
    q_all = rope_cache(pool, k_pages, v_pages, slots, positions)

expected = torch.zeros_like(k_pages), torch.zeros_like(v_pages)
parts = pool.view(38, -1, D).split([QH, KH, KH], dim=1)
reference.paged_kv_cache_update(*parts, *expected, slots, positions, cos, sin)
torch.testing.assert_close(k_pages, expected[0])
assert torch.equal(v_pages, expected[1])
draw.paged_cache(launch, "k_cache_ptr", slot_mapping="slots_ptr")

# %% [markdown]
# **Look.** The tokens of one call are scattered over the pages, and each page is filled from its first place on. Two
# pages are empty, and of the last page of each sequence a part. That is all the waste there is: less than a page a
# sequence.
#
# ## Rung 4: attention that reads pages
#
# Now the other side. One new token per sequence looks at everything in its pages. You know the loop from lesson 06:
# blocks of keys, [online softmax](06_attention.ipynb#Glossary), `exp2`. Two things are new.
#
# - The address of a key. Token `j` is in page `block_table[sequence, j // PAGE]`, so every turn of the loop first loads
#   page numbers, and with them the keys.
# - There is only one query, so there is no tile of queries. But three query heads look at the same key head.
#   **Predict.** If each query head had a program of its own, how often would each key be read?
#
# So a program takes one key/value head, and all query heads of its group: here 3, in a block of 4. `part` and `parts`
# you will need in the next rung. Until then there is one part.
#
# Four queries have a matrix instruction only on some GPUs, so the kernel takes a block of **three** dimensions instead
# of `tl.dot`. It works as with two: `q[:, None, :]` is (heads, 1, D), `k[None, :, :]` is (1, keys, D), their product is
# (heads, keys, D), and `tl.sum(..., axis=2)` adds up along D, which leaves a score for each head and key.


# %%
@triton.jit
def decode_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, block_table_ptr, seq_lens_ptr, o_ptr, lse_ptr, stride_tb, scale,
    KH: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: a part of a sequence, for the GROUP query heads that share a head of the cache."""
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part, parts = tl.program_id(2), tl.num_programs(2)
    member, d = tl.arange(0, BLOCK_H), tl.arange(0, D)
    head = (sequence * KH + kv_head) * GROUP + member
    mask_h = member < GROUP
    q = tl.load(q_ptr + head[:, None] * D + d[None, :], mask=mask_h[:, None], other=0.0).to(tl.float32)

    length = tl.load(seq_lens_ptr + sequence)
    share = tl.cdiv(tl.cdiv(length, parts), BLOCK_N) * BLOCK_N
    acc = tl.zeros((BLOCK_H, D), tl.float32)
    row_max, row_sum = tl.full((BLOCK_H,), -float("inf"), tl.float32), tl.zeros((BLOCK_H,), tl.float32)
    for start in range(part * share, tl.minimum((part + 1) * share, length), BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        exists = j < length
        page = tl.load(block_table_ptr + sequence * stride_tb + j // PAGE, mask=exists, other=0).to(tl.int64)
        row = ((page * PAGE + j % PAGE) * KH + kv_head)[:, None] * D + d[None, :]
        k = tl.load(k_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * scale
        scores = tl.where(exists[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p, rescale = tl.exp2(scores - new_max[:, None]), tl.exp2(row_max - new_max)
        row_sum, row_max = row_sum * rescale + tl.sum(p, axis=1), new_max
        acc = acc * rescale[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)

    safe = tl.where(row_sum == 0.0, 1.0, row_sum)  # a part without a key: zeros, and -inf
    out = head * parts + part
    o = (acc / safe[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + out[:, None] * D + d[None, :], o, mask=mask_h[:, None])
    tl.store(lse_ptr + out, row_max + tl.log2(safe), mask=mask_h)


# %%
def decode(q, parts=1):
    """Attention of one token a sequence to its pages: results and LSE of each part, (B, QH, parts, ...)."""
    batch = len(q)
    o, lse = torch.empty(batch, QH, parts, D), torch.empty(batch, QH, parts)
    scale = D**-0.5 * 1.4426950408889634  # exp2 instead of exp
    decode_kernel[(batch, KH, parts)](
        q, k_pages, v_pages, block_table, seq_lens, o, lse, block_table.stride(0), scale,
        KH=KH, GROUP=QH // KH, D=D, PAGE=PAGE, BLOCK_H=4, BLOCK_N=8,
    )  # fmt: skip
    return o, lse


last = seq_lens.cumsum(0) - 1  # the newest token of each sequence
with trace() as launch:
    o, _ = decode(q_all[last])
expected = reference.paged_decode_attention(q_all[last], k_pages, v_pages, block_table, seq_lens)
torch.testing.assert_close(o[:, :, 0], expected)
print("right, with", launch.programs, "programs")
draw.paged_cache(launch, "k_cache_ptr")

# %% [markdown]
# **Look.** The block table at the top, the pages below, in the colour of the sequence that read them. Hatched entries
# of the table are -1 and were not used. The numbers are the tokens' places in their sequences, and no slot was read
# that does not belong to the reader. How often was each read?

# %%
row = launch.ledger()["k_cache_ptr"]
print(f"keys: {row.read:,} bytes read, {row.least_read:,} necessary")

# %% [markdown]
# Once. With a program for each query head it would have been three times; that is what grouped heads buy, *if* the
# kernel makes use of it.
#
# ### With matrix units (optional)
#
# The course's kernel does the two products with `tl.dot` instead of `tl.sum`, and takes a block of 16 query heads for
# it: from there on each of the course's GPUs has an instruction for the [matrix units](05_matmul.ipynb#Glossary). So 13
# of 16 rows are idle for SmolLM2. That is no loss: the units have time, they wait for the keys.
#
# ## Rung 5: one sequence, many programs (optional)
#
# **Predict.** One chat, 8000 tokens, SmolLM2: how many programs does the grid of `decode_kernel` have? How many compute
# units does an MI300X have?
#
# Three programs, for three key/value heads, and 304 compute units. Each program would pull 2 MB through one compute
# unit while 301 do nothing. Memory is only fast when all ask.
#
# The way out is the [**split over the sequence**](#Glossary): several programs share a sequence, each takes a part of
# its tokens, and computes attention *as if those were all* (Dao, Haziza, Massa and Sizov, *Flash-Decoding*, 2023). The
# kernel can do that already: `part` says which tokens, and each part stores its own result and its
# [LSE](06_attention.ipynb#Glossary), the logarithm of the sum under its softmax. To base 2 here, since the kernel takes
# powers of 2.

# %%
with trace() as launch:
    o, lse = decode(q_all[last], parts=3)
print("programs:", launch.programs)
print("LSE of the parts, head 0 of each sequence:")
print(lse[:, 0].numpy().round(2))

# %% [markdown]
# Sequence 1 has 5 tokens, which is one block, so its other parts have no token: zeros, and an LSE of minus infinity.
#
# Which of the parts counts how much? Part $i$ divided by *its* sum $L_i$. The right divisor is the sum over all parts.
# So the result is a weighted mean of the parts, and the weights come from the LSE. This is the [**merge by
# LSE**](#Glossary), with $l_i = \log_2 L_i$:
#
# $$ o = \sum_i \frac{L_i}{\sum_j L_j} \, o_i = \sum_i \frac{2^{l_i - m}}{\sum_j 2^{l_j - m}} \, o_i, \qquad m = \max_j
# l_j $$
#
# It is a softmax over parts. The maximum is there for the same reason as in any softmax.

# %%
weights_of_parts = torch.exp2(lse - lse.amax(-1, keepdim=True))
weights_of_parts /= weights_of_parts.sum(-1, keepdim=True)
merged = (weights_of_parts[..., None] * o).sum(2)
torch.testing.assert_close(merged, expected)
print("weights, head 0 of each sequence:")
print(weights_of_parts[:, 0].numpy().round(2))
print(f"a plain mean would be off by up to {(o.mean(2) - expected).abs().max():.2f}")

# %% [markdown]
# As a kernel, this is exercise 7.5, and you will see it at work below. It is a second launch, and it reads the parts
# back, so parts should not be too many. `course_kernels/launch/` has the course's rule: as many as fill the GPU, but
# at least 256 tokens in each.
#
# ## The trap: slot -1
#
# An engine that serves many chats records the launches of a step once, as a *graph*, which the GPU replays without
# asking Python. A graph has fixed shapes. If it was recorded for a batch of 4 and only two chats are left, two rows
# must be [**padding rows**](#Glossary): rows that nobody asked for. They have no token, so they must not be stored
# anywhere. The custom is to give them **slot -1**. Here is a kernel that stores keys. The cache of all layers is one
# tensor, as it was allocated, and the kernel is told its layer:


# %%
@triton.jit
def store_kernel(k_ptr, cache_ptr, slots_ptr, layer, SLOTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    k = tl.load(k_ptr + token * WIDTH + cols, mask=mask, other=0.0)
    tl.store(cache_ptr + (layer * SLOTS + slot) * WIDTH + cols, k, mask=mask)


def store(kernel, k, cache, slots, layer):
    kernel[(len(k),)](k, cache, slots, layer, SLOTS=cache.shape[1], WIDTH=cache.shape[2], BLOCK=256)


k_all = torch.randn(4, 24, KH * D, generator=generator)  # 4 layers of 24 slots, in use by other chats
before = k_all.clone()
new = torch.randn(4, KH * D, generator=generator)  # a batch of 4, of which two are padding
new_slots = torch.tensor([17, 3, -1, -1])
store(store_kernel, new, k_all, new_slots, layer=2)
print("both tokens stored:", torch.equal(k_all[2, [17, 3]], new[:2]))
print("the other slots of layer 2 untouched:", torch.equal(k_all[2, 4:17], before[2, 4:17]))

# %% [markdown]
# Looks right, and no guard complained. And yet some other chat now gives strange answers. **Before you read on:** which
# row did the padding rows overwrite? Here is what changed:

# %%
for layer, slot in (k_all != before).any(-1).nonzero().tolist():
    print(f"layer {layer}, slot {slot}")

# %% [markdown]
# The last slot of the layer *before*. `2 * 24 - 1` is row 47, which is slot 23 of layer 1. Whoever has a token there
# has lost its key, and that without any error: the memory belongs to the cache. Only in layer 0 the guard would have
# complained.
#
# A slot is data, and data need a mask too:


# %%
@triton.jit
def careful_kernel(k_ptr, cache_ptr, slots_ptr, layer, SLOTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    k = tl.load(k_ptr + token * WIDTH + cols, mask=mask, other=0.0)
    exists = (slot >= 0) & (slot < SLOTS)
    tl.store(cache_ptr + (layer * SLOTS + slot) * WIDTH + cols, k, mask=mask & exists)


k_all = before.clone()
store(careful_kernel, new, k_all, new_slots, layer=2)
print("changed:", [tuple(place) for place in (k_all != before).any(-1).nonzero().tolist()])

# %% [markdown]
# No test without a -1 can find this. (Those of AMD's library aiter for this operation had none when this was written.)
# Put a -1 into every test, fill the cache before you call the kernel, and compare *all* of it afterwards.
#
# ## Swap it in
#
# Now the whole step:
#
# | operation | kernel | yours from |
# |---|---|---|
# | embedding | copy a row | 1.4 |
# | norms, with the addition | row reduction | 2.2, 2.3 |
# | the four matrices, and the logits | matrix times vector | 7.c, below |
# | split, RoPE, cache | one launch, rung 2 and 3 | 7.3 |
# | attention over the pages | rung 4 | 7.4 |
# | SwiGLU | elementwise | 3.2 |
# | the most likely token | top-k | 7.d |
#
# One kernel is missing. For a single token the matrix product of lesson 05 is a matrix times a *vector*: no tile is
# used twice. So read the weight once, as widely as possible, and add up along its rows. Write it: nearly all bytes of a
# token then go through a kernel of yours.

# %% [markdown] exercise_header="7.c"
# `y[0, n] = sum(x[0, k] * weight[n, k])`: a linear layer of one token. `x` is (1, K), the weight (N, K), both
# contiguous, and K is a multiple of 64. A program has `BLOCK_N` rows of the weight. It walks along K, and keeps a sum
# for each row and each of its columns in `products`, which it adds up once, after the loop.


# %% exercise="7.c"
@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One program, BLOCK_N rows of the weight (N, K), times the only row of x."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_K)
    products = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + start + cols).to(tl.float32)
        ### BEGIN SOLUTION
        offs = rows[:, None] * K + (start + cols)[None, :]
        w = tl.load(w_ptr + offs, mask=(rows < N)[:, None], other=0.0).to(tl.float32)
        products += w * x[None, :]
        ### END SOLUTION
    ### BEGIN SOLUTION
    tl.store(y_ptr + rows, tl.sum(products, axis=1).to(y_ptr.dtype.element_ty), mask=rows < N)
    ### END SOLUTION


def linear(x, weight):
    """x (1, K) times weight (N, K), K a multiple of 64."""
    N, K = weight.shape
    y = x.new_empty(1, N)
    linear_kernel[(triton.cdiv(N, 512),)](x, weight, y, N, K=K, BLOCK_N=512, BLOCK_K=64)
    return y


# %% [markdown]
# Everything together. `my_kernel` takes your answers where they have passed, and otherwise the course's kernel or
# solution. The prompt goes through your attention of exercise 6.4. Then one token, all of it on kernels:


# %%
def rope_and_cache(*arguments):
    return course_kernels.paged_kv_cache_update(*arguments)[0]


def whole_prompt(q, k, v):
    return course_kernels.flash_attention(q, k, v, causal=True)


yours = "1.4", "2.2", "2.3", "3.2", "6.4", "7.3", "7.4", "7.5", "7.c", "7.d"
gather_rows, linear, read_prompt = my_kernel("1.4"), my_kernel("7.c"), my_kernel("6.4", whole_prompt)
rope_and_cache = my_kernel("7.3", rope_and_cache)
kernels = {
    "embedding": lambda tokens, weight: gather_rows(weight, tokens),
    "rms_norm": my_kernel("2.2", course_kernels.rms_norm),
    "add_rms_norm": my_kernel("2.3", course_kernels.add_rms_norm),
    "linear": linear,
    "paged_kv_cache_update": lambda *arguments, style: (rope_and_cache(*arguments), None),
    "paged_decode_attention": my_kernel("7.4", course_kernels.paged_decode_attention),
    "silu_and_mul": my_kernel("3.2", course_kernels.silu_and_mul),
    "topk": my_kernel("7.d", course_kernels.topk),
}

# %%
cache = llm.new_cache(64, page_size=16)
with llm.using(attention=lambda q, k, v, causal: read_prompt(q, k, v)):
    tokens = [llm.next_token(prompt, cache)]
with llm.using(**kernels):
    before = engines.launches()
    tokens.append(llm.next_token(tokens[-1:], cache))
    launched = engines.launches() - before
print("One, two, three," + llm.tokenizer.decode(tokens))
print("same tokens as PyTorch:", tokens == [first, second])

# %% tags=["nbval-ignore-output"]
from course_lab import journal

print("your kernels:", sum(journal.history(number).solved for number in yours), "of", len(yours))

# %% [markdown]
# That token was made by kernels: 30 layers, 135 million weights, every number of it. What did it cost?

# %% tags=["nbval-ignore-output"]
mine = llm.operations(context=len(prompt), page_size=16)
print(f"{'':12} launches   MB moved")
print(f"PyTorch      {pytorch.kernels:8} {pytorch.bytes / 1e6:10.1f}")
print(f"kernels      {launched:8} {mine.bytes / 1e6:10.1f}")
assert 272 <= launched <= 280 and mine.bytes < pytorch.bytes

# %% [markdown]
# A quarter of the launches, and nearly the same bytes. (The course's top-k over 49152 numbers takes three launches.)
#
# Be honest about what this shows. In bytes you won nothing for a single short chat: the weights are what they are. You
# won launches (what those are worth is counted below), a cache in pages, and attention that reads it once. Those pay
# with many chats and long ones.
#
# ### The next token, in parts (optional)
#
# The matrices took the interpreter most of that time. So let PyTorch multiply, and go on. This time attention is split
# in two parts, as in rung 5, and **your** kernel of exercise 7.5 merges them:

# %%
merge_parts = my_kernel("7.5")


def split_attention(q, k_cache, v_cache, block_table, seq_lens, parts=2):
    (batch, heads, depth), (_, page, kv_heads, _) = q.shape, k_cache.shape
    o, lse = q.new_empty(batch * heads, parts, depth), q.new_empty(batch * heads, parts)
    scale = depth**-0.5 * 1.4426950408889634
    decode_kernel[(batch, kv_heads, parts)](
        q, k_cache, v_cache, block_table, seq_lens, o, lse, block_table.stride(0), scale,
        KH=kv_heads, GROUP=heads // kv_heads, D=depth, PAGE=page, BLOCK_H=4, BLOCK_N=4,
    )  # fmt: skip
    return merge_parts(o, lse).view(batch, heads, depth)


others = {name: kernel for name, kernel in kernels.items() if name != "linear"}
others["paged_decode_attention"] = split_attention
with llm.using(**others):
    tokens.append(llm.next_token(tokens[-1:], cache))
print("One, two, three," + llm.tokenizer.decode(tokens))
print("same tokens as PyTorch:", tokens == llm.generate(prompt, max_new_tokens=3, progress=False).tokens)

# %% [markdown]
# ### The most likely tokens (optional)
#
# A token is chosen from the largest of 49152 scores: *top-k*. With a small k that is k rounds of a maximum, and what
# has been taken must not win again. `tl.argmax(x, axis=0)` says where the largest is; of equal ones, the first.

# %% [markdown] exercise_header="7.d"
# The `k` largest of each row, the largest first, and their places. `N` is at least `k`. An element may be $-\infty$ in
# these tests, but there are always `k` that are not. A program has a whole row; that is simple, and right. (The
# course's [`topk`](../course_kernels/topk.py) cuts a long row into chunks: more programs, a second launch to choose
# among theirs.)


# %% exercise="7.d"
@triton.jit
def topk_kernel(x_ptr, values_ptr, places_ptr, N, k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
    for i in range(k):
        place = tl.argmax(x, axis=0)
        tl.store(values_ptr + row * k + i, tl.max(x, axis=0))
        tl.store(places_ptr + row * k + i, place)
        x = tl.where(cols == place, -float("inf"), x)
    ### END SOLUTION


def topk(x, k):
    rows, N = x.shape
    values, places = x.new_empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
    topk_kernel[(rows,)](x, values, places, N, k, BLOCK=triton.next_power_of_2(N))
    return values, places


# %% [markdown]
# ## Count the launches (optional)
#
# What is a launch worth? Hugging Face and AMD measured 4.2 µs on an MI300X for a small fused kernel with a single row
# to do ([*Creating custom kernels for the AMD MI300*](https://huggingface.co/blog/mi300kernels), 2025). Take that as
# the price of a launch with next to nothing in it, and compare with the time that the bytes of a token need:

# %% tags=["nbval-ignore-output"]
python = bench.stored("call").find("bare Triton launch", "rms_norm, 1 x 576").seconds
kernels = sum(llm.count_calls(page_size=16).values())
bound = hardware.lower_bound(bytes=weights + 1000 * token, flops=0, gpu="MI300X")
print(f"PyTorch:    {pytorch.kernels:5} launches, {pytorch.kernels * 4.2e-3:5.2f} ms at 4.2 µs")
print(f"one each:   {kernels:5} launches, {kernels * 4.2e-3:5.2f} ms")
print(f"the bytes of a token, 1000 before it: {bound.seconds * 1e3:.2f} ms")
print(f"and to ask for 274 launches, at {python * 1e6:.0f} µs each: {kernels * python * 1e3:.1f} ms")
assert kernels == 274 and bound.seconds * 1e3 < 0.1 and 4.2e-6 < python < 1e-4

# %% [markdown]
# A small model is all [**launch overhead**](#Glossary). With one kernel for each operation of the model, most of
# PyTorch's time is gone, and still launches cost twenty times what the bytes do. The last line is the other side: what
# Python needs to ask for them, measured on the host of an NVIDIA H200. Engines therefore do two more things. They fuse
# further, as in rung 2. And they record a step once, as a graph, which the GPU replays without asking Python.
#
# ## 16 bytes a lane: the packed layout (optional)
#
# A page so far is `(place, head, D)`: the flash layout. vLLM has another one for keys, the
# [**packed layout**](#Glossary): `(head, D / x, place, x)`, where `x` numbers are 16 bytes. So 8 of bfloat16. In words:
# cut each key into pieces of 16 bytes, and put the first pieces of all tokens of the page side by side, then their
# second pieces, and so on.
#
# Why would anyone? Let every *lane* own one key. It multiplies and adds up alone, and no sum crosses lanes. Here is
# that loop, for one page of 64 tokens and one head. The strides say how far the next token is, and the next piece.
# `tl.static_range` is a loop of known length that the compiler writes out, turn after turn:


# %%
@triton.jit
def scores_kernel(q_ptr, k_ptr, scores_ptr, TOKEN: tl.constexpr, PIECE: tl.constexpr, D: tl.constexpr, X: tl.constexpr):
    """One program of one wave: 64 tokens, a lane for each, X numbers of its key at a time."""
    token, x = tl.arange(0, 64), tl.arange(0, X)
    total = tl.zeros((64,), tl.float32)
    for piece in tl.static_range(D // X):
        q = tl.load(q_ptr + piece * X + x).to(tl.float32)
        k = tl.load(k_ptr + piece * PIECE + token[:, None] * TOKEN + x[None, :]).to(tl.float32)
        total += tl.sum(q[None, :] * k, axis=1)
    tl.store(scores_ptr + token, total)


# %% [markdown]
# Three ways to keep the keys of a page: flash; packed with 16 bytes; and the extreme, `x = 1`, where the page is simply
# transposed. **Predict** for each: how wide is a lane's load, how many loads are there for a key of 64 numbers, and how
# many lines of 128 bytes does one load of the 64 lanes touch?

# %% tags=["nbval-ignore-output"]
keys = torch.randn(64, KH, 64, generator=generator).bfloat16()  # (place, head, D)
query, scores = torch.randn(64, generator=generator).bfloat16(), torch.empty(64)
ways = {
    "flash": (keys, KH * 64, 8, 8),  # memory, elements to the next token, elements to the next piece, x
    "packed, x = 8": (keys.view(64, KH, 8, 8).permute(1, 2, 0, 3).contiguous(), 8, 64 * 8, 8),
    "transposed, x = 1": (keys.permute(1, 2, 0).contiguous(), 1, 64, 1),
}
print(f"{'':18}  loads of keys  bytes a lane  lines a load")
for name, (memory, token_step, piece_step, x) in ways.items():
    shape = {"TOKEN": token_step, "PIECE": piece_step, "D": 64, "X": x, "num_warps": 1}
    run = simulator.simulate(scores_kernel, (1,), (query, memory, scores), arch="gfx942", **shape)
    torch.testing.assert_close(scores, keys[:, 0].float() @ query.float(), atol=1e-4, rtol=1e-4)
    (line,) = (line for line in run.by_line if line.text.startswith("k = "))
    loads = line.kinds["global load"]
    print(f"{name:18}  {loads:13}  {64 * 64 * 2 // (64 * loads):12}  {line.loads.lines / loads:12.0f}")

# %% [markdown]
# **Look** at one load of a wave. A box is a piece of 16 bytes; eight of them are a line. First the flash layout, where
# the same piece of the next token is a whole row away:

# %%
draw.cache_lines([token * KH * 64 // 8 for token in range(64)], itemsize=16)

# %% [markdown]
# Then packed:

# %%
draw.cache_lines(range(64), itemsize=16)

# %% [markdown]
# **Why.** 16 bytes is the widest load of a lane (`dwordx4`), so wider pieces gain nothing. Narrower ones need more
# loads: 64 instead of 8 when transposed. And the same pieces of all tokens lie side by side, so that each load of the
# wave is one stretch of 1024 bytes.
#
# The flash layout has its own remedy: let 8 lanes share a key. They read its 128 bytes side by side, and add up across
# lanes. `tl.dot` does that by itself, so the course's attention reads the flash layout. The packed one is for kernels
# in which a lane owns a token, and for caches that such kernels must share. `paged_kv_cache_update` writes both;
# packing is exercise 7.6.
#
# ## A cache of fp8 (optional)
#
# At long contexts the cache is nearly all that is read. Half the bytes are nearly half the time: store
# [fp8](03_fused_activations.ipynb#Glossary). A number then has 8 bits, with 3 after the leading one, and goes up to 448
# (e4m3fn). So it is stored as `round(x / scale)`, and multiplied by the scale when it is read.
#
# In lesson 03 each row had a scale of its own. Here there is one [**cache scale**](#Glossary) for all keys of a layer,
# and one for all values. It is fixed in advance: tokens that are stored already cannot be scaled again. What if you
# leave it away, that is, take 1? Look at real keys and values:

# %%
_, k15, v15, *_ = llm.activations("layers.15.cache")
fp8 = torch.float8_e4m3fn


def error(x, scale):
    """Of x kept in fp8 with this scale, as a part of x: root mean square."""
    back = (x / scale).clamp(-448, 448).to(fp8).float() * scale
    return float((back - x).square().mean().sqrt() / x.square().mean().sqrt())


for name, x in (("keys", k15), ("values", v15)):
    largest = x.abs().max()
    print(f"{name:7} largest {largest:6.2f}", end="   error with a scale of")
    fitting = float(largest) / 448
    for scale in (1.0, fitting, fitting / 16, 100.0):
        print(f"   {scale:.4f}: {error(x, scale):.1%}", end="")
    print()

# %% [markdown]
# Two or three percent, which is what 3 bits after the leading one give. fp8 is a *floating*-point format, so a scale of
# 1 happens to do here. The third scale is too small and cuts off the large numbers: three quarters of the result are
# lost. The last is far too large and pushes the small ones down to where fp8 has no exponents left. So scales are
# measured on real data, with some room above.
#
# The course's kernel scales, clamps and rounds on the way into the cache, in the same launch:

# %%
k8, v8 = (torch.zeros(1, 16, KH, D, dtype=fp8) for _ in range(2))
k_scale, v_scale = float(k15.abs().max()) / 448, float(v15.abs().max()) / 448
with trace() as launch:
    course_kernels.paged_kv_cache_update(
        None, k15[0, :9], v15[0, :9], k8, v8, torch.arange(9), k_scale=k_scale, v_scale=v_scale
    )
written = sum(launch.ledger()[name].written for name in ("k_cache_ptr", "v_cache_ptr"))
print(f"launches: {len(launch)}, bytes for 9 tokens: {written:,} instead of {k15[0, :9].nbytes + v15[0, :9].nbytes:,}")
restored = k8[0, :9].float() * k_scale
print(f"largest error: {(restored - k15[0, :9]).abs().max() / k15.abs().max():.1%} of the largest number")

# %% [markdown]
# One trap, which lesson 03 told you about: an MI300X has an fp8 of its own (e4m3fnuz, up to 240), an MI355X the one
# above. The same bits mean half the number there. A cache belongs to the type that wrote it.
#
# ## Store less: MLA (optional)
#
# Grouped heads store a third of the keys. DeepSeek goes further: [**multi-head latent attention**](#Glossary), MLA
# (*DeepSeek-V2*, 2024). The cache holds no keys at all. It holds one [**latent**](#Glossary) vector $c_j$ for each
# token, from which every head can make its key: $k_{jh} = W_h^\top c_j$. In numbers a token and layer:

# %%
many, grouped, latent = 2 * 128 * 128, 2 * 8 * 128, 512 + 64
print(f"128 heads of 128, keys and values: {many:6,}")
print(f"  8 heads of 128, shared:          {grouped:6,}")
print(f"MLA, a latent and 64 for RoPE:     {latent:6,}   {many / latent:.0f} times less than the first")

# %% [markdown]
# But must decode then make 128 keys for every earlier token, again and again? No. Put brackets elsewhere:
#
# $$ q_h \cdot k_{jh} = q_h \cdot (W_h^\top c_j) = (W_h\, q_h) \cdot c_j $$
#
# The query is multiplied by the weight, once. It *absorbs* the weight, and then looks at the latents themselves. That
# is [**weight absorption**](#Glossary). Convince yourself, and count:

# %%
heads, depth, size, tokens = 16, 128, 512, 1000
query = torch.randn(heads, depth, generator=generator).double()
w = torch.randn(heads, size, depth, generator=generator).double() / size**0.5
latents = torch.randn(tokens, size, generator=generator).double()

keys = torch.einsum("tl,hlp->htp", latents, w)  # a key for each token and head
plainly = torch.einsum("hp,htp->ht", query, keys)
absorbed = torch.einsum("hp,hlp->hl", query, w)  # once
cleverly = torch.einsum("hl,tl->ht", absorbed, latents)
torch.testing.assert_close(plainly, cleverly)
many_keys, one_query = 2 * heads * depth * size * tokens, 2 * heads * depth * size
print(f"the same scores; multiplications by w: {many_keys / 1e6:,.0f} million, or {one_query / 1e6:.1f} million")

# %% [markdown]
# [RoPE](04_rope.ipynb#Glossary) would spoil it: a turned key is $R_j W_h^\top c_j$, and $R_j$, which differs from token
# to token, stands between the two. So MLA gives position a part of its own. 64 further numbers of a token are turned
# and stored beside the latent, and each query has 64 to meet them.
#
# The names of these parts: `nope` is what has no position (*no positional embedding*), `pe` what is turned. `q_nope` is
# a head's query, `w_uk` the weight that it absorbs (it would have brought the latent *u*p to *k*eys), `q_pe` its 64
# turned numbers. `k_nope` is the latent itself, `k_pe` the 64 turned numbers of a token.
#
# Before attention can run, a step then has three small jobs: multiply each head's query by its weight, turn 64 numbers
# of each query, and put latent and turned key into the cache. They need nothing of each other. As separate launches
# each would be too small for the GPU, so one launch has programs for all three, told apart by their number:
#
# ```
# pid = tl.program_id(0)
# if pid < tiles:            multiply a tile
# elif pid < tiles + turns:  turn some queries
# else:                      fill some rows of the cache
# ```

# %%
B, heads, depth, size, rope_dim = 16, 2, 32, 64, 32
q_nope, q_pe = (torch.randn(B, heads, n, generator=generator) for n in (depth, rope_dim))
k_nope, k_pe = (torch.randn(B, 1, n, generator=generator) for n in (size, rope_dim))
w_uk = torch.randn(heads, size, depth, generator=generator)
latent_cache = torch.zeros(32, 1, size + rope_dim)
inputs = (q_nope, w_uk, q_pe, k_nope, k_pe)
slots16, positions16 = (torch.randperm(32, generator=generator)[:B] for _ in range(2))
where = (slots16, positions16, *course_kernels.rope_tables(32, rope_dim))
with trace() as launch:
    q_out = course_kernels.mla_bmm_rope_cache(*inputs, latent_cache, *where)
expected = reference.mla_bmm_rope_cache(*inputs, torch.zeros_like(latent_cache), *where)
torch.testing.assert_close(q_out, expected, atol=1e-4, rtol=1e-4)
print("launches:", len(launch), " programs:", launch.programs)
borders = {"head 0": 0, "head 0, turned": 64, "head 1": 96, "head 1, turned": 160}
launch.picture("out_ptr", columns=heads * (size + rope_dim), marks=borders)

# %% [markdown]
# **Look.** A row is a token. Each head has 64 numbers of its absorbed query, then 32 turned ones. Programs 0 to 3
# multiply: each makes 32 numbers of one head, for all 16 tokens. Programs 4 and 5 turn: each has eight tokens, of both
# heads. The other sixteen are not in this picture, because they fill the cache, a row each. This is *launch fusion*:
# nothing stays in registers between the jobs, only launches are saved. It is worth it. In vLLM, joining two launches of
# this kind took 9.39 µs a layer down to 4.74 µs on an MI355X (Kimi K3,
# [vllm#57640](https://github.com/vllm-project/vllm/pull/57640)).
#
# ## On real hardware (optional)
#
# First, the machine code of the fused kernel of rung 2, in bfloat16, on an MI300X and on a Radeon RX 7900:

# %% tags=["nbval-ignore-output"]
half = [x.bfloat16() for x in (pool, q_all, k_pages, v_pages)]
arguments = (*half, slots, positions, cos, sin)
sizes = {"QH": QH, "KH": KH, "HALF": D // 2, "num_warps": 1}
for arch in ("gfx942", "gfx1100"):
    report = amd_report(rope_cache_kernel, *arguments, arch=arch, **sizes)
    print(f"{arch:8} {report.vgprs} registers, loads {report.loads}, stores {report.stores}, LDS {report.lds}")
    assert report.spills == 0 and report.lds == 0
run = simulator.simulate(rope_cache_kernel, (38, 15), arguments, arch="gfx942", **sizes)
print(f"one head: {run.instructions / (38 * 15):.0f} instructions; lanes at work: {run.active:.0%}")

# %% [markdown]
# A head of 64 numbers is two halves of 32, and a wave of an MI300X has 64 lanes: it loads one number a lane, 16 bits at
# a time, and half of the lanes repeat what the other half does. It is right, and for one token nobody will notice. For
# a long prompt the course's kernel gives each program several heads of several tokens, so that each lane loads 128
# bits:

# %% tags=["nbval-ignore-output"]
q16, k16, v16 = (torch.empty(64, heads, 128, dtype=torch.bfloat16) for heads in (32, 8, 8))  # Llama 3 8B's heads
pages, numbers = torch.empty(16, 16, 8, 128, dtype=torch.bfloat16), torch.arange(64)
tables = course_kernels.rope_tables(64, 128)
with trace() as launch:
    course_kernels.paged_kv_cache_update(q16, k16, v16, pages, pages.clone(), numbers, numbers, *tables)
report = launch.amd_report(arch="gfx942")
assert max(report.loads) == 128 and report.spills == 0
report

# %% [markdown]
# Now attention. It must be able to do one thing: have many bytes on the way at once. Look at how the keys are fetched
# and multiplied on an MI300X and on a Radeon RX 9070, and at what becomes of the block table in the kernel of rung 4:

# %% tags=["nbval-ignore-output"]
q1 = torch.randn(1, 32, 128, generator=generator).bfloat16()
page_order = torch.randperm(16, generator=generator).int().view(1, 16)
length = torch.tensor([250], dtype=torch.int32)
pages = torch.randn(16, 16, 8, 128, generator=generator).bfloat16()
with trace() as launch:
    course_kernels.paged_decode_attention(q1, pages, pages, page_order, length)
for arch in ("gfx942", "gfx1201"):
    report = launch.amd_report(arch=arch)
    print(
        f"{arch:8} {report.vgprs:3} registers, loads of keys {max(report.loads)} bits, LDS {report.lds:6,} bytes",
        end=", ",
    )
    print(f"{report.mix['matrix']} matrix instructions, spills {report.spills}")
    assert report.spills == 0 and max(report.loads) == 128 and report.mix["matrix"]
listed = amd_report(
    decode_kernel, q1, pages, pages, page_order, length, q1.float(), torch.empty(1, 32, 1), 16, 0.1,
    KH=8, GROUP=4, D=128, PAGE=16, BLOCK_H=4, BLOCK_N=16, arch="gfx942",
)  # fmt: skip
listed.listing(only="tl.load(block_table")

# %% [markdown]
# That is the price of pages: one load of page numbers in each turn, before the keys can be asked for. Does it cost more
# memory traffic when pages lie about? Let the simulator count lines, once with pages in order and once shuffled:

# %% tags=["nbval-ignore-output"]
lines = []
for name, order in (("in order", torch.arange(16).int().view(1, 16)), ("shuffled", page_order)):
    with using("gfx942", profile=True) as runs:  # every launch inside runs on a simulated MI300X
        course_kernels.paged_decode_attention(q1, pages, pages, order, length)
    lines.append(sum(run.loads.lines for run in runs))
    print(f"{name}: {lines[-1]:,} lines of 128 bytes, coalescing {runs[0].loads.coalescing:.0%}")
assert lines[0] == lines[1]

# %% [markdown]
# None. A token's key of 128 bfloat16 numbers is two whole lines, wherever its page is. Pages cost an instruction, not
# bandwidth.
#
# And time? These figures were measured by the course on an NVIDIA H200, Llama 3 8B's heads; the same Triton source
# compiles for both makers. "copy" moves as many bytes by a plain copy. First the update of the cache:

# %% tags=["nbval-ignore-output"]
updates = bench.stored("paged_kv_cache_update", *(f"Llama 3 8B, {tokens} tokens" for tokens in (1, 4096, 16384)))
for size in ("Llama 3 8B, 1 tokens", "Llama 3 8B, 16384 tokens"):
    assert updates.find("eager", size).seconds > 8 * updates.find("ours", size).seconds
updates

# %% [markdown]
# For one token the data are a few KB, and what you see is launches: one against PyTorch's many. For thousands of tokens
# you see bytes. Then attention over the cache:

# %% tags=["nbval-ignore-output"]
sizes = "batch 1, context 4096", "batch 64, context 4096", "batch 64, context 32768"
looks = bench.stored("paged_decode_attention", *sizes)
assert looks.find("ours", "batch 64, context 32768").bandwidth > 4e12
looks

# %% [markdown]
# PyTorch has to gather the pages into rows first: a copy of the cache for each token. With 64 sequences the kernel
# reads at about nine tenths of the 4.8 TB/s of the H200's data sheet, as fast as a kernel copies. Beware of other
# copies to compare with: the driver's memcpy moves 1 GiB at 2.7 TB/s when it is recorded as a graph, as all these
# launches were, and at 4.2 TB/s launched by itself ([benchmarks](../benchmarks/README.md)). *FlashInfer* is a library
# of such kernels. One sequence of 4096 tokens is the hard case: 17 MB are over so soon that the two launches show.
#
# If you have a GPU, measure yours:

# %% tags=["nbval-ignore-output"]
if bench.available():
    device = engines.device()
    pages = torch.randn(64 * 256, 16, 8, 128, device=device, dtype=torch.bfloat16)  # 64 sequences of 4096 tokens
    order = torch.randperm(64 * 256, device=device).int().view(64, 256)
    full = torch.full((64,), 4096, device=device, dtype=torch.int32)
    q64 = torch.randn(64, 32, 128, device=device, dtype=torch.bfloat16)
    values = pages.clone()

    def look():
        return course_kernels.paged_decode_attention(q64, pages, values, order, full)

    print(bench.time(look, name="course", bytes=2 * pages.nbytes))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Kernels as layers (optional)
#
# The course's model calls functions. Most models are made of `nn.Module`s instead. `course_kernels.modules` has the
# kernels in that form, with the parameter names of Hugging Face's Llama, so that its weights load into them:

# %%
from course_kernels.modules import SwiGLU

layer = llm.weights.layers[5]
gate, up = layer.gate_up.chunk(2)
mlp = SwiGLU(576, 1536)
mlp.load_state_dict({"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": layer.down})
hidden = llm.activations("layers.5.gate_up", prompt)[0]
with torch.no_grad(), trace() as launches:
    y = mlp(hidden)
torch.testing.assert_close(y, swiglu(hidden @ layer.gate_up.T) @ layer.down.T, atol=1e-4, rtol=1e-4)
print("same as the model's own MLP;", len(launches), "launch")

# %% [markdown]
# `RMSNorm`, `LayerNorm`, `SwiGLU` and `RotaryEmbedding` are there. Put them in the place of a model's own layers and
# load its state dict.
#
# ## What to read next
#
# - The exercises: [`exercises/07_kv_cache.ipynb`](../exercises/07_kv_cache.ipynb). 7.1 stores rows, 7.2 and 7.3 fill
#   pages, 7.4 is a repair of attention, 7.5 the merge, and 7.6 packs keys in fp8.
#
# Here the short path ends: from two vectors to a model that decodes on your kernels. Next:
# [08 The kernel clinic](08_clinic.ipynb).
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | bytes of the cache, a token | `2 * layers * KH * D * itemsize` |
# | slot of token $j$ | `block_table[b, j // PAGE] * PAGE + j % PAGE` |
# | row of slot $s$, head $h$ | `cache_ptr + (s * KH + h) * D`, `s` in int64 |
# | store only what has a slot | `mask & (slot >= 0) & (slot < SLOTS)` |
# | $K_t = \mathrm{RoPE}_t(k_t)$ | `angle = position * HALF + i`; stored at `slot`, never at `position` |
# | packed: number $d$ of a key | `cache_ptr + d // X * stride_piece + place * X + d % X` |
# | fp8: $\mathrm{round}(x / s)$ | `tl.clamp(x / scale, -448.0, 448.0).to(cache_ptr.dtype.element_ty)` |
# | part $i$ of $n$ of a sequence | `range(part * share, min((part + 1) * share, length), BLOCK_N)` |
# | $l_i = \log_2 \sum 2^{s}$ | `row_max + tl.log2(row_sum)`; no key: $-\infty$ |
# | $o = \sum_i 2^{l_i - m} o_i / \sum_i 2^{l_i - m}$ | `weight = tl.exp2(lse - tl.max(lse, axis=0))`, weighted mean |
# | $q \cdot (W^\top c) = (W q) \cdot c$ | multiply the query by `w_uk`, look at the latents |
#
# ### Glossary
#
# - **decode**: making tokens one at a time; each is a forward pass over a single token
# - **KV cache**: the keys and values of all earlier tokens, for each layer
# - **page**: a few slots of the cache, handed out together; vLLM's *block*
# - **slot**: the place of one token in the cache
# - **block table**: for each sequence, its pages in order
# - **slot mapping**: for each new token, the slot where it goes; -1 for none
# - **packed layout**: keys cut into pieces of 16 bytes, with the same pieces of neighbouring tokens side by side
# - **cache scale**: the one number by which all keys, or all values, of an fp8 cache are divided
# - **split over the sequence**: several programs take a part of one sequence each; also Flash-Decoding
# - **merge by LSE**: the mean of the parts' results, weighted by the sums under their softmaxes
# - **multi-head latent attention** (MLA): attention that keeps a latent vector of each token instead of keys and values
# - **latent**: a short vector from which all heads make their keys and values
# - **weight absorption**: multiplying the query by the weight that would have made the keys
# - **padding row**: a row of a batch of fixed size that belongs to no token
# - **launch overhead**: the time that starting a kernel takes, however little it does
