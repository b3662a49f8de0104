"""Which test to try first on a mutant: the one that most likely kills it for its seconds."""

from __future__ import annotations

import mmap

import numpy as np


class Experience:
    """How often each test was tried on mutants of a kind, and killed; shared by all forks.

    A mutant is of several kinds: its function, its operator, all.
    """

    def __init__(self, kinds: list[str], seconds: list[float]) -> None:
        self._kinds = {kind: i for i, kind in enumerate(kinds)}
        self._cost = np.array(seconds) + 0.02
        shape = (2, len(kinds) + 1, len(seconds))
        self._counts = np.frombuffer(mmap.mmap(-1, 4 * int(np.prod(shape))), dtype=np.int32).reshape(shape)

    def ranked(self, tests: list[int], kinds: list[str]) -> list[int]:
        """These tests, the most promising first."""
        if not tests:
            return []
        tries, kills = self._counts[:, :, tests]
        likely = (kills[-1] + 0.1) / (tries[-1] + 1)
        for i in [self._kinds[kind] for kind in kinds]:  # each kind knows better than the one before
            likely = (kills[i] + likely) / (tries[i] + 1)
        return [tests[i] for i in np.argsort(-likely / self._cost[tests], kind="stable")]

    def learn(self, tried: list[int], killer: int | None, kinds: list[str]) -> None:
        """These were tried on a mutant, and the last of them may have killed it."""
        for i in [-1, *(self._kinds[kind] for kind in kinds)]:
            np.add.at(self._counts[0, i], tried, 1)
            if killer is not None:
                self._counts[1, i, killer] += 1
