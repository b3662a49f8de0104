"""RoPE as geometry: which elements of a head a kernel turns together, and by which angle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from gfxlab import style
from gfxlab.draw import svg
from gfxlab.draw.frames import Frames

_LEFT, _TOP, _HEIGHT = 16, 34, 22  # of the arcs: left, top; of an element: height
_RADIUS, _MOST_CIRCLES, _MOST_FAULTS = 42, 6, 4
_TINY, _CLOSE = 1e-7, 0.02  # what counts as nothing; what bfloat16 may be off


@dataclass(frozen=True)
class _Pair:
    """Elements a and b. matrix: what becomes of e_a (first row) and of e_b (second), in these two elements."""

    a: int
    b: int
    matrix: np.ndarray

    @property
    def angle(self) -> float:
        """Radians, from -pi to pi, of the first element towards the second."""
        return math.atan2(self.matrix[0, 1], self.matrix[0, 0])

    @property
    def turns(self) -> bool:
        """The matrix is a rotation."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return bool(np.abs(self.matrix - [[cos, sin], [-sin, cos]]).max() < _CLOSE)

    @property
    def degrees(self) -> str:
        return f"{_zero(math.degrees(self.angle)):.3g}°"

    @property
    def words(self) -> str:
        return f"elements {self.a} and {self.b}, turned by {self.degrees}"


@dataclass(frozen=True)
class _Head:
    """Pairs, elements that stay as they are, and groups of elements that are neither."""

    dim: int
    pairs: list[_Pair] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    mixed: list[list[int]] = field(default_factory=list)

    @property
    def style(self) -> str:
        """What the pairing is called, with its rule."""
        half, places = len(self.pairs), [(pair.a, pair.b) for pair in self.pairs]
        first = places[0][0] if places else 0
        after = f" from element {first} on" if first else ""
        if places and places == [(first + i, first + i + half) for i in range(half)]:
            return f"neox: pair i is elements i and i + {half}{after}"
        if places and places == [(first + 2 * i, first + 2 * i + 1) for i in range(half)]:
            return f"gptj: pair i is elements 2i and 2i + 1{after}"
        return "neither neox nor gptj" if places or self.mixed else "nothing is turned"


def rope_pairs(
    turned: torch.Tensor, *, positions: Sequence[int] | None = None, angles: torch.Tensor | None = None
) -> svg.Picture | Frames:
    """Draw which elements of a head are turned together, from what a kernel made of each unit vector.

    A rotation is known when it is known where it takes the unit vectors. So give the kernel an identity matrix: D heads
    of one token, head j all zeros but for a 1 in element j.

        cos, sin = rope_tables(8, 64)
        heads = torch.eye(64).expand(8, 1, 64, 64)            # 8 positions of 64 heads, layout sbhd
        draw.rope_pairs(rope(heads, cos, sin)[:, 0]).slider()

    Args:
        turned: (D, D), row j what became of unit vector j; or (positions, D, D) for one frame a position.
        positions: the numbers of the positions, for the titles; 0, 1, ... if None.
        angles: the angles that pairs should have turned by, in radians: (pairs,) or (positions, pairs). A pair that is
            elsewhere is marked.

    Returns:
        a picture, or frames where `turned` has three dimensions.

    Raises:
        ValueError: another shape, or a shape of `angles` or `positions` that does not fit.
    """
    if turned.dim() not in (2, 3) or turned.shape[-1] != turned.shape[-2] or not turned.numel():
        raise ValueError(
            f"turned must be (D, D) or (positions, D, D), the rows being what became of the unit vectors; "
            f"got {tuple(turned.shape)}"
        )
    steps = turned.detach().double().cpu().reshape(-1, *turned.shape[-2:]).numpy()
    positions = list(range(len(steps))) if positions is None else list(positions)
    if len(positions) != len(steps):
        raise ValueError(f"{len(steps)} positions are turned, but positions has {len(positions)}")
    groups = _groups(np.abs(steps).max(axis=0))
    heads = [_head(matrix, groups) for matrix in steps]
    wanted = _wanted(angles, len(heads[0].pairs), len(steps))
    title = f"{turned.shape[-1]} elements of a head, {heads[0].style}"
    if turned.dim() == 2:
        return _picture(title, heads[0], wanted[0])
    pictures = (_picture(f"position {p}", head, angle) for p, head, angle in zip(positions, heads, wanted))
    return Frames(title, tuple(pictures))


