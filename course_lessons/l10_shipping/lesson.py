# %% [markdown]
# # 10 Shipping a kernel
#
# Your kernel works in your notebook. A maintainer will ask: for which shapes? What are its gradients? Does
# `torch.compile` keep it? How do you know that it is right, and fast, and on what? This lesson answers these questions
# for one kernel of yours.
#
# You need lessons 01 and 02, and an answer of your own that you like. It takes about 40 minutes, without the exercises.
# This lesson lies behind the short path: nothing that the course computes needs it, and everything that you publish
# does.
#
# **In doing so, you will learn**
#
# - to say what a kernel takes, and to refuse the rest before it runs
# - to give it gradients, an operator and a layer, so that PyTorch's tools work with it
# - to write tests that can fail, and to see them fail
# - to time it without fooling yourself, and which counters to read on an AMD card
# - what the options of Triton's AMD backend do to the machine code

# %% tags=["nbval-ignore-output"]
import copy
import warnings

import torch
import triton
import triton.language as tl

import course_kernels
import course_lab
from course_kernels import modules, reference
from course_lab import bench, my_kernel
from gfxlab import amd_report, simulator, trace
from gfxlab.counters import of_run

generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Which kernel?
#
# The exercises ship a kernel that you pick: your RMSNorm (2.2), gated activation (3.2), softmax (6.1) or sum (1.2). The
# text below ships the norm. `my_kernel` gives your last right answer, or the course's solution until you have one:

# %%
kernel = my_kernel("2.2")
x, weight = torch.randn(4, 6, generator=generator), torch.ones(6)
print("same as PyTorch:", torch.allclose(kernel(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5), atol=1e-5))

# %% [markdown]
# ## The wrapper as a contract
#
# Now call it as somebody does who has not read it. A slice of every second column, the weights of a smaller model:

# %%
for name, args in (("every second column", (x[:, ::2], weight[:3])), ("a weight too short", (x, weight[:5]))):
    try:
        kernel(*args, 1e-5)
    except Exception as error:
        print(f"{name:20} {type(error).__name__}")

# %% [markdown]
# Both were stopped by this course's guard, and by nothing of yours. On a GPU there is no guard. The kernel adds `cols`
# to the beginning of a row, as if columns lay side by side: there the first call gives the norm of other elements, and
# says nothing. The second reads what lies behind the weights.
#
# So a kernel that others call stands behind a function that is a [**contract**](#Glossary). It says what it takes, and
# keeps its word for all of that; what it does not take, it refuses:
#
# - **before the launch**, since afterwards memory may be overwritten already
# - **by name**: `weight must have shape (576,), got (575,)` saves the reader a debugger
# - with a `ValueError` or a `TypeError`; an `assert` disappears under `python -O`
# - **never by a copy**. `x.reshape(-1, N)` returns a view where it can, and a copy where it cannot:

# %%
y = torch.randn(3, 4, 6, generator=generator)
for name, tensor in (("as it is", y), ("batch and sequence exchanged", y.transpose(0, 1))):
    rows = tensor.reshape(-1, 6)
    print(f"{name:28}  copied: {rows.data_ptr() != tensor.data_ptr()}")

# %% [markdown]
# The second line moves every byte twice more than your kernel does, and no profile blames it on you. Where the tensor
# is *written* (a cache, an `out=`), such a copy is worse than slow: the results go into the copy. `view` raises
# instead.
#
# Two cases are always forgotten. An **empty tensor** is no mistake: the last batch of a data set may have no rows, and
# a mixture of experts sends some expert no token. It gives an empty tensor, and no launch. And another **device**: a
# weight that was left on the CPU gives a pointer that means nothing on the GPU.
#
# ## Gradients
#
# `torch.autograd.Function` pairs a forward with a backward function. Here is the one of RMSNorm, with $\hat x = x \cdot
# rstd$ and $g = dy \cdot w$ (derived in lesson 02):


# %%
class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, rstd)
        return x * rstd * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        x_hat, g = x * rstd, dy * weight
        dx = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
        return dx, (dy * x_hat).sum(0), None


# %% [markdown]
# Is it right? [**gradcheck**](#Glossary) compares each derivative with a finite difference: it moves one element by
# $10^{-6}$ and looks how far the result moves.
#
# **Predict.** The formulas are right. What will gradcheck say of them in float32?

