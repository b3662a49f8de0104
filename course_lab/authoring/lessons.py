"""Find lessons, exercises and answers through the entry-point group `course_lab.lessons`.

    [project.entry-points."course_lab.lessons"]
    "02_rmsnorm" = "course_lessons.l02_rmsnorm"

The name is the notebook's name; its number is the first part of the lesson's exercise numbers. An instructor's private
lessons register in the same way from a package of their own. Nothing of a lesson is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from course_lab.authoring import source

if TYPE_CHECKING:
    from course_lab.authoring.exercise import Exercise, Mutant
    from course_lab.authoring.operators.equivalent import Equivalent

GROUP = "course_lab.lessons"


class LessonError(Exception):
    """A lesson or exercise that isn't there or contradicts itself; the message says what to do."""


@dataclass(frozen=True)
class Lesson:
    """One lesson: `name` ("02_rmsnorm") and the package that holds its source."""

    name: str
    package: str

    @property
    def number(self) -> int:
        """The lesson's number: 2 for "02_rmsnorm", whose exercises are 2.1, 2.2, ..."""
        return int(self.name.partition("_")[0])

    @cached_property
    def path(self) -> Path:
        """The folder of the lesson's source."""
        try:
            spec = importlib.util.find_spec(self.package)
        except ModuleNotFoundError:
            spec = None
        if spec is None or not (spec.origin or spec.submodule_search_locations):
            raise LessonError(
                f"Lesson {self.name} is registered as {self.package}, which can't be imported: "
                "create the package, or take its line out of the entry points and install again."
            )
        return Path(spec.origin).parent if spec.origin else Path(next(iter(spec.submodule_search_locations)))

    @cached_property
    def root(self) -> Path:
        """The folder that holds notebooks/, exercises/ and solutions/: the nearest one above with a pyproject.toml."""
        for folder in self.path.parents:
            if (folder / "pyproject.toml").exists():
                return folder
        raise LessonError(
            "The course is installed here without its notebooks: get its repository and run this there; "
            "`course check FILE.ipynb` grades a notebook that you name."
        )

    @cached_property
    def title(self) -> str:
        """The heading of the lesson: "02 RMSNorm"."""
        heading = re.search(r"^# # (.+)$", self.file("lesson.py").read_text(encoding="utf-8"), re.MULTILINE)
        return heading.group(1) if heading else self.name

    @property
    def subject(self) -> str:
        """What the lesson teaches, in one line: the docstring of its package."""
        return (importlib.import_module(self.package).__doc__ or "").strip().removesuffix(".")

    @property
    def minutes(self) -> int | None:
        """Expected time of reading, without the exercises: MINUTES of its package."""
        return getattr(importlib.import_module(self.package), "MINUTES", None)

    @cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        """EXERCISES of the lesson's spec.py."""
        exercises = tuple(self._module("spec").EXERCISES)
        for exercise in exercises:
            if not exercise.number.startswith(f"{self.number}."):
                raise LessonError(
                    f"Lesson {self.name} has an exercise {exercise.number}: number it {self.number}.1, ..."
                )
        return exercises

    @cached_property
    def steps(self) -> tuple[Exercise, ...]:
        """STEPS of the lesson's steps.py: the short exercises inside lesson.py, numbered 2.a, 2.b; () without one."""
        return tuple(self._module("steps").STEPS) if self._has_steps else ()

    @property
    def _has_steps(self) -> bool:
        return (self.path / "steps.py").exists()

    @property
    def core(self) -> tuple[str, ...]:
        """CORE of its package: the numbers of the exercises on the short path through the course."""
        return tuple(getattr(importlib.import_module(self.package), "CORE", ()))

    @property
    def required(self) -> tuple[str, ...]:
        """REQUIRED of its package: of a lesson beside the short path, the exercises that everybody should do."""
        return tuple(getattr(importlib.import_module(self.package), "REQUIRED", ()))

    @cached_property
    def taught(self) -> dict[str, str]:
        """TAUGHT of the lesson's guide.py, where there is one: for diagnoses, the place in a lesson that teaches them.

        A place is a notebook's name and a heading: "01_vector_add#Rung 3: the tail".
        """
        return self._in_guide("TAUGHT")

    @cached_property
    def found(self) -> dict[str, tuple[str, str]]:
        """FOUND of the lesson's guide.py: what only its own examiners find, as code: (a sentence, a place)."""
        return self._in_guide("FOUND")

    def _in_guide(self, name: str) -> dict:
        return dict(getattr(self._module("guide"), name, {})) if (self.path / "guide.py").exists() else {}

    @property
    def core_minutes(self) -> int | None:
        """CORE_MINUTES of its package: reading, without what lesson.py marks as optional."""
        return getattr(importlib.import_module(self.package), "CORE_MINUTES", None)

    @cached_property
    def minimum_exercises(self) -> int:
        """MINIMUM_EXERCISES of spec.py (4 when it names none)."""
        return getattr(self._module("spec"), "MINIMUM_EXERCISES", 4)

    @cached_property
    def mutants(self) -> dict[str, tuple[Mutant, ...]]:
        """MUTANTS of mutants.py and steps.py: the wrong answers of each exercise; none without exercises."""
        found = dict(self._module("mutants").MUTANTS) if self.exercises else {}
        return found | (dict(self._module("steps").MUTANTS) if self._has_steps else {})

    @cached_property
    def equivalents(self) -> dict[str, tuple[Equivalent, ...]]:
        """EQUIVALENT of equivalents.py, where there is one: generated mutants that are no mistakes, by exercise."""
        return dict(self._module("equivalents").EQUIVALENT) if (self.path / "equivalents.py").exists() else {}

    @cached_property
    def answers(self) -> dict[str, source.Answer]:
        """Stub and solution of each exercise, from exercises.py, and of each step, from lesson.py."""
        found = source.answers(self.file("exercises.py")) if self.exercises else {}
        return found | (source.answers(self.file("lesson.py")) if self.steps else {})

    def is_built_in(self, folder: Path) -> bool:
        """Whether the lesson's notebooks belong into `folder`'s notebooks/, exercises/ and solutions/."""
        try:
            return self.root.samefile(folder)
        except LessonError:
            return False

    def file(self, name: str) -> Path:
        """Return the path of one source file; `LessonError` when it is missing."""
        path = self.path / name
        if not path.exists():
            raise LessonError(f"Lesson {self.name} has no {name}: expected it at {path}.")
        return path

    def notebook(self, folder: str) -> Path:
        """Return the path of the lesson's notebook in `folder`: "notebooks", "exercises" or "solutions"."""
        return self.root / folder / f"{self.name}.ipynb"

    def _module(self, name: str) -> ModuleType:
        path = self.file(f"{name}.py")
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except Exception as error:  # whatever an author's module raises
            raise LessonError(f"{path} can't be imported: {type(error).__name__}: {error}") from error


