"""Single changes of numbers: the base of a power, what stands for infinity, a whole number, the length of a block."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from course_lab.authoring.operators.source import Change, Code, Edit, in_order

_LARGE = 100.0  # a negative one below that stands for minus infinity
_OF_BASE_2 = {"exp": 1 / math.log(2), "exp2": 1 / math.log(2), "log": 1 / math.log(2), "log2": math.log(2)}
_FEWEST_LANES = 16
_NEAR = 3  # other numbers of the code that are tried


def other_base(code: Code) -> Iterator[Change]:
    """A power or a logarithm brought from base 2 to base e or back, or one side of a difference in its exponent."""
    for name, factor in _OF_BASE_2.items():
        for call in code.calls(name):
            if name.startswith("log"):
                yield Change((Edit(call, f"({code.text(call)} * {factor!r})"),), "")
                continue
            for part in _terms(call.args[0]) if call.args else ():
                for text in (f"(({{}}) * {factor!r})", f"(({{}}) * {1 / factor!r})"):
                    yield Change((Edit(part, text.format(code.text(part))),), "")


def _terms(node: ast.expr) -> list[ast.expr]:
    """An exponent, and the two sides of a difference."""
    sides = [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) else []
    return [*sides, node]


def true_infinity(code: Code) -> Iterator[Change]:
    """A large negative number that stands for minus infinity, as that or as one that no score comes near."""
    for function in [*code.kernels, *code.hosts]:
        for node in in_order(function):
            value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, float) and value.value >= _LARGE:
                yield from (Change((Edit(node, text),), "") for text in ('-float("inf")', "-1e30"))


def common_factor(code: Code) -> Iterator[Change]:
    """a + b * c as (a + b) * c."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            inner = node.right if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) else None
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult | ast.Div):
                sign = "+" if isinstance(node.op, ast.Add) else "-"
                by = "*" if isinstance(inner.op, ast.Mult) else "/"
                left, first, second = map(code.text, (node.left, inner.left, inner.right))
                yield Change((Edit(node, f"(({left} {sign} {first}) {by} {second})"),), "")


def as_long_as_a_size(code: Code) -> Iterator[Change]:
    """A block of a fixed length in a launch, as long as a row is; where no loop takes the rest of the row."""
    for host in () if _has_loop(code) else code.hosts:
        sizes = _sizes(code, host)
        for node in in_order(host):
            if isinstance(node, ast.keyword) and _is_lanes(node.value):
                for size in sizes:
                    yield Change((Edit(node.value, f"triton.next_power_of_2({size})"),), "")


def _has_loop(code: Code) -> bool:
    return any(isinstance(node, ast.For | ast.While) for kernel in code.kernels for node in ast.walk(kernel))


def _sizes(code: Code, host: ast.FunctionDef) -> list[str]:
    """Names that a launcher takes from a tensor's shape."""
    found = []
    for node in in_order(host):
        if isinstance(node, ast.Assign) and any(word in code.text(node.value) for word in ("shape", "numel", "size(")):
            found += [one.id for one in in_order(node.targets[0]) if isinstance(one, ast.Name)]
    return list(dict.fromkeys(found))


def _is_lanes(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= _FEWEST_LANES


def other_whole_number(code: Code) -> Iterator[Change]:
    """A whole number twice or half as large, the next one, or one that stands elsewhere."""
    functions = [*code.kernels, *code.hosts]
    nodes = [node for function in functions for statement in function.body for node in in_order(statement)]
    whole = [node for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int]
    known = sorted({node.value for node in whole})
    lengths = [one.value for one in nodes if isinstance(one, ast.keyword) and _is_lanes(one.value)]
    # more lanes, or one block for everything, hide what is wrong with a distance or a loop
    left = [part for call in code.calls("arange") for part in call.args] + (lengths if _has_loop(code) else [])
    for node in whole:
        if node in left:
            continue
        own = node.value
        others = sorted((value for value in known if value != own), key=lambda value: abs(value - own))[:_NEAR]
        near = [2 * own, own // 2 if own % 2 == 0 else own + 1, own + 1, own - 1]
        for value in dict.fromkeys([*near, *others]):
            if value != own and value >= 0:
                yield Change((Edit(node, str(value)),), "")
