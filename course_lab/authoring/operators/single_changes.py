"""Single changes that undo a frequent mistake, applied to a wrong answer wherever they fit.

Mistakes are often exchanges, so most operators are their own inverse: one stride for another, `<` for `<=`, + for -.
The rest stands here: what was left out is put in.  An answer that one change makes right is wrong in that place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from course_lab.authoring import parsing
from course_lab.authoring.operators import launches, loops, memory, numbers, scales, shapes
from course_lab.authoring.operators.source import (
    SCALARS,
    Change,
    Code,
    Edit,
    in_order,
    is_pointer,
    is_stride,
    keyword,
    loaded_floats,
)

_INVERSE = {ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "%", ast.Mod: "//"}
_ROUNDINGS = ("int", "round", "math.floor", "math.ceil")
_CASTS = ("to", "half", "bfloat16", "type", "type_as")
_TURNED = {ast.Lt: ">", ast.Gt: "<", ast.LtE: ">=", ast.GtE: "<="}
_SAYING = (ast.BinOp, ast.Call, ast.Compare, ast.keyword, ast.Assign)
_NEAREST = 3  # other names that are tried in the place of one
_MOST_NUMBERS = 4  # the same, of what an access is made of


@dataclass(frozen=True)
class Repair:
    """An answer with one change. code: all of it. line, text: where the change is, and what stands there now."""

    code: str
    line: int
    text: str


def repairs(
    answer: str,
    constants: AbstractSet[float] = frozenset(),
    accesses: AbstractSet[int] = frozenset(),
    *,
    rounded: bool = False,
) -> Iterator[Repair]:
    """Every repair of `answer` that Python can parse, the likeliest first, no two with the same code.

    constants: floating-point numbers of a right answer.  accesses: lines of loads and stores that went elsewhere.
    rounded: the numbers are nearly right.
    """
    code, seen = Code(answer), {answer}
    parents = {part: node for node in ast.walk(code.tree) for part in ast.iter_child_nodes(node)}
    first = (loops.off_by_one, exchanged_quotient, lambda code: other_factor(code, accesses)) if accesses else ()
    first += (widened,) if rounded else ()
    for operator in (*first, *_FEW, *_EXCHANGES, lambda code: right_constant(code, constants), *_INSERTIONS):
        for change in _changes(operator, code):
            mended = code.with_edits(change.edits)
            if mended not in seen and parsing.parses(mended):
                seen.add(mended)
                begin = min((edit.node for edit in change.edits), key=lambda node: (node.lineno, node.col_offset))
                yield Repair(mended, change.line, " ".join(code.text(_around(parents, begin)).split()))


def _around(parents: dict[ast.AST, ast.AST], node: ast.AST) -> ast.AST:
    """The smallest expression on a line that says something: a number by itself does not."""
    around = node
    while isinstance(node, ast.Constant) and around in parents and not isinstance(around, _SAYING):
        around = parents[around]
    return around if getattr(around, "lineno", 0) == getattr(around, "end_lineno", 1) else node


def _changes(operator: Callable[[Code], Iterator[Change]], code: Code) -> Iterator[Change]:
    """What an operator makes of code that nobody of us wrote: where it is written otherwise, nothing."""
    try:
        yield from operator(code)
    except (IndexError, ValueError, AttributeError):
        return


# ---- what was left out, or stands in another's place ----------------------------------------------------------------


def widened(code: Code) -> Iterator[Change]:
    """Sums and loaded blocks in float32; a change of type in between taken out, in a kernel or on the host."""
    for call in [call for name in ("zeros", "full") for call in code.calls(name)]:
        dtype = keyword(call, "dtype")
        dtype = dtype.value if dtype else call.args[-1] if len(call.args) > 1 else None
        if isinstance(dtype, ast.Attribute) and code.text(dtype) != "tl.float32":
            yield Change((Edit(dtype, "tl.float32"),), "")
    for call in code.calls("load"):
        yield _becomes(code, call, "({}).to(tl.float32)")
    casts = [call for call in code.calls("to") if call.args]
    casts = [call for call in casts if not code.text(call.args[0]).endswith((".float32", ".int64"))]
    yield from (Change((_uncast(code, call),), "") for call in casts)
    stored = [part for call in code.calls("store") for part in ast.walk(call)]
    if len(early := [call for call in casts if call not in stored and not _is_inside(call, casts)]) > 1:
        yield Change(tuple(_uncast(code, call) for call in early), "")
    for host in code.hosts:
        for node in in_order(host):
            if isinstance(node, ast.Call) and code.text(node.func) in _ROUNDINGS and len(node.args) == 1:
                yield Change((Edit(node, f"({code.text(node.args[0])})"),), "")
            if isinstance(node, ast.keyword) and node.arg == "dtype" and code.text(node.value) != "torch.float32":
                yield Change((Edit(node.value, "torch.float32"),), "")
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _CASTS:
                yield Change((_uncast(code, node),), "")


def _uncast(code: Code, call: ast.Call) -> Edit:
    return Edit(call, f"({code.text(call.func.value)})")


def _is_inside(node: ast.AST, others: list[ast.Call]) -> bool:
    return any(node is not other and node in ast.walk(other) for other in others)


def cleared_memory(code: Code) -> Iterator[Change]:
    """Memory that holds whatever was there, cleared: where kernels add to it."""
    adds = any(True for name in ("atomic_add", "atomic_max") for _ in code.calls(name))
    for host in code.hosts if adds else ():
        for node in in_order(host):
            name = code.text(node.func) if isinstance(node, ast.Call) else ""
            if name.endswith(("empty", "empty_like")):
                yield Change((Edit(node.func, name.replace("empty", "zeros")),), "")


def initial_value(code: Code) -> Iterator[Change]:
    """What a loop begins with: nothing for a sum, or nothing for a maximum."""
    for kernel in code.kernels:
        for node in [one for statement in kernel.body for one in in_order(statement)]:
            if not isinstance(node, ast.Assign):
                continue
            for part in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
                name = code.text(part.func) if isinstance(part, ast.Call) else ""
                if name.endswith(".zeros") and len(part.args) > 1:
                    yield Change((Edit(part, f'tl.full({code.text(part.args[0])}, -float("inf"), tl.float32)'),), "")
                elif name.endswith(".full") and len(part.args) > 1:
                    yield from (Change((Edit(part.args[1], value),), "") for value in ('-float("inf")', "0.0"))
                elif isinstance(part, (ast.Constant, ast.UnaryOp)):
                    yield from (Change((Edit(part, value),), "") for value in ('-float("inf")', "0.0"))


def inverse_operation(code: Code) -> Iterator[Change]:
    """A product for a quotient, a remainder for a quotient."""
    for function in [*code.kernels, *code.hosts]:
        for node in in_order(function):
            if isinstance(node, ast.BinOp) and type(node.op) in _INVERSE:
                text = f"(({code.text(node.left)}) {_INVERSE[type(node.op)]} ({code.text(node.right)}))"
                yield Change((Edit(node, text),), "")


def added_up(code: Code) -> Iterator[Change]:
    """`=` for `+=` in a loop, and the other way round."""
    for node, name in _running(code):
        if isinstance(node, ast.Assign):
            yield Change((Edit(node, f"{name} += {code.text(node.value)}"),), "")
        else:
            yield Change((Edit(node, f"{name} = {code.text(node.value)}"),), "")


def kept_in_loop(code: Code) -> Iterator[Change]:
    """The larger or smaller of what was there and what comes, for what comes alone."""
    for node, name in _running(code):
        if isinstance(node, ast.Assign) and name not in _names([node.value]):
            for function in ("maximum", "minimum"):
                yield _becomes(code, node.value, f"tl.{function}({name}, {{}})")


def _running(code: Code) -> Iterator[tuple[ast.Assign | ast.AugAssign, str]]:
    """What a loop gives to a name that held something before it: the statement, the name."""
    for kernel in code.kernels:
        for loop in [node for node in in_order(kernel) if isinstance(node, ast.For | ast.While)]:
            before = _assigned_before(kernel, loop)
            for node in loop.body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                kept = isinstance(node, ast.AugAssign) or getattr(target, "id", "") in before
                if isinstance(node, ast.Assign | ast.AugAssign) and isinstance(target, ast.Name) and kept:
                    yield node, target.id


def rescaled(code: Code) -> Iterator[Change]:
    """A running sum brought to a new maximum before more is added, or kept at all."""
    running = list(_running(code))
    for old, new in _new_maxima(code):
        finite = f'tl.where({new} == -float("inf"), 0.0, {new})'
        for node, name in running:
            if name in (old, new) or isinstance(node, ast.AugAssign):
                continue
            again = [part for part in in_order(node.value) if isinstance(part, ast.Name) and part.id == name]
            for function, shape in (("exp", ""), ("exp2", ""), ("exp", "[:, None]"), ("exp2", "[:, None]")):
                shrunk = f"{name} * tl.{function}({old} - {finite}){shape}"
                there, text = (again[0], f"({shrunk})") if again else (node.value, f"{shrunk} + {{}}")
                yield _becomes(code, there, text)


def _new_maxima(code: Code) -> Iterator[tuple[str, str]]:
    """The names of a running maximum before and after a block, where these are two."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            call = node.value if isinstance(node, ast.Assign) else None
            if isinstance(call, ast.Call) and code.text(call.func) == "tl.maximum" and len(call.args) == 2:
                olds, new = [one.id for one in call.args if isinstance(one, ast.Name)], code.text(node.targets[0])
                yield from ((old, new) for old in olds if new not in olds)


