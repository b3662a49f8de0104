"""Read what learners handed in: folders, zips or single notebooks, and believe nothing that is in them.

    submissions/alice/02_rmsnorm.ipynb      a folder for each learner, notebooks anywhere in it
    submissions/bob.zip                     or a zip
    submissions/carol.ipynb                 or one notebook

Only the answer cells of exercises are taken.  No link is followed, no archive is unpacked to disk, every size is
bounded before anything is read, and what cannot be read costs that exercise or that file, never another's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lab.authoring import source
from course_lab.check.protocol import clean
from course_lab.classroom.failures import ClassroomError

MOST_BYTES = 12 << 20  # of one notebook, its outputs included
MOST_CODE = 64 << 10  # characters of one answer
_MOST_CELLS = 20_000  # of one notebook
_MOST_ANSWERS = 2_000  # answer cells of one submission
_MOST_FILES = 400
_MOST_NOTEBOOKS = 120
_MOST_TOGETHER = 96 << 20
_MOST_ZIP = 256 << 20
_MOST_DIRECTORY = 1 << 20  # bytes of a zip's table of contents
_DEPTH = 6
_NOT_LOOKED_AT = {"solutions", "backups", "__MACOSX", "__pycache__", "node_modules"}
_NUMBER = re.compile(r"[0-9]{1,3}\.([0-9]{1,3}|[a-z])")
_PROGRESS = "progress.jsonl"


@dataclass(frozen=True)
class Found:
    """One answer cell: where it is, in words, and its text, magic line and all; or why that cannot be taken."""

    place: str
    code: str = ""
    problem: str = ""
    note: str = ""


@dataclass(frozen=True)
class Submission:
    """One learner's: their name, the answers by exercise, sentences on what could not be read.

    progress: the text of their progress record, where it is there.
    """

    learner: str
    answers: dict[str, Found] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    progress: str = ""

    @property
    def fingerprint(self) -> str:
        """A hash of all that is graded: equal for two readings of the same submission."""
        taken = {number: [found.code, found.problem] for number, found in sorted(self.answers.items())}
        text = json.dumps([self.learner, taken])
        return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


class SubmissionsError(ClassroomError):
    """The place that was named holds no submissions; the message says what is expected there."""


def learners(place: Path) -> list[tuple[str, Path]]:
    """Name and path of each submission in the folder (or the one zip) `place`, sorted by name.

    Raises:
        SubmissionsError: there is no such folder, or nothing in it.
    """
    if not place.exists():
        raise SubmissionsError(f"There is no folder {place}: name one that holds a folder or a zip for each learner.")
    if not place.is_dir():
        if place.suffix.lower() not in (".zip", ".ipynb"):
            raise SubmissionsError(f"{place} is neither a folder nor a zip: name a folder with one for each learner.")
        return [(_printable(place.stem), place)]
    entries = [entry for entry in os.scandir(place) if not entry.name.startswith(".")]
    wanted = [entry for entry in entries if _is_submission(entry)]
    if not wanted:
        raise SubmissionsError(f"{place} is empty: it should hold a folder, a zip or a notebook for each learner.")
    stems = [_stem(entry) for entry in wanted]
    named = [(_stem(e) if stems.count(_stem(e)) == 1 else e.name, Path(e.path)) for e in wanted]
    found: dict[str, Path] = {}
    for name, path in sorted(named, key=lambda pair: pair[1].name):
        shown, number = _printable(name) or "?", 1
        while shown in found:  # two names may differ in what cannot be shown
            number += 1
            shown = f"{_printable(name)} ({number})"
        found[shown] = path
    return sorted(found.items())


def _is_submission(entry: os.DirEntry) -> bool:
    return entry.is_symlink() or entry.is_dir() or entry.name.lower().endswith((".zip", ".ipynb"))


def _stem(entry: os.DirEntry) -> str:
    return entry.name if entry.is_dir(follow_symlinks=False) else Path(entry.name).stem


def _printable(name: str) -> str:
    return " ".join(clean(name.encode(errors="surrogateescape").decode(errors="backslashreplace"))[:200].split())


def read(learner: str, path: Path) -> Submission:
    """What one learner handed in; nothing is raised, whatever it is."""
    reading = _Reading()
    try:
        _collect(path, reading)
    except Exception as error:  # whatever the file system or the zip library makes of it
        reading.problems.append(f"{_printable(path.name)} cannot be read ({type(error).__name__}: {str(error)[:120]}).")
    cells: dict[str, list[Found]] = {}
    taken = 0
    for name, data in reading.notebooks:
        try:
            for number, found in _answers(name, data):
                taken += 1
                if taken > _MOST_ANSWERS:
                    raise Unreadable(f"there are more than {_MOST_ANSWERS:,} answer cells; the rest was not read")
                cells.setdefault(number, []).append(found)
        except Unreadable as error:
            reading.problems.append(f"{name}: {error}.")
    answers = {number: _the_one(number, found) for number, found in sorted(cells.items())}
    return Submission(learner, answers, tuple(map(clean, reading.problems[:50])), reading.progress)


class Unreadable(Exception):
    """A file is no notebook that can be taken; says why, without a full stop."""


@dataclass
class _Reading:
    notebooks: list[tuple[str, bytes]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    progress: str = ""
    bytes: int = 0
    files: int = 0

    def add(self, name: str, data: bytes) -> None:
        if name.rpartition("/")[2] == _PROGRESS:
            self.progress = data.decode(errors="replace")
        else:
            self.notebooks.append((_printable(name), data))

    def room(self, name: str, size: int) -> bool:
        """Whether a file of so many bytes is read; if not, a sentence says so."""
        most = MOST_BYTES
        if size > most:
            self.problems.append(f"{_printable(name)} has {size:,} bytes, more than the {most:,} that are read.")
        elif self.bytes + size > _MOST_TOGETHER or len(self.notebooks) >= _MOST_NOTEBOOKS:
            self.problems.append(f"{_printable(name)} was not read: there is too much in this submission.")
        else:
            self.bytes += size
            return True
        return False


def _wanted(name: str) -> bool:
    return name.lower().endswith(".ipynb") or name.rpartition("/")[2] == _PROGRESS


# ---- folders ---------------------------------------------------------------------------------------------------------


def _collect(path: Path, reading: _Reading) -> None:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        reading.problems.append(f"{_printable(path.name)} is a link, which is not followed.")
    elif stat.S_ISDIR(status.st_mode):
        _collect_folder(path, "", reading, 0)
    elif path.suffix.lower() == ".zip":
        _collect_zip(path, reading)
    else:
        _collect_file(path, path.name, reading)


def _collect_folder(folder: Path, prefix: str, reading: _Reading, depth: int) -> None:
    if depth > _DEPTH:
        reading.problems.append(f"{_printable(prefix)} lies too deep, and was not looked at.")
        return
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            reading.files += 1
            if reading.files > _MOST_FILES:
                reading.problems.append(f"There are more than {_MOST_FILES} files; the rest was not looked at.")
                return
            name = f"{prefix}{entry.name}"
            if entry.is_symlink():
                reading.problems.append(f"{_printable(name)} is a link, which is not followed.")
            elif entry.is_dir(follow_symlinks=False):
                if entry.name in _NOT_LOOKED_AT or entry.name.startswith("."):
                    continue
                _collect_folder(Path(entry.path), f"{name}/", reading, depth + 1)
            elif _wanted(name):
                _collect_file(Path(entry.path), name, reading)


def _collect_file(path: Path, name: str, reading: _Reading) -> None:
    try:
        # a pipe must not be waited for, and what was a file a moment ago may be a link now
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reading.problems.append(f"{_printable(name)} cannot be opened ({error.strerror}).")
        return
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            reading.problems.append(f"{_printable(name)} is no plain file.")
        elif reading.room(name, status.st_size):
            reading.add(name, file.read(MOST_BYTES))


# ---- zips ------------------------------------------------------------------------------------------------------------


def _collect_zip(path: Path, reading: _Reading) -> None:
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            reading.problems.append(f"{_printable(path.name)} is no plain file.")
            return
        if reason := _no_zip(file):
            reading.problems.append(f"{_printable(path.name)} was not opened: {reason}.")
            return
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if _is_looked_at(member, reading):
                    _collect_member(archive, member, reading)


def _no_zip(file: Any) -> str:
    """Why a file is not opened as a zip: its table of contents would take too much memory, or is not at its end."""
    size = file.seek(0, os.SEEK_END)
    if size > _MOST_ZIP:
        return f"it has {size:,} bytes"
    file.seek(max(size - 65557, 0))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        return "it is no zip, or its end is missing"
    directory = struct.unpack("<I", tail[at + 12 : at + 16])[0]
    if directory > _MOST_DIRECTORY or tail[max(at - 20, 0) : at].startswith(b"PK\x06\x07"):
        return "it lists too many files"
    return ""


def _is_looked_at(member: zipfile.ZipInfo, reading: _Reading) -> bool:
    name = member.filename
    if member.is_dir() or not _wanted(name):
        if name.lower().endswith(".zip"):
            reading.problems.append(f"{_printable(name)} is a zip in a zip, which is not opened.")
        return False
    parts = name.replace("\\", "/").split("/")
    if any(part in _NOT_LOOKED_AT or (part.startswith(".") and part not in (".", "..")) for part in parts[:-1]):
        return False
    if stat.S_ISLNK(member.external_attr >> 16):
        reading.problems.append(f"{_printable(name)} is a link, which is not followed.")
        return False
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        reading.problems.append(f"{_printable(name)} is encrypted, or packed in a way that is not read.")
        return False
    return reading.room(name, member.file_size)


def _collect_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, reading: _Reading) -> None:
    """Unpack one member into memory, never more of it than is allowed, whatever it says of its size."""
    try:
        with archive.open(member) as file:
            data = file.read(MOST_BYTES + 1)
    except Exception as error:  # a broken checksum, a wrong header, garbage for zlib
        reading.problems.append(f"{_printable(member.filename)} cannot be unpacked ({str(error)[:80]}).")
        return
    if len(data) > MOST_BYTES:
        reading.problems.append(f"{_printable(member.filename)} is larger than it says, and was not read.")
    else:
        reading.add(member.filename, data)


# ---- notebooks -------------------------------------------------------------------------------------------------------


def _answers(name: str, data: bytes) -> Iterator[tuple[str, Found]]:
    """The answer cells of a notebook; only the form that is needed is asked of it."""
    cells = _cells(data)
    if len(cells) > _MOST_CELLS:
        raise Unreadable(f"it has {len(cells):,} cells, more than the {_MOST_CELLS:,} that are read")
    for position, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        text = _text(cell.get("source", cell.get("input")))
        number, note = source.without_magic(text)[0], ""
        if number is None:
            number = _noted(cell)
            note = f"The line `{source.MAGIC} {number}` is missing; the cell was taken for what it is marked as."
        if number is None or not _NUMBER.fullmatch(number):
            continue
        place = f"{name}, cell {position}"
        if len(text) > MOST_CODE:
            problem = f"The answer has {len(text):,} characters, more than the {MOST_CODE:,} that are read."
            yield number, Found(place, problem=problem)
        else:
            yield number, Found(place, text, note=note if source.without_magic(text)[0] is None else "")


def _cells(data: bytes) -> list[Any]:
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not in UTF-8 (byte {error.start}), as notebooks are") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"it is no notebook ({type(error).__name__}: {str(error)[:80]})") from None
    if isinstance(notebook, dict) and isinstance(notebook.get("cells"), list):
        return notebook["cells"]
    sheets = notebook.get("worksheets") if isinstance(notebook, dict) else None
    if isinstance(sheets, list) and sheets and isinstance(sheets[0], dict) and isinstance(sheets[0].get("cells"), list):
        return sheets[0]["cells"]
    raise Unreadable("it has no cells")


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    return value if isinstance(value, str) else ""


def _noted(cell: dict[str, Any]) -> str | None:
    metadata = cell.get("metadata")
    course = metadata.get("course") if isinstance(metadata, dict) else None
    number = course.get("exercise") if isinstance(course, dict) else None
    return number if isinstance(number, str) else None


def _the_one(number: str, found: list[Found]) -> Found:
    """The answer among several cells: copies of one text are one, the untouched stub gives way to an answer."""
    with_magic = [one for one in found if not one.note] or found
    different = {source.bare(one.code) if not one.problem else one.problem: one for one in reversed(with_magic)}
    if len(different) > 1:
        stub = _stub(number)
        different = {code: one for code, one in different.items() if code and code != stub} or different
    chosen = list(different.values())
    if len(chosen) == 1:
        return chosen[0]
    places = " and ".join(sorted(one.place for one in chosen)[:4])
    return Found(places, problem=f"There are {len(chosen)} different answers ({places}): which one counts?")


def _stub(number: str) -> str | None:
    from course_lab.authoring import lessons

    with suppress(lessons.LessonError):
        return source.bare(lessons.stub(number))
    return None


def wanted_exercises(found: Iterable[Submission]) -> set[str]:
    """The numbers of every exercise of the lessons in which somebody has an answer cell."""
    from course_lab.authoring import lessons

    started = {number for submission in found for number in submission.answers}
    wanted: set[str] = set()
    for lesson in lessons.all():
        numbers = {exercise.number for exercise in lesson.exercises}
        wanted |= numbers if numbers & started else set()
    return wanted
