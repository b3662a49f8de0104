# %% [markdown]
# # 01 Vector add
#
# Adding two vectors is the smallest useful kernel. So everything that you see here is about the machine: who does which
# piece, what must not be touched, and how the bytes travel.
#
# You need lesson 00. This one takes about 40 minutes, without the exercises. Its short path takes about 20: skip what
# is marked as optional.
#
# **In doing so, you will learn**
#
# - what a *program* is on an AMD GPU: waves, lanes, registers, compute units
# - how blocks, offsets, masks and the grid fit together, in one dimension and in two
# - why a missing mask is a bug even when every number is right
# - how to count bytes, and what the count says about speed
# - what makes a load wide or narrow, and what a stride costs

# %% tags=["nbval-ignore-output"]
import torch
import triton
import triton.language as tl

import course_lab
from course_kernels import reference
from course_lab import bench, model, my_kernel
from gfxlab import amd_report, draw, engines, guard, hardware, simulator, trace
from gfxlab.tracing import eager

llm = model.load(device="cpu")  # on the CPU, so that every launch below can be watched

# %% [markdown]
# ## Where this sits in the model
#
# SmolLM2 describes each token by a vector of 576 numbers. Each of its 30 layers computes two corrections to that vector
# and adds them: one from attention, one from the MLP. The running sum is called the [**residual stream**](#Glossary).
# So the model adds vectors all the time. How often, and how large are they? Let the model read *What is the capital of
# France?* and look:

# %%
x, residual, *_ = llm.activations("layers.0.mlp_norm")
tokens, hidden = x.shape
n = x.numel()
calls = llm.count_calls()["add_rms_norm"]  # the model adds, then normalises; lesson 02 takes the second half
print(f"{tokens} tokens x {hidden} numbers = {n:,} elements, added {calls} times in a forward pass")

# %% [markdown]
# In PyTorch this is `x + residual`, one kernel. It reads two tensors and writes one:

# %% tags=["nbval-ignore-output"]
with eager.count() as ops:
    x + residual
assert ops.kernels == 1 and ops.bytes == 3 * x.nbytes
ops

# %% [markdown]
# What limits such a kernel, arithmetic or memory? Divide the additions by the bytes. The result is called the
# [**arithmetic intensity**](#Glossary). Compare it with what a GPU can do in the time that one byte takes to arrive:

# %%
bytes_moved, flops = 3 * x.nbytes, n
card = hardware.card("MI300X")
print(f"vector add: {flops:,} additions for {bytes_moved:,} bytes = {flops / bytes_moved:.3f} per byte")
peaks = f"{card.fp32 / 1e12:.0f} TFLOP/s, {card.bandwidth / 1e12} TB/s"
print(f"{card.name}: {peaks} = {card.ridge('fp32'):.0f} per byte")

# %% [markdown]
# (The two figures of the MI300X are peaks from AMD's data sheet.) The additions need less than a hundredth of the time
# of the bytes. A vector add **is** its memory traffic: each byte once, and nothing else, is the best that anybody can
# do.
#
# ## The idea on paper
#
# $$ z_i = x_i + y_i \qquad i = 0, \dots, n - 1 $$
#
# Cut the $n$ elements into [blocks](00_start_here.ipynb#Glossary) of $B$. Start one
# [program](00_start_here.ipynb#Glossary) for each block. All programs run the same code; each finds out its own number
# and from that its own elements, as in lesson 00: `offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`.
#
# `offs` is a block of integers. They count elements, not bytes: Triton knows the type behind `x_ptr` and multiplies by
# its size.

# %% [markdown] exercise_header="1.a"
# From lesson 00 you know all that a difference needs. Offsets and [mask](00_start_here.ipynb#Glossary) are given. Load
# both blocks, and store `x - y`.


# %% exercise="1.a"
@triton.jit
def difference_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(z_ptr + offs, x - y, mask=mask)
    ### END SOLUTION


def difference(x, y):
    z = torch.empty_like(x)
    difference_kernel[(triton.cdiv(x.numel(), 256),)](x, y, z, x.numel(), BLOCK=256)
    return z


