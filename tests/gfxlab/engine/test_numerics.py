"""The stock interpreter's numbers are wrong; the repaired ones are right, in dual mode and under TRITON_INTERPRET=1."""

import json
import os
import subprocess
import sys
from pathlib import Path

import number_probes
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from gfxlab.engine import dual_mode, numerics

PROBES = Path(number_probes.__file__)


@pytest.fixture(autouse=True)
def interpreted():
    dual_mode.enable()


def run_probes(*prelude: str) -> dict:
    code = "\n".join([*prelude, f"import sys; sys.path.insert(0, {str(PROBES.parent)!r})", "import number_probes, json",
                      "print(json.dumps(number_probes.report()))"])  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def stock() -> dict:
    return run_probes()


@pytest.mark.parametrize("name", ["bf16 fma", "bf16 where", "bf16 reduce", "bf16 rounding", "fp8 rounding", "bf16 dot"])
def test_stock_interpreter_is_wrong(stock, name):
    assert stock[name] > 0.0


def test_stock_interpreter_ignores_device_assert(stock):
    assert stock["assert fires"] is False


def test_repaired_under_the_users_own_variable():
    repaired = run_probes("import gfxlab.engine.hooks as hooks", "hooks.install()")
    assert repaired["assert fires"] is True
    assert repaired["bf16 dot"] < 1e-5
    assert {k: v for k, v in repaired.items() if k not in ("assert fires", "bf16 dot")} == {
        "bf16 fma": 0.0, "bf16 where": 0.0, "bf16 reduce": 0.0, "bf16 rounding": 0.0, "fp8 rounding": 0.0}  # fmt: skip


@pytest.mark.parametrize("name", ["fma", "where", "reduce"])
def test_bf16_arithmetic_is_bit_exact(name):
    got, want = number_probes.bf16_arithmetic()[name]
    assert torch.equal(got, want)


FP8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, *FP8])
def test_rounding_is_pytorchs(dtype):
    got, want = number_probes.rounded(dtype)
    assert torch.equal(got.nan_to_num(nan=1e9), want.nan_to_num(nan=1e9))
    assert torch.equal(torch.signbit(got), torch.signbit(want))


def test_bf16_dot():
    got, want = number_probes.bf16_dot()
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_device_assert_fires():
    assert number_probes.false_assert_fires()


@pytest.mark.parametrize("dtype", [tl.int1, tl.int32, tl.uint64, tl.float32, tl.bfloat16, tl.float8e5], ids=str)
def test_the_table_of_types_that_is_made_once_is_tritons(dtype):
    pointer = tl.pointer_type(dtype)
    for kind in (dtype, pointer, tl.block_type(dtype, [4]), tl.block_type(pointer, [4])):
        assert numerics._np_dtype(kind) == numerics._stock_np_dtype(kind) == interpreter._get_np_dtype(kind)
    assert interpreter._get_np_dtype is numerics._np_dtype


def test_integers_wrap_as_they_do_compiled():
    @triton.jit
    def hash_kernel(y_ptr):
        i = tl.arange(0, 8)
        tl.store(y_ptr + i, (i + 1) * 1664525 * 1013904223)

    y = torch.zeros(8, dtype=torch.int32)
    hash_kernel[(1,)](y)
    wrapped = [(i + 1) * 1664525 * 1013904223 % (1 << 32) for i in range(8)]
    assert y.tolist() == [n - (1 << 32) * (n >= 1 << 31) for n in wrapped]
