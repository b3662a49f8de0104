"""Mistakes in the arithmetic: dtypes, rounding, operands, constants, reductions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from course_lab.authoring.operators.source import SCALARS, Change, Code, Edit, in_order, keyword, loaded_floats, names

_OPPOSITE = {ast.Add: "-", ast.Sub: "+"}
_TWINS = {"max": "sum", "sum": "max", "maximum": "minimum", "minimum": "maximum", "exp": "exp2", "exp2": "exp"}
_TWINS |= {"rsqrt": "sqrt", "log": "log2", "log2": "log", "cdiv": "min"}
_OTHER_OPERATION = {ast.Mult: "+", ast.Add: "*", ast.Div: "*"}
_UNWRAPPED = ("abs", "sqrt", "rsqrt", "sigmoid", "clamp", "erf")


def without_float32(code: Code) -> Iterator[Change]:
    """Arithmetic in the dtype of the tensor."""
    for call in code.calls("to"):
        if code.text(call.args[0]) == "tl.float32":
            inner = code.text(call.func.value)
            says = f"leaves `{_short(inner)}` in its own dtype"
            yield Change((Edit(call, inner),), says, "half-accumulation")


def without_int64(code: Code) -> Iterator[Change]:
    """Offsets in 32 bits."""
    for call in code.calls("to"):
        if code.text(call.args[0]) == "tl.int64":
            inner = code.text(call.func.value)
            yield Change((Edit(call, inner),), f"counts with `{inner}` in 32 bits", "")


def rounds_early(code: Code) -> Iterator[Change]:
    """A result in between that is rounded to the dtype of a tensor."""
    for kernel in code.kernels:
        floats, narrow = loaded_floats(kernel), _narrow(code, kernel)
        for node in in_order(kernel):
            if not isinstance(node, ast.Assign | ast.AugAssign) or narrow is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not isinstance(targets[0], ast.Name) or targets[0].id not in floats or _is_plain_load(code, node.value):
                continue
            name = targets[0].id
            if isinstance(node, ast.AugAssign):
                text = f"{name} = ({name} {_sign(node.op)} ({code.text(node.value)})).to({narrow}).to(tl.float32)"
                yield Change((Edit(node, text),), f"keeps `{name}` in 16 bits", "half-accumulation")
            else:
                text = f"({code.text(node.value)}).to({narrow}).to(tl.float32)"
                yield Change(
                    (Edit(node.value, text),), f"rounds `{name}` to 16 bits before it is used", "half-accumulation"
                )


def _narrow(code: Code, kernel: ast.FunctionDef) -> str | None:
    """How a kernel names the dtype of its first pointer, which is that of the data."""
    first = kernel.args.args[0].arg if kernel.args.args else ""
    return f"{first}.dtype.element_ty" if first.endswith("_ptr") else None


def _sign(op: ast.operator) -> str:
    return {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}.get(type(op), "+")


def _is_plain_load(code: Code, value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and "tl.load" in code.text(value) or "tl.zeros" in code.text(value)


def swapped_operands(code: Code) -> Iterator[Change]:
    """a - b as b - a, a / b as b / a."""
    for kernel in code.kernels or code.hosts:
        for node in _arithmetic(kernel, (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)):
            left, right = code.text(node.left), code.text(node.right)
            text = f"(({right}) {_op(node.op)} ({left}))"
            yield Change((Edit(node, text),), f"has the operands of `{_short(code.text(node))}` the wrong way round")


def opposite_sign(code: Code) -> Iterator[Change]:
    """+ for - and - for +."""
    for kernel in code.kernels or code.hosts:
        for node in _arithmetic(kernel, (ast.Add, ast.Sub)):
            if not any(name.endswith("_ptr") for name in names(node)):
                text = f"({code.text(node.left)} {_OPPOSITE[type(node.op)]} ({code.text(node.right)}))"
                yield Change((Edit(node, text),), f"has the wrong sign in `{_short(code.text(node))}`")


def lost_operand(code: Code) -> Iterator[Change]:
    """A sum, product or quotient of which one side is missing."""
    for kernel in code.kernels or code.hosts:
        for node in _arithmetic(kernel, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)):
            if any(name.endswith("_ptr") or name.startswith("stride") for name in names(node)):
                continue
            yield Change((Edit(node, f"({code.text(node.left)})"),), f"leaves out `{_short(code.text(node.right))}`")
        for node in _of_floats(kernel, (ast.Add, ast.Mult)):
            yield Change((Edit(node, f"({code.text(node.right)})"),), f"leaves out `{_short(code.text(node.left))}`")


def regrouped(code: Code) -> Iterator[Change]:
    """Parentheses in another place: a * b + c as a * (b + c) or (a + c) * b, and the other way round."""
    for kernel in code.kernels:
        for node in _of_floats(kernel, (ast.Add, ast.Sub)):
            inner, sign = node.left, "+" if isinstance(node.op, ast.Add) else "-"
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult | ast.Div):
                a, b, c = code.text(inner.left), code.text(inner.right), code.text(node.right)
                quotient = isinstance(inner.op, ast.Div)
                yield Change((Edit(node, f"(({a} {sign} {c}) {'/' if quotient else '*'} {b})"),), _grouped(code, node))
                if not quotient:
                    yield Change((Edit(node, f"(({a}) * ({b} {sign} {c}))"),), _grouped(code, node))
        for node in _of_floats(kernel, (ast.Mult, ast.Div)):
            inner = node.left
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add | ast.Sub):
                a, b, c = code.text(inner.left), code.text(inner.right), code.text(node.right)
                sign = "+" if isinstance(inner.op, ast.Add) else "-"
                text = f"({a} {sign} ({b}) {'*' if isinstance(node.op, ast.Mult) else '/'} {c})"
                yield Change((Edit(node, text),), _grouped(code, node))


def _grouped(code: Code, node: ast.AST) -> str:
    return f"has the parentheses of `{_short(code.text(node))}` in another place"


def other_operation(code: Code) -> Iterator[Change]:
    """+ for *, * for +, * for /."""
    for kernel in code.kernels:
        for node in _of_floats(kernel, tuple(_OTHER_OPERATION)):
            text = f"(({code.text(node.left)}) {_OTHER_OPERATION[type(node.op)]} ({code.text(node.right)}))"
            yield Change((Edit(node, text),), f"has another operation in `{_short(code.text(node))}`")


def without_square(code: Code) -> Iterator[Change]:
    """x * x as x, and as |x|."""
    for kernel in code.kernels:
        for node in _of_floats(kernel, (ast.Mult,)):
            text = code.text(node.left)
            if text == code.text(node.right):
                yield Change((Edit(node, f"tl.abs({text})"),), f"takes the magnitude of `{text}` for its square")
                yield Change((Edit(node, f"({text})"),), f"does not square `{text}`")


def _of_floats(kernel: ast.FunctionDef, kinds: tuple[type, ...]) -> Iterator[ast.BinOp]:
    """Arithmetic on numbers that were loaded, not on places."""
    floats = loaded_floats(kernel)
    for node in _arithmetic(kernel, kinds):
        used = names(node)
        if set(used) & floats and not any(name.endswith("_ptr") or name.startswith("stride") for name in used):
            yield node


def other_function(code: Code) -> Iterator[Change]:
    """tl.max for tl.sum, tl.exp for tl.exp2, tl.maximum for tl.minimum."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            name = code.text(node.func) if isinstance(node, ast.Call) else ""
            if name.startswith("tl.") and name[3:] in _TWINS:
                twin = f"tl.{_TWINS[name[3:]]}"
                yield Change((Edit(node.func, twin),), f"takes `{twin}` where `{name}` belongs")


