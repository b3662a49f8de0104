"""Bring stored outputs into one form, carry them over a rebuild, and find what must not be stored."""

from __future__ import annotations

import re
import sys
from copy import deepcopy
from pathlib import Path

from nbformat import NotebookNode

MAY_RAISE = "raises-exception"
_PROGRESS_BAR = re.compile(r"\d+%\s*\||\d+it \[\d\d:|\bit/s\b|\bs/it\b")
_WIDGET = "application/vnd.jupyter.widget-view+json"


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def normalise(notebook: NotebookNode) -> None:
    """Give equal runs equal bytes: counts from 1, no timing, no progress bars, streams merged, short tracebacks."""
    for count, cell in enumerate(code_cells(notebook), start=1):
        whole = _merge_streams(cell.outputs)  # a progress bar comes in many pieces
        cell.outputs = _merge_streams([output for output in map(_normal, whole) if output])
        cell.execution_count = count
        cell.metadata.pop("execution", None)
        if not cell.outputs and cell.metadata.pop("collapsed", None):  # nothing to unfold
            cell.metadata.pop("jupyter", None)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count


def _normal(output: NotebookNode) -> NotebookNode | None:
    """Return the output in its one form, None when it is only a progress bar or a widget without a static form."""
    if output.output_type == "stream":
        output.text = _as_a_terminal_shows(output.text)
        if output.name == "stderr":
            lines = output.text.splitlines(keepends=True)
            output.text = "".join(line for line in lines if not _PROGRESS_BAR.search(line))
        return output if output.text else None
    if output.output_type == "error":
        output.traceback = [f"{output.ename}: {output.evalue}"]  # the rest holds paths, and nothing compares it
        return output
    widget = output.data.pop(_WIDGET, None)  # stored, it would show nothing but an error
    return output if widget is None or "text/html" in output.data else None


def _as_a_terminal_shows(text: str) -> str:
    return re.sub(r"^.*\r(?=[^\n])", "", text.replace("\r\n", "\n"), flags=re.MULTILINE)


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    merged: list[NotebookNode] = []
    for output in outputs:
        if merged and output.output_type == "stream" and merged[-1].get("name") == output.name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def carry_over(stored: NotebookNode, fresh: NotebookNode) -> bool:
    """Give `fresh` the outputs of `stored`; False when they don't belong to it and it must be executed.

    They belong when the code cells are the same, each was executed and none ended in an exception that its tags don't
    announce. Text may change freely.
    """
    old, new = code_cells(stored), code_cells(fresh)
    if [cell.source for cell in old] != [cell.source for cell in new]:
        return False
    if any(cell.execution_count is None for cell in old) or failed_cell(stored):
        return False
    for from_cell, to_cell in zip(old, new):
        to_cell.outputs = deepcopy(from_cell.outputs)
    normalise(fresh)
    return True


def failed_cell(notebook: NotebookNode) -> tuple[NotebookNode, NotebookNode] | None:
    """Return the first code cell whose unannounced exception is stored, with that output."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and MAY_RAISE not in cell.metadata.get("tags", ()):
                return cell, output
    return None


def paths_of_this_machine(notebook: NotebookNode, root: Path) -> list[tuple[NotebookNode, str]]:
    """Return the cells whose outputs show a path that exists only here, each with the path."""
    private = [str(root), sys.prefix, f"{Path.home()}/", "/ipykernel_"]
    return [
        (cell, next(path for path in private if path in text))
        for cell in code_cells(notebook)
        if any(path in (text := _visible_text(cell)) for path in private)
    ]


def _visible_text(cell: NotebookNode) -> str:
    texts = []
    for output in cell.outputs:
        texts += [output.get("text", ""), output.get("evalue", ""), *output.get("data", {}).values()]
    return "\n".join(text for text in texts if isinstance(text, str))
