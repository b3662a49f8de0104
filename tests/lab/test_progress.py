"""Progress survives torn lines, crashes and several writers at once."""

import fcntl
import json
import multiprocessing
import os
import time
import warnings

import pytest
from small_exercises import COPY, DOUBLE

from course_lab import journal
from course_lab.journal import FORMAT, events, history, home, progress, record


def attempt(number: str, status: str, answer: str, **more) -> None:
    record(number, "attempt", status=status, answer=answer, **more)


def test_the_folder_is_course_home_or_the_users_data_folder(course_home, monkeypatch):
    assert home() == course_home
    monkeypatch.delenv("COURSE_HOME")
    assert home().name == "triton-amd-course"


def test_nothing_is_known_at_first(course_home):
    assert list(events()) == [] and history("2.1").state == "open"


def test_attempts_count_by_different_answers(course_home):
    for answer in ("a", "b", "a"):
        attempt("2.1", "failed", answer)
    attempt("2.2", "failed", "c")
    assert (history("2.1").attempts, history("2.1").state) == (2, "tried")
    attempt("2.1", "passed", "d", code="x = 1", entry="f")
    attempt("2.1", "failed", "e")
    known = history("2.1")
    assert known.state == "solved" and (known.code, known.entry) == ("x = 1", "f")


@pytest.mark.parametrize(
    "rest", [b'{"exercise": "2.1", "ev', b"\x00\x00\x00", b"[1, 2]", b'{"exercise": 3}', b"\xff\xfe"]
)
def test_a_torn_line_is_skipped_and_closed_off_by_the_next_writer(course_home, rest):
    attempt("2.1", "failed", "a")
    with open(course_home / "progress.jsonl", "ab") as file:
        file.write(rest)
    assert history("2.1").attempts == 1
    attempt("2.1", "failed", "b")
    assert history("2.1").attempts == 2
    assert json.loads((course_home / "progress.jsonl").read_bytes().splitlines()[-1])["answer"] == "b"


def write_many(writer: int) -> None:
    for i in range(50):
        attempt("2.1", "failed", f"{writer}-{i}", padding="x" * 5000)


def test_several_writers_lose_nothing(course_home):
    processes = [multiprocessing.get_context("fork").Process(target=write_many, args=(w,)) for w in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = (course_home / "progress.jsonl").read_bytes().splitlines()
    assert len(lines) == 200 and len({json.loads(line)["answer"] for line in lines}) == 200


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("COURSE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="Set COURSE_HOME"):
        attempt("2.1", "failed", "a")
    assert list(events()) == []


class FakeLesson:
    def __init__(self, name, *exercises):
        self.name, self.exercises, self.core = name, exercises, tuple(exercise.number for exercise in exercises[:1])


def test_the_table_shows_each_lesson(course_home, monkeypatch):
    from course_lab.authoring import lessons

    monkeypatch.setattr(lessons, "all", lambda: [FakeLesson("00_start"), FakeLesson("91_small", DOUBLE, COPY)])
    attempt(DOUBLE.number, "passed", "a")
    attempt(COPY.number, "failed", "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = progress()
    assert [lesson.name for lesson in table.lessons] == ["91_small"]
    assert (table.lessons[0].solved, table.lessons[0].tried) == (1, 2)
    assert "91_small  1/2     2/2    ✓ 91.1*  … 91.3" in str(table)
    assert "short path: 1 of 1 solved" in str(table)
    html = table._repr_html_()
    assert "<td>1/2</td>" in html
    assert 'href="../notebooks/91_small.ipynb"' in html and 'href="../exercises/91_small.ipynb"' in html


def test_odd_lines_stop_nothing(course_home):
    attempt("2.1", "failed", "a")
    odd = ['{"exercise": "2.1", "event": "attempt", "answer": ["x"]}', '{"exercise": "2.1", "event": {}}']
    odd += ["[" * 100_000, '{"exercise": "2.1", "status": "passed", "code": 7}', '"text"', "\udcff", "{}"]
    with open(course_home / "progress.jsonl", "a", errors="surrogateescape") as file:
        file.writelines(f"{line}\n" for line in odd)
    attempt("2.1", "failed", "b")
    assert history("2.1").attempts == 2 and not history("2.1").solved
    assert str(progress())


def test_a_long_record_is_read_once_and_quickly(course_home):
    line = '{"time": "t", "exercise": "1.%d", "event": "attempt", "status": "failed", "answer": "%d", "code": "%s"}\n'
    text = "".join(line % (i % 6 + 1, i, "x" * 400) for i in range(10_000))
    (course_home / "progress.jsonl").write_text(text)
    assert len(text) > 5_000_000
    started = time.process_time()
    assert str(progress()) and history("1.1").attempts == 1667
    assert time.process_time() - started < 2


def test_a_line_says_which_form_it_has(course_home):
    attempt("2.1", "failed", "a")
    assert next(iter(events()))["format"] == FORMAT


@pytest.mark.parametrize("given", ["~/x", "x", "./x"])
def test_home_is_one_place_from_everywhere(given, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COURSE_HOME", given)
    monkeypatch.chdir("/")
    assert home() == tmp_path / "x"


def test_a_writer_that_stands_still_and_a_record_that_is_a_pipe_hang_nothing(course_home, monkeypatch):
    monkeypatch.setattr(journal, "_LONGEST", 0.1)
    with open(course_home / "progress.jsonl", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        journal.record("2.1", "hint")
    assert journal.history("2.1").hints == 1
    (course_home / "progress.jsonl").unlink()
    os.mkfifo(course_home / "progress.jsonl")
    with pytest.warns(UserWarning, match="progress is not kept"):
        journal.record("2.1", "hint")
    assert journal.history("2.1").hints == 0
