"""Cases that take long run in two children at once: each calls an answer on half of them.

Only where an answer keeps nothing from call to call: what it keeps is seen by a child that has every case.
"""

from __future__ import annotations

import ast
import os
from itertools import accumulate

from course_lab.authoring.exercise import AGAIN, Exercise
from course_lab.check import answer, client, queueing
from course_lab.check.verdict import CaseRun

_WORTH = 0.6  # seconds of all cases, from which a second child is worth the time that it takes to start
_KEEPS = ("cache", "lru_cache", "globals", "setattr", "vars", "set_default_dtype", "manual_seed")
_PLAIN = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.Attribute, ast.Name, ast.operator, ast.unaryop, ast.Load)
_seconds: dict[tuple[str, str], float] = {}  # of this process: what a case took the last time, by exercise and name


def note(exercise: Exercise, runs: list[CaseRun]) -> None:
    """Keep how long these cases took."""
    _seconds.update({(exercise.number, run.case.name): run.seen.seconds for run in runs if run.seen})


def shares(exercise: Exercise, tree: ast.Module, runs: list[CaseRun]) -> list[list[CaseRun]]:
    """The cases as they are given to children: all of them to one, or to each about half of what takes long."""
    took = [_seconds.get((exercise.number, run.case.name), 0.0) for run in runs]
    alone = (os.cpu_count() or 1) > 1 and not client.takes_turns() and not queueing.is_shared()
    if sum(took) < _WORTH or not alone or exercise.driver or keeps(tree):
        return [runs]
    before = [0.0, *accumulate(took)]
    # a second call follows the first
    cuts = [i for i, run in enumerate(runs) if i == 0 or not run.case.name.endswith(AGAIN)]
    cut = min(cuts, key=lambda i: abs(before[-1] / 2 - before[i]))
    return [part for part in (runs[:cut], runs[cut:]) if part]


def keeps(tree: ast.Module) -> bool:
    """Whether an answer may keep something from one call to the next; False only where surely not."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    others = [
        node for node in tree.body if node not in functions and not isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    return (
        not all(map(_is_constant, others))
        or any(map(_may_keep, functions))
        or any(isinstance(node, (ast.Global, ast.Nonlocal, ast.ClassDef)) for node in ast.walk(tree))
        or answer.names(tree, *_KEEPS)
    )


def _is_constant(statement: ast.stmt) -> bool:
    """A docstring, or a name for what nobody can change."""
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    value = statement.value
    if isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "constexpr" and not value.keywords:
        return all(map(_is_plain, value.args))
    return _is_plain(value)


def _is_plain(value: ast.expr) -> bool:
    return all(isinstance(part, _PLAIN) for part in ast.walk(value))


def _may_keep(function: ast.FunctionDef) -> bool:
    """Whether a decorator, a default value, or something that is not the function's own may be what is kept."""
    defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
    bare = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    strange = any("jit" not in (getattr(one, "attr", ""), getattr(one, "id", "")) for one in bare)
    return strange or not all(map(_is_plain, defaults)) or not _written(function) <= _own(function)


def _own(function: ast.FunctionDef) -> set[str]:
    made = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return made | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def _written(function: ast.FunctionDef) -> set[str]:
    """The names of what is changed: an element or an attribute of it."""
    parts = (node for node in ast.walk(function) if isinstance(node, (ast.Subscript, ast.Attribute)))
    return {_root(node) for node in parts if not isinstance(node.ctx, ast.Load)}


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
