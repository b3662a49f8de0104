"""The pretence as a whole: PyTorch's answers, Triton's driver and the simulator behind it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator

from gfxlab import hardware
from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.engine import driver, dual_mode
from gfxlab.engine.target import Target, simulating
from gfxlab.pretended.devices import on_cpu
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show.run import Run


class Hazard(UserWarning):
    """What a launch did that it may not, in a sentence of `Run.wrong`; its results may be right by luck."""


@contextlib.contextmanager
def pretend(arch: str = "gfx942", seen: Callable[[Run], None] | None = None) -> Iterator[Target]:
    """Inside the block this process has a GPU of that architecture, as far as PyTorch and Triton can tell.

    Tensors on "cuda" lie in the CPU's memory, and each launch of a Triton kernel is simulated.

    Args:
        seen: is given each launch's `Run`, without counts; by default what is wrong with one is a `Hazard` warning.

    Raises:
        ValueError: `arch` is unknown.
        RuntimeError: this process runs under TRITON_INTERPRET=1.
    """
    if dual_mode.env_interpret():
        raise RuntimeError("a process started with TRITON_INTERPRET=1 interprets every launch; start it without")
    seen = seen or _warn

    def run(loaded: driver.Loaded, grid: tuple[int, int, int], values: list[Value]) -> None:
        seen(execute(_compiled(loaded), grid, values, profile=False))

    target = Target(arch, hardware.card(arch).compute_units)
    with (
        dual_mode.launches_by_triton(),
        driver.active(driver.Driver(arch, run)),
        on_cpu(arch),
        simulating(target),
    ):
        yield target


def _warn(run: Run) -> None:
    for sentence in run.wrong:
        warnings.warn(f"{run.compiled.name}: {sentence}", Hazard, stacklevel=2)


def _compiled(loaded: driver.Loaded) -> Compiled:
    return Compiled(
        name=loaded.name,
        arch=loaded.arch,
        asm=loaded.asm,
        lds=loaded.shared,
        num_warps=loaded.num_warps,
        num_stages=loaded.num_stages,
        sources={loaded.filename: loaded.lines},
        global_scratch=loaded.scratch,
    )
