"""What a simulated launch did: instructions by line and class, bytes, cache lines, bank conflicts, active lanes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gfxlab.code import isa
from gfxlab.code.compiler import Compiled
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.program import Decoded, Program
from gfxlab.simulator.core.state import Watcher
from gfxlab.simulator.watch.checks import Checks
from gfxlab.simulator.watch.profile import LocalTraffic, Profile, Traffic

_UNITS = {  # which part of the GPU an instruction's class keeps busy
    "vector": ("vector", "transcendental", "register copy", "cross-lane"),
    "matrix": ("matrix",),
    "scalar": ("scalar", "branch", "scalar load"),
    "memory": ("global load", "global store", "atomic", "cache", "scratch"),
    "LDS": ("LDS",),
    "waiting": ("wait", "barrier"),
    "other": ("other",),
}
_BY_LANE = (*_UNITS["vector"], *_UNITS["memory"], "LDS")


@dataclass(frozen=True)
class Line:
    """A line of the kernel. instructions: by waves; kinds: the same by class; active: part of the lanes switched on."""

    source: isa.SourceLine | None
    text: str
    instructions: int
    kinds: dict[str, int]
    active: float
    loads: Traffic
    stores: Traffic
    atomics: Traffic
    lds: LocalTraffic


@dataclass(frozen=True)
class Moved:
    """Loads, stores or atomics of the whole launch.

    accesses: by waves. bytes: that active lanes asked for; least: if each touched element moved once. segments, lines:
    of 64 and 128 bytes. coalescing: the fewest possible segments as a part of those touched. tensors: {name: (bytes,
    least)}.
    """

    accesses: int
    bytes: int
    least: int
    segments: int
    lines: int
    coalescing: float
    tensors: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Spills:
    """Private memory, where registers go that do not fit. Accesses by waves, bytes by active lanes."""

    loads: int
    stores: int
    bytes: int


@dataclass
class Counted:
    """One launch on the simulated GPU: functional, not timed.

    Counts of instructions are of waves: one that a wave executes for its 64 lanes counts once, in a loop every time.
    executed: how often waves went through each block of the program. Without `profile` only those counts are there;
    without `checks` nothing is ever `wrong`.
    """

    compiled: Compiled
    program: Program
    grid: tuple[int, int, int]
    profile: Profile | None = None
    checks: Checks | None = None
    others: tuple[Watcher, ...] = ()
    executed: np.ndarray = field(init=False)

    def __post_init__(self):
        self.executed = np.zeros(len(self.program.blocks), np.int64)

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        return tuple(watcher for watcher in (self.checks, self.profile, *self.others) if watcher is not None)

    def add(self, executor: Executor) -> None:
        """Count a batch of workgroups that has ended."""
        self.executed += executor.executed

    # ---- instructions ------------------------------------------------------------------------------------------------

    @cached_property
    def _block_of(self) -> list[int]:
        starts = [block.start for block in self.program.blocks]
        return [bisect_right(starts, i.index) - 1 for i in self.program.instructions]

    def _times(self, instruction: Decoded) -> int:
        return int(self.executed[self._block_of[instruction.index]])

    @property
    def instructions(self) -> int:
        """Wave-instructions executed."""
        return sum(self.by_kind.values())

    @property
    def by_kind(self) -> dict[str, int]:
        """Wave-instructions by class, in the order of `isa.KINDS`; classes that do not occur are left out."""
        return self._kinds(self.program.instructions)

    @property
    def mix(self) -> dict[str, int]:
        """Wave-instructions by the unit that executes them: vector, matrix, scalar, memory, LDS, waiting."""
        kinds = self.by_kind
        units = {unit: sum(kinds.get(kind, 0) for kind in members) for unit, members in _UNITS.items()}
        return {unit: count for unit, count in units.items() if count}

    def _kinds(self, instructions: Iterable[Decoded]) -> dict[str, int]:
        counts = dict.fromkeys(isa.KINDS, 0)
        for instruction in instructions:
            counts[instruction.kind] += self._times(instruction)
        return {kind: count for kind, count in counts.items() if count}

    @cached_property
    def by_line(self) -> tuple[Line, ...]:
        """The kernel's lines that were executed, in their order; last what the compiler names no line for."""
        groups: dict[isa.SourceLine | None, list[Decoded]] = {}
        for instruction in self.program.instructions:
            if self._times(instruction):
                groups.setdefault(instruction.source, []).append(instruction)
        order = sorted(groups, key=lambda s: (s is None, s and s.filename, s and s.line))
        return tuple(self._line(source, groups[source]) for source in order)

    def _line(self, source: isa.SourceLine | None, inside: list[Decoded]) -> Line:
        kinds = self._kinds(inside)
        text = self.compiled.sources.get(source.filename, {}).get(source.line, "") if source else ""
        loads, stores, atomics = (self._traffic(inside, kind) for kind in ("global load", "global store", "atomic"))
        local = self.profile.local if self.profile else {}
        lds = sum((local[i.index] for i in inside if i.index in local), LocalTraffic())
        active = self.active_in(inside)
        return Line(source, text.strip(), sum(kinds.values()), kinds, active, loads, stores, atomics, lds)

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _traffic(self, instructions: Iterable[Decoded], kind: str) -> Traffic:
        counted = self.profile.traffic if self.profile else {}
        return sum((counted[i.index] for i in instructions if i.kind == kind and i.index in counted), Traffic())

    def _moved(self, kind: str, short: str) -> Moved:
        if not self.profile:
            raise ValueError("this launch was not counted: bytes and cache lines need profile=True")
        total = self._traffic(self.program.instructions, kind)
        asked = {name: count for (name, one), count in self.profile.bytes.items() if one == short}
        least = self.profile.least(short)
        tensors = {name: (count, least[name]) for name, count in asked.items()}
        least_bytes = sum(least.values())
        return Moved(
            self.by_kind.get(kind, 0), total.bytes, least_bytes, total.segments, total.lines, total.coalescing, tensors
        )

    @cached_property
    def loads(self) -> Moved:
        """Reads of global memory, without the scalar ones, which fetch arguments."""
        return self._moved("global load", "load")

    @cached_property
    def stores(self) -> Moved:
        """Writes to global memory."""
        return self._moved("global store", "store")

    @cached_property
    def atomics(self) -> Moved:
        """Reads, changes and writes of global memory."""
        return self._moved("atomic", "atomic")

    @property
    def lds(self) -> LocalTraffic:
        """Accesses to LDS, with the cycles of its banks."""
        if not self.profile:
            raise ValueError("this launch was not counted: the banks of LDS need profile=True")
        return sum(self.profile.local.values(), LocalTraffic())

    @property
    def spills(self) -> Spills:
        """Traffic of private memory."""
        inside = [i for i in self.program.instructions if i.kind == "scratch"]
        stores = sum(self._times(i) for i in inside if "store" in i.mnemonic)
        lanes = self.profile.lanes if self.profile else self.executed * self.program.lanes
        moved = sum(int(lanes[self._block_of[i.index]]) * isa.width(i.mnemonic) // 8 for i in inside)
        return Spills(sum(map(self._times, inside)) - stores, stores, moved)

    # ---- lanes -------------------------------------------------------------------------------------------------------

    def active_in(self, instructions: Iterable[Decoded]) -> float:
        """The part of the lanes that were on in those of the instructions that work lane by lane; 1.0 of none."""
        by_lane = [(i, self._block_of[i.index]) for i in instructions if i.kind in _BY_LANE]
        possible = sum(int(self.executed[block]) for _, block in by_lane) * self.program.lanes
        if not self.profile or not possible:
            return 1.0
        return sum(self.profile.lanes_of(i, block) for i, block in by_lane) / possible

    @cached_property
    def active(self) -> float:
        """The part of all lanes that were on, over the whole launch."""
        return self.active_in(self.program.instructions)

    @property
    def divergence(self) -> dict[int, float]:
        """Lines that were executed with lanes switched off: {line: part of the lanes that were on}."""
        return {line.source.line: line.active for line in self.by_line if line.source and line.active < 1}

    # ---- to be read --------------------------------------------------------------------------------------------------

    @cached_property
    def wrong(self) -> tuple[str, ...]:
        """What the launch did that it may not, in sentences (see `checks`); an empty tuple is good."""
        return tuple(self.checks.finish(self.executed)) if self.checks else ()