# %%
for dtype in (torch.float32, torch.float64):
    leaves = (x.to(dtype).requires_grad_(), (weight + 0.1 * x[0]).detach().to(dtype).requires_grad_(), 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of float32, which PyTorch itself advises against
        told = torch.autograd.gradcheck(Norm.apply, leaves, raise_exception=False)
    print(f"{str(dtype):14}  gradcheck: {told}")

# %% [markdown] tags=["nbval-ignore-output"]
# In float32 a number near 1 is known to $6 \cdot 10^{-8}$. Divide an error of that size by $2 \cdot 10^{-6}$, and three
# per cent of the slope are noise. In float64 the noise is $10^{-10}$, and what is left is the formula.
#
# Your kernel computes in float32, whatever it is given, so gradcheck cannot judge it. Do as this lesson does: check the
# *formula* in float64, and compare the kernel's gradients with the formula's, within what float32 loses.
#
# ### Keep or compute again?
#
# The backward pass needs `rstd`. The forward pass had it in a register. Keeping it costs four bytes a row;
# [**recomputation**](#Glossary) costs another reduction over a row that is loaded anyway.

# %% [markdown] exercise_header="10.a"
# Let the forward pass keep it. One program has one row, rows of `x` lie `stride_xm` apart; `y` is contiguous, and
# `rstd_ptr` has room for one float32 a row.


# %% exercise="10.a"
@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, rstd_ptr, stride_xm, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(total / N + eps)
    ### BEGIN SOLUTION
    tl.store(y_ptr + row * N + cols, x * rstd * w, mask=mask)
    tl.store(rstd_ptr + row, rstd)
    ### END SOLUTION


def norm_and_rstd(x, weight, eps):
    (M, N), y, rstd = x.shape, torch.empty(x.shape), torch.empty(x.shape[0])
    norm_kernel[(M,)](x, weight, y, rstd, x.stride(0), N, eps, BLOCK=triton.next_power_of_2(N))
    return y, rstd


# %% [markdown]
# The library's LayerNorm does it both ways: with `return_statistics=True` the forward pass stores mean and `rstd`, and
# the backward pass reads them; without, it computes them from the row. Count the bytes of both, forward and backward,
# for short rows and for rows that are too long for registers.
#
# **Predict** which way moves fewer bytes, at 576 columns and at 65 536, and by how much.


# %%
def bytes_moved(rows, cols, keep):
    x, weight, bias = (torch.randn(s, generator=generator).requires_grad_() for s in ((rows, cols), cols, cols))
    with trace() as launches:
        y = course_kernels.layer_norm(x, weight, bias, return_statistics=keep)
        (y[0] if keep else y).backward(torch.ones(rows, cols))
    return sum(launch.ledger().bytes for launch in launches), 8 * rows


for rows, cols in ((16, 576), (2, 65536)):
    (kept, held), (again, _) = bytes_moved(rows, cols, True), bytes_moved(rows, cols, False)
    assert 0 < kept - again < 0.001 * again
    print(f"{rows:2} rows of {cols:6,}: {again:9,} bytes; kept: {kept - again:3} more, and {held:3} held in between")

# %% [markdown]
# Keeping moves *more*, a little: each of the two numbers a row is written once and read at least once, 16 bytes a row.
# Four come back, since the backward pass no longer loads the row's first element, which it would subtract before it
# sums. It saves no trip. The backward pass needs $\mathrm{mean}(g)$ and $\mathrm{mean}(g \hat x)$, so it loads the
# whole row before it can write any of `dx`, and the statistics come out of the same load. What is saved is arithmetic,
# one reduction or two, which at these sizes is free. So this library computes them again, and offers to keep them where
# somebody else wants mean and `rstd`. PyTorch keeps them: its `native_layer_norm` returns three tensors. The answer is
# not the same for every kernel. Attention keeps one number a row too, its LSE, since a second walk over all keys is not
# free at all (lesson 06).
#
# What is never worth it here is keeping $\hat x$: a whole matrix, written and read, for one multiplication.
#
# ## An operator, so that the compiler keeps it
#
# `torch.compile` traces your Python and turns it into a graph. What it cannot trace ends the graph:
# a [**graph break**](#Glossary). Before and after it nothing can be fused, and each call goes back to Python. A launch
# becomes one node when it is an [**operator**](#Glossary): a function with a schema, and a
# [**fake implementation**](#Glossary) that says what comes back without computing it.


# %%
@torch.library.custom_op("lesson_10::norm", mutates_args=())
def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return kernel(x, weight, eps)


@norm.register_fake
def _(x, weight, eps):
    return x.new_empty(x.shape)


graphs = []


def keep_graph(graph, inputs):
    graphs.append(graph)
    return graph


def block(x, weight):
    return torch.relu(norm(2 * x, weight, 1e-5)) + x


# %%
compiled = torch.compile(block, backend=keep_graph, fullgraph=True)
assert torch.equal(compiled(x, weight), block(x, weight))
for node in graphs[0].graph.nodes:
    if node.op == "call_function":
        print(getattr(node.target, "__name__", node.target))

# %% [markdown]
# Four nodes, one of them yours. `torch.library.opcheck(norm, (x, weight, 1e-5))` examines the promise: that nothing is
# written which the schema does not name, that the fake result has the real one's shape, dtype and strides, that
# gradients are registered where they are needed. Exercise 10.3 asks for it.
#
# `custom_op` is a closed box. Its sister `torch.library.triton_op` shows the compiler the launch inside, so that it can
# be compiled ahead of time and fused around:
#
# ```
# @torch.library.triton_op("lesson_10::norm", mutates_args=())
# def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
#     y = torch.empty_like(x)
#     torch.library.wrap_triton(norm_kernel)[(x.shape[0],)](x, weight, y, ...)
#     return y
# ```
#
# It needs no fake implementation, since the compiler traces the function itself ([PyTorch's
# page](https://docs.pytorch.org/tutorials/recipes/torch_compile_user_defined_triton_kernel_tutorial.html)). On CPU
# tensors there is nothing that it could compile, so this course's kernels are closed boxes
# ([`_torch_op.py`](../course_kernels/_torch_op.py)).
#
# ## A layer with a checkpoint's names
#
# A [**state dict**](#Glossary) maps names to tensors: `model.layers.0.mlp.gate_proj.weight`. The names are the paths of
# attributes in the tree of modules. So a layer takes another's place if its parameters have the same names and meaning.
# Here is a Llama of `transformers` with random weights. Its layers give way to the library's
# ([`modules.py`](../course_kernels/modules.py)), one kind after the other:

# %% tags=["nbval-ignore-output"]
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_hidden_layers": 2}
llama = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=61, max_position_embeddings=32)).eval()
ours = {
    "LlamaRMSNorm": lambda layer: modules.RMSNorm(layer.weight.shape, layer.variance_epsilon),
    "LlamaMLP": lambda layer: modules.SwiGLU(layer.hidden_size, layer.intermediate_size),
    "LlamaRotaryEmbedding": lambda layer: modules.RotaryEmbedding.from_config(llama.config),
}
print(sum(p.numel() for p in llama.parameters()), "parameters,", len(llama.state_dict()), "names")


