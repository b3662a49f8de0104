# %% [markdown]
# # 03 Fused activations
#
# In lesson 02 a program needed a whole row before it could write a single element. Here each element stands alone
# again, as in lesson 01, and you could write the kernel in two minutes. It would be slow, or wrong for large numbers,
# or both. This lesson is about the difference.
#
# You need lessons 01 and 02: program, block, mask, grid, reduction, fusing. It takes about 45 minutes, without the
# exercises. Its short path takes about 15; dropout, 8-bit numbers and autotuning are parts of their own, which you can
# skip, or read when you need them.
#
# **In doing so, you will learn**
#
# - why the exponential overflows, and how to write SiLU and GELU so that it does no harm
# - what fusing saves when two halves of a row meet, in bytes that you predict and then count
# - how one kernel serves many functions, and why a misspelt name must be an error
# - optional: random numbers that nobody has to store; 8-bit numbers; autotuning, and how it can destroy your data

# %% tags=["nbval-ignore-output"]
import torch
import torch.nn.functional as F
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
# Each layer of SmolLM2 ends with an MLP. It widens every token from 576 numbers to twice 1536, combines these two
# halves to one, and returns to 576:
#
# ```
#              ┌── gate (1536) ── silu ──┐
# token (576) ─┤                        (×) ── (1536) ── down ── (576)
#              └── up   (1536) ──────────┘
# ```
#
# One matrix product makes both halves, side by side in one row of 3072. What comes next is the subject of this lesson.
# The first half, the [**gate**](#Glossary), goes through a curve called SiLU, and the result scales the second half.
# This is called a [**gated activation**](#Glossary). With SiLU as its curve it is [**SwiGLU**](#Glossary) (Shazeer,
# *GLU Variants Improve Transformer*, 2020). The models of the Llama family have it; Gemma has its sister with GELU
# (*Gemma*, 2024).

# %%
(x,) = llm.activations("layers.0.activation")
tokens, d = x.shape[0], x.shape[1] // 2
calls = llm.count_calls()
print(f"{tokens} tokens, gate and up of {d} each: x has the shape {tuple(x.shape)}")
print("SwiGLU in one forward pass:", calls["silu_and_mul"])

# %% [markdown] exercise_header="3.a"
# First the addresses. A row of `x` holds two halves of `d` elements. Add the halves; `y` has rows of `d`.


# %% exercise="3.a"
@triton.jit
def add_halves_kernel(x_ptr, y_ptr, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < d
    ### BEGIN SOLUTION
    a = tl.load(x_ptr + row * 2 * d + cols, mask=mask)
    b = tl.load(x_ptr + row * 2 * d + d + cols, mask=mask)
    tl.store(y_ptr + row * d + cols, a + b, mask=mask)
    ### END SOLUTION


def add_halves(x):
    rows, d = len(x), x.shape[1] // 2
    y = torch.empty(rows, d)
    add_halves_kernel[(rows,)](x, y, d, BLOCK=triton.next_power_of_2(d))
    return y


# %% [markdown]
# And the real operation? In PyTorch it is one line.
#
# **Predict.** Count trips, as in lesson 02. A trip is reading or writing one matrix of 37 × 1536. How many are
# necessary? How many does PyTorch make?

# %%
with eager.count() as ops:
    gate, up = x.chunk(2, dim=-1)  # two views: nothing moves
    y = F.silu(gate) * up
print("necessary: 3 trips")
for op in ops.operations:
    print(f"{op.name:5} {op.read // y.nbytes} read, {op.written // y.nbytes} written")
print(f"made:      {ops.bytes // y.nbytes}")

# %% [markdown]
# Two kernels, five trips: `silu` writes its result only for `mul` to read it back. In
# [bfloat16](01_vector_add.ipynb#Glossary) a model that wants its arithmetic in float32 pays for the conversions as
# well. (A trip is now a matrix of bfloat16, so a matrix of float32 counts as two.)

# %% tags=["nbval-ignore-output"]
x16 = x.bfloat16()
with eager.count() as ops16:
    gate, up = x16.float().chunk(2, dim=-1)
    y16 = (F.silu(gate) * up).bfloat16()
assert ops16.kernels == 4 and 10 < ops16.bytes / y16.nbytes < 20
print(f"{ops16.kernels} kernels, {ops16.bytes / y16.nbytes:.0f} trips where 3 are necessary")

# %% [markdown]
# How much does that matter, beside the norms of lesson 02? For each token, the 60 norms with their additions make 4
# trips of 576 numbers each, when they are [fused](02_rmsnorm.ipynb#Glossary). The 30 activations make 3 trips of 1536:

# %%
norms = calls["add_rms_norm"] * 4 * 576
activations = calls["silu_and_mul"] * 3 * d
print(f"numbers moved for each token: {norms:,} by the norms, {activations:,} by the activations")

# %% [markdown]
# The same, to the last number. So these kernels matter as much as the norms do, and they are easier.
#
# ## The idea on paper
#
# $$ \mathrm{silu}(x) = \frac{x}{1 + e^{-x}} \qquad\qquad
#    \mathrm{gelu}(x) = \frac{x}{2} \left(1 + \mathrm{erf}\frac{x}{\sqrt 2}\right) $$
#
# (erf is the *error function*: it measures the area under a bell curve, and runs from −1 to 1.) Both are soft versions
# of ReLU, $\max(x, 0)$. Far to the right they are $x$ itself, far to the left they are 0, and in between the curve dips
# a little below zero:

# %%
curves = {"relu": torch.relu, "gelu": F.gelu, "silu": F.silu}
draw.curves(curves, -4, 2)

# %% [markdown]
# The gate decides how much of `up` gets through: nothing for a very negative gate, and gate times `up` for a large one.
#
# | on paper | in the kernel |
# |---|---|
# | gate, element $c$ of row $r$ | `gate = tl.load(x_ptr + row * stride + cols)` |
# | up, its partner | `up = tl.load(x_ptr + row * stride + d + cols)` |
# | $y_{rc} = \mathrm{silu}(\text{gate}) \cdot \text{up}$ | `y = gate / (1 + tl.exp(-gate)) * up` |
#
# ## Rung 1: SiLU without a NaN
#
# SiLU is $x \, \sigma(x)$, where $\sigma$ is the *sigmoid*, and only the sigmoid can go wrong. It can be written in
# two ways, which are equal on paper:
#
# $$ \sigma(x) = \frac{1}{1 + e^{-x}} = \frac{e^{x}}{e^{x} + 1} $$
#
# **Predict.** The largest float32 is about $3.4 \cdot 10^{38}$, which is $e^{88.7}$. Which of the two survives a large
# positive $x$? Which a large negative one?


# %%
@triton.jit
def naive_sigmoid_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    e = tl.exp(tl.load(x_ptr + offs, mask=mask, other=0.0))
    tl.store(y_ptr + offs, e / (e + 1), mask=mask)


@triton.jit
def sigmoid_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, 1 / (1 + tl.exp(-x)), mask=mask)


