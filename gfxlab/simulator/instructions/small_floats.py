"""Conversions to and from floats of 8 and 4 bits. Those of 8 are the architecture's: FNUZ on gfx942, else OCP.

Names: MI300 ISA, section 12.11; the `scalef32` forms, with a power of two of their own, are gfx950's (CDNA 4 ISA).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import (
    F16,
    F32,
    F64,
    I32,
    U16,
    U32,
    from_bf16,
    round_to_bf16,
    small_float_values,
    to_finite_float,
    to_float8,
)
from gfxlab.simulator.core.operands import FP16_OVFL, MODE, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target

_WIDEN = re.compile(r"v_cvt_(scalef32_)?(pk_)?(f32|f16|bf16)_(fp8|bf8|fp4)$")
_NARROW = re.compile(r"v_cvt_(scalef32_)?pk_(fp8|bf8|fp4)_(f32|f16|bf16)$")
NAMES = re.compile(r"v_cvt_\w*(fp8|bf8|fp4|fp6|bf6)")


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one conversion."""
    if found := _WIDEN.match(name):
        scaled, packed, wide, kind = found.groups()
        return _widen(kind, wide, bool(packed), bool(scaled), instruction, target)
    if found := _NARROW.match(name):
        scaled, kind, wide = found.groups()
        return _narrow(kind, wide, bool(scaled), instruction, target)
    raise NotInTable(name)


def scale_of(operand: Operand) -> values.Reader:
    """2 to the exponent of a float32, whose other bits do not count; NaN where that is NaN or infinite."""
    read = values.reader(operand, "u32")

    def scale(w):
        exponent = (np.asarray(read(w)) >> U32(23) & U32(0xFF)).astype(I32)
        return np.where(exponent == 0xFF, np.nan, np.ldexp(F64(1), exponent - 127))

    return scale


def _halves(operand: Operand, convert: Callable) -> list[values.Reader]:
    read = values.reader(operand, "u32")
    return [lambda w, s=shift: convert((read(w) >> U32(s)).astype(U16)) for shift in (0, 16)]


_FROM_16_BITS = {"f16": lambda bits: bits.view(F16).astype(F32), "bf16": from_bf16}
_TO_16_BITS = {"f16": lambda x: x.astype(F16).view(U16).astype(U32), "bf16": round_to_bf16}


# ---- to fewer bits ---------------------------------------------------------------------------------------------------


def _narrow(kind: str, wide: str, scaled: bool, instruction: Decoded, target: Target) -> Step:
    """Two numbers, next to each other, into one half of the result; of 4 bits into one byte. The rest stays."""
    result, *sources = instruction.operands
    scale = scale_of(sources.pop()) if scaled else None
    if wide == "f32":
        readers = [values.reader(source, "f32") for source in sources]
    else:
        readers = _halves(sources[0], _FROM_16_BITS[wide])
    bits = 4 if kind == "fp4" else 8
    shift = _destination(instruction, kind)
    kept = U32(~(((1 << 2 * bits) - 1) << shift) & 0xFFFFFFFF)
    i = result.index

    def run(w):
        numbers = [np.asarray(read(w)) for read in readers]
        if scaled:
            numbers = [(number / scale(w)).astype(F32) for number in numbers]
        low, up = (_encoded(w, number, kind, target) for number in numbers)
        w.write(w.V[i], (w.V[i] & kept) | (low | up << U32(bits)) << U32(shift))

    return run


def _encoded(w, numbers: np.ndarray, kind: str, target: Target) -> np.ndarray:
    if kind == "fp4":
        return to_finite_float(numbers, "fp4")
    saturate = w.saturates and (w.S[:, MODE : MODE + 1] & U32(FP16_OVFL)) != 0
    return to_float8(numbers, kind, target.fnuz, saturate)


def _destination(instruction: Decoded, kind: str) -> int:
    """The lowest bit of the result: op_sel's last bit chooses a half, of 4-bit numbers its last two a byte."""
    chosen = instruction.modifiers.get("op_sel", (0,))
    if kind != "fp4":
        return 16 * chosen[-1]
    low, high = chosen[2:4] if len(chosen) == 4 else (0, chosen[-1])
    return 8 * (low + 2 * high)


# ---- to more bits ----------------------------------------------------------------------------------------------------


def _widen(kind: str, wide: str, packed: bool, scaled: bool, instruction: Decoded, target: Target) -> Step:
    result, source, *rest = instruction.operands
    shift = U32(_place(instruction, source, 8 if kind == "fp4" or not packed else 16, scaled))
    read = values.reader(replace(source, half=None), "u32")
    scale = scale_of(rest[0]) if scaled else None
    bits = 4 if kind == "fp4" else 8
    one_half = values.writer(result, "u16", high=bool(instruction.modifiers.get("op_sel", (0,))[-1]), clear=False)
    table = small_float_values(kind, target.fnuz and bits == 8)

    def run(w):
        word = read(w) >> shift
        numbers = [table[(word >> U32(bits * place)) & U32((1 << bits) - 1)] for place in range(2 if packed else 1)]
        if scaled:
            numbers = [(number * scale(w)).astype(F32) for number in numbers]
        if wide == "f32":
            for place, number in enumerate(numbers):
                w.write(w.F[result.index + place], number)
        elif not packed:
            one_half(w, _TO_16_BITS[wide](numbers[0]).astype(U16))
        else:
            low, high = map(_TO_16_BITS[wide], numbers)
            w.write(w.V[result.index], low | high << U32(16))

    return run


_PARTS = {"BYTE_1": 8, "BYTE_2": 16, "BYTE_3": 24, "WORD_1": 16}


def _place(instruction: Decoded, source: Operand, unit: int, scaled: bool) -> int:
    """The bit where the codes begin in their register, as SDWA, byte_sel, op_sel or the operand's half say."""
    modifiers = instruction.modifiers
    if "byte_sel" in modifiers:
        return 8 * modifiers["byte_sel"]
    first, second = (*modifiers.get("op_sel", (0, 0)), 0)[:2]
    if scaled:
        return unit * (first + 2 * second) if unit == 8 else unit * first
    return 16 if source.half or first else _PARTS.get(modifiers.get("src0_sel"), 0)
