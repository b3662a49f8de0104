"""Operands as the assembler prints them: registers, named registers, constants, and the modifiers behind them.

    v_add_f32_e64 v1, |v2|, -v3 clamp      buffer_load_dwordx4 v[0:3], v8, s[4:7], 0 offen offset:16

Syntax: LLVM, "User Guide for AMDGPU Backend", operands and modifiers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

# One file of scalar registers for every target: the named ones live behind the numbered ones.
VCC, TTMP, M0, NULL, EXEC, MODE = 106, 108, 124, 125, 126, 128
SCALARS = 130
IEEE, FP16_OVFL = 1 << 9, 1 << 23  # bits of MODE; FP16_OVFL: a float16 that overflows becomes the largest
# Of MODE: denormals are kept in the sources and in the results, of float32 and of the other formats.
DENORMAL_SOURCES, DENORMAL_RESULTS = {4: 1 << 4, 2: 1 << 6, 8: 1 << 6}, {4: 1 << 5, 2: 1 << 7, 8: 1 << 7}
ALL_DENORMALS = 0xF0
_NAMED = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "null": (NULL, 1),
}
_REGISTER = re.compile(r"(v|s|a|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.([lh]))?")
_SPECIAL = re.compile(r"src_\w+|(flat_scratch|xnack_mask|tba|tma)\w*|lds_direct|vccz|execz")  # that no step reads
_LITERAL = re.compile(r"lit(?:64)?\((.*)\)")  # newer LLVMs say so of a constant that does not stand in the code
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_INTEGER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")


@dataclass(frozen=True)
class Operand:
    """One operand.

    file: "v" vector register, "s" scalar register, "constant", or "word" (anything else: `off`, a label, ...).
    index, count: first register and how many. value: of a constant, int or float. negate, absolute, sign_extend:
    input modifiers. half: 0 or 1 where only the low or high 16 bits are meant (`v3.l`, `v3.h`), else None.
    """

    text: str
    file: str
    index: int = 0
    count: int = 1
    value: int | float = 0
    negate: bool = False
    absolute: bool = False
    sign_extend: bool = False
    half: int | None = None

    @property
    def is_vector(self) -> bool:
        return self.file == "v"

    @property
    def is_scalar(self) -> bool:
        return self.file == "s"

    @property
    def is_constant(self) -> bool:
        return self.file == "constant"


def operand(text: str, accumulators: int = 256) -> Operand:
    """Read one operand; accumulator register `a0` is vector register number `accumulators`."""
    if text.startswith("-") and not re.match(r"-[\d.]", text):
        return replace(operand(text[1:], accumulators), text=text, negate=True)
    if text.startswith("neg("):
        return replace(operand(text[4:-1], accumulators), text=text, negate=True)
    if text.startswith("|"):
        return replace(operand(text.strip("|"), accumulators), text=text, absolute=True)
    if text.startswith("sext("):
        return replace(operand(text[5:-1], accumulators), text=text, sign_extend=True)
    if found := _REGISTER.fullmatch(text):
        file, one, first, last, half = found.groups()
        index = int(one or first)
        count = int(last) - index + 1 if last else 1
        base = {"v": 0, "s": 0, "a": accumulators, "ttmp": TTMP}[file]
        return Operand(
            text, "v" if file in "va" else "s", base + index, count, half=None if half is None else int(half == "h")
        )
    if found := _LITERAL.fullmatch(text):
        return replace(operand(found[1], accumulators), text=text)
    if text in _NAMED:
        index, count = _NAMED[text]
        return Operand(text, "s", index, count)
    if _FLOAT.fullmatch(text):
        return Operand(text, "constant", value=float(text))
    if _INTEGER.fullmatch(text):
        return Operand(text, "constant", value=int(text, 0))
    return Operand(text, "word")


class Modifiers(dict):
    """Modifiers by name. `unasked`: those that nobody has looked at, which would go without effect."""

    def __init__(self, *pairs: Any) -> None:
        super().__init__(*pairs)
        self._asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._asked.add(str(name))
        return super().__contains__(name)

    def unasked(self) -> set[str]:
        return set(self) - self._asked


_PIECES = re.compile(r"(?:[^,\[\]()|]|\[[^\]]*\]|\([^)]*\)|\|[^|]*\|)+")
_WORDS = re.compile(r"(?:[^\s\[\]()]|\[[^\]]*\]|\([^)]*\))+")


def split(text: str) -> tuple[list[str], Modifiers]:
    """The operands' texts, and the modifiers by name: a number, a list of numbers, a word, or True."""
    pieces = [piece.strip() for piece in _PIECES.findall(text)]
    if not pieces:
        return [], Modifiers()
    words = _WORDS.findall(pieces[-1])
    modifiers = [word for word in words if not _is_operand(word)]
    pieces[-1:] = [word for word in words if _is_operand(word)]
    return pieces, Modifiers(map(_modifier, modifiers))


def _is_operand(word: str) -> bool:
    plain = word.lstrip("-").strip("|")
    known = _REGISTER.fullmatch(plain) or _FLOAT.fullmatch(plain) or _INTEGER.fullmatch(plain)
    return (
        bool(known)
        or plain in _NAMED
        or plain == "off"
        or bool(_SPECIAL.fullmatch(plain))
        or bool(_LITERAL.fullmatch(plain))
        or plain.startswith((".L", "(.L", "hwreg(", "sext(", "neg("))
        or "@rel32@" in plain
    )


def _modifier(word: str) -> tuple[str, Any]:
    name, colon, value = word.partition(":")
    if not colon:
        return name, True
    if value.startswith("["):
        numbers = value[1:-1].split(",")
        return name, [int(number, 0) for number in numbers] if all(map(_INTEGER.fullmatch, numbers)) else value
    return name, int(value, 0) if _INTEGER.fullmatch(value) else value
