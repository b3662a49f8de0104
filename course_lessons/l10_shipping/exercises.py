# %% [markdown]
# # Exercises 10: shipping a kernel
#
# Six exercises that take one kernel of yours from "it works in my notebook" to what a maintainer takes. Read
# [10 Shipping a kernel](../notebooks/10_shipping.ipynb) first.
#
# **You choose the kernel.** 10.1 to 10.5 begin with `my_kernel("2.2")`: your last right answer to that exercise, or the
# course's solution until you have one. Write another number there, and change the signature below it, to ship another
# kernel of yours:
#
# | kernel | its function | what is shipped | in |
# |---|---|---|---|
# | `my_kernel("2.2")` | `rms_norm(x, weight, eps)`, `x` of shape `(M, N)` | `ship(x, weight, eps=1e-6)` | all |
# | `my_kernel("3.2")` | `silu_and_mul(x)`, `x` of shape `(M, 2 * d)` | `ship(x)` | all |
# | `my_kernel("6.1")` | `softmax(x)`, `x` of shape `(M, N)` | `ship(x)` | 10.1, 10.2, 10.3, 10.5 |
# | `my_kernel("1.2")` | `add(x, y)`, two contiguous tensors of one shape | `ship(x, y)` | 10.1, 10.2, 10.3, 10.5 |
#
# The softmax and the sum are no layers of a Llama, so 10.4 does not offer them.
#
# Each answer is one cell. `torch`, `triton`, `tl`, `math` and `my_kernel` are given. Press **Shift + Enter** to have it
# graded. `%hint 10.1` gives the next of three hints, `%solution 10.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import my_kernel, progress

# %% [markdown] exercise_header="10.1"
# Your kernel takes a matrix whose rows are contiguous, and believes whatever it is told. Write the function around it
# that other people call. Either it gives the right result, or it says what is wrong before anything runs.
#
# - **Inputs**: `x` of any number of dimensions, at least one; float32, float16 or bfloat16. `weight` of shape `(N,)`,
#   any of the three dtypes, on the device of `x`. Rows may lie further apart than they are long, and the stride of a
#   dimension of length 1 says nothing
# - **Output**: a new tensor of the shape and dtype of `x` (3.2: with half as many columns). A tensor without elements
#   gives a tensor without elements, and no kernel runs
# - **Refused**, with a `ValueError` or a `TypeError` that names the offending shape, dtype, device or stride: another
#   dtype; a weight of another shape or on another device; no dimensions; (3.2: an odd number of columns; 1.2: two
#   shapes, dtypes or devices); and every layout that the kernel cannot walk with one row stride (1.2: that is not
#   contiguous). Nothing as large as `x` is ever copied


# %% exercise="10.1"
kernel = my_kernel("2.2")


def ship(x, weight, eps=1e-6):
    """RMSNorm over the last dimension, x (..., N) and weight (N,): x / sqrt(mean(x^2) + eps) * weight, like x."""
    ### BEGIN SOLUTION
    floating = (torch.float32, torch.float16, torch.bfloat16)
    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.dtype not in floating:
            raise TypeError(f"{name} must be float32, float16 or bfloat16, got {tensor.dtype}")
    if x.ndim == 0:
        raise ValueError(f"x must have at least one dimension, got shape {tuple(x.shape)}")
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"weight must have shape {tuple(x.shape[-1:])}, got {tuple(weight.shape)}")
    if weight.device != x.device:
        raise ValueError(f"weight is on {weight.device}, and x is on {x.device}: move one of them")
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.shape[-1] > 1 and x.stride(-1) != 1 or weight.numel() > 1 and weight.stride(0) != 1:
        raise ValueError(f"contiguous columns are needed: strides {x.stride()} of x, {weight.stride()} of weight")
    try:
        rows = x.view(-1, x.shape[-1])
    except RuntimeError:
        raise ValueError(f"one stride cannot walk the rows of {tuple(x.shape)} with strides {x.stride()}") from None
    return kernel(rows, weight, eps).view(x.shape)
    ### END SOLUTION


# %% [markdown] tags=["solution-only"]
# **Why.** Each refusal costs a comparison of Python integers, and saves somebody an afternoon: a weight that is one
# element short is read past its end, in silence, on every GPU.
#
# `view` is the honest `reshape`. Where one stride can walk all rows, both return the same memory. Where it cannot,
# `reshape` copies without a word, and a kernel that was written to save one trip over the matrix makes two more. If a
# caller wants the copy, they can write `.contiguous()` themselves, where everybody sees it.
#
# The empty tensor comes back before the launch, with the shape that it would have had. The checks come in the order in
# which they are safe: `x.shape[-1:]` of a tensor without dimensions is empty, so the dimensions are counted first.

