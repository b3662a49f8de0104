"""PyTorch as on a machine with one AMD GPU: its questions about the device are answered."""

from __future__ import annotations

import contextlib
import sys
import types
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from gfxlab import hardware
from gfxlab.engine.driver import Device, capability
from gfxlab.pretended import absent, dispatch, generators, memory, pinned, streams, typed, watching
from gfxlab.pretended.attaching import CannotPretend, attached, index

_ROCM = "7.2"


@contextlib.contextmanager
def present(arch: str) -> Iterator[None]:
    """Inside the block PyTorch has a device "cuda:0", which is that card; its memory is the CPU's.

    Raises:
        CannotPretend: this PyTorch does not let a device be attached.
    """
    dispatch.install()
    with attached(), _replaced(_answers(arch)), _without_extensions():
        yield


@contextlib.contextmanager
def _without_extensions() -> Iterator[None]:
    name, before = absent.Extensions.name, sys.modules.get(absent.Extensions.name)
    sys.modules[name] = ours = absent.Extensions()
    try:
        with _replaced([(torch.utils, "cpp_extension", ours)]):
            yield
    finally:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before


def _answers(arch: str) -> list[tuple[Any, str, Any]]:
    """(object, attribute, what it is inside the block)."""
    cuda = {**absent.refusals(), **_about(arch), **_memory(arch), **_random(), **_streams()}
    cuda |= typed.classes()
    answers = [(torch.cuda, name, answer) for name, answer in cuda.items()]
    for part in (torch.cuda.memory, torch.cuda.random):
        answers += [(part, name, answer) for name, answer in cuda.items() if name in vars(part)]
    answers += [(torch.accelerator, name, answer) for name, answer in _accelerator(arch).items()]
    answers += watching.answers()
    answers += [(torch.cuda.nvtx, name, lambda *args, **kwargs: None) for name in ("range_push", "range_pop", "mark")]
    answers += [
        (torch.version, "hip", torch.version.hip or _ROCM),
        (torch, "Generator", generators.Generator),
        (torch, "compile", _eager),
        (torch.storage, "_to", memory.moved),
        (torch.UntypedStorage, "__new__", staticmethod(memory.made_storage)),
        (torch.UntypedStorage, "_share_cuda_", absent.refusing("a tensor of the device sent to another process")),
        (torch.Tensor, "pin_memory", pinned.pin),
        (torch.Tensor, "is_pinned", pinned.is_pinned),
        (torch.Tensor, "record_stream", lambda tensor, stream: None),
        (torch, "set_default_tensor_type", typed.set_default),
        (torch.Tensor, "type", typed.converted),
        (torch.cuda, "_cudart", cuda["cudart"]()),
        (torch.cuda.profiler, "cudart", cuda["cudart"]),
        (memory, "capacity", hardware.card(arch).memory_gb << 30),
    ]
    return answers + [(torch._C, name, answer) for name, answer in _of_library().items()]


def _of_library() -> dict[str, Any]:
    """Names of torch._C that only a build for a GPU has."""
    return {
        "__getattr__": absent.of_library,
        "_cuda_getCurrentRawStream": lambda device: 0,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda device: index(device) and None,
        "_cuda_exchangeDevice": index,
        "_cuda_maybeExchangeDevice": index,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_sleep": lambda cycles: None,
        "_cuda_synchronize": lambda: None,
        "_broadcast": lambda tensor, devices: [tensor.to("cuda")],
        "_scatter": lambda tensor, devices, *others: (tensor.to("cuda"),),
        "_gather": lambda tensors, *others: torch.cat(tensors),
    }


def _properties(arch: str) -> types.SimpleNamespace:
    limits, card = hardware.limits(arch), hardware.card(arch)
    return types.SimpleNamespace(
        name=card.name,
        gcnArchName=arch,
        major=capability(arch)[0],
        minor=capability(arch)[1],
        multi_processor_count=card.compute_units,
        total_memory=card.memory_gb << 30,
        warp_size=limits.wave_size,
        shared_memory_per_block=limits.lds_per_workgroup,
        shared_memory_per_multiprocessor=limits.lds_per_workgroup,
        max_threads_per_multi_processor=limits.wave_size * limits.waves_per_simd * limits.simds,
        max_threads_per_block=hardware.MAX_THREADS,
        regs_per_multiprocessor=limits.vgprs * limits.wave_size * limits.simds,
        L2_cache_size=card.l2_mib << 20,
        shared_memory_per_block_optin=limits.lds_per_workgroup,
        clock_rate=0,  # nothing here has a clock
        memory_clock_rate=0,
        memory_bus_width=0,
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        uuid=uuid.uuid5(uuid.NAMESPACE_DNS, f"{arch}.pretended"),
        is_integrated=False,
        is_multi_gpu_board=False,
    )


