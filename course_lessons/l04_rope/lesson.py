# %% [markdown]
# # 04 RoPE in every layout
#
# Attention compares tokens with each other, and by itself it does not know where they stand: *dog bites man* and *man
# bites dog* would be the same to it. [**RoPE**](#Glossary) (rotary position embedding) tells it, by turning pairs of
# numbers. The arithmetic is three operations for each number. All the difficulty is in *which* number: which is its
# partner, which angle is its angle, and where in memory it lies.
#
# You need lesson 02: rows, fusing, float32 inside. It takes about 45 minutes, without the exercises. Its short path
# takes about 20: skip what is marked as optional.
#
# **In doing so, you will learn**
#
# - why turning makes a score depend on the distance of two tokens, and on nothing else
# - the two ways to pair the elements of a head, what each costs in loads, and how weights change between them
# - how one kernel serves every layout: strides, positions, offsets, packed sequences
# - why an angle kept in bfloat16 breaks a model at position 8191
# - what makes a kernel that writes over its input safe, and what only makes it look safe

# %% tags=["nbval-ignore-output"]
import torch
import triton
import triton.language as tl

import course_kernels
import course_lab
from course_kernels import reference, rope_tables
from course_lab import bench, model, my_kernel
from gfxlab import amd_report, draw, engines, hardware, simulator, trace, using
from gfxlab.tracing import eager

llm = model.load(device="cpu")  # on the CPU, so that every launch below can be watched

# %% [markdown]
# ## Where this sits in the model
#
# The attention half of a layer begins with a matrix product, the [**projection**](#Glossary). It makes three kinds of
# vectors from each token: [**queries**](#Glossary), [**keys**](#Glossary) and [**values**](#Glossary). Each has 64
# elements here, and is called a [**head**](#Glossary). What attention does with them is the subject of lesson 06. For
# now it is enough to know its first step:
#
# > The dot product of a query of one token and a key of another is a [**score**](#Glossary). The higher it is, the more
# > the first token takes from the value of the second.
#
# The projection returns everything in one row for each token. Before scores are computed, that row is cut into heads,
# and the queries and keys are turned according to the token's position:

# %%
qkv, cos, sin, positions, q_heads, kv_heads, head_dim = llm.activations("layers.0.rope")
print("qkv        ", tuple(qkv.shape), " one row for each token of the prompt")
print("a row      ", f"{q_heads} heads of queries, {kv_heads} of keys, {kv_heads} of values, {head_dim} elements each")
print("cos and sin", tuple(cos.shape), "one row for each position")
print("positions  ", positions[:6].tolist(), "...")
print("calls      ", llm.count_calls()["split_qkv_rope"], "in each forward pass")

# %% [markdown]
# ```
# one row:   | Q0 | Q1 | ... | Q8 | K0 | K1 | K2 | V0 | V1 | V2 |     15 heads of 64 elements
# column:    0                   576            768            960
# ```
#
# Nine heads of queries share three heads of keys and values: each head of keys serves three of queries. That is
# [**grouped-query attention**](#Glossary) (GQA). It makes the keys and values, which a model must remember for all
# earlier tokens, three times smaller. (With as many key heads as query heads it is [**MHA**](#Glossary), multi-head
# attention.)
#
# What is one step of turning, in addresses? Take the first half of a head as numbers $a$, the second half as their
# partners $b$.

# %% [markdown] exercise_header="4.a"
# A quarter turn: $(a, b) \to (-b, a)$, for every head of every token. A program has one head. The loads are given.


