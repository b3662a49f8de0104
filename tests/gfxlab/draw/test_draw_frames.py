"""Frames: a strip in the page, a slider where there is a kernel, and the strip in what is exported."""

from __future__ import annotations

import sys

import pytest

from gfxlab.draw import Frames, frames
from gfxlab.draw.svg import Canvas


def picture(words):
    canvas = Canvas()
    canvas.text(10, 20, words)
    return canvas.picture(words, f"  {words}")


@pytest.fixture
def three():
    return Frames("a < b", tuple(picture(f"frame {i}") for i in range(3)), ("something is wrong",))


def test_a_single_frame_has_neither_steps_nor_buttons(three):
    html = three[:1]._repr_html_()
    assert html.count("<svg") == 1 and "step 1" not in html and 'class="course-strip"' not in html


def test_the_strip_shows_every_frame_with_its_step(three):
    html = three._repr_html_()
    assert html.count('class="frame"') == html.count("<svg") == 3
    assert [f"step {i} of 3" in html for i in (1, 2, 3)] == [True] * 3
    assert "a &lt; b" in html and "something is wrong" in html and "Scroll sideways" in html


def test_as_text_and_in_parts(three):
    assert str(three).splitlines() == ["a < b", "  ! something is wrong", "  frame 0", "  frame 1", "  frame 2"]
    assert len(three) == 3 and three[1].text == "  frame 1" and len(three[1:]) == 2 and three[1:].notes == three.notes


def test_the_slider_shows_the_frame_it_stands_at(three):
    handle, page = three.slider().children
    assert handle.max == 2 and "frame 0" in page.value
    handle.value = 2
    assert "frame 2" in page.value and "frame 0" not in page.value and "something is wrong" in page.value


def test_a_page_without_a_kernel_gets_the_whole_strip(three):
    bundle = three.slider()._repr_mimebundle_()
    assert bundle["text/html"] == three._repr_html_() and bundle["text/plain"] == str(three)
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_without_ipywidgets_the_slider_is_the_strip(three, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert three.slider() is three


def test_a_long_strip_is_cut_and_says_so(three, monkeypatch):
    monkeypatch.setattr(frames, "MOST_FRAMES", 2)
    html = three._repr_html_()
    assert html.count('class="frame"') == 2 and "2 of 3 steps are shown" in html
