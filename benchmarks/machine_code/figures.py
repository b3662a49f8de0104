"""What is counted of one contender: its launches, compiled and executed, added up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from gfxlab import hardware
from gfxlab.code.report import measure
from gfxlab.simulator.show.run import Run

STORED = Path(__file__).with_name("figures.json")


@dataclass(frozen=True)
class Figures:
    """Counts of all launches together; of registers and the like the worst launch.

    kinds: wave instructions by class (`gfxlab.code.isa.KINDS`). lines: of 128 bytes. conflicts: cycles of LDS banks.
    occupancy: waves a SIMD. memory, vector, matrix: seconds that bytes, vector and matrix instructions take at least on
    the architecture's first card in `gfxlab.hardware`, each at the peak of the data sheet.
    """

    family: str
    size: str
    arch: str
    name: str
    launches: int
    instructions: int
    kinds: dict[str, int]
    loaded: int
    stored: int
    lines: int
    lds: int
    conflicts: int
    vgprs: int
    spills: int
    occupancy: float
    matrix_instructions: int
    memory: float
    vector: float
    matrix: float

    @property
    def floor(self) -> float:
        """Seconds: the largest of the three."""
        return max(self.memory, self.vector, self.matrix)


@dataclass(frozen=True)
class Absent:
    """A rival without figures, and why."""

    family: str
    arch: str
    name: str
    reason: str


def figures_of(runs: list[Run], family: str, size: str, arch: str, name: str, flops: int) -> Figures:
    """The sum of a call's launches."""
    card, wave = hardware.card(arch), hardware.wave_size(arch)
    kinds: dict[str, int] = {}
    for run in runs:
        for kind, count in run.by_kind.items():
            kinds[kind] = kinds.get(kind, 0) + count
    reports = [measure(run.compiled) for run in runs]
    moved = sum(run.loads.bytes + run.stores.bytes for run in runs)
    vector = sum(count for run in runs for unit, count in run.mix.items() if unit == "vector")
    return Figures(
        family, size, arch, name,
        launches=len(runs),
        instructions=sum(kinds.values()),
        kinds=kinds,
        loaded=sum(run.loads.bytes for run in runs),
        stored=sum(run.stores.bytes for run in runs),
        lines=sum(run.loads.lines + run.stores.lines for run in runs),
        lds=sum(run.lds.bytes for run in runs),
        conflicts=sum(run.lds.conflicts for run in runs),
        vgprs=max(report.vgprs for report in reports),
        spills=sum(run.spills.loads + run.spills.stores for run in runs),
        occupancy=min(report.occupancy.waves for report in reports),
        matrix_instructions=kinds.get("matrix", 0),
        memory=moved / card.bandwidth,
        vector=vector * wave * 2 / card.fp32,
        matrix=flops / card.rate("bf16"),
    )  # fmt: skip


def store(figures: Iterable[Figures], absent: Iterable[Absent]) -> None:
    """Keep them, in place of those of the same families and architectures."""
    figures, absent = list(figures), list(absent)
    new = {(one.family, one.arch) for one in (*figures, *absent)}
    old_figures, old_absent = stored()
    figures = [one for one in old_figures if (one.family, one.arch) not in new] + figures
    absent = [one for one in old_absent if (one.family, one.arch) not in new] + absent
    rows = [",\n  ".join(json.dumps(asdict(one)) for one in many) for many in (figures, absent)]
    STORED.write_text(f'{{\n "figures": [\n  {rows[0]}\n ],\n "absent": [\n  {rows[1]}\n ]\n}}\n', encoding="utf-8")


def stored() -> tuple[list[Figures], list[Absent]]:
    """What the last runs found."""
    if not STORED.exists():
        return [], []
    rows = json.loads(STORED.read_text(encoding="utf-8"))
    return [Figures(**row) for row in rows["figures"]], [Absent(**row) for row in rows["absent"]]
