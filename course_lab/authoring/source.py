"""Read a lesson's source: py:percent files whose answer cells hold stub and solution at once.

A source file is split into cells by jupytext. Beside the usual `tags=[...]` a cell marker takes two options of ours:

    # %% exercise="2.1"                      the answer cell of exercise 2.1 (plain Python, no magic line)
    # %% [markdown] exercise_header="2.1"    its statement; the builder puts number, title, stars and minutes above it

In an answer cell `### BEGIN SOLUTION` ... `### END SOLUTION` encloses what the learner has to write. A broken kernel to
repair has `### BEGIN BROKEN` ... `### END BROKEN` directly before it: the learner starts from those lines instead.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAGIC = "%%exercise"
SOLUTION_ONLY = "solution-only"
_OPTIONS = {"tags", "exercise", "exercise_header"}
_WRITTEN_BY_JUPYTEXT = {"lines_to_next_cell", "lines_to_end_of_cell_marker", "cell_marker", "title"}
_MARKER = re.compile(r"^(?P<indent>\s*)### (?P<edge>BEGIN|END) (?P<block>SOLUTION|BROKEN)\s*$")
_MAGIC_LINE = re.compile(rf"\s*{MAGIC}\b[ \t]*(?P<number>\S*)[^\n]*")
_ALMOST_A_MARKER = re.compile(r"^\s*#+\s*(BEGIN|END)\s+(SOLUTION|BROKEN)", re.IGNORECASE)
_PLACEHOLDER = "# your code here"


class SourceError(Exception):
    """A lesson's source that can't be read; the message names the file, the cell and the fix."""


@dataclass(frozen=True)
class Cell:
    """One cell of a source file.

    `kind` is "markdown" or "code"; `exercise` is the number whose answer the cell holds, `header` the number whose
    statement it holds; `place` names the cell in messages.
    """

    kind: str
    text: str
    place: str
    tags: tuple[str, ...] = ()
    exercise: str | None = None
    header: str | None = None


@dataclass(frozen=True)
class Answer:
    """Both faces of an answer cell, without the magic line. `repairs`: the stub shows broken code."""

    number: str
    stub: str
    solution: str
    repairs: bool


def warm() -> None:
    """Load jupytext in the background: its import takes a second, which the first check would pay."""
    timer = threading.Timer(5.0, importlib.import_module, args=["jupytext"])
    timer.daemon = True
    timer.start()


def read(path: Path) -> list[Cell]:
    """Return the cells of the py:percent file at `path`; `SourceError` when a cell marker has an unknown option."""
    import jupytext  # see warm()

    try:
        notebook = jupytext.reads(_without_preamble(path), fmt="py:percent")
    except (SyntaxError, ValueError) as error:
        raise SourceError(f"{path} can't be read as py:percent: {error}") from error
    return [_cell(cell, f"{path.parent.name}/{path.name}, cell {i}") for i, cell in enumerate(notebook.cells, start=1)]


def _without_preamble(path: Path) -> str:
    """Drop the file's own docstring and comments; code up there would be lost silently, so it is refused."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SourceError(f"{path} is missing.") from None
    first = re.search(r"^# %%", text, flags=re.MULTILINE)
    if first is None:
        raise SourceError(f"{path} has no cell: start the first one with a line `# %%`.")
    preamble = text[: first.start()]
    if any(not isinstance(node, ast.Expr) for node in ast.parse(preamble).body):
        raise SourceError(f"{path} has code before its first `# %%`: move it into a cell.")
    return text[first.start() :]


def _cell(node, place: str) -> Cell:
    options = {key: value for key, value in node.metadata.items() if key not in _WRITTEN_BY_JUPYTEXT}
    place += f" ({_first_line(node.source)})"
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise SourceError(f"{place} has the unknown option {unknown[0]!r}; known are {', '.join(sorted(_OPTIONS))}.")
    return Cell(
        kind=node.cell_type,
        text=node.source,
        place=place,
        tags=tuple(options.get("tags", ())),
        exercise=_number(options.get("exercise"), place),
        header=_number(options.get("exercise_header"), place),
    )


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return f"{line[:57]}..." if len(line) > 60 else line or "empty"


def _number(value: object, place: str) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"\d+\.(\d+|[a-z])", value)):
        return value
    raise SourceError(f'{place} names the exercise {value!r}: write it as "2.1", in quotes.')


