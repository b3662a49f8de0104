"""Where figures are taken: the GPU, its software and the date; and the refusal where there is none."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
import triton

from gfxlab import engines
from gfxlab.engine import dual_mode


class NothingToTime(RuntimeError):
    """There is no GPU here, or the launch would not run on it."""


def available() -> bool:
    """True when kernels run on a GPU here, so that there is something to time."""
    return engines.gpu() is not None and not dual_mode.env_interpret()


def refuse_without_gpu() -> None:
    """Nothing, where kernels run on a GPU.

    Raises:
        NothingToTime: they do not.
    """
    if engines.gpu() is None:
        raise NothingToTime(
            "nothing is timed here: this machine has no GPU that PyTorch can use, and the interpreter's time says "
            "nothing about a GPU's. Run this cell on a machine with an AMD or NVIDIA GPU."
        )
    if dual_mode.env_interpret():
        raise NothingToTime(
            "nothing is timed here: TRITON_INTERPRET=1 is set, so kernels are interpreted. Unset it and restart."
        )


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
        refuse_without_gpu()
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
