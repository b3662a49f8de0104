"""A patient to hunt with, and the table of who sees which patient.

p = patient("8.1")
p.launch(x)           # the launcher as it was
p.test()              # the author's test, which passes
p.reference(x)        # what is right
seen_by("8.1", "8.4") # which engine sees what is wrong with them
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lab.authoring import lessons
from course_lab.authoring.exercise import Exercise
from course_lab.authoring.patient import Look
from course_lab.check import answer, client, grading, patients
from course_lab.check.verdict import CaseRun
from gfxlab import style
from gfxlab.simulator import using
from gfxlab.simulator.core.executor import EXECUTORS
from gfxlab.tables import Table

ARCHS = ("gfx942", "gfx950", "gfx1100")
COLUMNS = ("its test", "interpreter", "guard", *ARCHS, "executed", "waves apart")
RIGHT = "-"
_SECONDS = 30.0


def exercises() -> tuple[Exercise, ...]:
    """The exercises that are patients, of all lessons, in order."""
    return tuple(exercise for lesson in lessons.all() for exercise in lesson.exercises if exercise.patient)


def required() -> tuple[str, ...]:
    """The numbers of those that everybody should do."""
    return tuple(number for lesson in lessons.all() for number in lesson.required)


@dataclass(frozen=True, repr=False)
class PatientFile:
    """The kernel of a patient as it was, and what goes with it."""

    number: str
    names: types.SimpleNamespace
    kernel: Any
    launch: Callable[..., Any]
    test: Callable[[], None]
    reference: Callable[..., Any]

    def waves_apart(self, *arguments: Any, arch: str = "gfx942", order: str = "forwards") -> Any:
        """`launch` on a simulated GPU, each wave run to its end before the next ("forwards" or "backwards").

        Raises:
            KeyError: `order` is neither.
        """
        with using(arch, quiet=True, executor=EXECUTORS[order]):
            return self.launch(*arguments)

    def __repr__(self) -> str:
        return f"patient {self.number}: {self.launch.__name__}, tested by {self.test.__name__}"


def patient(number: str) -> PatientFile:
    """The kernel of exercise `number` as it was, ready to be launched.

    Raises:
        LessonError: there is no such patient; the message names those that exist.
    """
    known = {exercise.number: exercise for exercise in exercises()}
    if number not in known:
        raise lessons.LessonError(f"There is no patient {number!r}. They are {', '.join(known)}.")
    code = lessons.stub(number)
    names = answer.execute(number, f"\n{code}")  # lines as in the cell, below its magic
    tree = answer.parse(code)
    kernel = names[answer.kernels(tree)[0]]
    test = names[patients.old_test(code)[0]]
    exercise = known[number]
    launch = names[exercise.entry]
    return PatientFile(number, types.SimpleNamespace(**names), kernel, launch, test, exercise.reference)


# ---- who sees what -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeenBy:
    """What each engine says of one patient, on the course's own finding. says: by the name of a column."""

    number: str
    launcher: str
    says: dict[str, str]


@dataclass(frozen=True, repr=False)
class WhoSees:
    """Patients by engines; prints as a table, in colours in a notebook."""

    rows: tuple[SeenBy, ...]

    def _table(self) -> Table:
        rows = [(f"{row.number} {row.launcher}", *(row.says[name] for name in COLUMNS)) for row in self.rows]
        return Table(rows, ("patient", *COLUMNS))

    def __str__(self) -> str:
        return self._table().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return style.card("Who sees it", self._table().html())


def seen_by(*numbers: str) -> WhoSees:
    """Run each of these patients (all: none named) as it was, on the solution's finding, on every engine."""
    chosen = [exercise for exercise in exercises() if not numbers or exercise.number in numbers]
    return WhoSees(tuple(_seen_by(exercise) for exercise in chosen))


def _seen_by(exercise: Exercise) -> SeenBy:
    chart = grading.chart(exercise, lessons.stub(exercise.number), lessons.solution(exercise.number))
    found = client.finding(chart.job(chart.solution, ()), exercise.patient.part, time_limit=_SECONDS)
    target = exercise.patient.target
    arguments = target.make(found.arguments[1]) if target else found.arguments
    name, test = patients.old_test(chart.broken)
    failed = client.author_test(chart.job(chart.broken, ()), name, test, time_limit=_SECONDS)
    says = {"its test": "fails" if failed else RIGHT}
    interpreted = chart.run(chart.broken, arguments, Look())
    says["interpreter"] = "wrong" if interpreted.values_wrong else RIGHT
    says["guard"] = "fault" if interpreted.seen.faults else RIGHT
    for arch in ARCHS:
        refused, spills = client.built(chart.job(chart.broken, arguments), arch, time_limit=_SECONDS)
        says[arch] = "refuses" if refused else "spills" if spills else RIGHT
    says["executed"] = _in_words(chart.run(chart.broken, arguments, Look("gfx942")))
    apart = chart.run(chart.broken, arguments, Look("gfx942", "forwards")) if exercise.inplace else None
    says["waves apart"] = _in_words(apart) if apart else ""
    return SeenBy(exercise.number, exercise.entry, says)


def _in_words(run: CaseRun) -> str:
    if run.seen is None:
        return "not run"
    if run.seen.problem:
        return "refuses" if run.seen.problem.refused else "fault" if run.seen.problem.fault else "not run"
    return "wrong" if run.values_wrong else RIGHT
