"""What a launch is given, as the simulator takes it: tensors of the device become the CPU's over the same bytes."""

from __future__ import annotations

from typing import Any

import torch

from gfxlab.bound import Value
from gfxlab.pretended import memory, pinned


def on_host(values: list[Value]) -> list[Value]:
    """The values of a launch, its pointers resolved to memory of this process.

    Raises:
        ValueError: a tensor is not on the device, or no tensor lies at an address.
    """
    return [Value(v.name, v.kind, _memory(v, i)) if v.kind[0] == "*" else v for i, v in enumerate(values)]


def _memory(value: Value, place: int) -> torch.Tensor | None:
    content: Any = value.content
    if content is None:
        return None
    if isinstance(content, torch.Tensor):
        if content.is_cuda:
            return memory.host(content.detach())
        if pinned.is_pinned(content) or not content.numel():
            return content
        raise ValueError(
            f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?): {value.name} is on "
            f"{content.device}; move it to the GPU, {value.name}.cuda()"
        )
    address = content if isinstance(content, int) else int(content.data_ptr())
    return _at(address, value.name) if address else None


def _at(address: int, name: str) -> torch.Tensor:
    """The bytes from an address to the end of the storage that it lies in."""
    storage = memory.storage_at(address)
    if storage is None:
        raise ValueError(f"{name} is the address {address:#x}, where no tensor of the GPU lies")
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)[address - storage.data_ptr() :]
