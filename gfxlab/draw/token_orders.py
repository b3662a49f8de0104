"""Where the tokens of several sequences lie in memory: padded in rows, padded in columns, or packed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from gfxlab.draw import svg

_LEFT, _RIGHT, _HEIGHT, _WIDEST = 16, 16, 30, 44
_MOST = 48  # tokens in a strip: more would be too narrow for their numbers


def token_layouts(lengths: Sequence[int], layouts: Sequence[str] = ("bshd", "sbhd", "thd")) -> svg.Picture:
    """Draw the memory of x for sequences of these lengths, one strip a layout. A cell is a token with all its heads.

    Args:
        lengths: tokens of each sequence.
        layouts: of "bshd" (B, S, heads, D), "sbhd" (S, B, heads, D), "thd" (T, heads, D).

    Raises:
        ValueError: no sequence, a negative length, another layout, or more tokens than can be seen.
    """
    if not lengths or min(lengths) < 0 or not max(lengths):
        raise ValueError(f"lengths must be those of one or more sequences, got {list(lengths)}")
    if unknown := [layout for layout in layouts if layout not in _PLACES]:
        raise ValueError(f"a layout is one of {', '.join(_PLACES)}; got {unknown[0]!r}")
    if len(lengths) * max(lengths) > _MOST:
        raise ValueError(f"{len(lengths)} sequences of up to {max(lengths)} tokens are too many to see; {_MOST} can be")
    canvas, lines, y, padded = svg.Canvas(), [], 18.0, False
    for layout in layouts:
        places = list(_PLACES[layout](lengths))
        title = f"{layout}: {_words(layout, lengths)}"
        canvas.text(_LEFT, y, title, "b")
        width = min((canvas.width - _LEFT - _RIGHT) / (len(lengths) * max(lengths)), _WIDEST)
        top, shown = y + 8, []
        for i, (sequence, position) in enumerate(places):
            x, real = _LEFT + i * width, position < lengths[sequence]
            if real:
                words = f"token {i} in memory: sequence {sequence}, position {position}"
                canvas.box(x, top, width, _HEIGHT, svg.colour(sequence), words)
                canvas.text(x + width / 2, top + 19, str(position), "c")
            else:
                canvas.hatch(x, top, width, _HEIGHT, f"padding of sequence {sequence}")
            padded |= not real
            shown.append(f"{sequence}.{position}" if real else "-")
        if layout == "thd":
            _starts(canvas, lengths, width, top)
        lines += [title, "  " + " ".join(shown)]
        y = canvas.height + 24
    entries = [(svg.colour(i), f"sequence {i}") for i in range(len(lengths))]
    canvas.legend(canvas.height + 10, [*entries, *[("hatch", "padding")] * padded, ("", "the number is the position")])
    return canvas.picture("tokens in memory", "\n".join(lines))


def _starts(canvas: svg.Canvas, lengths: Sequence[int], width: float, top: float) -> None:
    """A mark and its number wherever a sequence begins or the last one ends."""
    for start in dict.fromkeys(accumulate(lengths, initial=0)):
        x = _LEFT + start * width
        canvas.line(x, top - 3, x, top + _HEIGHT + 5, "o")
        canvas.text(x, top + _HEIGHT + 17, str(start), "sc")


def _words(layout: str, lengths: Sequence[int]) -> str:
    shape, batch, longest = (
        {"bshd": "(B, S, heads, D)", "sbhd": "(S, B, heads, D)"}.get(layout),
        len(lengths),
        max(lengths),
    )
    if shape:
        return f"{shape}, B = {batch}, S = {longest}"
    return f"(T, heads, D), T = {sum(lengths)}; cu_seqlens = {list(accumulate(lengths, initial=0))}"


def _bshd(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((b, s) for b in range(len(lengths)) for s in range(max(lengths)))


def _sbhd(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((b, s) for s in range(max(lengths)) for b in range(len(lengths)))


def _thd(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((b, s) for b, length in enumerate(lengths) for s in range(length))


_PLACES = {"bshd": _bshd, "sbhd": _sbhd, "thd": _thd}  # (sequence, position) of each cell, as it lies in memory
