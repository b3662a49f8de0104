"""The README of a folder of lessons: how a lesson is laid out, and which wrong answers are proven to be rejected."""

from __future__ import annotations

from course_lab.authoring import generated, told
from course_lab.authoring.lessons import Lesson
from gfxlab.tables import Table

MARK = "<!-- Written by `course build`. Edit the lessons' spec.py and mutants.py instead. -->"
_TEXT = """\
# The lessons' source

A lesson is a package that registers in the entry-point group `course_lab.lessons` under its notebook's name:

| file | holds | becomes |
|---|---|---|
| `lesson.py` | the lesson, as py:percent cells | `notebooks/NN_topic.ipynb`, executed |
| `exercises.py` | statements and answer cells, stub and solution in one | `exercises/NN_topic.ipynb` (stubs) and \
`solutions/NN_topic.ipynb` (solved, executed) |
| `spec.py` | `EXERCISES`: number, title, stars, reference, named cases, hints | the headers, and what a check runs |
| `mutants.py` | `MUTANTS`: wrong answers, each with the diagnosis it must get | the table below |
| `steps.py` | `STEPS`, `MUTANTS`: the same for short exercises inside `lesson.py` (2.a, 2.b) | cells of the lesson |

`make lessons` builds the notebooks and this page; the tests fail when they don't agree. CONTRIBUTING.md shows how to
add a lesson, an exercise or a mutant.

## Wrong answers, and what the check says of them

Each mutant is its exercise's solution with one mistake in it. The tests prove that each is rejected with the
diagnosis shown here.
"""


_GENERATED = """\
## Mistakes that a machine makes

`course mutants --generate` applies mutation operators to every solution and grades the results. "No mistake" are those
that a lesson's `equivalents.py` argues to be right answers; "left" are those that pass without a reason, each a case
that is still missing. All of them were run. The repairs of lesson 08 and the answers of lesson 10 have operators of
their own for findings, causes, refusals, results and calls; an author's test has none, as a check runs the stub's.
"""


_TOLD = """\
### What the check says of them

`course mutants --generate --told 40` grades every fortieth of them as a learner's answer, with the searches for the
mistake, and compares what it says with what is known. "Right" names the mistake, its line, or one with the same
numbers; "vague" is true and leaves the cause open, as does a value that is followed to another line (`astray`);
"wrong" names another cause. `make test-full` does it too. The table shows 173 mutants, drawn by the hash of their code
from every third of all that no reason argues to be right.
"""


def overview(lessons: list[Lesson]) -> str:
    """Return the page for `lessons`, which share a folder."""
    sections = [_section(lesson) for lesson in lessons if lesson.exercises]
    found = generated.stored(lessons[0].path.parent / generated.STORED) if lessons else {}
    said = told.stored(lessons[0].path.parent / told.STORED) if lessons else {}
    tables = [_GENERATED, generated.table(found), ""] if found else []
    tables += [_TOLD, told.table(said), ""] if said else []
    return "\n".join([MARK, _TEXT, *sections, *tables])


def _section(lesson: Lesson) -> str:
    rows = [
        (f"{exercise.number} {exercise.title}", mutant.name, f"`{mutant.diagnosis}`")
        for exercise in (*lesson.exercises, *lesson.steps)
        for mutant in lesson.mutants.get(exercise.number, ())
    ]
    return "\n".join([f"### {lesson.name}", "", Table(rows, ("exercise", "mutant", "diagnosis")).markdown(), ""])