# %% [markdown]
# ### What a program is on an AMD GPU
#
# You write one program as if it handled its block in one go. The compiler turns it into a
# [**workgroup**](#Glossary): a few [waves](00_start_here.ipynb#Glossary), and in each wave 64
# [lanes](00_start_here.ipynb#Glossary) that execute every instruction together. (Radeon GPUs have waves of 32.) A
# workgroup runs on one [**compute unit**](#Glossary) from beginning to end; when it is done, the next one takes its
# place. Each lane holds its share of the block in [registers](00_start_here.ipynb#Glossary).

# %%
for name in ("MI300X", "RX 7900 XTX"):
    card = hardware.card(name)
    wave = hardware.limits(card.arch).wave_size
    print(f"{name:11}  {card.arch:7}  {card.compute_units} compute units, waves of {wave} lanes")

# %% [markdown]
# You choose two numbers: `BLOCK`, the elements of a program, and `num_warps`, its waves. (Triton says *warp*, the
# NVIDIA word for wave. The default is 4.) The rest follows by division:

# %%
draw.lanes(1024, num_warps=4, wave_size=64, vector=4)

# %% [markdown]
# Lane 0 holds elements 0 to 3, lane 1 the next four, and so on. Each lane has *neighbours*, so that it can fetch them
# with one wide load. The same block on a Radeon has half as many lanes, and each lane two such groups:

# %%
draw.lanes(1024, num_warps=4, wave_size=32, vector=4)

# %% [markdown]
# ## Rung 1: one program does everything
#
# Begin with the simplest kernel that can be right: one program, one block, no program number at all.


# %%
@triton.jit
def one_program_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(z_ptr + offs, x + y)


a, b = torch.randn(2, 4096)
z = torch.empty_like(a)
one_program_kernel[(1,)](a, b, z, BLOCK=4096)
print("right:", torch.equal(z, a + b))

# %% [markdown]
# It works. **Predict:** the model's sum has 21,312 elements. What stops you from running it with this kernel?
#
# First, `tl.arange` makes only powers of two, here 32,768. Second, look at what the compiler makes of a block that
# long:

# %% tags=["nbval-ignore-output"]
big = torch.randn(32768)
print("         registers a lane  did not fit  waves per SIMD")
for arch in ("gfx942", "gfx1100"):
    report = amd_report(one_program_kernel, big, big.clone(), big.clone(), BLOCK=32768, arch=arch)
    assert report.vgprs > 100
    print(f"{arch:7}  {report.vgprs:16}  {report.spills:11}  {report.occupancy.waves:14g}")

# %% [markdown]
# (A [**SIMD**](#Glossary) is the part of a compute unit that executes waves; an MI300X has four in each. It can keep 8
# waves ready, that of a Radeon 16, so that some compute while others wait for memory.) A lane of the MI300X now holds
# 128 elements of `x` and as many of `y`. They take so many registers that only a few waves fit. On the Radeon, with 256
# a lane, some values find no register at all: they [**spill**](#Glossary), which means that they travel to memory and
# back.
#
# Third, and worst: one program runs on one compute unit. The other 303 do nothing.
#
# ## Rung 2: many programs
#
# So take many small blocks. Start with a size where everything comes out even: 576 is 9 times 64.


# %%
@triton.jit
def whole_blocks_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(z_ptr + offs, x + y)


a, b = x[0], residual[0]  # the first token
z = torch.empty_like(a)
with trace() as launch:
    whole_blocks_kernel[(9,)](a, b, z, BLOCK=64)
print("right:", torch.equal(z, a + b))
launch.picture("z_ptr")

# %% [markdown]
# Nine programs, nine blocks, no gap and no overlap. The order in which they run does not matter. On an MI300X all nine
# would run at the same time, on nine of its 304 compute units.
#
# Blocks of 64 fit any number of tokens. But that is one element for each lane of a single wave, and such a lane cannot
# use a wide load (see below). Larger blocks are better, and they do not fit: 576 is 2.25 times 256.
#
# ## Rung 3: the tail
#
# Round the number of blocks up. The last program gets the [**tail**](#Glossary), what is left over, and has to know
# where the data ends. The [mask](00_start_here.ipynb#Glossary) is a block of yes and no:


