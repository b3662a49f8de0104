"""The repairs of nbval in the root conftest.py, seen from outside: pytest runs small notebooks in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]


def run_nbval(folder: Path, source: str, *options: str, stored: str = "") -> tuple[int, str, float]:
    """Run a notebook of one cell under the repository's settings, from another folder: exit status, output, seconds."""
    outputs = [new_output("stream", name="stdout", text=stored)] if stored else []
    cell = new_code_cell(source, execution_count=1, outputs=outputs)
    notebook = folder / "notebook.ipynb"
    nbformat.write(new_notebook(cells=[cell]), notebook)
    settings = ["-c", str(ROOT / "pyproject.toml"), "-p", "conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *settings, *options, "--nbval", str(notebook)]
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=110)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - started


def test_a_dead_kernel_is_reported_long_before_the_cell_timeout(tmp_path):
    status, output, seconds = run_nbval(tmp_path, "import os; os._exit(1)")
    assert status == 1
    assert "The kernel died while it ran this cell." in output
    assert seconds < 30  # the cell timeout is 120


def test_a_trailing_semicolon_silences_the_output(tmp_path):
    status, output, _ = run_nbval(tmp_path, "1 + 1;")
    assert status == 0, output


def test_an_endless_loop_ends_at_the_cell_timeout(tmp_path):
    status, output, seconds = run_nbval(tmp_path, "while True: pass", "--nbval-cell-timeout=3")
    assert status == 1
    assert "Timeout of 3 seconds exceeded" in output
    assert seconds < 30


@pytest.mark.parametrize(("stored", "expected_status"), [("2\n", 0), ("3\n", 1)])
def test_a_stored_output_is_compared(tmp_path, stored, expected_status):
    status, output, _ = run_nbval(tmp_path, "print(1 + 1)", stored=stored)
    assert status == expected_status, output


def test_a_memory_address_is_not_compared(tmp_path):
    status, output, _ = run_nbval(tmp_path, "print(object())", stored="<object object at 0x7f0123456789>\n")
    assert status == 0, output
