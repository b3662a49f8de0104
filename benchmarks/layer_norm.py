"""LayerNorm."""

import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, TORCH, Case, draw, of_liger, rows_of

EPS = 1e-5


def formula(x, weight, bias):
    """Operation by operation, in float32."""
    x = x.float()
    centred = x - x.mean(-1, keepdim=True)
    y = centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt()
    return (y * weight.float() + bias.float()).to(weight.dtype)


def cases(sizes: str = "every"):
    """One for each size."""
    liger = of_liger("layer_norm", "LigerLayerNormFunction", lambda f, x, w, b: f(x, w, b, EPS))
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        yield Case(
            "layer_norm",
            f"{rows} x {cols}",
            lambda device, m=rows, n=cols: (draw(device, m, n), draw(device, n), draw(device, n, scale=0.5)),
            {
                TORCH: lambda x, w, b, n=cols: F.layer_norm(x, (n,), w, b, EPS),
                **liger,
                OURS: lambda x, w, b: ck.layer_norm(x, w, b, EPS),
            },
            formula,
            bytes=2 * 2 * rows * cols,
            eager=formula,
        )
