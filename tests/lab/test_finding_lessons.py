"""Lessons are found by their entry points, and every wrong name gets a sentence that helps."""

from __future__ import annotations

import pytest

from course_lab.authoring import lessons
from course_lab.authoring.lessons import LessonError


def test_an_instructors_own_lesson_is_found(fake_source):
    names = [lesson.name for lesson in lessons.all()]
    assert "90_double" in names and names == sorted(names)
    lesson = lessons.lesson("90_double")
    assert lesson == lessons.lesson("90")
    assert (lesson.path, lesson.root) == (fake_source.lesson, fake_source.root)
    assert [exercise.number for exercise in lesson.exercises] == ["90.1", "90.2"]
    assert set(lesson.mutants) == {"90.1", "90.2"}


def test_stub_and_solution_come_without_the_magic_line(fake_source):
    assert lessons.exercise("90.1").title == "Double"
    assert lessons.stub("90.1").startswith("@triton.jit\ndef double_kernel")
    assert "your code here" in lessons.stub("90.1") and "your code here" not in lessons.solution("90.1")
    assert "tl.store(y_ptr + offs, x / 2)" in lessons.stub("90.2")
    assert "tl.store(y_ptr + offs, x / 2, mask=mask)" in lessons.solution("90.2")


def test_an_unknown_number_lists_the_known_ones(fake_source, monkeypatch):
    only_ours = tuple(lesson for lesson in lessons.all() if lesson.number == 90)
    monkeypatch.setattr(lessons, "_registered", lambda: only_ours)
    with pytest.raises(LessonError, match=r"There is no exercise 90.9. Those of 90_double are 90.1, 90.2\."):
        lessons.exercise("90.9")


def test_an_unknown_lesson_lists_the_known_ones(fake_source):
    with pytest.raises(LessonError, match="There is no lesson called '77'. Known are: .*90_double"):
        lessons.lesson("77")


def test_two_lessons_with_one_exercise_number(fake_source, monkeypatch):
    twins = (
        lessons.Lesson("90_double", "fake_lessons.l90_double"),
        lessons.Lesson("90_again", "fake_lessons.l90_double"),
    )
    monkeypatch.setattr(lessons, "_registered", lambda: twins)
    with pytest.raises(LessonError, match="Exercise 90.1 is defined more than once, in 90_double, 90_again"):
        lessons.solution("90.1")
    with pytest.raises(LessonError, match="There is more than one lesson called '90'"):
        lessons.lesson("90")


def test_one_name_for_two_packages(fake_source):
    entry_points = fake_source.root / "fake-1.0.dist-info" / "entry_points.txt"
    other = fake_source.root / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text(entry_points.read_text().replace("l90_double", "l91"))
    fake_source.forget()
    with pytest.raises(LessonError, match="Lesson 90_double is registered twice: .*l90_double"):
        lessons.all()


def test_a_name_that_is_no_notebook_name(fake_source):
    entry_points = fake_source.root / "fake-1.0.dist-info" / "entry_points.txt"
    entry_points.write_text(entry_points.read_text().replace("90_double", "double"))
    fake_source.forget()
    with pytest.raises(LessonError, match="The lesson name 'double' .* must look like 02_rmsnorm"):
        lessons.all()


def test_a_missing_package_and_a_missing_file_are_named(fake_source):
    with pytest.raises(LessonError, match="registered as no_such.l99, which can't be imported"):
        _ = lessons.Lesson("99_gone", "no_such.l99").path
    (fake_source.lesson / "spec.py").unlink()
    fake_source.forget()
    with pytest.raises(LessonError, match=r"Lesson 90_double has no spec\.py: expected it at .*l90_double/spec\.py"):
        lessons.exercise("90.1")


def test_an_exercise_without_an_answer_cell(fake_source):
    fake_source.edit("exercises.py", '# %% exercise="90.2"', "# %%")
    with pytest.raises(LessonError, match='Exercise 90.2 has no answer cell: add `# %% exercise="90.2"`'):
        lessons.stub("90.2")


def test_a_lesson_outside_a_checkout_has_no_place_for_notebooks(fake_source):
    (fake_source.root / "pyproject.toml").unlink()
    lesson = lessons.lesson("90")
    assert not lesson.is_built_in(fake_source.root)
    with pytest.raises(LessonError, match="installed here without its notebooks"):
        lesson.notebook("exercises")