# %% tags=["nbval-ignore-output"]
def swap(model, theirs, make):
    """Replace each layer of the class `theirs`, weights and all; how many there were."""
    found = [(path, layer) for path, layer in model.named_modules() if type(layer).__name__ == theirs]
    for path, layer in found:
        mine = make(layer)
        mine.load_state_dict(layer.state_dict())
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, mine)
    return len(found)


swapped, tokens = copy.deepcopy(llama), torch.arange(14).view(2, 7) * 4
with torch.no_grad():
    expected = llama(tokens).logits
    for theirs, make in ours.items():
        count = swap(swapped, theirs, make)
        off = (swapped(tokens).logits - expected).abs().max() / expected.abs().max()
        same = swapped.state_dict().keys() == llama.state_dict().keys()
        assert off < 1e-5
        print(f"{theirs:22} {count} replaced, logits off by {off:.1e} of the largest, same names: {same}")

# %% [markdown]
# One kind at a time: when the logits move, you know which layer to look at. The library's layers load a copy of the
# weights, as `from_pretrained` does. A layer that goes into a model *in training* hands the parameter itself over, or
# the optimiser goes on training tensors that no longer belong to anything (exercise 10.4).
#
# The logits speak for the forward pass alone. Do the same gradients arrive, and does the compiler keep the whole model
# in one graph? The library's `SwiGLU` holds the matrices of gate and factor as one, and cuts it in two where the state
# dict is read:


