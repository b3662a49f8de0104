"""Tensors that are on "cuda:0" for PyTorch and lie in the CPU's memory.

They are genuine: PyTorch itself says `is_cuda`, keeps views and their base, refuses `.numpy()`, copies between devices.
A CPU tensor's bytes are handed over by DLPack with the device's number exchanged; views of them share PyTorch's
storage.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import defaultdict

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gfxlab.pretended.attaching import CannotPretend
from gfxlab.units import format_bytes

_DLPACK_CUDA = 2  # DLDeviceType

_hosts: dict[int, StorageWeakRef] = {}  # address of a storage on the device -> the CPU's storage that holds its bytes
_prune_at = 1024


def lend(result: torch.Tensor) -> torch.Tensor:
    """A tensor on the device with the bytes, dtype and strides of a CPU tensor whose storage nobody else uses."""
    dense(result)
    result = result.resolve_conj().resolve_neg()  # bits of the tensor, which its bytes know nothing of
    storage = result.untyped_storage()
    whole = _handed_over(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage))
    if storage.nbytes():
        _remember(storage)
        taken(storage.nbytes())
    return _shaped(whole, result)


def dense(result: torch.Tensor) -> None:
    """Raises CannotPretend for a sparse or nested tensor, which has no storage to lend."""
    if result.layout != torch.strided or result.is_nested:
        raise CannotPretend(f"a tensor of layout {result.layout} cannot be pretended, only dense ones")


def alias(source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """A view of a device tensor's storage with the dtype, sizes and strides of `result`, which lies on the CPU."""
    with torch._C._AutoDispatchBelowAutograd():
        return _shaped(torch.ops.aten.alias(source), result)


