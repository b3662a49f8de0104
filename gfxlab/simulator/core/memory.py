"""Memory: bytes behind addresses, read and written by all lanes at once.

Global memory is made of *regions*, one for each storage that the launch's tensors use, far apart so that an address
tells its region (`address >> 40`).  A tensor may start anywhere in its storage; only bytes that belong to a tensor of
the launch may be touched.  LDS and private (scratch) memory are flat arrays cut into equal pieces, one a workgroup or
one a lane.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch

from gfxlab.simulator.compiled import extension
from gfxlab.simulator.core.numbers import I64, U8, U16, U32, U64
from gfxlab.simulator.core.state import POISON
from gfxlab.strides import Strided

_REGION_BITS = 40
ARGUMENTS = "the kernel's arguments"
_KEPT = 16 << 20  # bytes of LDS addresses that are remembered


@dataclass(frozen=True)
class Place:
    """Where an access lies: `several` elements of an array a lane, from `index` on."""

    array: np.ndarray
    index: np.ndarray
    several: int


class Bytes:
    """A byte array, gathered from and scattered to in the widest elements that an access allows."""

    def __init__(self, data: np.ndarray):
        self.u8 = data
        self._views: dict[int, np.ndarray] = {}
        self._widest = 4 if data.__array_interface__["data"][0] & 15 else 16

    def _view(self, unit: int) -> np.ndarray:
        if unit not in self._views:
            self._views[unit] = self.u8[: self.u8.size & -unit].view(_ELEMENTS[unit])
        return self._views[unit]

    def place(self, offset: np.ndarray, width: int) -> Place | None:
        """Where `width` bytes at each offset lie; None: words of them are not aligned."""
        unit = self._unit(int(np.bitwise_or.reduce(offset, axis=None)), width)
        return Place(self._view(unit), offset >> (unit.bit_length() - 1), width // unit) if unit else None

    def place_in_pieces(self, offset: np.ndarray, piece: np.ndarray, common: int, width: int) -> Place | None:
        """The same of offsets in each piece, [piece, ...]. piece: where they begin. common: the bits that any has."""
        unit = self._unit(common | int(np.bitwise_or.reduce(piece, axis=None)), width)
        shift = unit.bit_length() - 1
        return Place(self._view(unit), (offset >> shift) + (piece >> shift), width // unit) if unit else None

    def _unit(self, common: int, width: int) -> int:
        """Bytes of the widest elements that an access can be made of; 0: not even of words."""
        common |= width | self._widest
        unit = common & -common
        return unit if unit >= min(width, 4) else 0

    def gather(self, offset: np.ndarray, width: int) -> list[np.ndarray]:
        """Read `width` bytes at each offset: one uint32 array a word of 4 bytes; narrower ones are not extended."""
        place = self.place(offset, width)
        return self._gather_unaligned(offset, width) if place is None else self.words_at(place)

    @staticmethod
    def words_at(place: Place) -> list[np.ndarray]:
        """What `gather` gives."""
        words = []
        for element in range(place.several):
            found = place.array.take(place.index + element if element else place.index)
            if found.itemsize <= 4:
                words.append(found.astype(U32, copy=False))
                continue
            split = found.view(U32).reshape(*found.shape, -1)
            words += [split[..., word] for word in range(split.shape[-1])]
        return words

    def _gather_unaligned(self, offset: np.ndarray, width: int) -> list[np.ndarray]:
        words = []
        for start in range(0, width, 4):
            word = np.zeros(offset.shape, U32)
            for place in range(min(4, width - start)):
                word |= self.u8[offset + start + place].astype(U32) << U32(8 * place)
            words.append(word)
        return words

    def scatter(self, offset: np.ndarray, words: list[np.ndarray], width: int) -> None:
        """Write `width` bytes at each offset; the last of several at one place stays."""
        place = self.place(offset, width)
        if place is not None:
            self.put(place, words)
            return
        for start in range(width):
            self.u8[offset + start] = (words[start // 4] >> U32(8 * (start % 4))).astype(U8)

    @staticmethod
    def put(place: Place, words: list[np.ndarray]) -> None:
        """What `scatter` does."""
        array, index = place.array, place.index
        each = max(1, array.itemsize // 4)  # words of an element
        for element in range(place.several):
            value = words[element * each]
            if each > 1:
                together = np.empty((*index.shape, each), U32)
                for word in range(each):
                    together[..., word] = words[element * each + word]
                value = together.view(array.dtype)[..., 0]
            array[index + element if element else index] = value.astype(array.dtype, copy=False)


_ELEMENTS = {1: U8, 2: U16, 4: U32, 8: U64, 16: np.complex128}  # of 16 bytes: whatever numpy moves as one


class Shadow:
    """Remembers something about the bytes of a region: a cell for each 16 of them, for fewer once accesses ask for it.

    Cells are 0 at first. Cells as wide as the accesses make an access one cell, which is what makes this cheap.
    """

    def __init__(self, size: int, kind: type, unit: int = 16):
        self.unit = unit
        self.cells = np.zeros(-(-size // unit) + 1, kind)

    def at(self, offset: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """(array, index): array[index] are the cells of `width` bytes at each offset, along a last axis if several."""
        self.split_for(int(np.bitwise_or.reduce(offset, axis=None)), width)
        index = offset >> (self.unit.bit_length() - 1)
        several = width // self.unit
        return self.cells, index if several == 1 else index[..., None] + np.arange(several)

    def split_for(self, common: int, width: int) -> None:
        """Go on with cells that make accesses of `width` bytes whole ones. common: the bits that some offset has."""
        common |= width
        self.split(common & -common)

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
        start, shift = np.where(inside, offset, 0), self.unit.bit_length() - 1
        first, behind = start >> shift, (start + (width - 1) >> shift) + 1
        before = self._real_before
        return inside & (before[behind] - before[first] == behind - first)

    def widen(self, offset: int) -> bool:
        """Let the rest of the storage be touched, too, if that is where a byte lies; False if it was already."""
        if self._widened or not 0 <= offset < self.bytes.u8.size or not self.spans:
            return False
        size = self.unit
        count = self.bytes.u8.size // size
        names = " and ".join(dict.fromkeys(span.name for span in self.spans))
        self.spans.append(Span(f"the storage of {names}", 0, count * size, size, Strided((count,), (1,))))
        self.__dict__.pop("_real_before", None)
        self._widened = True
        return True

    @cached_property
    def _real_before(self) -> np.ndarray:
        """How many elements before each place of the storage belong to a tensor, in units of the smallest: int64."""
        real = np.zeros(-(-self.bytes.u8.size // self.unit), bool)
        for span in self.spans:
            places = np.repeat(span.exists(), span.itemsize // self.unit)
            first = span.start // self.unit
            real[first : first + places.size] |= places
        return np.concatenate([[0], np.cumsum(real)])


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
        self.pitch = (size + 31) & ~15
        data = np.empty(max(1, pieces) * self.pitch, U8)
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
        place = self._whole(w, address, width, active)
        if place is not None:
            return [word.reshape(w.size, -1) for word in self._bytes.words_at(place)]
        inside = self._inside(address, active, width)
        offset = np.where(inside, address, 0) + self.piece(w) * self.pitch
        return [np.where(inside, word, U32(0)) for word in self._bytes.gather(offset, width)]

    def write(self, w, instruction, address: np.ndarray, words: list[np.ndarray], width: int, active=None) -> None:
        """Store the words of the active lanes."""
        active = w.mask if active is None else active
        place = self._whole(w, address, width, active)
        if place is not None:
            self._bytes.put(place, [w.full(word).reshape(place.index.shape) for word in words])
            return
        inside = self._inside(address, active, width)
        offset = w.full(address + self.piece(w) * self.pitch)
        self._bytes.scatter(offset[inside], [w.full(word)[inside] for word in words], width)

    def _whole(self, w, address: np.ndarray, width: int, active: np.ndarray | None) -> Place | None:
        """Where an access of all lanes lies, if it stays inside and is aligned."""
        if active is not None or int(address.min()) < 0 or int(address.max()) + width > self.size:
            return None
        return self._bytes.place(w.full(address + self.piece(w) * self.pitch), width)

    def _inside(self, address: np.ndarray, active: np.ndarray | None, width: int) -> np.ndarray:
        """The lanes that are active and in range."""
        inside = (address >= 0) & (address + width <= self.size)
        return inside if active is None else inside & active


@dataclass(eq=False)
class Pattern:
    """The places in LDS that the waves of a workgroup name, where those of every workgroup do the same.

    register: what they hold; place: int64 [wave of the workgroup, lane].
    """

    register: np.ndarray
    place: np.ndarray

    def __post_init__(self) -> None:
        self.low, self.high = int(self.place.min()), int(self.place.max())
        self.common = int(np.bitwise_or.reduce(self.place, axis=None))  # bits that some place has

    def inside(self, width: int, size: int) -> bool:
        """Whether all of `width` bytes at each place lie in LDS."""
        return self.low >= 0 and self.high + width <= size


class Patterns:
    """Those that the workgroups of one program had: of all its batches, and of later launches."""

    def __init__(self) -> None:
        self.of: dict[tuple[object, int], Pattern] = {}  # by who asks, and by what the first lane holds
        self.addresses: dict[tuple[Pattern, int], np.ndarray] = {}  # of so many workgroups
        self.by_address: dict[int, Pattern] = {}  # by the id of such an array
        self.kept = 0  # bytes


def patterns(program: object, waves: int) -> Patterns:
    """Those of a program with workgroups of so many waves."""
    return _patterns(program, waves, threading.get_ident())


@lru_cache(maxsize=8)
def _patterns(*key) -> Patterns:
    return Patterns()


class LocalData(Pieces):
    """LDS: a piece for each workgroup."""

    def __init__(self, pieces: int, size: int, patterns: Patterns | None = None):
        super().__init__(pieces, size)
        self._patterns = patterns or Patterns()
        self.known = None  # of accesses: see compiled/known.py
        self._repeats = extension.EXTENSION.repeats if extension.used() else _repeats

    def piece(self, w) -> np.ndarray:
        return w.group

    def address(self, w, who: object, register: np.ndarray, offset: np.uint32) -> np.ndarray:
        """The place that each lane names, int64 [wave, lane]: a vector register and a constant, added in 32 bits.

        Workgroups mostly name the same places as each other, and a loop the same in every turn: see `pattern`.
        who: asks, and will ask again.
        """
        per_group = w.waves_per_group
        groups, rest = divmod(len(register), per_group)
        if rest or w.window.start % per_group:
            return (register + offset).astype(I64)
        known, key = self._patterns, (who, int(register[0, 0]))
        pattern = known.of.get(key)
        if pattern is None and known.kept < _KEPT:
            first = register[:per_group].copy()
            pattern = known.of[key] = Pattern(first, (first + offset).astype(I64))
        if pattern is None or not self._repeats(register, pattern.register):
            return (register + offset).astype(I64)
        given = known.addresses.get((pattern, groups))
        if given is None:
            given = known.addresses[pattern, groups] = (register + offset).astype(I64)
            given.flags.writeable = False
            known.kept += given.nbytes
            known.by_address[id(given)] = pattern
        return given

    def pattern(self, address: np.ndarray) -> Pattern | None:
        """What all workgroups of the window have in common, if `address` is what the method of that name gave."""
        return self._patterns.by_address.get(id(address))

    def _whole(self, w, address: np.ndarray, width: int, active: np.ndarray | None) -> Place | None:
        pattern = None if active is not None else self.pattern(address)
        if pattern is None:
            return super()._whole(w, address, width, active)
        if not pattern.inside(width, self.size):
            return None
        group = np.arange(w.window.start, w.window.stop, w.waves_per_group)[:, None, None] // w.waves_per_group
        return self._bytes.place_in_pieces(pattern.place, group * self.pitch, pattern.common, width)

    def barrier(self, w, groups: np.ndarray) -> None:
        """The waves of these workgroups have met: what they wrote before is there for all."""
        for watcher in w.watchers:
            watcher.barrier(groups)

    def load(self, w, address: np.ndarray, width: int, register: int, signed: bool) -> None:
        """What `read` gives, by the extension into the registers from `register` on, in the lanes that are on."""
        place = self.size, self.pitch, w.window.start, w.waves_per_group
        extension.EXTENSION.load(self.content, address, w.V, register, width, signed, *place, w.mask, None)

    def store(self, w, address: np.ndarray, width: int, register: int) -> None:
        """What `write` does with these registers, by the extension."""
        place = self.size, self.pitch, w.window.start, w.waves_per_group
        extension.EXTENSION.store(self.content, address, w.V, register, width, *place, w.mask)


def _repeats(register: np.ndarray, pattern: np.ndarray) -> bool:
    """Whether [wave, lane] holds what these waves of a workgroup do, over and over."""
    return bool((register.reshape(-1, *pattern.shape) == pattern).all())


class Scratch(Pieces):
    """Private memory: a piece for each lane."""

    def piece(self, w) -> np.ndarray:
        return np.arange(w.window.start, w.window.stop)[:, None] * w.lanes + np.arange(w.lanes)
