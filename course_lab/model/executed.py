"""A forward pass as machine code: what each launch of an operation executed, as a table, a picture and floors of time.

    with executing(llm, "gfx942") as token:
        llm.next_token([first], cache)
    token                       # a table: operation by operation
    token.picture()             # layer by layer
    token.floors("MI300X")      # how soon a GPU could be done: bytes, instructions, launches

Sources of the floors: memory bandwidth and peak rates are the data sheet's (`gfxlab.hardware`).  A compute unit of CDNA
has four SIMDs of 16 lanes; a vector instruction of a wave of 64 keeps one of them busy for four cycles (AMD, "CDNA 3
Instruction Set Architecture", and "AMD GCN architecture" white paper, where this began), so that a compute unit begins
at most one a cycle.  4.2 us is a small fused kernel with one row to do, launched on an MI300X (Hugging Face and AMD,
"Creating custom kernels for the AMD MI300", 2025).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from html import escape

import gfxlab
from course_lab.model.calls import Call
from course_lab.model.smollm2 import SmolLM2
from gfxlab import hardware, style
from gfxlab.draw import svg
from gfxlab.simulator import Run
from gfxlab.tables import Table
from gfxlab.units import format_seconds

LAUNCH_SECONDS = 4.2e-6
LAUNCH_SOURCE = "4.2 us each: Hugging Face and AMD, Creating custom kernels for the AMD MI300, 2025"


@dataclass(frozen=True)
class Counts:
    """What launches executed.

    Instructions are of waves.  loaded, stored: bytes that lanes asked for; least: bytes if each launch moved each
    element that it touches once; lines: of 128 bytes, touched.
    """

    launches: int = 0
    instructions: int = 0
    vector: int = 0
    matrix: int = 0
    loaded: int = 0
    stored: int = 0
    least: int = 0
    lines: int = 0
    lds: int = 0
    conflicts: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def bytes(self) -> int:
        """Loaded and stored."""
        return self.loaded + self.stored

    @classmethod
    def of(cls, run: Run) -> Counts:
        """Of one launch; bytes and LDS only where it was profiled."""
        mix = run.mix
        plain = cls(1, run.instructions, mix.get("vector", 0), mix.get("matrix", 0))
        if not run.profile:
            return plain
        loads, stores, lds = run.loads, run.stores, run.lds
        least, lines = loads.least + stores.least, loads.lines + stores.lines
        return plain + cls(0, 0, 0, 0, loads.bytes, stores.bytes, least, lines, lds.bytes, lds.conflicts)


@dataclass(frozen=True)
class Executed:
    """One call of an operation: its name, its place ("layers.7.qkv"), what its launches executed."""

    operation: str
    place: str
    counts: Counts

    @property
    def layer(self) -> int | None:
        """The number of the layer; None before and after them."""
        first, _, rest = self.place.partition(".")
        return int(rest.partition(".")[0]) if first == "layers" else None

    @property
    def kind(self) -> str:
        """The place without its layer: "qkv"."""
        return self.place.rpartition(".")[2]


class MachineCode:
    """The calls of a forward pass, in order, executed as code of `arch`."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.calls: list[Executed] = []

    @cached_property
    def total(self) -> Counts:
        """Of all calls."""
        return sum((call.counts for call in self.calls), Counts())

    def by_kind(self) -> dict[tuple[str, str], Counts]:
        """By operation and place within a layer, in the order of the forward pass."""
        found: dict[tuple[str, str], Counts] = {}
        for call in self.calls:
            key = call.operation, call.kind
            found[key] = found.get(key, Counts()) + call.counts
        return found

    def by_layer(self) -> dict[int | None, Counts]:
        """By layer; None is what stands before and after them."""
        found: dict[int | None, Counts] = {}
        for call in self.calls:
            found[call.layer] = found.get(call.layer, Counts()) + call.counts
        return found

    # ---- floors ------------------------------------------------------------------------------------------------------

    def floors(self, gpu: str | hardware.Card = "MI300X") -> Floors:
        """How soon `gpu` could be done at best, by what it must do.

        Raises:
            ValueError: an unknown GPU, or one of another architecture than the code's.
        """
        card = hardware.card(gpu)
        if card.arch != self.arch:
            raise ValueError(f"this is code of {self.arch}; {card.name} is {card.arch}")
        return Floors(self.total, card)

    # ---- to be read --------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """A row for each operation; all layers together."""
        rows = [_row(f"{operation} ({kind})", counts) for (operation, kind), counts in self.by_kind().items()]
        return Table([*rows, _row("all", self.total)], _HEAD, numbers=len(_HEAD) - 1)

    def _title(self) -> str:
        return f"{self.total.launches} launches, {self.total.instructions:,} wave instructions of {self.arch}"

    def __repr__(self) -> str:
        return f"{self._title()}\n\n{self.table().text()}"

    def _repr_html_(self) -> str:
        return style.card(self._title(), self.table().html())

    def picture(self, title: str = "") -> svg.Picture:
        """Every launch in its layer: a row of the picture is a layer, widths are wave instructions."""
        return _picture(self.calls, title or self._title())


