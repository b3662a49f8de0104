"""The table of Triton versions that the README shows, from what `make compat` (scripts/compat.py) has measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gfxlab.tables import Table

STORED = Path(__file__).with_name("compat.json")
SUITES = ("engines", "trace", "check", "AMD report", "simulator", "kernels", "solutions", "notebooks")


def stored() -> dict[str, Any]:
    """Results by version; empty before the first run."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def cell(suite: dict[str, Any] | None) -> str:
    """`120`, or `**2 of 122 fail**`; `-` for a suite that was not run."""
    if suite is None:
        return "-"
    total = suite["passed"] + suite["failed"]
    return f"**{suite['failed']} of {total} fail**" if suite["failed"] else f"{total}"


def table(results: dict[str, Any]) -> str:
    """The results as a Markdown table, and below it what fails, by name."""
    head = ("Triton", *SUITES, "with numpy", "PyTorch", "Python", "date")
    rows = []
    for version, row in results.items():
        about = (row["about"][key] for key in ("numpy", "torch", "python", "date"))
        rows.append((version, *(cell(row["suites"].get(name)) for name in SUITES), *about))
    failing = [
        f"Failing on {version}: {', '.join(f'`{name}`' for name in suite['failures'])}."
        for version, row in results.items()
        for suite in row["suites"].values()
        if suite["failures"]
    ]
    return "\n\n".join([Table(rows, head).markdown(), *failing])
