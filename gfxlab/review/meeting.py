"""Where two programs of a launch meet: the line that reads what another program of the same launch writes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.engine.hooks import Access
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.watch.accesses import Accesses

_SEVERAL = -2  # programs wrote the element
Place = tuple[str, int]


def place(compiled: Compiled, run: Run, values: list[Value], options: dict) -> Place:
    """File and line of the first such load; else of an atomic, or of a store where two write; ("", 0) for none.

    The launch is executed once more, in place: `values` are no longer needed.
    """
    seen = _Seen(run.grid)
    watching = {"profile": False, "checks": False, "watchers": (Accesses(seen.add),)}
    execute(compiled, run.grid, values, **{**options, **watching})
    return seen.meeting()


class _Seen:
    """Who wrote which element, and every load and store."""

    def __init__(self, grid: tuple[int, int, int]):
        self._grid = grid
        self._writers: dict[str, dict[int, int]] = defaultdict(dict)
        self._accesses: list[tuple[str, str, int, np.ndarray, Place]] = []

    def add(self, access: Access) -> None:
        if access.tensor is None:
            return
        x, y, z = access.program
        program = x + self._grid[0] * (y + self._grid[1] * z)
        elements = np.unique(access.elements[access.mask])
        self._accesses.append((access.kind, access.tensor, program, elements, (access.filename, access.line)))
        if access.kind != "load":
            writers = self._writers[access.tensor]
            for element in elements.tolist():
                writers[element] = program if writers.get(element, program) == program else _SEVERAL

    def meeting(self) -> Place:
        for kind in ("load", "store", "atomic"):
            for this, tensor, program, elements, where in self._accesses:
                writers = self._writers[tensor] if this == kind else {}
                if writers and any(writers.get(element, program) != program for element in elements.tolist()):
                    return where
        return "", 0