# %%
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(z_ptr + offs, x + y, mask=mask)


# %% [markdown]
# A masked lane loads nothing and stores nothing. (The places of a block are called lanes too. A lane of the machine may
# hold several of them.) `other=` is the value that it holds instead; without it the value
# would be undefined. Here nobody looks at it. In lesson 02 it will matter.
#
# **Predict.** One token, 576 elements, blocks of 256: how many programs? How many lanes of the last one are switched
# off?

# %%
with trace() as launch:
    add_kernel[(triton.cdiv(576, 256),)](a, b, z, 576, BLOCK=256)
print("right:", torch.equal(z, a + b))
launch.picture("z_ptr")

# %% [markdown]
# `triton.cdiv` rounds 2.25 up. Program 2 owns elements 512 to 767, and 192 of its 256 lanes are masked.
#
# Now the whole prompt, and a ledger of all bytes that the programs asked for:

# %%
z = torch.empty_like(x)
with trace() as launch:
    add_kernel[(triton.cdiv(n, 1024),)](x, residual, z, n, BLOCK=1024)
print("right:", torch.equal(z, x + residual))
launch.ledger()

# %% [markdown]
# Each element was read once or written once, and nothing else moved. That is the minimum. Masked lanes cost no bytes.
#
# ## Rung 4: other types, one rounding
#
# Models rarely run in float32. In [**bfloat16**](#Glossary) a number takes 2 bytes: the range of float32, but only 8
# significant bits. For a kernel that is nothing but memory traffic, half the bytes is half the least time. The rule of
# this course for such inputs:
#
# - widen to float32 straight after the load,
# - compute,
# - round once, at the store, to the type of the tensor that is written.
#
# `y_ptr.dtype.element_ty` is that type. Written so, one kernel serves them all. Here is $x^2 - x$:


# %%
@triton.jit
def parabola_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (x * x - x).to(y_ptr.dtype.element_ty), mask=mask)


print("                bytes  mean error: kernel  PyTorch")
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    p = torch.linspace(0.9, 1.1, 1000).to(dtype)
    out = torch.empty_like(p)
    with trace() as launch:
        parabola_kernel[(1,)](p, out, 1000, BLOCK=1024)
    exact = p.double() * p.double() - p.double()
    ours, theirs = ((y.double() - exact).abs().mean() for y in (out, p * p - p))
    print(f"{dtype!s:15} {launch.ledger().bytes:5}  {ours:18.1e}  {theirs:7.1e}")

# %% [markdown]
# With a single operation both would come out the same. Here there are two, and PyTorch rounds in between. Near $x = 1$
# they nearly cancel, and that rounding is most of what is left.
#
# ## Rung 5: two dimensions
#
# 37 rows are one long vector while they follow each other without gaps. But the model often looks at a *part* of a
# matrix. `wide[:, :576]` below has the right
# shape, but its rows lie 640 elements apart. This distance is called the [**stride**](#Glossary) of the dimension.
#
# A [grid](00_start_here.ipynb#Glossary) may have two dimensions. Let the first count blocks within a row and the second
# count rows:


# %%
@triton.jit
def add_rows_kernel(x_ptr, y_ptr, z_ptr, stride_xm, stride_ym, stride_zm, N, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)  # 64 bits: in a large tensor row * stride passes 2**31
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0)  # float32, as in rungs 1 to 3
    y = tl.load(y_ptr + row * stride_ym + cols, mask=mask, other=0.0)
    tl.store(z_ptr + row * stride_zm + cols, x + y, mask=mask)


wide = torch.randn(6, 640)
p, q = wide[:, :576], x[:6]
out = torch.empty(6, 576)
with trace() as launch:
    add_rows_kernel[(3, 6)](p, q, out, p.stride(0), q.stride(0), out.stride(0), 576, BLOCK=256)
print("strides of p:", p.stride(), " right:", torch.equal(out, p + q))
launch.picture("z_ptr")

