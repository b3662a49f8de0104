# %% [markdown]
# # 00 Start here
#
# You are going to write GPU [**kernels**](#Glossary): small functions that run thousands of times at once, one time for
# each piece of a tensor. You write them in **Triton**, which looks like Python and compiles to machine code for AMD
# GPUs.
#
# You do not need a GPU. This page takes about 20 minutes: your first kernel, what your machine can tell you about it,
# the language model that you will rebuild kernel by kernel, and how exercises are graded. (Every lesson has parts
# marked as optional. Without them, the short path takes about 18 here.)
#
# **In doing so, you will learn**
#
# - what a *kernel*, a *program* and a *grid* are
# - which engines run your kernels here, and what each one can and cannot tell you
# - what the machine code of an MI300X looks like, and that you can read it
# - how to answer an exercise, ask for a hint and read a report
#
# Run a cell with **Shift + Enter**. Start with the one below: every notebook of the course begins like this.

# %% tags=["nbval-ignore-output"]
import torch
import triton
import triton.language as tl

import course_lab
from course_lab import bench, check, model, progress
from gfxlab import amd_report, engines, hardware, simulator, trace

print(engines.describe())

# %% [markdown]
# Those lines are your [**engines**](#Glossary). If something is missing or odd, open a terminal and run `course
# doctor`: it checks the installation line by line and names the command that mends each problem.
#
# ## Your first kernel
#
# Take the simplest operation: multiply every element of a tensor by a number.
#
# A GPU starts many [**programs**](#Glossary) at once. Each runs the same code and takes its own piece, called a
# [**block**](#Glossary). All of them together form the [**grid**](#Glossary), and starting them is a
# [**launch**](#Glossary).
#
# | on paper | in the kernel |
# |---|---|
# | this is program number $p$ | `pid = tl.program_id(0)` |
# | it owns elements $pB, \dots, pB + B - 1$ | `offs = pid * BLOCK + tl.arange(0, BLOCK)` |
# | but only those below $n$ exist | `mask = offs < n` |
# | read $x_i$ | `x = tl.load(x_ptr + offs, mask=mask)` |
# | write $y_i = \alpha x_i$ | `tl.store(y_ptr + offs, alpha * x, mask=mask)` |
#
# `x_ptr` is the address of the first element. `x_ptr + offs` is a whole block of addresses, one for each element. The
# [**mask**](#Glossary) says for each of them whether it may be touched. `@triton.jit` marks the function as a kernel,
# and `tl.constexpr` marks a number that is fixed when it is compiled.


# %%
@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, alpha * x, mask=mask)


# %% [markdown]
# SmolLM2 describes each token by 576 numbers. Let us scale one token, in blocks of 256.
#
# **Predict.** How many programs does the grid need? What does the mask do in the last one?

# %%
x = torch.randn(576)
y = torch.empty_like(x)
grid = (triton.cdiv(576, 256),)

with trace() as launch:
    scale_kernel[grid](x, y, 3.0, 576, BLOCK=256)

print("right:   ", torch.equal(y, 3.0 * x))
print("programs:", launch.grid[0])

# %% [markdown]
# Three programs: 576 / 256 is 2.25, and `triton.cdiv` rounds up. You launched them by putting the grid in brackets
# behind the kernel's name.
#
# **Look** at what they did. Every rectangle is one program's block of `y`:

# %%
launch.picture("y_ptr")

# %% [markdown]
# Two programs write 256 elements each. The third owns elements 512 to 767, of which only 64 exist. The mask switches
# the other 192 *lanes* off, as the places of a block are called. Without it, the kernel would write into memory that
# belongs to somebody else.
#
# Now you.

# %% [markdown] exercise_header="0.a"
# Multiply every element by `alpha` and add `beta`. One line is missing: write the result. Press **Shift + Enter**; the
# cell is graded at once.


