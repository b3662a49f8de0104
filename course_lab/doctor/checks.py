"""The doctor's checks: each reads the facts and returns one finding, or none where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from course_lab.doctor.machine import Machine, normalised

TRITONS = ("triton", "triton-rocm", "pytorch-triton-rocm", "pytorch-triton")  # all provide the module `triton`
LEAST_DISK = 1 << 30
SHOWN = ("jupyterlab", "nbval", "pytest")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ROCM_INDEX = "https://download.pytorch.org/whl/rocm7.2"


@dataclass(frozen=True)
class Finding:
    """status: "ok", "note" (only a part needs it), "warning" or "failed". fix: the one command that mends it."""

    check: str
    status: str
    text: str
    fix: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(check, "ok", text)


def note(check: str, text: str, fix: str) -> Finding:
    return Finding(check, "note", text, fix)


def warning(check: str, text: str, fix: str) -> Finding:
    return Finding(check, "warning", text, fix)


def failed(check: str, text: str, fix: str) -> Finding:
    return Finding(check, "failed", text, fix)


def python(machine: Machine) -> Finding:
    version = ".".join(map(str, machine.python))
    if machine.python < (3, 11):
        fix = make(machine, "setup PYTHON=python3.12") if machine.checkout else "python3.12 -m venv NEW, and pip in it"
        return failed("Python", f"{version} is too old: 3.11 or newer is needed", fix)
    return ok("Python", f"{version} in {machine.prefix}")


def platform(machine: Machine) -> Finding:
    name = f"{machine.system} {machine.architecture}{' (WSL2)' if machine.wsl else ''}"
    if machine.system == "Linux" and machine.architecture in ("x86_64", "aarch64"):
        return ok("Platform", name)
    container = "open the folder in the dev container (.devcontainer/)" if machine.checkout else "use a Linux container"
    fix = f"wsl --install, then the course inside it; or {container}" if machine.system == "Windows" else container
    return failed("Platform", f"Triton has no wheel for {name}", fix)


def torch(machine: Machine) -> Finding:
    probe = machine.probes["torch"]
    if probe.error:
        return failed("PyTorch", f"cannot be imported: {probe.error}", reinstall(machine))
    version, build = probe.value["version"], probe.value["build"]
    if problem := out_of_bounds(machine, "torch", version):
        return failed("PyTorch", problem, reinstall(machine))
    if build == "cpu" and machine.kfd:
        return warning("PyTorch", f"{version} is the CPU build, but there is an AMD GPU", change_build(machine, "rocm"))
    if build == "cpu" and machine.nvidia:
        return warning(
            "PyTorch", f"{version} is the CPU build, but there is an NVIDIA GPU", change_build(machine, "cuda")
        )
    return ok("PyTorch", f"{version}, {build} build")


def triton(machine: Machine) -> Finding | None:
    probe = machine.probes.get("triton")
    if probe is None:
        return None
    if probe.error:
        return failed("Triton", f"cannot be imported: {probe.error}", reinstall(machine))
    if problem := out_of_bounds(machine, "triton", probe.value["version"]):
        return failed("Triton", problem, reinstall(machine))
    return ok("Triton", f"{probe.value['version']} from the package {' and '.join(tritons(machine)) or 'in the path'}")


def one_triton(machine: Machine) -> Finding | None:
    """Two packages that provide the module `triton` overwrite each other's files; uninstalling one breaks the other."""
    present = tritons(machine)
    if len(present) < 2:
        return None
    versions = " and ".join(f"{name} {machine.packages[name]}" for name in present)
    if machine.made_by_make:
        fix = make(machine, "setup")
    else:
        kept = next((name for name in present if "rocm" in name), present[0])
        others = " ".join(name for name in present if name != kept)
        again = f"{kept}=={machine.packages[kept]}"
        fix = f"{pip(machine)} uninstall -y {others} && {pip(machine)} install --force-reinstall --no-deps {again}"
    return failed("One Triton", f"{versions} are both installed and overwrite each other", fix)


def numpy(machine: Machine) -> Finding | None:
    """Triton 3.6's interpreter calls a numpy function in a way that numpy 2.4 refuses."""
    probe, numpy_version = machine.probes.get("triton"), machine.packages.get("numpy")
    if probe is None or probe.error or numpy_version is None:
        return None
    triton_version = probe.value["version"]
    if Version(triton_version) < Version("3.7") and Version(numpy_version) >= Version("2.4"):
        text = f"numpy {numpy_version} is too new for the interpreter of Triton {triton_version}: it needs numpy < 2.4"
        return failed("numpy", text, f"{pip(machine)} install 'numpy<2.4'")
    return ok("numpy", numpy_version)


