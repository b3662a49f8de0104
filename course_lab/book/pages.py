"""Notebooks and files as the inside of a page: Markdown, code, stored outputs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

from nbconvert.filters import Highlight2HTML, ansi2html, markdown2html
from nbformat import NotebookNode

from course_lab.authoring import source
from course_lab.book.maths import with_mathml

_RICHEST = ("text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain")
_NO_WORDS = re.compile(r"<(style|script|math|svg)\b.*?</\1>", re.DOTALL)
_IN_A_WORD = re.compile(r"</?(?:span|code|b|i|em|strong|a)\b[^>]*>")  # highlighting cuts `tl.sum` into three
_TAG = re.compile(r"<[^>]*>", re.DOTALL)
_HEADING = re.compile(r'<h([1-6]) id="([^"]*)"[^>]*>(.*?)</h\1>', re.DOTALL)
_PILCROW = re.compile(r'<a class="anchor-link"[^>]*>.*?</a>', re.DOTALL)
_highlight = Highlight2HTML(pygments_lexer="ipython3")


@dataclass(frozen=True)
class Section:
    """What the search finds: a heading, the anchor to it, and the words below it."""

    heading: str
    anchor: str
    words: str


@dataclass(frozen=True)
class Page:
    """One page of the book: its path in the book, its title, the HTML inside, and its sections."""

    path: str
    title: str
    body: str
    sections: tuple[Section, ...] = field(default=(), compare=False)


def of_notebook(notebook: NotebookNode) -> str:
    """The cells of a notebook as HTML, with stored outputs; what answers a prediction is folded."""
    return "\n".join(_cell(cell) for cell in notebook.cells)


def of_markdown(text: str) -> str:
    """Markdown with formulas as HTML."""
    html = markdown2html(with_mathml(text))
    return _PILCROW.sub(lambda found: found[0].replace("¶", "#"), html)


def with_repository_anchors(html: str) -> str:
    """Headings with the anchors that code hosts give them, as links to a file of the repository expect."""

    def renamed(found: re.Match) -> str:
        return re.sub(r"[^\w-]", "", found[0].lower())

    return re.sub(r'(?<=<h[1-6] id=")[^"]*|(?<=href="#)[^"]*', renamed, html)


def of_code(text: str, language: str = "ipython3") -> str:
    """Highlighted code; below a cell's magic line stands Python."""
    magic, code = source.without_magic(text)
    if magic is None:
        return _highlight(text, language=language)
    first = escape(source.with_magic(magic, "").rstrip())
    return _highlight(code, language="python").replace("<pre>", f'<pre><span class="c">{first}</span>\n', 1)


def _cell(cell: NotebookNode) -> str:
    if cell.cell_type == "markdown":
        return f'<section class="text">{of_markdown(cell.source)}</section>'
    outputs = "\n".join(filter(None, map(_output, cell.get("outputs", ()))))
    if outputs and cell.metadata.get("jupyter", {}).get("outputs_hidden"):
        outputs = f"<details><summary>Show what the cell answers</summary>{outputs}</details>"
    return f'<section class="code">{of_code(cell.source)}{outputs}</section>'


def _output(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return _text(output.text)
    if output.output_type == "error":
        return _text("\n".join(output.traceback))
    kind = next((kind for kind in _RICHEST if kind in output.data), None)
    return _shown(kind, "".join(output.data[kind])) if kind else ""


def _shown(kind: str, data: str) -> str:
    if kind in ("text/html", "image/svg+xml"):
        return f'<div class="output">{data}</div>'
    if kind.startswith("image/"):
        return f'<div class="output"><img alt="" src="data:{kind};base64,{data.strip()}"></div>'
    return f'<div class="output">{of_markdown(data)}</div>' if kind == "text/markdown" else _text(data)


def _text(text: str) -> str:
    return f'<pre class="output">{ansi2html(text)}</pre>' if text.strip() else ""


def sections(html: str) -> tuple[Section, ...]:
    """The HTML cut at its headings, as plain words."""
    headings = list(_HEADING.finditer(html))
    ends = [found.start() for found in headings[1:]] + [len(html)]
    return tuple(
        Section(plain(_PILCROW.sub("", found[3])), found[2], plain(html[found.end() : end]))
        for found, end in zip(headings, ends)
    )


def plain(html: str) -> str:
    """The words of HTML, without tags, styles, formulas and pictures."""
    text = _TAG.sub(" ", _IN_A_WORD.sub("", _NO_WORDS.sub(" ", html)))
    for name, letter in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        text = text.replace(name, letter)
    return " ".join(text.split())


def heading(title: str) -> str:
    """A first heading."""
    return f"<h1>{escape(title)}</h1>"
