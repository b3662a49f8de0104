"""A paged cache: where the tokens of each sequence lie, and which slots a kernel really read or wrote."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfxlab import style
from gfxlab.draw import svg
from gfxlab.draw.traced import Traced
from gfxlab.strides import Strided

_LEFT, _ROW, _ENTRY = 10, 22, 34
_MOST_BLOCKS, _MOST_FAULTS = 32, 4
_BAD_TOUCHED, _BAD_LEFT = 0.8, 0.35  # opacity

_Slot = tuple[int, int]  # block and place in it


@dataclass(frozen=True)
class _Token:
    """What should lie in a slot. sequence is None where only the slots of new tokens are known."""

    sequence: int | None
    number: int

    @property
    def words(self) -> str:
        return f"token {self.number}" + (f" of sequence {self.sequence}" if self.sequence is not None else "")


def paged_cache(
    launch: Traced,
    cache: str = "k_cache_ptr",
    *,
    block_table: str = "block_table_ptr",
    seq_lens: str = "seq_lens_ptr",
    slot_mapping: str | None = None,
    slot_dim: int = 1,
) -> svg.Picture:
    """Draw the slots of a paged cache, and which of them the kernel touched.

    For attention, which reads: the block table says where each token of a sequence lies. For a cache update, which
    writes: the slot mapping says where each new token goes, -1 being nowhere.

        with trace() as launch:
            paged_decode_attention(q, k_cache, v_cache, block_table, seq_lens)
        draw.paged_cache(launch)

    Args:
        launch: a traced launch, `with trace() as launch:`.
        cache: name of the kernel's argument: (num_blocks, block_size, heads, head_dim), or another layout.
        block_table, seq_lens: names of the arguments (B, blocks of a sequence) and (B,).
        slot_mapping: name of the argument (tokens,) of a cache update, instead of block_table and seq_lens.
        slot_dim: the dimension of the cache that counts the slots of a block: 1, or 3 of a packed cache.

    A slot that should have been touched and was not, or the other way round, is marked and named.

    Raises:
        ValueError: no such tensor, nothing was recorded for the cache, or a length that its blocks have no room for.
    """
    tensor = launch.tensor(cache)
    num_blocks, block_size = tensor.shape[0], tensor.shape[slot_dim]
    if slot_mapping is None:
        kind, verb = "load", "read"
        rows, lengths = launch.tensor(block_table).tolist(), launch.tensor(seq_lens).tolist()
        expected = _by_table(rows, lengths, block_size)
    else:
        kind, verb, rows, lengths = "store", "written", [], []
        expected = _by_mapping(launch.tensor(slot_mapping).flatten().tolist(), block_size)
    touched = _touched(launch, cache, kind, slot_dim)
    title = f"{launch.name}: slots of {cache} that are {verb} ({num_blocks} pages of {block_size})"
    canvas = svg.Canvas()
    canvas.text(10, 18, title, "b")
    bottom = _draw_table(canvas, rows, lengths, block_size) if rows else 30.0
    bottom = _draw_blocks(canvas, bottom, (num_blocks, block_size), expected, touched, verb)
    wrong = sorted(touched ^ set(expected))
    entries = [(svg.colour(0), f"{verb}, with the token's number"), ("rim", f"not {verb}")]
    if touched - set(expected):
        entries.append((style.BAD, f"{verb}, though no token lies there", _BAD_TOUCHED))
    if set(expected) - touched:
        entries.append((style.BAD, f"a token that is not {verb}", _BAD_LEFT))
    canvas.legend(bottom + 8, entries)
    text = [title, *_sequences(rows, lengths, block_size), f"  {verb}: {len(touched)} slots; expected: {len(expected)}"]
    return canvas.picture(title, "\n".join([*text, *_faults(wrong, expected, verb)]))


def _by_table(rows: list[list[int]], lengths: list[int], block_size: int) -> dict[_Slot, list[_Token]]:
    expected: dict[_Slot, list[_Token]] = {}
    for sequence, (blocks, length) in enumerate(zip(rows, lengths)):
        if length > len(blocks) * block_size:
            raise ValueError(
                f"sequence {sequence} has {length} tokens, but {len(blocks)} pages of {block_size} have room "
                f"for {len(blocks) * block_size}; was the length changed after the launch?"
            )
        for token in range(length):
            slot = blocks[token // block_size], token % block_size
            expected.setdefault(slot, []).append(_Token(sequence, token))
    return expected


def _by_mapping(slots: list[int], block_size: int) -> dict[_Slot, list[_Token]]:
    expected: dict[_Slot, list[_Token]] = {}
    for token, slot in enumerate(slots):
        if slot >= 0:
            expected.setdefault(divmod(slot, block_size), []).append(_Token(None, token))
    return expected


def _touched(launch: Traced, cache: str, kind: str, slot_dim: int) -> set[_Slot]:
    accesses = [access for own in launch.by_program(cache, kind).values() for access in own]
    elements = np.unique(np.concatenate([access.elements[access.mask] for access in accesses]))
    place = Strided.of(launch.tensor(cache)).indices(elements)
    return set(zip(place[0].tolist(), place[slot_dim].tolist()))


def _colour(sequence: int) -> str:
    """Any but the last of the palette, which marks what is wrong."""
    return svg.colour(sequence % (len(style.PALETTE) - 1))


def _used(length: int, block_size: int) -> int:
    return -(-length // block_size)


def _draw_table(canvas: svg.Canvas, rows: list[list[int]], lengths: list[int], block_size: int) -> float:
    """The block table, a row a sequence; entries past the length are hatched. Gives its lower edge."""
    canvas.text(_LEFT, 44, "block table", "q")
    left = _LEFT + 160
    for sequence, (blocks, length) in enumerate(zip(rows, lengths)):
        y = 52 + sequence * _ROW
        canvas.text(_LEFT, y + 14, f"sequence {sequence}, {length} tokens")
        for i, block in enumerate(blocks[: int((canvas.width - left) // _ENTRY)]):
            x, size = left + i * _ENTRY, (_ENTRY, _ROW - 4)
            if i >= _used(length, block_size):
                canvas.hatch(x, y, *size, "past the length: must not be used")
                continue
            first = i * block_size
            words = f"tokens {first} to {min(first + block_size, length) - 1} of sequence {sequence}: page {block}"
            canvas.box(x, y, *size, _colour(sequence), words, 0.4)
            canvas.text(x + _ENTRY / 2, y + 13, str(block), "c")
    return 52 + len(rows) * _ROW + 14


def _draw_blocks(
    canvas: svg.Canvas,
    top: float,
    shape: tuple[int, int],
    expected: dict[_Slot, list[_Token]],
    touched: set[_Slot],
    verb: str,
) -> float:
    """The cache, a strip a block; blocks in use first where there are too many. Gives its lower edge."""
    num_blocks, block_size = shape
    used = {block for block, _ in [*expected, *touched]}
    by_use = sorted(range(num_blocks), key=lambda block: block not in used)
    shown = sorted(by_use[:_MOST_BLOCKS])
    canvas.text(_LEFT, top + 8, "cache", "q")
    wide = min(max(280.0 / block_size, 4.0), 24.0)
    columns = max(1, int((canvas.width - 10) // (64 + block_size * wide)))
    rows = -(-len(shown) // columns)
    for i, block in enumerate(shown):
        x = _LEFT + i // rows * (canvas.width - 10) / columns
        y = top + 16 + i % rows * _ROW
        canvas.text(x, y + 13, f"page {block}", "" if block in used else "q")
        for place in range(block_size):
            slot = block, place
            _draw_slot(canvas, x + 56 + place * wide, y, wide, slot, expected.get(slot, []), slot in touched, verb)
    bottom = top + 16 + rows * _ROW
    if len(shown) < num_blocks:
        canvas.text(_LEFT, bottom + 12, f"and {num_blocks - len(shown)} more pages", "q")
        bottom += 16
    return bottom


def _draw_slot(
    canvas: svg.Canvas, x: float, y: float, wide: float, slot: _Slot, tokens: list[_Token], touched: bool, verb: str
) -> None:
    where = f"page {slot[0]}, place {slot[1]}"
    said = ", ".join(token.words for token in tokens) or "nobody's"
    words = f"{where}: {said}, {verb if touched else f'not {verb}'}"
    if touched != bool(tokens):
        canvas.box(x, y, wide, _ROW - 4, style.BAD, words, _BAD_TOUCHED if touched else _BAD_LEFT)
    elif touched:
        canvas.box(x, y, wide, _ROW - 4, _colour(tokens[0].sequence or 0), words, 0.4)
    else:
        canvas.outline(x, y, wide, _ROW - 4, "l")
    label = str(tokens[0].number) if tokens else ""
    if label and svg.text_width(label, 10) + 2 < wide:
        canvas.text(x + wide / 2, y + 13, label, "sc")


def _sequences(rows: list[list[int]], lengths: list[int], block_size: int) -> list[str]:
    return [
        f"  sequence {i}: {length} tokens in pages {', '.join(map(str, blocks[: _used(length, block_size)])) or '-'}"
        for i, (blocks, length) in enumerate(zip(rows, lengths))
    ]


def _faults(wrong: list[_Slot], expected: dict[_Slot, list[_Token]], verb: str) -> list[str]:
    lines = []
    for slot in wrong[:_MOST_FAULTS]:
        tokens = ", ".join(token.words for token in expected.get(slot, []))
        said = f"not {verb}, though {tokens} lies there" if tokens else f"{verb}, though no token lies there"
        lines.append(f"  ! page {slot[0]}, place {slot[1]}: {said}")
    more = len(wrong) - _MOST_FAULTS
    return lines + ([f"  ! and {more} more slots"] if more > 0 else [])
