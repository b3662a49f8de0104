"""Mistakes in Python's half: grids, blocks, allocations, launches that are missing or repeated."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_lab.authoring.operators.source import Change, Code, Edit, in_order


def rounded_down(code: Code) -> Iterator[Change]:
    """A grid that leaves the last, shorter block out, or is for blocks of twice the size."""
    for call in _host_calls(code, "cdiv"):
        size, block = (code.text(argument) for argument in call.args)
        yield Change((Edit(call, f"(({size}) // {block})"),), f"rounds `{size} / {block}` down", "grid-floor-division")
        yield Change((Edit(call, f"triton.cdiv({size}, 2 * {block})"),), f"starts half the programs for `{size}`")


def grid_axis(code: Code) -> Iterator[Change]:
    """A grid that is short of one along an axis, or has its axes exchanged."""
    for grid in _grids(code):
        for axis, part in enumerate(grid.elts):
            text = code.text(part)
            yield Change((Edit(part, f"max({text} - 1, 1)"),), f"starts one program too few along axis {axis}")
        if len(grid.elts) == 2:
            a, b = grid.elts
            yield Change((Edit(a, code.text(b)), Edit(b, code.text(a))), "has the axes of the grid exchanged")


def one_too_many(code: Code) -> Iterator[Change]:
    """A grid with a program that has no rows."""
    for grid in _grids(code):
        for axis, part in enumerate(grid.elts):
            if not isinstance(part, ast.Call):
                yield Change((Edit(part, f"{code.text(part)} + 1"),), f"starts one program too many along axis {axis}")


def fixed_block(code: Code) -> Iterator[Change]:
    """A block for one width, instead of the next power of two."""
    for call in _host_calls(code, "next_power_of_2"):
        for value in ("64", "1024"):
            says = f"has a block of {value} whatever `{code.text(call.args[0])}` is"
            yield Change((Edit(call, value),), says, "block-too-short")


def other_host_size(code: Code) -> Iterator[Change]:
    """A shape or stride of one dimension taken for another's."""
    for host in code.hosts:
        for node in in_order(host):
            if isinstance(node, ast.Call) and code.text(node.func).endswith(".stride") and node.args:
                axis = code.text(node.args[0])
                other = {"0": "-1", "1": "0"}.get(axis)
                if other:
                    text = f"{code.text(node.func)}({other})"
                    yield Change((Edit(node, text),), f"passes `{text}` for `{code.text(node)}`")
            if isinstance(node, ast.Call) and code.text(node.func).endswith(".numel"):
                tensor = code.text(node.func.value)
                yield Change((Edit(node, f"{tensor}.shape[-1]"),), f"counts the last dimension of `{tensor}` only")


def kept_output(code: Code) -> Iterator[Change]:
    """An output allocated once for each shape: the second call overwrites the first result."""
    for host in code.hosts:
        for node in in_order(host):
            if isinstance(node, ast.Call) and code.text(node.func) in ("torch.empty", "torch.empty_like"):
                text = f"_kept.setdefault((tuple({code.text(node)}.shape), {node.lineno}), {code.text(node)})"
                says = "hands out the same memory for every call with this shape"
                yield Change((Edit(node, text), _above(host, code, "_kept = {}\n\n\n")), says, "result-reused")


def kept_result(code: Code) -> Iterator[Change]:
    """A result computed once for each shape, and handed out again for other data."""
    for host in code.hosts:
        returned = [node for node in in_order(host) if isinstance(node, ast.Return) and node.value is not None]
        for node in returned[-1:] if host.args.args else ():
            first = host.args.args[0].arg
            text = f"return _kept.setdefault((tuple({first}.shape), {first}.dtype), ({code.text(node.value)}))"
            says = "returns the result of an earlier call for inputs of the same shape"
            yield Change((Edit(node, text), _above(host, code, "_kept = {}\n\n\n")), says, "")


def _above(host: ast.FunctionDef, code: Code, text: str) -> Edit:
    """Text before a function: an edit of nothing at its beginning."""
    place = ast.Pass(lineno=host.lineno, col_offset=0, end_lineno=host.lineno, end_col_offset=0)
    return Edit(place, text)


def lost_launch(code: Code) -> Iterator[Change]:
    """A second kernel that is not launched."""
    for host in code.hosts:
        launches = [node for node in host.body if _is_launch(node)]
        for node in launches if len(launches) > 1 else []:
            yield Change((Edit(node, "pass"),), f"does not launch `{code.text(node.value.func.value)}`")


def launched_twice(code: Code) -> Iterator[Change]:
    """A launch that is repeated, which shows where a kernel changes its input."""
    for host in code.hosts:
        for node in host.body:
            if _is_launch(node) and not any(isinstance(n, ast.Return) for n in host.body):
                text = f"{code.text(node)}\n{' ' * node.col_offset}{code.text(node)}"
                yield Change((Edit(node, text),), "launches its kernel twice")


def _is_launch(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Subscript)
    )


def _host_calls(code: Code, name: str) -> Iterator[ast.Call]:
    for host in code.hosts:
        yield from code.calls(name, host)


def _grids(code: Code) -> Iterator[ast.Tuple]:
    """The tuples that say how many programs there are: between brackets, or assigned to `grid`."""
    for host in code.hosts:
        for node in in_order(host):
            between = node.func.slice if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) else None
            named = node.value if isinstance(node, ast.Assign) and code.text(node.targets[0]) == "grid" else None
            yield from (grid for grid in (between, named) if isinstance(grid, ast.Tuple))
