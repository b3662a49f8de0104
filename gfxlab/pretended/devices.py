"""PyTorch as on a machine with one AMD GPU: its questions are answered, and what goes to "cuda" stays on the CPU."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gfxlab import hardware
from gfxlab.engine.driver import capability

_ROCM = "7.2"


@contextlib.contextmanager
def on_cpu(arch: str) -> Iterator[None]:
    """Inside the block, `device="cuda"`, `.to("cuda")` and `.cuda()` give tensors on the CPU that say `is_cuda`."""
    with _replaced(_answers(arch)), _OnCpu():
        yield


def _answers(arch: str) -> list[tuple[Any, str, Any]]:
    """(object, attribute, what it is inside the block)."""
    limits, card = hardware.limits(arch), hardware.card(arch)
    properties = types.SimpleNamespace(
        name=card.name,
        gcnArchName=arch,
        major=capability(arch)[0],
        minor=capability(arch)[1],
        multi_processor_count=card.compute_units,
        total_memory=card.memory_gb << 30,
        warp_size=limits.wave_size,
        shared_memory_per_block=limits.lds_per_workgroup,
        max_threads_per_multi_processor=limits.wave_size * limits.waves_per_simd * limits.simds,
        regs_per_multiprocessor=limits.vgprs * limits.wave_size * limits.simds,
        L2_cache_size=card.l2_mib << 20,
    )
    cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: card.name,
        "get_device_capability": lambda device=None: capability(arch),
        "get_device_properties": lambda device=None: properties,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "mem_get_info": lambda device=None: (card.memory_gb << 30, card.memory_gb << 30),
        "manual_seed": lambda seed: None,  # torch.manual_seed comes here: the CPU's generator serves both
        "manual_seed_all": lambda seed: None,
        "_lazy_init": lambda: None,
        "device": _Scope,
        "device_of": _Scope,
        "stream": _Scope,
        "Stream": _Stream,
        "Event": _Event,
    }
    answers = [(torch.cuda, name, answer) for name, answer in cuda.items()]
    answers.append((torch.version, "hip", torch.version.hip or _ROCM))
    answers.append((torch.Tensor, "is_cuda", property(lambda tensor: True)))
    return answers


@contextlib.contextmanager
def _replaced(answers: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes and put back what was there, also where it was inherited."""
    missing = object()
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in answers]
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


class _Scope:
    """torch.cuda.device(0), torch.cuda.stream(s): there is one device, and one stream."""

    def __init__(self, what: Any = None):
        self.idx = 0

    def __enter__(self):
        return self

    def __exit__(self, *error: Any) -> None: ...


class _Stream(_Scope):
    """A stream. Everything is done in order and at once."""

    cuda_stream = 0

    def __init__(self, device: Any = None, priority: int = 0, **options: Any):
        super().__init__()
        self.device = torch.device("cuda", 0)

    def synchronize(self) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> _Event:
        return event or _Event()

    def query(self) -> bool:
        return True


class _Event:
    """An event; no time passes between two of them."""

    def __init__(self, enable_timing: bool = False, **options: Any): ...
    def record(self, stream: Any = None) -> None: ...
    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...

    def elapsed_time(self, end: _Event) -> float:
        return 0.0

    def query(self) -> bool:
        return True


class _OnCpu(TorchFunctionMode):
    """torch.*(device="cuda"), .to("cuda") and .cuda() stay on the CPU."""

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = _here(kwargs["device"])
        kwargs.pop("pin_memory", None)
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *(_here(a) if isinstance(a, str | torch.device) else a for a in args[1:]))
        return func(*args, **kwargs)


def _here(device: Any) -> Any:
    """Where a device's tensors really are: those of "cuda" (or of a device's number) on the CPU."""
    kind = device.split(":")[0] if isinstance(device, str) else getattr(device, "type", None)
    number = isinstance(device, int) and not isinstance(device, bool)
    return torch.device("cpu") if kind in ("cuda", "hip") or number else device
