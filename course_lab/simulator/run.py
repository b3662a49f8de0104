"""What a simulated launch did: instructions by line and class, bytes, cache lines, bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from course_lab.amd.compiler import Compiled
from course_lab.simulator.executor import Executor
from course_lab.simulator.program import Program


@dataclass
class Run:
    compiled: Compiled
    program: Program
    grid: tuple[int, int, int]
    profiled: bool
    executed: np.ndarray = field(init=False)
    profile: object = None

    def __post_init__(self):
        self.executed = np.zeros(len(self.program.blocks), np.int64)

    def add(self, executor: Executor) -> None:
        self.executed += executor.executed