@cache
def answers(path: Path) -> dict[str, Answer]:
    """Return the answers of the `exercises.py` or `lesson.py` at `path` by exercise number, in the file's order."""
    found: dict[str, Answer] = {}
    for cell in read(path):
        if cell.exercise is None:
            continue
        if cell.exercise in found:
            raise SourceError(f"{cell.place} is a second answer cell of exercise {cell.exercise}.")
        found[cell.exercise] = split(cell)
    return found


def split(cell: Cell) -> Answer:
    """Split an answer cell into stub and solution; `SourceError` when its markers don't pair up."""
    stub: list[str] = []
    solution: list[str] = []
    blocks = _blocks(cell)
    for i, (block, indent, lines) in enumerate(blocks):
        if block == "BROKEN":
            if [name for name, _, _ in blocks[i + 1 : i + 2]] != ["SOLUTION"]:
                raise SourceError(f"{cell.place}: `### BEGIN SOLUTION` must follow directly on `### END BROKEN`.")
            stub += lines
        elif block == "SOLUTION":
            repairs_a_block = i > 0 and blocks[i - 1][0] == "BROKEN"
            stub += [] if repairs_a_block else [indent + _placeholder(lines)]
            solution += lines
        else:
            stub += lines
            solution += lines
    found = {block for block, _, _ in blocks}
    if "SOLUTION" not in found:
        raise SourceError(f"{cell.place}: the answer of exercise {cell.exercise} has no `### BEGIN SOLUTION` block.")
    return Answer(cell.exercise or "", tidy("\n".join(stub)), tidy("\n".join(solution)), "BROKEN" in found)


def _blocks(cell: Cell) -> list[tuple[str | None, str, list[str]]]:
    """Cut the cell at its markers into (SOLUTION, BROKEN or None, indentation of the marker, lines)."""
    blocks: list[tuple[str | None, str, list[str]]] = []
    inside = None
    for line in cell.text.splitlines():
        marker = _MARKER.match(line)
        if marker is None:
            if _ALMOST_A_MARKER.match(line):
                raise SourceError(f"{cell.place}: {line.strip()!r} is no marker; write exactly `### BEGIN SOLUTION`.")
            if not blocks:
                blocks.append((None, "", []))
            blocks[-1][2].append(line)
        elif (marker["edge"] == "BEGIN") == (inside is None) and (inside or marker["block"]) == marker["block"]:
            inside = marker["block"] if marker["edge"] == "BEGIN" else None
            blocks.append((inside, marker["indent"], []))
        else:
            raise SourceError(f"{cell.place}: {line.strip()!r} doesn't pair up with the marker before it.")
    if inside:
        raise SourceError(f"{cell.place}: `### END {inside}` is missing.")
    return [block for block in blocks if block[0] or block[2]]


def _placeholder(hidden: list[str]) -> str:
    count = sum(1 for line in hidden if line.strip() and not line.lstrip().startswith("#"))
    return f"{_PLACEHOLDER} (roughly {count} {'line' if count == 1 else 'lines'})"


def only_adds_lines(answer: Answer) -> bool:
    """Whether the solution is the stub with lines added (the placeholder comment gives way to them)."""
    lines = iter(answer.solution.splitlines())
    return all(line in lines for line in answer.stub.splitlines() if not line.lstrip().startswith(_PLACEHOLDER))


def tidy(code: str) -> str:
    """Return `code` without white space at line ends and without blank lines around it, for comparing."""
    return "\n".join(line.rstrip() for line in code.splitlines()).strip("\n")


def fingerprint(code: str) -> str:
    """Return a short hash of the code of a cell, blind to its magic line and to white space at line ends."""
    return hashlib.sha256(bare(code).encode(errors="backslashreplace")).hexdigest()[:16]


def with_magic(number: str, code: str) -> str:
    """Return the text of an answer cell: the magic line and the code."""
    return f"{MAGIC} {number}\n{code}"


def without_magic(text: str) -> tuple[str | None, str]:
    """Return (exercise number, code) of a cell's text; the number is None when the cell has no magic line."""
    found = _MAGIC_LINE.match(text)
    return (found["number"] or None, text[found.end() :].removeprefix("\n")) if found else (None, text)


def as_python(text: str) -> str:
    """Return a cell's text as Python: its magic line becomes empty, so that line numbers are those of the cell."""
    found = _MAGIC_LINE.match(text)
    return text[found.end() :] if found else text


def bare(text: str) -> str:
    """Return the code of a cell's text, tidied: equal for two answers when nothing was really changed."""
    return tidy(without_magic(text)[1])
