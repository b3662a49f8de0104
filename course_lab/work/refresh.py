"""Make and refresh the learner's copies: `course sync`, which `make lab` and `make update` run.

    notebooks/02_rmsnorm.ipynb  ->  work/notebooks/02_rmsnorm.ipynb      and so for exercises/ and solutions/

A copy that the learner never changed becomes the course's newest version; around their work new text and new stubs
are merged (`authoring.build.learner`), and what the copy held before is kept in work/backups/. A copy is touched only
when the course's notebook has changed, so that syncing again changes no byte. What a learner wrote in exercises/
itself is taken over once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lab.authoring import lessons, source
from course_lab.authoring.build import assemble, learner
from course_lab.authoring.build.files import to_text, write
from course_lab.authoring.lessons import LessonError
from course_lab.authoring.notebooks import NotebookError, answer_number, read_notebook
from course_lab.authoring.source import SourceError
from course_lab.work import tracked
from course_lab.work.copies import FOLDERS, Copy, answers, shown, work_folder
from course_lab.work.signatures import is_trusted, trust

_LINKED = re.compile(r"\]\(\.\./([\w.-]+)")


@dataclass
class SyncReport:
    """What a sync did, as sentences; `problems` name what was left as it is."""

    new: int = 0
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        first = [f"{self.new} new {'notebook' if self.new == 1 else 'notebooks'} in work/."] if self.new else []
        return "\n".join([*first, *self.lines, *self.problems]) or "work/ is up to date."


def sync(clear: bool = False, take_from: Path | None = None) -> SyncReport:
    """Bring the copies of every course on this machine up to date.

    `clear`: afterwards, put notebooks that were changed in place back to the last commit. `take_from`: an exercise
    notebook, or a folder of them, whose answers are taken over too, where the copies have none.
    """
    report, used = SyncReport(), 0
    for root in roots():
        job = _Job(root, report)
        with _alone(work_folder(root)):
            job.all()
            if clear and job.attempt(job.clear):
                report.problems.clear()  # what could not be read is gone; what is left is named again
                job.all()
            if take_from:
                used += job.attempt(job.take_all, take_from) or 0
            job.provide_settings()
    if not roots():
        report.problems.append(
            "The course is installed here without its notebooks: get its repository, and run this there."
        )
    if take_from and not used:
        report.problems.append(f"{take_from} holds no notebook with an answer to an exercise of the course.")
    return report


def roots() -> list[Path]:
    """The folders of the courses on this machine that have their notebooks."""
    found = set()
    for lesson in lessons.all():
        with contextlib.suppress(LessonError):  # installed without its notebooks
            found.add(lesson.root)
    return sorted(found)


def _copies(root: Path) -> list[Copy]:
    paths = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.ipynb"))]
    return [Copy(root, f"{path.parent.name}/{path.name}") for path in paths]


@contextlib.contextmanager
def _alone(work: Path) -> Iterator[None]:
    """One sync at a time: two that merge the same file would each keep half."""
    (work / ".sync").mkdir(parents=True, exist_ok=True)
    with (work / ".sync" / "lock").open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass
class _Job:
    root: Path
    report: SyncReport

    def all(self) -> None:
        for copy in _copies(self.root):
            self.attempt(self.one, copy)

    def attempt(self, do: Callable[..., Any], *arguments: Any) -> Any:
        """Let what can't be read cost itself alone: the report names it, and the rest goes on."""
        try:
            return do(*arguments)
        except (LessonError, NotebookError, SourceError, tracked.RestoreError) as error:
            self.report.problems.append(str(error))
            return None

    def one(self, copy: Copy) -> None:
        text = copy.source.read_text(encoding="utf-8")
        known = copy.base.read_text(encoding="utf-8") if copy.base.exists() else None
        if text == known and copy.mine.exists():
            return
        written_in = self._written_in_place(copy)
        if written_in:
            text = to_text(assemble.exercise_notebook(lessons.lesson(copy.source.stem)))
        if text != known or not copy.mine.exists():
            self._renew(copy, text, known, written_in)
        for notebook in written_in:
            self._take(copy, notebook, copy.name)

    def _written_in_place(self, copy: Copy) -> list[NotebookNode]:
        """The course's exercise notebook where a learner has worked in it; both sides of it where git stopped midway.

        NotebookError when it can't be read; a lesson or solution is copied as it is.
        """
        try:
            versions = [read_notebook(copy.source)]
        except NotebookError:
            versions = tracked.sides_of_conflict(copy)
            if not versions or not _is_exercises(copy):
                raise
            return versions
        return [notebook for notebook in versions if _is_exercises(copy) and learner.in_use(notebook)]

    def _renew(self, copy: Copy, text: str, known: str | None, written_in: list[NotebookNode]) -> None:
        """Bring one copy up to the course's `text`; `known` is the text that it was brought up to last time."""
        fresh, mine = _parsed(text), read_notebook(copy.mine)
        base = _parsed(known) if known else None
        if mine is None:
            first = learner.merge(fresh, written_in[0]) if written_in else fresh
            self._write(copy, first, trusted=not written_in or is_trusted(written_in[0]))
            self.report.new += 1
        elif mine == base:
            self._write(copy, fresh)
            self.report.lines.append(f"New version of {shown(copy.mine, self.root)}.")
        elif (merged := learner.merge(fresh, mine, base)) != mine:
            self._change(copy, merged, "New text around your work in")
        write(copy.base, text)
        for name in set(_LINKED.findall(text)) - set(FOLDERS):
            _link(self.root / name, work_folder(self.root) / name)

    def _change(self, copy: Copy, notebook: NotebookNode, what: str) -> None:
        """Replace a copy that holds a learner's work, after a backup of it."""
        backup = _backed_up(copy, copy.mine)
        self._write(copy, notebook, trusted=is_trusted(read_notebook(copy.mine)))
        mine, before = shown(copy.mine, self.root), shown(backup, self.root)
        self.report.lines.append(f"{what} {mine}; as it was before: {before}.")

    @staticmethod
    def _write(copy: Copy, notebook: NotebookNode, trusted: bool = True) -> None:
        text = to_text(notebook)
        write(copy.mine, text)
        if trusted:
            trust(_parsed(text))

    def _take(self, copy: Copy, notebook: NotebookNode, origin: str) -> bool:
        """Take over the answers of `notebook` that the copy lacks, each of them once; False when none belongs here."""
        mine, taken = read_notebook(copy.mine), _Taken(work_folder(self.root))
        here = {answer_number(cell) for cell in mine.cells}
        given = {number: cell for number, cell in answers(notebook).items() if number in here}
        wanted = {number: cell for number, cell in given.items() if _mark(cell) not in taken.of(number)}
        added = _with_answers(mine, wanted)
        if added:
            self._change(copy, mine, f"Your answers {', '.join(added)} from {origin} are in")
        has = answers(mine)
        taken.add({number: _mark(cell) for number, cell in given.items() if _mark(has.get(number)) == _mark(cell)})
        return bool(given)

    def take_all(self, path: Path) -> int:
        """Take over the answers of a notebook, or of all in a folder; return how many copies they belong to."""
        used = 0
        copies = [copy for copy in _copies(self.root) if _is_exercises(copy) and copy.mine.exists()]
        for file in sorted(path.glob("*.ipynb")) if path.is_dir() else [path]:
            notebook = read_notebook(file)
            used += sum(self._take(copy, notebook, str(file)) for copy in copies) if notebook else 0
        return used

    def clear(self) -> bool:
        """Put what was changed in place back to the last commit; the changed form goes to the backups."""
        copies = tracked.changed(self.root)
        obstacle = tracked.obstacle(self.root) if copies else None
        if obstacle:
            self.report.problems.append(obstacle)
            return False
        for copy in copies:
            before = f"; as it was before: {shown(_backed_up(copy, copy.source), self.root)}" * copy.source.exists()
            tracked.restore(copy)
            self.report.lines.append(f"{copy.name} is as the course has it again{before}.")
        return bool(copies)

    def provide_settings(self) -> None:
        """Give the copies the Python files with which pytest grades or compares their originals."""
        for path in (path for folder in FOLDERS for path in (self.root / folder).glob("*.py")):
            mine = work_folder(self.root) / path.parent.name / path.name
            if not mine.exists() or mine.read_bytes() != path.read_bytes():
                write(mine, path.read_text(encoding="utf-8"))


