"""The report of a check: plain text for a terminal, HTML for the page. It names no time and no path, so it repeats."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

import numpy as np

from course_lab.check import guide
from course_lab.check.diagnosis import COMPLAINT, output_name
from course_lab.check.protocol import Event, Problem, clean
from course_lab.check.sentences import Diagnosis
from course_lab.check.verdict import CaseRun
from gfxlab.programs import format_program

_MARKS = {"passed": "✓", "failed": "✗", "not-run": "–"}
_VERDICTS = {"passed": "right", "failed": "not right yet", "not-attempted": "not attempted yet"}
_MAX_PRINTED = 2000


class ExerciseFailed(AssertionError):
    """Raised by `%%exercise` under COURSE_STRICT=1 when the answer is not right. `report` is the whole report."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class CaseResult:
    """One tick. status: 'passed', 'failed' or 'not-run'; details: lines of text about what is wrong."""

    name: str
    status: str
    details: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def label(self) -> str:
        return f"{self.name} (not run)" if self.status == "not-run" else self.name

    def __str__(self) -> str:
        return "\n".join([f"{_MARKS[self.status]} {self.label}", *(f"    {line}" for line in self.details)])


@dataclass(frozen=True)
class Card:
    """What other instruments say, as text and as HTML."""

    text: str
    html: str


@dataclass(frozen=True, repr=False)
class Report:
    """The outcome of a check.

    status: 'passed', 'failed' or 'not-attempted'.  cases: one result for each named case of the exercise.
    diagnosis: (code, sentence) of the likely mistake, None when there is none.  excerpt: the learner's line that broke.
    printed: what the answer printed.  note: a quiet line on what the simulator says.
    remark: what a right answer wastes, in a sentence.
    change: what is otherwise than at the learner's last try, in a sentence.
    card: how well a right answer does it, when asked for.
    engines: on which its kernels were right.
    """

    number: str
    title: str
    status: str
    cases: tuple[CaseResult, ...]
    diagnosis: Diagnosis | None = None
    excerpt: tuple[str, ...] = ()
    printed: str = ""
    note: str = ""
    remark: str = ""
    change: str = ""
    card: Card | None = field(default=None, compare=False)
    engines: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def ran(self) -> bool:
        """True when at least one case was tried; the broken code of a repair is tried before anybody touches it."""
        return any(case.status != "not-run" for case in self.cases)

    @property
    def headline(self) -> str:
        ticks = sum(case.passed for case in self.cases)
        count = f" ({ticks} of {len(self.cases)} cases)" if self.status == "failed" and ticks else ""
        return f"{self.number} {self.title}: {_VERDICTS[self.status]}{count}"

    @property
    def next_step(self) -> str:
        if self.status == "passed":
            return ""
        if self.status == "not-attempted" and self.ran:
            return f"This is what the broken code does. Repair it, and run the cell again.  %hint {self.number} helps."
        if self.status == "not-attempted":
            return f"Write your answer into the cell and run it.  %hint {self.number} gives a first nudge."
        return f"Stuck?  %hint {self.number}"

    def __str__(self) -> str:
        lines = [self.headline]
        if self.status != "not-attempted" or self.ran:
            lines += ["  " + line for case in self.cases for line in str(case).splitlines()]
        lines += ["  " + line for line in self.excerpt]
        if self.diagnosis:
            lines += ["", f"Likely mistake: {self.diagnosis.code}", f"  {self.diagnosis.sentence}"]
            lines += [f"  More: {guide.entry(self.diagnosis.code)}"] if guide.PAGE.exists() else []
        if self.printed:
            lines += ["", "Your code printed:", *("  " + line for line in self.printed.splitlines())]
        for line in filter(None, (self.change, self.remark, self.note)):
            lines += ["", line]
        if self.next_step:
            lines += ["", self.next_step]
        if self.card:
            lines += ["", self.card.text]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html(self)


# ---- HTML ----------------------------------------------------------------------------------------------------------

_INK, _QUIET = "color:var(--jp-content-font-color1,inherit);", "color:var(--jp-content-font-color2,inherit);"
_BAR = {
    "passed": "--jp-success-color1,#2e7d32",
    "failed": "--jp-warn-color1,#b26a00",
    "not-attempted": "--jp-border-color1,#888",
}
_CODE = (
    "margin:2px 0 6px 0;padding:4px 8px;white-space:pre-wrap;font-size:0.92em;"
    "font-family:var(--jp-code-font-family,monospace);"
    "background:var(--jp-layout-color2,rgba(127,127,127,.12));"
)


def _html(report: Report) -> str:
    box = f"border-left:4px solid var({_BAR[report.status]});padding:4px 12px;{_INK}"
    parts = [f'<div style="{box}">', _div(f"<b>{escape(report.headline)}</b>")]
    if report.diagnosis:
        code, sentence = guide.link(report.diagnosis.code), _with_code(report.diagnosis.sentence)
        parts.append(_div(f"Likely mistake: <b>{code}</b><br>{sentence}", "margin:6px 0"))
    if report.excerpt:
        parts.append(_pre(report.excerpt))
    if report.status != "not-attempted" or report.ran:
        parts += [_html_case(case) for case in report.cases if not case.passed]
        parts += _html_passed([case for case in report.cases if case.passed])
    if report.printed:
        parts += [_div("Your code printed:", f"margin-top:6px;{_QUIET}"), _pre(report.printed.splitlines())]
    for line in filter(None, (report.change, report.remark, report.note)):
        parts.append(_div(escape(line), f"margin-top:6px;{_QUIET}"))
    if report.next_step:
        parts.append(_div(escape(report.next_step), f"margin-top:6px;{_QUIET}"))
    return "\n".join([*parts, "</div>", report.card.html if report.card else ""]).rstrip()


