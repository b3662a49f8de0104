# %% [markdown]
# # 05 Matmul
#
# So far bytes were all that counted. An addition or a norm has finished its arithmetic long before its data have
# arrived. A product of matrices is different: it uses each number many times, and GPUs have special units for it.
# Nearly all arithmetic of a language model happens there.
#
# You need lessons 01 to 03: program, tile, mask, reduction, LDS. It takes about 55 minutes, without the exercises. Its
# short path takes about 20; the banks of LDS, the eight dies, the search and convolution are parts of their own.
#
# **In doing so, you will learn**
#
# - why a program computes a tile, and what its size decides
# - what `tl.dot` becomes on five AMD GPUs, and which lane holds what
# - what LDS and its banks do in a product, and how loads are started early
# - in which order a GPU of eight dies should take its tiles
# - what to fuse behind a product, how to search for a tile, and when to call the vendor's library instead

# %% tags=["nbval-ignore-output"]
import torch
import triton
import triton.language as tl

import course_kernels
import course_lab
from course_lab import bench, model, my_kernel
from gfxlab import amd_report, draw, engines, hardware, simulator, trace
from gfxlab.tracing import eager

llm = model.load(device="cpu")  # on the CPU, so that every launch below can be watched
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Where this sits in the model
#
# Every layer of SmolLM2 multiplies by four weights: one for queries, keys and values together, one behind attention,
# one for gate and up together, and one called down. The last two are the MLP. At the end of the model, the scores of
# all words are one more product. PyTorch's name for it is `linear`.

# %%
x, weight = llm.activations("layers.0.gate_up")
table = llm.operations(tokens=37)
linear = [row for row in table.rows if row.operation == "linear"]
print("products in a forward pass:     ", sum(row.calls for row in linear))
print(f"their part of all arithmetic:    {sum(row.calls * row.flops for row in linear) / table.flops:.1%}")
print(f"gate and up: x {tuple(x.shape)}, weight {tuple(weight.shape)}")

# %% [markdown]
# Row $n$ of the weight holds the factors of output $n$, so the product is $x W^\top$. Each of its 37 x 3072 results is
# a sum of 576 products. PyTorch launches one kernel for it, from the vendor's library: hipBLASLt or rocBLAS on an AMD
# GPU.
#
# Here is one such sum for each pair of rows, to begin with:

# %% [markdown] exercise_header="5.a"
# The dot product of row `r` of `a` with row `r` of `b`: a [reduction](02_rmsnorm.ipynb#Glossary), as in lesson 02.


