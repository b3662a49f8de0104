"""A query and a key as arrows: equal distances give equal angles and scores, wherever the tokens stand."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
import torch

from gfxlab import draw

SVG = "{http://www.w3.org/2000/svg}"
PLACES = [(3, 0), (10, 7), (17, 16)]


def turned(arrow, places, theta=0.3):
    angle = math.atan2(arrow[1], arrow[0]) + theta * torch.tensor(places, dtype=torch.float64)
    return math.hypot(*arrow) * torch.stack([angle.cos(), angle.sin()], dim=1)


def picture(key=(0.5, 0.0)):
    queries, keys = [q for q, _ in PLACES], [k for _, k in PLACES]
    return draw.relative_turns(turned((1.0, 0.0), queries), turned(key, keys), PLACES)


def test_angles_and_scores_are_those_of_the_arrows():
    lines = picture().text.splitlines()[1:]
    assert lines[0] == f"  query at 3, key at 0: angle between 52°, score {0.5 * math.cos(0.9):.2f}"
    assert lines[1].partition(": ")[2] == lines[0].partition(": ")[2]
    assert lines[2] == f"  query at 17, key at 16: angle between 17°, score {0.5 * math.cos(0.3):.2f}"


def test_the_angle_between_is_the_short_one():
    """3 radians and 3.3, one on each side of the half turn."""
    text = draw.relative_turns(turned((1.0, 0.0), [10]), turned((1.0, 0.0), [11]), [(10, 11)]).text
    assert "angle between 17°" in text


def test_arrows_end_where_the_vectors_do():
    """The longest reaches the rim, y points upwards, and a shorter key is shorter in the picture."""
    root = ElementTree.fromstring(picture().svg)
    rims = [c for c in root.iter(f"{SVG}circle") if c.get("r") == "72"]
    key, query = [c for c in root.iter(f"{SVG}circle") if c.get("r") == "3.5"][:2]
    dx, dy = (float(query.get(c)) - float(rims[0].get(c)) for c in ("cx", "cy"))
    assert (dx, dy) == pytest.approx((72 * math.cos(0.9), -72 * math.sin(0.9)), abs=0.2)
    assert float(key.get("cx")) - float(rims[0].get("cx")) == pytest.approx(36, abs=0.2)


@pytest.mark.parametrize(("key", "sweep"), [((0.5, 0.0), "0"), ((-0.5, 0.5), "1")])
def test_the_wedge_takes_the_short_way(key, sweep):
    """From a key behind the query clockwise, else counter-clockwise; never more than half a turn."""
    first = re.search(r"A[\d.]+ [\d.]+ 0 (\d) (\d) ", picture(key).svg)
    assert first.groups() == ("0", sweep)


def test_it_is_well_formed_and_has_both_themes():
    svg = picture().svg
    ElementTree.fromstring(svg)
    assert "prefers-color-scheme:dark" in svg and len(svg) < 10_000 and picture().svg == svg


def test_bad_questions_are_answered_in_a_sentence():
    with pytest.raises(ValueError, match=r"must both be \(3, 2\).*got \(2, 2\) and \(2, 2\)"):
        draw.relative_turns(torch.ones(2, 2), torch.ones(2, 2), PLACES)
    with pytest.raises(ValueError, match="an arrow for each"):
        draw.relative_turns(torch.ones(3, 4), torch.ones(3, 4), PLACES)
