"""RoPE as geometry: pairs and angles from what a kernel made of the unit vectors, and kernels that turn wrongly."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
import torch

from course_kernels import rope, rope_tables
from gfxlab import draw

SVG = "{http://www.w3.org/2000/svg}"
ANGLES = torch.arange(4)[:, None] * 10000.0 ** (-torch.arange(0, 16, 2) / 16)


def turned(style="neox", dim=16, rotary_dim=16, **options):
    """What the kernel makes of the unit vectors at positions 0 to 3."""
    heads = torch.eye(dim).expand(4, 1, dim, dim).contiguous()
    return rope(heads, *rope_tables(4, rotary_dim), style=style, rotary_dim=rotary_dim, **options)[:, 0]


@pytest.mark.parametrize(
    ("style", "rule", "partner"),
    [("neox", "pair i is elements i and i + 8", 9), ("gptj", "pair i is elements 2i and 2i + 1", 3)],
)
def test_the_kernels_pairs_are_found_and_named(style, rule, partner):
    picture = draw.rope_pairs(turned(style)[1], angles=ANGLES[1])
    assert picture.text.splitlines()[0] == f"16 elements of a head, {style}: {rule}"
    first = 1 if style == "neox" else 2
    assert f"  pair 1: elements {first} and {partner}, turned by 18.1°" in picture.text
    assert "!" not in picture.text and "#D55E00" not in picture.svg
    assert picture.svg.count("Q") == 8  # an arc for each pair


def test_a_circle_shows_the_angle():
    """The turned vector ends at (cos, sin) of one radian on a circle of radius 42, y upwards."""
    root = ElementTree.fromstring(draw.rope_pairs(turned()[1]).svg)
    rim = next(circle for circle in root.iter(f"{SVG}circle") if circle.get("r") == "42")
    dot = next(circle for circle in root.iter(f"{SVG}circle") if circle.get("r") == "3.5")
    dx, dy = (float(dot.get(c)) - float(rim.get(c)) for c in ("cx", "cy"))
    assert (dx, dy) == pytest.approx((42 * math.cos(1), -42 * math.sin(1)), abs=0.2)


def test_positions_are_frames():
    frames = draw.rope_pairs(turned(), positions=[0, 1, 2, 3], angles=ANGLES)
    assert len(frames) == 4 and "neox" in frames.title
    assert "position 3" in frames[3].text and "elements 0 and 8, turned by 172°" in frames[3].text
    assert "elements 0 and 8, turned by 0°" in frames[0].text  # known as a pair from the other positions


def test_elements_that_do_not_turn_are_left_as_they_are():
    text = draw.rope_pairs(turned(dim=24, nope_first=True)[2]).text
    assert "neox: pair i is elements i and i + 8 from element 8 on" in text
    assert "left as they are: 8 elements from 0 to 7" in text and "!" not in text


def test_bfloat16_is_near_enough():
    assert "!" not in draw.rope_pairs(turned().bfloat16()[3], angles=ANGLES[3]).text


def test_the_sign_of_one_sine_shows():
    wrong = turned()[1]
    wrong[0, 8] *= -1
    picture = draw.rope_pairs(wrong)
    assert "! elements 0 and 8 are not turned: [0.54, -0.841, -0.841, 0.54] is no rotation" in picture.text
    assert "#D55E00" in picture.svg


def test_the_wrong_angle_shows():
    picture = draw.rope_pairs(turned()[1], angles=ANGLES[2])
    assert "! elements 0 and 8, turned by 57.3°, should be 115°" in picture.text
    assert "hollow dot: where it should be" in picture.svg


def test_a_whole_turn_is_no_turn():
    assert "!" not in draw.rope_pairs(turned()[1], angles=ANGLES[1] + 2 * math.pi).text


def test_the_tables_of_the_other_style_show():
    """Even and odd elements taken as the halves: pairs of one style with the order of the other."""
    shuffled = torch.cat([torch.arange(0, 16, 2), torch.arange(1, 16, 2)])
    assert "neither neox nor gptj" in draw.rope_pairs(turned()[1][shuffled][:, shuffled]).text


def test_elements_that_are_mixed_or_scaled_are_named():
    wrong = turned()[1]
    wrong[0, 3] = 0.5
    assert "! 4 elements are mixed: 0, 3, 8, 11" in draw.rope_pairs(wrong).text
    assert "! element 2 is scaled, not turned" in draw.rope_pairs(torch.diag(torch.tensor([1.0, 1.0, 2.0]))).text


def test_bad_questions_are_answered_in_a_sentence():
    with pytest.raises(ValueError, match=r"must be \(D, D\) or \(positions, D, D\).*got \(16, 8\)"):
        draw.rope_pairs(torch.ones(16, 8))
    with pytest.raises(ValueError, match="4 positions are turned, but positions has 3"):
        draw.rope_pairs(turned(), positions=range(3))
    with pytest.raises(ValueError, match=r"8 pairs turn at 4 positions, but angles has the shape \(8, 4\)"):
        draw.rope_pairs(turned(), angles=ANGLES.T)
