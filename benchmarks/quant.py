"""Dynamic quantisation to fp8, with one scale a row."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, ROWS, SHORT_ROWS, TINY_ROWS, Case, draw, rows_of


def formula(x, dtype):
    """Operation by operation, in float32."""
    largest = torch.finfo(dtype).max
    x = x.float()
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-10) / largest
    return (x / scale).clamp(-largest, largest).to(dtype), scale.squeeze(-1)


def cases(sizes: str = "every"):
    """One for each size. What is compared is quantised: it may be off by one step where a quotient lies on a border."""
    for rows, cols in rows_of(sizes, ROWS, SHORT_ROWS, TINY_ROWS):
        yield Case(
            "quant_fp8_per_token",
            f"{rows} x {cols}",
            lambda device, m=rows, n=cols: (draw(device, m, n), _dtype(device)),
            {OURS: ck.quant_fp8_per_token},
            formula,
            bytes=3 * rows * cols + 4 * rows,
            eager=formula,
            tolerance=2e-2,
        )


def _dtype(device):
    """The GPU's own fp8 type."""
    return torch.float8_e4m3fn if device == "cpu" else ck.fp8_dtype()
