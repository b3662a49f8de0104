"""What a class costs: the checks and one import for each submission, and no more memory for more submissions."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from handed_in import hand_in, of_answers

from course_lab.authoring import lessons
from course_lab.classroom import bubble, run
from course_lab.classroom.results import Results

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
EXERCISES = [f"{lesson}.{place}" for lesson in (1, 2) for place in range(1, 7)]
# 200 submissions in 35 minutes on two cores
SECONDS_EACH = 35 * 60 * 2 / 200


def answers(learner: int) -> dict[str, str]:
    """Right answers, each learner's own text."""
    return {number: lessons.solution(number).replace("256", "128" if learner % 2 else "256") for number in EXERCISES}


def test_a_submission_of_twelve_exercises_takes_its_part_of_35_minutes(place, tmp_path, sandbox):
    for learner in range(4):
        hand_in(place, f"learner {learner}", of_answers(answers(learner)))
    started = time.monotonic()
    run.grade_class(place, tmp_path / "results", exercises=EXERCISES, jobs=2, seed="throughput")
    wall = time.monotonic() - started
    results = list(Results(tmp_path / "results").all())
    used = [result["cpu_seconds"] for result in results]
    checks = sum(verdict["seconds"] for result in results for verdict in result["exercises"].values())
    print(f"CPU seconds a submission: {used}; checks and imports {checks:.0f} s in {wall:.0f} s of wall clock")
    assert all(v["status"] == "passed" for result in results for v in result["exercises"].values())
    assert max(used) < SECONDS_EACH
    assert wall < 1.2 * checks / 2 + 10  # the first check of a submission holds its import


def test_the_sandbox_starts_once_for_a_submission(sandbox):
    with bubble.Bubble() as box:
        for _ in range(3):
            assert box.run("time:sleep", {}).status == "error"  # it takes a number, no dict
        assert box.starts == 1 and 0.5 < box.cpu_seconds < 20


def test_memory_stays_flat_from_submission_to_submission(place, tmp_path, sandbox):
    for learner in range(60):
        hand_in(place, f"learner {learner:02}", of_answers({"1.1": f"x = {learner}\n"}))
    sizes: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(1.0):
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        run.grade_class(place, tmp_path / "results", exercises=["1.1"], jobs=2)
    finally:
        done.set()
        watching.join()
    half = len(sizes) // 2
    assert max(sizes[half:]) - max(sizes[: max(half // 2, 1)]) < 64 << 20
