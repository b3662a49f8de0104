"""Processes that multiprocessing starts afresh (spawn, forkserver): they have the pretended GPU of their parent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing import spawn
from typing import Any


class _First:
    """Calls a function in the process that unpickles it."""

    def __init__(self, begin: Callable[[str], None], arch: str):
        self._begin, self._arch = begin, arch

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return self._begin, (self._arch,)


@contextlib.contextmanager
def children(begin: Callable[[str], None], arch: str) -> Iterator[None]:
    """Inside the block a new process calls `begin(arch)` before it imports the parent's script.

    What a new process is told at its start is pickled by multiprocessing, and this goes with it.
    """
    stock = spawn.get_preparation_data

    def told(name: str) -> dict[str, Any]:
        return {**stock(name), "gfxlab": _First(begin, arch)}

    spawn.get_preparation_data = told
    try:
        yield
    finally:
        spawn.get_preparation_data = stock
