"""How far a long launch is: whoever listens is told about twice a second, and a terminal shows it in one line."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TextIO

_SILENCE = 2.0  # seconds of a launch before the first word
_PAUSE = 0.5

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("progress", default=None)


class Progress:
    """Of one launch. `programs`: those that have ended; `tell` says so if it is time."""

    def __init__(self, name: str, grid: tuple[int, int, int]):
        self._name, self._all = name, math.prod(grid)
        self._listener = _listener.get()
        self._start = time.monotonic()
        self._next = self._start + _SILENCE
        self.programs = 0
        self._said = False

    def end(self) -> None:
        """The launch is over: the line goes, what the script prints next stands alone."""
        if self._said:
            self._listener("")

    def tell(self, instructions: int) -> None:
        """instructions: that the waves have executed so far."""
        if self._listener is None or (now := time.monotonic()) < self._next:
            return
        self._next, self._said = now + _PAUSE, True
        self._listener(
            f"{self._name}: {self.programs:,} of {self._all:,} programs, "
            f"{instructions / 1e6:,.1f} million instructions, {now - self._start:.0f} s"
        )


@contextlib.contextmanager
def checked(check: Callable[[], None]) -> Iterator[None]:
    """Inside the block `check` is called as often as a long launch would be told of; it may raise to end the launch."""
    outer = _listener.get()

    def listen(text: str) -> None:
        check()
        if outer is not None:
            outer(text)

    token = _listener.set(listen)
    try:
        yield
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def line_on(stream: TextIO) -> Iterator[None]:
    """Inside the block, launches that take long show a line on a terminal, which goes when they end.

    What is no terminal stays as it is.
    """
    if not stream.isatty():
        yield
        return
    width = 0

    def show(text: str) -> None:
        nonlocal width
        stream.write(f"\r{text:{width}}" + ("" if text else "\r"))
        stream.flush()
        width = len(text)

    token = _listener.set(show)
    try:
        yield
    finally:
        _listener.reset(token)
        if width:
            stream.write(f"\r{'':{width}}\r")
            stream.flush()
