"""Where a learner's copies are, and which file's answer counts.

    work/notebooks/02_rmsnorm.ipynb     the copy of notebooks/02_rmsnorm.ipynb; exercises/ and solutions/ likewise
    work/backups/                       what a copy held before a sync changed it
    work/.sync/                         the version of each notebook that a copy was last brought up to

COURSE_WORK names another folder than work/, for a course that is installed where learners cannot write.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nbformat import NotebookNode

from course_lab.authoring.build.learner import is_answered
from course_lab.authoring.lessons import Lesson
from course_lab.authoring.notebooks import answer_number, read_notebook

FOLDERS = ("notebooks", "exercises", "solutions")


def work_folder(root: Path) -> Path:
    """Return the folder of the copies for the course at `root`: COURSE_WORK, else its work/."""
    return Path(os.environ.get("COURSE_WORK") or root / "work")


def answer_file(lesson: Lesson, number: str) -> Path:
    """Return the notebook whose answer to exercise `number` counts: the copy in work/ unless it is untouched there.

    An untouched exercise gives way to an answer in exercises/; with none in either, the copy is the one to write in.
    A step, such as 2.a, is answered in the lesson itself: there it is notebooks/ instead of exercises/.
    """
    folder = "notebooks" if number in [step.number for step in lesson.steps] else "exercises"
    original = lesson.notebook(folder)
    mine = work_folder(lesson.root) / folder / original.name
    if not mine.exists():
        return original
    return original if not has_answer(mine, number) and has_answer(original, number) else mine


def has_answer(path: Path, number: str) -> bool:
    """Whether the notebook at `path` holds an answer to exercise `number` that is not the stub."""
    notebook = read_notebook(path)
    return notebook is not None and number in answers(notebook)


def answers(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the answer cells in which a learner has written, by exercise number."""
    return {number: cell for cell in notebook.cells if (number := answer_number(cell)) and is_answered(cell)}


def shown(path: Path, root: Path) -> str:
    """Return `path` as messages show it: from the course's folder where it is inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


@dataclass(frozen=True)
class Copy:
    """One notebook of the course at `root`, `name` being "exercises/02_rmsnorm.ipynb", and the learner's copy of it."""

    root: Path
    name: str

    @property
    def source(self) -> Path:
        """The course's notebook, which git tracks."""
        return self.root / self.name

    @property
    def mine(self) -> Path:
        """The learner's copy."""
        return work_folder(self.root) / self.name

    @property
    def base(self) -> Path:
        """The version of the course's notebook that the copy was last brought up to."""
        return work_folder(self.root) / ".sync" / self.name

    def new_backup(self) -> Path:
        """A free path under work/backups/ that JupyterLab can open."""
        stamp = datetime.now().strftime("%Y-%m-%d_%H%M%S")
        place = (work_folder(self.root) / "backups" / self.name).with_suffix("")
        n = 1
        while (path := place.with_name(f"{place.name}.{stamp}{f'-{n}' if n > 1 else ''}.ipynb")).exists():
            n += 1
        return path
