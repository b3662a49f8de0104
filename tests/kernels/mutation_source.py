"""A file of the package whose mutants are tried: what a mutant changes, and how its objects take their places."""

from __future__ import annotations

import ast
import difflib
import importlib
import linecache
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "course_kernels"
PLAIN = (int, str, float, bool, type(None), types.ModuleType)
HOLDERS = (PACKAGE, "test_", "kernel_testing", "conftest", "tests")  # modules that may hold objects of a source
APPLIED = {"_torch_op", "_remembered", "_first_order", "_stand_in"}  # decorators: their users are executed anew


class Source:
    """One file, by its name inside the package: "softmax", "launch.rows"."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module(f"{PACKAGE}.{name}")
        self.path = Path(self.module.__file__)
        self.text = self.path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self._lines = self.text.splitlines()

    def executed(self, code: str) -> list[tuple[int, int]]:
        """Lines, first and last, of the statements that `code` changes: a test that executes none of one sees nothing.

        An empty list where they are executed at import: a constant, a decorator, a default.
        """
        spans = [self._statement(line) for line in self._changed(code)]
        return [] if any(span is None for span in spans) else sorted(set(spans))

    def statements(self, code: str) -> list[str]:
        """Names of the functions and classes that `code` changes."""
        changed = self._changed(code)
        return [_name(node) for node in self.tree.body if any(_first(node) <= n <= node.end_lineno for n in changed)]

    def names(self) -> list[str]:
        """Of all functions, classes and other statements of the file."""
        return list(dict.fromkeys(map(_name, self.tree.body)))

    def _changed(self, code: str) -> list[int]:
        """Lines of the original that are others in `code`, or before which it has more."""
        blocks = difflib.SequenceMatcher(None, self._lines, code.splitlines(), autojunk=False).get_opcodes()
        parts = [range(a, max(b, a + 1)) for tag, a, b, _, _ in blocks if tag != "equal"]
        return [min(i + 1, len(self._lines)) for part in parts for i in part if self._is_code(i)]

    def _is_code(self, i: int) -> bool:
        return i < len(self._lines) and bool(self._lines[i].strip())

    def _statement(self, line: int) -> tuple[int, int] | None:
        """The smallest statement in a function's body that holds this line; of a loop or a condition, its head."""
        best = None
        for function in ast.walk(self.tree):
            if not isinstance(function, ast.FunctionDef) or not function.body[0].lineno <= line <= function.end_lineno:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.stmt) and node is not function and node.lineno <= line <= node.end_lineno:
                    best = node  # ast.walk goes from the outside in
        if best is None:
            return None
        body = getattr(best, "body", None)
        return (best.lineno, max(best.lineno, body[0].lineno - 1)) if body else (best.lineno, best.end_lineno)

    def is_compiled(self, name: str) -> bool:
        """Whether this is a function that Triton compiles, whose lines nobody executes where it is."""
        nodes = [node for node in self.tree.body if _name(node) == name]
        return any("jit" in ast.unparse(d) for node in nodes for d in getattr(node, "decorator_list", []))

    def execute(self, code: str, path: Path, items: list[pytest.Item]) -> None:
        """Put the objects of the module as `code` makes them in the place of its old ones, wherever these are.

        path: a file that is to hold `code`, for those who look its lines up.
        """
        _anew(self.module, code, path, items)
        for module in _users(self.name) if self.name in APPLIED else ():
            _anew(module, Path(module.__file__).read_text(encoding="utf-8"), Path(module.__file__), items)
        functions = {_name(node): node for node in ast.parse(code).body}
        for item in items:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            if params.get("family") == self.name and isinstance(params.get("function"), ast.FunctionDef):
                params["function"] = functions.get(params["function"].name, params["function"])  # a rule of style


def _anew(module: types.ModuleType, code: str, path: Path, items: list[pytest.Item]) -> None:
    old = {name: value for name, value in vars(module).items() if not isinstance(value, PLAIN)}
    if path != Path(module.__file__):
        path.write_text(code, encoding="utf-8")
    linecache.cache[str(path)] = (len(code), None, code.splitlines(keepends=True), str(path))
    exec(compile(code, str(path), "exec", dont_inherit=True), vars(module))
    new = {id(value): vars(module)[name] for name, value in old.items() if value is not vars(module)[name]}
    spaces = [vars(one) for name, one in list(sys.modules.items()) if name.startswith(HOLDERS)]
    spaces += [item.callspec.params for item in items if hasattr(item, "callspec")]
    for space in spaces:
        space.update({name: new[id(value)] for name, value in list(space.items()) if id(value) in new})


def _users(name: str) -> list[types.ModuleType]:
    """Modules of the package that hold an object of this one, in the order in which they were imported."""
    decorators = {id(value) for value in vars(sys.modules[f"{PACKAGE}.{name}"]).values() if callable(value)}
    modules = [one for key, one in sys.modules.items() if key.startswith(f"{PACKAGE}.") and not key.endswith(name)]
    return [one for one in modules if decorators & {id(value) for value in vars(one).values()} and _is_plain(one)]


def _is_plain(module: types.ModuleType) -> bool:
    return Path(module.__file__).name not in ("__init__.py", "_call.py", "backend.py")


def _name(node: ast.stmt) -> str:
    return getattr(node, "name", None) or ast.unparse(node)


def _first(node: Any) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