def _groups(strength: np.ndarray) -> list[list[int]]:
    """Elements that depend on each other, at any position."""
    linked = (strength > _TINY) | (strength.T > _TINY)
    groups, seen = [], set()
    for start in range(len(linked)):
        if start in seen:
            continue
        group, new = {start}, [start]
        while new:
            reached = set(np.flatnonzero(linked[new.pop()]).tolist()) - group
            group |= reached
            new += reached
        seen |= group
        groups.append(sorted(group))
    return groups


def _head(matrix: np.ndarray, groups: list[list[int]]) -> _Head:
    head = _Head(len(matrix))
    for group in groups:
        part = matrix[np.ix_(group, group)]
        if len(group) == 2:
            head.pairs.append(_Pair(*group, part))
        elif len(group) == 1 and abs(part[0, 0] - 1) < _CLOSE:
            head.alone.append(group[0])
        else:
            head.mixed.append(group)
    return head


def _wanted(angles: torch.Tensor | None, pairs: int, steps: int) -> list[list[float | None]]:
    if angles is None:
        return [[None] * pairs] * steps
    if tuple(angles.shape) not in ((pairs,), (steps, pairs)):
        raise ValueError(f"{pairs} pairs turn at {steps} positions, but angles has the shape {tuple(angles.shape)}")
    return angles.double().reshape(-1, pairs).expand(steps, pairs).tolist()


def _faults(head: _Head, wanted: list[float | None]) -> list[str]:
    found = [
        f"element {group[0]} is scaled, not turned"
        if len(group) == 1
        else f"{len(group)} elements are mixed: {', '.join(map(str, group[:6]))}{' ...' if len(group) > 6 else ''}"
        for group in head.mixed
    ]
    for pair, angle in zip(head.pairs, wanted):
        if not pair.turns:
            found.append(f"elements {pair.a} and {pair.b} are not turned: {_entries(pair.matrix)} is no rotation")
        elif not _agree(pair, angle):
            found.append(f"{pair.words}, should be {math.degrees(math.remainder(angle, math.tau)):.3g}°")
    more = len(found) - _MOST_FAULTS
    return found[:_MOST_FAULTS] + ([f"and {more} more"] if more > 0 else [])


def _agree(pair: _Pair, angle: float | None) -> bool:
    return angle is None or abs(math.remainder(pair.angle - angle, math.tau)) < _CLOSE


def _entries(matrix: np.ndarray) -> str:
    return "[" + ", ".join(f"{_zero(value):.3g}" for value in matrix.flat) + "]"


def _zero(value: float) -> float:
    return value + 0.0  # no -0


# ---- drawing ---------------------------------------------------------------------------------------------------------


