"""Formulas that only the exercises of lesson 10 use: results with their gradients, and what a benchmark should say."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course_lessons.l10_shipping.drivers import PretendedGpu

# ---- gradients -----------------------------------------------------------------------------------------------------


def _arrived(dy: Tensor | None, y: Tensor) -> Tensor:
    return torch.ones_like(y) if dy is None else dy.to(y.dtype)


def rms_norm_exactly(numbers: int, x: Tensor, weight: Tensor, eps: float, dy: Tensor | None) -> tuple:
    """(y, dx, dweight) of RMSNorm, by PyTorch's own differentiation in float64."""
    x64, w64 = x.double().requires_grad_(), weight.double().requires_grad_()
    y = x64 * torch.rsqrt(x64.square().mean(-1, keepdim=True) + eps) * w64
    return y.detach(), *torch.autograd.grad(y, (x64, w64), _arrived(dy, y))


def rms_norm_with_gradients(numbers: int, x: Tensor, weight: Tensor, eps: float, dy: Tensor | None) -> tuple:
    """The same, in the dtypes of their tensors."""
    return _told(x, weight, *rms_norm_exactly(numbers, x, weight, eps, dy))


def silu_and_mul_exactly(numbers: int, x: Tensor, dy: Tensor | None) -> tuple:
    """(y, dx) of the gated activation, likewise."""
    x64 = x.double().requires_grad_()
    gate, up = x64.chunk(2, -1)
    y = torch.nn.functional.silu(gate) * up
    return y.detach(), *torch.autograd.grad(y, x64, _arrived(dy, y))


def silu_and_mul_with_gradients(numbers: int, x: Tensor, dy: Tensor | None) -> tuple:
    """The same, in the dtype of x."""
    return tuple(one.to(x.dtype) for one in silu_and_mul_exactly(numbers, x, dy))


def softmax_exactly(numbers: int, x: Tensor, dy: Tensor | None) -> tuple:
    """(y, dx) of the softmax of each row, likewise."""
    x64 = x.double().requires_grad_()
    y = torch.softmax(x64, -1)
    return y.detach(), *torch.autograd.grad(y, x64, _arrived(dy, y))


def softmax_with_gradients(numbers: int, x: Tensor, dy: Tensor | None) -> tuple:
    """The same, in the dtype of x."""
    return tuple(one.to(x.dtype) for one in softmax_exactly(numbers, x, dy))


def softmax_without_projection(numbers: int, x: Tensor, dy: Tensor | None) -> tuple:
    """The mistake of taking the sum under the softmax for a constant."""
    y = torch.softmax(x.double(), -1)
    return y.to(x.dtype), (y * _arrived(dy, y)).to(x.dtype)


def softmax_mean_for_sum(numbers: int, x: Tensor, dy: Tensor | None) -> tuple:
    """The mistake of a mean in the second term."""
    y = torch.softmax(x.double(), -1)
    arrived = _arrived(dy, y)
    return y.to(x.dtype), (y * (arrived - (arrived * y).mean(-1, keepdim=True))).to(x.dtype)


def sum_with_gradients(numbers: int, x: Tensor, y: Tensor, dy: Tensor | None) -> tuple:
    """(z, dx, dy) of z = x + y: the gradient that arrives, twice."""
    z = (x.double() + y.double()).to(x.dtype)
    arrived = _arrived(dy, z)
    return z, arrived, arrived


def _parts(x: Tensor, weight: Tensor, eps: float, dy: Tensor | None) -> tuple:
    """rstd, x_hat, g and dy in float64, and the result."""
    x64 = x.double()
    rstd = torch.rsqrt(x64.square().mean(-1, keepdim=True) + eps)
    x_hat = x64 * rstd
    y = x_hat * weight.double()
    arrived = _arrived(dy, y)
    return rstd, x_hat, arrived * weight.double(), arrived, y


