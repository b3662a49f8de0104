"""Which exercise a magic without a number means: that of the answer cell above, else the one that was checked last."""

from __future__ import annotations

import json
import os
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from course_lab.authoring import source

last = ""  # the number of the exercise that this kernel checked last


def number(shell: InteractiveShell) -> str:
    """Return the exercise's number; "" where nothing says it."""
    return _in_the_file(shell) or last


def _in_the_file(shell: InteractiveShell) -> str:
    """Look for the running cell in the notebook as it was saved; JupyterLab says which cell and which file it is."""
    kernel = getattr(shell, "kernel", None)
    cell_id = kernel.get_parent("shell").get("metadata", {}).get("cellId") if kernel else None
    path = Path(os.environ.get("JPY_SESSION_NAME", ""))
    if not cell_id or path.suffix != ".ipynb":
        return ""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return ""
    seen = ""
    for cell in cells:
        if cell.get("id") == cell_id:
            return seen
        seen = source.without_magic("".join(cell.get("source", "")))[0] or seen
    return ""