# %% tags=["nbval-ignore-output"]
def gradients(model):
    logits = model(tokens).logits[:, :-1].flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


theirs, mine = gradients(llama), gradients(swapped)
for name in [name for name in mine if "gate_up" in name]:
    mine[name.replace("gate_up", "gate")], mine[name.replace("gate_up", "up")] = mine.pop(name).chunk(2)
off = max((mine[name] - gradient).abs().max() / gradient.abs().max() for name, gradient in theirs.items())
assert mine.keys() == theirs.keys() and off < 1e-5
print(f"gradients of {len(theirs)} parameters, off by {off:.1e} of their largest element at most")

graphs.clear()
with torch.no_grad():
    off = (torch.compile(swapped, backend=keep_graph)(tokens).logits - expected).abs().max() / expected.abs().max()
nodes = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
kernels = sum("course_kernels" in name for name in nodes)
assert len(graphs) == 1 and kernels == 7 and off < 1e-5
print(f"compiled: {len(graphs)} graph of {len(nodes)} calls, {kernels} of them kernels; logits off by {off:.1e}")

# %% [markdown]
# Both differ by some units of the last place of float32, 6e-8: sums in another order. Seven kernels, five norms and two
# gates; the third class that was replaced, `RotaryEmbedding`, only prepares tables.
#
# ## Which implementation runs
#
# Others depend on your function now, also on machines where no kernel can run. Each function of `course_kernels` has
# two implementations: the Triton kernel, and the formula in PyTorch (`reference.py`). The [**backend**](#Glossary)
# decides:
#
# | backend | a call takes |
# |---|---|
# | `auto` | the kernel where one can run: on a GPU, or on the CPU while the interpreter is on; else the formula |
# | `triton` | the kernel, or an error that says why none can run |
# | `torch` | the formula, always |
#
# `auto` is the default. So code that uses `course_kernels` also runs on a laptop without Triton, only slower: that is
# the *eager fallback*. And when a result looks wrong, `torch` is the quickest way to find out whether a kernel is to
# blame.

# %%
gated = torch.randn(4, 3072, generator=generator)
for backend in ("auto", "triton", "torch"):
    with course_kernels.use_backend(backend), trace() as launches:
        course_kernels.silu_and_mul(gated)
        taken = course_kernels.current_backend()
    print(f"{backend:7} takes {taken:7} launches: {len(launches)}")

# %% [markdown]
# `use_backend` holds for its block, `set_backend("torch")` for all that follows. From outside, without touching the
# code, it is a variable, read when the package is imported and checked against the three words:
#
# ```
# COURSE_KERNELS_BACKEND=torch python my_script.py
# ```
#
# ## Tests that can fail
#
# Here is a test as many kernels are shipped with, and three kernels with a mistake each.


# %%
def weak_test(implementation):
    x = torch.randn(8, 512, generator=torch.Generator().manual_seed(0))
    got = implementation(x, torch.ones(512), 1e-6)
    torch.testing.assert_close(got, reference.rms_norm(x, torch.ones(512), 1e-6), atol=1e-2, rtol=1e-2)


def formula(x, weight, eps, *, divisor=None, inside=True, weigh=True):
    mean_square = x.square().sum(-1, keepdim=True) / (divisor or x.shape[-1])
    root = (mean_square + eps).sqrt() if inside else mean_square.sqrt() + eps
    return x / root * (weight if weigh else 1)


mistakes = {
    "divides by the next power of two": {"divisor": 512},
    "eps outside the root": {"inside": False},
    "no weight": {"weigh": False},
}
for name, mistake in mistakes.items():
    weak_test(lambda *args, mistake=mistake: formula(*args, **mistake))
    print(f"passes: {name}")

# %% [markdown]
# 512 columns, weights of one, values near one, a hundredth of tolerance: the test agrees with everything. What makes a
# test of numbers able to fail:
#
# 1. **A reference in float64**, written as the formula stands on paper. A reference in the kernel's own precision, or
#    made by another kernel, shares its errors.
# 2. **A tolerance with a reason.** Rounding errors of either sign add up like a random walk: the error of a sum of $N$
#    terms grows with $\sqrt N$ (Higham, *Accuracy and Stability of Numerical Algorithms*, 2.2 and 4.2).
# 3. **Odd sizes**: 1, a power of two, one more than that, the model's own 576, longer than a block.
# 4. **Adversarial inputs**: a mean far from zero, values near `eps`, large values in float16, rows that lie apart, a
#    row of zeros; for a maximum all elements negative.
# 5. **Contracts**: the result's shape and dtype, arguments unchanged, each refusal.
#
# How large is the error of an honest sum in float32? Measure it before you write a number down:

