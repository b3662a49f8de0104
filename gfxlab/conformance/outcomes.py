"""The log of a run: a line of JSON for each outcome of a test, and which process runs which tests."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any


def read(log: Path) -> list[dict[str, Any]]:
    """The lines of a log: the last one of each test."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return list({line["test"]: line for line in lines}.values())


def forget_unfinished(log: Path) -> None:
    """Leave out the tests that ran when somebody ended the run: they are to run again."""
    if log.exists():
        kept = [json.dumps(line) + "\n" for line in read(log) if line["outcome"] != "started"]
        log.write_text("".join(kept))


def shard_of(test: str, shards: int) -> int:
    """Which of so many parts a test belongs to, the same in every process."""
    return zlib.crc32(test.encode()) % shards
