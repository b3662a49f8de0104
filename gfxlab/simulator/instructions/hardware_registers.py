"""The registers behind s_setreg and s_getreg, of which only MODE does anything here.

MODE: MI300 ISA, section 3.5. What names the place of a wave on the chip reads 0.
"""

from __future__ import annotations

import re

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import U32
from gfxlab.simulator.core.operands import MODE, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.scalar import writer

NAMES = re.compile(r"s_(setreg_b32|setreg_imm32_b32|getreg_b32|round_mode|denorm_mode)$")
_FIELD = re.compile(r"hwreg\((\w+)(?:,\s*(\d+),\s*(\d+))?\)")
_MODE_NAMES = ("1", "HW_REG_MODE", "HW_REG_WAVE_MODE")


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one of these instructions."""
    match name:
        case "s_getreg_b32":
            return _get(instruction, target)
        case "s_round_mode" | "s_denorm_mode":
            return _set(instruction, 0 if name == "s_round_mode" else 4, 4, instruction.operands[0])
        case "s_setreg_b32" | "s_setreg_imm32_b32":
            register, offset, size = _field(instruction.operands[0].text)
            return _set(instruction, offset, size, instruction.operands[1]) if register in _MODE_NAMES else _nothing
    raise NotInTable(name)


def _nothing(w) -> None:
    """A register that decides nothing here."""


def _field(text: str) -> tuple[str, int, int]:
    found = _FIELD.match(text)
    if not found:
        raise NotInTable(text)
    register, offset, size = found.groups()
    return register, int(offset or 0), int(size or 32)


def _set(instruction: Decoded, offset: int, size: int, source: Operand) -> Step:
    read = values.scalar_reader(source, "u32")
    field = U32(((1 << size) - 1) << offset & 0xFFFFFFFF)

    def run(w):
        bits = (read(w) << U32(offset)) & field
        w.write_scalar(w.S[:, MODE], (w.S[:, MODE] & ~field) | bits)
        w.mode_changed()

    return run


def _get(instruction: Decoded, target: Target) -> Step:
    result, register = instruction.operands
    write = writer(result, "u32", target)
    name, offset, size = _field(register.text)
    if name not in _MODE_NAMES:
        return lambda w: write(w, U32(0))
    mask = U32((1 << size) - 1)
    return lambda w: write(w, (w.S[:, MODE] >> U32(offset)) & mask)
