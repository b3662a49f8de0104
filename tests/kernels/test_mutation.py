"""The kernels' tests against mistakes that nobody chose: mutation operators on a family's file, its own tests on each.

A mutant is killed when the family's tests fail.  One that passes is a case that they lack, or stands in `EQUIVALENT`.
Each test takes a part of a family's mutants; `MUTATION_EVERY=1 pytest -m slow` takes all.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_testing import WITHOUT_GPU

import course_kernels
from course_lab.authoring.operators import Generated, generate
from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import COMMUTES, DENSE, IDLE, LAST, PROMOTED, ZERO, idle

PACKAGE = Path(course_kernels.__file__).parent
TESTS = Path(__file__).parent
FAMILIES = {  # a family's name -> its tests
    **{name: name for name in ("vector_add", "softmax", "activations", "dropout", "quant", "rope", "qkv", "kv_cache")},
    **{name: name for name in ("attention", "paged_attention", "mla", "matmul", "linear", "conv2d", "topk")},
    "rms_norm": "norms",
    "layer_norm": "norms",
}
RULES = "tests/kernels/test_style.py"
EVERY = int(os.environ.get("MUTATION_EVERY", "40"))  # of a family's mutants each so manieth
_AGAIN = "each turn computes it anew, and the last one stands"
_NO_KEY = "masked lanes get a key below all others, whatever was loaded"
_NO_TABLES = "values are not turned, and no table is looked at"
_SMALLER_STEPS = "heads are copied bit for bit, in steps of any length"
_FULL = "the interpreter multiplies exactly, whatever it is told; the machine code's tests see it"
EQUIVALENT = {
    "activations": (*idle(), Equivalent("without-float32", r"dy = tl\.load", PROMOTED)),
    "attention": (Equivalent("without-precision", ".", _FULL),),
    "dropout": (*idle(), Equivalent("without-float32", "residual_ptr", PROMOTED)),
    "conv2d": (Equivalent("without-int64", "counts with `q`", DENSE),),  # within a row of y, which is made here
    "linear": (
        Equivalent("into-loop", "does `y` in every turn", _AGAIN),
        Equivalent("without-int64", ".", DENSE),
        Equivalent("other-value", r"weight = tl\.load", ZERO),
        Equivalent("without-float32", r"x = tl\.load", PROMOTED),
    ),
    "matmul": (
        Equivalent("rounds-early", "`acc`", LAST),
        Equivalent("without-int64", r"tl\.arange\(0, BLOCK_M\)", DENSE),  # parts of a product, made here
    ),
    "mla": idle(r"nope_ptr \+ offs_d"),
    "qkv": (
        Equivalent("other-size", "`kv_heads` where `table_rows`", _NO_TABLES),
        Equivalent("lost-operand", "`BLOCK_P`", _SMALLER_STEPS),
    ),
    "quant": (*idle("evict_first"), Equivalent("other-value", "`gate_ptr`", ZERO)),
    "rope": idle(r"(sin|radians) = tl\.load"),
    "softmax": (Equivalent("into-loop", "`row_max`", _AGAIN), Equivalent("rounds-early", "`y`", LAST)),
    "topk": (
        Equivalent("half-mask", "beside `probe < run`", IDLE),
        Equivalent("drop-other", "`x_ptr`", _NO_KEY),
        Equivalent("other-value", r"keys = tl\.load\(keys_ptr \+ offs, mask=mask", IDLE),
    ),
    "vector_add": (
        *idle(),
        Equivalent("without-float32", ".", PROMOTED),
        Equivalent("swapped-loads", "`x_ptr` and `y_ptr`", COMMUTES),
        Equivalent("without-int64", ".", DENSE),
    ),
}


def verdicts(mutants: list[dict[str, str]], tests: list[str], folder: Path, **how: Any) -> list[dict[str, Any]]:
    """What these tests say of each mutant, in a copy of package and tests: its "source", "operator" and "code".

    Interpreted, also where there is a GPU: that reads past the end of a tensor without a word.  `how` goes into the
    runner's request: "workers", "seconds", "map".
    """
    repository = PACKAGE.parent
    for part in (PACKAGE, TESTS):
        shutil.copytree(part, folder / part.relative_to(repository), ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "conftest.py", "tests/conftest.py"):
        shutil.copy(repository / name, folder / name)
    path = os.pathsep.join([str(folder), str(repository), str(repository / "gfxlab")])
    done = subprocess.run(
        [sys.executable, str(folder / "tests/kernels/mutation_runner.py")],
        cwd=folder,
        env=os.environ | WITHOUT_GPU | {"PYTHONPATH": path},
        input=json.dumps({"mutants": mutants, "tests": tests, **how}),
        capture_output=True,
        text=True,
    )
    first, *said = [json.loads(line) for line in done.stdout.splitlines()] or [{}]
    assert first.get("failing") == [] and len(said) == len(mutants), f"{first}\n{done.stderr}"
    return sorted(said, key=lambda one: one["mutant"])


def as_request(source: str, mutant: Generated) -> dict[str, str]:
    return {"source": source, "operator": mutant.operator, "code": mutant.code}


def judged(family: str, every: int) -> list[Generated]:
    """The family's mutants, each `every`-th of those that are not argued to be right."""
    source = (PACKAGE / f"{family}.py").read_text(encoding="utf-8")
    known = EQUIVALENT.get(family, ())
    return [mutant for mutant in list(generate(source))[::every] if not any(one.fits(mutant) for one in known)]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tests_of_a_family_kill_its_mutants(family, tmp_path):
    text, mutants = (PACKAGE / f"{family}.py").read_text(encoding="utf-8"), judged(family, EVERY)
    itself = {"source": family, "operator": "nothing", "code": text}
    asked = [itself, *(as_request(family, mutant) for mutant in mutants)]
    own, *said = verdicts(asked, [f"tests/kernels/test_{FAMILIES[family]}.py", RULES], tmp_path)
    assert own["verdict"] == "survived", "its own file must pass"
    passed = [mutant for mutant, one in zip(mutants, said) if one["verdict"] != "killed"]
    assert not passed, "\n".join(f"{one.operator}, line {one.line}: {one.says}" for one in passed)
