"""Right answers of lesson 10, written differently from the solutions."""

# ruff: noqa


# %% 10.a | several rows in a program, as many as make 2048 numbers; sums along axis 1
@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, rstd_ptr, stride_xm, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < M)[:, None] & (cols < N)
    x = tl.load(x_ptr + row[:, None] * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)
    tl.store(y_ptr + row[:, None] * N + cols, x * rstd[:, None] * w, mask=mask)
    tl.store(rstd_ptr + row, rstd, mask=row < M)


def norm_and_rstd(x, weight, eps):
    (M, N), y, rstd = x.shape, torch.empty(x.shape), torch.empty(x.shape[0])
    block = triton.next_power_of_2(N)
    rows = max(1, min(4, 2048 // block))
    grid = (triton.cdiv(M, rows),)
    norm_kernel[grid](x, weight, y, rstd, x.stride(0), M, N, eps, ROWS=rows, BLOCK=block)
    return y, rstd


# %% 10.a | rows of any length in blocks of at most 1024: one walk for the sum of squares, one for the result
@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, rstd_ptr, stride_xm, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        x = tl.load(x_ptr + row * stride_xm + start + lane, mask=start + lane < N, other=0.0).to(tl.float32)
        squares += x * x
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N, BLOCK):
        cols = start + lane
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * N + cols, x * rstd * w, mask=cols < N)


def norm_and_rstd(x, weight, eps):
    (M, N), y, rstd = x.shape, torch.empty(x.shape), torch.empty(x.shape[0])
    norm_kernel[(M,)](x, weight, y, rstd, x.stride(0), N, eps, BLOCK=min(1024, triton.next_power_of_2(N)))
    return y, rstd


# %% 10.b | a named function with divmod
def nothing_left_over(args):
    _, rest = divmod(args["n"], args["BLOCK"])
    return rest == 0


@triton.heuristics({"EVEN": nothing_left_over})
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
    add_one_kernel[(triton.cdiv(len(x), 256),)](x, y, n=len(x), BLOCK=256)
    return y


# %% 10.b | the size is even where whole blocks make it up again
@triton.heuristics({"EVEN": lambda meta: triton.cdiv(meta["n"], meta["BLOCK"]) * meta["BLOCK"] == meta["n"]})
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


# %% 10.1 | the checks are a table of conditions and messages that is gone through before anything else
kernel = my_kernel("2.2")
TAKEN = {torch.float32, torch.float16, torch.bfloat16}


def complaints(x, weight):
    """Pairs of what does not hold and what to say about it, in an order in which each can be asked."""
    yield x.dtype not in TAKEN, f"x must be float32, float16 or bfloat16, got {x.dtype}"
    yield weight.dtype not in TAKEN, f"weight must be float32, float16 or bfloat16, got {weight.dtype}"
    yield x.dim() == 0, f"x must have at least one dimension, got shape {tuple(x.shape)}"
    N = x.shape[-1]
    yield tuple(weight.shape) != (N,), f"weight must have shape {(N,)}, got {tuple(weight.shape)}"
    yield weight.device != x.device, f"weight must be on the device of x, {x.device}, got {weight.device}"
    yield N > 1 and weight.stride(0) != 1, f"weight must have stride 1, got {weight.stride()}"
    yield x.numel() > 0 and N > 1 and x.stride(-1) != 1, f"x must have columns side by side, got strides {x.stride()}"


def ship(x, weight, eps=1e-6):
    """RMSNorm over the last dimension, x (..., N) and weight (N,): x / sqrt(mean(x^2) + eps) * weight, like x."""
    for holds, message in complaints(x, weight):
        if holds:
            raise ValueError(message)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    try:
        rows = x.view(-1, x.shape[-1])
    except RuntimeError as error:
        raise ValueError(f"x must have one row stride, got strides {x.stride()} of shape {tuple(x.shape)}") from error
    return kernel(rows, weight, eps).view(x.shape)