# %% exercise="4.a"
@triton.jit
def quarter_turn_kernel(x_ptr, y_ptr, heads, D: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start = (token * heads + head) * D
    pair = tl.arange(0, D // 2)
    a = tl.load(x_ptr + start + pair)
    b = tl.load(x_ptr + start + D // 2 + pair)
    ### BEGIN SOLUTION
    tl.store(y_ptr + start + pair, -b)
    tl.store(y_ptr + start + D // 2 + pair, a)
    ### END SOLUTION


def quarter_turn(x):
    tokens, heads, D = x.shape
    y = torch.empty_like(x)
    quarter_turn_kernel[(tokens, heads)](x, y, heads, D=D)
    return y


# %% [markdown]
# Here is the operation as people write it in PyTorch.
#
# **Predict.** For each token 960 numbers must be read, 960 written, and a row of cosines and one of sines read. How
# many times these bytes does PyTorch move?


# %% tags=["nbval-ignore-output"]
def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def composed(qkv, cos, sin, positions):
    q, k, v = qkv.view(-1, 15, 64).split([9, 3, 3], dim=1)
    cos, sin = cos[positions][:, None], sin[positions][:, None]
    return rotate(q, cos, sin), rotate(k, cos, sin), v.contiguous()


with eager.count() as ops:
    composed(qkv, cos, sin, positions)
necessary = 2 * qkv.nbytes + 2 * len(qkv) * 32 * 4
assert ops.kernels >= 15 and 3 < ops.bytes / necessary < 4
print(f"necessary: {necessary:,} bytes")
print(f"moved:     {ops.bytes:,} bytes, {ops.bytes / necessary:.1f} times as much")
ops

# %% [markdown]
# Seventeen kernels in each of 30 layers, and nearly four times the bytes, for a rotation. At the end of this lesson it
# is one kernel that moves each byte once.
#
# ## The idea on paper
#
# Take two elements $(a, b)$ of a head and read them as an arrow in a plane. Turn the arrow by an angle $\varphi$:
#
# $$ (a, b) \;\to\; (a \cos\varphi - b \sin\varphi, \;\; b \cos\varphi + a \sin\varphi) $$
#
# Its length stays. RoPE (Su and others, *RoFormer*, 2021) turns the arrow by an angle that grows with the token's
# position: position $p$ turns by $p\,\theta$. Queries and keys are turned alike.
#
# Why does that help? The dot product of two arrows is the product of their lengths, times the cosine of the angle
# *between* them. Move both tokens seven places on, and both arrows turn by $7\,\theta$. What happens between them?


# %%
def turned(arrow, places, theta=0.35):
    """One arrow, turned by the angle of each place."""
    angle = theta * torch.tensor(places, dtype=torch.float32)[:, None]
    return rotate(arrow.expand(len(places), 2), angle.cos(), angle.sin())


places = [(3, 0), (10, 7), (17, 14), (17, 16)]  # of the query, of the key
query, key = torch.tensor([0.9, 0.35]), torch.tensor([0.75, -0.2])
draw.relative_turns(turned(query, [q for q, _ in places]), turned(key, [k for _, k in places]), places)

# %% [markdown]
# Nothing. The first three circles show the same angle and the same score, though the arrows point elsewhere. Only in
# the fourth, where the tokens are closer together, is the score another one. **The score knows the distance of two
# tokens, and not where they stand.**
#
# One arrow would not do: after a full turn it is back where it was, and two distances look alike. So a head of 64
# elements consists of 32 pairs, which turn at different speeds, like the hands of a clock. Pair $i$ of a head of width
# $D$ turns by $\theta_i = base^{-2i/D}$ for each position. RoFormer's base is 10,000; SmolLM2's configuration says
# 100,000. Sines and cosines of all these angles are the same for every head and layer, so they are computed once and
# kept as two [**tables**](#Glossary), with a row for each position:
#
# | on paper | in the kernel |
# |---|---|
# | position $p$, pair $i$: $\cos p\,\theta_i$ | `cos = tl.load(cos_ptr + position * (D // 2) + pair)` |
# | first element of the pair | `a`, loaded from wherever the pair has it |
# | $a \cos - b \sin$ | `a * cos - b * sin` |
# | $b \cos + a \sin$ | `b * cos + a * sin` |
#
# ### All pairs at once (optional)
#
# Does the distance rule survive, with 32 pairs of different speeds? Put *one* query vector and *one* key vector at each
# of six positions, and compute all scores.
#
# **Predict.** Which entries of the 6 × 6 matrix are equal?

# %%
one_query, one_key = qkv[5, :64], qkv[9, 576:640]  # as they come from the projection, not turned yet
at_each = [reference.rope(x.expand(6, 1, 64), cos, sin, layout="thd")[:, 0] for x in (one_query, one_key)]
print("scores, a row for each position of the query")
print((at_each[0] @ at_each[1].T).numpy().round(2))

# %% [markdown]
# Each diagonal holds one number. (A row is a position of the query, a column one of the key; a diagonal is a distance.)
#
# ## Rung 1: one program, one head
#
# Which two elements are a pair? SmolLM2 takes element $i$ and element $i + 32$: the first half of the head holds the
# `a`s, the second half the `b`s. This [**pair style**](#Glossary) is called [**neox**](#Glossary), after GPT-NeoX. In
# Hugging Face's library Llama, Qwen and Mistral have it too.
#
# A program takes one head of one token, a block of 32 pairs. For the moment, token number and position are the same.


# %%
@triton.jit
def one_head_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pair = tl.arange(0, D // 2)
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    start = (token * heads + head) * D
    a = tl.load(x_ptr + start + pair).to(tl.float32)
    b = tl.load(x_ptr + start + D // 2 + pair).to(tl.float32)
    tl.store(y_ptr + start + pair, (a * cos - b * sin).to(y_ptr.dtype.element_ty))
    tl.store(y_ptr + start + D // 2 + pair, (b * cos + a * sin).to(y_ptr.dtype.element_ty))


x = qkv[:8, :576].reshape(8, 9, 64).contiguous()  # the queries of eight tokens
y = torch.empty_like(x)
with trace() as launch:
    one_head_kernel[(8, 9)](x, y, cos, sin, 9, D=64)
torch.testing.assert_close(y, reference.rope(x, cos, sin, layout="thd"))  # thd: tokens, heads, D
print("same as PyTorch, up to float32 rounding")

# %% [markdown]
# Now look at what the kernel does to a head. Give it the *unit vectors*, heads that are 0 but for a single 1. What
# comes back shows where each element goes. Here is a small head of 16 elements at position 1. An arc joins two elements
# that are turned together, a circle shows by how much:

# %%
units = torch.eye(16).expand(2, 16, 16).contiguous()  # two positions, 16 heads, each a unit vector
turned_units = torch.empty_like(units)
one_head_kernel[(2, 16)](units, turned_units, *rope_tables(2, 16), 16, D=16)
draw.rope_pairs(turned_units[1])

# %% [markdown]
# **Look.** Pair 0 turns by a whole radian, 57°, at each position. Each pair is slower than the one before. (The base
# here is 10,000, which `rope_tables` takes unless told otherwise.) The fast pairs tell neighbours apart, the slow ones
# tell a page from the next.
#
# Now the bytes:

# %%
launch.ledger()

# %% [markdown]
# `x` is read once and `y` written once: that is [fused](02_rmsnorm.ipynb#Glossary) already. But the tables are read
# nine times, once for each head of a token. They are float32: a token's rows of both have 256 bytes, where a head of
# bfloat16 has 128. And a program has 256 lanes for 32 pairs.
#
# ## Rung 2: one program, all heads of a token
#
# All heads of a token take the same row of the tables. So give a program a token: a block of `BLOCK_H` heads by 32
# pairs. The angles have no head axis; they are loaded once and spread over the heads by broadcasting.
#
# **Predict.** There are 9 heads and a block needs a power of two. How many of the block's rows must be
# [masked](00_start_here.ipynb#Glossary)? What would happen without the mask?


# %%
@triton.jit
def halves_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr, BLOCK_H: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, D // 2)[None, :]
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    mask = offs_h < heads
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    offs = (token * heads + offs_h) * D + pair
    a = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + offs + D // 2, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + offs + D // 2, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=mask)


with trace() as launch:
    halves_kernel[(8,)](x, y, cos, sin, 9, D=64, BLOCK_H=16)
torch.testing.assert_close(y, reference.rope(x, cos, sin, layout="thd"))
print("same as PyTorch, up to float32 rounding")
launch.ledger()

# %% [markdown]
# **Look.** Each row of the tables is read once, and nothing moves twice.
#
# Seven of the sixteen rows are masked. Without the mask they would be *the next token's heads*: legal addresses, wrong
# token. Those would be written twice, once turned by the angle of their neighbour, and nothing says which comes last.
# AMD's library aiter had this defect when this lesson was written (`_triton_kernels/rope/rope.py`). With 8 or 32 heads
# it is right. With 12 or 40 it is wrong.
#
# ## Rung 3: the other pairs
#
# GPT-J, and DeepSeek after it, pair *neighbours*: elements $2i$ and $2i + 1$. This style is called
# [**gptj**](#Glossary), or *interleaved*. The change to the kernel seems to be one line: the offsets become `2 * pair`
# and `2 * pair + 1`.


# %%
@triton.jit
def neighbours_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr, BLOCK_H: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, D // 2)[None, :]
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    mask = offs_h < heads
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    offs = (token * heads + offs_h) * D + 2 * pair
    a = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + offs + 1, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + offs + 1, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=mask)


neighbours_kernel[(2,)](units, turned_units, *rope_tables(2, 16), 16, D=16, BLOCK_H=16)
draw.rope_pairs(turned_units[1])

# %% [markdown]
# The pairs are right. **Predict** the loads: the addresses of `a` are 0, 2, 4, and so on. What did lesson 01 say about
# [stride](01_vector_add.ipynb#Glossary) 2?
#
# There is a better way. Load the heads of a token as one long row without gaps, and take the pairs apart in registers.
# A reshape to `(pairs, 2)` puts the two elements of a pair on an axis of their own. `tl.split` cuts that last axis,
# which must have length 2, into two blocks, and `tl.join` is its inverse.


# %%
@triton.jit
def joined_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr, BLOCK_H: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_H * D)
    mask = offs < heads * D
    pair = tl.arange(0, BLOCK_H * D // 2) % (D // 2)  # each head takes the same angles
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    x = tl.load(x_ptr + token * heads * D + offs, mask=mask, other=0.0).to(tl.float32)
    a, b = tl.split(x.reshape(BLOCK_H * D // 2, 2))
    y = tl.join(a * cos - b * sin, b * cos + a * sin).reshape(BLOCK_H * D)
    tl.store(y_ptr + token * heads * D + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


expected = reference.rope(x, cos, sin, layout="thd", style="gptj")
for kernel in (neighbours_kernel, joined_kernel):
    kernel[(8,)](x, y, cos, sin, 9, D=64, BLOCK_H=16)
    print(f"{kernel.__name__:18} right: {torch.allclose(y, expected, atol=1e-5)}")

# %% [markdown] exercise_header="4.b"
# The difference of neighbours: `y[r, i] = x[r, 2 i] - x[r, 2 i + 1]`, for rows of `2 * BLOCK` elements. One load has
# brought the whole row.


# %% exercise="4.b"
@triton.jit
def neighbour_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + row * 2 * BLOCK + tl.arange(0, 2 * BLOCK))
    ### BEGIN SOLUTION
    a, b = tl.split(x.reshape(BLOCK, 2))
    tl.store(y_ptr + row * BLOCK + tl.arange(0, BLOCK), a - b)
    ### END SOLUTION


def neighbour_difference(x):
    rows, half = len(x), x.shape[1] // 2
    y = torch.empty(rows, half)
    neighbour_kernel[(rows,)](x, y, BLOCK=half)
    return y


# %% [markdown]
# ### The three, counted (optional)
#
# Here are all three kernels in the eyes of the compiler and the simulator, on an MI300X and a Radeon RX 7900. *Loads
# used* is the part of the fetched memory that the loads really asked for:

# %% tags=["nbval-ignore-output"]
arguments = (x, y, cos, sin, 9)
meta = {"D": 64, "BLOCK_H": 16, "num_warps": 2}
print(f"{'kernel':18} {'GPU':8} {'loads: bits and number':23} {'stores':12} instructions  loads used")
for kernel in (halves_kernel, neighbours_kernel, joined_kernel):
    for arch in ("gfx942", "gfx1100"):
        code = amd_report(kernel, *arguments, **meta, arch=arch)
        run = simulator.simulate(kernel, (8,), arguments, **meta, arch=arch)
        assert (max(code.stores) == 32) == (kernel is neighbours_kernel) and code.spills == 0
        widths = f"{code.loads!s:23} {code.stores!s:12}"
        print(f"{kernel.__name__:18} {arch:8} {widths} {run.instructions:12,}  {run.loads.coalescing:10.0%}")

# %% [markdown]
# **Look.** The neighbours' loads and stores are 32 bits wide and touch every second element, so half of each
# [line](01_vector_add.ipynb#Glossary) is fetched in vain, once for `a` and once for `b`. A cache must make up for that.
# The joined kernel has few wide accesses. Its `split` and `join` cost nothing: the two elements of a pair lie in the
# same [lane](00_start_here.ipynb#Glossary), in two registers, and calling them `a` and `b` is all that happens. This is
# what the line with `tl.join` has become:

# %% tags=["nbval-ignore-output"]
listing = amd_report(joined_kernel, *arguments, **meta, arch="gfx942").listing(only="tl.join")
assert "v_pk_fma_f32" in str(listing) and not any(moves in str(listing) for moves in ("dpp", "ds_", "permute"))
listing

# %% [markdown]
# Multiplications and additions, and no instruction that moves anything. (Only the angles are loaded again for each
# head. In exercise 4.3 heads are an axis of their own, and the angles are spread over them.)

# %% [markdown]
# ### The order of `tl.join` (optional)
#
# `tl.join(a, b)` makes a *new last axis*: it sets `a[i]` and `b[i]` side by side. After a reshape the result is
# interleaved, a0 b0 a1 b1 and so on. For gptj that is what you want. For neox it is not, and nothing complains:


# %%
@triton.jit
def join_kernel(y_ptr, z_ptr):
    a, b = tl.arange(0, 4), 10 + tl.arange(0, 4)
    tl.store(y_ptr + tl.arange(0, 8), tl.join(a, b).reshape(8))
    tl.store(z_ptr + tl.arange(0, 8), tl.join(a, b).permute(1, 0).reshape(8))


order, halves = torch.empty(2, 8, dtype=torch.int32)
join_kernel[(1,)](order, halves)
print("join, reshape:         ", order.tolist())
print("join, permute, reshape:", halves.tolist())

# %% [markdown]
# To put halves one after the other, permute the new axis to the front first. But then values change lanes, which takes
# instructions. With two loads and two stores, as in rung 2, none has to.
#
# ### From one style to the other (optional)
#
# The two styles are the same rotation of differently numbered elements. So a model trained with one style can run on
# kernels of the other, if the *rows* of the projection's weights are put into the other order. Only queries and keys
# are concerned. Both get the same order, and a dot product does not mind in which order it is added up.
#
# It happens in this course: the file that SmolLM2 is loaded from was made for llama.cpp, which pairs neighbours, and
# the course's loader puts the rows back.


# %%
def neox_order(D):
    """For each element of a neox head, its number in a gptj head: 0 2 4 ... then 1 3 5 ..."""
    return torch.cat([torch.arange(0, D, 2), torch.arange(1, D, 2)])


order = neox_order(64)
as_gptj = reference.rope(x, cos, sin, layout="thd", style="gptj")
as_neox = reference.rope(x[..., order], cos, sin, layout="thd", style="neox")
print("the order, for 8 elements:        ", neox_order(8).tolist())
print("permuted, neox = gptj, permuted:  ", torch.equal(as_neox, as_gptj[..., order]))
as_given = reference.rope(x, cos, sin, layout="thd", style="neox")
print("without permuting, neox = gptj:   ", torch.equal(as_given, as_gptj))

# %% [markdown]
# What if the styles get mixed up? Every shape is right, and so is the length of every vector:

# %% tags=["nbval-ignore-output"]
with llm.using(split_qkv_rope=lambda *arguments, style: reference.split_qkv_rope(*arguments, style="gptj")):
    mixed_up = llm.generate("What is the capital of France?", max_new_tokens=16, progress=False)
assert "Paris" not in mixed_up.text
print(mixed_up.text)

# %% [markdown]
# Correct words, and no answer. When a model talks like this in your code, look at its pairs first.
#
# ## Rung 4: every layout (optional)
#
# The kernels above assume that tokens follow each other without gaps, and that the token's number is its position.
# Neither holds for long. The model's own queries are a slice of `qkv`. **Predict:** what will the kernel of rung 2 read
# as the heads of token 1?

# %%
queries = qkv[:8, :576].view(8, 9, 64)
print("shape", tuple(queries.shape), "strides", queries.stride())
try:
    halves_kernel[(8,)](queries, y, cos, sin, 9, D=64, BLOCK_H=16)
except IndexError as error:
    print(error)

# %% [markdown]
# It takes what follows the queries of token 0: its keys. From one token to the next it is 960 elements, not 576. And
# sequences come in batches. Three arrangements are common. A cell is one token, with all its heads; its colour is the
# sequence, its number the position:

# %%
draw.token_layouts([4, 2, 3])

# %% [markdown]
# - [**bshd**](#Glossary): batch, sequence, heads, D. One sequence after the other, padded to the longest: what a
#   projection makes of a batch. (PyTorch's attention wants heads before tokens, bhsd. That is a view of it.)
# - [**sbhd**](#Glossary): sequence, batch, heads, D. First all first tokens, as in NVIDIA's Megatron.
# - [**thd**](#Glossary): tokens, heads, D. Sequences packed without padding. Where they begin is in
#   [**cu_seqlens**](#Glossary), *cumulative sequence lengths*. Servers do this, since no two requests are equally long.
#
# A program must know **where** its token lies, and at **which position** it stands. Keep these apart, and one kernel
# does everything. Strides say where it lies. Here each sequence counts its own tokens, from an [**offset**](#Glossary)
# on: 0 for a prompt, 37 for the token after 37 others.


# %%
@triton.jit
def rope_kernel(
    x_ptr, y_ptr, cos_ptr, sin_ptr, offset,
    stride_xb, stride_xs, stride_xh, stride_yb, stride_ys, stride_yh,
    heads, D: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """One program, all heads of token s of sequence b."""
    s, b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    pair = tl.arange(0, D // 2)[None, :]
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    mask = offs_h < heads
    cos = tl.load(cos_ptr + (offset + s) * (D // 2) + pair)
    sin = tl.load(sin_ptr + (offset + s) * (D // 2) + pair)
    x_ptr += b * stride_xb + s * stride_xs + offs_h * stride_xh + pair
    y_ptr += b * stride_yb + s * stride_ys + offs_h * stride_yh + pair
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + D // 2, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + D // 2, (second * cos + first * sin).to(y_ptr.dtype.element_ty), mask=mask)


# %% [markdown]
# The layouts are then a matter of the host: a *view* of `x` with dimensions (B, S, heads, D), whatever the memory looks
# like. A transpose exchanges two strides and moves nothing.


# %%
def as_bshd(x, layout):
    if layout == "sbhd":
        return x.transpose(0, 1)
    return x[None] if layout == "thd" else x


def rope(x, cos, sin, layout, offset=0):
    """x turned, the first token of each sequence by the angles of position `offset`."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x_view, y_view = as_bshd(x, layout), as_bshd(y, layout)
    B, S, heads, D = x_view.shape
    strides = (*x_view.stride()[:3], *y_view.stride()[:3])
    rope_kernel[(S, B)](x, y, cos, sin, offset, *strides, heads, D=D, BLOCK_H=triton.next_power_of_2(heads))
    return y


two = torch.stack([queries[:4], queries[4:]])  # two sequences of four tokens
as_sbhd = rope(two.transpose(0, 1).contiguous(), cos, sin, "sbhd")
print("bshd = sbhd:              ", torch.equal(rope(two, cos, sin, "bshd"), as_sbhd.transpose(0, 1)))
sliced = rope(queries, cos, sin, "thd")
print("a slice of qkv, not copied:", torch.allclose(sliced, reference.rope(x, cos, sin, layout="thd"), atol=1e-5))

# %% [markdown]
# ### Positions, offsets, packed sequences (optional)
#
# One offset for all sequences is not enough for a server. It takes a [**tensor of positions**](#Glossary), (B, S), and
# then everything is a choice of numbers:
#
# | who asks | positions of its tokens |
# |---|---|
# | a prompt, read at once | 0, 1, 2, ... |
# | the next token, after 37 others | 37 |
# | several requests, one token each | one position each, in any order |
# | a chunk of a long prompt | an offset, plus 0, 1, 2, ... |
# | packed sequences | the token's number minus the start of its sequence |
#
# A program loads its position from `positions_ptr + b * stride_pb + s * stride_ps`. Positions that are the same for all
# sequences are expanded, which gives them stride 0: every sequence reads the same numbers. You will do that in exercise
# 4.2. The last line of the table can be computed in the kernel. The sequence of token $t$ is the last that begins at
# $t$ or before it, so count how many have begun, and subtract one:
#
# ```python
# starts = tl.load(cu_seqlens_ptr + offs_b, mask=offs_b < sequences, other=2**31 - 1)
# sequence = tl.sum((starts <= token).to(tl.int32)) - 1
# position = token - tl.load(cu_seqlens_ptr + sequence)
# ```
#
# `other=` must be a start that no token ever reaches: a masked lane takes part in the sum, and here that is the sum's
# [identity](02_rmsnorm.ipynb#Glossary). The course's `rope` does that. Pack three sequences of 4, 0 and 3 tokens, an
# empty one among them, and compare with each of them alone:

# %%
cu_seqlens = torch.tensor([0, 4, 4, 7])
packed = course_kernels.rope(queries[:7], cos, sin, layout="thd", cu_seqlens=cu_seqlens)
alone = [rope(queries[a:b], cos, sin, "thd") for a, b in ((0, 4), (4, 7))]
print("packed = each alone:   ", torch.equal(packed, torch.cat(alone)))
without = rope(queries[:7], cos, sin, "thd")
print("without cu_seqlens:    ", torch.equal(without, torch.cat(alone)))
last = course_kernels.rope(queries[7:], cos, sin, layout="thd", offsets=torch.tensor([7]))
print("token 7 alone, offset 7:", torch.allclose(last, sliced[7:]))

# %% [markdown]
# ### Turn only a part (optional)
#
# Some models turn only some elements of a head, and leave the others to carry what has no position: [**partial
# rotary**](#Glossary). GPT-NeoX turns the *first* quarter, DeepSeek's heads end with the part that turns. Three things
# change. `D // 2` becomes half of the turned part, in the pairs and in the tables. The tables' exponents are divided by
# the turned width. And the rest must be copied, unless the kernel writes over its input. Here the course's kernel
# leaves the first 8 of 24 elements as they are:

# %%
heads24 = torch.eye(24).expand(2, 1, 24, 24).contiguous()
partial = course_kernels.rope(heads24, *rope_tables(2, 16), rotary_dim=16, nope_first=True)
draw.rope_pairs(partial[1, 0])

# %% [markdown]
# ### Two dimensions (optional)
#
# A piece of an image has a row and a column instead of a position. Turn the first half of each head by the row, the
# second half by the column, each half with pairs of its own. Then a score depends on the distance in both directions.
# The course's `rope_2d` does it, with four tables:

# %%
height, width = 3, 5
tables = (*rope_tables(height, 32), *rope_tables(width, 32))
pair = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
grid_q, grid_k = (course_kernels.rope_2d(v.expand(1, 15, 1, 64).contiguous(), *tables)[0, :, 0] for v in pair)
scores = (grid_q @ grid_k.T).view(height, width, height, width)
print("one right, one down, from (0, 0):", round(scores[1, 1, 0, 0].item(), 3))
print("one right, one down, from (1, 3):", round(scores[2, 4, 1, 3].item(), 3))
print("one down, from (0, 0):           ", round(scores[1, 0, 0, 0].item(), 3))

# %% [markdown]
# ## Rung 5: angles in float32
#
# A model in bfloat16 has everything in bfloat16, so why not the angles?
#
# **Predict.** bfloat16 keeps 8 significant bits. Which numbers does it know around 8191?

# %%
neighbours = torch.arange(8170, 8192)
print("positions          ", neighbours[0].item(), "to", neighbours[-1].item())
print("as bfloat16        ", sorted(set(neighbours.bfloat16().tolist())))
print("as float16         ", sorted(set(neighbours.half().tolist()))[-6:], "...")
print("tokens at 8192 now ", (torch.arange(8192).bfloat16() == 8192).sum().item())

# %% [markdown]
# At that distance bfloat16's numbers lie 32 apart, and sixteen tokens in a row get the same position, 8192. The angle
# is this position times $\theta_i$, and what counts is its error in *radians*: a whole turn is 6.28, however large the
# angle was. Compute the angles at position 8191 in three types, and compare them with float64:

# %%
exponent = torch.arange(0, 64, 2, dtype=torch.float64) / 64
exact = 8191 * 100000.0**-exponent
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    theta = (100000.0**-exponent).to(dtype)
    error = ((torch.tensor(8191, dtype=dtype) * theta).double() - exact).abs()
    off = f"{(error > 0.1).sum():2} of 32 pairs off by more than 0.1"
    print(f"{dtype!s:15} largest error {error.max():8.4f} radians, {off}")

# %% [markdown]
# How does the error grow with the length of a text? Here is the worst of the 32 pairs, at each position:

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

where = torch.arange(1, 8192)
true = where.double()[:, None] * 100000.0**-exponent
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    angles = where.to(dtype)[:, None] * (100000.0**-exponent).to(dtype)
    worst = (angles.double() - true).abs().amax(dim=1).clamp(min=1e-9)
    axes.loglog(where, worst, linewidth=0.8, label=str(dtype)[6:])
axes.axhline(0.1, color="grey", linestyle=":")
axes.set(xlabel="position", ylabel="error in radians")
_ = axes.legend()

# %% [markdown]
# bfloat16 passes a tenth of a radian within the first few dozen tokens, float32 not at all.
#
# ### A model with such angles (optional)
#
# What does that do to a model? You cannot afford a prompt of 8191 tokens here. But you do not need one: scores know
# only distances. Add 8148 to every position of a short conversation, and nothing may change. The last token that it
# reads then stands at position 8191.
#
# **Predict.** Which angles pass?


# %% tags=["nbval-ignore-output"]
def moved(shift, dtype):
    """The model's operation with angles of this dtype, every position moved by `shift`."""
    angles = torch.arange(8192).to(dtype)[:, None] * (100000.0**-exponent).to(dtype)
    cos, sin = angles.float().cos(), angles.float().sin()
    return lambda qkv, _cos, _sin, positions, *heads, style: reference.split_qkv_rope(
        qkv, cos, sin, positions + shift, *heads, style=style
    )


answers = {}
for dtype in (torch.float32, torch.bfloat16):
    for shift in (0, 8148):
        with llm.using(split_qkv_rope=moved(shift, dtype)):
            answer = llm.generate("What is the capital of France?", max_new_tokens=8, progress=False)
        answers[dtype, shift] = answer.tokens
        print(f"{dtype!s:14}  positions from {shift:4}:  {answer.text!r}")
assert answers[torch.float32, 0] == answers[torch.float32, 8148] == answers[torch.bfloat16, 0]
assert answers[torch.bfloat16, 8148] != answers[torch.float32, 8148]

# %% [markdown]
# With angles of float32 the model gives the same answer, 8148 positions later. With angles of bfloat16 it has lost its
# way. And look at the third line: at the beginning of a text nobody can tell, so no short test will find it.
#
# ### The rule
#
# **Angles in float32 or better; then sine and cosine; then, if you must, round.** The values of sine and
# cosine lie between -1 and 1, and rounding *them* to bfloat16 is as harmless as rounding `x`. The course's
# `rope_tables` computes in float64 and rounds once, to float32.
#
# ### Without tables (optional)
#
# Tables must be as long as the longest text, and have to be read. The kernel could compute an angle from the position.
# The obvious line is `tl.cos(position * frequency)`, in float32. The library's `rope` takes frequencies instead of
# tables, too (`inv_freq`), but counts in parts of a turn with integers, so that whole turns drop out without rounding.
#
# **Predict.** Which of the three is best at position 100,000? And which costs most?


# %%
@triton.jit
def angles_kernel(frequency_ptr, cos_ptr, position, HALF: tl.constexpr):
    pair = tl.arange(0, HALF)
    tl.store(cos_ptr + pair, tl.cos(position.to(tl.float32) * tl.load(frequency_ptr + pair)))


# %% tags=["nbval-ignore-output"]
inv_freq = 100000.0**-exponent
first_of_pairs = torch.zeros(1, 1, 64)
first_of_pairs[..., :32] = 1  # turned, (1, 0) becomes (cos, sin)
print("error of the cosines:  tables   in float32   by parts of a turn")
for position in (100, 8191, 100_000):
    truth = (position * inv_freq).cos()
    obvious, where = torch.empty(32), torch.tensor([position])
    angles_kernel[(1,)](inv_freq.float(), obvious, position, HALF=32)
    table = (where[:, None] * inv_freq).cos().float()[0]  # as rope_tables makes them
    parts = course_kernels.rope(first_of_pairs, inv_freq=inv_freq, layout="thd", positions=where)[0, 0, :32]
    errors = [float((c.double() - truth).abs().max()) for c in (table, obvious, parts)]
    print(f"position {position:7,}       {errors[0]:.0e}        {errors[1]:.0e}                {errors[2]:.0e}")
assert errors[0] < errors[2] < 1e-5 < 1e-3 < errors[1]

# %% [markdown]
# The obvious line is off by thousandths at position 100,000: the product has 24 significant bits, and those before the
# point are whole turns. Parts of a turn are as good as `tl.cos` itself, at any position.
#
# And the cost, for the 12 heads of queries and keys of 37 tokens in bfloat16, on a simulated MI300X:

# %% tags=["nbval-ignore-output"]
turning = qkv.bfloat16()[:, : 12 * 64].view(37, 12, 64)
costs = []
for name, angles in (("tables", {"cos": cos, "sin": sin}), ("computed", {"inv_freq": inv_freq})):
    with using("gfx942", profile=True) as runs:
        course_kernels.rope(turning, layout="thd", positions=positions, **angles)
    (run,) = runs
    costs.append(run.instructions)
    print(f"{name:9} {run.instructions:6,} instructions, {run.loads.bytes:7,} bytes asked for")
assert 2 * costs[0] < costs[1]

# %% [markdown]
# Three times the instructions, and no fewer bytes asked for: the frequencies are float64, as long as a row of both
# tables. (But all tokens ask for the same ones, which a cache keeps.) So tables are the rule, and computed angles are
# for positions that no table holds.
#
# ## Rung 6: cut and turn at once (optional)
#
# The projection's row is `[Q | K | V]`. PyTorch cuts it by views, which cost nothing, but then each of the three is
# handled by kernels of its own. Fused, a program loads some heads from where they lie in the row, turns them unless
# they are values, and stores them where attention wants them.
#
# **Predict** the bytes for the 37 tokens: 960 elements in and 960 out for each token, and its row of both tables. And
# without fusing: what does a kernel for Q, a kernel for K and a copy of V cost?

# %%
with trace() as fused:
    q, k, v = course_kernels.split_qkv_rope(qkv, cos, sin, positions, 9, 3, 64)
for name, got, expected in zip("qkv", (q, k, v), composed(qkv, cos, sin, positions), strict=True):
    print(name, tuple(got.shape), "right:", torch.allclose(got, expected, atol=1e-5))
print(f"predicted: {necessary:,} bytes, and 8 for each position: {necessary + positions.nbytes:,}")
print(f"least:     {fused.ledger().least:,}")

# %% [markdown]
# And this is who loads what, for the first four tokens:

# %%
with trace() as four:
    course_kernels.split_qkv_rope(qkv[:4], cos, sin, positions[:4], 9, 3, 64)
four.picture("qkv_ptr", kind="load")

# %% [markdown]
# **Look.** Rows are tokens, columns the 960 elements of a row. The second axis of the grid counts heads: programs (0,
# 0) to (0, 8) take the queries of token 0, the next three its keys, the last three its values. A program finds out
# which by comparing its number with two limits. So it has heads of one kind only, and nobody has to ask element by
# element whether to turn. Every wave of a program takes the same branch, so the `if` costs a few scalar instructions.
#
# One careful word about bytes: cutting and turning *together* hardly saves any. Three perfect kernels, for Q, K and V,
# would read only the position and the tables' rows a second time, 264 of the 7,944 bytes of a token. What they cost is
# launches, three for one, in each of 30 layers. The bytes were saved when seventeen operations became a kernel.
#
# [`course_kernels/qkv.py`](../course_kernels/qkv.py) has the rest of the family. DeepSeek's heads consist of a part
# without position and one with, from different projections. PyTorch turns the second and then concatenates (`torch.cat`
# reads and writes everything again). One launch can store both parts where they belong:

# %%
parts = torch.Generator().manual_seed(0)
q_nope, k_nope = (torch.randn(8, heads, 32, generator=parts) for heads in (9, 3))
q_pe, k_pe = (torch.randn(8, heads, 16, generator=parts) for heads in (9, 3))
tables16 = rope_tables(8, 16)
with trace() as one:
    q_joined, k_joined = course_kernels.rope_concat_qk(q_nope, q_pe, k_nope, k_pe, torch.arange(8), *tables16)
with trace() as turned_first:
    pe = [course_kernels.rope(x, *tables16, layout="thd") for x in (q_pe, k_pe)]
with eager.count() as concatenated:
    apart = [torch.cat(both, dim=-1) for both in ((q_nope, pe[0]), (k_nope, pe[1]))]
print("same:", all(torch.allclose(a, b) for a, b in zip((q_joined, k_joined), apart)))
separate = sum(launch.ledger().bytes for launch in turned_first) + concatenated.bytes
print(f"turned, then concatenated: {separate:,} bytes in {len(turned_first) + concatenated.kernels} launches")
print(f"at once:                   {one.ledger().bytes:,} bytes in {len(one)} launch")

# %% [markdown]
# ## The trap: turned in place
#
# Nobody needs the unturned queries again. So why not write over them, and save the memory? The rotation is done [**in
# place**](#Glossary) in many libraries. Here is a kernel that does it, for heads of 128. To have more programs, it
# gives each *half* of a head to a program of its own, on a third axis of the grid. A half needs the other half as its
# partner, so each program loads both, and stores its own:


# %%
@triton.jit
def half_inplace_kernel(x_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr):
    token, head, half = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    pair = tl.arange(0, D // 2)
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    x_ptr += (token * heads + head) * D
    own = tl.load(x_ptr + half * (D // 2) + pair)
    partner = tl.load(x_ptr + (1 - half) * (D // 2) + pair)
    sign = 2 * half - 1  # the first half subtracts
    tl.store(x_ptr + half * (D // 2) + pair, own * cos + sign * partner * sin)


before = torch.randn(4, 3, 128, generator=torch.Generator().manual_seed(0))
cos128, sin128 = rope_tables(4, 128)
expected = reference.rope(before, cos128, sin128, layout="thd")
x = before.clone()
half_inplace_kernel[(4, 3, 2)](x, cos128, sin128, 3, D=128)
wrong = ~torch.isclose(x, expected, atol=1e-5)
print("wrong elements at each position:      ", wrong.sum(dim=(1, 2)).tolist())
print("wrong in first halves, second halves: ", wrong[..., :64].sum().item(), wrong[..., 64:].sum().item())

# %% [markdown]
# **Explain it before you read on.** First halves are right and second halves are wrong, except at position 0. (The
# second halves of a token have 192 elements; the slowest pairs turn too little to show.) The simulator even finds no
# mistake at all:

# %%
x = before.clone()
run = simulator.simulate(half_inplace_kernel, (4, 3, 2), (x, cos128, sin128, 3), D=128, arch="gfx942")
print("simulated, right:", torch.allclose(x, expected, atol=1e-5))

# %% [markdown]
# The program of the second half needs the first half *as it was*. The interpreter runs one program after the other. By
# then the first half has been written over, and the second is computed from a partner that is turned already. (At
# position 0 nothing turns, so a test on the first token passes.) The simulator runs programs side by side, in step: all
# load before the first one stores, and it comes out right. On a GPU it depends on which program comes first.
# This is called an [**in-place hazard**](#Glossary): a location is read by one party and written by another, and
# nothing says in which order.
#
# ### What makes it safe
#
# Look again at rung 2. The lane that holds `a` of a pair holds `b` too. It loads both, and then stores both; no other
# lane ever touches this pair. So it may write where it read. The rule: **in place is safe when each element is read and
# written by the same lane only, and read before it is written.** Pairs have that property, if a lane owns the pair. The
# course's `rope` writes in place only where you ask for it, `inplace=True`.
#
# ### A repair that is none (optional)
#
# Now the obvious repair: one program for the whole head. It loads a block of all 128 elements, and a second block with
# the partner of each, `(d + 64) % 128`. In the text of the kernel every load stands before the store.


# %%
@triton.jit
def partner_inplace_kernel(x_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, D)
    HALF: tl.constexpr = D // 2  # a constexpr may be computed from another
    cos = tl.load(cos_ptr + token * HALF + d % HALF)
    sin = tl.load(sin_ptr + token * HALF + d % HALF)
    x_ptr += (token * heads + head) * D
    own = tl.load(x_ptr + d)
    partner = tl.load(x_ptr + (d + HALF) % D)
    tl.store(x_ptr + d, own * cos + tl.where(d < HALF, -partner, partner) * sin)


x = before.clone()
partner_inplace_kernel[(4, 3)](x, cos128, sin128, 3, D=128)
print("interpreted, right:", torch.allclose(x, expected, atol=1e-5))
x = before.clone()
run = simulator.simulate(partner_inplace_kernel, (4, 3), (x, cos128, sin128, 3), D=128, arch="gfx942")
print("simulated, right:  ", torch.allclose(x, expected, atol=1e-5))

# %% [markdown]
# Right on both engines. **Is it right?** Remember what a program is: four [waves](00_start_here.ipynb#Glossary), and
# each executes the code by itself. Ask the simulator which elements of `x` each wave of program (1, 0) touches; its
# head has elements 384 to 511:


# %% tags=["nbval-ignore-output"]
def show_touched(kernel, grid, arguments, program, **meta):
    """What the first two waves of a program touch of x; returns the elements by wave and kind of access."""
    touched = {}
    for wave in range(2):
        walk = simulator.step(kernel, grid, arguments, **meta, arch="gfx942", program=program, wave=wave)
        for touch in (touch for frame in walk for touch in frame.touches if touch.tensor in ("x_ptr", "y_ptr")):
            elements = touch.elements[touch.active]
            touched.setdefault((wave, touch.kind), set()).update(elements.tolist())
            print(f"wave {wave} {touch.kind}s elements {elements.min()} to {elements.max()}")
    return touched


x = before.clone()
touched = show_touched(partner_inplace_kernel, (4, 3), (x, cos128, sin128, 3), (1, 0), D=128)
assert touched[0, "store"] & touched[1, "load"] and touched[1, "store"] & touched[0, "load"]

# %% [markdown]
# Wave 0 stores what wave 1 loads as a partner, and the other way round. There is no
# [barrier](02_rmsnorm.ipynb#Glossary) between them. If wave 0 is a little ahead, wave 1 reads what is turned already.
# It is the same hazard, one level further down, and neither engine will ever return a wrong number: they keep waves in
# step. In PyTorch's Helion a fused norm and rotation read in place what other lanes of its program had written. It came
# out right on one GPU, an H100, and wrong in 0.8 % of the elements on a B200, other elements each time
# ([pytorch/helion#3080](https://github.com/pytorch/helion/pull/3080)).
#
# The kernel of rung 2, on the other hand, keeps the rule:

# %% tags=["nbval-ignore-output"]
x = before.clone()
halves_kernel[(4,)](x, x, cos128, sin128, 3, D=128, BLOCK_H=4)
assert torch.allclose(x, expected, atol=1e-5)
touched = show_touched(halves_kernel, (4,), (x, x, cos128, sin128, 3), (1,), D=128, BLOCK_H=4)
assert all(touched[wave, "load"] == touched[wave, "store"] for wave in range(2))

# %% [markdown]
# Each wave stores what it has loaded, and nothing else. (If you have read that part of lesson 03: an in-place kernel
# must not be [autotuned](03_fused_activations.ipynb#Glossary) without `restore_value=`.)
#
# ### And backwards? (optional)
#
# The gradient of a rotation is the rotation back: the same kernel with the sines negated. No value of the forward pass
# has to be kept.

# %%
there = course_kernels.rope(queries, cos, sin, layout="thd")
back = course_kernels.rope(there, cos, -sin, layout="thd")
print("there and back:", torch.allclose(back, queries, atol=1e-5))

# %% [markdown]
# ## On real hardware (optional)
#
# This is what an MI300X would execute for the layout kernel of rung 4, on the model's queries in bfloat16:

# %% tags=["nbval-ignore-output"]
half_queries = qkv.bfloat16()[:, :576].view(1, 37, 9, 64)
out = torch.empty(1, 37, 9, 64, dtype=torch.bfloat16)
strides = (*half_queries.stride()[:3], *out.stride()[:3])
report = amd_report(
    rope_kernel, half_queries, out, cos, sin, 0, *strides, 9, D=64, BLOCK_H=16, num_warps=1, arch="gfx942"
)
assert report.spills == 0 and report.lds == 0 and max(report.loads) == 128
report

# %% [markdown]
# No [LDS](02_rmsnorm.ipynb#Glossary), no barrier, few registers: each lane works for itself, and a compute unit can
# keep many waves in flight. One wave is enough for nine heads, as in lesson 02: with four, each lane would have 2
# elements of a half, and loads of 32 bits. What is left is bytes. For all queries and keys of a prompt of 2048 tokens:

# %% tags=["nbval-ignore-output"]
elements = 2048 * (9 + 3) * 64
bound = hardware.lower_bound(bytes=2 * 2 * elements + 2 * 4 * 2048 * 32, flops=3 * elements, gpu="MI300X")
assert bound.roof == "memory"
print(bound)

# %% [markdown]
# About the time of a launch, as for the norms. For larger sizes there is a public figure: for 16 thousand tokens with
# 16 heads of 64, a Triton RoPE kernel on an MI300X went from 41.1 to 29.0 µs when its block shrank from 32 rows to 8,
# which is 1.6 and then 2.3 TB/s ([sgl-project/sglang#28783](https://github.com/sgl-project/sglang/pull/28783)).
#
# The course was timed on an NVIDIA H200. *Eager* is PyTorch's formula as above, *copy* a plain copy of as many bytes.
# Llama 3 8B has 32 heads of queries and 8 of keys, each of 128 elements:

# %% tags=["nbval-ignore-output"]
sizes = "Llama 3 8B, 64 tokens", "Llama 3 8B, 4096 tokens", "Llama 3 8B, 16384 tokens"
figures = bench.stored("split_qkv_rope", *sizes, gpu="H200")
assert figures.find("eager", sizes[2]).seconds > 5 * figures.find("ours", sizes[2]).seconds
figures

# %% [markdown]
# One kernel in place of seventeen, and close to a copy. If you have a GPU, measure yours:

# %% tags=["nbval-ignore-output"]
if bench.available():
    big = torch.randn(1, 4096, 32, 128, device=engines.device(), dtype=torch.bfloat16)
    big_tables = rope_tables(4096, 128, device=engines.device())
    by_torch = [table[None, :, None] for table in big_tables]
    moved = 2 * big.nbytes + 2 * big_tables[0].nbytes
    print(bench.time(lambda: course_kernels.rope(big, *big_tables, layout="bshd"), name="course", bytes=moved))
    print(bench.time(lambda: rotate(big, *by_torch).to(big.dtype), name="PyTorch, composed", bytes=moved))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Swap it in
#
# Thirty times in each forward pass the model cuts and turns. Now it does so with **your** kernel: `my_kernel` gives
# your answer to exercise 4.5 once it has passed. Until then it gives the course's. (The model also says `style="neox"`,
# the only style that your answer knows.)

# %%
mine = my_kernel("4.5", course_kernels.split_qkv_rope)
tokens = llm.tokenizer.encode("The sun")
pytorch = llm.generate(tokens, max_new_tokens=2, progress=False)
with llm.using(split_qkv_rope=lambda *arguments, style: mine(*arguments)):
    triton_rope = llm.generate(tokens, max_new_tokens=2, progress=False)
print("The sun" + triton_rope.text)
print("same tokens:", triton_rope.tokens == pytorch.tokens)

# %% [markdown]
# ## What to read next
#
# - The exercises: [`exercises/04_rope.ipynb`](../exercises/04_rope.ipynb). One head (4.1), all heads of a strided batch
#   (4.2), neighbours as pairs (4.3), an in-place kernel to repair (4.4), cut and turn at once (4.5), packed sequences
#   with partial rotary (4.6).
# - The library's version: [`course_kernels/rope.py`](../course_kernels/rope.py), this lesson in one kernel.
# - [05 Matmul](05_matmul.ipynb): the product that made the queries and keys. (Lesson 06 computes their scores. Lesson
#   07 writes the keys into a cache, and fuses the rotation with that.)
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | $p\,\theta_i$, cosine and sine | row `position` of `cos`, `sin` (P, D / 2), from angles in float32 or better |
# | neox pair $i$: elements $i$, $i + D/2$ | `a = tl.load(x_ptr + pair)`, `b = tl.load(x_ptr + D // 2 + pair)` |
# | gptj pair $i$: elements $2i$, $2i + 1$ | `tl.split(x.reshape(..., D // 2, 2))`, `tl.join(a, b).reshape(..., D)` |
# | $(a, b)$ turned | `a * cos - b * sin`, `b * cos + a * sin` |
# | turned back, and the gradient | the same with `-sin` |
# | gptj weights for neox kernels | rows `0, 2, 4, ..., 1, 3, 5, ...` of each head of Q and K |
# | token $s$ of sequence $b$, head $h$ | `x_ptr + b * stride_xb + s * stride_xs + h * stride_xh` |
# | its position | `offset + s`, or loaded from a tensor of positions by its strides |
# | packed: sequence of token $t$ | `tl.sum((starts <= t).to(tl.int32)) - 1`, masked starts past every token |
# | heads $h < H$ | `mask = offs_h < heads`, in every load and store of heads |
# | [Q, K, V] of a row | heads from 0, from `QH`, from `QH + KH` |
#
# ### Glossary
#
# - **projection**: the matrix product that makes queries, keys and values from a token's vector
# - **head**: a piece of 64 (or 128) elements of a token's vector that attention handles by itself
# - **query**, **key**, **value**: the three kinds of heads; a query and a key make a score, a value is what is taken
# - **score**: the dot product of a query and a key
# - **RoPE**: rotary position embedding; pairs of elements turned by an angle that grows with the position
# - **tables**: sine and cosine of every angle, a row for each position
# - **pair style**: which elements are turned together
# - **neox**: elements $i$ and $i + D/2$
# - **gptj**: elements $2i$ and $2i + 1$, also called interleaved
# - **grouped-query attention** (GQA): several heads of queries share one of keys and values; **MHA**: none is shared
# - **bshd**, **sbhd**, **thd**: the order of the dimensions batch, sequence, heads, D; t is tokens of all sequences
# - **cu_seqlens**: where each packed sequence begins, and behind the last one where it ends
# - **tensor of positions**: for each token, its row of the tables
# - **offset**: a number added to all positions of a sequence
# - **partial rotary**: only some elements of a head turn
# - **in place**: the result is written over the input
# - **in-place hazard**: one party writes what another reads, and nothing orders them
