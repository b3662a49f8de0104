"""What the programs of one launch do to each other, found from their accesses in the interpreter.

The interpreter runs program after program; hardware runs them at the same time.  So where two programs touch one
element and one of them writes it, the outcome is luck, unless an atomic on a common address orders them: one program
makes it after its access, the other before its own (a counter, a flag, a lock).

- Two stores of different values to one element.  Equal values do no harm and are only counted.
- A store, and a load by another program; an atomic, and a plain access by another program.
- Two stores of different values by different lanes of one program: its waves run at the same time as well.

Whether the luck shows in the result is found by running the programs in another order (see `grading`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_lab.authoring.far_rows import untouched
from course_lab.check.protocol import Program, RaceSeen

_MOST = 64  # pairs of accesses that are looked at in one launch
Address = tuple[int, int]  # of a storage, and an element in it


@dataclass(frozen=True)
class Touch:
    """One access: who, where, in which of the kernel's lines."""

    program: Program
    tensor: str
    line: int
    atomic: bool = False


class Races:
    """Follows one launch; accesses come in the order in which the interpreter makes them."""

    def __init__(self) -> None:
        self.alike = 0  # elements that several programs stored with one value
        self.in_place = False  # a program stored an element that it, too, had loaded
        self.lanes: RaceSeen | None = None  # two of one program's stored different values to one element
        self._events: list[Touch] = [Touch((-1, -1, -1), "", 0)]  # number 0: nobody
        self._shadows: dict[tuple[int, int], _Shadow] = {}
        self._atomics: dict[Program, list[tuple[int, frozenset[Address]]]] = {}
        self._own: dict[int, int] = {}  # of an event that is part of an atomic, that one's number
        self._pairs: dict[tuple[int, int, str], int] = {}  # earlier and later event, kind of conflict -> element

    def load(self, storage: tuple[int, int], count: int, where: np.ndarray, first: int, touch: Touch) -> int:
        """Note a load; `where`: elements of the storage, `first`: where the tensor begins in it.

        Returns how many of them nobody had loaded before.
        """
        shadow, number = self._shadow(storage, count), self._number(touch)
        if touch.atomic:
            self._own[number] = number - 1
        else:
            self._meet(shadow.atomics[where], number, "load", where - first)
        self._meet(shadow.stored[where], number, "load", where - first)
        fresh = where[shadow.first_load[where] == 0]
        shadow.first_load[fresh] = number
        shadow.last_load[where] = number
        return int(np.unique(fresh).size)

    def store(
        self,
        storage: tuple[int, int],
        count: int,
        where: np.ndarray,
        first: int,
        touch: Touch,
        differs: np.ndarray,
        lanes: np.ndarray,
    ) -> None:
        """Note a store; `differs`: where its value is not what stood there.  lanes: their numbers in the block."""
        shadow, number = self._shadow(storage, count), self._number(touch)
        earlier = shadow.stored[where]
        self._meet(np.where(differs, earlier, 0), number, "store", where - first)
        self._meet_lanes(np.where(differs & (shadow.lane[where] != lanes), earlier, 0), touch, where - first)
        shadow.lane[where] = lanes
        self.alike += int(np.count_nonzero(self._others(earlier, touch.program) & ~differs))
        for others in (shadow.first_load, shadow.last_load, shadow.atomics):
            self._meet(others[where], number, "load", where - first)
        shadow.stored[where] = number

    def atomic(self, storage: tuple[int, int], count: int, where: np.ndarray, first: int, touch: Touch) -> None:
        """Note an atomic access: it orders what comes before and behind it, and races with none of its kind.

        A load that it does as well is noted next.
        """
        shadow, number = self._shadow(storage, count), self._number(touch)
        addresses = frozenset((storage[0], int(element)) for element in where[:_MOST])
        self._atomics.setdefault(touch.program, []).append((number, addresses))
        self._own[number] = number
        for others in (shadow.stored, shadow.first_load, shadow.last_load):
            self._meet(others[where], number, "load", where - first)
        shadow.atomics[where] = number

    def found(self) -> RaceSeen | None:
        """The first conflict that nothing orders."""
        for (earlier, later, kind), element in self._pairs.items():
            if not self._ordered(earlier, later):
                one, other = self._events[earlier], self._events[later]
                programs, lines = (one.program, other.program), (one.line, other.line)
                return RaceSeen(kind, other.tensor, element, programs, lines)
        return None

    # ---- inside

    def _shadow(self, storage: tuple[int, int], count: int) -> _Shadow:
        if storage not in self._shadows:
            self._shadows[storage] = _Shadow(count)
        return self._shadows[storage]

    def _number(self, touch: Touch) -> int:
        self._events.append(touch)
        return len(self._events) - 1

    def _others(self, numbers: np.ndarray, program: Program) -> np.ndarray:
        """Where the event is of another program."""
        found = np.unique(numbers)
        mine = [n for n in found if n == 0 or self._events[n].program == program]
        return ~np.isin(numbers, mine)

    def _meet(self, earlier: np.ndarray, number: int, kind: str, elements: np.ndarray) -> None:
        if len(self._pairs) >= _MOST or not earlier.any():
            return
        program, atomic = self._events[number].program, self._events[number].atomic
        for other in np.unique(earlier[earlier > 0]):
            if atomic and self._events[other].atomic:
                continue
            if self._events[other].program == program:
                self.in_place |= kind == "load"
            else:
                element = int(elements[np.argmax(earlier == other)])
                self._pairs.setdefault((int(other), number, kind), element)

    def _meet_lanes(self, earlier: np.ndarray, touch: Touch, elements: np.ndarray) -> None:
        """earlier: the events whose values another lane now replaces; those of the same program count."""
        if self.lanes is not None or not earlier.any():
            return
        own = [n for n in np.unique(earlier[earlier > 0]) if self._events[n].program == touch.program]
        if own:
            element, before = int(elements[np.argmax(earlier == own[0])]), self._events[own[0]]
            programs = (touch.program, touch.program)
            self.lanes = RaceSeen("lanes", touch.tensor, element, programs, (before.line, touch.line))

    def _ordered(self, earlier: int, later: int) -> bool:
        """Whether an atomic on a common address comes after the one access and before the other, and is neither."""
        one, other = (self._events[number].program for number in (earlier, later))
        return bool(
            self._addresses(one, earlier, after=True) & self._addresses(other, later, after=False)
            or self._addresses(other, later, after=True) & self._addresses(one, earlier, after=False)
        )

    def _addresses(self, program: Program, number: int, *, after: bool) -> set[Address]:
        made = [pair for pair in self._atomics.get(program, ()) if pair[0] != self._own.get(number)]
        return {a for at, addresses in made if (at > number) == after for a in addresses}


class _Shadow:
    """For each element of a storage the numbers of events; 0 is nobody.

    Who stored last, who loaded first and last, whose atomic came last; and which lane of its block stored last.
    """

    def __init__(self, count: int) -> None:
        self.stored, self.first_load, self.last_load, self.atomics, self.lane = (
            np.frombuffer(untouched(4 * count), np.int32, count) for _ in range(5)
        )
