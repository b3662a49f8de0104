"""Mistakes that a machine makes in the kernels, and what their tests say: python tests/kernels/kernel_mutants.py.

    python tests/kernels/kernel_mutants.py [SOURCE ...] [--workers N] [--every N] [--store]

Mutation operators on every file of the package, its tests on each result.  A mutant is killed when a test fails.  One
that passes is a case that the tests lack, or stands in `kernel_equivalents.py` with the reason why it is no mistake.
`--store` keeps the counts in `mutants.json` and writes the tables of `docs/mutants.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_equivalents import why
from kernel_testing import WITHOUT_GPU

import course_kernels
from course_lab.authoring import generated
from course_lab.authoring.operators import Generated, generate

PACKAGE = Path(course_kernels.__file__).parent
TESTS = Path(__file__).parent
STORED = TESTS / "mutants.json"
SAMPLE = TESTS / "mutation_sample.json"  # some that one test kills quickly, each with that test
PAGE = PACKAGE.parent / "docs/mutants.md"
OTHERS = ("mutation", "amd_code", "amd_entries", "readme")  # tests of machine code, of stored figures, of a text
NOTHING = "nothing"  # the operator that leaves a file as it is


@dataclass(frozen=True)
class Judged:
    """What became of one mutant of one file. by: the test that killed it, or ""; reason: why it is right, or ""."""

    source: str
    mutant: Generated
    by: str
    reason: str = ""

    @property
    def survives(self) -> bool:
        return not self.by and not self.reason

    def __str__(self) -> str:
        line = self.mutant.code.splitlines()[self.mutant.line - 1].strip()
        return f"{self.source}  {self.mutant.operator}  line {self.mutant.line}: {self.mutant.says}  |  {line}"


def sources() -> list[str]:
    """Names of the files that have mutants."""
    files = [path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
    return [".".join(file.parts) for file in files if file.name not in ("__init__", "_call")]


def text(source: str) -> str:
    return (PACKAGE / f"{source.replace('.', '/')}.py").read_text(encoding="utf-8")


def tests() -> list[str]:
    """The files of tests that judge."""
    files = sorted(TESTS.glob("test_*.py"))
    return [f"tests/kernels/{file.name}" for file in files if file.stem.removeprefix("test_") not in OTHERS]


def verdicts(mutants: list[dict[str, str]], tests: list[str], **how: Any) -> list[dict[str, Any]]:
    """What these tests say of each mutant, in a copy of package and tests: its "source", "operator" and "code".

    Interpreted, also where there is a GPU: that reads past the end of a tensor without a word.  `how` goes into the
    runner's request: "workers", "seconds", "map".

    Raises:
        RuntimeError: a test fails on the package as it is, or a mutant got no verdict.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, repository = Path(name), PACKAGE.parent
        for part in (PACKAGE, TESTS):
            shutil.copytree(part, folder / part.relative_to(repository), ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "conftest.py", "tests/conftest.py"):
            shutil.copy(repository / file, folder / file)
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
    if first.get("failing") != [] or len(said) != len(mutants):
        raise RuntimeError(f"{first}; {len(said)} of {len(mutants)} mutants have a verdict\n{done.stderr}")
    return sorted(said, key=lambda one: one["mutant"])


def judge(names: Iterable[str], every: int = 1, **how: Any) -> list[Judged]:
    """Judge each `every`-th mutant of these files.

    Raises:
        RuntimeError: the tests fail on a file as it is, once it is executed as a mutant would be.
    """
    made = [(name, mutant) for name in names for mutant in list(generate(text(name)))[::every]]
    own = [{"source": name, "operator": NOTHING, "code": text(name)} for name in names]
    asked = [{"source": name, "operator": one.operator, "code": one.code} for name, one in made]
    said = verdicts(own + asked, tests(), **how)
    broken = [one["by"] for one in said[: len(own)] if one["verdict"] == "killed"]
    if broken:
        raise RuntimeError(f"these tests fail on a file as it is: {broken}")
    return [
        Judged(name, mutant, one["by"], "" if one["by"] else why(name, mutant, text(name)))
        for (name, mutant), one in zip(made, said[len(own) :])
    ]


def counts(judged: Iterable[Judged]) -> dict[str, dict[str, list[int]]]:
    """File -> operator -> [made, killed, argued to be no mistake]."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in judged:
        row = found.setdefault(one.source, {}).setdefault(one.mutant.operator, [0, 0, 0])
        for i, yes in enumerate((True, one.by, one.reason)):
            row[i] += bool(yes)
    return found


def page(found: dict[str, dict[str, list[int]]]) -> str:
    """The text of docs/mutants.md."""
    judged = sum(made for row in found.values() for made, _, _ in row.values())
    made = sum(len(list(generate(text(name)))) for name in sources())
    return f"{_TEXT}\n{judged:,} of {made:,} mutants were judged.\n\n{generated.table(found, whose='file')}\n"


_TEXT = """\
<!-- Written by `python tests/kernels/kernel_mutants.py --store`. -->
# Mistakes that a machine makes in the kernels

Mutation operators change one thing in a file of `course_kernels`; the kernels' tests run on the result. A mutant is
killed when a test fails. "No mistake" are those that pass and that `tests/kernels/kernel_equivalents.py` argues to be
right, one by one or by a rule that a program applies; "left" are those that pass without a reason, or that had not met
all of their tests after ten seconds of processor time.

A mutant meets the tests that execute a changed statement, in a fork of one process that has collected them all, those
first that most likely kill it for their seconds. `make test-full` judges all of them, `make test` a fixed sample. The
tests are interpreted: what only compiled code shows (launch sizes, hints, the precision of a product) is argued as
such, and is looked at by `tests/kernels/test_amd_code.py`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="*", default=sources())
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    judged = judge(options.sources, options.every, workers=options.workers)
    print(*[one for one in judged if one.survives], sep="\n")
    found = counts(judged)
    if options.store:
        known = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
        STORED.write_text(json.dumps(dict(sorted((known | found).items())), indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(known | found), encoding="utf-8")
    else:
        print(generated.table(found, whose="file"))


if __name__ == "__main__":
    main()
