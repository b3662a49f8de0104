"""Lanes and their data: what each lane holds of a block, and the cache lines that one access of a wave touches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gfxlab.draw import svg
from gfxlab.draw.svg import Canvas, Picture

_CELL = 22.0  # width of one element in the close-up of a few lanes
_SHOWN_LINES = 6


def lanes(block: int, *, num_warps: int = 4, wave_size: int = 64, vector: int = 4) -> Picture:
    """How a block of `block` elements lies over the lanes of a program.

    `vector` neighbours go to each lane, lane by lane and wave by wave, then again from the first lane, until the block
    is used up: Triton's layout of a one-dimensional block.

    Args:
        num_warps: waves of the program.
        wave_size: lanes in a wave.
        vector: neighbours that one access brings to a lane.

    Raises:
        ValueError: the block does not give every lane the same number of such groups.
    """
    if block < 1 or block % (num_warps * wave_size * vector):
        raise ValueError(
            f"{block} elements do not fill {num_warps} waves of {wave_size} lanes with {vector} elements each"
        )
    each = block // (num_warps * wave_size)
    title = f"BLOCK = {block} over {num_warps} waves of {wave_size} lanes"
    accesses = f"{each // vector} load{'s' if each > vector else ''} of {vector}"
    text = f"{block} / ({num_warps} x {wave_size}) = {_many(each, 'element')} a lane, in {accesses}"
    canvas = Canvas()
    canvas.text(16, 18, title, "b")
    canvas.text(16, 36, text, "q")
    _draw_waves(canvas, block, num_warps, wave_size * vector)
    _draw_first_lanes(canvas, wave_size, vector)
    last = wave_size - 1
    first = [f"lane {lane}: {_span(lane * vector, vector)}" for lane in (0, 1, last)]
    return canvas.picture(title, f"{title}\n  {text}\n  wave 0, first load: {', '.join(first)}")


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first} to {first + count - 1}"


def _draw_waves(canvas: Canvas, block: int, num_warps: int, stretch: int) -> None:
    """The whole block as a strip; one box is what one wave accesses at once."""
    width = (canvas.width - 32) * stretch / block
    for number in range(block // stretch):
        wave, x = number % num_warps, 16 + number * width
        words = f"wave {wave}: elements {_span(number * stretch, stretch)}"
        canvas.box(x, 48, width, 28, svg.colour(wave), words)
        if width > svg.text_width(f"wave {wave}") + 6:
            canvas.text(x + width / 2, 66, f"wave {wave}", "c")
        if width > svg.text_width(str(number * stretch), 10) + 6:
            canvas.text(x, 88, str(number * stretch), "sq")
    canvas.text(canvas.width - 16, 88, str(block - 1), "sqe")


def _draw_first_lanes(canvas: Canvas, wave_size: int, vector: int) -> None:
    """A close-up: the elements of the first lanes of wave 0 and of its last lane."""
    group = max(_CELL * vector + 12, 48)  # room for "lane 12"
    count = min(int((canvas.width - 32 - 20) // group) - 1, wave_size - 1)
    canvas.text(16, 118, "wave 0, first load: the elements of each lane", "q")
    x = 16.0
    for lane in [*range(count), wave_size - 1]:
        if lane == wave_size - 1 and count < lane:
            canvas.text(x + 4, 157, "...", "q")
            x += 24
        canvas.text(x, 137, f"lane {lane}", "s")
        for i in range(vector):
            element, left = lane * vector + i, x + i * _CELL
            canvas.box(left, 142, _CELL, 22, svg.colour(0), f"lane {lane} holds element {element}")
            canvas.text(left + _CELL / 2, 157, str(element), "sc")
        x += group


def cache_lines(elements: Iterable[int], *, itemsize: int = 4, line_bytes: int = 128) -> Picture:
    """The cache lines that a wave touches when its lane i accesses element `elements[i]` of a tensor.

    Args:
        elements: one offset a lane, from the tensor's first element, which begins a line; negative: switched off.
        itemsize: bytes of an element.
        line_bytes: bytes that memory moves together.
    """
    lane_of = {int(element): lane for lane, element in enumerate(np.asarray(elements).reshape(-1)) if element >= 0}
    per_line = line_bytes // itemsize
    touched = sorted({element // per_line for element in lane_of})
    used, moved = len(lane_of) * itemsize, len(touched) * line_bytes
    title = f"{_many(len(lane_of), 'lane')} of a wave, {_many(len(touched), 'line')} of {line_bytes} bytes"
    text = f"used {used:,} of the {moved:,} bytes that memory moves: {used / max(moved, 1):.0%}"
    canvas = Canvas()
    canvas.text(16, 18, title, "b")
    canvas.text(16, 36, text, "q")
    for row, line in enumerate(touched[:_SHOWN_LINES]):
        _draw_line(canvas, 46 + 25 * row, line, per_line, lane_of)
    if len(touched) > _SHOWN_LINES:
        y = 46 + 25 * _SHOWN_LINES + 12
        canvas.text(16, y, f"... and {_many(len(touched) - _SHOWN_LINES, 'more line')}, up to line {touched[-1]}", "q")
    rows = [f"  line {n}: lanes {', '.join(map(str, _lanes_in(n, per_line, lane_of)))}" for n in touched[:_SHOWN_LINES]]
    return canvas.picture(title, "\n".join([title, f"  {text}", *rows]))


def _lanes_in(line: int, per_line: int, lane_of: dict[int, int]) -> list[int]:
    return [lane_of[e] for e in range(line * per_line, (line + 1) * per_line) if e in lane_of]


def _draw_line(canvas: Canvas, y: float, line: int, per_line: int, lane_of: dict[int, int]) -> None:
    """One line of memory; a coloured element is one that a lane asked for, and says which."""
    canvas.text(70, y + 15, f"line {line}", "sqe")
    width = (canvas.width - 76 - 16) / per_line
    elements = range(line * per_line, (line + 1) * per_line)
    for element in sorted(elements, key=lane_of.__contains__):  # those in use last, so that their rims lie on top
        x = 76 + (element - elements[0]) * width
        if element not in lane_of:
            canvas.outline(x, y, width, 20, "l", f"element {element}: moved, not used")
            continue
        canvas.box(x, y, width, 20, svg.colour(0), f"lane {lane_of[element]} reads element {element}")
        if width >= 16:
            canvas.text(x + width / 2, y + 14, str(lane_of[element]), "sc")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
