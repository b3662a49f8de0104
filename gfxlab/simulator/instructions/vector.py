"""Vector instructions (VOP1, VOP2, VOP3, VOPC): the same operation in every lane.

`TABLE` joins the tables of the files vector_*.py; this file makes an entry executable.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import lane_selection
from gfxlab.simulator.instructions.common import NotInTable, Op, Step, Target
from gfxlab.simulator.instructions.results import computation
from gfxlab.simulator.instructions.vector_bits import BITS, any_of_three
from gfxlab.simulator.instructions.vector_compare import COMPARE
from gfxlab.simulator.instructions.vector_convert import CONVERT
from gfxlab.simulator.instructions.vector_divide import DIVIDE
from gfxlab.simulator.instructions.vector_dot import DOT, dot_of_either_sign, flushing
from gfxlab.simulator.instructions.vector_double import DOUBLE
from gfxlab.simulator.instructions.vector_float import EXTREMES, FLOAT
from gfxlab.simulator.instructions.vector_integer import INTEGER

TABLE: dict[str, Op] = BITS | INTEGER | FLOAT | EXTREMES | COMPARE | CONVERT | DIVIDE | DOT | DOUBLE


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one vector instruction."""
    if name.startswith("v_swap_"):
        return _swap(name.removeprefix("v_swap_b"), instruction, target)
    compute, write = phases(_operation(name, instruction, target), instruction, target)
    write = lane_selection.only_reached_lanes(write, instruction, target)
    return lambda w: write(w, compute(w))


def _operation(name: str, instruction: Decoded, target: Target) -> Op:
    if name.startswith("v_bitop3_"):
        return any_of_three(instruction.modifiers.get("bitop3", 0), "u32" if name.endswith("b32") else "u16")
    if name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4"):
        return dot_of_either_sign(name, instruction.modifiers.get("neg_lo", [0, 0]))
    if name not in TABLE:
        raise NotInTable(name)
    return flushing(TABLE[name]) if target.flushes_halves and name.startswith("v_dot2") else TABLE[name]


def _swap(bits: str, instruction: Decoded, target: Target) -> Step:
    kind = f"u{bits}"
    first, second = instruction.operands
    readers = [values.reader(one, kind) for one in (second, first)]
    writers = [values.writer(one, kind, clear=False) for one in (first, second)]

    def run(w):
        for write, value in zip(writers, [np.array(read(w)) for read in readers]):
            write(w, value)

    return run


def phases(op: Op, instruction: Decoded, target: Target) -> tuple[values.Reader, values.Writer]:
    """Reading and computing, then writing: two instructions issued as one read before either writes."""
    operands = instruction.operands
    results = op.results
    if instruction.mnemonic.startswith("v_cmpx") and not target.cdna:  # RDNA writes EXEC and nothing else
        operands = (target.exec, *operands)
    sources = operands[len(results) :]
    if op.accumulates:
        sources = (*sources, operands[0])
    if op.reads_vcc:
        sources = (*sources, target.vcc)
    readers = [
        lane_selection.source(operand, kind, place, instruction, target)
        for place, (operand, kind) in enumerate(zip(sources, op.kinds(len(sources)), strict=True))
    ]
    writers = [
        lane_selection.destination(operand, kind, len(sources), instruction, target)
        for operand, kind in zip(operands, results)
    ]
    if instruction.mnemonic.startswith("v_cmpx") and target.cdna:
        writers.append(values.writer(target.exec, "mask"))
        op = replace(op, compute=_twice(op.compute))
    if len(writers) > 1:
        return computation(op, readers, instruction), _write_all(writers)
    return computation(op, readers, instruction), writers[0]


def _twice(compute):
    def both(*sources):
        result = compute(*sources)
        return result, result

    return both


def _write_all(writers: list[values.Writer]) -> values.Writer:
    def write(w, results):
        for one, result in zip(writers, results):
            one(w, result)

    return write
