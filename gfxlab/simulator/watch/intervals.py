"""What workgroups did to LDS since their last barrier, so that what was harmless once is not looked at again.

A loop does the same between its barriers in every turn, and so do all workgroups. Whether an access meets another
wave's depends on nothing but the accesses of its workgroup since the barrier: where these are the same, so is the
answer.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gfxlab.simulator.core.memory import Pattern
from gfxlab.simulator.core.program import Decoded, Program

_UNKNOWN = -1
_MOST = 100_000  # states


@dataclass(eq=False)
class Places:
    """The cells that an access touches, and the wave of each, broadcasting to one shape.

    common: all waves of every workgroup do this; cells count from the first of a workgroup, and the same access will
    get this very object again. low, high: the bytes of a workgroup's LDS that they lie within.
    """

    cell: np.ndarray
    wave: np.ndarray
    low: int
    high: int
    common: bool = False


@dataclass(frozen=True)
class Access:
    """One instruction's access to LDS."""

    instruction: Decoded
    places: Places
    writes: bool


class Habits:
    """What workgroups of one program did between barriers and nobody met: of all its batches, and of later launches.

    Whether accesses meet depends on the cells and on nothing else. States are numbers: 0 after a barrier, each other
    one a step from the one before it.
    """

    def __init__(self) -> None:
        self.next: dict[tuple[int, Decoded, int], int] = {}
        self.steps: list[tuple[int, Access | None]] = [(_UNKNOWN, None)]
        self.places: dict[tuple[Pattern, int], Places] = {}  # of a pattern's accesses of so many bytes


def habits(program: Program, waves: int, size: int, unit: int) -> Habits:
    """Those of a program, for workgroups of so many waves, so much LDS and cells of so many bytes."""
    return _habits(program, waves, size, unit, threading.get_ident())


@lru_cache(maxsize=8)
def _habits(*key) -> Habits:
    return Habits()


class Intervals:
    """For each workgroup a state: what it did since its last barrier, as far as that is known to be harmless.

    Mostly all workgroups are in the same one: then it stands in `_of_all`, and the array is out of date.
    """

    def __init__(self, groups: int, known: Habits):
        self._states = np.zeros(groups, np.int64)
        self._of_all: int | None = 0
        self._known = known

    def repeat(self, groups: slice, access: Access) -> bool:
        """Go on with an access that these workgroups, or others, did before after the same ones; False: nobody did."""
        following = self._known.next.get(_step(self._common(groups), access))
        if following is None:
            return False
        self._set(groups, following)
        return True

    def learn(self, groups: slice, access: Access) -> None:
        """This access of these workgroups met nobody."""
        state = self._common(groups)
        if state == _UNKNOWN or not access.places.common or len(self._known.steps) == _MOST:
            return self.lose(groups)
        following = self._known.next[_step(state, access)] = len(self._known.steps)
        self._known.steps.append((state, access))
        self._set(groups, following)

    def lose(self, groups: slice) -> None:
        """These workgroups did what is not known to be harmless."""
        self._set(groups, _UNKNOWN)

    def barrier(self, groups: np.ndarray) -> None:
        """These workgroups, bool [workgroup], begin anew."""
        if groups.all():
            self._of_all = 0
        else:
            self._apart()[groups] = 0

    def accesses(self, groups: np.ndarray) -> list[tuple[np.ndarray, list[Access]]]:
        """What these workgroups, bool [workgroup], did since the barrier: numbers of workgroups, accesses in order."""
        states = set(self._apart()[groups].tolist()) - {0, _UNKNOWN}
        return [(np.flatnonzero(groups & (self._states == state)), self._path(state)) for state in states]

    def states(self) -> np.ndarray:
        """The state of each workgroup, int64, which may be changed to any that was there."""
        return self._apart()

    def _path(self, state: int) -> list[Access]:
        path = []
        while state > 0:
            state, access = self._known.steps[state]
            path.append(access)
        return path[::-1]

    def _set(self, groups: slice, state: int) -> None:
        if not groups.start and (groups.stop is None or groups.stop >= len(self._states)):
            self._of_all = state
        else:
            self._apart()[groups] = state

    def _apart(self) -> np.ndarray:
        """The state of each workgroup, which may be changed."""
        if self._of_all is not None:
            self._states[:], self._of_all = self._of_all, None
        return self._states

    def _common(self, groups: slice) -> int:
        if self._of_all is not None:
            return self._of_all
        states = self._states[groups]
        first = int(states[0])
        return first if (states == first).all() else _UNKNOWN


def _step(state: int, access: Access) -> tuple[int, Decoded, int]:
    return state, access.instruction, id(access.places)
