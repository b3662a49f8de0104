"""Run a family's tests on one mutant after the other: python mutation_runner.py FOLDER FAMILY TESTS EVERY < mutants.

FOLDER holds a copy of package and tests. On standard input is a JSON list of texts, each the family's file with one
mistake. A line is printed for each: "killed" or "survived". PyTorch, Triton, pytest and the instruments are imported
once; each mutant has a fork of its own, which first runs each EVERY-th test and, where these pass, the others. The
plugin for notebooks stays out: it takes longer to load than most mutants to fail.
"""

import json
import os
import sys
from pathlib import Path

import hypothesis  # noqa: F401 imported before the forks, like the rest
import pytest
import torch  # noqa: F401
import triton.language
import triton.runtime.interpreter  # noqa: F401

import gfxlab  # noqa: F401

SECONDS = 300  # an endless loop is a mistake that was seen, too
KILLED, SURVIVED = 1, 0


class Part:
    """Of the collected tests each `every`-th, or the others."""

    def __init__(self, every: int, others: bool) -> None:
        self.every, self.others = every, others

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for i, item in enumerate(items) if (i % self.every > 0) == self.others]


def verdict(folder: Path, tests: str, every: int) -> int:
    """What this process, a fork, finds out about the file as it stands."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(folder)
    sys.path[:0] = [str(folder)]
    options = [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:randomly",
        "-p",
        "no:nbval",
        "-m",
        "(not slow or one_in) and not gpu",
    ]
    for others in (False, True):
        code = pytest.main([*options, "-o", "addopts=", tests], plugins=[Part(every, others)])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return KILLED
    return SURVIVED


def judge(folder: Path, tests: str, every: int) -> str:
    """The verdict of a fork of its own."""
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(SECONDS)
        os._exit(verdict(folder, tests, every))
    return "survived" if os.waitpid(child, 0)[1] == SURVIVED else "killed"


def main() -> None:
    folder, family, tests, every = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    sys.dont_write_bytecode = True  # two mutants may have one length and be written in one second
    for code in json.load(sys.stdin):
        (folder / "course_kernels" / f"{family}.py").write_text(code, encoding="utf-8")
        print(judge(folder, tests, every), flush=True)


if __name__ == "__main__":
    main()
