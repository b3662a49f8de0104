"""RMSNorm, alone and after the addition of a residual."""

import torch
import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, TORCH, Case, draw, of_liger, rows_of

EPS = 1e-6


def formula(x, weight):
    """As Llama's layer is written."""
    x = x.float()
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.float()).to(weight.dtype)


def add_formula(x, residual, weight):
    """The same, of the sum."""
    x = x + residual
    return formula(x, weight), x


def _reference_after_rounding(x, residual, weight):
    x = (x + residual).bfloat16().float()  # the sum is an output too, and both use it rounded
    return formula(x, weight), x


def cases(sizes: str = "every"):
    """Two for each size."""
    liger = of_liger("rms_norm", "LigerRMSNormFunction", lambda f, *inputs: f(*inputs, EPS, 0.0, "llama", False))
    fused = of_liger(
        "fused_add_rms_norm", "LigerFusedAddRMSNormFunction", lambda f, *inputs: f(*inputs, EPS, 0.0, "llama", False)
    )
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        size, matrix = f"{rows} x {cols}", 2 * rows * cols
        yield Case(
            "rms_norm",
            size,
            lambda device, m=rows, n=cols: (draw(device, m, n), draw(device, n)),
            {
                TORCH: lambda x, w, n=cols: F.rms_norm(x, (n,), w, EPS),
                **liger,
                OURS: lambda x, w: ck.rms_norm(x, w, EPS),
            },
            formula,
            bytes=2 * matrix,
            eager=formula,
        )
        yield Case(
            "add_rms_norm",
            size,
            lambda device, m=rows, n=cols: (draw(device, m, n), draw(device, m, n, scale=2.0), draw(device, n)),
            {**fused, OURS: lambda x, r, w: ck.add_rms_norm(x, r, w, EPS)},
            _reference_after_rounding,
            bytes=4 * matrix,
            eager=add_formula,
        )
