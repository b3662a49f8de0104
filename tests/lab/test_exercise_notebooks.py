"""`pytest exercises/` and `pytest --nbval` grade notebooks, here in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

REPOSITORY = Path(__file__).resolve().parents[2]
RIGHT = "double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)"


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


def test_untouched_stubs_are_skipped_case_by_case(checkout):
    counts, output = run_pytest(checkout, "exercises")
    assert counts == {"skipped": 4}, output
    assert "exercise 90.1: not attempted yet" in output


def test_a_right_answer_passes_and_a_wrong_one_fails_with_its_report(checkout):
    change(checkout, "90.1", lambda code: code)
    change(checkout, "90.2", lambda code: code.replace("triton.cdiv(x.numel(), 128)", "x.numel() // 128"))
    counts, output = run_pytest(checkout, "exercises", "-v")
    assert counts == {"passed": 3, "failed": 1}, output
    assert re.search(r"test_exercise\[90.1-a length with a tail\] PASSED", output)
    assert re.search(r"test_exercise\[90.2-a length with a tail\] FAILED", output)
    assert "triton.cdiv" in output and "Traceback" not in output  # the report's own words, no pytest internals


def test_every_case_of_the_solutions_passes(checkout):
    counts, output = run_pytest(checkout, "exercises", COURSE_TARGET="solutions")
    assert counts == {"passed": 4}, output


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
        (_twice, "exercises/90_double.ipynb has 2 answer cells of exercise 90.1 (cells 4 and 8)"),
        (_deleted, "exercises/90_double.ipynb has no answer cell of exercise 90.1"),
        (_without_magic, "cell 4 was the answer to exercise 90.1. Make `%%exercise 90.1` its first line again"),
    ],
)
def test_a_damaged_notebook_is_explained(checkout, damage, message):
    notebook = checkout.notebook("exercises")
    damage(notebook)
    checkout.save("exercises", notebook)
    counts, output = run_pytest(checkout, "exercises")
    assert counts == {"failed": 2, "skipped": 2}, output
    assert message in output


def test_a_missing_and_a_broken_notebook_are_explained(checkout):
    path = checkout.path("exercises")
    path.write_text("<<<<<<< HEAD")
    counts, output = run_pytest(checkout, "exercises")
    assert counts == {"failed": 4} and "is not a valid notebook" in output
    path.unlink()
    counts, output = run_pytest(checkout, "exercises")
    assert counts == {"failed": 4} and "exercises/90_double.ipynb is missing" in output


def test_nbval_grades_the_learners_notebook(checkout):
    change(checkout, "90.1", lambda code: code)
    notebook = checkout.notebook("exercises")
    notebook.cells.append(new_code_cell("print('mine')", execution_count=9))  # its output was cleared since
    checkout.save("exercises", notebook)
    counts, output = run_pytest(checkout, "--nbval", "exercises/90_double.ipynb")
    assert counts == {"passed": 3, "failed": 1}, output
    assert "%%exercise 90.2" in output
    change(checkout, "90.2", lambda code: code)
    counts, output = run_pytest(checkout, "--nbval", "exercises/90_double.ipynb")
    assert counts == {"passed": 4}, output


def test_lessons_and_solutions_pass_strictly_and_lessons_are_not_graded(checkout):
    notebook = checkout.notebook("notebooks")
    notebook.cells.append(new_code_cell("import os\nos.environ.get('COURSE_STRICT', 'not strict')", execution_count=8))
    notebook.cells[-1].outputs = [
        {"output_type": "execute_result", "execution_count": 8, "metadata": {}, "data": {"text/plain": "'not strict'"}}
    ]
    checkout.save("notebooks", notebook)
    counts, output = run_pytest(checkout, "--nbval", "exercises", "notebooks", "solutions")
    assert counts == {"passed": 1 + 8 + 3, "failed": 2, "skipped": 4}, output  # both stubs are untouched


def test_a_changed_output_fails_unless_its_cell_is_volatile(checkout):
    path = checkout.path("notebooks")
    text = path.read_text()
    assert run_pytest(checkout, "--nbval", "notebooks")[0] == {"passed": 7}
    path.write_text(text.replace('"42"', '"43"', 1))
    counts, output = run_pytest(checkout, "--nbval", "notebooks")
    assert counts == {"passed": 6, "failed": 1} and "Cell outputs differ" in output