# %% 10.1 | SwiGLU; the row stride is worked out by hand, without dimensions of length 1, and the matrix is ...
kernel = my_kernel("3.2")


def row_stride(x):
    """The distance between neighbouring rows; a ValueError where neighbours are not equally far apart."""
    leading = [(n, s) for n, s in zip(x.shape[:-1], x.stride()[:-1]) if n != 1]
    for (_, outer), (n, inner) in zip(leading, leading[1:]):
        if outer != n * inner:
            raise ValueError(f"x must have one row stride, got strides {x.stride()} of shape {tuple(x.shape)}")
    return leading[-1][1] if leading else x.shape[-1]


def ship(x):
    """silu(gate) * factor over the last dimension, x (..., 2 * d), gate and factor side by side."""
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"x must be float32, float16 or bfloat16, got dtype {x.dtype}")
    if x.dim() == 0:
        raise ValueError(f"x must have at least one dimension, got shape {tuple(x.shape)}")
    columns = x.shape[-1]
    if columns % 2 != 0:
        raise ValueError(f"x must have an even number of columns, got shape {tuple(x.shape)}")
    shape = (*x.shape[:-1], columns // 2)
    if x.numel() == 0:
        return x.new_empty(shape)
    if x.stride(-1) != 1:
        raise ValueError(f"x must have stride 1 in its last dimension, got strides {x.stride()}")
    rows = x.as_strided((x.numel() // columns, columns), (row_stride(x), 1))
    return kernel(rows).view(shape)


# %% 10.1 | softmax; flattening is left to view in a loop from the front, one pair of dimensions at a time
kernel = my_kernel("6.1")


def ship(x):
    """Softmax over the last dimension, x (..., N), like x."""
    said = f"got {x.dtype} of shape {tuple(x.shape)} with strides {x.stride()} on {x.device}"
    if x.dtype != torch.float32 and x.dtype != torch.float16 and x.dtype != torch.bfloat16:
        raise TypeError(f"x must be float32, float16 or bfloat16: {said}")
    if len(x.shape) < 1:
        raise ValueError(f"x must have at least one dimension: {said}")
    if 0 in x.shape:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.shape[-1] > 1 and x.stride(-1) > 1 or x.shape[-1] > 1 and x.stride(-1) == 0:
        raise ValueError(f"columns must lie side by side: {said}")
    matrix = x.unsqueeze(0) if x.dim() == 1 else x
    while matrix.dim() > 2:
        first, second, *rest = matrix.shape
        try:
            matrix = matrix.view(first * second, *rest)
        except RuntimeError:
            raise ValueError(f"rows must lie equally far apart: {said}") from None
    return kernel(matrix).view(x.shape)


# %% 10.1 | the sum of two tensors: both must agree in all that a kernel cannot see
kernel = my_kernel("1.2")


def ship(x, y):
    """x + y for two contiguous tensors of one shape, dtype and device."""
    for name, tensor in {"x": x, "y": y}.items():
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"{name} must be float32, float16 or bfloat16, got {tensor.dtype}")
        if tensor.dim() == 0:
            raise ValueError(f"{name} must have at least one dimension, got shape {tuple(tensor.shape)}")
    differences = [what for what in ("shape", "dtype", "device") if getattr(x, what) != getattr(y, what)]
    if differences:
        told = ", ".join(f"{what} {getattr(x, what)} and {getattr(y, what)}" for what in differences)
        raise ValueError(f"x and y must be alike, got {told}")
    for name, tensor in {"x": x, "y": y}.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()} of {tuple(tensor.shape)}")
    return kernel(x, y) if x.numel() else torch.empty(x.shape, dtype=x.dtype, device=x.device)


# %% 10.2 | rstd is kept, one number a row in float32, and the formula is written with sums instead of means
kernel = my_kernel("2.2")


class Shipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        """The kernel's result; what the backward pass needs is kept in ctx."""
        rstd = (x.float().pow(2).mean(dim=1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, rstd)
        return kernel(x, weight, eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """One gradient for each argument of forward; None for a number."""
        x, weight, rstd = ctx.saved_tensors
        upper, normed = dy.float(), x.float() * rstd
        dx = dw = None
        if ctx.needs_input_grad[0]:
            g = upper * weight.float()
            along = torch.sum(g * normed, dim=1, keepdim=True) / x.shape[1]
            dx = ((g - normed * along) * rstd).to(x.dtype)
        if ctx.needs_input_grad[1]:
            dw = torch.sum(upper * normed, dim=0).to(weight.dtype)
        return dx, dw, None


def differentiable(x, weight, eps=1e-6):
    return Shipped.apply(x, weight, eps)


# %% 10.2 | a kernel of its own for dx, which recomputes the row and takes strides of x and of the arriving ...
kernel = my_kernel("2.2")


@triton.jit
def norm_backward_kernel(
    x_ptr, w_ptr, dy_ptr, dx_ptr, stride_xm, stride_xn, stride_wn, stride_dm, stride_dn, N, eps, BLOCK: tl.constexpr
):
    """One program, one row of dx."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wn, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride_dm + cols * stride_dn, mask=mask, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
    x_hat, g = x * rstd, dy * w
    dx = rstd * (g - x_hat * (tl.sum(g * x_hat, axis=0) / N))
    tl.store(dx_ptr + row * N + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


class Shipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        """The kernel's result; what the backward pass needs is kept in ctx."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return kernel(x, weight, eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """One gradient for each argument of forward; None for a number."""
        x, weight = ctx.saved_tensors
        M, N = x.shape
        dx = torch.empty((M, N), dtype=x.dtype, device=x.device)
        strides = (*x.stride(), *weight.stride(), *dy.stride())
        norm_backward_kernel[(M,)](x, weight, dy, dx, *strides, N, ctx.eps, BLOCK=triton.next_power_of_2(N))
        x_hat = x.float() / torch.sqrt(x.float().square().mean(1, keepdim=True) + ctx.eps)
        return dx, (dy.float() * x_hat).sum(0).to(weight.dtype), None


def differentiable(x, weight, eps=1e-6):
    return Shipped.apply(x, weight, eps)


# %% 10.2 | SwiGLU: both gradients are written into halves of one float32 tensor
kernel = my_kernel("3.2")


class Shipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        """The kernel's result; what the backward pass needs is kept in ctx."""
        ctx.save_for_backward(x)
        return kernel(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """The gradient of the only argument, that of the gate and that of the factor side by side."""
        (x,) = ctx.saved_tensors
        d = x.shape[-1] // 2
        gate, up, upper = x[:, :d].float(), x[:, d:].float(), dy.float()
        sigma = gate.sigmoid()
        dx = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        dx[:, :d] = upper * up * (sigma + gate * sigma * (1 - sigma))
        dx[:, d:] = upper * gate * sigma
        return dx.to(x.dtype)


def differentiable(x):
    return Shipped.apply(x)


# %% 10.2 | softmax: the probabilities are computed again from the argument, in float32
kernel = my_kernel("6.1")


class Shipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        """The kernel's result; the argument is all that is kept."""
        ctx.save_for_backward(x)
        return kernel(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """The gradient of the only argument."""
        (x,) = ctx.saved_tensors
        y, upper = torch.softmax(x.float(), dim=-1), dy.float()
        inner = torch.einsum("rc,rc->r", upper, y)
        return (y * (upper - inner.unsqueeze(-1))).to(x.dtype)


def differentiable(x):
    return Shipped.apply(x)


# %% 10.3 | the description writes the dense strides out with empty_strided
kernel = my_kernel("2.2")


@torch.library.custom_op("shipping::norm", mutates_args=())
def operator(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Your kernel, which PyTorch does not look into."""
    return kernel(x, weight, eps)


@operator.register_fake
def describe(x, weight, eps):
    rows, columns = x.shape
    return torch.empty_strided((rows, columns), (columns, 1), dtype=x.dtype, device=x.device)


# %% 10.3 | SwiGLU, by calls instead of decorators, with a schema that is written out
kernel = my_kernel("3.2")


def gated(x):
    return kernel(x)


operator = torch.library.custom_op("shipping::gated", gated, mutates_args=(), schema="(Tensor x) -> Tensor")
operator.register_fake(lambda x: x.new_empty(x.shape[0], x.shape[1] // 2))


# %% 10.3 | softmax, with gradients registered as well
kernel = my_kernel("6.1")


@torch.library.custom_op("shipping::softmax", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    """Your kernel, which PyTorch does not look into."""
    return kernel(x)


@operator.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def backward(ctx, dy):
    (x,) = ctx.saved_tensors
    y, upper = torch.softmax(x.float(), dim=-1), dy.float()
    return (y * (upper - (upper * y).sum(-1, keepdim=True))).to(x.dtype)


operator.register_autograd(backward, setup_context=keep)


# %% 10.4 | a recursion over children; the parameter is registered under its name
kernel = my_kernel("2.2")


class ShippedNorm(torch.nn.Module):
    def __init__(self, theirs):
        """theirs: the layer that is replaced."""
        super().__init__()
        self.register_parameter("weight", theirs.weight)
        self.variance_epsilon = theirs.variance_epsilon
        self.train(theirs.training)

    def forward(self, x):
        """x (..., N)."""
        y = kernel(x.flatten(0, -2) if x.dim() > 1 else x[None], self.weight, self.variance_epsilon)
        return y.reshape(x.shape)


def swap(model):
    for name, child in list(model.named_children()):
        if type(child).__name__ == "LlamaRMSNorm":
            model.add_module(name, ShippedNorm(child))
        else:
            swap(child)
    return model


# %% 10.4 | the MLP: its three matrices are handed over as the modules they are, and named in a list
kernel = my_kernel("3.2")


class ShippedMLP(torch.nn.Module):
    def __init__(self, theirs):
        """theirs: the layer that is replaced."""
        super().__init__()
        for name in ("gate_proj", "up_proj", "down_proj"):
            self.add_module(name, getattr(theirs, name))
        self.train(theirs.training)

    def forward(self, x):
        """x (..., hidden size)."""
        gate, up = self.gate_proj(x), self.up_proj(x)
        *leading, d = gate.shape
        rows = torch.stack([gate.reshape(-1, d), up.reshape(-1, d)], dim=1).reshape(-1, 2 * d)
        return self.down_proj(kernel(rows).reshape(*leading, d))


def swap(model):
    mlps = [path for path, layer in model.named_modules() if type(layer).__name__ == "LlamaMLP"]
    for path in mlps:
        *parents, name = path.split(".")
        parent = model.get_submodule(".".join(parents))
        setattr(parent, name, ShippedMLP(getattr(parent, name)))
    return model


# %% 10.4 | every module is asked for its children, by model.apply; the layer takes its arguments apart in a ...
kernel = my_kernel("2.2")


class ShippedNorm(torch.nn.Module):
    def __init__(self, theirs):
        """theirs: the layer that is replaced."""
        super().__init__()
        self.weight, self.eps = theirs.weight, float(theirs.variance_epsilon)
        self.training = theirs.training

    def forward(self, x):
        """x (..., N)."""
        rows = x.reshape(-1, self.weight.numel())
        return kernel(rows, self.weight, self.eps).reshape_as(x)

    @classmethod
    def into(cls, parent):
        for name, child in tuple(parent.named_children()):
            if child.__class__.__name__ == "LlamaRMSNorm":
                setattr(parent, name, cls(child))


def swap(model):
    model.apply(ShippedNorm.into)
    return model


# %% 10.5 | parametrised tests of the norm; the tolerance is what float32 loses and half a unit of the result's ...
import pytest

kernel = my_kernel("2.2")


def wanted(x, weight, eps):
    x = x.double()
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight.double()


def close(got, x, weight, eps):
    assert isinstance(got, torch.Tensor)
    assert got.shape == x.shape, f"shape {tuple(got.shape)}"
    assert got.dtype == x.dtype, f"dtype {got.dtype}"
    expected, info = wanted(x, weight, eps), torch.finfo(x.dtype)
    lost = 8 * 2**-24 * math.sqrt(x.shape[-1]) + 0.502 * info.eps
    limit = lost * expected.abs() + info.smallest_normal * info.eps
    error = (got.double() - expected).abs()
    assert bool((error <= limit).all()), f"off by {error.max():.3g}"


def compare(implementation, x, weight, eps):
    kept = x.clone(), weight.clone()
    got = implementation(x, weight, eps)
    close(got, x, weight, eps)
    assert torch.equal(x, kept[0]) and torch.equal(weight, kept[1]), "an argument was changed"
    return got


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_values(implementation):
    """One block, several rows; no width a power of two by accident."""
    compare(implementation, numbers(0, 7, 576), numbers(1, 576), 1e-6)


@pytest.mark.parametrize("width", [1, 2, 3, 31, 64, 65, 127, 500, 1000, 1024, 1025, 2049, 5000])
def test_widths(implementation, width):
    compare(implementation, numbers(width, 3, width) + 2.0, numbers(width + 1, width), 1e-6)


@pytest.mark.parametrize("rows", [1, 2, 5, 130])
def test_numbers_of_rows(implementation, rows):
    scales = 10.0 ** (torch.arange(rows) % 5 - 2)
    compare(implementation, numbers(rows, rows, 40) * scales[:, None], numbers(2, 40), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("other", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(implementation, dtype, other):
    compare(implementation, numbers(3, 6, 700).to(dtype), numbers(4, 700).to(other), 1e-6)


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 1e-2, 0.5])
def test_eps_counts(implementation, eps):
    x = numbers(5, 4, 100) * math.sqrt(eps)
    x[2] = 0.0
    compare(implementation, x, numbers(6, 100), eps)


def test_large_numbers_in_half_precision(implementation):
    x = (300.0 * numbers(7, 4, 300)).half()
    x[1] = 20_000.0
    compare(implementation, x, numbers(8, 300), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_apart(implementation, dtype):
    wide = torch.full((6, 200), 1e4).to(dtype)
    wide[:, 40:117] = numbers(9, 6, 77).to(dtype)
    compare(implementation, wide[:, 40:117], numbers(10, 77), 1e-6)


def test_two_results(implementation):
    x, other, weight = numbers(11, 3, 50), numbers(12, 3, 50), numbers(13, 50)
    first = compare(implementation, x, weight, 1e-6)
    compare(implementation, other, weight, 1e-6)
    close(first, x, weight, 1e-6)


MUTANTS = [
    ("eps is lost", "def rms_norm(x, weight, eps):", "def rms_norm(x, weight, eps):\n    eps = 0.0"),
    ("eps counts twice", "def rms_norm(x, weight, eps):", "def rms_norm(x, weight, eps):\n    eps = 2.0 * eps"),
    (
        "the weight is lost",
        "def rms_norm(x, weight, eps):",
        "def rms_norm(x, weight, eps):\n    weight = torch.ones_like(weight)",
    ),
    ("always the first row", "row = tl.program_id(0).to(tl.int64)", "row = tl.program_id(0).to(tl.int64) * 0"),
]


# %% 10.5 | tests of the sum of two tensors: plain functions over a table of cases, made by a class that ...
kernel = my_kernel("1.2")


class Case:
    """Two tensors with fresh numbers, and what has to come of them."""

    count = 0

    def __init__(self, *shape, dtype=torch.float32, scale=1.0):
        Case.count += 1
        generator = torch.Generator().manual_seed(Case.count)
        self.x = (scale * torch.randn(*shape, generator=generator)).to(dtype)
        self.y = (scale * torch.randn(*shape, generator=generator)).to(dtype)
        self.kept = self.x.clone(), self.y.clone()

    def run(self, implementation):
        self.got = implementation(self.x, self.y)
        self.check()

    def check(self):
        assert self.got.shape == self.x.shape
        assert self.got.dtype == self.x.dtype
        assert torch.equal(self.x, self.kept[0]) and torch.equal(self.y, self.kept[1])
        info = torch.finfo(self.x.dtype)
        expected = self.x.double() + self.y.double()
        limit = 0.502 * info.eps * expected.abs() + info.smallest_normal * info.eps
        assert bool(((self.got.double() - expected).abs() <= limit).all())


def test_values(implementation):
    """Some blocks and a tail."""
    Case(5000).run(implementation)


def test_lengths(implementation):
    for n in (1, 2, 3, 31, 64, 65, 255, 256, 257, 1000, 1023, 1024, 1025, 2047, 2049, 4096, 4097, 12_345, 20_000):
        Case(n).run(implementation)


def test_shapes(implementation):
    for shape in ((3, 7), (2, 3, 5), (1, 1), (40, 33), (2, 2, 2, 3)):
        Case(*shape).run(implementation)


def test_dtypes(implementation):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        Case(1500, dtype=dtype).run(implementation)
        Case(33, dtype=dtype, scale=1000.0).run(implementation)


def test_infinities(implementation):
    x, y = torch.ones(300), torch.ones(300)
    x[5], y[299] = float("inf"), -float("inf")
    x[7] = float("nan")
    got = implementation(x, y)
    assert got[5] == float("inf") and got[299] == -float("inf") and got[7].isnan()
    assert bool((got[8:299] == 2.0).all())


def test_a_result_of_its_own(implementation):
    first, second = Case(700), Case(700)
    first.run(implementation)
    second.run(implementation)
    first.check()
    assert first.got.data_ptr() not in (first.x.data_ptr(), first.y.data_ptr())


MUTANTS = [
    ("the second counts twice", "def add(x, y):", "def add(x, y):\n    y = 2 * y"),
    ("the second is taken away", "def add(x, y):", "def add(x, y):\n    y = -y"),
    ("the first is returned", "return z", "return x"),
]


# %% 10.6 | rounds over all sizes instead of one size after the other, and the median of the standard library
from statistics import median


def benchmark(gpu, sizes):
    """{size: milliseconds of one run}"""
    times = {size: [] for size in sizes}
    for size in times:
        gpu.kernel(size)
    for _ in range(31):
        for size, seen in times.items():
            gpu.flush_cache()
            gpu.synchronize()
            before = gpu.clock()
            gpu.kernel(size)
            gpu.synchronize()
            seen.append(gpu.clock() - before)
    return {size: median(seen) for size, seen in times.items()}


# %% 10.6 | a class with a stopwatch as a context, and torch for the median
import contextlib


class Bench:
    def __init__(self, gpu):
        self.gpu, self.seen = gpu, []

    @contextlib.contextmanager
    def stopwatch(self):
        """What is put into the queue inside, from an empty queue and a cold cache to an empty queue."""
        self.gpu.flush_cache()
        self.gpu.synchronize()
        start = self.gpu.clock()
        yield
        self.gpu.synchronize()
        self.seen.append(self.gpu.clock() - start)

    def median(self, size, repeats=25):
        for _ in range(repeats + 1):
            with self.stopwatch():
                self.gpu.kernel(size)
        return float(torch.tensor(self.seen[1:], dtype=torch.float64).median())


def benchmark(gpu, sizes):
    """{size: milliseconds of one run}"""
    return {size: Bench(gpu).median(size) for size in sizes}
