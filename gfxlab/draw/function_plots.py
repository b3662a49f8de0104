"""Functions of one variable, as curves over a common axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from gfxlab.draw import svg

_TOP, _HEIGHT, _LEFT, _RIGHT, _POINTS = 34, 170, 40, 14, 241


def curves(functions: Mapping[str, Callable[[torch.Tensor], torch.Tensor]], low: float, high: float) -> svg.Picture:
    """The functions between low and high, in one plot.

        curves({"silu": torch.nn.functional.silu, "relu": torch.relu}, -5, 5)

    Args:
        functions: name -> function, which is given all points at once as float64.

    Raises:
        ValueError: no function, low not below high, or a value that is not finite.
    """
    if not functions or not low < high:
        raise ValueError(f"curves needs functions and low < high, got {len(functions)} and {low} to {high}")
    points = torch.linspace(low, high, _POINTS, dtype=torch.float64)
    values = {name: function(points) for name, function in functions.items()}
    unfit = [name for name, value in values.items() if not value.isfinite().all()]
    if unfit:
        raise ValueError(f"{unfit[0]} is not finite everywhere between {low:g} and {high:g}")
    bottom = math.floor(min(float(value.min()) for value in values.values()))
    top = max(math.ceil(max(float(value.max()) for value in values.values())), bottom + 1)
    canvas = svg.Canvas()
    entries = [(svg.colour(i), name) for i, name in enumerate(values)]
    canvas.legend(8, entries)

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (canvas.width - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (top - value) / (top - bottom) * _HEIGHT

    _axes(canvas, x, y, (low, high), (bottom, top))
    for (colour, name), value in zip(entries, values.values(), strict=True):
        pairs = zip(points.tolist(), value.tolist(), strict=True)
        line = "M" + "L".join(f"{svg.number(x(a))} {svg.number(y(b))}" for a, b in pairs)
        canvas.path(line, extra=f'style="stroke:{colour};stroke-width:2"', title=name)
    title = f"{', '.join(values)} from {low:g} to {high:g}"
    return canvas.picture(title, "\n".join([title, *_words(functions, low, high)]))


def _axes(
    canvas: svg.Canvas,
    x: Callable[[float], float],
    y: Callable[[float], float],
    across: tuple[float, float],
    up: tuple[int, int],
) -> None:
    """Lines at whole numbers, at most about ten a side; those through zero are darker."""
    for value in _whole(*across):
        canvas.line(x(value), y(up[1]), x(value), y(up[0]), "a" if value == 0 else "l")
        canvas.text(x(value), y(up[0]) + 14, f"{value:g}", "sqc")
    for value in _whole(*up):
        canvas.line(x(across[0]), y(value), x(across[1]), y(value), "a" if value == 0 else "l")
        canvas.text(_LEFT - 6, y(value) + 4, f"{value:g}", "sqe")


def _whole(low: float, high: float) -> range:
    first, last = math.ceil(low), math.floor(high)
    step = max(1, math.ceil((last - first) / 10))
    return range(-(-first // step) * step, last + 1, step)  # multiples of the step: zero is among them


def _words(functions: Mapping[str, Callable[[torch.Tensor], torch.Tensor]], low: float, high: float) -> list[str]:
    """Five points of each."""
    points = torch.linspace(low, high, 5, dtype=torch.float64)
    head = "".join(f"{value:9.3g}" for value in points.tolist())
    rows = [f"  {name:12}" + "".join(f"{v:9.3f}" for v in f(points).tolist()) for name, f in functions.items()]
    return [f"  {'at':12}{head}", *rows]
