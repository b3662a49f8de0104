"""Which PyTorch build fits this machine: ROCm, CUDA or CPU.

Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

BUILDS = ("cpu", "rocm", "cuda")

# AMD GPUs for which PyTorch's ROCm wheels hold code and for which Triton compiles. Many integrated GPUs have a
# /dev/kfd too and are not among them (gfx1036, for example): those machines are better served by the CPU build.
ROCM_TARGETS = {
    *("gfx908", "gfx90a", "gfx942", "gfx950"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151"),
    *("gfx1200", "gfx1201"),
}


class SetupError(Exception):
    """A reason to stop, in words for the person at the keyboard."""


@dataclass(frozen=True)
class Hardware:
    """What the choice depends on. Tests make their own."""

    system: str = "Linux"
    architecture: str = "x86_64"
    kfd: bool = False  # AMD's compute device /dev/kfd exists
    amd_targets: tuple[str, ...] = ()  # LLVM names of the AMD GPUs, as the kernel driver lists them
    rocminfo: bool = False  # the tool runs and finds ROCm working (WSL2 has it without /dev/kfd)
    nvidia: bool = False  # /dev/nvidia0 exists, or nvidia-smi finds a GPU

    @classmethod
    def here(cls) -> Hardware:
        kfd, nvidia = Path("/dev/kfd").exists(), Path("/dev/nvidia0").exists()
        return cls(
            system=platform.system(),
            architecture=platform.machine(),
            kfd=kfd,
            amd_targets=amd_targets(),
            rocminfo=not kfd and succeeds("rocminfo"),
            nvidia=nvidia or succeeds("nvidia-smi", "-L"),
        )


@dataclass(frozen=True)
class Choice:
    build: str
    reason: str


def choose(hardware: Hardware, wanted: str = "") -> Choice:
    """The build for this machine, or the one that TORCH names.

    Raises SetupError for an unknown name and for a platform without Triton wheels.
    """
    check_platform(hardware)
    if wanted and wanted not in (*BUILDS, "auto"):
        raise SetupError(f"TORCH={wanted} is not a build: use TORCH=cpu, TORCH=rocm, TORCH=cuda or TORCH=auto.")
    if wanted in BUILDS:
        return Choice(wanted, f"TORCH={wanted} asks for it")
    unusable = bool(hardware.amd_targets) and ROCM_TARGETS.isdisjoint(hardware.amd_targets)
    if hardware.kfd and not unusable:
        return Choice("rocm", f"/dev/kfd is there ({', '.join(hardware.amd_targets) or 'AMD GPU'})")
    if hardware.rocminfo and not unusable:
        return Choice("rocm", "rocminfo finds ROCm")
    if hardware.nvidia:
        return Choice("cuda", "there is an NVIDIA GPU")
    if unusable:
        return Choice("cpu", f"the ROCm build has no code for {', '.join(hardware.amd_targets)}; TORCH=rocm tries it")
    return Choice("cpu", "no GPU was found")


def check_platform(hardware: Hardware) -> None:
    """Raise SetupError where Triton has no wheel."""
    if hardware.system == "Darwin":
        raise SetupError(
            "Triton has no wheel for macOS. Open this folder in its dev container (.devcontainer/), or use Linux."
        )
    if hardware.system != "Linux":
        raise SetupError(
            f"Triton has no wheel for {hardware.system}. On Windows use WSL2, or open this folder in its dev container "
            "(.devcontainer/)."
        )
    if hardware.architecture not in ("x86_64", "aarch64"):
        raise SetupError(f"Triton has no wheel for {hardware.architecture}; it has one for x86_64 and for aarch64.")


def amd_targets(nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> tuple[str, ...]:
    """LLVM names ("gfx942") of the AMD GPUs, from the kernel driver's topology; CPUs are nodes with target 0."""
    versions = []
    for properties in sorted(nodes.glob("*/properties")):
        try:
            fields = dict(line.split(maxsplit=1) for line in properties.read_text().splitlines() if " " in line)
        except OSError:  # a container may hide a node
            continue
        versions.append(int(fields.get("gfx_target_version", 0)))
    return tuple(dict.fromkeys(target_name(version) for version in versions if version))


def target_name(version: int) -> str:
    """The driver's number in LLVM's spelling: 90402 is gfx942, 90010 is gfx90a, 110000 is gfx1100."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def succeeds(tool: str, *arguments: str) -> bool:
    """Whether the tool is installed and exits with status 0 within ten seconds."""
    if not shutil.which(tool):
        return False
    try:
        return subprocess.run([tool, *arguments], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
