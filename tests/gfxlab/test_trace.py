"""The trace of a launch: what was recorded, the ledger's arithmetic, the picture's pieces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import amd_kernels as kernels
import pytest
import torch

from gfxlab.tracing import trace


def add(n: int = 98, block: int = 32, **options):
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    with trace(**options) as launch:
        kernels.add[(-(-n // block),)](x, y, out, n, BLOCK=block)
    assert torch.equal(out, x + y)
    return launch


# ---- what is recorded ------------------------------------------------------------------------------------------------


def test_a_launch_is_recorded_with_its_arguments_and_accesses():
    launch = add()
    assert (launch.name, launch.grid, launch.programs) == ("add", (4, 1, 1), 4)
    assert launch.args["n"] == 98 and launch.args["BLOCK"] == 32
    assert [(a.kind, a.tensor) for a in launch.accesses[:3]] == [
        ("load", "x_ptr"),
        ("load", "y_ptr"),
        ("store", "out_ptr"),
    ]
    last = launch.accesses[-1]
    assert last.program == (3, 0, 0) and last.elements[:3].tolist() == [96, 97, -1] and last.mask.sum() == 2
    assert last.lanes.tolist() == list(range(96, 128))
    assert str(launch) == "add, grid 4: 12 loads and stores"


def test_several_launches_are_kept_apart_and_the_first_is_shown():
    x = torch.zeros(64)
    with trace() as launches:
        kernels.add[(2,)](x, x, torch.empty(64), 64, BLOCK=32)
        kernels.row_sum[(8,)](torch.zeros(8, 8), torch.empty(8), 8, BLOCK=8)
    assert len(launches) == 2 and [launch.name for launch in launches] == ["add", "row_sum"]
    assert launches.name == "add" and launches[1].grid == (8, 1, 1)
    assert "row_sum: stores to out_ptr" in str(launches[1].picture())
    assert "add: stores to out_ptr" in str(launches.picture())


def test_nothing_launched_is_an_error_that_says_what_to_do():
    with trace() as launch:
        pass
    with pytest.raises(ValueError, match="no launch was traced.*CPU tensors"):
        launch.ledger()


def test_a_launch_that_fails_keeps_what_was_seen():
    recorder = trace()
    with pytest.raises(IndexError), recorder:
        kernels.add[(1,)](torch.zeros(4), torch.zeros(4), torch.zeros(4), 8, BLOCK=8)
    assert recorder[0].name == "add"
    with trace() as after:
        kernels.add[(1,)](torch.zeros(4), torch.zeros(4), torch.zeros(4), 4, BLOCK=8)
    assert len(after) == 1 and len(recorder) == 1


def test_beyond_the_cap_the_ledger_still_counts_and_the_note_says_so():
    launch = add(max_lanes=100)
    assert len(launch.accesses) == 3 and launch.left_out == 9
    assert "9 more not kept" in str(launch) and "first 3 accesses only" in str(launch.picture())
    assert launch.ledger().bytes == add().ledger().bytes


# ---- the ledger ------------------------------------------------------------------------------------------------------


def test_bytes_are_active_lanes_times_element_size():
    ledger = add().ledger()
    assert (ledger["x_ptr"].read, ledger["x_ptr"].written, ledger["x_ptr"].masked_lanes) == (98 * 4, 0, 30)
    assert (ledger["out_ptr"].read, ledger["out_ptr"].written) == (0, 98 * 4)
    assert ledger.bytes == ledger.least == 3 * 98 * 4 and ledger.score == 1.0 and not ledger.notes()
    with pytest.raises(KeyError, match="no tensor 'z'; it has x_ptr, y_ptr, out_ptr"):
        ledger["z"]


def test_reading_again_costs_and_is_named():
    x = torch.zeros(8)
    index = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1], dtype=torch.int32)
    with trace() as launch:
        kernels.gather[(1,)](x, index, torch.empty(8), 8, BLOCK=8)
    ledger = launch.ledger()
    assert (ledger["x_ptr"].read, ledger["x_ptr"].least_read) == (32, 8)
    assert ledger.notes() == ["x_ptr: each element is asked for 4 times; only a cache can save that."]
    assert ledger.score == pytest.approx((8 + 32 + 32) / 96)


def test_one_element_in_a_thousand_read_again_is_told_in_bytes():
    """To say "asked for 1 times" would be to say that nothing is wrong."""
    index = torch.arange(1024, dtype=torch.int32)
    index[-1] = 0
    with trace() as launch:
        kernels.gather[(1,)](torch.zeros(1024), index, torch.empty(1024), 1024, BLOCK=1024)
    assert launch.ledger().notes() == ["x_ptr: 4 bytes are read again; only a cache can save that."]


def test_stores_of_several_programs_and_elements_never_written_are_named():
    with trace() as launch:
        kernels.all_write_one[(4,)](torch.zeros(3))
    row = launch.ledger()["out_ptr"]
    assert (row.written, row.least_written) == (16, 4)
    assert (row.written_again, row.written_by_several, row.never_written) == (1, 1, 2)
    assert "1 element stored by more than one program; the last wins" in str(launch.ledger())
    assert "2 elements never written" in launch.ledger()._repr_html_()


def test_a_write_conflict_names_its_programs_its_place_and_its_line():
    with trace() as launch:
        kernels.all_write_one[(4,)](torch.zeros(3))
    row = launch.ledger()["out_ptr"]
    line = next(a.line for a in launch.accesses)
    assert row.conflict == f"programs 0 and 1 both store element 0 (line {line})"
    assert row.first_missing == "element 1"
    assert f"First, {row.conflict}; on a GPU either may be the last." in str(launch.ledger())
    x, out = torch.zeros(10, 12), torch.empty(10, 12)
    with trace() as launch:
        kernels.copy_2d[(1, 2)](x, out, 10, 12, 12, BLOCK_M=8, BLOCK_N=8)
    row = launch.ledger()["y_ptr"]
    assert (row.conflict, row.first_missing, row.never_written) == ("", "row 8, column 0", 2 * 12)
    with trace() as launch:
        kernels.copy_2d[(2, 2)](x, out, 10, 12, 0, BLOCK_M=8, BLOCK_N=8)  # a stride of 0: every row on the first
    assert launch.ledger()["y_ptr"].conflict.startswith("programs (0, 0) and (1, 0) both store row 0, column 0")


def test_elements_read_more_than_once_are_counted():
    x, index = torch.zeros(8), torch.tensor([0, 0, 1, 1, 1, 5, 6, 7], dtype=torch.int32)
    with trace() as launch:
        kernels.gather[(1,)](x, index, torch.empty(8), 8, BLOCK=8)
    assert [row.read_again for row in launch.ledger().rows] == [2, 0, 0]


BROKEN = """
import warnings
from triton.runtime import interpreter
del interpreter.InterpreterBuilder.create_atomic_cas
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch, amd_kernels
    import gfxlab
    gfxlab.enable()
