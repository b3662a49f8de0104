# %% [markdown]
# # 02 RMSNorm
#
# Now each result needs a whole row: you have to add up 576 numbers before you may write the first one. That is a
# [**reduction**](#Glossary), and most kernels of a language model contain one.
#
# You need lesson 01: program, block, mask, grid. It takes about 45 minutes, without the exercises. Its short path takes
# about 20: skip what is marked as optional.
#
# **In doing so, you will learn**
#
# - how a program adds up a row, and what the 64 lanes of a wave do meanwhile
# - which value the idle lanes must hold, and why `other=` is not a detail
# - why sums are kept in float32, and where `eps` belongs
# - what fusing an addition into the norm saves, in bytes that you predict and then count
# - when one row is too short for a program, and when it is too long

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
# A layer of SmolLM2 has two halves, attention and MLP. Between them runs the [residual
# stream](01_vector_add.ipynb#Glossary): a vector of 576 numbers for each token. Each half reads a *normalised* copy of
# the stream, computes something, and adds it to the stream.

# %%
llm.diagram()

# %% [markdown]
# How many norms does one forward pass run? The model counts them:

# %%
calls = llm.count_calls()
print("norms alone:         ", calls["rms_norm"])
print("addition, then norm: ", calls["add_rms_norm"])

# %% [markdown]
# 61 norms: two in each of the 30 layers and one at the end. All but the very first follow an addition to the stream.
#
# Here is what the first norm gets to see while the model reads *What is the capital of France?*

# %%
x, weight, eps = llm.activations("layers.0.input_norm")
print("x      ", tuple(x.shape), x.dtype, " one row for each token of the prompt")
print("weight ", tuple(weight.shape), weight.dtype)
print("eps    ", f"{eps:.0e}")

# %% [markdown] exercise_header="2.a"
# The last thing that a norm does to a row is to multiply each column by its weight. You know all that it takes. A
# program has one row; the rows of `x` lie `stride_xm` elements apart, those of `y` follow each other.


# %% exercise="2.a"
@triton.jit
def weighted_rows_kernel(x_ptr, w_ptr, y_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask)
    w = tl.load(w_ptr + cols, mask=mask)
    tl.store(y_ptr + row * N + cols, x * w, mask=mask)
    ### END SOLUTION


def weighted_rows(x, weight):
    (M, N), y = x.shape, torch.empty(x.shape)
    weighted_rows_kernel[(M,)](x, weight, y, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown]
# And this is the formula as people write it in PyTorch. Each operation in it runs by itself, as a kernel of its own: it
# reads its input from memory, and writes its result to memory.
#
# **Predict.** The result has as many elements as `x`. So at least `x` must be read and `y` written: two trips over the
# matrix. How many trips does PyTorch make?


# %% tags=["nbval-ignore-output"]
def composed(x, weight, eps):
    wide = x.float()
    mean_square = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps) * weight.float()).to(x.dtype)


with eager.count() as ops:
    composed(x, weight, eps)
floor = 2 * x.nbytes + weight.nbytes
assert ops.kernels >= 5 and 3 < ops.bytes / floor < 4
print(f"necessary: {floor:,} bytes")
print(f"moved:     {ops.bytes:,} bytes, {ops.bytes / floor:.1f} times as much")
ops

# %% [markdown]
# Six kernels, and three and a half times the bytes that are necessary. Four of the six walk over the whole matrix. In
# bfloat16, in which models usually run, the conversions come on top:

# %% tags=["nbval-ignore-output"]
x16, w16 = x.bfloat16(), weight.bfloat16()
with eager.count() as ops:
    composed(x16, w16, eps)
floor = 2 * x16.nbytes + w16.nbytes
assert ops.kernels >= 7 and 8 < ops.bytes / floor < 12
print(f"{ops.kernels} kernels, {ops.bytes / floor:.1f} times the necessary bytes")

# %% [markdown]
# Ten times. (PyTorch also has `F.rms_norm`, which recent builds run as one kernel on a GPU. The addition before
# it remains a kernel of its own.)
#
# ### Arithmetic, bytes, launches (optional)
#
# Does arithmetic matter? Per element the norm makes four operations: square, add, scale by the root, scale by the
# weight.

# %%
flops, moved = 4 * x.numel(), 2 * x.nbytes + weight.nbytes
ridge = hardware.card("MI300X").ridge("fp32")
print(f"RMSNorm:            {flops / moved:.1f} operations per byte")
print(f"an MI300X can do:  {ridge:.0f} operations in the time of one byte")

# %% [markdown]
# The arithmetic is free. Only bytes cost, and so does each launch. How many bytes that is depends on the prompt:
# weights are read once however long it is, but the residual stream grows with every token.

# %%
for tokens in (1, 37, 2048):
    norms = calls["add_rms_norm"] * 4 * tokens * 576 * 4  # x and residual in, y and new residual out, 4 bytes each
    whole_pass = llm.operations(tokens=tokens).bytes  # each operation as one kernel, each tensor read or written once
    share = f"{norms / 1e6:7.1f} MB of {whole_pass / 1e6:7.1f} MB, {norms / whole_pass:.1%}"
    print(f"{tokens:5} tokens: the norms move {share}")

