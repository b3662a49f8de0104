"""Try many mutants of the package on its tests: python mutation_runner.py < request.

The current folder holds a copy of package and tests.  The request is JSON:

    {"tests": [...], "mutants": [{"source": "softmax", "operator": "drop-mask", "code": ...}, ...],
     "workers": 1, "seconds": null, "map": null}

The answer is a line of JSON for each mutant, in the order in which they are done: its number, "killed", "survived" or
"open", the killer, how many tests were tried, and the signal that ended it (too slow, too large).  "open" means that
tests were left when `seconds` of processor time were over.  A line before these names the tests that fail as things
are, which are left out.

The tests are collected once.  Workers are forks of that one process.  First they run every test on the package as it
is, each source executed anew as a mutant's would be, and note how long it takes and which lines it executes (kept in
the file `map`, where one is named).  Then each mutant has a fork of its own, in which its text is executed in its
module; whoever imported an object from there gets the new one.  It meets the tests that execute a changed statement,
those first that most likely kill it for their seconds, and ends with the first that fails.  A test that takes many
times as long as it did counts as failed.  A test kills a mutant only if it fails on it alone as well.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import hypothesis  # noqa: F401 imported before the forks, like the rest
import pytest
import torch
import triton.language
import triton.runtime.interpreter  # noqa: F401
from mutation_map import Tracer, executes, packed, paths, unpacked
from mutation_order import Experience
from mutation_source import PACKAGE, Source

import course_kernels
import gfxlab  # noqa: F401

SLOWER, MORE = 4, 3  # so many times its processor time, and as many seconds more, a test may take on a mutant
WAITING = 30  # and so many times that by the clock: a mistake that waits for ever is seen, too
LONGEST = 120  # seconds of processor time that a test may take as things are
TOGETHER = 12  # tests that a worker runs at a time when it notes lines
COMPILED = ("test_amd_", "test_compile")  # files whose tests execute no line of a kernel and see it all the same
PLUGINS = ("cacheprovider", "xdist", "randomly", "nbval", "timeout")  # that stay out; nbval takes long to load
OPTIONS = ["-q", "-s", "-m", "(not slow or one_in) and not gpu", "-o", "addopts=", "--hypothesis-seed=0"]
OPTIONS += [word for name in PLUGINS for word in ("-p", f"no:{name}")]
SURVIVED, KILLED, OPEN = range(3)


class Runner:
    """A plugin that runs, in place of the tests, the tests on each mutant, and tells what comes of it."""

    def __init__(self, request: dict[str, Any], tell: Callable[[dict], None]) -> None:
        self._mutants, self._workers = request["mutants"], request.get("workers") or 1
        self._seconds, self._map = request.get("seconds"), request.get("map")
        self._tell = tell

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session, self._items = session, session.items
        self._sources = {name: Source(name) for name in sorted({one["source"] for one in self._mutants})}
        gc.collect()
        gc.freeze()  # what is collected stays in memory that the forks share
        torch.set_num_threads(1)
        known = self._known()
        self._tell({"failing": [item.nodeid for item in self._items if item.nodeid not in known]})
        self._items = [item for item in self._items if item.nodeid in known]
        self._cost = [known[item.nodeid]["seconds"] for item in self._items]
        self._lines = [unpacked(known[item.nodeid]["lines"]) for item in self._items]
        functions = [f"{name}.{one}" for name, source in self._sources.items() for one in source.names()]
        operators = {one["operator"] for one in self._mutants}
        self._experience = Experience([*functions, *operators], self._cost)
        self._share(self._mutants, self._judge)
        return True

    def _share(self, jobs: list, work: Callable[[Any, int, Path], None]) -> None:
        """Let the workers do these jobs, each of which gets the job, its number, and a folder of the worker's own."""
        queue = os.memfd_create("queue")
        os.write(queue, b"".join(i.to_bytes(8, "little") for i in range(len(jobs))))
        os.lseek(queue, 0, os.SEEK_SET)  # the forks share the place up to which it is read
        forks = [_fork(self._work, queue, jobs, work, Path.cwd() / f"worker{i}") for i in range(self._workers)]
        for fork in forks:
            os.waitpid(fork, 0)
        os.close(queue)

    def _work(self, queue: int, jobs: list, work: Callable, folder: Path) -> None:
        shutil.copytree(Path(course_kernels.__file__).parent, folder / PACKAGE, dirs_exist_ok=True)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        while number := os.read(queue, 8):
            i = int.from_bytes(number, "little")
            work(jobs[i], i, folder)

    # The map

    def _known(self) -> dict[str, dict]:
        """Seconds and lines of each test that passes."""
        path = Path(self._map or "map.jsonl").absolute()
        known = _read(path)
        unknown = [item for item in self._items if item.nodeid not in known]
        parts = [unknown[i : i + TOGETHER] for i in range(0, len(unknown), TOGETHER)]
        notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._share(parts, lambda part, number, folder: os.waitpid(_fork(self._note, part, notes), 0))
        os.close(notes)
        return _read(path)

    def _note(self, part: list[pytest.Item], notes: int) -> None:
        """In a fork: run these tests one after the other."""
        for source in self._sources.values():
            source.execute(source.text, source.path, self._items)
        tracer = Tracer(paths(Path(course_kernels.__file__).parent))
        for i, item in enumerate(part):
            failed = self._session.testsfailed
            _limit(LONGEST)
            seconds, lines = tracer.around(lambda item=item, i=i: _run(item, part[i + 1 : i + 2]))
            if self._session.testsfailed == failed:
                row = {item.nodeid: {"seconds": round(seconds, 3), "lines": packed(lines)}}
                os.write(notes, (json.dumps(row) + "\n").encode())

    # The mutants

    def _judge(self, mutant: dict[str, str], number: int, folder: Path) -> None:
        source = self._sources[mutant["source"]]
        kinds = [mutant["operator"], *(f"{source.name}.{name}" for name in source.statements(mutant["code"])[:1])]
        tests = self._experience.ranked(self._who_sees(source, mutant["code"]), kinds)
        of = len(tests)
        verdict, tried, ended = self._trial(source, mutant["code"], folder, tests)
        seconds, count = ended["seconds"], len(tried)
        while verdict == KILLED and len(tried) > 1:  # it may have failed because of what ran before it
            alone, _, again = self._trial(source, mutant["code"], folder, tried[-1:])
            seconds += again["seconds"]
            if alone == KILLED:
                break
            tests = tests[len(tried) :]
            verdict, tried, ended = self._trial(source, mutant["code"], folder, tests)
            seconds, count = seconds + ended["seconds"], count + len(tried)
        killer = tried[-1] if tried and verdict == KILLED else None
        self._experience.learn(tried, killer, kinds)
        self._tell(
            {
                "mutant": number,
                "verdict": ("survived", "killed", "open")[verdict],
                "by": self._items[killer].nodeid if killer is not None else "its import" * (verdict == KILLED),
                "tried": count,
                "of": of,
                "signal": ended["signal"],
                "seconds": round(seconds, 2),
            }
        )

    def _trial(self, source: Source, code: str, folder: Path, tests: list[int]) -> tuple[int, list[int], dict]:
        """Try these tests in a fork: the verdict, those that were tried, and how the fork ended."""
        progress = os.memfd_create("progress")
        fork = _fork(self._try, source, code, folder, tests, progress)
        _, status, used = os.wait4(fork, 0)
        reached = os.pread(progress, 20, 0)
        os.close(progress)
        verdict = os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else KILLED
        signal_ = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        tried = tests[: int(reached) + 1] if reached else []
        return verdict, tried, {"seconds": used.ru_utime + used.ru_stime, "signal": signal_}

    def _who_sees(self, source: Source, code: str) -> list[int]:
        """Numbers of the tests that execute what was changed, or compile it, or look at its text."""
        spans, names = source.executed(code), source.statements(code)
        compiled = any(map(source.is_compiled, names))
        return [
            i
            for i, (item, lines) in enumerate(zip(self._items, self._lines))
            if (executes(lines, source.name, spans) if spans else source.name in lines)
            or (compiled and source.name in lines and item.path.name.startswith(COMPILED))
            or (hasattr(item, "callspec") and _looks_at(item.callspec.params, source.name, names))
        ]

    def _try(self, source: Source, code: str, folder: Path, tests: list[int], progress: int) -> None:
        """In a fork, which ends at the first test that fails."""
        _limit(MORE)
        with contextlib.suppress(OSError):  # where memory runs out, this process ends and no other
            Path("/proc/self/oom_score_adj").write_text("1000")
        path = folder / source.path.relative_to(Path(course_kernels.__file__).parents[1])
        source.execute(code, path, self._items)
        items = [self._items[number] for number in tests]
        for i, number in enumerate(tests):
            if self._seconds and process_time() > self._seconds:
                os._exit(OPEN)
            os.pwrite(progress, f"{i:20}".encode(), 0)
            _limit(SLOWER * self._cost[number] + MORE)
            _run(items[i], items[i + 1 : i + 2])
            if self._session.testsfailed:
                os._exit(KILLED)
        os._exit(SURVIVED)


def _read(path: Path) -> dict[str, dict]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: found for line in lines for name, found in json.loads(line).items()}


def _limit(seconds: float) -> None:
    """End this process after so much more processor time, or much more by the clock."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(int(WAITING * seconds))


def _run(item: pytest.Item, following: list[pytest.Item]) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following[0] if following else None)


def _looks_at(params: dict[str, Any], family: str, names: list[str]) -> bool:
    """Whether a test has the text of one of these functions as its parameter."""
    return params.get("family") == family and getattr(params.get("function"), "name", None) in names


def _fork(function: Callable, *args: Any) -> int:
    """A fork that calls `function` and ends, with 0 where that comes back."""
    child = os.fork()
    if child == 0:
        status = KILLED
        try:
            function(*args)
            status = 0
        finally:
            os._exit(status)
    return child


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what pytest says
    sys.dont_write_bytecode = True
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tell = lambda verdict: os.write(answers, (json.dumps(verdict) + "\n").encode())  # noqa: E731
    sys.exit(pytest.main([*OPTIONS, *request["tests"]], plugins=[Runner(request, tell)]))


if __name__ == "__main__":
    main()
