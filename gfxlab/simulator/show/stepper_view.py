"""A walk as a notebook shows it (frames in a strip, or a slider over them) and as text for a terminal.

A register is a strip of one cell a lane, the darker the larger its number; a dash is a lane that is switched off, a
line under a cell says that this step changed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from gfxlab import hardware, style
from gfxlab.draw import frames
from gfxlab.draw.frames import MOST_FRAMES
from gfxlab.simulator.core.state import POISON
from gfxlab.simulator.show.sentences import sentence
from gfxlab.simulator.show.steps import Scalar, Step, Steps, Vector
from gfxlab.simulator.watch.readings import Reading, read, read_scalar

_MOST_STRIPS = 6
_MOST_CODE = 8
_LEVELS = 8
_WIDTH, _HEIGHT = 512, 16
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_ROWS = 16


# ---- strips ----------------------------------------------------------------------------------------------------------


def levels(reading: Reading, on: np.ndarray) -> np.ndarray:
    """0 to 7 from the smallest to the largest number of the lanes that are on; -1: off, -2: unknown, -3: no number."""
    shown = on & ~reading.unknown
    finite = shown & np.isfinite(reading.numbers)
    found = np.full(len(on), -1)
    if finite.any():
        low, high = reading.numbers[finite].min(), reading.numbers[finite].max()
        share = (reading.numbers[finite] - low) / (high - low) if high > low else np.full(int(finite.sum()), 0.5)
        found[finite] = np.minimum((share * _LEVELS).astype(int), _LEVELS - 1)
    found[on & reading.unknown] = -2
    found[shown & ~finite] = -3
    return found


def _text_strip(reading: Reading, on: np.ndarray) -> str:
    marks = {-1: "·", -2: "?", -3: "!"}
    return "".join(marks[level] if level < 0 else _BLOCKS[level] for level in levels(reading, on))


def _text_register(reading: Reading, on: np.ndarray) -> str:
    """The strip and a few values; where all lanes hold the same, only that."""
    words = reading.summary(on)
    same = len({reading.texts[i] for i in np.flatnonzero(on)}) < 2
    return words if same else f"{_text_strip(reading, on)}  {words}"


def _svg_strip(reading: Reading, on: np.ndarray, changed: np.ndarray) -> str:
    lanes = len(on)
    cell = _WIDTH // lanes
    found = levels(reading, on)
    parts = []
    for level in range(_LEVELS):
        if d := _cells(found == level, cell):
            parts.append(f'<path d="{d}" class="v" fill-opacity="{0.16 + 0.12 * level:.2f}"/>')
    if d := _cells(found == -3, cell):
        parts.append(f'<path d="{d}" fill="{style.BAD}"/>')
    if d := "".join(f"M{i * cell + 2} 8h{cell - 4}" for i in np.flatnonzero(found == -1)):
        parts.append(f'<path d="{d}" class="off"/>')
    if changed.any():
        parts.append(f'<path d="{_runs(changed, cell, 18, 2)}" fill="{style.PALETTE[1]}"/>')
    tip = ", ".join(f"{i}: {reading.texts[i]}" for i in np.flatnonzero(on & ~reading.unknown) if reading.texts)
    return (
        f'<svg width="{_WIDTH + 2}" height="21" viewBox="-1 0 {_WIDTH + 2} 21" role="img" '
        f'aria-label="{lanes} lanes">{f"<title>{escape(tip)}</title>" if tip else ""}{"".join(parts)}'
        f'<rect x="-.5" y=".5" width="{_WIDTH + 1}" height="{_HEIGHT - 1}" class="rim"/></svg>'
    )


def _cells(where: np.ndarray, cell: int) -> str:
    return _runs(where, cell, 1, _HEIGHT - 2)


def _runs(where: np.ndarray, cell: int, y: int, height: int) -> str:
    """One path for all lanes where `where` is True; neighbours become one rectangle."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], where.astype(np.int8), [0]])))
    return "".join(
        f"M{a * cell} {y}h{(b - a) * cell}v{height}h{(a - b) * cell}z" for a, b in zip(edges[::2], edges[1::2])
    )