# %% exercise="0.a"
@triton.jit
def scale_and_shift_kernel(x_ptr, y_ptr, alpha, beta, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    ### BEGIN SOLUTION
    tl.store(y_ptr + offs, alpha * x + beta, mask=mask)
    ### END SOLUTION


def scale_and_shift(x, alpha, beta):
    y = torch.empty_like(x)
    scale_and_shift_kernel[(triton.cdiv(x.numel(), 256),)](x, y, alpha, beta, x.numel(), BLOCK=256)
    return y


# %% [markdown]
# ## A choice for each element
#
# All elements of a block go through the same lines. So there is no `if` for a single element. Instead you compute for
# all of them, and choose:
#
# | on paper | in the kernel |
# |---|---|
# | the larger of $a$ and $b$, the smaller | `tl.maximum(a, b)`, `tl.minimum(a, b)` |
# | $a$ where a condition holds, else $b$ | `tl.where(condition, a, b)` |
#
# Each takes blocks or numbers, and gives a block. (Python's `if` wants a single answer, and a block has none.)

# %% [markdown] exercise_header="0.b"
# A *leaky* ReLU: positive elements stay, the others are multiplied by `slope`.


# %% exercise="0.b"
@triton.jit
def leaky_kernel(x_ptr, y_ptr, slope, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    ### BEGIN SOLUTION
    y = tl.where(x > 0, x, slope * x)
    tl.store(y_ptr + offs, y, mask=mask)
    ### END SOLUTION


def leaky(x, slope):
    y = torch.empty_like(x)
    leaky_kernel[(triton.cdiv(x.numel(), 256),)](x, y, slope, x.numel(), BLOCK=256)
    return y


# %% [markdown]
# ## Engine 1: the interpreter
#
# What just ran was Triton's [**interpreter**](#Glossary). It executes the kernel on the CPU, one program after another,
# with numpy. It is slow, but it sees everything: the picture above was drawn from the loads and stores that it
# recorded. The course repairs some wrong numbers that the interpreter has by itself, and guards every access. Forget
# the mask, and you are told:


# %%
@triton.jit
def careless_kernel(x_ptr, y_ptr, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, alpha * tl.load(x_ptr + offs))


try:
    careless_kernel[grid](x, y, 3.0, BLOCK=256)
except IndexError as error:
    print(error)

# %% [markdown]
# A GPU would not have told you. It would have read what lies behind `x`, overwritten what lies behind `y`, and gone on.
#
# ### Looking inside (optional)
#
# Interpreted, a kernel is ordinary Python, so you can print in it. Each value is a block:


# %%
@triton.jit
def talking_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    print("program", tl.program_id(0), "loads", x)


talking_kernel[(2,)](torch.arange(6.0), 6, BLOCK=4)

# %% [markdown]
# The same holds in a script of your own, with or without this course: `TRITON_INTERPRET=1 python my_script.py`. Put
# `breakpoint()` into the kernel, and Python's debugger stops there, in each program; `p x` shows a block, `n` goes to
# the next line. (The variable must be set before Triton is imported. In a notebook of the course leave it alone.)
#
# ## Engine 2: the AMD compiler
#
# The ordinary `triton` package contains the [**AMD compiler**](#Glossary). It needs no GPU to run. So you can always
# ask: what would an MI300X execute? Its architecture has the name [**gfx942**](#Glossary).

# %% tags=["nbval-ignore-output"]
report = amd_report(scale_kernel, x, y, 3.0, 576, BLOCK=256, arch="gfx942")
assert report.spills == 0
report

# %% [markdown]
# Most of that card will make sense after lesson 01. Three words are enough for now. A [**lane**](#Glossary) is a place
# that computes for some elements of the block. On an MI300X 64 lanes form a [**wave**](#Glossary) and execute every
# instruction together. A program has one or more waves, four unless you ask for another number: 256 lanes, for your 256
# elements. Each lane keeps its values in [**registers**](#Glossary), called [**VGPRs**](#Glossary), and here it needs
# only a few of them. Now read the code itself, beside the lines you wrote:

# %% tags=["nbval-ignore-output"]
report.listing()

# %% [markdown]
# Find three instructions: one that begins with `buffer_load` or `global_load` (your `tl.load`), one that begins with
# `v_mul` or `v_pk_mul` (your `alpha * x`; `v` stands for vector, 64 lanes at once) and one with `store` in its name.
# Most of the rest computes addresses. `s_endpgm` ends the program. (It stands near the top because the listing goes by
# your lines, and the compiler counts the end to the `def`. In the machine it comes last:
# `report.listing(by="address")`.) That is the whole program of an MI300X, and it came from your laptop.
#
# The same kernel for a Radeon RX 7900 ([**gfx1100**](#Glossary)), where a wave has 32 lanes:

# %% tags=["nbval-ignore-output"]
radeon = amd_report(scale_kernel, x, y, 3.0, 576, BLOCK=256, arch="gfx1100")
assert (report.limits.wave_size, radeon.limits.wave_size) == (64, 32)
for card in (report, radeon):
    print(f"{card.arch}: {card.num_warps} waves of {card.limits.wave_size} lanes, {card.instructions} instructions")

# %% [markdown]
# ## Engine 3: the simulator
#
# You have read what an MI300X would execute. What would come out? The course can execute those instructions too. Its
# [**simulator**](#Glossary) holds the registers of every lane and the memory of the GPU as arrays on your CPU, and does
# to them what each instruction says. `simulate` takes what a launch takes:

# %%
y_simulated = torch.empty_like(x)
run = simulator.simulate(scale_kernel, grid, (x, y_simulated, 3.0, 576), BLOCK=256, arch="gfx942")
print("right:             ", torch.equal(y_simulated, 3.0 * x))
print("as interpreted:    ", torch.equal(y_simulated, y))

# %% [markdown]
# Now watch it at work. `step` follows one wave of one program. Program 2 owns the tail, what is left over. Its four
# waves, numbered from 0, hold 64 elements each, so wave 0 has all of the 64 that are left. Here is what that wave does
# in the three instructions that you have just found in the listing: load, multiply, store. **Scroll sideways** for the
# next one:

# %% tags=["nbval-ignore-output"]
walk = simulator.step(scale_kernel, grid, (x, y, 3.0, 576), BLOCK=256, arch="gfx942", program=(2,))
work = walk.only("buffer_", "global_", "v_mul_", "v_pk_mul_")
assert [touch.tensor for frame in work for touch in frame.touches] == ["x_ptr", "y_ptr"]
work

# %% [markdown]
# Each strip is a register: 64 cells, one for each lane. The larger the number, the stronger the colour. A line below a
# cell means that this step changed it. EXEC says which lanes take part. Point at a strip to read all of its numbers:
# the multiplication makes each three times as large. (`walk.slider()` shows the whole walk with a slider.)
#
# What does the mask do to a wave that owns nothing? Wave 1 of the same program would write elements 576 to 639:

# %% tags=["nbval-ignore-output"]
idle = simulator.step(scale_kernel, grid, (x, y, 3.0, 576), BLOCK=256, arch="gfx942", program=(2,), wave=1)
store = idle.only("_store_")[-1]
assert not store.touches[0].active.any()
print(store)

# %% [markdown]
# It runs through the same instructions, and its store touches nothing: the mask has put an impossible offset into every
# lane.
#
# The simulator counts what it does, and it stops at the first illegal access, as the interpreter does. But it has no
# clock. It cannot say how long anything takes.
#
# ## Engine 4: a GPU, if there is one
#
# Only a GPU can tell how *fast* a kernel is. With an AMD or NVIDIA GPU in this machine the next cell times the
# kernel. Without one it says so. What you can always know is a [**lower bound**](#Glossary): a kernel cannot be faster
# than memory delivers its bytes.

# %% tags=["nbval-ignore-output"]
n = 1 << 26
if bench.available():
    big = torch.randn(n, device=engines.device())
    out = torch.empty_like(big)
    print(bench.time(lambda: scale_kernel[(triton.cdiv(n, 1024),)](big, out, 3.0, n, BLOCK=1024), bytes=8 * n))
else:
    print("No GPU here, so nothing is timed.")
print(hardware.lower_bound(bytes=8 * n, flops=n, gpu="MI300X"))

# %% [markdown]
# ### The trap: timing the wrong engine
#
# It is tempting to time the interpreter. People have compared it with PyTorch and concluded that Triton is slow
# ([triton-lang/triton#5995](https://github.com/triton-lang/triton/issues/5995)). The time of an interpreted kernel
# says how fast numpy is, and nothing about a GPU. So the course refuses:

# %% tags=["nbval-ignore-output"]
try:
    bench.time(lambda: scale_kernel[grid](x, y, 3.0, 576, BLOCK=256))
except bench.NothingToTime as refusal:
    print(refusal)

# %% [markdown]
# ### What each engine can tell you
#
# | question | interpreter | AMD compiler | simulator | GPU |
# |---|---|---|---|---|
# | are the numbers right? | yes | – | yes, rounded as in the machine | yes |
# | which program touched which element? | yes | – | – | – |
# | was anything out of bounds? | yes, with the line | – | yes, with lane and line | rarely |
# | how many registers, how wide are the loads? | – | yes | – | – |
# | what does each instruction do? | – | it names them | yes, lane by lane | – |
# | does it compile for an MI300X, an RX 9070? | – | yes | it needs the compiler | only for itself |
# | how fast is it? | never | a lower bound | never | yes |
#
# ## Where kernels sit: a real model
#
# Meet SmolLM2-135M-Instruct. It is a small language model of the Llama family: 30 layers, 135 million weights. It came
# with the installation, and it runs in plain PyTorch on this machine.

# %% tags=["nbval-ignore-output"]
llm = model.load()
answer = llm.generate("What is the capital of France?", max_new_tokens=16)
assert "Paris" in answer.text
answer

# %% [markdown]
# To make each token, the model runs a few operations again and again. Each of them is one or more GPU kernels. Here
# they are, with the number of calls for one token, and for each call the bytes that it moves and its flops, the
# additions and multiplications:

# %% tags=["nbval-ignore-output"]
llm.operations()

# %% [markdown]
# This table is the plan of the course. Every lesson takes one operation, writes the kernel for it, and puts that kernel
# into the model. The model must go on producing the same tokens. Lesson 01 takes the additions, 02 the norms, 03 the
# activation, 04 the split with its rotation (RoPE), 05 the matrix products, and 06 attention. Lesson 07 gives the model
# a memory of earlier tokens, and in the end every operation of a token is a kernel.
#
# ## How exercises work
#
# The exercises are in the folder `work/exercises/`, one notebook for each lesson. An exercise is one cell that begins
# with its number, like the two that you have answered above:
#
# ```
# %%exercise 0.1
# ```
#
# You fill in the lines that are missing and press Shift + Enter. Your answer runs in a process of its own, on several
# cases with memory guarded on both sides. It may loop for ever, crash or ask for all of your memory: the notebook
# survives, and nothing you wrote is lost. A right answer also runs on a simulated MI300X, and if its machine code
# disagrees, you learn why. Then you get a report. Here is one, for an answer to exercise 0.2 that is *wrong*.
#
# **Read it, and find out what is wrong before you look at the explanation.**

# %% tags=["nbval-ignore-output"]
wrong_answer = """
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) + c, mask=mask)

def shift(x, c):
    y = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 128),)](x, y, c, x.numel(), BLOCK=128)
    return y
"""
result = check.grade("0.2", wrong_answer)
assert result.status == "failed" and result.diagnosis.code == "program-id-unused"
result

# %% [markdown]
# The answer never asks for `tl.program_id(0)`, so every program works on the first block. A tensor of one block comes
# out right, which is why there is more than one case.
#
# If you are stuck, `%hint 0.2` in a cell of its own gives the next of three hints. `%solution 0.2` shows a solution
# once you have passed, or after three real attempts. `progress()` shows how far you are:

# %% tags=["nbval-ignore-output"]
progress()

# %% [markdown]
# ## What to read next
#
# Do the four exercises in [`exercises/00_start_here.ipynb`](../exercises/00_start_here.ipynb). They take about 20
# minutes and are easy on purpose: they show you the reports, the hints and the grid. Then go on to [01 Vector
# add](01_vector_add.ipynb).
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | $p$-th program | `pid = tl.program_id(0)` |
# | elements $pB \dots pB+B-1$ | `offs = pid * BLOCK + tl.arange(0, BLOCK)` |
# | $i < n$ | `mask = offs < n` |
# | $\lceil n / B \rceil$ programs | `grid = (triton.cdiv(n, BLOCK),)` |
# | run it | `kernel[grid](x, y, ..., BLOCK=256)` |
#
# ### Glossary
#
# - **kernel**: a function that the GPU runs, marked with `@triton.jit`
# - **program**: one run of the kernel, on its own piece of the data
# - **block**: the elements that one program handles together
# - **grid**: all programs of one launch; its size stands in brackets behind the kernel's name
# - **launch**: starting a grid
# - **mask**: for each element of a block, whether it may be touched
# - **lane**, **wave**: one of the 64 (MI300X) or 32 (Radeon) places that execute an instruction together; the group
#   of them, which Triton calls a warp. A place of a block is called a lane, too
# - **register**, **VGPR**: where a lane keeps a value while it computes
# - **gfx942**, **gfx1100**: the compiler's names for the MI300X's and the RX 7900's architecture
# - **engine**: what runs a kernel here, or tells something about it; a GPU is one of the four
# - **interpreter**: executes a kernel on the CPU, one program after another
# - **AMD compiler**: turns a kernel into the machine code of an AMD GPU, on any machine
# - **simulator**: executes that machine code on the CPU, lane by lane
# - **lower bound**: the least time that bytes and arithmetic of a launch need on a GPU; no kernel can be faster
