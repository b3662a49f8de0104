"""The stored figures as tables and as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.contest import OURS
from benchmarks.machine_code import entries
from benchmarks.machine_code.figures import Absent, Figures, stored
from gfxlab.tables import Table
from gfxlab.units import format_seconds

PICTURE = Path(__file__).parents[1] / "results" / "amd-machine-code.svg"

Key = tuple[str, str, str]

VALUES = (
    "`python -m benchmarks.machine_code.entries` takes each number that AMD's launches depend on smaller and larger "
    "than it is, and executes a kernel with each, as on a GPU of four compute units. Wave instructions of one call, in "
    "bf16 unless said otherwise; below the table, why a number stays where another value executes less."
)

INSTINCT, RADEON = ("gfx942", "gfx950"), ("gfx1100",)
BEHIND = {  # (family, part of the size, targets): why ours executes more, or touches more lines
    ("layer_norm", "", INSTINCT + RADEON): (
        "a row's first element is read once more, against cancellation: a line or two a row, and a subtraction"
    ),
    ("attention", "256 x 64", ("gfx942",)): (
        "which head and tile a program has, the mask of the last keys and LSE, none of which the plain kernel has, are "
        "some 150 instructions a wave"
    ),
    ("attention", " x 64", INSTINCT): "LSE is written, which the plain kernel leaves out",
    ("attention", " x 64", RADEON): (
        "a wave takes 16 queries, so that keys and values come out of LDS twice as often; with 32 it spills, as "
        "the plain "
        "kernel does, thousands of times"
    ),
    ("attention", "512 x 128", RADEON): (
        "a wave takes 16 queries, as above, and a program 64, which read keys and values twice as often; with "
        "128 values "
        "come out of LDS one by one, which executes 44 % more, or registers spill"
    ),
    ("attention", "512 x 128", ("gfx942",)): (
        "the plain kernel takes 64 keys at a time and 263 registers, which leaves room for one wave a SIMD; "
        "ours takes 32 "
        "and leaves room for two"
    ),
    ("attention", "512 x 128", ("gfx950",)): (
        "level in vector instructions; matrix instructions of 32 rows want more accesses of LDS here, and waits "
        "for them"
    ),
    ("matmul", "", INSTINCT + RADEON): (
        "the tutorial may take a single tile of 256 x 256, which executes least and occupies one compute unit of four"
    ),
    ("vector_add", "", RADEON): (
        "offsets are int64, since int32 is wrong from 2^31 elements on: with int32 ours executes 100,352 too"
    ),
}


def groups(figures: Iterable[Figures]) -> dict[Key, dict[str, Figures]]:
    """Contenders by name, for each (family, size, architecture)."""
    found: dict[Key, dict[str, Figures]] = {}
    for one in figures:
        found.setdefault((one.family, one.size, one.arch), {})[one.name] = one
    return found


def behind(contenders: dict[str, Figures]) -> list[str]:
    """Who executes fewer instructions than ours, or touches fewer lines, in words."""
    ours, found = contenders[OURS], []
    for name, other in contenders.items():
        if other.instructions < ours.instructions:
            found.append(f"{name} executes {1 - other.instructions / ours.instructions:.0%} fewer instructions")
        if other.lines < ours.lines:
            found.append(f"{name} touches {1 - other.lines / ours.lines:.1%} fewer lines")
    return found


def summary(figures: Iterable[Figures]) -> str:
    """Markdown: for each contest ours beside every rival, in wave instructions; the best other in bold if it wins."""
    rows = []
    for (family, size, arch), contenders in groups(figures).items():
        others = [f"{name} {other.instructions:,}" for name, other in contenders.items() if name != OURS]
        ours = contenders[OURS]
        rows.append((f"`{family}`", size, arch, f"{ours.instructions:,}", ", ".join(others), f"{ours.lines:,}"))
    return Table(rows, ("family", "size", "target", "ours", "others", "our lines"), numbers=0).markdown()


def details(figures: Iterable[Figures]) -> str:
    """Markdown: everything that was counted of ours and of the rival with the fewest instructions."""
    counted = "vector", "memory", "LDS", "matrix", "waiting", "KiB", "lines", "conflicts", "VGPRs", "spills", "waves"
    head = ("family, size", "target", "kernel", *counted, "floor")
    rows = []
    for (family, size, arch), contenders in groups(figures).items():
        others = [other for name, other in contenders.items() if name != OURS]
        best = min(others, key=lambda other: other.instructions)
        rows += [(f"{family}, {size}", arch, one.name, *_cells(one)) for one in (contenders[OURS], best)]
    return Table(rows, head, numbers=12).markdown()


def _cells(one: Figures) -> tuple[str, ...]:
    def count(*kinds: str) -> int:
        return sum(one.kinds.get(kind, 0) for kind in kinds)

    limit = {one.memory: "memory", one.vector: "vector", one.matrix: "matrix"}[one.floor]
    return (
        f"{count('vector', 'transcendental', 'register copy', 'cross-lane'):,}",
        f"{count('global load', 'global store', 'atomic', 'scalar load'):,}",
        f"{count('LDS'):,}", f"{one.matrix_instructions:,}", f"{count('wait', 'barrier'):,}",
        f"{(one.loaded + one.stored) / 1024:,.0f}", f"{one.lines:,}", f"{one.conflicts:,}",
        str(one.vgprs), str(one.spills), f"{one.occupancy:g}", f"{format_seconds(one.floor)} ({limit})",
    )  # fmt: skip


def because(family: str, size: str, arch: str) -> str:
    """Why ours is behind there; empty where nobody says it."""
    reasons = (why for (name, part, archs), why in BEHIND.items() if name == family and part in size and arch in archs)
    return next(reasons, "")


def losses(figures: Iterable[Figures]) -> str:
    """Markdown: where ours is not ahead or level, and why."""
    found = [
        f"- `{family}`, {size}, {arch}: {'; '.join(behind(contenders))}. Why: {because(family, size, arch)}."
        for (family, size, arch), contenders in groups(figures).items()
        if behind(contenders)
    ]
    return "\n".join(found) or "None."


def missing(absent: Iterable[Absent]) -> str:
    """Markdown: rivals without figures, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in absent:
        families = reasons.setdefault((one.name, one.reason), [])
        if f"`{one.family}`" not in families:
            families.append(f"`{one.family}`")
    return "\n".join(f"- {name}, {', '.join(families)}: {why}" for (name, why), families in reasons.items()) or "None."


