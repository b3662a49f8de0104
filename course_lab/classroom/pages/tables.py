"""The class's results for other programs: CSV for a spreadsheet, JUnit XML for what reads test results."""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from xml.etree import ElementTree

from course_lab.classroom.pages.gathered import MISSING, Gathered

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
COLUMNS = ("learner", "exercise", "status", "cases_right", "cases", "diagnosis", "minutes", "points")


def as_csv(gathered: Gathered) -> str:
    """A line for each learner and exercise; a held answer has no points until somebody has looked at it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in gathered.learners:
        for number, mark in gathered.grid[name].items():
            minutes = gathered.minutes[name].get(number, "")
            points = "" if mark.status == "held" else int(mark.status == "passed")
            row = (name, number, mark.status, mark.right, mark.cases, mark.diagnosis, minutes, points)
            writer.writerow([_harmless(value) for value in row])
    return text.getvalue()


def _harmless(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def as_junit(gathered: Gathered) -> str:
    """A suite for each learner, a test for each exercise: failures are wrong answers, skipped is what nobody tried."""
    root = ElementTree.Element("testsuites", name="course grade")
    for result in gathered.each():
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(result["learner"]))
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        for number in gathered.exercises:
            _test(suite, number, gathered.titles[number], result["exercises"].get(number, MISSING), counts)
        for name, count in counts.items():
            suite.set(name, str(count))
        suite.set("time", f"{float(result.get('seconds', 0.0)):.3f}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _test(suite: ElementTree.Element, number: str, title: str, verdict: dict[str, Any], counts: dict[str, int]) -> None:
    name = f"{number} {title}".strip()
    test = ElementTree.SubElement(
        suite, "testcase", classname="course", name=name, time=f"{verdict.get('seconds', 0.0):.3f}"
    )
    counts["tests"] += 1
    how = {"failed": "failure", "held": "failure", "unreadable": "error"}
    how |= {"missing": "skipped", "not-attempted": "skipped"}
    if (kind := how.get(verdict["status"])) is None:
        return
    counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]] += 1
    message = verdict.get("sentence") or " ".join(verdict.get("reaches") or ()) or verdict["status"]
    about = ElementTree.SubElement(test, kind, message=_xml(message))
    if kind != "skipped":
        about.set("type", _xml(verdict.get("diagnosis") or verdict["status"]))
        about.text = _xml("\n".join(_lines(verdict)))


def _lines(verdict: dict[str, Any]) -> list[str]:
    lines = [verdict.get("headline", "")]
    for case in verdict.get("cases") or ():
        lines += [f"{case['status']}: {case['name']}", *(f"    {line}" for line in case.get("details") or ())]
    return lines


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)
