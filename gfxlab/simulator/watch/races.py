"""Races in LDS: two waves of a workgroup touch the same bytes, one of them writes, and no barrier lies between.

What each wave has read and written since the last barrier is remembered by cell, one byte a wave that tells which
instruction did it: a wave sets its own byte, and sees those of the others by reading all of them as one number.
Atomic accesses order themselves and are left out, and so are waves that write the same value with one instruction, as
compilers let them where several hold a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gfxlab.code import isa
from gfxlab.simulator.core import faults
from gfxlab.simulator.core.memory import Pattern
from gfxlab.simulator.core.numbers import U32
from gfxlab.simulator.core.program import Decoded, Program
from gfxlab.simulator.core.state import Watcher
from gfxlab.simulator.watch.intervals import Access, Habits, Intervals, Places, habits
from gfxlab.simulator.watch.notes import Notes

_MOST = 255  # what a byte can tell


class Races(Watcher):
    """Watches the LDS of one batch of workgroups.

    All workgroups mostly use their LDS alike, for addresses come from the thread's number.  As long as they do, the
    first one stands for all; from the first difference on, each has cells of its own.
    """

    def __init__(self, program: Program, groups: int, size: int, waves: int, notes: Notes):
        self.notes = notes
        self._groups, self._size, self._waves = groups, size, waves
        self._alike = groups > 1
        self._numbers, self._names = _numbers(program)
        self._columns = 1 << (waves - 1).bit_length()
        self._low, self._high = size, 0  # bytes touched at all
        self._seen: set[Decoded] = set()
        self._unit = _unit(program)
        kept = 1 if self._alike else groups
        self._habits: Callable[[int], Habits] = lambda unit: habits(program, waves, size, unit)
        self._intervals = Intervals(groups, self._habits(self._unit))
        self._stored: dict[Places, np.ndarray] = {}  # of common ones: whose are marked as written, bool [workgroup]
        self._applied = np.zeros(groups, bool)  # whether the cells tell what a workgroup did, or only its interval
        self._some_applied = False  # whether they do of any
        self._common = self._habits(self._unit).places
        self._take(np.zeros((kept, -(-size // self._unit), 2 * self._columns), np.uint8))
        self._ever = np.zeros(self._touched.shape[:2], bool)

    def _take(self, touched: np.ndarray) -> None:
        """Go on with these cells: [workgroup, cell, byte], the bytes of all waves that wrote before those that read."""
        self._touched = touched
        own = np.tile(np.eye(self._columns, dtype=np.uint8) * np.uint8(255), 2)  # [wave, byte]
        self._both, self._others = _as_words(touched), _as_words(~own)
        halves = touched.reshape(*touched.shape[:2], 2, self._columns)
        self._writers = _as_words(halves)
        self._other_writers = _as_words(np.ascontiguousarray(~own[:, : self._columns]))

    # ---- what happens ------------------------------------------------------------------------------------------------

    def local_load(self, w, instruction: Decoded, address: np.ndarray, lanes, width: int) -> None:
        places = self._places(w, address, lanes, width)
        if places is None:
            return
        if instruction not in self._seen:
            self._seen.add(instruction)
            if not self._ever.reshape(-1)[self._everywhere(places, self._groups_of(w)).cell].all():
                self._report_unwritten(w, instruction, address, lanes, width)
        if self._waves > 1 and self._meets(w, Access(instruction, places, writes=False)):
            self._report(w, instruction, address, lanes, width, "reads")

    def local_store(self, w, instruction: Decoded, address: np.ndarray, lanes, width: int, words) -> None:
        places = self._places(w, address, lanes, width)
        if places is None:
            return
        self._mark_written(places, self._groups_of(w))
        met = self._waves > 1 and self._meets(w, Access(instruction, places, writes=True))
        if met and not self.notes.has("race", instruction):
            lost = self._lost(w, instruction, address, lanes, width, words)
            self._report(w, instruction, address, lanes, width, "writes", lost)

    def local_atomic(self, w, instruction: Decoded, address: np.ndarray, lanes, width: int) -> None:
        places = self._places(w, address, lanes, width)
        if places is not None:
            self._mark_written(places, self._groups_of(w))

    def barrier(self, groups: np.ndarray) -> None:
        """Forget what these workgroups did before."""
        everyone = groups.all()
        if self._alike and not everyone:
            self._part()
        self._intervals.barrier(groups)
        if self._some_applied and self._applied[groups].any():
            low, high = self._low // self._unit, -(-self._high // self._unit)
            self._touched[slice(None) if everyone else groups, low:high] = 0
            self._applied[groups] = False
            self._some_applied = bool(self._applied.any())

    # ---- what need not be told again --------------------------------------------------------------------------------

    def states(self) -> np.ndarray:
        """Of each workgroup, int64: what it did since its last barrier, as `Intervals` counts. May be changed."""
        return self._intervals.states()

    def may_skip(self, w) -> bool:
        """Whether an access of the window that was told of in the same state may go untold but for that state."""
        if self._alike and w.size < self._groups * self._waves:
            return False
        return not (self._some_applied and self._applied[self._groups_of(w)].any())

    def written(self, pattern: Pattern, width: int) -> np.ndarray | None:
        """For which workgroups the bytes of these places count as written by one access: bool [workgroup], kept up.

        None: no load or store that all of a workgroup's waves made was told of there. A load that was, and a store
        where it says True, change nothing but states the next time.
        """
        places = self._common.get((pattern, width))
        return None if places is None else self._stored_by(places)

    def _stored_by(self, places: Places) -> np.ndarray:
        if places not in self._stored:
            self._stored[places] = np.zeros(self._groups, bool)
        return self._stored[places]

    def _mark_written(self, places: Places, groups: slice) -> None:
        if not places.common:
            self._ever.reshape(-1)[places.cell] = True
            return
        stored = self._stored_by(places)
        if not stored[groups].all():
            self._ever.reshape(-1)[self._everywhere(places, groups).cell] = stored[groups] = True

    # ---- who meets whom ----------------------------------------------------------------------------------------------

    def _meets(self, w, access: Access) -> bool:
        """Whether an access meets one of another wave since the barrier: a load one that wrote, a store any."""
        groups = self._groups_of(w)
        if self._intervals.repeat(groups, access):
            if self._some_applied and self._applied[groups].any():
                self._catch_up()  # or a barrier of the others alone would leave in their cells what is written here
                self._apply(access, groups)
            return False
        self._catch_up()
        cell, wave = self._apply(access, groups)
        if access.writes:
            met = np.count_nonzero(self._both[cell] & self._others[wave])
        else:
            met = np.count_nonzero(self._writers[2 * cell] & self._other_writers[wave])
        if met:
            self._intervals.lose(groups)
        else:
            self._intervals.learn(groups, access)
        return bool(met)

    def _catch_up(self) -> None:
        """Write into the cells what workgroups did since the barrier and only their intervals tell."""
        if self._applied.all():
            return
        for groups, accesses in self._intervals.accesses(~self._applied):
            for access in accesses:
                self._apply(access, groups)
        self._applied[:] = self._some_applied = True

    def _apply(self, access: Access, groups: slice | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write an access of these workgroups into the cells; which, and of which wave."""
        places = self._everywhere(access.places, groups)
        self._low, self._high = min(self._low, places.low), max(self._high, places.high)
        column = places.wave if access.writes else self._columns + places.wave
        self._touched.reshape(-1)[places.cell * (2 * self._columns) + column] = self._numbers[access.instruction]
        return places.cell, places.wave

    def _everywhere(self, places: Places, groups: slice | np.ndarray) -> Places:
        """The cells of these workgroups; of one for all as long as all do the same."""
        if not places.common or self._alike:
            return places
        first = np.arange(self._groups)[groups] * self._touched.shape[1]
        cell = first.reshape(-1, *[1] * places.cell.ndim) + places.cell
        return Places(cell, places.wave, places.low, places.high)

    # ---- cells -------------------------------------------------------------------------------------------------------

    def _groups_of(self, w) -> slice:
        """The workgroups of the window."""
        return slice(None) if self._alike else slice(w.window.start // self._waves, -(-w.window.stop // self._waves))

    def _places(self, w, address: np.ndarray, lanes, width: int) -> Places | None:
        """The cells of the lanes that are on and in range; None: there is no such lane."""
        pattern = w.lds.pattern(address) if lanes is None else None
        if pattern is None or not pattern.inside(width, self._size):
            return self._find(w, address, lanes, width)
        if self._alike and w.size < self._groups * self._waves:
            self._part()
        if (pattern, width) not in self._common:
            self._common[pattern, width] = self._of_pattern(pattern.place, width)
        return self._common[pattern, width]

    def _of_pattern(self, place: np.ndarray, width: int) -> Places:
        found = self._cells(place, np.zeros((1, 1), np.int64), np.arange(self._waves)[:, None], width)
        return replace(found, common=True)

    def _cells(self, address: np.ndarray, group: np.ndarray, wave: np.ndarray, width: int) -> Places:
        """The cells at these addresses of a workgroup, along a last axis if several, and their waves."""
        if int(np.bitwise_or.reduce(address, axis=None)) & (self._unit - 1):
            self._split()
        cell = address // self._unit + group * self._touched.shape[1]
        several = width // self._unit
        if several > 1:
            cell, wave = cell[..., None] + np.arange(several), wave[..., None]
        return Places(cell, wave, int(address.min()), int(address.max()) + width)

    def _find(self, w, address: np.ndarray, lanes, width: int) -> Places | None:
        first, last = w.window.start, w.window.stop
        if self._alike:
            address, lanes = self._of_one(w, address, lanes)
            if self._alike:
                first, last = 0, self._waves
        number = np.arange(first, last)[:, None]
        group, wave = number // self._waves, number % self._waves
        if lanes is not None or int(address.min()) < 0 or int(address.max()) + width > self._size:
            lanes = _inside(address, lanes, width, self._size)
            if not lanes.any():
                return None
            address, group, wave = (np.broadcast_to(a, lanes.shape)[lanes] for a in (address, group, wave))
        return self._cells(address, group, wave, width)

    def _of_one(self, w, address: np.ndarray, lanes) -> tuple[np.ndarray, np.ndarray | None]:
        """What the first workgroup does if all do the same; otherwise they part here."""
        total = self._groups * self._waves
        whole_address, whole_lanes = address, lanes
        if w.size < total:  # some waves stand elsewhere
            whole_address = np.zeros((total, w.lanes), address.dtype)
            whole_lanes = np.zeros(whole_address.shape, bool)
            whole_address[w.window], whole_lanes[w.window] = address, True if lanes is None else lanes
        if whole_lanes is not None:
            whole_address = np.where(whole_lanes, whole_address, 0)
        arrays = [a for a in (whole_address, whole_lanes) if a is not None]
        if all(np.array_equal(a[self._waves :], a[: -self._waves]) for a in arrays):
            return whole_address[: self._waves], None if whole_lanes is None else whole_lanes[: self._waves]
        self._part()
        return address, lanes

    def _part(self) -> None:
        """From here on every workgroup has its own cells."""
        self._alike = False
        self._ever = np.repeat(self._ever, self._groups, axis=0)
        self._take(np.repeat(self._touched, self._groups, axis=0))

    def _split(self) -> None:
        """An access lies across cells: go on with cells of one byte, and with what they tell."""
        self._catch_up()
        self._intervals = Intervals(self._groups, self._habits(1))
        self._intervals.lose(slice(None))
        self._common, self._stored = self._habits(1).places, {}
        self._ever = np.repeat(self._ever, self._unit, axis=1)
        touched, self._unit = np.repeat(self._touched, self._unit, axis=1), 1
        self._take(touched)

    # ---- reports -----------------------------------------------------------------------------------------------------

    def _lost(self, w, instruction: Decoded, address, lanes, width: int, words) -> tuple[np.ndarray, np.ndarray]:
        """Which lanes write another value than was there, and which than stays there, for some lane wrote it after."""
        bits = U32((1 << 8 * min(width, 4)) - 1)

        def differs() -> np.ndarray:
            there = w.lds.read(w, instruction, address, width)
            return np.logical_or.reduce([(a ^ b) & bits != 0 for a, b in zip(there, words)])

        before = differs()
        w.lds.write(w, instruction, address, words, width)  # once more afterwards, to the same effect
        return before, differs()

    def _report(self, w, instruction: Decoded, address, lanes, width: int, does: str, lost=None) -> None:
        """The first lane whose bytes another wave has touched in this interval.

        lost: of a write, see `_lost`; several waves may write the same value.
        """
        inside = _inside(address, lanes, width, self._size)
        touched = self._touched_by_others(w, address, inside, width)
        if lost is None:
            touched[..., 1, :] = 0
        else:
            changed, overwritten = (lanes_of[..., None, None] for lanes_of in lost)
            same = (touched[..., 0, :] == self._numbers[instruction]) | ~changed
            touched[..., 0, :][same & ~overwritten] = 0
        found = np.argwhere(touched.any(axis=(2, 3, 4)) & inside)
        if not len(found):
            return
        wave, lane = found[0]
        cell, reads, other = (int(i) for i in np.argwhere(touched[wave, lane])[0])
        earlier = self._names[touched[wave, lane, cell, reads, other] - 1]
        byte = (int(address[wave, lane]) // self._unit + cell) * self._unit
        self.notes.add(
            "race",
            instruction,
            f"{faults.describe_lane(w, int(wave), int(lane))} {does} byte {byte} of LDS{faults.at_line(instruction)}, "
            f"which wave {other} {'read' if reads else 'wrote'}{faults.at_line(earlier)}, with no barrier between: "
            f"which comes first is luck. First `{earlier.text}`, then `{instruction.text}`.",
        )

    def _touched_by_others(self, w, address, inside, width: int) -> np.ndarray:
        """What other waves did to each lane's cells: [wave, lane, cell, wrote or read, wave]."""
        number = np.arange(w.window.start, w.window.stop)
        group = 0 if self._alike else (number // self._waves)[:, None]
        first = np.where(inside, address, 0) // self._unit + group * self._touched.shape[1]
        cells = first[..., None] + np.arange(max(1, width // self._unit))
        own = np.arange(self._columns) == (number % self._waves)[:, None]
        touched = self._touched.reshape(-1, 2, self._columns)[cells]
        return np.where(own[:, None, None, None, :], np.uint8(0), touched)

    def _report_unwritten(self, w, instruction: Decoded, address, lanes, width: int) -> None:
        bad = _inside(address, lanes, width, self._size)
        for wave, lane in np.argwhere(bad):
            group = 0 if self._alike else (w.window.start + int(wave)) // self._waves
            first = int(address[wave, lane]) // self._unit
            bad[wave, lane] = not self._ever[group, first : first + max(1, width // self._unit)].all()
        says = lambda wave, lane: f"reads byte {address[wave, lane]} of LDS before anybody wrote it"  # noqa: E731
        self.notes.add_lane("unwritten", w, instruction, bad, says)


def _as_words(data: np.ndarray) -> np.ndarray:
    """Bytes along the last axis as few large numbers: [rows] or, where 8 bytes do not hold them, [rows, numbers]."""
    words = data.view(f"u{min(8, data.shape[-1])}")
    return words.reshape(-1) if words.shape[-1] == 1 else words.reshape(-1, words.shape[-1])


def _inside(address: np.ndarray, lanes, width: int, size: int) -> np.ndarray:
    inside = (address >= 0) & (address + width <= size)
    return inside if lanes is None else inside & lanes


def _touches_lds(instruction: Decoded) -> bool:
    return instruction.kind == "LDS" or instruction.loads_to_lds


@lru_cache(maxsize=128)
def _numbers(program: Program) -> tuple[dict[Decoded, int], list[Decoded]]:
    """A number from 1 on for every instruction that touches LDS, and an instruction for every number.

    Those of one source line share a number where there are too many.
    """
    touching = [i for i in program.instructions if _touches_lds(i)]
    keys = touching if len(touching) <= _MOST else [i.line for i in touching]
    place = {key: min(n, _MOST - 1) for n, key in enumerate(dict.fromkeys(keys))}
    names: dict[int, Decoded] = {}
    for key, instruction in zip(keys, touching):
        names.setdefault(place[key], instruction)
    return {i: place[key] + 1 for key, i in zip(keys, touching)}, [names[n] for n in sorted(names)]


@lru_cache(maxsize=128)
def _unit(program: Program) -> int:
    """Bytes of the narrowest access: cells of that size make it, and the wider ones, whole cells."""
    unit = 16
    for instruction in filter(_touches_lds, program.instructions):
        twice = 2 if isa.TWO_AT_ONCE.match(instruction.mnemonic) else 1
        unit = math.gcd(unit, isa.width(instruction.mnemonic) // 8 // twice or 1)
    return unit
