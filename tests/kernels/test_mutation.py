"""The kernels' tests against mistakes that nobody chose: mutation operators on a family's file, its own tests on each.

A mutant is killed when the family's tests fail.  One that passes is a case that they lack, or stands in `EQUIVALENT`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import course_kernels
from course_lab.authoring.operators import generate
from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import COMMUTES, PROMOTED, idle

PACKAGE = Path(course_kernels.__file__).parent
TESTS = Path(__file__).parent
SECONDS = 600
FAMILIES = {"vector_add": 5}  # a family's name -> of its mutants every n-th
EQUIVALENT = {
    "vector_add": (
        *idle(),
        Equivalent("without-float32", ".", PROMOTED),
        Equivalent("swapped-loads", "`x_ptr` and `y_ptr`", COMMUTES),
    ),
}


def survives(family: str, code: str, folder: Path) -> bool:
    """Whether a family's tests pass with this code in the place of its file: in a copy of package and tests."""
    repository = PACKAGE.parent
    for part in (PACKAGE, TESTS):
        there = folder / part.relative_to(repository)
        shutil.copytree(part, there, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    for name in ("pyproject.toml", "conftest.py", "tests/conftest.py", f"tests/kernels/test_{family}.py"):
        shutil.copy(repository / name, folder / name)
    (folder / PACKAGE.name / f"{family}.py").write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(folder), str(repository), str(repository / "gfxlab")])
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"tests/kernels/test_{family}.py"],
        cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tests_of_a_family_kill_its_mutants(family, tmp_path):
    source = (PACKAGE / f"{family}.py").read_text(encoding="utf-8")
    assert survives(family, source, tmp_path / "as it is"), "its own file must pass"
    left = []
    for number, mutant in enumerate(list(generate(source))[:: FAMILIES[family]]):
        known = any(one.fits(mutant) for one in EQUIVALENT[family])
        if not known and survives(family, mutant.code, tmp_path / str(number)):
            left.append(f"{mutant.operator}, line {mutant.line}: {mutant.says}")
    assert not left, "\n".join(left)
