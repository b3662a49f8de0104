"""The roofline: how fast a kernel can be on a GPU, given how much it computes for each byte it moves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from course_lab import hardware
from course_lab.draw import svg

_LEFT, _RIGHT, _TOP, _PLOT_HEIGHT = 62, 20, 44, 270


@dataclass(frozen=True)
class Point:
    """A kernel: its arithmetic, its traffic and, when it was measured on that GPU, its time."""

    name: str
    flops: float
    bytes: float
    seconds: float | None = None

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.bytes


def roofline(points: Iterable[Point], gpu: str | hardware.Card = "MI300X", unit: str = "fp32") -> svg.Picture:
    """Where kernels stand under the roof of a GPU. Points without a time are drawn hollow, on the roof itself.

    Args:
        unit: the arithmetic that makes the flat roof: 'fp32', 'bf16' or 'fp8'.

    Raises:
        ValueError: no points, a point without bytes or flops, an unknown GPU or unit.
    """
    card, points = hardware.card(gpu), list(points)
    wrong = [point.name for point in points if point.bytes <= 0 or point.flops <= 0]
    if not points or wrong:
        raise ValueError(f"a roofline needs points with bytes and flops; {f'not so: {wrong}' if wrong else 'got none'}")
    peak = card.rate(unit)
    title = f"{card.name}: {card.bandwidth / 1e12:g} TB/s and {peak / 1e12:g} TFLOP/s {unit}"
    canvas = svg.Canvas()
    canvas.text(10, 18, title, "b")
    plot = _Plot.of([*(p.intensity for p in points), card.ridge(unit)], [_height(p, card, peak) for p in points], peak)
    plot.axes(canvas)
    _roof(canvas, plot, card, peak, card.bandwidth, "o")
    if card.copy:
        _roof(canvas, plot, card, peak, card.copy, "a")
    labels: list[tuple[float, float]] = []
    for i, point in enumerate(points):
        _draw_point(canvas, plot, point, _height(point, card, peak), i, labels)
    text = "\n".join([title, *(_words(point, card, peak, unit) for point in points)])
    return canvas.picture(title, text)


def _height(point: Point, card: hardware.Card, peak: float) -> float:
    """FLOP/s, measured or at best."""
    return point.flops / point.seconds if point.seconds else min(peak, point.intensity * card.bandwidth)


def _words(point: Point, card: hardware.Card, peak: float, unit: str) -> str:
    bound = hardware.lower_bound(point.bytes, point.flops, card, unit)
    best = f"at least {hardware.format_seconds(bound.seconds)}, limited by {bound.roof}"
    done = ""
    if point.seconds:
        share = bound.seconds / point.seconds
        done = f"; measured {hardware.format_seconds(point.seconds)} ({share:.0%} of the roof)"
        done += "; above the roof: is the byte count right, was it all in a cache?" if share > 1 else ""
    return f"  {point.name}: {point.intensity:,.3g} FLOP/byte, {best}{done}"


@dataclass(frozen=True)
class _Plot:
    """Logarithmic axes."""

    low: tuple[float, float]
    high: tuple[float, float]

    @classmethod
    def of(cls, intensities: list[float], heights: list[float], peak: float) -> _Plot:
        low = (10 ** math.floor(math.log10(min(intensities)) - 0.3), 10 ** math.floor(math.log10(min(heights)) - 0.1))
        return cls(low, (10 ** math.ceil(math.log10(max(intensities)) + 0.3), 10 ** math.ceil(math.log10(peak) + 0.05)))

    def x(self, value: float) -> float:
        part = math.log(value / self.low[0]) / math.log(self.high[0] / self.low[0])
        return _LEFT + part * (svg.WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        part = math.log(value / self.low[1]) / math.log(self.high[1] / self.low[1])
        return _TOP + (1 - part) * _PLOT_HEIGHT

    def axes(self, canvas: svg.Canvas) -> None:
        bottom = _TOP + _PLOT_HEIGHT
        for power in range(round(math.log10(self.low[0])), round(math.log10(self.high[0])) + 1):
            canvas.line(self.x(10.0**power), _TOP, self.x(10.0**power), bottom)
            canvas.text(self.x(10.0**power), bottom + 14, f"{10.0**power:g}", "sqc")
        for power in range(round(math.log10(self.low[1])), round(math.log10(self.high[1])) + 1):
            canvas.line(_LEFT, self.y(10.0**power), svg.WIDTH - _RIGHT, self.y(10.0**power))
            canvas.text(_LEFT - 6, self.y(10.0**power) + 4, f"{10.0**power / 1e12:g}", "sqe")
        canvas.text(svg.WIDTH - _RIGHT, bottom + 30, "FLOP per byte moved", "qe")
        canvas.text(_LEFT, _TOP - 5, "TFLOP/s", "sq")


def _roof(canvas: svg.Canvas, plot: _Plot, card: hardware.Card, peak: float, bandwidth: float, kind: str) -> None:
    ridge, right = peak / bandwidth, plot.high[0]
    start = max(plot.low[0], plot.low[1] / bandwidth)
    corners = [(start, start * bandwidth), (ridge, peak)] + ([(right, peak)] if kind == "o" else [])
    d = " L".join(f"{svg.number(plot.x(x))} {svg.number(plot.y(y))}" for x, y in corners)
    if kind == "o":
        canvas.path(f"M{d}", kind)
        canvas.text(plot.x(right) - 4, plot.y(peak) - 6, f"{peak / 1e12:g} TFLOP/s", "sqe")
    else:
        canvas.path(f"M{d}", kind, 'stroke-dasharray="5 4"')
        canvas.legend_line(
            _TOP + _PLOT_HEIGHT + 24, f"copy bandwidth reached: {bandwidth / 1e12:g} TB/s ({card.copy_source})"
        )


def _draw_point(
    canvas: svg.Canvas, plot: _Plot, point: Point, height: float, index: int, labels: list[tuple[float, float]]
) -> None:
    x, y = plot.x(point.intensity), plot.y(height)
    canvas.dot(
        x, y, svg.colour(index), filled=bool(point.seconds), title=f"{point.name}: {point.intensity:.3g} FLOP/byte"
    )
    left = x + 10 + svg.text_width(point.name) > svg.WIDTH - _RIGHT
    label_y = y + 14
    while any(abs(label_y - other_y) < 13 and abs(x - other_x) < 110 for other_x, other_y in labels):
        label_y += 14
    labels.append((x, label_y))
    canvas.text(x - 8 if left else x + 8, label_y, point.name, "e" if left else "")
