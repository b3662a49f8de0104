"""The learner's own answers as functions: `my_kernel("2.1", default)`, in notebooks, scripts and `course chat`."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable

from course_lab.authoring import lessons
from course_lab.authoring.exercise import Exercise
from course_lab.check import answer
from course_lab.journal import history
from course_lab.waiting import notebook_kernel, somebody_watches

_told: set[str] = set()


def my_kernel(number: str, default: Callable | None = None) -> Callable:
    """Your own function from exercise `number`, from your last answer that passed the check; `default` without one.

    It works in any notebook:  `rms_norm = my_kernel("2.2", course_kernels.rms_norm)`. Where no default is given, it is
    the course's solution of the exercise. That it is not yours that runs is said once for each exercise. An answer
    counts wherever it passed: in a notebook, or by `course check` in a terminal.
    """
    stands_in = f"{default.__name__} of the course" if default is not None else "the course's solution"
    if default is None:
        default = solution(number)
    mine = own(number, stands_in)
    if mine is None:
        _tell_once(number, f"{number} is not solved yet: {stands_in} runs in its place.")
    return default if mine is None else mine


def own(number: str, stands_in: str = "the course's") -> Callable | None:
    """The learner's function from exercise `number`; None where no answer has passed, or it no longer runs."""
    known = history(number)
    if not known.code or not known.entry:
        return None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return answer.execute(number, known.code, given(lessons.exercise(number)))[known.entry]
    except Exception as error:
        warnings.warn(f"your answer to {number} no longer runs ({error}); using {stands_in}", stacklevel=3)
        return None


def solution(number: str) -> Callable:
    """The course's solution of exercise `number`, as a function."""
    exercise = lessons.exercise(number)
    return answer.execute(number, lessons.solution(number), given(exercise))[exercise.entry]


def given(exercise: Exercise) -> dict[str, Callable]:
    """What an answer that builds on others is given besides the usual names."""
    return {"my_kernel": my_kernel} if exercise.picks else {}


def _tell_once(number: str, sentence: str) -> None:
    """On the error stream; in a notebook in the page, if somebody reads it: one that is built or tested is silent."""
    if number in _told:
        return
    if notebook_kernel() is None:
        print(sentence, file=sys.stderr)
    elif somebody_watches():
        from IPython.display import Markdown, display

        display(Markdown(sentence))
    else:
        return
    _told.add(number)
