"""Mistakes in answers that have no kernel of their own: they wrap one, test one, time one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_lab.authoring.operators.source import Change, Code, Edit, in_order

_CONVERSIONS = ("float", "double", "to", "contiguous", "square", "abs")


def lost_refusal(code: Code) -> Iterator[Change]:
    """An argument that is not looked at."""
    for node in _nodes(code, ast.If):
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
            yield Change((Edit(node, "pass"),), f"does not refuse `{_short(code.text(node.test))}`")


def other_condition(code: Code) -> Iterator[Change]:
    """A condition the wrong way round."""
    for node in _nodes(code, ast.If):
        yield Change(
            (Edit(node.test, f"not ({code.text(node.test)})"),), f"takes `{_short(code.text(node.test))}` for no"
        )


def lost_conversion(code: Code) -> Iterator[Change]:
    """A number that keeps its dtype, or its sign."""
    for node in _nodes(code, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CONVERSIONS:
            inner = code.text(node.func.value)
            yield Change((Edit(node, inner),), f"leaves `.{node.func.attr}` out behind `{_short(inner)}`")


def swapped_results(code: Code) -> Iterator[Change]:
    """Two results in each other's place."""
    for node in _nodes(code, ast.Return):
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else []
        for one, two in zip(parts, parts[1:]):
            a, b = code.text(one), code.text(two)
            yield Change((Edit(one, b), Edit(two, a)), f"returns `{_short(b)}` and `{_short(a)}` the wrong way round")


def shorter_shape(code: Code) -> Iterator[Change]:
    """A shape without its last dimension."""
    for node in _nodes(code, ast.Attribute):
        if node.attr == "shape":
            text = code.text(node)
            yield Change((Edit(node, f"{text}[:-1]"),), f"leaves the last dimension of `{text}` out")


def lost_call(code: Code) -> Iterator[Change]:
    """A statement that is missing: a call whose result nobody takes, a check of a test."""
    for node in _nodes(code, (ast.Expr, ast.Assert)):
        if isinstance(node, ast.Assert) or isinstance(node.value, ast.Call):
            yield Change((Edit(node, "pass"),), f"leaves `{_short(code.text(node))}` out")


def _nodes(code: Code, kind: type | tuple[type, ...]) -> Iterator[ast.AST]:
    """Of functions that run in Python, where the answer has no others."""
    for host in code.hosts if not code.kernels else ():
        yield from (node for node in in_order(host) if isinstance(node, kind))


def _short(text: str) -> str:
    text = " ".join(text.split()).replace("`", "'")
    return text if len(text) <= 60 else text[:57] + "..."