# %%
print(" terms   largest relative error, in units of 2**-24    root of the length")
for n in (64, 1024, 16384):
    rows = torch.rand(64, n, generator=generator)
    total = torch.zeros(64)
    for column in rows.T:  # one after the other, as a loop does
        total = total + column
    error = ((total.double() - rows.double().sum(1)) / rows.double().sum(1)).abs().max() * 2**24
    assert error < 2 * n**0.5
    print(f"{n:6} {error:12.1f} {n**0.5:44.0f}")

# %% [markdown]
# The error stays below the root of the length, so a few times `2**-24 * sqrt(N)` is a tolerance that no right kernel
# exceeds and that hardly any wrong one meets.
#
# [Hypothesis](https://hypothesis.readthedocs.io) looks for sizes that you did not think of, and shrinks what it finds
# to the smallest failing case: `@given(n=st.integers(1, 2000))` above a test is often worth ten cases by hand.
#
# And how good are the tests? [Mutation testing](08_clinic.ipynb#Glossary) answers: break your kernel on purpose, in one
# place, and
# run the tests. A mutant that survives is a test that is missing. The graders of this course are proven in that way. In
# exercise 10.5 it is *your* tests that are graded: a dozen wrong kernels run against them, and mutants that you write.
#
# ## Honest benchmarks
#
# `triton.testing.do_bench(fn)` does what one forgets: it warms up, writes over the cache before each run, times with
# the GPU's own events, and repeats for a while. `quantiles=[0.5, 0.2, 0.8]` returns the median and the spread; its
# default is the mean. `do_bench_cudagraph` captures the calls into a graph first, and so leaves the host's launches
# out, which matters below some ten microseconds: a model that runs under captured graphs does not pay them, an eager
# one does. ([Triton's page](https://triton-lang.org/main/python-api/triton.testing.html))
#
# A table over sizes, and its plot, come from a decorator:
#
# ```
# @triton.testing.perf_report(triton.testing.Benchmark(
#     x_names=["N"], x_vals=[2**i for i in range(10, 17)],
#     line_arg="provider", line_vals=["ours", "torch", "copy"],
#     line_names=["ours", "F.rms_norm", "copy"],
#     ylabel="GB/s", plot_name="rms_norm", args={"M": 4096}))
# def rates(M, N, provider):
#     ...
#     ms = triton.testing.do_bench(fn, quantiles=[0.5])
#     return 2 * x.nbytes / ms * 1e-6
# ```
#
# Five rules that no tool keeps for you:
#
# - **Say what is warm.** A cold cache is what a model's next layer meets; a warm one flatters small tensors.
# - **A yardstick beside each figure.** For a kernel bound by memory that is a copy of as many bytes, measured on the
#   same card; a data sheet's bandwidth is reached by nobody.
# - **A fair rival**: the best that a user would otherwise run (`F.rms_norm`, `torch.compile`), in the same dtype,
#   warmed up as long, its compilation left out as yours is. Eager PyTorch alone is no rival.
# - **Many sizes**, small and odd ones too; report where you lose.
# - **The machine**: card, clocks, versions, date, beside the figures.
#
# This is how the library reports. The machine's name is stored with the figures:

# %% tags=["nbval-ignore-output"]
table = bench.stored("rms_norm", "1 x 576", "64 x 4096", "16384 x 4096")
assert table.find("copy", "16384 x 4096").seconds > 0
table

# %% [markdown]
# Where there is a GPU, time yours as the library does; without one nothing is timed, since the interpreter's seconds
# say nothing about a GPU:

# %% tags=["nbval-ignore-output"]
if bench.available():
    big, big_w = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16), torch.ones(4096, device="cuda")
    print(bench.time(lambda: kernel(big, big_w, 1e-6), name="yours", bytes=2 * big.nbytes))
    print(bench.time(lambda: big.clone(), name="copy", bytes=2 * big.nbytes))
else:
    print("No GPU here, so nothing is timed.")

