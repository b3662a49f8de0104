# %% [markdown]
# # 06 Online-softmax attention
#
# Attention multiplies two matrices, takes a softmax of the result, and multiplies again. What lies in between is far
# larger than everything that goes in and comes out. In this lesson it never reaches memory. What makes that possible is
# a softmax that begins before it has seen its row, and corrects itself on the way.
#
# You need lesson 02 (reductions and their identities), lesson 04 (heads, queries, keys and values) and lesson 05 (tiles
# and `tl.dot`). It takes about 45 minutes, without the exercises. Its short path takes about 20: skip what is marked as
# optional.
#
# **In doing so, you will learn**
#
# - why a softmax subtracts the maximum, and what its idle lanes must hold
# - how to compute it block by block, and how that turns attention into one kernel
# - how many bytes this saves: predicted, then counted
# - what `exp2`, skipped tiles and a rounded P are worth, in instructions of an MI300X
# - why a query that sees no key ruins a kernel that passes its tests

# %% tags=["nbval-ignore-output"]
import torch
import triton
import triton.language as tl

import course_kernels
import course_lab
from course_kernels import reference
from course_lab import bench, model, my_kernel
from gfxlab import amd_report, draw, engines, hardware, simulator, trace
from gfxlab.tracing import eager

llm = model.load(device="cpu")  # on the CPU, so that every launch below can be watched

# %% [markdown]
# ## Where this sits in the model
#
# [**Attention**](#Glossary) is the only place where one token of SmolLM2 learns of another. Each token asks with a
# *query*, each token answers with a *key* and a *value*. How well query $i$ fits key $j$ is a number, the
# [score](04_rope.ipynb#Glossary). A token takes a weighted mean of all values: the larger the score, the larger the
# weight. Here is what the attention of layer 1 gets while the model reads *What is the capital of France?*

# %%
call = llm.activations("layers.1.attention")
q, k, v = (tensor[0].contiguous() for tensor in call)  # one sequence: without the batch dimension
print("q     ", tuple(q.shape), " heads, tokens, numbers of a head")
print("k, v  ", tuple(k.shape))
print("called", llm.count_calls()["attention"], "times in a forward pass, here with", call.keywords)

# %% [markdown]
# There are 9 heads of queries and 3 of keys and values. Three query heads in a row share one head of keys:
# [GQA](04_rope.ipynb#Glossary), lesson 04. `causal` means that a token sees itself and the tokens before it. And the
# model reads all 37 tokens of the prompt at once, which is called [**prefill**](#Glossary). (Writing the answer goes
# token by token. That is another problem, and lesson 07.)
#
# Between the scores and the weights a row goes through a reduction that you know.

# %% [markdown] exercise_header="6.a"
# Subtract from each element of a row the largest of that row. A block holds the whole row.


# %% exercise="6.a"
@triton.jit
def below_maximum_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=-float("inf"))
    tl.store(y_ptr + row * N + cols, x - tl.max(x, axis=0), mask=mask)
    ### END SOLUTION


def below_maximum(x):
    (M, N), y = x.shape, torch.empty(x.shape)
    below_maximum_kernel[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown]
# Written as separate operations, attention moves a number for each *pair* of tokens. At 8192 tokens the scores of 9
# heads take 9 · 8192² · 4 bytes, 2.4 GB in one layer, where queries, keys, values and result take 50 MB together. They
# are what this lesson keeps out of memory.
#
# ### What it costs in PyTorch (optional)
#
# This is how people write attention in PyTorch.
#
# **Predict.** 512 tokens are 14 times as many as 37, so q, k, v and the result take 14 times the bytes. How many bytes
# do the operations below move in each case, as a multiple of those?


# %% tags=["nbval-ignore-output"]
def composed(q, k, v):
    """Attention of (heads, tokens, head dimension), one operation after the other."""
    k, v = (x.repeat_interleave(len(q) // len(k), dim=0) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    p = scores.masked_fill(later, -torch.inf).softmax(-1)
    return p @ v


def necessary(tokens, heads=9, kv_heads=3, dim=64, itemsize=4):
    """Bytes of q, k, v and the result."""
    return (2 * heads + 2 * kv_heads) * tokens * dim * itemsize


print("heads: 9 of queries, 3 of keys and values")
for tokens in (37, 128, 512):
    many_q, many_k, many_v = (torch.randn(heads, tokens, 64) for heads in (9, 3, 3))
    with eager.count() as ops:
        composed(many_q, many_k, many_v)
    factor = ops.bytes / necessary(tokens)
    print(f"{tokens:4} tokens: {ops.kernels} kernels, {factor:5.1f} times the necessary bytes")
assert ops.kernels >= 6 and 15 < factor < 40
ops

# %% [markdown]
# The factor grows with the prompt. Look at the shapes in the table: everything of the shape `(9, 512, 512)` holds **one
# number for each pair of tokens**. Twice the tokens is four times the pairs. What does a single such matrix take, for
# all heads of one layer?

# %%
for tokens in (37, 2048, 8192, 131072):
    megabytes, pairs = necessary(tokens) / 1e6, 9 * tokens**2 * 4 / 1e6
    print(f"{tokens:7,} tokens: q, k, v, o {megabytes:6.1f} MB   scores {pairs:9,.1f} MB")

# %% [markdown]
# At 8192 tokens, the longest text that SmolLM2 takes by its configuration, the scores of one layer have 2.4 GB, and the
# operations move such a matrix eight times: the first product writes it, three more read and write it, the last product
# reads it. Yet nobody wants the scores. They are only a way from q, k and v to the result, which take 50 MB in all.
#
# ## The idea on paper
#
# For one head of dimension $D$:
#
# $$ s_{ij} = \frac{1}{\sqrt D} \sum_d q_{id}\, k_{jd}, \qquad
# p_{ij} = \frac{e^{s_{ij}}}{\sum_n e^{s_{in}}}, \qquad o_{id} = \sum_j p_{ij}\, v_{jd} $$
#
# ($1/\sqrt D$ keeps the scores from growing with the number of terms.) The first and the last are matrix products, $S =
# Q K^T / \sqrt D$ and $O = P V$, and lesson 05 taught you those: tiles, `tl.dot`, an
# [accumulator](05_matmul.ipynb#Glossary). The one in the middle is the [**softmax**](#Glossary). It turns a row of
# scores into weights that are positive and add up to 1. And it is in the way. $p_{ij}$ needs the sum over the *whole*
# row, so no weight is known before the last key has been seen. The scores of 128 queries and 8192 keys would take 4 MB
# of registers. A compute unit of an MI300X has 512 KB (four [SIMDs](01_vector_add.ipynb#Glossary) with 512 registers
# for each of 64 lanes, 4 bytes each).
#
# In lesson 02 a row that was too long was walked twice. Here each walk means to compute all the scores again. Can it be
# done in one?
#
# ## Rung 1: softmax of a row
#
# $e^{89}$ is too large for float32:

# %%
torch.exp(torch.tensor([88.0, 89.0]))

# %% [markdown]
# So subtract the same number from all scores of a row, and the weights stay as they are: numerator and denominator both
# shrink by the same factor. Subtract the **maximum** $m$:
#
# $$ p_j = \frac{e^{s_j - m}}{\sum_n e^{s_n - m}} $$
#
# Now the largest exponent is 0. Nothing overflows, and the sum is at least 1, so nothing is divided by zero either.
#
# That makes two [reductions](02_rmsnorm.ipynb#Glossary) over the row, a maximum and a sum. **Predict.** What must the
# idle lanes hold so that *both* ignore them?


# %%
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, PADDING: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=PADDING).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax(x, padding):
    (rows, N), y = x.shape, torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), N, padding, BLOCK=triton.next_power_of_2(N))
    return y