# %% [markdown] exercise_header="10.2"
# Training needs gradients. Give the kernel a backward pass, as an `autograd.Function`. Keep for it the arguments, and
# at most one number a row in float32: the normalised row can be computed again.
#
# - **Inputs**: `x` of shape `(M, N)`, float32 or bfloat16; `weight` of shape `(N,)`; `eps`, a number
# - **Output**: the result of your kernel, differentiable in `x` and `weight`
# - **Definition**: with $\hat{x} = x \cdot rstd$, $rstd = 1 / \sqrt{\mathrm{mean}(x^2) + \varepsilon}$ and $g = dy
#   \cdot w$:
#
#   $$dx = rstd \, (g - \hat{x} \cdot \mathrm{mean}_c(g \, \hat{x})), \qquad dw_c = \sum_r dy_{rc} \, \hat{x}_{rc}$$
#
#   computed in float32; each gradient has the dtype of its tensor. (3.2: $d\,gate = dy \cdot up \cdot \sigma \, (1 +
#   gate \, (1 - \sigma))$ with $\sigma$ the sigmoid of the gate, $d\,up = dy \cdot silu(gate)$, side by side. 6.1:
#   $dx = y \, (dy - \sum_c dy \, y)$ with $y$ computed again, in float32. 1.2: the gradient that arrives, for both.)
#
# The backward pass may be PyTorch's operations; a kernel of yours is welcome.


# %% exercise="10.2"
kernel = my_kernel("2.2")


class Shipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        """The kernel's result; what the backward pass needs is kept in ctx."""
        ### BEGIN SOLUTION
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return kernel(x, weight, eps)
        ### END SOLUTION

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """One gradient for each argument of forward; None for a number."""
        ### BEGIN SOLUTION
        x, weight = ctx.saved_tensors
        x32, dy32 = x.float(), dy.float()
        rstd = torch.rsqrt(x32.square().mean(-1, keepdim=True) + ctx.eps)
        x_hat, g = x32 * rstd, dy32 * weight.float()
        dx = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
        dweight = (dy32 * x_hat).sum(0)
        return dx.to(x.dtype), dweight.to(weight.dtype), None
        ### END SOLUTION


def differentiable(x, weight, eps=1e-6):
    return Shipped.apply(x, weight, eps)


# %% [markdown] tags=["solution-only"]
# **Why.** Three things could be kept: the arguments alone, the arguments and `rstd`, or $\hat{x}$ as well. The
# arguments exist anyway, so keeping them costs nothing. `rstd` is four bytes a row, and saves one reduction.
# $\hat{x}$ is another whole matrix, written in the forward pass and read in the backward pass, to save a
# multiplication.
#
# `save_for_backward` rather than `ctx.x = x`: it notices when somebody writes to the tensor in between, and it lets
# PyTorch free or move what is kept. Numbers may stand on `ctx`.
#
# `dy` is whatever arrives. After `y.sum()` it is one number with strides of 0, expanded to a matrix: a backward kernel
# that takes its strides for granted reads past the end of it. `once_differentiable` says plainly that there is no
# second derivative, instead of giving a wrong one.

# %% [markdown] exercise_header="10.3"
# `torch.compile` cannot look into a Triton launch of this course's interpreter, and on a GPU it need not. Make your
# kernel an operator of PyTorch: one node of the graph, with a description of what it returns.
#
# - **Inputs** of `operator`: `x` of shape `(M, N)`, whose rows may lie further apart than `N`; `weight`; `eps`
# - **Output**: what your kernel returns
# - **Description**: a function registered with `operator.register_fake`, which returns an empty tensor of the same
#   shape, dtype and strides, and computes nothing
#
# The check calls the operator, compares the description with the result, lets `torch.library.opcheck` examine it, and
# compiles a function around it with `fullgraph=True`.


# %% exercise="10.3"
kernel = my_kernel("2.2")


