"""PyTorch's own profiler on a pretended GPU: the CPU's events as ever, and none of the device's, which has no clock."""

from __future__ import annotations

import types
from typing import Any

import torch.autograd.profiler
from torch.profiler import ProfilerActivity

_State = torch.autograd.profiler.ProfilerState


class EmitNvtx:
    """torch.autograd.profiler.emit_nvtx, whose marks nobody reads."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False): ...

    def __enter__(self) -> EmitNvtx:
        return self

    def __exit__(self, *error: Any) -> None: ...


def answers() -> list[tuple[Any, str, Any]]:
    """(object, attribute, what it is while the device is there).

    Without them the profiler takes the build for one without a tracer and puts an event of CUDA around each operation.
    """
    states = types.SimpleNamespace(**{**_State.__members__, "KINETO_GPU_FALLBACK": _State.KINETO})
    both = lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA}  # noqa: E731
    return [
        (torch.autograd.profiler, "ProfilerState", states),
        (torch.autograd.profiler, "_supported_activities", both),
        (torch.autograd.profiler, "emit_nvtx", EmitNvtx),
        (torch.profiler, "supported_activities", both),
    ]
