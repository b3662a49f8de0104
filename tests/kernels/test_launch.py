"""Launch parameters are legal and cover the matrix, on every architecture and for every shape."""

import math

import pytest
import torch
import triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import AMD_COMPUTE_UNITS, DTYPES

from course_kernels import launch

GPUS = {**AMD_COMPUTE_UNITS, "sm_90": 132}


@pytest.fixture(params=GPUS)
def gpu(request, monkeypatch) -> launch.Gpu:
    gpu = launch.Gpu(request.param, GPUS[request.param])
    monkeypatch.setattr(launch, "gpu_of", lambda tensor: gpu)
    return gpu


def matrix(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty((rows, cols), dtype=dtype, device="meta")


def assert_legal(meta: dict[str, int], gpu: launch.Gpu) -> None:
    warps = meta["num_warps"]
    assert warps >= 1 and warps == triton.next_power_of_2(warps)
    assert warps * gpu.wave <= 1024
    assert all(size == triton.next_power_of_2(size) for name, size in meta.items() if name.startswith("BLOCK"))


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 10**6), st.integers(1, 2**17), st.sampled_from(DTYPES))
def test_every_matrix_is_covered_by_legal_programs(gpu, rows, cols, dtype):
    x = matrix(rows, cols, dtype)

    (programs,), meta = launch.elementwise(x)
    assert_legal(meta, gpu)
    assert programs == math.ceil(rows * cols / meta["BLOCK"])

    if cols <= launch.MAX_ROW:
        (programs,), meta = launch.whole_rows(x)
        assert_legal(meta, gpu)
        assert meta["BLOCK_N"] >= cols and (programs - 1) * meta["BLOCK_M"] < rows <= programs * meta["BLOCK_M"]
        (resident,), resident_meta = launch.resident_rows(x)
        assert resident_meta == meta and 1 <= resident <= programs

    for backward in (False, True):
        (programs,), meta = launch.long_rows(x, backward=backward)
        assert_legal(meta, gpu)
        assert programs == rows

    (across, down), meta = launch.column_blocks(x)
    assert_legal(meta, gpu)
    assert across * meta["BLOCK_N"] >= cols and 1 <= down <= rows


def test_a_wave_is_64_threads_on_instinct_and_32_elsewhere():
    waves = {arch: launch.Gpu(arch, 1).wave for arch in GPUS}
    assert waves == {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32, "sm_90": 32}


def test_short_rows_are_packed_only_when_there_are_many(gpu):
    few, many = launch.whole_rows(matrix(64, 576)), launch.whole_rows(matrix(100_000, 576))
    assert few[1]["BLOCK_M"] == 1 and many[1]["BLOCK_M"] > 1


def test_a_row_is_never_held_in_more_registers_than_a_thread_has(gpu):
    """16 elements a thread and tile: the backward pass holds five tiles, and has 128 registers for them."""
    for cols, threads in ((launch.MAX_ROW, 1024), (launch.MAX_ROW_BACKWARD, 512)):
        _, meta = launch.whole_rows(matrix(1, cols))
        assert meta["num_warps"] * gpu.wave == threads


def test_a_cpu_tensor_is_launched_as_on_mi300x():
    assert launch.gpu_of(torch.empty(1)) == launch.Gpu("gfx942", 304)
