"""A learner's answer as text: cleaned, compared with the stub, parsed, executed so that its lines can be shown."""

from __future__ import annotations

import ast
import io
import linecache
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from course_lab.authoring import parsing
from course_lab.check.protocol import OwnKernel

GIVEN = {"torch": torch, "triton": triton, "tl": tl, "math": math}


def filename(number: str) -> str:
    """The name under which an answer's lines appear in tracebacks."""
    return f"<exercise {number}>"


@dataclass(frozen=True)
class SyntaxProblem:
    """Where Python stops understanding the answer. column counts from 0."""

    message: str
    line: int
    column: int
    text: str


def parse(code: str) -> ast.Module | SyntaxProblem:
    """The syntax tree of code without its magic line, or where and why there is none."""
    try:
        return parsing.parse(code)
    except SyntaxError as error:
        text = (error.text or "").rstrip("\n")
        return SyntaxProblem(error.msg, error.lineno or 1, max((error.offset or 1) - 1, 0), text)
    except (RecursionError, MemoryError):
        return SyntaxProblem("it is nested too deeply", 1, 0, "")
    except ValueError as error:  # a null byte, half a character
        return SyntaxProblem(str(error), 1, 0, "")


def _kernel_nodes(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions that are decorated with triton.jit (bare, called, or imported as jit)."""

    def is_jit(node: ast.expr) -> bool:
        node = node.func if isinstance(node, ast.Call) else node
        return "jit" in (getattr(node, "attr", None), getattr(node, "id", None))

    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [function for function in functions if any(is_jit(decorator) for decorator in function.decorator_list)]


def kernels(tree: ast.Module) -> list[str]:
    """Names of the answer's kernels."""
    return [node.name for node in _kernel_nodes(tree)]


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """The calls of `tl.name` (or of a function imported under that name)."""
    every = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in every if name in (getattr(call.func, "attr", None), getattr(call.func, "id", None))]


def taken_first(tree: ast.Module) -> ast.BinOp | None:
    """The first `&` or `|` that a comparison was meant to be part of: in `rows < M & cols < N` it is `M & cols`."""
    for node in ast.walk(tree):
        for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.BitAnd | ast.BitOr):
                continue
            if len(node.ops) > 1 or isinstance(side.left, ast.Compare) != isinstance(side.right, ast.Compare):
                return side
    return None


def is_masked(tree: ast.Module, line: int) -> bool:
    """Whether the load or store in this line is given a mask."""
    for name, places in (("load", 1), ("store", 2)):
        for call in calls(tree, name):
            if call.lineno <= line <= (call.end_lineno or line):
                return len(call.args) > places or any(keyword.arg == "mask" for keyword in call.keywords)
    return False


def program_axes(tree: ast.Module) -> set[str]:
    """The axes of the grid that the kernels ask about, as they are written."""
    found = calls(tree, "program_id")
    return {ast.dump(argument) for call in found for argument in (*call.args, *(k.value for k in call.keywords))}


def splits_program(tree: ast.Module) -> bool:
    """Whether a kernel makes two numbers or more of one program's, by // and %."""
    for kernel in _kernel_nodes(tree):
        numbers = {
            node.targets[0].id
            for node in ast.walk(kernel)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and calls(node.value, "program_id")
        }
        parts = [node for node in ast.walk(kernel) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
        for part in parts:
            if (
                calls(part.left, "program_id")
                or {n.id for n in ast.walk(part.left) if isinstance(n, ast.Name)} & numbers
            ):
                return True
    return False


def loaded_and_stored(tree: ast.Module) -> list[str]:
    """Pointer arguments that one kernel both loads from and stores to."""
    found = []
    for kernel in _kernel_nodes(tree):
        arguments = [argument.arg for argument in kernel.args.args]
        loaded, stored = ({name for call in calls(kernel, way) for name in _names(call)} for way in ("load", "store"))
        found += [name for name in arguments if name in loaded & stored and name.endswith("_ptr")]
    return found


def _names(call: ast.Call) -> set[str]:
    """The names in the first argument of a call: the pointer and its offsets."""
    return {node.id for node in ast.walk(call.args[0]) if isinstance(node, ast.Name)} if call.args else set()


def has_loop(tree: ast.Module) -> bool:
    """Whether there is any loop."""
    return any(isinstance(node, (ast.For, ast.While, ast.comprehension)) for node in ast.walk(tree))


def in_loop(tree: ast.Module, line: int) -> bool:
    """Whether this line stands in the body of a loop."""
    loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While)))
    return any(node.lineno < line <= node.end_lineno for node in loops)


