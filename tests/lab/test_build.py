"""The builder: same source, same bytes; nothing stored that wasn't run; rules kept; a learner's work never lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelspec import get_kernel_dict
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_lab.authoring.build import assemble, builder, files, outputs
from course_lab.authoring.build.learner import ORPHANS

FOLDERS = ("notebooks", "exercises", "solutions")
ANSWER = "%%exercise 90.1\ndef double(x):\n    return x + x  # mine"


def find(notebook: NotebookNode, text: str) -> NotebookNode:
    """Return the one cell that contains `text`."""
    (cell,) = [cell for cell in notebook.cells if text in cell.source]
    return cell


def texts(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells]


def answer(fake_course) -> None:
    """Answer the first exercise as a learner does in JupyterLab."""
    notebook = fake_course.notebook("exercises")
    cell = find(notebook, "%%exercise 90.1")
    cell.source = ANSWER
    cell.execution_count = 7
    cell.outputs = [new_output("stream", name="stdout", text="✓")]
    fake_course.save("exercises", notebook)


@pytest.fixture
def no_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a notebook for executed as soon as it is to be."""
    monkeypatch.setattr(builder, "execute", lambda notebook, *args, **kwargs: outputs.normalise(notebook))


# What is built


def test_building_again_changes_no_byte_and_executes_nothing(fake_course, monkeypatch):
    before = [fake_course.path(folder).read_bytes() for folder in FOLDERS]
    monkeypatch.setattr(builder, "execute", lambda *args, **kwargs: pytest.fail("executed"))
    report = fake_course.build()
    assert report.ok and not report.written and len(report.unchanged) == 4
    assert before == [fake_course.path(folder).read_bytes() for folder in FOLDERS]


def test_two_executions_give_the_same_bytes(fake_course):
    fake_course.edit("lesson.py", "print(id(Image))", "print(1)")
    assert fake_course.build().executed == [fake_course.path("notebooks")]
    first = fake_course.path("notebooks").read_bytes()
    fake_course.path("notebooks").unlink()
    assert fake_course.build().executed == [fake_course.path("notebooks")]
    assert fake_course.path("notebooks").read_bytes() == first


def test_outputs_are_kept_in_one_form(fake_course):
    notebook = fake_course.notebook("notebooks")
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == [1, 2, 3, 4, 5, 6, 7]
    streams = find(notebook, "range(3)").outputs
    assert [(stream.name, stream.text) for stream in streams] == [("stdout", "0\n2\n4\n"), ("stderr", "beside\n")]
    assert "image/png" in find(notebook, "Image(base64").outputs[0].data
    assert find(notebook, "1 / 0").outputs[0].traceback == ["ZeroDivisionError: division by zero"]


def test_files_carry_no_noise(fake_course):
    for folder in FOLDERS:
        text = fake_course.path(folder).read_text()
        notebook = json.loads(text)
        assert text == json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        assert set(notebook["metadata"]) == {"course", "kernelspec", "language_info"}
        ids = [cell["id"] for cell in notebook["cells"]]
        assert len(set(ids)) == len(ids)
        assert {key for cell in notebook["cells"] for key in cell["metadata"]} <= {"tags", "course", "slideshow"}


def test_saving_a_notebook_as_jupyterlab_does_changes_no_byte(fake_course):
    """JupyterLab notes the kernel's spec and what the kernel says of its language; the server writes by nbformat."""
    for folder in FOLDERS:
        before, notebook = fake_course.path(folder).read_bytes(), fake_course.notebook(folder)
        spec = get_kernel_dict()
        notebook.metadata.kernelspec = {"name": "python3", **{key: spec[key] for key in ("display_name", "language")}}
        notebook.metadata.language_info = {**IPythonKernel.language_info, "version": "3"}  # as startup.py has it
        fake_course.save(folder, notebook)
        assert fake_course.path(folder).read_bytes() == before


