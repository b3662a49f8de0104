"""Functions over a common axis."""

from __future__ import annotations

import re

import pytest
import torch

from gfxlab import draw


def _points(picture: draw.Picture, name: str) -> list[tuple[float, float]]:
    path = re.search(rf'<path d="M([^"]*)"[^>]*><title>{name}</title>', picture.svg).group(1)
    return [tuple(map(float, pair.split())) for pair in path.split("L")]


def test_a_curve_goes_where_the_function_goes():
    picture = draw.curves({"line": lambda x: x, "valley": lambda x: x * x}, -2, 2)
    line, valley = _points(picture, "line"), _points(picture, "valley")
    assert len(line) == len(valley) > 200
    rises = [after[1] - before[1] for before, after in zip(line, line[1:])]
    assert all(step < 0 for step in rises)  # upwards is smaller
    lowest = max(valley, key=lambda point: point[1])
    assert lowest[0] == pytest.approx((valley[0][0] + valley[-1][0]) / 2, abs=15)  # flat there
    assert valley[0][1] == valley[-1][1] < lowest[1]


def test_both_axes_name_whole_numbers_and_zero_is_among_them():
    picture = draw.curves({"cube": lambda x: x**3}, -3, 3)
    labels = set(re.findall(r">(-?\d+)</text>", picture.svg))
    assert {"-3", "-2", "-1", "0", "1", "2", "3"} <= labels  # across
    assert {"-27", "27"} & labels == set() and {"-24", "-6", "0", "6", "24"} <= labels  # up: in steps of 6


def test_the_text_has_points_of_each_function():
    text = str(draw.curves({"double": lambda x: 2 * x}, 0, 4))
    assert text.splitlines()[1].split() == ["at", "0", "1", "2", "3", "4"]
    assert text.splitlines()[2].split() == ["double", "0.000", "2.000", "4.000", "6.000", "8.000"]


@pytest.mark.parametrize(
    "functions, low, high, words",
    [
        ({}, 0, 1, "needs functions"),
        ({"x": torch.relu}, 1, 1, "low < high"),
        ({"log": torch.log}, 0, 1, "log is not finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(functions, low, high, words):
    with pytest.raises(ValueError, match=words):
        draw.curves(functions, low, high)
