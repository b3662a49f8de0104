"""Read notebook files, and find the learner's answers in them."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lab.authoring import source


class NotebookError(Exception):
    """A notebook or an answer in it that can't be found or read; the message says what to do."""


def read_notebook(path: Path) -> NotebookNode | None:
    """Return the notebook at `path`, None when there is none; `NotebookError` when the file isn't a valid notebook.

    An older file without cell ids is brought to the present format on the way.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows' editors put a mark before the first byte
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise NotebookError(f"{short(path)} is a folder: name a notebook in it.") from None
    except UnicodeDecodeError as error:
        raise NotebookError(
            f"{short(path)} is not in UTF-8 (byte {error.start}), as notebooks are: save it from JupyterLab, "
            "or convert it with iconv."
        ) from None
    except OSError as error:
        raise NotebookError(f"{short(path)} cannot be read: {error.strerror or error}.") from None
    try:
        notebook = nbformat.v4.upgrade(nbformat.reads(text, as_version=4))  # Colab's cells have no ids
        nbformat.validate(notebook)
        for cell in notebook.cells:
            cell.source = cell.source.replace("\r\n", "\n")
    except Exception as error:  # whatever json, jsonschema or nbformat's conversions make of a broken file
        reason = str(error).partition("\n")[0]
        raise NotebookError(
            f"{short(path)} is not a valid notebook ({reason}), and was left as it is: "
            "repair it (an unfinished merge?), or move it away."
        ) from error
    return notebook


def short(path: Path) -> str:
    """Return folder and name of `path`, as messages show it."""
    return f"{path.parent.name}/{path.name}" if path.parent.name else str(path)


def answer_code(path: Path, number: str) -> str:
    """Return the code of the answer to exercise `number` in the notebook at `path`, without its magic line.

    `NotebookError` when the notebook or its answer cell is missing, or when there is more than one.
    """
    notebook = read_notebook(path)
    if notebook is None:
        raise NotebookError(f"{short(path)} is missing: get it back with `course sync`.")
    cells = [(i, cell) for i, cell in enumerate(notebook.cells, start=1) if cell.cell_type == "code"]
    found = [(i, cell) for i, cell in cells if source.without_magic(cell.source)[0] == number]
    if len(found) == 1:
        return source.without_magic(found[0][1].source)[1]
    magic = f"`{source.MAGIC} {number}`"
    if found:
        places = " and ".join(str(i) for i, _ in found)
        raise NotebookError(
            f"{short(path)} has {len(found)} answer cells of exercise {number} (cells {places}): "
            f"keep one of them, and take the line {magic} out of the others."
        )
    lost = [i for i, cell in cells if answer_number(cell) == number]
    if lost:
        raise NotebookError(
            f"{short(path)}: cell {lost[0]} was the answer to exercise {number}. Make {magic} its first line again."
        )
    raise NotebookError(
        f"{short(path)} has no answer cell of exercise {number}: undo its deletion in JupyterLab, "
        f"or write a new one, whose first line is {magic}."
    )


def answer_number(cell: NotebookNode) -> str | None:
    """Return the exercise that a cell answers: by its magic line, else by what the builder noted in its metadata."""
    if cell.cell_type != "code":
        return None
    number, _ = source.without_magic(cell.source)
    return number or cell.metadata.get("course", {}).get("exercise")
