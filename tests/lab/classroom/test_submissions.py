"""Reading what learners hand in: nothing of it is believed, and nothing of it stops the reading of the rest."""

from __future__ import annotations

import json
import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from handed_in import answer_cell, hand_in, notebook, of_answers, zipped

from course_lab.authoring import lessons
from course_lab.classroom import submissions
from course_lab.classroom.results import Results
from course_lab.classroom.submissions import SubmissionsError, learners, read

ANSWER = "def my_add(x, y):\n    return x + y\n"


def only(place: Path) -> submissions.Submission:
    ((name, path),) = learners(place)
    return read(name, path)


def test_folders_zips_and_notebooks_are_submissions_by_learner(place):
    hand_in(place, "alice", of_answers({"1.1": ANSWER}), "deep/er/exercises.ipynb")
    zipped(place / "bob.zip", {"my files/exercises.ipynb": of_answers({"1.1": ANSWER})})
    (place / "carol.ipynb").write_text(of_answers({"1.1": ANSWER}))
    (place / "notes.txt").write_text("no submission")
    found = [read(name, path) for name, path in learners(place)]
    assert [one.learner for one in found] == ["alice", "bob", "carol"]
    assert all(one.answers["1.1"].code.endswith(ANSWER) and not one.problems for one in found)


def test_a_folder_and_a_zip_of_one_name_are_two_submissions(place):
    hand_in(place, "alice", of_answers({"1.1": ANSWER}))
    zipped(place / "alice.zip", {"a.ipynb": of_answers({"1.1": ANSWER})})
    assert [name for name, _ in learners(place)] == ["alice", "alice.zip"]


def test_one_zip_can_be_the_whole_submission(place):
    path = zipped(place / "bob.zip", {"a.ipynb": of_answers({"1.1": ANSWER})})
    assert [name for name, _ in learners(path)] == ["bob"]


@pytest.mark.parametrize(
    "make", [lambda place: place / "nowhere", lambda place: place, lambda place: Path("/dev/null")]
)
def test_a_place_without_submissions_is_refused_in_one_sentence(place, make):
    with pytest.raises(SubmissionsError, match="folder|empty"):
        learners(make(place))


def test_only_answer_cells_are_taken(place):
    cells = [answer_cell("1.1", ANSWER), {"cell_type": "code", "source": "import os\nos.abort()", "metadata": {}}]
    cells += [{"cell_type": "markdown", "source": "%%exercise 1.2\nno code", "metadata": {}}]
    hand_in(place, "alice", notebook(*cells))
    assert set(only(place).answers) == {"1.1"}


def test_source_may_be_a_list_of_lines_and_the_file_may_begin_with_a_mark(place):
    cell = answer_cell("1.1", "") | {"source": ["%%exercise 1.1\n", *ANSWER.splitlines(keepends=True)]}
    hand_in(place, "alice", b"\xef\xbb\xbf" + notebook(cell).encode())
    assert only(place).answers["1.1"].code.endswith(ANSWER)


def test_an_answer_that_lost_its_magic_line_is_known_by_its_metadata_and_told_so(place):
    cell = answer_cell("1.1", "", metadata={"course": {"exercise": "1.1"}}) | {"source": ANSWER}
    hand_in(place, "alice", notebook(cell))
    assert only(place).answers["1.1"].code == ANSWER and "%%exercise 1.1" in only(place).answers["1.1"].note


def test_two_different_answers_cost_that_exercise_and_no_other(place):
    hand_in(place, "alice", notebook(answer_cell("1.1", ANSWER), answer_cell("1.1", "x = 1"), answer_cell("1.2", "y")))
    found = only(place).answers
    assert "2 different answers" in found["1.1"].problem and "cell 1" in found["1.1"].problem
    assert found["1.2"].code and not found["1.2"].problem


def test_two_equal_answers_are_one_and_the_stub_gives_way(place):
    hand_in(place, "alice", notebook(answer_cell("1.1", ANSWER), answer_cell("1.1", ANSWER + "\n\n")))
    hand_in(place, "alice", of_answers({"1.1": lessons.stub("1.1")}), "untouched.ipynb")
    assert only(place).answers["1.1"].code.strip().endswith(ANSWER.strip())


def test_the_courses_own_solutions_and_backups_are_nobodys_answers(place):
    for folder in ("solutions", "backups", ".ipynb_checkpoints", "__MACOSX"):
        hand_in(place, "alice", of_answers({"1.1": "somebody else's"}), f"work/{folder}/a.ipynb")
    assert not only(place).answers


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\x01\x02\xff" * 100,
        b"{",
        b"[1, 2]",
        b'{"cells": 3}',
        b"[" * 200_000,
        b'{"cells": [' + b"[" * 100_000,
        b'{"a": ' + b"9" * 50_000 + b"}",
        "{}".encode("utf-16"),
    ],
)
def test_what_is_no_notebook_is_a_sentence(place, text):
    hand_in(place, "alice", text)
    hand_in(place, "alice", of_answers({"1.1": ANSWER}), "good.ipynb")
    found = only(place)
    assert len(found.problems) == 1 and "exercises.ipynb" in found.problems[0] and set(found.answers) == {"1.1"}


