"""The certificate as a PDF of one page, drawn by Matplotlib in the font that comes with it: nothing of the system's.

It is not converted from the SVG, but drawn by the same lines of code (`certificate.draw_on`).
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import Affine2D

from course_lab.certificate import WIDTH, Certificate, draw_on
from gfxlab.draw.svg import FONT

_FONT = FontProperties(family="DejaVu Sans")
_SHARE = 0.86  # of a pixel of the picture: DejaVu is wider than the fonts that browsers take
_INK, _QUIET, _RULE = "#1f2328", "#57606a", "#d0d7de"
_UNITS = 72  # of Matplotlib's points, in an inch: one for each pixel of the picture


class _Page:
    """A pen that writes on a figure; y grows downwards, as on the canvas of the SVG."""

    def __init__(self) -> None:
        self.figure, self.height, self._made = Figure(), 0.0, []

    def text(self, x: float, y: float, text: str, kind: str = "", size: float = 0) -> None:
        look = {"color": _QUIET if "q" in kind else _INK, "fontweight": "bold" if "b" in kind else "normal"}
        look |= {"fontsize": _SHARE * (size or FONT), "ha": "right" if "e" in kind else "left", "va": "baseline"}
        # parse_math: a name with two $ is a name
        made = self.figure.text(x, y, text, parse_math=False, fontfamily=_FONT.get_family(), **look)
        self._made.append(made)

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._made.append(self.figure.add_artist(Line2D((x1, x2), (y1, y2), color=_RULE, linewidth=1)))

    def outline(self, x: float, y: float, width: float, height: float, kind: str = "l") -> None:
        rim = Rectangle((x, y), width, height, fill=False, edgecolor=_QUIET, linewidth=1)
        self._made.append(self.figure.add_artist(rim))
        self.height = y + height + 12

    def save(self, path: Path, title: str) -> None:
        """Write the page, as large as what stands on it, with text that can be selected."""
        self.figure.set_size_inches(WIDTH / _UNITS, self.height / _UNITS)
        inches = Affine2D().scale(1 / _UNITS, -1 / _UNITS).translate(0, self.height / _UNITS)
        for artist in self._made:
            artist.set_transform(inches + self.figure.dpi_scale_trans)
        with rc_context({"pdf.fonttype": 42}):  # outlines that text can be read from
            self.figure.savefig(path, format="pdf", metadata={"Title": title, "Creator": "course certificate"})


def lacking(text: str) -> str:
    """The characters of `text` that the font has no picture of."""
    known = get_font(findfont(_FONT)).get_charmap()
    return "".join(sorted({letter for letter in text if ord(letter) not in known}))


def write(told: Certificate, path: Path) -> None:
    """Write the certificate to `path`.

    Raises:
        ValueError: the name has characters that the font lacks.
    """
    if letters := lacking(told.name):
        raise ValueError(f"the PDF's font has no {letters!r}: write an SVG, which a browser prints with its own fonts")
    page = _Page()
    draw_on(page, told)
    page.save(path, f"Certificate: {told.headline}, self-checked")
