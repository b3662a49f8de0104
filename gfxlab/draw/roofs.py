"""The roofline: how fast a kernel can be on a GPU, given how much it computes for each byte it moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gfxlab import engines, hardware
from gfxlab.draw import svg
from gfxlab.units import format_seconds

_LEFT, _RIGHT, _TOP, _PLOT_HEIGHT = 62, 20, 44, 270
_NUMBER = 14  # pixels that the number of a point takes above it


class Work(Protocol):
    """Bytes and FLOPs of a launch, as an AMD report counts them."""

    bytes: float
    matrix: float
    vector: float
    unit: str


class Measurement(Protocol):
    """A figure of a benchmark: seconds of one call, and what it moves and computes where that is known."""

    name: str
    seconds: float
    bytes: float | None
    flops: float | None


@dataclass(frozen=True)
class Point:
    """A kernel: its arithmetic, its traffic and, when it was measured on that GPU, its time in seconds.

    unit: which arithmetic, 'fp32', 'bf16', 'fp8' or 'fp32 matrix'; None is that of the whole plot.
    """

    name: str
    flops: float
    bytes: float
    seconds: float | None = None
    unit: str | None = None

    @classmethod
    def of_work(cls, name: str, work: Work, seconds: float | None = None) -> Point:
        """From the `work` of an AMD report: its FLOPs on the matrix units if it has any, else on the vector units."""
        if work.matrix:
            return cls(name, work.matrix, work.bytes, seconds, work.unit)
        return cls(name, work.vector, work.bytes, seconds, "fp32")

    @classmethod
    def measured(cls, measurement: Measurement, unit: str | None = None) -> Point:
        """From a figure of `bench.time(..., bytes=, flops=)`.

        Raises:
            ValueError: it does not say how much was moved and computed.
        """
        if not measurement.bytes or not measurement.flops:
            raise ValueError(f"{measurement.name}: give bench.time both bytes= and flops= to place it under a roof")
        return cls(measurement.name, measurement.flops, measurement.bytes, measurement.seconds, unit)

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.bytes


def roofline(points: Iterable[Point], gpu: str | hardware.Card | None = None, unit: str = "fp32") -> svg.Picture:
    """Where kernels stand under the roofs of a GPU. Points without a time are drawn hollow, on the roof itself.

        report = amd_report(kernel, x, y, n, BLOCK=1024)
        draw.roofline([draw.Point.of_work("mine", report.work), draw.Point("theirs", flops, bytes)], "MI300X")

    Args:
        points: any number of kernels. A time belongs to the GPU that is drawn.
        gpu: one of `hardware.CARDS` by name or architecture; or a `hardware.Card` of your own. None is the GPU of this
            machine if it is one of them, else an MI300X.
        unit: the arithmetic of points that name none: 'fp32', 'bf16', 'fp8' or 'fp32 matrix'. Each unit in use has a
            flat roof of its own.

    Raises:
        ValueError: no points, a point without bytes or flops, an unknown GPU, or a unit that it does not have.
    """
    card = _this_card() if gpu is None else hardware.card(gpu)
    points = [replace(point, unit=point.unit or unit) for point in points]
    wrong = [point.name for point in points if point.bytes <= 0 or point.flops <= 0]
    if not points or wrong:
        raise ValueError(f"a roofline needs points with bytes and flops; {f'not so: {wrong}' if wrong else 'got none'}")
    peaks = {name: card.rate(name) for name in dict.fromkeys(point.unit for point in points)}
    roofs = " and ".join(f"{peak / 1e12:g} TFLOP/s {name}" for name, peak in peaks.items())
    title = f"{card.name}: {card.bandwidth / 1e12:g} TB/s and {roofs}"
    canvas = svg.Canvas()
    canvas.text(10, 18, title, "b")
    ridges = [card.ridge(name) for name in peaks]
    heights = [_height(point, card) for point in points]
    plot = _Plot.of([*(p.intensity for p in points), *ridges], heights, max(peaks.values()))
    plot.axes(canvas)
    places = [(plot.x(point.intensity), plot.y(height)) for point, height in zip(points, heights)]
    _flat_roofs(canvas, plot, card, peaks, places)
    _slope(canvas, plot, card.bandwidth, max(peaks.values()), "o")
    if card.copy:
        _slope(canvas, plot, card.copy, max(peaks.values()), "a", 'stroke-dasharray="5 4"')
        words = f"copy bandwidth reached: {card.copy / 1e12:g} TB/s ({card.copy_source})"
        canvas.legend_line(_TOP + _PLOT_HEIGHT + 24, words)
    for i, (point, height) in enumerate(zip(points, heights)):
        _draw_point(canvas, plot, point, height, svg.colour(i))
    _draw_numbers(canvas, places)
    _list_points(canvas, points, card)
    text = "\n".join([title, *(_words(point, card) for point in points)])
    return canvas.picture(title, text)


def _this_card() -> hardware.Card:
    here = engines.gpu()
    return here and hardware.card_of_device(here.name) or hardware.card("MI300X")


def _height(point: Point, card: hardware.Card) -> float:
    """FLOP/s, measured or at best."""
    best = min(card.rate(point.unit), point.intensity * card.bandwidth)
    return point.flops / point.seconds if point.seconds else best


def _words(point: Point, card: hardware.Card) -> str:
    bound = hardware.lower_bound(point.bytes, point.flops, card, point.unit)
    best = f"at least {format_seconds(bound.seconds)}, limited by {bound.roof}"
    done = ""
    if point.seconds:
        share = bound.seconds / point.seconds
        done = f"; measured {format_seconds(point.seconds)} ({share:.0%} of the roof)"
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


def _flat_roofs(
    canvas: svg.Canvas,
    plot: _Plot,
    card: hardware.Card,
    peaks: dict[str, float],
    points: Sequence[tuple[float, float]],
) -> None:
    """From each ridge, where arithmetic takes over from memory, to the right; units of one rate share a roof."""
    right, lowest = plot.x(plot.high[0]), -math.inf
    for peak in sorted(set(peaks.values()), reverse=True):
        y = plot.y(peak)
        canvas.line(plot.x(peak / card.bandwidth), y, right, y, "o")
        name = f"{peak / 1e12:g} TFLOP/s {', '.join(unit for unit, rate in peaks.items() if rate == peak)}"
        left = right - 20 - svg.text_width(name, 10)
        crowded = any(at > left and abs(height - y) < 20 for at, height in points)
        above = y - 6 - _NUMBER * crowded
        lowest = above if above > lowest + svg.FONT else y + svg.FONT + _NUMBER * crowded
        canvas.text(right - 4, lowest, name, "sqe")


def _slope(canvas: svg.Canvas, plot: _Plot, bandwidth: float, peak: float, kind: str, extra: str = "") -> None:
    """The roof that memory makes, up to the highest of the flat ones."""
    start = max(plot.low[0], plot.low[1] / bandwidth)
    end = peak / bandwidth
    canvas.line(plot.x(start), plot.y(start * bandwidth), plot.x(end), plot.y(peak), kind, extra)


def _draw_point(canvas: svg.Canvas, plot: _Plot, point: Point, height: float, colour: str) -> None:
    state = "measured" if point.seconds else "at best"
    tip = f"{point.name}: {point.intensity:.3g} FLOP/byte, {height / 1e12:.3g} TFLOP/s {state}"
    canvas.dot(plot.x(point.intensity), plot.y(height), colour, filled=bool(point.seconds), title=tip)


def _draw_numbers(canvas: svg.Canvas, dots: list[tuple[float, float]]) -> None:
    """A number beside each dot, on a side where neither a dot nor another number is."""
    taken = [(x - 4, y + 4) for x, y in dots]
    for number, (x, y) in enumerate(dots, 1):
        around = [(x + 8, y - 4), (x + 8, y + 14), (x - 16, y - 4), (x - 16, y + 14)]
        below = [(x + 8, y + 14 * row) for row in range(2, len(dots) + 2)]
        free = (spot for spot in around + below if not any(_near(spot, other) for other in taken))
        spot = next(free, below[-1])
        taken.append(spot)
        canvas.text(*spot, str(number), "b")


def _near(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return abs(one[0] - other[0]) < 11 and abs(one[1] - other[1]) < 11


def _list_points(canvas: svg.Canvas, points: list[Point], card: hardware.Card) -> None:
    """The names, in two columns below the plot: names beside the dots would lie on each other."""
    top, rows = canvas.height + 14, -(-len(points) // 2)
    for i, point in enumerate(points):
        x, y = 16 + i // rows * canvas.width / 2, top + i % rows * 18
        canvas.dot(x, y - 4, svg.colour(i), filled=bool(point.seconds), radius=4)
        share = hardware.lower_bound(point.bytes, point.flops, card, point.unit).seconds / (point.seconds or math.inf)
        measured = f", {share:.0%} of the roof" if point.seconds else ""
        canvas.text(x + 10, y, f"{i + 1}  {point.name} ({point.unit}){measured}")
    if not all(point.seconds for point in points):
        canvas.text(10, top + rows * 18, "hollow: not measured, drawn on the roof, where it could be at best", "q")
