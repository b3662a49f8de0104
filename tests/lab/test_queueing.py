"""The queue before the checks: two at a time, in order, whoever dies or blocks it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from course_lab.check import queueing
from course_lab.check.queueing import turn, waiting


@pytest.fixture
def queue(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_QUEUE", str(tmp_path))
    monkeypatch.setattr(queueing, "_LOOK", 0.01)
    return tmp_path


def test_two_at_a_time_in_the_order_in_which_they_came(queue):
    inside, most, order, said, everybody_is_there = [], [], [], [], threading.Event()

    def check(number):
        with turn(lambda stage: said.append((number, stage))):
            inside.append(number)
            order.append(number)
            most.append(len(inside))
            everybody_is_there.wait(60)
            time.sleep(0.05)
            inside.remove(number)

    threads = [threading.Thread(target=check, args=(number,)) for number in range(8)]
    for thread in threads:
        before = len(list(queue.iterdir()))
        thread.start()
        while len(list(queue.iterdir())) == before:
            time.sleep(0.001)
    while not any(number == 7 for number, _ in said):
        time.sleep(0.001)
    everybody_is_there.set()
    for thread in threads:
        thread.join(60)
    assert max(most) == queueing.AT_ONCE and sorted(order) == list(range(8)) and not list(queue.iterdir())
    assert all(abs(place - number) <= 1 for place, number in enumerate(order))
    assert any(number == 7 and stage.startswith("7 before you, about ") for number, stage in said)
    assert not any(number < 2 for number, _ in said)


@pytest.mark.parametrize(("before", "seconds"), [(2, 3), (3, 3), (4, 6), (29, 42)])
def test_what_is_said(before, seconds):
    assert waiting(before, 3.0) == f"{before} before you, about {seconds} s"


def test_a_dead_process_holds_nobody_up(queue):
    code = "import os\nfrom course_lab.check.queueing import turn\nwith turn():\n os.kill(os.getpid(), 9)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env=os.environ, check=False, timeout=60)
    assert len(list(queue.iterdir())) == 1  # the second swept the first's away
    (queue / "0-in-the-way").write_text("no ticket of ours")
    with turn(lambda stage: pytest.fail(stage)):
        pass
    assert not list(queue.iterdir())


def test_nobody_waits_for_ever(queue, monkeypatch):
    monkeypatch.setattr(queueing, "PATIENCE", 0.1)
    said = []
    with turn(), turn(), turn(said.append):
        assert said and len(list(queue.iterdir())) == 3


def test_an_error_inside_gives_the_turn_back(queue):
    with pytest.raises(KeyError), turn():
        raise KeyError
    assert not list(queue.iterdir())


@pytest.mark.parametrize("folder", [None, "missing"])
def test_without_a_queue_nothing_waits(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_QUEUE", raising=False)
    if folder:
        monkeypatch.setenv("COURSE_QUEUE", str(tmp_path / folder))
    with turn(), turn(), turn(lambda stage: pytest.fail(stage)):
        pass
