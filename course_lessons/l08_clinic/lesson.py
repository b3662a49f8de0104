# %% [markdown]
# # 08 The kernel clinic
#
# This lesson writes no new kernel. It is about kernels that somebody else has written, tested and found good, and that
# are wrong all the same: how to find out why, quickly, and without guessing.
#
# You need lessons 01 to 07; each of them had one trap, and here they come unannounced. It takes about 25 minutes,
# without the exercises. The [exercises](../exercises/08_clinic.ipynb) are the heart of it: twelve patients, six of them
# required.
#
# **In doing so, you will learn**
#
# - a method of six steps, from a complaint to the assumption that does not hold
# - which instrument answers which question, and what each of them cannot see
# - why a green test says little, and how to test a test
# - what the same hunt looks like on a real AMD GPU

# %% tags=["nbval-ignore-output"]
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.language as tl

from course_lab import clinic, model
from gfxlab import amd_report, guard, simulator, trace, using
from gfxlab.engine.hooks import OutOfBoundsError

llm = model.load(device="cpu")

# %% [markdown]
# ## Where this sits in the model
#
# A model forgives a lot. Here is SmolLM2 with an RMSNorm that forgets `eps` in every layer. **Predict.** After how many
# tokens does its text differ?


# %%
def rms_norm_without_eps(x, weight, eps):
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True)))


prompt = "The capital of France is"
right = llm.generate(prompt, max_new_tokens=8)
with llm.using(rms_norm=rms_norm_without_eps):
    print("the same text:", llm.generate(prompt, max_new_tokens=8) == right)

# %% [markdown]
# It does not. The activations are large, `eps` is 0.00001, and nobody will notice before a row of zeros comes along and
# divides by zero. *It still writes good sentences* is no test of a kernel. You need numbers to compare, and a way to
# compare them that cannot be fooled.

# %% [markdown] exercise_header="8.a"
# The first instrument, as a kernel of your own: mark what is wrong. Element `i` of `out` becomes 1 where `got[i]` is
# **not** within `atol` of `expected[i]`, and 0 where it is. NaN is within nothing. Think of the comparison: what does
# `NaN > atol` give?


