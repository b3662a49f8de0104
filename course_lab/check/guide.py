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
    return f'<a href="{escape(Path(os.path.relpath(PAGE)).as_posix())}#{escape(code)}">{escape(code)}</a>'
