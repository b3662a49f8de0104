"""Dropout and the addition of a residual. Every contender draws elements of its own: what they are is not compared."""

import torch
import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, Case, draw, rows_of

P = 0.25


def eager(x, residual):
    """Two of PyTorch's operations."""
    return residual + F.dropout(x, P, training=True)


def share_and_error(y, x, residual):
    """The share of elements that were kept, and how far the elements are from what they must be, of the norm."""
    x, residual, y = x.float() / (1 - P), residual.float(), y.float()
    dropped, kept = (y - residual).abs(), (y - residual - x).abs()
    error = torch.minimum(dropped, kept)
    return torch.stack([(kept < dropped).float().mean(), torch.linalg.vector_norm(error) / torch.linalg.vector_norm(y)])


def cases(sizes: str = "every"):
    """One for each size."""
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        yield Case(
            "dropout_add",
            f"{rows} x {cols}",
            lambda device, m=rows, n=cols: (draw(device, m, n), draw(device, m, n, scale=0.5)),
            {OURS: lambda x, residual: ck.dropout_add(x, residual, P, seed=1)},
            lambda x, residual: torch.tensor([1 - P, 0.0], device=x.device),
            bytes=3 * 2 * rows * cols,
            eager=eager,
            tolerance=max(1e-2, 3 / (rows * cols) ** 0.5),  # five standard deviations of the share
            compared=share_and_error,
        )