def _told(x: Tensor, weight: Tensor, y: Tensor, dx: Tensor, dweight: Tensor) -> tuple:
    return y.to(x.dtype), dx.to(x.dtype), dweight.to(weight.dtype)


def without_projection(numbers, x, weight, eps, dy) -> tuple:
    """The mistake of taking rstd for a constant."""
    rstd, x_hat, g, arrived, y = _parts(x, weight, eps, dy)
    return _told(x, weight, y, rstd * g, (arrived * x_hat).sum(0))


def without_weight(numbers, x, weight, eps, dy) -> tuple:
    """The mistake of leaving the weight out of dx."""
    rstd, x_hat, _, arrived, y = _parts(x, weight, eps, dy)
    dx = rstd * (arrived - x_hat * (arrived * x_hat).mean(-1, keepdim=True))
    return _told(x, weight, y, dx, (arrived * x_hat).sum(0))


def dweight_of_x(numbers, x, weight, eps, dy) -> tuple:
    """The mistake of summing dy * x for the weight's gradient."""
    rstd, x_hat, g, arrived, y = _parts(x, weight, eps, dy)
    dx = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return _told(x, weight, y, dx, (arrived * x.double()).sum(0))


def without_eps(numbers, x, weight, eps, dy) -> tuple:
    """The mistake of a backward pass that knows no eps."""
    rstd, x_hat, g, arrived, _ = _parts(x, weight, 0.0, dy)
    dx = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return _told(x, weight, _parts(x, weight, eps, dy)[4], dx, (arrived * x_hat).sum(0))


def sum_for_mean(numbers, x, weight, eps, dy) -> tuple:
    """The mistake of a sum in the second term."""
    rstd, x_hat, g, arrived, y = _parts(x, weight, eps, dy)
    dx = rstd * (g - x_hat * (g * x_hat).sum(-1, keepdim=True))
    return _told(x, weight, y, dx, (arrived * x_hat).sum(0))


# ---- a benchmark ---------------------------------------------------------------------------------------------------

_MEAN = 1 + (PretendedGpu.DISTURBED - 1) / 5  # one run in five is disturbed


def _times(sizes: tuple[int, ...], change=lambda cold: cold) -> Tensor:
    return torch.tensor([change(PretendedGpu.cold(size)) for size in sizes])


def cold_milliseconds(seed: int, *sizes: int) -> Tensor:
    """What one run takes with a cold cache, for each size."""
    return _times(sizes)


def launch_milliseconds(seed: int, *sizes: int) -> Tensor:
    """What the host needs to put a run into the queue."""
    return _times(sizes, lambda cold: PretendedGpu.LAUNCH)


def warm_milliseconds(seed: int, *sizes: int) -> Tensor:
    """What one run takes whose data are in the cache."""
    return _times(sizes, lambda cold: cold * PretendedGpu.WARM)


def with_flush(seed: int, *sizes: int) -> Tensor:
    """One run and the flush before it."""
    return _times(sizes, lambda cold: cold + PretendedGpu.FLUSH)


def with_compilation(seed: int, *sizes: int) -> Tensor:
    """The mean of 25 runs of which the first compiles."""
    return _times(sizes, lambda cold: cold * _MEAN + PretendedGpu.COMPILE / 25)


def fastest_of_runs(seed: int, *sizes: int) -> Tensor:
    """Of so many runs that the fastest possible is nearly among them."""
    return _times(sizes, lambda cold: cold * (1 - PretendedGpu.SPREAD * (PretendedGpu.MIDDLE - 0.02)))


def mean_of_runs(seed: int, *sizes: int) -> Tensor:
    """The mean in place of the median."""
    return _times(sizes, lambda cold: cold * _MEAN)


def only_last(seed: int, *sizes: int) -> Tensor:
    """One size alone."""
    return torch.tensor([*[math.nan] * (len(sizes) - 1), PretendedGpu.cold(sizes[-1])])