def other_way(code: Code) -> Iterator[Change]:
    """A comparison the other way round; on the host also with or without what is equal."""
    for function in [*code.kernels, *code.hosts]:
        for node in in_order(function):
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _TURNED:
                left, right = code.text(node.left), code.text(node.comparators[0])
                others = [_TURNED[type(node.ops[0])]]
                others += [loops.OTHER[type(node.ops[0])]] if function in code.hosts else []
                yield from (Change((Edit(node, f"({left} {other} {right})"),), "") for other in others)


def _assigned_before(kernel: ast.FunctionDef, loop: ast.stmt) -> set[str]:
    """Names that hold something when a loop begins."""
    stored = (node for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return {node.id for node in stored if node.lineno < loop.lineno}


def spread_quotient(code: Code) -> Iterator[Change]:
    """(a + b) / c as a / c + b, and so for a product."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            inner = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div) else None
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add | ast.Sub):
                a, b, c = code.text(inner.left), code.text(inner.right), code.text(node.right)
                outer = "*" if isinstance(node.op, ast.Mult) else "/"
                sign = "+" if isinstance(inner.op, ast.Add) else "-"
                yield Change((Edit(node, f"(({a}) {outer} ({c}) {sign} {b})"),), "")


def gathered_product(code: Code) -> Iterator[Change]:
    """1.5 * a + b as 1.5 * (a + b)."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            inner = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) else None
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult) and isinstance(inner.left, ast.Constant):
                factor, one, other = code.text(inner.left), code.text(inner.right), code.text(node.right)
                sign = "+" if isinstance(node.op, ast.Add) else "-"
                yield Change((Edit(node, f"({factor} * ({one} {sign} {other}))"),), "")


