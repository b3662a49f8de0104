"""The counters of a file's kernels as a table, ours and the hardware's, and as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gfxlab.counters.definitions import COUNTERS, SOURCE, of_run
from gfxlab.programs import format_grid
from gfxlab.simulator.show.run import Run
from gfxlab.tables import Table


@dataclass(frozen=True)
class Counted:
    """The first launch of one kernel. ours: {counter: count}; hardware: the card's, a mean over its launches."""

    kernel: str
    arch: str
    grid: tuple[int, int, int]
    ours: dict[str, int]
    hardware: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, hardware: dict[str, float] | None = None) -> Counted:
        return cls(run.compiled.name, run.program.arch, run.grid, of_run(run), hardware or {})

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "grid": list(self.grid)}

    def rows(self) -> list[tuple[str, ...]]:
        """(counter, ours, hardware's); counters that are 0 on both sides are left out."""
        shown = [name for name, count in self.ours.items() if count or self.hardware.get(name)]
        return [(name, f"{self.ours[name]:,}", _number(self.hardware.get(name))) for name in shown]

    def table(self) -> Table:
        head = ("counter", "executed here", "on the card")
        rows = self.rows()
        if not self.hardware:
            head, rows = head[:2], [row[:2] for row in rows]
        return Table(rows, head, numbers=len(head) - 1)

    def __str__(self) -> str:
        return f"{self.kernel} on {self.arch}, grid {format_grid(self.grid)}\n{self.table().text('  ')}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def explained(names: Iterable[str]) -> str:
    """AMD's definition of each counter, and where ours differs."""
    wanted = set(names)
    parts = []
    for counter in COUNTERS:
        if counter.name in wanted:
            parts.append(
                f"{counter.name}: {counter.amd}." + (f"\n    Ours: {counter.differs}" if counter.differs else "")
            )
    return "\n".join([*parts, f"Definitions: {SOURCE}"])


def definitions() -> list[dict[str, str]]:
    """Every counter as data."""
    return [{"name": c.name, "amd": c.amd, "differs": c.differs} for c in COUNTERS]
