"""What the commands of gfxlab print, as data for `--json`: numbers, strings, lists and dictionaries."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfxlab.code import AmdReport
    from gfxlab.simulator.show.run import Run
    from gfxlab.simulator.show.stepper import Walk
    from gfxlab.tracing.ledger import Ledger

_FIGURES = ("vgprs", "agprs", "sgprs", "spills", "scratch", "lds", "lds_limit", "threads", "num_warps", "num_stages")


def of_report(report: AmdReport) -> dict[str, Any]:
    """The figures of a kernel's machine code."""
    occupancy = report.occupancy
    return {
        "kernel": report.name,
        "arch": report.arch,
        **{name: getattr(report, name) for name in _FIGURES},
        "waves_per_simd": occupancy.waves,
        "waves_per_simd_most": occupancy.most,
        "occupancy_limited_by": occupancy.limit,
        "instructions": report.instructions,
        "code_bytes": report.code_bytes,
        "mix": report.mix,
        "loads_by_bits": {str(bits): count for bits, count in report.loads.items()},
        "stores_by_bits": {str(bits): count for bits, count in report.stores.items()},
        "matrix": report.matrix,
        "work": asdict(report.work) if report.work else None,
        "notes": report.notes(),
    }


def of_run(run: Run) -> dict[str, Any]:
    """What a simulated launch did; bytes and lines only if it was profiled."""
    found: dict[str, Any] = {
        "kernel": run.compiled.name,
        "arch": run.program.arch,
        "grid": list(run.grid),
        "instructions": run.instructions,
        "by_kind": run.by_kind,
        "wrong": list(run.wrong),
    }
    if run.profile:
        for name in ("loads", "stores", "atomics"):
            found[name] = asdict(getattr(run, name))
        found |= {"lanes_on": run.active, "lds": asdict(run.lds), "spills": asdict(run.spills), "slow": list(run.slow)}
        found["lines"] = [_line(line) for line in run.by_line]
    return found


def _line(line: Any) -> dict[str, Any]:
    return {
        "line": line.source.line if line.source else None,
        "text": line.text,
        "instructions": line.instructions,
        "lanes_on": line.active,
        "loads": asdict(line.loads),
        "stores": asdict(line.stores),
        "lds": asdict(line.lds),
    }


def of_ledger(kernel: str, ledger: Ledger) -> dict[str, Any]:
    """Bytes by tensor, against the least possible."""
    return {
        "kernel": kernel,
        "bytes": ledger.bytes,
        "least": ledger.least,
        "tensors": [asdict(row) for row in ledger.rows],
        "notes": ledger.notes(),
    }


def of_walk(walk: Walk) -> list[dict[str, Any]]:
    """The steps of one wave."""
    return [{"step": frame.number, "text": str(frame)} for frame in walk]