def packages(machine: Machine) -> Finding:
    """Every requirement of the course: JupyterLab, nbval and the others."""
    problems = []
    for requirement in required(machine):
        version = machine.packages.get(normalised(requirement.name))
        if version is None:
            problems.append((requirement, f"{requirement.name} is missing"))
        elif version not in requirement.specifier:
            problems.append((requirement, f"{requirement} is needed, {version} is installed"))
    if problems:
        wanted = " ".join(f"'{requirement}'" for requirement, _ in problems)
        return failed("Packages", "; ".join(text for _, text in problems), f"{pip(machine)} install {wanted}")
    shown = ", ".join(f"{name} {machine.packages[name]}" for name in SHOWN if name in machine.packages)
    return ok("Packages", f"{shown}; all that the course needs")


def kfd(machine: Machine) -> Finding | None:
    if not machine.kfd:
        return None
    if machine.kfd_allowed:
        return ok("/dev/kfd", f"may be opened (group {machine.kfd_group})")
    if machine.kfd_group.isdigit():
        text = f"may not be opened: its group {machine.kfd_group} has no name here, as in a container"
        return failed(
            "/dev/kfd",
            text,
            "start the container with --device=/dev/kfd --device=/dev/dri --group-add=" + machine.kfd_group,
        )
    text = f"may not be opened: you are not in the group {machine.kfd_group}"
    return failed("/dev/kfd", text, f"sudo usermod -aG {machine.kfd_group},video $USER   (then log in again)")


def gpu(machine: Machine) -> Finding | None:
    probe = machine.probes.get("gpu")
    if probe is None or not imports(machine):
        return None
    if probe.error:
        return failed("GPU", probe.error, reinstall(machine))
    if found := probe.value:
        lanes = "waves" if found["backend"] == "hip" else "warps"
        return ok("GPU", f"{found['name']}: {found['arch']}, {lanes} of {found['wave_size']}")
    build = (machine.probes["torch"].value or {}).get("build")
    if build == "rocm" and (machine.kfd_allowed or machine.wsl):
        return failed(
            "GPU", "the ROCm build of PyTorch sees no GPU", "rocminfo   (if it finds none either, install the driver)"
        )
    if build == "cuda" and machine.nvidia:
        return failed(
            "GPU",
            "the CUDA build of PyTorch sees no GPU",
            "nvidia-smi   (its CUDA version is the newest the driver runs)",
        )
    return ok("GPU", "none: kernels are interpreted, and compiled for AMD, on the CPU; nothing is timed")


def engine(machine: Machine) -> Finding | None:
    """Run and compile one kernel, as the lessons will."""
    probe = machine.probes.get("kernel")
    if probe is None or not imports(machine):
        return None
    if probe.error:
        return failed("A kernel", f"vector_add does not run: {probe.error}", reinstall(machine))
    if machine.environment.get("TRITON_INTERPRET") == "1":
        return ok("A kernel", "vector_add is right, interpreted because TRITON_INTERPRET=1 is set")
    where = "on the GPU" if probe.value["device"] == "cuda" else "interpreted on the CPU"
    return ok("A kernel", f"vector_add is right, {where}; its machine code for MI300X is there too")


def simulator(machine: Machine) -> Finding | None:
    """Whether the part of it that is written in C is there; it only saves time."""
    probe = machine.probes.get("simulator")
    if probe is None or probe.error or not imports(machine):
        return None
    if not probe.value:
        return ok("Simulator", "its compiled part is there")
    text = f"its compiled part is {probe.value}: the same results, but slower"
    fix = make(machine, "setup") if machine.made_by_make else f"{pip(machine)} install -e gfxlab"
    return note("Simulator", text, f"{fix}   (with a C compiler)")


def backend(machine: Machine) -> Finding | None:
    if machine.environment.get("COURSE_KERNELS_BACKEND") != "torch":
        return None
    text = "COURSE_KERNELS_BACKEND=torch: the course's functions run PyTorch, not their kernels"
    return warning("Backend", text, "unset COURSE_KERNELS_BACKEND")


