"""Elements that nobody wrote since the store stands in a branch to which their programs do not come.

That is certain only where the n-th program writes the n-th row and no other: then it is known whose is missing.
"""

from __future__ import annotations

import ast

import numpy as np

from course_lab.check.verdict import CaseRun
from gfxlab.programs import format_program

_LONGEST = 60  # characters of code in a sentence
_FEWEST = 2  # rows that are written: one by itself shows no rule


def passed_by(tree: ast.Module, runs: list[CaseRun]) -> str:
    """Which condition keeps a program from its store, in a sentence; "" where that is not known.  runs: wrong ones."""
    for run in runs:
        for comparison, writers in zip(run.comparisons, run.seen.writers):
            if writers is not None and (found := _condition(tree, run, writers.numpy(), comparison.wrong)):
                return found
    return ""


def _condition(tree: ast.Module, run: CaseRun, owners: np.ndarray, wrong: np.ndarray) -> str:
    """As `passed_by`, for one output.  owners: of each element the event that stored it, or -1; wrong: of its shape."""
    if not owners.ndim or len(run.own_launches) != 1 or len(owners) > run.own_launches[0].programs:
        return ""
    rows, wrong = owners.reshape(len(owners), -1), wrong.reshape(len(owners), -1)
    left = [n for n, row in enumerate(rows) if (row < 0).all() and wrong[n].any()]
    events = {n: {run.seen.events[event] for event in np.unique(row[row >= 0])} for n, row in enumerate(rows)}
    whole = [n for n, row in enumerate(rows) if (row >= 0).all()]
    own = all(event.program[0] == n and not any(event.program[1:]) for n, some in events.items() for event in some)
    if not left or len(whole) < _FEWEST or not own:
        return ""
    lines = sorted({event.line for some in events.values() for event in some})
    branches = {_around(tree, line) for line in lines}
    branch = branches.pop() if len(branches) == 1 else None
    if branch is None:
        return ""
    condition, holds = branch
    text = ast.unparse(condition)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    program = format_program((left[0], *run.seen.events[int(rows[whole[0]][0])].program[1:]))
    return (
        f"Program {program} does not come to the store in line {lines[0]}, which stands where `{text}` in line "
        f"{condition.lineno} {'holds' if holds else 'does not hold'}. What is to be stored otherwise?"
    )


def _around(tree: ast.Module, line: int) -> tuple[ast.expr, bool] | None:
    """The innermost condition around a line, and whether it holds there; None where there is none."""
    found = None
    for node in ast.walk(tree):  # what is further in comes later
        if isinstance(node, ast.If):
            for arm, holds in ((node.body, True), (node.orelse, False)):
                if arm and arm[0].lineno <= line <= (arm[-1].end_lineno or arm[-1].lineno):
                    found = node.test, holds
    return found
