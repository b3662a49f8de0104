"""What the kernel tests share: the device, the dtypes, a small GPU, and launches seen without being run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import amd_table
import pytest
import torch
import triton
from kernel_testing import AMD_COMPUTE_UNITS, DTYPES, short
from triton.compiler import CompiledKernel
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from course_kernels import fp8_dtype, launch
from gfxlab.engine import dual_mode


@pytest.fixture
def device() -> Iterator[str]:
    """ "cuda" where there is a GPU, of either make; else "cpu", interpreted."""
    if torch.cuda.is_available():
        yield "cuda"
        return
    if dual_mode.is_interpreting():  # by the user's own TRITON_INTERPRET=1, repaired by the import of the package
        yield "cpu"
        return
    dual_mode.enable()
    yield "cpu"
    dual_mode.disable()


@pytest.fixture(params=DTYPES, ids=short)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """float32, float16, bfloat16."""
    return request.param


@pytest.fixture(params=[torch.float8_e4m3fn, torch.float8_e4m3fnuz], ids=short)
def fp8(request: pytest.FixtureRequest, device: str) -> torch.dtype:
    """Both flavours, as far as this machine can."""
    if device == "cuda" and request.param != fp8_dtype():
        pytest.skip(f"the GPU computes with {fp8_dtype()}, not with {request.param}")
    version = tuple(map(int, triton.__version__.split(".")[:2]))
    if request.param == torch.float8_e4m3fnuz and device == "cpu" and version < (3, 8):
        pytest.skip(f"Triton {triton.__version__} cannot interpret float8_e4m3fnuz; 3.8 can")
    return request.param


@pytest.fixture
def small_gpu() -> Iterator[None]:
    """Launch as for a GPU of two compute units that is content with few programs: tiles are packed, programs loop."""
    arch = launch.gpu_of(torch.empty(0, device="cuda" if torch.cuda.is_available() else "cpu")).arch
    with launch.as_on(launch.Gpu(arch, 2)), launch.sizes_as(max_threads=256, programs=4):
        yield


@pytest.fixture
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is a failure."""

    def run(kernel, *args, **kwargs):
        pytest.fail(f"{kernel.fn.__name__} was launched")

    monkeypatch.setattr(JITFunction, "run", run)
    monkeypatch.setattr(InterpretedFunction, "run", run)


@dataclass
class Recorded:
    """Launches as they would be on an architecture: (kernel, args, kwargs) of each. None runs."""

    arch: str
    record_property: Callable[[str, Any], None]
    launches: list[tuple[JITFunction, tuple, dict[str, Any]]] = field(default_factory=list)

    def compiled(self) -> Iterator[tuple[JITFunction, CompiledKernel]]:
        """Each launch's kernel, as it is and compiled; noted for the table at the end of the run."""
        assert self.launches
        for kernel, args, kwargs in self.launches:
            spec = dual_mode.specialise(kernel, args, kwargs, arch=self.arch)
            compiled = dual_mode.compile(kernel, spec, self.arch)
            self.record_property(amd_table.TITLE, amd_table.row(self.arch, kernel.fn.__name__, compiled))
            yield kernel, compiled


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One table of all kernels that were compiled in this run, by whichever worker of xdist."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    rows = [value for report in reports for name, value in report.user_properties if name == amd_table.TITLE]
    if rows:
        terminalreporter.section(amd_table.TITLE)
        for line in amd_table.lines(rows):
            terminalreporter.write_line(line)


@pytest.fixture(params=AMD_COMPUTE_UNITS)
def recorded(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, Any], None]
) -> Iterator[Recorded]:
    """The launches of a test, one architecture after another."""
    arch, recorder = request.param, Recorded(request.param, record_property)

    def run(kernel, *args, grid, warmup, **kwargs):
        recorder.launches.append((kernel, args, kwargs))

    monkeypatch.setattr(JITFunction, "run", run)
    with launch.as_on(launch.Gpu(arch, AMD_COMPUTE_UNITS[arch])):
        yield recorder
