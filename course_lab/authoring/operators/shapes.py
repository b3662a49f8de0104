"""Single changes of how values lie in a tile: the axis of a reduction, new axes, transpositions, reshapes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import permutations

from course_lab.authoring.operators.source import Change, Code, Edit, in_order, keyword

_ALONG = ("sum", "max", "min", "argmax", "argmin", "softmax", "cumsum", "cumprod", "sort", "flip", "reduce")
_AXES = ("1", "0", "2")
_RESHAPES = ("reshape", "view")


def along_another_axis(code: Code) -> Iterator[Change]:
    """A reduction along another axis, or along one where none is said; as a function of `tl` or a block's method."""
    for call in [call for name in _ALONG for call in code.calls(name)]:
        name = "dim" if call.func.attr in ("softmax", "flip", "sort") else "axis"
        said = keyword(call, "axis") or keyword(call, "dim")
        position = int(_is_function(code, call))
        axis = said.value if said else call.args[position] if len(call.args) > position else None
        if axis is not None:
            text = code.text(axis)
            yield from (Change((Edit(axis, other),), "") for other in _AXES if other != text)
            continue
        for other in _AXES[:2]:
            for rest in ("", ", keep_dims=True"):
                inside = ", ".join([*map(code.text, [*call.args, *call.keywords]), f"{name}={other}{rest}"])
                yield Change((Edit(call, f"{code.text(call.func)}({inside})"),), "")


def other_new_axis(code: Code) -> Iterator[Change]:
    """x[:, None] as x[None, :]."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
                continue
            parts = tuple(map(code.text, node.slice.elts))
            if "None" in parts:
                others = dict.fromkeys(permutations(parts))
                yield from (Change((Edit(node.slice, ", ".join(one)),), "") for one in others if one != parts)


def turned(code: Code) -> Iterator[Change]:
    """A tile transposed that was not, or no longer transposed."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.Attribute) and node.attr == "T":
                yield Change((Edit(node, f"({code.text(node.value)})"),), "")
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "trans" and node.args:
                yield Change((Edit(node, f"({code.text(node.args[0])})"),), "")
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "dot":
                yield from (Change((Edit(one, f"tl.trans({code.text(one)})"),), "") for one in node.args[:2])
            elif isinstance(node, ast.Subscript) and _slices(node) > 1:
                yield Change((Edit(node.value, f"tl.trans({code.text(node.value)})"),), "")


def _slices(node: ast.Subscript) -> int:
    """How many axes of a tile a subscript keeps, where it adds one."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return sum(isinstance(part, ast.Slice) for part in parts) if len(parts) > 2 else 0


def reshaped_otherwise(code: Code) -> Iterator[Change]:
    """A tile taken apart by columns and not by rows: halves for pairs of neighbours, and the other way round."""
    for call in [call for name in _RESHAPES for call in code.calls(name)]:
        own = _is_function(code, call)
        of, sizes = (call.args[0], call.args[1:]) if own and call.args else (call.func.value, call.args)
        if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
            sizes = sizes[0].elts
        if len(sizes) < 2:
            continue
        *before, one, two = map(code.text, sizes)
        swapped = f"tl.reshape({code.text(of)}, ({', '.join([*before, two, one])}))"
        order = ", ".join(map(str, [*range(len(before)), len(before) + 1, len(before)]))
        yield Change((Edit(call, f"tl.permute({swapped}, ({order}))"),), "")
        yield Change((Edit(call, swapped),), "")


def _is_function(code: Code, call: ast.Call) -> bool:
    """Whether a call is `tl.name(x)` and not `x.name()`."""
    return code.text(call.func.value) in ("tl", "triton", "triton.language")
