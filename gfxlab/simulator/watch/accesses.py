"""Writes down who touched which element: every access of a wave to global memory, for the trace and its ledger."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gfxlab.engine.hooks import Access
from gfxlab.simulator.core.memory import ARGUMENTS, Region
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.core.state import Watcher, Waves


class Accesses(Watcher):
    """Tells `each` of one `Access` a wave; lanes that are switched off are masked."""

    def __init__(self, each: Callable[[Access], None]):
        self._each = each

    def load(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._tell("load", w, instruction, region, offset, lanes, width)

    def scalar_load(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._tell("load", w, instruction, region, offset, lanes, width)

    def store(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int, words) -> None:
        self._tell("store", w, instruction, region, offset, lanes, width)

    def atomic(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._tell("atomic", w, instruction, region, offset, lanes, width)

    def _tell(self, kind: str, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        places = np.broadcast_to(w.programs[w.window], (offset.shape[0], 3))
        for wave, place in enumerate(places):
            on = np.ones(offset.shape[1], bool) if lanes is None else lanes[wave]
            if on.any():
                program = tuple(int(n) for n in place)
                self._each(_access(kind, program, instruction, region, offset[wave], on, width))


def _access(kind: str, program, instruction: Decoded, region: Region, offset, on, width: int) -> Access:
    span = region.span_at(int(offset[on][0]))
    several = max(1, width // span.itemsize)
    first = (offset - span.start) // span.itemsize
    elements = first[:, None] + np.arange(several)
    mask = np.broadcast_to(on[:, None], elements.shape)
    source = instruction.source
    return Access(
        kind=kind,
        program=program,
        tensor=None if span.name == ARGUMENTS else span.name,
        elements=np.where(mask, elements, -1),
        mask=mask,
        values=None,
        has_other=True,
        line=source.line if source else 0,
        filename=source.filename if source else "",
        ordered=kind == "atomic",
    )