# %% exercise="8.a"
@triton.jit
def mark_wrong_kernel(got_ptr, expected_ptr, out_ptr, atol, n, BLOCK: tl.constexpr):
    """One program, one block."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    ### BEGIN SOLUTION
    got = tl.load(got_ptr + offs, mask=mask, other=0.0)
    expected = tl.load(expected_ptr + offs, mask=mask, other=0.0)
    near = tl.abs(got - expected) <= atol
    tl.store(out_ptr + offs, tl.where(near, 0, 1), mask=mask)
    ### END SOLUTION


def mark_wrong(got, expected, atol):
    n = got.numel()
    out = torch.empty(n, dtype=torch.int32, device=got.device)
    mark_wrong_kernel[(triton.cdiv(n, 256),)](got, expected, out, atol, n, BLOCK=256)
    return out


# %% [markdown]
# Each comparison with NaN is false. A test that counts `abs(got - expected) > atol` therefore finds a result of nothing
# but NaN without fault. Ask whether a number is *right*, never whether it is wrong.
#
# ## The idea on paper
#
# | step | question | instruments |
# |---|---|---|
# | 1. reproduce | on which arguments does it fail, each time? | the complaint, a reference, `assert_close` |
# | 2. shrink | which is the smallest input that still fails? | one row, four columns, numbers that you can follow |
# | 3. engine | who sees it: the interpreter, the compiler, the machine code? | `using`, `amd_report`, a GPU |
# | 4. element | which element is wrong first, and how? | `expected` and `got` side by side |
# | 5. program, line | who wrote it, and from what? | `trace`, `guard`, `device_print`, a debugger, the stepper |
# | 6. assumption | what did the author believe that is not so here? | thinking |
#
# Steps 1 and 2 give a [**reproducer**](#Glossary): arguments, small enough for paper, on which it fails every time. Do
# not skip them. A bug that is reproduced is half found, and the repair will need it as its test.
#
# Step 3 cuts the world in two. Where *all* engines agree on the wrong number, it is in your source. Where only the
# machine code is wrong, it is about what Triton leaves open: the order of programs and waves, masked lanes, rounding.
# Where a target refuses it, it is a limit of that card.
#
# ## Step 1: reproduce
#
# A patient to practise on. This kernel turns pairs, as in [lesson 04](04_rope.ipynb), and its author reasoned: a
# rotation keeps lengths, so let the test compare lengths.


# %%
@triton.jit
def turn_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, HALF: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    a = tl.load(x_ptr + row * 2 * HALF + i)
    b = tl.load(x_ptr + row * 2 * HALF + HALF + i)
    cos = tl.load(cos_ptr + row * HALF + i)
    sin = tl.load(sin_ptr + row * HALF + i)
    both = tl.join(a * cos - b * sin, b * cos + a * sin)
    tl.store(y_ptr + row * 2 * HALF + tl.arange(0, 2 * HALF), tl.reshape(both, (2 * HALF,)))


def turn(x, cos, sin):
    y = torch.empty_like(x)
    turn_kernel[(len(x),)](x, y, cos, sin, HALF=x.shape[1] // 2)
    return y


def test_turn():
    x, angle = torch.randn(6, 64), torch.rand(6, 32)
    torch.testing.assert_close(turn(x, angle.cos(), angle.sin()).norm(dim=1), x.norm(dim=1))


torch.manual_seed(0)
test_turn()
print("the author's test: passed")

# %% [markdown]
# Users complain: a model that takes this kernel writes nonsense. So compare with the definition itself, element by
# element:


# %%
def turned(x, cos, sin):
    a, b = x.chunk(2, dim=1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=1)


x, angle = torch.randn(6, 64), torch.rand(6, 32)
wrong = (turn(x, angle.cos(), angle.sin()) - turned(x, angle.cos(), angle.sin())).abs() > 1e-5
print(f"{int(wrong.sum())} of {wrong.numel()} elements are wrong")

# %% [markdown]
# ## Step 2: shrink
#
# Take away whatever can go while it still fails: rows, columns, random numbers. An angle of 0 turns nothing, so the
# output should be the input, and each number says where it came from. **Predict** the output.

# %%
small = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]])
none = torch.zeros(1, 4)
print("expected", turned(small, none.cos(), none.sin()).tolist())
print("got     ", turn(small, none.cos(), none.sin()).tolist())
two = torch.tensor([[1.0, 2.0]])
print("two columns:", turn(two, none[:, :1].cos(), none[:, :1].sin()).tolist(), "- right")

# %% [markdown]
# Half of the hunt is done. All numbers are there, in another order; two columns are right, four are not. A length does
# not see an order, which is why the test is green.
#
# ## Step 3: which engine?

# %%
interpreted = turn(small, none.cos(), none.sin())
with using("gfx942", quiet=True) as runs:
    executed = turn(small, none.cos(), none.sin())
print("the machine code of an MI300X gives the same:", bool((interpreted == executed).all()))
print("what the simulator found odd:", list(runs[0].wrong) or "nothing")

# %% [markdown]
# Both agree, so it is neither a race nor a rounding. The mistake stands in the source, and the interpreter, which is
# the easiest engine to look into, will do for the rest.
#
# ## Steps 4 and 5: which element, which program, which line?
#
# The first wrong element is number 1: expected 2, got 5. Who wrote it? `trace` has noted each access:

# %%
with trace() as launches:
    turn(small, none.cos(), none.sin())
for program, stores in launches[0].by_program("y_ptr", "store").items():
    print(f"program {program} stored elements {stores[0].elements.tolist()} in line {stores[0].line}")

# %% [markdown]
# One store wrote everything, and its offsets are right. So the *values* came in the wrong order. In your kernels you
# often want the same answer for each element of a large output: paint it.

# %% [markdown] exercise_header="8.b"
# Paint: each element of `out`, a vector of int32, becomes the number of the program that owns it, with blocks of
# `BLOCK` elements. Lay it beside a wrong result, and you know whom to ask. It works on every GPU, without any tool.


# %% exercise="8.b"
@triton.jit
def paint_kernel(out_ptr, n, BLOCK: tl.constexpr):
    """One program, one block."""
    pid = tl.program_id(0)
    ### BEGIN SOLUTION
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.zeros((BLOCK,), tl.int32) + pid, mask=offs < n)
    ### END SOLUTION


def paint(out, block):
    n = out.numel()
    paint_kernel[(triton.cdiv(n, block),)](out, n, BLOCK=block)


# %% [markdown]
# ### Print
#
# `tl.device_print` works in the interpreter, in the simulator and on a GPU, where each lane prints a line. So print
# from one program, and of a small block. Here is the suspicious operation alone, in a kernel of its own:


# %%
@triton.jit
def joined_kernel(out_ptr, HALF: tl.constexpr):
    first = tl.arange(0, HALF)
    both = tl.join(first, first + HALF)
    tl.device_print("joined", both)
    tl.store(out_ptr + tl.arange(0, 2 * HALF), tl.reshape(both, (2 * HALF,)))


out = torch.empty(8, dtype=torch.int32)
joined_kernel[(1,)](out, HALF=4)
print(out.tolist())

# %% [markdown]
# There it is. `tl.join` puts its two blocks side by side along a **new last** axis: four rows of two. Reshaped, that is
# 0, 4, 1, 5: neighbours, as in GPT-J's pairs.
#
# **Step 6, the assumption:** that `join` appends. The cure is `tl.permute(both, (1, 0))` before the reshape, and the
# test that should have been there compares with the definition. (Lesson 04 has it in its section on `tl.join`.)
#
# ### A debugger
#
# Under `TRITON_INTERPRET=1` a kernel is Python: `breakpoint()` stops in it, in a terminal and in JupyterLab alike, and
# every block is an array that you can look at. Here a script is run and the debugger gets its commands from a file, so
# that this page can show them. (`c` goes on, to the next program.)

# %%
SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    breakpoint()
    tl.store(y_ptr + offs, 2 * x, mask=offs < n)

x = torch.arange(6.0)
double_kernel[(2,)](x, torch.empty_like(x), 6, BLOCK=4)
"""
folder = Path(tempfile.mkdtemp())
(folder / "double.py").write_text(SCRIPT)
commands = "p tl.program_id(0)\np x\nc\np tl.program_id(0)\np x\np offs < 6\nc\n"
debugged = {**os.environ, "TRITON_INTERPRET": "1"}
run = {"cwd": folder, "capture_output": True, "text": True}
shown = subprocess.run([sys.executable, "double.py"], env=debugged, input=commands, **run)
for answer in (line.removeprefix("(Pdb) ") for line in shown.stdout.splitlines() if "array" in line):
    print(answer)

