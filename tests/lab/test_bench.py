"""Timing: refused without a GPU, right with one; figures survive a file and name their machine."""

from __future__ import annotations

import amd_kernels as kernels
import pytest
import torch

import course_lab  # noqa: F401  makes launches on CPU tensors possible
from course_lab import bench, engines

MACHINE = bench.Machine("Test GPU", "gfx942", "hip", "2.13", "3.9", "7.2", "3.11", "2026-01-01")


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU whose every call takes 2 ms and whose copies take 1 ms."""
    monkeypatch.setattr(engines, "gpu", lambda: engines.Gpu("Test GPU", "gfx942", "hip", 64))
    monkeypatch.setattr(bench, "_seconds", lambda *_: (2e-3, 1.9e-3, 2.2e-3))
    monkeypatch.setattr(bench, "copy_bandwidth", lambda: 4e12)


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
    monkeypatch.setattr(bench.dual_mode, "env_interpret", lambda: True)
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


@pytest.mark.gpu
def test_a_copy_on_this_gpu_reaches_its_own_bandwidth():
    if not bench.available():
        pytest.skip("needs a GPU")
    x = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    result = bench.time(lambda: y.copy_(x), bytes=2 * x.nbytes)
    assert 0.8 < result.of_copy < 1.2 and result.fast <= result.seconds <= result.slow
    assert bench.Machine.here().gpu == engines.gpu().name
