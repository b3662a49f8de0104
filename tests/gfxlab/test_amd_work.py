"""What a launch has to do: bytes, FLOPs, the least time on each GPU; the reports of a file and of a notebook's cell."""

from __future__ import annotations

from pathlib import Path

import amd_kernels as kernels
import pytest
import torch
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from gfxlab import hardware
from gfxlab.code import amd_report, compare, magic
from gfxlab.code import work as works
from gfxlab.code.of_launches import launched
from gfxlab.engine import dual_mode
from gfxlab.tracing import trace

USER_FILE = str(Path(__file__).parent / "user_files" / "tutorial_kernels.py")


def add(**options):
    x, y, out = (torch.zeros(4096) for _ in range(3))
    return amd_report(kernels.add, x, y, out, 4096, BLOCK=1024, **options)


# ---- amounts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        ("v_add_f32 v0, v1, v2", (64, 0, "")),
        ("v_fmac_f32 v0, v1, v2", (128, 0, "")),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5]", (256, 0, "")),
        ("v_max_num_f32 v0, v1, v2", (64, 0, "")),
        ("v_dot2_f32_bf16 v0, v1, v2, v3", (256, 0, "")),
        ("v_add_f32_dpp v0, v1, v2", (64, 0, "")),
        ("v_dual_mul_f32 v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5", (192, 0, "")),
        ("v_add_u32 v0, v1, v2", (0, 0, "")),
        ("v_cvt_f32_bf16 v0, v1", (0, 0, "")),
        ("v_cmp_lt_f32 vcc, v0, v1", (0, 0, "")),
        ("v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], a[0:15]", (0, 16384, "bf16")),
        ("v_mfma_f32_32x32x8_bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]", (0, 16384, "bf16")),
        ("v_mfma_f32_4x4x4_16b_f16 a[0:3], v[0:1], v[2:3], a[0:3]", (0, 2048, "bf16")),
        ("v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15]", (0, 4096, "fp32 matrix")),
        ("v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[0:1], v[2:3], a[0:3]", (0, 16384, "fp8")),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", (0, 8192, "bf16")),
    ],
)
def test_flops_of_an_instruction_of_a_wave(text, expected):
    assert works.flops_of(text, 64) == expected


