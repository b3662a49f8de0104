"""What a class's grading leaves on disk, and how it goes on after it was stopped.

    RESULTS/class.json               what is graded, and the seed
    RESULTS/submissions/alice.json   one file for each submission, which appears in one step, whole

A file that is there is a submission that is done, if it is of this class's seed and of the same answers; any other is
graded (again).  Nothing that was half written counts.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.submissions import Submission
from course_lab.classroom.verdicts import FORMAT, STATUSES, Assignment

_ASIDE = ".writing"


class ResultsError(ClassroomError):
    """The folder of results cannot be used as asked; the message says what to do."""


@dataclass(frozen=True)
class Results:
    """The folder of one class."""

    folder: Path

    @property
    def submissions(self) -> Path:
        return self.folder / "submissions"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and keep every other grader out of it.

        Raises:
            ResultsError: it cannot be written, or another process grades into it.
        """
        try:
            self.submissions.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "w")  # noqa: SIM115  held until the block ends
        except OSError as error:
            raise ResultsError(f"{self.folder} cannot be written ({error.strerror}): name another --out.") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsError(f"Another `course grade` works in {self.folder}: wait for it, or end it.") from None
            for left in (*self.submissions.glob(f"*{_ASIDE}"), *self.folder.glob(f"*{_ASIDE}")):
                left.unlink()
            yield

    def assignment(self, exercises: list[str], seed: str | None, unsafe: bool) -> Assignment:
        """What this class is graded with: the seed is drawn once and kept, more exercises may come.

        Raises:
            ResultsError: the folder holds results of another seed, or from outside a sandbox.
        """
        stored = _read(self.folder / "class.json") or {}
        kept = stored.get("seed")
        if kept and seed and kept != seed:
            raise ResultsError(
                f"{self.folder} holds results of --seed {kept}: leave --seed out, or name another --out."
            )
        if stored and stored.get("unsafe", False) != unsafe:
            raise ResultsError(
                f"{self.folder} was graded {'without' if stored.get('unsafe') else 'in'} a sandbox: name another --out."
            )
        seed = kept or seed or secrets.token_hex(8)
        write(self.folder / "class.json", {"format": FORMAT, "seed": seed, "exercises": exercises, "unsafe": unsafe})
        return Assignment(tuple(exercises), seed, unsafe, (str(self.folder.resolve()),))

    def file(self, learner: str) -> Path:
        """Where a learner's results are; two learners never share a file."""
        name = urllib.parse.quote(learner, safe=" +,=@()[]&'!äöüÄÖÜß")
        if len(name) > 120 or name.startswith(".") or name != learner:
            name = f"{name[:100].lstrip('.')}~{hashlib.sha256(learner.encode()).hexdigest()[:8]}"
        return self.submissions / f"{name}.json"

    def is_done(self, submission: Submission, assignment: Assignment) -> bool:
        """Whether this very submission was graded to its end with this seed, in all that is asked."""
        stored = read_result(self.file(submission.learner))
        if stored is None or stored["learner"] != submission.learner:
            return False
        same = stored["fingerprint"] == submission.fingerprint and stored["seed"] == assignment.seed
        return same and set(assignment.exercises) <= set(stored["exercises"])

    def store(self, result: dict[str, Any]) -> None:
        """Write one submission's results, all or nothing."""
        write(self.file(result["learner"]), result)

    def all(self) -> Iterator[dict[str, Any]]:
        """Every stored result, by name of file; what is none is passed over."""
        for path in sorted(self.submissions.glob("*.json")):
            if (result := read_result(path)) is not None:
                yield result


def write(path: Path, value: Any) -> None:
    """Write JSON in one step: whoever looks sees the old file or the new one, after a power cut too."""
    write_text(path, json.dumps(value, ensure_ascii=True, indent=1))


def write_text(path: Path, text: str) -> None:
    """Write a file in one step."""
    aside = path.with_name(path.name + _ASIDE)
    with open(aside, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_result(path: Path) -> dict[str, Any] | None:
    """One submission's results; None where the file holds none of this form."""
    value = _read(path)
    if value is None or value.get("format") != FORMAT or not isinstance(value.get("exercises"), dict):
        return None
    texts = all(isinstance(value.get(name), str) for name in ("learner", "fingerprint", "seed"))
    return value if texts and all(_is_verdict(one) for one in value["exercises"].values()) else None


def _is_verdict(value: Any) -> bool:
    return isinstance(value, dict) and value.get("status") in STATUSES


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, RecursionError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            value = json.loads(path.read_text(encoding="utf-8"))
            return value if isinstance(value, dict) else None
    return None