def _with_code(sentence: str) -> str:
    """A sentence as HTML, with what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(sentence))


def _html_passed(cases: list[CaseResult]) -> list[str]:
    """What is right already, folded: one click shows the names."""
    if not cases:
        return []
    mark = f'<span role="img" aria-label="passed">{_MARKS["passed"]}</span>'
    summary = f"<summary>{mark} {len(cases)} {'case' if len(cases) == 1 else 'cases'} passed</summary>"
    return [f"<details>{summary}", *(_html_case(case) for case in cases), "</details>"]


def _html_case(case: CaseResult) -> str:
    mark = f'<span role="img" aria-label="{case.status}">{_MARKS[case.status]}</span>'
    name = f"<b>{escape(case.label)}</b>" if case.status == "failed" else escape(case.label)
    return _div(f"{mark} {name}") + (_pre(case.details) if case.details else "")


def _div(content: str, style: str = "") -> str:
    return f'<div style="{style}">{content}</div>' if style else f"<div>{content}</div>"


def _pre(lines) -> str:
    return f'<pre style="{_INK}{_CODE}">{escape(chr(10).join(lines))}</pre>'


# ---- one case in words ---------------------------------------------------------------------------------------------


def case_result(run: CaseRun, code: str, *, full: bool) -> CaseResult:
    """The tick of one case; when it failed with what is wrong, and with `full` the place of the first wrong element."""
    if not run.reached:
        return CaseResult(run.case.name, "not-run", ("takes seconds: tried once the others are right",) * run.case.last)
    if run.passed:
        return CaseResult(run.case.name, "passed")
    return CaseResult(run.case.name, "failed", tuple(_details(run, code, full)))


def _details(run: CaseRun, code: str, full: bool) -> list[str]:
    if run.end is not None:
        return [run.end.error.message]
    if run.seen.problem and run.seen.problem.fault:
        return ["a fault of the machine code"]
    if run.seen.problem and run.driven and run.seen.problem.type == COMPLAINT:
        return [run.seen.problem.message.partition(": ")[2]]
    if run.seen.problem:
        return [f"raised {run.seen.problem.type}"]
    lines = [] if run.comparisons else [f"returned {run.seen.returned}"]
    for number, comparison in enumerate(run.comparisons):
        if not comparison.right:
            lines += _wrong_output(run, number, code, full)
    if run.seen.faults:
        lines.append(run.seen.faults[0].message.partition(". ")[0])
    if run.seen.damaged:
        lines.append("memory beside a tensor was overwritten")
    if run.seen.stale:
        lines.append("the result of the call before was changed")
    if run.modified:
        lines.append(f"argument {run.modified[0].position + 1} was changed")
    if run.needs_kernel and not run.own_launches:
        lines.append("no kernel of yours ran")
    elif run.values_right and run.made_by_torch:
        lines.append("the returned tensor was made by PyTorch")
    if run.too_many_launches:
        lines.append(f"{len(run.own_launches)} kernels were launched")
    if run.values_right and run.unmet:
        lines.append("the numbers are right; the text asks for more")
    return lines


def _wrong_output(run: CaseRun, number: int, code: str, full: bool) -> list[str]:
    comparison, name = run.comparisons[number], output_name(run, number)
    if comparison.problem:
        what = comparison.problem.removeprefix("wrong-")
        return [f"{name}: {what} {comparison.received}, expected {comparison.wanted}"]
    count = f"{int(comparison.wrong.sum())} of {comparison.wrong.size} elements of {name} are wrong"
    if not full:
        return [count]
    first = comparison.first
    index = f"[{', '.join(str(i) for i in first)}]" if first else "the only element"
    place, expected = f"first wrong: {index}", f"expected {_number(comparison.expected[first])}"
    event = run.writer(number, first)
    if event is None and run.seen.writers[number] is not None:
        return [count, f"{place}  {expected}  and no program wrote it"]
    values = f"{place}  {expected}  got {_number(comparison.got[first])}"
    return [count, values, *(_who(run, event, code) if event else [])]


def _who(run: CaseRun, event: Event, code: str) -> list[str]:
    kernel = run.seen.launches[event.launch].name
    return [
        f"program {format_program(event.program)} of {kernel} wrote it, in line {event.line}:",
        f"  {source_line(code, event.line).strip()}",
    ]


def _number(value) -> str:
    return str(int(value)) if isinstance(value, np.integer) else f"{float(value):.6g}"


def source_line(code: str, line: int) -> str:
    """Line `line` of the answer, counted as in the cell; empty when there is none."""
    lines = code.split("\n")
    return clean(lines[line - 1].rstrip("\r")) if 0 < line <= len(lines) else ""


def excerpt(code: str, line: int | None, column: int | None = None) -> tuple[str, ...]:
    """A line of the answer as it is shown below the cases, with a caret under `column`."""
    if not line:
        return ()
    text = source_line(code, line)
    head = f"line {line}: "
    shown = (head + text.expandtabs(4),)
    if column is None:
        return shown
    return (*shown, " " * (len(head) + len(text[:column].expandtabs(4))) + "^")


def shown_error(code: str, problem: Problem) -> tuple[str, ...]:
    """An exception as it is shown: the learner's own line, then Python's words."""
    if problem.type == COMPLAINT:
        return excerpt(code, problem.line)
    words = f"{problem.type}: {problem.message}".rstrip(": ").splitlines()
    return (*excerpt(code, problem.line), *words[:6])


def shorten(text: str) -> str:
    """What an answer printed, cut to a length that leaves the report readable."""
    text = text.strip("\n")
    if len(text) <= _MAX_PRINTED:
        return text
    return text[:_MAX_PRINTED] + f"\n... {len(text) - _MAX_PRINTED} more characters"
