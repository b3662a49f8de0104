"""Put a lesson's cells together: the lesson's notebook, the exercises and their solutions, none of them executed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lab.authoring import source
from course_lab.authoring.build import glossary, slides
from course_lab.authoring.lessons import Lesson
from gfxlab.units import unbroken

NOT_COMPARED = "nbval-ignore-output"
NOTES = "## Your notes\n\nDouble-click here and write what you want to keep. New versions of the course leave it."
PREDICT = "**Predict"  # in a lesson's text: what the next cells print answers a question
_VERBATIM = re.compile(r"(```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\))", re.DOTALL)
# All that JupyterLab writes when it saves, so that saving a lesson changes nothing. The kernels of `make lab` give
# "3" as their version (course_lab/jupyter/): the exact one differs from machine to machine.
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": "3",
    },
}


def lesson_notebook(lesson: Lesson) -> NotebookNode:
    """Return the notebook of lesson.py, without outputs."""
    cells = source.read(lesson.file("lesson.py"))
    steps = {step.number for step in lesson.steps}
    for cell in cells:
        if {cell.exercise, cell.header} - steps - {None}:
            raise source.SourceError(f"{cell.place}: exercises belong into exercises.py, steps into steps.py.")
    nodes = [_exercise_cell(lesson, cell, lambda answer: answer.stub) for cell in cells]
    _fold_answers(nodes)
    _link_glossary(nodes)
    slides.tag(nodes, PREDICT)
    return notebook(lesson, nodes)


def _link_glossary(nodes: list[NotebookNode]) -> None:
    """A lesson's glossary ends with the way to everybody's."""
    for node in nodes:
        if node.cell_type == "markdown" and glossary.HEADING in node.source:
            node.source = f"{node.source.rstrip()}\n\n{glossary.LINK}"


def _fold_answers(nodes: list[NotebookNode]) -> None:
    """Hide the stored outputs behind a prediction: a click shows them, and so does running the cell."""
    asked = False
    for node in nodes:
        if node.cell_type == "markdown":
            asked = PREDICT in node.source
        elif asked:
            node.metadata.collapsed = True  # JupyterLab keeps both, and changes nothing when it saves
            node.metadata.jupyter = {"outputs_hidden": True}


def exercise_notebook(lesson: Lesson) -> NotebookNode:
    """Return the learner's notebook: stubs in the answer cells, and a cell for their notes at the end."""
    cells = [cell for cell in source.read(lesson.file("exercises.py")) if source.SOLUTION_ONLY not in cell.tags]
    nodes = [_exercise_cell(lesson, cell, lambda answer: answer.stub) for cell in cells]
    return notebook(lesson, [*nodes, new_markdown_cell(NOTES)])


def solution_notebook(lesson: Lesson) -> NotebookNode:
    """Return the same notebook solved, with the explanations that are tagged solution-only."""
    cells = source.read(lesson.file("exercises.py"))
    return notebook(lesson, (_exercise_cell(lesson, cell, lambda answer: answer.solution) for cell in cells))


def notebook(lesson: Lesson, cells: Iterable[NotebookNode]) -> NotebookNode:
    """Return a notebook of `cells`, each with its content's id."""
    cells = list(cells)
    seen: Counter[tuple[str, str]] = Counter()
    for cell in cells:
        content = (cell.cell_type, cell.source)
        cell.id = content_id(*content, seen[content])
        seen[content] += 1
    metadata = {**KERNEL, "course": {"lesson": lesson.name}}
    return new_notebook(cells=cells, metadata=metadata, nbformat_minor=5)


def content_id(kind: str, text: str, occurrence: int = 0) -> str:
    """Return the id of the cell with this content, `occurrence` counting equal cells before it."""
    return hashlib.sha256(f"{kind}\0{text}\0{occurrence}".encode()).hexdigest()[:12]


def _exercise_cell(lesson: Lesson, cell: source.Cell, face: Callable[[source.Answer], str]) -> NotebookNode:
    if cell.header:
        below = next((e.patient.statement for e in lesson.exercises if e.number == cell.header and e.patient), "")
        return _cell(cell, f"{header(lesson, cell.header)}\n\n{cell.text}\n\n{below}".strip())
    if cell.exercise is None:
        return _cell(cell, cell.text)
    answer = lesson.answers[cell.exercise]
    node = _cell(cell, source.with_magic(cell.exercise, face(answer)), extra_tags=[NOT_COMPARED])
    node.metadata.course = {"exercise": cell.exercise, "stub": source.fingerprint(answer.stub)}
    return node


def header(lesson: Lesson, number: str) -> str:
    """Return the heading of an exercise from its spec: number, title, stars, time, and who should do it."""
    for exercise in lesson.exercises:
        if exercise.number == number:
            stars = "★" * exercise.stars + "☆" * (3 - exercise.stars)
            path = (" · short path" if number in lesson.core else " · optional") if lesson.core else ""
            path += (" · required" if number in lesson.required else " · optional") if lesson.required else ""
            return f"## Exercise {number}: {exercise.title}\n\n{stars} · about {exercise.minutes} minutes{path}"
    for step in lesson.steps:
        if step.number == number:
            return f"### Your turn, {number}: {step.title}\n\nAbout {step.minutes} minutes. Stuck? `%hint {number}`"
    raise source.SourceError(f"Lesson {lesson.name} writes a statement of exercise {number}, which spec.py lacks.")


def _cell(cell: source.Cell, text: str, extra_tags: Iterable[str] = ()) -> NotebookNode:
    node = new_markdown_cell(_kept_together(text)) if cell.kind == "markdown" else new_code_cell(text)
    tags = [*cell.tags, *(tag for tag in extra_tags if tag not in cell.tags)]
    if tags:
        node.metadata.tags = tags
    return node


def _kept_together(text: str) -> str:
    """Markdown in which no line of prose ends between a number and its unit; code and formulas stay."""
    parts = _VERBATIM.split(text)
    return "".join(part if place % 2 else unbroken(part) for place, part in enumerate(parts))
