"""`pytest exercises/` and `pytest --nbval` grade notebooks, here in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_output

from course_lab.authoring.notebooks import NotebookError, answer_code

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(fake_course):
    """The small course with what the repository itself has around its notebooks."""
    for file in ("pyproject.toml", "conftest.py", "tests/nbval_sanitize.cfg", "exercises/test_exercises.py"):
        (fake_course.root / file).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / file, fake_course.root / file)
    for folder in ("notebooks", "exercises", "solutions"):
        shutil.copy(REPOSITORY / folder / "conftest.py", fake_course.root / folder)
    return fake_course


def run_pytest(course, *arguments: str, **environment: str) -> tuple[dict[str, int], str]:
    """Run pytest in the checkout; return the counts of its last line and all it printed."""
    settings = {**os.environ, "COURSE_HOME": str(course.root / "home"), **environment}
    settings.pop("COURSE_STRICT", None)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=course.root, env=settings, capture_output=True, text=True)
    counts = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout.strip().splitlines()[-1])
    return {name: int(count) for count, name in counts}, done.stdout + done.stderr


def change(course, number: str, edit) -> None:
    """Let a learner rewrite an answer cell: `edit` takes the solution's code and returns theirs."""
    (solved,) = [cell.source for cell in course.notebook("solutions").cells if f"%%exercise {number}" in cell.source]
    notebook = course.notebook("exercises")
    (cell,) = [cell for cell in notebook.cells if f"%%exercise {number}" in cell.source]
    cell.source = edit(solved)
    course.save("exercises", notebook)


def rounded_down(code: str) -> str:
    return code.replace("triton.cdiv(x.numel(), 128)", "x.numel() // 128")


def remember(course, folder: str, code: str, printed: str) -> None:
    """Add an executed cell with this output."""
    notebook = course.notebook(folder)
    output = new_output("stream", name="stdout", text=printed)
    notebook.cells.append(new_code_cell(code, execution_count=99, outputs=[output]))
    course.save(folder, notebook)


def _twice(notebook):
    (cell,) = [cell for cell in notebook.cells if "%%exercise 90.1" in cell.source]
    notebook.cells.append(new_code_cell(cell.source))


def _deleted(notebook):
    notebook.cells = [cell for cell in notebook.cells if "%%exercise 90.1" not in cell.source]


def _without_magic(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("%%exercise 90.1\n", "")


@pytest.mark.parametrize(
    "damage, message",
    [
        (_twice, "exercises/90_double.ipynb has 2 answer cells of exercise 90.1 (cells 4 and 9): keep one"),
        (_deleted, "exercises/90_double.ipynb has no answer cell of exercise 90.1: undo its deletion"),
        (_without_magic, "cell 4 was the answer to exercise 90.1. Make `%%exercise 90.1` its first line again"),
    ],
)
def test_a_damaged_notebook_is_explained(fake_course, damage, message):
    notebook = fake_course.notebook("exercises")
    assert "# your code here" in answer_code(fake_course.path("exercises"), "90.1")
    damage(notebook)
    fake_course.save("exercises", notebook)
    with pytest.raises(NotebookError, match=re.escape(message)):
        answer_code(fake_course.path("exercises"), "90.1")


def test_a_missing_and_a_broken_notebook_are_explained(fake_course):
    path = fake_course.path("exercises")
    path.write_text("<<<<<<< HEAD")
    with pytest.raises(NotebookError, match="exercises/90_double.ipynb is not a valid notebook"):
        answer_code(path, "90.1")
    path.unlink()
    with pytest.raises(NotebookError, match="exercises/90_double.ipynb is missing"):
        answer_code(path, "90.1")


def test_stubs_are_skipped_and_a_damaged_answer_fails_in_one_sentence(checkout):
    notebook = checkout.notebook("exercises")
    _twice(notebook)
    checkout.save("exercises", notebook)
    counts, output = run_pytest(checkout, "exercises")
    assert counts == {"failed": 2, "skipped": 2}, output
    assert "exercise 90.2: not attempted yet" in output
    assert "has 2 answer cells of exercise 90.1" in output and "Traceback" not in output


def test_a_right_answer_passes_and_a_wrong_one_fails_with_its_report(checkout):
    change(checkout, "90.1", lambda code: code)
    change(checkout, "90.2", rounded_down)
    counts, output = run_pytest(checkout, "exercises", "-rA")
    assert counts == {"passed": 3, "failed": 1}, output
    assert "PASSED exercises/test_exercises.py::test_exercise[90.1-a length with a tail]" in output
    assert "FAILED exercises/test_exercises.py::test_exercise[90.2-a length with a tail]" in output
    assert "the grid is one program short" in output and "Traceback" not in output  # the report's own words


@pytest.mark.slow
def test_every_case_of_the_solutions_passes(checkout):
    counts, output = run_pytest(checkout, "exercises", COURSE_TARGET="solutions")
    assert counts == {"passed": 4}, output


def test_nbval_grades_exercises_and_solutions_but_no_lesson(checkout):
    change(checkout, "90.1", lambda code: code)
    change(checkout, "90.2", rounded_down)
    remember(checkout, "exercises", "print('mine')", "theirs")  # what a learner's cell prints is not compared
    ask = "import os\nprint(os.environ.get('COURSE_STRICT'))"
    remember(checkout, "notebooks", ask, "None\n")
    remember(checkout, "solutions", ask, "1\n")
    folders = [str(checkout.path(folder)) for folder in ("exercises", "notebooks", "solutions")]
    counts, output = run_pytest(checkout, "--nbval", *folders)
    assert counts == {"passed": 3 + 8 + 4, "failed": 1}, output
    assert "%%exercise 90.2" in output


def test_a_changed_output_fails_unless_its_cell_is_volatile(checkout):
    path = checkout.path("notebooks")
    path.write_text(path.read_text().replace('"42"', '"43"', 1))
    counts, output = run_pytest(checkout, "--nbval", "notebooks")  # print(id(...)) differs too
    assert counts == {"passed": 6, "failed": 1} and "Cell outputs differ" in output
