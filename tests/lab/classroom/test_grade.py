"""`course grade` on a small class: from the folder of submissions to the pages."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from handed_in import hand_in, of_answers, right, zipped

from course_lab.classroom import bubble, run
from course_lab.classroom.bubble import NoSandbox
from course_lab.classroom.results import Results, ResultsError, read_result


def grade(place: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "course_lab", "grade", str(place), "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def statuses(out: Path) -> dict[str, dict[str, str]]:
    results = Results(out).all()
    return {one["learner"]: {number: v["status"] for number, v in one["exercises"].items()} for one in results}


def test_a_small_class_from_submissions_to_pages(place, tmp_path, sandbox):
    hand_in(place, "alice", of_answers({"1.1": right("1.1")}))
    zipped(place / "bob.zip", {"a.ipynb": of_answers({"1.1": "import os\nos._exit(0)\n" + right("1.1")})})
    hand_in(place, "carol & <b>", b"no notebook")
    out = tmp_path / "results"
    graded = grade(place, out, "-e", "1.1", "--seed", "small", "-j", "1")
    assert graded.returncode == 0, graded.stderr
    assert statuses(out) == {"alice": {"1.1": "passed"}, "bob": {"1.1": "failed"}, "carol & <b>": {"1.1": "missing"}}
    stored = read_result(Results(out).file("alice"))
    assert stored["seed"] == "small" and stored["sandbox"] == "bubblewrap" and stored["cpu_seconds"] > 1
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["learner"], row["points"]) for row in rows] == [("alice", "1"), ("bob", "0"), ("carol & <b>", "0")]
    suites = ElementTree.parse(out / "junit.xml").getroot()
    assert [(s.get("name"), s.get("failures"), s.get("skipped")) for s in suites] == [
        ("alice", "0", "0"), ("bob", "1", "0"), ("carol & <b>", "0", "1"),
    ]  # fmt: skip
    page = (out / "index.html").read_text()
    assert "<b>alice" not in page and "carol &amp; &lt;b&gt;" in page and "<script" not in page
    assert all((out / "feedback" / f"{name}.html").exists() for name in ("alice", "bob"))
    before = {path: path.stat().st_mtime_ns for path in (out / "submissions").iterdir()}
    assert run.grade_class(place, out, exercises=["1.1"]).now == 0
    assert before == {path: path.stat().st_mtime_ns for path in (out / "submissions").iterdir()}


def test_without_bubblewrap_nothing_is_graded_and_the_fix_is_said(place, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    hand_in(place, "alice", of_answers({"1.1": right()}))
    assert "apt install bubblewrap" in bubble.why_not()
    with pytest.raises(NoSandbox, match="--unsafe"):
        run.grade_class(place, tmp_path / "results", exercises=["1.1"])
    assert not (tmp_path / "results").exists()


def test_a_bubblewrap_that_may_make_no_namespace_is_told_with_the_fix(tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    no = "echo 'bwrap: No permissions' >&2; exit 1"
    fake.write_text(f"#!/bin/sh\ncase $1 in --help) echo --size --disable-userns;; *) {no};; esac")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "No permissions" in bubble.why_not() and bubble.why_not().endswith(".")


# ---- what is on disk -------------------------------------------------------------------------------------------------


def test_a_seed_is_drawn_once_and_kept(tmp_path):
    results = Results(tmp_path / "r")
    with results.held():
        first = results.assignment(["1.1"], None, False)
        assert len(first.seed) == 16 and results.assignment(["1.1"], None, False).seed == first.seed
        with pytest.raises(ResultsError, match="leave --seed out"):
            results.assignment(["1.1"], "another", False)
        with pytest.raises(ResultsError, match="sandbox"):
            results.assignment(["1.1"], None, True)


def test_two_graders_do_not_share_a_folder(tmp_path):
    with Results(tmp_path / "r").held(), pytest.raises(ResultsError, match="Another"), Results(tmp_path / "r").held():
        pass


def test_learners_never_share_a_file_and_stay_in_the_folder(tmp_path):
    results = Results(tmp_path / "r")
    names = ["a", "A b", "../a", "..", ".", "a/b", "a%2Fb", "x" * 300, "x" * 299, "", ".hidden", "a~", "é", "a\x00b"]
    files = [results.file(name) for name in names]
    assert len({file.name for file in files}) == len(names)
    assert all(file.parent == results.submissions and len(file.name) < 140 and "/" not in file.name for file in files)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "exercises": {"1.1": 3}}', "[" * 99999]
)
def test_a_file_that_is_no_result_does_not_count(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert read_result(path) is None


def test_a_link_is_no_result(tmp_path):
    good = {"format": 1, "learner": "a", "fingerprint": "f", "seed": "s", "exercises": {"1.1": {"status": "passed"}}}
    (tmp_path / "good.json").write_text(json.dumps(good))
    (tmp_path / "link.json").symlink_to(tmp_path / "good.json")
    assert read_result(tmp_path / "good.json") == good and read_result(tmp_path / "link.json") is None
