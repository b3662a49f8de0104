"""Where code asks for a time: a pretended GPU has none, it counts.

A launch that is only measured executes a few of its programs, as far apart as can be; what the whole would execute is
estimated from them. PyTorch's own operations on large tensors are left undone: nobody looks at their results.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gfxlab.pretended import measuring
from gfxlab.programs import format_grid, place
from gfxlab.simulator.show.run import Run

SAMPLE = 4  # programs of a launch that is only measured


@dataclass(frozen=True)
class Count:
    """A launch, measured. run: of `programs` of its programs; instructions: of all, by waves, estimated."""

    run: Run
    programs: int

    @property
    def of(self) -> int:
        """Programs of the grid."""
        x, y, z = self.run.grid
        return x * y * z

    @property
    def instructions(self) -> int:
        return round(self.run.instructions * self.of / self.programs)


def sample(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """A few programs of a grid, the first and the last among them."""
    total = grid[0] * grid[1] * grid[2]
    few = min(SAMPLE, total)
    return [place(i * (total - 1) // max(1, few - 1), grid) for i in range(few)]


class Untimed(float):
    """NaN, where milliseconds are expected. instructions: of waves, by all launches that were to be timed."""

    instructions: int
    launches: int

    def __new__(cls, counts: list[Count]) -> Untimed:
        made = super().__new__(cls, "nan")
        made.launches, made.instructions = len(counts), sum(count.instructions for count in counts)
        return made


def do_bench(
    fn: Callable[[], Any],
    warmup: Any = None,
    rep: Any = None,
    grad_to_none: Any = None,
    quantiles: Any = None,
    return_mode: str = "mean",
    **options: Any,
) -> Any:
    """triton.testing.do_bench that refuses to time: NaN for each time asked for, and what was counted in a line."""
    outer = measuring.block()
    if outer is not None:  # a tuner asks, which tells of its counts by itself
        fn()
    else:
        with measuring.measured() as counts:
            fn()
        _say(counts)
    untimed = Untimed(counts if outer is None else outer)
    if quantiles is not None:
        return [untimed] * len(quantiles) if len(quantiles) > 1 else untimed
    return [untimed] if return_mode == "all" else untimed


def _say(counts: list[Count]) -> None:
    parts = []
    for name, group in itertools.groupby(counts, key=lambda count: count.run.compiled.name):
        members = list(group)
        often = f"{len(members)} launches" if len(members) > 1 else f"grid {format_grid(members[0].run.grid)}"
        parts.append(f"{name} ({often}) {sum(m.instructions for m in members):,} wave-instructions")
    said = "; ".join(parts) or "no launch of a Triton kernel"
    print(f"gfxlab: a pretended GPU has no clock, so do_bench gives NaN; it counts {said}", file=sys.stderr)
