"""`course report`: what one machine can do with this course, in one file that the owner of a GPU can read and send.

The file is Markdown for a person, with everything once more as JSON at its end. It names the hardware and the versions,
and no user, host or path.
"""

from __future__ import annotations

import getpass
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import course_kernels
import gfxlab
from course_kernels import reference
from course_lab import bench, doctor
from course_lab.doctor.machine import COURSE
from gfxlab import engines, hardware
from gfxlab.code.errors import AmdError
from gfxlab.code.figures import format_widths
from gfxlab.code.of_launches import launched
from gfxlab.code.report import AmdReport
from gfxlab.counters import COUNTERS, hardware_counts
from gfxlab.counters.report import Counted
from gfxlab.tables import Table

ROOT = Path(__file__).resolve().parents[2]
_DEFAULT_ARCH = "gfx942"  # shown where there is no AMD GPU
_TEST_SECONDS = 3600
_TRAFFIC = 256 << 20  # bytes that one timed call moves, about
_SUMMARY = re.compile(r"\b\d+ (?:passed|failed|skipped|deselected|errors?)\b[^\n]*")


def collect(tests: bool = True) -> dict[str, Any]:
    """Everything that the file says. Without a GPU the parts "tests" and "benchmark" are None.

    Args:
        tests: run `make test-gpu` where there is a GPU, which takes minutes.
    """
    gpu = engines.gpu()
    timed = gpu is not None and bench.available()
    machine = doctor.Machine.here()
    return {
        "course": metadata.version(COURSE),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "gpu": asdict(gpu) if gpu else None,
        "driver": str(torch.version.hip or torch.version.cuda),
        "platform": f"{machine.system} {machine.architecture}",
        "doctor": [{key: anonymous(text) for key, text in asdict(f).items()} for f in doctor.findings(machine)],
        "kernels": kernels(gpu.arch if gpu and gpu.arch in hardware.LIMITS else _DEFAULT_ARCH),
        "counters": counters(gpu.arch if gpu and gpu.arch in hardware.LIMITS else _DEFAULT_ARCH),
        "tests": gpu_tests() if timed and tests else None,
        "benchmark": benchmark() if timed else None,
    }


