"""Grading is killed at random points: nothing is lost, nothing is half written, nothing is graded twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handed_in import hand_in, of_answers, right

from course_lab.classroom.results import Results, read_result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
LEARNERS = 8
MOST_KILLS = 12


def command(place: Path, out: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "course_lab",
        "grade",
        str(place),
        "--out",
        str(out),
        "-e",
        "1.1",
        "-e",
        "1.2",
        "-j",
        "2",
    ]


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children_of(int(child))]
    return found


def test_killed_at_random_points_it_ends_with_every_result_once(place, tmp_path, sandbox):
    for i in range(LEARNERS):
        hand_in(place, f"learner {i}", of_answers({"1.1": right("1.1"), "1.2": "x = 1" if i % 2 else right("1.2")}))
    out, seed = tmp_path / "results", random.randrange(1 << 30)
    print(f"random.seed({seed})")
    draw, done, kills = random.Random(seed), {}, 0
    for _ in range(MOST_KILLS):
        process = subprocess.Popen(command(place, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        known = len(done)
        deadline = time.monotonic() + 600  # a busy machine takes minutes for what takes seconds
        while process.poll() is None and len(list((out / "submissions").glob("*.json"))) == known < LEARNERS:
            assert time.monotonic() < deadline
            time.sleep(draw.uniform(0.01, 0.5))
        family = children_of(process.pid) if process.poll() is None else []
        time.sleep(draw.uniform(0, 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert not still_there(family)
        for path in (out / "submissions").glob("*.json"):
            assert read_result(path) is not None, path.read_text()
            assert done.setdefault(path.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
        if len(done) == LEARNERS:
            break
    assert kills > 2
    last = subprocess.run(command(place, out), capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert (out / "index.html").exists() and not list(out.rglob("*.writing"))
    results = list(Results(out).all())
    assert len(results) == LEARNERS and len({json.dumps(r["seed"]) for r in results}) == 1
    assert sum(r["exercises"]["1.2"]["status"] == "passed" for r in results) == LEARNERS // 2
    assert all(
        path.stat().st_mtime_ns == done.get(path.name, path.stat().st_mtime_ns)
        for path in (out / "submissions").iterdir()
    )


def still_there(pids: list[int]) -> list[int]:
    """Those that have not gone two seconds after their master was killed."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [pid for pid in pids if alive(pid)]
        if not left:
            return []
        time.sleep(0.1)
    return left


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
