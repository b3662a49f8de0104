"""What the doctor looks at: one record of facts, gathered here or made up by a test."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from gfxlab import confinement

COURSE, INSTRUMENTS = "triton-amd-course", "gfxlab"  # the two distributions of the repository
PROBE_SECONDS = 120


@dataclass(frozen=True)
class Probe:
    """What one part of the probe found: its value, or in `error` why there is none."""

    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class Machine:
    """The facts. Sizes in bytes."""

    python: tuple[int, ...]
    executable: str
    prefix: str  # the environment that Python belongs to
    made_by_make: bool  # that environment is the .venv of `make setup`
    system: str  # "Linux", "Darwin", "Windows"
    architecture: str
    wsl: bool
    environment: Mapping[str, str]
    packages: Mapping[str, str]  # every installed distribution: normalised name -> version
    requirements: tuple[str, ...]  # of both distributions, extras included, as their metadata list them
    probes: Mapping[str, Probe]  # torch, triton, gpu, kernel, simulator, weights
    kfd: bool  # /dev/kfd exists: an AMD GPU with its kernel driver
    kfd_allowed: bool  # ... and this user may open it
    kfd_group: str  # the group that may
    nvidia: bool
    free_disk: int
    open_doors: str = ""  # what an answer could reach that it should not, in a sentence
    checkout: str = ""  # the folder of the course's repository; "" where only its packages are installed

    @classmethod
    def here(cls) -> Machine:
        kfd = Path("/dev/kfd")
        return cls(
            python=tuple(sys.version_info[:3]),
            executable=sys.executable,
            prefix=sys.prefix,
            made_by_make=Path(sys.prefix, "course-setup.json").exists(),
            system=platform.system(),
            architecture=platform.machine(),
            wsl="microsoft" in platform.release().lower(),
            environment=dict(os.environ),
            packages={normalised(d.name): d.version for d in metadata.distributions() if d.name},
            requirements=tuple(line for name in (COURSE, INSTRUMENTS) for line in metadata.requires(name) or ()),
            probes=run_probes(),
            kfd=kfd.exists(),
            kfd_allowed=os.access(kfd, os.R_OK | os.W_OK),
            kfd_group=group_name(kfd.stat().st_gid) if kfd.exists() else "",
            nvidia=Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None,
            free_disk=shutil.disk_usage(Path.cwd()).free,
            open_doors=confinement.open_doors(),
            checkout=checkout(),
        )


def checkout() -> str:
    """The folder of the repository that this package is in; "" where it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    return str(root) if (root / "Makefile").exists() else ""


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def group_name(number: int) -> str:
    """A group's name, or its number where it has none, as often in a container."""
    import grp  # there is none on Windows, where the doctor must still say so

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def run_probes() -> dict[str, Probe]:
    """Run probe.py in a child process. A part that it did not reach is missing from the result."""
    command = [sys.executable, str(Path(__file__).with_name("probe.py"))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired as timeout:
        return read_probes(timeout.stdout or "", f"it did not end within {PROBE_SECONDS} s")
    return read_probes(done.stdout, f"the process died (exit status {done.returncode})")


def read_probes(output: str | bytes, death: str) -> dict[str, Probe]:
    """The probe's lines; the first part without one is where the process ended, for the reason `death`."""
    text = output.decode(errors="replace") if isinstance(output, bytes) else output
    probes = {}
    for line in text.splitlines():
        if line.startswith('{"part"'):  # libraries may print lines of their own
            part = json.loads(line)
            probes[part["part"]] = Probe(part.get("value"), part.get("error", ""))
    for name in ("torch", "triton", "gpu", "kernel", "weights"):
        if name not in probes:
            probes[name] = Probe(error=death)
            break
    return probes