# %% [markdown]
# ## Profiling on hardware
#
# **Not run here.** This section needs an AMD card; the commands are those of the documentation that is linked. If you
# own one, [`course report`](../README.md#what-has-run-and-what-has-not) writes down what the course does on it, and
# these outputs belong beside it.
#
# ```
# # How long does each kernel take?
# rocprofv3 --kernel-trace --output-format csv -- python script.py
# # May these counters be taken together? What did the kernels do?
# rocprofv3-avail pmc-check SQ_WAVES SQ_INSTS_VALU
# rocprofv3 --pmc SQ_WAVES,SQ_INSTS_VALU --output-format csv -- python script.py
# # The whole picture of each kernel
# rocprof-compute profile -n norm -- python script.py
# rocprof-compute analyze -p workloads/norm/MI300X
# # Which part of the program?
# proton -n norm script.py
# proton-viewer -m time/ms norm.hatchet
# ```
#
# The first writes a CSV with a line for each dispatch: the kernel's name, its grid, when it began and ended, in
# nanoseconds. With `--pmc` there is a line for each dispatch and counter: name and value. `rocprof-compute` runs the
# program several times, since a card has fewer counters than there are questions, and prints tables: occupancy, caches,
# LDS, a roofline. Proton, which is part of Triton, prints a tree of scopes and kernels with their times.
#
# Sources: AMD's [rocprofv3 quick
# reference](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/quick_guide.html) and [ROCm Compute
# Profiler](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/how-to/profile/mode.html); [Proton's
# README](https://github.com/triton-lang/triton/tree/main/third_party/proton) in Triton.
#
# A [**hardware counter**](#Glossary) counts what a unit did: `SQ_WAVES` the waves that were started, `SQ_INSTS_VALU`
# their vector instructions, `SQ_INSTS_LDS` those on LDS. Such counts do not depend on clocks, so the simulator has them
# too, under the same names: `gfxlab counters script.py --arch gfx942` prints those of any script's kernels, and
# `--explain` what AMD's documentation says of each, and where the simulator's may be another number. Here are some of
# your kernel's:


# %% tags=["nbval-ignore-output"]
@triton.jit
def shipped_kernel(x_ptr, w_ptr, y_ptr, stride_xm, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / N + eps) * w
    tl.store(y_ptr + row * N + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


rows, row_weight = torch.randn(8, 576, generator=generator), torch.ones(576)
out = torch.empty_like(rows)
run = simulator.simulate(shipped_kernel, (8,), (rows, row_weight, out, 576, 576, 1e-5), arch="gfx942", BLOCK=1024)
counts = of_run(run)
for name in ("SQ_WAVES", "SQ_INSTS", "SQ_INSTS_VALU", "SQ_INSTS_VMEM_RD", "SQ_INSTS_LDS", "SQ_LDS_BANK_CONFLICT"):
    print(f"{name:22}{counts[name]:6}")
assert counts["SQ_WAVES"] == 8 * 4 and counts["SQ_INSTS_VALU"] > 0

# %% [markdown]
# What a counter cannot say here is *when*: the simulator has no clock. Which counters say what of time is the business
# of a card: `SQ_BUSY_CYCLES`, `SQ_WAIT_INST_ANY`, the hit rates of the caches (`TCC_HIT`, `TCC_MISS`).
#
# ## Tuning for AMD
#
# Triton's AMD backend takes options that NVIDIA's does not know. An option that is misspelt is ignored without a word,
# so look whether the machine code changed. Here is a matrix product of lesson 05's kind, compiled for an MI300X:


# %% tags=["nbval-ignore-output"]
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :])
        b = tl.load(b_ptr + (k + offs_k)[:, None] * stride_bk + offs_n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :], acc.to(c_ptr.dtype.element_ty))


def tile(arch="gfx942", **options):
    a = torch.empty(1024, 1024, dtype=torch.bfloat16)
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64} | options
    return amd_report(matmul_kernel, a, a, a, 1024, 1024, 1024, 1024, arch=arch, **sizes)


def told(name, report):
    code = report.program.instructions
    kinds = sorted({one.mnemonic for one in code if one.kind == "matrix"})
    waves = f"{report.occupancy.waves:g} waves a SIMD"
    print(f"{name:26} {report.vgprs:3} registers, {report.spills:2} spilled, LDS {report.lds:6,}, {waves}, {kinds}")