def weights(machine: Machine) -> Finding | None:
    probe = machine.probes.get("weights")
    if probe is None or not imports(machine):
        return None
    if probe.error:
        return note("Model", f"not here: {probe.error}", f"{pip(machine)} install gguf tokenizers")
    if probe.value is None:
        return note(
            "Model",
            "the weights of SmolLM2-135M, which the lessons use, are not installed",
            f"{short(machine.executable)} -m course_lab model fetch",
        )
    return ok("Model", f"weights in {short(probe.value)}")


def notebooks(machine: Machine) -> Finding | None:
    if machine.checkout:
        return None
    text = "none: lessons and exercises come with the course's repository; one of your own is graded by name"
    return note("Notebooks", text, "course check FILE.ipynb")


def disk(machine: Machine) -> Finding:
    free = f"{machine.free_disk / (1 << 30):.1f} GiB free"
    if machine.free_disk < LEAST_DISK:
        return warning("Disk", f"{free}: compiled kernels and notebooks need room", f"{pip(machine)} cache purge")
    return ok("Disk", free)


def answers(machine: Machine) -> Finding:
    """Whether the code of an answer is kept to its own folder while it is checked."""
    if not machine.open_doors:
        return ok("Answers", "their code reads Python and writes one folder of its own, held by Landlock")
    return note(
        "Answers", machine.open_doors, "Linux 5.13 or newer with Landlock; until then check code that you trust"
    )


CHECKS: tuple[Callable[[Machine], Finding | None], ...] = (
    *(python, platform, torch, triton, one_triton, numpy, packages),
    *(kfd, gpu, backend, engine, simulator, weights, answers, notebooks, disk),
)


def findings(machine: Machine) -> list[Finding]:
    """What every check that applies to this machine has found, in order."""
    return [finding for check in CHECKS if (finding := check(machine))]


# ---- helpers ---------------------------------------------------------------------------------------------------------


def imports(machine: Machine) -> bool:
    """Whether torch and Triton can be imported. If not, their lines say what to do, and the rest cannot be tried."""
    return all(name in machine.probes and not machine.probes[name].error for name in ("torch", "triton"))


def tritons(machine: Machine) -> list[str]:
    return [name for name in TRITONS if name in machine.packages]


def required(machine: Machine, extra: str = "") -> Iterator[Requirement]:
    """The course's requirements with this extra; "" names none."""
    for line in machine.requirements:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def out_of_bounds(machine: Machine, name: str, version: str) -> str:
    """A sentence when the version is outside what the extra `cpu` asks for, else ""."""
    for requirement in required(machine, "cpu"):
        if requirement.name == name and not requirement.specifier.contains(version, prereleases=True):
            return f"{version} is outside the supported range {requirement.specifier}"
    return ""


def change_build(machine: Machine, build: str) -> str:
    """The command that installs another build of PyTorch."""
    if machine.made_by_make:
        return make(machine, f"setup TORCH={build}")
    if machine.checkout:
        by_hand = "a .venv beside this environment; by hand: README.md, Other ways to install"
        return f"{make(machine, f'setup TORCH={build}')}   ({by_hand})"
    index = f" --index-url {ROCM_INDEX}   (the ROCm version that this machine has)" if build == "rocm" else ""
    return f"{pip(machine)} install --force-reinstall {requirement(machine, 'torch')}{index}"


def reinstall(machine: Machine) -> str:
    """The command that puts the present build of PyTorch and its Triton right."""
    if machine.made_by_make:
        again = make(machine, "setup")
        return f"rm -r {short(machine.prefix) if machine.checkout else '.venv'} && {again}"
    if machine.checkout and machine.environment.get("CONDA_PREFIX") == machine.prefix:
        return f"conda env update --prune -f {short(f'{machine.checkout}/environment.yml')}"
    wanted = " ".join(requirement(machine, name) for name in ("torch", "triton"))
    return f"{pip(machine)} install --force-reinstall {wanted} --extra-index-url {CPU_INDEX}"


def requirement(machine: Machine, name: str) -> str:
    """What the extra `cpu` asks of a package, as a word of a command line."""
    found = next((r for r in required(machine, "cpu") if r.name == name), None)
    return f"'{name}{found.specifier}'" if found else name


def make(machine: Machine, arguments: str) -> str:
    """`make` with these arguments, from the folder that the user is in."""
    here = not machine.checkout or Path(machine.checkout) == Path.cwd()
    return f"make {arguments}" if here else f"make -C {short(machine.checkout)} {arguments}"


def pip(machine: Machine) -> str:
    return f"{short(machine.executable)} -m pip"


def short(path: str) -> str:
    """A path relative to the current folder when it is inside, as one would type it."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path