@pytest.mark.parametrize("grid", [(4,), 4, lambda meta: (4096 // meta["BLOCK"],)])
def test_with_a_grid_the_work_is_estimated_and_says_so(grid):
    report = add(grid=grid)
    assert (report.work.bytes, report.work.flops) == (3 * 4096 * 4, 4096)
    assert "estimated" in report.rows()["bytes to move"] and "estimated" in report.rows()["arithmetic"]
    assert add().work is None and "arithmetic" not in add().rows()


def test_one_tensor_given_twice_counts_once():
    x = torch.zeros(4096)
    assert amd_report(kernels.add, x, x, x, 4096, BLOCK=1024, grid=(4,)).work.bytes == 4096 * 4


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_the_simulator_counts_what_a_loop_repeats(arch):
    a, c = torch.ones(8 * 64 * 64, dtype=torch.bfloat16), torch.zeros(64, 64)
    launch = {"M": 64, "grid": (2,), "arch": arch}
    counted = amd_report(kernels.long_dot, a, a.clone(), c, 8, count=True, **launch).work
    assert (counted.matrix, counted.unit) == (2 * 2 * 64**3 * 8, "bf16")
    assert counted.flops_from == "counted by the simulator"
    assert amd_report(kernels.long_dot, a, a.clone(), c, 8, **launch).work.matrix < counted.matrix
    assert not c.any(), "the launch was counted on copies"


def test_a_traced_launch_knows_its_bytes():
    x, index = torch.zeros(64), torch.zeros(8, dtype=torch.int32)
    with trace() as launch:
        kernels.gather[(1,)](x, index, torch.empty(8), 8, BLOCK=8)
    assert launch.amd_report().work.bytes == 4 + 32 + 32  # one element of x
    assert "counted by the interpreter" in str(launch.amd_report())
    assert "counted by the simulator" in str(launch.amd_report(count=True))


def test_what_counting_needs_is_asked_for():
    with pytest.raises(ValueError, match=r"needs its grid: grid=\(4,\)"):
        add(count=True)
    with pytest.raises(TypeError, match="a signature has none"):
        amd_report(kernels.all_write_one, signature={"out_ptr": "*fp32"}, grid=(1,))


# ---- least times -----------------------------------------------------------------------------------------------------


def work(bytes: float = 1.0, vector: float = 0, matrix: float = 0, unit: str = "") -> works.Work:
    return works.Work(bytes, "", vector, matrix, unit, "")


def test_the_least_time_is_that_of_the_slowest_of_memory_vector_and_matrix_units():
    assert work(bytes=5.3e9, vector=1e6).bound("MI300X").seconds == pytest.approx(1e-3)
    assert work(vector=163.4e9, matrix=1e6, unit="bf16").bound("MI300X").seconds == pytest.approx(1e-3)
    assert work(vector=1e6, matrix=1307e9, unit="bf16").bound("MI300X").seconds == pytest.approx(1e-3)
    assert work(matrix=1307e9, unit="bf16").bound("MI300X").unit == "bf16"
    assert work(matrix=45.3e9, unit="fp32 matrix").bound("MI210").seconds == pytest.approx(1e-3)
    assert work(matrix=181e9, unit="fp8").bound("MI210").seconds == pytest.approx(1e-3), "it has no fp8 units"


def test_the_report_names_the_roof_on_five_cards():
    rows = add(grid=(4,)).rows()
    assert [key.split(", ")[1] for key in rows if key.startswith("least time")] == [*works.CARDS]
    assert {hardware.card(name).arch for name in works.CARDS} == {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}
    assert rows["least time, RX 7900 XTX"] == "51.2 ns, roof: memory (0.96 TB/s)"
    assert "roof: compute (bf16 rate)" in work(matrix=1e9, unit="bf16").rows()["least time, MI300X"]


def test_a_report_with_work_compares_with_one_without():
    both = compare(add(grid=(4,)), add(num_warps=8))
    assert {"bytes to move", "workgroup"} <= set(both.differences)
    assert "not known" in str(both)


# ---- the launches of somebody's code ---------------------------------------------------------------------------------


def test_a_launch_on_a_gpu_is_collected_too(monkeypatch):
    ran = []
    monkeypatch.setattr(dual_mode, "_belongs_on_cpu", lambda args, kwargs: False)
    monkeypatch.setattr(dual_mode, "_stock_run", lambda *_, **kwargs: ran.append(kwargs))
    x = torch.zeros(64)
    with launched() as found:
        kernels.add[lambda meta: (64 // meta["BLOCK"],)](x, x, x, 64, BLOCK=32, num_warps=2)
    (launch,) = found.launches
    assert (launch.name, launch.grid, launch.launch.meta) == ("add", (2, 1, 1), {"num_warps": 2}) and len(ran) == 1
    report = found.reports("gfx942")["add"]
    assert report.num_warps == 2 and "every tensor of the launch once" in str(report)


def test_the_kernels_of_a_file_that_knows_nothing_of_the_course(gfxlab):
    status, output, _ = gfxlab("report", USER_FILE, "--arch", "gfx950")
    assert status == 0
    assert output.startswith("softmax, matmul and layer norm agree with PyTorch\nsoftmax_kernel on gfx950\n")
    assert "matmul_kernel on gfx950\n" in output and "layer_norm_kernel on gfx950\n" in output
    assert output.count("least time, MI355X") == 3
    assert "mfma 32x32x16 f16 -> f32" in output


def test_one_kernel_of_a_file_with_its_listing_and_beside_another(gfxlab):
    status, output, _ = gfxlab("report", f"{USER_FILE}:matmul_kernel", "--against", "gfx1100", "--listing", "--count")
    assert status == 0
    assert "softmax_kernel on" not in output
    (title,) = [line for line in output.splitlines() if "matmul_kernel on gfx1100" in line]
    assert "matmul_kernel on gfx942" in title
    assert any(line.startswith("*") and "mfma" in line and "wmma" in line for line in output.splitlines())
    assert "acc = tl.dot(a, b, acc)" in output
    status, output, _ = gfxlab("report", f"{USER_FILE}:matmul_kernel", "--against", "softmax_kernel")
    titles = [line.split() for line in output.splitlines()]
    assert ["matmul_kernel", "on", "gfx942", "softmax_kernel", "on", "gfx942"] in titles


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("report", "nowhere.py"), "There is no file nowhere.py"),
        (("report", f"{USER_FILE}:nothing"), "It launches layer_norm_kernel, matmul_kernel, softmax_kernel."),
        (("report", USER_FILE, "--against", "gfx0"), "gfx0 is neither an architecture nor a kernel"),
    ],
)
def test_a_wrong_target_is_one_line(gfxlab, arguments, words):
    status, _, error = gfxlab(*arguments)
    ours = [line for line in error.splitlines() if words in line]
    assert status == 2 and len(ours) == 1 and ours == error.splitlines()[-1:] and "Traceback" not in error


# ---- %%amd -----------------------------------------------------------------------------------------------------------

CELL = """
import torch, triton
import triton.language as tl

@triton.jit
def twice_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(x_ptr + offs, x * 2, mask=offs < n)

@triton.jit
def zero_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)

x = torch.ones(1000)
twice_kernel[(2,)](x, 1000, BLOCK=512)
zero_kernel[(1,)](x, BLOCK=16)
"""


@pytest.fixture
def shell(monkeypatch):
    monkeypatch.setattr(magic, "_shown", {})
    return InteractiveShell()


def shown(shell, line: str, cell: str = CELL) -> str:
    with capture_output() as captured:
        magic.amd_cell(shell, line, cell)
    return captured.stdout + "".join(str(output) for output in captured.outputs)


def test_the_magic_runs_the_cell_and_shows_card_and_listing(shell):
    text = shown(shell, "  # a comment")
    assert "twice_kernel on gfx942\n" in text and "waves per SIMD" in text and "counted by the interpreter" in text
    assert "   9      x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)" in text, "%%amd is the cell's line 1"
    assert float(shell.user_ns["x"].sum()) == 2 * (1000 - 16)
    assert "zero_kernel on" not in text
    assert "zero_kernel on gfx1100" in shown(shell, "zero_kernel --arch gfx1100 --listing no")


def test_the_magic_puts_another_architecture_or_kernel_beside_it(shell):
    text = shown(shell, "--against gfx1201 --listing no")
    assert "twice_kernel on gfx1201" in text and "twice_kernel on gfx942" in text and "tl.load" not in text
    assert "zero_kernel on gfx942" in shown(shell, "--against zero_kernel --listing no")
    other = CELL.replace("twice_kernel", "other_kernel")
    assert "twice_kernel on gfx942" in shown(shell, "--against twice_kernel --listing no", other), "of the cell before"
    shell.user_ns["kept"] = add()
    assert "add on gfx942" in shown(shell, "--against kept --listing no")


@pytest.mark.parametrize(
    "line, cell, words",
    [
        ("--arch gfx9", CELL, "invalid choice: 'gfx9'"),
        ("--colour", CELL, "unrecognized arguments: --colour"),
        ("other_kernel", CELL, "launches no other_kernel. It launches twice_kernel, zero_kernel."),
        ("", "x = 1", "launches no kernel. Launch it in the same cell."),
        ("--against nothing", CELL, "--against takes an architecture"),
        ("", "1 / 0", "the cell failed, as shown above"),
        ("", CELL.replace("x * 2", "(lambda v: v)(x)"), "cannot contain a lambda"),
    ],
)
def test_what_the_magic_cannot_do_is_said_in_one_line(shell, line, cell, words):
    with pytest.raises(UsageError) as caught:
        shown(shell, line, cell)
    assert words in str(caught.value) and "\n" not in str(caught.value)
