"""The truth that kernels are tested against: each formula in plain PyTorch, and nothing else.

Sums and means are taken in float64 and rounded once, at the end, to the dtype of the result.  Autograd differentiates
them all.
"""

import torch
from torch import Tensor


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """x + y"""
    return x + y


def scale_and_add(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """alpha * x + y (BLAS calls it axpy)"""
    return (alpha * x.float() + y.float()).to(x.dtype)


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index]: row index[i] of x becomes row i"""
    return x[index]


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension (Zhang and Sennrich, 2019)"""
    x64 = x.double()
    mean_square = x64.square().mean(dim=-1, keepdim=True)
    return (x64 * torch.rsqrt(mean_square + eps) * weight.double()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """new_residual = x + residual, rounded to their dtype; y = rms_norm(new_residual)"""
    new_residual = x + residual
    return rms_norm(new_residual, weight, eps), new_residual


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over the last dimension (Ba, Kiros and Hinton, 2016)"""
    x64 = x.double()
    centred = x64 - x64.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * weight.double() + bias.double()).to(x.dtype)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """new_residual = x + residual, rounded to their dtype; y = layer_norm(new_residual)"""
    new_residual = x + residual
    return layer_norm(new_residual, weight, bias, eps), new_residual


def softmax(x: Tensor) -> Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))), over the last dimension"""
    return torch.softmax(x.double(), dim=-1).to(x.dtype)


def activation(x: Tensor, kind: str) -> Tensor:
    """silu, gelu, gelu_tanh or relu of x"""
    x64 = x.double()
    functions = {
        "silu": lambda: x64 * torch.sigmoid(x64),
        "gelu": lambda: torch.nn.functional.gelu(x64),
        "gelu_tanh": lambda: torch.nn.functional.gelu(x64, approximate="tanh"),
        "relu": lambda: torch.relu(x64),
    }
    return functions[kind]().to(x.dtype)


def act_and_mul(x: Tensor, kind: str) -> Tensor:
    """activation(gate) * factor, where gate and factor are the halves of the last dimension (Shazeer, 2020)"""
    gate, factor = x.double().chunk(2, dim=-1)
    return (activation(gate, kind) * factor).to(x.dtype)


def double(x: Tensor) -> Tensor:
    """2 * x"""
    return 2 * x


def shift(x: Tensor, c: float) -> Tensor:
    """x + c"""
    return x + c


def clamp(x: Tensor, lo: float, hi: float) -> Tensor:
    """min(max(x, lo), hi)"""
    return torch.clamp(x, lo, hi)


def distance(x: Tensor, y: Tensor) -> Tensor:
    """|x - y|"""
    return (x - y).abs()


def row_mean_square(x: Tensor) -> Tensor:
    """mean(x^2) over the last dimension, in float32"""
    return x.double().square().mean(dim=-1).float()


def copy(x: Tensor) -> Tensor:
    """The values of x in fresh, contiguous memory, whatever its strides."""
    return x.clone(memory_format=torch.contiguous_format)


def bias_residual_add(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    """x + bias + residual, bias along the last dimension, rounded once"""
    return (x.double() + bias.double() + residual.double()).to(x.dtype)
