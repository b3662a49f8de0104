"""The doctor's findings for a person, for a program and for the shell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from course_lab.doctor.checks import Finding

MARKS = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "failed": ("✗", "bold red")}


def exit_status(findings: Sequence[Finding]) -> int:
    """1 when a check has failed; notes and warnings do not count."""
    return int(any(finding.status == "failed" for finding in findings))


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps({"ok": not exit_status(findings), "checks": [asdict(finding) for finding in findings]}, indent=2)


def as_text(findings: Sequence[Finding]) -> Text:
    """One line a check; under a failed one, the command that mends it, on one line so that it can be copied."""
    text = Text()
    for finding in findings:
        mark, style = MARKS[finding.status]
        text.append(f"{mark} ", style).append(f"{finding.check:<9} {finding.text}\n")
        if finding.fix:
            text.append(f"{'':<12}{finding.fix}\n", "bold")
    return text.append(summary(findings))


def summary(findings: Sequence[Finding]) -> str:
    failures = sum(finding.status == "failed" for finding in findings)
    if failures:
        return f"{failures} of {len(findings)} checks failed; the command under each mends it."
    return "Ready."
