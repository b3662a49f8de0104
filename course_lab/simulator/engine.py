"""The simulator as an engine: inside a block, kernels launched on CPU tensors run on a simulated AMD GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from course_kernels import launch
from course_kernels._triton import dual_mode
from course_lab import hardware
from course_lab.simulator.launch import simulate
from course_lab.simulator.run import Run


@contextlib.contextmanager
def using(arch: str = "gfx942", *, profile: bool = False) -> Iterator[list[Run]]:
    """Simulate every launch on CPU tensors inside the block, whoever makes it: your kernel, or `course_kernels`.

        with using("gfx1100") as runs:
            y = course_kernels.rms_norm(x, weight)

    Yields a list that grows by one `Run` a launch. Grids and block sizes are those of the simulated GPU.

    Raises:
        ValueError: `arch` is unknown.
        RuntimeError: this process runs under TRITON_INTERPRET=1.
    """
    runs: list[Run] = []

    def run(kernel, args, kwargs, grid):
        runs.append(simulate(kernel, grid, args, arch=arch, profile=profile, **kwargs))

    gpu = launch.Gpu(arch, hardware.card(arch).compute_units)
    with launch.cpu_stands_for(gpu), dual_mode.cpu_launches_by(run):
        yield runs
