"""Thirty learners on one machine: memory that they hold, how long their checks take, whether all verdicts are right.

    python workshop/load.py --learners 30 --store        # a few minutes on two quiet cores

A learner is a process as a notebook's kernel is one: it has imported the course, loaded the model, started its fork
server. All check an answer at the same moment, half of them a right one, half of them a wrong one: without the queue,
then with it. Memory is proportional (Pss): a page that n processes share counts as 1/n in each. The JupyterLab servers
before the kernels are started too, one for each learner, and counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "workshop" / "load.json"
PAGE = ROOT / "workshop" / "README.md"
BEGIN, END = "<!-- load: written by `make load` -->", "<!-- load: end -->"
EXERCISE, MISTAKE, DIAGNOSIS = "2.2", (", mask=mask)", ")"), "missing-store-mask"


def learner(number: int, pipe) -> None:
    """A kernel's process: says when it is ready, then checks at each word it gets."""
    os.environ["COURSE_HOME"] = f"{os.environ['COURSE_LOAD']}/home{number}"
    from course_lab import model
    from course_lab.authoring import lessons
    from course_lab.check import grade
    from course_lab.check.queueing import turn
    from gfxlab import sandbox

    model.load(device="cpu", progress=False).generate("Hi", 1)  # which touches every weight
    sandbox.warm()
    answer = lessons.solution(EXERCISE)
    wrong = number % 2 == 1
    if wrong:
        place = answer.index("tl.store")
        answer = answer[:place] + answer[place:].replace(*MISTAKE, 1)
    stub = lessons.stub(EXERCISE)
    grade(EXERCISE, stub)  # an untouched stub: nothing runs
    pipe.send("ready")
    while pipe.recv() == "check":
        if Path(os.environ["COURSE_LOAD"], "queue").exists():
            os.environ["COURSE_QUEUE"] = f"{os.environ['COURSE_LOAD']}/queue"
        began, said = time.monotonic(), []
        with turn(said.append):
            report = grade(EXERCISE, answer, card=True)
        got = report.diagnosis.code if report.diagnosis else report.status
        pipe.send((time.monotonic() - began, got == (DIAGNOSIS if wrong else "passed"), got, said[:1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--learners", type=int, default=30)
    parser.add_argument("--store", action="store_true", help="write load.json and the table of the guide")
    parser.add_argument("--no-servers", action="store_true", help="kernels alone, without their JupyterLab servers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="course-load-") as folder:
        os.environ |= {"COURSE_LOAD": folder, "OMP_NUM_THREADS": "1"}
        result = measure(options.learners, Path(folder), servers=not options.no_servers)
    print(table(result))
    if options.store:
        STORED.write_text(json.dumps(result, indent=1) + "\n")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(result)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    sys.exit(int(result["runs"][-1]["wrong"] > 0))  # with the queue nobody may be told a wrong verdict


def measure(count: int, folder: Path, servers: bool) -> dict:
    """Start everybody, weigh them, let them check with and without a queue."""
    context = multiprocessing.get_context("spawn")
    labs = [lab(number, folder) for number in range(count)] if servers else []
    pipes, people = [], []
    try:
        for number in range(count):
            ours, theirs = context.Pipe()
            people.append(context.Process(target=learner, args=(number, theirs), daemon=False))
            people[-1].start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        time.sleep(5)  # the fork servers import behind them
        if gone := [lab.args for lab in labs if lab.poll() is not None]:
            raise SystemExit(f"{len(gone)} of {count} JupyterLab servers ended: does `{' '.join(gone[0])}` run?")
        memory = {"idle": pss([person.pid for person in people]), "servers": pss([lab.pid for lab in labs])}
        runs = [checked("no queue", pipes, None), checked("queue, two at a time", pipes, folder / "queue")]
        memory["after the checks"] = pss([person.pid for person in people])
    finally:
        for pipe in pipes:
            pipe.send("go home")
        for one in [*people, *labs]:
            one.terminate()
    about = {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "load before": round(os.getloadavg()[2], 1),
    }
    return {"learners": count, "exercise": EXERCISE, "memory": memory, "runs": runs, **about}


def lab(number: int, folder: Path) -> subprocess.Popen:
    """A JupyterLab server as a learner's is."""
    home = folder / f"lab{number}"
    home.mkdir()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    env = {**os.environ, "HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home)}
    return subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def checked(name: str, pipes: list, queue: Path | None) -> dict:
    """Everybody checks at once; a learner looks for the queue when the check begins."""
    if queue:
        queue.mkdir()
    before = cpu_seconds()
    for pipe in pipes:
        pipe.send("check")
    answers = [pipe.recv() for pipe in pipes]
    seconds = sorted(answer[0] for answer in answers)
    return {
        "name": name,
        "median": round(statistics.median(seconds), 1),
        "p95": round(seconds[min(int(0.95 * len(seconds)), len(seconds) - 1)], 1),
        "worst": round(seconds[-1], 1),
        "cpu": round(cpu_seconds() - before, 1),
        "answered": len(answers),
        "wrong": sum(not answer[1] for answer in answers),
        "told": [answer[2] for answer in answers if not answer[1]],
        "first words": next((answer[3][0] for answer in reversed(answers) if answer[3]), ""),
    }


def cpu_seconds() -> float:
    """Of the whole machine, busy."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    busy = sum(map(int, fields[:3])) + sum(map(int, fields[5:8]))
    return busy / os.sysconf("SC_CLK_TCK")


def pss(roots: list[int]) -> int:
    """Proportional MiB of these processes and all that they started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    members, added = set(roots), True
    while added:
        added = {pid for pid, parent in parents.items() if parent in members} - members
        members |= added
    total = 0
    for pid in members:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])
    return total // 1024


def table(result: dict) -> str:
    """Markdown: what was measured, and on what."""
    memory = result["memory"]
    whole = memory["after the checks"] + memory["servers"]
    lines = [
        f"{result['learners']} learners, exercise {result['exercise']}; {result['machine']}, load average before "
        f"{result['load before']}. Memory (Pss): kernels, models and fork servers {memory['idle']:,} MiB, after the "
        f"checks {memory['after the checks']:,} MiB, JupyterLab servers {memory['servers']:,} MiB; together "
        f"{whole / 1024:.1f} GiB.",
        "",
        "| | median | 95th | worst | CPU | answered | wrong verdicts |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for run in result["runs"]:
        times = " | ".join(f"{run[key]:.1f} s" for key in ("median", "p95", "worst", "cpu"))
        lines.append(f"| {run['name']} | {times} | {run['answered']} | {run['wrong']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