def run(kernel, x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


far = torch.tensor([-100.0, -20, -1, 1, 20, 88, 89, 100])
print("x       ", [f"{v:7.1f}" for v in far.tolist()])
print("naive   ", [f"{v:7.2g}" for v in run(naive_sigmoid_kernel, far).tolist()])
print("sigmoid ", [f"{v:7.2g}" for v in run(sigmoid_kernel, far).tolist()])

# %% [markdown]
# **Why.** From 89 on $e^x$ is infinite, above *and* below the fraction. `inf / inf` has no value: NaN. The other form
# overflows on the left, where $e^{-x}$ is infinite, but only *below* the fraction. $1 / \infty$ is 0, and the truth,
# $4 \cdot 10^{-44}$, is as good as 0. So SiLU is $x / (1 + e^{-x})$.
#
# > An exponential may overflow where infinity leads to the right limit. Never let it stand on both sides of a fraction.
#
# Written so, nothing needs to be clamped.
#
# ### What the machine does for it (optional)
#
# Now look at what the machine does for that line. An MI300X has no exponential of base $e$, only `v_exp_f32`, which is
# $2^x$. So $e^{x}$ becomes $2^{x \log_2 e}$:

# %% tags=["nbval-ignore-output"]
one = torch.empty(256)  # 256 elements: one for each lane
report = amd_report(sigmoid_kernel, one, one, 256, BLOCK=256, arch="gfx942")
assert report.mix["transcendental"] >= 2 and any(i.mnemonic.startswith("v_exp") for i in report.program.instructions)
report.listing(only="tl.exp")

# %% [markdown]
# **Look.** `0xbfb8aa3b` is how a float32 writes the factor $-\log_2 e$. The `v_cmp`, `v_cndmask` and `v_ldexp` around
# `v_exp_f32` serve results that are nearly 0: 64 (`0x42800000`) is added to such an exponent, and the result divided by
# $2^{64}$. Then comes an exact division: `v_rcp_f32` makes a first guess of the reciprocal, and about ten instructions
# around it remove its error.
#
# `v_exp_f32` and `v_rcp_f32` are [**transcendental instructions**](#Glossary): exponential, logarithm, reciprocal,
# root, sine. The compiler's model of AMD GPUs (LLVM's `SISchedule.td`) reckons four cycles for each of them, and one
# for an ordinary instruction. Keep that in mind for the end.
#
# A Radeon has the same instructions. Its four waves have 32 lanes each, so a lane takes care of two elements, and each
# instruction appears twice:

# %% tags=["nbval-ignore-output"]
radeon = amd_report(sigmoid_kernel, one, one, 256, BLOCK=256, arch="gfx1100")
transcendental = [i.text for i in radeon.program.instructions if i.kind == "transcendental"]
assert len(transcendental) == 4
print(f"gfx1100: {radeon.instructions} instructions, of which transcendental:", *transcendental, sep="\n  ")

# %% [markdown]
# ## Rung 2 and the trap: GELU, twice
#
# GELU (Hendrycks and Gimpel, 2016) multiplies $x$ by the probability that a normally distributed number lies below it.
# That needs `erf`, which Triton has as `tl.erf`. The paper also gives an approximation, which is cheaper:
#
# $$ \mathrm{gelu_{tanh}}(x) = \frac{x}{2} (1 + \tanh u), \qquad
#    u = \sqrt{2/\pi}\,(x + 0.044715\,x^3) $$
#
# Both are in use. A model was trained with one of them, and its configuration file says which. How far apart are they?

# %%
points = torch.linspace(0, 6, 60_001, dtype=torch.float64)
apart = (F.gelu(points) - F.gelu(points, approximate="tanh")).abs()
print(f"largest difference: {apart.max():.6f}, at x = {points[apart.argmax()]:.2f}")

# %% [markdown]
# Nobody sees that in a picture, and float16, whose numbers near 2.7 are 0.002 apart, hardly shows it. So each form gets
# a name of its own.
#
# Now the tanh. There is no `tl.tanh`. The textbook has $\tanh u = \frac{e^{2u} - 1}{e^{2u} + 1}$. Try it on 200 000
# random numbers:


# %%
@triton.jit
def naive_gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    e = tl.exp(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))
    tanh = (e - 1) / (e + 1)
    tl.store(y_ptr + offs, 0.5 * x * (1 + tanh), mask=mask)


test = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
print("right on the test:", torch.allclose(run(naive_gelu_kernel, test), F.gelu(test, approximate="tanh"), atol=1e-5))

# %% [markdown]
# **Predict.** Is it right on the gates that the model really computes? Use the rule of rung 1: where does $e^{2u}$
# stand?

# %% tags=["nbval-ignore-output"]
print("largest number of the test:", f"{test.max():.1f}")
for layer in (0, 1, 2, 9):
    gate = llm.activations(f"layers.{layer}.activation")[0][:, :d].contiguous()
    lost = int(run(naive_gelu_kernel, gate).isnan().sum())
    print(f"layer {layer}: largest gate {gate.max():4.1f}, NaN: {lost} of {gate.numel():,}")
    assert lost == int((gate > 10.07).sum()) and (layer == 0 or lost)

# %% [markdown]
# **Look.** One NaN among 56 832 numbers, from a gate above 10. (SmolLM2 uses SiLU, but nothing keeps the gates of a
# model with GELU smaller.) One is enough: the next matrix product spreads it over the whole token, and attention over
# all tokens after it. The test could not see it, because among its 200 000 numbers none is above 5.
#
# From $x = 10.1$ on, the cube makes $2u$ larger than 88.7. This happens to experts too: AMD's `fast_tanhf` in Triton
# had the same formula until the autumn of 2025 ([triton#8551](https://github.com/triton-lang/triton/pull/8551)).
#
# The cure is an identity. $\tanh u = 2\sigma(2u) - 1$, with the sigmoid of rung 1, so
#
# $$ \frac{x}{2}(1 + \tanh u) = x\,\sigma(2u) = \frac{x}{1 + e^{-2u}} $$
#
# That is SiLU with another exponent, and no tanh at all. Triton has the sigmoid as `tl.sigmoid`.