# %% [markdown]
# For one token nearly all bytes are weights, those of the norms are a rounding error, and what counts are launches: 61
# of them, where PyTorch's formula makes six for each norm and one for each addition, 426 in all. For a prompt of 2048
# tokens the norms move a fifth of all bytes, even when every one of them is perfect.
#
# ## The idea on paper
#
# Row $r$ of $x$ has $N$ elements. RMSNorm divides the row by the root of its mean square, then scales each column by a
# learned weight (Zhang and Sennrich, 2019). A small $\varepsilon$ keeps a row of zeros from 0 / 0:
#
# $$ y_{rc} = \frac{x_{rc}}{\sqrt{\frac{1}{N}\sum_{k} x_{rk}^2 + \varepsilon}} \; w_c $$
#
# Lesson 01 cut the data into blocks of equal length and never asked where a row ends. That cannot work here. A block of
# 128 elements holds a quarter of a row, or the end of one row and the beginning of the next. The mean square needs the
# *whole* row before any element of it can be written, and one program must not wait for another: nothing promises that
# both run at the same time.
#
# So the **row is the unit of work**. Program $r$ owns row $r$, all of it:
#
# | on paper | in the kernel |
# |---|---|
# | row $r$ | `row = tl.program_id(0)` |
# | its elements $x_{r,0} \dots x_{r,N-1}$ | `x_ptr + row * stride_xm + cols` |
# | $\sum_k x_{rk}^2$ | `total = tl.sum(x * x, axis=0)` |
# | $1 / \sqrt{\cdot + \varepsilon}$ | `rstd = tl.rsqrt(total / N + eps)` |
# | $y_{rc}$ | `x * rstd * w` |
#
# `stride_xm` is how many elements lie between the beginnings of two rows of `x`. `tl.sum` turns a block into one
# number; `axis=0` says which axis disappears, and a row has only one.
#
# ## Rung 1: one program, one row
#
# **Predict.** `tl.arange` makes only powers of two. A row has 576 elements, so `BLOCK` is 1024: the block has 1024
# *lanes*, one for each of its places. How many lanes of each program have nothing to do? What must they hold so that
# the sum does not notice them?


