"""The certificate: what it counts, what it says of itself, and that its file is an SVG or a PDF."""

from __future__ import annotations

from datetime import date
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from course_lab import certificate, certificate_pdf
from course_lab.authoring import lessons
from course_lab.check import grade
from course_lab.check.attempts import keep
from course_lab.journal import history, record

DAY = date(2026, 11, 22)


def passed(number: str, **about) -> None:
    record(number, "attempt", status="passed", answer=number, code="x", entry="x", **about)


def test_without_a_record_it_says_so(fake_course, course_home):
    told = certificate.collect(day=DAY)
    assert told.solved == 0 and told.lessons == () and "0 of" in told.headline
    assert "No exercise has been passed yet." in certificate.draw(told).svg


def test_it_counts_what_passed_and_on_which_engines(fake_course, course_home):
    passed("90.1", engines=["interpreter", "simulated gfx942"])
    passed("90.2", engines=["interpreter"])
    record("90.2", "attempt", status="failed", answer="other")  # a later mistake takes nothing away
    record("90.3", "attempt", status="failed", answer="never right")
    (lesson,) = certificate.collect("Ada", DAY).lessons
    assert lesson.numbers == ("90.1", "90.2")
    assert dict(lesson.engines) == {"interpreter": 2, "simulated gfx942": 1}
    assert lesson.last == history("90.2").passed_at[:10]


@pytest.mark.parametrize("engines", [None, "interpreter", [3], {}])
def test_a_record_without_engines_is_no_error(fake_course, course_home, engines):
    passed("90.1", **({} if engines is None else {"engines": engines}))
    (lesson,) = certificate.collect(day=DAY).lessons
    assert lesson.engines == (("engine not recorded", 1),)


def test_a_checked_answer_records_its_engines(fake_course, course_home):
    code = lessons.solution("90.1")
    keep(lessons.exercise("90.1"), code, grade("90.1", code))
    assert history("90.1").engines == ("interpreter", "simulated gfx942")


def test_the_picture_is_an_svg_that_names_all_and_says_that_nobody_watched(fake_course, course_home):
    passed("90.1", engines=["interpreter"])
    told = certificate.collect("Ada <Lovelace> & Co", DAY)
    drawn = certificate.draw(told)
    root = ElementTree.fromstring(drawn.svg)
    words = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    for part in ("Ada <Lovelace> & Co", "2026-11-22", told.headline, "90.1", "interpreter", "triton 3", "torch 2"):
        assert part in words
    assert "Self-checked" in words and "Nobody supervised" in words and "Self-checked" in str(drawn)


def test_the_pdf_has_the_words_of_the_svg_on_one_page(fake_course, course_home, tmp_path, monkeypatch):
    passed("90.1", engines=["interpreter"])
    told, drawn = certificate.collect("Ada $x$ <Лавлейс>", DAY), []
    text = Figure.text
    monkeypatch.setattr(Figure, "text", lambda self, x, y, s, **how: drawn.append(s) or text(self, x, y, s, **how))
    certificate_pdf.write(told, tmp_path / "c.pdf")
    root = ElementTree.fromstring(certificate.draw(told).svg)
    assert drawn == [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    pdf = (tmp_path / "c.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-") and b"/Count 1" in pdf and f"{told.headline}, self-checked".encode() in pdf


def test_a_name_that_the_font_cannot_write_is_refused(fake_course, course_home, tmp_path):
    with pytest.raises(ValueError, match="'李'.*SVG"):
        certificate_pdf.write(certificate.collect("Ada 李", DAY), tmp_path / "c.pdf")
    assert not (tmp_path / "c.pdf").exists()
