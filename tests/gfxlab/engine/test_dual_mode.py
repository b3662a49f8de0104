"""One decorated kernel is interpreted on CPU tensors and compiled for AMD, in turn, in one process."""

import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from gfxlab import hardware
from gfxlab.bound import unwrap
from gfxlab.engine import dual_mode

ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@triton.jit
def scale_rows_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + tl.program_id(0) * n + offs, mask=mask, other=0.0).to(tl.float32)
    y = x / tl.sum(x, axis=0)
    tl.store(y_ptr + tl.program_id(0) * n + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def heuristic_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@pytest.fixture(autouse=True)
def interpreted():
    dual_mode.enable()


@pytest.mark.parametrize("arch", ARCHS)
def test_compile_between_two_interpreted_launches(arch):
    x, y = torch.rand(3, 100) + 1, torch.empty(3, 100)
    for _ in range(2):
        y.zero_()
        scale_rows_kernel[(3,)](x, y, 100, BLOCK=128)
        torch.testing.assert_close(y, x / x.sum(1, keepdim=True))
        spec = dual_mode.specialise(scale_rows_kernel, (x, y, 100), {"BLOCK": 128, "num_warps": 2}, arch)
        compiled = dual_mode.compile(scale_rows_kernel, spec, arch)
        assert f".amdhsa_kernel {compiled.metadata.name}" in compiled.asm["amdgcn"]
        assert compiled.metadata.num_warps == 2 and compiled.metadata.target.arch == arch
        assert compiled.metadata.warp_size == hardware.wave_size(arch)


def test_specialisation_is_the_launchers():
    x = torch.empty(65, dtype=torch.bfloat16)
    aligned = dual_mode.specialise(scale_rows_kernel, (x, x, 64), {"BLOCK": 128})
    assert aligned.signature == {"x_ptr": "*bf16", "y_ptr": "*bf16", "n": "i32", "BLOCK": "constexpr"}
    assert aligned.constexprs == {(3,): 128}
    assert ["tt.divisibility", 16] in aligned.attrs[(0,)] and ["tt.pointer_range", 32] in aligned.attrs[(0,)]
    assert aligned.attrs[(2,)] == [["tt.divisibility", 16]]
    shifted = dual_mode.specialise(scale_rows_kernel, (x[1:], x, 63), {"BLOCK": 128})
    assert ["tt.divisibility", 16] not in shifted.attrs[(0,)] and not shifted.attrs[(2,)]
    one = dual_mode.specialise(scale_rows_kernel, (x, x, 1), {"BLOCK": 128})
    assert one.signature["n"] == "constexpr" and one.constexprs[(2,)] == 1


@triton.jit(do_not_specialize=["n"])
def unspecialised_kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < n)


def test_specialisation_obeys_the_decorator():
    spec = dual_mode.specialise(unspecialised_kernel, (torch.empty(64), 1), {"BLOCK": 64})
    assert spec.signature["n"] == "i32" and not spec.attrs.get((1,))
    spec = dual_mode.specialise(unspecialised_kernel, (torch.empty(64), 64), {"BLOCK": 64})
    assert not spec.attrs.get((1,))


def _tuned(kernel, **how):
    """The kernel with two configurations; each run of one adds 1 where it writes in place."""
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    return triton.autotune(configs, key=[], **how)(kernel)


@triton.jit
def increment_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(x_ptr + offs, x + 1, mask=offs < n)


@pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph:DeprecationWarning")
@pytest.mark.parametrize("how", [{}, {"warmup": 1}, {"rep": 1}, {"use_cuda_graph": True}], ids=str)
def test_autotuning_takes_the_first_configuration_where_there_is_nothing_to_time(how):
    x, kernel = torch.zeros(10), _tuned(increment_kernel, **how)
    kernel[(1,)](x, 10)
    assert x.tolist() == [1] * 10 and kernel.best_config.kwargs == {"BLOCK": 16}


def test_autotuning_asks_a_measure_of_the_callers_own():
    seen = []

    def measure(call, quantiles):
        call()
        seen.append(call)
        return [2.0 - len(seen)] * 3

    x, kernel = torch.zeros(10), _tuned(increment_kernel, do_bench=measure)
    kernel[(1,)](x, 10)
    assert len(seen) == 2 and kernel.best_config.kwargs == {"BLOCK": 32}
    assert x.tolist() == [3] * 10  # two to measure, one for the caller: in place all three count


def test_heuristics_and_unwrap():
    x, y = torch.randn(100), torch.empty(100)
    heuristic_kernel[(1,)](x, y, 100)
    assert torch.equal(x, y)
    assert unwrap(heuristic_kernel).__name__ == "heuristic_kernel"


def test_language_is_restored_after_a_launch():
    before = {name: getattr(tl, name) for name in ("load", "store", "sum", "arange", "range", "static_assert")}
    scale_rows_kernel[(1,)](torch.ones(1, 64), torch.empty(1, 64), 64, BLOCK=64)
    assert all(getattr(tl, name) is value for name, value in before.items())
    assert not hasattr(tl.tensor, "__bool__") and not hasattr(tl.tensor, "__index__")


def test_a_kernels_module_gains_at_most_two_names():
    gained = set(globals()) & {"np", "ast", "dataclass", "TensorHandle", "inspect", "math"}
    scale_rows_kernel[(1,)](torch.ones(1, 64), torch.empty(1, 64), 64, BLOCK=64)
    assert set(globals()) & {"np", "ast", "dataclass", "TensorHandle", "inspect", "math"} == gained == set()


def test_disable_gives_launches_back():
    dual_mode.disable()
    try:
        assert dual_mode.is_interpreting() == dual_mode.env_interpret()
    finally:
        dual_mode.enable()
    assert dual_mode.is_interpreting()


def run(code: str, **env: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, "-c", code], env={**clean, **env}, capture_output=True, text=True)


def test_importing_sets_no_environment_variable():
    code = "import os; before = dict(os.environ); import course_kernels, course_lab; assert dict(os.environ) == before"
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_variable_set_too_late_asks_for_a_restart():
    done = run("import triton, os; os.environ['TRITON_INTERPRET'] = '1'; import gfxlab; gfxlab.enable()")
    assert done.returncode == 1 and "Restart the kernel" in done.stderr.splitlines()[-1]


def test_compile_under_the_users_variable_is_a_clear_error():
    code = "from gfxlab.engine import dual_mode\nassert dual_mode.env_interpret()\ndual_mode.compile(None, None)"
    done = run(code, TRITON_INTERPRET="1")
    assert "cannot compile; unset it, or compile in a worker" in done.stderr.splitlines()[-1]
