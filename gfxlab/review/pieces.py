"""Whether a line takes its elements in pieces: instructions that touch many segments and leave no gaps together.

Those of one turn of a loop count; a lane that walks along its row, turn by turn, is scattered.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property

import numpy as np

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.pretended import counting
from gfxlab.simulator.core.faults import SimulationError
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.core.state import Watcher
from gfxlab.simulator.watch import traffic

_FULL = 0.35  # of the segments' bytes: more than every third element, less than short rows that begin anywhere
_TURNS = 1 << 12


class Pieces:
    """Of one launch; a few of its programs are executed again when it is asked first."""

    def __init__(
        self, compiled: Compiled, grid: tuple[int, int, int], values: Callable[[], list[Value]], options: dict
    ):
        self._compiled, self._grid, self._values, self._options = compiled, grid, values, options

    def has(self, file: str, line: int, kind: str) -> bool:
        """Whether a wave takes much of the segments that a line of the kernel touches, in one turn of its loop."""
        return self._shares.get((file, line, kind), 0.0) >= _FULL

    @cached_property
    def _shares(self) -> dict[tuple[str, int, str], float]:
        seen = _Waves()
        extra = {"profile": False, "checks": False, "watchers": (seen,), "only": counting.sample(self._grid)}
        with contextlib.suppress(SimulationError):  # one of the few waits for another one: what was seen counts
            execute(self._compiled, self._grid, self._values(), **{**self._options, **extra})
        return {key: _share(events) for key, events in seen.events.items()}


class _Waves(Watcher):
    """Writes down which wave touched which bytes, by line and by turn: how often the instruction was there before."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int, str], list[np.ndarray]] = defaultdict(list)
        self._turns: Counter[tuple[int, int]] = Counter()

    def load(self, w, instruction, region, offset, lanes, width) -> None:
        self._add("global load", w, instruction, region, offset, lanes, width)

    def store(self, w, instruction, region, offset, lanes, width, words) -> None:
        self._add("global store", w, instruction, region, offset, lanes, width)

    def _add(self, kind, w, instruction, region, offset, lanes, width) -> None:
        if instruction.source is None:
            return
        program = w.programs @ np.array([1, 1 << 16, 1 << 32])
        waves = (program * w.waves_per_group + np.arange(w.count) % w.waves_per_group)[w.window]
        turn = np.array([self._turn(instruction.index, int(wave)) for wave in waves])
        owner = np.broadcast_to((waves * _TURNS + turn)[:, None], offset.shape)
        on = np.ones(offset.shape, bool) if lanes is None else np.broadcast_to(lanes, offset.shape)
        start = region.base + offset[on].astype(np.int64)
        key = instruction.source.filename, instruction.source.line, kind
        self.events[key].append(np.stack([owner[on], start, start + width]))

    def _turn(self, index: int, wave: int) -> int:
        self._turns[index, wave] += 1
        return self._turns[index, wave] % _TURNS


def _share(events: list[np.ndarray]) -> float:
    """Bytes touched of the segments touched, by one wave in one turn."""
    owner, start, stop = np.concatenate(events, axis=1)
    later = owner % _TURNS > 1
    if later.any():  # the first turn may be in a loop's prologue, beside the loop's own
        owner, start, stop = owner[later], start[later], stop[later]
    pieces = np.unique(np.stack([owner, start, stop]), axis=1)
    segments = np.unique(np.stack([pieces[0], pieces[1] // traffic.SEGMENT]), axis=1)
    return float((pieces[2] - pieces[1]).sum() / (segments.shape[1] * traffic.SEGMENT))
