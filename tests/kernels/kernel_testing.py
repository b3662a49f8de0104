"""Tolerances, and what the tests of all kernels compare with."""

from __future__ import annotations

import torch

import course_kernels

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Kernels compute in float32 and round once: half a unit in the last place, and a little for the order of the sums.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}
GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}

WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}  # variables of a process that is to see none
AMD_COMPUTE_UNITS = {"gfx90a": 110, "gfx942": 304, "gfx950": 256, "gfx1100": 96, "gfx1201": 64}


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """|actual - expected| <= tolerance * (1 + |expected|) in float64; NaN exactly where it is expected."""
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=tolerance, equal_nan=True)


def short(dtype: torch.dtype) -> str:
    """A dtype in a test's name: "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def far_apart(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The same numbers, but 2**30 elements from one to the next along dim: the third is at 2**31, negative in int32.

    Untouched pages of the buffer cost nothing.
    """
    near = torch.empty_like(x[(slice(None),) * dim + (slice(0, 1),)], memory_format=torch.contiguous_format)
    strides = [2**30 if i == dim else stride for i, stride in enumerate(near.stride())]
    size = 2**30 * (x.shape[dim] - 1) + near.numel()
    return torch.empty(size, dtype=x.dtype, device=x.device).as_strided(x.shape, strides).copy_(x)


def randn(shape, dtype=torch.float32, device="cpu", seed=0) -> torch.Tensor:
    """The same numbers on every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def tables(device, rotary_dim, positions=64, base=10000.0) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin."""
    return course_kernels.rope_tables(positions, rotary_dim, base, device=device)


def places(tokens, device, limit=64) -> torch.Tensor:
    """A position for each token: not monotone, some twice, the last row of the tables among them."""
    return ((torch.arange(tokens) * 37 + limit - 1) % limit // 2 * 2 + (torch.arange(tokens) == 0) * 1).to(device)


def run(name, *args, **kwargs):
    """A function of the package, by its Triton kernel."""
    with course_kernels.use_backend("triton"):
        return getattr(course_kernels, name)(*args, **kwargs)


def bits(x) -> torch.Tensor:
    """The same bits as integers: NaN and the sign of zero can be compared."""
    return x.contiguous().view({4: torch.int32, 2: torch.int16, 1: torch.int8}[x.itemsize])
