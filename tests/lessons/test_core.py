"""The short path: within its minutes, complete in itself, and with something to type from the beginning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from course_lab.authoring import core, lessons

REPOSITORY = Path(__file__).resolve().parents[2]
LESSONS = {lesson.name: lesson for lesson in lessons.all() if lesson.is_built_in(REPOSITORY) and lesson.core}
READING, EXERCISES, STEPS = 20, 25, 2  # minutes, minutes, short exercises in the core of each lesson
FIRST_STEP = 500  # words: five minutes

_LINK = re.compile(r"\[(\*\*)?([^\]]+?)(?:\*\*)?\]\((\w*)(?:\.ipynb)?#Glossary\)(?: \((\w+)\))?")  # and a short name

each_lesson = pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)


def test_the_short_path_takes_about_six_hours():
    assert len(LESSONS) >= 8
    assert 5 <= sum(core.short_path_minutes(lesson) for lesson in LESSONS.values()) / 60 <= 7


@each_lesson
def test_the_core_keeps_to_its_minutes(lesson):
    minutes = core.reading_minutes(lesson)
    assert minutes <= lesson.core_minutes <= READING
    assert lesson.core_minutes <= minutes + 2, "CORE_MINUTES is too large"
    assert core.exercise_minutes(lesson) <= EXERCISES


@each_lesson
def test_a_lesson_says_how_long_its_core_takes(lesson):
    if any(part.optional for part in core.parts(lesson)):
        text = " ".join(part.text for part in core.parts(lesson)[:1])
        assert f"short path takes about {lesson.core_minutes}" in " ".join(text.split())


@each_lesson
def test_there_is_something_to_type_early_and_between_rungs(lesson):
    parts = [part for part in core.parts(lesson) if not part.optional]
    steps = [i for i, part in enumerate(parts) if part.exercise]
    assert len(steps) >= STEPS
    words = sum(core.words(part.text) for part in parts[: steps[0]] if part.kind == "markdown")
    assert words <= FIRST_STEP, f"{words} words before the first step"


@each_lesson
def test_core_cells_use_nothing_that_an_optional_cell_made(lesson):
    assert list(core.missing_names(lesson)) == []


@each_lesson
def test_the_core_uses_no_term_that_an_optional_part_introduced(lesson):
    for part in core.parts(lesson):
        for bold, words, target, _ in _LINK.findall(part.text) if not part.optional and part.kind == "markdown" else ():
            if bold:
                continue
            words, owner = " ".join(words.split()), LESSONS[target or lesson.name]
            assert _stems(words) & _introduced(owner), f"{words!r} stands in an optional part of {owner.name}"


def _introduced(lesson) -> set[str]:
    """The stems of the words that the core of a lesson introduces."""
    return {
        stem
        for part in core.parts(lesson)
        if part.kind == "markdown" and not part.optional
        for bold, words, _, short in _LINK.findall(part.text)
        if bold
        for stem in _stems(f"{words} {short}")
    }


def _stems(words: str) -> set[str]:
    return {re.sub(r"(ies|y|ing|ed|es|e|s)$", "", word) for word in re.findall(r"\w+", words.lower())}


def test_a_name_from_an_optional_cell_is_found(tmp_path, monkeypatch):
    path = tmp_path / "lesson.py"
    path.write_text(
        "# %%\na = 1\n\n# %% [markdown]\n# ## More (optional)\n\n# %%\nb = a\na = 2\n\n"
        "# %% [markdown]\n# ## Back\n\n# %%\nprint(b, a)\n\n# %%\na = 3\nprint([a for a in range(3)])\n"
    )
    lesson = LESSONS["01_vector_add"]
    monkeypatch.setattr(type(lesson), "file", lambda self, name: path)
    found = list(core.missing_names(lesson))
    assert len(found) == 2 and "uses 'a'" in found[0] and "uses 'b'" in found[1]