@pytest.mark.parametrize("cell", [None, 3, "code", [], {}, {"cell_type": "code"}, {"cell_type": "code", "source": 7}])
def test_a_strange_cell_is_passed_over(place, cell):
    hand_in(place, "alice", json.dumps({"cells": [cell, answer_cell("1.1", ANSWER)]}))
    assert set(only(place).answers) == {"1.1"}


@pytest.mark.parametrize("number", ["../../etc/passwd", "99999.1", "1.1.1", "-1", "1.zz", "%s", "１.１"])
def test_a_number_that_is_none_is_no_answer(place, number):
    hand_in(place, "alice", notebook(answer_cell(number, ANSWER)))
    assert not only(place).answers


def test_huge_notebooks_and_huge_answers_are_not_read(place, monkeypatch):
    monkeypatch.setattr(submissions, "MOST_BYTES", 4000)
    hand_in(place, "alice", notebook(answer_cell("1.1", "#" * 5000)))
    assert "more than the 4,000" in only(place).problems[0]
    monkeypatch.undo()
    hand_in(place, "alice", notebook(answer_cell("1.1", "#" * 70_000), answer_cell("1.2", ANSWER)))
    assert "70,01" in only(place).answers["1.1"].problem and only(place).answers["1.2"].code


def test_a_million_cells_and_answers_without_end_are_not_looked_at(place):
    hand_in(place, "alice", b'{"cells": [' + b"{}," * 999_999 + b"{}]}", "a.ipynb")
    answers = [answer_cell("1.1", f"x = {number}") for number in range(5000)]
    hand_in(place, "alice", notebook(answer_cell("1.2", ANSWER), *answers), "b.ipynb")
    found = only(place)
    assert "1,000,000 cells" in found.problems[0] and "more than 2,000 answer cells" in found.problems[1]
    assert found.answers["1.2"].code and "1999 different answers" in found.answers["1.1"].problem


def test_numbers_that_are_none_and_metadata_without_end_harm_no_answer(place):
    deep = "[" * 900 + "]" * 900
    cell = answer_cell("1.1", ANSWER)
    text = notebook(cell).replace(
        '"execution_count": null', f'"execution_count": NaN, "more": [Infinity, 1e999, {deep}]'
    )
    hand_in(place, "alice", text)
    assert only(place).answers["1.1"].code.endswith(ANSWER)


def test_links_are_not_followed_wherever_they_stand(place, tmp_path):
    secret = hand_in(tmp_path, "instructor", of_answers({"1.1": "the secret"}))
    (place / "alice").mkdir()
    (place / "alice" / "exercises.ipynb").symlink_to(secret)
    (place / "alice" / "folder").symlink_to(secret.parent)
    (place / "bob").symlink_to(secret.parent)
    for name, path in learners(place):
        found = read(name, path)
        assert not found.answers and "link" in found.problems[0]


def test_pipes_and_folders_in_place_of_notebooks_stop_nobody(place):
    (place / "alice").mkdir()
    os.mkfifo(place / "alice" / "exercises.ipynb")
    (place / "alice" / "folder.ipynb").mkdir()
    assert "no plain file" in only(place).problems[0]


def test_too_deep_and_too_many_are_bounded(place):
    hand_in(place, "alice", of_answers({"1.1": ANSWER}), "/".join("abcdefghijk") + "/deep.ipynb")
    for i in range(450):
        hand_in(place, "alice", "x", f"z{i}.txt")
    said = " ".join(only(place).problems)
    assert "too deep" in said and "more than 400 files" in said and not only(place).answers


def test_paths_in_a_zip_are_only_names(place, tmp_path):
    members = {
        "../../../../tmp/evil.ipynb": of_answers({"1.1": ANSWER}),
        "/etc/evil.ipynb": of_answers({"1.2": ANSWER}),
    }
    zipped(place / "mallory.zip", members)
    before = set(tmp_path.rglob("*"))
    assert set(only(place).answers) == {"1.1", "1.2"} and set(tmp_path.rglob("*")) == before
    assert not Path("/etc/evil.ipynb").exists() and not Path("/tmp/evil.ipynb").exists()


def test_a_link_in_a_zip_is_not_followed(place):
    path = place / "mallory.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("a.ipynb")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    assert "link" in only(place).problems[0]


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_a_device_in_a_zip_is_only_bytes(place, kind):
    path = place / "mallory.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("a.ipynb")
        info.external_attr = (kind | 0o666) << 16
        archive.writestr(info, of_answers({"1.1": ANSWER}))
    assert only(place).answers["1.1"].code.endswith(ANSWER) and len(list(place.iterdir())) == 1


