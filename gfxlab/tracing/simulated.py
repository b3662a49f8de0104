"""The trace of a simulated launch: what the waves of the machine code read and wrote, not what the interpreter did.

A wave may read an element more than once where the interpreter reads it once: small blocks are loaded by every wave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.engine.hooks import Access
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.watch.accesses import Accesses
from gfxlab.tracing.counts import Counts
from gfxlab.tracing.launches import TracedLaunch
from gfxlab.tracing.recording import MAX_LANES


@dataclass
class Executed:
    """A launch of which the machine code is known, and no Python function; in the place of a `Launch`."""

    name: str
    grid: tuple[int, int, int]
    args: dict[str, Any] = field(default_factory=dict)
    fn: Any = None


class Tracer:
    """Executes launches with every access written down: `launches` grows by one `TracedLaunch` each."""

    def __init__(self, max_lanes: int = MAX_LANES):
        self.launches: list[TracedLaunch] = []
        self._room = max_lanes

    def __call__(self, compiled: Compiled, grid: tuple[int, int, int], values: list[Value], **options) -> Run:
        tensors = {value.name: value.content for value in values if isinstance(value.content, torch.Tensor)}
        traced = TracedLaunch(
            Executed(compiled.name, grid, {value.name: value.content for value in values}),
            counts={name: Counts.of(name, tensor) for name, tensor in tensors.items()},
        )
        self.launches.append(traced)
        return execute(compiled, grid, values, **{**options, "watchers": (Accesses(self._add),)})

    def _add(self, access: Access) -> None:
        traced = self.launches[-1]
        if access.tensor not in traced.counts:
            return
        x, y, z = access.program
        width, height, _ = traced.grid
        traced.counts[access.tensor].add(access, x + width * (y + height * z))
        if access.mask.size > self._room:
            traced.left_out += 1
            return
        self._room -= access.mask.size
        traced.accesses.append(access)
        traced.watched.append({})
