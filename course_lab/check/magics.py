"""What a notebook offers: `%%exercise 2.1`, `%hint`, `%solution`, `%stub 2.1`, `my_kernel("2.1", default)` and `%%amd`.

`%hint`, `%solution` and `%stub` without a number mean the exercise of the answer cell above (`above`).

Under COURSE_STRICT=1 (machines that grade notebooks) an answer that is not right raises, and nothing is recorded.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import Code, display

import gfxlab
from course_lab.authoring import lessons, source
from course_lab.authoring.exercise import Exercise
from course_lab.check import above, answer, grading
from course_lab.check.attempts import keep, since_last
from course_lab.check.mine import given, my_kernel
from course_lab.check.queueing import turn
from course_lab.check.report import ExerciseFailed
from course_lab.journal import history, record
from course_lab.waiting import Waiting
from gfxlab import sandbox

__all__ = ["Note", "Stopped", "check_cell", "hint", "my_kernel", "register", "solution", "stub"]

ATTEMPTS_BEFORE_SOLUTION = 3


class Stopped(KeyboardInterrupt):
    """An interrupted check: cells that wait behind it are not run, and the page shows one line of it."""

    def _render_traceback_(self) -> list[str]:
        return ["Stopped. Nothing was recorded."]


class Note:
    """A short text in Markdown."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


def register(shell: InteractiveShell) -> None:
    """Give an IPython shell the magics, and start the fork server so that the first check is quick."""
    shell.register_magic_function(lambda line, cell: check_cell(shell, line, cell), "cell", "exercise")
    shell.register_magic_function(lambda line: display(hint(line or above.number(shell))), "line", "hint")
    shell.register_magic_function(lambda line: display(solution(line or above.number(shell))), "line", "solution")
    shell.register_magic_function(lambda line: stub(shell, line or above.number(shell)), "line", "stub")
    gfxlab.load_ipython_extension(shell)
    sandbox.warm()
    source.warm()


def check_cell(shell: InteractiveShell, line: str, cell: str) -> None:
    """Grade a cell, show the report, and run a right answer in the notebook too, so that its kernel can be used there.

    Raises:
        ExerciseFailed: COURSE_STRICT=1, and the answer is not right.
        Stopped: the learner interrupted it.
    """
    exercise, strict = _exercise(line, "%%exercise"), grading.strict()
    code = f"%%exercise {exercise.number}\n{cell}"
    try:
        with Waiting(exercise.number) as tell, turn(tell):
            report = grading.grade(exercise.number, code, card=not strict, tell=tell)
    except KeyboardInterrupt:
        raise Stopped from None
    if not strict:
        report = replace(report, change=since_last(exercise, report))
        keep(exercise, cell, report)  # before it is shown: a page that cannot show it loses no attempt
    display(report)
    if strict and not report.passed:
        raise ExerciseFailed(report)
    if report.passed:
        _define(exercise, cell, shell)


def _define(exercise: Exercise, cell: str, shell: InteractiveShell) -> None:
    """Run a right answer in a module of its own, as it was graded, and give the notebook the names that it defines."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # its output is in the report already
            namespace = answer.execute(exercise.number, f"\n{cell}", given(exercise))  # lines as in the cell
    except (Exception, SystemExit) as error:
        display(Note(f"Right, but not defined here: run once more it raised {type(error).__name__}: {error}"))
        return
    names = {name: value for name, value in namespace.items() if not name.startswith("__")}
    shell.user_ns.update(answer.GIVEN | names)


def hint(line: str) -> Note:
    """The next hint for an exercise; after the last one, all of them."""
    exercise = _exercise(line, "%hint")
    shown = history(exercise.number).hints
    total = len(exercise.hints)
    if shown < total:
        record(exercise.number, "hint")
        return Note(f"Hint {shown + 1} of {total} for {exercise.number}: {exercise.hints[shown]}")
    every = "\n".join(f"{i}. {text}" for i, text in enumerate(exercise.hints, start=1))
    return Note(f"There are no more hints for {exercise.number}. All {total} again:\n\n{every}")


def solution(line: str) -> Note | Code:
    """The solution of an exercise, once it is solved or three different answers were checked."""
    exercise = _exercise(line, "%solution")
    known = history(exercise.number)
    left = ATTEMPTS_BEFORE_SOLUTION - known.attempts
    if not known.solved and left > 0:
        tries = "one more try of yours" if left == 1 else f"{left} more tries of yours"
        return Note(f"The solution of {exercise.number} opens after {tries} (each different). %hint {exercise.number}")
    record(exercise.number, "solution")
    return Code(lessons.solution(exercise.number), language="python")


def stub(shell: InteractiveShell, line: str) -> None:
    """Put the untouched stub of an exercise into a new cell below."""
    number = _exercise(line, "%stub").number
    shell.set_next_input(source.with_magic(number, lessons.stub(number)))


def _exercise(line: str, magic: str) -> Exercise:
    number = line.split("#")[0].strip()
    if not number:
        raise UsageError(f"which exercise? Write its number: {magic} 2.1")
    try:
        exercise = lessons.exercise(number)
    except lessons.LessonError as error:
        raise UsageError(str(error)) from None
    above.last = number
    return exercise