# %% [markdown]
# Every row now has a tail of its own, and a mask of its own: the mask compares the *column* with the width. A lane past
# the end of row 0 has a perfectly legal address, that of row 1. Only the mask keeps it away.
#
# ## Rung 6: tiles
#
# A *block* may have two dimensions as well. As in PyTorch, `rows[:, None]` makes a column of the row numbers (shape
# `(4, 1)` below), and `cols[None, :]` a row of the column numbers (shape `(1, 256)`). Wherever the two meet, in `+`,
# `*` or `<`, each is repeated along the axis where it has length 1, and you get a [**tile**](#Glossary): here 4 x 256
# offsets. Two conditions are joined by `&`, element by element, each in parentheses: without them, `&` would come
# before `<`.


# %%
@triton.jit
def add_tiles_kernel(
    x_ptr, y_ptr, z_ptr, stride_xm, stride_ym, stride_zm, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * stride_xm + cols[None, :], mask=mask, other=0.0)
    y = tl.load(y_ptr + rows[:, None] * stride_ym + cols[None, :], mask=mask, other=0.0)
    tl.store(z_ptr + rows[:, None] * stride_zm + cols[None, :], x + y, mask=mask)


out = torch.empty(6, 576)
strides = p.stride(0), q.stride(0), out.stride(0)
with trace() as launch:
    add_tiles_kernel[(2, 3)](p, q, out, *strides, 6, 576, BLOCK_M=4, BLOCK_N=256)
print("right:", torch.equal(out, p + q))
launch.picture("z_ptr")

# %% [markdown]
# **Look.** Six programs instead of 18. The lower three own rows 4 to 7, of which two exist; the right ones own columns
# up to 767. Both borders are in one mask.

# %% [markdown] exercise_header="1.b"
# A table of sums: `z[m, n] = x[m] + y[n]`, for two vectors of different length. Both are loaded. Build the mask of the
# tile, and store it into `z`, which has `M` rows of `N`.


# %% exercise="1.b"
@triton.jit
def outer_sum_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + rows, mask=rows < M, other=0.0)
    y = tl.load(y_ptr + cols, mask=cols < N, other=0.0)
    ### BEGIN SOLUTION
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(z_ptr + rows[:, None] * N + cols[None, :], x[:, None] + y[None, :], mask=mask)
    ### END SOLUTION


def outer_sum(x, y):
    z = torch.empty(len(x), len(y), dtype=x.dtype)
    grid = triton.cdiv(len(x), 16), triton.cdiv(len(y), 32)
    outer_sum_kernel[grid](x, y, z, len(x), len(y), BLOCK_M=16, BLOCK_N=32)
    return z


# %% [markdown]
# ### When 32 bits are not enough (optional)
#
# `row` was made an **int64** before it was multiplied. A program number has 32 bits, and so has its product with
# another 32-bit number. Scores for every word of SmolLM2's vocabulary make a matrix 49,152 wide. From which row on does
# the offset pass $2^{31}$?

