"""Whether batches of waves that poll memory come nearer to their ends: many rounds about a lock are no deadlock."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from gfxlab.simulator.core.executor import Executor

_IN_A_ROW = 3  # looks that must show it: a number that only wanders about comes nearer once in a while


class Outlook:
    """Looks at the waves now and then. left: seconds of processor time until they end, at the rate of the last look."""

    def __init__(self) -> None:
        self.left = math.inf
        self._before: dict[int, dict[int, np.ndarray]] = {}
        self._looked, self._in_a_row, self._in_vain = time.process_time(), 0, 0

    @property
    def dark(self) -> bool:
        """Whether nothing had come nearer at any of the last looks."""
        return self._in_vain >= _IN_A_ROW

    @property
    def surely(self) -> bool:
        """Whether at each of the last looks an exit had come nearer for some waves, and no farther for any."""
        return self._in_a_row >= _IN_A_ROW

    def look(self, waiting: Sequence[Executor]) -> None:
        """Compare how far the waves are from their ends with what it was at the last look."""
        now, clock = {id(one): one.distances() for one in waiting}, time.process_time()
        rates = [
            self._left(old, distances[block], clock - self._looked)
            for one, distances in now.items()
            for block, old in self._before.get(one, {}).items()
            if block in distances
        ]
        first, self._before, self._looked = not self._before, now, clock
        self.left = max((rate for rate in rates if rate is not None), default=math.inf)
        nearer = self.left < math.inf
        self._in_a_row = self._in_a_row + 1 if nearer else 0
        self._in_vain = 0 if nearer or first else self._in_vain + 1

    @staticmethod
    def _left(old: np.ndarray, new: np.ndarray, seconds: float) -> float | None:
        """None where nothing has come nearer, or something has gone away."""
        if old.shape != new.shape or (new > old).any() or not (nearer := new < old).any():
            return None
        return float(np.max(new[nearer] / (old - new)[nearer])) * seconds
