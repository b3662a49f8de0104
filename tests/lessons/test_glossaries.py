"""Terms: each is introduced once, in bold, with a link to its lesson's glossary, and every such link leads there."""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from course_lab.authoring import lessons, source
from course_lab.authoring.lessons import Lesson

REPOSITORY = Path(__file__).resolve().parents[2]
LESSONS = {lesson.name: lesson for lesson in lessons.all() if lesson.is_built_in(REPOSITORY)}

_HEADING = "### Glossary"
_ENTRY = re.compile(r"^- (\*\*.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
_TERM = re.compile(r"\*\*(.+?)\*\*(?: \(([^)]+)\))?")  # and a short name in brackets
_LINK = re.compile(r"\[([^\]]+)\]\((\w*)(?:\.ipynb)?#Glossary\)")
_NOT_PROSE = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|^#.*?$|^\|.*?$|\*[A-Z][^*]*\*", re.MULTILINE | re.DOTALL
)

each_lesson = pytest.mark.parametrize("name", LESSONS)


def _markdown(lesson: Lesson) -> list[str]:
    return [cell.text for cell in source.read(lesson.file("lesson.py")) if cell.kind == "markdown"]


@cache
def _terms(name: str) -> dict[str, str]:
    """The terms of a lesson's glossary, each with its stem; short names are terms too."""
    glossary = "\n".join(_markdown(LESSONS[name])).partition(_HEADING)[2]
    found = [term for entry in _ENTRY.findall(glossary) for pair in _TERM.findall(entry) for term in pair if term]
    return {term: _stem(term) for term in found}


def _stem(words: str) -> tuple[str, ...]:
    """The words without their endings, so that "fused" is "fusing" and "queries" are a "query"."""
    plain = re.findall(r"\w+", words.lower())
    return tuple(re.sub(r"(ies|y|ing|ed|es|e|s)$", "", word) if len(word) > 3 else word for word in plain)


def _links(text: str) -> list[tuple[str, str]]:
    """(text, notebook) of each link to a glossary; the notebook is "" for the lesson's own."""
    return [(" ".join(words.split()), notebook) for words, notebook in _LINK.findall(text)]


@each_lesson
def test_every_link_to_a_glossary_leads_to_the_term(name):
    for words, notebook in _links("\n".join(_markdown(LESSONS[name]))):
        target = notebook or name
        assert target in LESSONS, f"{words!r} links to {target}, which is no lesson"
        assert LESSONS[target].number <= LESSONS[name].number, f"{words!r} links ahead, to {target}"
        parts = set(_stem(words))
        assert any(parts & set(stem) for stem in _terms(target).values()), f"{target} has no term for {words!r}"


@each_lesson
def test_each_term_is_introduced_once_in_bold_with_a_link(name):
    text = "\n".join(_markdown(LESSONS[name])).partition(_HEADING)[0]
    own = [words for words, notebook in _links(text) if not notebook]
    assert all(words.startswith("**") for words in own), "a link to the lesson's own glossary introduces a term: bold"
    introduced = [_stem(words) for words in own]
    assert len(introduced) == len(set(introduced)), "a term is introduced twice"
    glossary = "\n".join(_markdown(LESSONS[name])).partition(_HEADING)[2]
    heads = [term for entry in _ENTRY.findall(glossary) for term, _ in _TERM.findall(entry.partition(":")[0])]
    assert heads and [term for term in heads if _stem(term) not in introduced] == []


@each_lesson
def test_a_term_is_introduced_at_its_first_use(name):
    """From the first section on: headings, tables and code may name it before, and so may the lesson's preview."""
    text = "\n\n".join(_markdown(LESSONS[name])[1:]).partition(_HEADING)[0]
    text = _NOT_PROSE.sub(" ", text)
    for link in _LINK.finditer(text):
        if link[1].startswith("**"):
            words = re.sub(r"\W+", r"\\W+", re.sub(r"[*`]", "", link[1]))
            earlier = _LINK.sub(" ", text[: link.start()])  # a longer term may hold a shorter one
            before = re.search(rf"\b{words}\b", earlier, re.IGNORECASE)
            around = earlier[max(before.start() - 40, 0) : before.end() + 20] if before else ""
            assert before is None, f"{link[1]} is used before it is introduced: ...{around}..."


def test_no_term_stands_in_two_glossaries():
    for one, other in combinations(LESSONS, 2):
        both = set(_terms(one).values()) & set(_terms(other).values())
        assert not both, f"{one} and {other} both explain {sorted(both)}: link to the first"
