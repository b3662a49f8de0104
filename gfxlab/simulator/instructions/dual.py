"""Dual issue (VOPD, RDNA 3 and later): two vector instructions as one; both read before either writes."""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Op, Step, Target
from gfxlab.simulator.instructions.vector import TABLE, phases


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes both halves."""
    first, second = (_half(one, target) for one in (instruction, instruction.second))

    def run(w):
        # a move's result is the register itself, which the other half may be about to change
        x, y = np.array(first[0](w)), np.array(second[0](w))
        first[1](w, x)
        second[1](w, y)

    return run


_NEWER = {"add_nc_u32": "add_u32", "max_num_f32": "max_f32", "min_num_f32": "min_f32"}


def _half(instruction: Decoded, target: Target):
    return phases(operation(instruction)[1], instruction, target)


def operation(instruction: Decoded) -> tuple[str, Op]:
    """The plain name and the table's entry of one half."""
    name = instruction.mnemonic.removeprefix("v_dual_")
    name = f"v_{_NEWER.get(name, name)}"
    if name not in TABLE:
        raise NotInTable(instruction.mnemonic)
    op = TABLE[name]
    if name == "v_cndmask_b32" and len(instruction.operands) == 3:
        op = Op(op.compute, op.reads, op.writes, reads_vcc=True)
    return name, op
