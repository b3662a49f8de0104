"""Time kernels on a GPU, and only there: the interpreter's speed says nothing about any GPU.

    if bench.available():
        print(bench.time(lambda: add(x, y), bytes=3 * x.nbytes))

Each figure is a median of many runs with a cold L2 cache, beside the copy bandwidth of the same GPU, and knows the
machine it was taken on.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time as clock
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch
import triton

from course_kernels._triton import dual_mode, hooks
from course_lab import engines, style
from course_lab.hardware import format_bytes, format_seconds

COPY_BYTES = 1 << 30  # read and written by the copy that measures the bandwidth


class NothingToTime(RuntimeError):
    """There is no GPU here, or the launch would not run on it."""


def available() -> bool:
    """True when kernels run on a GPU here, so that there is something to time."""
    return engines.gpu() is not None and not dual_mode.env_interpret()


# ---- one figure ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """A time in seconds: the median, and the range that holds the middle 60 % of the runs (fast to slow).

    bytes, flops: what one call moves and computes, if the caller said so; copy: bytes/s of a plain copy on this GPU.
    family, size: what was measured, where several figures stand together; error: the result's distance from a
    reference, as a part of its norm; graph: "warm" or "cold" if a captured graph was timed (see `time`).
    """

    name: str
    seconds: float
    fast: float
    slow: float
    bytes: float | None = None
    flops: float | None = None
    copy: float | None = None
    family: str = ""
    size: str = ""
    error: float | None = None
    graph: str = ""

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self.bytes / self.seconds if self.bytes else None

    @property
    def of_copy(self) -> float | None:
        """The bandwidth as a part of a plain copy's: 1.0 is as fast as memory goes."""
        return self.bandwidth / self.copy if self.bytes and self.copy else None

    def cells(self) -> tuple[str, ...]:
        """Name, bytes, time, spread and rate, for a table."""
        rate = ""
        if self.bytes:
            rate = f"{self.bandwidth / 1e9:,.0f} GB/s" + (f", {self.of_copy:.0%} of a copy" if self.copy else "")
        elif self.flops:
            rate = f"{self.flops / self.seconds / 1e12:,.3g} TFLOP/s"
        spread = f"{format_seconds(self.fast)} to {format_seconds(self.slow)}"
        return self.name, format_bytes(self.bytes) if self.bytes else "", format_seconds(self.seconds), spread, rate

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells() if cell)


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
    _refuse_without_gpu()
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