def markdown() -> str:
    """The generated part of the page."""
    figures, absent = stored()
    return "\n\n".join((
        "## AMD's machine code, executed",
        "Wave instructions of one call, counted by the simulator. Fewer is better.",
        f"![Wave instructions of the best rival over ours](results/{PICTURE.name})",
        summary(figures), "### Where ours is behind", losses(figures),
        "### Everything that was counted", "Ours and the rival with the fewest instructions; instructions by class.",
        details(figures), "### Rivals that were left out", missing(absent),
        "### What the numbers of `launch/` are worth", VALUES, entries.table(),
    ))  # fmt: skip


def draw() -> None:
    """For each contest a bar: the instructions of the best rival, as a multiple of ours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names, ratios = [], []
    for (family, size, arch), contenders in groups(stored()[0]).items():
        least = min(other.instructions for name, other in contenders.items() if name != OURS)
        names.append(f"{family}, {size}, {arch}")
        ratios.append(least / contenders[OURS].instructions)
    with matplotlib.rc_context({"svg.hashsalt": "machine code", "svg.fonttype": "none"}):  # the same bytes every time
        figure, axes = pyplot.subplots(figsize=(8, 0.22 * len(names) + 1))
        axes.barh(names[::-1], ratios[::-1], color=["#3b6ea5" if ratio >= 1 else "#c0504d" for ratio in ratios[::-1]])
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlabel("wave instructions of the best rival, as a multiple of ours")
        axes.tick_params(labelsize=7)
        figure.tight_layout()
        figure.savefig(PICTURE, format="svg", metadata={"Date": None})
        pyplot.close(figure)