# %%
print("row", 2**31 // 49152)

# %% [markdown]
# A large batch of prompts gets there. The product then wraps around to a negative number, and the kernel reads and
# writes memory *before* the tensor. Small tests never see it. So: row numbers in int64, before they meet a stride.
#
# ## The trap: every number is right
#
# Here is rung 2 again, used for 576 elements in blocks of 256, without a mask. Behind `z` in memory lives another
# tensor, `scale`. That is normal on a GPU: PyTorch cuts tensors out of large allocations, and rounds each up to 512
# bytes.
#
# (The course stops a kernel at the end of the tensor that it is given. To see what a GPU would do, the cell hands over
# the whole allocation that the tensor begins.)

# %%
x_memory, y_memory, z_memory = torch.randn(3, 1024)
a, b, z = x_memory[:576], y_memory[:576], z_memory[:576]
scale = z_memory[640:704].fill_(1.0)  # the next tensor: 576 elements, rounded up to a multiple of 512 bytes

with trace() as launch:
    whole_blocks_kernel[(3,)](x_memory, y_memory, z_memory, BLOCK=256)

print("sum is right:     ", torch.allclose(z, a + b))
print("scale, all ones:  ", bool((scale == 1).all()))

# %% [markdown]
# **Explain it before you read on.** The sum is right, to the last element. And a tensor that the kernel never heard of
# is broken. Look at what the programs stored, and where `z` ends:

# %%
launch.picture("z_ptr", marks={"end of z": 576, "scale begins": 640})

# %% [markdown]
# Program 2 owns elements 512 to 767. It stored 64 right results, and then 192 sums of whatever lies behind `x` and
# `y`. Those went over the gap behind `z`, and over all of `scale`. A comparison of results cannot see that: it looks at
# 576 elements, and every one of them is right. The damage shows up later, in another layer, or one day.
#
# The course watches addresses instead. Normally it stops at the first illegal one; you can also let it take notes:

# %%
with guard("record") as faults:
    whole_blocks_kernel[(3,)](a, b, z, BLOCK=256)
for fault in faults:
    print(fault.message)

# %% [markdown]
# Two illegal reads, one illegal write. The reads matter too: on a GPU an address that belongs to nobody ends the whole
# process with a *memory access fault*.
#
# The fix is the mask of rung 3, in **all three** accesses:

# %%
z_memory[640:704] = 1.0
add_kernel[(3,)](x_memory, y_memory, z_memory, 576, BLOCK=256)
print("sum is right:     ", torch.allclose(z, a + b))
print("scale, all ones:  ", bool((scale == 1).all()))

# %% [markdown]
# ## On real hardware
#
# ### How wide is a load?
#
# One load instruction brings up to 128 bits to *each* lane: four float32. Fewer, wider instructions move the same bytes
# with less work for the machine. Here is the machine code of the MI300X for the model's sum, beside your code:

# %% tags=["nbval-ignore-output"]
z = torch.empty_like(x)
report = amd_report(add_kernel, x, residual, z, n, BLOCK=1024, arch="gfx942")
assert report.spills == 0 and set(report.loads) == set(report.stores) == {128}
report.listing()

# %% [markdown]
# `buffer_load_dwordx4`: a [**dword**](#Glossary) is 32 bits, four of them make 128. Two such loads and one such store
# move the whole block; `v_pk_add_f32` adds two pairs of numbers at once.
#
# ### What makes a load narrow (optional)
#
# You can also see how a mask works. `v_cmp` compares the offset with `n`, and `v_cndmask` replaces the offset of a
# masked lane by a huge one. A buffer instruction ignores offsets beyond its range. (The range is always 2 GiB, whatever
# the size of the tensor. So it serves the mask, and it does not protect you if there is none.)
#
# **Predict.** Run the same kernel on one element less. What changes?

# %% tags=["nbval-ignore-output"]
shorter = [t.flatten()[: n - 1] for t in (x, residual, z)]
shifted = [torch.empty(n + 1)[1:] for _ in range(3)]
cases = {"n": (x, residual, z, n), "n - 1": (*shorter, n - 1), "n, memory 4 bytes off": (*shifted, n)}
for case, arguments in cases.items():
    for arch in ("gfx942", "gfx1100"):
        report = amd_report(add_kernel, *arguments, BLOCK=1024, arch=arch)
        assert set(report.loads) == ({128} if case == "n" else {32})
        print(f"{case:22} {arch:8} loads {report.loads}  instructions {report.instructions}")

# %% [markdown]
# (`{128: 2}` means: two loads of 128 bits.) One element less, and there are four times as many loads, each a quarter as
# wide. Why?
#
# A wide load takes four neighbours or none. It may be used only if the mask is the same for all four. `n` is 21,312, a
# multiple of 16, and Triton's launcher tells the compiler so. Then the border between yes and no can never fall inside
# a group of four. For 21,311 it can, so every element gets a load of its own. In the third case the tensors start 4
# bytes past a multiple of 16, and 16-byte loads need aligned addresses.
#
# What you can do: keep the sizes and strides that you control multiples of 16, and let tensors begin where the
# allocator puts them. 576 is 36 times 16.
#
# ### BLOCK and num_warps (optional)
#
# A wide load needs neighbours in one lane. So count the elements that each lane gets: `BLOCK / (num_warps * wave)`.
# 128 bits are 4 of them in float32, and 8 in bfloat16.

# %% tags=["nbval-ignore-output"]
print("dtype     num_warps  elements a lane  loads")
for dtype in (torch.float32, torch.bfloat16):
    p, q, out = x.to(dtype), residual.to(dtype), z.to(dtype)
    for num_warps in (1, 2, 4, 8, 16):
        report = amd_report(add_kernel, p, q, out, n, BLOCK=1024, num_warps=num_warps)
        each = 1024 // (num_warps * 64)
        assert max(report.loads) == min(128, each * p.itemsize * 8)
        print(f"{str(dtype)[6:]:9} {num_warps:9}  {each:15}  {report.loads}")

# %% [markdown]
# With 16 waves each lane has one element, and its loads are as narrow as the element. With one wave each lane has 16,
# which takes several loads and more registers. A good choice lies in between:
#
# - enough elements a lane for at least one wide load: for bfloat16 that means doubling `BLOCK`
# - 4 waves, so that each of the four SIMDs of a compute unit has one to run
# - and still enough programs: AMD's workload guide for the MI300X asks for at least 1024
#
# The library of this course makes this choice in one place, from the type and the GPU: `course_kernels/launch/`.
#
# ### Strides: what memory really delivers
#
# Memory does not deliver single numbers. It delivers [**lines**](#Glossary): 128 bytes on an MI300X, according to AMD's
# CDNA 3 white paper. When the 64 lanes of a wave ask for 64 addresses, the hardware collects those that fall into one
# line and fetches it once. This is called [**coalescing**](#Glossary). Read a vector with a stride, and see what is
# left of it. (To keep the picture simple, each lane reads one element.)


# %%
@triton.jit
def strided_copy_kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * stride, mask=mask, other=0.0)
    tl.store(y_ptr + offs, x, mask=mask)


