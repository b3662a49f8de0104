"""Timing: refused without a GPU, right with one; figures survive a file and name their machine."""

from __future__ import annotations

import dataclasses
import functools

import amd_kernels as kernels
import pytest
import torch

from course_lab import bench
from course_lab.bench import standings, timing
from gfxlab import engines
from gfxlab.engine import dual_mode

MACHINE = bench.Machine("Test GPU", "gfx942", "hip", "2.13", "3.9", "7.2", "3.11", "2026-01-01")


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU whose every call takes 2 ms and whose copies take 1 ms."""
    monkeypatch.setattr(engines, "gpu", lambda: engines.Gpu("Test GPU", "gfx942", "hip", 64))
    monkeypatch.setattr(timing, "_seconds", lambda *_: (2e-3, 1.9e-3, 2.2e-3))
    monkeypatch.setattr(timing, "copy_bandwidth", lambda: 4e12)


@pytest.mark.skipif(bench.available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_timed():
    called = []
    with pytest.raises(bench.NothingToTime, match="no GPU that PyTorch can use"):
        bench.time(lambda: called.append(1))
    assert not called
    for refused in (bench.copy_bandwidth, bench.Machine.here):
        with pytest.raises(bench.NothingToTime):
            refused()


def test_the_users_triton_interpret_is_named(fake_gpu, monkeypatch):
    monkeypatch.setattr(dual_mode, "env_interpret", lambda: True)
    assert not bench.available()
    with pytest.raises(bench.NothingToTime, match="TRITON_INTERPRET=1 is set"):
        bench.time(lambda: None)


def test_an_interpreted_launch_is_not_timed_even_where_there_is_a_gpu(fake_gpu):
    x = torch.zeros(64)
    with pytest.raises(bench.NothingToTime, match="tensors are on the CPU; create them with device='cuda'"):
        bench.time(lambda: kernels.add[(1,)](x, x, x, 64, BLOCK=64))


def test_a_measurement_knows_rate_spread_and_part_of_a_copy(fake_gpu):
    result = bench.time(lambda: None, name="add", bytes=6e9)
    assert result.bandwidth == pytest.approx(3e12) and result.of_copy == pytest.approx(0.75)
    assert str(result) == "add  5.59 GiB  2 ms  1.9 ms to 2.2 ms  3,000 GB/s, 75% of a copy"
    assert str(bench.time(lambda: None, flops=4e12)) == "one call  2 ms  1.9 ms to 2.2 ms  2e+03 TFLOP/s"


def test_results_survive_a_file_and_name_the_machine(tmp_path):
    results = bench.Results(MACHINE)
    results.add(bench.Measurement("torch", 1e-3, 0.9e-3, 1.1e-3, bytes=1e9, copy=4e12))
    results.save(tmp_path / "r.json")
    again = bench.Results.load(tmp_path / "r.json")
    assert again == results
    assert str(again).splitlines()[0] == "Test GPU (gfx942), PyTorch 2.13, Triton 3.9, 2026-01-01"
    assert "Test GPU" in again._repr_html_()
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match="other.json holds no benchmark results"):
        bench.Results.load(tmp_path / "other.json")


def test_the_plot_names_the_machine_and_has_one_line_a_name():
    results = bench.Results(MACHINE)
    for size in (1e6, 1e8):
        for name in ("ours", "torch"):
            results.add(bench.Measurement(name, 1e-3, 1e-3, 1e-3, bytes=size, copy=4e12))
    axes = results.plot("vector add").axes[0]
    assert axes.get_title().startswith("vector add\nTest GPU (gfx942)")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ours", "torch", "a plain copy, 1 GiB"]
    with pytest.raises(ValueError, match="no measurement has bytes"):
        bench.Results(MACHINE, [bench.Measurement("x", 1, 1, 1)]).plot()


# ---- stored figures --------------------------------------------------------------------------------------------------


@pytest.fixture
def two_machines(tmp_path, monkeypatch):
    """A folder with figures of two GPUs."""
    monkeypatch.setattr(standings, "RESULTS", tmp_path)
    figure = functools.partial(bench.Measurement, fast=1e-3, slow=1e-3, family="norm")
    first = [
        figure("eager", 4e-3, size="8 x 8", bytes=4e9, graph="cold"),
        figure("ours", 2e-3, size="8 x 8", bytes=4e9, graph="cold"),
        figure("copy", 1e-3, size="8 x 8", bytes=4e9, graph="cold"),
        figure("ours", 3e-6, size="1 x 8", bytes=4e3, graph="warm"),
        figure("torch", 1e-3, size="64", bytes=1, flops=5e11, family="matmul"),
        figure("ours", 2e-3, size="64", bytes=1, flops=5e11, family="matmul"),
    ]
    bench.Results(MACHINE, first).save(tmp_path / "a.json")
    second = [figure("ours", 9e-3, size="8 x 8"), figure("ours", 9e-3, size="1", family="only here")]
    bench.Results(dataclasses.replace(MACHINE, gpu="Other GPU"), second).save(tmp_path / "b.json")


def test_stored_figures_are_a_table_of_contenders_and_sizes_that_names_the_machine(two_machines):
    table = bench.stored("norm")
    assert str(table).splitlines() == [
        "norm on Test GPU (gfx942), PyTorch 2.13, Triton 3.9, 2026-01-01",
        "                                         8 x 8  1 x 8 *",
        "  eager                        4 ms, 1.00 TB/s",
        "  ours                         2 ms, 2.00 TB/s     3 us",
        "  copy                         1 ms, 4.00 TB/s",
        "  ours against the best other           2.00 x",
        "* Calls in a row, so that the data are in the cache: no memory bandwidth.",
    ]
    html = table._repr_html_().replace("\xa0", " ")  # a number stays beside its unit
    assert "norm on Test GPU" in html and "2 ms, 2.00 TB/s" in html and "in the cache" in html
    assert "1 ms, 500 TFLOP/s" in str(bench.stored("matmul")) and "cache" not in str(bench.stored("matmul"))


def test_one_stored_figure_is_found_by_its_name_and_size(two_machines):
    table = bench.stored("norm")
    assert table.find("ours", "8 x 8").seconds == 2e-3 and table.find("eager").seconds == 4e-3
    assert bench.stored("norm", "1 x 8").find("ours").seconds == 3e-6
    for missing in (("ours",), ("eager", "1 x 8"), ("Liger",)):
        with pytest.raises(ValueError, match=r"figures for .*there are \('eager', '8 x 8'\), \('ours', '8 x 8'\)"):
            table.find(*missing)


def test_stored_sizes_come_as_asked_for_and_a_gpu_by_a_part_of_its_name(two_machines):
    assert [line.size for line in bench.lines(bench.stored("norm", "1 x 8", "8 x 8"))] == ["1 x 8", "8 x 8"]
    assert bench.stored("norm", gpu="Other").find("ours").seconds == 9e-3
    assert bench.stored("only here").machine.gpu == "Other GPU"
    for wrong, error in [
        (("norm", "8 x 9"), "norm was not measured at '8 x 9'; there are '8 x 8', '1 x 8'"),
        (("rope",), "no figures of 'rope'; there are norm, "),
    ]:
        with pytest.raises(ValueError, match=error):
            bench.stored(*wrong)
    with pytest.raises(ValueError, match="no figures of 'MI300X'; there are Test GPU, Other GPU"):
        bench.stored("norm", gpu="MI300X")


def test_the_courses_own_figures_are_found():
    table = bench.stored("rms_norm", "16384 x 4096")
    assert table.find("ours").error < 1e-2 and {"eager", "copy"} <= {figure.name for figure in table.measurements}


@pytest.mark.gpu
def test_a_copy_on_this_gpu_reaches_its_own_bandwidth():
    if not bench.available():
        pytest.skip("needs a GPU")
    x = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    result = bench.time(lambda: y.copy_(x), bytes=2 * x.nbytes)
    assert 0.8 < result.of_copy < 1.2 and result.fast <= result.seconds <= result.slow
    assert bench.Machine.here().gpu == engines.gpu().name
