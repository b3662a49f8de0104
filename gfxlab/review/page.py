"""A review to be read: in the terminal, and as an HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from gfxlab import style
from gfxlab.review.findings import Finding
from gfxlab.review.reviewing import Review
from gfxlab.units import format_count

_PARTS = (("hazards", "Wrong, or right by luck"), ("costs", "What it costs"), ("notes", "Notes"))
_MARKS = {"hazard": "!!", "cost": "$ ", "note": "- "}
_COLOURS = {"hazard": style.BAD, "cost": style.PALETTE[1], "note": style.QUIET}


def summary(review: Review) -> str:
    """One line: how many of each."""
    counts = ((review.kernels, "kernel"), (review.hazards, "hazard"), (review.costs, "cost"))
    return f"{review.file} on {review.arch}: {', '.join(format_count(len(found), what) for found, what in counts)}"


def text(review: Review) -> str:
    """The page for a terminal."""
    lines = [summary(review), *(f"  {kernel}" for kernel in review.kernels)]
    for part, title in _PARTS:
        found = getattr(review, part)
        if found:
            lines += ["", title]
            for finding in found:
                lines += _lines(review, finding)
    return "\n".join(lines)


def _where(review: Review, finding: Finding) -> str:
    """The kernel and its line; the file too, where that is not the one that was run."""
    if not finding.line:
        return finding.kernel
    file = Path(finding.file).name
    return f"{finding.kernel}, {'' if file == review.file else f'{file}, '}line {finding.line}"


def _evidence(finding: Finding) -> str:
    """Without the line of the kernel, which stands above it."""
    said = finding.evidence
    if finding.source:
        said = said.replace(f" (line {finding.line}: {finding.source})", "")
    return said[:1].upper() + said[1:]


def _lines(review: Review, finding: Finding) -> Iterator[str]:
    about = finding.about
    yield f"  {_MARKS[finding.level]} {about.title} ({_where(review, finding)})"
    if finding.source:
        yield f"       {finding.source}"
    yield f"     {_evidence(finding)}"
    if about.cure and finding.level != "note":
        lesson = f" Lesson {about.lesson} teaches it." if about.lesson else ""
        yield f"     Cure: {about.cure}{lesson}"


def html(review: Review) -> str:
    """The page as HTML."""
    kernels = "".join(f"<li>{escape(str(kernel))}</li>" for kernel in review.kernels)
    cards = [style.card(summary(review), f"<ul>{kernels}</ul>")]
    for part, title in _PARTS:
        found = getattr(review, part)
        if found:
            cards.append(f"<h2>{escape(title)}</h2>")
            cards += (_card(review, finding) for finding in found)
    head = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(summary(review))}</title>'
        "<style>body{font-family:system-ui,sans-serif;max-width:64em;margin:2em auto;padding:0 1em}"
        "h1{font-size:22px}h2{font-size:17px;margin:1.4em 0 .4em}ul{margin:0;padding-left:1.2em}"
        "body .course-card{width:auto;max-width:none}</style>"
    )
    return f"{head}<h1>Review of {escape(review.file)}</h1>{''.join(cards)}</html>\n"


def _card(review: Review, finding: Finding) -> str:
    about, colour = finding.about, _COLOURS[finding.level]
    body = f'<p class="q">{escape(_where(review, finding))}</p>'
    if finding.source:
        body += f"<p><code>{escape(finding.source)}</code></p>"
    body += f"<p>{escape(_evidence(finding))}</p>"
    if about.cure and finding.level != "note":
        lesson = f" Lesson {about.lesson} teaches it." if about.lesson else ""
        mark = f'<span style="color:{colour}" aria-hidden="true">&#9679;</span>'
        body += f"<p>{mark} <b>Cure</b> {escape(about.cure + lesson)}</p>"
    return style.card(about.title, body)