matrix, out = torch.randn(1024, 576), torch.empty(1024)


def first_wave(stride):
    """The elements that the 64 lanes of the first wave read, one each."""
    with trace() as launch:
        strided_copy_kernel[(1,)](matrix, out, stride, 1024, BLOCK=1024)
    return launch.accesses[0].elements[:64]


draw.cache_lines(first_wave(1))

# %% [markdown]
# Stride 1: neighbouring lanes read neighbouring elements. (The numbers in the cells are lanes.) All of each line is
# used.
#
# **Predict** stride 2, every other element.

# %%
print("stride 2")
draw.cache_lines(first_wave(2))

# %% [markdown]
# Half of what arrives is thrown away, so at best you get half the speed. Now stride 576: a *column* of a matrix with
# 576 columns.

# %%
draw.cache_lines(first_wave(576))

# %% [markdown]
# Each lane needs a line of its own, and uses 4 bytes of 128. The code looks almost the same as before, and it moves 32
# times as many bytes. (Caches help if some other program needs the rest of the line soon. Do not count on it.) So let
# the *last* index of a block, the one that runs over neighbouring lanes, be the one with stride 1.
#
# ### Counting lines (optional)
#
# The pictures show one access of one wave. For a whole launch, let the simulator of lesson 00 count. It executes the
# machine code of an MI300X, so it sees every address of every lane. With `BLOCK=256` the four waves of a program have
# one element for each lane, as in the pictures.
#
# **Predict.** 1024 elements of 4 bytes each: how many lines at stride 1? At stride 2? At stride 576?

# %% tags=["nbval-ignore-output"]
print("stride  bytes asked for  lines  bytes of these lines  used")
for stride in (1, 2, 576):
    run = simulator.simulate(strided_copy_kernel, (4,), (matrix, out, stride, 1024), BLOCK=256, arch="gfx942")
    asked, fetched = run.loads.bytes, 128 * run.loads.lines
    assert asked == 4096 and run.loads.lines == min(32 * stride, 1024)
    print(f"{stride:6}  {asked:15,}  {run.loads.lines:5,}  {fetched:20,}  {asked / fetched:4.0%}")

# %% [markdown]
# The lanes ask for the same 4096 bytes each time. The lines that must come grow from 32 to 1024. And the run knows
# which line of the *kernel* asked for them. Look at the last sentence of its report:

