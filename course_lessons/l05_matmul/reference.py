"""The formulas that only the exercises of lesson 05 use, in plain PyTorch; the rest: course_kernels/reference.py."""

import torch
from torch import Tensor

from course_kernels.reference import act_and_mul, activation, conv2d, matmul


def one_tile(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32"""
    return matmul(a, b, torch.float32)


def linear_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """silu(x @ weight^T + bias), rounded once"""
    return activation(x.double() @ weight.double().T + bias.double(), "silu").to(x.dtype)


def gated_linear(x: Tensor, gate_up: Tensor) -> Tensor:
    """silu(x @ gate^T) * (x @ up^T), gate the upper half of the rows and up the lower, rounded once"""
    return act_and_mul(x.double() @ gate_up.double().T, "silu").to(x.dtype)


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution of an image (H, W, C) with weights (3, 3, C, F), of padding 1: (H, W, F)"""
    return conv2d(x.permute(2, 0, 1)[None], weight.permute(3, 2, 0, 1), padding=1)[0].permute(1, 2, 0).contiguous()
