"""The house rules for kernels that a program can check: names, lengths, masks, casts."""

import ast
from pathlib import Path

import pytest

import course_kernels

FOLDER = Path(course_kernels.__file__).parent
CACHE_FUSIONS = {"kv_cache", "mla"}  # they take more tensors by nature


def is_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("triton.jit")


def jit_functions():
    for file in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and any(map(is_jit, node.decorator_list)):
                yield pytest.param(file.stem, node, id=f"{file.stem}.{node.name}")


def calls(function: ast.FunctionDef, name: str) -> list[ast.Call]:
    return [n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]


pytestmark = pytest.mark.parametrize(("family", "function"), list(jit_functions()))


def test_a_kernel_fits_on_a_screen(family, function):
    assert function.end_lineno - function.lineno + 1 <= 40


def test_a_kernel_takes_few_arguments(family, function):
    if function.name.startswith("_"):
        pytest.skip("a helper: its arguments are its kernel's variables")
    counted = [a.arg for a in function.args.args if not a.annotation and not a.arg.startswith("stride_")]
    assert len(counted) <= (16 if family in CACHE_FUSIONS else 12), counted


def test_constants_are_in_capitals(family, function):
    constants = [a.arg for a in function.args.args if a.annotation and ast.unparse(a.annotation) == "tl.constexpr"]
    assert all(name.isupper() for name in constants), constants


def test_every_masked_load_says_what_the_other_lanes_hold(family, function):
    for load in calls(function, "tl.load"):
        keywords = {keyword.arg for keyword in load.keywords}
        assert "mask" not in keywords or "other" in keywords, ast.unparse(load)


def test_every_store_casts_to_the_type_of_its_tensor(family, function):
    """A type written out (`tl.bfloat16`) is wrong for two of the three dtypes."""
    assert not {"tl.bfloat16", "tl.float16"} & {
        ast.unparse(n) for n in ast.walk(function) if isinstance(n, ast.Attribute)
    }


def test_every_kernel_says_what_a_program_does(family, function):
    assert ast.get_docstring(function)
