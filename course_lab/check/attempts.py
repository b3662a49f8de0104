"""A graded answer becomes a line of the learner's journal: in this process alone, whatever the answer's own did."""

from __future__ import annotations

from course_lab import board
from course_lab.authoring import source
from course_lab.authoring.exercise import Exercise
from course_lab.check.report import Report
from course_lab.journal import events, record

_MOST_NAMED = 3


def since_last(exercise: Exercise, report: Report) -> str:
    """What an attempt changed against the one before it, in a sentence; "" for a first one, or where nothing did."""
    tries = [event for event in events(exercise.number) if event.get("event") == "attempt"]
    before = _failing_of(tries[-1]) if tries else None
    if before is None or not report.ran:
        return ""
    mended = [case.name for case in report.cases if case.passed and case.name in before]
    broken = [case.name for case in report.cases if case.status == "failed" and case.name not in before]
    parts = [_listed(mended, "passes now", "pass now"), _listed(broken, "fails now", "fail now")]
    return f"Since your last try: {'; '.join(filter(None, parts))}." if any(parts) else ""


def _failing_of(event: dict) -> list[str] | None:
    """The names of the cases that failed or were not reached; None in a record from before they were kept."""
    names = event.get("failing")
    return names if isinstance(names, list) else None


def _listed(names: list[str], one: str, several: str) -> str:
    if not names:
        return ""
    shown = ", ".join(f"“{name}”" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{shown}{more} {one if len(names) == 1 else several}"


def keep(exercise: Exercise, code: str, report: Report) -> None:
    """Record an attempt; code: the answer without its magic line. An untouched stub is none."""
    if report.status == "not-attempted":
        return
    about = {"status": report.status, "answer": source.fingerprint(code)}
    about["cases"] = [sum(case.passed for case in report.cases), len(report.cases)]
    about["failing"] = [case.name for case in report.cases if not case.passed]
    about["diagnosis"] = report.diagnosis.code if report.diagnosis else None
    if report.passed:
        about |= {"code": code, "entry": exercise.entry, "engines": list(report.engines)}
    record(exercise.number, "attempt", **about)
    board.post(exercise.number, *about["cases"], about["diagnosis"])
