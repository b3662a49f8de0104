"""Matrix products: squares, and the skinny ones of a decoder's step (Llama 3 8B)."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, TORCH, Case, draw, rows_of

SHAPES = [(n, n, n) for n in (1024, 2048, 4096, 8192)]
SHAPES += [(m, n, k) for m in (1, 16, 64) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336))]


def cases(sizes: str = "every"):
    """One for each (M, N, K); b is a layer's weight, transposed."""
    for m, n, k in rows_of(sizes, SHAPES, [(4096, 4096, 4096), (16, 14336, 4096)], [(5, 20, 33)]):
        yield Case(
            "matmul",
            f"{m} x {n} x {k}",
            lambda device, m=m, n=n, k=k: (draw(device, m, k), draw(device, n, k, scale=k**-0.5).T),
            {TORCH: torch.matmul, OURS: ck.matmul},
            torch.matmul,
            bytes=2 * (m * n + m * k + n * k),
            flops=2 * m * n * k,
            cold=True,
        )
