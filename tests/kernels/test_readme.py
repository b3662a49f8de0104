"""What course_kernels/README.md says: every family is in its table, the example runs, a family can be lifted out."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_testing import TOLERANCE, assert_close

import course_kernels

FOLDER = Path(course_kernels.__file__).parent
README = (FOLDER / "README.md").read_text()
TABLE = dict(re.findall(r"^\| \[`\w+\.py`\]\((\w+)\.py\) \| (.*?) \|", README, flags=re.MULTILINE))
ABOUT_THE_PACKAGE = {"current_backend", "info", "modules", "set_backend", "use_backend"}


def python_blocks():
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_table_names_every_function_where_it_is():
    listed = {name: file for file, functions in TABLE.items() for name in re.findall(r"`(\w+)`", functions)}
    assert set(listed) == set(course_kernels.__all__) - ABOUT_THE_PACKAGE
    for name, file in listed.items():
        assert getattr(course_kernels, name).__module__ == f"course_kernels.{file}"


def test_every_file_is_mentioned():
    shared = {"__init__.py", "_column_sum.py", "_stand_in.py", "_tile_order.py"}  # pieces of those that are
    assert {file.name for file in FOLDER.glob("*.py")} - shared <= set(re.findall(r"\((\w+\.py)\)", README))


def test_the_example_runs(device):
    example = python_blocks()[0].replace('"cuda"', f'"{device}"')
    names = {}
    exec(example, names)
    assert_close(names["y"], names["expected"], TOLERANCE[torch.bfloat16])


def imports(file: Path) -> set[str]:
    """The files and folders beside a file that it imports, and those that these import."""
    found = {file.stem}
    if not file.exists():
        return found  # a folder: launch/ imports nothing from outside
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module != "backend":
            for name in [node.module] if node.module else [alias.name for alias in node.names]:
                found |= imports(FOLDER / f"{name}.py")
    return found


def copy_beside(source: Path, package: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, package / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source.with_suffix(".py"), package)


@pytest.fixture(scope="module")
def lifted(tmp_path_factory):
    """A folder with a package for each family, made as the page says; run on the CPU, they take every tensor."""
    folder = tmp_path_factory.mktemp("lifted")
    uses_triton = python_blocks()[1] if torch.cuda.is_available() else "def uses_triton(x):\n    return True\n"
    for family in TABLE:
        package = folder / f"my_{family}"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "backend.py").write_text(uses_triton)
        for name in imports(FOLDER / f"{family}.py"):
            copy_beside(FOLDER / name, package)
    return folder


@pytest.mark.parametrize("name", sorted(set(course_kernels.__all__) - ABOUT_THE_PACKAGE))
def test_a_docstring_says_what_goes_in_comes_out_and_is_refused(name):
    text = getattr(course_kernels, name).__doc__
    assert text.index("Args:") < text.index("Returns:") < text.index("Raises:")
    parameters = inspect.signature(getattr(course_kernels, name)).parameters
    described = re.findall(r"^        (\w+(?:, \w+)*):", text, flags=re.MULTILINE)
    assert set(parameters) <= {one for names in described for one in names.split(", ")}


USES = """
import sys
from importlib import import_module
import torch
device = sys.argv[1]
x, cos, sin = torch.randn(4, 8, device=device), torch.ones(4, 2, device=device), torch.zeros(4, 2, device=device)
for family, use in {
    "vector_add": lambda m: (m.vector_add(x, x), 2 * x),
    "softmax": lambda m: (m.softmax(x), x.softmax(-1)),
    "rms_norm": lambda m: (m.rms_norm(x, torch.ones(8, device=device)), torch.rms_norm(x, (8,), None, 1e-6)),
    "rope": lambda m: (m.rope(x.view(4, 2, 4), cos, sin, layout="thd").view(4, 8), x),
    "matmul": lambda m: (m.matmul(x, x.t(), activation="relu"), (x @ x.t()).relu()),
}.items():
    torch.testing.assert_close(*use(import_module(f"my_{family}.{family}")), atol=1e-5, rtol=1e-5)
for family in sys.argv[2:]:
    import_module(f"my_{family}.{family}")
print(sorted(name for name in sys.modules if name.startswith("course_")))
"""


def test_families_lifted_out_work_alone(lifted, device):
    environment = {**os.environ, "PYTHONPATH": ":".join([str(lifted), *filter(None, sys.path)])}
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", USES, device, *TABLE]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=lifted)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"
