"""Memory that notices: every tensor sits between two margins of poison, and fresh memory holds poison too.

Poison is NaN for floating-point types and a large number for integers, so reading beside a tensor, or returning an
element that was never written, shows in the result.  The margins also show a write beside a tensor (on a GPU, where no
interpreter watches).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from gfxlab import transport
from gfxlab.strides import Strided

MARGIN = 1 << 18  # elements on either side: a stray store must not reach the next tensor
_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_POISON = {
    torch.float64: 0x7FF8_DEAD_0000_0001,
    torch.float32: 0x7FC0_DEAD,
    torch.float16: 0x7EAD,
    torch.bfloat16: 0x7FED,
    torch.float8_e4m3fn: 0x7F,
    torch.float8_e5m2: 0x7E,
    torch.float8_e4m3fnuz: 0x80,
    torch.float8_e5m2fnuz: 0x80,
    torch.int64: 0x7ABA_DBAD_BADB_ADBA,
    torch.int32: 0x7ABA_DBAD,
    torch.int16: 0x7ABA,
    torch.int8: 0x7A,
    torch.uint8: 0xBA,
    torch.bool: 1,
}
_UNFILLED = (torch.empty, torch.empty_like, torch.empty_strided)
_UNFILLED += (torch.Tensor.new_empty, torch.Tensor.new_empty_strided)
_FILLED = (torch.zeros, torch.zeros_like, torch.ones, torch.ones_like, torch.full, torch.full_like)
_FILLED += (torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full)


@dataclass(frozen=True)
class Guarded:
    """A tensor and the larger flat buffer, margins included, that it lies in."""

    tensor: torch.Tensor
    buffer: torch.Tensor

    def damage(self) -> list[int]:
        """Elements outside the tensor's span that were overwritten: negative before its start, else past its end."""
        bits = _INTEGER[self.buffer.element_size()]
        changed = self.buffer.view(bits) != _poison_bits(self.buffer.dtype)
        changed[MARGIN : self.buffer.numel() - MARGIN] = False
        length = self.buffer.numel() - 2 * MARGIN
        offsets = (changed.nonzero().flatten() - MARGIN).tolist()
        return [offset if offset < 0 else offset - length for offset in offsets]


def is_poison(held: np.ndarray, dtype: torch.dtype) -> bool:
    """Whether one of these, as unsigned integers, is the poison of a dtype of two bytes or more; one byte may be so
    by chance."""
    return held.itemsize > 1 and bool((held == _poison_bits(dtype)).any())


def _poison_bits(dtype: torch.dtype) -> int:
    return _POISON.get(dtype, 0x7A)


def poisoned(length: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
    """A flat tensor of poison."""
    itemsize = torch.empty(0, dtype=dtype).element_size()
    return torch.full((length,), _poison_bits(dtype), dtype=_INTEGER[itemsize], device=device).view(dtype)


def place(tensor: torch.Tensor, *, device: torch.device | str | None = None, fill: bool = True) -> Guarded:
    """Put a copy of `tensor`, strides kept, between margins; gaps between its rows are poison as well.

    With `fill=False` its own elements stay poison: what `torch.empty` ought to return.
    """
    device = tensor.device if device is None else device
    length = Strided.of(tensor).span
    buffer = poisoned(length + 2 * MARGIN, tensor.dtype, device)
    inner = buffer[MARGIN : MARGIN + length]
    if fill:
        view = transport.with_strides(tensor.detach(), tensor.stride(), inner)
    else:
        view = inner.as_strided(tensor.shape, tensor.stride())
    return Guarded(view.requires_grad_(tensor.requires_grad), buffer)


def place_again(tensor: torch.Tensor, before: Guarded) -> Guarded | None:
    """Put `tensor` where another one lay, margins and all; None where it has another form.

    Whoever kept a result by the address of its input has that address again, with other numbers.
    """
    old = before.tensor
    if tensor.requires_grad or old.requires_grad or tensor.device != old.device:
        return None
    if (tensor.dtype, tensor.shape, tensor.stride()) != (old.dtype, old.shape, old.stride()):
        return None
    before.buffer.view(_INTEGER[before.buffer.element_size()]).fill_(_poison_bits(before.buffer.dtype))
    inner = before.buffer[MARGIN : before.buffer.numel() - MARGIN]
    return Guarded(transport.with_strides(tensor.detach(), tensor.stride(), inner), before.buffer)


class Allocations(TorchFunctionMode):
    """While active, `torch.empty`, `zeros_like`, `x.new_full` and their kin return guarded tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Guarded] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func not in _UNFILLED + _FILLED or not self._guardable(result, kwargs or {}):
            return result
        guarded = place(result, fill=func in _FILLED)
        self.made.append(guarded)
        return guarded.tensor

    @staticmethod
    def _guardable(result, kwargs: dict) -> bool:
        plain = type(result) is torch.Tensor and result.layout is torch.strided and result.dtype in _POISON
        return plain and result.numel() > 0 and kwargs.get("out") is None and result.device.type != "meta"