@torch.library.custom_op("shipping::norm", mutates_args=())
def operator(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Your kernel, which PyTorch does not look into."""
    ### BEGIN SOLUTION
    return kernel(x, weight, eps)
    ### END SOLUTION


### BEGIN SOLUTION
@operator.register_fake
def _(x, weight, eps):
    return x.new_empty(x.shape)


### END SOLUTION


# %% [markdown] tags=["solution-only"]
# **Why.** While it traces, the compiler runs your program on tensors that have a shape, a dtype and strides, and no
# numbers. A kernel cannot run on these, so the description stands in for it, and what it says is believed: memory is
# planned from it.
#
# `x.new_empty(x.shape)` is contiguous, and `torch.empty_like(x)` is not always: it keeps the strides of a dense tensor.
# Which of the two is right depends on what the wrapper allocates, and here that is contiguous. A slice of a wider
# matrix or a transposed tensor shows the difference, `torch.randn(4, 8)` never does.
#
# `mutates_args=()` promises that no argument is written. The compiler may then reorder and reuse; an operator that
# breaks the promise gives wrong numbers only in compiled code. That is what `opcheck` looks for.

# %% [markdown] exercise_header="10.4"
# A checkpoint knows nothing of your kernel. It knows names: `model.layers.0.input_layernorm.weight`. Write a layer on
# your kernel, and `swap`, which puts it into a Llama of `transformers` in place of every `LlamaRMSNorm` (3.2: every
# `LlamaMLP`), so that the state dict keeps its names and its tensors.
#
# - **Input**: `model`, a `LlamaForCausalLM`. Its norms have `weight` and `variance_epsilon` (a `LlamaMLP` has
#   `gate_proj`, `up_proj` and `down_proj`, and your kernel wants gate and factor side by side)
# - **Output**: the same model, its layers replaced. Parameters are handed over, not copied: an optimiser that was made
#   before the swap goes on training them


# %% exercise="10.4"
kernel = my_kernel("2.2")


class ShippedNorm(torch.nn.Module):
    def __init__(self, theirs):
        """theirs: the layer that is replaced."""
        super().__init__()
        ### BEGIN SOLUTION
        self.weight = theirs.weight
        self.eps = theirs.variance_epsilon
        ### END SOLUTION

    def forward(self, x):
        """x (..., N)."""
        ### BEGIN SOLUTION
        return kernel(x.view(-1, x.shape[-1]), self.weight, self.eps).view(x.shape)
        ### END SOLUTION


def swap(model):
    ### BEGIN SOLUTION
    for path, layer in list(model.named_modules()):
        if type(layer).__name__ == "LlamaRMSNorm":
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, ShippedNorm(layer))
    ### END SOLUTION
    return model


# %% [markdown] tags=["solution-only"]
# **Why.** The state dict is made of attribute names, so `weight` must be called `weight`, and nothing else may be a
# parameter or a buffer. `self.weight = theirs.weight` registers the very same parameter: device, dtype, gradient and
# optimiser state stay with it. `torch.nn.Parameter(theirs.weight.clone())` would look right in every forward pass, and
# train nothing.
#
# `list(...)` first: the tree changes while you walk it. And `eps` comes from each layer. A constant is right for most
# models and wrong for the next one.

# %% [markdown] exercise_header="10.5"
# Now **your tests are graded**. Write functions `test_...` that take an implementation of your kernel, call it, and
# fail when it is wrong, as a test of pytest does. `pytest` marks (`parametrize`) and `hypothesis` are welcome.
#
# - **Inputs** of each test: `implementation`, called as the kernel is: `implementation(x, weight, eps)`
# - **A right implementation** passes all your tests, however it computes: in one block or in several, in another order,
#   with a division or with a reciprocal root. So compare with a reference in float64, within what float32 loses
# - **A wrong implementation** fails at least one of them. The check has a dozen, each with one mistake
# - **`MUTANTS`**: at least three mistakes of your own, each `(name, old, new)`: a text of your kernel and what replaces
#   it. Each must change a result, and a test of yours must see it


# %% exercise="10.5"
kernel = my_kernel("2.2")

### BEGIN SOLUTION
UNIT = 2.0**-24  # the largest relative error of one rounding to float32


def reference(x, weight, eps):
    """In float64, and nothing else."""
    x64 = x.double()
    return x64 / torch.sqrt(x64.square().mean(-1, keepdim=True) + eps) * weight.double()


def agrees(implementation, x, weight, eps=1e-5):
    got, want = implementation(x, weight, eps), reference(x, weight, eps)
    assert got.shape == x.shape and got.dtype == x.dtype
    rtol = UNIT * (16 + 4 * math.sqrt(x.shape[-1])) + torch.finfo(x.dtype).eps
    torch.testing.assert_close(got.double(), want, rtol=rtol, atol=1e-30)


def rows(m, n, dtype=torch.float32, scale=1.0, seed=0):
    return (scale * torch.randn(m, n, generator=torch.Generator().manual_seed(seed))).to(dtype)


def weights(n, dtype=torch.float32):
    return (1 + 0.3 * torch.randn(n, generator=torch.Generator().manual_seed(7))).to(dtype)


### END SOLUTION
def test_values(implementation):
    """One block, several rows; no width a power of two by accident."""
    ### BEGIN SOLUTION
    for m, n in ((4, 64), (5, 576), (3, 1), (3, 1025), (2, 1245), (1, 5000)):
        agrees(implementation, rows(m, n), weights(n))
    ### END SOLUTION


### BEGIN SOLUTION
def test_eps(implementation):
    for eps in (1e-5, 0.5):
        for scale in (0.0, 1e-3, 1.0):
            agrees(implementation, rows(3, 100, scale=scale), weights(100), eps)


def test_strides(implementation):
    agrees(implementation, rows(4, 113)[:, :100], weights(100))


def test_dtypes(implementation):
    agrees(implementation, rows(3, 576, torch.float16, scale=300.0), weights(576))
    agrees(implementation, rows(3, 576, torch.bfloat16), weights(576))
    agrees(implementation, rows(2, 100), weights(100, torch.bfloat16))


def test_arguments_stay(implementation):
    x, weight = rows(3, 100), weights(100)
    before = x.clone(), weight.clone()
    implementation(x, weight, 1e-5)
    assert torch.equal(x, before[0]) and torch.equal(weight, before[1])


MUTANTS = [
    ("the sum over the block's lanes", "/ N", "/ BLOCK"),
    ("eps lost", "mean_square + eps", "mean_square"),
    ("rows N apart", "row * stride_xm", "row * N"),
    ("weights forgotten", " * w\n", "\n"),
]
### END SOLUTION


# %% [markdown] tags=["solution-only"]
# **Why.** A test is worth what it rejects. Each line here is there for a kernel that would get by without it: 1 and
# 1025 for blocks, 100 columns of 113 for strides, 1e-3 for `eps`, 300 in float16 for a sum that was not widened.
#
# The tolerance grows with the root of the length of the sum, because rounding errors of either sign add up like a
# random walk, and one rounding to the result's dtype comes on top. `1e-2` for everything would pass a norm that divides
# by `N + 1`; `1e-7` would reject a kernel for adding in another order. The reference has float64, so that its own
# errors do not count.
#
# Mutants turn the question round. You know that a test can fail when you have seen it fail. `pytest` runs these
# functions as they stand, with `implementation` as a fixture.

# %% [markdown] exercise_header="10.6"
# This benchmark was shown in a meeting: 200 TB/s. It has **four** faults. `gpu` is a pretended GPU, a clock with a
# queue and nothing else, so that the answer is known. Times are in milliseconds.
#
# - `gpu.kernel(size)` puts the kernel into the queue and returns at once. The first call with a size also compiles: 350
#   ms. A kernel whose data are still in the cache takes a third of its time. Now and then something else runs beside it
# - `gpu.flush_cache()` puts a write over the whole cache into the queue, `gpu.synchronize()` waits until the queue is
#   empty, `gpu.clock()` is the host's time
# - **Output**: a dict of the **median** time of one run with a **cold** cache, for **each** size


# %% exercise="10.6"
def benchmark(gpu, sizes):
    """{size: milliseconds of one run}"""
    ### BEGIN BROKEN
    size = sizes[-1]
    start = gpu.clock()
    for _ in range(10):
        gpu.kernel(size)
    return {size: (gpu.clock() - start) / 10}
    ### END BROKEN
    ### BEGIN SOLUTION
    result = {}
    for size in sizes:
        gpu.kernel(size)  # compiles
        times = []
        for _ in range(25):
            gpu.flush_cache()
            gpu.synchronize()
            start = gpu.clock()
            gpu.kernel(size)
            gpu.synchronize()
            times.append(gpu.clock() - start)
        result[size] = sorted(times)[len(times) // 2]
    return result
    ### END SOLUTION


# %% [markdown] tags=["solution-only"]
# **Why.** The four faults, in the order in which they mislead most:
#
# 1. *No synchronisation.* A launch returns before the kernel has begun. What was timed is the launch.
# 2. *The first call compiles.* One of ten runs takes 350 ms, and the mean is 35.
# 3. *A warm cache.* Nine runs of ten find their data where the run before left them. A model's next layer does not.
#    The flush goes before the clock starts, and so does the wait for it.
# 4. *One size.* The largest flatters a kernel, the smallest flatters whatever launches least.
#
# And the mean: one disturbed run in five moves it, and not the median. `triton.testing.do_bench` does the first three
# for you; its `return_mode` is `"mean"` unless you say otherwise.

# %% tags=["nbval-ignore-output"]
progress()
