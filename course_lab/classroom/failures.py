"""What the one who grades a class can mend."""

from __future__ import annotations


class ClassroomError(RuntimeError):
    """A class cannot be graded as asked; the message says what to do."""
