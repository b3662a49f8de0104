"""A CUDA device attached to a PyTorch that was built without one, so that its own machinery takes it for present.

Two tables of PyTorch's C++ are filled, as a backend's library would fill them when it is loaded: the guard, which sets
the current device, and the hooks, which say that the device is there. Autograd then runs the device's part of a
backward pass in a thread of its own, as on a card.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gfxlab.pretended import pinned

_CUDA, _PRIVATE = 1, 20  # numbers of c10::DeviceType
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"  # at::detail::getCUDAHooks()
_ANSWERS = range(2, 6)  # of at::AcceleratorHooksInterface: isBuilt, isAvailable, hasPrimaryContext, init
_PINNED = 12  # its getPinnedMemoryAllocator
_METHODS = 96  # as many of its methods are copied: more than it has

_kept: list[object] = []  # what C++ points to must live as long as the process


class CannotPretend(RuntimeError):
    """What a pretended GPU cannot do, in one sentence."""


def index(device: Any) -> int:
    """The number of a device.

    Raises:
        RuntimeError: there is none of this number; a card says the same.
    """
    number = device if isinstance(device, int) else 0 if device is None else (torch.device(device).index or 0)
    if number > 0:
        raise RuntimeError(f"HIP error: invalid device ordinal: {device}; the pretended machine has one GPU, cuda:0")
    return 0


def install() -> None:
    """Put the guard in its place, for the rest of the process; a second call does nothing.

    Raises:
        CannotPretend: this PyTorch has a guard of its own, or none of these tables.
    """
    if _kept:
        return
    try:
        guards = (ctypes.c_void_p * (_PRIVATE + 1)).in_dll(_library("libc10.so"), _GUARDS)
        hooks = getattr(_library("libtorch_cpu.so"), _HOOKS)
        register, base = torch._C._acc.register_python_privateuseone_device_guard, torch._C._acc.DeviceGuard
    except (OSError, ValueError, AttributeError) as missing:
        raise CannotPretend(
            f"PyTorch {torch.__version__} does not let a device be attached ({missing}); take PyTorch 2.13"
        ) from None
    if guards[_CUDA]:
        raise CannotPretend(
            f"PyTorch {torch.__version__} is built for a real GPU; to pretend one, install PyTorch's CPU build: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )

    class Guard(base):
        def type_(self):
            return torch._C._autograd.DeviceType.CUDA

    guard, before = Guard(), guards[_PRIVATE]
    register(guard)
    guards[_CUDA], guards[_PRIVATE] = guards[_PRIVATE], before
    hooks.restype = ctypes.c_void_p
    methods = ctypes.c_void_p.from_address(hooks())
    getter = pinned.allocator_getter(_library("libc10.so"))
    changed = _changed(methods.value)
    changed[_PINNED] = ctypes.cast(getter, ctypes.c_void_p).value
    _kept.extend((guard, methods, changed, getter))


def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))


def _changed(methods: int) -> ctypes.Array:
    """The methods of the hooks, those that say whether there is a device exchanged for one that says yes."""
    yes = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value  # 1, whatever it is given
    copied = (ctypes.c_void_p * _METHODS).from_buffer_copy((ctypes.c_void_p * _METHODS).from_address(methods))
    for number in _ANSWERS:
        copied[number] = yes
    return copied


@contextlib.contextmanager
def attached() -> Iterator[None]:
    """Inside the block PyTorch's accelerator is the CUDA device.

    Raises:
        CannotPretend: this PyTorch does not let one be attached.
    """
    install()
    _, methods, changed, _ = _kept
    before = methods.value
    methods.value = ctypes.addressof(changed)
    try:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or accelerator.type != "cuda":
            raise CannotPretend(f"PyTorch {torch.__version__} does not take the attached device for its own")
        yield
    finally:
        methods.value = before
