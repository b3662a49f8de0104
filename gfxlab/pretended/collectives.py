"""torch.distributed's operations on tensors of the device: done by Gloo on the CPU's bytes under them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch


def install(run: Callable[..., Any]) -> torch.library.Library | None:
    """Register them for the device, where this PyTorch has them; keep the library as long as the process lives.

    Args:
        run: (operation, its arguments) -> its result, on the device.
    """
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")}
    if not names:
        return None
    library = torch.library.Library("c10d", "IMPL")
    for name in sorted(names):
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
            op = getattr(torch.ops.c10d, name.partition("::")[2]).default
            library.impl(op, partial(run, op), "CUDA", allow_override=True)
    return library
