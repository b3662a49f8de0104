"""The short path through a lesson: what is core, what can be skipped, and whether the core stands by itself.

A heading of lesson.py that ends with "(optional)" marks everything down to the next heading of its level or above. The
core are the other parts, and the exercises that CORE of the lesson's package names.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

from course_lab.authoring import source
from course_lab.authoring.lessons import Lesson

OPTIONAL = "(optional)"
WORDS_A_MINUTE = 100
_APPENDIX = "### From formula to code"
_FENCE = re.compile(r"```.*?```", re.DOTALL)
_HEADING = re.compile(r"(?=^#{1,6} )", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A piece of a lesson: a code cell, or the text of a cell from one heading to the next."""

    kind: str
    text: str
    place: str
    optional: bool
    exercise: str | None = None


def parts(lesson: Lesson) -> list[Part]:
    """The parts of lesson.py in order, each core or optional."""
    found, level = [], 0  # level: of the optional heading that is open, 0 for none
    for cell in source.read(lesson.file("lesson.py")):
        if cell.kind != "markdown":
            found.append(Part(cell.kind, cell.text, cell.place, level > 0, cell.exercise))
            continue
        for text in _pieces(cell.text):
            if heading := re.match(r"(#{1,6}) (.*)", text):
                depth = len(heading[1])
                if level == 0 or depth <= level:
                    level = depth if heading[2].endswith(OPTIONAL) else 0
            found.append(Part(cell.kind, text, cell.place, level > 0))
    return found


def _pieces(text: str) -> list[str]:
    """Text cut before each heading; what looks like a heading inside a code fence is none."""
    hidden = _FENCE.sub(lambda fence: "." * len(fence[0]), text)
    cuts = [match.start() for match in _HEADING.finditer(hidden)]
    edges = [0, *(cut for cut in cuts if cut), len(text)]
    return [text[start:end] for start, end in zip(edges, edges[1:])]


def reading_minutes(lesson: Lesson) -> float:
    """Minutes for the prose of the core, at a hundred words a minute, without formula table and glossary."""
    prose = []
    for part in parts(lesson):
        if part.text.startswith(_APPENDIX):
            break
        if part.kind == "markdown" and not part.optional:
            prose.append(part.text)
    return sum(map(words, prose)) / WORDS_A_MINUTE


def words(text: str) -> int:
    """How many words of prose a text has: without code fences, and a table's bars are none."""
    return sum(bool(re.search(r"\w", word)) for word in _FENCE.sub("", text).split())


def exercise_minutes(lesson: Lesson) -> int:
    """Minutes for the exercises of the core: the steps inside its text, and those that CORE names."""
    inside = [part.exercise for part in parts(lesson) if not part.optional]
    steps = sum(step.minutes for step in lesson.steps if step.number in inside)
    return steps + sum(exercise.minutes for exercise in lesson.exercises if exercise.number in lesson.core)


def short_path_minutes(lesson: Lesson) -> int:
    """Minutes that the core takes, reading and exercises."""
    return (lesson.core_minutes or 0) + exercise_minutes(lesson)


def missing_names(lesson: Lesson) -> Iterator[str]:
    """Each name that a core cell uses and that somebody who skipped the optional parts would lack or find different."""
    owner: dict[str, Part] = {}  # of each name: the part that bound it last
    for part in parts(lesson):
        if part.kind == "markdown" or part.exercise:
            continue
        used, bound = _names(part)
        for name in sorted(used) if not part.optional else ():
            if name in owner and owner[name].optional:
                yield f"{part.place} uses {name!r}, which the optional {owner[name].place} binds."
        owner |= dict.fromkeys(bound, part)


def _names(part: Part) -> tuple[set[str], set[str]]:
    """(names that the cell takes from earlier cells, names that it leaves behind)."""
    table = symtable.symtable(part.text, part.place, "exec")
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    used |= {name for inner in table.get_children() for name in _globals(inner)}
    return {name for name in used - _bound_first(part.text, bound) if not hasattr(builtins, name)}, bound


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() and symbol.is_referenced():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _bound_first(code: str, bound: set[str]) -> set[str]:
    """Of the names that a cell binds, those whose first mention is no use but an assignment, a def, an import ..."""
    first: dict[str, bool] = {}
    for statement in ast.parse(code).body:
        uses, binds = [], []
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                (binds if isinstance(node.ctx, ast.Store) else uses).append(node.id)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) or isinstance(node, ast.ExceptHandler) and node.name:
                binds.append(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                binds += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        loop = isinstance(statement, ast.For | ast.With | ast.Try | ast.If | ast.FunctionDef)
        for name in uses:
            first.setdefault(name, loop and name in binds)
        for name in binds:
            first.setdefault(name, True)
    return {name for name in bound if first.get(name)}
