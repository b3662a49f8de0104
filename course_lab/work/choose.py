"""Which answers `course check` grades, and whether the notebook holds what the learner ran last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from course_lab.authoring import lessons, source
from course_lab.authoring.exercise import Exercise
from course_lab.authoring.lessons import Lesson, LessonError
from course_lab.authoring.notebooks import NotebookError, answer_code, answer_number, read_notebook
from course_lab.journal import events
from course_lab.work.copies import answer_file, shown


@dataclass(frozen=True)
class Answer:
    """One answer that is to be graded. named: the learner asked for just this one, or for just this file."""

    lesson: Lesson
    exercise: Exercise
    file: Path
    named: bool

    @property
    def place(self) -> str:
        """The file as messages show it."""
        try:
            return shown(self.file, self.lesson.root)
        except LessonError:  # the course is installed without its notebooks
            return str(self.file)

    @property
    def code(self) -> str:
        """The answer without its magic line; NotebookError when the file has none or more than one."""
        return answer_code(self.file, self.exercise.number)

    @property
    def unsaved(self) -> str | None:
        """Say that what was run last in the notebook is not what its file holds; None when it is."""
        tries = [event for event in events(self.exercise.number) if event.get("event") == "attempt"]
        if not tries or "answer" not in tries[-1] or tries[-1]["answer"] == source.fingerprint(self.code):
            return None
        run, saved = datetime.fromisoformat(tries[-1]["time"]), _saved(self.file)
        if run <= saved:
            return None
        return (
            f"{self.exercise.number}: save {self.place} first: the answer that you ran last, at {_clock(run)}, is not "
            f"in the file, which was saved at {_clock(saved)}."
        )


def chosen(words: list[str]) -> Iterator[Answer]:
    """The answers that were asked for: "2.1", "2" for all of lesson 2, or notebooks; no word means all there are.

    A notebook that is given is what is graded, with the steps (2.a) of a lesson; without one each exercise has its
    `answer_file`.
    """
    files = [Path(word) for word in words if _is_path(word)]
    numbers = [word for word in words if not _is_path(word)]
    for lesson, exercise in exercises(numbers, steps=bool(files)):
        named = exercise.number in numbers
        if not files:
            yield Answer(lesson, exercise, answer_file(lesson, exercise.number), named)
        for file in files:
            if exercise.number in _numbers(file):
                yield Answer(lesson, exercise, file.resolve(), named)
            elif named:
                raise NotebookError(f"{file} has no answer to exercise {exercise.number}: name the notebook that has.")


def exercises(numbers: list[str] | None, steps: bool = False) -> Iterator[tuple[Lesson, Exercise]]:
    """The lessons and exercises of the numbers: "2.1" is one, "2" is all of lesson 2, nothing is all.

    Steps, such as 2.a, are among them only where they are named, or where `steps` says so.
    """
    every = [(lesson, exercise) for lesson in lessons.all() for exercise in (*lesson.exercises, *lesson.steps)]
    for number in numbers or [None]:
        named = [pair for pair in every if number == pair[1].number]
        several = [pair for pair in every if number in (None, str(pair[0].number))]
        found = named or [pair for pair in several if steps or not pair[1].number[-1].isalpha()]
        if number is not None and not found:
            lessons.exercise(number)  # raises LessonError, which names those that exist
        yield from found


def _is_path(word: str) -> bool:
    return word.endswith(".ipynb") or "/" in word or (bool(word) and Path(word).exists())


def _numbers(file: Path) -> set[str]:
    notebook = read_notebook(file)
    if notebook is None:
        raise NotebookError(f"There is no notebook {file}.")
    found = {number for cell in notebook.cells if (number := answer_number(cell))}
    if not found:
        raise NotebookError(f"{file} has no answer cell: one begins with a line such as `{source.MAGIC} 2.1`.")
    return found


def _saved(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _clock(time: datetime) -> str:
    return f"{time.astimezone():%H:%M:%S}"
