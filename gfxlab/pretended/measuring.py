"""Whether what is called now is only measured, and where its launches are counted.

A backward pass runs in threads of PyTorch's own, which Python did not start: they belong to whoever measures. Threads
that the user started do their work as ever.

A benchmark does work besides what it measures: a forward pass, before a backward one is timed. Inside `benchmark` that
work is done whole for so many seconds; what comes after is only measured.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

_here: ContextVar[list[Any] | None] = ContextVar("counts", default=None)
_lent: list[list[Any]] = []
_benchmarks: list[Benchmark] = []


@dataclass
class Benchmark:
    """What a benchmark may do whole. seconds: of processor time; over: called once, when they are spent."""

    seconds: float
    over: Callable[[], None]
    spent: float = 0.0
    counts: list[Any] | None = None  # of what is only measured, once the time is spent
    known: dict[Any, Any] = field(default_factory=dict)  # the counts of launches that come again

    def check(self, more: float = 0.0) -> None:
        """Raises Over when the seconds, and so many that are not added yet, are spent."""
        if self.counts is None and self.spent + more > self.seconds:
            self.counts = []
            self.over()
        if self.counts is not None:
            raise Over


class Over(Exception):
    """The time of a benchmark is spent in the midst of a launch."""


def counts() -> list[Any] | None:
    """The list of the block that measures here, or None: everything is done whole."""
    found = block()
    if found is None and _benchmarks:
        return _benchmarks[-1].counts
    return found


def block() -> list[Any] | None:
    """As `counts`, but of a block that asked to be measured, and not of what a benchmark had no time for."""
    found = _here.get()
    if found is not None or not _lent:
        return found
    foreign = threading.current_thread().name.startswith("Dummy-")
    return _lent[-1] if foreign else None


@contextlib.contextmanager
def measured() -> Iterator[list[Any]]:
    """Inside the block launches are only measured; the list grows by one each."""
    found: list[Any] = []
    outer = _here.set(found)
    _lent.append(found)
    try:
        yield found
    finally:
        _lent[:] = [other for other in _lent if other is not found]
        _here.reset(outer)


@contextlib.contextmanager
def benchmark(seconds: float, over: Callable[[], None]) -> Iterator[Benchmark]:
    """Inside the block so many seconds of processor time are done whole; then `over` is called, and all is measured."""
    found = Benchmark(seconds, over)
    _benchmarks.append(found)
    if seconds <= 0:
        with contextlib.suppress(Over):
            found.check(more=1)
    try:
        yield found
    finally:
        _benchmarks[:] = [other for other in _benchmarks if other is not found]


@contextlib.contextmanager
def whole() -> Iterator[Benchmark | None]:
    """Inside the block something is done whole: in a benchmark its processor time is counted."""
    if not _benchmarks or block() is not None:
        yield None
        return
    found, start = _benchmarks[-1], time.process_time()
    try:
        yield found
    finally:
        found.spent += time.process_time() - start
        with contextlib.suppress(Over):
            found.check()


def known() -> dict[Any, Any]:
    """Counts of launches that come again, where a benchmark has no time left; elsewhere an empty dict, kept nowhere."""
    if block() is None and _benchmarks and _benchmarks[-1].counts is not None:
        return _benchmarks[-1].known
    return {}