def test_the_learners_notebook_has_stubs_headers_and_no_outputs(fake_course):
    notebook = fake_course.notebook("exercises")
    assert all(cell.execution_count is None and not cell.outputs for cell in notebook.cells if "outputs" in cell)
    first = find(notebook, "%%exercise 90.1")
    assert "    # your code here (roughly 4 lines)" in first.source and "tl.store" not in first.source
    assert "tl.store(y_ptr + offs, x / 2)\n" in find(notebook, "%%exercise 90.2").source
    assert first.metadata.course.exercise == "90.1"
    assert find(notebook, "$y = 2x$").source.startswith(
        "## Exercise 90.1: Double\n\n★☆☆ · about 5 minutes\n\n**Input**"
    )
    assert notebook.cells[-1].source == assemble.NOTES
    assert not any("Without the mask" in text for text in texts(notebook))
    assert not any("### " in text for text in texts(notebook))


def test_solutions_are_solved_executed_and_explained(fake_course):
    notebook = fake_course.notebook("solutions")
    code = find(notebook, "%%exercise 90.1")
    assert "mask = offs < N" in code.source and "your code here" not in code.source
    assert code.execution_count == 2 and code.outputs
    assert find(notebook, "Without the mask") and assemble.NOTES not in texts(notebook)
    assert not any("###" in text for text in texts(notebook))


def test_new_text_is_written_without_executing(fake_course):
    fake_course.edit("lesson.py", "The same cell twice:", "One cell, twice:")
    report = fake_course.build()
    assert report.written == [fake_course.path("notebooks")] and not report.executed
    notebook = fake_course.notebook("notebooks")
    assert find(notebook, "One cell, twice:")
    assert find(notebook, "range(3)").outputs


def test_new_code_and_force_execute(fake_course, monkeypatch):
    runs = []

    def run(notebook, folder, *, strict, name):
        runs.append((name, strict))
        outputs.normalise(notebook)

    monkeypatch.setattr(builder, "execute", run)
    fake_course.edit("lesson.py", "2 * 21", "3 * 21")
    fake_course.build()
    assert runs == [("notebooks/90_double.ipynb", False)]
    fake_course.build(force=True)
    assert runs[1:] == [("notebooks/90_double.ipynb", False), ("solutions/90_double.ipynb", True)]


@pytest.mark.parametrize(
    "code, message",
    [
        ("undefined_name", "cell 5 (undefined_name) raised NameError: name 'undefined_name' is not defined"),
        ("%nonsense", "cell 5 (%nonsense) raised UsageError: Line magic function `%nonsense` not found."),
        ("import os; os._exit(1)", "cell 5 (import os; os._exit(1)) killed its kernel."),
        ("import sys; print(sys.prefix)", "a path of this machine only"),
    ],
)
def test_a_notebook_that_cannot_be_stored_is_not_written(fake_course, code, message):
    before = fake_course.path("notebooks").read_bytes()
    fake_course.edit("lesson.py", "# %%\n2 * 21\n\n# %%\n2 * 21", f"# %%\n{code}")
    report = fake_course.build()
    (problem,) = report.problems
    assert problem.startswith("notebooks/90_double.ipynb, cell 5") and message in problem
    assert fake_course.path("notebooks").read_bytes() == before


def test_a_large_notebook_is_a_warning_and_fails_the_check(fake_course, monkeypatch):
    monkeypatch.setattr(builder, "LARGE_BYTES", 3000)
    report = fake_course.build()
    assert report.ok and "keep it under 3 KB" in report.warnings[0]
    assert not fake_course.build(check=True).ok


def test_progress_bars_and_widgets_are_not_stored():
    cell = new_code_cell(
        "run()",
        outputs=[
            new_output("stream", name="stderr", text="\r 10%|#    | 1/10 [00:01<00:09]\r100%|#####| 10/10 [00:10]\n"),
            new_output("display_data", {"text/plain": "0%|", "application/vnd.jupyter.widget-view+json": {}}),
            new_output("stream", name="stdout", text="a\r"),
            new_output("stream", name="stdout", text="b\n"),
        ],
        metadata={"execution": {"iopub.status.busy": "now"}},
    )
    notebook = NotebookNode(cells=[cell])
    outputs.normalise(notebook)
    assert [output.text for output in cell.outputs] == ["b\n"]
    assert "execution" not in cell.metadata


