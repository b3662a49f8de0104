"""Amounts as people write them: 1.5 KiB, 1.2 GFLOP, 4.8 us."""

from __future__ import annotations

import re

_UNIT = r"(?:[nuµm]?s|[kKMGT]?i?B|[kMGTP]?FLOPs?|[MG]?Hz|W|%)(?![\w(])"
_TOGETHER = re.compile(rf"(?<=\d)[ \n](?=\d{{3}}\b|{_UNIT})|(?<=\d)[ \n](?=[x×] \d)|(?<=\d [x×])[ \n](?=\d)")


def unbroken(text: str) -> str:
    """`text` in which no line ends inside an amount: 25 ms, 5.3 TB/s, 54 %, 200 000, 128 x 64."""
    return _TOGETHER.sub("\u00a0", text)


def format_bytes(count: float) -> str:
    """`512 B`, `1.5 KiB`, `24 MiB`."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def format_flops(count: float) -> str:
    """`576 FLOP`, `1.2 GFLOP`."""
    return _scaled(count, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"))


def format_seconds(seconds: float) -> str:
    """`320 ns`, `4.8 us`, `1.2 ms`, `3 s`."""
    return _scaled(seconds * 1e9, 1000, ("ns", "us", "ms", "s"))


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    step = 0
    while value >= base and step < len(units) - 1:
        value, step = value / base, step + 1
    return f"{value:.3g} {units[step]}" if value < 100 else f"{value:.0f} {units[step]}"


def format_count(count: int, what: str) -> str:
    """`no hazards`, `1 hazard`, `1,234 hazards`."""
    many = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"no {many}" if not count else f"{count:,} {what if count == 1 else many}"
