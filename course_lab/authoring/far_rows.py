"""Tensors whose rows lie so far apart that an offset needs 64 bits; memory is only taken where it is touched."""

from __future__ import annotations

import mmap

import torch

from gfxlab.strides import Strided

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on; the number is Linux's


def untouched(nbytes: int) -> mmap.mmap:
    """So many bytes of zeros, none of which is there before it is read or written.

    The mapping is shared, so that it counts against no limit on data before it is touched.
    """
    return mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NO_RESERVE)


def spread(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """A copy of `tensor` with these strides (elements), however large.

    Raises:
        ValueError: not one stride, from 0 on, for each dimension.
    """
    if len(stride) != tensor.dim() or any(step < 0 for step in stride):
        raise ValueError(f"strides must be {tensor.dim()} numbers from 0 on, got {stride}")
    length = Strided(tuple(tensor.shape), tuple(stride)).span
    memory = torch.frombuffer(untouched(length * tensor.element_size()), dtype=tensor.dtype)
    return memory.as_strided(tuple(tensor.shape), tuple(stride)).copy_(tensor)


def is_spread(tensor: torch.Tensor) -> bool:
    """Whether nearly all of the memory from the first element to the last belongs to no element."""
    return Strided.of(tensor).span > 64 * max(tensor.numel(), 1024)
