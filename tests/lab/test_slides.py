"""Lessons as slides: which cell begins one, and what a deck asks the network for."""

from __future__ import annotations

import re

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from course_lab.authoring import lessons
from course_lab.authoring.build import assemble, slides
from course_lab.authoring.notebooks import NotebookError
from course_lab.book.slides import SCRIPTS, write_slides


@pytest.fixture
def packages(tmp_path):
    """A node_modules with nothing in its packages but their names."""
    for package in SCRIPTS:
        (tmp_path / "node_modules" / package).mkdir(parents=True)
        (tmp_path / "node_modules" / package / "package.json").write_text("{}")
    return tmp_path / "node_modules"


def test_a_section_begins_a_slide_and_a_prediction_is_answered_by_a_click():
    texts = [
        "# Title",
        "prose",
        "code",
        "code",
        "## Rung 1\n**Predict**: how many?",
        "code",
        "### Your turn",
        "code",
        "prose",
    ]
    nodes = [new_code_cell(text) if text == "code" else new_markdown_cell(text) for text in texts]
    slides.tag(nodes, "**Predict")
    kinds = [node.metadata.slideshow.slide_type for node in nodes]
    assert kinds == ["slide", "subslide", "-", "subslide", "slide", "fragment", "slide", "-", "subslide"]


def test_every_cell_of_every_lesson_has_its_slide_type():
    for lesson in lessons.all():
        kinds = [cell.metadata.slideshow.slide_type for cell in assemble.lesson_notebook(lesson).cells]
        assert kinds[0] == "slide" and 4 < kinds.count("slide") < len(kinds) / 2 and "-" in kinds, lesson.name


def test_a_deck_asks_no_server_and_shows_what_the_notebook_stored(tmp_path, packages):
    deck = write_slides(lessons.lesson("01"), tmp_path / "slides", packages)
    html = deck.read_text()
    loaded = re.findall(r"""(?:src|href)=["']([^"'#]+)|import .* from '([^']+)'|"([^"]+\.js)\"""", html)
    outside = {
        found for found in sum(loaded, ()) if re.match(r"(?:https?:)?//", found) and found.endswith((".js", ".css"))
    }
    assert not outside and "mathjax.js" not in html.lower()
    for package in SCRIPTS:
        assert (deck.parent / package / "package.json").is_file() and f'"{package}/' in html
    assert "<math" in html and "<svg" in html and "<strong>wave</strong></a>" not in html


def test_a_missing_script_and_a_missing_notebook_are_named(tmp_path, packages, monkeypatch):
    (packages / "jquery" / "package.json").unlink()
    with pytest.raises(NotebookError, match="has no jquery: `npm install"):
        write_slides(lessons.lesson("01"), tmp_path / "slides", packages)
    monkeypatch.setattr(lessons.Lesson, "notebook", lambda self, folder: tmp_path / "none.ipynb")
    with pytest.raises(NotebookError, match="course build 01_vector_add"):
        write_slides(lessons.lesson("01"), tmp_path / "slides")
