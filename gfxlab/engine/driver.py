"""Triton's active driver for a GPU that is not there: it says what it is and hands launches to a function.

Triton's own launch path stays as it is: arguments are specialised, kernels compiled and cached, hooks called, and
`kernel[grid](...)` returns Triton's CompiledKernel.  Only the last step, which would load a binary onto a GPU, is ours.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime.cache import get_cache_manager

from gfxlab import hardware
from gfxlab.bound import Value, programs
from gfxlab.engine import arguments

_OWN_FILE = re.compile(r'(\.file\s+1\s+)"[^"]*"(?:\s+"[^"]*")?')
_CAPABILITY = {"gfx90a": (9, 0), "gfx942": (9, 4), "gfx950": (9, 5), "gfx1100": (11, 0), "gfx1201": (12, 0)}


@dataclass(frozen=True, eq=False)
class Loaded:
    """A compiled kernel as the driver gets it. scratch: bytes of global memory that each program is lent."""

    name: str
    arch: str
    asm: str
    shared: int
    num_warps: int
    num_stages: int
    scratch: int
    filename: str
    lines: dict[int, str]
    kernel: Any = None  # the JITFunction


Run = Callable[[Loaded, tuple[int, int, int], list[Value], dict[str, Any]], None]


class Driver:
    """What Triton asks of an active driver.

    run: called with the kernel, the programs on the three axes, the values that the GPU is given, and all arguments by
    parameter.
    """

    def __init__(self, arch: str, run: Run):
        self.arch, self.run = arch, run
        self.utils = _Utilities(arch)
        self.launcher_cls = _Launcher

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self.arch, hardware.limits(self.arch).wave_size)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self):
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return capability(self.arch)

    def get_current_device(self) -> int:
        return Device(self.arch)

    def set_current_device(self, device: int) -> None: ...

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_benchmarker(self) -> Callable:
        return _untimed

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.zeros(1, device="cpu")

    def clear_cache(self, cache: torch.Tensor) -> None: ...

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int8, device="cpu")


def capability(arch: str) -> tuple[int, int]:
    """What torch.cuda.get_device_capability() answers on a card of this architecture."""
    return _CAPABILITY[arch]


def _untimed(call: Callable[[], Any], quantiles: list[float] | None = None, **options: Any) -> list[float] | float:
    """A benchmark that runs the call once; NaN for each time asked for: a GPU that is not there has no clock."""
    call()
    return [math.nan] * len(quantiles) if quantiles else math.nan


class Device(int):
    """Device 0; in Triton's caches (`kernel.device_caches`) a key for each architecture, which a plain 0 finds."""

    def __new__(cls, arch: str) -> Device:
        made = super().__new__(cls, 0)
        made.arch = arch
        return made

    def __eq__(self, other: object) -> bool:
        return self.arch == other.arch if isinstance(other, Device) else int(self) == other

    def __hash__(self) -> int:
        return hash(0)


_BUS_BITS = 4096


class _Utilities:
    def __init__(self, arch: str):
        limits, card = hardware.limits(arch), hardware.card(arch)
        self._threads = hardware.MAX_THREADS
        self._properties = {
            "arch": arch,
            "max_shared_mem": limits.lds_per_workgroup,
            "max_num_regs": limits.vgprs * 4 * limits.wave_size,
            "multiprocessor_count": card.compute_units,
            "warpSize": limits.wave_size,
            "max_threads_per_sm": limits.wave_size * limits.waves_per_simd * limits.simds,
            "sm_clock_rate": 1_000_000,  # kHz: nothing here has a clock, but nobody may divide by zero
            "mem_clock_rate": round(card.bandwidth * 8 / (2 * _BUS_BITS) / 1e3),  # kHz, so that Triton finds the peak
            "mem_bus_width": _BUS_BITS,
            "cooperativeLaunch": True,
        }

    def get_device_properties(self, device: int = 0) -> dict[str, Any]:
        return dict(self._properties)

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[None, str, int, int, int]:
        registers = _of_metadata(binary, b".vgpr_count")
        # without a module nothing is unloaded later, when this driver may be gone
        return None, name, registers, _of_metadata(binary, b".private_segment_fixed_size") // 4, self._threads

    def unload_module(self, module: str) -> None: ...

    def set_printf_fifo_size(self, size: int) -> None: ...


def _of_metadata(binary: bytes, key: bytes) -> int:
    """A number of the code object's metadata, which is MessagePack: the key's text, then the number; 0 without it."""
    end = binary.find(key) + len(key)
    if end < len(key):
        return 0
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(binary[end])
    return int.from_bytes(binary[end + 1 : end + 1 + size], "big") if size else binary[end]


class _Launcher:
    """What Triton calls once a kernel is compiled, with the arguments that the kernel was given."""

    def __init__(self, source: Any, metadata: Any):
        self._signature = {str(name): kind for name, kind in source.signature.items()}
        self._loaded = _load(source, metadata, metadata.target.arch)

    def __call__(self, x, y, z, stream, function, kernel_metadata, launch_metadata, enter, leave, *args):
        if enter is not None:
            enter(launch_metadata)
        grid = programs((x, y, z))
        if 0 not in grid:
            if len(args) != len(self._signature):
                names = ", ".join(self._signature)
                raise TypeError(f"{self._loaded.name} takes {names}: {len(self._signature)} arguments, not {len(args)}")
            given = dict(zip(self._signature, args, strict=True))
            values = arguments.of(self._signature, given)
            triton.runtime.driver.active.run(self._loaded, grid, values, given)
        if leave is not None:
            leave(launch_metadata)


def _load(source: Any, metadata: Any, arch: str) -> Loaded:
    group = get_cache_manager(metadata.hash).get_group(f"{source.name[:150]}.json") or {}
    text = next(Path(path) for name, path in group.items() if name.endswith(".amdgcn")).read_text()
    fn = getattr(source, "fn", None)
    filename = fn.fn.__code__.co_filename if hasattr(fn, "raw_src") else ""
    lines = dict(enumerate(linecache.getlines(filename), 1)) if filename else {}  # helpers stand beside their kernel
    return Loaded(
        name=metadata.name,
        arch=arch,
        asm=_where_it_stands(text, filename),
        shared=metadata.shared,
        num_warps=metadata.num_warps,
        num_stages=getattr(metadata, "num_stages", 1),
        scratch=getattr(metadata, "global_scratch_size", 0) or 0,
        filename=filename,
        lines={number: line.rstrip("\n") for number, line in lines.items()},
        kernel=fn,
    )


def _where_it_stands(code: str, filename: str) -> str:
    """Machine code that names today's file as its first: what Triton kept names the file of the day it was compiled."""
    return _OWN_FILE.sub(lambda found: f'{found[1]}"{filename}"', code, count=1) if filename else code


@contextlib.contextmanager
def active(driver: Driver) -> Iterator[Driver]:
    """Inside the block this is Triton's active driver, and the AMD backend says that it has a device."""
    config, backend = triton.runtime.driver, backends["amd"].driver
    before, own = config._active, backend.__dict__.get("is_active")
    backend.is_active = staticmethod(lambda: True)
    config.set_active(driver)
    try:
        yield driver
    finally:
        config._active = before
        if own is None:
            del backend.is_active
        else:
            backend.is_active = own