def _about(arch: str) -> dict[str, Any]:
    properties = _properties(arch)
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_initialized": True,  # checkpointing looks here, whether there are random numbers of the device to keep
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_is_compiled": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: Device(arch),
        "set_device": lambda device: index(device) and None,
        "get_device_name": lambda device=None: index(device) or properties.name,
        "get_device_capability": lambda device=None: index(device) or capability(arch),
        "get_device_properties": lambda device=None: index(device) or properties,
        "get_arch_list": lambda: [arch],
        "can_device_access_peer": lambda device, peer: False,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: False,
        "synchronize": lambda device=None: index(device) and None,
        "ipc_collect": lambda: None,
        "is_current_stream_capturing": lambda: False,
        "device": streams.Device,
        "device_of": lambda tensor: streams.Device(),
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": _set_sync_debug_mode,
        "cudart": _runtime,
    }


def _set_sync_debug_mode(mode: int | str) -> None:
    if mode not in (0, "default"):
        raise CannotPretend(
            f"torch.cuda.set_sync_debug_mode({mode!r}) looks for calls that wait for a real GPU; "
            "on a pretended one everything is done at once"
        )


def _runtime() -> types.SimpleNamespace:
    """torch.cuda.cudart(): the few functions of HIP's runtime that PyTorch hands on; 0 is hipSuccess."""
    done = lambda *given: 0  # noqa: E731
    names = ("cudaProfilerStart", "cudaProfilerStop", "cudaHostRegister", "cudaHostUnregister", "cudaDeviceSynchronize")
    return types.SimpleNamespace(
        **dict.fromkeys(names, done),
        cudaMemGetInfo=lambda device=None: torch.cuda.mem_get_info(device),
        cudaError=types.SimpleNamespace(success=0),
    )


def _memory(arch: str) -> dict[str, Any]:
    total = hardware.card(arch).memory_gb << 30
    in_use = lambda device=None: index(device) or memory.allocated()  # noqa: E731
    return {
        "mem_get_info": lambda device=None: index(device) or (total - memory.allocated(), total),
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), in_use),
        **dict.fromkeys(
            ("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), lambda device=None: memory.most()
        ),
        **dict.fromkeys(
            ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
            lambda device=None: memory.reset_most(),
        ),
        "empty_cache": lambda: None,
        "get_allocator_backend": lambda: "native",
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "memory_stats": lambda device=None: memory.statistics(),
        "memory_snapshot": lambda *given, **options: [],  # the CPU's allocator keeps no segments to tell of
        "host_memory_stats": lambda: defaultdict(int),
        "reset_accumulated_memory_stats": lambda device=None: None,
        "memory_summary": lambda device=None, abbreviated=False: f"{memory.allocated():,} bytes in use",
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
    }


def _random() -> dict[str, Any]:
    seeded = generators.default
    return {
        "default_generators": (seeded,),
        "_is_in_bad_fork": lambda: False,
        "manual_seed": seeded.manual_seed,
        "manual_seed_all": seeded.manual_seed,
        "seed": seeded.seed,
        "seed_all": seeded.seed,
        "initial_seed": seeded.initial_seed,
        "get_rng_state": lambda device="cuda": seeded.get_state(),
        "get_rng_state_all": lambda: [seeded.get_state()],
        "set_rng_state": lambda state, device="cuda": seeded.set_state(state.cpu()) and None,
        "set_rng_state_all": lambda states: seeded.set_state(states[0].cpu()) and None,
    }


def _streams() -> dict[str, Any]:
    return {
        "current_stream": lambda device=None: index(device) or streams.current(),
        "default_stream": lambda device=None: index(device) or streams.DEFAULT,
        "set_stream": streams.set_current,
        "stream": streams.Scope,
        "StreamContext": streams.Scope,
        "Stream": streams.Stream,
        "ExternalStream": streams.External,
        "Event": streams.Event,
    }


def _accelerator(arch: str) -> dict[str, Any]:
    of_cuda = _memory(arch)
    return {
        **{name: of_cuda[name] for name in torch.accelerator.memory.__all__ if name in of_cuda},
        "get_memory_info": of_cuda["mem_get_info"],
        "empty_host_cache": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "synchronize": lambda device=None: None,
        "current_device_index": lambda: Device(arch),
        "current_device_idx": lambda: Device(arch),
        "set_device_index": lambda device: index(device) and None,
        "set_device_idx": lambda device: index(device) and None,
        "current_stream": lambda device=None: streams.current(),
        "set_stream": streams.set_current,
    }


def _eager(model: Any = None, **options: Any) -> Any:
    """torch.compile that hands back what it was given: nothing of Inductor's is run on a pretended GPU."""
    return (lambda function: function) if model is None else model


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
