"""What an answer reaches for besides PyTorch and Triton, read from its text; it is never run for this.

The evidence of a check (who wrote which element, what was launched) is made in the process in which the answer runs.
Code that leaves the exercise's own tools, such as `ctypes` or the instruments themselves, could falsify that evidence;
its numbers are still compared outside.  So a right answer that reaches further is held until the instructor has looked.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from functools import cache

import numpy
import torch
import triton

from course_lab.authoring import parsing

_IMPORTS = {
    "torch", "torch.nn", "torch.nn.functional", "triton", "triton.language", "triton.language.extra",
    "triton.language.extra.libdevice", "triton.language.math", "math", "cmath", "typing", "functools", "itertools",
    "dataclasses", "collections", "collections.abc", "enum", "operator", "numbers", "fractions", "decimal",
    "statistics", "torch.testing", "torch.autograd",
    "torch.autograd.function", "torch.library", "contextlib", "__future__", "string", "textwrap", "numpy", "pytest",
}  # fmt: skip
_CALLS = {
    "eval", "exec", "compile", "open", "globals", "locals", "vars", "__import__", "delattr", "breakpoint",
    "input", "memoryview", "__builtins__", "__loader__", "__spec__",
}  # fmt: skip
_DUNDERS = {"__name__", "__doc__", "__init__", "__post_init__", "__call__", "__len__", "__getitem__", "__version__"}
_ATTRIBUTES = {
    "data_ptr", "untyped_storage", "storage", "_typed_storage", "set_", "as_strided", "as_strided_", "from_file",
    "f_globals", "f_back", "f_locals", "gi_frame", "tb_frame", "cr_frame", "load_library", "load_inline", "ctypeslib",
    "ctypes", "os", "sys", "gc", "builtins", "inspect", "importlib", "subprocess", "modules",
}  # fmt: skip
_MOST = 6


def reaches(code: str) -> tuple[str, ...]:
    """Sentences on what the answer reaches for, at most six; () for an answer that stays with its tools.

    code: without its magic line, or with an empty line in its place.
    """
    try:
        tree = parsing.parse(code)
    except (SyntaxError, ValueError):
        return ()
    except (RecursionError, MemoryError):
        return ("It is nested too deeply to be read.",)
    return tuple(dict.fromkeys(_seen(tree)))[:_MOST]


def _seen(tree: ast.Module) -> Iterator[str]:
    names = _modules(tree)
    owners = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            yield from (f"Line {line} imports {a.name}." for a in node.names if a.name not in _IMPORTS)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported(node, line)
        elif isinstance(node, ast.Name) and (node.id in _CALLS or _is_dunder(node.id)):
            yield f"Line {line} uses {node.id}."
        elif isinstance(node, ast.Name) and node.id in ("getattr", "setattr") and id(node) not in called:
            yield f"Line {line} hands on {node.id}."
        elif isinstance(node, ast.Name) and node.id in names and id(node) not in owners:
            yield f"Line {line} hands on the module {names[node.id]}."
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            yield from _looked_up(node, names, line)
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node, names, line)


def _looked_up(node: ast.Call, names: dict[str, str], line: int) -> Iterator[str]:
    """`getattr` and `setattr`: of what, and under which name."""
    plain = len(node.args) > 1 and _is_plain(node.args[1])
    if node.func.id == "getattr":
        if not plain:
            yield f"Line {line} looks up an attribute by a name that is computed."
    elif not node.args or _path(node.args[0], names) is not None or _is_special(node.args):
        yield f"Line {line} changes an attribute by setattr."


def _is_special(arguments: list[ast.expr]) -> bool:
    """Whether the name is one of Python's own, or a starred list that may hold one."""
    if any(isinstance(one, ast.Starred) for one in arguments):
        return True
    return len(arguments) > 1 and isinstance(arguments[1], ast.Constant) and not _is_plain(arguments[1])


def _imported(node: ast.ImportFrom, line: int) -> Iterator[str]:
    module = node.module or "."
    if node.level or module not in _IMPORTS:
        yield f"Line {line} imports from {module}."
        return
    for alias in node.names:
        if f"{module}.{alias.name}" not in _IMPORTS and _is_closed_module(module, alias.name):
            yield f"Line {line} imports {module}.{alias.name}."
        elif alias.name == "*" or _is_dunder(alias.name) and module != "__future__":
            yield f"Line {line} imports {alias.name} from {module}."


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_dunder(node.value)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _DUNDERS


def _attribute(node: ast.Attribute, names: dict[str, str], line: int) -> Iterator[str]:
    path = _path(node, names)
    if path is not None and path in _IMPORTS:
        return
    if _is_dunder(node.attr):
        yield f"Line {line} uses {node.attr}."
    elif path is not None and not isinstance(node.ctx, ast.Load):
        yield f"Line {line} changes {path}."
    elif path is not None and _is_closed_module(*path.rpartition(".")[::2]):
        yield f"Line {line} uses the module {path}."
    elif path is not None and path.startswith(("tl.", "triton.language.")):
        return
    elif node.attr in _ATTRIBUTES:
        yield f"Line {line} uses {node.attr}."


def _modules(tree: ast.Module) -> dict[str, str]:
    """What a name stands for, where it stands for a module."""
    names = {"torch": "torch", "triton": "triton", "tl": "triton.language", "math": "math"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            paths = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name: path for name, path in paths.items() if path in _IMPORTS}
    return names


def _path(node: ast.expr, names: dict[str, str]) -> str | None:
    """The dotted path of a chain of attributes that begins with a module's name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


@cache
def _is_closed_module(owner: str, name: str) -> bool:
    """Whether `owner.name` is a module that an answer has no business in; an unknown one is none."""
    found: object = {"torch": torch, "triton": triton, "numpy": numpy}.get(owner.partition(".")[0])
    for part in (*owner.split(".")[1:], name) if found is not None else ():
        found = getattr(found, part, None)
    return isinstance(found, types.ModuleType) and f"{owner}.{name}" not in _IMPORTS
