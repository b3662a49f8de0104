"""Which GPU tensors on the CPU stand for: a simulated one inside a block, else none.

The simulator sets it; whoever chooses launch parameters by the GPU asks for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A simulated GPU: its LLVM architecture and how many compute units it has."""

    arch: str
    compute_units: int


_simulated: ContextVar[Target | None] = ContextVar("simulated", default=None)


def simulated() -> Target | None:
    """The GPU that is simulated here and now, or None."""
    return _simulated.get()


@contextlib.contextmanager
def simulating(target: Target) -> Iterator[None]:
    """Inside the block, launches on CPU tensors run on this simulated GPU."""
    token = _simulated.set(target)
    try:
        yield
    finally:
        _simulated.reset(token)
