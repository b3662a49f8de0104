"""Why RoPE knows distances: one pair of a query and of a key as arrows, at several places in the text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from gfxlab import style
from gfxlab.draw import svg

_LEFT, _TOP, _WEDGE = 10, 40, 0.42
_QUERY, _KEY = svg.colour(0), svg.colour(1)


def relative_turns(q: torch.Tensor, k: torch.Tensor, positions: Sequence[tuple[int, int]]) -> svg.Picture:
    """Draw the arrows of a query and a key after both were turned, the angle between them, and their dot product.

    Args:
        q, k: (n, 2), one pair of elements, as a kernel turned it for each of the positions.
        positions: n of (position of the query, position of the key).

    Returns:
        a circle for each of them. Places at the same distance show the same angle, and have the same score.

    Raises:
        ValueError: another shape, or not as many positions.
    """
    if q.shape != k.shape or q.dim() != 2 or q.shape[1] != 2 or len(q) != len(positions) or not len(q):
        raise ValueError(
            f"q and k must both be ({len(positions)}, 2), an arrow for each of the positions; "
            f"got {tuple(q.shape)} and {tuple(k.shape)}"
        )
    longest = max(float(x.detach().double().norm(dim=1).max()) for x in (q, k)) or 1.0
    canvas, title = svg.Canvas(), "one pair of a query and of a key, turned by their positions"
    canvas.text(_LEFT, 18, title, "b")
    room = (canvas.width - 2 * _LEFT) / len(q)
    radius, lines = min(0.42 * room, 72.0), [title]
    for i, (place, arrow_q, arrow_k) in enumerate(zip(positions, q.double().tolist(), k.double().tolist())):
        x, y = _LEFT + (i + 0.5) * room, _TOP + radius
        between, score = _between(arrow_q, arrow_k), arrow_q[0] * arrow_k[0] + arrow_q[1] * arrow_k[1]
        words = f"angle between {abs(math.degrees(between)):.0f}°, score {score + 0.0:.2f}"
        canvas.circle(x, y, radius)
        _wedge(canvas, x, y, _WEDGE * radius, arrow_k, between)
        for arrow, colour, name in ((arrow_k, _KEY, "key"), (arrow_q, _QUERY, "query")):
            _arrow(canvas, x, y, radius / longest, arrow, colour, f"{name} at position {place[name == 'key']}")
        canvas.text(x, y + radius + 18, f"query at {place[0]}, key at {place[1]}", "c")
        canvas.text(x, y + radius + 34, f"{abs(math.degrees(between)):.0f}° between", "cq")
        canvas.text(x, y + radius + 51, f"score {score + 0.0:.2f}", "cb")
        lines.append(f"  query at {place[0]}, key at {place[1]}: {words}")
    entries = [(_QUERY, "query", 0.8), (_KEY, "key", 0.8), (style.QUIET, "angle between them")]
    canvas.legend(canvas.height + 8, entries)
    return canvas.picture(title, "\n".join(lines))


def _between(q: list[float], k: list[float]) -> float:
    """Radians from the key's arrow to the query's, from -pi to pi."""
    return math.remainder(math.atan2(q[1], q[0]) - math.atan2(k[1], k[0]), math.tau)


def _arrow(canvas: svg.Canvas, x: float, y: float, scale: float, arrow: list[float], colour: str, title: str) -> None:
    end_x, end_y = x + scale * arrow[0], y - scale * arrow[1]
    canvas.line(x, y, end_x, end_y, "", f'style="stroke:{colour};stroke-width:2.5"')
    canvas.dot(end_x, end_y, colour, True, title, 3.5)


def _wedge(canvas: svg.Canvas, x: float, y: float, radius: float, key: list[float], between: float) -> None:
    """The angle between the arrows, shaded, from the key's to the query's."""
    start = math.atan2(key[1], key[0])
    (x1, y1), (x2, y2) = ((x + radius * math.cos(a), y - radius * math.sin(a)) for a in (start, start + between))
    points = [svg.number(value) for value in (x, y, x1, y1, radius, radius, x2, y2)]
    d = "M{} {}L{} {}A{} {} 0 0 {} {} {}Z".format(*points[:6], int(between < 0), *points[6:])
    canvas.path(d, "", f'style="fill:{style.QUIET};fill-opacity:.35;stroke:none"')
