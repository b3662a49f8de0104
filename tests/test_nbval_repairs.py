"""The repairs of nbval in the root conftest.py, seen from outside: pytest runs small notebooks in a child process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]


def run_nbval(folder: Path, *cells: tuple[str, str], options: tuple[str, ...] = ()) -> tuple[int, str, float]:
    """Run a notebook under the repository's settings, from another folder: exit status, output, seconds.

    cells: what each says, and the output that is stored with it, "" for none.
    """
    made = [
        new_code_cell(
            source, execution_count=1, outputs=[new_output("stream", name="stdout", text=stored)] if stored else []
        )
        for source, stored in cells
    ]
    notebook = folder / "notebook.ipynb"
    nbformat.write(new_notebook(cells=made), notebook)
    settings = ["-c", str(ROOT / "pyproject.toml"), "-p", "conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *settings, *options, "--nbval", str(notebook)]
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=110)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - started


def test_a_dead_kernel_is_reported_long_before_the_cell_timeout(tmp_path):
    status, output, seconds = run_nbval(tmp_path, ("import os; os._exit(1)", ""))
    assert status == 1
    assert "The kernel died while it ran this cell." in output
    assert seconds < 30  # the cell timeout is 120


def test_an_endless_loop_ends_at_the_cell_timeout(tmp_path):
    status, output, seconds = run_nbval(tmp_path, ("while True: pass", ""), options=("--nbval-cell-timeout=3",))
    assert status == 1
    assert "Timeout of 3 seconds exceeded" in output
    assert seconds < 30


def test_outputs_are_compared_but_not_addresses_and_a_semicolon_silences_a_cell(tmp_path):
    same, other = ("print(1 + 1)", "2\n"), ("print(1 + 2)", "4\n")
    address, silent = ("print(object())", "<object object at 0x7f0123456789>\n"), ("1 + 1;", "")
    status, output, _ = run_nbval(tmp_path, same, other, address, silent)
    assert status == 1
    assert re.findall(r"^FAILED .*::(Cell \d)", output, re.MULTILINE) == ["Cell 1"], output
    assert "1 failed, 3 passed" in output
