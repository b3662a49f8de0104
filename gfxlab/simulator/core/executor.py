"""Runs the waves of many workgroups in lock-step.

All waves execute the same code, so each instruction is one numpy operation on every wave that stands at it.  Where a
jump is taken by some waves only they part, and those at the smallest address go first, which lets them meet again as
soon as the code allows.  A wave at a barrier waits until all waves of its workgroup are at one.

Waves that go round a loop may wait for others that stand further on, or for a workgroup that has not begun: a lock, a
flag.  So those at the smallest address do not go first for ever.  A wave that polls memory and comes round with the
registers that it had before has asked in vain: it sleeps, and is woken when nobody else can go on, a workgroup at a
time.  A batch in which all ask in vain gives way to the next one (`run` returns False).
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gfxlab.programs import format_program
from gfxlab.simulator.compiled import extension
from gfxlab.simulator.compiled.runs import join
from gfxlab.simulator.core import constants, exits, faults
from gfxlab.simulator.core.program import (
    Decoded,
    Program,
    arrives,
    is_barrier,
    is_call,
    is_control,
    is_end,
    is_jump,
    is_return,
    is_trap,
    waits,
)
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions import Step, Target, build, nothing
from gfxlab.simulator.instructions.multiplication import share
from gfxlab.simulator.instructions.scalar import jump_condition

_RUNNING, _WAITING, _DONE = 0, 1, 2
_PATIENCE = 1000  # turns of others that a wave waits for its own
_POLLING_PATIENCE = 8  # the same, of others that poll memory
_NAP = 64  # turns after which a workgroup is woken although others can go on
_BLOCKS_A_TURN = 256  # of waves that were let through
_POLLS_A_RUN = 3000  # turns in polling loops, no wave ending, after which another batch is let through
_ROUNDS = 3_000  # of one block, without which a long run is taken for a long run and not for an endless loop
LONGEST = 1800.0  # seconds that a loop may take which comes nearer to its end
_PAUSE = 0.05  # seconds between two looks at a long loop
_GLANCE = 8  # visits of a block after which the clock is looked at
_BYPASSES = ("sc1", "glc", "dlc")


@dataclass(frozen=True)
class Code:
    """A block made executable: its steps, then how it ends. Between the steps some registers may lag behind.

    instructions: those that each step does. condition: of a jump that is not always taken. target: the block that a
    jump goes to. polls: it reads memory in a way that sees what other workgroups write. named: the last instruction so
    far with a line of the source.
    """

    steps: tuple[Step, ...]
    instructions: tuple[tuple[Decoded, ...], ...]
    last: Decoded
    condition: Callable | None
    target: int | None
    length: int
    polls: bool
    named: Decoded


def assemble(program: Program) -> tuple[Code, ...]:
    """Make every block of a program executable; remembered by the program."""
    return _assembled(program, extension.used())


@lru_cache(maxsize=128)
def _assembled(program: Program, compiled: bool) -> tuple[Code, ...]:
    target = Target(program.arch)
    return tuple(_block(program, block.start, block.stop, target, compiled) for block in program.blocks)


def _block(program: Program, start: int, stop: int, target: Target, compiled: bool) -> Code:
    inside = program.instructions[start:stop]
    last = inside[-1]
    jumps = is_jump(last)
    built = [(i, step) for i in inside if not is_control(i) and (step := build(i, target)) is not nothing]
    joined = join(built, target, program.registers) if compiled else (((i,), step) for i, step in built)
    instructions, steps = tuple(zip(*joined)) or ((), ())
    steps = share(instructions, steps)
    try:
        condition = jump_condition(last.mnemonic, target) if jumps else None
    except LookupError:
        raise faults.UnknownInstruction(last) from None
    polls = any(_polls(instruction) for instruction in inside)
    named = next((i for i in reversed(program.instructions[:stop]) if i.source), last)
    return Code(
        steps, instructions, last, condition, program.target(last) if jumps else None, len(inside), polls, named
    )


def _polls(instruction: Decoded) -> bool:
    """An atomic whose result is asked for, or a load past the caches."""
    modifiers = instruction.modifiers
    if instruction.kind == "atomic":
        return "sc0" in modifiers or "glc" in modifiers or "RETURN" in str(modifiers.get("th"))
    bypasses = any(name in modifiers for name in _BYPASSES) or modifiers.get("scope") in ("SCOPE_DEV", "SCOPE_SYS")
    return instruction.kind in ("global load", "scalar load") and bypasses


class Executor:
    """Runs one batch of workgroups to the end.

    budget: of wave-instructions. seconds: without a wave's ending, after which a loop is called endless.
    host: called between turns; the part of the machine that is not the GPU. tell: is told now and then how many
    wave-instructions are executed.
    """

    def __init__(
        self,
        program: Program,
        waves: Waves,
        budget: int,
        seconds: float = float("inf"),
        host: Callable[[], None] | None = None,
        tell: Callable[[int], None] = lambda spent: None,
    ):
        self.program, self.waves = program, waves
        self.code = assemble(program)
        self.block = np.full(waves.count, program.block_at[program.entry], np.int64)
        self.state = np.zeros(waves.count, np.int8)
        self._arrived = np.zeros(waves.count, bool)  # at a barrier to which others are still to come
        self.executed = np.zeros(len(self.code), np.int64)  # how often waves went through each block
        self._visits = np.zeros(len(self.code), np.int64)  # how often any did
        self._visited = np.zeros(len(self.code), np.int64)  # the same, since a wave has ended, whoever has a turn
        self._budget = self._left = budget
        self._seconds, self._host, self._tell = seconds, host, tell
        self._turns = self._polls = 0
        self._had_turn, self._had_poll = np.zeros(waves.count, np.int64), np.zeros(waves.count, np.int64)
        self._asked, self._asleep = np.zeros(waves.count, bool), np.zeros(waves.count, bool)
        self._before: dict[int, tuple] = {}  # a wave's block and registers when it last came round
        self._rounds, self._suspect = np.zeros(waves.count, np.int64), np.zeros(waves.count, bool)
        self._gauge: exits.Gauge | None = None
        self._in_vain = 0  # how often waves did since one ended or saw something new
        self.ended = 0  # waves
        self._restart_clock()

    @property
    def spent(self) -> int:
        """Wave-instructions executed."""
        return self._budget - self._left

    def left(self) -> np.ndarray:
        """The waves that have not ended, bool [wave]."""
        return self.state != _DONE

    def run(self) -> bool:
        """Execute until every wave has ended (True), or until those that are left only poll memory (False).

        Raises:
            SimulationError: an illegal access, an unknown instruction, a barrier that not all waves reach, or more
                instructions or time than allowed.
        """
        self._restart_clock()
        self._in_vain, polls = 0, 0
        with np.errstate(all="ignore"):
            while (running := self.state == _RUNNING).any():
                ended = self.ended
                if not self._wake(running):
                    return False
                polls += self._turn(running & ~self._asleep)
                if self.ended != ended:
                    self._in_vain = polls = 0
                    self._visited[:] = 0
                    self._restart_clock()
                self._tell(self.spent)
                if self._host:
                    self._host()
                if polls > _POLLS_A_RUN:
                    return False
        return True

    def _restart_clock(self) -> None:
        """A wave has ended, or other batches had their turn."""
        self._since, self._busy_since = time.monotonic(), None
        self._worked_since = time.process_time()
        self._visits[:] = 0
        self._exits: exits.Exits | None = None
        self._prints: dict[int, int] = {}  # by block what `fingerprint` was

    # ---- whose turn it is --------------------------------------------------------------------------------------------

    def _turn(self, running: np.ndarray) -> bool:
        """The waves at the smallest address go on, unless others have waited long for a turn; whether they polled."""
        self._turns += 1
        standing = self.block[running]
        first = int(standing.min())
        further = standing[standing > first]
        limit, most = int(further.min()) if further.size else len(self.code), 0
        if further.size:
            overdue = self._overdue(running)
            if overdue is not None and overdue != first:
                first, limit, most = overdue, len(self.code), _BLOCKS_A_TURN
        active = running & (self.block == first)
        polled = self._together(active, first, limit, most)
        self._polls += polled
        self._had_turn[active], self._had_poll[active] = self._turns, self._polls
        return polled

    def _wake(self, running: np.ndarray) -> bool:
        """Wake a workgroup if all waves sleep, or from time to time; False: they have all asked in vain."""
        asleep = np.count_nonzero(self._asleep)
        if not asleep:
            return True
        everyone = not (running & ~self._asleep).any()
        if everyone and self._in_vain > 2 * asleep:
            return False
        if everyone or self._turns % _NAP == 0:
            longest = int(np.argmin(np.where(self._asleep, self._had_turn, self._turns + 1)))
            first = longest - longest % self.waves.waves_per_group
            self._asleep[first : first + self.waves.waves_per_group] = False
        return True

    def _come_round(self, back: np.ndarray) -> None:
        """Waves go back to where they were: those that polled memory and have what they had before fall asleep."""
        came = back & self._asked
        if not came.any():
            return
        self._asked[came] = False
        self._rounds[came] += 1
        # two of eight rounds are compared, for a loop that does get on is to lose no time; all of who has slept before
        looked_at = self._suspect | ((self._rounds & 7) >= 6)
        for wave in np.flatnonzero(came & looked_at):
            state = int(self.block[wave]), *self.waves.registers_of(int(wave))
            before = self._before.get(wave)
            if before and before[0] == state[0] and all(map(np.array_equal, before[1:], state[1:])):
                self._asleep[wave] = self._suspect[wave] = True
                self._in_vain += 1
            else:
                self._before[wave] = state
                self._in_vain = 0

    def _overdue(self, running: np.ndarray) -> int | None:
        """Where the wave stands that has waited longest, if that was too long."""
        longest = int(np.argmin(np.where(running, self._had_turn, self._turns)))
        turns, polls = self._turns - self._had_turn[longest], self._polls - self._had_poll[longest]
        return int(self.block[longest]) if turns > _PATIENCE or polls > _POLLING_PATIENCE else None

    def _together(self, active: np.ndarray, block: int, limit: int, most: int = 0) -> bool:
        """Run the active waves until they part, wait, end, jump back past others or come to where others stand.

        limit: the next address where others stand, or past the end. most: blocks, if not 0. Returns whether they polled
        memory.
        """
        waves, polled = self.waves, False
        waves.select(None if active.all() else active)
        count = int(active.sum())
        others = limit < len(self.code)
        while True:
            code = self.code[block]
            if waves.profile is not None:
                waves.profile.block(waves, block, count)
            for step in code.steps:
                step(waves)
            if code.polls:
                polled = True
                self._asked |= active
            if self._gauge is not None:
                self._gauge.note(block, waves)
            self._count(block, code, count)
            following = self._follow(code, block, active)
            most -= 1
            if following is None:
                self._come_round(active & (self.block <= block) & (self.state == _RUNNING))
                return polled
            if following <= block and (asked := active & self._asked).any():
                self.block[active] = following
                self._come_round(asked)
                return polled
            if following >= limit or following <= block and (others or self._host) or most == 0:
                self.block[active] = following
                return polled
            block = following

    # ---- limits ------------------------------------------------------------------------------------------------------

    def _count(self, block: int, code: Code, waves: int) -> None:
        self.executed[block] += waves
        self._visits[block] += 1
        self._visited[block] += 1
        self._left -= waves * code.length
        self.waves.clock += code.length
        if self._left < 0:
            self._endless(code, f"more than the {self._budget:,} instructions that were left for its batch are spent")
        if self._visits[block] % _GLANCE == 0:
            self._tell(self.spent)
            self._check_time(block, code)

    def _check_time(self, block: int, code: Code) -> None:
        if time.monotonic() - self._since < 2 / 3 * self._seconds:
            return
        clock = time.process_time()  # the machine may have been busy with others: the last third is processor time
        if self._exits is None:
            self._look_at_the_exits(block)
        elif clock - self._busy_since > self._seconds / 3 and clock > self._looked + _PAUSE:
            self._judge(block, code, clock)

    def _judge(self, block: int, code: Code, clock: float) -> None:
        """Go on, or give up a loop that does not end, or not in a time that anybody waits."""
        self._looked = clock
        now = exits.look(self.program, self._visits, self.waves, block)
        left = exits.time_left(self._exits, now, clock - self._busy_since)
        rounds = f"{self._visits[block]:,} rounds of one loop in {self._seconds:g} seconds, and no wave has ended"
        if left == math.inf and self._visits[block] >= 2 * _GLANCE:
            self._endless(code, rounds, "max_seconds")
        if left is None and now.others and self._visits[block] >= _ROUNDS:
            before, self._prints[block] = self._prints.get(block), self.fingerprint()
            if before is None:
                return
            if before == self._prints[block]:  # the same registers again
                self._endless(code, rounds, "max_seconds")
            if clock - self._worked_since < self._seconds:  # it may end yet: others may have kept the machine busy
                return
            self._too_long(code, f"after {rounds}: the loop's condition never becomes false, or it takes long")
        if left is not None and LONGEST < left < math.inf:
            self._too_long(code, f"yet: at this rate its loop takes {left / 60:,.0f} minutes more")
        if left is not None or now.distances.keys() != self._exits.distances.keys():
            self._look_at_the_exits(block)  # what comes nearer now may stop to

    def _look_at_the_exits(self, block: int) -> None:
        self._busy_since = self._looked = time.process_time()
        self._exits = exits.look(self.program, self._visits, self.waves, block)

    def _too_long(self, code: Code, why: str) -> None:
        program = format_program(self.waves.programs[self.waves.window.start])
        raise faults.SimulationError(
            f"program {program} of the launch has not ended {why}{faults.at_line(code.named)}. "
            f"Look at what ends the loop; if it is to take so long, give the launch less to do or raise max_seconds."
        )

    def _endless(self, code: Code, why: str, limit: str = "max_instructions") -> None:
        program = format_program(self.waves.programs[self.waves.window.start])
        raise faults.SimulationError(
            f"program {program} of the launch does not end: {why}{faults.at_line(code.named)}. "
            f"Look for a loop whose condition never becomes false, or raise {limit}."
        )

    def measure(self) -> None:
        """From now on note how far the waves are from leaving their loops."""
        self._gauge = self._gauge or exits.Gauge(self.program, self.waves.count)

    def distances(self) -> dict[int, np.ndarray]:
        """By block how far each wave that has not ended is from leaving a loop there, float64 [wave]."""
        found = self._gauge.distances(self._visited) if self._gauge else {}
        return {number: distance[self.left()] for number, distance in found.items()}

    def fingerprint(self) -> int:
        """A number of everything that decides how these waves go on, memory apart."""
        number = 0
        for array in (*self.waves.everything(self.left()), self.block, self.state, self._arrived):
            number = number << 32 | zlib.crc32(np.ascontiguousarray(array))
        return hash(number)

    # ---- where a block leads -----------------------------------------------------------------------------------------

    def _follow(self, code: Code, block: int, active: np.ndarray) -> int | None:
        """The block where all active waves go on; None when they part, wait or end."""
        if code.target is not None:
            return self._jump(code, block, active)
        if is_end(code.last):
            self.state[active] = _DONE
            self.ended += int(active.sum())
            self._release()
            return None
        if is_barrier(code.last):
            self._barrier(code.last, block, active)
            return None
        if is_call(code.last) or is_return(code.last):
            return self._leap(code, active)
        if is_trap(code.last):
            raise faults.Trapped(self.waves, code.last)
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

    def _leap(self, code: Code, active: np.ndarray) -> int | None:
        """To the address in a pair of registers; a call leaves the address behind itself in another pair."""
        waves, last = self.waves, code.last
        pair = last.operands[-1].index
        address = waves.S[:, pair].astype(np.int64) | waves.S[:, pair + 1].astype(np.int64) << 32
        address = address if waves.live is None else address[waves.live]
        blocks = np.array([self.program.block_at.get(constants.index_of(int(a)), -1) for a in address])
        if (blocks < 0).any():
            where = int(address[blocks < 0][0])
            raise faults.SimulationError(f"`{last.text}` goes to {where:#x}, where no code is{faults.at_line(last)}")
        if is_call(last):
            back = constants.code_address(last.index + 1)
            link = last.operands[0].index
            for place, word in enumerate((back & 0xFFFFFFFF, back >> 32)):
                waves.write_scalar(waves.S[:, link + place], np.uint32(word))
        if (blocks == blocks[0]).all():
            return int(blocks[0])
        self.block[active] = blocks
        return None

    # ---- barriers ----------------------------------------------------------------------------------------------------

    def _barrier(self, instruction: Decoded, block: int, active: np.ndarray) -> None:
        """The active waves arrive, or wait for those who have not, or both."""
        self.block[active] = block + 1
        if arrives(instruction):
            self._arrived |= active
        if waits(instruction):
            self.state[active & self._arrived] = _WAITING
        self._release()

    def _release(self) -> None:
        """Let workgroups go on whose waves have all come to a barrier: the hardware counts arrivals, not addresses."""
        state, arrived = (each.reshape(-1, self.waves.waves_per_group) for each in (self.state, self._arrived))
        ready = arrived.any(axis=1) & (arrived | (state == _DONE)).all(axis=1)
        if not ready.any():
            return
        self._check_meeting(ready, arrived)
        state[(state == _WAITING) & ready[:, None]] = _RUNNING
        arrived[ready] = False
        if self.waves.lds is not None:
            self.waves.lds.barrier(self.waves, ready)

    def _check_meeting(self, ready: np.ndarray, arrived: np.ndarray) -> None:
        """No wave of a workgroup may have ended before a barrier that others are at."""
        odd = ready & (~arrived).any(axis=1)
        if not odd.any():
            return
        group = int(odd.argmax())
        program = format_program(self.waves.programs[group * self.waves.waves_per_group])
        places = sorted({int(b) for b in self.block.reshape(arrived.shape)[group][arrived[group]]})
        lines = [faults.at_line(self.code[b - 1].last).strip() or "a barrier" for b in places]
        ended = int((~arrived[group]).sum())
        raise faults.SimulationError(
            f"not all waves of program {program} reach the same barrier: some wait at {' and at '.join(lines)}, "
            f"and {ended} of its {len(arrived[group])} waves {'has' if ended == 1 else 'have'} ended. "
            "A barrier must not stand in a branch that only some threads take."
        )


class Forwards(Executor):
    """One wave of each workgroup after the other, as far as it comes: to a barrier or to its end.

    Hardware may do so too.  What goes wrong then is a race between the waves of a workgroup.
    """

    _step = 1

    def _turn(self, running: np.ndarray) -> bool:
        rank = np.arange(self.waves.count) % self.waves.waves_per_group * self._step
        return super()._turn(running & (rank == rank[running].min()))


class Backwards(Forwards):
    """The same, from the last wave to the first."""

    _step = -1


EXECUTORS: dict[str, type[Executor]] = {"": Executor, "forwards": Forwards, "backwards": Backwards}
