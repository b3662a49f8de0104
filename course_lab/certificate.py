"""`course certificate`: what a learner has solved, on which engines, with which versions and when, as SVG or PDF.

It is drawn from the learner's own record on the learner's own machine, and says so: nobody watched.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import metadata
from typing import Protocol

from course_lab.authoring import lessons
from course_lab.journal import History, histories
from gfxlab.draw.svg import Canvas, Picture

PACKAGES = ("triton-amd-course", "gfxlab", "torch", "triton")
_SELF_CHECKED = (
    "Self-checked: drawn by `course certificate` from the learner's own record, on the learner's own machine. "
    "Nobody supervised the work or examined the record."
)
_UNKNOWN = "engine not recorded"
WIDTH, _LEFT, _RIGHT, _ROW = 760, 36, 724, 20


class Paper(Protocol):
    """What a certificate is drawn on: lengths in pixels, y grows downwards, kinds as of `gfxlab.draw.svg.Canvas`."""

    def text(self, x: float, y: float, text: str, kind: str = "", size: float = 0) -> None: ...
    def line(self, x1: float, y1: float, x2: float, y2: float) -> None: ...
    def outline(self, x: float, y: float, width: float, height: float, kind: str = "l") -> None: ...


@dataclass(frozen=True)
class Passed:
    """What was solved of one lesson.

    numbers: the exercises that passed, in order. total: how many there are. engines: on which they were right, each
    with how many exercises. last: the day of the last one ("2026-11-22"), "" where none was recorded.
    """

    title: str
    numbers: tuple[str, ...]
    total: int
    engines: tuple[tuple[str, int], ...]
    last: str = ""

    @property
    def on(self) -> str:
        """The engines in words."""
        return ", ".join(f"{engine} ({count})" for engine, count in self.engines)


@dataclass(frozen=True)
class Certificate:
    """lessons: those with something solved. versions: of the packages that are installed now. name: "" for none."""

    name: str
    day: str
    lessons: tuple[Passed, ...]
    exercises: int
    versions: tuple[tuple[str, str], ...]

    @property
    def solved(self) -> int:
        return sum(len(lesson.numbers) for lesson in self.lessons)

    @property
    def headline(self) -> str:
        return f"{self.solved} of {self.exercises} exercises passed"

    def __str__(self) -> str:
        rows = [f"  {one.title}: {len(one.numbers)} of {one.total} ({one.on})" for one in self.lessons]
        versions = ", ".join(f"{package} {version}" for package, version in self.versions)
        return "\n".join([self.headline, *rows, f"{self.day}. {versions}.", _SELF_CHECKED])


def collect(name: str = "", day: date | None = None) -> Certificate:
    """Collect what the record says.

    Args:
        name: whose it is; stands on the certificate.
        day: that it is drawn; None is today (UTC).
    """
    known, every = histories(), [lesson for lesson in lessons.all() if lesson.exercises]
    passed = [_passed(lesson, known) for lesson in every]
    today = (day or datetime.now(UTC).date()).isoformat()
    total = sum(lesson.total for lesson in passed)
    return Certificate(name.strip(), today, tuple(one for one in passed if one.numbers), total, _versions())


def _passed(lesson: lessons.Lesson, known: dict[str, History]) -> Passed:
    found = {exercise.number: known.get(exercise.number, History()) for exercise in lesson.exercises}
    solved = {number: history for number, history in found.items() if history.solved}
    engines: dict[str, int] = {}
    for history in solved.values():
        for engine in history.engines or (_UNKNOWN,):
            engines[engine] = engines.get(engine, 0) + 1
    last = max((history.passed_at or "" for history in solved.values()), default="")[:10]
    return Passed(lesson.title, tuple(solved), len(found), tuple(engines.items()), last)


def _versions() -> tuple[tuple[str, str], ...]:
    installed = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return tuple((package, installed[package]) for package in PACKAGES if package in installed)


def draw(told: Certificate) -> Picture:
    """The certificate as a picture; its text is the same facts."""
    canvas = Canvas(WIDTH)
    draw_on(canvas, told)
    return canvas.picture(f"Certificate: {told.headline}, self-checked", str(told))


def draw_on(canvas: Paper, told: Certificate) -> None:
    """The certificate on anything that has a pen."""
    canvas.text(_LEFT, 60, "Triton kernels on AMD GPUs", "b", 26)
    canvas.text(_LEFT, 86, told.name or "A learner of the course", "", 18)
    canvas.text(_RIGHT, 60, told.day, "eq", 14)
    canvas.text(_RIGHT, 86, told.headline, "eb", 14)
    canvas.line(_LEFT, 102, _RIGHT, 102)
    y = _lessons(canvas, told.lessons, 128)
    canvas.line(_LEFT, y - 8, _RIGHT, y - 8)
    versions = "Drawn with " + ", ".join(f"{package} {version}" for package, version in told.versions)
    for line in (*_lines(versions), *_lines(_SELF_CHECKED)):
        y += 16
        canvas.text(_LEFT, y - 4, line, "q")
    canvas.outline(12, 12, WIDTH - 24, y + 8, "a")


def _lessons(canvas: Paper, of: Iterable[Passed], y: float) -> float:
    """A block for each lesson; the y below them."""
    y0 = y
    for lesson in of:
        canvas.text(_LEFT, y, lesson.title, "b", 14)
        canvas.text(_RIGHT, y, f"{len(lesson.numbers)} of {lesson.total}", "e", 14)
        about = f"{', '.join(lesson.numbers)}  on {lesson.on}" + (f"; last on {lesson.last}" if lesson.last else "")
        for line in _lines(about):
            y += _ROW - 4
            canvas.text(_LEFT, y, line, "q")
        y += _ROW + 6
    if y == y0:
        canvas.text(_LEFT, y, "No exercise has been passed yet.", "q")
        y += _ROW
    return y


def _lines(text: str) -> list[str]:
    return textwrap.wrap(text, 112)