def _picture(title: str, head: _Head, wanted: list[float | None]) -> svg.Picture:
    canvas = svg.Canvas()
    canvas.text(_LEFT, 18, title, "b")
    cell = (canvas.width - 2 * _LEFT) / head.dim
    mistaken = {
        i for i, (pair, angle) in enumerate(zip(head.pairs, wanted)) if not pair.turns or not _agree(pair, angle)
    }
    top = _TOP + max((_arc_height(cell, pair) for pair in head.pairs), default=0.0)
    for i, pair in enumerate(head.pairs):
        _draw_arc(canvas, cell, top, pair, style.BAD if i in mistaken else svg.colour(i % 5))
    mixed = {element for group in head.mixed for element in group}
    colours = {e: svg.colour(i % 5) for i, pair in enumerate(head.pairs) for e in (pair.a, pair.b)}
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64) if n * cell > svg.text_width(str(head.dim), 10) + 3)
    for element in range(head.dim):
        x, fill = _LEFT + element * cell, style.BAD if element in mixed else colours.get(element, style.QUIET)
        canvas.box(x, top, cell, _HEIGHT, fill, _role(element, head))
        if element % step == 0:
            canvas.text(x + cell / 2, top + 36, str(element), "scq")
    shown = sorted({round(i) for i in np.linspace(0, len(head.pairs) - 1, _MOST_CIRCLES)}) if head.pairs else []
    for place, i in enumerate(shown):
        x = _LEFT + (place + 0.5) * (canvas.width - 2 * _LEFT) / len(shown)
        _draw_circle(canvas, x, top + 94, i, head.pairs[i], wanted[i], i in mistaken)
    faults = _faults(head, wanted)
    lines = [title, *(f"  pair {i}: {head.pairs[i].words}" for i in shown)]
    if head.alone and head.pairs:
        lines.append(f"  left as they are: {len(head.alone)} elements from {head.alone[0]} to {head.alone[-1]}")
    entries = [(style.QUIET, "left as it is")] * bool(head.alone) + [(style.BAD, "wrong", 0.6)] * bool(faults)
    if wanted and wanted[0] is not None:
        entries.append(("", "hollow dot: where it should be"))
    if entries:
        canvas.legend(canvas.height + 8, entries)
    return canvas.picture(title, "\n".join([*lines, *(f"  ! {fault}" for fault in faults)]))


def _role(element: int, head: _Head) -> str:
    for i, pair in enumerate(head.pairs):
        if element in (pair.a, pair.b):
            return f"element {element}, of pair {i}: {pair.words}"
    return f"element {element}: {'left as it is' if element in head.alone else 'not turned as one of a pair'}"


def _arc_height(cell: float, pair: _Pair) -> float:
    return min(max(0.6 * cell * (pair.b - pair.a), 14.0), 90.0)


def _draw_arc(canvas: svg.Canvas, cell: float, y: float, pair: _Pair, colour: str) -> None:
    """From element to element, above the row, which begins at y."""
    left, right = (_LEFT + (element + 0.5) * cell for element in (pair.a, pair.b))
    control = svg.number(y - 2 * _arc_height(cell, pair))  # the curve goes half as high as its control point
    ends = svg.number(y)
    d = f"M{svg.number(left)} {ends}Q{svg.number((left + right) / 2)} {control} {svg.number(right)} {ends}"
    canvas.path(d, "", f'style="fill:none;stroke:{colour};stroke-width:1.5"')


def _draw_circle(
    canvas: svg.Canvas, x: float, y: float, number: int, pair: _Pair, wanted: float | None, mistaken: bool
) -> None:
    """The plane of one pair: (1, 0) before and after."""
    colour = style.BAD if mistaken else svg.colour(number % 5)
    canvas.circle(x, y, _RADIUS)
    canvas.line(x, y, x + _RADIUS, y, "a", 'stroke-dasharray="3 3"')
    end_x, end_y = x + _RADIUS * pair.matrix[0, 0], y - _RADIUS * pair.matrix[0, 1]
    canvas.line(x, y, end_x, end_y, "", f'style="stroke:{colour};stroke-width:2.5"')
    small, large = 0.4 * _RADIUS, int(abs(pair.angle) > math.pi)
    tip = f"{svg.number(x + small * math.cos(pair.angle))} {svg.number(y - small * math.sin(pair.angle))}"
    sweep = int(pair.angle < 0)
    arc = f"M{svg.number(x + small)} {svg.number(y)}A{svg.number(small)} {svg.number(small)} 0 {large} {sweep} {tip}"
    canvas.path(arc, "a")
    if wanted is not None:
        canvas.dot(x + _RADIUS * math.cos(wanted), y - _RADIUS * math.sin(wanted), colour, False, "where it should be")
    canvas.dot(end_x, end_y, colour, True, f"pair {number}: {pair.words}", 3.5)
    canvas.text(x, y + _RADIUS + 18, f"pair {number}: {pair.degrees}", "c")
    canvas.text(x, y + _RADIUS + 33, f"elements {pair.a}, {pair.b}", "scq")
