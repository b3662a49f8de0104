"""Saving a lesson where git tracks it changes nothing, as long as only its cells were run.

`make lab` gives JupyterLab's server this hook (course_lab/jupyter/jupyter_server_config.py). Times, addresses and
widgets differ from run to run, so the outputs that the course stores are kept in the file; the page shows the reader's
own. In work/ everything is saved as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from course_lab.authoring.notebooks import NotebookError, read_notebook
from course_lab.work.copies import FOLDERS
from course_lab.work.refresh import roots


def keep_stored_outputs(model: dict[str, Any], path: str, contents_manager: Any, **_: Any) -> None:
    """Before a notebook is saved: put back what its file holds, unless a cell was changed, added, moved or deleted."""
    file = Path(contents_manager.root_dir, path)
    if model.get("type") != "notebook" or not _is_tracked(file):
        return
    try:
        stored = read_notebook(file)
    except NotebookError:
        return
    if stored and _cells(stored) == _cells(nbformat.from_dict(model["content"])):
        contents_manager.mark_trusted_cells(stored, path)
        model["content"] = stored


def _is_tracked(file: Path) -> bool:
    folder = file.parent
    return folder.name in FOLDERS and any(folder.parent.samefile(root) for root in roots())


def _cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]