# %% [markdown]
# ### Trace, guard, and what nobody else sees
#
# Some bugs give right numbers. This kernel takes differences of neighbours, and its test compares all of them:


# %%
@triton.jit
def difference_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    here = tl.load(x_ptr + offs, mask=mask, other=0.0)
    following = tl.load(x_ptr + offs + 1, mask=mask, other=0.0)
    tl.store(y_ptr + offs, tl.where(offs < n - 1, following - here, 0.0), mask=mask)


x = torch.randn(100)
y = torch.empty_like(x)
try:
    difference_kernel[(1,)](x, y, 100, BLOCK=128)
except OutOfBoundsError as error:
    print(str(error).partition(". ")[0])
with guard("record") as faults:
    difference_kernel[(1,)](x, y, 100, BLOCK=128)
print("right all the same:", torch.equal(y[:-1], x[1:] - x[:-1]), f"with {len(faults)} fault")

# %% [markdown]
# The number that it read past the end is thrown away, so the result is right. On a GPU nothing happens either, until
# one day the tensor ends where mapped memory ends. The **guard** sees it every time. Without it, put a
# [**canary**](#Glossary) there yourself: memory around the tensor with a value that you know, which must be the same
# afterwards. It tells of stores, not of loads.
#
# ### The stepper
#
# When only the machine code is wrong, follow a wave through it, instruction by instruction or line by line. Here are
# the steps of the patient in its line with `tl.join`: the code has no instruction that swaps two halves.

