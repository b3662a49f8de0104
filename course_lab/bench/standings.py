"""Who is how fast at what: figures by family and size, and those that the course's benchmarks stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course_lab.bench.figures import Measurement, Results
from gfxlab import style
from gfxlab.tables import Table
from gfxlab.units import format_seconds

OURS, COPY = "ours", "copy"  # contenders: the course's kernel, and a plain copy of as many bytes
BARE, ALLOCATIONS, CHECKED = "bare Triton launch", "results allocated", "ours, nothing remembered"  # parts of a call
NO_RIVALS = (OURS, COPY, BARE, ALLOCATIONS, CHECKED)
RESULTS = Path(__file__).with_name("results")  # beside the code, so that an installed package has them
IN_THE_CACHE = "* Calls in a row, so that the data are in the cache: no memory bandwidth."


@dataclass
class Line:
    """All contenders of a family at one size."""

    family: str
    size: str
    by_name: dict[str, Measurement]

    @property
    def ours(self) -> Measurement:
        """Our figure."""
        return self.by_name[OURS]

    @property
    def rivals(self) -> dict[str, Measurement]:
        """The others, without the copy, the parts of a call, and "ours, some other way"."""
        others = {name: figure for name, figure in self.by_name.items() if name not in NO_RIVALS}
        return {name: figure for name, figure in others.items() if not name.startswith(f"{OURS},")}

    def against(self, *names: str) -> float | None:
        """The time of the fastest of these, or of all rivals, over ours: above 1 we are faster."""
        times = [figure.seconds for name, figure in self.rivals.items() if not names or name in names]
        return min(times) / self.ours.seconds if times else None

    @property
    def in_cache(self) -> bool:
        """The calls were repeated with their data in the cache, so bytes a second say nothing about memory."""
        return self.ours.graph == "warm"

    @property
    def title(self) -> str:
        """The size, with a star where the data were in the cache."""
        return self.size + " *" * self.in_cache


def lines(results: Results) -> list[Line]:
    """One for each family and size, in the order they were measured."""
    found: dict[tuple[str, str], Line] = {}
    for figure in results.measurements:
        line = found.setdefault((figure.family, figure.size), Line(figure.family, figure.size, {}))
        line.by_name[figure.name] = figure
    return [line for line in found.values() if OURS in line.by_name]


def contenders(group: Iterable[Line]) -> list[str]:
    """The names in these lines: rivals as they were measured, then ours, then the copy."""
    seen = dict.fromkeys(name for line in group for name in line.by_name)
    return [name for name in seen if name not in (OURS, COPY)] + [OURS] + [COPY] * (COPY in seen)


class Standings(Results):
    """Figures of one family, as a table: a row for each contender, a column for each size."""

    def find(self, name: str, size: str = "") -> Measurement:
        """The figure of one contender; the size may be left out where there is only one.

        Raises:
            ValueError: there is none, or several.
        """
        found = [x for x in self.measurements if x.name == name and size in ("", x.size)]
        if len(found) != 1:
            known = ", ".join(f"({x.name!r}, {x.size!r})" for x in self.measurements)
            raise ValueError(f"{len(found)} figures for ({name!r}, {size!r}); there are {known}")
        return found[0]

    def table(self) -> Table:
        """Sizes; time and rate of each contender; our speed against the fastest other's."""
        group = lines(self)
        rows = [(name, *(_time_and_rate(line, name) for line in group)) for name in contenders(group)]
        if any(line.rivals for line in group):
            ratios = (f"{line.against():.2f} x" if line.rivals else "" for line in group)
            rows.append(("ours against the best other", *ratios))
        return Table(rows, ("", *(line.title for line in group)), numbers=len(group))

    def _heading(self) -> str:
        return f"{self.measurements[0].family} on {self.machine}"

    def _footnote(self) -> str:
        return IN_THE_CACHE * any(line.in_cache for line in lines(self))

    def __str__(self) -> str:
        return "\n".join(filter(None, [self._heading(), self.table().text("  "), self._footnote()]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        note = f'<p class="q">{self._footnote()}</p>' * bool(self._footnote())
        return style.card(self._heading(), self.table().html() + note)


def _time_and_rate(line: Line, name: str) -> str:
    figure = line.by_name.get(name)
    if figure is None:
        return ""
    parts = [format_seconds(figure.seconds)]
    if figure.flops:
        parts.append(f"{figure.flops / figure.seconds / 1e12:.0f} TFLOP/s")
    elif figure.bytes and not line.in_cache:
        parts.append(f"{figure.bandwidth / 1e12:.2f} TB/s")
    return ", ".join(parts)


def stored(family: str, *sizes: str, gpu: str = "") -> Standings:
    """What the course measured, of one family: at these sizes, or at all.

    gpu: a part of its name, where there are figures of several.

        table = bench.stored("rms_norm", "64 x 4096", "16384 x 4096")
        assert table.find("ours", "16384 x 4096").seconds < table.find("eager", "16384 x 4096").seconds

    Raises:
        ValueError: no such GPU, family or size.
    """
    machines = [Results.load(path) for path in sorted(RESULTS.glob("*.json"))]
    named = [results for results in machines if gpu.lower() in results.machine.gpu.lower()]
    if not named:
        raise ValueError(f"no figures of {gpu!r}; there are {', '.join(x.machine.gpu for x in machines)}")
    families = {figure.family: results for results in reversed(named) for figure in results.measurements}
    if family not in families:
        raise ValueError(f"no figures of {family!r}; there are {', '.join(families)}")
    return _selection(families[family], family, sizes)


def _selection(results: Results, family: str, sizes: tuple[str, ...]) -> Standings:
    figures = [figure for figure in results.measurements if figure.family == family]
    known = list(dict.fromkeys(figure.size for figure in figures))
    for size in sizes:
        if size not in known:
            raise ValueError(f"{family} was not measured at {size!r}; there are {', '.join(map(repr, known))}")
    picked = [figure for size in sizes or known for figure in figures if figure.size == size]
    return Standings(results.machine, picked)