generator = torch.Generator().manual_seed(0)
rows = torch.randn(4, 1000, generator=generator)
print("                     same as PyTorch   a row adds up to")
for name, x in (("torch.randn", rows), ("torch.randn - 20", rows - 20)):
    for padding in (0.0, -float("inf")):
        y = softmax(x, padding)
        same = torch.allclose(y, x.softmax(-1), atol=1e-2)
        print(f"{name:16} {padding:4.0f}  {same!s:>14}   {y[0].sum():.3f}")
q18, k18, _ = llm.activations("layers.18.attention")
print(f"lowest score in layer 18: {(q18 @ k18.repeat_interleave(3, dim=1).mT / 8).min():.0f}")

# %% [markdown]
# $-\infty$ is the identity of the maximum (lesson 02), and $e^{-\infty - m} = 0$ is the identity of the sum: one value
# serves both. With zeros the 24 idle lanes take part. On `torch.randn` they add 1.3 % to the sum. The weights are so
# small that a tolerance of 1e-2, common in tests of half precision, does not see it. With scores around -20 the zeros
# are the largest "scores" of the row, and take nearly everything. And scores like that exist: one layer of SmolLM2 has
# one of -54.
#
# So test that **a row adds up to 1**, with scores far below zero.
#
# ## Rung 2: one walk
#
# Suppose that you have seen some of the scores. You have their maximum $m$, and the sum $l = \sum e^{s - m}$. Now a
# block arrives, and its maximum is larger. Your sum was taken relative to the wrong maximum. But every term of it is
# wrong by the same factor:
#
# $$ e^{s - m'} = e^{s - m} \cdot e^{m - m'} $$
#
# So correct the sum with one multiplication, then add what is new:
#
# $$ m' = \max(m, \max_{block} s), \qquad l' = l \, e^{m - m'} + \sum_{block} e^{s - m'} $$
#
# This is [**online softmax**](#Glossary) (Milakov and Gimelshein, *Online normalizer calculation for softmax*, 2018).
# $m$ is the [**running maximum**](#Glossary), and the multiplication by $e^{m - m'}$ is called
# [**rescaling**](#Glossary). The factor is never above 1, and it is exactly 1 while the maximum stays. The start is $m
# = -\infty$, $l = 0$.


# %%
@triton.jit
def row_sum_kernel(x_ptr, sum_ptr, N, BLOCK: tl.constexpr):
    """Of one row: the sum of exp(x - max), block by block."""
    row_max = -float("inf")
    row_sum = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max
    tl.store(sum_ptr, row_sum)


# %% [markdown]
# Try it on the scores of the last token with all 37, in head 1, eight keys at a time. `watch` writes down what the
# kernel's variables hold at each load.
#
# **Predict.** In how many of the five blocks does the maximum rise?

# %% tags=["nbval-ignore-output"]
scores = q[1, -1] @ k[0].T * 64**-0.5
total = torch.empty(1)
with trace(watch=["row_max", "row_sum"]) as launch:
    row_sum_kernel[(1,)](scores, total, 37, BLOCK=8)
assert torch.allclose(total, (scores - scores.max()).exp().sum())
frames = draw.online_softmax(launch)
assert len(frames) == 5 and not frames.notes
print(len(scores), "scores, eight at a time")
frames

# %% [markdown]
# **Look.** Scroll sideways: one step for each block. Above are the scores, below their exponentials relative to the
# maximum *of this step*. In step 2 the maximum rises from -2.04 to 1.49. All earlier exponentials shrink, and so does
# the sum: it is multiplied by 0.03. In step 3 it stays, and the factor is 1. In all other steps it rises.
#
# **Why it matters.** After the last block $l$ is what two walks would have given, up to rounding. A row of any length
# needs two numbers.

# %% [markdown] exercise_header="6.b"
# The same correction once more. Two halves of each row were walked apart, and each left its maximum and its sum. Give
# maximum and sum of the whole rows. (`tl.exp` and `tl.maximum` work on blocks.)


