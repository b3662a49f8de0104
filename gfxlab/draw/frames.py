"""Pictures that belong together, one a step: side by side in the page, or one at a time under a slider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Protocol

from gfxlab import style
from gfxlab.draw.svg import Picture

MOST_FRAMES = 120  # in one strip: more would make a notebook of megabytes
# Arrow buttons where the browser can draw them without a script (CSS Overflow 5); everywhere the arrow keys scroll.
STRIP_CSS = (
    ".course-strip::scroll-button(*){font:inherit;min-width:2.2em;margin:0 4px 4px 0;cursor:pointer;color:var(--c-fg);"
    "background:var(--c-soft);border:1px solid var(--c-line);border-radius:4px}"
    ".course-strip::scroll-button(*):disabled{opacity:.5;cursor:default}"
    ".course-strip::scroll-button(left){content:'\\25C2' / 'previous step'}"
    ".course-strip::scroll-button(right){content:'\\25B8' / 'next step'}"
    ".course-strip{display:flex;contain:inline-size;overflow-x:auto;scroll-snap-type:x mandatory}"
    ".course-strip>.frame{flex:0 0 100%;min-width:0;overflow:hidden;"
    "scroll-snap-align:start;padding-right:12px;box-sizing:border-box}"
    "@media print{.course-strip{display:block}}"
)
_CSS = (
    style.theme(".course-frames") + ".course-frames{color:var(--c-fg);background:var(--c-bg);max-width:60em;"
    "font-family:system-ui,sans-serif;font-size:13px}.course-frames p{margin:.2em 10px}"
    ".course-frames .q{color:var(--c-muted)}"
)


class Shown(Protocol):
    """What a notebook can show without a kernel."""

    def _repr_html_(self) -> str: ...


@dataclass(frozen=True)
class Frames(Sequence):
    """One picture a step. A notebook shows them as a strip that scrolls; `.slider()` shows one at a time.

    `frames[i]` is a picture, `frames[2:5]` a part of the strip, `print(frames)` the same facts as text. notes: what is
    wrong with what is shown, in sentences.
    """

    title: str
    pictures: tuple[Picture, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, place):
        if isinstance(place, slice):
            return replace(self, pictures=self.pictures[place])
        return self.pictures[place]

    def slider(self) -> Any:
        """An ipywidgets slider over the frames; where that cannot be shown, the strip."""
        return slider(len(self), self._page, self)

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  ! {note}" for note in self.notes), *(p.text for p in self.pictures)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        bodies = [self._body(place) for place in range(min(len(self), MOST_FRAMES))]
        cut = [f"{MOST_FRAMES} of {len(self)} steps are shown: [i:j] takes others."] if len(self) > MOST_FRAMES else []
        return self._card(strip(bodies, f"{self.title}: {len(self)} steps"), cut)

    def _page(self, place: int) -> str:
        return self._card(self._body(place))

    def _body(self, place: int) -> str:
        step = f', <span style="white-space:nowrap">step {place + 1} of {len(self)}</span>' if len(self) > 1 else ""
        return f"<p><b>{escape(self.title)}</b>{step}</p>{self.pictures[place].svg}"

    def _card(self, body: str, notes: Sequence[str] = ()) -> str:
        body += style.warnings([*self.notes, *notes])
        return f'<div class="course-frames"><style>{_CSS}{STRIP_CSS}</style>{body}</div>'


def strip(bodies: Iterable[str], label: str) -> str:
    """Pieces of HTML side by side in a strip that scrolls; without styles, or printed, one below the other.

    The page needs STRIP_CSS. `label` is text for screen readers.
    """
    bodies = list(bodies)
    frames = "".join(f'<div class="frame">{body}</div>' for body in bodies)
    label = escape(f"{label}, scroll sideways", quote=True)
    hint = "Scroll sideways, or click into it and press an arrow key, for the next step."
    # JupyterLab would take the arrow keys for its own, but for an element with this attribute
    keys = 'tabindex="0" data-lm-suppress-shortcuts="true"'
    if len(bodies) == 1:
        return frames
    return f'<div class="course-strip" {keys} role="region" aria-label="{label}">{frames}</div><p class="q">{hint}</p>'


def slider(count: int, page: Callable[[int], str], whole: Shown) -> Any:
    """A slider over `count` pages of HTML, or `whole` where ipywidgets is missing.

    `whole` also goes into the notebook beside the slider: exported pages, which have no kernel to ask, show that.
    """
    try:
        import ipywidgets
    except ImportError:
        return whole

    class Slider(ipywidgets.VBox):
        def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
            return {**super()._repr_mimebundle_(**options), "text/html": whole._repr_html_(), "text/plain": str(whole)}

    layout = ipywidgets.Layout(width="40em")
    handle = ipywidgets.IntSlider(min=0, max=max(0, count - 1), description="step", layout=layout)
    shown = ipywidgets.HTML()

    def show(change: Any = None) -> None:
        shown.value = page(handle.value)

    handle.observe(show, names="value")
    show()
    return Slider([handle, shown])
