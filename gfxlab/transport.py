"""Values between two processes that do not trust each other: JSON for the structure, `.npy` files for the arrays.

Nothing is ever unpickled.  PyTorch types that numpy does not know (bfloat16, fp8) travel as raw bits.  `load` believes
nothing that a file says about itself: types come from a list, sizes are checked before memory is taken, and links are
refused.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from gfxlab.strides import Strided

_STRUCTURE = "value.json"
_MAX_JSON = 64 << 20
_TORCH = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype) and not value.is_complex and "bits" not in str(value) and "q" not in str(value)
}
_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_BITS = {1: torch.uint8, 2: torch.int16}


class TransportError(ValueError):
    """A stored value is missing, garbled or larger than allowed."""


def save(value: Any, folder: Path) -> None:
    """Write `value` to a new folder, which appears in one step: a reader never sees half a value.

    `value` is made of dicts, lists, tuples, numbers, strings, None, torch dtypes, numpy arrays and tensors.

    Raises:
        TypeError: something in `value` is of another type.
    """
    aside = folder.with_name(folder.name + ".writing")
    aside.mkdir()
    arrays: list[np.ndarray] = []
    (aside / _STRUCTURE).write_text(json.dumps(_pack(value, arrays)))
    for number, array in enumerate(arrays):
        np.save(aside / f"{number}.npy", array, allow_pickle=False)
    aside.rename(folder)


def load(folder: Path, *, limit: int = 1 << 30) -> Any:
    """Read what `save` wrote, at most `limit` bytes of it.

    Raises:
        TransportError: the value is missing, garbled or too large.
    """
    try:
        path = folder / _STRUCTURE
        _regular_file(path, _MAX_JSON)
        budget = [limit]
        return _unpack(json.loads(path.read_text()), lambda number: _stored_array(folder / f"{number}.npy", budget))
    except TransportError:
        raise
    except Exception as error:  # numpy and json raise many kinds on garbage
        raise TransportError(f"{folder.name} cannot be read: {type(error).__name__}: {error}") from None


def to_bytes(value: Any) -> bytes:
    """`value` as one string of bytes, for a pipe: the length of the structure, the structure, the arrays.

    Raises:
        TypeError: something in `value` is of another type than `save` takes.
    """
    arrays: list[np.ndarray] = []
    structure = _pack(value, arrays)
    blobs = []
    for array in arrays:
        blob = io.BytesIO()
        np.save(blob, array, allow_pickle=False)
        blobs.append(blob.getvalue())
    head = json.dumps([structure, [len(blob) for blob in blobs]]).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *blobs])


def from_bytes(data: bytes, *, limit: int = _MAX_JSON) -> Any:
    """What `to_bytes` made; no file is touched, whatever the bytes say.

    limit: bytes of structure that are read; the arrays are as large as the bytes that are there.

    Raises:
        TransportError: the bytes are garbled, or the structure is too large.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        if not 0 < length <= min(limit, len(data) - 8):
            raise TransportError(f"a structure of {length} bytes is announced, in {len(data)} bytes")
        structure, sizes = json.loads(data[8 : 8 + length])
        return _unpack(structure, _arrays_in(data, 8 + length, sizes))
    except TransportError:
        raise
    except Exception as error:  # numpy and json raise many kinds on garbage
        raise TransportError(f"the bytes cannot be read: {type(error).__name__}: {error}") from None


def _arrays_in(data: bytes, start: int, sizes: list[int]) -> Callable[[int], np.ndarray]:
    places = [start]
    for size in sizes:
        if type(size) is not int or size < 0 or places[-1] + size > len(data):
            raise TransportError(f"an array of {size} bytes is announced, which are not there")
        places.append(places[-1] + size)

    def array(number: int) -> np.ndarray:
        if not 0 <= number < len(sizes):
            raise TransportError(f"there is no array {number}")
        blob = data[places[number] : places[number + 1]]
        return _array(io.BytesIO(blob), len(blob), f"array {number}")

    return array


def _pack(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        arrays.append(_raw(value))
        return {"$array": len(arrays) - 1, "dtype": dtype, "shape": list(value.shape), "stride": list(value.stride())}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, torch.dtype):
        return {"$dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple):
        return {"$tuple": [_pack(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_pack(item, arrays) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _pack(item, arrays) for key, item in value.items()}
    raise TypeError(f"cannot send a {type(value).__name__} between processes")


def _raw(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu().contiguous()
    try:
        return tensor.numpy()
    except TypeError:  # a type that numpy does not have
        return tensor.view(_BITS[tensor.element_size()]).numpy()


def _unpack(value: Any, array: Callable[[int], np.ndarray]) -> Any:
    """array: gives the array with this number."""
    if isinstance(value, list):
        return [_unpack(item, array) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tuple" in value:
        return tuple(_unpack(item, array) for item in value["$tuple"])
    if "$dtype" in value:
        return _TORCH[value["$dtype"]]
    if "$array" in value:
        found = array(int(value["$array"]))
        return _tensor(found, value) if "dtype" in value else found
    return {key: _unpack(item, array) for key, item in value.items()}


def _regular_file(path: Path, limit: int) -> int:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise TransportError(f"{path.name} is not a plain file")
    if status.st_size > limit:
        raise TransportError(f"{path.name} has {status.st_size} bytes, more than the {limit} allowed")
    return status.st_size


def _stored_array(path: Path, budget: list[int]) -> np.ndarray:
    size = _regular_file(path, budget[0])
    budget[0] -= size
    with open(path, "rb") as file:
        return _array(file, size, path.name)


def _array(file: BinaryIO, size: int, name: str) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    shape, _, dtype = _HEADER[version](file)
    if dtype.hasobject or file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise TransportError(f"{name} does not hold the array that it announces")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _tensor(array: np.ndarray, about: dict[str, Any]) -> torch.Tensor:
    dtype, shape, stride = _TORCH[about["dtype"]], tuple(about["shape"]), tuple(about["stride"])
    tensor = torch.from_numpy(np.require(array, requirements="W"))
    tensor = tensor if tensor.dtype == dtype else tensor.view(dtype)
    if tensor.shape != shape:
        raise TransportError(f"an array of shape {tuple(tensor.shape)} was announced as {shape}")
    return tensor if tensor.stride() == stride else with_strides(tensor, stride)


def takes(dtype: torch.dtype) -> bool:
    """Whether tensors of this dtype can be sent."""
    return dtype in _TORCH.values()


def with_strides(tensor: torch.Tensor, stride: tuple[int, ...], storage: torch.Tensor | None = None) -> torch.Tensor:
    """A copy of `tensor` with these strides (0 for an expanded dimension), in `storage` where it is given.

    Raises:
        TransportError: the strides need more than 64 times the tensor's own memory, or one is negative.
    """
    shape = tuple(tensor.shape)
    needed = Strided(shape, stride).span if all(isinstance(step, int) and step >= 0 for step in stride) else -1
    if not 0 <= needed <= 64 * max(tensor.numel(), 1024):
        raise TransportError(f"strides {stride} do not fit a tensor of shape {shape}")
    if storage is None:
        storage = torch.zeros(needed, dtype=tensor.dtype)
    once = tuple(slice(0, 1) if step == 0 and n > 1 else slice(None) for n, step in zip(shape, stride, strict=True))
    result = storage.as_strided(shape, stride)
    result[once].copy_(tensor[once])
    return result
