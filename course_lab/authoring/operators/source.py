"""The code that operators work on: its functions, their names, and edits of it by place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from course_lab.authoring import parsing


@dataclass(frozen=True)
class Edit:
    """`node`, whose place the parser gave, becomes `text`."""

    node: ast.AST
    text: str


@dataclass(frozen=True)
class Change:
    """One mistake: edits, and a clause that completes "a kernel that ...". diagnosis: a code of the check, or ""."""

    edits: tuple[Edit, ...]
    says: str
    diagnosis: str = ""

    @property
    def line(self) -> int:
        return min(edit.node.lineno for edit in self.edits)


class Code:
    """A right answer: its text, its tree, and which of its functions are kernels and which launch them."""

    def __init__(self, text: str) -> None:
        self.tree = parsing.parse(text)
        self._bytes = text.encode()
        starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        begin, end = self._span(node)
        return self._bytes[begin:end].decode()

    def with_edits(self, edits: tuple[Edit, ...]) -> str:
        """The code after these edits, which must not overlap; all other text stays as it is."""
        result = self._bytes
        for edit in sorted(edits, key=lambda edit: self._span(edit.node), reverse=True):
            begin, end = self._span(edit.node)
            result = result[:begin] + edit.text.encode() + result[end:]
        return result.decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    @cached_property
    def kernels(self) -> list[ast.FunctionDef]:
        """Functions that Triton compiles, device functions too."""
        return [node for node in self._functions if _is_compiled(node)]

    @cached_property
    def hosts(self) -> list[ast.FunctionDef]:
        """Functions and methods that run in Python.

        Findings and authors' tests are none: any finding counts that breaks the kernel, and the stub's own test does.
        """
        return [one for one in self._functions if not (_is_compiled(one) or one in self.findings or _is_test(one))]

    @cached_property
    def findings(self) -> list[ast.FunctionDef]:
        """Functions that say what breaks the kernel as it was."""
        return [node for node in self._functions if node.name.startswith("breaking_")]

    @cached_property
    def _functions(self) -> list[ast.FunctionDef]:
        bodies = [self.tree.body, *(node.body for node in self.tree.body if isinstance(node, ast.ClassDef))]
        return [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]

    def calls(self, name: str, within: ast.AST | None = None) -> Iterator[ast.Call]:
        """Calls of `tl.name`, `triton.name`, `x.name` in the kernels, or in `within`, in the order of the text."""
        for root in [within] if within is not None else self.kernels:
            for node in in_order(root):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                    yield node


def _is_compiled(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _is_test(function: ast.FunctionDef) -> bool:
    """An author's, which takes nothing; a test that is itself the answer is given what it tests."""
    return function.name.startswith("test_") and not function.args.args


def in_order(root: ast.AST) -> list[ast.AST]:
    """All nodes that have a place, in the order of the text."""
    nodes = [node for node in ast.walk(root) if hasattr(node, "lineno")]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The argument `name=` of a call."""
    return next((one for one in call.keywords if one.arg == name), None)


def names(node: ast.AST) -> list[str]:
    """Names that occur in an expression, in order, each once."""
    return list(dict.fromkeys(one.id for one in in_order(node) if isinstance(one, ast.Name)))


def parameters(function: ast.FunctionDef) -> list[str]:
    """Names of a function's arguments."""
    return [argument.arg for argument in function.args.args]


def runtime_sizes(kernel: ast.FunctionDef) -> list[str]:
    """Arguments of a kernel that are sizes: no pointers, no strides, no numbers such as eps or scale."""
    plain = [argument.arg for argument in kernel.args.args if argument.annotation is None]
    return [name for name in plain if not is_pointer(name) and not is_stride(name) and name not in SCALARS]


def is_pointer(name: str) -> bool:
    return name.endswith("_ptr")


def is_stride(name: str) -> bool:
    return name.startswith("stride")


SCALARS = {"eps": ("1e-5", "1e-6"), "scale": ("0.125", "0.1767766952966369"), "alpha": ("0.5",), "p": ("0.1",)}
SCALARS |= {
    "seed": ("0",),
    "lo": ("0.0",),
    "hi": ("1.0",),
    "c": ("1.0",),
    "x": (),
    "row": (),
    "position": (),
    "slot": (),
}


def pointer_of(address: ast.AST) -> str:
    """The name of the tensor in an address, `` `x_ptr` ``, or the address's first name."""
    found = names(address)
    return f"`{next((name for name in found if is_pointer(name)), found[0] if found else 'memory')}`"


def loaded_floats(kernel: ast.FunctionDef) -> set[str]:
    """Names of a kernel that hold floating-point numbers: what such values flow into by assignment."""
    floats: set[str] = set()
    for _ in range(3):  # loops carry names backwards
        for node in in_order(kernel):
            if isinstance(node, ast.Assign | ast.AugAssign) and _is_float(node.value, floats):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                floats |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {name for name in floats if not is_pointer(name)}


_FLOAT_CALLS = {"dot", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "erf", "rand", "zeros"}
_FLOAT_MARKS = ("tl.float32", "element_ty")


def _is_float(value: ast.AST, floats: set[str]) -> bool:
    if isinstance(value, ast.Compare | ast.BoolOp):
        return False
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd | ast.FloorDiv | ast.Mod):
        return False
    text = ast.unparse(value)
    if any(mark in text for mark in _FLOAT_MARKS) or set(names(value)) & floats:
        return True
    return any(isinstance(n, ast.Attribute) and n.attr in _FLOAT_CALLS for n in ast.walk(value))