def call_time(function: Callable[[], object], *, name: str = "", calls: int = 50, runs: int = 21) -> Measurement:
    """The time that Python takes to make one call; the GPU may still be at work when it returns.

    Give it a call that the GPU finishes sooner than that, or the queue of calls fills up and this is the GPU's time.

    Raises:
        NothingToTime: there is no GPU.
    """
    _refuse_without_gpu()
    times = []
    for _ in range(runs):
        torch.cuda.synchronize()
        start = clock.perf_counter()
        for _ in range(calls):
            function()
        times.append((clock.perf_counter() - start) / calls)
    times.sort()
    return Measurement(name or "one call", times[runs // 2], times[runs // 5], times[runs - 1 - runs // 5])


def _refuse_without_gpu() -> None:
    if engines.gpu() is None:
        raise NothingToTime(
            "nothing is timed here: this machine has no GPU that PyTorch can use, and the interpreter's time says "
            "nothing about a GPU's. Run this cell on a machine with an AMD or NVIDIA GPU."
        )
    if dual_mode.env_interpret():
        raise NothingToTime(
            "nothing is timed here: TRITON_INTERPRET=1 is set, so kernels are interpreted. Unset it and restart."
        )


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
    quantiles = triton.testing.do_bench_cudagraph(function, rep=repeat * 1e2, quantiles=[0.5, 0.2, 0.8])
    return tuple(milliseconds * 1e-3 for milliseconds in quantiles)


@cache
def copy_bandwidth() -> float:
    """Bytes per second that a plain copy of a large tensor reads and writes on this GPU, measured once.

    Raises:
        NothingToTime: there is no GPU.
    """
    _refuse_without_gpu()
    source = torch.empty(COPY_BYTES // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return COPY_BYTES / _seconds(lambda: target.copy_(source), 0.05, 0.2)[0]


# ---- many figures ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """Where figures were taken. toolkit: the version of ROCm or CUDA that PyTorch was built with."""

    gpu: str
    arch: str
    backend: str
    torch: str
    triton: str
    toolkit: str
    python: str
    date: str
    driver: str = ""
    commit: str = ""

    @classmethod
    def here(cls) -> Machine:
        """This machine, now.

        Raises:
            NothingToTime: it has no GPU.
        """
        _refuse_without_gpu()
        gpu = engines.gpu()
        return cls(
            gpu=gpu.name,
            arch=gpu.arch,
            backend=gpu.backend,
            torch=torch.__version__,
            triton=triton.__version__,
            toolkit=str(torch.version.hip or torch.version.cuda),
            python=platform.python_version(),
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            driver=_driver(),
            commit=_commit(),
        )

    def __str__(self) -> str:
        return f"{self.gpu} ({self.arch}), PyTorch {self.torch}, Triton {self.triton}, {self.date}"


def _driver() -> str:
    """The version of the GPU's kernel driver, or "" where it does not say."""
    for path in ("/sys/module/amdgpu/version", "/proc/driver/nvidia/version"):
        if Path(path).exists():
            found = re.search(r"\d+(\.\d+)+", Path(path).read_text())
            return found[0] if found else ""
    return ""


def _commit() -> str:
    """The commit of this course, or "" outside its repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""


@dataclass
class Results:
    """Figures of one machine, as a table, a plot or a file.

    results = bench.Results(bench.Machine.here())
    results.add(bench.time(lambda: torch.add(x, y), name="torch", bytes=3 * x.nbytes))
    results.save("results.json")
    """

    machine: Machine
    measurements: list[Measurement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was not measured, and why

    def add(self, measurement: Measurement) -> Measurement:
        """Keep a figure, and hand it back."""
        self.measurements.append(measurement)
        return measurement

    def save(self, path: str | Path) -> None:
        """Write everything as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is not of this kind.
        """
        try:
            data = json.loads(Path(path).read_text())
            measurements = [Measurement(**item) for item in data["measurements"]]
            return cls(Machine(**data["machine"]), measurements, data.get("notes", []))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no benchmark results: {error}") from None

    def __str__(self) -> str:
        rows = [measurement.cells() for measurement in self.measurements]
        return "\n".join([str(self.machine), style.text_table(rows)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [measurement.cells() for measurement in self.measurements]
        return style.card(str(self.machine), style.table(rows, ("", "moves", "median", "middle 60 %", "")))

    def plot(self, title: str = ""):
        """Bandwidth over bytes moved, one line for each name; the machine stands in the title.

        Returns:
            a matplotlib figure.

        Raises:
            ValueError: no figure says how many bytes it moves.
        """
        from matplotlib.figure import Figure

        lines: dict[str, list[tuple[float, float]]] = {}
        for item in self.measurements:
            if item.bytes:
                lines.setdefault(item.name, []).append((item.bytes, item.bandwidth / 1e9))
        if not lines:
            raise ValueError("nothing to plot: no measurement has bytes")
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for (name, points), colour in zip(lines.items(), style.PALETTE * len(lines)):
            axes.plot(*zip(*sorted(points)), "o-", label=name, color=colour)
        copies = [item.copy for item in self.measurements if item.copy]
        if copies:
            axes.axhline(max(copies) / 1e9, color=style.QUIET, linestyle="--", label="a plain copy, 1 GiB")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
        axes.set(xlabel="bytes moved", ylabel="GB/s", title="\n".join(filter(None, [title, str(self.machine)])), ylim=0)
        axes.title.set_size(10)
        axes.legend()
        return figure
