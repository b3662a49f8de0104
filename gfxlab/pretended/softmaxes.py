"""Softmax of 16-bit floats into float32, which PyTorch asks of a GPU in one operation and has no code for on the CPU.

`softmax(x, -1, dtype=torch.float32)` of a float16 tensor on the device is one of its callers, autocast another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

Run = Callable[..., Any]  # (operation, its arguments) -> its result, on the device


def install(aten: torch.library.Library, run: Run) -> None:
    """Register them for the device."""
    for name in ("_softmax", "_log_softmax"):
        aten.impl(name, partial(_wide, run, getattr(torch.ops.aten, name).default), "CUDA")
        backward = f"{name}_backward_data"
        aten.impl(backward, partial(_narrow, run, getattr(torch.ops.aten, backward).default), "CUDA")


def _wide(run: Run, op: Any, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    return run(op, x.float() if half_to_float else x, dim, False)


def _narrow(run: Run, op: Any, grad: torch.Tensor, result: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """The gradient in the dtype that the input had."""
    return run(op, grad, result, dim, result.dtype).to(dtype)