# %%
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # int64: row * stride_xm passes 2**31 in a large tensor
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(total / N + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = x * rstd * w
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(kernel, x, weight, eps):
    """One program for each row of x (rows, N)."""
    rows, N = x.shape
    y = torch.empty_like(x)
    kernel[(rows,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown]
# `x` and `y` have a stride each. A slice of a wider matrix has rows that lie further apart than those of its result,
# and a kernel that stored with the stride of `x` would write past the end of `y`.
#
# Run it on the first eight tokens, and watch:

# %%
eight = x[:8]
with trace() as launch:
    y = run(rms_norm_kernel, eight, weight, eps)
torch.testing.assert_close(y, reference.rms_norm(eight, weight, eps))
print("same as PyTorch, up to float32 rounding")
launch.picture("x_ptr")

# %% [markdown]
# **Look.** Eight programs, eight rows. 448 of the 1024 lanes of each program are masked: nearly half. They cost nothing
# in memory, because masked lanes load nothing. They cost a little arithmetic, which is free here.
#
# Then the bytes:

# %%
launch.ledger()

# %% [markdown]
# **Why it is fast.** Each element of `x` is read once, and each of `y` is written once. Between the sum and the
# division the row stays in registers: nobody writes an intermediate matrix. That is all that [**fusing**](#Glossary)
# means. The ledger complains about the weight, which every program reads again. Those are the same 2304 bytes each
# time, and a GPU keeps them in its caches.
#
# ## Rung 2: how 256 lanes add up a row
#
# `tl.sum` looks like one step. But a lane can only see its own registers.
#
# On the machine, lanes are fewer. Triton gives a program four waves unless you say otherwise. On an MI300X that is 256
# lanes, and each of them takes care of 1024 / 256 = 4 places of the block. The sum runs in three stages:
#
# 1. **Inside a lane.** Each lane squares and adds its own four elements.
# 2. **Inside a wave.** Lanes add a neighbour's value to their own: first the lane 8 places away, then 4, 2, 1. Now 16
#    lanes are one sum, and two more steps join the four groups. The hardware has an operand form for this,
#    [**DPP**](#Glossary) (data parallel primitives): an addition that takes one operand from another lane, at about the
#    price of an ordinary addition.
# 3. **Across waves.** Waves cannot see each other's registers at all. Each writes its sum into [**LDS**](#Glossary)
#    (local data share), a small memory that the waves of one program share. They wait for each other at a
#    [**barrier**](#Glossary). Then each reads all four.

# %%
draw.reduction(lanes=64, waves=4)

# %% [markdown]
# ### The sum in machine code (optional)
#
# You can check that. These are the instructions that the AMD compiler makes for the line with `tl.sum`, for an MI300X:

# %% tags=["nbval-ignore-output"]
arguments = (eight, weight, y, eight.stride(0), y.stride(0), 576, eps)
report = amd_report(rms_norm_kernel, *arguments, BLOCK=1024, arch="gfx942")
assert report.mix["cross-lane"] >= 7 and report.mix["LDS"] >= 2 and report.mix["barrier"] >= 1
report.listing(only="tl.sum")

# %% [markdown]
# **Look** for the three stages:
#
# - `v_pk_mul_f32`, `v_pk_fma_f32`: a lane squares and adds its own four elements, two at a time (`pk` means packed)
# - `v_add_f32_dpp ... row_shr:8`, then `row_shr:4`, `2`, `1`: sums within 16 lanes. `row_bcast:15` and `row_bcast:31`
#   join the four groups of 16. Lane 63 then holds the sum of the wave, and `v_readlane_b32` fetches it
# - `ds_write_b32`, `s_barrier`, `ds_read_b32`: through LDS. Everything that begins with `ds_` is LDS. Two last DPP
#   additions add up the four waves
#
# You can also watch. The simulator follows wave 0 through these instructions. Give it a row of ones: then a number
# tells how many elements have been added up so far.
#
# **Predict.** Each lane adds its own 4. What will lane 63 hold after `row_shr:8`, after `4`, `2` and `1`? And what
# after the two `row_bcast`?

# %% tags=["nbval-ignore-output"]
ones = torch.ones(1, 1024)
row_of_ones = (ones, torch.ones(1024), torch.empty_like(ones), 1024, 1024, 1024, eps)
walk = simulator.step(rms_norm_kernel, (1,), row_of_ones, BLOCK=1024, arch="gfx942").only("tl.sum")
adds = [frame for frame in walk if frame.instruction.mnemonic.startswith("v_add_f32")]
print(f"{'':44} lane 31  lane 63")
for frame in adds:
    sums = frame.vectors[0].after.view("float32")
    print(f"{frame.instruction.text.partition(' row_mask')[0]:44}{sums[31]:8.0f}{sums[63]:9.0f}")
assert 256 in [frame.vectors[0].after.view("float32")[63] for frame in adds]  # the whole wave

# %% [markdown]
# **Look.** 4 from the lane itself, then 8, 16, 32 and 64 in the last lane of each group of 16. The plain `v_add_f32` is
# the step of `row_bcast:15`: a move before it has fetched the sum of the group before. `row_bcast:31` hands the sum of
# the first half to the second, and lane 63 has the 256 of its wave. The last two additions come after LDS: now every
# lane has the whole.
#
# Here is the passage through LDS, one step a frame. Scroll sideways: the sum of lane 63 becomes a scalar, goes into
# LDS, and after the barrier every lane reads the word of one of the waves. The map has a cell for each word of LDS, in
# the colour of the wave that wrote it:

# %% tags=["nbval-ignore-output"]
through_lds = walk.only("v_readlane", "ds_", "s_barrier")
assert set(through_lds[-1].lds.tolist()) == {0, 1, 2, 3}
through_lds

# %% [markdown]
# A Radeon RX 7900 has waves of 32 lanes, so it needs one step less inside a wave. Here are only the instructions that
# pass values between lanes and waves, in order; the first one finds out which wave this is:

# %% tags=["nbval-ignore-output"]
radeon = amd_report(rms_norm_kernel, *arguments, BLOCK=1024, arch="gfx1100")
assert radeon.limits.wave_size == 32 and radeon.mix["barrier"] >= 1
for instruction in radeon.program.instructions:
    if instruction.kind in ("cross-lane", "LDS", "barrier"):
        print(instruction.text)

# %% [markdown]
# **Predict.** What is left of this if the program has only *one* wave (`num_warps=1`; Triton calls a wave a warp)?

# %% tags=["nbval-ignore-output"]
one_wave = amd_report(rms_norm_kernel, *arguments, BLOCK=1024, num_warps=1, arch="gfx942")
for name, r in (("four waves", report), ("one wave", one_wave)):
    barriers = r.mix.get("barrier", 0)
    print(f"{name:10}  LDS {r.lds:2} bytes, {barriers} barriers, {r.vgprs} registers a lane, loads {r.loads}")
assert one_wave.lds == 0 and "barrier" not in one_wave.mix and one_wave.vgprs > report.vgprs

# %% [markdown]
# One wave needs no LDS and no barrier. What does it save besides? Let the simulator count every instruction that a wave
# executes, for the same eight rows:

# %% tags=["nbval-ignore-output"]
print("waves a row  instructions  of these in the line with tl.sum  at a barrier  bytes through LDS")
sums = []
for num_warps in (1, 2, 4, 8):
    launch = simulator.simulate(rms_norm_kernel, (8,), arguments, BLOCK=1024, num_warps=num_warps, arch="gfx942")
    (line,) = (line for line in launch.by_line if "tl.sum" in line.text)
    barriers = line.kinds.get("barrier", 0)
    print(f"{num_warps:11}  {launch.instructions:12,}  {line.instructions:32,}  {barriers:12}  {launch.lds.bytes:17,}")
    assert launch.lds.conflicts == 0 and launch.loads.bytes == 2 * eight.nbytes
    sums.append(line.instructions)
print("each against the one before:", ", ".join(f"{b / a:.1f}" for a, b in zip(sums, sums[1:])), "times in tl.sum")
assert all(1.7 < b / a < 2.8 for a, b in zip(sums, sums[1:]))

# %% [markdown]
# **Why.** The bytes from memory are the same each time. But every wave climbs the whole ladder of additions by itself,
# however few elements it has, so twice the waves is about twice the work for `tl.sum`, and a little more from the first
# to the second, because LDS comes in.
#
# Is one wave faster, then? This count cannot tell. You saw above that arithmetic is nearly free here: while
# instructions are few enough to hide behind memory, their number does not matter. What counts then is how many bytes
# are on their way. One wave with 16 elements a lane has as many loads in flight as four waves with 4, and needs more
# registers for them. Only where a row comes from a cache, or is so short that waiting at barriers is most of its time,
# does the smaller number win. So this is a question for a clock. The course's kernels choose by the width of the row,
# in one place, `course_kernels/launch/`.
#
# ## Rung 3: what the idle lanes hold
#
# `tl.sum` has no mask. It adds up all 1024 lanes, idle or not. So the idle lanes must hold what a sum ignores. You told
# them so with `other=0.0`.
#
# **Predict.** What happens if you leave `other=` out? The mask is still there, so nothing illegal is read.


# %%
@triton.jit
def no_other_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask).to(tl.float32)  # other= is missing
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)  # here too
    tl.store(y_ptr + row * stride_ym + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


print("row 0 begins with")
print(run(no_other_kernel, eight, weight, eps)[0, :4])

# %% [markdown]
# NaN, in every element of every row. A masked lane without `other=` holds *anything*: Triton makes no promise. The
# interpreter of this course fills such lanes with NaN on purpose, so that you notice.
#
# ### The same mistake on a GPU (optional)
#
# A GPU is less honest. This is what an MI300X executes for that line:

# %% tags=["nbval-ignore-output"]
amd_report(no_other_kernel, *arguments, BLOCK=1024, arch="gfx942").listing(only="tl.load(x_ptr")

# %% [markdown]
# `buffer_load` reads 0 for a lane whose offset is out of range, and `v_cndmask` gives every masked lane such an offset.
# So here the kernel would be right, by luck. Where the compiler cannot prove that all offsets are small, it takes
# `global_load` instead, which leaves the register of a masked lane as it was. Then the kernel is wrong, sometimes.
#
# ### The rule
#
# The missing `other=` of the *weight* does no harm, because those lanes are never stored and never summed.
#
# > A lane that takes part in a **reduction** must hold the [**identity**](#Glossary) of that reduction.
#
# | what follows | identity | `other=` |
# |---|---|---|
# | `tl.sum` | 0 | `0.0` |
# | `tl.max` | $-\infty$ | `-float("inf")` |
# | `tl.min` | $+\infty$ | `float("inf")` |
# | nothing, the lanes are only stored under the same mask | any | leave it out, or `0.0` |
#
# Note also what stands under the fraction: `total / N`, not `total / BLOCK`. Idle lanes add nothing to the sum, and
# they must not be counted as elements either.

# %% [markdown] exercise_header="2.b"
# The largest element of each row, for rows of any width without gaps between them: another reduction, `tl.max`, and
# another identity.


# %% exercise="2.b"
@triton.jit
def row_maximum_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
    tl.store(y_ptr + row, tl.max(x, axis=0))
    ### END SOLUTION


def row_maximum(x):
    (M, N), y = x.shape, torch.empty(len(x))
    row_maximum_kernel[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown]
# ## Rung 4: float32 inside, and eps under the root
#
# Why is every load followed by `.to(tl.float32)`? Take a row from the middle of the model, and leave the conversion
# out.

# %% tags=["nbval-ignore-output"]
added, residual, w15, eps = llm.activations("layers.15.input_norm")
stream = added + residual
largest = stream.abs().amax(dim=1)
assert 300 < largest[0] < 65504
print(f"largest element of token 0: {largest[0]:,.0f}, of a typical token: {largest.median():,.0f}")

# %% [markdown]
# The residual stream of SmolLM2 has outliers of more than twenty thousand. Most language models have such [**massive
# activations**](#Glossary), often at the first token (Sun and others, *Massive Activations in Large Language Models*,
# 2024). The largest float16 is 65504, so the elements fit.
#
# **Predict.** Do their squares?


# %%
@triton.jit
def half_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0)  # stays float16
    total = tl.sum(x * x, axis=0)
    rstd = tl.rsqrt((total / N).to(tl.float32) + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride_ym + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


half = stream[:2].half()
with_overflow = run(half_kernel, half, w15, eps)
right = run(rms_norm_kernel, half, w15, eps)
print("squared in  the row is all zeros")
print("float32    ", bool((right[0] == 0).all()))
print("float16    ", bool((with_overflow[0] == 0).all()))

# %% [markdown]
# The square of 300 already passes 65504 and becomes infinity. The mean square is infinite, one over its root is zero,
# and the whole row is wiped out. No NaN, no error: the model just forgets its first token.
#
# bfloat16 does not overflow: it has the range of float32. But it keeps only eight significant bits. Count to 576 in it:

# %%
total = torch.tensor(0.0, dtype=torch.bfloat16)
for _ in range(576):
    total += 1
total

# %% [markdown]
# At 256 it stops. The next number that bfloat16 knows is 258, so 256 + 1 is rounded back to 256, for ever. A sum needs
# more bits than its terms. Hence the rule of every kernel in this course: **load, widen to float32, compute, round once
# at the store.** It moves no more bytes. It costs an instruction or so for each element on its way in, since a bfloat16
# is the upper half of a float32, and a few on its way out, for the rounding; in a kernel that waits for memory they
# hide.
#
# ### Where eps belongs (optional)
#
# Now `eps`. It is there for rows with (nearly) nothing in them. People put it in three places:

# %%
generator = torch.Generator().manual_seed(0)
rows = {"ordinary": 1.0, "tiny": 1e-3, "zero": 0.0}
print(f"{'row':10}{'inside':>10}{'outside':>10}{'none':>10}   largest element of x * rstd")
for name, scale in rows.items():
    row = scale * torch.randn(576, generator=generator)
    mean_square = row.square().mean()
    inside = 1 / torch.sqrt(mean_square + 1e-5)
    outside = 1 / (torch.sqrt(mean_square) + 1e-5)
    none = 1 / torch.sqrt(mean_square)
    print(f"{name:10}" + "".join(f"{(row * rstd).abs().max():10.3f}" for rstd in (inside, outside, none)))

# %% [markdown]
# On an ordinary row nobody can tell them apart, so a test on `torch.randn` cannot either. On tiny rows they differ
# threefold, and on zeros only those with an `eps` survive. Inside the root is what the formula says, and what the model
# was trained with. Tests of a norm therefore need tiny rows and zero rows.
#
# ## Rung 5: fuse the addition
#
# 60 of the 61 norms come right after `residual = residual + x`. Two kernels, each perfect, leave something on the
# table.
#
# **Predict.** Count trips over the matrix. The addition alone: reads and writes? The norm alone? Both in one kernel,
# which must return the normalised row *and* the new residual?
#
# Now count. `course_kernels.add_rms_norm` is the fused kernel of the course; you will write your own in exercise 2.3.

# %%
added8, residual8 = added[:8], residual[:8]
with eager.count() as addition:
    summed = added8 + residual8
with trace() as norm:
    y_separate = course_kernels.rms_norm(summed, w15, eps)
with trace() as fused:
    y_fused, new_residual = course_kernels.add_rms_norm(added8, residual8, w15, eps)

one_trip = added8.nbytes
separate_bytes, fused_bytes = addition.bytes + norm.ledger().least, fused.ledger().least
print(f"one trip:       {one_trip:,} bytes")
print(f"add, then norm: {separate_bytes:,} bytes, {separate_bytes / one_trip:.1f} trips, 2 launches")
print(f"fused:          {fused_bytes:,} bytes, {fused_bytes / one_trip:.1f} trips, 1 launch")
print("same result:   ", torch.equal(y_fused, y_separate) and torch.equal(new_residual, summed))

# %% [markdown]
# | | reads | writes | trips |
# |---|---|---|---|
# | add, then norm | `x`, `residual`, then the sum | the sum, then `y` | 5 |
# | fused | `x`, `residual` | the sum and `y` | 4 |
#
# Five trips and four, as predicted; the 0.1 is the weight. A fifth of the bytes and half of the launches are gone, at
# sixty places of the model. The sum is still in registers when it is normalised.
#
# ### Which sum is normalised? (optional)
#
# One trap lies in that sentence. In float32 there is nothing to round. In bfloat16 the sum is *rounded* when it is
# stored, and the next layer will read the rounded one. Which one should be normalised?

# %%
generator = torch.Generator().manual_seed(0)
a, b = (torch.randn(8, 576, generator=generator).bfloat16() for _ in range(2))
w = (1 + 0.2 * torch.randn(576, generator=generator)).bfloat16()

separate = course_kernels.rms_norm(a + b, w, 1e-5)
fused_rounded, _ = course_kernels.add_rms_norm(a, b, w, 1e-5)
fused_unrounded = reference.rms_norm(a.float() + b.float(), w, 1e-5).bfloat16()
print("normalises the rounded sum:   equal to add, then norm:", torch.equal(fused_rounded, separate))
print(f"normalises the unrounded sum: {(fused_unrounded != separate).float().mean():.0%} of the elements differ")

# %% [markdown]
# The unrounded sum is *more accurate*, and still the wrong choice. `y` would belong to a residual that no later layer
# has, and the fused model would no longer agree with the unfused one. So the course's kernel rounds the sum, widens it
# again, and normalises that. It costs two conversions in registers.
#
# ## Rung 6: short rows (optional)
#
# Some models normalise each attention head by itself: rows of 64 or 128 elements, and very many of them (Qwen3 does,
# with a head of 128).
#
# **Predict.** Give a row of 64 elements to a program of four waves. How many of its 256 lanes have work? How wide is
# the load of each, where the hardware could fetch 128 bits at once?
#
# The cure is to give each program several rows. The block becomes a [tile](01_vector_add.ipynb#Glossary) of `BLOCK_M`
# rows and `BLOCK_N` columns, and the sum runs along `axis=1`: that axis disappears, and one number for each row is
# left. `[:, None]` makes a column of these numbers again, so that each row is scaled by its own:


# %%
@triton.jit
def short_rows_kernel(x_ptr, w_ptr, y_ptr, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    offs = rows[:, None] * N + cols[None, :]
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)  # BLOCK_M numbers
    y = x * rstd[:, None] * w[None, :]
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


short, short_w = torch.randn(37, 64), torch.randn(64)
out = torch.empty_like(short)
short_rows_kernel[(triton.cdiv(37, 16),)](short, short_w, out, 37, 64, 1e-6, BLOCK_M=16, BLOCK_N=64)
print("right:", torch.allclose(out, reference.rms_norm(short, short_w, 1e-6), atol=1e-5))

# %% [markdown] exercise_header="2.c"
# The sum of each row, sixteen rows a program.


# %% exercise="2.c"
@triton.jit
def tile_sums_kernel(x_ptr, y_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + rows, tl.sum(x, axis=1), mask=rows < M)
    ### END SOLUTION


def tile_sums(x):
    (M, N), y = x.shape, torch.empty(len(x))
    tile_sums_kernel[(triton.cdiv(M, 16),)](x, y, M, N, BLOCK_M=16, BLOCK_N=triton.next_power_of_2(N))
    return y


# %% [markdown]
# What does it buy? Two kernels of the course's library, which take both numbers:

# %% tags=["nbval-ignore-output"]
from course_kernels.rms_norm import rms_norm_kernel as course_kernel

heads, w64 = torch.empty(512, 64), torch.empty(64)
shape = (heads, None, w64, heads, None, 64, 0, 512, 64, 1e-5)  # no residual; strides; rows, columns
one_row = amd_report(course_kernel, *shape, BLOCK_M=1, BLOCK_N=64, arch="gfx942")
many_rows = amd_report(course_kernel, *shape, BLOCK_M=16, BLOCK_N=64, arch="gfx942")
print("one row a program: loads of", max(one_row.loads), "bits a lane")
print("16 rows a program: loads of", max(many_rows.loads), "bits a lane, LDS", many_rows.lds, "bytes")
assert max(one_row.loads) == 32 and max(many_rows.loads) == 128

# %% [markdown]
# **Look.** With one row, a quarter of the lanes have work, and each of them loads a single number of 32 bits. With 16
# rows all lanes have work, each load is four times as wide, and a sixteenth of the programs remain. AMD's own kernel
# library took this step in 2025. For 364 800 rows of 128 in float16 on an MI308X, PyTorch took 1614 µs, a
# one-row-a-program Triton kernel 2693 µs, and the several-rows kernel 74.5 µs (figures published in
# [ROCm/aiter#1350](https://github.com/ROCm/aiter/pull/1350)).
#
# ## Rung 7: long rows (optional)
#
# Other rows are too long. **Predict.** Give a row of 131 072 floats to a program of 16 waves, the most that a program
# may have on an MI300X. How many floats must each lane hold? A [SIMD](01_vector_add.ipynb#Glossary), the unit that
# executes a wave, has 512 registers for each lane, shared by its waves; a compute unit has four SIMDs. How many
# registers does a lane get?

# %%
lanes = 16 * 64
waves_per_simd = 16 // 4
print("lanes:             ", lanes)
print("floats per lane:   ", 131072 // lanes)
print("registers per lane:", 512 // waves_per_simd)

# %% [markdown]
# The row alone takes all of them, and nothing is left for weights, offsets or results. What does the compiler do?

# %% tags=["nbval-ignore-output"]
long_x, long_w = torch.empty(1, 131072), torch.empty(131072)
one_block = amd_report(
    rms_norm_kernel, long_x, long_w, long_x, 131072, 131072, 131072, 1e-5, BLOCK=131072, num_warps=16, arch="gfx942"
)
assert one_block.spills > 0 and one_block.vgprs == 128
one_block

# %% [markdown]
# It [spills](01_vector_add.ipynb#Glossary): registers that do not fit are written to memory (*scratch*) and read back.
# The kernel is still right. But the point of a fused kernel was to keep the row out of memory, and now it goes there by
# the back door.
#
# The cure is a loop. The block stays small, and the program walks along the row twice:
#
# ```
# squares = a block of zeros
# for each block of the row:      load it, squares += x * x
# rstd = rsqrt(sum of squares / N + eps)
# for each block of the row:      load it again, scale it, store it
# ```
#
# Note the one `tl.sum`, *after* the loop. Inside the loop every column of the block keeps a sum of its own, so that the
# waves need no LDS and no barrier until the end. Here is the course's version of that; yours will be exercise 2.5.

# %% tags=["nbval-ignore-output"]
from course_kernels.launch import sizes
from course_kernels.rms_norm import rms_norm_long_kernel

looped = amd_report(
    rms_norm_long_kernel, long_x, None, long_w, long_x, None, 131072, 0, 131072, 1e-5,
    BLOCK_N=sizes().max_row, num_warps=16, arch="gfx942",
)  # fmt: skip
print(f"one block: {one_block.vgprs} registers a lane, {one_block.spills} spilled")
print(f"looped:    {looped.vgprs} registers a lane, {looped.spills} spilled")
assert looped.spills == 0 and looped.vgprs < 100

# %% [markdown]
# **Predict** the price in bytes before you count it: how many trips over the row does the loop make?

# %%
generator = torch.Generator().manual_seed(0)
long_x, long_w = torch.randn(1, 131072, generator=generator), torch.randn(131072, generator=generator)
with trace() as launch:
    y = course_kernels.rms_norm(long_x, long_w)
torch.testing.assert_close(y, reference.rms_norm(long_x, long_w), atol=1e-5, rtol=1e-5)
print("same as PyTorch, up to float32 rounding")
launch.ledger()

# %% [markdown]
# Three: `x` is read twice and `y` written once. (The weight is as long as this one row; with more rows it would hardly
# count.) The second reading often comes from cache: this row has 512 KiB, and each of the eight dies of an MI300X has
# an L2 cache of 4 MiB. Above which width the loop pays is again written down in one place, `course_kernels/launch/`.
#
# ## The trap: a LayerNorm that passes its test
#
# LayerNorm (Ba, Kiros and Hinton, 2016) is the older sister of RMSNorm. It subtracts the mean of the row, and divides
# by the standard deviation:
#
# $$ y_{rc} = \frac{x_{rc} - \mu_r}{\sqrt{\sigma_r^2 + \varepsilon}}, \qquad
# \mu_r = \frac{1}{N}\sum_k x_{rk}, \qquad \sigma_r^2 = \frac{1}{N}\sum_k (x_{rk} - \mu_r)^2 $$
#
# (and then a weight and a bias, left out here). Everything that you have learned is in this kernel: a mask,
# `other=0.0`, float32, a division by `N`, `eps` inside the root.


# %%
@triton.jit
def layer_norm_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = x - mean
    variance = tl.sum(centred * centred, axis=0) / N
    y = centred * tl.rsqrt(variance + eps)
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm(x, kernel=layer_norm_kernel):
    (rows, N), y = x.shape, torch.empty_like(x)
    kernel[(rows,)](x, y, x.stride(0), y.stride(0), N, 1e-5, BLOCK=triton.next_power_of_2(N))
    return y


def right(y, x):
    return torch.allclose(y, torch.nn.functional.layer_norm(x, x.shape[-1:]), atol=1e-2, rtol=1e-2)


normal = torch.randn(8, 576, generator=torch.Generator().manual_seed(0))
print("torch.randn:                  ", right(layer_norm(normal), normal))
print("torch.randn + 5:              ", right(layer_norm(normal + 5), normal + 5))
print("torch.randn + 5, 512 columns: ", right(layer_norm((normal + 5)[:, :512]), (normal + 5)[:, :512]))

# %% [markdown]
# It passes on `torch.randn`, with a tolerance that is common for half precision. It fails when the mean is 5, and
# passes again when the row has 512 columns.
#
# **Before you read on: what is wrong?** Two facts are enough to find it. It needs a mean far from zero, and it needs a
# width that is no power of two. Here is a third one, the factor between the right result and ours:

# %%
shifted = normal + 5
factor = torch.nn.functional.layer_norm(shifted, (576,))[0] / layer_norm(shifted)[0]
mean, variance = shifted[0].mean(), shifted[0].var(unbiased=False)
print(f"right / ours:                                 {factor.mean():.3f}")
print(f"root of (variance + 448/576 mean²) / variance: {((variance + 448 / 576 * mean**2) / variance).sqrt():.3f}")

# %% [markdown]
# The 448 idle lanes were loaded as 0, which was right for the first sum. Then the mean was subtracted from *every*
# lane. An idle lane now holds `0 - mean`, and its square goes into the variance, 448 times. With a mean near zero that
# is nearly nothing; at 512 columns there are no idle lanes.
#
# `other=` sets a lane once, at the load. Arithmetic in between can spoil it. So put the identity back before each
# further reduction:


# %%
@triton.jit
def repaired_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / N
    y = centred * tl.rsqrt(variance + eps)
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


print("repaired, torch.randn + 5:", right(layer_norm(shifted, repaired_kernel), shifted))

# %% [markdown]
# This bug has been shipped: in Liger-Kernel
# ([#518](https://github.com/linkedin/Liger-Kernel/issues/518)) and in unsloth
# ([#1867](https://github.com/unslothai/unsloth/pull/1867): all tests used powers of two). RMSNorm is immune: it
# subtracts nothing, and $0^2 = 0$. And note what the first test was worth. `torch.randn` is normalised before you
# start. Test a norm on data that need it.
#
# ## On real hardware (optional)
#
# How fast can it be? No kernel can beat the time that its bytes need. For a prompt of 2048 tokens, one fused norm of
# SmolLM2 in bfloat16 on an MI300X:

# %% tags=["nbval-ignore-output"]
elements = 2048 * 576
bound = hardware.lower_bound(bytes=4 * 2 * elements, flops=5 * elements, gpu="MI300X")
assert bound.roof == "memory"
print(bound)

# %% [markdown]
# A couple of microseconds. A kernel with next to nothing to do takes about as long: Hugging Face and AMD measured 4.2
# µs on an MI300X for one that adds the residual, normalises and converts to 8 bits, and has a single row of 16384 to
# do. So at this size a model gains more from *fewer* kernels than from faster ones, which is why the addition belongs
# inside. With more rows the bytes decide. For 2048 of them they measured 73 µs, against 671 µs for the same in plain
# PyTorch ([*Creating custom kernels for the AMD MI300*](https://huggingface.co/blog/mi300kernels), 2025).
#
# This course has no figures of its own from an AMD GPU, but it has some from an NVIDIA H200. *eager* is the formula in
# PyTorch, one kernel after another, *torch* its `F.rms_norm`, *Liger* the Triton kernel of
# [Liger-Kernel](https://github.com/linkedin/Liger-Kernel), *ours* the one of this course's library, *copy* a plain copy
# of as many bytes, all in bfloat16:

# %% tags=["nbval-ignore-output"]
table = bench.stored("rms_norm", "1 x 576", "64 x 4096", "16384 x 4096")
large = "16384 x 4096"
assert table.find("eager", large).seconds > 5 * table.find("ours", large).seconds
assert 0.9 < table.find("copy", large).seconds / table.find("ours", large).seconds < 1.1
table

# %% [markdown]
# In the last column your bytes are the whole story: eager moves its intermediate results through memory and needs many
# times as long; the fused kernels need about as long as the copy. In the first column there are hardly any bytes.
# What eager loses there is launches, one after another.
#
# If you have a GPU, measure yours. The course gives a bandwidth beside each time, because that is what you compare with
# the data sheet:

# %% tags=["nbval-ignore-output"]
if bench.available():
    big = torch.randn(16384, 4096, device=engines.device(), dtype=torch.bfloat16)
    big_w = torch.ones(4096, device=engines.device(), dtype=torch.bfloat16)
    moved = 2 * big.nbytes
    print(bench.time(lambda: course_kernels.rms_norm(big, big_w), name="course", bytes=moved))
    print(bench.time(lambda: composed(big, big_w, 1e-6), name="PyTorch, composed", bytes=moved))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Swap it in
#
# Now the test that counts. Replace the norms of the model, both kinds, and let it go on with a sentence. All 61 norms
# of every forward pass are then Triton kernels. Here they run on the interpreter, so give them a few seconds.

# %%
prompt = "One, two, three,"
tokens = llm.tokenizer.encode(prompt)
pytorch = llm.generate(tokens, max_new_tokens=3, progress=False)
with llm.using(rms_norm=course_kernels.rms_norm, add_rms_norm=course_kernels.add_rms_norm):
    triton_norms = llm.generate(tokens, max_new_tokens=3, progress=False)
print(prompt + triton_norms.text)
print("same tokens:", triton_norms.tokens == pytorch.tokens)

# %% [markdown]
# And now with **yours**. `my_kernel` gives your answer to an exercise once it has passed, here 2.2 and 2.3. Until then
# it gives the course's kernel. Come back to this cell after the exercises:

# %%
mine = my_kernel("2.2", course_kernels.rms_norm)
mine_fused = my_kernel("2.3", course_kernels.add_rms_norm)
with llm.using(rms_norm=mine, add_rms_norm=mine_fused):
    my_norms = llm.generate(tokens, max_new_tokens=3, progress=False)
print("same tokens:", my_norms.tokens == pytorch.tokens)

# %% [markdown]
# ### And backwards? (optional)
#
# For training, the norm needs gradients. Write $\hat{x} = x \cdot rstd$ and $g = dy \cdot w$. Then $dx = rstd \, (g -
# \hat{x} \cdot \mathrm{mean}(g \hat{x}))$: one more reduction over the row, in the same style. The gradient of the
# weight sums over *rows*, across programs. Programs can add into one place with `tl.atomic_add`, but nothing fixes the
# order, and a sum of floats depends on it in the last bits: two runs would differ. So each keeps a partial sum of its
# own, and a second step adds those up. You can read both in
# [`course_kernels/rms_norm.py`](../course_kernels/rms_norm.py), which from here on you understand from top to bottom.
#
# Where does the backward pass get `rstd` from? It can be saved, 4 bytes for each row, or computed again from `x`, which
# has to be read in any case. The library's LayerNorm does either, and also has the fused form, `add_layer_norm`.
#
# **Predict.** For LayerNorm mean and `rstd` are 8 bytes a row of 576. How many of the bytes is that, forwards and
# backwards?

# %%
streams = [torch.randn(64, 576, generator=generator, requires_grad=True) for _ in range(2)]
scales, shifts = (torch.ones(576, requires_grad=True) for _ in range(2))
gradients = []
for saved in (False, True):
    with trace() as forwards:
        normed, stream, *_ = course_kernels.add_layer_norm(*streams, scales, shifts, return_statistics=saved)
    with trace() as backwards:
        gradients.append(torch.autograd.grad(normed.square().sum() + stream.sum(), (*streams, scales, shifts)))
    moved = [sum(each.ledger().bytes for each in launches) for launches in (forwards, backwards)]
    print(f"mean and rstd {'saved:   ' if saved else 'computed:'}  {moved[0]:,} bytes forwards, {moved[1]:,} backwards")
print("same gradients:", all(torch.allclose(a, b, atol=1e-3, rtol=1e-4) for a, b in zip(*gradients)))

# %% [markdown]
# Next to nothing. For a row in registers, two more sums cost less than they seem to, so the library computes again
# unless you ask for `return_statistics`. Where the row is too long for that, saving spares a whole walk over it.
#
# ## What to read next
#
# - The exercises: [`exercises/02_rmsnorm.ipynb`](../exercises/02_rmsnorm.ipynb). The mean square (2.1), RMSNorm (2.2),
#   the fused addition (2.3), a LayerNorm to repair (2.4), long rows (2.5) and several short rows a program (2.6).
# - The library's: [`rms_norm.py`](../course_kernels/rms_norm.py) and
#   [`layer_norm.py`](../course_kernels/layer_norm.py).
# - [03 Fused activations](03_fused_activations.ipynb): what stands between two matrix products.
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | row $r$ belongs to program $r$ | `row = tl.program_id(0).to(tl.int64)` |
# | $x_{r,0} \dots x_{r,N-1}$ | `tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)` |
# | $\sum_k x_{rk}^2$ | `tl.sum(x * x, axis=0)` |
# | $1/\sqrt{\frac{1}{N}\sum_k x_{rk}^2 + \varepsilon}$ | `tl.rsqrt(total / N + eps)` |
# | $\sum_k (x_{rk} - \mu)^2$ | `centred = tl.where(mask, x - mean, 0.0)`, then `tl.sum(centred * centred, axis=0)` |
# | round once | `tl.store(y_ptr + ..., y.to(y_ptr.dtype.element_ty), mask=mask)` |
# | one program for each row | `kernel[(rows,)](..., BLOCK=triton.next_power_of_2(N))` |
# | a row longer than a block | `for start in range(0, N, BLOCK): cols = start + tl.arange(0, BLOCK)` |
# | its partial sums, one for each place of the block | `squares = tl.zeros((BLOCK,), tl.float32)`, before the loop |
# | many rows a program | `offs_m[:, None] * stride_xm + offs_n[None, :]`, then `tl.sum(..., axis=1)` |
#
# ### Glossary
#
# - **reduction**: many values become one; a sum, a maximum
# - **identity**: the value that a reduction ignores; 0 for a sum, $-\infty$ for a maximum
# - **fusing**: doing several operations in one kernel, so that what is between them stays in registers
# - **DPP**: an operand taken from another lane of the same wave
# - **LDS**: 64 KiB of memory in each compute unit of an MI300X, which the waves of a program share
# - **barrier**: the point where the waves of a program wait for each other
# - **massive activation**: an element of the residual stream that is thousands of times larger than its neighbours
