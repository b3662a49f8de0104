"""What a page shows while somebody waits: one line that is written anew and leaves nothing to be seen.

It is neither a widget, which a saved notebook shows as "Error displaying widget", nor the error stream, which
JupyterLab paints pink. A terminal gets tqdm's bar; a notebook that is being built or tested gets nothing.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

DELAY = 0.5  # seconds before the line appears: most checks are done by then


def notebook_kernel() -> Any:
    """The notebook kernel that this is; None in a script and in a terminal's IPython."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None)


def somebody_watches() -> bool:
    """Whether a person started this: a terminal, or a notebook cell that could ask for input.

    nbclient and nbval forbid input; that tells a notebook that is being built or tested from one that is being read.
    """
    kernel = notebook_kernel()
    if kernel is not None:
        return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))
    return sys.stderr.isatty()


def progress_bar(total: int | None, description: str, unit: str, show: bool) -> tqdm:
    """A tqdm bar that goes away when it is done; hidden unless `show` and somebody is watching."""
    hidden = not (show and somebody_watches())
    file = Line() if notebook_kernel() and not hidden else None
    return tqdm(total=total, desc=description, unit=unit, leave=False, disable=hidden, file=file)


class Line:
    """One line of a cell's output. It is also a file to which tqdm can write its bar."""

    def __init__(self) -> None:
        self._handle = None

    @property
    def was_shown(self) -> bool:
        return self._handle is not None

    def show(self, text: str) -> None:
        """Replace what the line says; with no text, nothing of it is seen any more."""
        data = {"text/plain": text} if text else {}
        if self._handle:
            self._handle.update(data, raw=True)
        elif text:
            from IPython.display import display

            self._handle = display(data, raw=True, display_id=True)

    def write(self, text: str) -> None:
        """Show what a terminal would: tqdm begins anew with a carriage return, and wipes with blanks."""
        if text.strip("\r"):
            self.show(text.strip())

    def flush(self) -> None:
        """Nothing is held back."""


class Waiting:
    """Say in a cell of its own what is being done and for how long, from DELAY seconds on.

        with Waiting("2.1") as tell:
            tell("case 3 of 7")      # "2.1: case 3 of 7, 4 s"

    All output of the cell is cleared at the end, when the line was shown; so nothing else may be shown meanwhile.
    """

    def __init__(self, name: str) -> None:
        self._name, self._stage, self._line = name, "running", Line()
        self._done = threading.Event()
        self._ticks: threading.Thread | None = None

    def __enter__(self) -> Callable[[str], None]:
        if notebook_kernel() and somebody_watches():
            run = contextvars.copy_context().run  # the thread writes to this cell
            self._ticks = threading.Thread(target=run, args=(self._tick,), daemon=True)
            self._ticks.start()
        return self._tell

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._ticks:
            self._ticks.join()
        if self._line.was_shown:
            from IPython.display import clear_output

            clear_output()

    def _tell(self, stage: str) -> None:
        self._stage = stage

    def _tick(self) -> None:
        started, pause = time.monotonic(), DELAY
        while not self._done.wait(pause):
            self._line.show(f"{self._name}: {self._stage}, {time.monotonic() - started:.0f} s")
            pause = 1.0
