"""What the clinic's kernels ought to compute, plain and slow."""

import torch
from torch import Tensor

FP8_MAX = 448.0


def row_variance(x: Tensor) -> Tensor:
    return x.double().var(dim=1, unbiased=False)


def row_lse(x: Tensor) -> Tensor:
    return torch.logsumexp(x.double(), dim=1)


def append(k: Tensor, cache: Tensor, slots: Tensor) -> None:
    stored = slots >= 0
    cache[slots[stored]] = k[stored]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    a, b = x.double().chunk(2, dim=1)
    x.copy_(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=1))


def row_amax(x: Tensor) -> Tensor:
    return x.abs().amax(dim=1)


def scale_rows(x: Tensor) -> Tensor:
    return x.double() * torch.rsqrt(x.double().square().mean(dim=1, keepdim=True) + 1e-6)


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(dim=1).clamp(min=1e-10) / FP8_MAX
    return (x / scale[:, None]).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def scale_heads(x: Tensor, gain: Tensor) -> Tensor:
    return x * gain[:, None]


def flat_argmax(x: Tensor, first_row: int) -> Tensor:
    return (first_row + torch.arange(len(x))) * x.shape[1] + x.argmax(dim=1)


def square_matmul(a: Tensor, b: Tensor) -> Tensor:
    return a.double() @ b.double()


def row_sum(x: Tensor) -> Tensor:
    return x.double().sum(dim=1).float()


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x.double(), dim=1)
