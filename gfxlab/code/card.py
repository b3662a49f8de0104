"""The report as an HTML card, and two reports side by side."""

from __future__ import annotations

from dataclasses import dataclass

from gfxlab import hardware, style
from gfxlab.code.figures import Figures
from gfxlab.tables import Table

_LOW_OCCUPANCY = 0.25  # of the wave slots
_WIDEST = 128  # bits that one instruction moves for a lane


def cards_of(arch: str) -> str:
    """The GPUs with this architecture, for a title: `MI300X, MI325X`."""
    return ", ".join(card.name for card in hardware.CARDS.values() if card.arch == arch)


def notes(report: Figures) -> list[str]:
    """What a kernel's author should look at, worst first; empty when nothing stands out."""
    found = []
    if report.spills:
        found.append(
            f"{report.spills} registers did not fit and live in memory instead: take smaller blocks or more num_warps."
        )
    accesses = {"loads": report.loads, "stores": report.stores}
    widest = {what: max(widths) for what, widths in accesses.items() if sum(widths.values()) > 1}
    narrow = {what: bits for what, bits in widest.items() if 0 < bits < _WIDEST}
    if narrow:
        listed = " and ".join(f"{what} {bits}" for what, bits in narrow.items())
        found.append(
            f"Bits a lane moves at once, at most: {listed}. {_WIDEST} is possible when neighbouring elements go to one "
            "lane, pointers are aligned and sizes are multiples of 16."
        )
    occupancy = report.occupancy
    if occupancy.waves <= _LOW_OCCUPANCY * occupancy.most and occupancy.limit in ("VGPRs", "LDS"):
        found.append(f"Only {occupancy.waves:g} waves a SIMD to hide waiting for memory: {occupancy.limit} limit it.")
    return found


def html(report: Figures) -> str:
    """One report as a card."""
    names = cards_of(report.arch)
    title = f"{report.name} on {report.arch}" + (f" ({names})" if names else "")
    return style.card(title, Table(list(report.rows().items())).html() + style.warnings(notes(report)))


@dataclass(frozen=True)
class Comparison:
    """Two reports side by side; `differences` names the rows that differ."""

    a: Figures
    b: Figures
    names: tuple[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        a, b = self.a.rows(), self.b.rows()
        keys = [key for key in {**a, **b} if key != "of these"]
        return [(key, a.get(key, "not known"), b.get(key, "not known")) for key in keys] + self._mix()

    def _mix(self) -> list[tuple[str, str, str]]:
        kinds = list({**self.a.mix, **self.b.mix})
        return [(f"  {kind}", str(self.a.mix.get(kind, 0)), str(self.b.mix.get(kind, 0))) for kind in kinds]

    @property
    def differences(self) -> list[str]:
        return [name.strip() for name, a, b in self.rows() if a != b]

    def _table(self) -> Table:
        rows = self.rows()
        marked = [i for i, (_, a, b) in enumerate(rows) if a != b]
        return Table(rows, ("", *self.names), marked=marked)

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return style.card("Side by side", self._table().html())


def compare(a: Figures, b: Figures, names: tuple[str, str] | None = None) -> Comparison:
    """Two reports side by side with the differences marked: two kernels, or one on two architectures.

    Args:
        names: headings of the two columns, for example ("n = 4096", "n = 4001"); by default kernel and architecture.
    """
    return Comparison(a, b, names or (f"{a.name} on {a.arch}", f"{b.name} on {b.arch}"))
