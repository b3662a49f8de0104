"""An exercise asks for something that its lesson does not print: copying the lesson's kernel is no answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from course_lab.authoring import lessons, source

LESSONS = [lesson for lesson in lessons.all() if lesson.core]
WRITTEN = [(one, exercise.number) for one in LESSONS for exercise in one.exercises if exercise.kind == "write"]
MODULES = {"tl", "triton", "torch", "math"}


class _Renamed(ast.NodeTransformer):
    """Names by the order in which they come: what a kernel calls its variables makes no difference."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id not in MODULES:
            node.id = self.names.setdefault(node.id, f"name{len(self.names)}")
        return node


def _statements(code: str) -> Iterator[str]:
    """The assignments, calls and results in the kernels of some code."""
    for kernel in ast.walk(ast.parse(code)):
        if isinstance(kernel, ast.FunctionDef) and "jit" in "".join(map(ast.unparse, kernel.decorator_list)):
            for node in ast.walk(kernel):
                if isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr):
                    yield ast.dump(_Renamed().visit(ast.parse(ast.unparse(node))))


def _printed(lesson) -> set[str]:
    found: set[str] = set()
    for cell in source.read(lesson.file("lesson.py")):
        if cell.kind == "code" and not cell.exercise:
            found |= set(_statements(re.sub(r"^[%!].*$", "", cell.text, flags=re.MULTILINE)))
    return found


@pytest.mark.parametrize("lesson, number", WRITTEN, ids=[number for _, number in WRITTEN])
def test_an_exercise_asks_for_more_than_its_lesson_prints(lesson, number):
    answer = lesson.answers[number]
    asked = set(_statements(answer.solution)) - set(_statements(answer.stub))
    assert not asked or asked - _printed(lesson), "every statement of the kernel stands in the lesson"
