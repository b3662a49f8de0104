"""The workgroups of a launch, a batch at a time: as many as a cache holds, and more of them where some wait for others.

On a GPU the workgroups that fit run at the same time, and one may wait for another's flag.  Here a batch runs to its
end before the next begins, unless it only polls memory: then the next one begins, and those that wait are tried again.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gfxlab.simulator.core import deadlock
from gfxlab.simulator.core.executor import LONGEST, Executor
from gfxlab.simulator.core.memory import GlobalMemory
from gfxlab.simulator.core.outlook import Outlook
from gfxlab.simulator.core.progress import Progress
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.show.run import Run

Place = tuple[int, int, int]
_SHARE = np.array((0.8, 0.6))  # of the time without an end, by the clock and of the processor: others may keep it busy


def _clocks() -> np.ndarray:
    return np.array((time.monotonic(), time.process_time()))


class Batches:
    """Executes a launch.

    begin: makes the waves of some workgroups. groups: how many of them a batch has. seconds: how long all that is left
    may poll memory.
    """

    def __init__(
        self,
        run: Run,
        memory: GlobalMemory,
        places: Iterable[Place],
        *,
        begin: Callable[[Sequence[Place]], Waves],
        executor: Callable[..., Executor],
        groups: int,
        budget: int,
        seconds: float,
        progress: Progress,
    ):
        self._run, self._memory = run, memory
        self._places, self._groups = iter(places), groups
        self._begin, self._executor = begin, executor
        self._budget, self._seconds = budget, seconds
        self._waiting: list[Executor] = []
        self._progress, self._all = progress, budget

    def execute(self) -> None:
        """Run every workgroup to its end.

        Raises:
            SimulationError: one does what it may not, or those that are left wait for each other.
        """
        try:
            self._execute()
        finally:
            self._progress.end()

    def _execute(self) -> None:
        while batch := list(itertools.islice(self._places, self._groups)):
            waves = self._begin(batch)
            if self._run.checks:
                self._run.checks.begin(waves, self._run.compiled.lds)
            left = self._budget - sum(one.spent for one in self._waiting)
            self._waiting.append(self._executor(self._run.program, waves, left, tell=self._tell))
            self._try_all()
        self._until_all_end()

    def _try_all(self) -> None:
        """Give each batch its turn, the latest first: who waits may wait for it."""
        self._waiting = [one for one in reversed(self._waiting) if not self._go_on(one)][::-1]

    def _go_on(self, one: Executor) -> bool:
        """Whether it has ended."""
        if self._run.checks:
            self._run.checks.watch(one.waves)
        if not one.run():
            return False
        self._run.add(one)
        self._budget -= one.spent
        self._progress.programs += one.waves.count // one.waves.waves_per_group
        if self._run.checks:
            self._run.checks.end(one.waves)
        return True

    def _tell(self, spent: int) -> None:
        self._progress.tell(self._all - self._budget + spent)

    def _until_all_end(self) -> None:
        ended, since, seen, outlook = -1, _clocks(), set(), Outlook()
        for one in self._waiting:
            one.measure()
        while self._waiting:
            self._try_all()
            now = self._budget, sum(one.ended for one in self._waiting), len(self._waiting)
            if now != ended:
                ended, since, seen, outlook = now, _clocks(), set(), Outlook()
                continue
            outlook.look(self._waiting)
            if outlook.surely and outlook.left > LONGEST:
                raise deadlock.too_long(self._waiting, outlook.left)
            since = _clocks() if outlook.surely else since
            state = self._fingerprint()
            if state in seen:  # the same registers and the same memory: it will go on so for ever
                raise deadlock.error(self._waiting, self._run.checks)
            seen.add(state)
            if outlook.dark and all(gone > enough for gone, enough in zip(_clocks() - since, self._seconds * _SHARE)):
                raise deadlock.error(self._waiting, self._run.checks, self._seconds)

    def _fingerprint(self) -> int:
        memory = (zlib.crc32(np.ascontiguousarray(region.bytes.u8)) for region in self._memory.regions)
        return hash((*(one.fingerprint() for one in self._waiting), *memory))
