"""Python's `and`, `or`, `not`, `min`, `max` and `if` on blocks, and names of the language, as the compiler reads them.

Compiled, `a and b` of two blocks is taken lane by lane, `min(a, b)` is `tl.minimum`, and `if block:` is an error.  The
stock interpreter leaves all of them to Python, which asks for one truth value and gets True: `a and b` becomes b, the
branch is taken for all lanes, and the numbers are wrong without a word.  Here the interpreted twin of a kernel is
rewritten to call `operators` instead, and a block has no truth value.

The stock interpreter also puts its own functions into `triton.language` for the time of a launch, and so misses those
that a kernel knows under a name of its own (`from triton.language import load`), and the annotation `L.constexpr`. The
twin asks the language for them.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

NAME = "_course_operators"  # under this name the module stands in the globals of an interpreted kernel

_TRITON_FOLDER = str(Path(triton.__file__).parent)
_SEMANTIC = str(Path(_TRITON_FOLDER, "language", "semantic.py"))


def _places() -> dict[int, tuple[str, ...]]:
    """Where the language keeps each of its own functions, by identity: ("load",) or ("math", "exp2")."""
    found: dict[int, tuple[str, ...]] = {}
    for folder, path in ((tl, ()), (tl.core, ("core",)), (tl.math, ("math",))):
        for name, member in vars(folder).items():
            if tl.core.is_builtin(member) or member in (tl.range, tl.static_range, tl.static_assert, tl.static_print):
                found.setdefault(id(member), (*path, name))
    return found


_PLACES = _places()  # on import, before any launch has put something else there


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


def loop(*bounds: Any, step: Any = None, **_: Any) -> Iterator[tl.tensor]:
    """`for i in range(...)`: compiled, i is a scalar of the kernel, which has `.to()` and wraps, no number of Python's.

    Bounds and step as those of `range`, and what `tl.range` takes besides.
    """
    given = [*bounds, step] if step is not None else list(bounds)
    wide = builtins.any(_is_tensor(bound) and bound.dtype.primitive_bitwidth == 64 for bound in given)
    kind, number = (tl.int64, np.int64) if wide else (tl.int32, np.int32)
    for value in builtins.range(*(int(getattr(bound, "value", bound)) for bound in given)):
        yield tl.tensor(TensorHandle(np.array([value], np.int64).astype(number), kind), kind)


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
    """Calls to the functions above in place of Python's own operators; `known`: paths of the language's own names."""

    def __init__(self, known: dict[str, tuple[str, ...]]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        path = self._known.get(node.id) if isinstance(node.ctx, ast.Load) else None
        if path is None:
            return node
        found: ast.expr = ast.Attribute(ast.Name(NAME, ast.Load()), "tl", ast.Load())
        for name in path:
            found = ast.Attribute(found, name, ast.Load())
        return ast.fix_missing_locations(ast.copy_location(found, node))

    def visit_arg(self, node: ast.arg) -> ast.arg:
        if node.annotation is not None:  # all that counts: is it a constexpr, under whatever name
            constant = "constexpr" in ast.unparse(node.annotation)
            node.annotation = ast.copy_location(ast.Constant("constexpr"), node) if constant else None
        return node

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

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        call = node.iter
        if isinstance(call, ast.Call) and "range" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
            loop = ast.Attribute(ast.Name(NAME, ast.Load()), "loop", ast.Load())
            call.func = ast.fix_missing_locations(ast.copy_location(loop, call.func))
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        functions = {"min": "minimum", "max": "maximum"}
        if isinstance(node.func, ast.Name) and node.func.id in functions and not node.keywords:
            return self._call(node, functions[node.func.id], node.args)
        return node


def rewrite(tree: ast.AST, fn: Callable) -> ast.AST:
    """The syntax tree of kernel `fn` with its operators on blocks, and its own names of the language, replaced."""
    names = set(fn.__code__.co_names) - {"tl"}
    objects = {name: fn.__globals__[name] for name in names if name in fn.__globals__}
    return _Rewriter({name: _PLACES[id(value)] for name, value in objects.items() if id(value) in _PLACES}).visit(tree)