# %% exercise="6.b"
@triton.jit
def merge_kernel(m1_ptr, l1_ptr, m2_ptr, l2_ptr, m_ptr, l_ptr, rows, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < rows
    m1, l1 = tl.load(m1_ptr + offs, mask=mask, other=0.0), tl.load(l1_ptr + offs, mask=mask, other=1.0)
    m2, l2 = tl.load(m2_ptr + offs, mask=mask, other=0.0), tl.load(l2_ptr + offs, mask=mask, other=1.0)
    ### BEGIN SOLUTION
    m = tl.maximum(m1, m2)
    total = l1 * tl.exp(m1 - m) + l2 * tl.exp(m2 - m)
    tl.store(m_ptr + offs, m, mask=mask)
    tl.store(l_ptr + offs, total, mask=mask)
    ### END SOLUTION


def merge_sums(m1, l1, m2, l2):
    m, total = torch.empty_like(m1), torch.empty_like(m1)
    merge_kernel[(triton.cdiv(len(m1), 128),)](m1, l1, m2, l2, m, total, len(m1), BLOCK=128)
    return m, total


# %% [markdown]
# ## Rung 3: attention in one kernel
#
# The result is a sum of the same kind, with a value behind each exponential:
#
# $$ o = \frac{1}{l} \sum_j e^{s_j - m} \, v_j $$
#
# So it can be kept in the same way. Hold an accumulator, and when the maximum rises, multiply it by the same factor as
# $l$. Divide by $l$ once, at the very end. No score is kept (Dao and others, *FlashAttention*, 2022; the division at
# the end is from *FlashAttention-2*, 2023).
#
# A program takes `BLOCK_M` queries of one head, and walks over all keys, `BLOCK_N` at a time: whole blocks, for
# now. Each of its queries has a maximum and a sum of its own: `row_max` and `row_sum` are blocks of `BLOCK_M` numbers,
# `[:, None]` makes a column of them.


# %%
@triton.jit
def tiled_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq_q, seq_k, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    mask_m = offs_m[:, None] < seq_q
    k_ptr += head // GROUP * seq_k * D  # GROUP query heads in a row share one head of keys and values
    v_ptr += head // GROUP * seq_k * D
    q = tl.load(q_ptr + (head * seq_q + offs_m)[:, None] * D + offs_d, mask=mask_m, other=0.0)

    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, seq_k, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp(scores - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
    o = acc / row_sum[:, None]
    tl.store(o_ptr + (head * seq_q + offs_m)[:, None] * D + offs_d, o.to(o_ptr.dtype.element_ty), mask=mask_m)


def run(kernel, q, k, v, block_m=16, block_n=16, **constants):
    """One program for each tile of queries of each head. q (H, Sq, D); k, v (KH, Sk, D); all contiguous."""
    (heads, seq_q, D), (kv_heads, seq_k, _) = q.shape, k.shape
    o = torch.empty_like(q)
    constants |= {"GROUP": heads // kv_heads, "D": D, "BLOCK_M": block_m, "BLOCK_N": block_n}
    kernel[(triton.cdiv(seq_q, block_m), heads)](q, k, v, o, seq_q, seq_k, D**-0.5, **constants)
    return o


# %% [markdown]
# (`input_precision="ieee"` keeps all bits of float32, as in lesson 05.) Every query sees every key for now; that later
# ones are hidden comes in rung 5. Run it on all queries and the first 32 keys, and follow query 36, row 4 of the last
# tile:

# %% tags=["nbval-ignore-output"]
with trace(watch=["scores", "row_max", "row_sum"]) as launch:
    k32, v32 = (x[:, :32].contiguous() for x in (k, v))
    o = run(tiled_kernel, q, k32, v32)
torch.testing.assert_close(o, reference.flash_attention(q[None], k32[None], v32[None])[0])
frames = draw.online_softmax(launch, "k_ptr", scores="scores", program=(2, 1), row=4)
assert len(frames) == 2 and not frames.notes
frames

# %% [markdown]
# The same row as before, 16 keys at a time. Its scores were there for one turn of the loop, in the registers of one
# program, and nowhere else.
#
# And with 37 keys? The last block has idle keys. Loaded as 0, as a product wants them, each has a score of 0, rung 1's
# trap. Which score ignores a key, and where is it set? (Exercise 6.3.)
#
# ### The bytes (optional)
#
# **Predict.** q is read once, and o written once. How often is each element of k read, with 512 tokens, tiles of 64
# queries, and three query heads that share a head of keys?

# %%
big_q, big_k, big_v = (torch.randn(heads, 512, 64, generator=generator) for heads in (9, 3, 3))
with trace() as launch:
    run(tiled_kernel, big_q, big_k, big_v, 64, 64)
print("keys:", tuple(big_k.shape))
print("each element of k is read", launch.times("k_ptr").max(), "times")
launch.ledger()

# %% [markdown]
# 8 tiles of queries in each of 3 heads: 24 times. (On a GPU the caches can serve most of these readings.) And nothing
# in the ledger has the size of a pair of tokens. Beside what PyTorch's operations moved for the same 512 tokens,
# counted above:

# %% tags=["nbval-ignore-output"]
ledger = launch.ledger()
assert ledger.least == necessary(512) and ledger.bytes < ops.bytes / 3
draw.bytes_bar({"composed": ops.bytes, "tiled, asked for": ledger.bytes, "each byte once": ledger.least})

# %% [markdown]
# `head // GROUP` is all that GQA takes: heads 0, 1 and 2 read key head 0, the next three key head 1. (`head % 3` would
# fit all shapes as well, and give every query the wrong keys. A test with as many key heads as query heads cannot tell
# the two apart.) GQA makes the keys and values in memory three times smaller. The readings stay, since each head has
# programs of its own.
#
# The readings of k and v come once for each tile of queries. So twice the queries in a tile is half of these bytes:
# that is what `BLOCK_M` is for. The tile of queries, its accumulator and its scores live in registers, and those are
# the limit. AMD's library aiter takes 128 queries and 64 keys on an MI300X, by its configuration for gfx942.
#
# ## Rung 4: powers of two (optional)
#
# As in lesson 03, a GPU has no instruction for $e^x$, but one for $2^x$, `v_exp_f32`. Here is the smallest kernel with
# the line that matters, and what an MI300X executes for it: one wave, 256 elements, four for each lane.


# %%
@triton.jit
def power_kernel(x_ptr, y_ptr, BASE_2: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    p = tl.exp2(x - 1.5) if BASE_2 else tl.exp(x - 1.5)
    tl.store(y_ptr + offs, p)


# %% tags=["nbval-ignore-output"]
numbers = torch.zeros(256), torch.empty(256)
report = amd_report(power_kernel, *numbers, BASE_2=False, BLOCK=256, num_warps=1, arch="gfx942")
assert "v_ldexp_f32" in report.asm
report.listing(only="p = ")

# %% [markdown]
# Four `v_exp_f32` among some two dozen others. `v_pk_add` subtracts, `v_pk_mul` multiplies by $\log_2 e$, two numbers
# at a time. The rest keeps results below $2^{-126}$ exact, where float32 still has a few numbers left and `v_exp_f32`
# gives 0. For a weight of attention these and 0 are the same.
#
# `tl.exp2` is the bare instruction. **Predict.** How many instructions are left?

# %% tags=["nbval-ignore-output"]
report = amd_report(power_kernel, *numbers, BASE_2=True, BLOCK=256, num_warps=1, arch="gfx942")
assert "v_ldexp_f32" not in report.asm
print("with tl.exp2")
report.listing(only="p = ")

# %% [markdown]
# And the factor $\log_2 e$ can be had for nothing, because the scores are multiplied by $1/\sqrt D$ anyway:
#
# $$ e^{s} = 2^{s \log_2 e}, \qquad \text{scale} = \frac{\log_2 e}{\sqrt D} $$
#
# Running maximum and sum are then those of powers of two. The weights do not change. How much does it matter? Let the
# simulator execute rung 3 for one head with 256 tokens, and ask it which lines of the kernel keep an MI300X busy:

# %% tags=["nbval-ignore-output"]
one_head = torch.randn(1, 256, 64, generator=generator).bfloat16()
tokens256 = (one_head, one_head, one_head, torch.empty_like(one_head), 256, 256, 64**-0.5)
# one stage: no loads are fetched ahead, where a loop has two products; nonkdim: explained at the end
tile64 = {"GROUP": 1, "D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "num_stages": 1, "matrix_instr_nonkdim": 16}
counted = simulator.simulate(tiled_kernel, (4, 1), tokens256, **tile64, arch="gfx942")
print("instructions  as cycles  of these:  matrix  transcendental")
for line in sorted(counted.by_line, key=lambda line: -line.instructions)[:7]:
    matrix, slow = (line.kinds.get(kind, 0) for kind in ("matrix", "transcendental"))
    cycles = line.instructions + 3 * slow + 15 * matrix  # 4 for a power of two, 16 for a matrix instruction
    print(f"{line.instructions / counted.instructions:12.0%}  {cycles:9,}  {matrix:17,}  {slow:14,}  {line.text[:60]}")
(powers,) = (line for line in counted.by_line if "p = tl.exp(" in line.text)
assert powers.instructions > 0.15 * counted.instructions and powers.kinds["transcendental"] > 0

# %% [markdown]
# Instructions are not alike. A `v_exp_f32` counts as four by LLVM's model, as in lesson 03. A matrix instruction of
# this size makes 2 · 16³ operations, for which a [matrix unit](05_matmul.ipynb#Glossary) needs 16 cycles at the peak of
# the data sheet. (The second column adds that up. It is an estimate, and the two units can work at the same time.)
#
# A fifth of all instructions is the line with `tl.exp`, and only a part of them are the powers themselves: `tl.exp2`
# leaves those and the subtraction, about a fifth of the line. (The line above it will have its turn in rung 6.) So the
# softmax around the products is no small change, and this is why so much thought goes into it.
#
# ## Rung 5: causal, and the tiles that nobody needs
#
# Now the [**causal mask**](#Glossary): query $i$ sees the keys up to $i$. In general there may be more keys than
# queries, for instance when the beginning of the text is already in a cache. The *last* query sees the last key, so
# query $i$ sees the keys up to $i + S_k - S_q$. The simplest change is one line: set all other scores to $-\infty$.
# (From here on the kernels take `tl.exp2`, which is cheaper, with $\log_2 e = 1.4427$ in the scale: $e^s = 2^{s \log_2
# e}$.)
#
# **Predict.** That gives the right result. What does it waste?


# %%
@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq_q, seq_k, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    mask_m = offs_m[:, None] < seq_q
    k_ptr += head // GROUP * seq_k * D
    v_ptr += head // GROUP * seq_k * D
    q = tl.load(q_ptr + (head * seq_q + offs_m)[:, None] * D + offs_d, mask=mask_m, other=0.0)

    keys_seen = tl.minimum(offs_m + 1 + seq_k - seq_q, seq_k)
    end = tl.max(keys_seen, axis=0) if SKIP else seq_k
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask_n = offs_n[:, None] < seq_k
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale * 1.4426950408889634  # log2 e
        scores = tl.where(offs_n < keys_seen[:, None], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
    o = acc / row_sum[:, None]
    tl.store(o_ptr + (head * seq_q + offs_m)[:, None] * D + offs_d, o.to(o_ptr.dtype.element_ty), mask=mask_m)


expected = reference.flash_attention(q[None], k[None], v[None], causal=True)[0]
with trace() as launch:
    o = run(causal_kernel, q, k, v, 16, 8, SKIP=False)
print("same as PyTorch:", torch.allclose(o, expected, atol=1e-5))
draw.causal_map(launch)

# %% [markdown]
# Each box is a tile of scores, 16 queries down and 8 keys across; the stair is the causal mask. What lies above it was
# loaded, multiplied and exponentiated, and then every weight in it was 0.
#
# `SKIP` ends the loop where the last query of the tile sees its last key. This is [**tile skipping**](#Glossary):

# %%
with trace() as launch:
    o = run(causal_kernel, q, k, v, 16, 8, SKIP=True)
print("same as PyTorch:", torch.allclose(o, expected, atol=1e-5))
draw.causal_map(launch)

# %% [markdown]
# ### One loop, two uses (optional)
#
# One waste is left. `tl.where` and the masks of the loads run in every tile, and only the tiles on the stair need them.
# So split the walk: first the blocks of keys that *every* query of the tile sees, then the rest. You do not want to
# write the loop twice. Move it into a [device function](03_fused_activations.ipynb#Glossary) with a constant `MASKED`,
# and the compiler makes two different loops of it.
#
# A device function cannot change its caller's variables. So what the loop carries from turn to turn, accumulator,
# maximum and sum, goes in as arguments and comes back as a tuple, as in Python.


# %%
@triton.jit
def load_rows(ptr, offs, rows, D: tl.constexpr, MASKED: tl.constexpr):
    ptrs = ptr + offs[:, None] * D + tl.arange(0, D)
    if MASKED:
        return tl.load(ptrs, mask=offs[:, None] < rows, other=0.0)
    return tl.load(ptrs)


@triton.jit
def attend(
    acc, row_max, row_sum, q, k_ptr, v_ptr, keys_seen, seq_k, scale, start, end,
    D: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the keys start .. end into the running output, maximum and sum."""
    for start_n in range(start, end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, seq_k, D, MASKED)
        v = load_rows(v_ptr, offs_n, seq_k, D, MASKED)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        if MASKED:
            scores = tl.where(offs_n < keys_seen[:, None], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        row_max = new_max
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
    return acc, row_max, row_sum


# %%
@triton.jit
def two_loops_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq_q, seq_k, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    start_m = tl.program_id(0) * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    k_ptr += head // GROUP * seq_k * D
    v_ptr += head // GROUP * seq_k * D
    q = load_rows(q_ptr + head * seq_q * D, offs_m, seq_q, D, True)
    scale *= 1.4426950408889634

    keys_seen = tl.minimum(offs_m + 1 + seq_k - seq_q, seq_k)
    whole = tl.maximum(tl.min(keys_seen, axis=0), 0) // BLOCK_N * BLOCK_N  # blocks that every query sees
    end = tl.max(keys_seen, axis=0)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, keys_seen, seq_k, scale, 0, whole, D, BLOCK_N, False
    )
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, keys_seen, seq_k, scale, whole, end, D, BLOCK_N, True
    )
    o = acc / row_sum[:, None]
    o_ptrs = o_ptr + (head * seq_q + offs_m)[:, None] * D + tl.arange(0, D)
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < seq_q)


o = run(two_loops_kernel, q, k, v)
print("same as PyTorch:", torch.allclose(o, expected, atol=1e-5))

# %% [markdown]
# ### The final kernel (optional)
#
# Three things are still to come, and none of them touches the loop.
#
# - **The longest first.** The programs are no longer equal: the last tile of queries walks over all keys, the first
#   over a single block. A GPU starts programs in the order of their numbers, and at the end short ones fill the gaps
#   better than long ones. So tiles are counted from the end.
# - **With or without the causal mask**, by a constant.
# - **A second result**, `lse`: one number for each row, of which more below.


# %%
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, seq_q, seq_k, scale,
    GROUP: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    start_m = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M  # the longest walks begin first
    offs_m = start_m + tl.arange(0, BLOCK_M)
    k_ptr += head // GROUP * seq_k * D
    v_ptr += head // GROUP * seq_k * D
    q = load_rows(q_ptr + head * seq_q * D, offs_m, seq_q, D, True)
    scale *= 1.4426950408889634

    beyond = 1 + seq_k - seq_q if CAUSAL else seq_k  # query i sees i + beyond keys, as far as there are any
    keys_seen = tl.minimum(offs_m + beyond, seq_k)
    whole = tl.maximum(tl.minimum(start_m + beyond, seq_k), 0) // BLOCK_N * BLOCK_N  # the first query sees the fewest
    end = tl.minimum(start_m + BLOCK_M - 1 + beyond, seq_k)  # and the last one the most
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, keys_seen, seq_k, scale, 0, whole, D, BLOCK_N, False
    )
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, keys_seen, seq_k, scale, whole, end, D, BLOCK_N, True
    )
    o = acc / row_sum[:, None]
    o_ptrs = o_ptr + (head * seq_q + offs_m)[:, None] * D + tl.arange(0, D)
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < seq_q)
    lse = (row_max + tl.log2(row_sum)) * 0.6931471805599453  # ln 2
    tl.store(lse_ptr + head * seq_q + offs_m, lse, mask=offs_m < seq_q)


# %%
def attention(q, k, v, causal=True, block_m=16, block_n=16):
    """o (H, Sq, D) and lse (H, Sq) of q (H, Sq, D) and k, v (KH, Sk, D); all contiguous."""
    (heads, seq_q, D), (kv_heads, seq_k, _) = q.shape, k.shape
    o, lse = torch.empty_like(q), torch.empty(heads, seq_q)
    constants = {"GROUP": heads // kv_heads, "D": D, "CAUSAL": causal, "BLOCK_M": block_m, "BLOCK_N": block_n}
    grid = (triton.cdiv(seq_q, block_m), heads)
    attention_kernel[grid](q, k, v, o, lse, seq_q, seq_k, D**-0.5, **constants)
    return o, lse


o, lse = attention(q, k, v)
print("same as PyTorch:", torch.allclose(o, expected, atol=1e-5))

# %% [markdown]
# **Predict.** 1024 tokens in tiles of 64 make 16 x 16 tiles for each head. How many are left after skipping? How many
# of those need a mask? And how much of the work is saved each time?

# %% tags=["nbval-ignore-output"]
one_head = torch.randn(1, 1024, 64, generator=generator).bfloat16()
inputs, sizes = (one_head, one_head, one_head, torch.empty_like(one_head)), (1024, 1024, 64**-0.5)
launches = {
    "masked everywhere": (causal_kernel, (*inputs, *sizes), {"SKIP": False}),
    "tiles skipped": (causal_kernel, (*inputs, *sizes), {"SKIP": True}),
    "two loops": (attention_kernel, (*inputs, torch.empty(1, 1024), *sizes), {"CAUSAL": True}),
}
counts = []
for name, (kernel, arguments, constants) in launches.items():
    counted = simulator.simulate(kernel, (16, 1), arguments, **tile64, **constants, arch="gfx942")
    counts.append(counted.instructions)
    matrix, read = counted.mix["matrix"], counted.loads.bytes
    print(f"{name:18} {counted.instructions:8,} instructions, {matrix:6,} matrix, {read:9,} bytes read")
assert counts[0] > 1.6 * counts[1] and counts[1] > 1.05 * counts[2]

# %% [markdown]
# 136 of the 256 tiles are left, as the matrix instructions show, and 16 of them lie on the stair. Skipping saves what
# the picture promised, and the second loop another tenth.
#
# ## Rung 6: why P is rounded (optional)
#
# `p.to(v.dtype)` has stood in every kernel so far. In float32 it does nothing. In bfloat16 it throws away 16 bits of
# numbers that were just computed with care, before they are used. The rule of this course is to round once, at the
# store. Why break it here?
#
# Because `tl.dot` takes operands of *one* type, as the matrix units do. p is float32, v is
# bfloat16. So either p is rounded, or v is widened. The kernel of rung 3 can do both: hand it v as bfloat16, or as
# float32. **Predict** what each GPU makes of the second product.

# %% tags=["nbval-ignore-output"]
tile = {"GROUP": 1, "D": 64, "BLOCK_M": 64, "BLOCK_N": 32, "num_stages": 1}
print(f"{'':12} {'P is':8} {'matrix instructions':60} registers  spilled")
for arch in ("gfx942", "gfx950", "gfx1100"):
    for name, dtype in (("rounded", torch.bfloat16), ("kept", torch.float32)):
        r = amd_report(tiled_kernel, *inputs[:2], inputs[2].to(dtype), inputs[3], *sizes, **tile, arch=arch)
        shapes = ", ".join(f"{count} x {shape}" for shape, count in r.matrix.items())
        print(f"{hardware.card(arch).name:12} {name:8} {shapes:60} {r.vgprs:9} {r.spills:8}")
assert r.spills > 0 and len(r.matrix) == 1  # the last one: gfx1100, kept

# %% [markdown]
# **Look.** Kept, an MI300X multiplies P and V by `f32` instructions (32x32x**2**). Each takes in 2 keys, where a
# bfloat16 one (32x32x**8**) takes 8. A Radeon RX 7900 has no matrix instruction for float32 at all. Half of its `wmma`
# are gone, the product is done by ordinary multiplications, and registers [spill](01_vector_add.ipynb#Glossary).
#
# And what does rounding cost in accuracy? The same bfloat16 inputs, both ways, against float64:

# %% tags=["nbval-ignore-output"]
half_q, half_k, half_v = (x.bfloat16() for x in (q, k32, v32))
exact = reference.flash_attention(half_q.double()[None], half_k.double()[None], half_v.double()[None])[0]
results = {
    "P rounded": run(tiled_kernel, half_q, half_k, half_v),  # 32 keys
    "P kept": run(tiled_kernel, half_q, half_k, half_v.float()),
    "exact, rounded at the end": exact.bfloat16(),
}
errors = [(o.double() - exact).abs() for o in results.values()]
for name, error in zip(results, errors):
    print(f"{name:26} mean error {error.mean():.1e}, largest {error.max():.1e}")
assert errors[0].mean() < 1.5 * errors[2].mean()

# %% [markdown]
# The result must be rounded to bfloat16 in any case, and that alone costs nearly as much. Here is why it is harmless.
# The weights are at most 1, by the maximum that was subtracted, so float16 cannot overflow. Each is off by at most one
# part in 512, up or down, and a mean over many values averages that out. What is *summed* stays in float32: the
# accumulator, and `row_sum`, which adds up p before it is rounded. So this rounding is not repeated from block to
# block.
#
# ## LSE: what a row leaves behind
#
# After the walk a row has two numbers, maximum and sum. Together they are one:
#
# $$ \text{lse}_i = m + \ln l = \ln \sum_j e^{s_{ij}} $$
#
# the *log-sum-exp*, [**LSE**](#Glossary). One number for each row, and it says what the whole softmax divided by:
# $p_{ij} = e^{s_{ij} - \text{lse}_i}$, no maximum needed. The backward pass lives on that. And with it results can be
# put together that were computed apart, as you merged two halves of a row.
#
# ### Two launches, one result (optional)
#
# The final kernel stores the LSE. Its maximum and sum are in base 2, so $\text{lse} = (m_2 + \log_2 l_2) \ln 2$. Give
# one launch the first 20 keys and another the rest:

# %%
o_a, lse_a = attention(q, k[:, :20].contiguous(), v[:, :20].contiguous(), causal=False)
o_b, lse_b = attention(q, k[:, 20:].contiguous(), v[:, 20:].contiguous(), causal=False)
lse = torch.logaddexp(lse_a, lse_b)
merged = torch.exp(lse_a - lse)[..., None] * o_a + torch.exp(lse_b - lse)[..., None] * o_b
whole, lse_whole = attention(q, k, v, causal=False)
print("same as in one go:", torch.allclose(merged, whole, atol=1e-6), torch.allclose(lse, lse_whole))

# %% [markdown]
# Online softmax once more, between launches instead of blocks. Lesson 07 shares out long caches in this way, when there
# is only one query and 300 compute units.
#
# ## The trap: rows that see nothing
#
# Some models let a token look back a fixed distance only, its *window*: 4096 tokens in Mistral 7B (Jiang and others,
# 2023). That is easy now. Query $i$ sees the keys from $i - W + 1$ to $i$, in general moved by $S_k - S_q$ as before.
# The loop begins where the first query of the tile sees its first key, and ends where the last one sees its last. For
# one head:


# %%
@triton.jit
def window_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq_q, seq_k, scale, WINDOW: tl.constexpr, MINUS_INFINITY: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_d, mask_m = tl.arange(0, D), offs_m[:, None] < seq_q
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d, mask=mask_m, other=0.0)
    keys_seen = offs_m + 1 + seq_k - seq_q
    start = tl.maximum(tl.min(keys_seen, axis=0) - WINDOW, 0) // BLOCK * BLOCK
    end = tl.minimum(tl.max(keys_seen, axis=0), seq_k)

    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start_n in range(start, end, BLOCK):
        offs_n = start_n + tl.arange(0, BLOCK)
        mask_n = offs_n[:, None] < seq_k
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        seen = (offs_n < keys_seen[:, None]) & (offs_n >= keys_seen[:, None] - WINDOW) & (offs_n < seq_k)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale * 1.4426950408889634
        scores = tl.where(seen, scores, MINUS_INFINITY)
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
    o = acc / row_sum[:, None]
    tl.store(o_ptr + offs_m[:, None] * D + offs_d, o, mask=mask_m)


def window(q, k, v, minus_infinity=-float("inf"), kernel=window_kernel, size=8):
    o = torch.empty_like(q)
    sizes = len(q), len(k), q.shape[1] ** -0.5
    kernel[(triton.cdiv(len(q), 16),)](q, k, v, o, *sizes, size, minus_infinity, D=q.shape[1], BLOCK=16)
    return o


def window_reference(q, k, v, size=8):
    scores = q @ k.T * q.shape[1] ** -0.5
    seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q)).triu(len(k) - len(q) - size + 1)
    return torch.where(seen, scores, -torch.inf).softmax(-1).nan_to_num() @ v


head = q[1], k[0], v[0]
with trace(watch=["scores", "row_max", "row_sum"]) as launch:
    o = window(*head)
wrong = o.isnan().any(dim=1)
print("right:", torch.allclose(o, window_reference(*head), atol=1e-5))
print("rows of NaN:", wrong.nonzero().flatten().tolist())

# %% [markdown]
# **Before you read on: which rows are these, and why?** The causal kernel has the same lines, and it was right. Each of
# these queries does see keys, eight of them. Here is one of them, block by block:

# %% tags=["nbval-ignore-output"]
frames = draw.online_softmax(launch, "k_ptr", scores="scores", base=2, program=1, row=12)
assert frames.notes == ("step 1: the kernel's sum is nan, that of the keys so far is 0",)
frames

# %% [markdown]
# Query 28 sees keys 21 to 28. Its tile begins at key 0, since query 16 sees key 9. So in its first block, keys 0 to 15,
# query 28 sees *nothing*, like all from 23 on. The new maximum is $-\infty$, and `scores - new_max` is $-\infty -
# (-\infty)$, which is NaN. And NaN times any factor stays NaN. (With a causal mask every query sees key 0, in its
# first block.)
#
# ### A repair that hides it (optional)
#
# The popular repair is a number that is "low enough" in place of $-\infty$:

# %%
o = window(*head, minus_infinity=-1e4)
print("right:", torch.allclose(o, window_reference(*head), atol=1e-5))

# %% [markdown]
# Right, but look how. In its first block query 28 now has the maximum -10000, and 16 weights of $2^0 = 1$: pure
# nonsense. In the second block comes a real score, the factor is $2^{-10000 - m} = 0$, and the nonsense is wiped out.
#
# **Predict.** What if no real score ever comes? Queries without keys exist: in a batch, short prompts are filled up
# with tokens that stand for nothing. Take all 37 queries and only 24 keys. The last query sees the last key, so the
# first 13 see none.

# %%
few = q[1], k[0, :24].contiguous(), v[0, :24].contiguous()
o = window(*few, minus_infinity=-1e4)
print(len(few[0]), "queries,", len(few[1]), "keys")
print("right:", torch.allclose(o, window_reference(*few), atol=1e-5))
print("zeros for a query that sees nothing:   ", bool((o[:13] == 0).all()))
mean = v[0, :16].mean(0).expand(13, 64)
print("the mean of the first 16 values instead:", torch.allclose(o[:13], mean, atol=1e-6))

# %% [markdown]
# Nothing wiped the nonsense out. A query that may see nothing gets the mean of the first sixteen values, those of other
# tokens. No NaN, no warning, a vector that looks like all others. It should be zero: a sum over no keys.
#
# ### The guard
#
# So $-\infty$ is right. What is missing is a guard where two of them meet. And a query may see no key at all, in no
# block: in a batch, short prompts are filled up with tokens that stand for nothing. Its result is a sum over no keys,
# zero, so a second guard keeps 0 from being divided by 0. (Take 37 queries and only 24 keys: the first 13 see none.)


# %%
@triton.jit
def guarded_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq_q, seq_k, scale, WINDOW: tl.constexpr, MINUS_INFINITY: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_d, mask_m = tl.arange(0, D), offs_m[:, None] < seq_q
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d, mask=mask_m, other=0.0)
    keys_seen = offs_m + 1 + seq_k - seq_q
    start = tl.maximum(tl.min(keys_seen, axis=0) - WINDOW, 0) // BLOCK * BLOCK
    end = tl.minimum(tl.max(keys_seen, axis=0), seq_k)

    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start_n in range(start, end, BLOCK):
        offs_n = start_n + tl.arange(0, BLOCK)
        mask_n = offs_n[:, None] < seq_k
        k = tl.load(k_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * D + offs_d, mask=mask_n, other=0.0)
        seen = (offs_n < keys_seen[:, None]) & (offs_n >= keys_seen[:, None] - WINDOW) & (offs_n < seq_k)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale * 1.4426950408889634
        scores = tl.where(seen, scores, MINUS_INFINITY)
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        centre = tl.where(new_max == -float("inf"), 0.0, new_max)  # nothing seen yet: any number will do
        p = tl.exp2(scores - centre[:, None])
        rescale = tl.exp2(row_max - centre)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        row_max = new_max
    o = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]  # nothing seen at all: 0 / 1
    tl.store(o_ptr + offs_m[:, None] * D + offs_d, o, mask=mask_m)


few = q[1], k[0, :24].contiguous(), v[0, :24].contiguous()
for name, case in (("every query sees keys", head), ("some see none", few)):
    o = window(*case, kernel=guarded_kernel)
    print(f"{name:22} right:", torch.allclose(o, window_reference(*case), atol=1e-5))

# %% [markdown]
# With a centre of 0 the weights of unseen keys are $2^{-\infty - 0} = 0$, and so is the factor: what is nothing stays
# nothing. The LSE of such a row is $-\infty$, and so it weighs nothing when parts are merged.
#
# ### In the field (optional)
#
# Both halves of this trap are alive in the field. A block of nothing but $-\infty$ made NaN of a loss in
# flash-attention ([#1930](https://github.com/Dao-AILab/flash-attention/issues/1930)). FlashInfer had a finite stand-in,
# -50000, and queries without keys came back with a finite LSE
# ([#4452](https://github.com/flashinfer-ai/flashinfer/issues/4452)). The repair put $-\infty$ in its place, and then
# needed the guard in three places ([#4401](https://github.com/flashinfer-ai/flashinfer/pull/4401)). So test attention
# with **a window**, and with **more queries than keys**.
#
# ## On real hardware (optional)
#
# ### Where P goes
#
# The first product leaves its result in registers, and the second wants P in registers. But are they the *right* ones?
# A matrix instruction fixes which lane holds which element, of its operands and of its result (lesson 05). Where the
# two layouts differ, P must change places between the lanes, and here the way from lane to lane leads through
# [LDS](02_rmsnorm.ipynb#Glossary). Ask the compiler for matrix instructions of 32 x 32 and of 16 x 16, and look at the
# line of the second product.

# %% tags=["nbval-ignore-output"]
final = (*inputs, torch.empty(1, 1024), *sizes)
tile = {"GROUP": 1, "D": 64, "CAUSAL": True, "BLOCK_M": 64, "BLOCK_N": 64, "num_stages": 1}
for arch in ("gfx942", "gfx950"):
    for size in (32, 16):
        options = {**tile, "matrix_instr_nonkdim": size}
        counted = simulator.simulate(attention_kernel, (16, 1), final, **options, arch=arch)
        (line,) = (line for line in counted.by_line if "acc = tl.dot" in line.text)
        lds, vector = line.kinds.get("LDS", 0), line.kinds["vector"]
        total = f"{counted.instructions:,} in all"
        print(f"{arch}, {size} x {size}:  in the second product {lds:6,} LDS, {vector:7,} vector;  {total}")
        assert (lds == 0) == (size == 16)

# %% [markdown]
# **Look.** With 16 x 16 the result of the first product lies exactly as the second one wants its operand, and P never
# leaves its lane. That is why the cells above asked for `matrix_instr_nonkdim=16`. And compare the vector instructions
# of the two GPUs: an MI300X has no instruction that rounds to bfloat16 and needs several for each weight. An MI350X
# rounds two weights with one, `v_cvt_pk_bf16_f32`.
#
# The whole kernel on both, and on a Radeon:

# %% tags=["nbval-ignore-output"]
reports = {}
for arch in ("gfx942", "gfx950", "gfx1100"):
    options = {"matrix_instr_nonkdim": 16} if arch.startswith("gfx9") else {}
    reports[arch] = amd_report(attention_kernel, *final, **tile, **options, arch=arch)
    assert reports[arch].spills == 0 and reports[arch].loads.keys() == {128}
    print(f"{arch:8} {reports[arch].rows()['registers']:45} waves per SIMD {reports[arch].occupancy.waves:g}")
reports["gfx942"]

# %% [markdown]
# ### How fast can it be?
#
# Like the matrix product, attention can be limited by arithmetic: two products of $2 S_q S_k D$ operations each, for
# every head; the causal mask halves that. Here are the composed and the fused version under the
# [roofline](05_matmul.ipynb#Glossary) of an MI300X, in bfloat16, with 32 heads of 128, for 4096 tokens. The composed
# one moves each matrix of pairs eight times, as counted at the beginning.

# %%
tokens, heads, dim = 4096, 32, 128
flops = 2 * 2 * heads * tokens**2 * dim / 2
fused_bytes = 4 * heads * tokens * dim * 2
composed_bytes = fused_bytes + 8 * heads * tokens**2 * 2
points = [draw.Point("fused", flops, fused_bytes), draw.Point("composed", flops, composed_bytes)]
draw.roofline(points, "MI300X", unit="bf16")

# %%
for name, moved in (("fused", fused_bytes), ("composed", composed_bytes)):
    bound = hardware.lower_bound(bytes=moved, flops=flops, gpu="MI300X", unit="bf16")
    print(f"{name:9} at least {hardware.format_seconds(bound.seconds):8} limited by {bound.roof}")

# %% [markdown]
# The composed version is on the slope, held back by memory. The fused one has reached the flat roof, and from there on
# the softmax competes with the products for the same compute units. What people reach: on an MI300X, causal, bfloat16,
# 16 heads of 128 and 16 sequences, a Triton kernel made 260 TFLOP/s at 4096 tokens and 364 at 16,384; AMD's own
# library, aiter, 409 and 494 ([attn-dsl-bench](https://midiareshadi.github.io/blog/attn-dsl-bench), 2026). The peak of
# the data sheet is 1307.
#
# This course has no figures of its own from an AMD GPU, but it has some from an NVIDIA H200. *ours* is
# `course_kernels.flash_attention`, *torch flash* and *torch cuDNN* are two backends of PyTorch. Sizes are batch, heads
# of queries and of keys, tokens, and head dimension, all in bfloat16:

# %% tags=["nbval-ignore-output"]
sizes = "(4, 32/32, 4096, 128) causal", "(1, 32/32, 16384, 128) causal"
table = bench.stored("flash_attention", *sizes, gpu="H200")
ours, flash, cudnn = (table.find(name, sizes[0]).seconds for name in ("ours", "torch flash", "torch cuDNN"))
assert flash > 1.2 * ours > cudnn
table

# %% [markdown]
# A kernel written in Triton is faster than PyTorch's flash backend there, and slower than cuDNN, which NVIDIA tunes for
# this very GPU. (Times of an H200 say nothing about an MI300X.) If you have a GPU, measure yours:

# %% tags=["nbval-ignore-output"]
if bench.available():
    big = torch.randn(3, 4, 32, 4096, 128, device=engines.device(), dtype=torch.bfloat16)
    work = 4 * 2 * 2 * 32 * 4096**2 * 128 / 2
    from_torch = torch.nn.functional.scaled_dot_product_attention
    print(bench.time(lambda: course_kernels.flash_attention(*big, causal=True), name="course", flops=work))
    print(bench.time(lambda: from_torch(*big, is_causal=True), name="PyTorch", flops=work))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Swap it in
#
# Let the model read its prompt by **your** kernel. `my_kernel` gives your answer to exercise 6.4 once it has passed.
# Until then it gives the kernel of the course, which is the one above, for any strides and a batch of sequences.
# Reading is prefill; for the tokens that the model then writes, one at a time, PyTorch's attention stays until lesson
# 07. Come back to this cell after the exercises.

# %%
from_pytorch = model.OPERATIONS["attention"]
mine = my_kernel("6.4", lambda q, k, v: course_kernels.flash_attention(q, k, v, causal=True))


def attention_of_prefill(q, k, v, *, causal=False):
    return mine(q, k, v) if q.shape[2] > 1 else from_pytorch(q, k, v, causal=causal)


prompt = "What is the capital of France?"
expected = llm.generate(prompt, max_new_tokens=8, progress=False)
with llm.using(attention=attention_of_prefill):
    answer = llm.generate(prompt, max_new_tokens=8, progress=False)
print(answer.text)
print("same tokens:", answer.tokens == expected.tokens)

# %% [markdown]
# ### And backwards? (optional)
#
# (For those who train models. Skip it if you do not.) The gradients need P again, and P was never written. PyTorch's
# formula keeps it: at 8192 tokens 2.4 GB in each layer, until the backward pass comes by. The fused kernel keeps the
# LSE, one number for each row, and *computes the scores a second time*:
#
# $$ p_{ij} = e^{s_{ij} - \text{lse}_i}, \qquad dV = P^T \, dO, \qquad dP = dO \, V^T $$
#
# The gradient of a softmax subtracts from each $dP_{ij}$ the mean of its row, weighted by P. That looks like one more
# reduction over keys, and there is a shortcut. The weighted mean of $dO_i \cdot v_j$ is $dO_i \cdot o_i$, which needs
# no keys at all:
#
# $$ \delta_i = \sum_d o_{id} \, dO_{id}, \qquad dS = P \circ (dP - \delta) \, / \sqrt D, \qquad
# dQ = dS \, K, \qquad dK = dS^T Q $$
#
# In PyTorch, against its own gradients:

# %%
wide = [x.double().requires_grad_() for x in (q[1], k[0], v[0])]
scale = 64**-0.5
out = (wide[0] @ wide[1].T * scale).softmax(-1) @ wide[2]
do = torch.randn(out.shape, dtype=torch.float64, generator=generator)
out.backward(do)

with torch.no_grad():
    scores = wide[0] @ wide[1].T * scale
    p = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
    delta = (out * do).sum(-1, keepdim=True)
    ds = p * (do @ wide[2].T - delta) * scale
    gradients = ds @ wide[1], ds.T @ wide[0], p.T @ do
print("same gradients:", [torch.allclose(x.grad, mine) for x, mine in zip(wide, gradients)])

# %% [markdown]
# As kernels these are two. dQ belongs to queries: a program takes a tile of queries and walks over the keys, as you
# know it. dK and dV belong to keys: a program takes a tile of keys and walks over the queries. Done in one, programs
# would have to add into each other's results, in an order that changes from run to run. You will write the first in
# exercise 6.6, and you can read both in [`course_kernels/attention.py`](../course_kernels/attention.py).
#
# ## What to read next
#
# - The exercises, [`exercises/06_attention.ipynb`](../exercises/06_attention.ipynb): a softmax (6.1), LSE in one walk
#   (6.2), the tiled attention (6.3), the prefill of the model (6.4), a window to repair (6.5), and the gradient of the
#   queries (6.6).
# - [`course_kernels/attention.py`](../course_kernels/attention.py), which takes any head dimension up to 256 and lets
#   heads that share keys meet in one L2 cache.
# - [07 KV cache](07_kv_cache.ipynb): one query, many keys.
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | softmax of a row, safely | `e = tl.exp(x - tl.max(x, axis=0))`, then `e / tl.sum(e, axis=0)` |
# | identity of both reductions | `other=-float("inf")` |
# | $S = Q K^T / \sqrt D$, in base 2 | `tl.dot(q, k.T) * scale`, `scale` times 1.4426950408889634 |
# | $s_{ij} = -\infty$ where $j$ is not seen | `tl.where(offs_n < keys_seen[:, None], scores, -float("inf"))` |
# | query $i$ sees keys up to $i + S_k - S_q$ | `keys_seen = tl.minimum(offs_m + 1 + seq_k - seq_q, seq_k)` |
# | $m' = \max(m, \max_j s_j)$ | `new_max = tl.maximum(row_max, tl.max(scores, axis=1))` |
# | a row that has seen nothing | `centre = tl.where(new_max == -float("inf"), 0.0, new_max)` |
# | $2^{s - m'}$ and $2^{m - m'}$ | `p = tl.exp2(scores - centre[:, None])`, `rescale = tl.exp2(row_max - centre)` |
# | $l' = l \, 2^{m - m'} + \sum_j p_j$ | `row_sum = row_sum * rescale + tl.sum(p, axis=1)` |
# | $O' = O \, 2^{m - m'} + P V$ | `acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])` |
# | $o = O / l$, or 0 | `acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]` |
# | $\text{lse} = (m + \log_2 l) \ln 2$ | `(row_max + tl.log2(row_sum)) * 0.6931471805599453` |
# | key head of query head $h$ | `head // GROUP` |
# | tiles that some query sees | `range(0, end, BLOCK_N)`, `end = start_m + BLOCK_M + seq_k - seq_q` |
#
# ### Glossary
#
# - **attention**: each token takes a mean of the values of other tokens, weighted by how well its query fits their keys
# - **softmax**: turns a row of scores into positive weights that add up to 1
# - **online softmax**: a softmax that takes its row block by block and corrects what it has summed
# - **running maximum**: the largest score so far
# - **rescaling**: multiplying sum and accumulator by $e^{m - m'}$ when the maximum rises from $m$ to $m'$
# - **causal mask**: a token sees itself and the tokens before it
# - **tile skipping**: leaving out the tiles of scores that nobody sees
# - **LSE**: $\ln \sum_j e^{s_j}$ of a row, all that the backward pass and a merge need of its softmax
# - **prefill**: reading the whole prompt at once, many queries together
