"""The doctor on machines made up here: every check in both states, and a fix wherever something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from course_lab import doctor
from course_lab.doctor import Machine, Probe
from course_lab.doctor.machine import read_probes

REQUIREMENTS = (
    "jupyterlab<5,>=4.4",
    "nbval==0.11.0",
    "pytest<10,>=9.0",
    "Platform.Dirs>=4",
    'torch<2.14,>=2.10; extra == "cpu"',
    'triton<3.10,>=3.6; extra == "cpu"',
    'jupyterhub>=5; extra == "workshop"',
)

LAPTOP = Machine(
    python=(3, 11, 7),
    executable="/course/.venv/bin/python",
    prefix="/course/.venv",
    made_by_make=True,
    system="Linux",
    architecture="x86_64",
    wsl=False,
    environment={},
    packages={
        "jupyterlab": "4.6.6",
        "nbval": "0.11.0",
        "numpy": "2.4.6",
        "platform-dirs": "4.3",
        "pytest": "9.2.0",
        "triton": "3.9.0",
    },
    requirements=REQUIREMENTS,
    probes={
        "torch": Probe({"version": "2.13.0+cpu", "build": "cpu"}),
        "triton": Probe({"version": "3.9.0"}),
        "gpu": Probe(None),
        "kernel": Probe({"device": "cpu"}),
        "weights": Probe("/course/model.gguf"),
    },
    kfd=False,
    kfd_allowed=False,
    kfd_group="",
    nvidia=False,
    free_disk=50 << 30,
    checkout=str(Path.cwd()),
)


def machine(base: Machine = LAPTOP, probes: dict | None = None, packages: dict | None = None, **facts) -> Machine:
    """The base machine with some facts, probes and packages replaced; a package of None is uninstalled."""
    merged = {**base.packages, **(packages or {})}
    return replace(
        base,
        probes={**base.probes, **(probes or {})},
        packages={name: version for name, version in merged.items() if version},
        **facts,
    )


MI300X = machine(
    probes={
        "torch": Probe({"version": "2.13.0+rocm7.2", "build": "rocm"}),
        "triton": Probe({"version": "3.7.1"}),
        "gpu": Probe({"name": "AMD Instinct MI300X", "arch": "gfx942", "backend": "hip", "wave_size": 64}),
        "kernel": Probe({"device": "cuda"}),
    },
    packages={"triton": None, "triton-rocm": "3.7.1"},
    kfd=True,
    kfd_allowed=True,
    kfd_group="render",
)


def find(machine: Machine, check: str) -> doctor.Finding | None:
    return next((finding for finding in doctor.findings(machine) if finding.check == check), None)


@pytest.mark.parametrize("healthy", [LAPTOP, MI300X], ids=["laptop", "MI300X"])
def test_a_healthy_machine_passes(healthy):
    findings = doctor.findings(healthy)
    assert [finding.status for finding in findings] == ["ok"] * len(findings)
    assert doctor.exit_status(findings) == 0
    assert not any(finding.fix for finding in findings)


BROKEN_TORCH = Probe(error="ModuleNotFoundError: No module named 'torch'")
BROKEN_TRITON = Probe(error="ModuleNotFoundError: No module named 'triton'")
OLD_TORCH = Probe({"version": "2.6.0+cpu", "build": "cpu"})
CUDA_TORCH = Probe({"version": "2.13.0", "build": "cuda"})
TWO_TRITONS = machine(MI300X, packages={"triton": "3.9.0"})

# A machine with one defect -> the check that finds it, its status, part of its text, part of its fix.
SICK = {
    "old python": (machine(python=(3, 10, 2)), "Python", "failed", "3.10.2 is too old", "make setup PYTHON="),
    "macOS": (machine(system="Darwin"), "Platform", "failed", "no wheel for Darwin", "dev container"),
    "Windows": (machine(system="Windows"), "Platform", "failed", "no wheel for Windows", "wsl --install"),
    "no torch": (
        machine(probes={"torch": BROKEN_TORCH}),
        "PyTorch",
        "failed",
        "named 'torch'",
        "rm -r /course/.venv && make",
    ),
    "old torch": (machine(probes={"torch": OLD_TORCH}), "PyTorch", "failed", "range <2.14,>=2.10", "make setup"),
    "CPU build, AMD GPU": (
        machine(kfd=True, kfd_allowed=True),
        "PyTorch",
        "warning",
        "AMD GPU",
        "make setup TORCH=rocm",
    ),
    "CPU build, NVIDIA": (machine(nvidia=True), "PyTorch", "warning", "NVIDIA GPU", "make setup TORCH=cuda"),
    "no triton": (machine(probes={"triton": BROKEN_TRITON}), "Triton", "failed", "named 'triton'", "make setup"),
    "new triton": (
        machine(probes={"triton": Probe({"version": "3.10.0"})}),
        "Triton",
        "failed",
        "outside",
        "make setup",
    ),
    "two Tritons": (TWO_TRITONS, "One Triton", "failed", "triton 3.9.0 and triton-rocm 3.7.1", "make setup"),
    "two Tritons, no make": (
        replace(TWO_TRITONS, made_by_make=False),
        *("One Triton", "failed", "overwrite each other"),
        "uninstall -y triton && /course/.venv/bin/python -m pip install --force-reinstall --no-deps triton-rocm==3.7.1",
    ),
    "new numpy": (machine(probes={"triton": Probe({"version": "3.6.0"})}), "numpy", "failed", "< 2.4", "'numpy<2.4'"),
    "old nbval": (machine(packages={"nbval": "0.10.0"}), "Packages", "failed", "0.10.0", "'nbval==0.11.0'"),
    "no lab": (machine(packages={"jupyterlab": None}), "Packages", "failed", "is missing", "'jupyterlab<5,>=4.4'"),
    "no group": (machine(MI300X, kfd_allowed=False), "/dev/kfd", "failed", "the group render", "usermod -aG render,"),
    "container": (
        machine(MI300X, kfd_allowed=False, kfd_group="993"),
        *("/dev/kfd", "failed", "has no name here", "--group-add=993"),
    ),
    "ROCm, no GPU": (machine(MI300X, probes={"gpu": Probe(None)}), "GPU", "failed", "ROCm build", "rocminfo"),
    "CUDA, no GPU": (
        machine(probes={"torch": CUDA_TORCH}, nvidia=True),
        *("GPU", "failed", "CUDA build of PyTorch sees no GPU", "nvidia-smi"),
    ),
    "GPU query": (
        machine(MI300X, probes={"gpu": Probe(error="HIP error")}),
        "GPU",
        "failed",
        "HIP error",
        "make setup",
    ),
    "kernel": (machine(probes={"kernel": Probe(error="it died")}), "A kernel", "failed", "it died", "make setup"),
    "torch backend": (
        machine(environment={"COURSE_KERNELS_BACKEND": "torch"}),
        *("Backend", "warning", "run PyTorch", "unset COURSE_KERNELS_BACKEND"),
    ),
    "no weights": (
        machine(probes={"weights": Probe(None)}),
        "Model",
        "note",
        "not installed",
        "course_lab model fetch",
    ),
    "no gguf": (
        machine(probes={"weights": Probe(error="no gguf")}),
        "Model",
        "note",
        "no gguf",
        "install gguf tokenizers",
    ),
    "full disk": (machine(free_disk=100 << 20), "Disk", "warning", "0.1 GiB free", "pip cache purge"),
}


@pytest.mark.parametrize(("sick", "check", "status", "text", "fix"), SICK.values(), ids=SICK)
def test_each_defect_is_named_with_its_fix(sick, check, status, text, fix):
    finding = find(sick, check)
    assert finding.status == status
    assert text in finding.text
    assert fix in finding.fix
    assert doctor.exit_status(doctor.findings(sick)) == (status == "failed")


def test_conda_users_get_a_conda_command():
    prefix = "/home/me/miniforge3/envs/triton-amd-course"
    sick = machine(
        probes={"triton": Probe(error="ModuleNotFoundError")},
        made_by_make=False,
        prefix=prefix,
        environment={"CONDA_PREFIX": prefix},
    )
    assert find(sick, "Triton").fix == "conda env update --prune -f environment.yml"


def test_from_another_folder_the_commands_lead_to_the_checkout():
    sick = machine(probes={"torch": BROKEN_TORCH}, checkout="/course")
    assert find(sick, "PyTorch").fix == "rm -r /course/.venv && make -C /course setup"
    assert find(machine(python=(3, 10, 2), checkout="/course"), "Python").fix.startswith(
        "make -C /course setup PYTHON="
    )


BROKEN = [{"probes": {"torch": BROKEN_TORCH}}, {"probes": {"triton": BROKEN_TRITON}}]


@pytest.mark.parametrize("change", [{"python": (3, 10, 2)}, {"system": "Darwin"}, {"nvidia": True}, *BROKEN])
def test_where_only_the_packages_are_installed_no_fix_needs_the_repository(change):
    prefix = "/home/me/env"
    alone = machine(made_by_make=False, checkout="", prefix=prefix, environment={"CONDA_PREFIX": prefix}, **change)
    fixes = [finding.fix for finding in doctor.findings(alone) if finding.fix]
    assert fixes and not any(word in fix for fix in fixes for word in ("make ", ".yml", "README", "devcontainer"))


def test_pip_users_get_a_pip_command_within_the_bounds():
    sick = machine(probes={"triton": Probe(error="ModuleNotFoundError")}, made_by_make=False)
    fix = find(sick, "Triton").fix
    assert fix.startswith("/course/.venv/bin/python -m pip install")
    assert "'triton<3.10,>=3.6'" in fix
    assert "nbval" not in fix
    assert "jupyterhub" not in fix


def test_without_torch_only_torch_is_blamed():
    """What needs torch cannot be tried; its lines would only repeat the cause."""
    sick = machine(probes=dict.fromkeys(("torch", "gpu", "kernel", "weights"), BROKEN_TORCH))
    assert [finding.check for finding in doctor.findings(sick) if finding.status == "failed"] == ["PyTorch"]


def test_triton_interpret_is_told():
    assert "TRITON_INTERPRET=1 is set" in find(machine(environment={"TRITON_INTERPRET": "1"}), "A kernel").text


def test_the_gpu_line_names_architecture_and_wave_size():
    assert find(MI300X, "GPU").text == "AMD Instinct MI300X: gfx942, waves of 64"


def test_a_probe_that_dies_is_blamed_on_the_part_it_died_in():
    output = 'a library says hello\n{"part": "torch", "value": {"version": "2.13.0+cpu", "build": "cpu"}}\n'
    probes = read_probes(output, "the process died (exit status -11)")
    assert probes["torch"].value["build"] == "cpu"
    assert probes["triton"].error == "the process died (exit status -11)"
    assert "gpu" not in probes
    sick = replace(LAPTOP, probes=probes)
    assert [finding.check for finding in doctor.findings(sick) if finding.status == "failed"] == ["Triton"]


def test_json_says_the_same():
    findings = doctor.findings(machine(packages={"nbval": None}))
    told = json.loads(doctor.as_json(findings))
    assert told["ok"] is False
    (packages,) = [check for check in told["checks"] if check["check"] == "Packages"]
    assert packages == {"check": "Packages", "status": "failed", "text": "nbval is missing", "fix": packages["fix"]}


def test_text_has_each_fix_on_a_line_of_its_own():
    text = doctor.as_text(doctor.findings(machine(packages={"nbval": None}))).plain
    assert "\n            /course/.venv/bin/python -m pip install 'nbval==0.11.0'\n" in text
    assert text.endswith("1 of 11 checks failed; the command under each mends it.")


def run_course(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "course_lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=200)


def test_the_doctor_runs_on_this_machine():
    done = run_course("doctor", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == (0 if told["ok"] else 1)
    found = {check["check"]: check for check in told["checks"]}
    assert found["PyTorch"]["status"] != "failed"
    assert found["A kernel"]["status"] == "ok"


@pytest.mark.parametrize("module", ["torch", "triton"])
def test_the_doctor_runs_where_a_package_is_broken(tmp_path, module):
    """A module of that name, found first, that cannot be imported."""
    (tmp_path / f"{module}.py").write_text("raise ImportError('libfoo.so.1: cannot open shared object file')\n")
    done = run_course("doctor", "--json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stderr
    failed = [check for check in json.loads(done.stdout)["checks"] if check["status"] == "failed"]
    assert "libfoo.so.1" in failed[0]["text"]
    assert failed[0]["check"] == {"torch": "PyTorch", "triton": "Triton"}[module]


def test_every_triton_name_of_the_set_up_is_known_to_the_doctor(monkeypatch):
    from course_lab.doctor.checks import TRITONS

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import setup as setup_script

    assert set(setup_script.TRITONS) <= set(TRITONS)


def test_open_doors_are_said():
    (held,) = [one for one in doctor.findings(LAPTOP) if one.check == "Answers"]
    assert held.status == "ok"
    (open_,) = [one for one in doctor.findings(replace(LAPTOP, open_doors="Anything goes.")) if one.check == "Answers"]
    assert open_.status == "note" and open_.text == "Anything goes." and "Landlock" in open_.fix


def test_an_installation_without_notebooks_says_so_and_is_ready():
    alone = machine(checkout="")
    assert find(alone, "Notebooks").status == "note" and find(alone, "Notebooks").fix == "course check FILE.ipynb"
    assert doctor.exit_status(doctor.findings(alone)) == 0
    assert all(finding.check != "Notebooks" for finding in doctor.findings(machine()))
