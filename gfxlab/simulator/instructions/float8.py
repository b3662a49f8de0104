"""Conversions to and from float8. The format is the architecture's: FNUZ on gfx942, OCP on gfx950 and gfx12.

Names: MI300 ISA, section 12.11; the `scalef32` forms with a scale of their own are gfx950's.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import U32, float8_values, to_float8
from gfxlab.simulator.core.operands import FP16_OVFL, MODE, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target

NAMES = re.compile(r"v_cvt_(scalef32_)?(pk_)?(?:(f32)_)?(fp8|bf8)(?:_f32)?$")


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one conversion."""
    found = NAMES.match(name)
    if not found:
        raise NotInTable(name)
    scaled, packed, widening, kind = found.groups()
    if widening:
        return _widen(kind, bool(packed), bool(scaled), instruction, target)
    if not packed:
        raise NotInTable(name)
    return _narrow(kind, bool(scaled), instruction, target)


def _narrow(kind: str, scaled: bool, instruction: Decoded, target: Target) -> Step:
    result, *sources = instruction.operands
    readers = [values.reader(source, "f32") for source in sources]
    high = bool(instruction.modifiers.get("op_sel", (0,))[-1])
    write = values.writer(result, "u16", high=high, clear=False)

    def run(w):
        first, second, *scale = (np.asarray(read(w)) for read in readers)
        if scaled:
            first, second = first / scale[0], second / scale[0]
        saturate = w.saturates and (w.S[:, MODE : MODE + 1] & U32(FP16_OVFL)) != 0
        low, up = (to_float8(x, kind, target.fnuz, saturate) for x in (first, second))
        write(w, (low | up << U32(8)).astype(np.uint16))

    return run


def _widen(kind: str, packed: bool, scaled: bool, instruction: Decoded, target: Target) -> Step:
    result, source, *scale = instruction.operands
    shift = U32(_place(instruction, source))
    read = values.reader(replace(source, half=None), "u32")
    read_scale = values.reader(scale[0], "f32") if scaled else None
    table = float8_values(kind, target.fnuz)

    def run(w):
        bits = read(w) >> shift
        numbers = [table[(bits >> U32(8 * place)) & U32(0xFF)] for place in range(2 if packed else 1)]
        if scaled:
            numbers = [value * read_scale(w) for value in numbers]
        for place, value in enumerate(numbers):
            w.write(w.F[result.index + place], value)

    return run


_PARTS = {"BYTE_1": 8, "BYTE_2": 16, "BYTE_3": 24, "WORD_1": 16}


def _place(instruction: Decoded, source: Operand) -> int:
    """The bit where the codes begin in their register, as SDWA, byte_sel, op_sel or the operand's half say."""
    modifiers = instruction.modifiers
    if "byte_sel" in modifiers:
        return 8 * modifiers["byte_sel"]
    upper = source.half or modifiers.get("op_sel", (0,))[0]
    return 16 if upper else _PARTS.get(modifiers.get("src0_sel"), 0)
