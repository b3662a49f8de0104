"""Where a lesson's slides begin: the cells' slide types, as JupyterLab and `jupyter nbconvert --to slides` know them.

A section begins a slide, its further cells lie below it. Code stands on the slide of the few words before it; what
answers a prediction comes with a click.
"""

from __future__ import annotations

import re

from nbformat import NotebookNode

_FEW_WORDS = 60  # leave room for a cell on their slide
_SECTION = re.compile(r"#{1,3} ")


def tag(nodes: list[NotebookNode], predict: str) -> None:
    """Give each cell its slide type; predict: the words in a Markdown cell that ask before the next cells answer."""
    asked, words = False, 0
    for node in nodes:
        if node.cell_type == "markdown":
            asked, words = predict in node.source, len(node.source.split())
            kind = "slide" if _SECTION.match(node.source) else "subslide"
        else:
            kind = "fragment" if asked else "-" if 0 < words <= _FEW_WORDS else "subslide"
            words = 0
        node.metadata.slideshow = {"slide_type": kind}
