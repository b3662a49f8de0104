"""Pages of the repository that are made from stored results, whole or between two marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import course_lab
from course_lab.authoring import core, lessons
from course_lab.authoring.build import compat, field_guide, glossary, plans
from course_lab.authoring.lessons import Lesson
from course_lab.bench import survey
from gfxlab.tables import Table

ROOT = Path(course_lab.__file__).parent.parent
_BEGIN, _END = "<!-- {name}: written by `course build` -->", "<!-- {name}: end -->"
_SIMULATOR = """\
<!-- Written by `course build` from course_lab/bench/survey.json; `make test-simulator` measures it. -->
# The simulator, kernel by kernel

Each case runs machine code that Triton's compiler makes for the GPU, on the CPU, and is compared with the PyTorch
reference. Errors are the largest |got - expected| / (1 + |expected|) of all targets and all results, gradients
included, in units of the dtype's last place at 1. The last column compares processor time on one core with Triton's
interpreter, in bfloat16 for gfx942, where the launch has 64 programs or more.

{table}

A launch that needs what the simulator does not have stops with the instruction, its source line and the file to add it
to. Which instructions there are, how each was checked and what is missing:
[instruction by instruction](instructions.md).
Straight lines of plain instructions (lane by lane, of the scalar unit, matrix products) are executed by a small C
extension, 256 lanes at a time, which also moves the bytes of global loads once they are checked. Loads and stores of
LDS are part of such a line as soon as it is known what they lead to: whether two waves of a workgroup meet depends on
its accesses since the last barrier and on nothing else, and these are the same in every turn of a loop, every workgroup
and every launch. What is new goes through the checks for races.
The extension is built where `pip install` finds a C compiler; without one the same instructions are numpy steps, mostly
one and a half to three times slower, with the same results bit by bit (which of several NaN goes on is open in both).
`GFXLAB_COMPILED=0` leaves it unused, `course doctor` says whether it is there, and one that was built of other sources
is not taken. Its tests pass built with gcc 12 and with clang 22 on x86-64, and with gcc's sanitisers for addresses and
undefined behaviour; for 64-bit Arm (Linux, macOS) it was compiled with clang, and not run. Built by MSVC it is untried.
Attention gains least over the interpreter: there each tile is one call of a BLAS, here thousands of small products.
`python -m course_lab.bench.steps "flash_attention, prefill"` shows where its time goes. With numpy alone it was 19,358
steps of 71 waves, and ten times as fast would have left 7 µs for each, which is what a few numpy calls cost whatever
they do; compiled it is 528 steps. Of these the lines that the extension executes take nine tenths, over a third of that
the products of matrices.
How Triton's own tests fare stands in [conformance.md](conformance.md).
"""


def pages(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every such page below `root` and the text that it must have; none where there is no README."""
    readme = root / "README.md"
    if not readme.exists():
        return
    text, results = readme.read_text(encoding="utf-8"), survey.stored()
    here = [lesson for lesson in lessons.all() if lesson.is_built_in(root)]
    text = between("lessons", lesson_table(here), text)
    text = between("simulator", survey.summary(results), text)
    yield readme, between("compat", compat.table(compat.stored()), text)
    if root.samefile(ROOT):
        yield root / glossary.PAGE, glossary.page(here)
        yield root / "docs" / "simulator.md", _SIMULATOR.format(table=survey.table(results))
        yield root / "docs" / "field_guide.md", field_guide.page(here)
        guide = root / plans.PAGE
        tables = {"timetables": plans.timetables(), "misconceptions": plans.misconceptions()}
        text = guide.read_text(encoding="utf-8")
        for name, table in tables.items():
            text = between(name, table, text)
        yield guide, text


def lesson_table(of: list[Lesson]) -> str:
    """Markdown: title, subject, time and exercises of each lesson."""
    return Table([_lesson_row(lesson) for lesson in of], _LESSON_HEAD).markdown()


_LESSON_HEAD = ("lesson", "what it teaches", "reading", "exercises", "difficulty", "short path")


def _lesson_row(lesson: Lesson) -> tuple[str, ...]:
    stars = [exercise.stars for exercise in lesson.exercises] or [0]
    minutes = sum(exercise.minutes for exercise in lesson.exercises)
    work = f"[{len(lesson.exercises)}](exercises/{lesson.name}.ipynb), {minutes} min" if minutes else ""
    span = " to ".join("★" * count for count in sorted({min(stars), max(stars)}))
    reading = f"{lesson.minutes} min" if lesson.minutes else ""
    path = f"{core.short_path_minutes(lesson)} min: {', '.join(lesson.core)}" if lesson.core else ""
    return f"[{lesson.title}](notebooks/{lesson.name}.ipynb)", lesson.subject, reading, work, span, path


def between(name: str, block: str, text: str) -> str:
    """`text` with what stands between the marks called `name` replaced; unchanged where there are no such marks."""
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    before, found, rest = text.partition(begin)
    if not found or end not in rest:
        return text
    return f"{before}{begin}\n{block}\n{end}{rest.partition(end)[2]}"
