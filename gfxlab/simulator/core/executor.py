"""Runs the waves of many workgroups in lock-step.

All waves execute the same code, so each instruction is one numpy operation on every wave that stands at it.  Where a
jump is taken by some waves only they part, and those at the smallest address go first, which lets them meet again as
soon as the code allows.  A wave at a barrier waits until all waves of its workgroup are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gfxlab.simulator.core import faults
from gfxlab.simulator.core.program import Decoded, Program, is_barrier, is_control, is_end, is_jump
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions import Step, Target, build
from gfxlab.simulator.instructions.scalar import jump_condition

_RUNNING, _WAITING, _DONE = 0, 1, 2
_PATIENCE = 1000  # turns in a row for one loop before waves that stand further on get one: they may hold its lock


@dataclass(frozen=True)
class Code:
    """A block made executable: its steps, then how it ends."""

    steps: tuple[Step, ...]
    last: Decoded
    condition: Callable | None
    target: int | None  # the block that the jump at the end goes to
    length: int


@lru_cache(maxsize=128)
def assemble(program: Program) -> tuple[Code, ...]:
    """Make every block of a program executable; remembered by the program."""
    target = Target(program.arch)
    return tuple(_block(program, block.start, block.stop, target) for block in program.blocks)


def _block(program: Program, start: int, stop: int, target: Target) -> Code:
    inside = program.instructions[start:stop]
    last = inside[-1]
    jumps = is_jump(last)
    steps = tuple(step for step in (build(i, target) for i in inside if not is_control(i)) if step is not None)
    condition = jump_condition(last.mnemonic, target) if jumps else None
    return Code(steps, last, condition, program.target(last) if jumps else None, len(inside))


class Executor:
    """Runs one batch of workgroups to the end."""

    def __init__(self, program: Program, waves: Waves, budget: int):
        self.program, self.waves = program, waves
        self.code = assemble(program)
        self.block = np.zeros(waves.count, np.int64)
        self.state = np.zeros(waves.count, np.int8)
        self.executed = np.zeros(len(self.code), np.int64)  # how often waves went through each block
        self._budget = self._left = budget

    @property
    def spent(self) -> int:
        """Wave-instructions executed."""
        return self._budget - self._left

    def run(self) -> None:
        """Execute until every wave has ended.

        Raises:
            SimulationError: an illegal access, an unknown instruction, a barrier that not all waves reach, or more
                instructions than the budget.
        """
        turns, least = 0, -1
        with np.errstate(all="ignore"):
            while (running := self.state == _RUNNING).any():
                standing = self.block[running]
                first = int(standing.min())
                turns = turns + 1 if first == least else 0
                least = first
                if turns > _PATIENCE and standing.max() > first:
                    first, turns = int(standing.max()), 0
                self._together(running & (self.block == first), running, first)

    def _together(self, active: np.ndarray, running: np.ndarray, block: int) -> None:
        """Run the active waves until they part, wait, end, or come to where others stand."""
        everyone = bool(active.all())
        waiting_at = self.block[running & ~active]
        limit = int(waiting_at.min()) if waiting_at.size else len(self.code)
        waves = self.waves
        waves.select(None if everyone else active)
        count = int(active.sum())
        while True:
            code = self.code[block]
            if waves.profile is not None:
                waves.profile.block(waves, block, count)
            for step in code.steps:
                step(waves)
            self._count(block, code, count)
            following = self._follow(code, block, active)
            if following is None:
                return
            if following >= limit or following <= block and limit < len(self.code):
                self.block[active] = following
                return
            block = following

    def _count(self, block: int, code: Code, waves: int) -> None:
        self.executed[block] += waves
        self._left -= waves * code.length
        if self._left < 0:
            program = faults.program_name(self.waves.programs[self.waves.window.start])
            raise faults.SimulationError(
                f"program {program} of the launch does not end: more than the {self._budget:,} instructions that were "
                f"left for its batch are spent{faults.at_line(code.last)}. "
                "Look for a loop whose condition never becomes false, or raise max_instructions."
            )

    def _follow(self, code: Code, block: int, active: np.ndarray) -> int | None:
        """The block where all active waves go on; None when they part, wait or end."""
        if code.target is not None:
            return self._jump(code, block, active)
        if is_end(code.last):
            self.state[active] = _DONE
            self._release()
            return None
        if is_barrier(code.last):
            self.state[active], self.block[active] = _WAITING, block + 1
            self._release()
            return None
        return block + 1

    def _jump(self, code: Code, block: int, active: np.ndarray) -> int | None:
        if code.condition is None:
            return code.target
        taken = code.condition(self.waves)
        live = self.waves.live
        chosen = taken if live is None else taken[live]
        if chosen.all():
            return code.target
        if not chosen.any():
            return block + 1
        self.block[active] = np.where(chosen, code.target, block + 1)
        return None

    def _release(self) -> None:
        """Let workgroups go on whose waves are all at the barrier (or have ended)."""
        state = self.state.reshape(-1, self.waves.waves_per_group)
        waiting = state == _WAITING
        ready = waiting.any(axis=1) & (waiting | (state == _DONE)).all(axis=1)
        if not ready.any():
            return
        self._check_meeting(ready, waiting)
        state[waiting & ready[:, None]] = _RUNNING
        if self.waves.lds is not None:
            self.waves.lds.barrier(self.waves, ready)

    def _check_meeting(self, ready: np.ndarray, waiting: np.ndarray) -> None:
        """All waves of a workgroup must wait at the same barrier, and none may have ended before it."""
        block = self.block.reshape(waiting.shape)
        highest = np.where(waiting, block, -1).max(axis=1)
        odd = ready & (
            (~waiting).any(axis=1) | (np.where(waiting, block, highest[:, None]) != highest[:, None]).any(axis=1)
        )
        if odd.any():
            group = int(odd.argmax())
            program = faults.program_name(self.waves.programs[group * self.waves.waves_per_group])
            places = sorted({int(b) for b in block[group][waiting[group]]})
            lines = [faults.at_line(self.code[b - 1].last).strip() or "a barrier" for b in places]
            ended = int((~waiting[group]).sum())
            have = f", and {ended} of its {len(waiting[group])} waves {'has' if ended == 1 else 'have'} ended"
            raise faults.SimulationError(
                f"not all waves of program {program} reach the same barrier: some wait at {' and at '.join(lines)}"
                f"{have if ended else ''}. A barrier must not stand in a branch that only some threads take."
            )
