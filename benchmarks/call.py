"""What one call costs in Python: bare Triton launches beside functions of PyTorch, Liger-Kernel and this course."""

import dataclasses

import torch
import torch.nn.functional as F
import triton

import course_kernels as ck
from benchmarks.contest import COMPILE, OURS, TORCH, draw, of_liger
from benchmarks.rms_norm import EPS, formula
from course_kernels.rms_norm import rms_norm_kernel
from course_lab import bench

BARE = "bare Triton launch"


def bare_rms_norm(x, weight, y):
    """The launch alone: its output is there, nothing is checked."""
    grid, meta = (len(x), 1, 1), {"BLOCK_M": 1, "BLOCK_N": triton.next_power_of_2(x.shape[1]), "num_warps": 1}
    rms_norm_kernel[grid](x, None, weight, y, None, x.shape[1], 0, *x.shape, EPS, **meta)


def contenders(device: str) -> dict:
    """By name, on one row of 576."""
    x, weight = draw(device, 1, 576), draw(device, 576)
    y = torch.empty_like(x)
    compiled = torch.compile(formula, dynamic=False)
    return {
        BARE: lambda: bare_rms_norm(x, weight, y),
        TORCH: lambda: F.rms_norm(x, (576,), weight, EPS),
        COMPILE: lambda: compiled(x, weight),
        **of_liger("rms_norm", "LigerRMSNormFunction", lambda f: f(x, weight, EPS, 0.0, "llama", False)),
        OURS: lambda: ck.rms_norm(x, weight, EPS),
    }


def measure(device: str) -> list[bench.Measurement]:
    """A figure for each."""
    figures = []
    for name, function in contenders(device).items():
        for _ in range(3):
            function()
        figure = bench.call_time(function, name=name)
        figures.append(dataclasses.replace(figure, family="call", size="rms_norm, 1 x 576"))
    return figures
