"""Where the simulator's time goes: executions and processor time of each instruction, of one case of the survey.

`python -m course_lab.bench.steps "flash_attention, prefill"` runs it at the size at which speeds are compared. The time
of an instruction is the shortest of several runs, since other processes disturb most of them.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

import course_kernels as kernels
from course_lab.bench.survey import CASES, FOR_SPEED, Inputs
from gfxlab.simulator.context import using
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import Step
from gfxlab.tables import Table

_RUNS = 5
_ROWS = 20
_TOGETHER = "several together"


@dataclass
class Spent:
    """What executions of one step on so many waves took: how many, and the shortest, in seconds."""

    count: int = 0
    least: float = float("inf")


Found = dict[tuple[tuple[Decoded, ...], int], Spent]


def measure(case: str, runs: int = _RUNS, arch: str = "gfx942") -> Found:
    """Run a case so often; counts are those of all runs together."""
    found: Found = defaultdict(Spent)
    with kernels.use_backend("triton"), using(arch, executor=_timing(found)):
        for _ in range(runs):
            CASES[case](Inputs(torch.bfloat16, arch, FOR_SPEED[case]))
    return found


def _timing(found: Found) -> Callable[..., Executor]:
    class Timing(Executor):
        """Times each step."""

        def __init__(self, program, *args, **kwargs):
            super().__init__(program, *args, **kwargs)
            self.code = tuple(
                replace(code, steps=tuple(_timed(*one, found) for one in zip(code.instructions, code.steps)))
                for code in self.code
            )

    return Timing


def _timed(instructions: tuple[Decoded, ...], step: Step, found: Found) -> Step:
    def run(w):
        start = time.thread_time()
        step(w)
        spent = found[instructions, w.size]
        spent.least = min(spent.least, time.thread_time() - start)
        spent.count += 1

    return run


def table(found: Found, runs: int = _RUNS) -> str:
    """Markdown: for each mnemonic its executions in one run, waves of each, processor time of one and of all.

    What the compiled part does in one go is one row.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for (instructions, waves), spent in found.items():
        for name in (instructions[0].mnemonic if len(instructions) == 1 else _TOGETHER, "all"):
            one = sums[name]
            one[0] += spent.count
            one[1] += spent.count * waves
            one[2] += spent.count * spent.least
    rows = [
        (f"`{name}`", f"{count / runs:,.0f}", f"{waves / count:.0f}", f"{1e6 * t / count:.1f}", f"{1e3 * t / runs:.1f}")
        for name, (count, waves, t) in sorted(sums.items(), key=lambda item: -item[1][2])
    ]
    return Table(rows[:_ROWS], ("instruction", "executions", "waves", "µs each", "ms"), numbers=4).markdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=list(FOR_SPEED))
    torch.set_num_threads(1)
    print(table(measure(parser.parse_args().case)))


if __name__ == "__main__":
    main()
