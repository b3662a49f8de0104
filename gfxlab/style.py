"""Colours and small HTML pieces that the cards and pictures of the course share.

Everything is static and carries its own style.  In JupyterLab the theme's `--jp-*` variables decide about light and
dark; elsewhere (exported HTML, a code host) the reader's system does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

# Okabe and Ito's eight colours, told apart with every common colour blindness; all have contrast on white and on black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
GOOD, BAD, QUIET = "#009E73", "#D55E00", "#8a8f98"

_LIGHT = {"fg": "#1f2328", "muted": "#57606a", "bg": "#ffffff", "line": "#d0d7de", "soft": "#f3f5f7"}
_DARK = {"fg": "#e6e8eb", "muted": "#a3aab3", "bg": "#111418", "line": "#3a4048", "soft": "#1c2127"}
_JUPYTER = {
    "fg": "--jp-content-font-color1",
    "muted": "--jp-content-font-color2",
    "bg": "--jp-layout-color0",
    "line": "--jp-border-color2",
    "soft": "--jp-layout-color2",
}


def theme(selector: str) -> str:
    """CSS that defines --c-fg, --c-muted, --c-bg, --c-line and --c-soft for `selector`."""

    def variables(fallback: Mapping[str, str]) -> str:
        return ";".join(f"--c-{name}:var({_JUPYTER[name]},{colour})" for name, colour in fallback.items())

    return f"{selector}{{{variables(_LIGHT)}}}@media(prefers-color-scheme:dark){{{selector}{{{variables(_DARK)}}}}}"


_CARD = """.course-card{color:var(--c-fg);background:var(--c-bg);border:1px solid var(--c-line);border-radius:6px;
padding:.6em .9em;margin:.3em 0;width:fit-content;min-width:min(60em,100%);max-width:min(72em,100%);
box-sizing:border-box;overflow-x:auto;font-family:system-ui,sans-serif;font-size:13px;line-height:1.45}
.course-card h4{margin:0 0 .4em;font-size:14px}
.course-card table{border-collapse:collapse;margin:0;font-size:13px;width:auto;color:inherit;table-layout:auto}
.course-card tr,.course-card tr:nth-child(even){background:none}
.course-card th,.course-card td{text-align:left;vertical-align:top;padding:.12em 1.1em .12em 0;border:0;color:inherit}
.course-card th{font-weight:500;color:var(--c-muted);white-space:nowrap}
.course-card td.n,.course-card th.n{text-align:right}
.course-card code,.course-card .m{font-family:ui-monospace,Consolas,monospace;font-size:12px}
.course-card code{background:none;color:inherit}
.course-card .q{color:var(--c-muted)}
.course-card tr.on{background:var(--c-soft);font-weight:600}
.course-card p{margin:.45em 0 0}
"""


def card(title: str, body: str, extra_css: str = "") -> str:
    """An HTML card around `body`, which is HTML already; `title` is text."""
    # thrice the class, since JupyterLab's rule for all tables, which aligns every cell right, has the weight of two
    rules = (_CARD.replace("\n", "") + extra_css).replace(".course-card ", 3 * ".course-card" + " ")
    style = theme(".course-card") + rules
    return f'<div class="course-card"><style>{style}</style><h4>{escape(title)}</h4>{body}</div>'


def warnings(notes: Iterable[str]) -> str:
    """Sentences of text, each behind a mark that catches the eye."""
    return "".join(f'<p><b style="color:{BAD}">&#9650;</b> {escape(note)}</p>' for note in notes)