def anonymous(text: str) -> str:
    """The text without paths other than devices, and without the user's and the host's name."""
    text = re.sub(r"(?<![\w.>])~?(?:/[\w.+@~-]+){2,}/?", lambda p: p[0] if p[0].startswith("/dev/") else "<path>", text)
    for name, mark in ((socket.gethostname(), "<host>"), (_user(), "<user>")):
        if name:
            text = re.sub(rf"\b{re.escape(name)}\b", mark, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without an account, as often in a container
        return ""


# ---- the kernels of the course ---------------------------------------------------------------------------------------


def _calls(rows: int, device: str) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], int]]:
    """A few kernels: {name: (call, reference, bytes that it moves at least)}."""
    generator = torch.Generator().manual_seed(0)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(torch.bfloat16).to(device)

    x, y, weight = made(rows, 4096), made(rows, 4096), made(4096)
    a, b = made(min(rows, 1024), 512), made(512, 256)
    own, size = course_kernels, x.nbytes
    return {
        "vector_add": (lambda: own.vector_add(x, y), lambda: x + y, 3 * size),
        "softmax": (lambda: own.softmax(x), lambda: reference.softmax(x), 2 * size),
        "rms_norm": (lambda: own.rms_norm(x, weight), lambda: reference.rms_norm(x, weight), 2 * size),
        "silu_and_mul": (lambda: own.silu_and_mul(x), lambda: reference.act_and_mul(x, "silu"), size + size // 2),
        "matmul": (lambda: own.matmul(a, b), lambda: a.float() @ b.float(), 0),
    }


def kernels(arch: str) -> list[dict[str, Any]]:
    """What some kernels become on `arch`, and how far their results here are from the reference."""
    found = []
    gfxlab.enable()
    with course_kernels.use_backend("triton"):
        for name, (call, truth, _) in _calls(16, engines.device()).items():
            with launched() as seen:
                result = call()
            about = {"kernel": name, "arch": arch, "run_on": engines.device(), "error": _error(result, truth())}
            try:
                about |= _facts(next(iter(seen.reports(arch).values())))
            except (AmdError, StopIteration) as error:
                about["problem"] = anonymous(str(error) or "no launch was seen")
            found.append(about)
    return found


def _error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest |got - expected| / (1 + |expected|)."""
    got, expected = got.double(), expected.double()
    return float(((got - expected).abs() / (1 + expected.abs())).max())


def _facts(report: AmdReport) -> dict[str, Any]:
    return {
        "vgprs": report.vgprs,
        "spills": report.spills,
        "lds": report.lds,
        "waves_per_simd": report.occupancy.waves,
        "limited_by": report.occupancy.limit,
        "loads": format_widths(report.loads),
        "matrix": ", ".join(report.matrix) or "none",
    }


def counters(arch: str) -> list[dict[str, Any]]:
    """What the kernels execute on a simulated `arch`, under the names of AMD's profiler; the card's counts beside."""
    found = []
    measured, problem = _measured()
    with course_kernels.use_backend("triton"):
        for call, _, _ in _calls(16, "cpu").values():
            with gfxlab.using(arch, profile=True) as runs:
                call()
            run = runs[0]
            name = run.compiled.name
            found.append(Counted.of(run, measured.get(name)).as_json() | {"problem": problem})
    return found


def _measured() -> tuple[dict[str, dict[str, float]], str]:
    """The card's counts of the same launches by kernel, and what went wrong."""
    if not hardware_counts.available():
        return {}, "no AMD GPU with rocprofv3 here"
    try:
        names = [counter.name for counter in COUNTERS]
        return hardware_counts.measured([sys.executable, "-m", "course_lab.doctor.owner_report"], names), ""
    except hardware_counts.ProfilerError as error:
        return {}, anonymous(str(error))


def launch_all() -> None:
    """Launch the kernels on the GPU once each: what rocprofv3 looks at."""
    with course_kernels.use_backend("triton"):
        for call, _, _ in _calls(16, "cuda").values():
            call()
    torch.cuda.synchronize()


# ---- what needs a GPU ------------------------------------------------------------------------------------------------


def gpu_tests() -> dict[str, Any]:
    """The summaries of `make test-gpu` and the names of the tests that failed."""
    if not (ROOT / "Makefile").exists() or not shutil.which("make"):
        return {"status": "not run: this needs the course's own folder, and make", "summaries": [], "failed": []}
    command = ["make", "-C", str(ROOT), "test-gpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TEST_SECONDS)
    except subprocess.TimeoutExpired:
        return {"status": f"stopped after {_TEST_SECONDS} s", "summaries": [], "failed": []}
    lines = done.stdout.splitlines()
    return {
        "status": "passed" if done.returncode == 0 else f"ended with status {done.returncode}",
        "summaries": [found[0].strip("= ") for line in lines if (found := _SUMMARY.search(line))],
        "failed": [anonymous(line) for line in lines if line.startswith(("FAILED", "ERROR"))],
    }


def benchmark() -> dict[str, Any]:
    """The median times of some kernels and of PyTorch's own, and the copy bandwidth: a few seconds."""
    results = bench.Results(bench.Machine.here())
    with course_kernels.use_backend("triton"):
        for name, (call, truth, moved) in _calls(_TRAFFIC // (4096 * 2 * 2), "cuda").items():
            if moved:
                results.add(bench.time(call, name=name, bytes=moved))
                results.add(bench.time(truth, name=f"{name}, PyTorch reference", bytes=moved))
    return asdict(results)


# ---- the file --------------------------------------------------------------------------------------------------------


def as_markdown(found: dict[str, Any]) -> str:
    """The report for a person, then as JSON."""
    gpu = found["gpu"]
    name = f"{gpu['name']} ({gpu['arch']}, {gpu['backend']})" if gpu else "none that PyTorch can use"
    parts = [
        "# Report of triton-amd-course",
        f"GPU: {name}. Driver: {found['driver']}. {found['platform']}, course {found['course']}, {found['date']}.",
        "## Doctor",
        Table([(f["check"], f["status"], f["text"]) for f in found["doctor"]], _DOCTOR_HEAD).markdown(),
        f"## Machine code for {found['kernels'][0]['arch']}, results on {found['kernels'][0]['run_on']}",
        Table([_kernel_row(kernel) for kernel in found["kernels"]], _KERNEL_HEAD).markdown(),
        "## Counters of AMD's profiler",
        _counters_text(found["counters"]),
        "## Tests on the GPU",
        _tests_text(found["tests"]),
        "## Benchmark",
        _benchmark_text(found["benchmark"]),
        "## All of it as data",
        f"```json\n{json.dumps(found, indent=1)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


_DOCTOR_HEAD = ("check", "status", "finding")
_KERNEL_HEAD = ("kernel", "error", "VGPRs", "spills", "LDS", "waves per SIMD", "loads", "matrix")


def _kernel_row(kernel: dict[str, Any]) -> tuple[str, ...]:
    if "problem" in kernel:
        return kernel["kernel"], f"{kernel['error']:.2g}", kernel["problem"], "", "", "", "", ""
    waves = f"{kernel['waves_per_simd']:g} ({kernel['limited_by']})"
    numbers = (str(kernel[key]) for key in ("vgprs", "spills", "lds"))
    return kernel["kernel"], f"{kernel['error']:.2g}", *numbers, waves, kernel["loads"], kernel["matrix"]


def _counters_text(counted: list[dict[str, Any]]) -> str:
    head = "Executed on the simulator, and on the card by rocprofv3. Where they differ, one of us is wrong: tell us."
    parts = [head]
    for one in counted:
        known = Counted(**{name: value for name, value in one.items() if name != "problem"})
        parts.append(f"{known.kernel}{f' ({problem})' if (problem := one['problem']) else ''}")
        parts.append(known.table().markdown())
    return "\n\n".join(parts)


def _tests_text(tests: dict[str, Any] | None) -> str:
    if tests is None:
        return "Not run: no GPU, or left out by `--no-tests`."
    return "\n".join(f"- {line}" for line in (tests["status"], *tests["summaries"], *tests["failed"]))


def _benchmark_text(results: dict[str, Any] | None) -> str:
    if results is None:
        return "Not run: there is no GPU to time."
    rows = [bench.Measurement(**item).cells() for item in results["measurements"]]
    return Table(rows, ("", "moves", "median", "middle 60 %", "rate")).markdown()


if __name__ == "__main__":
    launch_all()
