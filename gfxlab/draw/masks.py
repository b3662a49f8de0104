"""The tiles of an attention's scores: which were computed, which skipped, and which needed a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gfxlab import style
from gfxlab.draw import svg
from gfxlab.draw.traced import Traced
from gfxlab.engine.hooks import Access
from gfxlab.strides import Strided

_LEFT, _TOP, _SIDE = 70, 62, 300.0

# what a tile is, with colour and opacity, and whether that is a mistake
_KINDS = {
    "full": ("computed, every key seen", svg.colour(0), 0.5),
    "masked": ("computed, partly seen: needs the mask", svg.colour(1), 0.5),
    "skipped": ("skipped: no key seen", "rim", 0.0),
    "wasted": ("computed, though no key is seen", svg.colour(3), 0.6),
    "missing": ("skipped, though some keys are seen", style.BAD, 0.8),
}


@dataclass(frozen=True)
class _Tile:
    """Queries row to end and keys column to stop, not included; `visible` of these scores are seen, of `size`."""

    row: int
    end: int
    column: int
    stop: int
    visible: int
    loaded: bool

    @property
    def kind(self) -> str:
        if not self.loaded:
            return "missing" if self.visible else "skipped"
        size = (self.end - self.row) * (self.stop - self.column)
        return "full" if self.visible == size else "masked" if self.visible else "wasted"

    @property
    def words(self) -> str:
        queries, keys = f"queries {self.row} to {self.end - 1}", f"keys {self.column} to {self.stop - 1}"
        return f"{queries}, {keys}: {_KINDS[self.kind][0]}"


def causal_map(
    launch: Traced, q: str = "q_ptr", k: str = "k_ptr", *, head: int | Sequence[int] = 0, causal: bool = True
) -> svg.Picture:
    """Draw the scores of one head, queries down and keys across, tile by tile.

    A program's tile of queries is what it loads of q, its blocks of keys are what it loads of k. Whether a tile needed
    to be computed, or masked, follows from the rule: query i sees the keys up to i + Sk - Sq.

        with trace() as launch:
            flash_attention(q, k, v, causal=True)
        draw.causal_map(launch)

    Args:
        launch: a traced launch, `with trace() as launch:`.
        q, k: names of the kernel's arguments; the tensors are (..., S, D).
        head: which of q's leading indices to draw: a number, or a tuple such as (batch, head).
        causal: False: every query sees every key.

    Raises:
        ValueError: no such tensor or head, or nothing of this head was loaded.
    """
    queries = launch.tensor(q)
    seq_q, seq_k = queries.shape[-2], launch.tensor(k).shape[-2]
    lead = _leading(head, tuple(queries.shape[:-2]), q)
    rows = _rows_of_programs(launch, q, k, lead)
    tiles = _tiles(rows, seq_q, seq_k, causal)
    seen = "causal" if causal else "every key seen"
    of_head = f" of head {lead if len(lead) > 1 else lead[0]}" if lead else ""
    title = f"{launch.name}: tiles of the scores{of_head}, {seq_q} queries x {seq_k} keys, {seen}"
    canvas = svg.Canvas()
    canvas.text(10, 18, title, "b")
    bottom = _draw(canvas, tiles, seq_q, seq_k, causal)
    counts = {kind: sum(tile.kind == kind for tile in tiles) for kind in _KINDS}
    entries = [(fill, f"{words} ({counts[kind]})", shade) for kind, (words, fill, shade) in _KINDS.items()]
    canvas.legend(bottom + 14, [entry for entry, count in zip(entries, counts.values()) if count])
    return canvas.picture(title, _text(title, tiles, counts))


def _leading(head: int | Sequence[int], shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """The leading indices meant; a single number counts through all of them."""
    if isinstance(head, Sequence):
        inside = len(head) == len(shape) and all(0 <= i < n for i, n in zip(head, shape))
    else:
        inside = 0 <= head < int(np.prod(shape))
    if not inside:
        raise ValueError(f"{name} has the leading dimensions {shape}: there is no head {head}")
    return tuple(head) if isinstance(head, Sequence) else tuple(int(i) for i in np.unravel_index(head, shape))


def _rows_of_programs(launch: Traced, q: str, k: str, lead: tuple[int, ...]) -> list[tuple[range, list[range]]]:
    """For each program of this head: its queries, and the keys of each of its steps."""
    found: dict[range, list[range]] = {}
    keys = launch.by_program(k)
    for program, accesses in launch.by_program(q).items():
        place = Strided.of(launch.tensor(q)).indices(_active(accesses))
        mine = (
            np.all([axis == i for axis, i in zip(place[:-2], lead)], axis=0) if lead else np.ones(place[0].shape, bool)
        )
        if mine.any():
            steps = found.setdefault(_extent(place[-2][mine]), [])
            steps += [_extent(Strided.of(launch.tensor(k)).indices(_active([a]))[-2]) for a in keys.get(program, [])]
    if not found:
        raise ValueError(f"{launch.name} loaded nothing of head {lead} of {q}")
    return sorted(found.items(), key=lambda item: item[0].start)


def _active(accesses: list[Access]) -> np.ndarray:
    return np.unique(np.concatenate([access.elements[access.mask] for access in accesses]))


def _extent(rows: np.ndarray) -> range:
    return range(int(rows.min()), int(rows.max()) + 1)


def _tiles(rows: list[tuple[range, list[range]]], seq_q: int, seq_k: int, causal: bool) -> list[_Tile]:
    """All tiles of the grid that the loaded blocks of keys make."""
    cuts = sorted({0, seq_k, *(step.start for _, steps in rows for step in steps)})
    longest = max((len(step) for _, steps in rows for step in steps), default=seq_k)
    last = cuts[-2]
    cuts = sorted({*cuts, *range(last, seq_k, longest)})  # blocks that nobody loaded are as long as the others
    tiles = []
    for queries, steps in rows:
        for column, stop in zip(cuts[:-1], cuts[1:]):
            loaded = any(step.start <= column < step.stop for step in steps)
            seen = (
                np.arange(queries.start, queries.stop) + 1 + seq_k - seq_q if causal else np.full(len(queries), seq_k)
            )
            visible = int((np.clip(seen, column, stop) - column).sum())
            tiles.append(_Tile(queries.start, queries.stop, column, stop, visible, loaded))
    return tiles


def _draw(canvas: svg.Canvas, tiles: list[_Tile], seq_q: int, seq_k: int, causal: bool) -> float:
    """The map; gives its lower edge."""
    scale = min(_SIDE / seq_q, (canvas.width - _LEFT - 20) / seq_k, 40.0)
    for tile in tiles:
        x, y = _LEFT + tile.column * scale, _TOP + tile.row * scale
        size = (tile.stop - tile.column) * scale, (tile.end - tile.row) * scale
        _, fill, shade = _KINDS[tile.kind]
        if fill == "rim":
            canvas.outline(x, y, *size, "l", tile.words)
        else:
            canvas.box(x, y, *size, fill, tile.words, shade)
    right, bottom = _LEFT + seq_k * scale, _TOP + seq_q * scale
    if causal:
        _diagonal(canvas, scale, seq_q, seq_k)
    canvas.outline(_LEFT, _TOP, right - _LEFT, bottom - _TOP, "a")
    canvas.text(_LEFT, _TOP - 20, "keys", "q")
    for edge in sorted({tile.column for tile in tiles}):
        canvas.text(_LEFT + edge * scale, _TOP - 5, str(edge), "sq")
    for edge in sorted({tile.row for tile in tiles}):
        canvas.text(_LEFT - 6, _TOP + edge * scale + 10, str(edge), "sqe")
    canvas.text(10, _TOP - 5, "queries", "q")
    return bottom


def _diagonal(canvas: svg.Canvas, scale: float, seq_q: int, seq_k: int) -> None:
    """The border between what is seen (below) and what is not, a stair of one query each."""
    points = []
    for query in range(seq_q):
        x = _LEFT + min(max(query + 1 + seq_k - seq_q, 0), seq_k) * scale
        points += [f"{svg.number(x)} {svg.number(_TOP + query * scale)}"]
        points += [f"{svg.number(x)} {svg.number(_TOP + (query + 1) * scale)}"]
    canvas.path("M" + "L".join(points), "o")


def _text(title: str, tiles: list[_Tile], counts: dict[str, int]) -> str:
    lines = [title]
    lines += [f"  {_KINDS[kind][0]}: {count} of {len(tiles)} tiles" for kind, count in counts.items() if count]
    lines += [f"  ! {tile.words}" for tile in tiles if tile.kind in ("missing", "wasted")]
    return "\n".join(lines)
