"""Where a lesson's slides begin: the cells' slide types, as JupyterLab and `jupyter nbconvert --to slides` know them.

A section begins a slide, its further cells lie below it. What answers a prediction comes with a click.
"""

from __future__ import annotations

import re

from nbformat import NotebookNode

_SECTION = re.compile(r"#{1,3} ")


def tag(nodes: list[NotebookNode], predict: str) -> None:
    """Give each cell its slide type; predict: the words in a Markdown cell that ask before the next cells answer."""
    asked = False
    for node in nodes:
        if node.cell_type == "markdown":
            asked, kind = predict in node.source, "slide" if _SECTION.match(node.source) else "subslide"
        else:
            kind = "fragment" if asked else "subslide"
        node.metadata.slideshow = {"slide_type": kind}
