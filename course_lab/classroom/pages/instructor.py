"""The instructor's page: who solved what, which mistakes are common, where time went, which answers are alike."""

from __future__ import annotations

from collections import Counter
from html import escape
from statistics import median
from typing import Any
from urllib.parse import quote

from course_lab.authoring import lessons
from course_lab.classroom.likeness import Alike, alike
from course_lab.classroom.pages import html
from course_lab.classroom.pages.gathered import MISSING, Gathered
from course_lab.classroom.verdicts import Assignment

_MOST_DIAGNOSES = 12
_MOST_PAIRS = 30
_MOST_PROBLEMS = 200
_WHY_HELD = (
    "Their numbers are right. Their code reaches for more than PyTorch and Triton, with which it could have falsified "
    "what the check saw of its launches. Look, and decide."
)
_WHY_ALIKE = (
    "Equal up to names, comments and a statement or two. A hint for a talk, no accusation: learners who sat side by "
    "side, or who read the same page, write the same."
)


def page(gathered: Gathered, assignment: Assignment) -> str:
    """The whole page."""
    examples, codes = _collected(gathered)
    parts = [_head(gathered, assignment), _heat_map(gathered), _diagnoses(gathered, examples)]
    parts += [_held(gathered), _time(gathered), _alike(gathered, codes), _problems(gathered)]
    return html.document("A class, graded", "\n".join(filter(None, parts)))


def _collected(gathered: Gathered) -> tuple[dict[tuple[str, str], tuple[str, dict]], dict[str, list[tuple[str, str]]]]:
    """The shortest answer with each (exercise, diagnosis), and all code by exercise, in one reading of the files."""
    examples: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    codes: dict[str, list[tuple[str, str]]] = {number: [] for number in gathered.exercises}
    for result in gathered.each():
        for number in gathered.exercises:
            verdict = result["exercises"].get(number, MISSING)
            code, key = verdict.get("code") or "", (number, verdict.get("diagnosis", ""))
            if code:
                codes[number].append((result["learner"], code))
            if key[1] and (key not in examples or len(code) < len(examples[key][1]["code"])):
                examples[key] = result["learner"], verdict
    return examples, codes


def _head(gathered: Gathered, assignment: Assignment) -> str:
    counts = Counter(mark.status for row in gathered.grid.values() for mark in row.values())
    total = sum(counts.values()) or 1
    what = f"{len(gathered.learners)} submissions, {len(gathered.exercises)} exercises"
    words = f"{what}; {counts['passed'] / total:.0%} of the answers are right."
    how = "without a sandbox" if assignment.unsafe else "each submission in a sandbox of its own"
    seed = f"Hidden cases were drawn with <code>--seed {escape(assignment.seed)}</code>, {how}."
    return f'<h1>A class, graded</h1><p>{words}</p><p class="quiet">{seed}</p>'


# ---- the heat map ----------------------------------------------------------------------------------------------------


def _heat_map(gathered: Gathered) -> str:
    numbers = gathered.exercises
    head = "".join(f'<th scope="col" title="{escape(gathered.titles[n], True)}">{escape(n)}</th>' for n in numbers)
    rows = "".join(_row(gathered, name) for name in gathered.learners)
    solved = "".join(f"<td>{_share(gathered, number)}</td>" for number in numbers)
    head = f'<tr><th scope="col">learner</th><th scope="col">right</th>{head}</tr>'
    foot = f'<tr><th scope="row">right</th><td></td>{solved}</tr>'
    return f"<h2>Who solved what</h2>{html.legend()}{html.table(head, rows, foot, 'grid')}"


def _row(gathered: Gathered, name: str) -> str:
    cells = []
    for number, mark in gathered.grid[name].items():
        cases = f" {mark.right}/{mark.cases}" if mark.status == "failed" and mark.right else ""
        about = escape(": ".join(filter(None, (html.MARKS[mark.status][1], mark.diagnosis))), True)
        cells.append(f'<td class="{mark.status}" title="{number} {about}">{html.mark(mark.status)}{cases}</td>')
    right = sum(mark.status == "passed" for mark in gathered.grid[name].values())
    link = f'<a href="feedback/{escape(quote(gathered.page(name)), True)}">{escape(name)}</a>'
    return f'<tr><th scope="row">{link}</th><td>{right}</td>{"".join(cells)}</tr>'


def _share(gathered: Gathered, number: str) -> str:
    right = sum(row[number].status == "passed" for row in gathered.grid.values())
    return f"{right / max(len(gathered.learners), 1):.0%}"


# ---- mistakes --------------------------------------------------------------------------------------------------------


