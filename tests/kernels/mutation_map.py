"""Which test executes which lines of the package, and how long each takes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

Lines = dict[str, int]  # a source's name -> its executed lines, as the bits of a number


class Tracer:
    """Notes the lines of these files that are executed while it is on."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files  # path -> name
        self._seen: dict[str, set[int]] = {}

    def around(self, run: Callable[[], Any]) -> tuple[float, Lines]:
        """Call `run`: its seconds of processor time, and what it executed."""
        self._seen = {path: set() for path in self._files}
        begun = process_time()
        sys.settrace(self._enter)
        try:
            run()
        finally:
            sys.settrace(None)
        lines = {self._files[path]: sum(1 << line for line in seen) for path, seen in self._seen.items() if seen}
        return process_time() - begun, lines

    def _enter(self, frame: types.FrameType, event: str, argument: Any) -> Callable | None:
        seen = self._seen.get(frame.f_code.co_filename)
        if seen is None:
            return None

        def line(frame: types.FrameType, event: str, argument: Any) -> Callable:
            if event == "line":
                seen.add(frame.f_lineno)
            return line

        return line


def packed(lines: Lines) -> dict[str, str]:
    """As JSON takes it."""
    return {name: f"{bits:x}" for name, bits in lines.items()}


def unpacked(lines: dict[str, str]) -> Lines:
    return {name: int(bits, 16) for name, bits in lines.items()}


def executes(lines: Lines, name: str, spans: list[tuple[int, int]]) -> bool:
    """Whether a line of one of these spans was executed."""
    bits = lines.get(name, 0)
    return any((bits >> first) & ((1 << (last - first + 1)) - 1) for first, last in spans)


def paths(package: Path) -> dict[str, str]:
    """Every file of the package -> its name as a source."""
    files = sorted(package.rglob("*.py"))
    return {str(path): ".".join(path.relative_to(package).with_suffix("").parts) for path in files}
