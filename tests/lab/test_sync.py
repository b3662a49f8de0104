"""A learner's year: work in work/, pulls of new text, stubs and exercises, notebooks from before there was work/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_server.services.contents.filemanager import FileContentsManager
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_lab.authoring import lessons
from course_lab.authoring.build import builder, outputs
from course_lab.work import answer_file, choose, sync
from course_lab.work.in_place import keep_stored_outputs

MINE = "%%exercise 90.1\ndef double(x):\n    return x + x  # mine"
OTHER = "%%exercise 90.1\ndef double(x):\n    return 2 * x  # later"
NOTEBOOK = "90_double.ipynb"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def author(fake_course, tmp_path, monkeypatch):
    """The course of an author, as a git repository. `publish` builds and commits what was edited."""
    monkeypatch.setattr(builder, "execute", lambda notebook, *args, **kwargs: outputs.normalise(notebook))
    (fake_course.root / ".gitignore").write_text(
        "/work/\n__pycache__/\n.ipynb_checkpoints/\n/fake-1.0.dist-info/\n/fake_lessons/\n"
    )
    git(fake_course.root, "init", "-q", "-b", "main")

    def publish(*edits: tuple[str, str, str]) -> None:
        for edit in edits:
            fake_course.edit(*edit)
        assert fake_course.build().ok
        git(fake_course.root, "add", ".")
        git(fake_course.root, "commit", "-qm", "new")

    publish()
    fake_course.publish = publish
    return fake_course


@pytest.fixture
def clone(author, tmp_path, monkeypatch) -> Path:
    """The learner's clone. The lesson's source stays the author's: it is registered once for both."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    root = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(author.root), str(root)], check=True)
    monkeypatch.setattr(lessons.Lesson, "root", property(lambda lesson: root))
    return root