# %%
@triton.jit
def gelu_tanh_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + offs, x * tl.sigmoid(2 * u), mask=mask)


wide = torch.linspace(-1000, 1000, 4001)
print("right up to 1000:", torch.allclose(run(gelu_tanh_kernel, wide), F.gelu(wide, approximate="tanh"), atol=1e-5))

# %% [markdown] exercise_header="3.b"
# A tanh alone, right for every number. The identity is above.


# %% exercise="3.b"
@triton.jit
def tanh_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    ### BEGIN SOLUTION
    y = 2 * tl.sigmoid(2 * x) - 1
    tl.store(y_ptr + offs, y, mask=mask)
    ### END SOLUTION


def tanh(x):
    y = torch.empty_like(x)
    tanh_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


# %% [markdown]
# ## Rung 3: gate and up in one kernel
#
# Back to the model. One program takes a block of columns of one row of `y`. It loads twice: its columns of the gate,
# and the same columns `d` elements further on.


# %%
@triton.jit
def silu_and_mul_kernel(x_ptr, y_ptr, stride_xm, stride_ym, d, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < d
    gate = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + d + cols, mask=mask, other=0.0).to(tl.float32)
    y = gate / (1 + tl.exp(-gate)) * up
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def silu_and_mul(x, block=512):
    rows, d = x.shape[0], x.shape[1] // 2
    y = torch.empty((rows, d), dtype=x.dtype)
    grid = (triton.cdiv(d, block), rows)
    silu_and_mul_kernel[grid](x, y, x.stride(0), y.stride(0), d, BLOCK=block)
    return y


with trace() as launch:
    y = silu_and_mul(x[:3])
torch.testing.assert_close(y, reference.silu_and_mul(x[:3]))
print("same as PyTorch, up to float32 rounding")
launch.picture("x_ptr")

# %% [markdown]
# **Look.** 1536 is three blocks of 512, so no [lane](00_start_here.ipynb#Glossary) is idle. Every program appears twice
# in its row: once in the gate, once in `up`. Note the mask: it compares with `d`, the width of *one half*. A lane past
# the end of the gate would find the beginning of `up`, which is a legal address with wrong numbers.
#
# **Predict** the ledger for the whole prompt, in trips, and in percent of the least possible.

# %%
with trace() as launch:
    silu_and_mul(x)
fused = launch.ledger()
print(f"a trip is {tokens * d * 4:,} bytes")
print(f"fused: {fused.bytes / (tokens * d * 4):g} trips, {fused.score:.0%} of the bytes were necessary")
trip = tokens * d * 4
draw.bytes_bar(
    {
        "PyTorch: silu, then mul": {"gate": trip, "silu out": trip, "silu in": trip, "up": trip, "y": trip},
        "fused": {"gate": trip, "up": trip, "y": trip},
    }
)

# %% [markdown]
# Two fifths of the bytes are gone: those of a matrix that nobody wanted.
#
# ### Conventions and roundings (optional)
#
# The order of the halves is a convention, and not everybody's. PyTorch's `F.glu` has the gate *second*, and OpenAI's
# gpt-oss stores gate and up as neighbours. Exchanged halves give plausible numbers of the right size, so look it up.
#
# Rounding differs too. Llama's code in Hugging Face's library rounds `silu(gate)` to bfloat16 before it multiplies,
# because there the intermediate matrix has to be stored. Your kernel rounds once.

# %%
twice = F.silu(x16[:, :d].float()).bfloat16() * x16[:, d:]
once = silu_and_mul(x16)
exact = reference.silu_and_mul(x16.double())
for name, result in (("rounded twice", twice), ("rounded once", once)):
    error = (result.double() - exact).abs() / exact.abs().clamp(min=1e-30)
    print(f"{name}: mean relative error {error.mean():.5f}")

# %% [markdown]
# Fusing saves bytes *and* is more accurate: what is not stored need not be rounded. (In lesson 02 the *rounded* sum was
# the right one, because the next layer reads it. Nobody ever reads `silu(gate)`.)
#
# ## Rung 4: one kernel, many functions
#
# A library needs SiLU, two GELUs and ReLU, gated and alone. You do not want eight kernels. You have met the tool:
# `BLOCK` is a `tl.constexpr`, a value that is known while the kernel is *compiled*. Anything can be one, also a word.
# An `if` on it is decided by the compiler, which throws the other branches away. Call it a
# [**constexpr switch**](#Glossary).
#
# `activate` below is a [**device function**](#Glossary): a `@triton.jit` function that is called by kernels instead of
# being launched. The compiler copies it into each of them. It begins with two functions.
#
# **Predict.** What does the last call give?


# %%
@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == "silu":
        return x * tl.sigmoid(x)
    elif KIND == "relu":
        return tl.maximum(x, 0.0)
    else:
        return x


@triton.jit
def activation_kernel(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, activate(x, KIND), mask=mask)


numbers, y = torch.arange(-3.0, 4), torch.empty(7)
for kind in ("silu", "relu", "swish"):
    activation_kernel[(1,)](numbers, y, 7, kind, BLOCK=8)
    print(f"{kind:6}", [f"{v:5.2f}" for v in y.tolist()])

# %% [markdown]
# *Swish* is another name for SiLU. Here it silently means no activation at all. A model with this mistake runs, and
# writes nonsense or only slightly worse text, and nothing tells you where to search. So let the last branch refuse:


# %%
@triton.jit
def strict_activate(x, KIND: tl.constexpr):
    if KIND == "silu":
        return x * tl.sigmoid(x)
    else:
        tl.static_assert(KIND == "relu", "unknown activation")
        return tl.maximum(x, 0.0)


@triton.jit
def strict_kernel(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, strict_activate(x, KIND), mask=mask)


try:
    strict_kernel[(1,)](numbers, y, 7, "swish", BLOCK=8)
except AssertionError as error:
    print("AssertionError:", error)

# %% [markdown]
# `tl.static_assert` is checked while compiling, so it costs no instruction. (The course's functions also check the name
# in Python, before anything is launched. There the message can say which names exist.)
#
# ### What the compiler makes of the switch (optional)
#
# What does the compiler make of the switch? The course's own `activate` has all four functions; yours will be exercise
# 3.3. The first kernel below gets the kind as a constexpr, the second as a number at run time.
#
# **Predict.** How does the machine code of the second differ?


# %%
from course_kernels.activations import activate as course_activate


