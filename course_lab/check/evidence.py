"""What an answer's kernels did, noted access by access while the interpreter runs them.

For every element that a kernel stores, the last program and line are kept, so that a wrong element can be traced back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from course_lab.authoring.far_rows import is_spread, untouched
from course_lab.check import guard, outside
from course_lab.check.protocol import Event, FaultSeen, LaunchSeen, Loads, Overlap, Program, UnsetSeen
from course_lab.check.races import Races, Touch
from gfxlab.engine import hooks
from gfxlab.strides import Strided

_MAX_FAULTS = 20
_MAX_FIRSTS = 1024  # programs
_MAX_COMPARED = 1 << 17  # elements


class Evidence:
    """An observer for `hooks.observe` over one call of the answer's entry.

    sources: the file names of the answer and of those it builds on; only kernels defined there are the learner's own.
    faults: the list that `hooks.guard("record")` fills.
    given: the arguments of the call; those that are tensors are looked for among a launch's.
    """

    def __init__(self, sources: set[str], faults: list[hooks.Fault], given: Iterable[Any] = ()) -> None:
        self.launches: list[LaunchSeen] = []
        self.events: dict[Event, int] = {}  # and the number of each
        self.overlap: Overlap | None = None
        self.faults: list[FaultSeen] = []
        self._sources, self._guard_faults, self._faults_seen = sources, faults, 0
        self._arguments = {at: value for at, value in enumerate(given) if isinstance(value, torch.Tensor)}
        self._given = {_address(value) for value in self._arguments.values()}
        self._copied: set[float] = set()  # the numbers of all tensors that are no arguments
        self._writers: dict[tuple[int, int], np.ndarray] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._alive: list[torch.Tensor] = []  # an address must not be used twice
        self._stored: dict[Program, int] = {}
        self._loads: dict[str, list[int]] = {}  # lanes, and different elements
        self._busy: dict[Program, int] = {}  # and the first element that each stored
        self._last: dict[tuple[int, str | None, Program], int] = {}  # where the store before began
        self._creeps: tuple[int, ...] = ()
        self._unset: dict[str, int] = {}  # tensors of which a launch takes what nobody stored, and the line
        self._written: set[str] = set()  # tensors to which it stores
        self._changed: dict[_Part, None] = {}  # where this launch stored
        self._left: dict[_Part, np.ndarray] = {}  # what the last such launch left there
        self._races = Races()
        self._starts = outside.Starts()

    # ---- called by the interpreter

    def on_launch(self, launch: hooks.Launch) -> None:
        mine = launch.fn.__code__.co_filename in self._sources
        about = {"constants": _constants(launch.args), "tensors": tuple(launch.tensors)}
        about["given"] = tuple(name for name, tensor in launch.tensors.items() if _address(tensor) in self._given)
        about["reached"] = self._reached(list(launch.tensors.values())) if mine else ()
        self.launches.append(LaunchSeen(launch.name, tuple(launch.grid), mine, **about))
        self._tensors, self._stored, self._starts = launch.tensors, {}, outside.Starts()
        self._loads, self._busy, self._races = {}, {}, Races()
        self._last, self._creeps = {}, ()
        self._unset, self._written = {}, set()
        self._alive.extend(self._tensors.values())

    def _reached(self, tensors: list[torch.Tensor]) -> tuple[int, ...]:
        """Positions of the entry's arguments of which a launch with these tensors gets all numbers.

        A copy will do, in another order or dtype, or cut in pieces.
        """
        known = {at for launch in self.launches for at in launch.reached}
        addresses = set(map(_address, tensors))
        reached = {at for at, value in self._arguments.items() if _address(value) in addresses}
        if left := self._arguments.keys() - known - reached:
            others = [tensor for tensor in tensors if _address(tensor) not in self._given]
            self._copied.update(*map(_numbers, others))
            reached |= {at for at in left if _numbers(self._arguments[at]) <= self._copied}
        return tuple(sorted(reached))

    def on_access(self, access: hooks.Access) -> None:
        self._starts.note(access)
        self._note_faults(access)
        launch = self.launches[-1]
        unfilled = access.kind == "load" and not access.has_other and not access.mask.all()
        if unfilled and access.line not in launch.unfilled:
            self.launches[-1] = replace(launch, unfilled=(*launch.unfilled, access.line))
        if not launch.mine or access.tensor not in self._tensors or not access.mask.any():
            return
        place = _Place.of(access, self._tensors[access.tensor])
        if access.kind != "store":
            self._note_unset(access, place)
        if access.kind == "load":
            self._note_load(access, place)
        else:
            self._note_store(access, place)

    def on_finish(self, launch: hooks.Launch) -> None:
        self.launches[-1] = replace(
            self.launches[-1],
            twins=self._twins(),
            idle=max(self.launches[-1].programs - len(self._busy), 0),
            firsts=self._firsts(),
            creeps=self._creeps,
            race=self._races.found(),
            lanes=self._races.lanes,
            alike=self._races.alike,
            in_place=self._races.in_place,
            loads=tuple(Loads(name, *counts) for name, counts in self._loads.items()),
            unset=next((UnsetSeen(name, line) for name, line in self._unset.items() if name in self._written), None),
        )
        self._races = Races()
        self._left |= {part: _held(part) for part in self._changed if part[3] <= _MAX_COMPARED and part[1] <= 8}
        self._changed = {}

    def _firsts(self) -> tuple[int, ...]:
        x, y, z = (*self.launches[-1].grid, 1, 1)[:3]
        if x * y * z > _MAX_FIRSTS:
            return ()
        return tuple(self._busy.get((i, j, k), -1) for k in range(z) for j in range(y) for i in range(x))

    def _twins(self) -> tuple[Program, Program] | None:
        """Two programs that stored to the same elements throughout."""
        first: dict[int, Program] = {}
        for program, what in self._stored.items():
            if what in first:
                return first[what], program
            first[what] = program
        return None

    # ---- asked afterwards

    def writers(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """For each element of `tensor`, the number of the event that stored it last, or -1; None when no kernel did."""
        owner = self._writers.get((tensor.untyped_storage().data_ptr(), tensor.element_size()))
        if owner is None:
            return None
        numbers = torch.from_numpy(owner).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()) - 1
        return numbers.contiguous() if bool((numbers >= 0).any()) else None

    def written_over(self, tensor: torch.Tensor) -> bool:
        """Whether something that a kernel stored in `tensor` was changed behind its launch, which only PyTorch can."""
        storage = tensor.untyped_storage().data_ptr(), tensor.element_size()
        for part, left in self._left.items():
            if part[:2] == storage:
                _, _, first, count = part
                if bool(((left != _held(part)) & (self._writers[storage][first : first + count] > 0)).any()):
                    return True
        return False

    # ---- inside

    def _note_faults(self, access: hooks.Access) -> None:
        for fault in self._guard_faults[self._faults_seen :]:
            if len(self.faults) < _MAX_FAULTS:
                names = ("kind", "program", "tensor", "size", "first_element", "lanes", "line", "message")
                about = {name: getattr(fault, name) for name in names}
                tensor = self._tensors.get(fault.tensor)
                about["index"] = _index(fault.first_element, tensor)
                if tensor is not None and access.lanes is not None:
                    about["outside"] = outside.look(access, fault.outside, tensor, self._starts)
                self.faults.append(FaultSeen(partial=bool(access.mask.any()), **about))
        self._faults_seen = len(self._guard_faults)

    def _note_unset(self, access: hooks.Access, place: _Place) -> None:
        """Remember the first line that takes from a tensor what nobody has stored there."""
        if access.tensor not in self._unset and guard.is_poison(place.held(), place.tensor.dtype):
            self._unset[access.tensor] = access.line

    def _note_load(self, access: hooks.Access, place: _Place) -> None:
        touch = Touch(access.program, access.tensor, access.line, access.ordered)
        if access.ordered:
            self._races.atomic(place.storage, place.count, place.where, place.first, touch)
        counts = self._loads.setdefault(access.tensor, [0, 0])
        counts[0] += place.where.size
        counts[1] += self._races.load(place.storage, place.count, place.where, place.first, touch)

    def _note_store(self, access: hooks.Access, place: _Place) -> None:
        if place.storage not in self._writers:
            self._writers[place.storage] = _owners(place.count)
        owner, where = self._writers[place.storage], place.where
        self._written.add(access.tensor)
        self._busy.setdefault(access.program, int(access.elements[access.mask][0]))
        touch = Touch(access.program, access.tensor, access.line, access.ordered)
        if access.ordered:
            self._races.atomic(place.storage, place.count, where, place.first, touch)
        else:
            lanes = np.flatnonzero(access.mask)
            self._races.store(place.storage, place.count, where, place.first, touch, place.differs(access), lanes)
        event = self.events.setdefault(Event(len(self.launches) - 1, access.program, access.line), len(self.events))
        if access.kind == "store":
            self._note_overlap(owner[where] - 1, event, access)
            self._note_step(access)
            before = self._stored.get(access.program, 0)
            self._stored[access.program] = hash((before, access.tensor, access.elements[access.mask].tobytes()))
        owner[where] = event + 1
        self._changed[*place.storage, place.first, Strided.of(place.tensor).span] = None

    def _note_step(self, access: hooks.Access) -> None:
        """Remember a block of neighbours that begins inside the one that this program stored there a turn before."""
        lanes = access.lanes
        if self._creeps or lanes is None or lanes.ndim != 1 or lanes.size < 2 or (np.diff(lanes) != 1).any():
            return
        key, first = (access.line, access.tensor, access.program), int(lanes[0])
        step = first - self._last.get(key, first)
        if 0 < step < lanes.size:
            self._creeps = (access.line, step, lanes.size)
        self._last[key] = first

    def _note_overlap(self, earlier: np.ndarray, event: int, access: hooks.Access) -> None:
        """Remember the first element that two programs of one launch stored."""
        if self.overlap is not None or not (earlier >= 0).any():
            return
        table = list(self.events)
        for number in np.unique(earlier[earlier >= 0]):
            before = table[number]
            if before.launch == len(self.launches) - 1 and before.program != access.program:
                element = int(access.elements[access.mask][earlier == number][0])
                self.overlap = Overlap(access.tensor, element, access.line, (before.program, access.program))
                return


@dataclass(frozen=True)
class _Place:
    """Where an access goes: the storage (address, bytes of an element), how long it is, which of its elements."""

    storage: tuple[int, int]
    count: int
    where: np.ndarray
    first: int
    tensor: torch.Tensor

    @classmethod
    def of(cls, access: hooks.Access, tensor: torch.Tensor) -> _Place:
        storage, size, first = tensor.untyped_storage(), tensor.element_size(), tensor.storage_offset()
        where = access.elements[access.mask] + first
        return cls((storage.data_ptr(), size), storage.nbytes() // size, where, first, tensor)

    def differs(self, access: hooks.Access) -> np.ndarray:
        """Where the value to be stored is not, bit for bit, what stands there."""
        size = self.storage[1]
        values = np.broadcast_to(access.values, access.mask.shape)[access.mask]
        if values.itemsize != size:
            return np.ones(values.shape, bool)
        return self.held() != values.view(f"u{size}")

    def held(self) -> np.ndarray:
        """What lies there now, as unsigned integers."""
        size = self.storage[1]
        memory = (ctypes.c_uint8 * (self.count * size)).from_address(self.storage[0])
        return np.frombuffer(memory, f"u{size}")[self.where]


def _index(element: int, tensor: torch.Tensor | None) -> tuple[int, ...]:
    """Where an element lies or would lie, dimension by dimension; () where that is no place of a contiguous tensor."""
    if tensor is None or tensor.dim() < 2 or not tensor.is_contiguous() or element < 0 or not tensor.numel():
        return ()
    found = []
    for stride in tensor.stride():
        found.append(element // stride)
        element %= stride
    return tuple(found)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _numbers(tensor: torch.Tensor) -> set[float]:
    """All different numbers of a tensor; none of one that would take long."""
    if tensor.numel() > _MAX_COMPARED or is_spread(tensor):
        return set()
    return set(tensor.detach().cpu().double().nan_to_num().flatten().tolist())


def _constants(args: dict[str, Any]) -> tuple[tuple[str, int | float | bool | str | None], ...]:
    plain = {name: getattr(value, "value", value) for name, value in args.items()}  # of a constexpr
    return tuple((name, value) for name, value in plain.items() if type(value) in (int, float, bool, str, type(None)))


_Part = tuple[int, int, int, int]  # of a storage: its address, bytes of an element, the first element, how many


def _held(part: _Part) -> np.ndarray:
    """A copy of what lies there, as unsigned integers."""
    address, size, first, count = part
    memory = (ctypes.c_uint8 * (count * size)).from_address(address + first * size)
    return np.frombuffer(memory, f"u{size}").copy()


def _owners(count: int) -> np.ndarray:
    """For each element one more than the number of an event, 0 for none; memory is taken where it is touched."""
    return np.frombuffer(untouched(4 * count), np.int32, count)
