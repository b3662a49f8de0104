"""What a lesson's source must keep to. Each function returns sentences that name the place and the fix."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from course_lab.authoring import source
from course_lab.authoring.edits import MutantError, apply
from course_lab.authoring.lessons import Lesson, LessonError
from gfxlab import draw

CELL_LINES = 25
KERNEL_CELL_LINES = 60
HINTS = 3
MUTANTS = 5
STEP_MUTANTS = 2
_NOT_COMMONMARK = re.compile(r"^\s*(:::|`{3,}\s*\{|> \[!)|\{(ref|doc|term|eq|numref|cite)\}`", re.MULTILINE)


def problems(lesson: Lesson) -> list[str]:
    """Return everything in the lesson's source that breaks a rule."""
    found: list[str] = []
    for rule in (_lesson_cells, _exercise_cells, _answers, _specs, _mutants):
        try:
            found += rule(lesson)
        except (LessonError, source.SourceError) as error:
            found.append(str(error))
    return list(dict.fromkeys(found))  # one missing file would else be named once for each rule


def _lesson_cells(lesson: Lesson) -> Iterator[str]:
    headers: set[str | None] = set()
    for cell in source.read(lesson.file("lesson.py")):
        yield from _any_cell(cell)
        headers.add(cell.header)
        if cell.exercise and cell.exercise not in headers:
            yield f'{cell.place} has no statement before it: add `# %% [markdown] exercise_header="{cell.exercise}"`.'
        lines, limit = len(cell.text.splitlines()), _limit(cell)
        if cell.kind == "code" and lines >= limit:
            yield f"{cell.place} has {lines} lines; keep it under {limit}, or cut it in two."


def _limit(cell: source.Cell) -> int:
    return KERNEL_CELL_LINES if "@triton.jit" in cell.text else CELL_LINES


def _exercise_cells(lesson: Lesson) -> Iterator[str]:
    if not lesson.exercises:
        return
    headers: Counter[str] = Counter()
    for cell in source.read(lesson.file("exercises.py")):
        yield from _any_cell(cell)
        if cell.header:
            headers[cell.header] += 1
        if cell.exercise and not headers[cell.exercise]:
            yield (f'{cell.place} has no statement before it: add `# %% [markdown] exercise_header="{cell.exercise}"`.')
    for number, count in headers.items():
        if count > 1:
            yield f"Exercise {number} has {count} statements with exercise_header in {lesson.name}: keep one."


def _any_cell(cell: source.Cell) -> Iterator[str]:
    if not cell.text.strip():
        yield f"{cell.place} is empty: take it out."
    if "nbval-raises-exception" in cell.tags:
        yield f"{cell.place}: use the tag raises-exception, which nbval, the builder and JupyterLab all know."
    if cell.kind == "markdown" and (found := _NOT_COMMONMARK.search(cell.text)):
        yield f"{cell.place} is not CommonMark: {found[0].strip()!r} shows as plain text in JupyterLab."


def _answers(lesson: Lesson) -> Iterator[str]:
    """The answer cells and the specs name the same exercises, and each cell makes a usable stub."""
    specs = {exercise.number: exercise for exercise in (*lesson.exercises, *lesson.steps)}
    steps = {step.number for step in lesson.steps}
    for number in sorted(set(lesson.answers) - set(specs)):
        yield f"{lesson.name}/exercises.py answers exercise {number}, which spec.py lacks."
    for number, exercise in specs.items():
        answer = lesson.answers.get(number)
        if answer is None:
            file = "lesson.py" if number in steps else "exercises.py"
            yield f"Exercise {number} has no answer cell in {lesson.name}/{file}."
            continue
        yield from _answer(number, exercise, answer)


def _answer(number: str, exercise, answer: source.Answer) -> Iterator[str]:
    for name, code in (("stub", answer.stub), ("solution", answer.solution)):
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            yield (
                f"The {name} of exercise {number} is not valid Python ({error.msg}, its line {error.lineno}): "
                "a function left empty needs a docstring."
            )
            continue
        if not any(isinstance(node, ast.FunctionDef) and node.name == exercise.entry for node in tree.body):
            yield f"The {name} of exercise {number} doesn't define {exercise.entry}(), its entry in spec.py."
    if exercise.kind == "write" and answer.repairs:
        yield f'Exercise {number} shows broken code: make it kind="repair" in spec.py, or take BROKEN out.'
    if exercise.kind == "write" and not source.only_adds_lines(answer):
        yield f"Solving exercise {number} changes lines of the stub; it may only add some."
    if exercise.kind == "repair" and not answer.repairs:
        yield f'Exercise {number} is of kind "repair" and shows no `### BEGIN BROKEN` block.'


def _specs(lesson: Lesson) -> Iterator[str]:
    if len(lesson.exercises) < lesson.minimum_exercises:
        yield f"Lesson {lesson.name} has {len(lesson.exercises)} exercises; it needs {lesson.minimum_exercises}."
    every = (*lesson.exercises, *lesson.steps)
    for number, count in Counter(exercise.number for exercise in every).items():
        if count > 1:
            yield f"Exercise number {number} is used {count} times in {lesson.name}/spec.py."
    for number in sorted(set(lesson.core) - {exercise.number for exercise in lesson.exercises}):
        yield f"CORE of {lesson.name} names exercise {number}, which spec.py lacks."
    for step in lesson.steps:
        if step.stars or not step.number.startswith(f"{lesson.number}."):
            yield f"Step {step.number} of {lesson.name}: it has no stars, and its number begins with {lesson.number}."
    for exercise in every:
        if len(exercise.hints) != HINTS:
            yield f"Exercise {exercise.number} has {len(exercise.hints)} hints; it needs exactly {HINTS}."
        if exercise.picture and exercise.picture not in draw.__all__:
            yield f"Exercise {exercise.number} asks for the picture {exercise.picture!r}, which gfxlab.draw lacks."


def _mutants(lesson: Lesson) -> Iterator[str]:
    least = {exercise.number: MUTANTS for exercise in lesson.exercises}
    least |= {step.number: STEP_MUTANTS for step in lesson.steps}
    for number in sorted(set(lesson.mutants) - set(least)):
        yield f"{lesson.name}/mutants.py has mutants of exercise {number}, which spec.py lacks."
    for number in least:
        mutants = lesson.mutants.get(number, ())
        if len(mutants) < least[number]:
            yield f"Exercise {number} has {len(mutants)} mutants; it needs {least[number]}."
        for name, count in Counter(mutant.name for mutant in mutants).items():
            if count > 1:
                yield f"Exercise {number} has {count} mutants called {name!r}."
        for mutant in mutants if number in lesson.answers else ():
            try:
                apply(mutant, lesson.answers[number].solution)
            except MutantError as error:
                yield f"Exercise {number}: {error}"