def without_function(code: Code) -> Iterator[Change]:
    """tl.abs, tl.clamp, a root left out."""
    for name in _UNWRAPPED:
        for call in code.calls(name):
            yield Change((Edit(call, f"({code.text(call.args[0])})"),), f"leaves `tl.{name}` out")


def without_choice(code: Code) -> Iterator[Change]:
    """tl.where that always takes one side; tl.maximum and tl.minimum that keep one argument."""
    for call in code.calls("where"):
        for kept in (1, 2):
            says = f"always takes `{_short(code.text(call.args[kept]))}`"
            yield Change((Edit(call, f"({code.text(call.args[kept])})"),), says)
    for name in ("maximum", "minimum"):
        for call in code.calls(name):
            yield Change((Edit(call, f"({code.text(call.args[0])})"),), f"leaves `tl.{name}` out")


def other_axis(code: Code) -> Iterator[Change]:
    """A reduction along the other axis."""
    for name in ("sum", "max", "min"):
        for call in code.calls(name):
            if (axis := keyword(call, "axis")) and code.text(axis.value) == "1":
                yield Change((Edit(axis.value, "0"),), f"reduces along axis 0 in `{_short(code.text(call))}`")


def without_precision(code: Code) -> Iterator[Change]:
    """tl.dot that may round float32 operands."""
    for call in code.calls("dot"):
        if one := keyword(call, "input_precision"):
            says = "leaves `tl.dot` without `input_precision`"
            yield Change((Edit(one, 'input_precision="tf32"'),), says)


def other_constant(code: Code) -> Iterator[Change]:
    """A floating-point constant that is too large."""
    for function in [*code.kernels, *code.hosts]:
        for node in in_order(function):
            if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value not in (0.0,):
                yield Change((Edit(node, repr(node.value * 10)),), f"has another constant than `{code.text(node)}`")
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value == 2:
                yield Change((Edit(node, "1"),), "counts one where the definition counts two")


def fixed_number(code: Code) -> Iterator[Change]:
    """An argument such as eps or the scale replaced by its usual value."""
    for kernel in code.kernels:
        for statement in kernel.body:
            for node in in_order(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _arguments(kernel):
                    for value in SCALARS.get(node.id, ()):
                        says = f"computes with `{value}` instead of `{node.id}`"
                        yield Change((Edit(node, value),), says, "hard-coded-size")


def _arguments(kernel: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in kernel.args.args}


def _arithmetic(kernel: ast.FunctionDef, kinds: tuple[type, ...]) -> Iterator[ast.BinOp]:
    for node in in_order(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
            yield node


def _op(op: ast.operator) -> str:
    return {ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}[type(op)]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
