"""SwiGLU and GeGLU: f(gate) * factor, for the two halves of a row."""

import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, Case, draw, of_liger, rows_of


def swiglu(x):
    """In float32."""
    gate, factor = x.float().chunk(2, dim=-1)
    return (F.silu(gate) * factor).to(x.dtype)


def geglu(x):
    """In float32."""
    gate, factor = x.float().chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") * factor).to(x.dtype)


def cases(sizes: str = "every"):
    """Two for each size, which is the result's.

    Liger takes two matrices, each of its own: it gets them cut beforehand.
    """
    kinds = {
        "silu_and_mul": (swiglu, ck.silu_and_mul, ("swiglu", "LigerSiLUMulFunction")),
        "gelu_tanh_and_mul": (geglu, ck.gelu_tanh_and_mul, ("geglu", "LigerGELUMulFunction")),
    }
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        for family, (formula, ours, names) in kinds.items():
            liger = of_liger(*names, lambda f, x, gate, factor: f(gate, factor))
            yield Case(
                family,
                f"{rows} x {cols}",
                lambda device, m=rows, n=cols: _halves(draw(device, m, 2 * n)),
                {**liger, OURS: lambda x, gate, factor, f=ours: f(x)},
                lambda x, gate, factor, f=formula: f(x),
                bytes=3 * 2 * rows * cols,
                eager=lambda x, gate, factor, f=formula: f(x),
            )


def _halves(x):
    gate, factor = x.chunk(2, dim=-1)
    return x, gate.contiguous(), factor.contiguous()