def names(tree: ast.Module, *wanted: str) -> bool:
    """Whether one of these names or attributes occurs."""
    found = (getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(tree))
    return any(name in wanted for name in found)


def integers(tree: ast.AST) -> dict[int, int]:
    """Every integer above 2 that is written in the code, with the line of its first occurrence."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 2:
            found[node.value] = min(found.get(node.value, node.lineno), node.lineno)
    return found


def tile_names(tree: ast.AST) -> set[str]:
    """Names that stand for the length of a tile: in `tl.arange`, as the step of a range, as the divisor of `cdiv`,
    as the factor of a program's number.

    So do a kernel's parameters that are called so by custom, which no other use may tell: `GROUP_M` tiles to a band.
    """
    used = {node.id for part in _tile_lengths(tree) for node in ast.walk(part) if isinstance(node, ast.Name)}
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return used | {name for name in parameters if re.match(r"(BLOCK|GROUP|TILE)(_|$)", name)}


def tile_lengths(tree: ast.AST) -> set[int]:
    """Integers that are the length of a tile, as themselves or under a name, and the options of a launch."""
    parts, wanted = list(_tile_lengths(tree)), tile_names(tree) | {"num_warps", "num_stages"}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in wanted:
            parts.append(node.value)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id in wanted for target in targets):
                parts.append(node.value)
    return {value for part in parts for value in integers(part)}


def _tile_lengths(tree: ast.AST) -> Iterator[ast.expr]:
    for product in (node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        for one, other in ((product.left, product.right), (product.right, product.left)):
            if any(calls(one, "program_id")):
                yield other
    for call in calls(tree, "arange"):
        yield from call.args
    for call in calls(tree, "cdiv"):
        yield from call.args[1:]
    for name in ("range", "static_range"):
        for call in calls(tree, name):
            yield from call.args[2:]


def execute(number: str, code: str, given: dict[str, Any] | None = None) -> dict:
    """Run an answer's code, without its magic line, in a new module of its own, and return that module's names.

    The given names (torch, triton, tl, math, and `given`) are among them.
    """
    return execute_module(f"exercise_{number.replace('.', '_')}", code, GIVEN | (given or {}), filename(number))


def execute_module(
    name: str, code: str, given: dict[str, Any] | None = None, filename: str = "<the exercise's own>"
) -> dict:
    """Run code in a new module and return that module's names, `given` among them.

    The code is registered so that `inspect.getsource`, which Triton needs, and tracebacks find its lines.
    """
    lines = io.StringIO(code, newline=None).readlines()  # as Python ends them: a form feed ends none
    linecache.cache[filename] = (len(code), None, lines, filename)
    module = types.ModuleType(name)
    sys.modules[name] = module
    namespace = vars(module)
    namespace.update(given or {})
    exec(compile(code, filename, "exec", dont_inherit=True), namespace)
    return namespace


class KernelGiver:
    """The `my_kernel` of an answer that builds on these. taken: the code of each kernel that was asked for."""

    def __init__(self, kernels: Iterable[OwnKernel]) -> None:
        self._known = {kernel.number: kernel for kernel in kernels}
        self.taken: dict[str, OwnKernel] = {}

    def __call__(self, number: str) -> Callable:
        if number not in self._known:
            raise KeyError(f"my_kernel({number!r}): this exercise offers {', '.join(self._known)}")
        own = self.taken[number] = self._known[number]
        return execute(own.number, own.code)[own.entry]
