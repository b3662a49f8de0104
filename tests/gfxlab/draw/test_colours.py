"""The colours of cards and pictures: told apart with every common colour blindness, text readable on both themes."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from gfxlab import style

# What linear RGB becomes for somebody who lacks one kind of cone: Machado, Oliveira and Fernandes, "A
# Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), table 1, severity 1.0.
SEEN = {
    "everybody": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # IEC 61966-2-1
WHITE = TO_XYZ.sum(1)
APART = 10.0  # in CIE L*a*b*; about four of the smallest differences that one sees side by side (2.3)
READABLE = 4.5  # contrast of text: WCAG 2.2, level AA


def linear(colour: str) -> np.ndarray:
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(colour: str, eye: str) -> np.ndarray:
    x, y, z = np.cbrt(TO_XYZ @ np.clip(SEEN[eye] @ linear(colour), 0, 1) / WHITE + 1e-9)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((0.05 + TO_XYZ[1] @ linear(colour) for colour in (one, other)), reverse=True)
    return light / dark


@pytest.mark.parametrize("eye", SEEN)
def test_no_two_colours_look_alike(eye):
    for one, other in combinations(style.PALETTE, 2):
        assert np.linalg.norm(lab(one, eye) - lab(other, eye)) >= APART, (one, other)


def test_colours_that_differ_for_everybody_may_look_alike_to_some():
    """Red and green of a traffic light, which the palette avoids: the measure above can fail."""
    apart = {eye: np.linalg.norm(lab("#c04000", eye) - lab("#5d8000", eye)) for eye in SEEN}
    assert apart["everybody"] > 5 * APART > 5 * apart["deuteranopia"], apart


@pytest.mark.parametrize("ground", ["bg", "soft"])
@pytest.mark.parametrize("text", ["fg", "muted"])
def test_text_is_readable_in_both_themes(text, ground):
    themes = re.findall(rf"--c-{text}:var\([\w-]+,(#\w+)\).*?--c-{ground}:var\([\w-]+,(#\w+)\)", style.theme(".x"))
    assert len(themes) == 2 and all(contrast(*colours) >= READABLE for colours in themes), themes
