"""pytest settings for the whole repository: two repairs of nbval 0.11.0, and a settings path that works everywhere.

nbval runs notebooks as tests. Two of its habits would hurt a learner:

- when a kernel dies, it waits for the whole cell timeout before it says so;
- a trailing semicolon does not silence a cell's output, as it does in JupyterLab, because nbval runs cells without
  history (IPython's display hook looks for the semicolon in the history).

Both repairs replace a method of nbval's private kernel class, so pyproject.toml pins nbval exactly, and
tests/test_nbval_repairs.py shows that they work.
"""

from __future__ import annotations

import time
from pathlib import Path
from queue import Empty

import pytest

POLL_SECONDS = 1.0


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin("nbval"):
        return
    sanitize_file = config.getoption("nbval_sanitize_with")
    if sanitize_file and not Path(sanitize_file).is_absolute():
        # nbval looks from the current folder; pytest may be started in any.
        config.option.nbval_sanitize_with = str(config.rootpath / sanitize_file)
    _repair_nbval()


def _repair_nbval() -> None:
    from nbval.kernel import RunningKernel

    RunningKernel.await_reply = _await_reply
    RunningKernel.execute_cell_input = _execute_cell_input


def _await_reply(kernel, msg_id: str, timeout: float | None = None) -> None:
    """Wait for the reply to a cell, and notice a dead kernel within a second or two."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            message = kernel.get_message(stream="shell", timeout=POLL_SECONDS)
        except Empty:
            if not kernel.is_alive():
                raise RuntimeError("The kernel died while it ran this cell.") from None
            if deadline is not None and time.monotonic() > deadline:
                raise  # nbval's own timeout handling: interrupt, then report
            continue
        if message["parent_header"].get("msg_id") == msg_id:
            return


def _execute_cell_input(kernel, cell_input: str, allow_stdin: bool | None = None) -> str:
    """Send a cell as JupyterLab does: with history, so that a trailing semicolon silences the output."""
    return kernel.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)
