"""How often each element of a tensor is read: what a cache could save, as a heat map."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gfxlab.draw import svg
from gfxlab.draw.traced import Traced
from gfxlab.strides import Layout, Strided

_LEFT, _RIGHT, _TOP = 54, 14, 46
_MOST_ROWS, _MOST_COLUMNS, _MOST_LEVELS = 64, 96, 10
_HUE = svg.colour(4)

_Level = tuple[int, int]  # the fewest and the most times


def reuse_map(launch: Traced, tensor: str, kind: str = "load") -> svg.Picture:
    """Draw how often each element of a tensor was read (or written), the darker the oftener.

        with trace() as launch:
            matmul(a, b)
        draw.reuse_map(launch, "b_ptr")

    Args:
        launch: a traced launch, `with trace() as launch:`.
        tensor: the kernel argument's name.
        kind: 'load', or 'store' for how often it was written. An atomic counts as both.

    Large tensors are drawn in cells of several elements; a cell shows the most often used of them.

    Raises:
        ValueError: no such tensor or kind, or the tensor is empty.
    """
    times = launch.times(tensor, kind)
    if not times.size:
        raise ValueError(f"{tensor} is empty: there is nothing to draw")
    verb = "read" if kind == "load" else "written"
    layout = Layout.of(launch.tensor(tensor))
    counts = _grid(times, Strided.of(launch.tensor(tensor)).exists(), layout)
    levels = _levels(counts[counts >= 0])
    size = " x ".join(map(str, layout.shape))
    title = f"{launch.name}: how often each element of {tensor} is {verb} ({size} elements)"
    canvas = svg.Canvas()
    canvas.text(10, 18, title, "b")
    bottom = _draw(canvas, counts, levels, verb)
    canvas.legend(bottom + 10, [_entry(level, levels, verb) for level in levels])
    return canvas.picture(title, "\n".join([title, *_words(counts[counts >= 0], levels, verb)]))


def _grid(times: np.ndarray, real: np.ndarray, layout: Layout) -> np.ndarray:
    """The counts as rows and columns; -1 in the gaps of a strided tensor."""
    rows, columns = layout.place(np.arange(times.size))
    shape = (1, *layout.shape)[-2:]
    counts = np.full(shape, -1, np.int64)
    counts[rows[real], columns[real]] = times[real]
    return counts


def _levels(counts: np.ndarray) -> list[_Level]:
    """One level a count where there are few, else ranges of about equal width; never is a level of its own."""
    found = np.unique(counts)
    if len(found) <= _MOST_LEVELS:
        return [(int(count), int(count)) for count in found]
    least, most = int(found[found > 0][0]), int(found[-1])
    edges = np.unique(np.linspace(least, most + 1, _MOST_LEVELS).astype(int))
    ranges = [(int(low), int(high) - 1) for low, high in zip(edges[:-1], edges[1:])]
    return [(0, 0), *ranges] if found[0] == 0 else ranges


def _draw(canvas: svg.Canvas, counts: np.ndarray, levels: list[_Level], verb: str) -> float:
    """The heat map; gives its lower edge."""
    shown = _binned(counts)
    rows, columns = shown.shape
    width = (canvas.width - _LEFT - _RIGHT) / columns
    height = 40.0 if rows == 1 else min(18.0, 200.0 / rows)
    for level in levels:
        if level[1] > 0:
            boxes = (
                (_LEFT + first * width, _TOP + row * height, (last - first) * width, height)
                for row, first, last in _runs((shown >= level[0]) & (shown <= level[1]))
            )
            canvas.region(boxes, _HUE, f"{verb} {_times(level)}", _opacity(level, levels))
    canvas.outline(_LEFT, _TOP, columns * width, rows * height, "a")
    _labels(canvas, counts.shape, rows * height)
    return _TOP + rows * height


def _binned(counts: np.ndarray) -> np.ndarray:
    """At most _MOST_ROWS x _MOST_COLUMNS cells: the largest count of each."""
    for axis, most in enumerate((_MOST_ROWS, _MOST_COLUMNS)):
        step = -(-counts.shape[axis] // most)
        counts = np.maximum.reduceat(counts, range(0, counts.shape[axis], step), axis=axis)
    return counts


def _runs(wanted: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Neighbours in a row as (row, first column, last column + 1)."""
    for row, cells in enumerate(wanted):
        edges = np.flatnonzero(np.diff(np.r_[False, cells, False]))
        yield from ((row, int(first), int(last)) for first, last in zip(edges[::2], edges[1::2]))


def _labels(canvas: svg.Canvas, shape: tuple[int, ...], height: float) -> None:
    rows, columns = shape
    word = "element" if rows == 1 else "column"
    canvas.text(_LEFT, _TOP - 5, f"{word} 0", "sq")
    canvas.text(canvas.width - _RIGHT, _TOP - 5, f"{word} {columns - 1}", "sqe")
    if rows > 1:
        canvas.text(_LEFT - 6, _TOP + 10, "row 0", "sqe")
        if height > 26:
            canvas.text(_LEFT - 6, _TOP + height - 2, f"row {rows - 1}", "sqe")


def _opacity(level: _Level, levels: list[_Level]) -> float:
    if level == (1, 1):
        return 0.25
    shades = [one for one in levels if one[1] > 1]
    return 0.3 + 0.65 * (shades.index(level) + 1) / len(shades)


def _times(level: _Level) -> str:
    low, high = level
    if low == high:
        return "never" if low == 0 else "once" if low == 1 else f"{low:,} times"
    return f"{low:,} to {high:,} times"


def _mean(times: float) -> str:
    return "once" if times == 1 else f"{times:.3g} times"


def _entry(level: _Level, levels: list[_Level], verb: str) -> tuple[str, str, float]:
    if level[1] == 0:
        return "rim", f"never {verb}", 0.0
    return _HUE, f"{verb} {_times(level)}", _opacity(level, levels)


def _words(counts: np.ndarray, levels: list[_Level], verb: str) -> list[str]:
    lines = [
        f"  {_times(level)}: {int(((counts >= level[0]) & (counts <= level[1])).sum()):,} of {counts.size:,} elements"
        for level in levels
    ]
    touched = int((counts > 0).sum())
    if touched:
        lines.append(f"  each element that is {verb} at all: {_mean(counts.sum() / touched)} on average")
    return lines
