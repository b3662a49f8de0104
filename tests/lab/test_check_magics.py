"""The notebook's side: `%%exercise`, `%hint`, `%solution`, `my_kernel`."""

import os

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from small_exercises import DOUBLE, DOUBLE_SOLUTION, DOUBLE_STUB

import course_lab.check.magics as magics
from course_lab.authoring import lessons
from course_lab.journal import events, history


class Notebook:
    """An IPython shell with the magics; `run` returns what the cell displayed, as text."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell, self.error = shell, None

    def run(self, cell: str) -> str:
        with capture_output() as captured:
            result = self.shell.run_cell(cell)
        self.error = result.error_before_exec or result.error_in_exec
        return captured.stdout + "".join(str(output) for output in captured.outputs)

    def check(self, answer: str) -> str:
        return self.run(f"%%exercise {DOUBLE.number}\n{answer}")


@pytest.fixture
def notebook(course_home, monkeypatch):
    def exercise(number):
        if number != DOUBLE.number:
            raise lessons.LessonError(f"There is no exercise {number}.")
        return DOUBLE

    monkeypatch.setattr(lessons, "exercise", exercise)
    monkeypatch.setattr(lessons, "stub", lambda number: DOUBLE_STUB)
    monkeypatch.setattr(lessons, "solution", lambda number: DOUBLE_SOLUTION)
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    monkeypatch.setattr(magics.above, "last", "")
    shell = InteractiveShell()
    magics.register(shell)
    return Notebook(shell)


def wrong(number: int) -> str:
    return DOUBLE_SOLUTION.replace("x * 2", f"x * {number}")


def test_a_right_answer_can_be_used_in_the_notebook(notebook):
    assert "91.1 Double: right" in notebook.check(DOUBLE_SOLUTION)
    assert "tensor([2., 4.])" in notebook.run("print(double(torch.tensor([1.0, 2.0])))")
    assert notebook.error is None


def test_a_wrong_answer_is_explained_and_stays_out_of_the_notebook(notebook):
    assert "constant-factor" in notebook.check(wrong(3))
    assert notebook.error is None and "double" not in notebook.shell.user_ns


def test_what_changed_since_the_last_try_is_said(notebook):
    assert "Since your last try" not in notebook.check(wrong(3))
    assert "Since your last try" not in notebook.check(wrong(5))
    names = [case.name for case in DOUBLE.cases]
    assert f"Since your last try: “{names[0]}”" in notebook.check(DOUBLE_SOLUTION)
    assert "now; " not in notebook.check(DOUBLE_SOLUTION)
    assert f"Since your last try: “{names[0]}”" in (again := notebook.check(wrong(3))) and "fail now." in again


def test_an_untouched_stub_neither_raises_nor_counts(notebook):
    assert "not attempted yet" in notebook.check(DOUBLE_STUB)
    assert notebook.error is None and list(events()) == []


def test_output_of_a_right_answer_appears_once(notebook):
    assert notebook.check(DOUBLE_SOLUTION + "\nprint('spoken')\n").count("spoken") == 1


def test_lines_are_those_of_the_cell(notebook):
    assert "line 7: " in notebook.check(DOUBLE_SOLUTION.replace("x * 2", "z * 2"))


@pytest.mark.parametrize("answer", [DOUBLE_STUB, wrong(3)])
def test_strict_raises_and_records_nothing(notebook, monkeypatch, answer):
    monkeypatch.setenv("COURSE_STRICT", "1")
    notebook.check(answer)
    assert type(notebook.error).__name__ == "ExerciseFailed" and list(events()) == []


def test_strict_lets_a_right_answer_through(notebook, monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "1")
    assert "Double: right" in notebook.check(DOUBLE_SOLUTION) and notebook.error is None
    assert list(events()) == [] and "double" in notebook.shell.user_ns


@pytest.mark.parametrize("line, words", [("%hint", "which exercise"), ("%hint 7.7", "no exercise 7.7")])
def test_a_missing_or_unknown_number_is_said_in_one_line(notebook, line, words):
    notebook.run(line)
    assert type(notebook.error).__name__ == "UsageError" and words in str(notebook.error)


def test_a_number_that_was_given_once_is_meant_from_then_on(notebook):
    notebook.check(wrong(3))
    assert "Hint 1 of 3 for 91.1" in notebook.run("%hint")
    assert "2 more tries of yours" in notebook.run("%solution")


def test_hints_come_one_by_one_and_end(notebook):
    shown = [notebook.run(f"%hint {DOUBLE.number}") for _ in range(4)]
    for number, (text, hint) in enumerate(zip(shown, DOUBLE.hints, strict=False), start=1):
        assert f"Hint {number} of 3" in text and hint in text
    assert "no more hints" in shown[3] and all(hint in shown[3] for hint in DOUBLE.hints)


def test_the_solution_opens_after_three_different_attempts(notebook):
    assert "3 more tries" in notebook.run("%solution 91.1")
    for number in (3, 4, 4):
        notebook.check(wrong(number))
    assert "one more try" in notebook.run("%solution 91.1")
    notebook.check(wrong(5))
    assert "def double(x)" in notebook.run("%solution 91.1")


def test_the_solution_opens_after_success(notebook):
    notebook.check(DOUBLE_SOLUTION)
    assert "def double(x)" in notebook.run("%solution 91.1")


def test_my_kernel_is_the_last_right_answer(notebook):
    def default(x):
        return x

    assert magics.my_kernel("91.1", default) is default
    notebook.check(wrong(3))
    assert magics.my_kernel("91.1", default) is default
    notebook.check(DOUBLE_SOLUTION)
    notebook.check(wrong(4))
    kernel = magics.my_kernel("91.1", default)
    assert torch.equal(kernel(torch.tensor([1.0, 2.0])), torch.tensor([2.0, 4.0]))


def test_my_kernel_falls_back_when_the_stored_answer_no_longer_runs(course_home):
    from course_lab.journal import record

    record("91.1", "attempt", status="passed", answer="a", code="import nothing_of_that_name", entry="double")
    with pytest.warns(UserWarning, match="no longer runs"):
        assert magics.my_kernel("91.1", len) is len
    assert history("91.1").solved


def test_what_runs_in_the_notebook_is_what_was_graded(notebook):
    hidden = 'if __name__ == "__main__":\n    double = None\n    raise SystemExit\n'
    assert "91.1 Double: right" in notebook.check(DOUBLE_SOLUTION + hidden)
    assert callable(notebook.shell.user_ns["double"])
    report = notebook.check("%%exercise 91.1\n" + DOUBLE_SOLUTION)
    assert "Python cannot read line 2" in report, "a second header is no part of an answer"


def test_an_answer_that_runs_only_once_is_right_and_said_not_to_be_defined(notebook, tmp_path):
    once = f"import os\nif os.getpid() == {os.getpid()}:\n    raise KeyError('here')\n{DOUBLE_SOLUTION}"
    shown = notebook.check(once)
    assert "91.1 Double: right" in shown and "run once more it raised KeyError" in shown
