"""A lesson as a deck of slides for reveal.js, made by nbconvert from the slide types that its cells carry.

    course slides 2 --out build/slides

Formulas are MathML and stored outputs are in the page, so that a deck needs reveal.js, require.js and jQuery alone:
from a folder of npm packages where one is given, else from the network.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from nbconvert.exporters import SlidesExporter
from nbformat import NotebookNode

from course_lab.authoring.lessons import Lesson
from course_lab.authoring.notebooks import NotebookError, read_notebook
from course_lab.book.maths import with_mathml

SCRIPTS = {  # what of each npm package a deck loads, and nbconvert's name for its address
    "reveal.js": ("reveal_url_prefix", ""),
    "requirejs": ("require_js_url", "/require.js"),
    "jquery": ("jquery_url", "/dist/jquery.min.js"),
}
# The formulas are drawn already: nbconvert's page asks MathJax at every slide, and there is nothing for it to do.
_TEMPLATE = """\
{%- extends 'index.html.j2' -%}
{%- block html_head_js_mathjax -%}
<script>window.MathJax = {Hub: {getAllJax: () => null}};</script>
<style>
:root { --jp-code-font-size: 15px; --r-heading-text-transform: none; }
.reveal .slides { text-align: left; }
.reveal h1 { font-size: 1.7em; } .reveal h2 { font-size: 1.3em; } .reveal h3 { font-size: 1.1em; }
.reveal h1, .reveal h2, .reveal h3, .reveal h4 { text-transform: none; }
.reveal pre { width: 100%; box-shadow: none; font-size: 1em; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { font-size: 16px; }
</style>
{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""
_LINK_INSIDE = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?!https?:)[^()\s]*(?:\([^()]*\)[^()\s]*)*\)")
_FENCE = re.compile(r"(```.*?```)", re.DOTALL)


def write_slides(lesson: Lesson, folder: Path, scripts: Path | None = None) -> Path:
    """Write the deck of a lesson's built notebook into `folder`, and return its path.

    scripts: a node_modules folder with the packages of SCRIPTS; they are copied beside the deck.

    Raises:
        NotebookError: the notebook is not built, or a package is not in `scripts`.
    """
    path = lesson.notebook("notebooks")
    notebook = read_notebook(path)
    if notebook is None:
        raise NotebookError(f"{path} is not there: build it with `course build {lesson.name}`.")
    folder.mkdir(parents=True, exist_ok=True)
    exporter = SlidesExporter(
        raw_template=_TEMPLATE,
        reveal_scroll=True,
        reveal_number="c/t",
        reveal_theme="white",
        reveal_width="1200",
        reveal_height="720",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        **_places(folder, scripts),
    )
    page, _ = exporter.from_notebook_node(_for_the_wall(notebook), {"metadata": {"name": lesson.title}})
    deck = folder / f"{lesson.name}.slides.html"
    deck.write_text(page, encoding="utf-8")
    return deck


def _places(folder: Path, scripts: Path | None) -> dict[str, str]:
    """Where a deck finds its scripts, by nbconvert's names; {} for its own, on the network."""
    if scripts is None:
        return {}
    for package in SCRIPTS:
        if not (scripts / package / "package.json").is_file():
            raise NotebookError(f"{scripts} has no {package}: `npm install --prefix FOLDER {package}` brings it.")
        shutil.copytree(scripts / package, folder / package, dirs_exist_ok=True)
    return {name: f"{package}{file}" for package, (name, file) in SCRIPTS.items()}


def _for_the_wall(notebook: NotebookNode) -> NotebookNode:
    """Formulas as MathML; a link to another notebook or to the glossary, which no slide can follow, as its words."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts = _FENCE.split(cell.source)
            parts[::2] = [_LINK_INSIDE.sub(r"\1", part) for part in parts[::2]]
            cell.source = with_mathml("".join(parts))
    return notebook
