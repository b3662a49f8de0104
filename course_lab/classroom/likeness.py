"""Which answers of a class are nearly the same: a hint for a talk, no accusation, for short answers are often alike.

Compared are syntax trees in which every name of the learner's own stands as its number, without comments and strings
that explain.  What the stub gave to everybody is left out of the measure.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

from course_lab.authoring import parsing
from course_lab.check.answer import GIVEN

ENOUGH = 0.9  # of the statements that two answers have beyond the stub
_LEAST = 4  # statements: fewer say nothing
_PAIRS_UP_TO = 400  # answers to one exercise; of more only those that are quite the same are found


@dataclass(frozen=True)
class Alike:
    """Answers to one exercise that are nearly the same.

    learners: two or more.  same_text: names, comments and all.  as_solution: so is the course's own solution, which
    says that there is little else to write.  part: of the statements that are the same, for the two least alike.
    """

    exercise: str
    learners: tuple[str, ...]
    same_text: bool
    as_solution: bool
    part: float


@dataclass(frozen=True)
class _Shape:
    learner: str
    lines: tuple[str, ...]
    text: str


def alike(exercise: str, answers: Iterable[tuple[str, str]], stub: str, solution: str) -> list[Alike]:
    """Groups of learners whose answers to an exercise are nearly the same, the most telling first.

    answers: pairs of learner and code.
    """
    given = set(normal(stub))
    shapes = [
        _Shape(name, _own(code, given), hashlib.sha256(code.encode(errors="replace")).hexdigest())
        for name, code in answers
    ]
    shapes = [shape for shape in shapes if len(shape.lines) >= _LEAST]
    model = _own(solution, given)
    groups = _same(shapes)
    found = [_group(exercise, members, model, 1.0) for members in groups if len(members) > 1]
    if len(groups) <= _PAIRS_UP_TO:
        for one, other in combinations([members[0] for members in groups], 2):
            part = shared_part(one.lines, other.lines)
            if part >= ENOUGH:
                found.append(_group(exercise, [one, other], model, part))
    return sorted(found, key=lambda group: (group.as_solution, not group.same_text, -group.part, group.learners))


def _same(shapes: list[_Shape]) -> list[list[_Shape]]:
    groups: dict[tuple[str, ...], list[_Shape]] = {}
    for shape in shapes:
        groups.setdefault(shape.lines, []).append(shape)
    return list(groups.values())


def _group(exercise: str, members: list[_Shape], model: tuple[str, ...], part: float) -> Alike:
    same = len({member.text for member in members}) == 1
    near_model = any(shared_part(member.lines, model) >= ENOUGH for member in members)
    return Alike(exercise, tuple(member.learner for member in members), same, near_model, part)


def shared_part(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """The part of the statements that two answers share, in order: 0 to 1."""
    if not one or not other or 2 * min(len(one), len(other)) < ENOUGH * (len(one) + len(other)):
        return 0.0
    shared = len(set(one) & set(other))
    if shared < 0.5 * min(len(set(one)), len(set(other))):
        return 0.0
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _own(code: str, given: set[str]) -> tuple[str, ...]:
    return tuple(line for line in normal(code) if line not in given)


def normal(code: str) -> tuple[str, ...]:
    """The statements of an answer with its own names numbered; () for what is no Python."""
    try:
        tree = parsing.parse(code)
        named = _Numbered().visit(_without_docstrings(tree))
        return tuple(re.sub(r"\s+", " ", line.strip()) for line in ast.unparse(named).splitlines() if line.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
            node.body = kept or [ast.Pass()]
    return tree


class _Numbered(ast.NodeTransformer):
    """Names as their numbers, counted anew in each function, so that one more name at the top moves nothing else."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def _number(self, name: str) -> str:
        if name in GIVEN or name in _WORDS:
            return name
        return self._known.setdefault(name, f"v{len(self._known)}")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._known = {}
        node.name = "f"
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._number(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._number(node.arg)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = self._known.get(node.arg, node.arg) if node.arg else node.arg
        return self.generic_visit(node)


_WORDS = {
    "range",
    "len",
    "min",
    "max",
    "int",
    "float",
    "bool",
    "sum",
    "abs",
    "zip",
    "enumerate",
    "print",
    "tuple",
    "list",
}
