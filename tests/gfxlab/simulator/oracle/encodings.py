"""Every instruction that a target has, by LLVM's disassembler: all opcodes of all encodings, with plain operands.

Images, exports and interpolation, which only graphics uses, are left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from oracle import assembler


@dataclass(frozen=True)
class Encoding:
    """How instructions of a kind are written.

    first: what the first word holds beside the opcode, which begins at bit `place` and is `width` wide. behind: further
    words; one choice of them is what an instruction can be read with, for fields that it has no use for must be 0.
    """

    first: int
    place: int
    width: int
    behind: tuple[tuple[int, ...], ...] = ((),)


def _choices(*fields: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """One word each, of every choice of its fields."""
    return tuple((sum(choice),) for choice in itertools.product(*fields))


_VOP3 = (*_choices((0x102,), (0, 4 << 9 | 1 << 17), (0, 6 << 18 | 1 << 26)), *_choices((2,), (0, 4 << 9), (0, 6 << 18)))
_VOP3P = _choices((0x102 | 4 << 9 | 1 << 17,), (0, 6 << 18 | 1 << 26), (0, 3 << 27))
_LDS = _choices((0, 2), (0, 4 << 8), (0, 6 << 16), (0, 10 << 24))
_FLAT = _choices((0, 2), (0, 8 << 8), (0, 2 << 16, 0x7C << 16, 0x7F << 16), (0, 4 << 24))
_BUFFER = _choices((4,), (0, 10 << 8), (2 << 16,), (0x7C << 24, 0x80 << 24))
_GFX12_MEMORY = tuple((to | data << 23, address) for to in (0, 4) for data in (0, 10) for address in (0, 2))
_EVERYWHERE = (
    *(Encoding(0x80000402 | result << 16, 23, 7) for result in (0, 8)),  # SOP2
    *(Encoding(0xB0000002 | result << 16, 23, 5) for result in (0, 8)),  # SOPK
    *(Encoding(0xBE800000 | source | result << 16, 8, 8) for source in (0, 2) for result in (0, 8)),  # SOP1
    Encoding(0xBF000402, 16, 7),  # SOPC
    Encoding(0xBF800000, 16, 7),  # SOPP
    *(Encoding(0x7E000000 | 10 << 17 | source, 9, 8) for source in (0, 2, 0x102)),  # VOP1
    Encoding(0x7C000000 | 4 << 9 | 0x102, 17, 8),  # VOPC
    Encoding(10 << 17 | 4 << 9 | 0x102, 25, 6, ((), (0x3F800000,))),  # VOP2, some with a literal
)
_GFX9 = (
    *_EVERYWHERE,
    Encoding(0xD000000A, 16, 10, _VOP3),
    Encoding(0xD380000A, 16, 7, _VOP3P),
    Encoding(0xC0020102, 18, 8, ((0,),)),  # SMEM
    Encoding(0xD8000000, 17, 8, _LDS),
    Encoding(0xE0000000, 18, 7, _BUFFER),
    *(Encoding(0xDC000000 | segment << 14, 18, 7, _FLAT) for segment in range(3)),
)
_RDNA = (
    *_EVERYWHERE,
    Encoding(0xD400000A, 16, 10, _VOP3),
    *(Encoding(first, 16, 7, _VOP3P) for first in (0xCC00000A, 0xCC00400A)),
    Encoding(0xD8000000, 18, 8, _LDS),
    Encoding(0xC8000102 | 4 << 9, 17, 9, ((0x0A060504 | 1 << 8,), (0x0A070504,))),  # VOPD
)
_ENCODINGS = {
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), _GFX9),
    "gfx1100": (
        *_RDNA,
        Encoding(0xF4000202, 18, 8, ((0xF8000000,),)),
        Encoding(0xE0000000, 18, 8, _BUFFER),
        *(Encoding(0xDC000000 | segment << 16, 18, 7, _FLAT) for segment in range(3)),
    ),
    "gfx1201": (
        *_RDNA,
        Encoding(0xF4000202, 13, 6, ((0xF8000000,),)),
        *(Encoding(first | 0x7C, 14, 8, _GFX12_MEMORY) for first in (0xC4000000, 0xEC000000, 0xED000000, 0xEE000000)),
    ),
}
_SUFFIX = re.compile(r"(_e32|_e64|_sdwa|_dpp)+$")


@lru_cache
def texts(arch: str) -> dict[str, str]:
    """By mnemonic the shortest text that LLVM prints for it: the one with the fewest modifiers."""
    listing = "".join(
        f"[{','.join(hex(word >> 8 * n & 255) for word in each for n in range(4))}]\n" for each in _words(arch)
    )
    found: dict[str, str] = {}
    for line in assembler.run([f"-mcpu={arch}", "--disassemble"], listing).splitlines():
        text = line.strip()
        if not text or text.startswith(".") or "/*Invalid" in text:
            continue
        for part in text.split(" :: "):
            name = _SUFFIX.sub("", part.split()[0])
            found[name] = min(found.get(name, text), text, key=len)
    return found


def _words(arch: str) -> Iterator[tuple[int, ...]]:
    for one in _ENCODINGS[arch]:
        for opcode in range(1 << one.width):
            yield from ((one.first | opcode << one.place, *words) for words in one.behind)
