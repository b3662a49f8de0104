"""Packed instructions (VOP3P): two results a lane, from the halves or the pairs that op_sel chooses; mixed precision.

Names and semantics: MI300 ISA, section 12.10.
"""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F16, F32, U16, U32, fma32
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.vector import TABLE as VECTOR

_PACKED = re.compile(r"v_pk_(\w+)_(f32|f16|u16|i16|b16)$")


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one packed instruction."""
    if name == "v_pk_mov_b32":
        return _move(instruction)
    if re.match(r"v_(fma|mad)_mix", name):
        return _mixed(name, instruction)
    if found := _PACKED.match(name):
        return _packed(found[1], found[2], instruction)
    raise NotInTable(name)


def _selections(instruction: Decoded, sources: int) -> list[tuple[list[int], list[int]]]:
    """For the low and the high result: which half of each source, and whether it is negated."""
    modifiers = instruction.modifiers
    nothing, high = [0] * sources, [1] * sources
    return [
        (modifiers.get("op_sel", nothing), modifiers.get("neg_lo", nothing)),
        (modifiers.get("op_sel_hi", high), modifiers.get("neg_hi", nothing)),
    ]


def _packed(operation: str, kind: str, instruction: Decoded) -> Step:
    scalar_name = f"v_{operation}_{kind}"
    if scalar_name not in VECTOR:
        raise NotInTable(instruction.mnemonic)
    compute = VECTOR[scalar_name].compute
    kind = "u16" if kind == "b16" else kind
    result, *sources = instruction.operands
    if VECTOR[scalar_name].accumulates:
        sources = [*sources, result]
    halves = [
        [_part(source, kind, half, negate) for source, half, negate in zip(sources, *selection)]
        for selection in _selections(instruction, len(sources))
    ]
    if kind == "f32":
        return _two_registers(compute, halves, result)
    return _two_halves(compute, halves, result, bool(instruction.modifiers.get("clamp")))


def _part(source: Operand, kind: str, half: int, negate: int) -> values.Reader:
    if kind == "f32":
        read = values.reader(_register(source, half), kind)
    elif source.is_constant and kind == "f16":
        read = values.reader(source, kind)
    elif source.is_constant:  # an integer constant fills the low half only
        read = values.reader(Operand(source.text, "constant", value=source.value if not half else 0), kind)
    else:
        read = values.reader(source, kind, high=bool(half))
    return (lambda w: -read(w)) if negate else read


def _register(source: Operand, half: int) -> Operand:
    """The first or the second register of a pair; a constant is both."""
    if source.is_constant:
        return source
    return Operand(source.text, source.file, source.index + half, 1)


def _two_registers(compute, halves, result: Operand) -> Step:
    low, high = halves
    i = result.index

    def run(w):
        first = compute(*[read(w) for read in low])
        second = compute(*[read(w) for read in high])  # before the first is written: it may read the same register
        w.write(w.F[i], first)
        w.write(w.F[i + 1], second)

    return run


def _two_halves(compute, halves, result: Operand, clamp: bool) -> Step:
    low, high = halves
    i = result.index

    def half(w, readers):
        value = compute(*[read(w) for read in readers])
        if clamp:
            value = np.clip(np.where(np.isnan(value), F16(0), value), F16(0), F16(1))
        return np.asarray(value).view(U16).astype(U32)

    def run(w):
        w.write(w.V[i], half(w, low) | half(w, high) << U32(16))

    return run


def _move(instruction: Decoded) -> Step:
    result, first, second = instruction.operands
    low, high = instruction.modifiers.get("op_sel", (0, 0))[:2]
    readers = (values.reader(_register(first, low), "u32"), values.reader(_register(second, high), "u32"))
    i = result.index

    def run(w):
        x, y = (np.array(read(w)) for read in readers)
        w.write(w.V[i], x)
        w.write(w.V[i + 1], y)

    return run


def _mixed(name: str, instruction: Decoded) -> Step:
    """v_fma_mix: each source is a float32 or, by op_sel_hi, one half of a register as a float16."""
    result, *sources = instruction.operands
    halves = instruction.modifiers.get("op_sel", [0] * 3)
    is_half = instruction.modifiers.get("op_sel_hi", [0] * 3)
    readers = [_mixed_source(s, bool(half), bool(f16)) for s, half, f16 in zip(sources, halves, is_half)]
    if name.endswith("f32"):
        write = values.writer(result, "f32")
        return lambda w: write(w, fma32(*[read(w) for read in readers]))
    write = values.writer(result, "f16", high="mixhi" in name, clear=False)
    return lambda w: write(w, fma32(*[read(w) for read in readers]).astype(F16))


def _mixed_source(source: Operand, high: bool, is_half: bool) -> values.Reader:
    if not is_half:
        return values.reader(source, "f32")
    read = values.reader(source, "f16", high=high)
    return lambda w: np.asarray(read(w)).astype(F32)
