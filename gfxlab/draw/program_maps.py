"""Which program touches which elements: a tensor as strip or grid, one colour a program, the masked tail hatched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gfxlab.draw import svg

_LEFT, _RIGHT, _TOP = 54, 14, 30
_MOST_PROGRAMS, _MOST_ROWS, _MOST_TRACKS, _MOST_PIECES = 10, 20, 6, 240
_SMALL = 256  # elements; such a tensor is drawn whole
_MOST_PLACES = 4  # of one program, in the text
_BREAK = 26  # pixels of a gap in the axis


@dataclass(frozen=True)
class Piece:
    """Columns start to stop (not included) of rows row to end (not included), touched or masked off by one program."""

    program: str
    start: int
    stop: int
    row: int = 0
    end: int = 1
    masked: bool = False

    @property
    def lanes(self) -> int:
        return (self.stop - self.start) * (self.end - self.row)

    def words(self, flat: bool) -> str:
        """`program 3: elements 96 to 97` or `program 3: rows 0 to 15, columns 64 to 95`."""
        where = _span("element" if flat else "column", self.start, self.stop)
        if not flat:
            where = f"{_span('row', self.row, self.end)}, {where}"
        off = f": {self.lanes} lanes masked off, at" if self.masked else ":"
        return f"program {self.program}{off} {where}"


def program_map(
    shape: Sequence[int], pieces: Iterable[Piece], title: str, marks: Mapping[str, int] | None = None
) -> svg.Picture:
    """Draw which program touches which part of a tensor.

    Args:
        shape: `(n,)` for a strip, `(rows, columns)` for a grid.
        pieces: what each program touches; masked pieces may lie outside the tensor.
        title: says what is shown, for example "add: stores to out_ptr".
        marks: borders inside, by name: the element of a strip, or the column of a grid, before which each lies.

    Raises:
        ValueError: `shape` has neither one nor two dimensions, or there is nothing to draw.
    """
    pieces, marks = list(pieces), dict(marks or {})
    if len(shape) not in (1, 2):
        raise ValueError(f"a program map shows one or two dimensions, got the shape {tuple(shape)}")
    if not pieces:
        raise ValueError(f"{title}: no program touched it, so there is nothing to draw")
    pieces = stack_rows(pieces)
    programs = list(dict.fromkeys(piece.program for piece in pieces))
    shown = _select(pieces, programs, flat=len(shape) == 1)
    canvas = svg.Canvas()
    size = " x ".join(map(str, shape))
    canvas.text(10, 18, f"{title} ({size} elements, {_count(len(programs), 'program')})", "b")
    draw = _draw_strip if len(shape) == 1 else _draw_grid
    bottom = draw(canvas, shape, shown, programs, marks)
    canvas.legend(bottom + 10, _legend(shown, programs))
    named = [f"  {name}: {place}" for name, place in marks.items()]
    return canvas.picture(title, "\n".join([_text(title, shape, pieces, programs), *named]))


def _legend(shown: list[Piece], programs: list[str]) -> list[tuple[str, str]]:
    entries = [(svg.colour(i), f"program {program}") for i, program in enumerate(programs)]
    if len(programs) > 4:
        entries = [*entries[:2], (svg.colour(2), "and so on, colours repeat")]
    if any(piece.masked for piece in shown):
        entries.append(("hatch", "masked off: not touched"))
    left_out = len(programs) - len({piece.program for piece in shown})
    if left_out:
        entries.append(("", f"{_count(left_out, 'program')} left out"))
    return entries


# ---- what to show ----------------------------------------------------------------------------------------------------


def stack_rows(pieces: list[Piece]) -> list[Piece]:
    """Merge equal pieces in consecutive rows into one taller piece."""
    open_: dict[tuple, Piece] = {}
    done: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.row, p.start)):
        key = (piece.program, piece.start, piece.stop, piece.masked)
        above = open_.get(key)
        if above is not None and above.end == piece.row:
            open_[key] = replace(above, end=piece.end)
            continue
        if above is not None:
            done.append(above)
        open_[key] = piece
    order = {name: i for i, name in enumerate(dict.fromkeys(piece.program for piece in pieces))}
    return sorted(done + list(open_.values()), key=lambda p: (order[p.program], p.row, p.start))


def _select(pieces: list[Piece], programs: list[str], flat: bool) -> list[Piece]:
    """The pieces of the first and the last programs when there are too many to see; a grid has room for more."""
    crowded = flat and len(programs) > _MOST_PROGRAMS and len(pieces) > 3 * _MOST_PROGRAMS
    if crowded or len(pieces) > _MOST_PIECES:
        head = _MOST_PROGRAMS * 2 // 3
        wanted = {*programs[:head], *programs[-(_MOST_PROGRAMS - head) :]}
        pieces = [piece for piece in pieces if piece.program in wanted]
    return pieces[:_MOST_PIECES]


@dataclass(frozen=True)
class _Axis:
    """Positions in pixels; stretches that nobody touches are left out."""

    segments: list[tuple[int, int, float]]  # first, last + 1, pixel of the first
    scale: float

    @classmethod
    def of(cls, intervals: Iterable[tuple[int, int]], low: float, high: float, keep: int = 0) -> _Axis:
        """An axis over the intervals; gaps up to `keep` wide stay."""
        merged: list[list[int]] = []
        for first, last in sorted(intervals):
            if merged and first <= merged[-1][1] + keep:
                merged[-1][1] = max(merged[-1][1], last)
            else:
                merged.append([first, last])
        if len(merged) > 6:  # scattered: one stretch, gaps and all
            merged = [[merged[0][0], merged[-1][1]]]
        scale = (high - low - _BREAK * (len(merged) - 1)) / sum(last - first for first, last in merged)
        segments, at = [], low
        for first, last in merged:
            segments.append((first, last, at))
            at += (last - first) * scale + _BREAK
        return cls(segments, scale)

    def at(self, value: float) -> float:
        for first, last, pixel in self.segments:
            if value <= last:
                return pixel + max(value - first, 0) * self.scale
        first, last, pixel = self.segments[-1]
        return pixel + (last - first) * self.scale

    def gaps(self) -> list[float]:
        """The middle of each left-out stretch."""
        return [pixel - _BREAK / 2 for _, _, pixel in self.segments[1:]]

    def shows(self, value: float) -> bool:
        return any(first <= value <= last for first, last, _ in self.segments)


# ---- one dimension ---------------------------------------------------------------------------------------------------


def _draw_strip(
    canvas: svg.Canvas, shape: Sequence[int], pieces: list[Piece], programs: list[str], marks: Mapping[str, int]
) -> float:
    whole = [(0, shape[0])] if shape[0] <= _SMALL else []
    tail = _untouched_tail(shape[0], pieces)
    axis = _Axis.of([(p.start, p.stop) for p in pieces] + whole + tail, 16, canvas.width - _RIGHT)
    tracks = _tracks(pieces)
    height, y = 34.0, _TOP + 8.0
    if whole:
        rows = min(max(tracks.values()) + 1, _MOST_TRACKS)
        canvas.outline(axis.at(0), y, axis.at(shape[0]) - axis.at(0), rows * (height + 4) - 4, "a")
    for first, last in tail:
        words = f"elements {first} to {last - 1}: no program"
        canvas.outline(axis.at(first), y, axis.at(last) - axis.at(first), height, "a", words)
    hidden = {program for program, track in tracks.items() if track >= _MOST_TRACKS}
    for piece in pieces:
        if piece.program not in hidden:
            top = y + tracks[piece.program] * (height + 4)
            _draw_piece(canvas, axis, piece, top, height, programs, flat=True)
    rows = min(max(tracks.values()) + 1, _MOST_TRACKS)
    bottom = y + rows * (height + 4) - 4
    for x in axis.gaps():
        canvas.text(x, y + height / 2 + 4, "...", "cq")
    _draw_marks(canvas, axis, marks, y, bottom)
    _end_mark(canvas, axis, shape[0], y, bottom)
    _ticks(canvas, axis, shape[0], bottom + 13)
    if hidden:
        canvas.text(16, bottom + 30, f"and {_count(len(hidden), 'more program')} on the same elements", "q")
        bottom += 16
    return bottom + 18


def _untouched_tail(n: int, pieces: list[Piece]) -> list[tuple[int, int]]:
    """The end of a tensor that no program reaches, unless it is longer than all that comes before."""
    last = max(piece.stop for piece in pieces)
    return [(last, n)] if n > _SMALL and last < n <= 2 * last else []


def _tracks(pieces: list[Piece]) -> dict[str, int]:
    """A track for each program such that programs on the same elements lie one below the other."""
    extents: dict[str, tuple[int, int]] = {}
    for piece in pieces:
        if not piece.masked:
            first, last = extents.get(piece.program, (piece.start, piece.stop))
            extents[piece.program] = (min(first, piece.start), max(last, piece.stop))
    tracks: dict[str, int] = {}
    taken: list[list[tuple[int, int]]] = []
    for program in dict.fromkeys(piece.program for piece in pieces):
        first, last = extents.get(program, (0, 0))
        free = (i for i, used in enumerate(taken) if all(last <= a or first >= b for a, b in used))
        tracks[program] = next(free, len(taken))
        if tracks[program] == len(taken):
            taken.append([])
        taken[tracks[program]].append((first, last))
    return tracks


def _end_mark(canvas: svg.Canvas, axis: _Axis, n: int, top: float, bottom: float) -> None:
    if axis.shows(n):
        canvas.line(axis.at(n), top - 5, axis.at(n), bottom + 3, "o")
        near_right = axis.at(n) > canvas.width - 80
        canvas.text(axis.at(n) + (-4 if near_right else 4), top - 8, f"end: {n}", "sqe" if near_right else "sq")


def _draw_marks(canvas: svg.Canvas, axis: _Axis, marks: Mapping[str, int], top: float, bottom: float) -> None:
    """Borders that lie inside what is drawn; the words of the first lie to its left, so that a second finds room."""
    places = sorted((place, name) for name, place in marks.items() if axis.shows(place))
    for number, (place, name) in enumerate(places):
        canvas.line(axis.at(place), top - 14, axis.at(place), bottom + 3, "o", 'stroke-dasharray="5 3"')
        before = number == 0
        canvas.text(axis.at(place) + (-4 if before else 4), top - 8, f"{name}: {place}", "sqe" if before else "sq")


def _ticks(canvas: svg.Canvas, axis: _Axis, n: int, y: float) -> None:
    """The first and the last element of each stretch."""
    for first, last, _ in axis.segments:
        shown_last = min(last, n) - 1 if first < n else last - 1
        left, right = axis.at(first), axis.at(shown_last + 1)
        canvas.text(left, y, str(first), "sq")
        if right - left > svg.text_width(f"{first}  {shown_last}", 10) + 4:
            canvas.text(right, y, str(shown_last), "sqe")


# ---- two dimensions --------------------------------------------------------------------------------------------------


def _draw_grid(
    canvas: svg.Canvas, shape: Sequence[int], pieces: list[Piece], programs: list[str], marks: Mapping[str, int]
) -> float:
    columns = _Axis.of([(0, shape[1]), *((p.start, p.stop) for p in pieces)], _LEFT, canvas.width - _RIGHT)
    intervals = _shown_rows([(p.row, p.end) for p in pieces], shape[0])
    rows_shown = sum(last - first for first, last in intervals)
    height = min(rows_shown * 18.0, 260.0) + _BREAK * (len(intervals) - 1)
    top = _TOP + 16.0
    rows = _Axis.of(intervals, top, top + height)
    for piece in pieces:
        for first, last in intervals:
            row, end = max(piece.row, first), min(piece.end, last)
            if row < end:
                y = rows.at(row)
                part = replace(piece, row=row, end=end)
                _draw_piece(canvas, columns, part, y, (end - row) * rows.scale, programs, flat=False, whole=piece)
    for y in rows.gaps():
        canvas.text((_LEFT + canvas.width) / 2, y + 4, "...", "cq")
    _row_labels(canvas, shape, columns, rows)
    _column_labels(canvas, shape, columns, marks, top, top + height)
    return top + height


def _shown_rows(intervals: list[tuple[int, int]], n_rows: int) -> list[tuple[int, int]]:
    """All rows when they are few, else the first and the last."""
    last = max([n_rows, *(end for _, end in intervals)])
    tall = any(end - row > 4 for row, end in intervals)  # tiles stay visible however many rows there are
    if last <= _MOST_ROWS or tall:
        return [(0, last)]
    rows = sorted({row for first, end in intervals for row in range(first, end)})
    shown = {*rows[: _MOST_ROWS * 2 // 3], *rows[-_MOST_ROWS // 3 :]}
    starts = [row for row in sorted(shown) if row - 1 not in shown]
    ends = [row + 1 for row in sorted(shown) if row + 1 not in shown]
    return list(zip(starts, ends)) if len(starts) <= 6 else [(rows[0], rows[-1] + 1)]


def _column_labels(
    canvas: svg.Canvas, shape: Sequence[int], columns: _Axis, marks: Mapping[str, int], top: float, bottom: float
) -> None:
    """The first and the last column, or the borders in their place."""
    for name, place in marks.items():
        canvas.line(columns.at(place), top - 14, columns.at(place), bottom, "o")
        canvas.text(columns.at(place) + 4, top - 5, f"{name}: {place}", "sq")
    if not marks:
        canvas.text(columns.at(0), top - 5, "column 0", "sq")
        canvas.text(columns.at(shape[1]), top - 5, f"column {shape[1] - 1}", "sqe")


def _row_labels(canvas: svg.Canvas, shape: Sequence[int], columns: _Axis, rows: _Axis) -> None:
    left, right = columns.at(0), columns.at(shape[1])
    for first, last, pixel in rows.segments:
        end = min(last, shape[0])
        if first < end:
            canvas.outline(left, pixel, right - left, (end - first) * rows.scale, "o")
            canvas.text(_LEFT - 6, pixel + 10, f"row {first}", "sqe")
            if (end - first) * rows.scale > 30:
                canvas.text(_LEFT - 6, pixel + (end - first) * rows.scale - 2, f"row {end - 1}", "sqe")


# ---- one piece -------------------------------------------------------------------------------------------------------


def _draw_piece(
    canvas: svg.Canvas,
    axis: _Axis,
    piece: Piece,
    y: float,
    height: float,
    programs: list[str],
    flat: bool,
    whole: Piece | None = None,
) -> None:
    x = axis.at(piece.start)
    width = axis.at(piece.stop) - x
    words = (whole or piece).words(flat)
    if piece.masked:
        canvas.hatch(x, y, width, height, words)
        return
    canvas.box(x, y, width, height, svg.colour(programs.index(piece.program)), words)
    if flat and axis.scale >= 7:
        for column in range(piece.start + 1, piece.stop):
            canvas.line(axis.at(column), y, axis.at(column), y + height, "l")
    label = next((t for t in (f"program {piece.program}", piece.program) if svg.text_width(t) + 6 < width), "")
    if label and height >= 14:
        canvas.text(x + width / 2, y + height / 2 + 4, label, "c")


# ---- words -----------------------------------------------------------------------------------------------------------


def _text(title: str, shape: Sequence[int], pieces: list[Piece], programs: list[str]) -> str:
    lines = [f"{title} ({' x '.join(map(str, shape))} elements, {_count(len(programs), 'program')})"]
    flat = len(shape) == 1
    chosen = programs if len(programs) <= _MOST_PROGRAMS else [*programs[:6], "", *programs[-3:]]
    for program in chosen:
        if not program:
            lines.append("  ...")
            continue
        own = [piece for piece in pieces if piece.program == program]
        lines += [f"  {piece.words(flat)}" for piece in own[:_MOST_PLACES]]
        if len(own) > _MOST_PLACES:
            lines.append(f"  program {program}: and {len(own) - _MOST_PLACES} more places")
    return "\n".join(lines)


def _span(what: str, first: int, stop: int) -> str:
    return f"{what} {first}" if stop == first + 1 else f"{what}s {first} to {stop - 1}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
