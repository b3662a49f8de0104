"""The same counters measured by `rocprofv3` on an AMD GPU, where both are there."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_AT_ONCE = 4  # counters of the sequencer that one pass takes on every architecture here
_SECONDS = 600


class ProfilerError(RuntimeError):
    """rocprofv3 could not count; the message is its last line."""


def available() -> bool:
    """Whether there are an AMD GPU's device file and rocprofv3."""
    return os.path.exists("/dev/kfd") and shutil.which("rocprofv3") is not None


def measured(command: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Run a command under rocprofv3 as often as it takes.

    Args:
        command: what to run, for example [sys.executable, "my_kernels.py"].

    Returns:
        {kernel: {counter: its mean over the kernel's launches}}; counters that the GPU does not have are left out.

    Raises:
        ProfilerError: rocprofv3 failed for every counter.
    """
    sums: dict[tuple[str, str], list[float]] = {}
    problem = ""
    for start in range(0, len(names), _AT_ONCE):
        group = names[start : start + _AT_ONCE]
        try:
            _add(sums, _one_pass(command, group))
        except ProfilerError:
            for name in group:  # one of them is unknown: the others may do
                try:
                    _add(sums, _one_pass(command, [name]))
                except ProfilerError as error:
                    problem = str(error)
    if not sums:
        raise ProfilerError(f"rocprofv3 counted nothing: {problem or 'no kernel was launched'}")
    found: dict[str, dict[str, float]] = {}
    for (kernel, name), values in sums.items():
        found.setdefault(kernel, {})[name] = sum(values) / len(values)
    return found


def _one_pass(command: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--pmc", *names, "--output-format", "csv", "--output-directory", folder]
        done = subprocess.run(["rocprofv3", *options, "--", *command], capture_output=True, text=True, timeout=_SECONDS)
        rows = [row for path in Path(folder).rglob("*counter_collection.csv") for row in _rows(path)]
    if done.returncode or not rows:
        raise ProfilerError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return rows


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _add(sums: dict[tuple[str, str], list[float]], rows: list[dict[str, str]]) -> None:
    """Launches are told apart by their number; a counter may have a row for each part of the GPU."""
    launches: dict[tuple[str, str, str], float] = {}
    for row in rows:
        key = row["Kernel_Name"].removesuffix(".kd"), row["Counter_Name"], row.get("Dispatch_Id", "")
        launches[key] = launches.get(key, 0.0) + float(row["Counter_Value"])
    for (kernel, name, _), value in launches.items():
        sums.setdefault((kernel, name), []).append(value)


def of_script(path: Path, names: Sequence[str], arguments: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """`measured` of a Python script and what it is given."""
    return measured([sys.executable, str(path), *arguments], names)
