"""The field guide names every diagnosis and leads to where it is taught; the check's reports lead to it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from course_lab.authoring import lessons, source
from course_lab.authoring.build import field_guide
from course_lab.authoring.operators import OPERATORS
from course_lab.check import guide
from course_lab.check.report import Report
from course_lab.check.sentences import SENTENCES, Diagnosis

ROOT = Path(__file__).resolve().parents[2]
LESSONS = [lesson for lesson in lessons.all() if lesson.is_built_in(ROOT)]
PAGE = field_guide.page(LESSONS)


def _headings(name: str) -> set[str]:
    cells = source.read(lessons.lesson(name).file("lesson.py"))
    text = "\n".join(cell.text for cell in cells if cell.kind == "markdown")
    return set(re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def test_each_diagnosis_of_the_rules_has_a_place_that_teaches_it():
    places = field_guide.places(LESSONS)
    assert set(SENTENCES) - set(places) == set(), "add them to TAUGHT in course_lessons/l08_clinic/guide.py"
    assert set(places) - set(SENTENCES) == set(), "the check has no such diagnosis"
    places |= {code: place for lesson in LESSONS for code, (_, place) in lesson.found.items()}
    for code, place in places.items():
        notebook, _, heading = place.partition("#")
        assert heading in _headings(notebook), f"{code}: {notebook} has no heading {heading!r}"


def test_the_page_has_an_entry_for_whatever_a_mutant_gets():
    entries = set(re.findall(r'<a id="([\w-]+)"></a>', PAGE))
    given = {mutant.diagnosis for lesson in LESSONS for of in lesson.mutants.values() for mutant in of}
    assert given and given - entries == set()
    assert len(entries) == PAGE.count('<a id="'), "an entry stands there twice"


def test_the_link_of_each_diagnosis_leads_to_its_entry(monkeypatch):
    """In the page as it is stored, from a report of each code that a rule, an exercise or a mutant has."""
    monkeypatch.chdir(ROOT / "exercises")
    own = {suspect.code for lesson in LESSONS for e in lesson.exercises for suspect in e.suspects}
    given = {mutant.diagnosis for lesson in LESSONS for of in lesson.mutants.values() for mutant in of}
    for code in {*SENTENCES, *OPERATORS, *own, *given}:
        page = Report("1.2", "t", "failed", (), Diagnosis(code, "A sentence."))._repr_html_()
        path, _, entry = re.search(r'href="([^"]*field_guide[^"]*)"', page)[1].partition("#")
        assert f'<a id="{entry}"></a>' in _stored(path), f"docs/field_guide.md has no entry {entry}: make lessons"


@cache
def _stored(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def test_the_page_has_each_patient():
    patients = [e for lesson in LESSONS for e in lesson.exercises if e.patient]
    assert len(patients) >= 12
    for exercise in patients:
        assert f"| {exercise.patient.symptom} | {exercise.patient.instrument} | {exercise.patient.cause.says} |" in PAGE


def test_a_report_leads_to_its_entry(monkeypatch):
    report = Report("1.2", "t", "failed", (), Diagnosis("race", "Two programs."))
    assert "docs/field_guide.md#race" in str(report)
    monkeypatch.chdir(ROOT / "exercises")
    assert 'href="../docs/field_guide.md#race"' in report._repr_html_()
    monkeypatch.setattr(guide, "PAGE", ROOT / "docs" / "nothing.md")
    assert "field_guide" not in str(report) + report._repr_html_(), "without the page there is no link"
