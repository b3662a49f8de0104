"""What the kernel tests share: the device, the dtypes, a small GPU, and launches seen without being run."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from kernel_testing import AMD_COMPUTE_UNITS, DTYPES, short
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from course_kernels import launch
from course_kernels._triton import dual_mode


@pytest.fixture
def device() -> Iterator[str]:
    """ "cuda" where there is a GPU, of either make; else "cpu", interpreted."""
    if torch.cuda.is_available():
        yield "cuda"
        return
    was_interpreting = dual_mode.is_interpreting()
    dual_mode.enable()
    yield "cpu"
    if not was_interpreting:
        dual_mode.disable()


@pytest.fixture(params=DTYPES, ids=short)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """float32, float16, bfloat16."""
    return request.param


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch as for a GPU of two compute units that is content with few programs: tiles are packed, programs loop."""
    arch = launch.gpu_of(torch.empty(0, device="cuda" if torch.cuda.is_available() else "cpu")).arch
    monkeypatch.setattr(launch, "gpu_of", lambda tensor: launch.Gpu(arch, 2))
    monkeypatch.setattr(launch, "MAX_THREADS", 256)
    monkeypatch.setattr(launch, "PROGRAMS", 4)


@pytest.fixture
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is a failure."""

    def run(kernel, *args, **kwargs):
        pytest.fail(f"{kernel.fn.__name__} was launched")

    monkeypatch.setattr(JITFunction, "run", run)
    monkeypatch.setattr(InterpretedFunction, "run", run)


@pytest.fixture(params=AMD_COMPUTE_UNITS)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`.launches` collects (kernel, args, kwargs) of every launch as it would be on `.arch`; none runs."""
    arch, launches = request.param, []

    def run(kernel, *args, grid, warmup, **kwargs):
        launches.append((kernel, args, kwargs))

    monkeypatch.setattr(launch, "gpu_of", lambda tensor: launch.Gpu(arch, AMD_COMPUTE_UNITS[arch]))
    monkeypatch.setattr(JITFunction, "run", run)
    return SimpleNamespace(arch=arch, launches=launches)
