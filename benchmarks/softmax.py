"""Softmax of rows."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, TORCH, Case, draw, of_liger, rows_of


def formula(x):
    """Operation by operation, in float32."""
    numerator = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    return (numerator / numerator.sum(-1, keepdim=True)).to(x.dtype)


def cases(sizes: str = "every"):
    """One for each size."""
    liger = of_liger("softmax", "LigerSoftmaxFunction")
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        yield Case(
            "softmax",
            f"{rows} x {cols}",
            lambda device, m=rows, n=cols: (draw(device, m, n),),
            {TORCH: lambda x: torch.softmax(x, -1), **liger, OURS: ck.softmax},
            lambda x: torch.softmax(x, -1),
            bytes=2 * 2 * rows * cols,
            eager=formula,
        )