from gfxlab import trace
print(*(warning.message for warning in said))
with trace() as launch:
    amd_kernels.count[(1,)](torch.zeros(1))
print(launch.ledger())
"""


def test_a_triton_that_has_changed_inside_is_said_to_hide_something():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", BROKEN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    warned, *ledger = done.stdout.splitlines()
    assert "its interpreter lacks create_atomic_cas. Kernels run, but accesses that go another way" in warned
    assert any(line.startswith("  ! Triton") and "create_atomic_cas" in line for line in ledger)
    assert "Traceback" not in done.stderr


def test_atomics_read_and_write_and_are_no_conflict():
    with trace() as launch:
        kernels.count[(5,)](torch.zeros(1))
    row = launch.ledger()["out_ptr"]
    assert (row.read, row.written, row.written_by_several, row.written_again) == (20, 20, 0, 1)


def test_the_gaps_of_a_strided_tensor_are_not_missing_elements():
    x, out = torch.zeros(6, 8), torch.zeros(6, 8)[:, :5]
    with trace() as launch:
        kernels.copy_2d[(1, 1)](x, out, 6, 5, 8, BLOCK_M=8, BLOCK_N=8)
    assert launch.ledger()["y_ptr"].never_written == 0


def test_an_access_masked_off_as_a_whole_belongs_to_no_tensor():
    x = torch.zeros(32)
    with trace() as launch:
        kernels.add[(2,)](x, x, torch.empty(32), 32, BLOCK=32)
    assert launch.masked_everywhere == 3 * 32
    assert launch.ledger()["x_ptr"].masked_lanes == 0


def test_the_ledger_as_text_and_its_lower_bound():
    lines = str(add().ledger()).splitlines()
    assert lines[0] == "add, grid 4"
    assert lines[1].split() == ["tensor", "bytes", "read", "bytes", "written", "least", "bytes", "masked", "lanes"]
    assert lines[2].split() == ["x_ptr", "392", "0", "392", "30"]
    assert lines[-1] == "  1,176 bytes moved; 1,176 if each touched element moved once (100%)"
    assert add().ledger().lower_bound("MI300X").memory_seconds == pytest.approx(1176 / 5.3e12)


def test_bfloat16_counts_two_bytes():
    x = torch.zeros(4, 100, dtype=torch.bfloat16)
    with trace() as launch:
        kernels.row_sum[(4,)](x, torch.empty(4), 100, BLOCK=128)
    assert launch.ledger()["x_ptr"].read == 800 and launch.ledger()["out_ptr"].written == 16


# ---- the picture -----------------------------------------------------------------------------------------------------


def test_the_picture_of_a_strip_has_every_program_and_the_masked_tail():
    assert str(add().picture()).splitlines() == [
        "add: stores to out_ptr (98 elements, 4 programs)",
        "  program 0: elements 0 to 31",
        "  program 1: elements 32 to 63",
        "  program 2: elements 64 to 95",
        "  program 3: elements 96 to 97",
        "  program 3: 30 lanes masked off, at elements 98 to 127",
    ]


def test_lanes_past_the_end_of_a_row_stay_in_that_row():
    x = torch.zeros(3, 6)
    with trace() as launch:
        kernels.row_sum[(3,)](x, torch.empty(3), 6, BLOCK=8)
    assert "program 1: 2 lanes masked off, at row 1, columns 6 to 7" in str(launch.picture("x_ptr"))


def test_tiles_are_named_by_their_place_in_the_grid():
    x = torch.zeros(10, 12)
    with trace() as launch:
        kernels.copy_2d[(2, 2)](x, torch.empty(10, 12), 10, 12, 12, BLOCK_M=8, BLOCK_N=8)
    text = str(launch.picture())
    assert "program (0, 0): rows 0 to 7, columns 0 to 7" in text
    assert "program (1, 1): rows 8 to 9, columns 8 to 11" in text
    assert "program (1, 1): 48 lanes masked off, at rows 10 to 15, columns 8 to 15" in text


def test_a_transposed_tensor_is_drawn_as_it_is_indexed():
    x = torch.zeros(12, 10).T
    with trace() as launch:
        kernels.row_sum[(1,)](x, torch.empty(1), 10, BLOCK=16)  # the first 10 elements in memory: column 0
    assert "(10 x 12 elements" in str(launch.picture("x_ptr"))
    assert "program 0: rows 0 to 9, column 0" in str(launch.picture("x_ptr"))


def test_a_picture_stays_small():
    x = torch.zeros(1 << 17)
    with trace() as launch:
        kernels.add[(128,)](x, x, torch.empty(1 << 17), 1 << 17, BLOCK=1024)
    assert len(launch.picture().svg) < 8_000
    scattered = torch.randperm(4096).to(torch.int32)
    with trace() as launch:
        kernels.gather[(16,)](torch.zeros(4096), scattered, torch.empty(4096), 4096, BLOCK=256)
    assert len(launch.picture("x_ptr").svg) < 40_000


def test_a_wrong_tensor_or_kind_is_named():
    with pytest.raises(ValueError, match="no tensor 'z'; it has x_ptr, y_ptr, out_ptr"):
        add().picture("z")
    with pytest.raises(ValueError, match="kind must be"):
        add().picture(kind="read")
    with pytest.raises(ValueError, match="stores to x_ptr: no program touched it"):
        add().picture("x_ptr", kind="store")


# ---- the machine code ------------------------------------------------------------------------------------------------


def test_the_amd_report_is_that_of_the_launchs_own_arguments():
    x = torch.zeros(4096)
    with trace() as launch:
        kernels.add[(4,)](x, x, torch.empty(4096), 4096, BLOCK=1024, num_warps=8)
    report = launch.amd_report(arch="gfx950")
    assert (report.name, report.arch, report.num_warps) == ("add", "gfx950", 8) and set(report.loads) == {64}
    assert launch.amd_report(num_warps=4).loads == {128: 2}
