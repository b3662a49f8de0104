"""The package as somebody installs it who never sees the course: `pip install .`, then `course` in another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USER_FILE = Path(__file__).parents[1] / "gfxlab" / "user_files" / "tutorial_kernels.py"
PACKAGES = ("course_kernels", "course_lab", "course_lessons")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the installed package; the dependencies stay those of this environment."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "installed"))
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=300)
    return target


@pytest.fixture
def course(installed, tmp_path):
    """Run `course` of the installed package in a folder with the user's own file."""
    shutil.copy(USER_FILE, tmp_path / "my_kernels.py")
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def run(*arguments: str) -> str:
        command = [str(installed / "bin" / "course"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run.folder = tmp_path
    return run


def test_what_is_imported_is_what_was_installed(installed, course):
    code = "import course_kernels, course_lab, course_lessons as l; print(course_kernels.__file__, course_lab.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=course.folder, env=environment, capture_output=True, text=True
    )
    assert done.stdout.count(str(installed)) == 2, done.stderr


def test_amd_and_trace_of_a_users_file(course):
    output = course("amd", "my_kernels.py:softmax_kernel", "--arch", "gfx1201", "--listing")
    assert "softmax_kernel on gfx1201" in output and "waves per SIMD" in output
    assert "numerator = tl.exp(x - tl.max(x, axis=0))" in output
    output = course("trace", "my_kernels.py:layer_norm_kernel", "--html", "page.html")
    assert "layer_norm_kernel, grid 5" in output
    assert "<svg" in (course.folder / "page.html").read_text()


def test_simulate_a_users_file(course):
    assert "matmul_kernel" in course("simulate", "my_kernels.py:matmul_kernel")


def test_data_files_came_along(installed):
    missing = [
        str(path.relative_to(ROOT))
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.suffix in (".py", ".json", ".typed") and not (installed / path.relative_to(ROOT)).exists()
    ]
    assert not missing