def test_of_a_slider_its_static_form_is_stored():
    whole = {"text/plain": "step 0", "text/html": "<p>step 0</p>"}
    data = {**whole, "application/vnd.jupyter.widget-view+json": {"model_id": "1"}}
    cell = new_code_cell("walk.slider()", outputs=[new_output("execute_result", data)])
    outputs.normalise(NotebookNode(cells=[cell]))
    assert [output.data for output in cell.outputs] == [whole]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "notebook.ipynb"
    files.write(path, "old")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    monkeypatch.setattr(files.os, "fsync", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _interrupted(*args):
    raise KeyboardInterrupt


# build --check


def test_check_accepts_what_was_built_and_writes_nothing(fake_course):
    assert fake_course.build(check=True).ok
    fake_course.edit("lesson.py", "The same cell twice:", "One cell, twice:")
    before = fake_course.path("notebooks").read_bytes()
    report = fake_course.build(check=True)
    assert fake_course.path("notebooks").read_bytes() == before
    assert report.differences == [
        "notebooks/90_double.ipynb: cell 4 (The same cell twice:) has another text in the source"
    ]
    assert "make lessons" in str(report)


def _never_executed(notebook):
    find(notebook, "range(3)").execution_count = None


def _edited_code(notebook):
    find(notebook, "range(3)").source += "\nprint(6)"


def _lost_cell(notebook):
    del notebook.cells[3]


def _new_id(notebook):
    notebook.cells[0].id = "abc"


def _lost_tags(notebook):
    del find(notebook, "print(id").metadata["tags"]


def _saved_by_jupyter(notebook):
    notebook.metadata.language_info.version = "3.12.1"


def _stored_failure(notebook):
    find(notebook, "range(3)").outputs = [new_output("error", ename="OSError", evalue="", traceback=[])]


@pytest.mark.parametrize(
    "change, difference",
    [
        (_never_executed, "cell 3 (for i in range(3):) was never executed"),
        (_edited_code, "cell 3 (for i in range(3):) has another text in the source"),
        (_lost_cell, "cell 4 (The same cell twice:) of the source is missing"),
        (_new_id, "cell 1 (# Doubling) has another id"),
        (_lost_tags, "cell 8 (print(id(Image))) has other metadata or tags"),
        (_saved_by_jupyter, "its metadata is not the builder's"),
        (_stored_failure, "cell 3 (for i in range(3):) stores an exception, OSError"),
    ],
)
def test_check_names_each_difference(fake_course, change, difference):
    notebook = fake_course.notebook("notebooks")
    change(notebook)
    fake_course.save("notebooks", notebook)
    report = fake_course.build(check=True)
    assert len(report.differences) == 1 and difference in report.differences[0], report
    assert all(line.startswith("notebooks/90_double.ipynb: ") for line in report.differences)


def test_check_notices_a_missing_notebook_and_another_layout(fake_course):
    fake_course.path("solutions").unlink()
    path = fake_course.path("notebooks")
    path.write_text(json.dumps(json.loads(path.read_text())))
    first, second = fake_course.build(check=True).differences
    assert "layout" in first and second == "solutions/90_double.ipynb: it is missing"


# Rules


@pytest.mark.parametrize(
    "file, old, new, sentence",
    [
        ("lesson.py", "# %%\n2 * 21\n\n", "# %%\n" + "x = 1\n" * 25, "has 25 lines; keep it under 25"),
        ("lesson.py", "# %%\n2 * 21\n\n", "# %%\n@triton.jit\n" + "x = 1\n" * 59, "has 60 lines; keep it under 60"),
        ("lesson.py", "# The same", "# :::{note}\n# The same", "is not CommonMark: ':::'"),
        ("lesson.py", "# The same", "# ```{note}\n# ```\n# The same", "is not CommonMark: '```{'"),
        ("lesson.py", "# %%\n2 * 21\n\n", "# %%\n\n", "(empty) is empty: take it out"),
        ("lesson.py", 'tags=["raises-exc', 'tags=["nbval-raises-exc', "use the tag raises-exception"),
        ("lesson.py", "# %%\nimport", '# %% exercise="90.1"\nimport', "exercises belong into exercises.py"),
        ("lesson.py", "# %% tags=[", "# %% tag=[", "has the unknown option 'tag'"),
        ("lesson.py", "\n# %% [markdown]\n# # D", "x = 1\n# %% [markdown]\n# # D", "has code before its first `# %%`"),
        ("exercises.py", 'exercise_header="90.1"', "", "has no statement before it"),
        ("exercises.py", 'exercise_header="90.2"', 'exercise_header="90.1"', "Exercise 90.1 has 2 statements"),
        ("exercises.py", 'exercise="90.2"', 'exercise="90.1"', "is a second answer cell of exercise 90.1"),
        ("exercises.py", 'exercise="90.2"', "exercise=90.2", 'names the exercise 90.2: write it as "2.1", in quotes'),
        ("exercises.py", 'exercise="90.2"', 'exercise="90.3"', "answers exercise 90.3, which spec.py lacks"),
        ("exercises.py", 'exercise="90.2"', 'exercise="90.3"', "Exercise 90.2 has no answer cell"),
        ("exercises.py", "    ### END SOLUTION\n    return", "    return", "`### END SOLUTION` is missing"),
        ("exercises.py", "    ### BEGIN SOLUTION\n    # the", "    # BEGIN SOLUTION\n", "is no marker; write exactly"),
        ("exercises.py", '    """Program p', '    """\n### BEGIN SOLUTION\nProgram p', "doesn't pair up"),
        ("exercises.py", "    ### END BROKEN\n", "    ### END BROKEN\n    x = 1\n", "must follow directly"),
        ("exercises.py", '"""Program p doubles elements p * BLOCK to (p + 1) * BLOCK - 1."""', "", "needs a docstring"),
        ("exercises.py", "def double(x)", "def twice(x)", "The stub of exercise 90.1 doesn't define double()"),
        ("spec.py", ', kind="repair"', "", 'Exercise 90.2 shows broken code: make it kind="repair"'),
        ("spec.py", "2 * x, _CASES, _HINTS", '2 * x, _CASES, _HINTS, kind="repair"', "no `### BEGIN BROKEN` block"),
        ("spec.py", "MINIMUM_EXERCISES = 2\n", "", "Lesson 90_double has 2 exercises; it needs 4"),
        ("spec.py", '"90.2"', '"90.1"', "Exercise number 90.1 is used 2 times"),
        ("spec.py", '"90.2"', '"91.2"', "has an exercise 91.2: number it 90.1"),
        ("spec.py", "EXERCISES = (", "EXERCISES = (1 / 0,", "can't be imported: ZeroDivisionError"),
        ("spec.py", '"How many programs?", ', "", "hints"),
        ("spec.py", 'kind="repair"', 'kind="repair", picture="tile_wlak"', "asks for the picture 'tile_wlak'"),
        ("mutants.py", '_mutants("2 * x")', '_mutants("2 * x")[:3]', "Exercise 90.1 has 3 mutants; it needs 5"),
        ("mutants.py", "x.numel() // 128", "triton.cdiv(x.numel(), 128)", "mutant 'grid rounds down' changes nothing"),
        ("mutants.py", '"90.2"', '"90.3"', "has mutants of exercise 90.3, which spec.py lacks"),
        ("mutants.py", '"never launched"', '"no store mask"', "Exercise 90.1 has 2 mutants called 'no store mask'"),
    ],
)  # fmt: skip
def test_rules_are_checked_by_name(fake_course, file, old, new, sentence):
    fake_course.edit(file, old, new)
    report = fake_course.build(check=True)
    assert any(sentence in problem for problem in report.problems), report


def test_the_overview_lists_what_each_mutant_must_get(fake_course):
    page = fake_course.lesson.parent / "README.md"
    assert "| 90.1 Double | grid rounds down | `grid-floor-division` |" in page.read_text().splitlines()
    fake_course.edit("mutants.py", "grid rounds down", "grid of full blocks")
    assert fake_course.build(check=True).differences == ["fake_lessons/README.md: it is not what the source gives"]
    fake_course.build()
    assert "grid of full blocks" in page.read_text()


def test_a_readme_written_by_hand_stays(fake_course):
    page = fake_course.lesson.parent / "README.md"
    page.write_text("Mine.")
    assert fake_course.build().ok and page.read_text() == "Mine."


# A learner's work


def test_an_answer_survives_new_text(fake_course, no_execution):
    answer(fake_course)
    fake_course.edit("exercises.py", "**Input** `x [N]`", "**Input** `x [N]`, float32")
    before = fake_course.path("exercises").read_bytes()
    report = fake_course.build()
    notebook = fake_course.notebook("exercises")
    kept = find(notebook, "%%exercise 90.1")
    assert kept.source == ANSWER and kept.outputs and kept.execution_count == 7
    assert find(notebook, "float32")
    (copy,) = report.backups
    assert copy.name == "90_double.ipynb.bak-1" and copy.read_bytes() == before


def test_an_answer_survives_a_new_stub_while_an_untouched_stub_is_renewed(fake_course, no_execution):
    answer(fake_course)
    fake_course.edit("exercises.py", "    y = torch.empty_like(x)\n", "    y = torch.zeros_like(x)\n")
    fake_course.build()
    notebook = fake_course.notebook("exercises")
    assert find(notebook, "%%exercise 90.1").source == ANSWER
    assert "zeros_like" in find(notebook, "%%exercise 90.2").source
    assert fake_course.build(check=True).ok


def test_nothing_new_leaves_the_learners_file_alone(fake_course, no_execution):
    answer(fake_course)
    before = fake_course.path("exercises").read_bytes()
    assert fake_course.build(check=True).ok
    report = fake_course.build()
    assert fake_course.path("exercises").read_bytes() == before and not report.backups


def test_cells_that_the_learner_added_stay_in_place(fake_course, no_execution):
    notebook = fake_course.notebook("exercises")
    notebook.cells.insert(0, new_markdown_cell("my title", id="top"))
    notebook.cells.insert(4, new_code_cell("x = 1  # mine", id="mine", execution_count=1))
    notebook.cells.insert(2, new_markdown_cell("between", id="between"))  # two texts that both change
    notebook.cells.append(new_markdown_cell("my last words", id="end"))
    fake_course.save("exercises", notebook)
    expected = "\0".join(texts(notebook))
    changes = {
        "$y = 2x$": "$y = x + x$",
        "is all": "was all",
        ": doubling": " on doubling",
        "language as": "language  as",
    }
    for old, new in changes.items():
        fake_course.edit("exercises.py", old, new)
        expected = expected.replace(old, new)
    fake_course.build()
    assert "\0".join(texts(fake_course.notebook("exercises"))) == expected
    assert fake_course.build(check=True).ok


def test_text_that_the_learner_edited_stays_and_new_text_comes_beside_it(fake_course, no_execution):
    notebook = fake_course.notebook("exercises")
    find(notebook, "$y = 2x$").source += "\n\nMy notes."
    fake_course.save("exercises", notebook)
    fake_course.edit("exercises.py", "That is all.", "That was all.")
    fake_course.build()
    merged = fake_course.notebook("exercises")
    assert find(merged, "$y = 2x$").source.endswith("My notes.") and find(merged, "That was all.")
    fake_course.edit("exercises.py", "$y = 2x$", "$y = x + x$")
    fake_course.build()
    merged = fake_course.notebook("exercises")
    assert find(merged, "My notes.") and find(merged, "$y = x + x$")
    assert fake_course.build(check=True).ok


def test_an_answer_whose_exercise_vanished_moves_to_the_end(fake_course, no_execution):
    answer(fake_course)
    before = {file: (fake_course.lesson / file).read_text() for file in ("exercises.py", "spec.py", "mutants.py")}
    first, second = (before["exercises.py"].index(f'# %% [markdown] exercise_header="90.{n}"') for n in (1, 2))
    fake_course.edit("exercises.py", before["exercises.py"][first:second], "")
    fake_course.edit("spec.py", 'Exercise("90.1", "Double", 1, 5, "double", lambda x: 2 * x, _CASES, _HINTS),', "")
    fake_course.edit("mutants.py", '"90.1": _mutants("2 * x"), ', "")
    fake_course.build()
    assert texts(fake_course.notebook("exercises"))[-2:] == [ORPHANS, ANSWER]
    assert not fake_course.build(check=True).differences

    for file, text in before.items():
        (fake_course.lesson / file).write_text(text)
    fake_course.forget()
    fake_course.build()
    returned = texts(fake_course.notebook("exercises"))
    assert ORPHANS not in returned and returned[3] == ANSWER and returned.count(ANSWER) == 1


def test_an_untouched_stub_whose_exercise_vanished_goes(fake_course, no_execution):
    answer(fake_course)
    source = (fake_course.lesson / "exercises.py").read_text()
    fake_course.edit("exercises.py", source[source.index('# %% [markdown] exercise_header="90.2"') :], "")
    fake_course.build()
    assert not any("90.2" in text for text in texts(fake_course.notebook("exercises")))


def test_white_space_at_line_ends_is_no_answer(fake_course, no_execution):
    pristine = texts(fake_course.notebook("exercises"))
    notebook = fake_course.notebook("exercises")
    find(notebook, "%%exercise 90.1").source = find(notebook, "%%exercise 90.1").source.replace("\n", "  \n") + "\n\n"
    fake_course.save("exercises", notebook)
    assert fake_course.build().backups == []
    assert texts(fake_course.notebook("exercises")) == pristine


def test_a_copied_answer_cell_and_a_deleted_one_lose_nothing(fake_course, no_execution):
    answer(fake_course)
    notebook = fake_course.notebook("exercises")
    first = find(notebook, "%%exercise 90.1")
    copy = new_code_cell("%%exercise 90.1\nsecond_try = 1", id="copy", metadata=first.metadata)
    position = notebook.cells.index(first)
    notebook.cells.insert(position + 1, copy)
    notebook.cells.remove(find(notebook, "%%exercise 90.2"))
    fake_course.save("exercises", notebook)
    fake_course.build()
    merged = texts(fake_course.notebook("exercises"))
    assert merged[position : position + 2] == [ANSWER, "%%exercise 90.1\nsecond_try = 1"]
    assert any(text.startswith("%%exercise 90.2") for text in merged)


def test_a_copy_that_took_over_the_magic_line_becomes_the_answer(fake_course, no_execution):
    notebook = fake_course.notebook("exercises")
    first = find(notebook, "%%exercise 90.1")
    notebook.cells.append(new_code_cell(ANSWER, id="copy", metadata=first.metadata))
    first.source = "notes = 'no magic line any more'"
    fake_course.save("exercises", notebook)
    fake_course.build()
    merged = fake_course.notebook("exercises")
    assert [cell.source for cell in merged.cells[3:5]] == [first.source, ANSWER]
    assert len({cell.id for cell in merged.cells}) == len(merged.cells)
    assert fake_course.build(check=True).ok


def test_a_notebook_that_lost_its_ids_is_recognised_by_its_text(fake_course, no_execution):
    answer(fake_course)
    notebook = fake_course.notebook("exercises")
    expected = texts(notebook)
    for i, cell in enumerate(notebook.cells):
        cell.id = f"other-{i}"
    fake_course.save("exercises", notebook)
    fake_course.build()
    assert texts(fake_course.notebook("exercises")) == expected


def test_a_notebook_that_was_only_run_passes_the_check(fake_course, no_execution):
    notebook = fake_course.notebook("exercises")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 1
    notebook.metadata.language_info.version = "3.12.1"
    fake_course.save("exercises", notebook)
    assert fake_course.build(check=True).ok


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_that_is_no_notebook_is_never_overwritten(fake_course, no_execution, folder):
    path = fake_course.path(folder)
    path.write_text("<<<<<<< HEAD\n{}")
    report = fake_course.build(force=True)
    assert path.read_text() == "<<<<<<< HEAD\n{}"
    (problem,) = report.problems
    assert problem.startswith(f"{folder}/90_double.ipynb is not a valid notebook") and "merge" in problem


def test_each_backup_has_a_name_of_its_own(tmp_path: Path):
    path = tmp_path / "a.ipynb"
    path.write_text("1")
    assert [files.back_up(path).name for _ in range(2)] == ["a.ipynb.bak-1", "a.ipynb.bak-2"]
