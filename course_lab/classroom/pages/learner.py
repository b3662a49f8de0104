"""One learner's feedback: what is right, the likely mistake of what is not, and their own line that broke."""

from __future__ import annotations

from html import escape
from typing import Any

from course_lab.classroom.pages import html

_ORDER = ("failed", "unreadable", "held", "not-attempted", "missing", "passed")


def page(result: dict[str, Any], titles: dict[str, str]) -> str:
    """The page of one stored result. titles: of the exercises that are shown, by number, in their order."""
    verdicts = {number: result["exercises"][number] for number in titles if number in result["exercises"]}
    right = sum(verdict["status"] == "passed" for verdict in verdicts.values())
    body = [f"<h1>{escape(result['learner'])}</h1>", f"<p>{right} of {len(verdicts)} exercises are right.</p>"]
    body += [f"<p>{html.prose(problem)}</p>" for problem in result.get("problems") or ()]
    body += [_strip(verdicts), html.legend()]
    for number in sorted(verdicts, key=lambda number: _ORDER.index(verdicts[number]["status"])):
        body.append(_card(number, titles[number], verdicts[number]))
    graded = (
        f"Graded on numbers that nobody had seen before; Triton {result.get('triton')}, torch {result.get('torch')}."
    )
    body.append(f'<p class="quiet">{escape(graded)}</p>')
    return html.document(f"Feedback for {result['learner']}", "\n".join(body))


def _strip(verdicts: dict[str, dict[str, Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(number)}</th>' for number in verdicts)
    marks = "".join(f'<td class="{one["status"]}">{html.mark(one["status"])}</td>' for one in verdicts.values())
    return html.table(f"<tr>{head}</tr>", f"<tr>{marks}</tr>", kind="grid")


def _card(number: str, title: str, verdict: dict[str, Any]) -> str:
    status = verdict["status"]
    words = html.MARKS[status][1]
    parts = [f"<h3>{html.mark(status)} {escape(f'{number} {title}: {words}')}</h3>"]
    if verdict["diagnosis"]:
        parts.append(
            f"<p>Likely mistake: <b>{escape(verdict['diagnosis'])}</b><br>{html.prose(verdict['sentence'])}</p>"
        )
    elif verdict["sentence"]:
        parts.append(f"<p>{html.prose(verdict['sentence'])}</p>")
    if status == "held":
        parts.append(
            "<p>The numbers are right. The code uses more than the exercise needs, so a person will look at it:</p>"
        )
        parts.append("<ul>" + "".join(f"<li>{html.prose(line)}</li>" for line in verdict["reaches"]) + "</ul>")
    if verdict["excerpt"]:
        parts.append(html.pre("\n".join(verdict["excerpt"])))
    if status in ("failed", "passed", "held"):
        parts.append(_cases(verdict["cases"]))
    if verdict["printed"]:
        parts.append(f'<p class="quiet">Your code printed:</p>{html.pre(verdict["printed"])}')
    parts += [f'<p class="quiet">{html.prose(note)}</p>' for note in verdict["notes"]]
    return f'<section class="card is-{status}">{"".join(parts)}</section>'


def _cases(cases: list[dict[str, Any]]) -> str:
    wrong = [case for case in cases if case["status"] == "failed"]
    parts = []
    for case in wrong:
        parts.append(f"<div>✗ <b>{escape(case['name'])}</b></div>")
        if case["details"]:
            parts.append(html.pre("\n".join(case["details"])))
    for status, words in (("passed", "right"), ("not-run", "not tried")):
        names = [case["name"] for case in cases if case["status"] == status]
        if names:
            lines = "".join(f"<li>{escape(name)}</li>" for name in names)
            count = f"{len(names)} {'case' if len(names) == 1 else 'cases'} {words}"
            parts.append(f"<details><summary>{count}</summary><ul>{lines}</ul></details>")
    return "".join(parts)
