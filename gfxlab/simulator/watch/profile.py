"""Counts what a launch does while it runs: bytes, cache lines, banks, active lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfxlab import hardware
from gfxlab.simulator.core.memory import Region, Shadow
from gfxlab.simulator.core.program import Decoded, Program
from gfxlab.simulator.core.state import Watcher, Waves
from gfxlab.simulator.watch import traffic

_MASKED = ("global load", "global store", "atomic")
_KEPT = 4 << 20  # bytes of LDS addresses whose cycles are remembered


@dataclass
class Traffic:
    """Accesses to global memory.

    bytes: that active lanes asked for. segments, lines: of 64 and 128 bytes, touched by each wave's access.
    fewest: the segments that would do if each wave's lanes lay side by side.
    """

    bytes: int = 0
    segments: int = 0
    lines: int = 0
    fewest: int = 0

    @property
    def coalescing(self) -> float:
        """The fewest possible segments as a part of those touched: 1.0 is best."""
        return self.fewest / self.segments if self.segments else 1.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


@dataclass
class LocalTraffic:
    """Accesses to LDS.

    bytes: that active lanes asked for. cycles: of the banks; least: without conflicts. worst: the most cycles that one
    phase took, 1 without a conflict (see `traffic`).
    """

    bytes: int = 0
    cycles: int = 0
    least: int = 0
    worst: int = 0

    @property
    def conflicts(self) -> int:
        """Cycles lost to lanes that want different words of one bank."""
        return self.cycles - self.least

    def __add__(self, other: LocalTraffic) -> LocalTraffic:
        return LocalTraffic(
            self.bytes + other.bytes,
            self.cycles + other.cycles,
            self.least + other.least,
            max(self.worst, other.worst),
        )


class Profile(Watcher):
    """Watches the waves of one launch. All figures are by the instruction's index, or by block."""

    def __init__(self, program: Program):
        self.lanes = np.zeros(len(program.blocks), np.int64)  # active ones, summed over all waves that went through
        self.inside: dict[int, int] = {}  # of a buffer_ instruction: lanes within its resource, of all waves
        self.traffic: dict[int, Traffic] = {}
        self.local: dict[int, LocalTraffic] = {}
        self.bytes: dict[tuple[str, str], int] = {}  # by tensor and kind
        self._touched: dict[tuple[Region, str], Shadow] = {}
        self._banks = hardware.limits(program.arch).lds_banks
        self._known: dict[tuple, tuple[np.ndarray, tuple[int, int, int]]] = {}

    def lanes_of(self, instruction: Decoded, block: int) -> int:
        """Active lanes of an instruction of this block, summed over all waves; Triton masks those of a buffer_
        instruction by an offset beyond the resource, and leaves them on."""
        if instruction.mnemonic.startswith("buffer_") and instruction.kind in _MASKED:
            return self.inside.get(instruction.index, 0)
        return int(self.lanes[block])

    def block(self, w: Waves, block: int, count: int) -> None:
        """`count` waves go through a block; the active lanes are the same throughout."""
        self.lanes[block] += count * w.lanes if w.mask is None else np.count_nonzero(w.mask)

    # ---- global memory -----------------------------------------------------------------------------------------------

    def load(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._global(instruction, "load", region, offset, lanes, width)

    def store(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int, words) -> None:
        self._global(instruction, "store", region, offset, lanes, width)

    def atomic(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._global(instruction, "atomic", region, offset, lanes, width)

    def _global(self, instruction: Decoded, kind: str, region: Region, offset, lanes, width: int) -> None:
        count = offset.shape[1] if lanes is None else np.count_nonzero(lanes, axis=1)
        address = offset + region.base % traffic.LINE
        segments = traffic.pieces_touched(address, lanes, width, traffic.SEGMENT)
        entry = self.traffic.get(instruction.index)
        if entry is None:
            entry = self.traffic[instruction.index] = Traffic()
        moved = width * (count * len(offset) if lanes is None else int(count.sum()))
        if instruction.mnemonic.startswith("buffer_"):
            self.inside[instruction.index] = self.inside.get(instruction.index, 0) + moved // width
        entry.bytes += moved
        entry.segments += int(segments.sum())
        entry.lines += int(traffic.pieces_touched(address, lanes, width, traffic.LINE).sum())
        entry.fewest += int(np.minimum(segments, -(-count * width // traffic.SEGMENT)).sum())
        at = offset if lanes is None else offset[lanes]
        name = region.span_at(int(at.flat[0])).name
        self.bytes[name, kind] = self.bytes.get((name, kind), 0) + moved
        self._mark(region, kind, at, width)

    def _mark(self, region: Region, kind: str, at: np.ndarray, width: int) -> None:
        shadow = self._touched.get((region, kind))
        if shadow is None:
            shadow = self._touched[region, kind] = Shadow(region.bytes.u8.size, np.bool_)
        cells, index = shadow.at(at, width)
        cells[index] = True

    def least(self, kind: str) -> dict[str, int]:
        """Bytes of each tensor that a load, a store or an atomic touched, each counted once."""
        return {
            span.name: int(shadow.within(span).sum()) * span.itemsize
            for (region, one), shadow in self._touched.items()
            for span in reversed(region.spans)  # the same memory under two names counts for the first
            if one == kind and (span.name, kind) in self.bytes
        }

    # ---- LDS ---------------------------------------------------------------------------------------------------------

    def local_load(self, w: Waves, instruction: Decoded, address, lanes, width: int) -> None:
        self._local(instruction, address, lanes, width, reads=True)

    def local_store(self, w: Waves, instruction: Decoded, address, lanes, width: int, words) -> None:
        self._local(instruction, address, lanes, width, reads=False)

    def local_atomic(self, w: Waves, instruction: Decoded, address, lanes, width: int) -> None:
        self._local(instruction, address, lanes, width, reads=False)

    def _local(self, instruction: Decoded, address: np.ndarray, lanes, width: int, reads: bool) -> None:
        if lanes is None:
            cycles, least, worst = self._as_before(instruction, address, width, reads)
            count = address.size
        else:
            cycles, least, worst = _summary(traffic.bank_cycles(address, lanes, width, reads, self._banks))
            count = np.count_nonzero(lanes)
        entry = self.local.get(instruction.index)
        if entry is None:
            entry = self.local[instruction.index] = LocalTraffic()
        entry.bytes += int(count) * width
        entry.cycles += cycles
        entry.least += least
        entry.worst = max(entry.worst, worst)

    def _as_before(self, instruction: Decoded, address: np.ndarray, width: int, reads: bool) -> tuple[int, int, int]:
        """Where lanes lie to each other mostly is the same for every wave and every turn of a loop: counted once."""
        key = instruction.index, width, len(address), int(address[0, 0])
        known = self._known.get(key)
        if known is not None and (known[0] is address or np.array_equal(known[0], address)):
            return known[1]
        relative = address - (address[:, :1] & ~3)  # the same words up to a turn of the banks
        if (relative == relative[0]).all():
            cycles, least, worst = _summary(traffic.bank_cycles(relative[:1], None, width, reads, self._banks))
            result = cycles * len(address), least * len(address), worst
        else:
            result = _summary(traffic.bank_cycles(address, None, width, reads, self._banks))
        if len(self._known) * address.nbytes < _KEPT:
            self._known[key] = address, result
        return result


def _summary(cycles: np.ndarray) -> tuple[int, int, int]:
    return int(cycles.sum()), int(np.count_nonzero(cycles)), int(cycles.max(initial=0))
