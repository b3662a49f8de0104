"""The profiler's counters of a file's kernels: ours, and the card's where there is one."""

from __future__ import annotations

from collections.abc import Sequence

from gfxlab.counters import COUNTERS, hardware_counts
from gfxlab.counters.report import Counted
from gfxlab.pretended import evidence
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show import script


def of_file(target: str, arch: str, arguments: Sequence[str] = ()) -> list[Counted]:
    """The first launch of each kernel of FILE, or of FILE:KERNEL, which is given these arguments."""
    firsts = evidence.Firsts(lambda *launch, **options: execute(*launch, **{**options, "profile": True}))
    evidence.of_file(target, arch, firsts, arguments)
    measured = {}
    if hardware_counts.available():
        measured = hardware_counts.of_script(script.split(target)[0], [counter.name for counter in COUNTERS], arguments)
    return [Counted.of(run, measured.get(name)) for name, run in firsts.seen.items()]