def host(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the same bytes as a tensor on the device."""
    return _over(host_storage(tensor.untyped_storage()), tensor)


def _over(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over this storage, as `like` lies in its own: conjugated or negated where that is."""
    made = torch.empty(0, dtype=like.dtype, device="cpu").set_(
        storage, like.storage_offset(), like.size(), like.stride()
    )
    if like.is_conj():
        made = torch._conj(made)
    return torch._neg_view(made) if like.is_neg() else made


def host_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The CPU's storage under one of the device."""
    return _host_storage(storage.data_ptr()) if storage.nbytes() else torch.UntypedStorage(0)


def moved(storage: torch.UntypedStorage, device: torch.device, non_blocking: bool = False) -> torch.UntypedStorage:
    """A storage on another device, as `torch.load` asks for it; itself if it is there already."""
    device = torch.device(device)
    if storage.device.type == device.type:
        return storage
    if "cuda" not in (storage.device.type, device.type):
        return torch._utils._to(storage, device, non_blocking)
    content = (
        torch.empty(0, dtype=torch.uint8, device="cpu")
        .set_(host_storage(storage) if storage.is_cuda else storage)
        .clone()
    )
    return (lend(content) if device.type == "cuda" else content).untyped_storage()


def made_storage(kind: type, *args: object, device: object = None, **options: object) -> torch.UntypedStorage:
    """torch.UntypedStorage(...), also on the device: what copying, pickling and loading of tensors ask for."""
    if device is None or torch.device(device).type != "cuda":
        options |= {} if device is None else {"device": device}
        return _new_storage(kind, *args, **options)
    return lend(torch.empty(0, dtype=torch.uint8, device="cpu").set_(_new_storage(kind, *args))).untyped_storage()


_new_storage = torch.UntypedStorage.__new__


def fixed_host(tensor: torch.Tensor) -> torch.Tensor:
    """As `host`, but PyTorch refuses to make the storage larger: the device's tensor would not follow."""
    storage = tensor.untyped_storage()
    bytes_ = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
    return _over(bytes_, tensor)


def storage_at(address: int) -> torch.UntypedStorage | None:
    """The CPU's storage under the device tensor that has this address, or None."""
    found = _host_storage(address, default=None)
    if found is not None:
        return found
    for start in list(_hosts):
        storage = _host_storage(start, default=None) if start <= address else None
        if storage is not None and address < start + storage.nbytes():
            return storage
    return None


def around(address: int) -> tuple[int, np.ndarray] | None:
    """The first address and the bytes of the storage that has this address, as the simulator asks for it."""
    storage = storage_at(address)
    if storage is None:
        return None
    return storage.data_ptr(), torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()


_MISSING = object()


def _host_storage(address: int, default=_MISSING):
    reference = _hosts.get(address)
    storage = None if reference is None else torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    if storage is None and default is _MISSING:
        raise CannotPretend(f"a tensor on the device lies at {address:#x}, where gfxlab put none")
    return default if storage is None else storage


def _remember(storage: torch.UntypedStorage) -> None:
    global _prune_at
    _hosts[storage.data_ptr()] = StorageWeakRef(storage)
    _raw.pop(storage.data_ptr(), None)  # another storage may have been there
    if len(_hosts) > _prune_at:
        for address in [address for address, reference in list(_hosts.items()) if reference.expired()]:
            _hosts.pop(address, None)
        _prune_at = max(1024, 2 * len(_hosts))


def _handed_over(content: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor on the device: DLPack's capsule says another device."""
    capsule = torch._C._to_dlpack(content)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    device = pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)  # behind DLTensor.data
    ctypes.c_int32.from_address(device).value = _DLPACK_CUDA
    with _initialised():
        return torch._C._from_dlpack(capsule)


@contextlib.contextmanager
def _initialised():
    """Leftover tensors live on when the pretence ends, where PyTorch would say that it has no CUDA."""
    stock = torch.cuda._lazy_init
    torch.cuda._lazy_init = lambda: None
    try:
        yield
    finally:
        torch.cuda._lazy_init = stock


def _shaped(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        if tensor.dtype != like.dtype:
            tensor = torch.ops.aten.view.dtype(torch.ops.aten.as_strided_(tensor, [0], [1], 0), like.dtype)
        return torch.ops.aten.as_strided_(tensor, like.size(), like.stride(), like.storage_offset())


# ---- what nobody has written -----------------------------------------------------------------------------------------

_MOST_RAW = 1 << 26  # bytes of a storage of which is remembered what was written; of a larger one, that something was
_MOST_FILLED = 1 << 22  # the same for what PyTorch's operations wrote, which are many
_raw: dict[int, np.ndarray | None] = {}  # address of a storage that torch.empty made -> bytes written; None: none was


def made_empty(tensor: torch.Tensor) -> None:
    """A device tensor whose content is undefined."""
    _raw[tensor.untyped_storage().data_ptr()] = None


def written(tensor: torch.Tensor) -> None:
    """Something was written to a tensor, on the device or under it: the whole storage counts as written."""
    _raw.pop(tensor.untyped_storage().data_ptr(), None)


def filled(tensor: torch.Tensor) -> None:
    """These elements were written by an operation of PyTorch's; of a large storage everything counts as written."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in _raw:
        return
    known = _raw[storage.data_ptr()]
    if tensor.nbytes >= storage.nbytes() or storage.nbytes() > _MOST_FILLED:
        written(tensor)
        return
    known = np.zeros(storage.nbytes(), bool) if known is None else known
    strides = [stride * tensor.itemsize for stride in tensor.stride()]
    start = tensor.storage_offset() * tensor.itemsize
    torch.from_numpy(known).as_strided((*tensor.size(), tensor.itemsize), (*strides, 1), start).fill_(True)
    _raw[storage.data_ptr()] = known
    if known.all():
        written(tensor)


def is_raw(tensor: torch.Tensor) -> bool:
    """Whether there are bytes in the tensor's storage that nothing has written since torch.empty made it."""
    return tensor.untyped_storage().data_ptr() in _raw


def written_bytes(tensor: torch.Tensor) -> np.ndarray:
    """bool [bytes from the tensor's first to its last]: what was written of a raw tensor."""
    known = _raw[tensor.untyped_storage().data_ptr()]
    start, stop = _extent(tensor)
    return np.zeros(stop - start, bool) if known is None else known[start:stop]


def wrote(tensor: torch.Tensor, now: np.ndarray) -> None:
    """These bytes of a raw tensor are written, as `written_bytes` counts them."""
    storage = tensor.untyped_storage()
    if storage.nbytes() > _MOST_RAW:
        written(tensor)
        return
    known = _raw.get(storage.data_ptr())
    known = np.zeros(storage.nbytes(), bool) if known is None else known
    start, stop = _extent(tensor)
    known[start:stop] |= now
    _raw[storage.data_ptr()] = known
    if known.all():
        written(tensor)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    start = tensor.storage_offset() * tensor.itemsize
    return start, start + ((last + 1) * tensor.itemsize if tensor.numel() else 0)


# ---- how much is in use ----------------------------------------------------------------------------------------------

_FEW = 512  # storages: among more the peak is found to a 64th, for counting takes time
_most = _bound = 0  # the peak; no more than this is in use now
capacity = 1 << 62  # bytes of the card that is pretended


def allocated() -> int:
    """Bytes of the device's storages that live."""
    global _most, _bound
    sizes = [found.nbytes() for start in list(_hosts) if (found := _host_storage(start, default=None)) is not None]
    _bound = sum(sizes)
    _most = max(_most, _bound)
    return _bound


def most() -> int:
    """The most bytes that were in use at a time."""
    allocated()
    return _most


def taken(more: int) -> None:
    """So many bytes were lent.

    Raises:
        torch.OutOfMemoryError: more than the card has.
    """
    global _bound
    _bound += more
    if _bound > _most + (_most >> 6 if len(_hosts) > _FEW else 0) or _bound > capacity:
        allocated()
    if _bound > capacity:
        raise no_room(more)


def no_room(more: int | str) -> torch.OutOfMemoryError:
    """What a card says when it is full, or when this machine has less than a card."""
    asked = format_bytes(more) if isinstance(more, int) else more
    card = f"the pretended GPU has {format_bytes(capacity)}, of which {format_bytes(allocated())} are in use"
    return torch.OutOfMemoryError(f"HIP out of memory. Tried to allocate {asked}: {card}; its memory is this machine's")


def reset_most() -> None:
    """Begin again with what is in use now."""
    global _most
    _most = 0
    allocated()


def statistics() -> dict[str, int]:
    """As torch.cuda.memory_stats; what nobody counts here is 0."""
    found = {"allocated": allocated(), "peak": most()}
    kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
    stats = {f"{kind}.{pool}.current": found["allocated"] for kind in kinds for pool in ("all", "large_pool")}
    stats |= {f"{kind}.{pool}.peak": found["peak"] for kind in kinds for pool in ("all", "large_pool")}
    return defaultdict(int, stats)
