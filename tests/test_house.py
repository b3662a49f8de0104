"""The rules of the house: which way imports go, and what a name may stand for (see CONTRIBUTING.md, "The house")."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("gfxlab", "course_kernels", "course_lab", "course_lessons")  # from the bottom up
KERNELS_BY_CONTRACT = "course_kernels"  # `course_kernels.softmax` is the function, in the module softmax.py


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    paths = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    return {name_of(path): path for path in paths}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def floor(module: str) -> str:
    return module.partition(".")[0]


@cache
def imports(module: str) -> frozenset[str]:
    """What it imports of ours, at the top, inside functions and for type checkers alike."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & modules().keys()
            if not below <= modules().keys():  # a name of the package itself
                found.add(node.module)
    return frozenset(name for name in found if floor(name) in FLOORS)


@cache
def strangers(module: str) -> tuple[str, ...]:
    """Names with an underscore that it takes from another module: `from a import _b`, and `a._b`."""
    aliases, found = {}, []
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and floor(node.module or "") in FLOORS:
            found += [f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name)]
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and isinstance(node.value, ast.Name):
            owner = aliases.get(node.value.id)
            found += [f"{owner}.{node.attr}"] if owner in modules() else []
    return tuple(found)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_the_modules_are_found():
    assert len(modules()) > 200 and {floor(name) for name in modules()} == set(FLOORS)
    assert "gfxlab.engine.hooks" in imports("gfxlab.tracing.recording")


def test_no_import_goes_up():
    up = [
        f"{module} imports {other}"
        for module in modules()
        for other in imports(module)
        if FLOORS.index(floor(other)) > FLOORS.index(floor(module))
    ]
    assert not up


def test_no_import_leads_back_to_where_it_began():
    """An import inside a function hides a circle, it does not cut it."""
    graph = {module: {other for other in imports(module) if other in modules()} - {module} for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(reversed(circle.args[1])))


def test_a_private_name_stays_in_its_module():
    assert not [f"{module} uses {name}" for module in modules() for name in strangers(module)]


def is_shown(module: str) -> bool:
    return module.rpartition(".")[2] in ("lesson", "exercises")


def functions(module: str) -> set[str]:
    return {node.name for node in tree(module).body if isinstance(node, ast.FunctionDef)}


def test_no_function_has_the_name_of_its_module():
    named = [m for m in modules() if m.rpartition(".")[2] in functions(m) and floor(m) != KERNELS_BY_CONTRACT]
    assert not named


def test_no_package_hides_a_module_of_its_own_behind_a_function():
    hidden = []
    for package, path in modules().items():
        if path.name == "__init__.py" and floor(package) != KERNELS_BY_CONTRACT:
            froms = [node for node in tree(package).body if isinstance(node, ast.ImportFrom)]
            names = {alias.asname or alias.name: node.module for node in froms for alias in node.names}
            hidden += [
                f"{package}.{n}" for n, home in names.items() if f"{package}.{n}" in modules() and home != package
            ]
    assert not hidden


def test_facts_of_an_architecture_are_asked_of_hardware():
    """Kernels' own launch/ can be lifted out and has the one exception; what a lesson shows stands for itself."""
    asks = re.compile(r"""startswith\(\(?["']gfx(?!lab)""")
    guilty = {name for name, path in modules().items() if asks.search(path.read_text()) and not is_shown(name)}
    assert guilty == {"gfxlab.hardware", "course_kernels.launch.gpu"}


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by it, from wherever they lie."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert not [name for name in set(names) if names.count(name) > 1]
