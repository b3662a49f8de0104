"""Mistakes at loads and stores: masks, what masked lanes hold, strides, sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_lab.authoring.operators.source import (
    Change,
    Code,
    Edit,
    in_order,
    is_pointer,
    is_stride,
    keyword,
    names,
    parameters,
    pointer_of,
    runtime_sizes,
)

_ACCESSES = ("load", "store")
_OTHERS = ("0.0", "1.0", "-100.0", "-1e4", '-float("inf")')


def drop_mask(code: Code) -> Iterator[Change]:
    """A load or store without its mask."""
    for access in _ACCESSES:
        for call in code.calls(access):
            if keyword(call, "mask"):
                text = _call(code, call, without=("mask", "other"))
                what = f"{access}s {pointer_of(call.args[0])} without a mask"
                yield Change((Edit(call, text),), what, f"missing-{access}-mask")


def invert_mask(code: Code) -> Iterator[Change]:
    """A load or store whose mask is the wrong way round."""
    for access in _ACCESSES:
        for call in code.calls(access):
            if mask := keyword(call, "mask"):
                what = f"{access}s {pointer_of(call.args[0])} where the mask is false"
                yield Change((Edit(mask.value, f"({code.text(mask.value)}) == 0"),), what)


def half_mask(code: Code) -> Iterator[Change]:
    """A condition of two parts that keeps one of them."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
                for kept, lost in ((node.left, node.right), (node.right, node.left)):
                    says = f"does not ask for `{code.text(lost)}` beside `{code.text(kept)}`"
                    yield Change((Edit(node, f"({code.text(kept)})"),), says)


def flat_mask(code: Code) -> Iterator[Change]:
    """A mask of rows and columns that is one comparison of the flat index."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitAnd):
                continue
            if _is_below(node.left) and _is_below(node.right):
                (a, m), (b, n) = (_sides(code, side) for side in (node.left, node.right))
                says = f"masks the flat index `{a} * {n} + {b}` instead of rows and columns"
                yield Change((Edit(node, f"(({a}) * {n} + {b} < {m} * {n})"),), says)


def _is_below(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt)


def _sides(code: Code, compare: ast.Compare) -> tuple[str, str]:
    return code.text(compare.left), code.text(compare.comparators[0])


def drop_other(code: Code) -> Iterator[Change]:
    """A masked load that leaves its masked lanes to chance."""
    for call in code.calls("load"):
        if keyword(call, "other"):
            says = f"leaves the masked lanes of {pointer_of(call.args[0])} without a value"
            yield Change((Edit(call, _call(code, call, without=("other",))),), says, "missing-other")


def other_value(code: Code) -> Iterator[Change]:
    """Masked lanes that hold another number: the identity of another reduction, or merely a small score."""
    for call in code.calls("load"):
        other = keyword(call, "other")
        if other is None or code.text(other.value) in ("0", "False"):
            continue
        now = code.text(other.value)
        for value in _OTHERS[:2] if now == "0.0" else _OTHERS:
            if value != now:
                says = f"gives the masked lanes of {pointer_of(call.args[0])} the value `{value}`"
                yield Change((Edit(other.value, value),), says)


def other_infinity(code: Code) -> Iterator[Change]:
    """Minus infinity replaced by a number that is merely small."""
    inside = {id(keyword(call, "other")) for call in code.calls("load")}
    for kernel in code.kernels:
        skip = {id(n) for k in ast.walk(kernel) if id(k) in inside for n in ast.walk(k)}
        for node in in_order(kernel):
            if id(node) not in skip and isinstance(node, ast.UnaryOp) and code.text(node) == '-float("inf")':
                for value in ("0.0", "-100.0", "-1e4"):
                    yield Change((Edit(node, value),), f"writes `{value}` where the definition has minus infinity")


def other_stride(code: Code) -> Iterator[Change]:
    """A stride replaced by one of another tensor or dimension, or left out."""
    for kernel in code.kernels:
        strides = [name for name in parameters(kernel) if is_stride(name)]
        for node in _uses(kernel, strides):
            at = strides.index(node.id)
            near = sorted(
                (s for s in strides if s != node.id), key=lambda s: (s[-1] != node.id[-1], abs(strides.index(s) - at))
            )
            for other in near[:3]:
                yield Change((Edit(node, other),), f"uses `{other}` where `{node.id}` belongs")
            yield Change((Edit(node, "1"),), f"leaves `{node.id}` out")


def other_size(code: Code) -> Iterator[Change]:
    """A size used for another."""
    for kernel in code.kernels:
        sizes = runtime_sizes(kernel)
        constants = [a.arg for a in kernel.args.args if a.annotation is not None and a.arg.startswith("BLOCK")]
        for node in _uses(kernel, sizes):
            for other in [size for size in sizes if size != node.id][:2] + constants[:1]:
                yield Change((Edit(node, other),), f"uses `{other}` where `{node.id}` belongs")


def rows_without_gaps(code: Code) -> Iterator[Change]:
    """A row stride replaced by the length of a row."""
    for kernel in code.kernels:
        sizes = runtime_sizes(kernel)
        for node in _uses(kernel, [name for name in parameters(kernel) if is_stride(name)]):
            for size in sizes[-1:]:
                yield Change((Edit(node, size),), f"takes rows to lie `{size}` apart instead of `{node.id}`")


def swapped_loads(code: Code) -> Iterator[Change]:
    """Two loads that take each other's address."""
    for kernel in code.kernels:
        calls = list(code.calls("load", kernel))
        for one, two in zip(calls, calls[1:]):
            a, b = one.args[0], two.args[0]
            if code.text(a) != code.text(b):
                says = f"loads {pointer_of(a)} and {pointer_of(b)} the wrong way round"
                yield Change((Edit(a, code.text(b)), Edit(b, code.text(a))), says)


