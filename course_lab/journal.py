"""What a learner has done so far, in one small file of their own.

The file, `progress.jsonl` in COURSE_HOME (default: the user's data folder), has one JSON object a line and only ever
grows.  Each line is written at once, under a lock, and reaches the disk before the check goes on.  A line that a crash
tore in two is skipped by readers and closed off by the next writer; so is a line that is not as `record` writes it.
"format" counts the changes of that form; a line without it has the first.

    progress()          # a table: which exercises are solved, which were tried
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs

from gfxlab import style
from gfxlab.tables import Table

FORMAT = 1
_FILE = "progress.jsonl"
_LONGEST = 3.0  # seconds that a writer waits for another; then it adds its line all the same
_TEXTS = ("time", "exercise", "event", "status", "answer", "diagnosis", "code", "entry")
_MARKS = {"solved": "✓", "tried": "…", "open": "·"}


def home() -> Path:
    """The folder of the learner's progress: COURSE_HOME, else the user's data folder."""
    given = os.environ.get("COURSE_HOME")
    if not given:
        return Path(platformdirs.user_data_dir("triton-amd-course"))
    path = Path(os.path.expanduser(given))
    # a notebook's folder and a terminal's differ: a relative path is meant from the home folder
    return path if path.is_absolute() else Path.home() / path


def record(exercise: str, event: str, **details: Any) -> None:
    """Add one line about exercise "2.1"; event is 'attempt', 'hint' or 'solution'.

    A folder that cannot be written costs a warning, never the check.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"format": FORMAT, "time": now, "exercise": exercise, "event": event, **details}) + "\n"
    try:
        _append(home() / _FILE, line.encode())
    except OSError as error:
        warnings.warn(f"progress is not kept: {error}. Set COURSE_HOME to a folder that you can write.", stacklevel=2)


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+", buffering=0) as file:
        _lock(file)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line  # the last writer died in the middle of its line
        file.write(line)
        os.fsync(file)


def _lock(file: BinaryIO) -> None:
    """Hold the file until it is closed, where its file system has locks and no writer that stands still holds it."""
    deadline = time.monotonic() + _LONGEST
    while time.monotonic() < deadline:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return None


def events(exercise: str | None = None) -> Iterator[dict[str, Any]]:
    """Every readable line, oldest first; of one exercise when a number is given."""
    path = home() / _FILE
    try:
        lines = path.read_bytes().split(b"\n") if path.is_file() else []  # a pipe would never end
    except OSError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_event(event) and exercise in (None, event["exercise"]):
            yield event


def _is_event(event: Any) -> bool:
    """Whether it has the form in which `record` writes: every field that is read is text, or absent."""
    if not isinstance(event, dict) or not isinstance(event.get("exercise"), str):
        return False
    return all(isinstance(event.get(name), (str, type(None))) for name in _TEXTS)


@dataclass(frozen=True)
class History:
    """What is known about one exercise.

    attempts: how many different answers were checked.  code, entry: the last right answer and the function it defines.
    engines: on which that one was right.  passed_at: when it was checked, ISO 8601.
    """

    solved: bool = False
    attempts: int = 0
    hints: int = 0
    code: str | None = None
    entry: str | None = None
    engines: tuple[str, ...] = ()
    passed_at: str | None = None

    @property
    def state(self) -> str:
        return "solved" if self.solved else "tried" if self.attempts else "open"


def history(exercise: str) -> History:
    """What has been recorded about exercise "2.1"."""
    return histories().get(exercise, History())


def histories() -> dict[str, History]:
    """What has been recorded about each exercise, in one reading of the file."""
    known: dict[str, list[dict[str, Any]]] = {}
    for event in events():
        known.setdefault(event["exercise"], []).append(event)
    return {exercise: _history(of_one) for exercise, of_one in known.items()}


def _history(known: list[dict[str, Any]]) -> History:
    passed = [event for event in known if event.get("status") == "passed"]
    last = passed[-1] if passed else {}
    return History(
        solved=bool(passed),
        attempts=len({event.get("answer") for event in known if event.get("event") == "attempt"}),
        hints=sum(event.get("event") == "hint" for event in known),
        code=last.get("code"),
        entry=last.get("entry"),
        engines=_texts(last.get("engines")),
        passed_at=last.get("time"),
    )


def _texts(value: Any) -> tuple[str, ...]:
    """A list of texts, as `record` writes it; () for anything else."""
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


@dataclass(frozen=True)
class LessonProgress:
    """One lesson: its name, the state of each exercise ('solved', 'tried', 'open') by number, and its short path."""

    name: str
    exercises: dict[str, str]
    core: tuple[str, ...] = ()

    @property
    def solved(self) -> int:
        return sum(state == "solved" for state in self.exercises.values())

    @property
    def tried(self) -> int:
        return sum(state != "open" for state in self.exercises.values())


@dataclass(frozen=True, repr=False)
class Progress:
    """The table that `progress()` returns, as text and as HTML."""

    lessons: tuple[LessonProgress, ...]

    def _table(self) -> Table:
        rows = [_row(lesson) for lesson in self.lessons]
        links = {name: f"../notebooks/{name}.ipynb" for name, *_ in rows}  # from any notebook of the course
        links |= {marks: f"../exercises/{name}.ipynb" for name, *_, marks in rows}
        return Table(rows, ("lesson", "solved", "tried", "exercises"), links=links)

    def __str__(self) -> str:
        return f"{self._table().text()}\n\n{self._legend()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return style.card("Progress", f"{self._table().html()}<p>{escape(self._legend())}</p>")

    def _legend(self) -> str:
        """What the marks mean, and how far the short path is."""
        states = [lesson.exercises[number] for lesson in self.lessons for number in lesson.core]
        return _LEGEND + (f"   * short path: {states.count('solved')} of {len(states)} solved" if states else "")


_LEGEND = "✓ solved   … tried   · still open"


def _row(lesson: LessonProgress) -> tuple[str, ...]:
    stars = {number: "*" if number in lesson.core else "" for number in lesson.exercises}
    marks = "  ".join(f"{_MARKS[state]} {number}{stars[number]}" for number, state in lesson.exercises.items())
    total = len(lesson.exercises)
    return lesson.name, f"{lesson.solved}/{total}", f"{lesson.tried}/{total}", marks


def progress() -> Progress:
    """The learner's progress through every lesson that has exercises."""
    from course_lab.authoring import lessons

    rows, known = [], histories()
    for lesson in lessons.all():
        numbers = [exercise.number for exercise in lesson.exercises]
        if numbers:
            states = {number: known.get(number, History()).state for number in numbers}
            rows.append(LessonProgress(lesson.name, states, lesson.core))
    return Progress(tuple(rows))
