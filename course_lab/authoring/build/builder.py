"""Build the notebooks of all lessons, or check that the stored ones are what their source gives.

    lesson.py     ->  notebooks/NN_topic.ipynb    executed
    exercises.py  ->  solutions/NN_topic.ipynb    executed
                  ->  exercises/NN_topic.ipynb    the learner's: never executed, never overwritten where they wrote

A notebook is executed when its code changed; otherwise its stored outputs are carried over cell by cell, so that
building twice changes no byte. Whether code changed is seen by comparing the stored code cells with the source: that
notices edits of the notebook as well as edits of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode

from course_lab.authoring import lessons
from course_lab.authoring.build import assemble, compare, learner, mutant_pages, outputs, repository_pages, rules
from course_lab.authoring.build.execution import execute
from course_lab.authoring.build.files import BuildError, back_up, place, to_text, write
from course_lab.authoring.lessons import Lesson, LessonError
from course_lab.authoring.notebooks import NotebookError, read_notebook, short
from course_lab.authoring.source import SourceError

LARGE_BYTES = 600_000
_BROKEN = (BuildError, LessonError, NotebookError, SourceError)


@dataclass
class BuildReport:
    """What a build did. `problems` are faults of the source, `differences` stored files that don't match it."""

    written: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    executed: list[Path] = field(default_factory=list)
    backups: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do."""
        return not self.problems and not self.differences

    def __str__(self) -> str:
        lines = [f"problem: {problem}" for problem in self.problems]
        lines += [f"differs: {difference}" for difference in self.differences]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"kept a copy of your notebook: {short(copy)}" for copy in self.backups]
        lines += [f"wrote {short(path)}" for path in self.written]
        if self.differences:
            lines.append("Run `make lessons`, look at the result, and commit it.")
        lines.append(f"{len(self.written)} written, {len(self.executed)} executed, {len(self.unchanged)} unchanged.")
        return "\n".join(lines)


def build_notebooks(
    only: str | None = None,
    check: bool = False,
    force: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> BuildReport:
    """Build the notebooks of all lessons, or of the one called `only` ("02_rmsnorm" or "02").

    `check` writes and executes nothing and reports what differs. `force` executes even where no code changed. `say`
    hears of each notebook before its execution, which takes a while. What can't be built is named in the report's
    `problems`, and the rest is built all the same.
    """
    report = BuildReport()
    job = _Job(report, check, force, say)
    try:
        chosen = lessons.all() if only is None else [lessons.lesson(only)]
    except LessonError as error:
        report.problems.append(str(error))
        return report
    for lesson in chosen:
        job.lesson(lesson)
    for folder in sorted({lesson.path.parent for lesson in chosen if _has_source(lesson)}):
        job.overview(folder)
    for root in sorted({lesson.root for lesson in chosen if _has_source(lesson)}):
        job.pages(root)
    return report


def _has_source(lesson: Lesson) -> bool:
    try:
        return lesson.path.is_dir()
    except LessonError:
        return False


def _lessons_in(folder: Path) -> list[Lesson]:
    return [lesson for lesson in lessons.all() if _has_source(lesson) and lesson.path.parent == folder]


@dataclass
class _Job:
    report: BuildReport
    check: bool
    force: bool
    say: Callable[[str], object]

    def lesson(self, lesson: Lesson) -> None:
        faults = rules.problems(lesson)
        self.report.problems += faults
        kinds = [self._lesson, self._solutions, self._exercises]
        for kind in kinds:
            try:
                kind(lesson)
            except _BROKEN as error:
                if str(error) not in faults:
                    self.report.problems.append(str(error))

    def overview(self, folder: Path) -> None:
        """Write the page of a folder of lessons; a page that somebody wrote by hand stays."""
        path = folder / "README.md"
        if path.exists() and not path.read_text(encoding="utf-8").startswith(mutant_pages.MARK):
            return
        try:
            self._store(path, mutant_pages.overview(_lessons_in(folder)))
        except _BROKEN as error:
            if str(error) not in self.report.problems:
                self.report.warnings.append(f"{short(path)} was not renewed: {error}")

    def pages(self, root: Path) -> None:
        """Write what pages of a repository say of its lessons and from stored results."""
        try:
            for path, text in repository_pages.pages(root):
                self._store(path, text)
        except _BROKEN as error:
            if str(error) not in self.report.problems:
                self.report.warnings.append(f"the pages of {short(root)} were not renewed: {error}")

    def _lesson(self, lesson: Lesson) -> None:
        self._executed(lesson, assemble.lesson_notebook(lesson), lesson.notebook("notebooks"), strict=False)

    def _solutions(self, lesson: Lesson) -> None:
        if lesson.exercises:
            self._executed(lesson, assemble.solution_notebook(lesson), lesson.notebook("solutions"), strict=True)

    def _exercises(self, lesson: Lesson) -> None:
        if not lesson.exercises:
            return
        path, fresh = lesson.notebook("exercises"), assemble.exercise_notebook(lesson)
        existing = read_notebook(path)
        if existing is None or not learner.in_use(existing):
            self._store(path, to_text(fresh), existing, fresh)
            return
        merged = learner.merge(fresh, existing)
        if merged == existing:
            self.report.unchanged.append(path)
            return
        if not self.check:
            self.report.backups.append(back_up(path))
        self._store(path, to_text(merged), existing, merged)

    def _executed(self, lesson: Lesson, fresh: NotebookNode, path: Path, *, strict: bool) -> None:
        stored = read_notebook(path)
        reuse = stored is not None and (self.check or not self.force)
        current = reuse and outputs.carry_over(stored, fresh)
        if self.check and not current:
            self._report_difference(path, stored, fresh, executed=True)
            return
        if not current:
            self.say(f"executing {short(path)}")
            execute(fresh, path.parent, strict=strict, name=short(path))
            self.report.executed.append(path)
        for cell, private in outputs.paths_of_this_machine(fresh, lesson.root):
            raise BuildError(f"{short(path)}, {place(fresh, cell)} shows {private!r}, a path of this machine only.")
        text = to_text(fresh)
        self._weigh(path, text)
        self._store(path, text, stored, fresh)

    def _weigh(self, path: Path, text: str) -> None:
        if len(text.encode()) > LARGE_BYTES:
            sentence = f"{short(path)} has {len(text.encode()) // 1000} KB; keep it under {LARGE_BYTES // 1000} KB."
            (self.report.problems if self.check else self.report.warnings).append(sentence)

    def _store(
        self, path: Path, text: str, stored: NotebookNode | None = None, built: NotebookNode | None = None
    ) -> None:
        """Write `text` unless the file holds it already; when checking, say what differs instead."""
        if path.exists() and path.read_text(encoding="utf-8") == text:
            self.report.unchanged.append(path)
        elif self.check:
            self._report_difference(path, stored, built, executed=False)
        else:
            write(path, text)
            self.report.written.append(path)

    def _report_difference(
        self, path: Path, stored: NotebookNode | None, built: NotebookNode | None, *, executed: bool
    ) -> None:
        if not path.exists():
            phrases = ["it is missing"]
        elif stored is None or built is None:
            phrases = ["it is not what the source gives"]
        else:
            phrases = list(compare.differences(stored, built, executed=executed))
        phrases = phrases or ["its outputs or its layout are not as the builder writes them (saved by an editor?)"]
        self.report.differences += [f"{short(path)}: {phrase}" for phrase in phrases]
