"""Say in words where a committed notebook differs from what its source gives."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest

from nbformat import NotebookNode

from course_lab.authoring.build import outputs
from course_lab.authoring.build.files import place


def differences(stored: NotebookNode, built: NotebookNode, *, executed: bool) -> Iterator[str]:
    """Yield one phrase a difference in notebook metadata and cells; with `executed`, each cell that wasn't run."""
    if stored.metadata != built.metadata:
        yield "its metadata is not the builder's (saved by an editor?)"
    for old, new in _pairs(stored.cells, built.cells):
        if new is None:
            yield f"{place(stored, old)} is not in the source"
        elif old is None:
            yield f"{place(built, new)} of the source is missing"
        elif _content(old) != _content(new):
            yield f"{place(stored, old)} has another text in the source"
        elif old.id != new.id:
            yield f"{place(stored, old)} has another id"
        elif old.metadata != new.metadata:
            yield f"{place(stored, old)} has other metadata or tags"
    if executed:
        yield from _execution(stored)


def _pairs(
    old: list[NotebookNode], new: list[NotebookNode]
) -> Iterator[tuple[NotebookNode | None, NotebookNode | None]]:
    """Yield cells that belong together, None where one has no partner."""
    matcher = SequenceMatcher(a=[_content(cell) for cell in old], b=[_content(cell) for cell in new], autojunk=False)
    for _, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        yield from zip_longest(old[old_from:old_to], new[new_from:new_to])


def _content(cell: NotebookNode) -> tuple[str, str]:
    return cell.cell_type, cell.source


def _execution(stored: NotebookNode) -> Iterator[str]:
    for cell in outputs.code_cells(stored):
        if cell.execution_count is None:
            yield f"{place(stored, cell)} was never executed"
    if failed := outputs.failed_cell(stored):
        yield f"{place(stored, failed[0])} stores an exception, {failed[1].ename}"