# %% tags=["nbval-ignore-output"]
nothing = torch.zeros(1, 4)
walk = simulator.step(turn_kernel, (1,), (small, torch.empty_like(small), nothing + 1, nothing), HALF=4, num_warps=1)
walk.only("tl.join")

# %% [markdown]
# ### What the compiler made of it
#
# Triton can write down each stage of a kernel: `ttir` and `ttgir` are its own representations, `llir` is LLVM's,
# `amdgcn` is the machine code as text. `TRITON_KERNEL_DUMP=1` stores them, `MLIR_ENABLE_DUMP=1` prints the
# representation before each pass of the compiler. They work without a GPU, since compiling does:

# %%
COMPILE = (
    SCRIPT.partition("x = torch")[0].replace("    breakpoint()\n", "")
    + """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
triton.compile(ASTSource(double_kernel, types, {"BLOCK": 256}), target=GPUTarget("hip", "gfx942", 64))
"""
)
(folder / "dump.py").write_text(COMPILE)
dumping = {"TRITON_ALWAYS_COMPILE": "1", "TRITON_KERNEL_DUMP": "1", "TRITON_DUMP_DIR": str(folder / "dump")}
dumping = {**os.environ, **dumping, "MLIR_ENABLE_DUMP": "1"}
shown = subprocess.run([sys.executable, "dump.py"], env=dumping, **run)
stages = sorted(path.suffix for path in (folder / "dump").rglob("double_kernel.*"))
passes = shown.stderr.count("IR Dump Before")
print(" ".join(stage for stage in stages if stage in (".ttir", ".ttgir", ".llir", ".amdgcn")))
assert 30 < passes < 150
print("some dozens of passes, each with the kernel before it")

# %% [markdown]
# Look for the first pass after which your kernel is no longer what you meant. More often you want only the end of it,
# and `amd_report(...)` has that: registers, spills, LDS, and the listing beside your lines.
#
# ## The trap: a test that cannot fail
#
# Kernels are not the only thing that can be wrong. Four tests, all of them real in kind: one compares the kernel with
# itself, as a quantisation test of a kernel library did; one allows an absolute error of 10,000, as a test of bf16
# SwiGLU did; one compares sums; one is strict. Put wrong softmaxes before them, and count:


# %%
def compared_with_itself(softmax, x):
    return torch.allclose(softmax(x), softmax(x))


def very_tolerant(softmax, x):
    return torch.allclose(softmax(x), torch.softmax(x, dim=1), atol=1e4)


def rows_sum_to_one(softmax, x):
    return torch.allclose(softmax(x).sum(dim=1), torch.ones(len(x)))


def strict(softmax, x):
    return torch.allclose(softmax(x), torch.softmax(x, dim=1), atol=1e-6)


# %%
mistakes = {
    "base 2": lambda x: torch.softmax(x * 0.6931, dim=1),
    "along the columns": lambda x: torch.softmax(x, dim=0),
    "not divided": lambda x: x.exp(),
    "no maximum": lambda x: x.exp() / x.exp().sum(dim=1, keepdim=True),
}
for test in (compared_with_itself, very_tolerant, rows_sum_to_one, strict):
    caught = [name for name, wrong in mistakes.items() if not test(wrong, torch.randn(4, 30))]
    print(f"{test.__name__:21} notices {len(caught)} of {len(mistakes)}: {', '.join(caught)}")

# %% [markdown]
# That is [**mutation testing**](#Glossary): break the code on purpose, and see whether the test notices. The strict
# test misses *no maximum*, because its input is tame: it needs scores of 100. **A test is as good as its worst input.**
# The exercises of this course are tested in that way, each with wrong kernels of its own.
#
# After every repair do the same once: put the bug back and look at the test fail. If it stays green, it was not the
# test of this bug.
#
# ## Who sees it?
#
# Here are all twelve patients, each as its author left it, on arguments that show what is wrong (or for the card that
# does). Each engine is asked: the interpreter, its guard, the
# compiler for three targets, the machine code of an MI300X executed, and the same with its waves apart where memory is
# changed in place. **Predict.** Which engine sees the most, and is there one that can be left out?

