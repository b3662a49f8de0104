"""Grading on a Dask cluster: workers that die or hang, and a scheduler that holds no more for ten thousand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from handed_in import hand_in, of_answers, right

from course_lab.classroom import cluster, run
from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.results import Results
from course_lab.classroom.submissions import Found, Submission
from course_lab.classroom.verdicts import Assignment, abandoned

ASSIGNMENT = Assignment(("1.1",), "cluster")
HERE = str(Path(__file__).parent)


def submission(number: int) -> Submission:
    return Submission(f"learner {number:05}", {"1.1": Found("a.ipynb, cell 1", f"x = {number}")})


def simulated(one: Submission, assignment: Assignment) -> str:
    """A verdict that costs no time."""
    return json.dumps(abandoned(one, assignment, "it is simulated"))


def dies_once(one: Submission, assignment: Assignment) -> str:
    """Kills the worker that has the third submission, the first time; the worker of the sixth stops."""
    mark = Path(os.environ["CLUSTER_TEST"], one.learner.replace(" ", "-"))
    number = int(one.learner.split()[1])
    first = number in (3, 6) and not mark.exists()
    mark.touch()
    time.sleep(0.2)
    if first:
        os.kill(os.getpid(), signal.SIGKILL if number == 3 else signal.SIGSTOP)
        time.sleep(60)
    return simulated(one, assignment)


@contextmanager
def scheduler(workers: int, started: list[subprocess.Popen] | None = None, **environment: str):
    """A Dask scheduler and its workers, each in a process of its own, all in `started`; gives the address."""
    pytest.importorskip("distributed")
    env = {**os.environ, **environment, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    started = [] if started is None else started

    def start(*words: str) -> subprocess.Popen:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-m", "dask", *words], env=env, **quiet))
        return started[-1]

    try:
        for line in start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard").stderr:
            if "Scheduler at:" in line:
                address = line.split()[-1]
                break
        for _ in range(workers):
            start("worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny")
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def client_of(address: str, workers: int):
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=120)
        yield client


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_that_dies_and_one_that_hangs_cost_nothing(tmp_path):
    with scheduler(3, CLUSTER_TEST=str(tmp_path)) as address, client_of(address, 3) as client:
        submissions = [submission(number) for number in range(24)]
        results = list(cluster.spread_out(client, submissions, ASSIGNMENT, work=dies_once, patience=6.0))
    assert sorted(result["learner"] for result in results) == [one.learner for one in submissions]
    assert all("simulated" in result["exercises"]["1.1"]["sentence"] for result in results)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_submissions_take_no_more_of_the_scheduler_than_ten():
    def held(dask_scheduler) -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(dask_scheduler.tasks), pages * os.sysconf("SC_PAGE_SIZE")

    with scheduler(2) as address, client_of(address, 2) as client:
        seen = []
        started = time.monotonic()
        coming = (submission(number) for number in range(10_000))
        for done, _ in enumerate(cluster.spread_out(client, coming, ASSIGNMENT, work=simulated), start=1):
            if done % 1000 == 0:
                seen.append(client.run_on_scheduler(held))
        seconds = time.monotonic() - started
    tasks, sizes = zip(*seen)
    print(f"{seconds:.0f} s; tasks {max(tasks)}; scheduler {sizes[0] >> 20} to {sizes[-1] >> 20} MiB")
    # Dask keeps a log of its last 100,000 steps, which fills up first
    assert max(tasks) <= 4 and sizes[-1] - sizes[0] < 128 << 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_class_is_graded_on_a_cluster_as_it_is_here(place, tmp_path, sandbox):
    for name, code in {"alice": right("1.1"), "bob": "import os\nos._exit(0)", "carol": "while True: pass"}.items():
        hand_in(place, name, of_answers({"1.1": code}))
    with scheduler(2) as address:
        run.grade_class(place, tmp_path / "there", exercises=["1.1"], seed="s", scheduler=address)
    run.grade_class(place, tmp_path / "here", exercises=["1.1"], seed="s")
    there, here = (
        {one["learner"]: one["exercises"]["1.1"] | {"seconds": 0} for one in Results(tmp_path / name).all()}
        for name in ("there", "here")
    )
    assert there == here and there["alice"]["status"] == "passed" and there["carol"]["diagnosis"] == "timeout"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_class_survives_a_worker_that_is_killed_and_one_that_hangs(place, tmp_path, sandbox, monkeypatch):
    """The real thing: sandboxes on three workers; once the first result is in, one is killed and one stopped."""
    answers = [right("1.1"), "import os\nos._exit(0)", right("1.1").replace("alpha", "2.0 * alpha", 1)]
    for number in range(9):
        hand_in(place, f"learner{number}", of_answers({"1.1": answers[number % 3]}))
    monkeypatch.setattr(cluster, "_START", 45.0)
    processes, out = [], tmp_path / "there"

    def harm():
        while not list((out / "submissions").glob("*.json")):
            time.sleep(0.05)
        processes[1].kill()
        os.kill(processes[2].pid, signal.SIGSTOP)

    with scheduler(3, processes) as address:
        harming = threading.Thread(target=harm)
        harming.start()
        run.grade_class(place, out, exercises=["1.1"], seed="s", scheduler=address)
        harming.join()
        assert processes[1].poll() is not None and processes[3].poll() is None
    run.grade_class(place, tmp_path / "here", exercises=["1.1"], seed="s")
    there, here = (
        {one["learner"]: one["exercises"]["1.1"] | {"seconds": 0} for one in Results(tmp_path / name).all()}
        for name in ("there", "here")
    )
    assert len(there) == 9 and there == here
    assert sum(verdict["status"] == "passed" for verdict in there.values()) == 3


@pytest.mark.parametrize(("address", "tls"), [("tls://a:1", None), ("tcp://a:1", ("ca", "cert", "key"))])
def test_an_address_and_its_encryption_go_together(address, tls):
    pytest.importorskip("distributed")
    with pytest.raises(ClassroomError, match="tls://"):
        cluster.at(address, tls)


def test_where_nobody_answers_it_is_said(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT", 0.5)
    with pytest.raises(ClassroomError, match="dask scheduler"):
        cluster.at("tcp://127.0.0.1:9")
