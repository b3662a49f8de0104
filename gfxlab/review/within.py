"""Races of the waves of one program in global memory: what one wave stores and another takes, with no barrier between.

Triton orders nothing between a store and a load of the same program: where their layouts differ, another wave loads the
element than stored it. The simulator lets one wave after the other go on, so that the result is right by luck.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.pretended import counting
from gfxlab.review.findings import Finding
from gfxlab.simulator.core.faults import SimulationError, at_line
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.core.memory import Region
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.core.state import Watcher, Waves


def races(compiled: Compiled, grid: tuple[int, int, int], values: list[Value], options: dict) -> Iterator[Finding]:
    """At most one for each line. A few programs are executed once more, in place, one at a time."""
    if compiled.num_warps == 1:
        return
    seen = _Order()
    extra = {"profile": False, "checks": False, "watchers": (seen,), "only": counting.sample(grid), "together": 1}
    with contextlib.suppress(SimulationError):  # one of the few waits for another one: what was seen counts
        execute(compiled, grid, values, **{**options, **extra})
    for instruction, sentence in seen.found.items():
        source = instruction.source
        yield Finding("race", compiled.name, sentence, *((source.filename, source.line) if source else ("", 0)))


class _Touched:
    """Of each byte of a storage, since a barrier: which wave stored there, by which instruction; which ones loaded."""

    def __init__(self, size: int):
        self.time = np.zeros(size, np.int64)
        self.writer = np.full(size, -1, np.int16)
        self.readers = np.zeros(size, np.uint32)
        self.stored_by: dict[int, Decoded] = {}

    def at(self, cells: np.ndarray, time: int) -> None:
        """Forget what these bytes were before `time`."""
        old = np.unique(cells[self.time[cells] != time])
        self.time[old], self.writer[old], self.readers[old] = time, -1, 0


class _Order(Watcher):
    """Programs come one after the other: a barrier, or another program, begins a new time."""

    def __init__(self) -> None:
        self.found: dict[Decoded, str] = {}
        self._time = 1
        self._program: tuple[int, ...] = ()
        self._regions: dict[Region, _Touched] = {}

    def barrier(self, groups: np.ndarray) -> None:
        self._time += 1

    def load(self, w: Waves, instruction, region, offset, lanes, width: int) -> None:
        for wave, cells, touched in self._cells(w, region, offset, lanes, width):
            writer = touched.writer[cells]
            if ((writer >= 0) & (writer != wave)).any():
                other = int(writer[(writer >= 0) & (writer != wave)][0])
                store = at_line(touched.stored_by[other]) if other in touched.stored_by else ""
                self._tell(instruction, f"Wave {wave} loads{at_line(instruction)} what wave {other} stored{store}")
            touched.readers[cells] |= np.uint32(1 << wave)

    def scalar_load(self, w: Waves, instruction, region, offset, lanes, width: int) -> None:
        self.load(w, instruction, region, offset, lanes, width)

    def store(self, w: Waves, instruction, region, offset, lanes, width: int, words) -> None:
        for wave, cells, touched in self._cells(w, region, offset, lanes, width):
            readers = touched.readers[cells]
            # a wave that has loaded it too has its own copy, as the others have: what they do with theirs is lost
            if ((readers != 0) & (readers & np.uint32(1 << wave) == 0)).any():
                self._tell(instruction, f"Wave {wave} stores{at_line(instruction)} where another wave has loaded")
            touched.writer[cells] = wave
            touched.stored_by[wave] = instruction

    def _tell(self, instruction: Decoded, what: str) -> None:
        self.found.setdefault(instruction, f"{what}, in one program, with no barrier between: which is first is luck.")

    def _cells(self, w: Waves, region: Region, offset, lanes, width: int) -> Iterator[tuple[int, np.ndarray, _Touched]]:
        """Of each wave: its number in the program, and the bytes that it touches."""
        if region not in self._regions:
            self._regions[region] = _Touched(region.bytes.u8.size)
        touched = self._regions[region]
        numbers = (np.arange(w.count) % w.waves_per_group)[w.window]
        for row, (wave, program) in enumerate(zip(numbers, w.programs[w.window])):
            if (place := tuple(program)) != self._program:
                self._program, self._time = place, self._time + 1
            at = offset[row] if lanes is None else offset[row][lanes[row]]
            cells = (at[:, None] + np.arange(width)).reshape(-1)
            if cells.size:
                touched.at(cells, self._time)
                yield int(wave), cells, touched
