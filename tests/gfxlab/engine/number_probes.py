"""Small kernels that show what the interpreter computes, and how far that is from PyTorch."""

import torch
import triton
import triton.language as tl


@triton.jit
def bf16_arithmetic_kernel(x_ptr, y_ptr, sum_ptr, select_ptr, total_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(sum_ptr + offs, x * y + y)
    tl.store(select_ptr + offs, tl.where(x > 1.0, x, -y))
    tl.store(total_ptr + 0, tl.sum(x, axis=0))
    tl.store(total_ptr + 1, tl.max(x, axis=0))
    tl.store(total_ptr + 2, tl.min(x, axis=0))
    tl.store(total_ptr + 3, tl.max(tl.cumsum(x, axis=0), axis=0))


@triton.jit
def round_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs).to(y_ptr.dtype.element_ty))


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    rows, cols = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + rows * N + cols)
    b = tl.load(b_ptr + rows * N + cols)
    tl.store(c_ptr + rows * N + cols, tl.dot(a, b))


@triton.jit
def assert_kernel(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.device_assert(x < 100, "x must stay below 100")


def rounding_inputs(n: int = 4096) -> torch.Tensor:
    """float32 values of every size that bfloat16 and fp8 round: normal, subnormal, halfway, carrying, signed zero."""
    random = torch.randn(n - 8, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, 2, n - 8)
    return torch.cat([random, torch.tensor([1.99, 17.0, 0.0, -0.0, 2.0**-9, 1.0625, 1.1875, -1.99])])


def bf16_arithmetic(device: str = "cpu") -> dict[str, torch.Tensor]:
    """x * y + y, where(x > 1, x, -y) and the sum, max, min and running sum of x, all in bfloat16, beside PyTorch's."""
    x = torch.linspace(-3, 4, 64).to(torch.bfloat16).to(device)
    y = torch.linspace(0.1, 2, 64).to(torch.bfloat16).to(device)
    got = [torch.empty_like(x), torch.empty_like(x), torch.empty(4, dtype=torch.float32, device=device)]
    bf16_arithmetic_kernel[(1,)](x, y, *got, N=64)
    total = x.float().sum().to(torch.bfloat16)
    reductions = torch.stack([total, x.max(), x.min(), x.float().cumsum(0).max().to(torch.bfloat16)])
    want = [x * y + y, torch.where(x > 1, x, -y), reductions]
    return {
        name: torch.stack([g.float(), w.float()])
        for name, g, w in zip(("fma", "where", "reduce"), got, want, strict=True)
    }


def rounded(dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """float32 rounded to `dtype` by a kernel, and by PyTorch."""
    x = rounding_inputs().to(device)
    y = torch.empty_like(x, dtype=dtype)
    round_kernel[(1,)](x, y, N=4096)
    return torch.stack([y.float(), x.to(dtype).float()])


def bf16_dot(device: str = "cpu") -> torch.Tensor:
    """A 16 x 16 bfloat16 product, and PyTorch's in float32."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(16, 16, generator=generator).to(torch.bfloat16).to(device) for _ in range(2))
    c = torch.empty(16, 16, device=device)
    dot_kernel[(1,)](a, b, c, N=16)
    return torch.stack([c, a.float() @ b.float()])


def false_assert_fires() -> bool:
    """Whether a device_assert that is false stops the launch."""
    try:
        assert_kernel[(1,)](torch.full((16,), 200, dtype=torch.int32), N=16)
    except Exception as error:
        return "x must stay below 100" in str(error)
    return False


def worst(pair: torch.Tensor) -> float:
    """The largest difference between the two rows, NaN counted as infinite."""
    return torch.nan_to_num((pair[0] - pair[1]).abs(), nan=float("inf")).max().item()


def report() -> dict[str, float | bool]:
    """Every probe's worst error."""
    return {
        **{f"bf16 {name}": worst(pair) for name, pair in bf16_arithmetic().items()},
        "bf16 rounding": worst(rounded(torch.bfloat16)),
        "fp8 rounding": worst(rounded(torch.float8_e4m3fn)),
        "bf16 dot": worst(bf16_dot()),
        "assert fires": false_assert_fires(),
    }
