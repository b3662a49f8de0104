"""How the lanes of one program add up a block: inside each wave without memory, then across waves through LDS."""

from __future__ import annotations

from gfxlab import style
from gfxlab.draw import svg

_LEFT, _CELL, _GAP = 192, 2.5, 14  # of the labels, of one lane, between two waves
_ROW, _BAR, _SLOT = 19, 10, 34
_GROUP = 16  # lanes that a DPP row shift reaches


def reduction(lanes: int = 64, waves: int = 4) -> svg.Picture:
    """Draw `tl.sum` over a block, as the AMD compiler builds it.

    A coloured cell is a lane whose partial sum is still needed. Within groups of 16 lanes the steps are 8, 4, 2 and 1
    lanes; then the groups are joined, until the last lane of a wave holds the sum of the wave.

    Args:
        lanes: of a wave: 64 on CDNA, 32 on RDNA.
        waves: of the program; a single one needs no LDS.

    Raises:
        ValueError: another number of lanes, or no wave.
    """
    if lanes not in (32, 64) or waves < 1:
        raise ValueError(f"a reduction is drawn for waves of 32 or 64 lanes, at least one; got {waves} of {lanes}")
    wide = lanes * _CELL
    starts = [_LEFT + wave * (wide + _GAP) for wave in range(waves)]
    canvas = svg.Canvas(width=max(starts[-1] + wide + 10, 420))
    for wave, x in enumerate(starts):
        canvas.text(x + wide / 2, 16, f"wave {wave}", "qc")
    steps = _steps(lanes)
    for i, (words, alive) in enumerate(steps):
        y = 26 + i * _ROW
        canvas.text(10, y + 9, words)
        for wave, x in enumerate(starts):
            canvas.outline(x, y, wide, _BAR)
            for first, last in _runs(alive):
                where = f"wave {wave}, " + (f"lane {first}" if last == first + 1 else f"lanes {first} to {last - 1}")
                canvas.box(x + first * _CELL, y, (last - first) * _CELL, _BAR, svg.colour(wave), where, opacity=0.9)
    if waves > 1:
        _through_lds(canvas, starts, wide, 26 + len(steps) * _ROW)
    return canvas.picture(f"a sum over {waves} waves of {lanes} lanes", _text(steps, waves))


def _steps(lanes: int) -> list[tuple[str, list[int]]]:
    """(what is done, the lanes whose partial sum is still needed afterwards)."""
    steps = [("each lane: its own elements", list(range(lanes)))]
    for shift in (8, 4, 2, 1):
        alive = [lane for lane in range(lanes) if lane % _GROUP >= _GROUP - shift]
        steps.append((f"DPP: add the lane {shift} before", alive))
    group = 2 * _GROUP
    while group <= lanes:
        alive = [lane for lane in range(lanes) if lane % group == group - 1]
        steps.append((f"join groups of {group // 2} lanes", alive))
        group *= 2
    return steps


def _runs(lanes: list[int]) -> list[tuple[int, int]]:
    """Neighbouring lanes as (first, last + 1)."""
    firsts = [lane for lane in lanes if lane - 1 not in lanes]
    lasts = [lane + 1 for lane in lanes if lane + 1 not in lanes]
    return list(zip(firsts, lasts, strict=True))


def _through_lds(canvas: svg.Canvas, starts: list[float], wide: float, y: float) -> None:
    right = starts[-1] + wide
    first = (starts[0] + right - len(starts) * _SLOT) / 2
    canvas.text(10, y + 38, "each wave: write it to LDS")
    for wave, x in enumerate(starts):
        slot = first + wave * _SLOT
        canvas.line(x + wide - _CELL / 2, y - _ROW + _BAR + 1, slot + _SLOT / 2, y + 22, "a")
        canvas.outline(slot, y + 22, _SLOT, 24, "o")
        canvas.box(slot + 6, y + 28, _SLOT - 12, 12, svg.colour(wave), f"the sum of wave {wave}", opacity=0.9)
    canvas.text(first + len(starts) * _SLOT + 10, y + 38, f"LDS, {4 * len(starts)} bytes", "q")
    canvas.text(10, y + 66, "barrier: wait for all waves")
    canvas.line(starts[0], y + 62, right, y + 62, "o", 'stroke-dasharray="6 4"')
    canvas.text(10, y + 90, "each lane: read all, add")
    for x in starts:
        canvas.box(x, y + 81, wide, _BAR, style.QUIET, "every lane holds the sum of the block", opacity=0.9)


def _text(steps: list[tuple[str, list[int]]], waves: int) -> str:
    lines = [f"{words}: {len(alive)} partial sums a wave" for words, alive in steps]
    if waves > 1:
        lines.append(f"LDS: {waves} partial sums, then a barrier; every lane reads all of them")
    return "\n".join(lines)
