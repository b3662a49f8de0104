"""What a launch would cost on a card, from counts: memory, LDS, registers, lanes. Only what stands out is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gfxlab.code import isa
from gfxlab.code.compiler import Compiled
from gfxlab.code.report import AmdReport
from gfxlab.review.findings import Finding
from gfxlab.review.pieces import Pieces, Place
from gfxlab.simulator.show.counted import Line
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.watch import traffic
from gfxlab.units import format_bytes

_COALESCED = 0.5  # of the segments that an access touches
_MUCH = 0.1  # of the launch: of its bytes, of its instructions
_FEW_WAVES = 0.25  # of those that a SIMD can hold
_LANES_ON = 0.5
_LANES_TAKING = 0.25  # masks of loads leave arithmetic on, and of small blocks most lanes
_AGAIN = 2.0
_SMALL = 1 << 16  # bytes that any cache keeps: reading them again costs nothing worth a line
_FEW = 1 << 15  # bytes that may come in narrow pieces


def of_run(run: Run, report: AmdReport, pieces: Pieces) -> Iterator[Finding]:
    """Costs of a profiled launch, most telling first. pieces: asked about lines that touch many segments."""
    name = run.compiled.name
    if report.spills and run.spills.bytes:  # scalar registers are kept in lanes of vector ones, which moves nothing
        moved = format_bytes(run.spills.bytes)
        evidence = f"{report.spills} registers do not fit; the launch moves {moved} because of them."
        yield Finding("spills", name, evidence, *_most(run, lambda line: line.kinds.get("scratch", 0)))
    total = max(1, run.loads.bytes + run.stores.bytes + run.atomics.bytes)
    for line in run.by_line:
        yield from _of_line(run, line, total, pieces)
    yield from _narrow(run)
    yield from _occupancy(run, report)
    yield from _idle(run)
    for tensor, (asked, least) in run.loads.tensors.items():
        if least > _SMALL and asked > _AGAIN * least and not _shared(run, tensor, pieces):
            evidence = f"{tensor}: each byte is loaded {asked / least:.3g} times."
            yield Finding("again", name, evidence, *pieces.most_loaded(tensor))


def _shared(run: Run, tensor: str, pieces: Pieces) -> bool:
    """Whether tiles of a product share their operand: then only what one program loads again is a loss."""
    return bool(run.by_kind.get("matrix")) and pieces.times(tensor) <= _AGAIN


def _most(run: Run, cost: Callable[[Line], float]) -> Place:
    """File and line of the kernel's line that costs most."""
    lines = [line for line in run.by_line if line.source]
    most = max(lines, key=cost, default=None)
    return (most.source.filename, most.source.line) if most else ("", 0)


def of_kernel(compiled: Compiled) -> Place:
    """File and line of the kernel's `def`."""
    for file, lines in compiled.sources.items():
        for line, text in lines.items():
            if re.match(rf"\s*def {re.escape(compiled.name)}\b", text):
                return file, line
    return "", 0


def _of_line(run: Run, line: Line, total: int, pieces: Pieces) -> Iterator[Finding]:
    place = (line.source.filename, line.source.line) if line.source else ("", 0)
    for verb, kind, moved in (("loads from", "global load", line.loads), ("stores to", "global store", line.stores)):
        if moved.coalescing < _COALESCED and moved.bytes > _MUCH * total and not pieces.has(*place, kind):
            yield Finding(
                "uncoalesced",
                run.compiled.name,
                f"It {verb} {moved.segments:,} segments of {traffic.SEGMENT} bytes where {moved.fewest:,} would do.",
                *place,
            )
    if line.lds.conflicts > _COALESCED * line.lds.cycles and line.lds.cycles > _MUCH * run.lds.cycles:
        lost = f"{line.lds.conflicts:,} of {line.lds.cycles:,} LDS cycles are lost"
        yield Finding("banks", run.compiled.name, f"{lost}, up to {line.lds.worst} lanes at one bank.", *place)


def _narrow(run: Run) -> Iterator[Finding]:
    """Lines whose loads or stores take less than 4 bytes a lane and move much."""
    by_line: dict[tuple[str, int], tuple[int, int]] = {}
    total = 1
    for one in run.program.instructions:
        moved = run.profile.traffic.get(one.index)
        if moved is None or one.kind not in ("global load", "global store"):
            continue
        total += moved.bytes
        bits = isa.width(one.mnemonic)
        if 0 < bits < 32 and one.source:
            place = one.source.filename, one.source.line
            before, _ = by_line.get(place, (0, 0))
            by_line[place] = before + moved.bytes, bits
    for (file, line), (moved, bits) in by_line.items():
        if moved > _MUCH * total and moved > _FEW:
            evidence = (
                f"{format_bytes(moved)} of {format_bytes(total)} move by {bits} bits a lane, where 128 are possible."
            )
            yield Finding("narrow", run.compiled.name, evidence, file, line)


def _occupancy(run: Run, report: AmdReport) -> Iterator[Finding]:
    waves = report.occupancy
    if waves.waves < _FEW_WAVES * waves.most:
        least = f"{waves.waves:g} of {waves.most} waves fit a SIMD of {report.arch}, limited by {waves.limit}"
        evidence = f"{least} ({report.vgprs} VGPRs, {report.lds:,} bytes of LDS)."
        yield Finding("occupancy", run.compiled.name, evidence, *of_kernel(run.compiled))


def _idle(run: Run) -> Iterator[Finding]:
    off = _most(run, lambda line: line.instructions * (1 - line.active))
    loads = [one for one in run.program.instructions if one.kind == "global load"]
    if run.active < _LANES_ON:
        evidence = f"Over the whole launch {run.active:.0%} of the lanes are on."
        yield Finding("idle-lanes", run.compiled.name, evidence, *off)
    elif run.loads.bytes > _SMALL and (taking := run.active_in(loads)) < _LANES_TAKING:
        evidence = f"In its loads {taking:.0%} of the lanes are on."
        yield Finding("idle-lanes", run.compiled.name, evidence, *off)
    x, y, z = run.grid
    stores = [int(run.executed[i]) for i, block in enumerate(run.program.blocks) if _stores(run, block)]
    if stores and max(stores) < _LANES_ON * x * y * z:  # one wave of a program is enough
        idle = 1 - max(stores) / (x * y * z)
        evidence = f"At least {idle:.0%} of the programs store nothing."
        yield Finding("idle-programs", run.compiled.name, evidence, *of_kernel(run.compiled))


def _stores(run: Run, block) -> bool:
    return any(one.kind in ("global store", "atomic") for one in run.program.instructions[block.start : block.stop])