# %% exercise="5.a"
@triton.jit
def row_dots_kernel(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    a = tl.load(a_ptr + row * K + k, mask=k < K, other=0.0)
    b = tl.load(b_ptr + row * K + k, mask=k < K, other=0.0)
    tl.store(c_ptr + row, tl.sum(a * b, axis=0))
    ### END SOLUTION


def row_dots(a, b):
    (M, K), c = a.shape, torch.empty(len(a))
    row_dots_kernel[(M,)](a, b, c, K, BLOCK=triton.next_power_of_2(K))
    return c


# %% [markdown]
# What limits the product? Each input once, each output once, against two operations for each product:

# %%
ridge = hardware.card("MI300X").ridge("bf16")
for tokens in (1, 37, 256, 2048):
    flops = 2 * tokens * 3072 * 576
    moved = 2 * (tokens * 576 + 3072 * 576 + tokens * 3072)  # bfloat16
    print(f"{tokens:4} tokens: {flops / moved:6.1f} operations a byte")
print(f"MI300X: from {ridge:.0f} on, arithmetic is the limit (in bfloat16)")

# %% [markdown]
# With one token a product is a memory problem like everything before: each number of the weight is read and used once.
# With a long prompt it becomes an arithmetic problem. But only if each number is really fetched about once. That is
# what this lesson is about.
#
# ## The idea on paper
#
# $$ c_{mn} = \sum_{k=0}^{K-1} a_{mk} \, b_{kn} $$
#
# One result needs a row of $A$ and a column of $B$: $2K$ numbers for $2K$ operations. Compute each result by itself,
# and you fetch one number for each operation.
#
# Now compute a whole [tile](01_vector_add.ipynb#Glossary) of results at once, $M_b$ rows by $N_b$ columns. For each $k$
# it takes $M_b$ numbers of $A$ and $N_b$ of $B$. One of $A$ serves a whole row of the tile, one of $B$ a whole column:
#
# | for each step along $K$ | one result | a tile |
# |---|---|---|
# | numbers fetched | $2$ | $M_b + N_b$ |
# | operations | $2$ | $2 M_b N_b$ |
# | operations for each number | $1$ | $\frac{2 M_b N_b}{M_b + N_b}$, which is $M_b$ for a square |
#
# So the side of the tile decides the kernel's [arithmetic intensity](01_vector_add.ipynb#Glossary): a number of
# bfloat16 has two bytes, so a square makes $M_b / 2$ operations a byte. The whole product fetches
#
# $$ M K N \left( \frac{1}{M_b} + \frac{1}{N_b} \right) \quad \text{numbers.} $$
#
# The sums of the tile are called its [**accumulator**](#Glossary). They stay in registers while the program walks along
# $K$, a block of $K_b$ at a time:
#
# | on paper | in the kernel |
# |---|---|
# | tile $(i, j)$ of $C$ | `tl.program_id(0)`, `tl.program_id(1)` |
# | its sums | `acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)` |
# | steps along $K$ | `for start in range(0, K, BLOCK_K)` |
# | $\sum_k a_{mk} b_{kn}$ over one block of $K$ | `acc = tl.dot(a, b, acc)` |
#
# ## Rung 1: one program, one result
#
# The simplest kernel is the one that you have just written, over the product of a row and a column:


# %%
@triton.jit
def one_result_kernel(a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, N, K, BLOCK_K: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, BLOCK_K)
    a = tl.load(a_ptr + m * stride_am + k * stride_ak, mask=k < K, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + k * stride_bk + n * stride_bn, mask=k < K, other=0.0).to(tl.float32)
    tl.store(c_ptr + m * N + n, tl.sum(a * b, axis=0))


a, b = x[:16, :64].contiguous(), weight[:16, :64].T
c = torch.empty(16, 16)
with trace() as launch:
    one_result_kernel[(16, 16)](a, b, c, *a.stride(), *b.stride(), 16, 64, BLOCK_K=64)
torch.testing.assert_close(c, a @ b)
launch.ledger()

# %% [markdown]
# A corner of 16 x 16 results, from the first 64 columns. Everything is fetched 16 times, once for each result that
# needs it. For the whole of gate and up, every element of `x` would be fetched 3072 times.
#
# ### How the matrix is stored (optional)
#
# There is a second problem, and it depends on how $B$ lies in memory. `weight.T` copies nothing: the strides are
# exchanged, and $k$ has stride 1. Had somebody stored the matrix as $(K, N)$, then $k$ would have stride $N$.
#
# **Predict.** 64 lanes of a wave read 64 neighbouring $k$ of one column. How many
# [lines](01_vector_add.ipynb#Glossary) of 128 bytes is that for each of the two?

# %% tags=["nbval-ignore-output"]
stored = {"(N, K), as a weight": b, "(K, N)": b.contiguous()}
print("64 numbers of 4 bytes")
for name, matrix in stored.items():
    run = simulator.simulate(
        one_result_kernel, (1, 1), (a, matrix, c, *a.stride(), *matrix.stride(), 16, 64), BLOCK_K=64, num_warps=1
    )
    (line,) = (line for line in run.by_line if "b = tl.load" in line.text)
    print(f"stored as {name:20} {line.loads.bytes} bytes of b from {line.loads.lines} lines")
    assert line.loads.lines == (2 if name.startswith("(N") else 32)

# %% [markdown]
# Two lines against 32. (Rows of this corner are 16 numbers long, so two of them share a line.) A tile has two sides,
# and lanes can walk along whichever of them has stride 1. So it cures this too; rung 4 counts it.
#
# ## Rung 2: one program, one tile
#
# `tl.dot(a, b, acc)` multiplies two tiles and adds the result to a third. Take sides of 16 or more; rung 3 shows why.
# The operands stay in their own type, float16 or bfloat16, because that is what the hardware multiplies; the sums are
# float32. So here the rule of lesson 02, widen after each load, has its one exception.
#
# **Predict.** Places past the edge of a matrix are masked. Past $M$ and $N$ any value would do in place of `other=0.0`.
# Why? And why not past $K$?


# %%
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k_a = start + tl.arange(0, BLOCK_K)[None, :]  # columns of a
        k_b = start + tl.arange(0, BLOCK_K)[:, None]  # rows of b
        a = tl.load(a_ptr + offs_m * stride_am + k_a * stride_ak, mask=offs_m < M, other=0.0)
        b = tl.load(b_ptr + k_b * stride_bk + offs_n * stride_bn, mask=offs_n < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + offs_m * N + offs_n, c, mask=(offs_m < M) & (offs_n < N))


def arguments(a, b):
    """What the kernel takes, with a fresh result as the third. K: a multiple of BLOCK_K."""
    (M, K), N = a.shape, b.shape[1]
    return a, b, torch.empty((M, N), dtype=a.dtype), *a.stride(), *b.stride(), M, N, K


def matmul(a, b, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64):
    args = arguments(a, b)
    grid = triton.cdiv(a.shape[0], BLOCK_M), triton.cdiv(b.shape[1], BLOCK_N)
    matmul_kernel[grid](*args, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    return args[2]


# %% [markdown]
# (`input_precision="ieee"` keeps all bits of float32, which not every GPU does by itself.) A row past $M$ spoils only
# results that are never stored. What stands past $K$ would join *every* sum. This kernel asks for whole blocks along
# $K$; exercise 5.2 does not. (One zero would do for a sum, if the other factor were a number. But zero times NaN is
# NaN.) Run it on the real thing, the first 96 outputs:

# %%
with trace() as launch:
    c = matmul(x, weight[:96].T, BLOCK_M=32, BLOCK_N=32, BLOCK_K=64)
torch.testing.assert_close(c, x @ weight[:96].T, atol=1e-4, rtol=1e-4)
walk = draw.tile_walk(launch, at_once=1)
walk[:2]

# %% [markdown]
# **Look.** $A$ lies to the left of $C$ and $B$ above it, as on paper. The program that owns a tile of $C$ walks along
# one band of $A$ and one of $B$. The numbers are its nine steps. Scroll once: the next program loads the same band of
# $B$ again, with another one of $A$.
#
# Now check the formula. **Predict** the bytes for square tiles of 16, 32 and 64, a product of 128 x 128 x 128 in
# float32:

# %%
a, b = torch.randn(2, 128, 128, generator=generator)
print("tile     by the formula   counted  operations a byte")
for side in (16, 32, 64):
    with trace() as launch:
        c = matmul(a, b, side, side, 64)
    torch.testing.assert_close(c, a @ b, atol=1e-4, rtol=1e-4)
    loaded = launch.ledger().bytes - c.nbytes
    formula = 4 * 128**3 * 2 // side
    print(f"{side} x {side}  {formula:14,}  {loaded:8,}  {2 * 128**3 / loaded:17.1f}")

# %% [markdown]
# **Why.** Twice the side, half the bytes. So why not make the tile as large as the matrix? Its sums live in registers.
# A tile of 256 x 256 has 65,536 of them. Divided by the 512 lanes of eight waves, that is 128 registers for each lane
# before anything else has been loaded. The tile is as large as the registers allow.

# %% [markdown] exercise_header="5.b"
# One program, one tile, one load: `a` times its own transpose. `a.T` of a block needs no load. (Without sums to add to,
# `tl.dot` takes two blocks.)


# %% exercise="5.b"
@triton.jit
def gram_kernel(a_ptr, c_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    m, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    mask = (m[:, None] < M) & (k[None, :] < K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=mask, other=0.0)
    ### BEGIN SOLUTION
    c = tl.dot(a, a.T, input_precision="ieee")
    tl.store(c_ptr + m[:, None] * M + m[None, :], c, mask=(m[:, None] < M) & (m[None, :] < M))
    ### END SOLUTION


def gram(a):
    M, K = a.shape
    c = torch.empty(M, M)
    gram_kernel[(1,)](a, c, M, K, BLOCK_M=32, BLOCK_K=32)
    return c


# %% [markdown]
# ## Rung 3: the matrix units
#
# What does `tl.dot` become? By hand you would add a column of `a` times a row of `b` to the tile, for every single $k$.
# Compare, for one tile of 64 x 64 x 64 in float16:


# %%
@triton.jit
def outer_products_kernel(
    a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One tile, no tail: for comparison only."""
    offs_m, offs_n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + offs_m * stride_am + k * stride_ak).to(tl.float32)
        b = tl.load(b_ptr + k * stride_bk + offs_n * stride_bn).to(tl.float32)
        acc += a[:, None] * b[None, :]
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc.to(c_ptr.dtype.element_ty))


# %% tags=["nbval-ignore-output"]
a16, b16 = (torch.randn(64, 64, generator=generator).half() for _ in "ab")
by_hand = simulator.simulate(outer_products_kernel, (1, 1), arguments(a16, b16), BLOCK_M=64, BLOCK_N=64)
by_dot = simulator.simulate(matmul_kernel, (1, 1), arguments(a16, b16), BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
for name, run in (("outer products", by_hand), ("tl.dot", by_dot)):
    print(f"{name:14}  {run.instructions:6,} instructions, of these {run.by_kind.get('matrix', 0)} matrix")
assert by_hand.instructions > 10 * by_dot.instructions and by_dot.by_kind["matrix"] == 32

# %% [markdown]
# 32 instructions do the work of thousands. Each [SIMD](01_vector_add.ipynb#Glossary) has a [**matrix unit**](#Glossary)
# besides its ordinary circuits (the data sheet of the MI300X counts 1216, four for each compute unit). AMD calls its
# instructions [**MFMA**](#Glossary) (matrix fused multiply-add) on Instinct and [**WMMA**](#Glossary) (wave matrix
# multiply-accumulate) on Radeon. One of them takes a small tile of $A$ and one of $B$, spread over the registers of
# *all* lanes of a wave, and adds their product to a tile of sums. The name says the size: `32x32x8` makes 32 x 32
# results, each a sum of 8 products.
#
# The same line of Triton, for five generations:

# %% tags=["nbval-ignore-output"]
for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
    name = next(card.name for card in hardware.CARDS.values() if card.arch == arch)
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        operands = arguments(a16[:, :16].to(dtype), b16[:16].to(dtype))
        report = amd_report(matmul_kernel, *operands, BLOCK_M=64, BLOCK_N=64, BLOCK_K=16, arch=arch)
        found.append(", ".join(report.matrix) or "none")
    print(f"{name:12} {arch:8}  {found[0]:26} {found[1]}")
    assert found[0] != "none" and (found[1] == "none") == arch.startswith("gfx1")

# %% [markdown]
# (`bf16 -> f32`: bfloat16 operands, float32 sums.) The MI350's instruction takes twice the $k$ of the MI200's and
# MI300's. Radeons work on 16 x 16, and have no matrix instruction for float32: there `tl.dot` falls back to ordinary
# multiplications.
#
# ### Which sizes? (optional)
#
# `tl.dot` takes smaller sides too: one row, or eight of $k$. **Predict.** What does the compiler make of them, if the
# instructions have fixed sizes?


# %%
@triton.jit
def sized_dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


# %% tags=["nbval-ignore-output"]
print(f"{'M x N x K':14}  {'MI300X':32}  RX 7900 XTX")
for M, N, K in ((64, 64, 64), (16, 16, 16), (16, 16, 8), (4, 64, 64), (1, 64, 64)):
    operands = torch.empty(M, K).bfloat16(), torch.empty(K, N).bfloat16(), torch.empty(M, N)
    found = []
    for arch in ("gfx942", "gfx1100"):
        r = amd_report(sized_dot_kernel, *operands, M=M, N=N, K=K, num_warps=1, arch=arch)
        found.append(", ".join(f"{count} x {shape}" for shape, count in r.matrix.items()) or "none")
    print(f"{f'{M} x {N} x {K}':14}  {found[0]:32}  {found[1]}")
    assert (found[0] == "none") == ((M, N, K) in ((16, 16, 8), (1, 64, 64)))
    assert found[1] != "none" or min(M, N, K) < 16

# %% [markdown]
# **Look.** Everything compiles. From 16 x 16 x 16 on, every GPU of this course has a matrix instruction for bfloat16.
# Below, they differ. For a Radeon, Triton 3.9 fills the tile up to 16 and multiplies zeros; Triton 3.6 did without the
# matrix instruction there. An MI300X has a small one, 4x4x4, which does 16 little products at once and suits 4 or 8
# rows of 64 columns. Where nothing suits, `tl.dot` becomes ordinary multiplications, and only the instruction count
# tells you. (Instinct has matrix instructions of other sizes that Triton does not use.)
#
# ### Which lane holds what? (optional)
#
# Let the simulator execute one on one wave, and look at what it reads and writes:

# %% tags=["nbval-ignore-output"]
a1, b1 = (torch.randn(32, 16, generator=generator).half() for _ in "ab")
shape = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 1}
steps = simulator.step(matmul_kernel, (1, 1), arguments(a1, b1.T), **shape, arch="gfx942")
mfma = steps.only("v_mfma")
result = mfma[-1].vectors
assert "32x32x8" in mfma[0].instruction.mnemonic and sum(vector.written for vector in result) == 16
mfma

# %% [markdown]
# Each strip is one register of all 64 lanes; the first six are shown. The instruction wrote 16: 16 x 64 is 1024, the 32
# x 32 results. (`BLOCK_K` is 16, so it took two instructions.) Here is where they belong in the unit's own tile, for
# lane 5:

# %% tags=["nbval-ignore-output"]
product, held = a1.float() @ b1.float().T, result[1].after.view("float32")[5]
print(f"register 1 of lane 5 holds       {held:.4f}")
print(f"the product, row 1, column 5:    {product[1, 5]:.4f}")
print(f"the product, row 5, column 1:    {product[5, 1]:.4f}")
assert abs(product[5, 1] - float(held)) < 1e-2  # Triton 3.9 hands over the operands exchanged
draw.matrix_unit("v_mfma_f32_32x32x8_f16", arch="gfx942", lane=5)

# %% [markdown]
# **Look.** $D$ is what comes out, $C$ the sums that went in: $D = AB + C$. Lane 5 brings 4 numbers of row 5 of $A$ and
# 4 of column 5 of $B$, in two registers each, and it keeps 16 of the sums, of one column. Neighbouring registers are
# neighbouring rows, four at a time, so its register 1 is row 1, column 5 of $D$.
#
# And yet the number above it is row **5**, column **1** of your product. Triton has handed over the operands exchanged:
# the unit multiplied $B^\top A^\top$, so its $D$ is your tile, transposed. Now the four neighbouring registers of a
# lane are four neighbours in a *row* of your tile, and the store at the end can be four times as wide.
#
# The same on a Radeon RX 7900, in WMMA:

# %%
draw.matrix_unit("v_wmma_f32_16x16x16_f16", arch="gfx1100", lane=5)

# %% [markdown]
# A wave of 32 lanes, 16 x 16 results, so 8 for each lane. Here every number of $A$ and $B$ is held *twice*, once in
# each half of the wave. The RX 9070 has given that up, which frees registers: try `arch="gfx1201"`.
#
# A number that a lane brings is used for a whole row or column of results, and is passed around inside the unit. How
# much faster is that, by the data sheets?

# %%
for name in ("MI300X", "RX 7900 XTX"):
    card = hardware.card(name)
    vector, matrix = card.rate("fp32") / 1e12, card.rate("bf16") / 1e12
    print(f"{name:11}  vector units {vector:6.1f} TFLOP/s in float32, matrix units {matrix:6.0f} in bfloat16")

# %% [markdown]
# ### float32 that is none (optional)
#
# Now `input_precision="ieee"`, which you have carried along. Leave it out, multiply two float32 matrices on three
# generations, and compare with float64.
#
# **Predict** the size of the error. float32 has 24 significant bits, and 32 terms are added.


# %%
@triton.jit
def one_dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, SAY_IEEE: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + places), tl.load(b_ptr + places)
    if SAY_IEEE:
        c = tl.dot(a, b, input_precision="ieee")
    else:
        c = tl.dot(a, b)
    tl.store(c_ptr + places, c)


# %% tags=["nbval-ignore-output"]
a32, b32 = torch.randn(2, 32, 32, generator=generator)
c32 = torch.empty(32, 32)
for arch in ("gfx90a", "gfx942", "gfx950"):
    for say_ieee in (False, True):
        run = simulator.simulate(one_dot_kernel, (1,), (a32, b32, c32), N=32, SAY_IEEE=say_ieee, arch=arch)
        error = (c32 - a32.double() @ b32.double()).abs().max()
        unit = next(i.mnemonic for i in run.program.instructions if i.kind == "matrix")
        print(f"{arch}  {'ieee' if say_ieee else 'default':8} {unit:26} largest error {error:.0e}")
        assert (error > 1e-3) == (arch == "gfx942" and not say_ieee)

# %% [markdown]
# On an MI300X the default is off by some thousandths, on the others it is not. The MI300 has a format called
# [**xf32**](#Glossary): float32 in memory, but the matrix unit keeps 10 bits of the fraction of each operand, as
# NVIDIA's TF32 does. That makes it four times as fast (654 instead of 163 TFLOP/s, by the data sheet), and Triton takes
# it unless you say `"ieee"`. The MI200 and MI350 do not have it, so the same kernel gives different results there.
#
# The interpreter cannot show that: it multiplies in float32. All kernels of this course say `"ieee"`.
#
# ## Rung 4: through LDS
#
# The operands come from memory with wide loads: with a weight for $B$, each lane gets 8 neighbours along $K$. The
# matrix unit wants something else: lane 5 needs row 5, and *every* wave that works on the same rows needs them too. The
# tiles must change hands. They go through [LDS](02_rmsnorm.ipynb#Glossary): all waves write what they have loaded,
# wait, and read what they need. Triton arranges that; you see it in the code as `ds_write` and `ds_read`:

# %% tags=["nbval-ignore-output"]
report = amd_report(matmul_kernel, *arguments(a16, b16.T), BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, arch="gfx942")
for instruction in report.program.instructions:
    if instruction.kind in ("LDS", "barrier", "matrix"):
        print(instruction.text)
        if instruction.kind == "matrix":
            break
print("LDS:", report.lds, "bytes; registers:", report.vgprs)
assert report.lds == 2 * 64 * 64 * 2

# %% [markdown]
# 16 KiB: the two tiles of operands, in float16.
#
# ### Banks (optional)
#
# LDS is fast because it is built of [**banks**](#Glossary), each four
# bytes wide, that work at the same time: 32 of them on an MI300X. Bank $i$ has the words $i$, $i + 32$, $i + 64$ and so
# on, and delivers one in a cycle. A wave's access is served in *phases*, a group of lanes at a time: 32 lanes where
# each asks for 4 bytes, 16 for 8 bytes, 8 for 16 bytes, so always 128 bytes. If two lanes of one phase want different
# words of the same bank, one waits: a [**bank conflict**](#Glossary). Lanes of different phases never meet.
# (*Understanding AMD GPU LDS and Bank Conflicts*, in the documentation of AMD's Composable Kernel, gives the phases of
# 16 bytes; the others follow from 128 bytes a cycle.)
#
# **Predict.** A tile of 32 columns of float32 lies row by row in LDS. 32 lanes read one *row*: which banks? And if they
# read one *column*?

# %%
lanes = torch.arange(32)
print("32 lanes read")
for name, words in (("a row", lanes), ("a column", 32 * lanes), ("a column, rows 33 words apart", 33 * lanes)):
    banks = words % 32
    print(f"{name:30} banks {banks[:4].tolist()} ...: {banks.bincount().max()} cycles")

# %% [markdown]
# A column costs 32 cycles instead of one, since all its words are in one bank. An MI350 has another LDS: 160 KiB, and
# 64 banks for reads of 8 and 16 bytes, which serve twice as many lanes in a phase. HazyResearch found that out on an
# MI355X, by letting pairs of lanes collide and reading the hardware's counter (HipKittens,
# `analysis/paper_experiments/phases`). Writes of 8 bytes still went to 32 banks, in phases of 16 lanes. So a layout
# that is right for one GPU need not be right for the next.
#
# Two cures are common. Make the rows a little longer than needed ([**padding**](#Glossary)): then the column spreads
# over the banks. Or mix up the places within each row, differently in each row ([**swizzling**](#Glossary)). Triton
# does one or the other for you, depending on the GPU. How well? The simulator counts each access, with the banks and
# phases of each GPU:

# %% tags=["nbval-ignore-output"]
print("arch     dtype     b stored as  lines loaded  LDS cycles  lost to conflicts  bytes of LDS")
cases = [("gfx942", torch.bfloat16, 64), ("gfx950", torch.bfloat16, 64), ("gfx1100", torch.float32, 32)]
for arch, dtype, side in cases:
    for name in ("(K, N)", "(N, K)"):
        p, q = (operand[:side, :side].to(dtype) for operand in (a16, b16))
        args = arguments(p, q.contiguous() if name == "(K, N)" else q.T.contiguous().T)
        run = simulator.simulate(matmul_kernel, (1, 1), args, BLOCK_M=side, BLOCK_N=side, BLOCK_K=side, arch=arch)
        lds, row = run.lds, f"{arch:7}  {str(dtype)[6:]:8}  {name:11}  {run.loads.lines:12}"
        print(f"{row}  {lds.cycles:10,}  {lds.conflicts:17,}  {run.compiled.lds:12,}")
        assert lds.cycles > 0 and (lds.conflicts == 0 or arch != "gfx942" or name == "(K, N)")

# %% [markdown]
# **Look.** Memory delivers the same lines whichever way $B$ is stored. In LDS there is a difference. With $B$ as
# $(N, K)$, like every weight of the model, bfloat16 has no conflict at all: both operands have their $k$ side by side,
# and so does the matrix unit. Stored as $(K, N)$, $B$ has to be turned on its way, which costs instructions and a few
# conflicts. The bytes for gfx950 are more than the tiles need: that is padding. (All this is Triton 3.9. In 3.6 there
# was no padding on gfx950, and both layouts had conflicts.)
#
# The last line is a warning. A Radeon multiplies float32 without a matrix unit, and there the friendly layout becomes
# the bad one: two thirds of the cycles are lost. Such a thing never shows in the results. Count.
#
# ## Rung 5: start loading early
#
# A load from memory takes long to arrive: the matrix unit could do much in that time. Let the simulator write down in
# which order one wave does things: G a load from memory, S a store, w a write to LDS, r a read from it, M a matrix
# instruction, | a [barrier](02_rmsnorm.ipynb#Glossary). Take four steps along $K$.
#
# **Predict.** With `num_stages=1` the program does what you wrote: load, multiply, load, multiply. When does the matrix
# unit wait?

# %% tags=["nbval-ignore-output"]
a256, b256 = (torch.randn(64, 256, generator=generator).half() for _ in "ab")
letters = {"global load": "G", "matrix": "M", "barrier": "|", "global store": "S"}


def strip(arch, num_stages):
    """What wave 0 executes, a letter for each instruction that moves or multiplies."""
    options = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": num_stages, "arch": arch}
    text = ""
    for frame in simulator.step(matmul_kernel, (1, 1), arguments(a256, b256.T), **options):
        name, kind = frame.instruction.mnemonic, frame.instruction.kind
        text += ("w" if "write" in name or "store" in name else "r") if kind == "LDS" else letters.get(kind, "")
    return text


strips = {stages: strip("gfx942", stages) for stages in (1, 2)}
for stages, text in strips.items():
    print(f"num_stages={stages}  {text}")
assert strips[1].count("M") == strips[2].count("M")
assert strips[1].partition("M")[0].count("G") == 4 < strips[2].partition("M")[0].count("G")

# %% [markdown]
# **Look.** Above, each GGGG is followed by writes of what it loaded, so everybody waits for memory, four times. Below,
# the Gs of the *next* step come before the Ms of this one or among them, and their w after most of these. While the
# matrix unit works, the data travel. This is [**pipelining**](#Glossary), and `num_stages` is how many steps, or
# [**stages**](#Glossary), are under way at the same time. The compiler rearranges the loop.
#
# ### What a stage costs (optional)
#
# An MI350 goes further. Look for the w:

# %% tags=["nbval-ignore-output"]
mi350 = strip("gfx950", 2)
print(mi350)
assert "M" in mi350

# %% [markdown]
# There is none. Its loads can go from memory into LDS directly, without registers in between. (Triton does so from 3.8
# on.)
#
# What does a stage cost? Every step that is under way needs a place for its two tiles. On an MI300X the newest one is
# still in registers, so LDS holds `num_stages - 1` of them. (With one stage the two tiles take turns in one place.)
# **Predict**: how many stages of 128 x 128 x 64 in bfloat16 fit into the 64 KiB of LDS of an MI300X?

# %% tags=["nbval-ignore-output"]
from gfxlab.code import AmdLimitError

large = arguments(torch.empty(4096, 4096).bfloat16(), torch.empty(4096, 4096).bfloat16().T)
for num_stages in (1, 2, 3, 4):
    options = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": num_stages, "arch": "gfx942"}
    try:
        report = amd_report(matmul_kernel, *large, **options)
    except AmdLimitError as refusal:
        print(refusal)
        assert num_stages == 4
    else:
        waves = report.occupancy
        print(f"{num_stages} stages: LDS {report.lds:6,}, registers {report.vgprs}, {waves.waves:g} waves a SIMD")

# %% [markdown]
# A step takes two tiles of 16 KiB. Three stages fill the LDS, and then only one program fits on a compute unit: one
# wave for each SIMD, with nobody to take over while it waits. Two stages leave room for two programs. AMD's workload
# guide for the MI300X recommends two for a kernel with one product, and it is Triton's default there. (The compiler
# does not refuse the fourth; the GPU would. The course's report checks it.)
#
# ## Rung 6: the order of the tiles
#
# Every number of $A$ is fetched once for each column of tiles. Not all of that comes from memory. Programs that run at
# the same time share a cache, the [**L2**](#Glossary). If two of them need the same tile of $A$, it comes from memory
# once. So what counts is how many *different* tiles are wanted at a time.
#
# Take $C$ of 8 rows and 16 columns of tiles, and 16 programs at a time. **Predict.** If the 16 are one row of $C$, how
# many different tiles do they load in a step? And if they are a square of 4 x 4? (`deal`, below, is for the section
# after this. With `XCDS=1` it changes nothing.)


# %%
@triton.jit
def grouped(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile: bands of GROUP_M rows, column by column within a band."""
    band, place = tile // (GROUP_M * tiles_n), tile % (GROUP_M * tiles_n)
    rows = tl.minimum(tiles_m - band * GROUP_M, GROUP_M)  # the last band may be lower
    return band * GROUP_M + place % rows, place // rows


@triton.jit
def deal(pid, programs, XCDS: tl.constexpr):
    """Neighbouring tiles for each of the XCDS dies; programs are dealt out to them in turn."""
    die, nth = pid % XCDS, pid // XCDS
    return die * (programs // XCDS) + nth


@triton.jit
def ordered_kernel(a_ptr, b_ptr, c_ptr, M, N, BLOCK: tl.constexpr, GROUP_M: tl.constexpr, XCDS: tl.constexpr):
    """One step along K, which is BLOCK long: enough to look at the order."""
    tile = deal(tl.program_id(0), tl.num_programs(0), XCDS)
    pid_m, pid_n = grouped(tile, tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK), GROUP_M)
    offs_m = pid_m * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = pid_n * BLOCK + tl.arange(0, BLOCK)[None, :]
    k_a, k_b = tl.arange(0, BLOCK)[None, :], tl.arange(0, BLOCK)[:, None]
    a = tl.load(a_ptr + offs_m * BLOCK + k_a, mask=offs_m < M, other=0.0)
    b = tl.load(b_ptr + k_b * N + offs_n, mask=offs_n < N, other=0.0)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + offs_m * N + offs_n, c, mask=(offs_m < M) & (offs_n < N))


def in_order(rows, columns, GROUP_M, XCDS):
    """The result, and the trace, of a product of rows x columns tiles of 16 x 16."""
    M, N = 16 * rows, 16 * columns
    a, b, c = torch.ones(M, 16), torch.ones(16, N), torch.full((M, N), torch.nan)
    with trace() as launch:
        ordered_kernel[(rows * columns,)](a, b, c, M, N, BLOCK=16, GROUP_M=GROUP_M, XCDS=XCDS)
    return c, launch


# %%
_, by_rows = in_order(8, 16, GROUP_M=1, XCDS=1)
_, in_bands = in_order(8, 16, GROUP_M=4, XCDS=1)
print("16 programs: a row of C")
draw.tile_walk(by_rows, at_once=16)[:1]

# %%
print("16 programs: a square")
draw.tile_walk(in_bands, at_once=16)[:1]

# %% [markdown]
# 17 different tiles against 8, for the same 16 results. (The numbers in the tiles say how many programs want them.)
# `GROUP_M=4` makes bands of four rows and walks through each band column by column, so that programs with neighbouring
# numbers form a square. This is [**grouped ordering**](#Glossary). Nothing else changes: it only renames the
# tiles.
#
# ### Eight dies (optional)
#
# An MI300X is not one chip. Its 304 compute units sit on eight dies, which AMD calls [**XCDs**](#Glossary) (accelerator
# complex dies). **Each has an L2 of its own**, of 4 MiB. And the hardware deals out programs in turn, says AMD's
# workload guide: program 0 to die 0, program 1 to die 1, program 8 to die 0 again. Programs with neighbouring numbers
# never share an L2.
#
# **Predict.** Bands of 8 rows, 8 dies: which tiles does die 0 get?

# %%
_, neighbours_apart = in_order(8, 16, GROUP_M=8, XCDS=1)
print("die 0, in bands of 8 rows")
draw.tile_walk(neighbours_apart, at_once=16, xcds=8, xcd=0)

# %% [markdown]
# One row of $C$: just what the bands were meant to avoid. In bands of eight rows, every eighth program has the same
# row. So first undo the dealing. That is what `deal` is for: program 0, 8, 16, ... shall get tiles 0, 1, 2, ... of the
# order. With `XCDS=8` and bands of 4:

# %%
_, together = in_order(8, 16, GROUP_M=4, XCDS=8)
draw.tile_walk(together, at_once=16, xcds=8, xcd=0)

# %% [markdown]
# The square is back, on each die. For a real size you need no kernel to count, only the order. Take 8192 x 8192 in
# tiles of 256 x 128, with 38 programs at a time on each of the eight dies:


# %%
def shared(tiles_m, tiles_n, GROUP_M, remap, dies=8, at_once=304, high=256, wide=128):
    """How often each number that a round loads is used, if each die's L2 holds one step of its programs."""
    programs, asked, fetched = tiles_m * tiles_n, 0, 0
    for first in range(0, programs, at_once):
        for die in range(dies):
            pids = [pid for pid in range(first, min(first + at_once, programs)) if pid % dies == die]
            tiles = [die * (programs // dies) + pid // dies if remap else pid for pid in pids]
            places = [divmod(tile, GROUP_M * tiles_n) for tile in tiles]  # 32 rows of tiles: no lower band
            rows = {band * GROUP_M + place % GROUP_M for band, place in places}
            columns = {place // GROUP_M for _, place in places}
            asked += (high + wide) * len(tiles)
            fetched += high * len(rows) + wide * len(columns)
    return asked / fetched


for GROUP_M in (1, 4, 8):
    plain, remapped = (shared(32, 64, GROUP_M, remap) for remap in (False, True))
    print(f"bands of {GROUP_M}: each tile is used {plain:.1f} times as dealt, {remapped:.1f} times after the remap")

# %% [markdown]
# **Why.** Plain rows, as dealt, do well here by luck: 64 is a multiple of 8, so a die always has the same eight
# columns, of about five rows. Bands alone destroy that, and so does the remap alone. Bands of 4 *and* the remap are
# best: 38 tiles are then 4 rows of 256 and about 10 columns of 128, nearly a square. Bands of 8 make it too high. On a
# GPU with one L2, such as a Radeon or the MI210, bands alone are right.
#
# This is a count of loads, not a time. On the NVIDIA H200 the order hardly matters. The course measured its own kernel
# there, with tiles of 128 x 128, at 8192 x 8192 x 8192:

# %% tags=["nbval-ignore-output"]
groups = bench.stored("groups", gpu="H200")
rates = {}
for figure in (figure for figure in groups.measurements if figure.name != "torch"):
    rates[figure.name.rpartition(", ")[2]] = figure.flops / figure.seconds / 1e12
print(groups.machine)
print(", ".join(f"{name}: {rate:.0f} TFLOP/s" for name, rate in rates.items()))
assert 1 < rates["groups of 8"] / rates["groups of 1"] < 1.1

# %% [markdown]
# Two percent between bands of 1 and of 8. Do not carry that over to an MI300X, which has other caches; the course had
# no AMD GPU to measure on.
#
# ## The trap: tiles that nobody computes (optional)
#
# `deal` is two lines, and you have seen it work. All inputs of `in_order` are ones, so every result must be 16. The
# result begins as NaN.

# %%
for rows, columns in ((8, 16), (8, 8), (16, 2), (5, 5), (6, 7)):
    c, _ = in_order(rows, columns, GROUP_M=4, XCDS=8)
    verdict = "right" if (c == 16).all() else "WRONG"
    print(f"{rows:2} x {columns:2} tiles: {verdict}, {int(c.isnan().sum()):3} results never written")

# %% [markdown]
# Three tests pass, and then whole tiles are missing: 256 results are one tile. No address was illegal, no mask is
# wrong.
#
# **Explain it before you read on.** 25 and 42 have something in common that 128, 64 and 32 do not have.

# %%
_, launch = in_order(5, 5, GROUP_M=4, XCDS=8)
draw.tile_walk(launch, at_once=25)

# %% [markdown]
# One tile was computed by two programs. 25 programs for 8 dies: die 0 gets four of them, each other die three. The
# formula gives every die `25 // 8 = 3` places. The fourth program of die 0 lands on place 3, where die 1 begins, and
# the last place is left over. On a GPU you would see no NaN there but what lay in memory before, which is often the
# right result of an earlier call.
#
# A die must begin behind *all* programs of the dies before it. The first `programs % XCDS` of these have one more:


# %%
@triton.jit
def deal(pid, programs, XCDS: tl.constexpr):
    """Neighbouring tiles for each of the XCDS dies; programs are dealt out to them in turn."""
    die, nth = pid % XCDS, pid // XCDS
    return die * (programs // XCDS) + tl.minimum(die, programs % XCDS) + nth


c, _ = in_order(5, 5, GROUP_M=4, XCDS=8)
print("5 x 5 tiles:", "right" if (c == 16).all() else "WRONG")


# %% [markdown]
# Whoever renames tiles must prove that each tile gets exactly one name, for *every* number of programs:

# %%
for name, more in (("without the remainder", 0), ("with it", 1)):
    wrong = []
    for programs in range(1, 700):
        dies = ((pid % 8, pid // 8) for pid in range(programs))
        tiles = {die * (programs // 8) + more * min(die, programs % 8) + nth for die, nth in dies}
        if tiles != set(range(programs)):
            wrong.append(programs)
    print(f"{name:21}: wrong for {len(wrong)} of 699 grids", wrong[:3])

# %% [markdown]
# The short formula is right for multiples of 8, and for a single program. Test shapes that are powers of two never
# notice. AMD's library aiter has the remainder in its `remap_xcd`; exercise 5.4 has a kernel that has not.
#
# ## Rung 7: the epilogue
#
# When the loop ends, the tile of sums is in registers. Whatever is done element by element to the result can be done
# now, before it is stored: a bias, an activation, a scale, a conversion. That part of the kernel is called its
# [**epilogue**](#Glossary). As a kernel of its own, an activation reads and writes all of $C$ again.
#
# **Predict.** A hidden layer of 2048 tokens with 3072 outputs in bfloat16: how many bytes does a fused activation save?
# Count it for 64 tokens:

# %%
x64 = torch.randn(64, 576, generator=generator).bfloat16()
w64 = (torch.randn(576, 256, generator=generator) / 24).bfloat16()
with trace() as product:
    plain = course_kernels.matmul(x64, w64)
with eager.count() as activation:
    separate = torch.nn.functional.silu(plain)
with trace() as fused:
    y = course_kernels.matmul(x64, w64, activation="silu")
saved = product.ledger().bytes + activation.bytes - fused.ledger().bytes
print(f"the result has {y.nbytes:,} bytes")
print(f"saved: {saved:,} bytes, {saved / y.nbytes:.0f} times the result, and one launch")
print(f"for 2048 x 3072 results: {2 * 2 * 2048 * 3072 / 1e6:.0f} MB")
truth = torch.nn.functional.silu(x64.double() @ w64.double())
for name, result in (("two kernels", separate), ("fused", y)):
    print(f"{name:11}  mean error {(result.double() - truth).abs().mean():.1e}")

# %% [markdown]
# Reading $C$ and writing it: twice its bytes. The fused result is also more accurate: rounded once, not twice.
#
# SmolLM2's MLP needs a little more. Gate and up, which its activation combines, are 1536 columns apart, in the tiles of
# two different programs. So one program must compute both tiles: two accumulators, one pass over `x`. That is exercise
# 5.5, and 5.3 is the simple case.
#
# ## Search for the tile (optional)
#
# You have met six numbers: `BLOCK_M`, `BLOCK_N`, `BLOCK_K`, `GROUP_M`, `num_warps`, `num_stages`. Each has good reasons
# to be large and good reasons to be small. [Autotuning](03_fused_activations.ipynb#Glossary) can try them, with
# `key=["M", "N", "K"]`, since a good tile depends on all three. A clock needs a GPU. Give it another measure to see it
# at work: the bytes that each tile loads.
#
# **Predict.** Three tiles of about the same size, and three shapes. Which tile wins where?


# %%
def bytes_asked_for(call, quantiles):
    measured.append(call)
    with trace() as launch:
        call()
    return [launch.ledger().bytes] * 3


tiles = [triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64}) for m, n in ((16, 128), (64, 64), (128, 16))]
tuned_kernel = triton.autotune(tiles, key=["M", "N", "K"], do_bench=bytes_asked_for)(matmul_kernel)

measured = []
for M, N in ((128, 128), (16, 256), (256, 16), (128, 128)):
    args, before = arguments(torch.ones(M, 64), torch.ones(64, N)), len(measured)
    tuned_kernel[lambda meta, M=M, N=N: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))](*args)
    best = tuned_kernel.best_config.kwargs
    print(f"{M:3} x {N:3}: {len(measured) - before} tiles tried, kept {best['BLOCK_M']:3} x {best['BLOCK_N']}")
assert (args[2] == 64).all()

# %% [markdown]
# A tile of the shape of the result wins, and the fourth launch finds its answer kept.
#
# Bytes asked for are no time. The course has searched once with a clock, on an NVIDIA H200, for all 84 combinations of
# seven tiles, two `BLOCK_K`, 4 or 8 warps and 2 to 4 stages, and kept every figure (`benchmarks/search.py`).
#
# **Predict.** Is the same configuration the best for every shape? How much slower is the worst?

# %% tags=["nbval-ignore-output"]
search = bench.stored("search", gpu="H200")
print(search.machine)
for size in dict.fromkeys(figure.size for figure in search.measurements):
    library = search.find("torch", size)
    tried = [figure for figure in search.measurements if figure.size == size and figure.name != "torch"]
    tried.sort(key=lambda figure: figure.seconds)
    print(f"\n{size}: torch.matmul takes {library.seconds * 1e6:.0f} us")
    for place in (0, 1, 2, len(tried) // 2, -1):
        figure = tried[place]
        print(f"  {figure.seconds * 1e6:6.0f} us  {figure.name}")
    assert len(tried) == 84 and tried[-1].seconds > 5 * tried[0].seconds and tried[0].seconds > library.seconds

# %% [markdown]
# **Look.** No: three shapes, three winners. The worst is 9 to 27 times slower than the best, and you can tell why
# without a clock. A tile of 128 x 256 on 4 warps of 32 lanes has 256 sums for each lane, and an NVIDIA lane has 255
# registers. They [spill](01_vector_add.ipynb#Glossary). And the middle of the list is about 1.5 to 3 times slower than
# the best: a tile taken from somewhere else is a bad guess.
#
# The last shape is telling in another way. 512 x 512 results are 16 tiles of 128 x 128, for the 132 processors of an
# H200. (An MI300X has 304.) Nearly all would be idle. The cure is [**split-K**](#Glossary): cut each sum into parts,
# give each part a program, and add up the parts at the end. The library is more than twice as fast here as the best
# plain tile. `course_kernels.matmul` splits for few rows (`launch.matmul_tiles`).
#
# All 84 in one picture: a dot for each configuration, the time over the results in its tile, a line along the best of
# each tile size.

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharex=True, layout="constrained")
for axis, size in zip(axes, dict.fromkeys(f.size for f in search.measurements)):
    tried = [f for f in search.measurements if f.size == size and f.name != "torch"]
    area = [int(m) * int(n) for m, n in (f.name.split()[:3:2] for f in tried)]
    micros = [1e6 * f.seconds for f in tried]
    best = {a: min(t for b, t in zip(area, micros) if b == a) for a in sorted(set(area))}
    axis.loglog(area, micros, ".", alpha=0.4)
    axis.loglog(list(best), list(best.values()), "o-", label="best")
    axis.axhline(1e6 * search.find("torch", size).seconds, color="k", linestyle="--", label="torch.matmul")
    axis.set(title=size, xlabel="results in a tile")
    axis.set_xticks([], minor=True)
    axis.set_xticks(list(best), best)
axes[0].set_ylabel("microseconds")
_ = axes[0].legend()
assert best[64 * 64] < best[256 * 128]  # 512 x 512: small tiles, more programs

# %% [markdown]
# **Look.** With a large product, larger tiles pay until registers run out. With few results (on the right of the
# three) it turns round: a larger tile means fewer programs, and a GPU with idle processors.
#
# ### Search without a clock
#
# For an AMD GPU that you do not have, you can at least throw away what cannot be good. This is a ranking by *counted*
# quantities, not by time:

# %% tags=["nbval-ignore-output"]
print("MI300X, 2 stages       operations a byte  registers  spilled     LDS  waves a SIMD")
found = []
for m, n, warps in ((64, 64, 4), (128, 128, 4), (256, 128, 8), (256, 256, 4), (256, 256, 8)):
    r = amd_report(matmul_kernel, *large, BLOCK_M=m, BLOCK_N=n, BLOCK_K=64, num_warps=warps, arch="gfx942")
    intensity = m * n / (m + n)
    row = f"{m} x {n} x 64, {warps} waves"
    print(f"{row:22} {intensity:17.0f}  {r.vgprs:9}  {r.spills:7}  {r.lds:6,}  {r.occupancy.waves:12g}")
    found.append((r.spills == 0, intensity, row))
print("most operations a byte without a spill:", max(found)[2])
assert 200 > max(found)[1] >= 64

# %% [markdown]
# Even 128 operations a byte are only half of the 247 from the beginning. So half of what the programs ask for must come
# from caches: from the L2, by the order of rung 6, and behind it from the Infinity Cache of lesson 01, 256 MB that all
# dies share. (A and B of 4096 x 4096 have 67 MB together: they fit.)
#
# What the ranking cannot tell is how well the compiler has interleaved the work. For that there is published
# experience. aiter, AMD's own library, ships with the table's winner, 2 stages and bands of 4 for large bfloat16
# products on the MI300X (its configuration of `gemm_a16w16` for gfx942). It adds `matrix_instr_nonkdim=16`, which asks
# for the MFMA of 16 x 16 instead of 32 x 32. AMD's workload guide says why: on the MI300X the small one usually wins,
# because it needs less power. You can ask for it too:

# %% tags=["nbval-ignore-output"]
small = amd_report(matmul_kernel, *large, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, matrix_instr_nonkdim=16, arch="gfx942")
print(small.matrix)
assert all("16x16x16" in shape for shape in small.matrix)

# %% [markdown]
# Another option of AMD's compiler is `waves_per_eu`: for how many waves a SIMD (an *execution unit*) should have room.
# More waves can hide more waiting, and each gets fewer of the 512 registers.
#
# **Predict.** A tile of 128 x 128 on four waves keeps 64 sums in each lane. What becomes of it as you ask for more?

# %% tags=["nbval-ignore-output"]
spilled = []
for waves in (0, 1, 2, 3, 4):
    options = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "waves_per_eu": waves, "arch": "gfx942"}
    r = amd_report(matmul_kernel, *large, **options)
    print(f"waves_per_eu={waves}: {r.vgprs} registers, {r.spills} spilled, {r.occupancy.waves:g} waves a SIMD")
    spilled.append(r.spills)
assert spilled[0] == spilled[2] == 0

# %% [markdown]
# 0 leaves it to the compiler. What the registers allow, LDS must allow as well: 32 KiB of 64 let two programs in,
# whatever you ask for.

# %% [markdown]
# ## Convolution is a matmul (optional)
#
# A two-dimensional convolution slides a window of, say, 3 x 3 pixels over an image of $C$ channels. Each output pixel
# is a sum over $9C$ products, for each of $F$ filters. That is a row of $9C$ numbers times a matrix $(9C, F)$: a matmul
# whose rows are output pixels.
#
# The obvious way is to write those rows down (called *im2col*) and call matmul. Every pixel is then stored nine times.
# The better way is to compute the *addresses* of that matrix, and never build it: an [**implicit GEMM**](#Glossary).
# (GEMM, general matrix multiplication, is the libraries' name for matmul.) The loop walks over the nine *taps* $(r, s)$
# of the window, and over the channels:
#
# ```python
# p, q = m // WIDTH, m % WIDTH                        # row m of the product is output pixel (p, q)
# h = p * STRIDE_H - PADDING_H + r * DILATION_H       # the input pixel under tap (r, s)
# w = q * STRIDE_W - PADDING_W + s * DILATION_W
# inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)    # outside the image: load 0
# places = h * stride_xh + w * stride_xw + channels * stride_xc
# x = tl.load(x_ptr + places, mask=inside & ..., other=0.0)
# acc = tl.dot(x, weight, acc)
# ```
#
# **Predict.** A 3 x 3 window with padding 1: how often is an inner pixel read, and how often one in a corner?

# %%
image = torch.randn(1, 32, 14, 14, generator=generator).to(memory_format=torch.channels_last)
filters = torch.randn(32, 32, 3, 3, generator=generator).to(memory_format=torch.channels_last)
with trace() as launch:
    y = course_kernels.conv2d(image, filters, padding=1)
torch.testing.assert_close(y, torch.nn.functional.conv2d(image, filters, padding=1), atol=1e-3, rtol=1e-3)
times = launch.times("x_ptr").reshape(14, 14, 32)
corner, edge, inner = times[0, 0, 0], times[0, 7, 0], times[7, 7, 0]
print("an image of", tuple(image.shape))
print(f"a corner is read {corner} times, an edge {edge} times, an inner pixel {inner} times")
unfolded = 2 * 9 * image.nbytes
print(f"im2col would write and read {unfolded:,} bytes; the image has {image.nbytes:,}")

# %% [markdown]
# Nine readings from a tensor small enough for the caches, instead of a nine times larger one in memory. A 3 x 3 kernel
# is exercise 5.6.
#
# ## On real hardware (optional)
#
# A [**roofline**](#Glossary) shows what a machine can do at best. To the right go operations for each byte. On the
# slope memory is the limit, on the flat part the matrix units. Three products, each byte counted once; hollow means
# that nothing was measured:

# %% tags=["nbval-ignore-output"]
points = []
for name, (m, n, k) in {
    "gate and up, 1 token": (1, 3072, 576),
    "gate and up, 2048 tokens": (2048, 3072, 576),
    "8192 x 8192 x 8192": (8192, 8192, 8192),
}.items():
    points.append(draw.Point(name, 2 * m * n * k, 2 * (m * k + k * n + m * n)))
draw.roofline(points, "MI300X", unit="bf16")

# %% [markdown]
# Number 1 stands on the slope: with one token memory is the limit, and no tile changes that. The others stand on the
# flat roof, and nobody gets there: with all matrix units at work the chip runs into its power limit, and its clock
# falls. AMD measured at most 708 TFLOP/s in bfloat16 on the MI300X, 54 % of the peak, with its own library at its best
# (*Measuring Max-Achievable FLOPs, part 2*, ROCm blog). So 54 % of the data sheet *is* the practical roof.
#
# And Triton? HazyResearch measured square bfloat16 products on an MI355X (HipKittens, `analysis/bf16_gemm`), in
# TFLOP/s:
#
# | side | 1024 | 2048 | 4096 | 8192 | 16384 |
# |---|---|---|---|---|---|
# | Triton | 59 | 271 | 934 | 1091 | 1086 |
# | hipBLASLt | 168 | 640 | 1433 | 1575 | 1579 |
#
# About seven tenths of the library, at best. Now the course's kernel on the NVIDIA H200, beside PyTorch's library,
# cuBLAS. (It is another run than the search above, so the same tile differs by up to a tenth.)

# %% tags=["nbval-ignore-output"]
standings = bench.stored("matmul", "1024 x 1024 x 1024", "4096 x 4096 x 4096", "8192 x 8192 x 8192", "16 x 4096 x 4096")
for size in ("4096 x 4096 x 4096", "8192 x 8192 x 8192"):
    assert 0.7 < standings.find("torch", size).seconds / standings.find("ours", size).seconds < 0.95
standings

# %% [markdown]
# ## When to use the library
#
# Unlike in every lesson before: **for a plain product of large matrices, call the library.** Write your own when
#
# - the epilogue does not exist there, and saves a pass over a large $C$ (as in 5.5)
# - the operands need work on their way in, such as 4-bit weights that must be unpacked
# - the shape is odd and skinny, where libraries have gaps; then measure both
# - the product is a part of something larger, as in attention, in lesson 06
#
# ### Measure it (optional)
#
# If you have a GPU, measure yours:

# %% tags=["nbval-ignore-output"]
if bench.available():
    p = torch.randn(4096, 4096, device=engines.device(), dtype=torch.bfloat16)
    q = torch.randn(4096, 4096, device=engines.device(), dtype=torch.bfloat16).T
    print(bench.time(lambda: course_kernels.matmul(p, q), name="course", flops=2 * 4096**3))
    print(bench.time(lambda: torch.matmul(p, q), name="library", flops=2 * 4096**3))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Swap it in
#
# Give layer 0 your kernel, for both products of its MLP. (Under the interpreter all 30 layers would take long.) The
# tiles are low, since there are few tokens, and wide, since that makes few programs:

# %%
prompt = "One, two, three,"
tokens = llm.tokenizer.encode(prompt)
layer = llm.weights.layers[0]


def with_kernel(product):
    """A `linear` that uses `product(a, b)` for the MLP of layer 0."""

    def linear(x, weight):
        mlp = weight is layer.gate_up or weight is layer.down
        return product(x, weight.T) if mlp else torch.nn.functional.linear(x, weight)

    return linear


def low_tiles(a, b):
    return matmul(a, b, BLOCK_M=16, BLOCK_N=256, BLOCK_K=64)


expected = llm.generate(tokens, max_new_tokens=3, progress=False)
with llm.using(linear=with_kernel(low_tiles)):
    swapped = llm.generate(tokens, max_new_tokens=3, progress=False)
print(prompt + swapped.text)
print("same tokens:", swapped.tokens == expected.tokens)

# %% [markdown]
# And with **yours**: `my_kernel` gives your answer to exercise 5.2 once it has passed. Come back to this cell then.

# %%
mine = my_kernel("5.2", low_tiles)
with llm.using(linear=with_kernel(mine)):
    my_tokens = llm.generate(tokens, max_new_tokens=1, progress=False)
print("same token:", my_tokens.tokens == expected.tokens[:1])

# %% [markdown]
# ### And backwards? (optional)
#
# The gradients of a product are products: $dA = dC \, B^\top$ and $dB = A^\top dC$. A transpose exchanges strides and
# copies nothing, so your kernel computes both as it stands: `matmul(dc, b.T)` and `matmul(a.T, dc)`.
#
# ## What to read next
#
# - The exercises: [`exercises/05_matmul.ipynb`](../exercises/05_matmul.ipynb). One tile (5.1), matmul (5.2), a linear
#   layer with its epilogue (5.3), an order of tiles to repair (5.4), gate and up in one launch (5.5), a convolution
#   (5.6).
# - The library's versions: [`course_kernels/matmul.py`](../course_kernels/matmul.py), with split-K, and
#   [`course_kernels/conv2d.py`](../course_kernels/conv2d.py).
# - AMD's *Matrix Instruction Calculator* prints the layout of every MFMA and WMMA instruction; the ROCm blog *Matrix
#   cores of CDNA3 and CDNA4* explains them.
# - [06 Online-softmax attention](06_attention.ipynb): two products with a softmax between them, in one kernel.
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | tile $(i, j)$ | `offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]`, `offs_n` with `[None, :]` |
# | sums in float32 | `acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)` |
# | $\sum_k a_{mk} b_{kn}$ | `acc = tl.dot(a, b, acc, input_precision="ieee")` in a loop over `start` |
# | what lies past $K$ | 0 in both operands, by their masks |
# | $x W^\top$ | `matmul(x, weight.T)`: the strides are exchanged, nothing is copied |
# | operations for each number loaded | `2 * BLOCK_M * BLOCK_N / (BLOCK_M + BLOCK_N)` |
# | LDS of a pipelined loop | up to `num_stages * (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize` |
# | bands of tiles | `rows = tl.minimum(tiles_m - band * GROUP_M, GROUP_M)`; row `band * GROUP_M + place % rows` |
# | neighbours on one die | `die * (programs // XCDS) + tl.minimum(die, programs % XCDS) + nth` |
# | $f(AB + \text{bias})$ | after the loop, before the store, in float32 |
# | convolution | rows are pixels; the tap shifts their address; `inside` masks the border |
#
# ### Glossary
#
# - **accumulator**: the sums of a tile, in registers from the first step to the last
# - **matrix unit**: multiplies small tiles that are spread over the registers of a wave; one for each SIMD
# - **MFMA**, **WMMA**: the instructions of the matrix units of Instinct and of Radeon GPUs
# - **xf32**: float32 operands with 10 bits of fraction; the default of float32 `tl.dot` on the MI300
# - **bank**: one of the 32 parts of LDS (an MI350 has 64 for wide reads); each delivers one word of 4 bytes a cycle
# - **bank conflict**: lanes of one phase that want different words of one bank wait for each other
# - **padding**, **swizzling**: longer rows, or rows with their places mixed up, against bank conflicts
# - **pipelining**, **stage**: loading for later steps while this one is computed; a step that is under way
# - **L2**: the cache that all compute units of a die share
# - **grouped ordering**: taking tiles in bands, so that programs that run together share operands
# - **XCD**: one of the dies of an MI300 or MI350, with an L2 of its own
# - **epilogue**: what a kernel does to a tile of sums before it stores it
# - **split-K**: several programs for one tile, each with a part of its sums
# - **implicit GEMM**: a convolution computed as a matmul whose operand is never built
# - **roofline**: the most operations a second that a machine allows, over the operations for each byte
