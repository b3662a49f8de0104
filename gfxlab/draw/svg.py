"""A few SVG primitives with one look: readable on light and on dark, no script, no external file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from gfxlab import style

WIDTH = 720
FONT = 12
_CSS = (
    style.theme(".course-svg")
    + ".course-svg{background:var(--c-bg);font-family:system-ui,sans-serif;font-size:12px;max-width:100%;height:auto}"
    ".course-svg text{fill:var(--c-fg)}.course-svg .q{fill:var(--c-muted)}.course-svg .b{font-weight:600}"
    ".course-svg .s{font-size:10px}.course-svg .e{text-anchor:end}.course-svg .c{text-anchor:middle}"
    ".course-svg .l{stroke:var(--c-line);fill:none}.course-svg .a{stroke:var(--c-muted);fill:none}"
    ".course-svg .o{stroke:var(--c-fg);fill:none;stroke-width:1.5}"
)


@dataclass(frozen=True)
class Picture:
    """A picture and the same facts as text; a notebook shows the picture, print() the text."""

    svg: str
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # inline, so that tooltips work and the notebook's theme decides the colours; as an image neither would
        return self.svg


def colour(index: int) -> str:
    """The index-th colour of the palette, again from the start when it is used up."""
    return style.PALETTE[index % len(style.PALETTE)]


def text_width(text: str, size: float = FONT) -> float:
    """About how wide `text` is, in pixels: without a browser nobody can know."""
    return sum(0.3 if c in "il.,:;'|! " else 0.85 if c in "mwMW%@" else 0.58 for c in text) * size


def number(value: float) -> str:
    """A coordinate without needless digits."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


@dataclass
class Canvas:
    """Collects shapes; the height grows with what is drawn."""

    width: float = WIDTH
    height: float = 0
    parts: list[str] = field(default_factory=list)
    hatched: bool = False

    def grow(self, bottom: float) -> None:
        self.height = max(self.height, bottom)

    def text(self, x: float, y: float, text: str, kind: str = "", size: float = 0) -> None:
        """Text with its baseline at y. kind: of the letters q quiet, b bold, s small, e ends at x, c centred.

        size: in pixels, where it is not that of its kind.
        """
        kind = f' class="{" ".join(kind)}"' if kind else ""
        kind += f' style="font-size:{number(size)}px"' if size else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"{kind}>{escape(text)}</text>')
        self.grow(y + 4)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, title: str = "", opacity: float = 0.3
    ) -> None:
        """A tinted rectangle with a rim, and a tooltip."""
        self._rect(x, y, width, height, f'fill="{fill}" fill-opacity="{opacity:g}" stroke="{fill}"', title)

    def outline(self, x: float, y: float, width: float, height: float, kind: str = "l", title: str = "") -> None:
        """A rectangle that is only a rim. kind: l light, a darker, o strong."""
        self._rect(x, y, width, height, f'class="{kind}"', title)

    def hatch(self, x: float, y: float, width: float, height: float, title: str = "") -> None:
        """A hatched rectangle with a dashed rim: masked off."""
        self.hatched = True
        self._rect(
            x, y, width, height, f'fill="url(#course-hatch)" stroke="{style.QUIET}" stroke-dasharray="3 2"', title
        )

    def circle(self, x: float, y: float, radius: float, kind: str = "l") -> None:
        """A circle that is only a rim."""
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{kind}"/>')
        self.grow(y + radius + 1)

    def dot(self, x: float, y: float, colour: str, filled: bool, title: str = "", radius: float = 5) -> None:
        """A point of a plot; hollow when it is not measured."""
        paint = f'fill="{colour}"' if filled else 'style="fill:var(--c-bg)"'
        where = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
        tip = f"<title>{escape(title)}</title>"
        self.parts.append(f'<circle {where} {paint} stroke="{colour}" stroke-width="2">{tip}</circle>')
        self.grow(y + 6)

    def legend_line(self, y: float, words: str) -> None:
        """A dashed line and what it means."""
        self.line(10, y + 3, 34, y + 3, "a", 'stroke-dasharray="5 4"')
        self.text(40, y + 7, words, "sq")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "l", extra: str = "") -> None:
        where = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self.parts.append(f'<line {where} class="{kind}"{" " + extra if extra else ""}/>')
        self.grow(max(y1, y2) + 1)

    def path(self, d: str, kind: str = "l", extra: str = "", title: str = "") -> None:
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f'<path d="{d}" class="{kind}"{" " + extra if extra else ""}>{tip}</path>')

    def _rect(self, x: float, y: float, width: float, height: float, paint: str, title: str) -> None:
        where = f'x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.5))}" height="{number(height)}"'
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f"<rect {where} {paint}>{tip}</rect>" if tip else f"<rect {where} {paint}/>")
        self.grow(y + height + 1)

    def region(
        self,
        boxes: Iterable[tuple[float, float, float, float]],
        fill: str,
        title: str,
        opacity: float,
        rims: bool = False,
    ) -> None:
        """Many rectangles (x, y, width, height) as one shape with one tooltip."""
        boxes = list(boxes)
        d = "".join(f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z" for x, y, w, h in boxes)
        rim = ' class="l"' if rims else ""
        paint = f'style="fill:{fill};fill-opacity:{opacity:g}"'  # not an attribute: the class would win
        self.parts.append(f'<path d="{d}" {paint}{rim}><title>{escape(title)}</title></path>')
        self.grow(max((y + h for _, y, _, h in boxes), default=0) + 1)

    def legend(self, y: float, entries: list[tuple[str, str]] | list[tuple[str, str, float]]) -> float:
        """A line of small swatches. Gives the y below it.

        Each entry is (colour, words) or (colour, words, opacity); "hatch" and "rim" are swatches too, "" is none.
        """
        x = 10.0
        for fill, words, *opacity in entries:
            needed = 18 + text_width(words) + 14
            if x > 10 and x + needed > self.width:
                x, y = 10.0, y + 17
            if fill == "hatch":
                self.hatch(x, y, 12, 10)
            elif fill == "rim":
                self.outline(x, y, 12, 10, "a")
            elif fill:
                self.box(x, y, 12, 10, fill, "", *opacity)
            self.text(x + 18, y + 9, words, "q")
            x += needed
        return y + 18

    def picture(self, title: str, text: str) -> Picture:
        """The finished picture. `title` is for screen readers."""
        defs = ""
        if self.hatched:
            defs = (
                '<defs><pattern id="course-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
                'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" '
                f'stroke="{style.QUIET}" stroke-width="2"/></pattern></defs>'
            )
        width, height = number(self.width), number(self.height + 8)
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="course-svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">'
            f"<style>{_CSS}</style>{defs}{''.join(self.parts)}</svg>"
        )
        return Picture(svg, text)
