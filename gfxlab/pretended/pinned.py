"""Pinned memory of the CPU, which a card's kernels may be given: what `pin_memory` copies, and what factories pin.

A factory's pin_memory=True asks C++ for an allocator of pinned memory. The one here allocates as the CPU's does, and
notes the address.
"""

from __future__ import annotations

import ctypes

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_CPU_ALLOCATOR = "_ZN3c1015GetCPUAllocatorEv"  # c10::GetCPUAllocator()
_ALLOCATE, _METHODS = 2, 6  # of c10::Allocator: the place of allocate(size) in its table, and how many there are
_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Getter = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

_copied: dict[int, StorageWeakRef] = {}
_made: dict[int, int] = {}  # address -> bytes


def pin(tensor: torch.Tensor, device: object = None) -> torch.Tensor:
    """A copy of a CPU tensor that counts as pinned."""
    if tensor.is_cuda:
        raise RuntimeError(
            f"cannot pin 'torch.cuda.{tensor.type().rpartition('.')[2]}' only dense CPU tensors can be pinned"
        )
    copy = tensor.clone()
    _copied[copy.untyped_storage()._cdata] = StorageWeakRef(copy.untyped_storage())
    return copy


def is_pinned(tensor: torch.Tensor, device: object = None) -> bool:
    """Whether `pin` or a factory's pin_memory=True made its storage."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return False
    storage = tensor.untyped_storage()
    reference = _copied.get(storage._cdata)
    if reference is not None and not reference.expired():
        return True
    return bool(storage.nbytes()) and _made.get(storage.data_ptr(), 0) == storage.nbytes()


def allocator_getter(library: ctypes.CDLL) -> object:
    """A function for C++ that gives an allocator of pinned memory; keep it as long as the process lives."""
    stock = getattr(library, _CPU_ALLOCATOR)
    stock.restype = ctypes.c_void_p
    before = stock()
    methods = (ctypes.c_void_p * _METHODS).from_address(ctypes.c_void_p.from_address(before).value)
    allocate = _Allocate(methods[_ALLOCATE])

    def noted(result: int, allocator: int, size: int) -> int:
        allocate(result, before, size)
        _made[ctypes.c_void_p.from_address(result).value or 0] = size  # c10::DataPtr begins with the address
        return result

    copied = (ctypes.c_void_p * _METHODS)(*methods)
    entry = _Allocate(noted)
    copied[_ALLOCATE] = ctypes.cast(entry, ctypes.c_void_p).value
    ours = (ctypes.c_void_p * 1)(ctypes.addressof(copied))
    getter = _Getter(lambda hooks: ctypes.addressof(ours))
    getter.kept = (entry, copied, ours, methods)
    return getter
