"""The kernels that some code launches, as AMD reports: what `%%amd` and `course amd FILE` show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from gfxlab.code.report import AmdReport
from gfxlab.engine import dual_mode
from gfxlab.tracing import TracedLaunch, trace


@dataclass
class Launched:
    """The launches of a block of code, those on a GPU too; filled when the block ends."""

    launches: list[TracedLaunch]

    def kernels(self) -> dict[str, TracedLaunch]:
        """The first launch of each kernel, by the kernel's name, in the order of the launches."""
        first: dict[str, TracedLaunch] = {}
        for launch in self.launches:
            first.setdefault(launch.name, launch)
        return first

    def reports(self, arch: str, only: str = "", count: bool = False) -> dict[str, AmdReport]:
        """A report for each kernel, or for the one named `only`."""
        chosen = {name: launch for name, launch in self.kernels().items() if only in ("", name)}
        return {name: launch.amd_report(arch, count=count) for name, launch in chosen.items()}


@contextlib.contextmanager
def launched() -> Iterator[Launched]:
    """Collect the launches inside the block. Those on CPU tensors are interpreted, and their bytes are counted."""
    found = Launched([])
    with dual_mode.gpu_launches() as on_gpu, trace(max_lanes=0) as on_cpu:
        yield found
    found.launches += [*on_cpu.launches, *(TracedLaunch(launch) for launch in on_gpu)]
