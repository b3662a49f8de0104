"""Every kernel, compiled for five AMD architectures as the launcher would: no spill, wide loads on aligned rows."""

import importlib
import re

import pytest
import torch
from kernel_testing import DTYPES, short

from course_kernels import launch
from course_kernels._triton import dual_mode

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")

rms_norm, layer_norm, vector_add = (
    importlib.import_module(f"course_kernels.{family}") for family in ("rms_norm", "layer_norm", "vector_add")
)
matmul = importlib.import_module("course_kernels.matmul")
NARROW = re.compile(r"(?:global|buffer)_(?:load|store)_(?:dword|b32|dwordx2|b64|dwordx3|b96|ushort|u16|short|d16\w*)\b")
WIDE = re.compile(r"(?:global|buffer)_load_(?:dwordx4|b128)")


def launch_all(rows: int, cols: int, dtype: torch.dtype, *, fused: bool) -> None:
    """Launch each kernel of the package on a matrix of this shape, with or without a residual."""
    x, weight = torch.empty(rows, cols, dtype=dtype), torch.empty(cols, dtype=dtype)
    residual = x if fused else None
    vector_add.vector_add_forward(x, x)
    rms_norm.rms_norm_forward(x, residual, weight, 1e-6)
    rms_norm.rms_norm_backward(x, residual, x, weight, 1e-6)
    layer_norm.layer_norm_forward(x, residual, weight, weight, 1e-5)
    layer_norm.layer_norm_backward(x, residual, x, weight, 1e-5)


def fact(listing: str, name: str) -> int:
    return int(re.search(rf"\.{name}:\s*(\d+)", listing)[1])


def check(recorded, rows, cols, dtype, *, fused=True):
    launch_all(rows, cols, dtype, fused=fused)
    for kernel, args, kwargs in recorded.launches:
        name = kernel.fn.__name__
        spec = dual_mode.specialise(kernel, args, kwargs, arch=recorded.arch)
        code = dual_mode.compile(kernel, spec, recorded.arch).asm["amdgcn"]
        assert fact(code, "vgpr_spill_count") == 0 and fact(code, "private_segment_fixed_size") == 0, name
        if cols % 16:
            continue  # every other row begins off a 16-byte boundary: no wide load is possible
        assert WIDE.search(code), name
        if "statistics" not in name and "long_backward" not in name:  # these also move a few numbers for each row
            assert not NARROW.search(code), f"{name}: {NARROW.search(code)[0]}"


@pytest.mark.parametrize(("rows", "cols"), [(4096, 576), (2, 131072)], ids=["576", "131072"])
def test_no_spill_and_wide_loads(recorded, rows, cols):
    check(recorded, rows, cols, torch.bfloat16)


@pytest.mark.parametrize("recorded", ["gfx942"], indirect=True)
@pytest.mark.parametrize("cols", [launch.MAX_ROW, 16383, 131071, 131072])
def test_no_spill_in_float32_at_the_widest_rows(recorded, cols):
    check(recorded, 2, cols, torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("cols", [128, 575, 576, 1000, 4096, 8192, 16383, 16384, 65536, 131071, 131072])
def test_no_spill_and_wide_loads_everywhere(recorded, cols, dtype, fused):
    check(recorded, 8192 if cols < 2048 else 8, cols, dtype, fused=fused)


# ---- kernels of the matrix units -----------------------------------------------------------------------------------

MATRIX = re.compile(r"\bv_(?:mfma|wmma)_f32_")
LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx1100": 65536, "gfx1201": 65536}


def check_dots(recorded, dtype, *, aligned=True):
    """Every recorded launch: no spill, LDS in its limit, matrix instructions, wide loads where rows are aligned."""
    assert recorded.launches
    for kernel, args, kwargs in recorded.launches:
        spec = dual_mode.specialise(kernel, args, kwargs, arch=recorded.arch)
        compiled = dual_mode.compile(kernel, spec, recorded.arch)
        code = compiled.asm["amdgcn"]
        assert fact(code, "vgpr_spill_count") == 0 and fact(code, "private_segment_fixed_size") == 0
        assert compiled.metadata.shared <= LDS_BYTES[recorded.arch]
        half = dtype != torch.float32
        assert MATRIX.search(code) or not (half or recorded.arch.startswith("gfx9")), "no matrix instruction"
        if aligned and (half or recorded.arch != "gfx950"):  # there float32 goes to LDS directly, 4 bytes a lane
            assert WIDE.search(code)
            assert not re.search(r"(?:global|buffer)_load_(?:u?short|[ui]16|d16)", code), "an element at a time"


@pytest.mark.parametrize(
    ("shape", "dtype", "transposed"),
    [
        ((8192, 8192, 8192), torch.bfloat16, False),
        ((1, 4096, 4096), torch.bfloat16, True),
        ((2048, 2048, 2048), torch.float32, False),
    ],
    ids=["large", "one token", "float32"],
)
def test_matmul(recorded, shape, dtype, transposed):
    M, K, N = shape
    a = torch.empty((M, K), dtype=dtype)
    b = torch.empty((N, K), dtype=dtype).t() if transposed else torch.empty((K, N), dtype=dtype)
    matmul.matmul_forward(a, b, dtype, "silu", False)
    check_dots(recorded, dtype, aligned=K % 16 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("size", [16, 33, 64, 576, 1023, 4096, 4097, 8192])
def test_matmul_everywhere(recorded, size, dtype):
    a = torch.empty((size, size), dtype=dtype)
    for left in (a, a.t()):
        for right in (a, a.t()):
            matmul.matmul_forward(left, right, dtype, "gelu", False)
    check_dots(recorded, dtype, aligned=size % 16 == 0)
