"""The formulas that only the exercises of lesson 03 use, in plain PyTorch; the rest: course_kernels/reference.py."""

import torch
from torch import Tensor

from course_kernels.reference import act_mul_fp8_quant, activation, philox, quant_fp8_per_token, uniform


def silu(x: Tensor) -> Tensor:
    """x / (1 + exp(-x))"""
    return activation(x, "silu")


def dropout_step(x: Tensor, residual: Tensor, dy: Tensor, p: float, seed: int) -> tuple[Tensor, Tensor]:
    """(residual + dropped x, dropped dy): element i is kept where tl.rand(seed, i) >= p, and then divided by 1 - p"""
    numbers = uniform(philox(seed, torch.arange(x.numel(), device=x.device))[:, 0]).view(x.shape)
    keeps = numbers >= torch.tensor(p, dtype=torch.float32, device=x.device)
    dropped = [torch.where(keeps, values.double() / (1 - p), 0.0) for values in (x, dy)]
    return (residual.double() + dropped[0]).to(x.dtype), dropped[1].to(x.dtype)


def quant_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """(q, scale) with x close to q * scale, one scale for each row; float8_e4m3fn"""
    return quant_fp8_per_token(x, torch.float8_e4m3fn)


def silu_mul_quant(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """(q, scale) of silu_and_mul(x), not rounded in between; one scale for each group of a row; float8_e4m3fn"""
    return act_mul_fp8_quant(x, "silu", group, torch.float8_e4m3fn)
