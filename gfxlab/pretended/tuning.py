"""@triton.autotune on a pretended GPU: what does not fit is pruned, the fewest executed instructions win.

For each tuning a table tells what the compiler made of each configuration.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any

from triton.runtime.autotuner import Autotuner, OutOfResources

from gfxlab.code.report import AmdReport, measure
from gfxlab.pretended import counting, measuring
from gfxlab.tables import Table

_HEAD = ("", "configuration", "VGPRs", "spilled", "LDS", "waves a SIMD", "instructions", "executed")
CHOSEN_BY = "the fewest wave-instructions that the whole launch executes"

_stock_bench, _stock_run = Autotuner._bench, Autotuner.run


@contextlib.contextmanager
def by_count(arch: str) -> Iterator[None]:
    """Inside the block tuners choose by a count; what they chose is remembered for this architecture alone."""

    def run(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        caches = vars(tuner).setdefault("gfxlab_caches", {})
        before, tuner.cache = tuner.cache, caches.setdefault(arch, {})
        known = set(tuner.cache)
        tuner.gfxlab_rows = {}
        try:
            return _stock_run(tuner, *args, **kwargs)
        finally:
            if tuner.gfxlab_rows:
                _say(tuner, arch, set(tuner.cache) - known)
            tuner.cache = before

    stock = {name: vars(Autotuner)[name] for name in ("_bench", "run", "check_disk_cache")}
    Autotuner._bench, Autotuner.run = _bench, run
    Autotuner.check_disk_cache = lambda tuner, key, configs, bench: bench() and False  # counts are no times to keep
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(Autotuner, name, function)


def _bench(tuner: Autotuner, *args: Any, config: Any, **meta: Any) -> list[float]:
    """Instead of a time: the count; infinite for a configuration that does not fit."""
    with measuring.measured() as counts, _untimed(tuner), _reasons() as reasons:
        found = _stock_bench(tuner, *args, config=config, **meta)
    times = found if isinstance(found, list | tuple) else [found]
    report = measure(counts[-1].run.compiled) if counts else None
    executed = sum(count.instructions for count in counts)
    rows = vars(tuner).setdefault("gfxlab_rows", {})  # a tuner of the user's own may run without `by_count`'s `run`
    rows[config] = (report, executed, reasons[-1] if reasons else "")
    return [float(executed) if math.isnan(time) else time for time in times]


@contextlib.contextmanager
def _untimed(tuner: Autotuner) -> Iterator[None]:
    """The tuner's own stopwatch runs the call once; a measure that its author gave is asked as it is."""
    if tuner._do_bench is not None:
        yield
        return
    tuner.do_bench = lambda call, quantiles=None: counting.do_bench(call, quantiles=quantiles)
    try:
        yield
    finally:
        del tuner.do_bench


@contextlib.contextmanager
def _reasons() -> Iterator[list[str]]:
    """What OutOfResources says inside the block; Triton catches it and keeps it to itself."""
    said: list[str] = []
    stock = OutOfResources.__init__

    def note(error: OutOfResources, required: int, limit: int, name: str) -> None:
        stock(error, required, limit, name)
        said.append(f"does not fit: {required:,} of {limit:,} bytes of {name}")

    OutOfResources.__init__ = note
    try:
        yield said
    finally:
        OutOfResources.__init__ = stock


def _say(tuner: Autotuner, arch: str, keys: set) -> None:
    rows = tuner.gfxlab_rows
    best = next((tuner.cache[key] for key in keys), None)
    cells = [_cells(config, *row, chosen=config is best) for config, row in rows.items()]
    title = f"{tuner.base_fn.__name__} on {arch}: {len(rows)} configurations, chosen (*) by {CHOSEN_BY}"
    print(f"gfxlab: {title}\n{Table(cells, _HEAD, numbers=6).text('  ')}", file=sys.stderr)


def _cells(config: Any, report: AmdReport | None, executed: int, reason: str, chosen: bool) -> tuple[str, ...]:
    settings = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    if report is None:
        return ("", words, "", "", "", "", "", reason or "refused by a static assertion")
    figures = (report.vgprs, report.spills, f"{report.lds:,}", f"{report.occupancy.waves:g}")
    return ("*" if chosen else "", words, *map(str, figures), f"{report.instructions:,}", f"{executed:,}")
