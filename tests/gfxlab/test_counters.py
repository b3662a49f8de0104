"""The hardware's counters as rocprofv3 writes them; our own are tested with the command."""

from types import SimpleNamespace

import pytest

from gfxlab.counters import COUNTERS, hardware_counts, of_run
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


@pytest.mark.parametrize(
    ("mnemonic", "name"),
    [
        ("v_mfma_f32_16x16x32_fp8_bf8", "F8"),
        ("v_mfma_f32_16x16x8_xf32", "XF32"),
        ("v_mfma_f32_16x16x4_f32", "F32"),
        ("v_mfma_f32_16x16x16_bf16", "BF16"),
        ("v_mfma_f32_16x16x16_f16", "F16"),
        ("v_mfma_f32_32x32x4_2b_f16", "F16"),
        ("v_mfma_i32_16x16x32_i8", "I8"),
        ("v_mfma_f64_16x16x4_f64", "F64"),
    ],
)
def test_matrix_instructions_and_operations_count_under_the_type_of_their_operands(mnemonic, name):
    m, n, k = (int(part) for part in mnemonic.split("_")[3].split("x"))
    found = _counted(mnemonic, f"{mnemonic} a[0:3], v[0:1], v[2:3], 0")
    blocks = 2 if "_2b_" in mnemonic else 1
    expected = {f"SQ_INSTS_VALU_MFMA_MOPS_{name}": 3 * 2 * m * n * k * blocks // 512}
    expected |= {f"SQ_INSTS_VALU_MFMA_{name}": 3} if name not in ("F8", "XF32") else {}  # AMD has none for these
    assert {name: n for name, n in found.items() if n and "VALU_MFMA" in name} == expected
    assert found["SQ_INSTS_MFMA"] == found["SQ_INSTS_VALU"] == 3


@pytest.mark.parametrize(("arch", "lds"), [("gfx90a", 3), ("gfx942", 0), ("gfx1100", 0)])
def test_flat_instructions_count_as_lds_on_gfx90a_alone(arch, lds):
    """AMD's definition: "MI200: includes flat; MI300: does not include flat"."""
    found = _counted("flat_load_dword", "flat_load_dword v1, v[2:3]", arch)
    assert (found["SQ_INSTS_LDS"], found["SQ_INSTS_FLAT"], found["SQ_INSTS_VMEM_RD"]) == (lds, 3, 3)
    assert _counted("ds_read_b32", "ds_read_b32 v1, v2", arch)["SQ_INSTS_LDS"] == 3
    assert _counted("global_load_dword", "global_load_dword v1, v[2:3], off", arch)["SQ_INSTS_LDS"] == 0


def _counted(mnemonic, text, arch="gfx942"):
    """Of a program of this instruction alone, executed by three waves."""
    program = SimpleNamespace(
        blocks=[slice(0, 1)], instructions=[SimpleNamespace(mnemonic=mnemonic, text=text)], lanes=64
    )
    compiled = SimpleNamespace(arch=arch, num_warps=3)
    return of_run(SimpleNamespace(program=program, executed=[3], compiled=compiled, grid=(1, 1, 1), profile=None))