@dataclass(frozen=True)
class Floors:
    """The least seconds by each of the things that a GPU has to do."""

    counts: Counts
    card: hardware.Card

    @property
    def seconds(self) -> dict[str, float]:
        """By 'bytes', 'issue slots' and 'launches'."""
        clock = self.card.fp32 / (self.card.compute_units * 256)  # peak: 128 lanes' multiply-add a cycle
        slots = self.counts.vector + self.counts.matrix
        return {
            "bytes": self.counts.least / self.card.bandwidth,
            "issue slots": slots / (self.card.compute_units * clock),
            "launches": self.counts.launches * LAUNCH_SECONDS,
        }

    @property
    def binds(self) -> str:
        """The largest of them."""
        return max(self.seconds, key=self.seconds.__getitem__)

    def table(self) -> Table:
        """Each floor, what it counts and where its rate comes from."""
        c, card = self.counts, self.card
        sources = {
            "bytes": (f"{c.least:,}", f"{card.bandwidth / 1e12:g} TB/s: {card.name}'s data sheet"),
            "issue slots": (
                f"{c.vector + c.matrix:,}",
                f"one vector or matrix instruction a cycle on each of {card.compute_units} compute units",
            ),
            "launches": (f"{c.launches:,}", LAUNCH_SOURCE),
        }
        rows = [(name, sources[name][0], format_seconds(s), sources[name][1]) for name, s in self.seconds.items()]
        return Table(rows, ("floor", "how many", "at least", "rate"))

    def __repr__(self) -> str:
        return f"One pass on {self.card.name}: {self.binds} bind\n\n{self.table().text()}"

    def _repr_html_(self) -> str:
        return style.card(f"One pass on {self.card.name}: {self.binds} bind", self.table().html())


@contextlib.contextmanager
def executing(llm: SmolLM2, arch: str = "gfx942", *, profile: bool = True) -> Iterator[MachineCode]:
    """Run launches inside the block as code of `arch`, without checks, and count what each call of the model executes.

    profile: count bytes, cache lines and LDS too, in about twice the time.
    """
    result, begun = MachineCode(arch), []
    with gfxlab.using(arch, profile=profile, checks=False) as runs:

        def look(call: Call) -> None:
            _close(result, begun, runs)
            begun.append((call.operation, call.place))

        with llm.watching(look):
            yield result
        _close(result, begun, runs)


def _close(result: MachineCode, begun: list[tuple[str, str]], runs: list[Run]) -> None:
    """Count the launches since the last call began; a run is forgotten when it is counted: it holds much memory."""
    if begun:
        counts = sum((Counts.of(run) for run in runs), Counts())
        result.calls.append(Executed(*begun.pop(), counts))
    runs.clear()


_HEAD = ("operation", "launches", "instructions", "vector", "matrix", "bytes", "each once", "LDS bytes")


def _row(name: str, c: Counts) -> tuple[str, ...]:
    numbers = c.launches, c.instructions, c.vector, c.matrix, c.bytes, c.least, c.lds
    return name, *(f"{number:,}" for number in numbers)


_LEFT, _TOP, _ROW, _GAP = 92, 30, 13, 2


def _picture(calls: Sequence[Executed], title: str) -> svg.Picture:
    """What is longer than the longest layer goes on in a new line, so that all widths have one scale."""
    canvas, rows = svg.Canvas(), _rows(calls)
    canvas.text(10, 18, title, "b")
    sums = {name: sum(call.counts.instructions for call in row) for name, row in rows.items()}
    longest = max((total for name, total in sums.items() if name.startswith("layer")), default=max(sums.values()))
    scale = (canvas.width - _LEFT - 10) / longest
    colours = {name: svg.colour(i) for i, name in enumerate(dict.fromkeys(call.operation for call in calls))}
    y = _TOP
    for name, row in rows.items():
        canvas.text(10, y + 10, name, "s")
        done = 0  # instructions of this line
        for call in row:
            left = call.counts.instructions
            words = f"{call.place}, {call.operation}: {left:,} wave instructions, {call.counts.bytes:,} bytes"
            while left:
                part = min(left, longest - done)
                box = _LEFT + done * scale, y, part * scale, _ROW - _GAP
                canvas.box(*box, colours[call.operation], words, 0.55)
                left, done = left - part, done + part
                if left:
                    y, done = y + _ROW, 0
        y += _ROW
    canvas.legend(y + 6, [(fill, name, 0.55) for name, fill in colours.items()])
    return canvas.picture(escape(title), "\n".join([title, *(f"  {name}: {total:,}" for name, total in sums.items())]))


def _rows(calls: Sequence[Executed]) -> dict[str, list[Executed]]:
    """Each layer's calls, and those of the two ends by their place."""
    rows: dict[str, list[Executed]] = {}
    for call in calls:
        rows.setdefault(call.place if call.layer is None else f"layer {call.layer}", []).append(call)
    return rows
