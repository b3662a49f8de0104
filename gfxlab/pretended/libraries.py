"""What Triton lends of ROCm's libraries, done by PyTorch: the handle of hipBLASLt that its tutorials compare with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from triton._C import libtriton


class HipblasLt:
    """triton._C.libtriton.amd.hipblas.HipblasLt: products with the second matrix transposed, summed in float32."""

    def __init__(self, workspace: torch.Tensor): ...

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c = a b^T; a [M, K], b [N, K], c [M, N]."""
        c.copy_(torch.mm(a.float(), b.float().t()))

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:
        """d = alpha a b^T + beta c."""
        d.copy_(alpha * torch.mm(a.float(), b.float().t()) + beta * c.float())


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Inside the block Triton's handle is this one."""
    home = getattr(libtriton.amd, "hipblas", None)
    stock = getattr(home, "HipblasLt", None)
    if stock is None:
        yield
        return
    home.HipblasLt = HipblasLt
    try:
        yield
    finally:
        home.HipblasLt = stock
