"""The k largest of a row: a router's 8 of 256 experts, a sampler's 50 of Llama 3's 128,256 tokens, one of 32,000."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, TORCH, Case, draw, rows_of

SHAPES = [(rows, 256, 8) for rows in (1, 64, 4096, 16384)]
SHAPES += [(rows, cols, k) for rows in (1, 64) for cols, k in ((32000, 1), (128256, 50))]


def found(result, x):
    """The values, and the elements that the indices name."""
    values, indices = result
    return values, x.gather(-1, indices)


def cases(sizes: str = "every"):
    """One for each shape, in float32."""
    for rows, cols, k in rows_of(sizes, SHAPES, SHAPES[3:4] + SHAPES[-1:], [(3, 40, 4)]):
        yield Case(
            "topk",
            f"{k} of {cols}, {rows} row" + "s" * (rows > 1),
            lambda device, m=rows, n=cols: (draw(device, m, n, dtype=torch.float32),),
            {TORCH: lambda x, k=k: torch.topk(x, k), OURS: lambda x, k=k: ck.topk(x, k)},
            lambda x, k=k: (torch.topk(x, k).values,) * 2,
            bytes=rows * (4 * cols + 12 * k),
            compared=found,
        )
