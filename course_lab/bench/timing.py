"""Times on a GPU: medians of many runs with a cold L2 cache, or of captured graphs."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from functools import cache

import torch
import triton

from course_lab.bench.figures import Measurement
from course_lab.bench.machine import NothingToTime, refuse_without_gpu
from gfxlab.engine import hooks

COPY_BYTES = 1 << 30  # read and written by the copy that measures the bandwidth


def time(
    function: Callable[[], object],
    *,
    name: str = "",
    bytes: float | None = None,
    flops: float | None = None,
    warmup: float = 0.025,
    repeat: float = 0.1,
    graph: str = "",
) -> Measurement:
    """The median time of one call of `function` on this GPU, each call after the L2 cache was cleared.

    Args:
        bytes, flops: what one call moves and computes; gives the rate.
        warmup, repeat: seconds of calls before and during the measurement.
        graph: time replays of a captured graph, so that Python's part is left out: "warm", of many calls in a row,
            whose data stays in the cache if it fits; "cold", of one call, the cache cleared before each.

    Raises:
        NothingToTime: there is no GPU, or `function` launched a kernel on CPU tensors, which is interpreted.
    """
    refuse_without_gpu()
    before = hooks.launches()
    function()
    if hooks.launches() != before:
        raise NothingToTime(
            "this launch was interpreted, because its tensors are on the CPU; create them with device='cuda' to time it"
        )
    if graph == "warm":
        median, fast, slow = _warm_seconds(function, repeat)
    else:
        median, fast, slow = _seconds(_captured(function) if graph else function, warmup, repeat)
    copy = copy_bandwidth() if bytes else None
    return Measurement(name or "one call", median, fast, slow, bytes, flops, copy, graph=graph)


def call_times(functions: dict[str, Callable[[], object]], *, calls: int = 50, runs: int = 21) -> list[Measurement]:
    """The time that Python takes to make one call; the GPU may still be at work when it returns.

    Several functions, by name, run in turns: what else the machine does slows them all alike. Give it calls that the
    GPU finishes sooner than that, or the queue of calls fills up and this is the GPU's time.

    Raises:
        NothingToTime: there is no GPU.
    """
    refuse_without_gpu()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            torch.cuda.synchronize()
            start = clock.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((clock.perf_counter() - start) / calls)
    quantiles = runs // 2, runs // 5, runs - 1 - runs // 5
    return [Measurement(name, *(sorted(seconds)[i] for i in quantiles)) for name, seconds in times.items()]


def _seconds(function: Callable[[], object], warmup: float, repeat: float) -> tuple[float, ...]:
    """Median and the ends of the middle 60 %."""
    quantiles = triton.testing.do_bench(function, warmup=warmup * 1e3, rep=repeat * 1e3, quantiles=[0.5, 0.2, 0.8])
    return tuple(milliseconds * 1e-3 for milliseconds in quantiles)


def _captured(function: Callable[[], object]) -> Callable[[], None]:
    """The replay of one call."""
    torch.cuda.synchronize()  # another stream does not wait for the inputs
    with torch.cuda.stream(torch.cuda.Stream()):  # what happens only once must not be captured
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def _warm_seconds(function: Callable[[], object], repeat: float) -> tuple[float, ...]:
    """As `_seconds`, of a captured graph of many calls; Triton replays it ten times."""
    torch.cuda.synchronize()  # as above
    triton.testing.do_bench_cudagraph(
        function, rep=1
    )  # how many calls fit is guessed from a replay, the first a slow one
    quantiles = triton.testing.do_bench_cudagraph(function, rep=repeat * 1e2, quantiles=[0.5, 0.2, 0.8])
    return tuple(milliseconds * 1e-3 for milliseconds in quantiles)


@cache
def copy_bandwidth() -> float:
    """Bytes per second that a plain copy of a large tensor reads and writes on this GPU, measured once.

    Raises:
        NothingToTime: there is no GPU.
    """
    refuse_without_gpu()
    return COPY_BYTES / _seconds(copy_of(COPY_BYTES), 0.05, 0.2)[0]


def copy_of(bytes: int, device: str = "cuda") -> Callable[[], torch.Tensor]:
    """A call that reads and writes so many bytes in all, by an elementwise kernel of PyTorch.

    Not by `copy_`: the driver's memcpy of 512 MiB and more is slow once it is captured in a graph. On an H200 it moved
    2.73 TB/s then, launched 4.17, and such a kernel 4.19 either way (`python -m benchmarks.copies`).
    """
    source = torch.ones(max(bytes // 8, 1), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    return lambda: torch.neg(source, out=target)