def masked_reduction(code: Code) -> Iterator[Change]:
    """A reduction over the lanes of a mask."""
    for kernel in code.kernels:
        masks = [name for name in _assigned(kernel) if "mask" in name] or _comparisons(code, kernel)
        for reduction, nothing in (("sum", "0.0"), ("max", '-float("inf")')):
            for call in code.calls(reduction, kernel):
                if call.args:
                    for mask in masks:
                        yield _becomes(code, call.args[0], f"tl.where({mask}, {{}}, {nothing})")


def _comparisons(code: Code, kernel: ast.FunctionDef) -> list[str]:
    """Masks that are written where they are used."""
    found = [
        code.text(one.value) for node in ast.walk(kernel) for one in getattr(node, "keywords", ()) if one.arg == "mask"
    ]
    return list(dict.fromkeys(found))[:2]


def longer_loop(code: Code) -> Iterator[Change]:
    """A loop that ends one step later, or begins at 0; a grid that is rounded up."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.Call) and code.text(node.func).endswith("range") and node.args:
                stop, step = node.args[min(len(node.args) - 1, 1)], node.args[2:]
                by = code.text(step[0]) if step else "1"
                yield _becomes(code, stop, f"({{}}) + {by}")
                if len(node.args) > 1:
                    yield Change((Edit(node.args[0], "0"),), "")
    for function in [*code.kernels, *code.hosts]:
        for node in in_order(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
                yield _becomes(code, node, "({} + 1)")
                left, right = code.text(node.left), code.text(node.right)
                yield Change((Edit(node, f"(({left}) + ({right}) - 1) // ({right})"),), "")


def exchanged_arguments(code: Code) -> Iterator[Change]:
    """Two arguments of a launch or of one's own function, two targets, or two branches the wrong way round."""
    own = {function.name for function in [*code.kernels, *code.hosts]}
    for function in [*code.kernels, *code.hosts]:
        for node in in_order(function):
            if isinstance(node, ast.Call) and (isinstance(node.func, ast.Subscript) or code.text(node.func) in own):
                yield from _neighbours(code, node.args)
                yield from _neighbours(code, [one.value for one in node.keywords])
            if isinstance(node, ast.Call) and code.text(node.func).endswith((".where", ".join", ".interleave", ".dot")):
                yield from _neighbours(code, node.args[-2:])
            if isinstance(node, ast.Tuple):
                yield from _neighbours(code, node.elts)


