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
@pytest.mark.parametrize("cols", [launch.MAX_ROW_BACKWARD, launch.MAX_ROW, 16383, 131071, 131072])
def test_no_spill_in_float32_at_the_widest_rows(recorded, cols):
    check(recorded, 2, cols, torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("cols", [128, 575, 576, 1000, 4096, 8192, 16383, 16384, 65536, 131071, 131072])
def test_no_spill_and_wide_loads_everywhere(recorded, cols, dtype, fused):
    check(recorded, 8192 if cols < 2048 else 8, cols, dtype, fused=fused)
