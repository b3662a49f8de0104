"""The two distributions: what each contains and asks for; built, installed in a fresh environment and used there."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
USER_FILE = Path(__file__).parent / "gfxlab" / "user_files" / "tutorial_kernels.py"
PACKAGES = {"gfxlab": ("gfxlab",), "course": ("course_kernels", "course_lab", "course_lessons")}
PROJECTS = {"gfxlab": ROOT / "gfxlab" / "pyproject.toml", "course": ROOT / "pyproject.toml"}
AS_FOUND = {"torch", "triton"}  # no distribution may ask for them: a ROCm torch brings its own Triton
FROM_AN_EXTRA = {"distributed"}  # imported where it is used, with a sentence for those who have not got it
IN_A_NOTEBOOK = {"ipywidgets", "ipython"}  # a notebook has them; gfxlab does without elsewhere


def project(name: str) -> dict:
    return tomllib.loads(PROJECTS[name].read_text())


def asked_for(name: str) -> set[str]:
    return {normalised(Requirement(line).name) for line in project(name)["project"]["dependencies"]}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(package: str) -> dict[str, str]:
    """Every module that a package imports from elsewhere, with a file that does."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        if path == ROOT / "gfxlab" / "setup.py":  # runs where it is built
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names}


def test_gfxlabs_list_of_packages_is_complete():
    """A flat folder cannot be searched by setuptools, so the list is kept by hand."""
    folders = {
        path.parent.relative_to(ROOT)
        for path in (ROOT / "gfxlab").rglob("*.py")
        if path.parts[len(ROOT.parts) + 1] != "build"
    }
    packages = project("gfxlab")["tool"]["setuptools"]["packages"]
    assert sorted(packages) == sorted(".".join(folder.parts) for folder in folders)
    assert all((ROOT / folder / "__init__.py").exists() for folder in folders)


def test_the_course_neither_contains_gfxlab_nor_asks_an_index_for_it():
    course = project("course")
    patterns = course["tool"]["setuptools"]["packages"]["find"]["include"]
    assert patterns == [f"{name}*" for name in PACKAGES["course"]]
    everything = [*course["project"]["dependencies"], *sum(course["project"]["optional-dependencies"].values(), [])]
    assert "gfxlab" not in {Requirement(line).name for line in everything}


def test_the_instruments_ask_for_no_jupyter_and_no_pytest():
    assert asked_for("gfxlab") == {"numpy", "pyyaml", "rich", "typer"}


@pytest.mark.parametrize("name", PACKAGES)
def test_what_is_imported_is_asked_for(name):
    owners = metadata.packages_distributions()
    ours = {package for packages in PACKAGES.values() for package in packages}
    optional = IN_A_NOTEBOOK | {"pytest"} if name == "gfxlab" else set()
    for package in PACKAGES[name]:
        for module, path in imported(package).items():
            if module in ours | AS_FOUND | FROM_AN_EXTRA:
                continue
            distributions = {normalised(owner) for owner in owners.get(module, [])}
            assert distributions & (asked_for(name) | optional), (
                f"{path} imports {module}: ask for it in pyproject.toml"
            )


# ---- built and installed ---------------------------------------------------------------------------------------------


def closure(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """These distributions and all that they ask for, extras such as `bleach[css]` too, as far as they are here."""
    found: dict[tuple[str, str], metadata.Distribution] = {}
    todo = [(name, "") for name in names]
    while todo:
        wanted = todo.pop()
        name, extra = wanted
        if wanted in found:
            continue
        try:
            found[wanted] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for each in map(Requirement, found[wanted].requires or ()):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                todo += [(normalised(each.name), more) for more in ("", *each.extras)]
    return {name: distribution for (name, _), distribution in found.items()}


def link(distributions: Iterable[metadata.Distribution], site: Path) -> None:
    """Let another environment see these distributions of this one."""
    for distribution in distributions:
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))