# %% tags=["nbval-ignore-output"]
assert any("neighbouring lanes should have neighbouring elements" in note for note in run.slow)
run

# %% [markdown]
# (Segments are halves of lines, the smallest piece that the report counts.) Remember what this is: exact counts, and no
# clock. How much of the loss the caches of a real GPU make up for, only a real GPU can tell.
#
# The compiler cannot repair the stride, but you see it in the machine code:

# %% tags=["nbval-ignore-output"]
for stride in (1, 2, 576):
    report = amd_report(strided_copy_kernel, matrix, out, stride, 1024, BLOCK=1024)
    assert (max(report.loads), max(report.stores)) == (128 if stride == 1 else 32, 128)
    print(f"stride {stride:3}: loads {report.loads}  stores {report.stores}")

# %% [markdown]
# The store has always been wide, since `y` is written without gaps. The load of neighbours became four narrow loads. So
# when you see narrow loads in a report, look for a stride first.
#
# ### How fast can it be? (optional)
#
# No kernel is faster than its bytes. So the least time follows from the bytes and the data sheet, on any machine,
# without a GPU. For one token, for the prompt, and for 4096 tokens:

# %%
for count in (1, 37, 4096):
    elements = count * hidden
    for gpu in ("MI300X", "RX 7900 XTX"):
        bound = hardware.lower_bound(bytes=12 * elements, flops=elements, gpu=gpu)
        least = hardware.format_seconds(bound.seconds)
        print(f"{count:4} tokens, {gpu:11}  {12 * elements:10,} bytes  at least {least}")

# %% [markdown]
# Nobody reaches the peak of the data sheet. The full report of the bound also names the copy bandwidth that somebody
# really measured, and who it was:

# %%
print(hardware.lower_bound(bytes=12 * 4096 * hidden, flops=4096 * hidden, gpu="MI300X"))

# %% [markdown]
# Two remarks. The bound holds for bytes that come from memory. Between its L2 cache and its memory an MI300X has 256 MB
# of Infinity Cache; tensors that a kernel before yours has just written may still be there, and then you can be faster.
#
# And for one token the bound is far below anything that a launch can do: a nanosecond. A kernel with hardly any data
# needs about a microsecond on an H200, by the table below, and asking for it from Python took 28 µs on the same machine
# (`bench.stored("call")`). On an MI300X Hugging Face and AMD report 4.18 µs for a kernel that does a residual add, a
# norm and a conversion for a single row (*mi300kernels* blog). So sixty launches for sixty additions are too many, and
# the remedy is not a faster addition. It is to do the addition inside a kernel that must run anyway. Lesson 02 does
# that.
#
# What does a GPU really do? This course has no figures of its own from an AMD GPU, but it has some from
# an NVIDIA H200, whose memory moves 4.8 TB/s by its data sheet. *eager* is PyTorch's `x + y`, *ours* the kernel of this
# course's library, and *copy* a plain copy of as many bytes, all in bfloat16:

# %% tags=["nbval-ignore-output"]
table = bench.stored("vector_add", "1 x 576", "64 x 4096", "4096 x 4096", "16384 x 8192")
large = "16384 x 8192"
assert 0.9 < table.find("copy", large).seconds / table.find("ours", large).seconds < 1.1
assert table.find("ours", "64 x 4096").seconds < 2 * table.find("ours", "1 x 576").seconds
table

# %% [markdown]
# Read it from right to left. The large addition takes as long as the copy: it *is* its memory traffic, as promised, and
# nobody beats anybody. At 4096 x 4096 each addition is over before the memory runs at full speed. And 64 rows of 4096
# cost hardly more than a single row of 576, though they have 455 times the elements: about a microsecond is what a
# kernel takes before its bytes count.
#
# A curve over all sizes says it best: flat while a launch is all that counts, then a straight line, as long as the
# bytes.

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

every = bench.stored("vector_add", gpu="H200")
figure, (times, rates) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, style in (("eager", "o-"), ("ours", "s-"), ("copy", "k--")):
    points = sorted((f.bytes, f.seconds) for f in every.measurements if f.name == name)
    moved, seconds = zip(*points)
    times.loglog(moved, [1e6 * t for t in seconds], style, label=name, markersize=4)
    rates.semilogx(moved, [b / t / 1e12 for b, t in points], style, label=name, markersize=4)
