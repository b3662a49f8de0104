"""Pages made from stored results."""

from course_lab.authoring import lessons
from course_lab.authoring.build import repository_pages
from course_lab.bench import survey


def test_the_pages_of_the_repository_agree_with_the_results():
    for path, text in repository_pages.pages():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make lessons`"


def test_only_what_stands_between_the_marks_changes():
    text = "a\n<!-- x: written by `course build` -->\nold\n<!-- x: end -->\nb\n"
    assert repository_pages.between("x", "new", text) == text.replace("old", "new")
    assert repository_pages.between("y", "new", text) == text


def test_a_summary_names_the_worst_of_each_target():
    errors = [survey.Error("a", "gfx942", "float32", 1.0), survey.Error("b", "gfx942", "float32", 3.0)]
    speeds = [survey.Speed("a", 1.0, 9.0), survey.Speed("b", 1.0, 20.0), survey.Speed("c", 2.0, 4.0)]
    text = " ".join(survey.summary(survey.Survey(errors, speeds)).split())
    assert "| gfx942 | 2 | 3 |" in text
    assert "9 times as fast" in text and "from 2 times for `c` to 20 for `b`" in text
    assert "| `b` | 1 | 3 | 20 |" in survey.table(survey.Survey(errors, speeds))
    assert "6 times as fast" in survey.summary(survey.Survey(errors, [survey.Speed("d", 1.0, 1.0), *speeds]))


def test_without_a_readme_there_are_no_pages(tmp_path):
    assert list(repository_pages.pages(tmp_path)) == []


def test_the_table_of_lessons_gives_time_and_difficulty(fake_source):
    row = repository_pages.lesson_table([lessons.lesson("90")]).splitlines()[2]
    assert row.startswith("| [Doubling](notebooks/90_double.ipynb) | A lesson with two exercises |  |")
    assert row.endswith("| [2](exercises/90_double.ipynb), 15 min | ★ to ★★ |  |")
    known = lessons.lesson("02")
    work = sum(exercise.minutes for exercise in known.exercises)
    end = f"| {known.minutes} min | [6](exercises/02_rmsnorm.ipynb), {work} min | ★ to ★★★ | 41 min: 2.2 |"
    assert repository_pages.lesson_table([known]).endswith(end)