def other_pointer(code: Code) -> Iterator[Change]:
    """A store into, or a load from, another tensor."""
    for kernel in code.kernels:
        pointers = [name for name in parameters(kernel) if is_pointer(name)]
        for call in code.calls("load", kernel):
            for node in in_order(call.args[0]):
                if isinstance(node, ast.Name) and node.id in pointers:
                    for other in pointers[: pointers.index(node.id)][-1:]:
                        yield Change((Edit(node, other),), f"loads from `{other}` where `{node.id}` belongs")


def without_offset(code: Code) -> Iterator[Change]:
    """An address that lacks one of its terms."""
    for access in _ACCESSES:
        for call in code.calls(access):
            address = call.args[0]
            if isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add):
                kept, lost = code.text(address.left), code.text(address.right)
                if is_pointer(names(address.left)[0]):
                    says = f"{access}s {pointer_of(address)} without `{lost}` in the address"
                    yield Change((Edit(address, kept),), says)


def swapped_strides(code: Code) -> Iterator[Change]:
    """Two strides of one expression exchanged."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.Call | ast.AugAssign):
                root = node.args[0] if isinstance(node, ast.Call) and node.args else getattr(node, "value", None)
                uses = [n for n in in_order(root) if isinstance(n, ast.Name) and is_stride(n.id)] if root else []
                if len(uses) >= 2 and (isinstance(node, ast.AugAssign) or _is_access(node)):
                    a, b = uses[:2]
                    if a.id != b.id:
                        yield Change(
                            (Edit(a, b.id), Edit(b, a.id)), f"exchanges `{a.id}` and `{b.id}`", "swapped-strides"
                        )


def _is_access(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ACCESSES


def _uses(kernel: ast.FunctionDef, wanted: list[str]) -> Iterator[ast.Name]:
    for statement in kernel.body:
        for node in in_order(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in wanted:
                yield node


def _call(code: Code, call: ast.Call, without: tuple[str, ...]) -> str:
    parts = [code.text(argument) for argument in call.args]
    parts += [f"{one.arg}={code.text(one.value)}" for one in call.keywords if one.arg not in without]
    return f"{code.text(call.func)}({', '.join(parts)})"