told("as it is", tile())
tried = ("waves_per_eu", 2), ("waves_per_eu", 4), ("matrix_instr_nonkdim", 16), ("num_stages", 1), ("num_stages", 3)
for option, value in tried:
    told(f"{option}={value}", tile(**{option: value}))

# %% [markdown]
# **Look** at each line beside the first:
#
# - `waves_per_eu=n` tells the compiler how many waves a SIMD should hold. It can only do so by using fewer registers,
#   so it helps a kernel that stands just above a step of the occupancy table, and makes any other spill. Asked for
#   four, this one spilled, and still has two: the LDS does not hold the tiles of more than two programs.
# - `matrix_instr_nonkdim=16` takes the 16 × 16 matrix instruction in place of the 32 × 32 one. AMD's [workload
#   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html) says that 16 is
#   usually faster for matrix products on MI300X.
# - `num_stages` sets how many tiles are under way (lesson 05). The guide's rule: 2 for one product a loop, 1 for two of
#   them, as in attention, and for kernels without a product.
# - `kpack` was how many slices of K went into one LDS access on gfx942 and older. Triton deprecated it for gfx950,
#   where it is forced to 1 with a warning; old configurations still carry it.
#
# ### A heuristic for even sizes
#
# [`@triton.heuristics`](https://triton-lang.org/main/python-api/generated/triton.heuristics.html) computes a constant
# from the arguments of a launch. The classic: where the size is a multiple of the block, no mask is needed. This is a
# [heuristic](03_fused_activations.ipynb#Glossary), and production kernels call its constant `EVEN_K` or `EVEN_N`.

# %% [markdown] exercise_header="10.b"
# The kernel is written for both cases. Complete the heuristic that tells them apart.


# %% exercise="10.b"
### BEGIN SOLUTION
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
### END SOLUTION
@triton.jit
def add_one_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_ptr + offs, tl.load(x_ptr + offs) + 1)
    else:
        mask = offs < n
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 1, mask=mask)


def add_one(x):
    y = torch.empty_like(x)
    add_one_kernel[(triton.cdiv(len(x), 256),)](x, y, len(x), BLOCK=256)
    return y


# %% [markdown]
# **Predict** what the masks cost in machine code, where the size is a multiple of 16 and where it is odd.


# %% tags=["nbval-ignore-output"]
@triton.jit
def masked_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < n) | EVEN
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 1, mask=mask)


for n in (4096, 4097):
    for even in (True, False):
        vector = torch.empty(n)
        report = amd_report(masked_kernel, vector, vector, n, BLOCK=1024, EVEN=even, arch="gfx942")
        count = len(report.program.instructions)
        print(f"n = {n}, EVEN {even!s:5}  {count:3} instructions, loads of {max(report.loads)} bits")

# %% [markdown]
# With a multiple of 16 the compiler knows that a whole piece of four is inside or outside, and loads stay wide. At an
# odd size the mask cuts through them, and loads fall apart. That is what the heuristic is for: one more specialisation,
# compiled once, for the sizes that models have.
#
# ### A launch table for each architecture
#
# `@triton.autotune(configs, key=["N"])` times every configuration on the first launch with a new `N`, and keeps the
# fastest. Its `key` names what the choice depends on: a size that is missing there is served by another one's choice,
# and a size that should not be there tunes again for each sequence length. `prune_configs_by` drops what cannot run.
#
# Tuning takes seconds, and its result differs from run to run. So libraries write down what it found: a table, by
# architecture and size. Here is one for the tile above, made from what can be known without a clock: what fits.

# %% tags=["nbval-ignore-output"]
from gfxlab.code import AmdError

configurations = [
    {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "num_stages": s}
    for m, n, s in ((128, 128, 2), (256, 128, 2), (128, 128, 3))
]
for arch in ("gfx942", "gfx950", "gfx1100"):
    for options in configurations:
        name = f"{arch:8} {options['BLOCK_M']:3} x {options['BLOCK_N']}, {options['num_stages']} stages"
        try:
            report = tile(arch, **options)
            waves = report.occupancy.waves
            print(
                f"{name}: {report.vgprs:3} registers, {report.spills:3} spilled, LDS {report.lds:6,}, {waves:g} waves"
            )
        except AmdError as error:
            print(f"{name}: {str(error).partition('. ')[0]}")

