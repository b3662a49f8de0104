"""Whether a loop that goes on for long comes nearer to its end, and how long that will take.

A loop is left where a comparison of two numbers turns out otherwise. Where none of these pairs moves together while it
goes round, waiting is of no use. Where one does, the loop is a long one, not an endless one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.operands import EXEC, VCC
from gfxlab.simulator.core.program import Decoded, Program, is_call
from gfxlab.simulator.core.state import Waves

_ROUNDS = 3  # past a comparison, without which nothing is said about it: a round of an outer loop may take long


@dataclass(frozen=True)
class Exits:
    """The branches of a loop that have always gone the same way since a wave has ended.

    distances: by block |a - b| of the comparison, float64 [wave]. visits: of each block. others: some of the branches
    ask for something else than a comparison of two numbers.
    """

    distances: dict[int, np.ndarray]
    visits: np.ndarray
    others: bool

    def rounds(self, before: Exits) -> int:
        """The fewest that have gone past a comparison since `before`."""
        return min((int(self.visits[i] - before.visits[i]) for i in self.distances), default=_ROUNDS)


def look(program: Program, visits: np.ndarray, waves: Waves, here: int) -> Exits:
    """Those of the loops around block `here`; visits: how often each block was executed, since a wave has ended."""
    found: dict[int, np.ndarray] = {}
    others = any(map(is_call, program.instructions))  # a function may go on anywhere
    loop = set(np.flatnonzero(visits).tolist()) if others else _around(program, visits, here)
    for number in sorted(loop):
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
        elif "vcc" in last.mnemonic and _stays(program, loop, VCC):
            found[number] = np.zeros(waves.size)
        else:
            others = True
    return Exits(found, visits.copy(), others)


def time_left(before: Exits, now: Exits, seconds: float) -> float | None:
    """Seconds until the loop ends at the rate of these last ones; infinity if nothing has come nearer to that.

    None where that cannot be said: something else ends the loop, or too few rounds have gone by.
    """
    found = []
    for number, distance in now.distances.items():
        old = before.distances.get(number)
        if old is not None and old.shape == distance.shape and (nearer := distance < old).any():
            found.append(float(np.max(distance[nearer] / (old - distance)[nearer])) * seconds)
    if found:
        return min(found)
    if now.others or before.distances.keys() != now.distances.keys() or now.rounds(before) < _ROUNDS:
        return None
    return math.inf


def _around(program: Program, visits: np.ndarray, here: int) -> set[int]:
    """The visited blocks from which a way leads to `here` and back."""
    onward: dict[int, list[int]] = {}
    back: dict[int, list[int]] = {}
    for number in np.flatnonzero(visits).tolist():
        for following in program.following(number):
            if following < len(visits) and visits[following]:
                onward.setdefault(number, []).append(following)
                back.setdefault(following, []).append(number)
    return _reached(onward, here) & _reached(back, here)


def _reached(ways: dict[int, list[int]], here: int) -> set[int]:
    found, waiting = set(), [here]
    while waiting:
        for number in ways.get(waiting.pop(), ()):
            if number not in found:
                found.add(number)
                waiting.append(number)
    return found


def _stays(program: Program, loop: set[int], register: int, asked: frozenset[int] = frozenset()) -> bool:
    """Whether nothing in the loop writes a scalar register, but to copy a constant or one that stays.

    asked: on the way here.
    """
    if register in asked:
        return False
    constants = 0
    for number in loop:
        block = program.blocks[number]
        for one in program.instructions[block.start : block.stop]:
            if not any(o.is_scalar and o.index <= register < o.index + o.count for o in one.operands[:2]):
                continue
            copied = [o.index for o in one.operands[1:] if o.is_scalar and o.index < EXEC]
            plain = one.mnemonic.startswith(("s_and_b", "s_mov_b")) and one.operands[0].index == register
            if plain and copied == [register]:
                continue
            constants += plain and not copied
            if plain and not copied and constants == 1:  # of two the later one would count
                continue
            if not (plain and len(copied) == 1 and _stays(program, loop, copied[0], asked | {register})):
                return False
    return True


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


_ORDERED = re.compile(r"v_cmpx?_\w+_([iuf](?:32|64))$")


class Gauge:
    """How far each wave was from leaving its loops when it last came to where that is decided.

    Between these places the registers may hold other numbers. A comparison of vectors counts as the sum over all lanes.
    """

    def __init__(self, program: Program, waves: int):
        self._program, self._waves = program, waves
        self._compared: dict[int, Decoded | None] = {}
        self._latest: dict[int, np.ndarray] = {}

    def note(self, number: int, waves: Waves) -> None:
        """Waves have come to the end of a block."""
        if number not in self._compared:
            self._compared[number] = self._comparison_of(number)
        compared = self._compared[number]
        if compared is None:
            return
        measure = _distance if compared.mnemonic[0] == "s" else _vector_distance
        latest = self._latest.setdefault(number, np.full(self._waves, np.nan))[waves.window]
        np.copyto(latest, measure(compared, waves), where=True if waves.live is None else waves.live)

    def distances(self, visits: np.ndarray) -> dict[int, np.ndarray]:
        """By block, float64 [wave]; only of jumps that have always gone the same way."""
        return {
            number: latest.copy()
            for number, latest in self._latest.items()
            if not all(place < len(visits) and visits[place] for place in self._program.following(number))
        }

    def _comparison_of(self, number: int) -> Decoded | None:
        block = self._program.blocks[number]
        *before, last = self._program.instructions[block.start : block.stop]
        if "scc" in last.mnemonic:
            return _comparison(tuple(before))
        if not last.mnemonic.startswith("s_cbranch"):
            return None
        return next((one for one in reversed(before) if _ORDERED.match(one.mnemonic)), None)


def _vector_distance(instruction: Decoded, waves: Waves) -> np.ndarray:
    kind = _ORDERED.match(instruction.mnemonic)[1]
    first, second = (
        np.asarray(values.reader(one, kind)(waves)).astype(np.float64) for one in instruction.operands[-2:]
    )
    apart = np.abs(first - second) + np.zeros((waves.size, waves.lanes))
    return np.where(np.isfinite(apart), apart, 0).sum(axis=1)
