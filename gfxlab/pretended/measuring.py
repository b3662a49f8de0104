"""Whether what is called now is only measured, and where its launches are counted.

A backward pass runs in threads of PyTorch's own, which Python did not start: they belong to whoever measures. Threads
that the user started do their work as ever.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_here: ContextVar[list[Any] | None] = ContextVar("counts", default=None)
_lent: list[list[Any]] = []


def counts() -> list[Any] | None:
    """The list of the block that measures here, or None: everything is done whole."""
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
