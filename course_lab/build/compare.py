"""Say in words where a committed notebook differs from what its source gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from nbformat import NotebookNode

from course_lab.build import outputs
from course_lab.build.files import place


def differences(stored: NotebookNode, built: NotebookNode, *, executed: bool) -> Iterator[str]:
    """Yield one phrase a difference in notebook metadata and cells; with `executed`, each cell that wasn't run."""
    if stored.metadata != built.metadata:
        yield "its metadata is not the builder's (saved by an editor?)"
    for i, (old, new) in enumerate(zip_longest(stored.cells, built.cells), start=1):
        if new is None:
            yield f"{place(stored, old)} is not in the source"
        elif old is None:
            yield f"{place(built, new)} of the source is missing"
        elif (old.cell_type, old.source) != (new.cell_type, new.source):
            yield f"cell {i} has another text than the source: {place(built, new)}"
        elif old.id != new.id:
            yield f"{place(stored, old)} has another id"
        elif old.metadata != new.metadata:
            yield f"{place(stored, old)} has other metadata or tags"
    if executed:
        yield from _execution(stored)


def _execution(stored: NotebookNode) -> Iterator[str]:
    for cell in outputs.code_cells(stored):
        if cell.execution_count is None:
            yield f"{place(stored, cell)} was never executed"
    if failed := outputs.failed_cell(stored):
        yield f"{place(stored, failed[0])} stores an exception, {failed[1].ename}"