@triton.jit
def constexpr_kernel(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, course_activate(x, KIND), mask=mask)


@triton.jit
def run_time_kernel(x_ptr, y_ptr, n, kind, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    if kind == 0:
        y = course_activate(x, "silu")
    elif kind == 1:
        y = course_activate(x, "gelu")
    elif kind == 2:
        y = course_activate(x, "gelu_tanh")
    else:
        y = course_activate(x, "relu")
    tl.store(y_ptr + offs, y, mask=mask)


# %% tags=["nbval-ignore-output"]
data = torch.empty(4096)
print(f"{'':12}" + "".join(f"   {arch}: {'instr.':>5}  branches" for arch in ("gfx942", "gfx1100")))
reports = {kind: (constexpr_kernel, kind) for kind in ("relu", "silu", "gelu_tanh", "gelu")}
for name, (kernel, kind) in {**reports, "at run time": (run_time_kernel, 2)}.items():
    both = [amd_report(kernel, data, data, 4096, kind, BLOCK=1024, arch=arch) for arch in ("gfx942", "gfx1100")]
    print(f"{name:12}" + "".join(f"{r.instructions:15}{r.mix['branch']:10}" for r in both))
    reports[name] = both[0]
assert reports["at run time"].instructions > 350 > reports["gelu"].instructions > 1.5 * reports["silu"].instructions

# %% [markdown]
# **Look.** The run-time kernel carries all four functions, and jumps to the one that is asked for. Each constexpr
# kernel holds what it needs and nothing else. (One or two branches are in every kernel: its first jump and its end.)
#
# Two more things are in the table. The tanh form costs hardly more than SiLU. And exact GELU takes twice the
# instructions, with branches among them: `erf` has one formula for small arguments and another for large ones.
#
# The price of a constexpr is compilation: each value makes a kernel of its own. Four kinds are four kernels, compiled
# once and cached. Make the *number of columns* a constexpr, and every new width compiles again.
#
# ### Constants that are computed (optional)
#
# A constexpr may also be *computed* from the other arguments, at each launch. Triton's decorator for that is
# [**heuristics**](#Glossary). Here it decides how long a block is: the longest of four that leaves no lane idle, or 256
# if there is none.


# %%
def fitting_block(args):
    return max((b for b in (2048, 1024, 512, 256) if args["d"] % b == 0), default=256)


def launch_gated(kernel, x, y):
    rows, d = y.shape
    kernel[lambda args: (triton.cdiv(d, args["BLOCK"]), rows)](x, y, x.stride(0), y.stride(0), d)


heuristic_kernel = triton.heuristics({"BLOCK": fitting_block})(silu_and_mul_kernel)

for rows, width in ((2, 1536), (2, 2048), (2, 1500)):
    pair, out = torch.randn(rows, 2 * width), torch.empty(rows, width)
    with trace() as launch:
        launch_gated(heuristic_kernel, pair, out)
    print(f"d = {width}: BLOCK = {launch.args['BLOCK']}, right: {torch.allclose(out, reference.silu_and_mul(pair))}")

# %% [markdown]
# Note the grid: it is a function now, because it depends on a `BLOCK` that is chosen later. Triton calls it with all
# arguments, the chosen ones included.
#
# A heuristic can also leave out what a size makes needless. Where all blocks are full, no lane needs a mask:


# %%
@triton.heuristics({"WHOLE": lambda args: args["d"] % args["BLOCK"] == 0})
@triton.jit
def gated_relu_kernel(x_ptr, y_ptr, d, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None if WHOLE else cols < d
    gate = tl.load(x_ptr + row * 2 * d + cols, mask=mask)
    up = tl.load(x_ptr + row * 2 * d + d + cols, mask=mask)
    tl.store(y_ptr + row * d + cols, tl.maximum(gate, 0.0) * up, mask=mask)


for width in (1536, 1500):
    pair, out = torch.randn(2, 2 * width), torch.empty(2, width)
    with trace() as launch:
        gated_relu_kernel[(triton.cdiv(width, 512), 2)](pair, out, width, BLOCK=512)
    right = torch.equal(out, torch.relu(pair[:, :width]) * pair[:, width:])
    print(f"d = {width}: WHOLE = {launch.args['WHOLE']}, right: {right}")

# %% tags=["nbval-ignore-output"]
counts = []
for whole in (True, False):  # of 1536 columns, with the masks and without
    r = amd_report(gated_relu_kernel.fn, data, data, 1536, BLOCK=512, WHOLE=whole, arch="gfx942")
    counts.append(r.instructions)
    print(f"{'no masks' if whole else 'masks':9} {r.instructions} instructions, loads {r.loads}")
assert counts[0] < counts[1]

# %% [markdown]
# The loads are as wide either way, since 1536 is a multiple of 16 (lesson 01). What goes are the comparisons.
#
# ## Dropout, without storing the mask (optional)
#
# Training may add one more element-wise operation: [**dropout**](#Glossary) (Srivastava and others, 2014). Before a
# result is added to the [residual stream](01_vector_add.ipynb#Glossary), each of its elements is set to zero with
# probability $p$, and what remains is divided by $1 - p$. The backward pass must drop *the same* elements.
#
# PyTorch's own kernel keeps a mask for that, one byte for each element. But where do the random numbers come from?
# `tl.rand(seed, offset)` is no machine that runs on and on. It is a *function*: it scrambles the [**seed**](#Glossary)
# and the offset, and out comes a number between 0 and 1. Same seed, same offset, same number, on every machine and in
# any order. The recipe is called [**Philox**](#Glossary) (Salmon and others, *Parallel random numbers: as easy as 1, 2,
# 3*, 2011). The seed selects the sequence.
#
# So the mask need not be stored. It can be drawn again. And since $dx$ is $dy$, dropped and scaled in the same way,
# forwards and backwards can be one kernel:


# %%
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    keep = tl.rand(seed, offs) >= p
    y = tl.where(keep, x / (1 - p), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


out, residual, *_ = llm.activations("layers.0.mlp_norm")  # what attention gives, and the stream it is added to
n, p, seed = out.numel(), 0.25, 1234
y, dx, dy = torch.empty_like(out), torch.empty_like(out), torch.ones_like(out)
dropout_kernel[(triton.cdiv(n, 1024),)](out, y, n, p, seed, BLOCK=1024)  # forwards
dropout_kernel[(triton.cdiv(n, 256),)](dy, dx, n, p, seed, BLOCK=256)  # backwards
print(f"kept: {(y != 0).float().mean():.4f}  forwards and backwards the same: {torch.equal(y != 0, dx != 0)}")

# %% [markdown]
# The two launches have blocks of different length, and drop the same elements: only the offset counts.
#
# The addition to the residual stream can go into the same kernel, as in lesson 02. **Predict** the bytes for each
# element: PyTorch (dropout, then addition), and one fused kernel. Here is the course's; yours is exercise 3.5.

# %%
with eager.count() as ops:
    torch.ops.aten.native_dropout(out, p, True)[0] + residual
with trace() as launch:
    course_kernels.dropout_add(out, residual, p, seed)
print("bytes an element")
print(f"PyTorch: {ops.bytes / n:.0f}, and the mask is kept until the backward pass")
print(f"fused:   {launch.ledger().bytes / n:.0f}, and nothing is kept but the seed")

# %% [markdown]
# PyTorch's dropout reads 4, and writes 4 and a byte of mask; its addition moves 12 more. The fused kernel reads 8 and
# writes 4.
#
# Two details decide whether it is right. The first: `tl.where` *chooses*. People write `x * keep` instead, which is the
# same until an `x` is infinite; then the dropped element is `inf * 0`, NaN.
#
# The second is the counter. Suppose that each program takes one row and somebody passes the *column* to `tl.rand`, or
# the place in the block. (`#` is kept, a gap is dropped.)


# %%
@triton.jit
def keep_kernel(keep_ptr, N, p, seed, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    counter = row * N + cols if WHOLE else cols
    tl.store(keep_ptr + row * N + cols, (tl.rand(seed, counter) >= p).to(tl.int8), mask=cols < N)


for whole in (True, False):
    keep = torch.empty(4, 60, dtype=torch.int8)
    keep_kernel[(4,)](keep, 60, 0.5, 7, whole, BLOCK=64)
    print("counter: the whole index" if whole else "counter: the column")
    for line in keep.tolist():
        print("   " + "".join(" #"[k] for k in line))

# %% [markdown]
# The lower pattern has the right share of zeros, so a test of the average passes. But all tokens lose the same columns,
# which is no dropout. Much the same happens when all thirty layers get the same seed: take a new one for each call.
#
# Philox scrambles its numbers in ten rounds. Is that not expensive? Let the simulator count vector instructions:

# %% tags=["nbval-ignore-output"]
from course_kernels.dropout import dropout_add_kernel as course_dropout

flat, place = torch.randn(4096), torch.empty(4096)
per_lane = {}
one_number = (flat, place, 4096, 0.25, 7)
four_numbers = (flat, None, place, 0, 0, 4096, 4096, 0.25, 1 / 0.75, 7, True)  # no residual
for name, kernel, arguments in (("tl.rand", dropout_kernel, one_number), ("tl.rand4x", course_dropout, four_numbers)):
    counts = simulator.simulate(kernel, (4,), arguments, BLOCK=1024, arch="gfx942").by_kind
    per_lane[name] = counts["vector"] * 64 / 4096  # a wave executes an instruction for 64 lanes
    print(f"{name:9}: {per_lane[name]:.0f} vector instructions for each element")
assert per_lane["tl.rand"] > 2 * per_lane["tl.rand4x"]

# %% [markdown]
# Philox always makes four numbers at a time, and `tl.rand` throws three of them away. The course's kernel
# ([`course_kernels/dropout.py`](../course_kernels/dropout.py)) takes `tl.rand4x`, which returns all four.
#
# ## 8 bits (optional)
#
# The matrix product that follows (`down`) can be done in 8-bit floating point, [**fp8**](#Glossary): with half the
# bytes of bfloat16, and by AMD's data sheet at twice its rate. One bit is the sign, four are the exponent, three the
# binary digits after the first: *e4m3*. Which number a byte means depends on the GPU. Here are the numbers from 0 up:

# %%
draw.fp8_line(torch.float8_e4m3fn, torch.float8_e4m3fnuz)

# %% [markdown]
# Each tick is a number; between two of them there is nothing. There are two [**fp8 flavours**](#Glossary):
#
# - **e4m3fn**, the flavour of the Open Compute Project: up to 448. MI355X (gfx950), RX 9070 (gfx1201), NVIDIA
# - **e4m3fnuz**: up to 240, and no negative zero. MI300X (gfx942)
#
# (ROCm's page [*Data types and precision
# support*](https://rocm.docs.amd.com/en/latest/reference/precision-support.html) lists them for each GPU.) The same
# byte means *half* as much in the second. Nothing warns you if a file was written with one and read with the
# other:

# %%
byte = torch.tensor([0x38], dtype=torch.uint8)
print("byte 0x38:", byte.view(torch.float8_e4m3fn).item(), "or", byte.view(torch.float8_e4m3fnuz).item())
for arch in ("gfx942", "gfx950", "gfx1201"):
    print(f"{arch:8}{course_kernels.fp8_dtype(arch)}")

# %% [markdown]
# Which of them can the machine convert by itself? Ask the compiler. This kernel does nothing else:


# %% tags=["nbval-ignore-output"]
@triton.jit
def convert_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, x.to(y_ptr.dtype.element_ty), mask=mask)


count = {}
for flavour in (torch.float8_e4m3fn, torch.float8_e4m3fnuz):
    for arch in ("gfx942", "gfx950"):
        report = amd_report(convert_kernel, data, torch.empty(4096, dtype=flavour), 4096, BLOCK=1024, arch=arch)
        native = sorted({i.mnemonic for i in report.program.instructions if "fp8" in i.mnemonic})
        print(f"{str(flavour)[6:]:18}{arch:8}{report.instructions:4} instructions ", *native)
        count[flavour, arch] = report.instructions
assert count[torch.float8_e4m3fn, "gfx942"] > 4 * count[torch.float8_e4m3fnuz, "gfx942"]
assert count[torch.float8_e4m3fnuz, "gfx950"] > 4 * count[torch.float8_e4m3fn, "gfx950"]

# %% [markdown]
# **Look.** The native flavour is one instruction for two numbers. The other one is put together from bits, in some two
# hundred instructions. So ask the architecture, as `course_kernels.fp8_dtype` does.
#
# ### Scales
#
# The numbers of a model do not fit by themselves. One [**scale**](#Glossary) for each row makes them fit: the largest
# magnitude of the row becomes 448, and the reader multiplies the scale back.
#
# $$ s_r = \frac{\max_c |x_{rc}|}{448}, \qquad q_{rc} = \mathrm{round}\,\frac{x_{rc}}{s_r}, \qquad x_{rc} \approx q_{rc}
#    s_r $$
#
# That is a [reduction](02_rmsnorm.ipynb#Glossary): the row belongs to one program, as in lesson 02. `tl.max` finds the
# largest element of a block, `tl.maximum` the larger of two numbers. The idle lanes may hold 0 here: no magnitude is
# smaller.
#
# **Predict.** Row 1 below is all zeros. What are its scale and its `q`?


# %%
@triton.jit
def quant_kernel(
    x_ptr, q_ptr, scale_ptr, stride_xm, N, FLOOR: tl.constexpr, FP8_MAX: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    amax = tl.maximum(tl.max(tl.abs(x), axis=0), FLOOR)
    scale = amax / FP8_MAX
    q = tl.clamp(x / scale, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    tl.store(q_ptr + row * N + cols, q.to(q_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row, scale)


def quant(x, floor):
    q, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn), torch.empty(x.shape[0])
    block = triton.next_power_of_2(x.shape[1])
    quant_kernel[(x.shape[0],)](x, q, scale, x.stride(0), x.shape[1], floor, 448.0, BLOCK=block)
    return q, scale


rows = torch.tensor([[0.1, -2.0, 3.5, 0.7, -0.05], [0.0] * 5])
print("rows:     ", rows.tolist())
for floor in (0.0, 1e-10):
    q, scale = quant(rows, floor)
    print(f"floor {floor:g}:", (q.float() * scale[:, None]).tolist())

# %% [markdown]
# 0 / 0 is NaN, and rows of zeros occur: padding, or a token for which ReLU shut every gate. A floor for the maximum
# costs one instruction. (Without `propagate_nan`, `tl.clamp` may turn a NaN into a number. Whatever goes wrong earlier
# should stay visible.)
#
# Why clamp at all, when the largest number becomes 448 by construction? The division may round up a little, and a
# number out of range may become the largest number or NaN: the Open Compute Project's specification has a mode for
# each.

# %% [markdown] exercise_header="3.c"
# Numbers into 8 bits, in whichever flavour `dtype` is: 240 is the largest of an MI300X's, 448 of the others'. What lies
# beyond becomes the largest number of its sign. The launcher knows it; a right answer also runs as machine code on a
# simulated MI300X, whose own flavour is the first.


# %% exercise="3.c"
@triton.jit
def narrow_kernel(x_ptr, y_ptr, largest, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    ### BEGIN SOLUTION
    y = tl.minimum(tl.maximum(x, -largest), largest)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def narrow(x, dtype):
    y = torch.empty(x.shape, dtype=dtype)
    grid = (triton.cdiv(x.numel(), 256),)
    narrow_kernel[grid](x, y, torch.finfo(dtype).max, x.numel(), BLOCK=256)
    return y


# %% [markdown]
# ### Groups
#
# In lesson 02 you met [massive activations](02_rmsnorm.ipynb#Glossary) in the residual stream. The MLP has such numbers
# too. Here is what one of them does to a row with one scale:

# %% tags=["nbval-ignore-output"]
inner = course_kernels.silu_and_mul(llm.activations("layers.28.activation")[0])[:1]  # the first token
print(f"largest {inner.abs().max():,.0f}, typical {inner.abs().median():.3f}")
q, scale = course_kernels.quant_fp8_per_token(inner)
q128, scale128 = course_kernels.quant_fp8_per_group(inner, 128)
back = {"the row": q.float() * scale[:, None], "each 128": q128.float() * scale128.repeat_interleave(128, dim=1)}
off = {name: ((values - inner).abs() > inner.abs() / 16).float().mean().item() for name, values in back.items()}
for name, part in off.items():
    print(f"one scale for {name:9} {part:4.0%} of the elements are off by more than a sixteenth")
assert off["the row"] > 5 * off["each 128"]

# %% [markdown]
# A sixteenth is what rounding costs at most, as long as all three digits are there. One number of 2371 takes the range
# for itself, and what is small falls among the lowest fp8 numbers, where the digits run out. With a scale for each
# [**group**](#Glossary) of 128 neighbours the damage stays in one group of twelve. It costs one float32 for 128 bytes.
#
# And a block can be as long as a group, so a program needs no whole row. Then the quantisation fits into the kernel of
# rung 3: load gate and up, activate, multiply, find the maximum of 128, divide, convert, store. Where does the scale of
# group $g$ in row $r$ go? A grid has one program for each group of a row, and `tl.num_programs(0)` says how many those
# are.
#
# **Predict**, for bfloat16 input, the bytes for each element of the result. First for two kernels: activation, then
# quantisation. Then for one.

# %%
with trace() as launches:
    product = course_kernels.silu_and_mul(x16)
    course_kernels.quant_fp8_per_group(product)
with trace() as launch:
    course_kernels.act_mul_fp8_quant(x16, "silu")
elements = tokens * d
print("elements:   ", elements)
print(f"two kernels: {sum(each.ledger().bytes for each in launches) / elements:.2f} bytes an element")
print(f"one kernel:  {launch.ledger().bytes / elements:.2f} bytes an element")

# %% [markdown]
# 4 in and 2 out, then 2 in and 1 out, against 4 in and 1 out. (The rest are the scales, 4 bytes for 128 elements.) The
# kernel is exercise 3.6; the course's is in [`course_kernels/quant.py`](../course_kernels/quant.py).
#
# ## Autotuning: who chooses? (optional)
#
# `BLOCK` and `num_warps` change no result, only speed. Which are best? First ask what can be known without a clock:

# %% tags=["nbval-ignore-output"]
y16 = torch.empty(tokens, d, dtype=torch.bfloat16)
print("BLOCK  num_warps  loads (bits: how many)  registers  spilled")
good = []
for block in (256, 512, 1024):
    for warps in (1, 2, 4):
        r = amd_report(silu_and_mul_kernel, x16, y16, 2 * d, d, d, BLOCK=block, num_warps=warps, arch="gfx942")
        print(f"{block:5}  {warps:9}  {r.loads!s:22}  {r.vgprs:9}  {r.spills:7}")
        if max(r.loads) == 128 and not r.spills:
            good.append((block, warps))
assert (512, 1) in good and (256, 4) not in good
print("worth a measurement:", good)

# %% [markdown]
# A lane with 8 bfloat16 loads 128 bits at once, so everything with fewer is out. Among the rest a clock has to decide,
# on the GPU that will run it. [**Autotuning**](#Glossary) does that for you: `@triton.autotune` takes a list of
# configurations and measures each one, the first time that the kernel is launched with new values of its `key`.
#
# On a CPU there is nothing to measure, and the course takes the first configuration. You can give autotuning another
# measure, though: a function that gets the launch, and returns three times (the median and two quantiles). This one
# only writes down that it was asked:


# %%
def note(call, quantiles):
    call()  # Triton's own calls it again and again, with a clock
    asked.append(call)
    return [1.0, 1.0, 1.0]


configs = [triton.Config({"BLOCK": 512}, num_warps=1), triton.Config({"BLOCK": 1024}, num_warps=2)]
tuned_kernel = triton.autotune(configs, key=["d"], do_bench=note)(silu_and_mul_kernel)

asked = []
for rows, width in ((4, 1536), (9, 1536), (4, 1536), (4, 2048)):
    pair, out = torch.randn(rows, 2 * width), torch.empty(rows, width)
    before = len(asked)
    launch_gated(tuned_kernel, pair, out)
    print(f"{rows} rows of {width}: {len(asked) - before} configurations measured")

# %% [markdown]
# It measures for each new `d`, and not for another number of rows, because `key` does not name it. (The dtypes always
# belong to the key.) Three rules make autotuning worth its time:
#
# - **A short list.** Every configuration is compiled, then run for an eighth of a second (Triton's `do_bench`: 25 ms to
#   warm up, 100 ms measured), in the first launch of somebody's program. Throw out before what a report rules out.
# - **A short key.** Put the number of tokens in, and every prompt of another length starts a new measurement.
# - **Only if it matters.** The course's own activations use a rule instead
#   ([`course_kernels/launch/`](../course_kernels/launch)); you will see below how they do.
#
# ### A second trap: right the second time
#
# To save memory, somebody writes SiLU *in place*: it overwrites its input. And it is autotuned. The stand-in for the
# stopwatch below runs the kernel three times; Triton's own runs it as often as fits into its 125 ms.


# %%
def stopwatch(call, quantiles):
    for _ in range(3):
        call()
    return [1.0, 1.0, 1.0]


@triton.jit
def silu_in_place_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(x_ptr + offs, x * tl.sigmoid(x), mask=mask)


def blocks(args):
    return (triton.cdiv(args["n"], args["BLOCK"]),)


sizes = [triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})]
in_place = triton.autotune(sizes, key=["n"], do_bench=stopwatch)(silu_in_place_kernel)

numbers = torch.tensor([-2.0, -1, 0, 1, 2, 3])
print("expected:   ", [f"{v:.2f}" for v in F.silu(numbers).tolist()])
for attempt in ("first call: ", "second call:"):
    y = numbers.clone()
    in_place[blocks](y, y.numel())
    print(attempt, [f"{v:.2f}" for v in y.tolist()])

# %% [markdown]
# The first call is wrong, every further call is right. A test that warms up first never sees it, nor do you when you
# run a cell twice. Only the first call of every new process, for each new length, gets a wrong answer.
#
# **Before you read on: why?** Here is a hint. How often is the kernel run in the first call? And what does it find in
# memory each time?

# %%
y = numbers.clone()
for _ in range(2 * 3 + 1):  # two configurations, three runs each, and then the real one
    y = F.silu(y)
print("silu, seven times:", [f"{v:.2f}" for v in y.tolist()])

# %% [markdown]
# The measurements are *real runs on your data*. A kernel that reads what it wrote before must not be run twice. That
# holds for everything in place, and for every kernel that adds to what it finds. Triton's tracker has had it since 2022
# ([#781](https://github.com/triton-lang/triton/issues/781),
# [#6547](https://github.com/triton-lang/triton/issues/6547)), and the Triton version of an optimiser was published with
# it ([lion-pytorch#36](https://github.com/lucidrains/lion-pytorch/pull/36)).
#
# The cure is one argument: name the tensors that must be put back after each measured run.

# %%
safe = triton.autotune(sizes, key=["n"], do_bench=stopwatch, restore_value=["x_ptr"])(silu_in_place_kernel)
y = numbers.clone()
safe[blocks](y, y.numel())
print("first call: ", [f"{v:.2f}" for v in y.tolist()])

# %% [markdown]
# For sums that start from zero there is `reset_to_zero=[...]`. Better still, do not tune what works in place: tune a
# version that writes elsewhere, and use its numbers.
#
# ## On real hardware (optional)
#
# In lessons 01 and 02 arithmetic was free. Is it still? Let the simulator count the instructions of SwiGLU in bfloat16:

# %% tags=["nbval-ignore-output"]
eight = x16[:8].contiguous()
executed = simulator.simulate(
    silu_and_mul_kernel, (3, 8), (eight, y16[:8], 2 * d, d, d), BLOCK=512, num_warps=1, arch="gfx942"
)
each = 64 / (8 * d)  # a wave executes an instruction for 64 lanes; y has 8 * d elements
ordinary, slow = (executed.by_kind[kind] * each for kind in ("vector", "transcendental"))
assert slow == 2 and 15 < ordinary < 40 and executed.loads.coalescing == 1 and not executed.wrong
print(f"for each element: {ordinary:.0f} ordinary vector instructions, {slow:.0f} transcendental ones")

# %% [markdown]
# The peak of an MI300X in float32, 163.4 TFLOP/s, counts four operations for an instruction of one lane: a packed
# multiply and add, on two numbers. So its lanes execute about 41 · 10¹² instructions a second. Count a transcendental
# one four times, and compare with what the memory delivers. This is an estimate from the data sheet, no measurement:

# %% tags=["nbval-ignore-output"]
card = hardware.card("MI300X")
by_lanes = card.fp32 / 4 / (ordinary + 4 * slow)
by_memory = card.bandwidth / 6  # two bfloat16 in, one out
print(f"lanes can do   {by_lanes / 1e12:.2f} · 10¹² elements a second")
print(f"memory can do  {by_memory / 1e12:.2f} · 10¹² elements a second")
assert 0.8 < by_lanes / by_memory < 2.5

# %% [markdown]
# **Look.** By this estimate memory is still what limits, but no longer by far. The lanes are busy most of the time;
# twice as many instructions, and the kernel would be slower. That is why it matters how you write an exponential, and
# why dropout with one Philox for each element would be a bad idea. (A good part of the instructions here is the exact
# division. Where the last bit does not matter, a bare `v_rcp_f32` would do.)
#
# The bound, for a prompt of 2048 tokens:

# %% tags=["nbval-ignore-output"]
outputs = 2048 * d
operations = 4 * (ordinary + 4 * slow)  # as the data sheet counts them
bound = hardware.lower_bound(bytes=6 * outputs, flops=operations * outputs, gpu="MI300X")
assert bound.roof == "memory"
print(bound)

# %% [markdown]
# Hugging Face and AMD published figures of a kernel like that of exercise 3.6, SwiGLU and fp8 in one, on an MI300X: for
# 2048 rows 19.9 µs, where the one of vLLM, a library that serves models, took 25.4 µs and plain PyTorch 243 µs
# ([*Creating custom kernels for the AMD MI300*](https://huggingface.co/blog/mi300kernels), 2025).
#
# The course itself has measured on an NVIDIA H200, which is another machine, but has the same bytes to move. *Eager* is
# the formula in float32, operation by operation; *copy* moves as many bytes and computes nothing:

# %% tags=["nbval-ignore-output"]
table = bench.stored("silu_and_mul", "64 x 4096", "4096 x 4096", "16384 x 4096")
mine, theirs, copied = (table.find(name, "16384 x 4096").seconds for name in ("ours", "eager", "copy"))
assert theirs > 5 * mine and mine < 1.1 * copied
table

# %% [markdown]
# **Look.** For large tensors the fused kernel takes as long as a copy of the same bytes, and eager PyTorch nine times
# as long. So on this machine, with its own arithmetic, the exponential hides completely behind the memory, and a rule
# for `BLOCK` was enough. Note also `torch.compile`. It writes a Triton kernel like yours, and a plain chain of
# element-wise operations you may leave to it. You write kernels for what it does not find.
#
# If you have a GPU, measure yours:

# %% tags=["nbval-ignore-output"]
if bench.available():
    big = torch.randn(16384, 2 * 4096, device=engines.device(), dtype=torch.bfloat16)
    moved = big.nbytes * 3 // 2
    print(bench.time(lambda: course_kernels.silu_and_mul(big), name="course", bytes=moved))
    print(bench.time(lambda: F.silu(big[:, :4096]) * big[:, 4096:], name="PyTorch", bytes=moved))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Swap it in
#
# Replace all thirty activations of the model by your kernel of rung 3, or by your answer to exercise 3.2 once it has
# passed:

# %%
prompt = "One, two, three,"
ids = llm.tokenizer.encode(prompt)
pytorch = llm.generate(ids, max_new_tokens=3, progress=False)
swiglu = my_kernel("3.2", silu_and_mul)
with llm.using(silu_and_mul=swiglu):
    fused_tokens = llm.generate(ids, max_new_tokens=3, progress=False)
print(prompt + fused_tokens.text)
print("same tokens:", fused_tokens.tokens == pytorch.tokens)

# %% [markdown]
# And what would a wrong name have done? Give the model ReLU instead, and see how it talks:

# %% tags=["nbval-ignore-output"]
with llm.using(silu_and_mul=lambda x: course_kernels.act_and_mul(x, "relu")):
    wrong = llm.generate(ids, max_new_tokens=12, progress=False)
assert wrong.tokens[:12] != llm.generate(ids, max_new_tokens=12, progress=False).tokens
print(prompt + wrong.text)

# %% [markdown]
# ### And backwards? (optional)
#
# The gradient needs $f'$ of the gate and both halves, so `x` is kept. $f(gate)$ is not: the backward kernel computes it
# again, because an exponential is cheaper than a matrix in memory. It is the same bargain as with the mask of dropout.
# The kernels are in [`course_kernels/activations.py`](../course_kernels/activations.py), and you can read them now.
#
# ## What to read next
#
# - The exercises: [`exercises/03_fused_activations.ipynb`](../exercises/03_fused_activations.ipynb). SiLU (3.1), SwiGLU
#   (3.2), four activations in one kernel (3.3), a quantiser to repair (3.4), dropout in both directions (3.5), and
#   SwiGLU with 8-bit groups (3.6).
# - The library's versions: `activations.py`, `dropout.py` and `quant.py` in [`course_kernels`](../course_kernels).
# - [04 RoPE in every layout](04_rope.ipynb): what happens to queries and keys before attention.
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | $x / (1 + e^{-x})$ | `x / (1 + tl.exp(-x))`, or `x * tl.sigmoid(x)` |
# | $\frac{x}{2}(1 + \mathrm{erf}(x/\sqrt 2))$ | `0.5 * x * (1 + tl.erf(x * 0.7071067811865476))` |
# | $\frac{x}{2}(1 + \tanh u)$ | `x * tl.sigmoid(2 * u)` |
# | gate and up of row $r$ | `x_ptr + row * stride + cols`, and the same `+ d`; mask `cols < d` |
# | one of several functions | `KIND: tl.constexpr`, `if KIND == "silu": ...`, at last `tl.static_assert` |
# | a block that depends on the arguments | `@triton.heuristics({"BLOCK": lambda args: ...})` |
# | element $i$ is kept with probability $1 - p$ | `tl.rand(seed, i) >= p`, the same line backwards |
# | dropped or scaled up | `tl.where(keep, x / (1 - p), 0.0)` |
# | groups of a row, when each has a program | `tl.num_programs(0)` |
# | $s = \max \lvert x \rvert / M$ | `tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10) / FP8_MAX` |
# | $q = \mathrm{round}(x / s)$ | `tl.clamp(x / scale, -FP8_MAX, FP8_MAX).to(q_ptr.dtype.element_ty)` |
# | the fastest of several launches | `@triton.autotune(configs, key=[...], restore_value=[...])` |
#
# ### Glossary
#
# - **gated activation**, **gate**: half of a row, the gate, goes through a curve and scales the other half
# - **SwiGLU**: a gated activation with SiLU; with GELU it is called GeGLU
# - **transcendental instruction**: exponential, logarithm, reciprocal, root or sine in hardware; slower than others
# - **constexpr switch**: an `if` on a value that is known while compiling; only one branch remains
# - **device function**: a `@triton.jit` function that kernels call
# - **heuristics**: constexprs that are computed from the other arguments at each launch
# - **dropout**: setting random elements to zero during training, and scaling up the rest
# - **Philox**, **seed**: a function from seed and counter to random numbers; the number that selects their sequence
# - **fp8**, **fp8 flavours**: 8-bit floating point; e4m3fn (up to 448) and e4m3fnuz (up to 240, MI300X), two readings
#   of the same 8 bits
# - **scale**, **group**: the number by which 8-bit values are multiplied to give the real ones; the neighbours that
#   share one
# - **autotuning**: measuring several configurations at the first launch, and keeping the fastest
