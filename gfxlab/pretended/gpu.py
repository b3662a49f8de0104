"""The pretence as a whole: PyTorch's device, Triton's driver and the simulator behind it."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
import triton.testing

from gfxlab import hardware
from gfxlab.bound import Launch, Value
from gfxlab.code.compiler import Compiled
from gfxlab.engine import driver, dual_mode
from gfxlab.engine.target import Target, simulating
from gfxlab.pretended import counting, libraries, measuring, profiling, spawned, tuning
from gfxlab.pretended.attaching import CannotPretend
from gfxlab.pretended.devices import present
from gfxlab.pretended.given import on_host
from gfxlab.pretended.memory import around
from gfxlab.simulator import SimulationError
from gfxlab.simulator.core import progress
from gfxlab.simulator.core.launch import execute, prepare
from gfxlab.simulator.show.run import Run

Execute = Callable[..., Run]
_launch: ContextVar[Launch | None] = ContextVar("launch", default=None)
MAX_SECONDS = 120.0  # a loop that goes on for so long without a wave's ending is given up
_for_good = contextlib.ExitStack()
_TIMERS = ("do_bench", "do_bench_cudagraph", "do_bench_proton")


class Hazard(UserWarning):
    """What a launch did that it may not, in a sentence of `Run.wrong`; its results may be right by luck."""


@contextlib.contextmanager
def pretend(
    arch: str = "gfx942",
    seen: Callable[[Run], None] | None = None,
    *,
    by: Execute = execute,
    cpu_tensors: bool = False,
    **options: Any,
) -> Iterator[Target]:
    """Inside the block this process has a GPU of that architecture, as far as PyTorch and Triton can tell.

        with gfxlab.pretend("gfx942"):
            x = torch.randn(1000, device="cuda")
            add_kernel[(4,)](x, x, x, 1000, BLOCK=256)

    Tensors on "cuda" lie in the CPU's memory and PyTorch's operations on them run on the CPU. Each launch of a Triton
    kernel is compiled for the GPU and simulated. Blocks may be nested; threads that run inside one see the device too.

    Args:
        arch: gfx90a, gfx942, gfx950, gfx1100 or gfx1201.
        seen: is given each launch's `Run`; by default what is wrong with one is a `Hazard` warning.
        by: executes a launch: given the code, the grid and the values, it returns the `Run`.
        cpu_tensors: launches on CPU tensors are simulated too, which a card would refuse.
        options: those of the simulator: profile, checks, max_seconds, max_instructions.

    Raises:
        ValueError: `arch` is unknown.
        RuntimeError: this process runs under TRITON_INTERPRET=1.
        CannotPretend: this PyTorch does not let a device be attached.
    """
    if dual_mode.env_interpret():
        raise RuntimeError("a process started with TRITON_INTERPRET=1 interprets every launch; start it without")
    target = Target(arch, hardware.card(arch).compute_units)
    options = {"profile": False, "max_seconds": MAX_SECONDS, "elsewhere": around, **options}

    def run(launch: Launch, compiled: Compiled, values: list[Value]) -> None:
        counts = measuring.counts()
        with torch.device("cpu"):  # whatever the default device of the script is
            if counts is not None:
                _measure(counts, compiled, launch.grid, values)
                return
            token = _launch.set(launch)
            try:
                with measuring.whole() as benchmark, _ended(benchmark):
                    ran = by(compiled, launch.grid, values, **options)
                profiling.launched(ran.compiled.name, ran.instructions)
                (seen or warn)(ran)
            except measuring.Over:
                _measure(benchmark.counts, compiled, launch.grid, values)
            finally:
                _launch.reset(token)

    with (
        dual_mode.cpu_launches_by(_bound(arch, run)) if cpu_tensors else dual_mode.launches_by_triton(),
        driver.active(driver.Driver(arch, _loaded(arch, run))),
        present(arch),
        simulating(target),
        tuning.by_count(arch),
        libraries.lent(),
        profiling.recorded(arch),
        spawned.children(begin, arch),
        _untimed(),
    ):
        yield target


def begin(arch: str) -> None:
    """Pretend for the rest of the process: what a process does that another one's script has spawned."""
    _for_good.enter_context(pretend(arch))


def launch_in_work() -> Launch | None:
    """For `by` and `seen`: the launch that is executed now, as its author wrote it."""
    return _launch.get()


def _loaded(arch: str, run: Callable[..., None]) -> driver.Run:
    """For Triton's driver: the kernel as it was loaded, and what the launch is given."""

    def launch(loaded: driver.Loaded, grid: tuple[int, int, int], values: list[Value], given: dict[str, Any]) -> None:
        if loaded.arch != arch:  # a cache that was asked for by hand under another architecture
            raise CannotPretend(f"{loaded.name} was compiled for {loaded.arch}, not {arch}: clear its device_caches")
        options = {"num_warps": loaded.num_warps, "num_stages": loaded.num_stages}
        run(Launch(loaded.kernel, (), {**given, **options}, given, grid), _compiled(loaded), on_host(values))

    return launch


def _bound(arch: str, run: Callable[..., None]) -> Callable[[Launch], None]:
    """For a launch on CPU tensors, which Triton's driver never sees."""

    def launch(launched: Launch) -> None:
        run(launched, *prepare(launched, arch))

    return launch


def _ended(benchmark: measuring.Benchmark | None) -> contextlib.AbstractContextManager[None]:
    """A launch in a benchmark ends when the benchmark's time is spent."""
    if benchmark is None:
        return contextlib.nullcontext()
    start = time.process_time()
    return progress.checked(lambda: benchmark.check(time.process_time() - start))


def _measure(counts: list[counting.Count], compiled: Compiled, grid: tuple[int, int, int], values: list[Value]) -> None:
    """Count what a launch would execute; of one that a benchmark makes again and again it is found out once."""
    known = measuring.known()
    given = tuple(None if isinstance(value.content, torch.Tensor) else repr(value.content) for value in values)
    key = (compiled.name, compiled.asm, grid, given)
    if key not in known:
        known[key] = _sampled(compiled, grid, values)
    counts.append(known[key])
    if measuring.block() is None:
        profiling.launched(compiled.name, known[key].instructions)


def _sampled(compiled: Compiled, grid: tuple[int, int, int], values: list[Value]) -> counting.Count:
    """A few programs of the launch; all of them where one waits for another."""
    few = counting.sample(grid)
    options = {"profile": False, "checks": False, "max_seconds": MAX_SECONDS, "elsewhere": around}
    try:
        return counting.Count(execute(compiled, grid, values, only=few, **options), len(few))
    except SimulationError as error:
        if "wait" not in str(error):
            error.compiled = compiled
            raise
        return counting.Count(execute(compiled, grid, values, **options), grid[0] * grid[1] * grid[2])


@contextlib.contextmanager
def _untimed() -> Iterator[None]:
    stock = {name: getattr(triton.testing, name) for name in _TIMERS if hasattr(triton.testing, name)}
    for name in stock:
        setattr(triton.testing, name, counting.do_bench)
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(triton.testing, name, function)


def warn(run: Run) -> None:
    """A `Hazard` for each thing that a launch did wrong."""
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
