"""A graded answer becomes a line of the learner's journal: in this process alone, whatever the answer's own did."""

from __future__ import annotations

from course_lab.authoring import source
from course_lab.authoring.exercise import Exercise
from course_lab.check.report import Report
from course_lab.journal import record


def keep(exercise: Exercise, code: str, report: Report) -> None:
    """Record an attempt; code: the answer without its magic line. An untouched stub is none."""
    if report.status == "not-attempted":
        return
    about = {"status": report.status, "answer": source.fingerprint(code)}
    about["cases"] = [sum(case.passed for case in report.cases), len(report.cases)]
    about["diagnosis"] = report.diagnosis.code if report.diagnosis else None
    if report.passed:
        about |= {"code": code, "entry": exercise.entry}
    record(exercise.number, "attempt", **about)
