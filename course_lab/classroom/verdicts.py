"""Grade one submission: each answer by the course's own check, its code in the submission's sandbox.

A verdict is a plain dict, as it is stored: {"status", "headline", "cases", "diagnosis", "sentence", ...}.
Whatever goes wrong with one answer, in there or out here, is that answer's verdict.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import triton

from course_lab.authoring import lessons, source
from course_lab.check import client, grade, simulated
from course_lab.check.protocol import clean
from course_lab.check.report import Report
from course_lab.classroom import reach, spent
from course_lab.classroom.bubble import Bubble, NoSandbox
from course_lab.classroom.submissions import Found, Submission

FORMAT = 1
STATUSES = ("passed", "held", "failed", "not-attempted", "missing", "unreadable")
_MOST_TEXT = 2000
_opinions: dict[str, dict[tuple[str, str], simulated.Opinion]] = {}  # of this process, by seed
_MEMORY = 10 << 30  # of the process that compares: what a child hands back must not take the machine's


@dataclass(frozen=True)
class Assignment:
    """What is graded, and how: exercises by number, the seed of the hidden cases, in the sandbox or not."""

    exercises: tuple[str, ...]
    seed: str
    unsafe: bool = False
    hidden: tuple[str, ...] = ()


Tell = Callable[[str, dict[str, Any] | None], object]  # hears of each exercise, before it and with its verdict after


def grade_submission(
    submission: Submission,
    assignment: Assignment,
    tell: Tell = lambda number, verdict: None,
    known: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Everything that is stored of one submission.

    known: verdicts that stand already, by exercise (a grader that died was judging the others).
    """
    started, cpu = time.monotonic(), _cpu()
    verdicts: dict[str, dict[str, Any]] = {}
    box = Bubble(tuple(map(Path, assignment.hidden)))
    with box, client.answers_run_by(None if assignment.unsafe else box.run):
        for number in assignment.exercises:
            verdict = (known or {}).get(number)
            if verdict is None:
                tell(number, None)
                verdict = _verdict(number, submission.answers.get(number), assignment.seed)
                tell(number, verdict)
            verdicts[number] = verdict
    used = {"seconds": round(time.monotonic() - started, 3), "cpu_seconds": round(_cpu() - cpu + box.cpu_seconds, 3)}
    return _stored(submission, assignment, verdicts) | used


def abandoned(submission: Submission, assignment: Assignment, why: str) -> dict[str, Any]:
    """What is stored of a submission that nobody could grade; `why` without a full stop."""
    verdicts = {
        number: given_up(number, why) if number in submission.answers else _verdict(number, None, "")
        for number in assignment.exercises
    }
    return _stored(submission, assignment, verdicts)


def _stored(submission: Submission, assignment: Assignment, verdicts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "learner": submission.learner,
        "fingerprint": submission.fingerprint,
        "seed": assignment.seed,
        "sandbox": "none" if assignment.unsafe else "bubblewrap",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "graded": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": 0.0,
        "cpu_seconds": 0.0,
        "problems": list(submission.problems),
        "minutes": spent.minutes(submission.progress),
        "exercises": verdicts,
    }


def bound_memory() -> None:
    """Let this process fail with a MemoryError long before the machine has none left."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def given_up(number: str, why: str) -> dict[str, Any]:
    """The verdict on an answer that nobody could judge; `why` without a full stop."""
    return _plain(number, "unreadable", f"The grader could not judge this answer: {why}.")


def _cpu() -> float:
    """CPU seconds of this process, which compares; the sandbox counts its own."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _verdict(number: str, found: Found | None, seed: str) -> dict[str, Any]:
    if found is None:
        return _plain(number, "missing", "There is no answer cell of this exercise.")
    if found.problem:
        return _plain(number, "unreadable", found.problem) | {"place": found.place}
    started = time.monotonic()
    try:
        with simulated.remembering(_opinions.setdefault(seed, {})):
            report = grade(number, found.code, strict=False, seed=seed, on_gpu=False, own=False)
    except NoSandbox:
        raise
    except Exception as error:  # what a child handed back was of the right form, and nonsense
        what = f"{type(error).__name__}: {str(error)[:200]}"
        verdict = given_up(number, f"what came back from it makes no sense ({clean(what)})")
    else:
        verdict = _of_report(report, found)
    return verdict | {"seconds": round(time.monotonic() - started, 3)}


def _of_report(report: Report, found: Found) -> dict[str, Any]:
    code = source.bare(found.code)
    reached = reach.reaches(source.as_python(found.code))
    status = "held" if report.passed and reached else report.status
    return {
        "title": report.title,
        "status": status,
        "headline": _short(report.headline),
        "cases": [
            {"name": case.name, "status": case.status, "details": [_short(line) for line in case.details[:12]]}
            for case in report.cases
        ],
        "diagnosis": report.diagnosis.code if report.diagnosis else "",
        "sentence": _short(report.diagnosis.sentence) if report.diagnosis else "",
        "excerpt": [_short(line) for line in report.excerpt[:12]],
        "printed": _short(report.printed),
        "notes": [_short(line) for line in (report.remark, report.note, found.note) if line],
        "reaches": list(reached) if report.status != "not-attempted" else [],
        "place": found.place,
        "code": clean(code) if report.status != "not-attempted" else "",
    }


def _plain(number: str, status: str, sentence: str) -> dict[str, Any]:
    """A verdict on what was never run."""
    with suppress(lessons.LessonError):
        exercise = lessons.exercise(number)
        cases = [{"name": name, "status": "not-run", "details": []} for name in exercise.ticks]
        headline = f"{number} {exercise.title}: {status}"
        return _empty(exercise.title, status, headline, sentence) | {"cases": cases}
    return _empty("", status, f"{number}: {status}", sentence)


def _empty(title: str, status: str, headline: str, sentence: str) -> dict[str, Any]:
    about = {"title": title, "status": status, "headline": headline, "sentence": _short(sentence), "cases": []}
    about |= {"diagnosis": "", "excerpt": [], "printed": "", "notes": [], "reaches": [], "place": "", "code": ""}
    return about | {"seconds": 0.0}


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."