def _ruler(lanes: int) -> str:
    cell = _WIDTH // lanes
    marks = "".join(f'<text x="{i * cell}" y="9">{i}</text>' for i in range(0, lanes, lanes // 8))
    return f'<svg width="{_WIDTH + 2}" height="11" viewBox="-1 0 {_WIDTH + 2} 11" class="ruler">{marks}</svg>'


# ---- what a frame shows ----------------------------------------------------------------------------------------------


def _strips(frame: Step) -> tuple[list[tuple[Vector, Reading]], int]:
    """The registers worth a strip, and how many are left out."""
    shown = [(vector, read(vector.after, vector.kind)) for vector in frame.vectors[:_MOST_STRIPS]]
    return shown, max(0, len(frame.vectors) - _MOST_STRIPS)


def _masks(frame: Step) -> Iterator[tuple[str, np.ndarray]]:
    """EXEC always; VCC where the step has to do with it."""
    yield "EXEC", frame.exec_after
    if any("vcc" in i.text or "_cmp_" in i.text for i in frame.instructions):
        yield "VCC", frame.vcc


def _mask_reading(mask: np.ndarray) -> Reading:
    return Reading(mask.astype(float), (), np.zeros(len(mask), bool))


def _scalar_text(scalar: Scalar) -> str:
    after = read_scalar(scalar.after)
    if scalar.written and scalar.before != scalar.after and scalar.before & 0xFFFFFFFF != POISON:
        after = f"{read_scalar(scalar.before)} → {after}"
    return f"{after} ({scalar.place})" if scalar.place else after


def _heading(frame: Step) -> str:
    return f"{frame.line:4}  {frame.code}" if frame.line else "   -  (the compiler names no line)"


# ---- text ------------------------------------------------------------------------------------------------------------


def frame_text(frame: Step) -> str:
    """One frame with all its registers."""
    lines = [f"step {frame.number}", _heading(frame)]
    lines += [f"      {i.text}" for i in frame.instructions[:_MOST_CODE]]
    lines += _more(len(frame.instructions) - _MOST_CODE, "      ", "instruction")
    lines.append(f"  {sentence(frame)}")
    lines += _state_lines(frame, "  ")
    return "\n".join(lines)


def _state_lines(frame: Step, indent: str) -> Iterator[str]:
    shown, left = _strips(frame)
    for vector, reading in shown:
        mark = "=" if vector.written else " "
        yield f"{indent}{vector.name:>5} {mark} {_text_register(reading, frame.exec_before)}"
    yield from _more(left, indent, "register")
    for scalar in frame.scalars:
        yield f"{indent}{scalar.name:>5} {'=' if scalar.written else ' '} {_scalar_text(scalar)}"
    for name, mask in _masks(frame):
        bits = "" if mask.all() else "".join("█" if bit else "·" for bit in mask) + "  "
        yield f"{indent}{name:>5}   {bits}{int(mask.sum())} of {len(mask)} lanes"


def _more(count: int, indent: str, what: str) -> Iterator[str]:
    if count > 0:
        yield f"{indent}... and {count} more {what}{'' if count == 1 else 's'}"


def walk_text(walk: Steps) -> str:
    """Every step of the walk: its instruction, what it does, and the registers that it wrote."""
    lines, line = [f"{walk.title}: {len(walk)} steps"], object()
    for frame in walk:
        if frame.line != line:
            lines.append(_heading(frame))
            line = frame.line
        name = frame.instruction.text if len(frame.instructions) == 1 else ""
        lines.append(f"{frame.number:6}  {name}{'    ' if name else ''}{sentence(frame)}")
        written = [vector for vector in frame.vectors if vector.written][:_MOST_STRIPS]
        for vector in written:
            reading = read(vector.after, vector.kind)
            lines.append(f"{vector.name:>12} = {_text_register(reading, frame.exec_before)}")
        for scalar in (scalar for scalar in frame.scalars if scalar.written):
            lines.append(f"{scalar.name:>12} = {_scalar_text(scalar)}")
    return "\n".join([*lines, *([walk.note] if walk.note else [])])


# ---- HTML ------------------------------------------------------------------------------------------------------------

_ON_LIGHT, _ON_DARK = style.PALETTE[0], style.PALETTE[4]
_CSS = (
    frames.STRIP_CSS
    + ".course-card pre{margin:.2em 0;padding:.2em .6em;background:var(--c-soft);color:inherit;white-space:pre-wrap;"
    "font-family:ui-monospace,Consolas,monospace;font-size:12px;line-height:1.45}"
    ".course-card pre b{font-weight:700}.course-card pre i{font-style:normal;color:var(--c-muted)}"
    ".course-card table.lanes td{padding:1px 10px 1px 0;vertical-align:middle}"
    ".course-card table.lanes th{padding:1px 10px 1px 0;vertical-align:middle;color:inherit}"
    ".course-card .lanes svg{display:block}"
    ".course-card .rim{fill:none;stroke:var(--c-line)}.course-card .off{stroke:var(--c-muted);fill:none}"
    f".course-card .v{{fill:{_ON_LIGHT}}}"
    f"@media(prefers-color-scheme:dark){{.course-card .v{{fill:{_ON_DARK}}}}}"
    f'body[data-jp-theme-light="true"] .course-card .v{{fill:{_ON_LIGHT}}}'
    f'body[data-jp-theme-light="false"] .course-card .v{{fill:{_ON_DARK}}}'
    ".course-card text{fill:var(--c-muted);font-size:9px}"
    ".course-card .mine{stroke:var(--c-fg);stroke-width:2;fill:none}"
)


def walk_html(walk: Steps) -> str:
    """The frames side by side in a strip that scrolls; without styles they stand one below the other."""
    bodies = [_frame_body(walk, place) for place in range(min(len(walk), MOST_FRAMES))]
    notes = [walk.note] if walk.note else []
    if len(walk) > MOST_FRAMES:
        notes.append(f"{MOST_FRAMES} of {len(walk)} steps are shown: [i:j] behind the walk takes others.")
    strip = frames.strip(bodies, f"{walk.title}: {len(walk)} steps")
    return style.card(walk.title, strip + style.warnings(notes), _CSS)


def _frame_body(walk: Steps, place: int) -> str:
    frame = walk[place]
    return "".join(
        [
            f'<p class="q">step {frame.number} ({place + 1} of {len(walk)})</p>',
            f"<pre>{escape(_heading(frame))}</pre>",
            f"<pre>{_code(walk, frame)}</pre>",
            f"<p>{escape(sentence(frame))}</p>",
            _lanes_table(frame),
            _lds_map(frame, hardware.limits(walk.arch).lds_banks) if frame.lds is not None else "",
        ]
    )


def _code(walk: Steps, frame: Step) -> str:
    """The instructions of the frame; of a single one also its neighbours."""
    if len(frame.instructions) > 1:
        shown = [f"<b>{escape(i.text)}</b>" for i in frame.instructions[:_MOST_CODE]]
        return "\n".join([*shown, *_more(len(frame.instructions) - _MOST_CODE, "", "instruction")])
    index = frame.instruction.index
    around = walk.code[max(0, index - 1) : index + 2]
    return "\n".join(
        f"<b>{escape(i.text)}</b>" if i is frame.instruction else f"<i>{escape(i.text)}</i>" for i in around
    )


def _lanes_table(frame: Step) -> str:
    shown, left = _strips(frame)
    rows, on = [], frame.exec_before
    for vector, reading in shown:
        strip = _svg_strip(reading, on, vector.changed & on)
        rows.append(_row(vector.name, vector.written, strip, reading.summary(on)))
    if left:
        rows.append(_row("", False, f"... and {left} more register{'' if left == 1 else 's'}", ""))
    nothing = np.zeros(len(frame.exec_after), bool)
    for name, mask in _masks(frame):
        changed = frame.exec_before != frame.exec_after if name == "EXEC" else nothing
        strip = _svg_strip(_mask_reading(mask), mask, changed)
        rows.append(_row(name, bool(changed.any()), strip, f"{int(mask.sum())} of {len(mask)} lanes"))
    for scalar in frame.scalars:
        rows.append(_row(scalar.name, scalar.written, escape(_scalar_text(scalar)), ""))
    if any(word in frame.instruction.text for word in ("scc", "s_cmp", "s_cselect")):
        rows.append(_row("SCC", False, str(int(frame.scc)), ""))
    ruler = f"<tr><td></td><td>{_ruler(len(frame.exec_after))}</td><td></td></tr>"
    return f'<table class="lanes">{ruler}{"".join(rows)}</table>'


def _row(name: str, written: bool, cell: str, words: str) -> str:
    name = f"<b>{escape(name)}</b>" if written else escape(name)
    return f'<tr><th class="m">{name}</th><td>{cell}</td><td>{escape(words)}</td></tr>'


def _lds_map(frame: Step, banks: int) -> str:
    """LDS in rows of its banks: each word in the colour of the wave that wrote it, those touched here with a rim."""
    touched = _touched_words(frame)
    rows = sorted({int(word) // banks for word in touched})[:_MOST_ROWS]
    cell, parts = _WIDTH // banks, []
    for y, row in enumerate(rows):
        owners = frame.lds[row * banks : (row + 1) * banks]
        for wave in np.unique(owners[owners >= 0]):
            d = _runs(owners == wave, cell, 14 * y + 1, 12)
            colour = style.PALETTE[wave % len(style.PALETTE)]
            parts.append(f'<path d="{d}" fill="{colour}" fill-opacity=".55"><title>wave {wave}</title></path>')
        mine = np.isin(np.arange(row * banks, row * banks + len(owners)), touched)
        parts.append(f'<path d="{_runs(mine, cell, 14 * y + 1, 12)}" class="mine"/>')
        parts.append(f'<rect x="0" y="{14 * y + 0.5}" width="{cell * len(owners)}" height="13" class="rim"/>')
    height = 14 * len(rows) + 2
    picture = (
        f'<svg width="{_WIDTH + 2}" height="{height}" viewBox="-1 0 {_WIDTH + 2} {height}" role="img" '
        f'aria-label="map of LDS">{"".join(parts)}</svg>'
    )
    waves = ", ".join(_wave_word(int(wave)) for wave in np.unique(frame.lds[frame.lds >= 0]))
    words = f"{len(touched)} of {len(frame.lds)} words touched here (rims). Written so far by: {waves or 'nobody'}."
    return f'<p class="q">LDS, a row of {banks} banks a line</p>{picture}<p class="q">{words}</p>'


def _wave_word(wave: int) -> str:
    colour = style.PALETTE[wave % len(style.PALETTE)]
    return f'<span style="color:{colour}">■</span> wave {wave}'


def _touched_words(frame: Step) -> np.ndarray:
    found = [
        (touch.address[touch.active] + place) // 4
        for touch in frame.touches
        if touch.space == "LDS"
        for place in range(0, touch.width, 4)
    ]
    words = np.unique(np.concatenate(found))
    return words[(words >= 0) & (words < len(frame.lds))]


# ---- the slider ------------------------------------------------------------------------------------------------------


def slider(walk: Steps) -> Any:
    """A slider over the frames; the walk itself, which shows its strip of frames, where ipywidgets is missing."""

    def page(place: int) -> str:
        body = _frame_body(walk, place) + style.warnings([walk.note] if walk.note else [])
        return style.card(walk.title, body, _CSS)

    return frames.slider(len(walk), page, walk)