# %% [markdown]
# One table for all cards would be wrong for two of them: an MI300X has 64 KiB of LDS, an MI350X 160, and waves on
# Radeon have 32 lanes. The library keeps such choices in one folder,
# [`course_kernels/launch/`](../course_kernels/launch/).
#
# ## Reading somebody else's kernel
#
# Three libraries, and where to look in each (described as of August 2026; open them beside this page):
#
# - [**Liger-Kernel**](https://github.com/linkedin/Liger-Kernel) reads most like this course. One file an operation, in
#   `src/liger_kernel/ops/`: kernels, then `x_forward` and `x_backward`, then the `autograd.Function`. Modules and the
#   patches of `transformers` live elsewhere. Watch what is written in place: its SwiGLU backward overwrites its inputs.
# - [**aiter**](https://github.com/ROCm/aiter), AMD's own, keeps wrappers and kernels apart, in mirrored trees
#   (`aiter/ops/triton/` and `_triton_kernels/` below it). The wrapper checks, allocates and launches. Configurations
#   are JSON files by architecture. Its rule for contributions: kernel, wrapper, test and benchmark together.
# - [**vLLM**](https://github.com/vllm-project/vllm) puts kernels behind layers (`CustomOp` classes with a forward for
#   each platform) and registers them as PyTorch operators, so that its compiled model keeps them. Its caches are
#   written in place, and the schemas say so.
#
# In all three read in this order: the test (what does it promise?), the wrapper (what does it refuse?), the grid (who
# does what?), the loads and their masks, the accumulators' dtype, the store. Then ask what the test would not notice.
#
# ### Before you send a pull request
#
# 1. The issue or the discussion comes first: does anybody want it?
# 2. Kernel, wrapper, test, benchmark, documentation, each where the project keeps them, in the project's style.
# 3. The docstring states shapes, dtypes, what is written, what is refused, and the paper or code that it follows.
# 4. Tests: float64 reference, odd sizes, all dtypes, strides, empty, gradients, refusals. You have seen each of them
#    fail.
# 5. Figures: the machine, versions, command, median and spread, yardstick and rival; sizes at which you lose.
# 6. On AMD: no spills, wide loads, at most 16 waves a workgroup on gfx9 (64 lanes each, 1024 work-items). Say which
#    architectures you compiled for, and on which you ran.
# 7. Licences: what you wrote is yours; name what you learned from.
# 8. One change a pull request, small enough to read in one sitting.
#
# ## What to read next
#
# - The exercises: [`exercises/10_shipping.ipynb`](../exercises/10_shipping.ipynb). The contract (10.1), gradients
#   (10.2), an operator (10.3), a layer (10.4), your tests (10.5) and a benchmark to repair (10.6).
# - The library's: [`rms_norm.py`](../course_kernels/rms_norm.py), in the order that this lesson took.
# - `course certificate` draws what you have solved.
#
# ### From formula to code
#
# | rule | code |
# |---|---|
# | refuse before the launch, by name | `raise ValueError(f"weight must have shape {...}, got {...}")` |
# | never copy without a word | `x.view(-1, N)`, which raises where `reshape` copies |
# | empty in, empty out | `if x.numel() == 0: return torch.empty(...)` |
# | $dx = rstd \, (g - \hat x \, \mathrm{mean}(g \hat x))$ | `rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))` |
# | error of a sum of $N$ terms | `rtol = k * 2**-24 * math.sqrt(N) + torch.finfo(dtype).eps` |
# | one node of the graph | `torch.library.custom_op(...)`, `.register_fake(...)` |
# | same names | `self.weight = theirs.weight` |
# | no mask where none is needed | `@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})` |
#
# ### Glossary
#
# - **contract**: what a function takes, returns and refuses; it keeps its word for all that it takes
# - **gradcheck**: PyTorch's comparison of a backward pass with finite differences, in float64
# - **recomputation**: computing in the backward pass what the forward pass did not keep
# - **graph break**: the place where `torch.compile` cannot trace on, and goes back to Python
# - **operator**: a function with a schema that PyTorch knows by name; one node of a graph
# - **fake implementation**: says shape, dtype and strides of an operator's result without computing it
# - **state dict**: a model's tensors by the paths of their attributes
# - **backend**: which implementation a call takes, the kernel or the formula
# - **hardware counter**: a count that a unit of the GPU keeps of what it did