times.set(xlabel="bytes moved", ylabel="microseconds", title=str(every.machine).partition(",")[0])
rates.set(xlabel="bytes moved", ylabel="TB/s", title="small ones come from the cache")
_ = times.legend()

# %% [markdown]
# With a GPU in this machine, the next cell times your kernel against PyTorch's. Without one, it says so.

# %% tags=["nbval-ignore-output"]
if bench.available():
    p, q = torch.randn(2, 1 << 26, device=engines.device())
    out = torch.empty_like(p)
    grid = (triton.cdiv(p.numel(), 4096),)
    print("yours:  ", bench.time(lambda: add_kernel[grid](p, q, out, p.numel(), BLOCK=4096), bytes=3 * p.nbytes))
    print("PyTorch:", bench.time(lambda: torch.add(p, q, out=out), bytes=3 * p.nbytes))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Swap it in
#
# Give the model your addition. The operation that it calls is `add_rms_norm`: add, then normalise. Your kernel does the
# first half; PyTorch does the second until lesson 02. (Once you have solved exercise 1.2, it is *your answer* that runs
# here.)


# %% tags=["nbval-ignore-output"]
def add(x, y):
    z = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
    return z


add = my_kernel("1.2", add)


def add_rms_norm(x, residual, weight, eps):
    total = add(x, residual)
    return reference.rms_norm(total, weight, eps), total


expected = llm.generate("What is the capital of France?", max_new_tokens=8)
with llm.using(add_rms_norm=add_rms_norm):
    answer = llm.generate("What is the capital of France?", max_new_tokens=8)
answer

# %%
print("the same tokens:", answer.tokens == expected.tokens)
print("additions by your kernel:", calls * len(answer.tokens))

# %% [markdown]
# ## What to read next
#
# - The exercises: [`exercises/01_vector_add.ipynb`](../exercises/01_vector_add.ipynb). 1.1 and 1.2 settle what you read
#   here, 1.3 and 1.4 go on to strides and to addresses that come from memory, 1.5 is a repair, 1.6 a first fusion.
# - [02 RMSNorm](02_rmsnorm.ipynb): elements that need each other.
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | program $p$ | `pid = tl.program_id(0)` |
# | elements $pB \dots pB + B - 1$ | `offs = pid * BLOCK + tl.arange(0, BLOCK)` |
# | only $i < n$ | `mask = offs < n`, in every load and store |
# | $\lceil n / B \rceil$ programs | `grid = (triton.cdiv(n, BLOCK),)` |
# | $x_i$, computed in float32 | `tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)` |
# | round once to the type of $z$ | `.to(z_ptr.dtype.element_ty)` |
# | element $(r, c)$ of a matrix | `x_ptr + row * stride_xm + cols`, `row` in int64 |
# | blocks of a row × rows | `grid = (triton.cdiv(N, BLOCK), M)` |
# | a tile of offsets | `rows[:, None] * stride_xm + cols[None, :]` |
# | elements a lane | `BLOCK / (num_warps * wave)` |
# | bytes of $z = x + y$ | `3 * n * itemsize` |
#
# ### Glossary
#
# - **residual stream**: the vector of each token to which all layers add
# - **arithmetic intensity**: operations per byte moved
# - **workgroup**: what a program becomes on the GPU; it stays on one compute unit
# - **compute unit**: the part of the GPU that runs workgroups; an MI300X has 304
# - **SIMD**: one of the four parts of a compute unit that execute waves
# - **spill**: a value that found no register and lives in memory
# - **tile**: a block of two dimensions
# - **tail**: the elements left over when the size is not a multiple of the block
# - **stride**: how many elements lie between neighbours along a dimension
# - **line**: the 128 bytes that memory delivers at a time
# - **coalescing**: fetching a line once for all lanes that need it
# - **dword**: 32 bits; `dwordx4` is a 128-bit access
# - **bfloat16**: a 2-byte number with float32's range and 8 significant bits
