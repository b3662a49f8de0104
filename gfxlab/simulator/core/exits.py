"""Whether a loop that goes on for long comes nearer to its end.

A loop is left where a comparison of two numbers turns out otherwise. Where none of these pairs moves together while it
goes round, waiting is of no use.
"""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.operands import EXEC, VCC
from gfxlab.simulator.core.program import Decoded, Program
from gfxlab.simulator.core.state import Waves

_OFTEN = 4  # visits of a block that make it a part of the loop
Distances = dict[int, np.ndarray]  # by block: |a - b| of its comparison, float64 [wave]


def distances(program: Program, visits: np.ndarray, waves: Waves) -> Distances | None:
    """Of the comparisons by which the loop may be left; None if it may be left in another way too.

    visits: how often each block was executed since a wave has ended.
    """
    found: Distances = {}
    for number in np.flatnonzero(visits >= _OFTEN).tolist():
        block = program.blocks[number]
        last = program.instructions[block.stop - 1]
        if not last.mnemonic.startswith("s_cbranch"):
            continue
        following = program.target(last), number + 1
        if all(place < len(visits) and visits[place] for place in following):
            continue
        compared = _comparison(program.instructions[: block.stop - 1])
        if "scc" in last.mnemonic and compared is not None:
            found[number] = _distance(compared, waves)
        elif "vcc" in last.mnemonic and _stays(program, visits, VCC):
            found[number] = np.zeros(waves.size)
        else:
            return None
    return found


def _stays(program: Program, visits: np.ndarray, register: int, asked: frozenset[int] = frozenset()) -> bool:
    """Whether nothing in the loop writes a scalar register, but to copy one that stays. asked: on the way here."""
    if register in asked:
        return False
    for number in np.flatnonzero(visits >= _OFTEN).tolist():
        block = program.blocks[number]
        for one in program.instructions[block.start : block.stop]:
            if not any(o.is_scalar and o.index <= register < o.index + o.count for o in one.operands[:2]):
                continue
            copied = [o.index for o in one.operands[1:] if o.is_scalar and o.index < EXEC]
            plain = one.mnemonic.startswith(("s_and_b", "s_mov_b")) and one.operands[0].index == register
            if plain and copied == [register]:
                continue
            if not (plain and len(copied) == 1 and _stays(program, visits, copied[0], asked | {register})):
                return False
    return True


def approaches(before: Distances | None, now: Distances | None) -> bool:
    """Whether one of the pairs has moved together, or may have."""
    if before is None or now is None or before.keys() != now.keys():
        return True
    return any(before[i].shape != now[i].shape or bool((now[i] < before[i]).any()) for i in now)


_KEEPS_SCC = re.compile(
    r"(v|ds|global|buffer)_|s_(mov|wait|barrier|nop|delay|cselect|mul|set|load|buffer|clause|sched)"
)


def _comparison(instructions: tuple[Decoded, ...]) -> Decoded | None:
    """The scalar comparison that a jump behind these asks for: the last one, with nothing behind it that sets SCC."""
    one = next((one for one in reversed(instructions) if not _KEEPS_SCC.match(one.mnemonic)), None)
    return one if one is not None and one.mnemonic.startswith("s_cmp_") else None


def _distance(instruction: Decoded, waves: Waves) -> np.ndarray:
    kind = instruction.mnemonic.rsplit("_", 1)[1]
    first, second = (
        np.asarray(values.scalar_reader(one, kind)(waves)).astype(np.float64) for one in instruction.operands
    )
    return np.abs(first - second) + np.zeros(waves.size)
