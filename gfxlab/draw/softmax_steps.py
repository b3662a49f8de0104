"""Online softmax, block by block: the running maximum and sum that a kernel really held, beside the elements so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gfxlab import style
from gfxlab.draw import svg
from gfxlab.draw.frames import Frames
from gfxlab.draw.traced import Traced
from gfxlab.engine.hooks import Access
from gfxlab.strides import Strided

_LEFT, _RIGHT, _TOP, _VALUES, _PARTS, _BETWEEN = 60, 90, 42, 110, 70, 34
_MOST_BARS = 256
_POWERS = {math.e: "exp", 2: "exp2"}
_CLOSE = 1e-3  # relative: sums are rounded in another order
_BEFORE, _NOW, _MAX = svg.colour(4), svg.colour(1), svg.colour(2)


def _power(values: np.ndarray | float, maximum: float, base: float) -> np.ndarray:
    """base ** (values - maximum); 0 of what is -inf, also where the maximum is."""
    return np.power(base, np.asarray(values) - (maximum if maximum > -math.inf else 0.0))


@dataclass(frozen=True)
class _Block:
    """What a kernel takes in at once, of one row: elements counted through the row, and their values."""

    elements: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class _Row:
    """What a row consists of: "elements" or "keys", the number of its first, and the base of its exponentials."""

    what: str
    first: int
    base: float

    @property
    def power(self) -> str:
        return f"{_POWERS[self.base]}({self.value} - max)"

    @property
    def value(self) -> str:
        return "x" if self.what == "elements" else "score"

    def name(self, place: int) -> str:
        return f"{self.what[:-1]} {self.first + place}"


@dataclass(frozen=True)
class _Step:
    """One block: its elements' places in the row, what the kernel held before and after it, and what is true."""

    row: _Row
    places: np.ndarray
    before: tuple[float, float]  # maximum and sum
    after: tuple[float, float]
    truth: tuple[float, float]
    added: float  # by this block's exponentials

    @property
    def factor(self) -> float:
        """What the sum so far is multiplied by: below 1 where the maximum rises."""
        return float(_power(self.before[0], self.after[0], self.row.base))

    @property
    def formula(self) -> str:
        """How the sum should come about, and what the kernel holds instead."""
        expected = self.before[1] * self.factor + self.added
        formula = f"{self.before[1]:.4g} x {self.factor:.3g} + {self.added:.4g} = {expected:.4g}"
        held = "" if _same(self.after[1], expected) else f", but the kernel holds {self.after[1]:.4g}"
        return formula + held

    @property
    def words(self) -> str:
        old, new = self.before[0], self.after[0]
        maximum = f"max {old:.3g} -> {new:.3g}" if new != old else f"max stays {new:.3g}"
        return f"{self.span}: {maximum}, sum {self.formula}"

    @property
    def span(self) -> str:
        """Which elements or keys, in words."""
        return f"{self.row.what} {self.row.first + self.places.min()} to {self.row.first + self.places.max()}"

    @property
    def fault(self) -> str:
        """What is wrong with what the kernel holds after this block, or nothing."""
        for name, held, true in zip(("maximum", "sum"), self.after, self.truth):
            if not _same(held, true):
                return f"the kernel's {name} is {held:.4g}, that of the {self.row.what} so far is {true:.4g}"
        return ""


