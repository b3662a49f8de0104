"""What a value of an interpreted kernel holds, for those who look on."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, interpreter_builder

from gfxlab.engine.numerics import as_float32


def program() -> tuple[int, int, int]:
    """The program that the interpreter is at."""
    return tuple(int(place) for place in interpreter_builder.grid_idx)


def is_value(value: Any) -> bool:
    """Whether this is a block or a number of a kernel that the interpreter runs."""
    return isinstance(getattr(value, "handle", None), TensorHandle)


def held(value: Any) -> tuple[np.ndarray, tl.dtype] | None:
    """The numbers of a block or a number, in any shape, and their type; None for addresses and all else."""
    if not is_value(value):
        return None
    dtype = value.handle.dtype.scalar
    if dtype.is_ptr():
        return None
    data = np.asarray(value.handle.data)
    return (as_float32(data, dtype) if dtype.is_floating() else data), dtype