def _neighbours(code: Code, nodes: list[ast.expr]) -> Iterator[Change]:
    for one, two in zip(nodes, nodes[1:]):
        if code.text(one) != code.text(two):
            yield Change((Edit(one, code.text(two)), Edit(two, code.text(one))), "")


def other_name(code: Code) -> Iterator[Change]:
    """A value in the place of another of its kind."""
    for kernel in code.kernels:
        floats, assigned = loaded_floats(kernel), _assigned(kernel)
        kinds = [name for name in assigned if name in floats], [name for name in assigned if name not in floats]
        for node in [one for statement in kernel.body for one in in_order(statement)]:
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            for kind in kinds:
                if node.id in kind:
                    at = kind.index(node.id)
                    near = sorted((name for name in kind if name != node.id), key=lambda n: abs(kind.index(n) - at))
                    yield from (Change((Edit(node, name),), "") for name in near[:_NEAREST])


def moved_by_one(code: Code) -> Iterator[Change]:
    """An address, or the bound of a mask, one further or one less."""
    for access in ("load", "store"):
        for call in code.calls(access):
            yield from (_becomes(code, call.args[0], f"({{}}) {sign} 1") for sign in "-+")


def other_offset(code: Code) -> Iterator[Change]:
    """An access that goes where another one goes in its tensor."""
    for kernel in code.kernels:
        accesses = [call for access in ("load", "store") for call in code.calls(access, kernel)]
        ends = [call.args[0].right for call in accesses if _is_sum(call.args[0])]
        texts = list(dict.fromkeys(code.text(end) for end in ends))
        for end in ends:
            yield from (Change((Edit(end, f"({text})"),), "") for text in texts if text != code.text(end))


def _is_sum(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)


def missing_summand(code: Code) -> Iterator[Change]:
    """An address with what another one of the kernel adds, and it does not: the start of a head, of a row."""
    for kernel in code.kernels:
        accesses = [call for access in ("load", "store") for call in code.calls(access, kernel) if call.args]
        summands = {call: list(map(code.text, _summands(call.args[0])[1:])) for call in accesses}
        known = list(dict.fromkeys(text for texts in summands.values() for text in texts))
        for call, own in summands.items():
            yield from (_becomes(code, call.args[0], f"({{}}) + ({text})") for text in known if text not in own)


def _summands(node: ast.expr) -> list[ast.expr]:
    return [*_summands(node.left), *_summands(node.right)] if _is_sum(node) else [node]


def complement(code: Code) -> Iterator[Change]:
    """A number, or what is left of one; a value, or its opposite."""
    for kernel in code.kernels:
        floats = loaded_floats(kernel)
        for node in [one for statement in kernel.body for one in in_order(statement)]:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.id in SCALARS:
                    yield _becomes(code, node, "(1.0 - {})")
                if node.id in SCALARS or node.id in floats:
                    yield _becomes(code, node, "(-{})")


def right_constant(code: Code, constants: AbstractSet[float]) -> Iterator[Change]:
    """A number of a right answer in the place of one that it has not."""
    numbers_ = [
        node
        for function in [*code.kernels, *code.hosts]
        for node in in_order(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, float)
    ]
    for node in numbers_:
        if node.value not in constants:
            yield from (Change((Edit(node, repr(value)),), "") for value in sorted(constants))


