"""Mistakes in what is walked over: comparisons, ranges, loops, the numbers of programs."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from course_lab.authoring.operators.source import Change, Code, Edit, in_order, names

OTHER = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_SIGN = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def off_by_one(code: Code) -> Iterator[Change]:
    """< for <= and its like; a bound that is one too small."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
                left, right = code.text(node.left), code.text(node.comparators[0])
                other = OTHER[type(node.ops[0])]
                yield Change(
                    (Edit(node, f"({left} {other} {right})"),), f"compares with `{other}` in `{code.text(node)}`"
                )
                if isinstance(node.ops[0], ast.Lt):
                    says = f"stops one short in `{code.text(node)}`"
                    yield Change((Edit(node, f"({left} < {right} - 1)"),), says)


def loop_ends(code: Code) -> Iterator[Change]:
    """A loop that begins a step late, ends a step early, or rounds its end down."""
    for loop, (start, stop, step) in _ranges(code):
        first, last, by = code.text(start), code.text(stop), code.text(step)
        about = f"the loop over `{loop.target.id}`"
        yield Change((Edit(start, f"{first} + {by}"),), f"begins {about} one step late")
        yield Change((Edit(stop, f"({last}) - {by}"),), f"ends {about} one step early")
        yield Change((Edit(stop, f"({last}) - 1"),), f"ends {about} one element early")
        yield Change((Edit(stop, f"({last}) // {by} * {by}"),), f"leaves the last, shorter block out of {about}")
        yield Change((Edit(stop, f"{by}"),), f"walks one block only in {about}")


def loop_step(code: Code) -> Iterator[Change]:
    """A loop whose steps overlap or leave gaps."""
    for loop, (_, _, step) in _ranges(code):
        by = code.text(step)
        yield Change((Edit(step, f"2 * {by}"),), f"takes steps of twice `{by}` in the loop over `{loop.target.id}`")


def _ranges(code: Code) -> Iterator[tuple[ast.For, tuple[ast.expr, ast.expr, ast.expr]]]:
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 3:
                yield node, tuple(node.iter.args)


def after_loop(code: Code) -> Iterator[Change]:
    """A statement of a loop that runs once, behind it."""
    for kernel in code.kernels:
        for loop in [node for node in in_order(kernel) if isinstance(node, ast.For)]:
            for statement in loop.body[1:]:
                if isinstance(statement, ast.Assign | ast.AugAssign) and _carried(statement, loop):
                    moved = textwrap.indent(code.text(statement), " " * loop.col_offset)
                    edits = _moved(code, statement, loop.body[-1], f"\n{moved}")
                    if edits:
                        yield Change(edits, f"does `{_target(statement)}` once, after the loop")


def into_loop(code: Code) -> Iterator[Change]:
    """The statement behind a loop that runs in every turn."""
    for kernel in code.kernels:
        body = kernel.body
        for loop, after in zip(body, body[1:]):
            if isinstance(loop, ast.For) and isinstance(after, ast.Assign | ast.AugAssign):
                margin = " " * loop.body[-1].col_offset
                text = textwrap.dedent(" " * after.col_offset + code.text(after)).replace("\n", f"\n{margin}")
                last = loop.body[-1]
                edits = (Edit(last, f"{code.text(last)}\n{margin}{text}"), Edit(after, "pass"))
                yield Change(edits, f"does `{_target(after)}` in every turn of the loop")


def before_update(code: Code) -> Iterator[Change]:
    """Two statements in the wrong order: a value is used before or after it changes."""
    for kernel in code.kernels:
        for block in _blocks(kernel):
            for one, two in zip(block, block[1:]):
                if _depends(one, two):
                    edits = (Edit(one, code.text(two)), Edit(two, code.text(one)))
                    yield Change(edits, f"does `{_target(two)}` before `{_target(one)}`")


def _blocks(kernel: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in in_order(kernel):
        if isinstance(node, ast.For):
            yield node.body


def _depends(one: ast.stmt, two: ast.stmt) -> bool:
    """The second uses what the first assigns, and that name had a value before (it is carried through the loop)."""
    if not all(isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) for s in (one, two)):
        return False
    first, second = one.targets[0].id, two.targets[0].id
    return second in names(one.value) and second != first


def _carried(statement: ast.stmt, loop: ast.For) -> bool:
    """A loop that lacks it still has a value for every name: it was assigned before."""
    target = statement.target if isinstance(statement, ast.AugAssign) else statement.targets[0]
    if not isinstance(target, ast.Name):
        return False
    return isinstance(statement, ast.AugAssign) or target.id in names(statement.value)


def _moved(code: Code, statement: ast.stmt, last: ast.stmt, text: str) -> tuple[Edit, ...]:
    if statement is last:
        return (Edit(statement, f"pass{text}"),)
    return Edit(statement, "pass"), Edit(last, code.text(last) + text)


def _target(statement: ast.stmt) -> str:
    target = statement.target if isinstance(statement, ast.AugAssign) else statement.targets[0]
    return ast.unparse(target)


def lost_update(code: Code) -> Iterator[Change]:
    """A statement of a loop that is missing: a value that is never carried on."""
    for kernel in code.kernels:
        for loop in [node for node in in_order(kernel) if isinstance(node, ast.For)]:
            for statement in loop.body:
                target = getattr(statement, "targets", [getattr(statement, "target", None)])[0]
                if isinstance(target, ast.Name) and _assigned_before(kernel, loop, target.id):
                    yield Change((Edit(statement, "pass"),), f"never changes `{target.id}` in the loop")


def _assigned_before(kernel: ast.FunctionDef, loop: ast.For, name: str) -> bool:
    stored = [n for n in in_order(kernel) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    return bool(stored) and stored[0].lineno < loop.lineno


def other_program(code: Code) -> Iterator[Change]:
    """program_id of the other axis, or none."""
    for call in code.calls("program_id"):
        axis = code.text(call.args[0])
        both = {code.text(one.args[0]) for one in code.calls("program_id")}
        for other in sorted(both - {axis}):
            says = f"takes `tl.program_id({other})` where axis {axis} belongs"
            yield Change((Edit(call, f"tl.program_id({other})"),), says)
        zero = Edit(call, f"(tl.program_id({axis}) * 0)")
        yield Change((zero,), f"does not use `tl.program_id({axis})`", "program-id-unused")
