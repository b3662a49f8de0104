"""Python's `and`, `or`, `not`, `min`, `max` and `if` on blocks, as the compiler reads them.

Compiled, `a and b` of two blocks is taken lane by lane, `min(a, b)` is `tl.minimum`, and `if block:` is an error.  The
stock interpreter leaves all of them to Python, which asks for one truth value and gets True: `a and b` becomes b, the
branch is taken for all lanes, and the numbers are wrong without a word.  Here the interpreted twin of a kernel is
rewritten to call `operators` instead, and a block has no truth value.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import triton
import triton.language as tl

NAME = "_course_operators"  # under this name the module stands in the globals of an interpreted kernel

_TRITON_FOLDER = str(Path(triton.__file__).parent)
_SEMANTIC = str(Path(_TRITON_FOLDER, "language", "semantic.py"))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tl.tensor)


def both(*operands: Callable[[], Any]) -> Any:
    """`a and b and ...`; operands come as functions, so that a plain False stops the evaluation."""
    value = operands[0]()
    for operand in operands[1:]:
        if _is_tensor(value):
            value = value.logical_and(operand())
        elif value:
            value = operand()
    return value


def either(*operands: Callable[[], Any]) -> Any:
    """`a or b or ...`"""
    value = operands[0]()
    for operand in operands[1:]:
        if _is_tensor(value):
            value = value.logical_or(operand())
        elif not value:
            value = operand()
    return value


def negation(value: Any) -> Any:
    """`not a`"""
    return value == 0 if _is_tensor(value) else not value


def minimum(*values: Any) -> Any:
    """`min(a, b, ...)`"""
    return reduce(tl.minimum, values) if builtins.any(map(_is_tensor, values)) else builtins.min(*values)


def maximum(*values: Any) -> Any:
    """`max(a, b, ...)`"""
    return reduce(tl.maximum, values) if builtins.any(map(_is_tensor, values)) else builtins.max(*values)


def truth(tensor: tl.tensor) -> bool:
    """The truth value of a scalar.

    Triton's own `if other:` asks whether there is a tensor, as when it compiles: a scalar of 0 is one too.

    Raises:
        ValueError: a kernel asks for the truth value of a block, which has none.
    """
    caller = sys._getframe(1).f_code.co_filename
    if caller == _SEMANTIC:
        return True
    data = np.asarray(tensor.handle.data)
    if data.size == 1:
        return bool(data.item())
    if caller.startswith(_TRITON_FOLDER):
        return True
    raise ValueError(
        f"a block of {data.size} values was used as one condition. All lanes execute the same code: "
        "choose lane by lane, with tl.where or a mask."
    )


class _Rewriter(ast.NodeTransformer):
    """Calls to the functions above in place of Python's own operators."""

    def _call(self, node: ast.AST, function: str, arguments: list[ast.expr]) -> ast.Call:
        callee = ast.Attribute(ast.Name(NAME, ast.Load()), function, ast.Load())
        return ast.fix_missing_locations(ast.copy_location(ast.Call(callee, arguments, []), node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.Call:
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        delayed = [ast.Lambda(nothing, operand) for operand in node.values]
        return self._call(node, "both" if isinstance(node.op, ast.And) else "either", delayed)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._call(node, "negation", [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        functions = {"min": "minimum", "max": "maximum"}
        if isinstance(node.func, ast.Name) and node.func.id in functions and not node.keywords:
            return self._call(node, functions[node.func.id], node.args)
        return node


def rewrite(tree: ast.AST) -> ast.AST:
    """The kernel's syntax tree with its operators on blocks replaced."""
    return _Rewriter().visit(tree)