def _parsed(text: str) -> NotebookNode:
    return nbformat.reads(text, as_version=4)


def _is_exercises(copy: Copy) -> bool:
    return copy.name.startswith("exercises/")


def _mark(cell: NotebookNode | None) -> str | None:
    return source.fingerprint(source.without_magic(cell.source)[1]) if cell else None


def _backed_up(copy: Copy, file: Path) -> Path:
    backup = copy.new_backup()
    backup.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copy2(file, backup)


def _with_answers(mine: NotebookNode, given: dict[str, NotebookNode]) -> list[str]:
    """Put the given answers into those answer cells of `mine` that hold a stub; return their numbers."""
    added = []
    for cell in mine.cells:
        number = answer_number(cell)
        if number in given and number not in added and not learner.is_answered(cell):
            cell.source = source.with_magic(number, source.without_magic(given[number].source)[1])
            cell.update(deepcopy({name: given[number][name] for name in ("outputs", "execution_count")}))
            added.append(number)
    return added


def _link(target: Path, link: Path) -> None:
    """Let `../course_kernels/rms_norm.py`, said in a copy, lead where it leads from the original."""
    if target.exists() and not os.path.lexists(link):
        with contextlib.suppress(OSError):  # a file system without links: that one link of the text is dead
            link.symlink_to(os.path.relpath(target, link.parent))


class _Taken:
    """Which answers have been taken over, so that none comes back that the learner has thrown away since."""

    def __init__(self, work: Path) -> None:
        self._path = work / ".sync" / "taken.json"
        try:
            self._marks: dict[str, list[str]] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._marks = {}

    def of(self, number: str) -> list[str]:
        return self._marks.get(number, [])

    def add(self, marks: dict[str, str]) -> None:
        """Remember one answer for each number."""
        for number, mark in marks.items():
            self._marks[number] = sorted({*self.of(number), mark})
        write(self._path, json.dumps(self._marks, indent=1))
