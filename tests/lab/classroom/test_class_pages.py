"""What a class's results are shown as: harmless whatever learners are called, and right in what they count."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course_lab.authoring import lessons
from course_lab.authoring.edits import apply
from course_lab.check.protocol import clean
from course_lab.classroom import likeness, pages, spent
from course_lab.classroom.results import Results
from course_lab.classroom.submissions import Submission
from course_lab.classroom.verdicts import Assignment, abandoned

STUB, SOLUTION = lessons.stub("2.2"), lessons.solution("2.2")
ASSIGNMENT = Assignment(("1.1", "1.2", "2.2"), "seed")
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def result(learner: str, **verdicts: dict) -> dict:
    """A stored result in which these verdicts (`e11`) stand in place of missing answers."""
    stored = abandoned(Submission(learner, {}), ASSIGNMENT, "of no reason")
    for name, verdict in verdicts.items():
        stored["exercises"][f"{name[1]}.{name[2]}"] |= verdict
    return stored


def written(tmp_path: Path, *stored: dict) -> Path:
    results = Results(tmp_path / "results")
    with results.held():
        for one in stored:
            results.store(one)
        pages.write_all(results, [one["learner"] for one in stored], ASSIGNMENT)
    return results.folder


def test_no_name_and_no_answer_becomes_a_part_of_a_page(tmp_path):
    wrong = {"status": "failed", "diagnosis": EVIL, "sentence": EVIL, "code": EVIL, "printed": EVIL, "notes": [EVIL]}
    wrong |= {"excerpt": [EVIL], "reaches": [EVIL], "cases": [{"name": EVIL, "status": "failed", "details": [EVIL]}]}
    folder = written(tmp_path, result(EVIL, e11=wrong, e12=wrong | {"status": "held"}), result("b", e11=wrong))
    shown = [folder / "index.html", *(folder / "feedback").iterdir()]
    assert len(shown) == 3
    for page in shown:
        text = page.read_text()
        assert "<script" not in text and "<img" not in text and "&lt;script" in text
        assert "default-src 'none'" in text
    ElementTree.parse(folder / "junit.xml")


def test_code_that_is_to_be_looked_at_is_shown_in_the_order_in_which_it_runs(tmp_path):
    code = "x = 1  # \u202e so \u2066 ni"
    stored = result("ab", e11={"status": "held", "code": clean(code), "reaches": ["Line 1 imports os."]})
    folder = written(tmp_path, stored)
    for page in (folder / "index.html", *(folder / "feedback").iterdir()):
        assert not set("\u202e\u2066") & set(page.read_text()), page


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum(a1)"])
def test_no_name_is_a_formula_in_a_spreadsheet(tmp_path, name):
    folder = written(tmp_path, result(name))
    with open(folder / "results.csv", newline="") as file:
        assert {row["learner"] for row in csv.DictReader(file)} == {f"'{name}"}


def test_junit_takes_characters_that_xml_has_not(tmp_path):
    folder = written(
        tmp_path, result("a", e11={"status": "failed", "sentence": "\x0b\ud800\ufffe", "headline": "\x00"})
    )
    assert ElementTree.parse(folder / "junit.xml").find(".//failure").get("message") == "???"


def test_what_is_held_has_no_points_and_stands_on_the_page(tmp_path):
    held = {"status": "held", "reaches": ["Line 1 imports os."], "code": "import os"}
    folder = written(tmp_path, result("a", e11=held, e12={"status": "passed"}))
    with open(folder / "results.csv", newline="") as file:
        assert [row["points"] for row in csv.DictReader(file)] == ["", "1", "0"]
    assert "To be looked at" in (folder / "index.html").read_text()


def test_the_commonest_mistake_comes_first_with_its_shortest_example(tmp_path):
    one = {"status": "failed", "diagnosis": "rare", "sentence": "Rare.", "code": "x"}
    many = {"status": "failed", "diagnosis": "common", "sentence": "Common.", "code": "longer code"}
    stored = [result("a", e11=many), result("b", e11=many | {"code": "short"}), result("c", e11=one)]
    text = (written(tmp_path, *stored) / "index.html").read_text()
    assert text.index("1.1 Scale and add: common (2 learners)") < text.index("rare (1 learner)")
    assert "An example: b" in text


# ---- answers that are alike ------------------------------------------------------------------------------------------


def groups(**answers: str) -> list[likeness.Alike]:
    return likeness.alike("2.2", answers.items(), STUB, SOLUTION)


def test_names_comments_and_blank_lines_make_no_difference():
    mutant = apply(lessons.mutants("2.2")[0], SOLUTION)
    renamed = mutant.replace("mask", "inside").replace("offs", "where") + "\n\n# mine, all mine\n"
    (found,) = groups(a=mutant, b=renamed)
    assert found.learners == ("a", "b") and found.part == 1.0 and not found.same_text


def test_what_is_like_the_solution_says_little_and_comes_last():
    (found,) = groups(a=SOLUTION, b=SOLUTION)
    assert found.as_solution and found.same_text


def test_different_answers_stubs_and_nonsense_are_not_alike():
    other = "def f(x):\n    a = 1\n    b = a + x\n    c = b * 2\n    d = c - a\n    return d\n"
    assert not groups(a=SOLUTION, b=other, c=STUB, d=STUB, e="((((", f="", g="\0")


# ---- time spent ------------------------------------------------------------------------------------------------------


def event(time: str, exercise: str) -> str:
    return json.dumps({"time": f"2026-11-20T{time}:00+00:00", "exercise": exercise, "event": "attempt"})


def test_pauses_are_left_out_of_the_time_spent():
    lines = [event("10:00", "1.1"), event("10:09", "1.1"), event("10:20", "1.2"), event("15:00", "1.2")]
    assert spent.minutes("\n".join(lines)) == {"1.1": 11.0, "1.2": 13.0}


@pytest.mark.parametrize("line", ["", "{", "3", "null", '{"time": 3}', '{"time": "x", "exercise": "1.1"}', "[" * 9999])
def test_a_record_of_another_form_is_no_time(line):
    assert spent.minutes(line) == {}
