"""The formulas that only the exercises of lesson 04 use, in plain PyTorch; the rest: course_kernels/reference.py."""

from torch import Tensor

from course_kernels.reference import rope


def rope_inplace(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """x (T, heads, D) itself, every head turned by its token's number"""
    x.copy_(rope(x, cos, sin, layout="thd"))


def rope_packed(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Packed sequences x (T, heads, D), the first 2 * cos.shape[1] elements of each head turned"""
    return rope(x, cos, sin, layout="thd", cu_seqlens=cu_seqlens, rotary_dim=2 * cos.shape[1])
