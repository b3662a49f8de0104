"""Waves that wait for each other: who waits where, for which element, and who changed it last, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gfxlab.programs import format_program
from gfxlab.simulator.core import faults
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.memory import Region
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.core.state import Watcher, Waves

_NAMED = 3  # programs in the sentence


@dataclass(frozen=True)
class _Poll:
    """Where a wave looks again and again."""

    instruction: Decoded
    region: Region
    offset: int


class _Polls(Watcher):
    """Notes the last access of each wave that others could answer."""

    def __init__(self) -> None:
        self.of: dict[int, _Poll] = {}

    def load(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        for wave in range(w.size):
            on = np.ones(w.lanes, bool) if lanes is None else lanes[wave]
            if on.any() and (w.live is None or w.live[wave]):
                self.of[w.window.start + wave] = _Poll(instruction, region, int(offset[wave, int(on.argmax())]))

    atomic = load


def error(waiting: Sequence[Executor], checks, seconds: float | None = None) -> faults.SimulationError:
    """What to say of batches that only poll memory; seconds: for how long, None if their state repeats."""
    who: dict[str, str] = {}
    for one in waiting:
        for program, does in _programs(one, checks):
            who.setdefault(program, does)
    named = [f"program {program} {does}" for program, does in list(who.items())[:_NAMED]]
    more = f", and {len(who) - _NAMED:,} more programs wait" if len(who) > _NAMED else ""
    why = f"no wave has ended for {seconds:g} seconds" if seconds else "nothing changes any more"
    return faults.SimulationError(
        f"the launch does not end: {why}, and whoever is left waits. {'; '.join(named)}{more}. "
        "A program must not wait for one that waits for it, nor for one that has ended without an answer."
    )


def too_long(waiting: Sequence[Executor], seconds: float) -> faults.SimulationError:
    """What to say of batches that come nearer to their ends, but by so little that they take so long."""
    one = waiting[0]
    program = format_program(one.waves.programs[int(np.flatnonzero(one.left())[0])])
    return faults.SimulationError(
        f"program {program} of the launch has not ended yet: at this rate its loop takes {seconds / 60:,.0f} minutes "
        "more. Look at what ends the loop; if it is to take so long, give the launch less to do."
    )


def _programs(one: Executor, checks) -> list[tuple[str, str]]:
    """(program, what it waits for) of the waves that are left."""
    polls = _Polls()
    before, one.waves.watchers = one.waves.watchers, (polls,)
    if checks:
        checks.watch(one.waves)
    one.run()
    one.waves.watchers = before
    found = []
    for wave in np.flatnonzero(one.left()):
        program = format_program(one.waves.programs[wave])
        if int(wave) in polls.of:
            poll = polls.of[int(wave)]
            found.append((program, _waits_for(one.waves, poll, checks)))
        else:
            found.append((program, "waits at a barrier for waves of its own"))
    return found


def _waits_for(w: Waves, poll: _Poll, checks) -> str:
    by = checks.last_change(poll.region, poll.offset) if checks else None
    last = f", which program {format_program(by)} changed last" if by else ""
    return f"waits for {faults.place(w, poll.region.base + poll.offset)}{faults.at_line(poll.instruction)}{last}"
