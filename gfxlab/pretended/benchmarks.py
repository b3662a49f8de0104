"""Benchmarks that would take hours on a simulator: so much of each is done whole, and the rest is only measured.

A row of `triton.testing.perf_report` measures by `do_bench`, which counts and gives NaN; but it also makes its data, or
runs a forward pass whole before a backward one is timed. Nobody looks at the results of that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import triton.testing

from gfxlab.pretended import measuring, profiling

SECONDS = 60.0  # of processor time that a row of a benchmark may take besides what it measures


@contextlib.contextmanager
def limited(seconds: float = SECONDS, sessions: bool = False) -> Iterator[list[str]]:
    """Inside the block a benchmark's work beyond so many seconds of processor time is counted, not done.

    Its launches execute a few of their programs then, as under `do_bench`, and PyTorch's operations on large tensors
    are left undone: what they would have computed is nowhere. One line on the error stream names the benchmark.

    Args:
        seconds: for each row of a `perf_report`.
        sessions: a session of Proton, from its start to its end, is such a benchmark, too.

    Returns:
        the names of the benchmarks that had no time left.
    """
    found: list[str] = []
    stock = triton.testing.Mark._run

    def run(mark: Any, bench: Any, *args: Any, **options: Any) -> Any:
        function, mark.fn = mark.fn, _row(bench, mark.fn, seconds, found)
        try:
            return stock(mark, bench, *args, **options)
        finally:
            mark.fn = function

    triton.testing.Mark._run = run
    try:
        with profiling.within(lambda name: _begin(f"Proton's session {name}", seconds, found) if sessions else None):
            yield found
    finally:
        triton.testing.Mark._run = stock


def _row(bench: Any, function: Callable[..., Any], seconds: float, found: list[str]) -> Callable[..., Any]:
    shown = (*bench.x_names, bench.line_arg)

    def row(**given: Any) -> Any:
        sizes = ", ".join(f"{name}={given[name]}" for name in shown)
        with _begin(f"{bench.plot_name or function.__name__}, {sizes}", seconds, found):
            return function(**given)

    return row


def _begin(name: str, seconds: float, found: list[str]) -> contextlib.AbstractContextManager[measuring.Benchmark]:
    def over() -> None:
        found.append(name)
        print(
            f"gfxlab: {name}: {seconds:g} s of processor time are spent (--bench-limit); the rest of it is counted "
            "from a few programs of each launch, and what it would compute is not computed",
            file=sys.stderr,
        )

    return measuring.benchmark(seconds, over)
