"""Renew a notebook without losing a keystroke of the learner's.

Kept, wherever the author's text moves: changed answers, cells that the learner added, text cells that the learner
edited. An author's cell is told from a learner's by its id, which is the hash of its content.

Where the version is known that the learner started from, cells that they deleted stay away and what they ran keeps its
outputs. These are nbgitpuller's rules (https://nbgitpuller.readthedocs.io, "Automatic merging"), for cells instead of
lines: what only one side changed is taken, and where both did the learner's stays.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course_lab.authoring import source
from course_lab.authoring.build.assemble import content_id
from course_lab.authoring.notebooks import answer_number

ORPHANS = (
    "## Answers whose exercise is gone\n\nThe course no longer has these exercises. The answers are yours to keep."
)
Key = tuple[str, str]


def in_use(existing: NotebookNode) -> bool:
    """Whether a learner has run, changed or added anything in this exercise notebook."""
    return any(
        cell.get("execution_count") is not None or cell.get("outputs") or _is_learners_work(cell, existing)
        for cell in existing.cells
    )


def is_answered(cell: NotebookNode) -> bool:
    """Whether the code of an answer cell differs from the stub that the builder put there."""
    _, code = source.without_magic(cell.source)
    return source.fingerprint(code) != _note(cell).get("stub")


def merge(fresh: NotebookNode, existing: NotebookNode, base: NotebookNode | None = None) -> NotebookNode:
    """Return `existing` with its text renewed from `fresh`; equal to `existing` when nothing is new.

    `base`: the author's version that `existing` started from, where it is known.
    """
    merged = deepcopy(existing)
    for known in filter(None, (fresh, base)):
        _recognise(known, merged)
    layout = _Layout.of(fresh, merged)
    before = {_key(cell): cell for cell in base.cells} if base else {}
    merged.metadata["course"] = fresh.metadata.course
    merged.cells = list(layout.added.get(-1, []))
    for i, cell in enumerate(fresh.cells):
        key = _key(cell)
        if key in layout.authored:
            merged.cells.append(_renew(cell, layout.authored[key], before.get(key)))
        elif key[0] == "answer" or key not in before:  # other cells of before the learner has deleted
            merged.cells.append(deepcopy(cell))
        merged.cells += layout.added.get(i, [])
    if layout.orphans:
        merged.cells += [new_markdown_cell(ORPHANS, id=content_id("markdown", ORPHANS)), *layout.orphans]
    _make_ids_unique(merged, fresh)
    return merged


def _recognise(fresh: NotebookNode, existing: NotebookNode) -> None:
    """Give author's cells their ids back where another editor has renamed them."""
    present = {cell.id for cell in existing.cells}
    missing = {(cell.cell_type, cell.source): cell.id for cell in fresh.cells if cell.id not in present}
    for cell in existing.cells:
        if not _is_pristine(cell, existing):
            cell.id = missing.pop((cell.cell_type, cell.source), cell.id)


@dataclass
class _Layout:
    """Where each existing cell goes.

    `authored`: the existing form of an author's cell. `added`: the learner's own cells by the position in the new
    notebook after which they stand (-1: at the top). `orphans`: answers to exercises that no longer exist.
    """

    authored: dict[Key, NotebookNode] = field(default_factory=dict)
    added: dict[int, list[NotebookNode]] = field(default_factory=dict)
    orphans: list[NotebookNode] = field(default_factory=list)

    @classmethod
    def of(cls, fresh: NotebookNode, existing: NotebookNode) -> _Layout:
        layout = cls()
        new_keys = [_key(cell) for cell in fresh.cells]
        answers = _answer_cells(existing)
        author = [cell for cell in existing.cells if _is_authors(cell, existing, answers, new_keys)]
        positions = _positions([_key(cell) for cell in author], new_keys)
        anchor = -1
        for cell in existing.cells:
            if not any(cell is other for other in author):
                layout.added.setdefault(anchor, []).append(deepcopy(cell))
                continue
            key = _key(cell)
            if key in new_keys:
                layout.authored[key] = cell
            elif key[0] == "answer" and is_answered(cell):
                layout.orphans.append(deepcopy(cell))
            anchor = positions[key]
        return layout


def _key(cell: NotebookNode) -> Key:
    number = answer_number(cell)
    return ("answer", number) if number else ("text", cell.id)


def _answer_cells(existing: NotebookNode) -> dict[str, NotebookNode]:
    """Return one cell for each exercise; the builder's own with its magic line comes before any copy of it."""
    found: dict[str, NotebookNode] = {}
    for cell in sorted(existing.cells, key=lambda cell: (not source.without_magic(cell.source)[0], not _note(cell))):
        if number := answer_number(cell):
            found.setdefault(number, cell)
    return found


def _is_authors(cell: NotebookNode, existing: NotebookNode, answers: dict, new_keys: list[Key]) -> bool:
    number = answer_number(cell)
    if number:
        return answers[number] is cell and bool(_note(cell) or _key(cell) in new_keys)
    return _is_pristine(cell, existing) or _key(cell) in new_keys


def _is_learners_work(cell: NotebookNode, existing: NotebookNode) -> bool:
    return is_answered(cell) if answer_number(cell) else not _is_pristine(cell, existing)


def _is_pristine(cell: NotebookNode, existing: NotebookNode) -> bool:
    ids = (content_id(cell.cell_type, cell.source, occurrence) for occurrence in range(len(existing.cells)))
    return cell.id in ids


def _positions(old: list[Key], new: list[Key]) -> dict[Key, int]:
    """Map each old cell to its position in the new notebook, or to where it would stand had it stayed."""
    places: dict[Key, int] = {}
    for _, old_from, old_to, new_from, new_to in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        for i in range(old_from, old_to):
            places[old[i]] = min(new_from + i - old_from, new_to - 1)
    return places | {key: position for position, key in enumerate(new) if key in places}


def _renew(fresh: NotebookNode, existing: NotebookNode, before: NotebookNode | None) -> NotebookNode:
    """Return the author's cell in the learner's state: an edited text or answer stays, a stub is renewed."""
    if answer_number(fresh) and not is_answered(existing) and existing.source != fresh.source:
        return deepcopy(fresh)
    cell = deepcopy(existing)
    cell.id = fresh.id
    if before and existing.source == fresh.source and _run(existing) == _run(before):
        cell.update(deepcopy(_run(fresh)))  # the learner has not run it: the author's newest outputs
    if "course" in fresh.metadata:
        cell.metadata["course"] = fresh.metadata.course
    tags = [*cell.metadata.get("tags", []), *fresh.metadata.get("tags", [])]
    if tags:
        cell.metadata["tags"] = list(dict.fromkeys(tags))
    return cell


def _run(cell: NotebookNode) -> dict:
    """What running a cell leaves in it; nothing in a text cell."""
    return {name: cell[name] for name in ("outputs", "execution_count") if name in cell}


def _make_ids_unique(merged: NotebookNode, fresh: NotebookNode) -> None:
    authors = {cell.id for cell in fresh.cells}
    seen: set[str] = set()
    for cell in merged.cells:
        is_authors = cell.id in authors and cell.id not in seen
        n = 0
        while not is_authors and (cell.id in seen or cell.id in authors):
            cell.id = content_id(cell.cell_type, f"{cell.source}\0added", n)
            n += 1
        seen.add(cell.id)


def _note(cell: NotebookNode) -> dict:
    return cell.metadata.get("course", {})