def all() -> list[Lesson]:
    """Return the registered lessons by name."""
    return list(_registered())


@cache
def _registered() -> tuple[Lesson, ...]:
    found: dict[str, str] = {}
    for entry in entry_points(group=GROUP):
        if not re.fullmatch(r"\d+_\w+", entry.name):
            raise LessonError(f"The lesson name {entry.name!r} ({entry.value}) must look like 02_rmsnorm.")
        if found.setdefault(entry.name, entry.value) != entry.value:
            raise LessonError(f"Lesson {entry.name} is registered twice: {found[entry.name]} and {entry.value}.")
    return tuple(Lesson(name, found[name]) for name in sorted(found))


def lesson(name: str) -> Lesson:
    """Return the lesson called `name`: "02_rmsnorm", or its number "02"; `LessonError` names the known ones."""
    matches = [known for known in _registered() if name in (known.name, known.name.partition("_")[0])]
    if len(matches) == 1:
        return matches[0]
    which = "more than one lesson" if matches else "no lesson"
    raise LessonError(f"There is {which} called {name!r}. Known are: {_names(known.name for known in _registered())}.")


def exercise(number: str) -> Exercise:
    """Return exercise `number`, for example "2.1"; `LessonError` names the known ones."""
    return _find(number)[1]


def solution(number: str) -> str:
    """Return the code of the solution of exercise `number`, without the magic line."""
    return _answer(number).solution


def stub(number: str) -> str:
    """Return the code that a learner finds in the answer cell of exercise `number`, without the magic line."""
    return _answer(number).stub


def mutants(number: str) -> tuple[Mutant, ...]:
    """Return the wrong answers of exercise `number`."""
    return _find(number)[0].mutants.get(number, ())


def equivalents(number: str) -> tuple[Equivalent, ...]:
    """Return the generated mutants of exercise `number` that are no mistakes."""
    return _find(number)[0].equivalents.get(number, ())


def source_folder(number: str) -> Path:
    """Return the folder that holds the packages of the lessons beside the one with exercise `number`."""
    return _find(number)[0].path.parent


def _answer(number: str) -> source.Answer:
    owner, _ = _find(number)
    try:
        return owner.answers[number]
    except KeyError:
        raise LessonError(
            f'Exercise {number} has no answer cell: add `# %% exercise="{number}"` to {owner.path}/exercises.py.'
        ) from None


def _find(number: str) -> tuple[Lesson, Exercise]:
    """Look only into lessons that carry the number's first part: the others needn't even be importable."""
    hits = [
        (owner, known)
        for owner in _registered()
        if str(owner.number) == number.partition(".")[0]
        for known in (*owner.exercises, *owner.steps)
        if known.number == number
    ]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise LessonError(f"Exercise {number} is defined more than once, in {_names(owner.name for owner, _ in hits)}.")
    raise LessonError(f"There is no exercise {number}. {_alternatives(number)}")


def _alternatives(number: str) -> str:
    """The exercises of the lesson that the number names, else the numbers of the lessons."""
    for owner in _registered():
        if str(owner.number) == number.partition(".")[0] and owner.exercises:
            return f"Those of {owner.name} are {_names(known.number for known in owner.exercises)}."
    return f"Lessons are {_names(str(owner.number) for owner in _registered())}; their exercises 1.1, 1.2, ..."


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
