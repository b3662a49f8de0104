"""The options of a launch change the code, never the result."""

import pytest
import torch
import triton
import triton.language as tl

from gfxlab.code import compiler
from gfxlab.code.job import compile_job
from gfxlab.engine import dual_mode
from gfxlab.latest import Latest
from gfxlab.simulator import Run, simulate
from gfxlab.simulator.core import launch

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    rows, cols, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, K, STEP):
        inside = ks + first < K
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :] + first, mask=inside[None, :], other=0.0)
        b = tl.load(b_ptr + (ks[:, None] + first) * N + cols[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total)


@pytest.fixture
def compiled_here(monkeypatch):
    """Compile in this process, where the test has turned a knob, and remember nothing."""
    monkeypatch.setattr(compiler, "_run", lambda name, payload: compile_job(payload))
    forget(monkeypatch)
    return monkeypatch


def forget(monkeypatch):
    """Nothing is known of earlier compilations until the test ends."""
    monkeypatch.setattr(compiler, "_answers", Latest())
    monkeypatch.setattr(launch, "_remembered", Latest())


def check_matmul(arch: str, dtype: torch.dtype, **options) -> Run:
    M, N, K = 64, 64, 100
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-4, 5, shape, generator=generator).to(dtype) for shape in ((M, K), (K, N)))
    c = torch.full((M, N), float("nan"))
    run = simulate(matmul_kernel, (1,), (a, b, c, K), arch=arch, profile=False, M=M, N=N, STEP=32, **options)
    assert (c == a.double() @ b.double()).all()
    return run


@pytest.mark.parametrize(
    "arch, options",
    [
        ("gfx90a", {"num_warps": 1, "num_stages": 1}),
        ("gfx942", {"num_warps": 8, "num_stages": 3, "matrix_instr_nonkdim": 32}),
        ("gfx950", {"num_warps": 2, "matrix_instr_nonkdim": 16, "waves_per_eu": 2}),
        ("gfx1100", {"num_warps": 16, "num_stages": 2}),
        ("gfx1201", {"num_warps": 4, "num_stages": 3}),
    ],
)
def test_some_options(arch, options):
    check_matmul(arch, torch.float16, **options)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100"])
def test_without_buffer_operations(arch, compiled_here):
    """Then lanes are masked by EXEC and branches, and addresses have 64 bits."""
    assert "buffer_load" in check_matmul(arch, torch.bfloat16, num_stages=2).program.text
    forget(compiled_here)
    compiled_here.setattr(triton.knobs.amd, "use_buffer_ops", False)
    assert "buffer_load" not in check_matmul(arch, torch.bfloat16, num_stages=2).program.text


@pytest.mark.parametrize("arch, waves_per_eu", [("gfx942", 8), pytest.param("gfx1100", 16, marks=pytest.mark.slow)])
def test_spilled_registers_come_back(arch, waves_per_eu):
    """So many waves at a time leave each too few registers for the accumulators."""
    run = check_matmul(arch, torch.float32, num_warps=1, waves_per_eu=waves_per_eu)
    assert run.program.scratch, "nothing was spilled"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_warps", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_all_options(arch, dtype, num_warps, num_stages, compiled_here):
    for nonkdim in (0, 16, 32) if arch.startswith("gfx9") else (0,):
        for waves_per_eu in (0, 2):
            for buffers in (True, False):
                forget(compiled_here)
                compiled_here.setattr(triton.knobs.amd, "use_buffer_ops", buffers)
                check_matmul(
                    arch,
                    dtype,
                    num_warps=num_warps,
                    num_stages=num_stages,
                    matrix_instr_nonkdim=nonkdim,
                    waves_per_eu=waves_per_eu,
                )


@triton.jit
def halve_kernel(x_ptr, y_ptr):
    offs = tl.arange(0, 64)
    tl.store(y_ptr + offs, 0.5 * tl.load(x_ptr + offs))


@pytest.mark.parametrize("flush", [False, True])
def test_denormals_are_flushed_where_the_launch_asks_for_it(flush):
    x, y = torch.full((64,), 2.0**-126), torch.ones(64)
    simulate(halve_kernel, (1,), (x, y), allow_flush_denorm=flush)
    assert torch.equal(y, torch.zeros(64) if flush else x / 2)
