"""Private memory of a lane, where registers go that did not fit: scratch_ accesses, on gfx90a buffer_ ones."""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import I64, U32
from gfxlab.simulator.core.operands import NULL
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.global_memory import register_reader, register_writer, width_of


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one access to private memory."""
    found = re.match(r"(scratch|buffer)_(load|store)_(\w+)", name)
    if not found:
        raise NotInTable(name)
    space, direction, suffix = found.groups()
    width, filling = width_of(suffix)
    data, address = _buffer(instruction) if space == "buffer" else _scratch(instruction, direction)
    if direction == "load":
        put = register_writer(data, width, filling, target)
        return lambda w: put(w, w.scratch.read(w, instruction, address(w), width))
    take = register_reader(data, width, filling)
    return lambda w: w.scratch.write(w, instruction, address(w), take(w), width)


def _sum(parts, constant: int):
    """In 32 bits, like the registers."""

    def address(w):
        total = np.full((w.size, w.lanes), constant & 0xFFFFFFFF, U32)
        for part in parts:
            total = total + part(w)
        return total.astype(I64)

    return address


def _scratch(instruction: Decoded, direction: str):
    first, second, base = instruction.operands
    data, where = (first, second) if direction == "load" else (second, first)
    parts = [values.reader(one, "u32") for one in (where, base) if one.is_vector or one.is_scalar and one.index != NULL]
    return data, _sum(parts, instruction.modifiers.get("offset", 0))


def _buffer(instruction: Decoded):
    """The scalar offset counts the bytes of all lanes of the wave together, the others those of one lane."""
    data, where, _, scalar = instruction.operands
    parts = [values.reader(where, "u32")] if "offen" in instruction.modifiers else []
    if scalar.is_scalar:
        read = values.reader(scalar, "u32")
        parts.append(lambda w: read(w) // U32(w.lanes))
    return data, _sum(parts, instruction.modifiers.get("offset", 0))
