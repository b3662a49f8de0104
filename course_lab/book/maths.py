r"""LaTeX in Markdown as MathML, which browsers show without a script: `$...$` in a line, `$$...$$` apart.

Code is left alone: a dollar in backticks or in a fence is a dollar.
"""

from __future__ import annotations

import re
from html import escape

_CODE = r"(?P<code>```.*?```|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
_APART = r"\$\$(?P<apart>.+?)\$\$"
_IN_LINE = r"(?<![\\$\w])\$(?=\S)(?P<line>(?:[^$\n]|\n(?!\n))+?)(?<=\S)\$(?![\w$])"
_PIECE = re.compile(f"{_CODE}|{_APART}|{_IN_LINE}", re.DOTALL)


def with_mathml(markdown: str) -> str:
    """The Markdown with each formula in place of its LaTeX, as HTML that Markdown passes through.

    Raises:
        ValueError: a formula that cannot be read; the message has it.
    """
    return _PIECE.sub(_formula, markdown)


def _formula(found: re.Match) -> str:
    if found["code"]:
        return found["code"]
    apart = found["apart"] is not None
    latex = " ".join((found["apart"] if apart else found["line"]).replace(r"\|", "|").split())
    html = _mathml(latex, "block" if apart else "inline")
    return f'\n<div class="formula">{html}</div>\n' if apart else html


def _mathml(latex: str, display: str) -> str:
    from latex2mathml.converter import convert

    try:
        html = convert(latex, display=display)
    except Exception as error:  # of any kind: the library has no class of its own for all of them
        raise ValueError(f"the formula {latex!r} cannot be read: {type(error).__name__}") from error
    label = escape(latex, quote=True)
    return html.replace("<math ", f'<math aria-label="{label}" ', 1).replace("\n", " ").replace("|", "&#124;")
