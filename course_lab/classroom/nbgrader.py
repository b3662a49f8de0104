"""A lesson's exercises as nbgrader's instructor version: `course nbgrader 2 --out source/ps2/02_rmsnorm.ipynb`.

Each answer cell holds the solution between nbgrader's marks, which `nbgrader generate_assignment` takes out; after it
stands a locked cell with the exercise's stars as points, which grades what the cell above it holds.  nbgrader's format
is its documentation's, "Notebook metadata" (schema version 3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lab.authoring import lessons, source
from course_lab.authoring.build.assemble import exercise_notebook, notebook
from course_lab.authoring.lessons import Lesson
from course_lab.check import grade
from course_lab.check.report import ExerciseFailed
from course_lab.classroom.results import write_text

_SCHEMA = 3


def convert(lesson: Lesson, out: Path) -> int:
    """Write the instructor version of a lesson's exercises; returns how many are graded."""
    nodes: list[NotebookNode] = []
    texts = {cell.exercise: cell.text for cell in source.read(lesson.file("exercises.py")) if cell.exercise}
    for node in exercise_notebook(lesson).cells:
        number = node.metadata.get("course", {}).get("exercise")
        nodes.append(node)
        if number:
            node.source = source.with_magic(number, _instructors(texts[number]))
            node.metadata.nbgrader = _marks(f"answer-{number}", solution=True)
            nodes.append(_test(number, max(lessons.exercise(number).stars, 1)))
    made = notebook(lesson, nodes)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, nbformat.writes(made) + "\n")
    return len(texts)


def _instructors(text: str) -> str:
    """An answer cell's source, its broken lines kept as comments: nbgrader knows one version of a line, not two."""
    lines, broken = [], False
    for line in text.splitlines():
        edge = line.strip()
        if edge == "### BEGIN BROKEN":
            broken = True
            lines.append(f"{line[: len(line) - len(line.lstrip())]}# To be repaired; take the # away:")
        elif edge == "### END BROKEN":
            broken = False
        elif broken and edge:
            indent = len(line) - len(line.lstrip())
            lines.append(f"{line[:indent]}# {line[indent:]}")
        else:
            lines.append(line)
    return "\n".join(lines)


def _marks(name: str, **more: Any) -> dict[str, Any]:
    plain = {"schema_version": _SCHEMA, "grade": False, "solution": False, "locked": False, "task": False}
    return {**plain, "grade_id": name.replace(".", "-"), **more}


def _test(number: str, points: int) -> NotebookNode:
    text = f'from course_lab.classroom.nbgrader import is_right\n\nassert is_right("{number}")'
    node = nbformat.v4.new_code_cell(text)
    node.metadata.nbgrader = _marks(f"test-{number}", grade=True, locked=True, points=points)
    return node


def is_right(number: str) -> bool:
    """Grade what the answer cell of this exercise held when it was last run in this notebook.

    Raises:
        ExerciseFailed: it is not right; the message is the whole report.
        NameError: it was not run.
    """
    from IPython import get_ipython

    run = get_ipython().history_manager.input_hist_raw
    texts = [text for text in run if source.without_magic(text)[0] == number]
    if not texts:
        raise NameError(f"the answer cell of exercise {number} was not run: its first line is %%exercise {number}")
    report = grade(number, texts[-1])
    if not report.passed:
        raise ExerciseFailed(report)
    return True
