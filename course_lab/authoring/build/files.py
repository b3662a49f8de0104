"""Write notebooks: one byte form, whole files only, and a copy before a learner's file is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
from nbformat import NotebookNode


class BuildError(Exception):
    """A notebook that can't be built; the message names the notebook, the cell and the fix."""


def to_text(notebook: NotebookNode) -> str:
    """Return the one text of `notebook`: keys sorted, indented by one, a newline at the end."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def write(path: Path, text: str) -> None:
    """Replace the file at `path` in one step: a crash leaves the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with half.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def back_up(path: Path) -> Path:
    """Copy the file to the next free `NAME.bak-<n>` beside it and return the copy's path."""
    n = 1
    while (copy := path.with_name(f"{path.name}.bak-{n}")).exists():
        n += 1
    shutil.copy2(path, copy)
    return copy


def place(notebook: NotebookNode, cell: NotebookNode) -> str:
    """Name a cell in a message: its position and its first line."""
    line = cell.source.strip().partition("\n")[0]
    position = next(i for i, other in enumerate(notebook.cells, start=1) if other is cell)
    return f"cell {position} ({line[:60] or 'empty'})"
