"""Tokens in memory: the order of each layout, padding, and where packed sequences begin."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from gfxlab import draw

SVG = "{http://www.w3.org/2000/svg}"


def test_the_order_is_that_of_real_tensors():
    """Tokens numbered 10 * sequence + position, laid out by PyTorch."""
    lengths, numbered = [3, 3], torch.arange(3) + 10 * torch.arange(2)[:, None]
    lines = draw.token_layouts(lengths).text.splitlines()
    memory = [[int(cell.replace(".", "")) for cell in line.split()] for line in lines[1::2]]
    assert memory == [numbered.flatten().tolist(), numbered.T.flatten().tolist(), numbered.flatten().tolist()]


def test_padding_is_hatched_and_packing_has_none():
    picture = draw.token_layouts([2, 1])
    text = picture.text.splitlines()
    assert text[1] == "  0.0 0.1 1.0 -" and text[3] == "  0.0 1.0 0.1 -" and text[5] == "  0.0 0.1 1.0"
    assert text[4] == "thd: (T, heads, D), T = 3; cu_seqlens = [0, 2, 3]"
    assert picture.svg.count("<title>padding of sequence 1</title>") == 2


def test_starts_are_marked_where_sequences_begin():
    root = ElementTree.fromstring(draw.token_layouts([4, 0, 2], ["thd"]).svg)
    marks = [float(line.get("x1")) for line in root.iter(f"{SVG}line") if line.get("class") == "o"]
    assert marks == [16, 16 + 4 * 44, 16 + 6 * 44]  # the empty sequence begins where the next one does


def test_it_fits_and_has_both_themes():
    svg = draw.token_layouts([16, 3, 9]).svg
    root = ElementTree.fromstring(svg)
    assert max(float(r.get("x")) + float(r.get("width")) for r in root.iter(f"{SVG}rect")) <= float(root.get("width"))
    assert "prefers-color-scheme:dark" in svg


@pytest.mark.parametrize(
    ("lengths", "layouts", "words"),
    [
        ([], ["thd"], r"got \[\]"),
        ([0, 0], ["thd"], r"got \[0, 0\]"),
        ([3, -1], ["thd"], r"got \[3, -1\]"),
        ([3], ["bhsd"], "one of bshd, sbhd, thd; got 'bhsd'"),
        ([30, 30], ["thd"], "2 sequences of up to 30 tokens are too many to see; 48 can be"),
    ],
)
def test_bad_questions_are_answered_in_a_sentence(lengths, layouts, words):
    with pytest.raises(ValueError, match=words):
        draw.token_layouts(lengths, layouts)