def _diagnoses(gathered: Gathered, examples: dict[tuple[str, str], tuple[str, dict[str, Any]]]) -> str:
    common = gathered.diagnoses().most_common(_MOST_DIAGNOSES)
    if not common:
        return ""
    parts = ["<h2>The most common mistakes</h2>"]
    for (number, code), count in common:
        learner, verdict = examples[number, code]
        times = f"{count} {'learner' if count == 1 else 'learners'}"
        title = escape(f"{number} {gathered.titles[number]}: {code}")
        shown = f"<details><summary>An example: {escape(learner)}</summary>{html.pre(verdict['code'])}</details>"
        parts.append(
            f'<section class="card is-failed"><h3>{title} ({times})</h3>'
            f"<p>{html.prose(verdict['sentence'])}</p>{shown}</section>"
        )
    return "".join(parts)


def _held(gathered: Gathered) -> str:
    parts = []
    for result in gathered.each():
        for number in gathered.exercises:
            verdict = result["exercises"].get(number, MISSING)
            if verdict["status"] == "held":
                lines = "".join(f"<li>{html.prose(line)}</li>" for line in verdict["reaches"])
                title = escape(f"{result['learner']}, {number} {gathered.titles[number]}")
                code = f"<details><summary>The answer</summary>{html.pre(verdict['code'])}</details>"
                parts.append(f'<section class="card is-held"><h3>{title}</h3><ul>{lines}</ul>{code}</section>')
    if not parts:
        return ""
    return f"<h2>To be looked at</h2><p>{_WHY_HELD}</p>{''.join(parts)}"


def _time(gathered: Gathered) -> str:
    rows = []
    for number in gathered.exercises:
        spent = sorted(times[number] for times in gathered.minutes.values() if number in times)
        if spent:
            expected = _expected(number)
            rows.append(
                f'<tr><th scope="row">{escape(number)} {escape(gathered.titles[number])}</th><td>{len(spent)}</td>'
                f"<td>{median(spent):.0f}</td><td>{spent[0]:.0f} to {spent[-1]:.0f}</td><td>{expected}</td></tr>"
            )
    if not rows:
        return ""
    head = "<tr><th>exercise</th><th>records</th><th>median, minutes</th><th>from, to</th><th>expected</th></tr>"
    note = "From the progress records that were handed in; pauses of more than 20 minutes are left out."
    return f'<h2>Time spent</h2><p class="quiet">{note}</p>{html.table(head, "".join(rows))}'


def _expected(number: str) -> str:
    try:
        return str(lessons.exercise(number).minutes)
    except lessons.LessonError:
        return ""


# ---- alike -----------------------------------------------------------------------------------------------------------


def _alike(gathered: Gathered, codes: dict[str, list[tuple[str, str]]]) -> str:
    groups = [(group, dict(codes[number])) for number in gathered.exercises for group in _groups(number, codes[number])]
    telling = [pair for pair in groups if not pair[0].as_solution]
    plain = len(groups) - len(telling)
    if not groups:
        return ""
    parts = [f'<h2>Answers that are alike</h2><p class="quiet">{_WHY_ALIKE}</p>']
    parts += [_side_by_side(group, code, gathered.titles[group.exercise]) for group, code in telling[:_MOST_PAIRS]]
    if len(telling) > _MOST_PAIRS:
        parts.append(f"<p>{len(telling) - _MOST_PAIRS} more are not shown.</p>")
    if plain:
        parts.append(f'<p class="quiet">{plain} more are also like the course\'s own solution, which says nothing.</p>')
    return "".join(parts)


def _groups(number: str, codes: list[tuple[str, str]]) -> list[Alike]:
    try:
        return alike(number, codes, lessons.stub(number), lessons.solution(number))
    except lessons.LessonError:
        return []


def _side_by_side(group: Alike, code: dict[str, str], title: str) -> str:
    one, other = group.learners[0], group.learners[-1]
    how = "the same text" if group.same_text else f"{group.part:.0%} of the statements the same"
    more = f", and {len(group.learners) - 2} more" if len(group.learners) > 2 else ""
    summary = escape(f"{group.exercise} {title}: {one} and {other}{more}; {how}")
    columns = "".join(f"<div><b>{escape(name)}</b>{html.pre(code[name])}</div>" for name in (one, other))
    names = f"<p>{escape(', '.join(group.learners))}</p>" if more else ""
    return f'<details><summary>{summary}</summary>{names}<div class="pair">{columns}</div></details>'


def _problems(gathered: Gathered) -> str:
    lines = [
        f"<li><b>{escape(name)}</b>: {html.prose(line)}</li>"
        for name in gathered.learners
        for line in gathered.problems[name]
    ]
    if not lines:
        return ""
    return f"<h2>What could not be read</h2><ul>{''.join(lines[:_MOST_PROBLEMS])}</ul>"
