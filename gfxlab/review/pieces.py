"""How a line of a kernel takes its elements, seen wave by wave: scattered, side by side, narrower than they lie.

Instructions that touch many segments are no loss where together they leave no gaps and each takes much of a segment: a
lane may take what lies side by side in several pieces. Those of one turn of a loop count; a lane that walks along its
row, turn by turn, is scattered.
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
_TOGETHER = 0.2  # of them, by the lanes at a time: a matrix instruction's operands take 16 bytes of each segment
_WIDEST = 16  # bytes that a lane takes at once
_TURNS = 1 << 12
Place = tuple[str, int]  # file and line


class Pieces:
    """Of one launch; a few of its programs are executed again when it is asked first."""

    def __init__(
        self, compiled: Compiled, grid: tuple[int, int, int], values: Callable[[], list[Value]], options: dict
    ):
        self._compiled, self._grid, self._values, self._options = compiled, grid, values, options

    def has(self, file: str, line: int, kind: str) -> bool:
        """Whether a wave takes much of the segments that a line of the kernel touches, in one turn of its loop."""
        events = self._seen.events.get((file, line, kind))
        if events is None:
            return False
        events = _later(np.concatenate(events, axis=1))
        return _share(events) >= _FULL and _share_at_a_time(events) >= _TOGETHER

    def most_loaded(self, tensor: str) -> Place:
        """The line that loads most of a tensor; ("", 0) where none was seen."""
        lines = self._seen.loaded.get(tensor)
        return lines.most_common(1)[0][0] if lines else ("", 0)

    def times(self, tensor: str) -> float:
        """How often a program loads each byte that it loads of a tensor."""
        pieces = np.concatenate(self._seen.read.get(tensor) or [np.zeros((3, 1), np.int64)], axis=1)
        asked, own = ((found[2] - found[1]).sum() for found in (pieces, np.unique(pieces, axis=1)))
        return float(asked / max(1, own))

    @cached_property
    def _seen(self) -> _Waves:
        seen = _Waves()
        extra = {"profile": False, "checks": False, "watchers": (seen,), "only": counting.sample(self._grid)}
        with contextlib.suppress(SimulationError):  # one of the few waits for another one: what was seen counts
            execute(self._compiled, self._grid, self._values(), **{**self._options, **extra})
        return seen


class _Waves(Watcher):
    """Writes down which wave touched which bytes, by line and by turn: how often the instruction was there before."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int, str], list[np.ndarray]] = defaultdict(list)
        self.loaded: dict[str, Counter[Place]] = defaultdict(Counter)
        self.read: dict[str, list[np.ndarray]] = defaultdict(list)  # of a tensor: program, first byte, end
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
        lane = np.broadcast_to(np.arange(offset.shape[1]), offset.shape)
        on = np.ones(offset.shape, bool) if lanes is None else np.broadcast_to(lanes, offset.shape)
        start = region.base + offset[on].astype(np.int64)
        if not start.size:
            return
        place = instruction.source.filename, instruction.source.line
        step = np.full(start.shape, instruction.index)
        self.events[*place, kind].append(np.stack([owner[on], lane[on], step, start, start + width]))
        if kind == "global load":
            name = region.span_at(int(offset[on][0])).name
            self.loaded[name][place] += width * start.size
            whose = np.broadcast_to(program[w.window][:, None], offset.shape)[on]
            self.read[name].append(np.stack([whose, start, start + width]))

    def _turn(self, index: int, wave: int) -> int:
        self._turns[index, wave] += 1
        return self._turns[index, wave] % _TURNS


def _later(events: np.ndarray) -> np.ndarray:
    """Without the first turn, where there are others: it may be in a loop's prologue, beside the loop's own."""
    later = events[0] % _TURNS > 1
    return events[:, later] if later.any() else events


def _share(events: np.ndarray) -> float:
    """Bytes touched of the segments touched, by one wave in one turn."""
    owner, _, _, start, stop = events
    return _part_of_segments(owner, start, stop)


def _share_at_a_time(events: np.ndarray) -> float:
    """The same, by the lanes at a time; up to `_WIDEST` bytes side by side could be taken by a lane at once."""
    owner, lane, step, start, stop = events[:, np.lexsort((events[3], events[1], events[0]))]
    begins = np.ones(owner.size, bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (lane[1:] != lane[:-1]) | (start[1:] != stop[:-1])
    first = np.flatnonzero(begins)  # of each run of pieces
    run = np.cumsum(begins) - 1
    short = np.maximum.reduceat(stop, first) - start[first] <= _WIDEST
    together = np.where(short[run], step[first][run], step)
    _, together = np.unique(np.stack([owner, together]), axis=1, return_inverse=True)
    return _part_of_segments(together.reshape(-1), start, stop)


def _part_of_segments(owner: np.ndarray, start: np.ndarray, stop: np.ndarray) -> float:
    """Bytes of the pieces as a part of the segments that each owner touches."""
    pieces = np.unique(np.stack([owner, start, stop]), axis=1)
    segments = np.unique(np.stack([pieces[0], pieces[1] // traffic.SEGMENT]), axis=1)
    return float((pieces[2] - pieces[1]).sum() / (segments.shape[1] * traffic.SEGMENT))
