"""Tensors in which an offset needs 64 bits; memory is only taken where it is touched.

Either their rows lie far apart, or they are the end of a dense tensor with very many rows.  The second sort is an
ordinary small tensor with a mark: what an answer gets in its place is made in the answer's own process, and what comes
back are its last rows.  Whoever does not look at the mark sees a small case, which is as right.
"""

from __future__ import annotations

import math
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


def at_the_end(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """`tensor` itself, marked: an answer gets a dense tensor that has `rows` more rows before these."""
    tensor.rows_before = rows
    return tensor


def counted_from(indices: torch.Tensor, first: int) -> torch.Tensor:
    """`indices` itself, marked: an answer gets each number that is not negative `first` larger."""
    indices.first_number = first
    return indices


def marks(tensor: torch.Tensor) -> tuple[int, int]:
    """(rows before the first, number of the first index) of a marked tensor; 0 where it has no such mark."""
    return getattr(tensor, "rows_before", 0), getattr(tensor, "first_number", 0)


def marked(tensor: torch.Tensor, rows: int, first: int) -> torch.Tensor:
    """`tensor` itself with both marks."""
    return counted_from(at_the_end(tensor, rows), first)


def as_given(tensor: torch.Tensor) -> torch.Tensor:
    """What an answer gets in place of a marked tensor: all rows of it, or larger numbers.

    In front of all rows lies memory that belongs to nobody: an offset that wraps around must meet no other tensor, and
    come nearer to none.
    """
    rows, first = marks(tensor)
    if not rows:
        return torch.where(tensor < 0, tensor, tensor + first)
    shape = (rows + tensor.shape[0], *tensor.shape[1:])
    nbytes = math.prod(shape) * tensor.element_size()
    whole = torch.frombuffer(untouched(4 * nbytes), dtype=tensor.dtype, offset=3 * nbytes).view(shape)
    whole[rows:] = tensor
    return whole


def is_spread(tensor: torch.Tensor) -> bool:
    """Whether nearly all of the memory from the first element to the last belongs to no element."""
    return Strided.of(tensor).span > 64 * max(tensor.numel(), 1024)


def is_far(tensor: torch.Tensor) -> bool:
    """Whether an answer needs 64 bits for offsets into it: a case of its own kind, whose numbers say little else."""
    return is_spread(tensor) or any(marks(tensor))
