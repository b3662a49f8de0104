"""The hardware's counters as rocprofv3 writes them; our own are tested with the command."""

import pytest

from gfxlab.counters import COUNTERS, hardware_counts
from gfxlab.counters.report import Counted

PROFILER = """#!/usr/bin/env python3
import csv, pathlib, sys
names = sys.argv[sys.argv.index("--pmc") + 1 : sys.argv.index("--output-format")]
if "SQ_INSTS_FLAT" in names:
    sys.exit("rocprofv3: SQ_INSTS_FLAT is unknown")
folder = pathlib.Path(sys.argv[sys.argv.index("--output-directory") + 1]) / "host"
folder.mkdir()
with (folder / "1_counter_collection.csv").open("w") as file:
    rows = csv.writer(file)
    rows.writerow(["Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value"])
    for launch in (1, 2):
        for part in (1, 2):
            for name in names:
                rows.writerow([launch, "add_kernel.kd", name, 10 * launch * part])
"""


def test_the_hardwares_counts_are_a_mean_over_launches_and_a_sum_over_the_gpus_parts(tmp_path, monkeypatch):
    (tmp_path / "rocprofv3").write_text(PROFILER)
    (tmp_path / "rocprofv3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    names = ["SQ_WAVES", "SQ_INSTS_FLAT", "SQ_INSTS_VALU"]
    found = hardware_counts.measured(["python", "kernels.py"], names)
    assert found == {"add_kernel": {"SQ_WAVES": 45.0, "SQ_INSTS_VALU": 45.0}}  # (10 + 20 + 20 + 40) / 2
    with pytest.raises(hardware_counts.ProfilerError, match="counted nothing: .*is unknown"):
        hardware_counts.measured(["python", "kernels.py"], ["SQ_INSTS_FLAT"])


def test_both_sides_stand_in_one_table():
    text = str(Counted("add_kernel", "gfx942", (4, 1, 1), {"SQ_WAVES": 16, "SQ_INSTS_MFMA": 0}, {"SQ_WAVES": 16.0}))
    assert "on the card" in text and "SQ_WAVES" in text and "SQ_INSTS_MFMA" not in text
    assert len({counter.name for counter in COUNTERS}) == len(COUNTERS) and all(counter.amd for counter in COUNTERS)