# %% tags=["nbval-ignore-output"]
table = clinic.seen_by()
table

# %% tags=["nbval-ignore-output"]
blind = {row.number: [name for name, says in row.says.items() if says in (clinic.RIGHT, "")] for row in table.rows}
assert all("its test" in names for names in blind.values()), "every author was satisfied"
for number, names in blind.items():
    seen = [name for name in clinic.COLUMNS if name not in names]
    assert seen, "a patient that nobody can find"
    print(number, "is seen by:", ", ".join(seen))

# %% [markdown]
# No engine sees all of them. The interpreter sees what the source says, and nothing of cards, waves or registers. The
# compiler's report needs no wrong number, and says nothing about numbers. The machine code, executed, does what a GPU
# does, and so it writes into the neighbour's memory (8.3) as silently as a GPU. It also keeps its waves in step unless
# it is told otherwise: a race takes a hunter who suspects one. Ask in this order: the guard first, since it is cheap;
# then numbers; then the report, for *every* card that you ship to; then the waves.
#
# The [field guide](../docs/field_guide.md) has all twelve patients on a page that you can print: symptom, instrument,
# cause, cure. It also lists every diagnosis that a check can give, with the place in the lessons that teaches it. It
# names the causes, so read it after the exercises.
#
# ## On real hardware
#
# Nothing in this section was run here: there is no AMD GPU. Commands and the form of their output are from the
# documents that are named.
#
# **The process dies** with a line such as
#
# ```
# Memory access fault by GPU node-1 (Agent handle: 0x55d0c0) on address 0x7f2a4c600000.
# Reason: Page not present or supervisor privilege.
# ```
#
# (as reported, for example, in [ROCm issue 2804](https://github.com/ROCm/legacy-rocm-build/issues/2804)). The address
# is that of a *page*, often 4 KiB or 2 MiB, so its last digits are zeros. Launches do not wait, so the Python line that
# you see is a later one. `AMD_SERIALIZE_KERNEL=3` makes each launch wait, as HIP's [debugging
# page](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/debugging.html) says. Print `tensor.data_ptr()` and
# compare: just past the end of a tensor is a missing mask, two gigabytes below is an int32 product, far from
# everything is a wrong pointer. Not every illegal access is a fault; most hit memory of somebody else.
#
# **What was launched last?** `AMD_LOG_LEVEL=3 python my.py` logs each HIP call; level 4 adds the packets, with grid and
# workgroup ([HIP logging](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/logging.html)):
#
# ```
# :3:hip_module.cpp    :679 : 0893897958 us: [pid:110 tid:0x7f5f] hipLaunchKernel: Returned hipSuccess :
# :4:rocvirtual.cpp    :888 : ... grid=[16384, 1, 1], workgroup=[256, 1, 1], private_seg_size=0, group_seg_size=0
# ```
#
# `private_seg_size` above 0 is memory for spills, `group_seg_size` is LDS, and a workgroup above 1024 is what `invalid
# argument` means.
#
# **Which line?** `rocgdb --args python my.py`, then `run`. At a fault it stops, and `info threads` lists each wave
# beside the threads of the host. `info lanes` and `info dispatches` go on from there ([ROCgdb's
# commands](https://rocm.docs.amd.com/projects/ROCgdb/en/latest/quick-reference/essential-commands.html), shortened):
#
# ```
#   Id   Target Id                                 Frame
#   1    Thread 0x7ffff648bf80 (LWP 1981864) "saxpy" 0x00007ffff5a6c9ef in ?? ()
# * 7    AMDGPU Wave 1:2:1:1 (0,0,0)/0 "saxpy"       saxpy_kernel () at saxpy.cpp:8
#
#   Id   Target Id                      Grid    Workgroup Fence   Kernel Function
# * 1    AMDGPU Dispatch 1:2:1 (PKID 0) [1,1,1] [1,1,1]   B|Aa|Ra kern()
# ```
#
# `(0,0,0)/0` is the program and the wave in it, and `x/i $pc` the instruction. `set amdgpu precise-memory on` makes it
# stop at the instruction itself and not some later one ([GDB on AMD
# GPUs](https://sourceware.org/gdb/current/onlinedocs/gdb.html/AMD-GPU.html)). Without a debugger,
# `HSA_TOOLS_LIB=/opt/rocm/lib/librocm-debug-agent.so.2 python my.py` prints the registers of the waves that caused a
# fault or, as here, met an assertion ([ROCr debug
# agent](https://rocm.docs.amd.com/projects/rocr_debug_agent/en/latest/how-to/user-guide.html)):
#
# ```
# Queue error (HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.)
# wave_1: pc=0x7fd4f100d0e8 (stopped, reason: ASSERT_TRAP)
# system registers:
#             m0: 00000000        status: 00012461       trapsts: 20000000          mode: 000003c0
# ```
#
# **Slow?** `rocprofv3 --kernel-trace --stats --output-format csv -- python my.py` writes a line for each kernel into
# `..._kernel_stats.csv`; `rocprofv3 --pmc SQ_WAVES --output-format csv -- python my.py` counts on the hardware what the
# simulator counts here, into `..._counter_collection.csv`. The columns, and a line of a count, in [AMD's
# guide](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html) (shortened):
#
# ```
# "Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
#
# ...,"Grid_Size",...,"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size",...,"Counter_Value",...
# ...,1048576,...,"void addition_kernel<float>(...)",64,0,0,...,16384.000000,...
# ```
#
# There a grid is counted in lanes: 1,048,576 of them in workgroups of 64 are 16,384 waves of 64.
#
# **Not always the same?** Run it a hundred times with one input, and compare bit for bit. What varies is a race, an
# atomic's order, or memory that was never written. No tool finds the first for you there. The simulator does.
#
# ## Swap it in
#
# A repair belongs into the place where the fault did harm. The patient of this page, cured, in SmolLM2's own head size:


