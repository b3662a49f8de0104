"""The simulator as an engine: inside a block, kernels launched on CPU tensors run on a simulated AMD GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from gfxlab import hardware
from gfxlab.bound import Launch
from gfxlab.engine import dual_mode
from gfxlab.engine.target import Target, simulating
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.launch import simulate_bound
from gfxlab.simulator.show.run import Run


@contextlib.contextmanager
def using(
    arch: str = "gfx942",
    *,
    profile: bool = False,
    checks: bool = True,
    quiet: bool = False,
    executor: Callable[..., Executor] = Executor,
) -> Iterator[list[Run]]:
    """Simulate every launch on CPU tensors inside the block, whoever makes it: your kernel, or a library's.

        with using("gfx1100") as runs:
            y = my_launch(x, weight)

    Yields a list that grows by one `Run` a launch. Grids and block sizes are those of the simulated GPU.

    checks: look for races and the like in every launch; without, a launch is twice as fast and more.
    quiet: leave out what the kernels print. executor: in which order waves run, see `core.executor.EXECUTORS`.

    Raises:
        ValueError: `arch` is unknown.
        RuntimeError: this process runs under TRITON_INTERPRET=1.
    """
    runs: list[Run] = []

    def run(launch: Launch) -> None:
        runs.append(simulate_bound(launch, arch, profile=profile, checks=checks, quiet=quiet, executor=executor))

    with simulating(Target(arch, hardware.card(arch).compute_units)), dual_mode.cpu_launches_by(run):
        yield runs