def test_members_that_share_their_bytes_are_bounded_together(place):
    """Many entries of one table of contents, all of one compressed member."""
    path = zipped(place / "mallory.zip", {"0000.ipynb": b" " * (11 << 20)})
    data = path.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    start = struct.unpack("<I", data[end + 16 : end + 20])[0]
    entry = data[start:end]
    table = b"".join(entry.replace(b"0000", b"%04d" % number) for number in range(2000))
    tail = bytearray(data[end:])
    tail[8:16] = struct.pack("<HHI", 2000, 2000, len(table))
    path.write_bytes(data[:start] + table + tail)
    found = only(place)
    assert not found.answers and len(found.problems) == 50


@pytest.mark.parametrize("name", ["a\x00.ipynb", "\u202egpj.ipynb", "C:\\a.ipynb", "a" * 60000 + ".ipynb", "a\n.ipynb"])
def test_names_in_a_zip_are_shown_harmlessly(place, name):
    zipped(place / "mallory.zip", {"x.ipynb": of_answers({"1.2": ANSWER}), "b.ipynb": b"{"})
    path = place / "mallory.zip"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo("placeholder.ipynb"), b"{")
        archive.filelist[-1].filename = name
    found = only(place)
    assert found.answers["1.2"].code and len("".join(found.problems)) < 2000
    assert not set("\x00\u202e\n") & set("".join(found.problems))


def test_a_zip_bomb_is_refused_by_its_size(place):
    zipped(place / "mallory.zip", {"a.ipynb": b"0" * (40 << 20), "b.ipynb": of_answers({"1.1": ANSWER})})
    found = only(place)
    assert "a.ipynb" in found.problems[0] and set(found.answers) == {"1.1"}


def test_a_zip_that_lies_about_its_sizes_is_cut_off(place):
    path = zipped(place / "mallory.zip", {"a.ipynb": b"0" * (40 << 20)})
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(signature) + offset
        data[at : at + 4] = struct.pack("<I", 100)
    path.write_bytes(data)
    found = only(place)
    assert found.problems and not found.answers


def test_a_zip_with_an_endless_table_of_contents_is_not_opened(place):
    path = place / "mallory.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(20_000):
            archive.writestr(f"{i:0100}.txt", b"")
    assert "too many files" in only(place).problems[0]


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06", b"PK\x05\x06" + b"\xff" * 30, b"no zip at all"])
def test_what_is_no_zip_is_a_sentence(place, data):
    (place / "mallory.zip").write_bytes(data)
    assert only(place).problems and not only(place).answers


def test_a_broken_member_costs_only_itself(place):
    path = zipped(place / "mallory.zip", {"a.ipynb": os.urandom(2000), "b.ipynb": of_answers({"1.1": ANSWER})})
    data = bytearray(path.read_bytes())
    data[60:80] = b"\0" * 20
    path.write_bytes(data)
    found = only(place)
    assert "a.ipynb" in found.problems[0] and set(found.answers) == {"1.1"}


def test_encrypted_nested_and_oddly_packed_members_are_told(place):
    inner = zlib.compress(b"x")
    path = place / "mallory.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.zip", inner)
        archive.writestr(zipfile.ZipInfo("a.ipynb"), of_answers({"1.1": ANSWER}), compress_type=zipfile.ZIP_LZMA)
    said = " ".join(only(place).problems)
    assert "zip in a zip" in said and "packed in a way" in said


@pytest.mark.parametrize("name", ["a\nb", "up/..", "=cmd()", "<script>", "é" * 60, "\udcff"])
def test_strange_names_are_shown_harmlessly(place, name):
    if "/" in name:
        name = name.replace("/", "\\")
    hand_in(place, name, of_answers({"1.1": ANSWER}))
    assert "\n" not in only(place).learner and only(place).learner.encode() and only(place).answers


def test_two_names_that_look_alike_are_two_learners(place):
    for name in ("a b", "a\nb", "a  b"):
        hand_in(place, name, of_answers({"1.1": ANSWER}))
    assert len({name for name, _ in learners(place)}) == 3


def test_names_that_are_equal_after_normalisation_are_learners_with_results_of_their_own(place, tmp_path):
    names = ["é", "e\u0301", "\uff41lice", "alice", "Alice", "alice\u200f", "alice ", "a\u202elice"]
    for name in names:
        hand_in(place, name, of_answers({"1.1": ANSWER + name}))
    found = learners(place)
    assert len(found) == len(names) and not any("\u202e" in name for name, _ in found)
    assert len({Results(tmp_path).file(name).name for name, _ in found}) == len(names)
    assert {read(*one).answers["1.1"].code[-len(ANSWER) :] != "" for one in found} == {True}


def test_a_fingerprint_tells_one_reading_from_another(place):
    hand_in(place, "alice", of_answers({"1.1": ANSWER}))
    first = only(place).fingerprint
    assert only(place).fingerprint == first
    hand_in(place, "alice", of_answers({"1.1": ANSWER + "# more"}))
    assert only(place).fingerprint != first
