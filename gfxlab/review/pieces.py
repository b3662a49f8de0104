"""Whether the lanes of a line take their elements in pieces: narrow accesses in a row, which a cache joins again."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property

import numpy as np

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.pretended import counting
from gfxlab.simulator.core.faults import SimulationError
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.core.state import Watcher

_IN_A_ROW = 0.4  # of a lane's accesses; two in a row make a half
_LANES = 64


class Pieces:
    """Of one launch; a few of its programs are executed again when it is asked first."""

    def __init__(
        self, compiled: Compiled, grid: tuple[int, int, int], values: Callable[[], list[Value]], options: dict
    ):
        self._compiled, self._grid, self._values, self._options = compiled, grid, values, options

    def has(self, file: str, line: int, kind: str) -> bool:
        """Whether most accesses of a line begin where the same lane's access before has ended."""
        return self._in_a_row.get((file, line, kind), 0.0) >= _IN_A_ROW

    @cached_property
    def _in_a_row(self) -> dict[tuple[str, int, str], float]:
        seen = _Lanes()
        extra = {"profile": False, "checks": False, "watchers": (seen,), "only": counting.sample(self._grid)}
        with contextlib.suppress(SimulationError):  # one of the few waits for another one: what was seen counts
            execute(self._compiled, self._grid, self._values(), **{**self._options, **extra})
        return {key: _share(events) for key, events in seen.events.items()}


class _Lanes(Watcher):
    """Writes down which lane touched which bytes, by line."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int, str], list[np.ndarray]] = defaultdict(list)

    def load(self, w, instruction, region, offset, lanes, width) -> None:
        self._add("global load", w, instruction, region, offset, lanes, width)

    def store(self, w, instruction, region, offset, lanes, width, words) -> None:
        self._add("global store", w, instruction, region, offset, lanes, width)

    def _add(self, kind, w, instruction, region, offset, lanes, width) -> None:
        if instruction.source is None:
            return
        waves = (
            w.programs @ np.array([1, 1 << 16, 1 << 32]) * w.waves_per_group + np.arange(w.count) % w.waves_per_group
        )
        owner = waves[w.window][:, None] * _LANES + np.arange(offset.shape[1])
        owner = np.broadcast_to(owner, offset.shape)
        on = np.ones(offset.shape, bool) if lanes is None else np.broadcast_to(lanes, offset.shape)
        start = region.base + offset[on].astype(np.int64)
        key = instruction.source.filename, instruction.source.line, kind
        self.events[key].append(np.stack([owner[on], start, start + width]))


def _share(events: list[np.ndarray]) -> float:
    owner, start, stop = np.concatenate(events, axis=1)
    order = np.lexsort((start, owner))
    owner, start, stop = owner[order], start[order], stop[order]
    return float(((owner[1:] == owner[:-1]) & (start[1:] == stop[:-1])).sum() / max(1, len(owner)))