def without_number(code: Code) -> Iterator[Change]:
    """A number that is added or multiplied, taken out."""
    for kernel in code.kernels:
        for node in in_order(kernel):
            if isinstance(node, ast.BinOp):
                for one, other in ((node.left, node.right), (node.right, node.left)):
                    if isinstance(one, ast.Constant):
                        yield Change((Edit(node, f"({code.text(other)})"),), "")


def other_limit(code: Code) -> Iterator[Change]:
    """A number that a kernel gets in the place of another."""
    for kernel in code.kernels:
        plain = [one.arg for one in kernel.args.args if one.annotation is None]
        plain = [name for name in plain if not is_pointer(name) and not is_stride(name)]
        for node in [one for statement in kernel.body for one in in_order(statement)]:
            if isinstance(node, ast.Name) and node.id in plain and isinstance(node.ctx, ast.Load):
                at = plain.index(node.id)
                yield from (
                    Change((Edit(node, name),), "") for name in plain[max(at - 1, 0) : at] + plain[at + 1 : at + 2]
                )


def no_roundings(code: Code) -> Iterator[Change]:
    """Every rounding to a whole number on the host, taken out at once."""
    for host in code.hosts:
        calls = [node for node in in_order(host) if isinstance(node, ast.Call) and len(node.args) == 1]
        calls = [call for call in calls if code.text(call.func) in _ROUNDINGS]
        if len(calls) > 1:
            yield Change(tuple(Edit(call, f"({code.text(call.args[0])})") for call in calls), "")


def with_factor(code: Code) -> Iterator[Change]:
    """An argument or a value that nothing uses, as a factor of what is stored or multiplied."""
    for kernel in code.kernels:
        idle = unused(kernel)
        for node in in_order(kernel):
            if isinstance(node, ast.Call | ast.Name | ast.BinOp) and not isinstance(
                getattr(node, "ctx", None), ast.Store
            ):
                if isinstance(node, ast.Call) and not code.text(node.func).endswith((".dot", ".sum", ".exp", ".exp2")):
                    continue
                yield from (_becomes(code, node, f"(({{}}) * {name})") for name in idle)


def unused(function: ast.FunctionDef) -> list[str]:
    """Values and numbers of a function that nothing reads; no tensors, strides or constants of the compiler."""
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    plain = [argument.arg for argument in function.args.args if argument.annotation is None]
    known = dict.fromkeys([*plain, *_assigned(function)])
    return [name for name in known if name not in read and not is_pointer(name) and not is_stride(name)]


