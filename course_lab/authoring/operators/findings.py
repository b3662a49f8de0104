"""Mistakes in what is handed in beside a repaired kernel: the finding and the cause."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_lab.authoring.operators.source import Change, Code, Edit


def lost_finding(code: Code) -> Iterator[Change]:
    """Nothing that breaks the kernel as it was."""
    for function in code.findings:
        for node in ast.walk(function):
            if isinstance(node, ast.Return):
                yield Change((Edit(node, "return None"),), f"has nothing in `{function.name}`", "unfinished")


def other_cause(code: Code) -> Iterator[Change]:
    """No cause, or one that is none."""
    for node in code.tree.body if code.findings else ():
        if isinstance(node, ast.Assign) and code.text(node.targets[0]) == "cause":
            yield Change((Edit(node.value, '""'),), "names no cause", "unfinished")
            yield Change((Edit(node.value, '"the weather"'),), "names a cause that is none of those", "unknown-cause")
