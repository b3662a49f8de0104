"""What a kernel needs more of than another one that does the same, in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gfxlab.code.card import compare
from gfxlab.code.report import AmdReport

_CLOSE = 0.75  # accesses with at least this part of the other's width are as wide
_MORE_LDS = 1.25
_LITTLE_LDS = 1024  # bytes; the sums that waves exchange take less


def regressions(mine: AmdReport, other: AmdReport) -> list[str]:
    """Where `mine` is worse than `other`: spills, waves, LDS, widths, matrix instructions; worst first.

    More registers are no harm while they leave as many waves. Both must be for the same architecture and work on the
    same data; empty when nothing is worse.
    """
    differ = set(compare(other, mine).differences)
    sentences = (
        _spills(mine, other),
        _waves(mine, other) if "waves per SIMD" in differ else "",
        _lds(mine, other) if "LDS" in differ else "",
        _narrow("load", mine.loads, other.loads) if "global loads" in differ else "",
        _narrow("store", mine.stores, other.stores) if "global stores" in differ else "",
        _matrix(mine, other) if "matrix" in differ else "",
    )
    return [sentence for sentence in sentences if sentence]


def _spills(mine: AmdReport, other: AmdReport) -> str:
    if mine.spills <= other.spills:
        return ""
    instead = f"{other.spills} need to" if other.spills else "none needs to"
    return f"{_count(mine.spills, 'register')} spilled to memory, where {instead}."


def _waves(mine: AmdReport, other: AmdReport) -> str:
    fewer, more = mine.occupancy, other.occupancy
    if fewer.waves >= more.waves:
        return ""
    counts = f"{_count(fewer.waves, 'wave')} a SIMD instead of {more.waves:g}"
    if fewer.limit == "VGPRs":
        return f"{mine.vgprs} vector registers where {other.vgprs} would do, so {counts}."
    if fewer.limit == "LDS":
        return f"{_lds_words(mine, other)}, so {counts}."
    return f"{counts}, limited by {fewer.limit}."


def _lds(mine: AmdReport, other: AmdReport) -> str:
    told = mine.occupancy.limit == "LDS" and mine.occupancy.waves < other.occupancy.waves
    if told or mine.lds <= max(_MORE_LDS * other.lds, _LITTLE_LDS):
        return ""
    return f"{_lds_words(mine, other)}."


def _lds_words(mine: AmdReport, other: AmdReport) -> str:
    return f"{mine.lds:,} bytes of LDS where {f'{other.lds:,}' if other.lds else 'none'} would do"


def _narrow(what: str, mine: Mapping[int, int], other: Mapping[int, int]) -> str:
    if not _mean_width(mine) or _mean_width(mine) >= _CLOSE * _mean_width(other):
        return ""
    bits, wide = _bulk(mine), _bulk(other)
    if wide <= bits:
        return ""
    share = mine[bits] / other[wide]  # of the other's accesses, which may be to several tensors
    enough = min(wide, 1 << (math.ceil(share * bits) - 1).bit_length())  # a wider one would have nothing to fill it
    if enough <= bits:
        return f"{what.capitalize()}s of {bits} bits a lane, where {wide} are possible."
    fewer = -(-mine[bits] * bits // enough)
    instead = f"one {enough}-bit {what}" if fewer == 1 else f"{fewer} x {enough}-bit {what}s"
    return f"{mine[bits]} x {bits}-bit {what}s where {instead} would do."


def _mean_width(widths: Mapping[int, int]) -> float:
    """The width of the access that the average bit goes through; a few narrow ones beside wide ones do not count."""
    moved = sum(bits * count for bits, count in widths.items())
    return sum(bits * bits * count for bits, count in widths.items()) / moved if moved else 0.0


def _bulk(widths: Mapping[int, int]) -> int:
    """The width that moves the most."""
    return max(widths, key=lambda bits: bits * widths[bits])


def _matrix(mine: AmdReport, other: AmdReport) -> str:
    if mine.matrix or not other.matrix:
        return ""
    shape = max(other.matrix, key=lambda name: other.matrix[name])
    return f"No matrix instruction, where {shape} could do the products."


def _count(count: float, word: str) -> str:
    return f"{count:g} {word}{'' if count == 1 else 's'}"