def online_softmax(
    launch: Traced,
    x: str = "x_ptr",
    *,
    scores: str | None = None,
    row_max: str = "row_max",
    row_sum: str = "row_sum",
    base: float = math.e,
    program: int | Sequence[int] = 0,
    row: int = 0,
) -> Frames:
    """Draw one row of a softmax that takes its elements block by block, one frame a block.

    Maximum and sum are what the kernel's own variables held, so they must have been watched. Where they do not belong
    to the elements taken so far, the frame says so.

        with trace(watch=["row_max", "row_sum"]) as launch:
            my_softmax_kernel[(rows,)](x, y, ...)
        draw.online_softmax(launch).slider()

    An attention's elements are computed, not loaded: watch the variable that holds them, and name the keys.

        with trace(watch=["scores", "row_max", "row_sum"]) as launch:
            my_attention_kernel[(tiles, heads)](q, k, v, ...)
        draw.online_softmax(launch, "k_ptr", scores="scores", row=5)

    Args:
        launch: a launch traced with `watch`.
        x: name of the kernel's argument that it loads the row from; with `scores` that of the keys, (..., Sk, D).
        scores: name of the variable with a block of scores, (queries, keys), as they go into the exponential.
        row_max, row_sum: names of the variables, where exp(x - row_max) is summed up. A number; or one for each row of
            a block of rows; or, of a block of one dimension, one for each lane: these are drawn joined.
        base: 2 where the kernel takes exp2.
        program: the program to follow: its number, or one number for each axis of the grid.
        row: which of the program's rows, where blocks have two dimensions.

    Raises:
        ValueError: no such tensor, variable, program or row, or another base.
    """
    if base not in _POWERS:
        raise ValueError(f"base is {base}: e for kernels that take exp, 2 for those that take exp2")
    where = (program, 0, 0) if isinstance(program, int) else (*program, 0, 0)[:3]
    mine = [i for i, a in enumerate(launch.accesses) if a.program == where]
    loads = _first_pass(launch, x, mine)
    number = program if isinstance(program, int) else tuple(program)
    if not loads:
        raise ValueError(f"{launch.name}: program {number} loaded nothing of {x}")
    moments = [*loads, mine[mine.index(loads[-1]) + 1] if scores is None else _end_of(launch, x, mine)]
    if scores is None:
        blocks = [_row_of(launch.accesses[i], row, launch.tensor(x).element_size()) for i in loads]
    else:
        blocks = [_scores_of(launch, x, scores, row, i, until) for i, until in zip(moments, moments[1:])]
    of_row = row if scores or launch.accesses[loads[0]].elements.ndim > 1 else None
    states = [_state(launch, i, (row_max, row_sum), of_row) for i in moments]
    order = np.unique(np.concatenate([block.elements for block in blocks]))
    values, taken = np.full(len(order), np.nan), np.zeros(len(order), bool)
    pictures, notes = [], []
    of_query = "a row" if scores is None else f"query {row} of its tile, a row"
    about = _Row("elements" if scores is None else "keys", 0 if scores is None else int(order[0]), base)
    title = f"{launch.name}, program {number}: {of_query} of {len(order)} {about.what} in {len(blocks)} blocks"
    low, high = _range(np.concatenate([block.values for block in blocks]))
    for block, before, after in zip(blocks, states, states[1:]):
        places = np.searchsorted(order, block.elements)
        values[places], taken[places] = block.values, True
        added = float(_power(block.values, after[0], base).sum())
        step = _Step(about, places, before, after, _truth(values[taken], base), added)
        pictures.append(_picture(step, values, low, high))
        if step.fault and not notes:
            notes.append(f"step {len(pictures)}: {step.fault}")
    return Frames(title, tuple(pictures), tuple(notes))


def _first_pass(launch: Traced, x: str, mine: list[int]) -> list[int]:
    """The loads of x until one reads again what was read."""
    launch.tensor(x)
    seen: set[int] = set()
    found = []
    for i in mine:
        access = launch.accesses[i]
        if access.tensor == x and access.kind == "load":
            elements = set(access.elements[access.mask].tolist())
            if elements & seen:
                break
            seen |= elements
            found.append(i)
    return found


def _end_of(launch: Traced, x: str, mine: list[int]) -> int:
    """The access with which a program begins to write its result, so that all its turns are over."""
    stores = [i for i in mine if launch.accesses[i].kind != "load"]
    if not stores:
        raise ValueError(f"{launch.name} stored nothing: there is no moment at which its last block of {x} is done")
    return stores[0]


def _scores_of(launch: Traced, x: str, scores: str, row: int, load: int, until: int) -> _Block:
    """The scores that a turn of the loop computed, between its load of keys and `until`, the next one.

    They are read at `until`. Where a function has ended in between, and its variables with it, at the turn's last
    access.
    """
    for moment in range(until, load, -1):
        if moment < len(launch.watched) and scores in launch.watched[moment]:
            block = launch.watched[moment][scores]
            break
    else:
        raise ValueError(
            f"{launch.name} held no number named {scores!r} after it loaded {x}; "
            f"trace it with trace(watch=[{scores!r}, ...]), the name being a variable of the kernel"
        )
    if block.ndim != 2 or not 0 <= row < block.shape[0]:
        raise ValueError(f"{scores} has the shape {block.shape}: there is no row {row} of scores")
    access = launch.accesses[load]
    first = int(Strided.of(launch.tensor(x)).indices(access.elements[access.mask])[-2].min())
    keys = np.arange(first, min(first + block.shape[1], launch.tensor(x).shape[-2]))
    return _Block(keys, block[row, : len(keys)].astype(np.float64))


def _row_of(access: Access, row: int, itemsize: int) -> _Block:
    """Elements and their values, of one row of a block."""
    elements, values, mask = access.elements, np.asarray(access.values), access.mask
    if elements.ndim > 1:
        if not 0 <= row < elements.shape[0]:
            raise ValueError(f"a block has {elements.shape[0]} rows: there is no row {row}")
        elements, values, mask = elements[row], values[row], mask[row]
    if values.dtype == np.uint16 and itemsize == 2:  # bfloat16, as the interpreter holds it
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return _Block(elements[mask], values[mask].astype(np.float64))


