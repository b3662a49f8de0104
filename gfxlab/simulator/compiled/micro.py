"""Micro-operations: what the extension executes, as `lanes.c` declares them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

VECTOR, SCALAR, CONSTANT, LANE_MASK, TEMPORARY = range(5)
LANEWISE, SCALAR_UNIT, READ_LANE, MATRIX, PERMUTE, LOCAL_LOAD, LOCAL_STORE = range(7)
TEMPORARIES = 4  # how many there are
_SOURCES, _RESULTS, _EXTRA = 5, 3, 8
_ALL = 0xFFFFFFFF


@dataclass(frozen=True)
class Source:
    """Words that are read: the bits of `mask` from bit `shift` on, extended by the bit `sign`, then `keep` and `flip`.

    lanes: the number of a table of lanes, or -1.
    """

    space: int
    index: int
    shift: int = 0
    mask: int = _ALL
    sign: int = 0
    keep: int = _ALL
    flip: int = 0
    lanes: int = -1

    def packed(self) -> bytes:
        index = self.index & _ALL
        return struct.pack(
            "=i6Ii", self.space, index, self.shift, self.mask, self.sign, self.keep, self.flip, self.lanes
        )


@dataclass(frozen=True)
class Result:
    """Words that are written: the bits of `mask`, shifted left, beside those that the register keeps."""

    space: int
    index: int
    shift: int = 0
    mask: int = _ALL
    keep: int = 0
    lanes: int = -1

    def packed(self) -> bytes:
        return struct.pack("=ii3Ii", self.space, self.index, self.shift, self.mask, self.keep, self.lanes)


@dataclass(frozen=True)
class Micro:
    """One of them. number: of the operation."""

    kind: int
    number: int
    sources: tuple[Source, ...]
    results: tuple[Result, ...]
    extra: tuple[int, ...] = ()

    def packed(self) -> bytes:
        head = struct.pack("=4i", self.kind, self.number, len(self.sources), len(self.results))
        extra = struct.pack(f"={_EXTRA}i", *self.extra, *[0] * (_EXTRA - len(self.extra)))
        sources = (*self.sources, *[_NO_SOURCE] * (_SOURCES - len(self.sources)))
        results = (*self.results, *[_NO_RESULT] * (_RESULTS - len(self.results)))
        return head + extra + b"".join(one.packed() for one in (*sources, *results))

    def reads(self, register: int) -> bool:
        """Whether a vector register is a source."""
        return any(one.space == VECTOR and one.index == register for one in self.sources)

    def into(self, result: Result) -> Micro:
        """The same with another first result."""
        return replace(self, results=(result, *self.results[1:]))

    @property
    def registers(self) -> int:
        """How many vector registers there must be."""
        return max([0, *(one.index + 1 for one in (*self.sources, *self.results) if one.space == VECTOR)])


_NO_SOURCE, _NO_RESULT = Source(CONSTANT, 0), Result(TEMPORARY, 0)
