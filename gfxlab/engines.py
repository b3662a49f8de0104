"""The engines of this machine: what can run a kernel here.

The *interpreter*, the AMD *compiler* and the *simulator* work on every machine with Triton; a *GPU* is used when there
is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton

from gfxlab import hardware
from gfxlab.engine import dual_mode, hooks


@dataclass(frozen=True)
class Gpu:
    """The GPU that kernels run on: its name, LLVM architecture, Triton backend ('hip' or 'cuda') and wave size."""

    name: str
    arch: str
    backend: str
    wave_size: int


@cache
def gpu() -> Gpu | None:
    """The current GPU, or None."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        arch = properties.gcnArchName.split(":")[0]
        return Gpu(properties.name, arch, "hip", hardware.wave_size(arch))
    return Gpu(properties.name, f"sm_{properties.major}{properties.minor}", "cuda", 32)


def device() -> str:
    """Where lessons put their tensors: "cuda" (which is also ROCm's name in PyTorch) with a GPU, else "cpu"."""
    return "cuda" if gpu() and not dual_mode.env_interpret() else "cpu"


def active() -> dict[str, bool]:
    """Each engine by name, and whether this machine has it."""
    found = {"interpreter": dual_mode.is_interpreting(), "AMD compiler": True, "simulator": True}
    return {**found, "GPU": gpu() is not None}


def launches() -> int:
    """How many kernels were interpreted so far in this process; a difference counts those of a piece of code."""
    return hooks.launches()


def describe() -> str:
    """A short text: the engines here and what each gives."""
    card = gpu()
    found = f"{card.name} ({card.arch}, waves of {card.wave_size})" if card else "none here: nothing is timed"
    lines = [
        f"Triton {triton.__version__}, PyTorch {torch.__version__}",
        "interpreter   numbers, and every load and store, on this CPU",
        "AMD compiler  the machine code for MI300X, RX 7900 and others, on this CPU",
        "simulator     that machine code executed on this CPU: numbers to the last bit, and counts",
        f"GPU           {found}",
    ]
    if dual_mode.env_interpret():
        lines.append("TRITON_INTERPRET=1 is set: everything is interpreted; compiling happens in a second process")
    return "\n".join(lines)
