"""Where the field guide says more about a diagnosis (`authoring.build.field_guide` writes the page)."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "field_guide.md"


def entry(code: str) -> str:
    """The entry as a reader finds it from the course's folder."""
    return f"{PAGE.relative_to(ROOT)}#{code}"


def link(code: str) -> str:
    """The code as HTML, linked from the notebook's folder to its entry, where the course is here with its pages."""
    if not PAGE.exists():
        return escape(code)
    return f'<a href="{escape(_from_here())}#{escape(code)}">{escape(code)}</a>'


def _from_here() -> str:
    """The page's path; beside a learner's copies, wherever they are, stands a link to its folder."""
    beside = Path("..") / PAGE.relative_to(ROOT)
    return (beside if beside.exists() else Path(os.path.relpath(PAGE))).as_posix()
