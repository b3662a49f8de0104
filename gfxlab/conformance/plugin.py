"""Inside pytest: a pretended GPU, a sample of the tests, and a line of JSON for each outcome.

What a test's end means:

- "passed", "skipped": as pytest says, and the simulator found nothing wrong with any launch
- "wrong": an assertion failed
- "alarm": the simulator says that a launch did what it may not
- "missing": an instruction that no table knows
- "refused": Triton's compiler gave up
- "failed": anything else, a time limit too
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from gfxlab.conformance.outcomes import read, shard_of
from gfxlab.pretended import pretend
from gfxlab.simulator import SimulationError, UnknownInstruction
from gfxlab.simulator.show.run import Run

_COMPILER = ("/triton/compiler/", "/backends/amd/compiler.py")


class TookTooLong(Exception):
    """A test ran into the time limit."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gfxlab.conformance")
    group.addoption("--survey-arch", default="gfx942", help="the architecture that is pretended")
    group.addoption("--sample", type=int, default=0, help="parametrisations of each function; 0: all")
    group.addoption("--seed", type=int, default=0, help="of the sample")
    group.addoption("--log", type=Path, required=True, help="JSON lines: outcomes so far, which are not run again")
    group.addoption("--shard", default="0/1", help="which of how many parts of the tests this process runs")
    group.addoption("--seconds", type=int, default=60, help="processor time that one test may take")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Survey(config), "gfxlab.conformance")


class _Survey:
    def __init__(self, config: pytest.Config):
        self._log, self._seconds = config.getoption("--log"), config.getoption("--seconds")
        self._pretence = pretend(config.getoption("--survey-arch"), self._seen)
        self._hazards: list[str] = []
        self._instructions = 0
        self._pretence.__enter__()  # before the tests are imported: some ask for the GPU while they are

    def pytest_unconfigure(self) -> None:
        self._pretence.__exit__(None, None, None)

    def _seen(self, run: Run) -> None:
        self._instructions += run.instructions
        self._hazards += run.wrong

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = {line["test"] for line in read(self._log)}
        wanted = sampled([item.nodeid for item in items], config.getoption("--sample"), config.getoption("--seed"))
        part, parts = map(int, config.getoption("--shard").split("/"))
        mine = {test for test in wanted if shard_of(test, parts) == part} - done
        items[:] = in_turns([item for item in items if item.nodeid in mine])

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[Any]:
        """A file that cannot be imported is a failure by its own name."""
        report = yield
        if report.failed:
            why = next(
                (line[1:].strip() for line in reversed(str(report.longrepr).splitlines()) if line[:1] == "E"), ""
            )
            self._write({"test": collector.nodeid, "outcome": "failed", "why": why})
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        self._write({"test": item.nodeid, "outcome": "started"})
        self._hazards, self._instructions, self._outcome = [], 0, ("passed", "")
        start = time.monotonic()
        before = signal.signal(signal.SIGPROF, _took_too_long)
        signal.setitimer(signal.ITIMER_PROF, self._seconds)  # of this process: others may keep the machine busy
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            outcome, why = self._outcome
            if outcome == "passed" and self._hazards:
                outcome, why = "alarm", self._hazards[0]
            facts = {"seconds": round(time.monotonic() - start, 2), "instructions": self._instructions}
            self._write({"test": item.nodeid, "outcome": outcome, "why": why, **facts})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Iterator[Any]:
        if call.excinfo is not None and self._outcome[0] == "passed":
            self._outcome = outcome_of(call.excinfo.value, [str(entry.path) for entry in call.excinfo.traceback])
            if isinstance(call.excinfo.value, TookTooLong):
                call.excinfo = _without_frames(call.excinfo.value)
        return (yield)

    def _write(self, line: dict[str, Any]) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _took_too_long(number: int, frame: Any) -> None:
    raise TookTooLong("the time limit of a test")


def _without_frames(error: TookTooLong) -> pytest.ExceptionInfo[TookTooLong]:
    """The same error as raised here: a signal may come where a frame has no line, on which pytest itself fails."""
    try:
        raise error.with_traceback(None)
    except TookTooLong as raised:
        return pytest.ExceptionInfo.from_exception(raised)


def in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """One of every test function, then a second of each: what a run that is cut off has done is a sample of all."""
    known: Counter[str] = Counter()
    turns = {}
    for item in items:
        function = item.nodeid.partition("[")[0]
        turns[item.nodeid] = known[function]
        known[function] += 1
    return sorted(items, key=lambda item: turns[item.nodeid])


def sampled(tests: list[str], most: int, seed: int) -> set[str]:
    """At most so many parametrisations of each test function, drawn by the seed; 0: all."""
    functions: dict[str, list[str]] = {}
    for test in tests:
        functions.setdefault(test.partition("[")[0], []).append(test)
    chosen: set[str] = set()
    for function, members in functions.items():
        few = not most or len(members) <= most
        chosen.update(members if few else random.Random(f"{seed} {function}").sample(members, most))
    return chosen


def outcome_of(error: BaseException, files: list[str]) -> tuple[str, str]:
    """(outcome, reason) of what a test raised, by the error and the files of its traceback."""
    chain = list(_chain(error))
    why = f"{type(error).__name__}: {_first_line(error)}"
    if isinstance(error, pytest.skip.Exception):
        return "skipped", _first_line(error)
    if any(isinstance(one, UnknownInstruction) for one in chain):
        return "missing", why
    if any(isinstance(one, SimulationError) for one in chain):
        return "alarm", why
    compiling = any(part in file for file in files for part in _COMPILER)
    if any(isinstance(one, CompilationError | OutOfResources) for one in chain) or compiling:
        return ("failed" if isinstance(error, TookTooLong) else "refused"), why
    return ("wrong" if isinstance(error, AssertionError) else "failed"), why


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:300]
