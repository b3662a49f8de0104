"""What an answer's kernels did, noted access by access while the interpreter runs them.

For every element that a kernel stores, the last program and line are kept, so that a wrong element can be traced back.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from course_lab.authoring.spread import untouched
from course_lab.check.protocol import Event, FaultSeen, LaunchSeen, Overlap, Program
from gfxlab.engine import hooks

_MAX_FAULTS = 20


class Evidence:
    """An observer for `hooks.observe` over one call of the answer's entry.

    source: the file name of the answer; only kernels defined there count as the learner's own.
    faults: the list that `hooks.guard("record")` fills.
    """

    def __init__(self, source: str, faults: list[hooks.Fault]) -> None:
        self.launches: list[LaunchSeen] = []
        self.events: dict[Event, int] = {}  # and the number of each
        self.overlap: Overlap | None = None
        self.faults: list[FaultSeen] = []
        self._source, self._guard_faults, self._faults_seen = source, faults, 0
        self._writers: dict[tuple[int, int], np.ndarray] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._alive: list[torch.Tensor] = []  # an address must not be used twice
        self._stored: dict[Program, int] = {}

    # ---- called by the interpreter

    def on_launch(self, launch: hooks.Launch) -> None:
        mine = launch.fn.__code__.co_filename == self._source
        self.launches.append(LaunchSeen(launch.name, tuple(launch.grid), mine))
        self._tensors, self._stored = launch.tensors, {}
        self._alive.extend(self._tensors.values())

    def on_access(self, access: hooks.Access) -> None:
        self._note_faults(access)
        launch = self.launches[-1]
        if access.kind == "load":
            if not access.has_other and not access.mask.all() and access.line not in launch.unfilled:
                self.launches[-1] = replace(launch, unfilled=(*launch.unfilled, access.line))
        elif launch.mine and access.tensor in self._tensors and access.mask.any():
            self._note_store(access, self._tensors[access.tensor])

    def on_finish(self, launch: hooks.Launch) -> None:
        first: dict[int, Program] = {}
        for program, what in self._stored.items():
            if what in first:
                self.launches[-1] = replace(self.launches[-1], twins=(first[what], program))
                break
            first[what] = program

    # ---- asked afterwards

    def writers(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """For each element of `tensor`, the number of the event that stored it last, or -1; None when no kernel did."""
        owner = self._writers.get((tensor.untyped_storage().data_ptr(), tensor.element_size()))
        if owner is None:
            return None
        numbers = torch.from_numpy(owner).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()) - 1
        return numbers.contiguous() if bool((numbers >= 0).any()) else None

    # ---- inside

    def _note_faults(self, access: hooks.Access) -> None:
        for fault in self._guard_faults[self._faults_seen :]:
            if len(self.faults) < _MAX_FAULTS:
                names = ("kind", "program", "tensor", "size", "first_element", "lanes", "line", "message")
                about = {name: getattr(fault, name) for name in names}
                self.faults.append(FaultSeen(partial=bool(access.mask.any()), **about))
        self._faults_seen = len(self._guard_faults)

    def _note_store(self, access: hooks.Access, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), tensor.element_size()
        if key not in self._writers:
            self._writers[key] = _owners(storage.nbytes() // tensor.element_size())
        owner = self._writers[key]
        where = access.elements[access.mask] + tensor.storage_offset()
        event = self.events.setdefault(Event(len(self.launches) - 1, access.program, access.line), len(self.events))
        if access.kind == "store":
            self._note_overlap(owner[where] - 1, event, access)
            before = self._stored.get(access.program, 0)
            self._stored[access.program] = hash((before, access.tensor, access.elements[access.mask].tobytes()))
        owner[where] = event + 1

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


def _owners(count: int) -> np.ndarray:
    """For each element one more than the number of an event, 0 for none; memory is taken where it is touched."""
    return np.frombuffer(untouched(4 * count), np.int32, count)
