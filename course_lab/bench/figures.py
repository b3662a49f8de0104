"""Figures: one, and many of one machine as a table, a plot or a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from course_lab.bench.machine import Machine
from gfxlab import style
from gfxlab.tables import Table
from gfxlab.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Measurement:
    """A time in seconds: the median, and the range that holds the middle 60 % of the runs (fast to slow).

    bytes, flops: what one call moves and computes, if the caller said so; copy: bytes/s of a plain copy on this GPU.
    family, size: what was measured, where several figures stand together; error: the result's distance from a
    reference, as a part of its norm; graph: "warm" or "cold" if a captured graph was timed (see `time`).
    """

    name: str
    seconds: float
    fast: float
    slow: float
    bytes: float | None = None
    flops: float | None = None
    copy: float | None = None
    family: str = ""
    size: str = ""
    error: float | None = None
    graph: str = ""

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self.bytes / self.seconds if self.bytes else None

    @property
    def of_copy(self) -> float | None:
        """The bandwidth as a part of a plain copy's: 1.0 is as fast as memory goes."""
        return self.bandwidth / self.copy if self.bytes and self.copy else None

    def cells(self) -> tuple[str, ...]:
        """Name, bytes, time, spread and rate, for a table."""
        rate = ""
        if self.bytes:
            rate = f"{self.bandwidth / 1e9:,.0f} GB/s" + (f", {self.of_copy:.0%} of a copy" if self.copy else "")
        elif self.flops:
            rate = f"{self.flops / self.seconds / 1e12:,.3g} TFLOP/s"
        spread = f"{format_seconds(self.fast)} to {format_seconds(self.slow)}"
        return self.name, format_bytes(self.bytes) if self.bytes else "", format_seconds(self.seconds), spread, rate

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells() if cell)


@dataclass
class Results:
    """Figures of one machine, as a table, a plot or a file.

    results = bench.Results(bench.Machine.here())
    results.add(bench.time(lambda: torch.add(x, y), name="torch", bytes=3 * x.nbytes))
    results.save("results.json")
    """

    machine: Machine
    measurements: list[Measurement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was not measured, and why

    def add(self, measurement: Measurement) -> Measurement:
        """Keep a figure, and hand it back."""
        self.measurements.append(measurement)
        return measurement

    def save(self, path: str | Path) -> None:
        """Write everything as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is not of this kind.
        """
        try:
            data = json.loads(Path(path).read_text())
            measurements = [Measurement(**item) for item in data["measurements"]]
            return cls(Machine(**data["machine"]), measurements, data.get("notes", []))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no benchmark results: {error}") from None

    def __str__(self) -> str:
        rows = [measurement.cells() for measurement in self.measurements]
        return "\n".join([str(self.machine), Table(rows).text("  ")])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [measurement.cells() for measurement in self.measurements]
        return style.card(str(self.machine), Table(rows, ("", "moves", "median", "middle 60 %", "")).html())

    def plot(self, title: str = ""):
        """Bandwidth over bytes moved, one line for each name; the machine stands in the title.

        Returns:
            a matplotlib figure.

        Raises:
            ValueError: no figure says how many bytes it moves.
        """
        from matplotlib.figure import Figure

        lines: dict[str, list[tuple[float, float]]] = {}
        for item in self.measurements:
            if item.bytes:
                lines.setdefault(item.name, []).append((item.bytes, item.bandwidth / 1e9))
        if not lines:
            raise ValueError("nothing to plot: no measurement has bytes")
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for (name, points), colour in zip(lines.items(), style.PALETTE * len(lines)):
            axes.plot(*zip(*sorted(points)), "o-", label=name, color=colour)
        copies = [item.copy for item in self.measurements if item.copy]
        if copies:
            axes.axhline(max(copies) / 1e9, color=style.QUIET, linestyle="--", label="a plain copy, 1 GiB")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
        axes.set(xlabel="bytes moved", ylabel="GB/s", title="\n".join(filter(None, [title, str(self.machine)])), ylim=0)
        axes.title.set_size(10)
        axes.legend()
        return figure