def wheel(name: str, folder: Path) -> Path:
    """The wheel of one distribution, built from a copy so that the checkout stays clean."""
    source = folder / name
    for package in PACKAGES[name]:
        target = source if name == "gfxlab" else source / package
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / package, target, ignore=ignore, dirs_exist_ok=True)
    shutil.rmtree(source / "build", ignore_errors=True)  # of an earlier build in the checkout
    for file in ("pyproject.toml", "README.md", "LICENSE") if name == "course" else ():
        shutil.copy(ROOT / file, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True, timeout=300)
    (built,) = folder.glob(f"{'gfxlab' if name == 'gfxlab' else 'triton_amd_course'}-*.whl")
    return built


class Environment:
    """A fresh environment with some of our wheels, what they ask for, and this one's torch and triton."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=60)
        self.bin = folder / "venv" / "bin"
        (self.site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        wheels = [str(wheel(name, folder)) for name in names]
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", *wheels], check=True, timeout=300)
        link(closure([*AS_FOUND, *(each for name in names for each in asked_for(name))]).values(), self.site)
        (folder / "work").mkdir()

    def run(self, *command: str) -> subprocess.CompletedProcess:
        """Run a command of this environment in a folder of its own, without this one's paths."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        program = str(self.bin / command[0])
        work = self.folder / "work"
        done = subprocess.run(
            [program, *command[1:]], cwd=work, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def import_every_module(self, *packages: str) -> None:
        code = (
            "import importlib, pkgutil, sys\n"
            f"for name in {packages!r}:\n"
            "    package = importlib.import_module(name)\n"
            f"    assert package.__file__.startswith({str(self.site)!r}), package.__file__\n"
            "    for found in pkgutil.walk_packages(package.__path__, name + '.'):\n"
            "        if not found.name.endswith(('__main__', '.lesson', '.exercises', 'plugin')):\n"  # cells; pytest's
            "            importlib.import_module(found.name)\n"
        )
        self.run("python", "-c", code)


@pytest.fixture(scope="module")
def instruments(tmp_path_factory) -> Environment:
    """An environment of somebody who never sees the course, nor pytest."""
    return Environment(tmp_path_factory.mktemp("instruments"), ["gfxlab"])


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Environment:
    return Environment(tmp_path_factory.mktemp("course"), ["gfxlab", "course"])


@pytest.mark.slow
def test_the_instruments_alone_report_and_simulate_a_users_file(instruments):
    instruments.import_every_module("gfxlab")
    shutil.copy(USER_FILE, instruments.folder / "work" / "my_kernels.py")
    output = instruments.run(
        "gfxlab", "report", "my_kernels.py:softmax_kernel", "--arch", "gfx1201", "--listing"
    ).stdout
    assert "softmax_kernel on gfx1201" in output and "waves per SIMD" in output
    assert "numerator = tl.exp(x - tl.max(x, axis=0))" in output
    assert "matmul_kernel" in instruments.run("gfxlab", "simulate", "my_kernels.py:matmul_kernel").stdout
    output = instruments.run("gfxlab", "trace", "my_kernels.py:layer_norm_kernel", "--html", "page.html").stdout
    assert "layer_norm_kernel, grid 5" in output
    assert "<svg" in (instruments.folder / "work" / "page.html").read_text()
    assert not {"IPython", "pytest", "course_lab"} & {path.name for path in instruments.site.iterdir()}


@pytest.mark.slow
def test_the_course_is_whole_when_installed(course):
    course.import_every_module(*PACKAGES["gfxlab"], *PACKAGES["course"])
    told = course.run("course", "doctor").stdout
    assert "Ready." in told and "· Model" in told  # without the weights: a note, no failure
    assert "gfxlab" in course.run("course", "--version").stdout
    course.run("python", "-c", "from course_lab import bench; print(bench.stored('rms_norm'))")


@pytest.mark.slow
def test_data_files_come_along(course):
    suffixes = (".py", ".json", ".typed", ".yaml")
    files = [
        path for name in sum(PACKAGES.values(), ()) for path in (ROOT / name).rglob("*") if path.suffix in suffixes
    ]
    assert not [path for path in files if not (course.site / path.relative_to(ROOT)).exists()]