def _assigned(kernel: ast.FunctionDef) -> list[str]:
    """Names that a function gives a value, in order."""
    stored = (node for node in in_order(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return list(dict.fromkeys(node.id for node in stored if not is_pointer(node.id)))


# ---- what an access is made of ---------------------------------------------------------------------------------------


def other_factor(code: Code, lines: AbstractSet[int]) -> Iterator[Change]:
    """In the addresses and masks of the accesses in these lines, a whole number in the place of another.

    What is multiplied comes first: a size or a stride is wrong more often than what is added.
    """
    for kernel in code.kernels:
        parts = _made_of(code, kernel, lines)
        numbers_ = _whole_numbers(kernel)
        for nodes in _everywhere(code, kernel, lines):
            for name in _likely(numbers_, nodes[0])[:_NEAREST]:
                yield Change(tuple(Edit(node, name) for node in nodes), "")
        nodes = [node for part in parts for node in in_order(part)]
        factors = {side for node in nodes if _is_product(node) for side in (node.left, node.right)}
        names = [node for node in nodes if isinstance(node, ast.Name) and node.id in numbers_]
        for node in sorted(names, key=lambda node: node not in factors):
            yield from (Change((Edit(node, name),), "") for name in _likely(numbers_, node)[:_MOST_NUMBERS])


def _everywhere(code: Code, kernel: ast.FunctionDef, lines: AbstractSet[int]) -> Iterator[list[ast.Name]]:
    """A whole number wherever it stands in the addresses of one tensor, if an access in these lines is among them."""
    by_tensor: dict[str, list[ast.Call]] = {}
    for call in [call for access in ("load", "store") for call in code.calls(access, kernel) if call.args]:
        tensor = code.text(call.args[0]).split()[0]
        by_tensor.setdefault(tensor, []).append(call)
    known = _whole_numbers(kernel)
    for calls in by_tensor.values():
        if len(calls) > 1 and any(call.lineno in lines for call in calls):
            found = [node for call in calls for node in in_order(call.args[0]) if isinstance(node, ast.Name)]
            for name in dict.fromkeys(node.id for node in found if node.id in known):
                same = [node for node in found if node.id == name]
                if len(same) > 1:
                    yield same


def exchanged_quotient(code: Code) -> Iterator[Change]:
    """On the host, what is divided and what by, the other way round."""
    for host in code.hosts:
        for node in in_order(host):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
                yield Change((Edit(node, f"({code.text(node.right)}) // ({code.text(node.left)})"),), "")


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _likely(numbers_: dict[str, int], node: ast.Name) -> list[str]:
    """What may stand for a name: arguments for an argument, what the kernel computes for what it computes."""
    names, given = list(numbers_), min(numbers_.values())
    alike = [name for name in names if (numbers_[name] == given) == (numbers_[node.id] == given)]
    ready = [name for name in alike if name != node.id and numbers_[name] < node.lineno]
    return sorted(ready, key=lambda name: abs(names.index(name) - names.index(node.id)))


def _whole_numbers(kernel: ast.FunctionDef) -> dict[str, int]:
    """Names of a kernel that may be a part of an address, in order, with the line that gives each its value."""
    floats = loaded_floats(kernel)
    found = {one.arg: kernel.lineno for one in kernel.args.args if not is_pointer(one.arg)}
    pointers = {one.arg for one in kernel.args.args if is_pointer(one.arg)}
    for node in in_order(kernel):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and _names([node.value]) & pointers:
            pointers |= _names(node.targets)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in floats:
            found.setdefault(node.id, node.lineno)
    return {name: line for name, line in found.items() if name not in pointers}


def _made_of(code: Code, kernel: ast.FunctionDef, lines: AbstractSet[int]) -> list[ast.expr]:
    """The addresses and masks of the accesses in these lines, and the values of all names that they are made of."""
    calls = [call for access in ("load", "store") for call in code.calls(access, kernel) if call.lineno in lines]
    parts = [call.args[0] for call in calls if call.args]
    parts += [argument for call in calls for argument in _mask_of(code, call)]
    names, done = _names(parts), set()
    while left := names - done:
        done |= left
        for node in in_order(kernel):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AugAssign) and _names(targets) & left and value not in parts:
                parts.append(value)
        names |= _names(parts)
    return parts


def _mask_of(code: Code, call: ast.Call) -> list[ast.expr]:
    at = 2 if code.text(call.func).endswith("store") else 1
    return [one.value for one in call.keywords if one.arg == "mask"] or call.args[at : at + 1]


def _names(nodes: list[ast.expr]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _becomes(code: Code, node: ast.AST, text: str) -> Change:
    return Change((Edit(node, text.format(code.text(node))),), "")


_FEW = (
    added_up, kept_in_loop, rescaled, other_way, spread_quotient, gathered_product,
    shapes.along_another_axis, shapes.reshaped_otherwise, shapes.turned, longer_loop,
    scales.true_infinity, scales.as_long_as_a_size,
)  # fmt: skip
_EXCHANGES = (
    memory.other_stride, memory.swapped_strides, loops.off_by_one, loops.other_program, memory.swapped_loads,
    numbers.opposite_sign, numbers.swapped_operands,
    shapes.other_new_axis, scales.other_base, missing_summand,
    numbers.regrouped, numbers.other_operation, numbers.lost_operand, numbers.other_function, scales.common_factor,
    memory.other_size, memory.other_pointer, launches.grid_axis, launches.other_host_size,
)  # fmt: skip
_INSERTIONS = (
    cleared_memory, initial_value,
    inverse_operation, masked_reduction, scales.other_whole_number,
    exchanged_arguments, widened, with_factor,
    loops.before_update, numbers.without_choice, numbers.without_function, moved_by_one, loops.into_loop,
    loops.after_loop, other_offset, complement, other_name, without_number, other_limit, no_roundings,
)  # fmt: skip
