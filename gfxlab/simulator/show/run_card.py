"""A simulated launch as text, as an HTML card, and in sentences about what makes it slow."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gfxlab import style
from gfxlab.programs import format_grid
from gfxlab.simulator.show.counted import Counted, Line, Moved
from gfxlab.simulator.watch import traffic
from gfxlab.tables import Table
from gfxlab.units import format_bytes

_NOT_TIMED = "functional, not timed: no clock and no caches; counts are of waves"
_HEAD = ("line", "", "instructions", "lanes on", "loaded", "stored", "coalesced", "LDS cycles")
_NUMBERS = 6
_POOR = 0.5
_MUCH = 0.1  # of all instructions
_WIDE = 72  # characters of a source line


def _title(run: Counted) -> str:
    return f"{run.compiled.name} on {run.program.arch}, grid {format_grid(run.grid)}"


def _rows(run: Counted) -> dict[str, str]:
    total = run.instructions
    rows = {
        "wave-instructions": f"{total:,}",
        "of these": ", ".join(f"{count / total:.0%} {unit}" for unit, count in run.mix.items()),
    }
    if run.profile:
        rows["lanes on"] = f"{run.active:.0%}"
        for name, moved in (("loads", run.loads), ("stores", run.stores), ("atomics", run.atomics)):
            if moved.bytes:
                rows[name] = _moved(moved)
        if lds := run.lds.bytes and run.lds:
            rows["LDS"] = (
                f"{format_bytes(lds.bytes)} in {lds.cycles:,} cycles, {lds.conflicts:,} lost to bank conflicts"
            )
        if spills := run.spills.bytes and run.spills:
            rows["spills"] = f"{format_bytes(spills.bytes)}: {spills.stores:,} stores and {spills.loads:,} loads"
    return rows


def _moved(moved: Moved) -> str:
    return (
        f"{format_bytes(moved.bytes)}, {format_bytes(moved.least)} if each byte moved once; "
        f"{moved.segments:,} segments of {traffic.SEGMENT} bytes ({moved.coalescing:.0%} coalesced), "
        f"{moved.lines:,} lines of {traffic.LINE}"
    )


def _cells(line: Line) -> tuple[str, ...]:
    moved = line.loads + line.stores + line.atomics
    conflicts = f" ({line.lds.conflicts:,} lost)" if line.lds.conflicts else ""
    return (
        str(line.source.line) if line.source else "-",
        textwrap.shorten(line.text, _WIDE, placeholder=" ...") or "(the compiler names no line)",
        f"{line.instructions:,}",
        f"{line.active:.0%}",
        format_bytes(line.loads.bytes) if line.loads.bytes else "",
        format_bytes(line.stores.bytes + line.atomics.bytes) if line.stores.bytes or line.atomics.bytes else "",
        f"{moved.coalescing:.0%}" if moved.segments else "",
        f"{line.lds.cycles:,}{conflicts}" if line.lds.cycles else "",
    )


def _lines(run: Counted) -> Table:
    return Table([_cells(line) for line in run.by_line], _HEAD, numbers=_NUMBERS)


def table(run: Counted) -> str:
    """The kernel's lines with what each did."""
    return _lines(run).text("  ")


def text(run: Counted) -> str:
    """Everything, as text."""
    rows = _rows(run)
    wide = max(map(len, rows))
    facts = [f"  {key:{wide}}  {value}" for key, value in rows.items()]
    return "\n".join([_title(run), f"  ({_NOT_TIMED})", *facts, "", table(run), *(f"  ! {n}" for n in notes(run))])


def card(run: Counted) -> str:
    """Everything, as an HTML card."""
    body = Table(list(_rows(run).items())).html() + f'<p class="q">{_NOT_TIMED}</p>'
    return style.card(_title(run), body + _lines(run).html() + style.warnings(notes(run)))


# ---- what makes it slow ----------------------------------------------------------------------------------------------


def notes(run: Counted) -> tuple[str, ...]:
    """What is wrong, then what is slow."""
    return run.wrong + slow(run)


def slow(run: Counted) -> tuple[str, ...]:
    """What would cost time on hardware, in sentences, most telling first; empty where bytes were not counted."""
    return tuple(_slow(run)) if run.profile else ()


def _slow(run: Counted) -> Iterator[str]:
    if run.spills.bytes:
        yield (
            f"Registers that did not fit moved {format_bytes(run.spills.bytes)} to memory and back: take smaller "
            "blocks or more num_warps."
        )
    for line in run.by_line:
        yield from _slow_line(line)
        if line.source and line.active < _POOR and line.instructions > _MUCH * run.instructions:
            yield f"line {line.source.line} runs with {line.active:.0%} of its lanes on."
    for verb, moved in (("loaded", run.loads), ("stored", run.stores)):
        for name, (asked, least) in moved.tensors.items():
            if asked > 2 * least:
                yield f"{name}: each byte is {verb} {asked / least:.3g} times; only a cache can save that."


def _slow_line(line: Line) -> Iterator[str]:
    where = f"line {line.source.line}" if line.source else "code without a line"
    for verb, moved in (("loads", line.loads), ("stores", line.stores)):
        if moved.coalescing < _POOR:
            yield (
                f"{where} {verb} from {moved.segments:,} segments of {traffic.SEGMENT} bytes where "
                f"{moved.fewest:,} would do: neighbouring lanes should have neighbouring elements."
            ).replace("stores from", "stores to")
    if line.lds.conflicts > _POOR * line.lds.cycles:
        yield (
            f"{where} loses {line.lds.conflicts:,} of {line.lds.cycles:,} LDS cycles to bank conflicts, up to "
            f"{line.lds.worst} lanes at one bank."
        )