@pytest.fixture
def published(author, clone, monkeypatch):
    """Publish, then pull into the clone; the learner's side must let git pull."""

    def publish_and_pull(*edits: tuple[str, str, str]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(lessons.Lesson, "root", property(lambda lesson: author.root))
            author.publish(*edits)
        git(clone, "pull", "-q", "--ff-only")

    return publish_and_pull


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def texts(path: Path) -> list[str]:
    return [cell.source for cell in read(path).cells]


def find(notebook: NotebookNode, text: str) -> NotebookNode:
    (cell,) = [cell for cell in notebook.cells if text in cell.source]
    return cell


def write(path: Path, change) -> None:
    """Change a notebook as JupyterLab saves it."""
    notebook = read(path)
    change(notebook)
    nbformat.write(notebook, path)


def answer_with(code: str):
    def change(notebook: NotebookNode) -> None:
        cell = find(notebook, "%%exercise 90.1")
        cell.source, cell.execution_count = code, 7
        cell.outputs = [new_output("stream", name="stdout", text="seen")]

    return change


def backups(root: Path) -> list[Path]:
    return sorted((root / "work" / "backups").rglob("*.ipynb"))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_first_sync_copies_everything_and_a_second_changes_no_byte(clone):
    assert str(sync()) == "3 new notebooks in work/."
    for folder in ("notebooks", "exercises", "solutions"):
        assert (clone / "work" / folder / NOTEBOOK).read_bytes() == (clone / folder / NOTEBOOK).read_bytes()
    assert git(clone, "status", "--porcelain") == ""
    before = everything(clone / "work")
    assert str(sync()) == "work/ is up to date."
    assert everything(clone / "work") == before


def test_a_year(clone, published):
    """Every kind of news meets every kind of work; nothing that the learner wrote is lost, and git never complains."""
    sync()
    exercises, lesson = clone / "work/exercises" / NOTEBOOK, clone / "work/notebooks" / NOTEBOOK

    write(exercises, answer_with(MINE))  # spring: an answer, a note, an experiment, a cell deleted
    write(exercises, lambda notebook: notebook.cells.insert(2, new_markdown_cell("my note", id="note")))

    def experiment(notebook: NotebookNode) -> None:
        find(notebook, "range(3)").source = "for i in range(5):\n    print(3 * i)"
        find(notebook, "print(id(Image))").outputs = [new_output("stream", name="stdout", text="my own run")]
        notebook.cells.remove(find(notebook, "The same cell twice"))

    write(lesson, experiment)
    published(("exercises.py", "**Input** `x [N]`", "**Input** `x [N]`, float32"))  # summer: new text
    report = sync()
    assert find(read(exercises), "%%exercise 90.1").source == MINE
    assert find(read(exercises), "%%exercise 90.1").outputs
    assert find(read(exercises), "my note") and find(read(exercises), "`x [N]`, float32")
    assert "New text around your work in work/exercises/90_double.ipynb" in str(report)
    assert len(backups(clone)) == 1 and MINE in texts(backups(clone)[0])

    published(  # autumn: both stubs change, and the lesson's text
        ("exercises.py", "    y = torch.empty_like(x)\n", "    y = torch.zeros_like(x)\n"),
        ("lesson.py", "A table and a formula", "A table, and a formula"),
    )
    sync()
    assert find(read(exercises), "%%exercise 90.1").source == MINE
    assert "zeros_like" in find(read(exercises), "%%exercise 90.2").source
    assert find(read(lesson), "A table, and") and find(read(lesson), "print(3 * i)")
    assert find(read(lesson), "print(id(Image))").outputs[0].text == "my own run"
    assert not any("The same cell twice" in text for text in texts(lesson))

    source = (lessons.lesson("90_double").path / "exercises.py").read_text()
    third = source[source.index('# %% [markdown] exercise_header="90.2"') : source.index("# %% [markdown]\n# That is")]
    third = third.replace("90.2", "90.3").replace("halve", "half")
    published(  # winter: an exercise more
        ("exercises.py", "# %% [markdown]\n# That is", third + "# %% [markdown]\n# That is"),
        ("mutants.py", '"90.2": ', '"90.3": _mutants("x / 2"), "90.2": '),
        ("spec.py", "EXERCISES = (\n", 'EXERCISES = (\n    Exercise("90.3", "Half", 2, 10, "half", lambda x: x / 2, '
         '_CASES, _HINTS, kind="repair"),\n'),
    )  # fmt: skip
    sync()
    numbers = [text.split()[1] for text in texts(exercises) if text.startswith("%%exercise")]
    assert numbers == ["90.1", "90.2", "90.3"] and find(read(exercises), "# mine")
    assert texts(clone / "work/solutions" / NOTEBOOK) == texts(clone / "solutions" / NOTEBOOK)
    assert git(clone, "status", "--porcelain") == ""


def test_a_copy_nobody_touched_becomes_the_new_version_without_a_backup(clone, published):
    sync()
    published(("lesson.py", "# # Doubling", "# # Doubling once more"))
    assert str(sync()) == "New version of work/notebooks/90_double.ipynb."
    assert (clone / "work/notebooks" / NOTEBOOK).read_bytes() == (clone / "notebooks" / NOTEBOOK).read_bytes()
    assert backups(clone) == []


def test_new_outputs_reach_a_cell_that_the_learner_did_not_run(clone, published):
    sync()
    lesson = clone / "work/notebooks" / NOTEBOOK
    write(lesson, lambda notebook: notebook.cells.append(new_code_cell("x = 1", id="mine")))
    text = (clone / "notebooks" / NOTEBOOK).read_text()
    (clone / "notebooks" / NOTEBOOK).write_text(text.replace('"beside\\n"', '"aside\\n"'))
    sync()
    assert find(read(lesson), "range(3)").outputs[1].text == "aside\n" and find(read(lesson), "x = 1")


def test_answers_from_before_there_was_work_are_taken_over_once(clone, published):
    """The tracked notebook holds an old answer; after the take-over it is out of the way of `git pull`."""
    old = clone / "exercises" / NOTEBOOK
    write(old, answer_with(MINE))
    write(old, lambda notebook: notebook.cells.append(new_markdown_cell("old note", id="old")))
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    assert MINE in texts(mine) and "old note" in texts(mine)
    write(mine, answer_with(texts(clone / "work/.sync/exercises" / NOTEBOOK)[3]))  # thrown away: back to the stub
    assert str(sync()) == "work/ is up to date." and MINE not in texts(mine)

    report = sync(clear=True)
    assert git(clone, "status", "--porcelain") == ""
    assert "exercises/90_double.ipynb is as the course has it again; as it was before: work/backups/" in str(report)
    assert MINE in texts(backups(clone)[-1])
    published(("exercises.py", "**Input** `x [N]`", "**Input** `x [N]`, float32"))


def test_an_answer_given_in_place_later_is_taken_where_the_copy_has_none(clone):
    sync()
    write(clone / "exercises" / NOTEBOOK, answer_with(MINE))
    assert "Your answers 90.1 from exercises/90_double.ipynb are in work/exercises/90_double.ipynb" in str(sync())
    mine = clone / "work/exercises" / NOTEBOOK
    assert find(read(mine), "%%exercise 90.1").outputs[0].text == "seen"
    write(clone / "exercises" / NOTEBOOK, answer_with(OTHER))
    sync()
    assert MINE in texts(mine) and OTHER not in texts(mine)


def test_a_stash_that_left_conflict_marks_is_read_from_both_sides(clone, published):
    old = clone / "exercises" / NOTEBOOK
    write(old, answer_with(MINE))
    git(clone, "stash")
    published(
        ("exercises.py", "    y = torch.empty_like(x)\n", "    y = torch.zeros_like(x)\n"),
        ("exercises.py", "    # the last", "    # so the last"),
        ("exercises.py", "**Input** `x [N]`", "**Input** `x [N]`, float32"),
    )
    with pytest.raises(subprocess.CalledProcessError):
        git(clone, "stash", "pop")
    assert "<<<<<<<" in old.read_text()
    sync(clear=True)
    mine = clone / "work/exercises" / NOTEBOOK
    assert MINE in texts(mine) and find(read(mine), "float32")
    assert git(clone, "status", "--porcelain") == ""


def test_answers_of_another_folder_are_taken_over(clone, tmp_path):
    sync()
    write(clone / "exercises" / NOTEBOOK, answer_with(MINE))
    elsewhere = tmp_path / "old"
    elsewhere.mkdir()
    (clone / "exercises" / NOTEBOOK).rename(elsewhere / "renamed.ipynb")
    git(clone, "checkout", "--", ".")
    assert "Your answers 90.1 from" in str(sync(take_from=elsewhere))
    assert MINE in texts(clone / "work/exercises" / NOTEBOOK)
    (problem,) = sync(take_from=tmp_path / "jupyter").problems
    assert problem.endswith("holds no notebook with an answer to an exercise of the course.")


def test_a_broken_copy_is_named_and_left_alone(clone, published):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    mine.write_text("{broken")
    published(("exercises.py", "**Input** `x [N]`", "**Input** `x [N]`, float32"))
    (problem,) = sync().problems
    assert "exercises/90_double.ipynb is not a valid notebook" in problem and mine.read_text() == "{broken"


def test_an_author_at_work_keeps_their_notebooks(clone):
    (clone / "course_lessons").mkdir()
    (clone / "course_lessons" / "new.py").touch()
    write(clone / "notebooks" / NOTEBOOK, lambda notebook: notebook.cells.pop())
    before = (clone / "notebooks" / NOTEBOOK).read_bytes()
    (problem,) = sync(clear=True).problems
    assert problem.startswith("course_lessons/ has changes that are not committed")
    assert (clone / "notebooks" / NOTEBOOK).read_bytes() == before


def test_copies_show_their_pictures_and_what_a_stranger_put_in_does_not(clone, published):
    sync()
    mine = clone / "work/notebooks" / NOTEBOOK

    def is_trusted() -> bool:
        return NotebookNotary().check_signature(read(mine))

    assert is_trusted()
    write(mine, lambda notebook: notebook.cells.append(new_markdown_cell("foreign", id="foreign")))
    published(("lesson.py", "# # Doubling", "# # Doubling once more"))
    sync()
    assert not is_trusted()


def test_links_out_of_the_copies_hold(clone, published):
    (clone / "course_kernels").mkdir()
    published(("lesson.py", "A table and", "[A table](../course_kernels/x.py), [more](../notebooks/x.ipynb) and"))
    sync()
    assert (clone / "work" / "course_kernels").samefile(clone / "course_kernels")
    assert not (clone / "work" / "notebooks").is_symlink()


def test_the_copy_counts_unless_it_is_untouched(clone):
    lesson = lessons.lesson("90_double")
    original, mine = clone / "exercises" / NOTEBOOK, clone / "work/exercises" / NOTEBOOK
    assert answer_file(lesson, "90.1") == original  # nothing in work/ yet
    sync()
    assert answer_file(lesson, "90.1") == mine
    write(original, answer_with(MINE))
    assert answer_file(lesson, "90.1") == original
    write(mine, answer_with(OTHER))
    assert answer_file(lesson, "90.1") == mine


def test_notes_stay_where_they_are_written(clone, published):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    write(mine, lambda notebook: find(notebook, "## Your notes").update(source="## Notes\n\nmasks!"))
    published(("exercises.py", "That is all.", "That was all."))
    sync()
    assert texts(mine)[-2:] == ["That was all.", "## Notes\n\nmasks!"]


@pytest.mark.filterwarnings("ignore:Overriding existing pre_save_hook")
@pytest.mark.parametrize("folder", ["notebooks", "exercises", "solutions"])
def test_a_tracked_notebook_that_was_only_run_is_saved_as_it_was(clone, folder):
    """JupyterLab's server saves a run lesson through the hook; a cell that was written in is saved as it is."""
    manager = FileContentsManager(root_dir=str(clone), pre_save_hook=keep_stored_outputs)
    path = f"{folder}/{NOTEBOOK}"

    def run_and_save(text: str = "", to: str = path) -> None:
        model = manager.get(path)
        for cell in model["content"].cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [new_output("stream", text="a time: 1.2 s")], 77
        model["content"].cells[0].source += text
        model["content"].metadata["widgets"] = {}
        manager.save(model, to)

    run_and_save()
    assert git(clone, "status", "--porcelain") == ""
    sync()
    run_and_save(to=f"work/{path}")
    assert "a time" in (clone / "work" / path).read_text()
    run_and_save(" my words")
    assert "my words" in (clone / path).read_text() and "a time" in (clone / path).read_text()


def test_a_step_is_answered_in_the_lesson_itself(tmp_path, monkeypatch):
    """Steps, such as 0.a, are graded where they are named and where a notebook that has them is given."""
    monkeypatch.setenv("COURSE_WORK", str(tmp_path))
    lesson = lessons.lesson("00")
    assert answer_file(lesson, "0.a") == lesson.notebook("notebooks")
    (step,) = choose.chosen(["0.a"])
    assert step.named and step.file == lesson.notebook("notebooks")
    assert "0.a" not in [answer.exercise.number for answer in choose.chosen(["0"])]
    numbers = {exercise.number for _, exercise in choose.exercises([], steps=True)}
    assert {"0.a", "0.1"} <= numbers


def test_course_work_names_another_folder(clone, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_WORK", str(tmp_path / "home"))
    sync()
    assert (tmp_path / "home" / "exercises" / NOTEBOOK).exists() and not (clone / "work").exists()


def test_sync_loads_neither_torch_nor_triton():
    code = "import sys, course_lab.work; print({'torch', 'triton', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


# ---- what other editors, other systems and other people do to a copy -------------------------------------------------

NEWS = ("exercises.py", "**Input** `x [N]`", "**Input** `x [N]`, float32")


def test_a_text_that_both_sides_changed_stands_there_twice(clone, published):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    write(mine, lambda notebook: find(notebook, "**Input** `x [N]`").update(source="**Input**, in my words"))
    published(NEWS)
    assert "New text around your work in work/exercises/90_double.ipynb" in str(sync())
    found = texts(mine)
    assert "**Input**, in my words" in found and any("`x [N]`, float32" in text for text in found)


def test_an_answer_whose_exercise_is_gone_is_kept_and_said_to_be(clone, published):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    write(mine, answer_with(MINE))
    source = (lessons.lesson("90_double").path / "exercises.py").read_text()
    first, second = (source.index(f'# %% [markdown] exercise_header="90.{n}"') for n in (1, 2))
    published(
        ("exercises.py", source[first:second], ""),
        ("spec.py", '    Exercise("90.1", "Double", 1, 5, "double", lambda x: 2 * x, _CASES, _HINTS),\n', ""),
        ("spec.py", "MINIMUM_EXERCISES = 2", "MINIMUM_EXERCISES = 1"),
        ("mutants.py", '"90.1": _mutants("2 * x"), ', ""),
    )
    sync()
    assert MINE in texts(mine) and any("Answers whose exercise is gone" in text for text in texts(mine))


def _by_vs_code(notebook: NotebookNode) -> None:
    notebook.metadata = {"kernelspec": {"display_name": ".venv", "language": "python", "name": "python3"}}
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.3"}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"vs{number}"
        cell.metadata["vscode"] = {"languageId": "python"}


def _by_colab(notebook: NotebookNode) -> None:
    notebook.metadata["colab"] = {"provenance": []}
    notebook.nbformat_minor = 0
    for number, cell in enumerate(notebook.cells):
        del cell["id"]
        cell.metadata = {"id": f"Xy{number}", "colab": {"base_uri": "https://localhost:8080/"}}


def _on_windows(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "\r\n")


@pytest.mark.parametrize("saved", [_by_vs_code, _by_colab, _on_windows])
def test_a_copy_that_another_editor_saved_gets_new_text_once_and_keeps_its_answer(clone, published, saved):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    write(mine, answer_with(MINE))
    notebook = read(mine)
    saved(notebook)
    mine.write_text(nbformat.writes(notebook, version=nbformat.NO_CONVERT))
    published(NEWS)
    report = sync()
    assert report.problems == [] and "New text around your work" in str(report)
    found = [text.replace("\r\n", "\n") for text in texts(mine)]
    assert found.count(MINE) == 1 and len(found) == len(set(found)) == len(texts(clone / "exercises" / NOTEBOOK))
    assert sum("`x [N]`" in text for text in found) == sum(
        "`x [N]`" in text for text in texts(clone / "exercises" / NOTEBOOK)
    )


def test_a_file_with_windows_line_ends_and_a_byte_order_mark_is_read(clone, published):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    write(mine, answer_with(MINE))
    mine.write_bytes(b"\xef\xbb\xbf" + mine.read_bytes().replace(b"\n", b"\r\n"))
    published(NEWS)
    assert sync().problems == [] and MINE in texts(mine)


def test_a_path_with_blanks_and_other_letters(clone, monkeypatch):
    there = clone.with_name("Übung für Ana\u0301 в 2026")
    clone.rename(there)
    monkeypatch.setattr(lessons.Lesson, "root", property(lambda lesson: there))
    assert str(sync()) == "3 new notebooks in work/."
    write(there / "work/exercises" / NOTEBOOK, answer_with(MINE))
    (answer,) = choose.chosen(["90.1"])
    assert answer.code.endswith("# mine") and answer.place == "work/exercises/90_double.ipynb"


def test_an_exercise_that_the_learner_renamed_or_deleted_comes_back_as_a_stub(clone, published):
    sync()
    mine = clone / "work/exercises" / NOTEBOOK
    write(mine, answer_with(MINE.replace("90.1", "90.7")))
    write(mine, lambda notebook: notebook.cells.remove(find(notebook, "%%exercise 90.2")))
    published(NEWS)
    sync()
    numbers = [text.split()[1] for text in texts(mine) if text.startswith("%%exercise")]
    assert sorted(numbers) == ["90.1", "90.2", "90.7"] and any("# mine" in text for text in texts(mine))


def test_a_folder_that_takes_no_file_ends_in_one_sentence(clone, monkeypatch, capsys):
    from course_lab import cli

    (clone / "work").write_text("not a folder")
    monkeypatch.setattr(sys, "argv", ["course", "sync"])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    error = capsys.readouterr().err
    assert exit.value.code == 2 and error.count("\n") == 1 and str(clone / "work") in error
