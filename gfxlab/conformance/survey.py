"""Runs Triton's tests in a child process, as often as it takes, and counts how they end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfxlab.conformance.outcomes import forget_unfinished, read, shard_of
from gfxlab.conformance.reasons import classified
from gfxlab.tables import Table

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
FOLDER = "python/test/unit/language"
FILES = (  # the tests of the language that launch kernels
    "annotations",
    "block_pointer",
    "conversions",
    "core",
    "libdevice",
    "matmul",
    "mxfp",
    "pipeliner",
    "random",
    "standard",
    "tensor_descriptor",
    "tuple",
)
OUTCOMES = {
    "passed": "passed",
    "wrong": "wrong values",
    "alarm": "false alarms",
    "failed": "failed otherwise",
    "missing": "missing here",
    "refused": "refused by the compiler",
    "outside": "reason outside the simulator",
    "late": "longer than the limit of a test",
    "skipped": "skipped by upstream",
}
_INTERRUPTED = 2  # pytest's exit status
_SILENT_STARTS = 3  # of which none came to a test: a short machine may end one
_SILENCE = 600  # seconds without an outcome after which the child is given up


@dataclass(frozen=True)
class Report:
    """How the tests ended on each architecture. outcomes: the lines of each log."""

    triton: Path
    seed: int
    sample: int
    outcomes: dict[str, list[dict[str, Any]]]

    def counts(self, arch: str) -> dict[str, int]:
        """How many tests ended in each of `OUTCOMES`."""
        found = Counter(classified(line, arch)[0] for line in self.outcomes[arch])
        return {name: found[name] for name in OUTCOMES}

    def failures(self, arch: str) -> list[dict[str, Any]]:
        """What neither passed nor was skipped, in the order of `OUTCOMES`."""
        order = list(OUTCOMES)
        lines = [{**line, **_named(line, arch)} for line in self.outcomes[arch]]
        bad = [line for line in lines if line["outcome"] not in ("passed", "skipped")]
        return sorted(bad, key=lambda line: (order.index(line["outcome"]), line["test"]))

    def command(self, arch: str, test: str) -> str:
        """What runs one test again."""
        return f"gfxlab conformance {self.triton} --arch {arch} --only '{test}'"

    def table(self) -> str:
        """Markdown: outcomes by architecture."""
        counts = {arch: self.counts(arch) for arch in self.outcomes}
        rows = [(words, *(str(found[name]) for found in counts.values())) for name, words in OUTCOMES.items()]
        return Table(rows, head=("", *counts), numbers=len(counts)).markdown()

    def __str__(self) -> str:
        how = f"at most {self.sample} parametrisations of each function, seed {self.seed}" if self.sample else "all"
        parts = [f"Triton's tests of its language ({how})", self.table()]
        for arch in self.outcomes:
            for line in self.failures(arch):
                words = OUTCOMES[line["outcome"]]
                said = line.get("reason") or line.get("why", "")
                parts.append(f"{arch} {words}: {said}\n  {self.command(arch, line['test'])}")
        return "\n".join(parts)


def conformance(
    triton: Path | str,
    *,
    archs: Sequence[str] = ARCHS,
    seed: int = 0,
    every: bool = False,
    sample: int = 20,
    only: Sequence[str] = (),
    logs: Path | str = ".conformance",
    seconds: int = 60,
    jobs: int = 1,
) -> Report:
    """Run the tests of Triton's language on simulated GPUs.

    Args:
        triton: a checkout of Triton. Its tests run in place, against the Triton that is installed here.
        every: all parametrisations, not a sample of each function; what the logs hold already is not run again.
        only: tests by pytest's name (`test_core.py::test_dot[...]`), without sample and memory.
        logs: the folder for outcomes so far, a file for each architecture, seed and sample.
        seconds: processor time that one test may take.
        jobs: processes at a time.

    Raises:
        FileNotFoundError: there are no such tests.
    """
    folder = Path(triton).resolve() / FOLDER
    files = [folder / f"test_{name}.py" for name in FILES]
    present = [str(file) for file in files if file.is_file()]
    if not present:
        raise FileNotFoundError(f"{folder} holds no tests of Triton's language; give the folder of a Triton checkout")
    sample = 0 if every or only else sample
    logs = Path(logs).resolve()
    logs.mkdir(parents=True, exist_ok=True)
    targets = [f"{folder}/{test.removeprefix(FOLDER + '/')}" for test in only] or present
    found = {arch: _log(logs, arch, seed, sample, bool(only)) for arch in archs}
    for log in found.values():
        forget_unfinished(log)
    shards = 1 if only or jobs == 1 else -(-2 * jobs // len(archs))  # two for each process: some take longer
    children, limits = _Children(), {"seed": seed, "sample": sample, "seconds": seconds}
    with ThreadPoolExecutor(jobs) as pool:
        try:
            todo = [
                pool.submit(_until_done, children, folder, targets, log, (i, shards), arch=arch, **limits)
                for i in range(shards)  # a run that is cut off has done as much of each target
                for arch, log in found.items()
            ]
            for one in todo:
                one.result()
        except BaseException:  # Ctrl-C too: what is noted stays, the next run goes on with the rest
            children.stop()
            raise
    return Report(Path(triton), seed, sample, {arch: read(log) for arch, log in found.items()})


def _named(line: dict[str, Any], arch: str) -> dict[str, str]:
    """Its outcome as it is counted, and the reason, if it has one outside the simulator."""
    outcome, reason = classified(line, arch)
    return {"outcome": outcome} | ({"reason": reason} if reason else {})


class _Children:
    """The processes of pytest that run now."""

    def __init__(self) -> None:
        self.stopped, self._running = False, set[subprocess.Popen]()

    @contextlib.contextmanager
    def start(self, command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
        child = subprocess.Popen(command, **options)
        self._running.add(child)
        try:
            yield child
        finally:
            child.kill()
            child.wait()
            self._running.discard(child)

    def stop(self) -> None:
        """End them all, and let no other begin."""
        self.stopped = True
        for child in tuple(self._running):
            child.kill()


def _log(logs: Path, arch: str, seed: int, sample: int, only: bool) -> Path:
    """Where the outcomes of an architecture go; those of single tests are not kept from before."""
    log = logs / ("-".join([arch, "only"] if only else [arch, str(seed), str(sample or "all")]) + ".jsonl")
    if only:
        log.unlink(missing_ok=True)
    return log


def _until_done(
    children: _Children, folder: Path, targets: list[str], log: Path, shard: tuple[int, int], **options: Any
) -> None:
    """Start pytest until it ends by itself; a test in which it died is noted and left out of the next start."""
    part, shards = shard
    silent = 0
    while not children.stopped:
        known = len(read(log))
        if _run(children, folder, targets, log, shard=f"{part}/{shards}", **options) or children.stopped:
            return
        died = [one for one in read(log) if one["outcome"] == "started" and shard_of(one["test"], shards) == part]
        silent = 0 if died or len(read(log)) > known else silent + 1
        if silent == _SILENT_STARTS:
            raise RuntimeError(f"pytest ended before the first test; run it by hand in {folder}")
        with log.open("a") as file:
            for line in died:
                why = "the process ended in Triton's compiler"
                file.write(json.dumps({"test": line["test"], "outcome": "refused", "why": why}) + "\n")


def _run(children: _Children, folder: Path, targets: list[str], log: Path, *, arch: str, **options: Any) -> bool:
    """One start of pytest; whether it came to its end. options: of `plugin`.

    Raises:
        KeyboardInterrupt: pytest was interrupted, as everything that runs in the terminal.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gfxlab.conformance.plugin", "-p", "no:cacheprovider"]
    command += [f"--survey-arch={arch}", f"--log={log}", *(f"--{name}={value}" for name, value in options.items())]
    command += ["--continue-on-collection-errors"]  # a file may want a library that is not installed: others go on
    command += ["-p", "no:xdist", "-W", "ignore", "--tb=short", "--no-header", "--rootdir", str(folder), *targets]
    with log.with_suffix(".txt").open("a") as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with children.start(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment) as child:
            status = _watched(child, log)
    if status == _INTERRUPTED:
        raise KeyboardInterrupt
    return status in (0, 1, 5)  # all passed, some failed, nothing left to run


def _watched(child: subprocess.Popen, log: Path) -> int | None:
    """The child's exit status; None when it said nothing for so long that it must hang."""
    size = -1
    while True:
        try:
            return child.wait(_SILENCE)
        except subprocess.TimeoutExpired:
            now = log.stat().st_size if log.exists() else 0
            if now == size:
                return None
            size = now
