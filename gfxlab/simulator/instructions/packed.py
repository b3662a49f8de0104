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
from gfxlab.simulator.instructions.common import NotInTable, Op, Step, Target
from gfxlab.simulator.instructions.results import computation
from gfxlab.simulator.instructions.vector import TABLE as VECTOR

_PACKED = re.compile(r"v_pk_(\w+)_(f32|f16|u16|i16|b16)$")


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one packed instruction."""
    if name == "v_pk_mov_b32":
        return _move(instruction)
    if re.match(r"v_(fma|mad)_mix", name):
        return _mixed(name, instruction)
    return _packed(*parts_of(name), instruction)


def parts_of(name: str) -> tuple[str, str]:
    """The operation of a packed instruction and its type: `v_pk_add_f16` adds `f16`."""
    found = _PACKED.match(name)
    if not found:
        raise NotInTable(name)
    return found[1], found[2]


def selections(instruction: Decoded, sources: int) -> list[tuple[list[int], list[int]]]:
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
    op = VECTOR[scalar_name]
    kind = "u16" if kind == "b16" else kind
    result, *sources = instruction.operands
    if op.accumulates:
        sources = [*sources, result]
    halves = [
        computation(op, [_part(*of, kind) for of in zip(sources, *selection)], instruction)
        for selection in selections(instruction, len(sources))
    ]
    return _two_registers(*halves, result) if kind == "f32" else _two_halves(*halves, result)


def _part(source: Operand, half: int, negate: int, kind: str) -> values.Reader:
    if kind == "f32":
        read = values.reader(register(source, half), kind)
    else:
        read = values.packed_reader(source, kind, half)
    return (lambda w: -read(w)) if negate else read


def register(source: Operand, half: int) -> Operand:
    """The first or the second register of a pair; a constant is both."""
    if source.is_constant:
        return source
    return Operand(source.text, source.file, source.index + half, 1)


def _two_registers(low: values.Reader, high: values.Reader, result: Operand) -> Step:
    i = result.index

    def run(w):
        first, second = low(w), high(w)  # before the first is written: it may read the same register
        w.write(w.F[i], first)
        w.write(w.F[i + 1], second)

    return run


def _two_halves(low: values.Reader, high: values.Reader, result: Operand) -> Step:
    i = result.index

    def run(w):
        first, second = (np.asarray(half(w)).view(U16).astype(U32) for half in (low, high))
        w.write(w.V[i], first | second << U32(16))

    return run


def _move(instruction: Decoded) -> Step:
    result, first, second = instruction.operands
    low, high = instruction.modifiers.get("op_sel", (0, 0))[:2]
    instruction.modifiers.get("op_sel_hi")  # LLVM prints one; nothing depends on it
    readers = (values.reader(register(first, low), "u32"), values.reader(register(second, high), "u32"))
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
        compute = computation(Op(fma32, "f32"), readers, instruction)
    else:
        write = values.writer(result, "f16", high="mixhi" in name, clear=False)
        op = Op(lambda *s: fma32(*s).astype(F16), "f32", "f16", exact=lambda a, b, c: a * b + c)
        compute = computation(op, readers, instruction)
    return lambda w: write(w, compute(w))


def _mixed_source(source: Operand, high: bool, is_half: bool) -> values.Reader:
    if not is_half:
        return values.reader(source, "f32")
    read = values.reader(source, "f16", high=high)
    return lambda w: np.asarray(read(w)).astype(F32)
