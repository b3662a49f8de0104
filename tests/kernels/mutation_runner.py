"""Run a family's tests on one mutant after the other: python mutation_runner.py FAMILY TESTS TIMES < mutants.

The current folder holds a copy of package and tests.  On standard input is a JSON list of texts, each the family's file
with one mistake.  A line is printed for each: "survived", or "killed" and by which test.

The tests are collected once.  Each mutant has a fork of its own, in which the text is executed in the family's module;
whoever imported an object from there gets the new one.  The first fork runs the family's file as it is: how long each
test takes and which functions it enters is kept in TIMES, a file that later runs read.  A mutant meets the tests that
enter the function with the mistake: first those that killed most for their seconds, then the quickest.  A test that
takes ten times as long as it did counts as failed.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import signal
import sys
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import hypothesis  # noqa: F401 imported before the forks, like the rest
import pytest
import torch
import triton.language
import triton.runtime.interpreter  # noqa: F401

import gfxlab  # noqa: F401

SLOWER, MORE = 10, 5  # so many times its processor time, and as many seconds more, a test may take on a mutant
WAITING = 20  # and so many times that by the clock: a mistake that waits for ever is seen, too
ANYWHERE = ""  # not in the body of a function
PLAIN = (int, str, float, bool, type(None), types.ModuleType)
PLUGINS = ("cacheprovider", "xdist", "randomly", "nbval", "timeout")  # that stay out; nbval takes long to load
OPTIONS = ["-q", "-s", "-m", "(not slow or one_in) and not gpu", "-o", "addopts=", "--hypothesis-seed=0"]
OPTIONS += [word for name in PLUGINS for word in ("-p", f"no:{name}")]


class Family:
    """The file whose mutants are tried, and its module."""

    def __init__(self, name: str) -> None:
        self.module = sys.modules[f"course_kernels.{name}"]
        self.path = Path(self.module.__file__)
        self.text = self.path.read_text(encoding="utf-8")
        self._tree = ast.parse(self.text)
        self.kernels = {_name(node) for node in self._tree.body if "jit" in ast.dump(node)}

    def execute(self, code: str, items: list[pytest.Item]) -> None:
        """Put the new objects of the module in the place of its old ones, wherever these are."""
        old = {name: value for name, value in vars(self.module).items() if not isinstance(value, PLAIN)}
        self.path.write_text(code, encoding="utf-8")
        linecache.cache[str(self.path)] = (len(code), None, code.splitlines(keepends=True), str(self.path))
        exec(compile(code, str(self.path), "exec", dont_inherit=True), vars(self.module))
        new = {id(value): vars(self.module)[name] for name, value in old.items()}
        spaces = [vars(module) for name, module in list(sys.modules.items()) if _may_hold(name)]
        spaces += [item.callspec.params for item in items if hasattr(item, "callspec")]
        for space in spaces:
            space.update({name: new[id(value)] for name, value in list(space.items()) if id(value) in new})

    def statement(self, line: int) -> str:
        """The name of the function or class that this line of the original text belongs to, or `ANYWHERE`."""
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and _first_line(node) <= line <= node.end_lineno:
                return node.name
        return ANYWHERE

    def changed(self, code: str) -> set[str]:
        """The functions in whose bodies `code` is another text; with `ANYWHERE` where it differs elsewhere."""
        old, new = ({_name(node): node for node in tree.body} for tree in (self._tree, ast.parse(code)))
        names = [name for name in old.keys() | new.keys() if _dump(old.get(name)) != _dump(new.get(name))]
        return {name if _differ_in_body(old.get(name), new.get(name)) else ANYWHERE for name in names}


def _may_hold(module: str) -> bool:
    return module.startswith(("course_kernels", "test_", "kernel_testing", "conftest", "tests"))


def _name(node: ast.stmt) -> str:
    return getattr(node, "name", None) or ast.unparse(node)


def _dump(node: ast.stmt | None) -> str:
    return ast.dump(node) if node else ""


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _differ_in_body(old: ast.stmt | None, new: ast.stmt | None) -> bool:
    """A decorator and a default are executed at import, and no test enters them."""
    return isinstance(old, ast.FunctionDef) and isinstance(new, ast.FunctionDef) and _head(old) == _head(new)


def _head(node: ast.FunctionDef) -> str:
    parts = [node.args, *node.decorator_list, *([node.returns] if node.returns else [])]
    return "".join(map(ast.dump, parts))


class Runner:
    """A plugin that runs, in place of the tests, the tests on each of these texts, and tells what comes of it."""

    def __init__(self, name: str, codes: list[str], times: Path, tell: Callable[[str], object]) -> None:
        self._name, self._codes, self._path, self._tell = name, codes, times, tell
        self._killed: Counter[str] = Counter()
        self._progress = os.memfd_create("progress")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session, self._family = session, Family(self._name)
        if not self._path.exists():
            _in_a_fork(self._note_times)
        self._times = json.loads(self._path.read_text(encoding="utf-8"))
        for code in self._codes:
            self._tell(self._verdict(code))
        return True

    def _verdict(self, code: str) -> str:
        changed = self._family.changed(code)
        items = sorted((item for item in self._session.items if self._sees(item, changed)), key=self._rank)
        os.truncate(self._progress, 0)
        if _in_a_fork(self._try, code, items) == 0:
            return "survived"
        reached = os.pread(self._progress, 20, 0)
        if not reached:
            return "killed by its import"
        killer = items[int(reached)].nodeid
        self._killed[killer] += 1
        return f"killed by {killer}"

    def _sees(self, item: pytest.Item, changed: set[str]) -> bool:
        """Whether a test enters what was changed; who enters no kernel may compile one, and sees all."""
        if not changed:
            return True
        entered = set(self._times[item.nodeid]["enters"])
        return ANYWHERE in changed or bool(entered & changed) or not entered & self._family.kernels

    def _rank(self, item: pytest.Item) -> float:
        return -(self._killed[item.nodeid] + 0.05) / (self._times[item.nodeid]["seconds"] + 0.01)

    def _try(self, code: str, items: list[pytest.Item]) -> None:
        """In a fork, which ends at the first test that fails."""
        self._family.execute(code, self._session.items)
        for i, item in enumerate(items):
            os.pwrite(self._progress, f"{i:20}".encode(), 0)
            seconds = SLOWER * self._times[item.nodeid]["seconds"] + MORE
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(int(WAITING * seconds))
            self._run(item, items[i + 1 : i + 2])
            if self._session.testsfailed:
                os._exit(1)

    def _note_times(self) -> None:
        """In a fork: what each test takes and enters, which must all pass."""
        times, items = {}, self._session.items
        self._family.execute(self._family.text, items)
        for i, item in enumerate(items):
            lines: set[int] = set()
            begun = process_time()
            sys.setprofile(_noting(str(self._family.path), lines))
            self._run(item, items[i + 1 : i + 2])
            sys.setprofile(None)
            entered = sorted({self._family.statement(line) for line in lines})
            times[item.nodeid] = {"seconds": round(process_time() - begun, 3), "enters": entered}
        if not self._session.testsfailed:
            self._path.write_text(json.dumps(times, indent=1), encoding="utf-8")

    @staticmethod
    def _run(item: pytest.Item, following: list[pytest.Item]) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following[0] if following else None)


def _noting(path: str, lines: set[int]) -> Callable[[types.FrameType, str, Any], None]:
    def note(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == path:
            lines.add(frame.f_code.co_firstlineno)

    return note


def _in_a_fork(function: Callable, *args: Any) -> int:
    """The status with which a fork that calls `function` ends."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            function(*args)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def main() -> None:
    name, tests, times = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    answers = open(os.dup(1), "w", buffering=1)  # noqa: SIM115 open to the end
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.dont_write_bytecode = True
    codes = json.load(sys.stdin)
    tell = lambda verdict: print(verdict, file=answers)  # noqa: E731
    sys.exit(pytest.main([*OPTIONS, tests], plugins=[Runner(name, codes, times, tell)]))


if __name__ == "__main__":
    main()
