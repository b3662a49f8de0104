"""Random numbers of the device: a stream of their own, drawn by the CPU's generator.

A generator's state is a seed and an offset, 16 bytes, as on a card: libraries of kernels read them, and draw by
themselves from where PyTorch has come to. A seed gives the same numbers in every run, but not a card's: there they come
from Philox.
"""

from __future__ import annotations

import contextlib
import struct
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gfxlab.pretended.attaching import index

_stock = torch.Generator
_STEP = 4  # each draw takes this much of the offset, whatever its size; Philox gives numbers by fours
_BITS = (1 << 64) - 1


@dataclass
class _Place:
    """Where a generator has come to."""

    seed: int = 67280421310721  # PyTorch's default
    offset: int = 0

    def draw(self) -> int:
        """A seed for the CPU's generator, another one for each draw (splitmix64); it takes 32 bits of it."""
        mixed = (self.seed + (self.offset // _STEP + 1) * 0x9E3779B97F4A7C15) & _BITS
        self.offset += _STEP
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS
        return (mixed ^ (mixed >> 31)) & 0xFFFFFFFF


_made: dict[int, _Place] = {}  # PyTorch hands a generator on as an object of its own class; its address stays


class _Kind(type(_stock)):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _stock)


class Generator(_stock, metaclass=_Kind):
    """torch.Generator, which takes device="cuda" as well."""

    def __new__(cls, device: Any = "cpu"):
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if device.type != "cuda":
            return _stock(device)
        made = super().__new__(cls)
        made._device = torch.device("cuda", index(device))
        made._place = _made[made._cdata] = _Place()
        weakref.finalize(made, _made.pop, made._cdata)  # the next generator at this address may be the CPU's
        return made

    def __init__(self, device: Any = "cpu"): ...

    @property
    def device(self) -> torch.device:
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Begin anew; negative seeds count from 2^64, as ever."""
        super().manual_seed(seed)  # PyTorch refuses what is none
        self._place.seed, self._place.offset = int(seed) & _BITS, 0
        return self

    def seed(self) -> int:
        """Begin anew with a seed that nobody chose."""
        self.manual_seed(super().seed())
        return self._place.seed

    def initial_seed(self) -> int:
        return self._place.seed

    def get_offset(self) -> int:
        return self._place.offset

    def set_offset(self, offset: int) -> None:
        """Go there.

        Raises:
            RuntimeError: it is no multiple of four.
        """
        if offset % _STEP:
            raise RuntimeError(f"offset must be a multiple of 4, not {offset}")
        self._place.offset = int(offset)

    def get_state(self) -> torch.Tensor:
        """uint8 [16] on the CPU: seed and offset."""
        state = struct.pack("=QQ", self._place.seed, self._place.offset)
        return torch.frombuffer(bytearray(state), dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> Generator:
        """What `get_state` gave.

        Raises:
            RuntimeError: it has another size, such as the state of a CPU's generator.
        """
        if state.numel() * state.itemsize != 16:
            raise RuntimeError(f"RNG state is wrong size: {state.numel()} bytes, not 16")
        content = state.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        self._place.seed, self._place.offset = struct.unpack("=QQ", content)
        return self

    def clone_state(self) -> Generator:
        """Another generator, which goes on from here by itself."""
        return type(self)(self._device).set_state(self.get_state())


default = Generator("cuda")


@contextlib.contextmanager
def drawing(op: Any, given: Any) -> Iterator[None]:
    """Inside the block the CPU's generator draws the device's numbers; given: the generator that was named, or None.

    Raises:
        RuntimeError: the generator is the CPU's; a card says the same.
    """
    if given is not None:
        if given._cdata not in _made:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        _stock.manual_seed(given, _made[given._cdata].draw())
        yield
        return
    if torch.Tag.nondeterministic_seeded not in op.tags:
        yield
        return
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(default._place.draw())
    try:
        yield
    finally:
        torch.set_rng_state(before)
