"""PyTorch and numpy as they are while nobody has told them anything: what a notebook set must not reach its checks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def as_usual() -> Iterator[None]:
    """Inside the block: float32 on the CPU by default, gradients as ever, no errors of numpy's."""
    dtype, elsewhere = torch.get_default_dtype(), torch.get_default_device().type != "cpu"
    torch.set_default_dtype(torch.float32)
    device = torch.device("cpu") if elsewhere else contextlib.nullcontext()  # as a context it costs each operation time
    try:
        with device, torch.inference_mode(False), torch.enable_grad(), np.errstate(all="ignore"):
            yield
    finally:
        torch.set_default_dtype(dtype)