# %%
@triton.jit
def cured_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, HALF: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    a = tl.load(x_ptr + row * 2 * HALF + i)
    b = tl.load(x_ptr + row * 2 * HALF + HALF + i)
    cos = tl.load(cos_ptr + row * HALF + i)
    sin = tl.load(sin_ptr + row * HALF + i)
    both = tl.permute(tl.join(a * cos - b * sin, b * cos + a * sin), (1, 0))
    tl.store(y_ptr + row * 2 * HALF + tl.arange(0, 2 * HALF), tl.reshape(both, (2 * HALF,)))


qkv, cos, sin, positions, QH, KH, D = llm.activations("layers.5.rope", llm.tokenizer.encode(prompt))
queries = qkv.view(len(qkv), -1, D)[:, 0].contiguous()
y, cos, sin = torch.empty_like(queries), cos[positions].contiguous(), sin[positions].contiguous()
cured_kernel[(len(queries),)](queries, y, cos, sin, HALF=D // 2)
print("right on the model's own queries:", torch.allclose(y, turned(queries, cos, sin), atol=1e-5))

# %% [markdown]
# ## What to read next
#
# - Triton's [page on debugging](https://triton-lang.org/main/programming-guide/chapter-3/debugging.html): interpreter,
#   `device_assert`, tools of other vendors
# - The [ROCm documentation](https://rocm.docs.amd.com/) of the tools above
#
# Now the [exercises](../exercises/08_clinic.ipynb): twelve patients. Then the kernels meet in
# [09 A language model](09_language_model.ipynb).
#
# ### From formula to code
#
# | question | in code |
# |---|---|
# | who wrote element i? | `launches[0].by_program("y_ptr", "store")` |
# | does it stay inside? | `guard()`, always on in the interpreter |
# | same numbers as the hardware? | `with using("gfx942") as runs:` and `runs[0].wrong` |
# | registers, spills, LDS? | `amd_report(kernel, *args, arch="gfx1100")` |
# | one wave, step by step | `simulator.step(kernel, grid, args, by="line")` |
# | look into a kernel | `breakpoint()` under `TRITON_INTERPRET=1`, `tl.device_print` |
#
# ### Glossary
#
# - **reproducer**: the smallest arguments on which a fault shows, every time
# - **canary**: known values around a tensor, which show a store past its end
# - **mutation testing**: breaking code on purpose, to see whether its test notices
