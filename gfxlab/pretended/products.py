"""Products of matrices that PyTorch has for a GPU alone: into a wider dtype, and of scaled 8-bit floats."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def install(aten: torch.library.Library) -> None:
    """Register them for the device."""
    aten.impl("_scaled_mm", _scaled, "CUDA")
    for name in ("mm", "bmm"):
        aten.impl(f"{name}.dtype", _product, "CUDA")
        aten.impl(f"{name}.dtype_out", _product_out, "CUDA")
    for name in ("addmm", "baddbmm"):
        aten.impl(f"{name}.dtype", _sum, "CUDA")
        aten.impl(f"{name}.dtype_out", _sum_out, "CUDA")


def _product(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> Tensor:
    return torch.matmul(a.to(out_dtype), b.to(out_dtype))


def _product_out(a: Tensor, b: Tensor, out_dtype: torch.dtype, *, out: Tensor) -> Tensor:
    return out.copy_(_product(a, b, out_dtype))


def _sum(c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta=1, alpha=1) -> Tensor:
    return beta * c.to(out_dtype) + alpha * _product(a, b, out_dtype)


def _sum_out(c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta=1, alpha=1, out: Tensor) -> Tensor:
    return out.copy_(_sum(c, a, b, out_dtype, beta=beta, alpha=alpha))


def _scaled(a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False) -> Tensor:
    """Of every flavour of 8-bit float; the CPU has it for some."""
    result = (a.float() * scale_a) @ (b.float() * scale_b) + (0 if bias is None else bias.float())
    scaled = result if scale_result is None else result * scale_result
    return scaled.to(out_dtype or a.dtype)
