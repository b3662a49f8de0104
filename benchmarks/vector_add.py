"""z = x + y."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, Case, draw, rows_of


def cases(sizes: str = "every"):
    """One for each size."""
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        yield Case(
            "vector_add",
            f"{rows} x {cols}",
            lambda device, n=rows * cols: (draw(device, n), draw(device, n)),
            {OURS: ck.vector_add},
            torch.add,
            bytes=3 * 2 * rows * cols,
            eager=lambda x, y: x + y,
        )
