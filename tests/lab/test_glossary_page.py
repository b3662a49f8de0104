"""The page of all terms: nothing lost of the lessons' glossaries, rows that lead to terms, a link in every lesson."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from course_lab.authoring import lessons, source
from course_lab.authoring.build import assemble, glossary

REPOSITORY = Path(__file__).resolve().parents[2]
LESSONS = [lesson for lesson in lessons.all() if lesson.is_built_in(REPOSITORY)]


def test_every_bold_name_of_every_glossary_is_on_the_page():
    page = glossary.page(LESSONS)
    for lesson in LESSONS:
        text = "\n".join(cell.text for cell in source.read(lesson.file("lesson.py")) if cell.kind == "markdown")
        entries = re.findall(r"^- (\*\*.*?)(?=:)", text.partition(glossary.HEADING)[2], re.MULTILINE)
        names = [name for entry in entries for name in re.findall(r"\*\*(.+?)\*\*", entry)]
        assert names
        for name in names:
            assert f"**{name}**" in page, f"{lesson.name}: {name}"


def test_every_term_says_something_and_leads_to_its_lesson():
    for term in glossary.terms(LESSONS):
        assert term.names and len(term.meaning) > 10, term
        assert f"../notebooks/{term.lesson.name}.ipynb#Glossary" in glossary.page([term.lesson])


def test_every_row_of_the_vocabularies_is_a_term_of_a_lesson():
    known = {name for term in glossary.terms(LESSONS) for name in term.names}
    assert [row[0] for row in glossary.VOCABULARIES if row[0] not in known] == []
    assert all(len(row) == 5 and all(row) for row in glossary.VOCABULARIES)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_lesson_links_to_the_page(lesson):
    cells = [cell.source for cell in assemble.lesson_notebook(lesson).cells if cell.cell_type == "markdown"]
    assert sum("](../docs/glossary.md)" in cell for cell in cells) == 1
    assert glossary.HEADING in next(cell for cell in cells if "](../docs/glossary.md)" in cell)
    assert (REPOSITORY / glossary.PAGE).is_file()


def test_links_and_bars_hold_where_the_page_lies(monkeypatch):
    entry = "**a | b**, **c**: see [x](03_other.ipynb#Glossary) | more"
    term = glossary.Term(("a",), entry.partition(": ")[2], LESSONS[0])
    monkeypatch.setattr(glossary, "terms", lambda of: [term])
    assert r"see [x](../notebooks/03_other.ipynb#Glossary) \| more" in glossary.page(LESSONS[:1])
