"""Conversions of 32 numbers at once to and from floats of 6 bits, with a power of two of their own (CDNA 4 ISA).

The 32 codes lie side by side in six registers of a lane, the numbers in 16 or 32.
"""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core.numbers import (
    F16,
    F32,
    U16,
    U32,
    from_bf16,
    round_to_bf16,
    small_float_values,
    to_finite_float,
)
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.small_floats import scale_of

NAMES = re.compile(r"v_cvt_scalef32_(pk32|2xpk16)_(f32|f16|bf16|fp6|bf6)_(f32|f16|bf16|fp6|bf6)$")
_BITS = 6


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one conversion."""
    found = NAMES.match(name)
    if not found:
        raise NotInTable(name)
    _, to, origin = found.groups()
    result, *sources, scale = instruction.operands
    if to in ("fp6", "bf6"):
        return _narrow(to, origin, result, sources, scale)
    return _widen(origin, to, result, sources[0], scale)


def _narrow(kind: str, origin: str, result: Operand, sources: list[Operand], scale: Operand) -> Step:
    """Of two sources every other number."""
    factor = scale_of(scale)

    def run(w: Waves) -> None:
        columns = [_numbers(w, source, origin) for source in sources]
        numbers = [number for together in zip(*columns) for number in together]
        codes = [to_finite_float((number / factor(w)).astype(F32), kind) for number in numbers]
        for place, word in enumerate(_side_by_side(codes)):
            w.write(w.V[result.index + place], word)

    return run


def _widen(kind: str, to: str, result: Operand, source: Operand, scale: Operand) -> Step:
    factor, table = scale_of(scale), small_float_values(kind)

    def run(w: Waves) -> None:
        codes = _codes(w, source)
        numbers = [(table[code] * factor(w)).astype(F32) for code in codes]
        for place, word in enumerate(_words(numbers, to)):
            w.write(w.V[result.index + place], word)

    return run


def _numbers(w: Waves, source: Operand, kind: str) -> list[np.ndarray]:
    """What the registers of a source hold, each number float32."""
    registers = range(source.index, source.index + source.count)
    if kind == "f32":
        return [np.array(w.F[i]) for i in registers]
    halves = [(w.V[i] >> U32(shift)).astype(U16) for i in registers for shift in (0, 16)]
    return [from_bf16(half) if kind == "bf16" else half.view(F16).astype(F32) for half in halves]


def _words(numbers: list[np.ndarray], kind: str) -> list[np.ndarray]:
    """The registers that hold the numbers."""
    if kind == "f32":
        return [number.view(U32) for number in numbers]
    halves = [
        round_to_bf16(number) if kind == "bf16" else number.astype(F16).view(U16).astype(U32) for number in numbers
    ]
    return [low | high << U32(16) for low, high in zip(halves[::2], halves[1::2])]


def _codes(w: Waves, source: Operand) -> list[np.ndarray]:
    found = []
    for at in range(0, 32 * _BITS, _BITS):
        i, shift = source.index + at // 32, at % 32
        word = w.V[i] >> U32(shift)
        if shift + _BITS > 32:
            word = word | w.V[i + 1] << U32(32 - shift)
        found.append(word & U32((1 << _BITS) - 1))
    return found


def _side_by_side(codes: list[np.ndarray]) -> list[np.ndarray]:
    words = [np.zeros_like(codes[0]) for _ in range(len(codes) * _BITS // 32)]
    for number, code in enumerate(codes):
        i, shift = divmod(number * _BITS, 32)
        words[i] |= code << U32(shift)
        if shift + _BITS > 32:
            words[i + 1] |= code >> U32(32 - shift)
    return words