def _state(launch: Traced, at: int, names: tuple[str, str], row: int | None) -> tuple[float, float]:
    """Maximum and sum when an access was made: of a row of the block, or of all its lanes."""
    held = launch.watched[at] if at < len(launch.watched) else {}
    for name in names:
        if name not in held:
            known = ", ".join(sorted(held)) or "none"
            raise ValueError(
                f"{launch.name} held no number named {name!r} when it loaded (watched: {known}); "
                f"trace it with trace(watch={list(names)}), the names being variables of the kernel"
            )
    maxima, sums = (held[name].astype(np.float64).reshape(-1) for name in names)
    if row is not None or maxima.size == 1:
        return tuple(float(held[row if held.size > 1 else 0]) for held in (maxima, sums))
    if not np.isfinite(maxima.max()):
        return float(maxima.max()), float(sums.sum())
    return float(maxima.max()), float((sums * np.exp(maxima - maxima.max())).sum())


def _same(held: float, true: float) -> bool:
    return math.isclose(held, true, rel_tol=_CLOSE, abs_tol=1e-6) or (math.isnan(held) and math.isnan(true))


def _truth(values: np.ndarray, base: float) -> tuple[float, float]:
    return float(values.max()), float(_power(values, values.max(), base).sum())


def _range(values: np.ndarray) -> tuple[float, float]:
    """Of the axis: a little below the least element, so that it has a bar too."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return low - 0.08 * (high - low or 1.0), high


# ---- drawing ---------------------------------------------------------------------------------------------------------


def _picture(step: _Step, values: np.ndarray, low: float, high: float) -> svg.Picture:
    canvas = svg.Canvas()
    canvas.text(10, 18, step.span, "b")
    now = np.zeros(len(values), bool)
    now[step.places] = True
    heights = np.clip((values - low) / (high - low), 0, 1)
    _bars(canvas, _TOP, _VALUES, heights, now, step.row, step.row.value)
    level = _draw_maximum(canvas, step.after[0], low, high, f'style="stroke:{_MAX};stroke-width:2"')
    canvas.text(canvas.width - _RIGHT + 6, level + 4, f"max {step.after[0]:.3g}", "s")
    if math.isfinite(step.before[0]) and step.before[0] != step.after[0]:
        below = _draw_maximum(canvas, step.before[0], low, high, 'stroke-dasharray="5 4"')
        canvas.text(canvas.width - _RIGHT + 6, max(below, level + 12) + 4, f"before {step.before[0]:.3g}", "sq")
    top = _TOP + _VALUES + _BETWEEN
    parts = _power(values, step.after[0], step.row.base).clip(0, 1)
    _bars(canvas, top, _PARTS, parts, now, step.row, step.row.power)
    canvas.text(_LEFT, top + _PARTS + 34, step.formula, "b")
    canvas.text(10, top + _PARTS + 34, "sum", "q")
    entries = [(_BEFORE, f"{step.row.what} before", 0.8), (_NOW, "this block", 0.8), (_MAX, "running maximum", 0.9)]
    canvas.legend(canvas.height + 8, entries)
    if step.fault:
        canvas.legend(canvas.height + 2, [(style.BAD, step.fault, 0.9)])
    return canvas.picture(
        f"online softmax, {step.words}", f"  {step.words}" + (f"\n  ! {step.fault}" * bool(step.fault))
    )


def _draw_maximum(canvas: svg.Canvas, maximum: float, low: float, high: float, paint: str) -> float:
    """A line across the elements; gives its height."""
    share = min(max((maximum - low) / (high - low), 0.0), 1.0) if math.isfinite(maximum) else 0.0
    y = _TOP + _VALUES * (1 - share)
    canvas.line(_LEFT, y, canvas.width - _RIGHT, y, "a", paint)
    return y


def _bars(
    canvas: svg.Canvas, top: float, height: float, heights: np.ndarray, now: np.ndarray, row: _Row, label: str
) -> None:
    """A bar for each element: those before, those of this block, and none for those to come."""
    shown, current = _binned(heights), _binned(now.astype(float)) > 0
    width = (canvas.width - _LEFT - _RIGHT) / len(shown)
    for mask, fill, words, opacity in (
        (~current, _BEFORE, f"{row.what} before", 0.8),
        (current, _NOW, "this block", 0.8),
    ):
        canvas.region(_boxes(shown, mask, width, top, height), fill, f"{label}, {words}", opacity)
    canvas.line(_LEFT, top + height, canvas.width - _RIGHT, top + height, "a")
    canvas.text(_LEFT, top - 6, label, "sq")
    canvas.text(_LEFT, top + height + 12, row.name(0), "sq")
    canvas.text(canvas.width - _RIGHT, top + height + 12, row.name(len(heights) - 1), "sqe")


def _boxes(
    heights: np.ndarray, mask: np.ndarray, width: float, top: float, room: float
) -> Iterator[tuple[float, float, float, float]]:
    for place in np.flatnonzero(mask & ~np.isnan(heights)):
        size = max(float(heights[place]) * room, 0.5)
        yield _LEFT + float(place) * width, top + room - size, max(width - 0.6, 0.6), size


def _binned(heights: np.ndarray) -> np.ndarray:
    """The largest of every so many neighbours, where there are too many to see."""
    step = -(-len(heights) // _MOST_BARS)
    return np.fmax.reduceat(heights, range(0, len(heights), step))
