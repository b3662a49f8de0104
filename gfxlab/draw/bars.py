"""Bytes moved, as bars: operation by operation against fused."""

from __future__ import annotations

from collections.abc import Mapping

from gfxlab.draw import svg
from gfxlab.units import format_bytes

_TOP, _BAR, _STEP = 34, 24, 46


def bytes_bar(bars: Mapping[str, float | Mapping[str, float]], title: str = "bytes moved") -> svg.Picture:
    """One bar for each way of computing the same thing; the parts of a bar are its reads and writes.

        bytes_bar({"five operations": {"x * x": 2 * n, "mean": n, ...}, "fused": {"read x": n, "write y": n}})

    Args:
        bars: name -> bytes, or name -> {part: bytes}.

    Raises:
        ValueError: there is no bar, or an amount is negative.
    """
    parts = {name: dict(bar) if isinstance(bar, Mapping) else {"": bar} for name, bar in bars.items()}
    totals = {name: sum(bar.values()) for name, bar in parts.items()}
    if not parts or min(min(bar.values(), default=0) for bar in parts.values()) < 0:
        raise ValueError(f"bytes_bar needs at least one bar and no negative bytes, got {dict(bars)!r}")
    canvas = svg.Canvas()
    canvas.text(10, 18, title, "b")
    most = max(totals.values()) or 1
    room = canvas.width - 20 - 150
    for i, (name, bar) in enumerate(parts.items()):
        _draw_bar(canvas, _TOP + i * _STEP, name, bar, room / most, totals[name], most)
    lines = [title]
    for name, bar in parts.items():
        lines.append(f"  {name}: {_amount(totals[name], most)}")
        lines += [f"    {part}: {format_bytes(amount)}" for part, amount in bar.items() if part]
    return canvas.picture(title, "\n".join(lines))


def _amount(total: float, most: float) -> str:
    share = f" ({most / total:.3g} times less)" if 0 < total < most else ""
    return format_bytes(total) + share


def _fits(words: str, width: float) -> bool:
    return svg.text_width(words, 10) + 8 < width


def _draw_bar(
    canvas: svg.Canvas, y: float, name: str, bar: Mapping[str, float], scale: float, total: float, most: float
) -> None:
    canvas.text(10, y + 10, name)
    x = 10.0
    for i, (part, amount) in enumerate(bar.items()):
        width = amount * scale
        canvas.box(x, y + 15, width, _BAR, svg.colour(i), f"{part or name}: {format_bytes(amount)}", 0.35)
        if part and _fits(part, width):
            canvas.text(x + width / 2, y + 15 + _BAR / 2 + 4, part, "sc")
        x += width
    hidden = [part for part, amount in bar.items() if part and not _fits(part, amount * scale)]
    words = f": {', '.join(hidden)}" if hidden and x < canvas.width / 2 else ""
    canvas.text(x + 8, y + 15 + _BAR / 2 + 4, _amount(total, most) + words, "b")
