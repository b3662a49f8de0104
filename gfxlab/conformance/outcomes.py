"""The log of a run: a line of JSON for each outcome of a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(log: Path) -> list[dict[str, Any]]:
    """The lines of a log: the last one of each test."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return list({line["test"]: line for line in lines}.values())
