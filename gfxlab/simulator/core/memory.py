"""Memory: bytes behind addresses, read and written by all lanes at once.

Global memory is made of *regions*, one for each storage that the launch's tensors use, far apart so that an address
tells its region (`address >> 40`).  A tensor may start anywhere in its storage; only bytes that belong to a tensor of
the launch may be touched.  LDS and private (scratch) memory are flat arrays cut into equal pieces, one a workgroup or
one a lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from gfxlab.simulator.core.numbers import U8, U16, U32
from gfxlab.simulator.core.state import POISON
from gfxlab.strides import Strided

_REGION_BITS = 40
ARGUMENTS = "the kernel's arguments"


class Bytes:
    """A byte array with views of 2 and 4 bytes, gathered from and scattered to."""

    def __init__(self, data: np.ndarray):
        self.u8 = data
        self.u16 = data[: data.size & ~1].view(U16)
        self.u32 = data[: data.size & ~3].view(U32)

    def gather(self, offset: np.ndarray, width: int) -> list[np.ndarray]:
        """Read `width` bytes at each offset: one uint32 array a word of 4 bytes; narrower ones are not extended."""
        unit = min(width, 4)
        view = {1: self.u8, 2: self.u16, 4: self.u32}[unit]
        if unit > 1 and (offset & (unit - 1)).any():
            return self._gather_unaligned(offset, width)
        index = offset >> (unit.bit_length() - 1)
        return [view[index + word].astype(U32, copy=False) for word in range(max(1, width // 4))]

    def _gather_unaligned(self, offset: np.ndarray, width: int) -> list[np.ndarray]:
        words = []
        for start in range(0, width, 4):
            word = np.zeros(offset.shape, U32)
            for place in range(min(4, width - start)):
                word |= self.u8[offset + start + place].astype(U32) << U32(8 * place)
            words.append(word)
        return words

    def scatter(self, offset: np.ndarray, words: list[np.ndarray], width: int) -> None:
        """Write `width` bytes at each offset (one-dimensional); the last of several at one place stays."""
        unit = min(width, 4)
        if unit > 1 and (offset & (unit - 1)).any():
            for start in range(width):
                self.u8[offset + start] = (words[start // 4] >> U32(8 * (start % 4))).astype(U8)
            return
        view = {1: self.u8, 2: self.u16, 4: self.u32}[unit]
        index = offset >> (unit.bit_length() - 1)
        for word, value in enumerate(words):
            view[index + word] = value.astype(view.dtype, copy=False)


class Shadow:
    """Remembers something about the bytes of a region: a cell for each 16 of them, for fewer once accesses ask for it.

    Cells are 0 at first. Cells as wide as the accesses make an access one cell, which is what makes this cheap.
    """

    def __init__(self, size: int, kind: type, unit: int = 16):
        self.unit = unit
        self.cells = np.zeros(-(-size // unit) + 1, kind)

    def at(self, offset: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """(array, index): array[index] are the cells of `width` bytes at each offset, along a last axis if several."""
        common = int(np.bitwise_or.reduce(offset, axis=None)) | width
        self.split(common & -common)
        index = offset >> (self.unit.bit_length() - 1)
        several = width // self.unit
        return self.cells, index if several == 1 else index[..., None] + np.arange(several)

    def split(self, unit: int) -> None:
        """Go on with cells of at most `unit` bytes, a power of two."""
        if unit < self.unit:
            self.cells = np.repeat(self.cells, self.unit // unit)
            self.unit = unit

    def within(self, span: Span) -> np.ndarray:
        """The cells of a tensor's elements, one an element: its first."""
        self.split(span.itemsize)
        first = (span.start + np.flatnonzero(span.exists()) * span.itemsize) // self.unit
        return self.cells[first]

    def mark(self, span: Span, chosen: np.ndarray, value: int) -> None:
        """Set the cells of those elements of a tensor whose first byte is chosen: bool [bytes of the span]."""
        self.split(span.itemsize)
        starts = np.flatnonzero(span.exists()) * span.itemsize
        first = (span.start + starts[chosen[starts]]) // self.unit
        for cell in range(max(1, span.itemsize // self.unit)):
            self.cells[first + cell] = value

    def bytes_within(self, span: Span) -> np.ndarray:
        """bool [bytes of the span]: those of elements whose first cell is not 0."""
        found = np.zeros(span.stop - span.start, bool)
        starts = np.flatnonzero(span.exists()) * span.itemsize
        starts = starts[self.within(span) != 0]
        for byte in range(span.itemsize):
            found[starts + byte] = True
        return found


@dataclass(frozen=True)
class Span:
    """The bytes of one tensor within its region: from `start` to `stop`, in elements of `itemsize` bytes."""

    name: str
    start: int
    stop: int
    itemsize: int
    strided: Strided

    @property
    def size(self) -> int:
        """Number of elements, gaps not counted."""
        return self.strided.size

    @property
    def dense(self) -> bool:
        """No gaps between the first byte and the last."""
        return self.strided.dense

    def element(self, offset: int) -> int:
        """The element that a byte of the region belongs to, counted from the tensor's first; may lie outside."""
        return (offset - self.start) // self.itemsize

    def has(self, offset: int) -> bool:
        """Whether a byte of the region is one of the tensor's, and not in a gap."""
        return bool(self.strided.contains(np.array(self.element(offset))))

    def exists(self) -> np.ndarray:
        """Which places between the first element and the last belong to the tensor."""
        return self.strided.exists()


@dataclass(eq=False)
class Region:
    """One storage: its bytes, its first address, and the tensors in it."""

    base: int
    bytes: Bytes
    spans: list[Span] = field(default_factory=list)
    _widened: bool = False

    @property
    def unit(self) -> int:
        """Bytes of the smallest element."""
        return min((span.itemsize for span in self.spans), default=1)

    def span_at(self, offset: int) -> Span:
        """The tensor that an access at this offset means: the first that has it, else the nearest."""
        distance = lambda span: max(span.start - offset, offset + 1 - span.stop, 0)  # noqa: E731
        return min(self.spans, key=lambda span: (not span.has(offset), distance(span)))

    def allows(self, low: int, high: int) -> bool:
        """Whether one tensor without gaps holds all bytes from `low` to `high` (exclusive)."""
        return any(span.start <= low and high <= span.stop and span.dense for span in self.spans)

    def holds(self, offset: np.ndarray, width: int) -> np.ndarray:
        """Whether all of the `width` bytes at each offset belong to tensors, and not to the gaps between their rows."""
        if width > self.bytes.u8.size:
            return np.zeros(offset.shape, bool)
        inside = (offset >= 0) & (offset + width <= self.bytes.u8.size)
        cells, index = self._real.at(np.where(inside, offset, 0), width)
        real = cells[index]
        return inside & (real.all(axis=-1) if real.ndim > offset.ndim else real)

    def widen(self, offset: int) -> bool:
        """Let the rest of the storage be touched, too, if that is where a byte lies; False if it was already."""
        if self._widened or not 0 <= offset < self.bytes.u8.size or not self.spans:
            return False
        size = self.unit
        count = self.bytes.u8.size // size
        names = " and ".join(dict.fromkeys(span.name for span in self.spans))
        self.spans.append(Span(f"the storage of {names}", 0, count * size, size, Strided((count,), (1,))))
        self.__dict__.pop("_real", None)
        self._widened = True
        return True

    @cached_property
    def _real(self) -> Shadow:
        """Which elements of the storage belong to a tensor."""
        real = Shadow(self.bytes.u8.size, np.bool_, self.unit)
        for span in self.spans:
            places = np.repeat(span.exists(), span.itemsize // self.unit)
            first = span.start // self.unit
            real.cells[first : first + places.size] |= places
        return real


class GlobalMemory:
    """The regions of a launch.

    Addresses are invented. What begins at a multiple of 16 bytes on the CPU (the compiler knows of no more) begins at
    the start of a page here, as on a GPU: counts of cache lines are the same in every run.

    elsewhere: (first address, bytes) of the memory around an address that stands in a tensor, or None. Where it is
    given, a kernel also reaches the rest of a storage of which its tensor is a part, as on a GPU.
    """

    def __init__(self, elsewhere: Callable[[int], tuple[int, np.ndarray] | None] | None = None):
        self._elsewhere = elsewhere
        self.regions: list[Region] = []
        self._by_storage: dict[int, Region] = {}

    def add_tensor(self, name: str, tensor: torch.Tensor) -> int:
        """Make a CPU tensor's memory reachable; returns the address of its first element."""
        storage = tensor.untyped_storage()
        region = self._by_storage.get(storage.data_ptr())
        if region is None:
            data = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
            region = self._by_storage[storage.data_ptr()] = self._add(data, storage.data_ptr() % 16)
        size = tensor.element_size()
        start = tensor.storage_offset() * size
        strided = Strided.of(tensor)
        span = Span(name, start, start + strided.span * size, size, strided)
        region.spans.append(span)
        return region.base + start

    def add_bytes(self, name: str, data: np.ndarray) -> int:
        """Make a byte array reachable under a name; returns its address."""
        region = self._add(data, 0)
        region.spans.append(Span(name, 0, data.size, 1, Strided((data.size,), (1,))))
        return region.base

    def _add(self, data: np.ndarray, alignment: int) -> Region:
        region = Region(((len(self.regions) + 1) << _REGION_BITS) + alignment, Bytes(data))
        self.regions.append(region)
        return region

    def region_of(self, address: int) -> Region | None:
        """The region that an address falls into or near, or None."""
        number = (int(address) + (1 << (_REGION_BITS - 1)) >> _REGION_BITS) - 1  # a little before the start counts too
        return self.regions[number] if 0 <= number < len(self.regions) else None

    def found(self, address: int) -> bool:
        """Whether memory lies at an address that is no tensor's; from now on it may be touched.

        It is the rest of a tensor's storage, or memory elsewhere, which becomes a region at its own address.
        """
        if self._elsewhere is None:
            return False
        own = self.region_of(address)
        if own is not None:
            return own.widen(int(address) - own.base)
        here = self._elsewhere(int(address))
        if here is None:
            return False
        base, data = here
        span = Span(f"memory at {base:#x}", 0, data.size, 1, Strided((data.size,), (1,)))
        self.regions.append(Region(base, Bytes(data), [span]))
        return True

    def whole(self, low: int, high: int) -> Region | None:
        """The region if all bytes from `low` to `high` (exclusive) are those of one tensor without gaps."""
        region = self.region_of(low)
        return region if region and region.allows(low - region.base, high - region.base) else None


class Pieces:
    """Memory in equal pieces, addressed from 0 in each: LDS (a workgroup's) and private memory (a lane's).

    The hardware reads 0 beyond the end of LDS and drops what is written there; so does this.
    """

    def __init__(self, pieces: int, size: int):
        self.size = size
        self._pitch = (size + 31) & ~15
        data = np.empty(max(1, pieces) * self._pitch, U8)
        data.view(U32)[:] = POISON
        self._bytes = Bytes(data)

    @property
    def content(self) -> np.ndarray:
        """All pieces, as bytes."""
        return self._bytes.u8

    def piece(self, w) -> np.ndarray:
        """Which piece each lane of the window owns, broadcasting to int64 [wave, lane]."""
        raise NotImplementedError

    def read(
        self, w, instruction, address: np.ndarray, width: int, active: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """The words at each lane's address, int64 [wave, lane]; `active`: w.mask unless given."""
        active = w.mask if active is None else active
        inside = self._inside(address, active, width)
        if inside is None:
            return self._bytes.gather(address + self.piece(w) * self._pitch, width)
        offset = np.where(inside, address, 0) + self.piece(w) * self._pitch
        return [np.where(inside, word, U32(0)) for word in self._bytes.gather(offset, width)]

    def write(self, w, instruction, address: np.ndarray, words: list[np.ndarray], width: int, active=None) -> None:
        """Store the words of the active lanes."""
        active = w.mask if active is None else active
        inside = self._inside(address, active, width)
        lanes = slice(None) if inside is None else inside
        offset = w.full(address + self.piece(w) * self._pitch)
        words = [w.full(word)[lanes].reshape(-1) for word in words]
        self._bytes.scatter(offset[lanes].reshape(-1), words, width)

    def _inside(self, address: np.ndarray, active: np.ndarray | None, width: int) -> np.ndarray | None:
        """The lanes that are active and in range; None: all of them."""
        if active is None and int(address.min()) >= 0 and int(address.max()) + width <= self.size:
            return None
        inside = (address >= 0) & (address + width <= self.size)
        return inside if active is None else inside & active


class LocalData(Pieces):
    """LDS: a piece for each workgroup."""

    def piece(self, w) -> np.ndarray:
        return w.group

    def barrier(self, w, groups: np.ndarray) -> None:
        """The waves of these workgroups have met: what they wrote before is there for all."""
        for watcher in w.watchers:
            watcher.barrier(groups)


class Scratch(Pieces):
    """Private memory: a piece for each lane."""

    def piece(self, w) -> np.ndarray:
        return np.arange(w.window.start, w.window.stop)[:, None] * w.lanes + np.arange(w.lanes)
