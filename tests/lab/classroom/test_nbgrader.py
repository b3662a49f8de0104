"""A lesson's exercises as nbgrader's instructor version, and nbgrader's own tools on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import nbformat
import pytest

from course_lab.authoring import lessons
from course_lab.classroom import nbgrader

# an environment of its own, so that nbgrader's extensions are in nobody's JupyterLab; `make test-workshop` makes it
BIN = Path(__file__).parents[3] / "build" / "nbgrader" / "bin"


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    nbgrader.convert(lessons.lesson("01"), folder / "source" / "ps1" / "01.ipynb")
    return folder


def cells(path: Path) -> dict[str, nbformat.NotebookNode]:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}


def test_each_answer_is_followed_by_a_locked_cell_with_points(course):
    found = cells(course / "source" / "ps1" / "01.ipynb")
    numbers = [exercise.number for exercise in lessons.lesson("01").exercises]
    assert list(found) == [f"{kind}-{n.replace('.', '-')}" for n in numbers for kind in ("answer", "test")]
    answer, test = found["answer-1-1"], found["test-1-1"]
    assert answer.source.startswith("%%exercise 1.1\n") and "### BEGIN SOLUTION" in answer.source
    assert answer.metadata.nbgrader.solution and not answer.metadata.nbgrader.locked
    assert test.metadata.nbgrader.grade and test.metadata.nbgrader.locked and test.metadata.nbgrader.points == 1


def test_the_code_to_repair_stands_as_comments_before_the_solution(course):
    found = cells(course / "source" / "ps1" / "01.ipynb")
    repairs = [one.number for one in lessons.lesson("01").exercises if one.kind == "repair"]
    for number in repairs:
        text = found[f"answer-{number.replace('.', '-')}"].source
        assert "BROKEN" not in text and "To be repaired" in text
        compile(text.partition("\n")[2], "answer", "exec")


def run(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    if not BIN.exists():
        pytest.skip("nbgrader's environment is missing: make test-workshop makes it")
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COURSE_HOME": str(home), "HOME": str(home)}
    return subprocess.run([str(BIN / "nbgrader"), *words], cwd=home, env=env, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nbgraders_own_tools_take_it(course):
    made = run("generate_assignment", "ps1", f"--course-dir={course}", home=course)
    assert made.returncode == 0, made.stderr
    released = cells(course / "release" / "ps1" / "01.ipynb")
    assert "SOLUTION" not in str(released) and "YOUR CODE HERE" in released["answer-1-1"].source
    assert released["test-1-1"].metadata.nbgrader.checksum
    right = run("validate", str(course / "source" / "ps1" / "01.ipynb"), home=course)
    assert "Success" in right.stdout, right.stdout[-3000:]
    wrong = run("validate", str(course / "release" / "ps1" / "01.ipynb"), home=course)
    assert "VALIDATION FAILED" in wrong.stdout and "is_right" in wrong.stdout
