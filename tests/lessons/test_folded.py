"""What JupyterLab shows of a folded output: the first line of the first one, so that line must not be markup."""

from __future__ import annotations

import nbformat
import pytest

from course_lab.authoring import lessons

LESSONS = [lesson for lesson in lessons.all() if lesson.core]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_folded_output_begins_with_text(lesson):
    for cell in nbformat.read(lesson.notebook("notebooks"), as_version=4).cells:
        if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
            assert cell.outputs, f"nothing is folded here, and three dots say so:\n{cell.source}"
            first = cell.outputs[0]
            pictures = {"text/html", "image/svg+xml"} & set(first.get("data", ()))
            assert not pictures, (
                f"folded, this cell shows the source of its picture; let it print a line first:\n{cell.source}"
            )
