"""What an answer's kernels did, noted access by access while the interpreter runs them.

For every element that a kernel stores, the last program and line are kept, so that a wrong element can be traced back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gfxlab.engine import hooks

_MAX_FAULTS = 20


class Evidence:
    """An observer for `hooks.observe` over one call of the answer's entry.

    source: the file name of the answer; only kernels defined there count as the learner's own.
    faults: the list that `hooks.guard("record")` fills.
    """

    def __init__(self, source: str, faults: list[hooks.Fault]) -> None:
        self.launches: list[dict[str, Any]] = []
        self.events: dict[tuple[int, tuple[int, int, int], int], int] = {}
        self.overlap: dict[str, Any] | None = None
        self.faults: list[dict[str, Any]] = []
        self._source, self._guard_faults, self._faults_seen = source, faults, 0
        self._writers: dict[tuple[int, int], np.ndarray] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._alive: list[torch.Tensor] = []  # an address must not be used twice
        self._stored: dict[tuple[int, int, int], int] = {}

    # ---- called by the interpreter

    def on_launch(self, launch: hooks.Launch) -> None:
        mine = launch.fn.__code__.co_filename == self._source
        about = {"name": launch.name, "grid": list(launch.grid), "mine": mine, "twins": None, "unfilled": []}
        self.launches.append(about)
        self._tensors, self._stored = launch.tensors, {}
        self._alive.extend(self._tensors.values())

    def on_access(self, access: hooks.Access) -> None:
        self._note_faults(access)
        about = self.launches[-1]
        if access.kind == "load":
            if not access.has_other and not access.mask.all() and access.line not in about["unfilled"]:
                about["unfilled"].append(access.line)
        elif about["mine"] and access.tensor in self._tensors and access.mask.any():
            self._note_store(access, self._tensors[access.tensor])

    def on_finish(self, launch: hooks.Launch) -> None:
        first: dict[int, tuple[int, int, int]] = {}
        for program, what in self._stored.items():
            if what in first and self.launches[-1]["twins"] is None:
                self.launches[-1]["twins"] = [list(first[what]), list(program)]
            first.setdefault(what, program)

    # ---- asked afterwards

    def writers(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """For each element of `tensor`, the number of the event that stored it last, or -1; None when no kernel did."""
        owner = self._writers.get((tensor.untyped_storage().data_ptr(), tensor.element_size()))
        if owner is None:
            return None
        numbers = torch.from_numpy(owner).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return numbers.contiguous() if bool((numbers >= 0).any()) else None

    def event_table(self) -> list[list[int]]:
        """Event number -> [launch, x, y, z, line]."""
        return [[launch, *program, line] for launch, program, line in self.events]

    # ---- inside

    def _note_faults(self, access: hooks.Access) -> None:
        for fault in self._guard_faults[self._faults_seen :]:
            if len(self.faults) < _MAX_FAULTS:
                about = {"kind": fault.kind, "program": list(fault.program), "tensor": fault.tensor, "size": fault.size}
                about |= {"first_element": fault.first_element, "lanes": fault.lanes, "line": fault.line}
                self.faults.append(about | {"partial": bool(access.mask.any()), "message": fault.message})
        self._faults_seen = len(self._guard_faults)

    def _note_store(self, access: hooks.Access, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), tensor.element_size()
        if key not in self._writers:
            self._writers[key] = np.full(storage.nbytes() // tensor.element_size(), -1, np.int32)
        owner = self._writers[key]
        where = access.elements[access.mask] + tensor.storage_offset()
        event = self.events.setdefault((len(self.launches) - 1, access.program, access.line), len(self.events))
        if access.kind == "store":
            self._note_overlap(owner[where], event, access)
            before = self._stored.get(access.program, 0)
            self._stored[access.program] = hash((before, access.tensor, access.elements[access.mask].tobytes()))
        owner[where] = event

    def _note_overlap(self, earlier: np.ndarray, event: int, access: hooks.Access) -> None:
        """Remember the first element that two programs of one launch stored."""
        if self.overlap is not None or not (earlier >= 0).any():
            return
        table = list(self.events)
        for number in np.unique(earlier[earlier >= 0]):
            launch, program, _ = table[number]
            if launch == len(self.launches) - 1 and program != access.program:
                element = int(access.elements[access.mask][earlier == number][0])
                self.overlap = {"tensor": access.tensor, "element": element, "line": access.line}
                self.overlap["programs"] = [list(program), list(access.program)]
                return
