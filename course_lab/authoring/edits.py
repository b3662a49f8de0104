"""A wrong answer made from the solution: some of its texts replaced."""

from __future__ import annotations

from course_lab.authoring.exercise import Mutant


class MutantError(ValueError):
    """A mutant that cannot be made: its text does not occur in the solution."""


def apply(mutant: Mutant, solution: str) -> str:
    """The solution's code with the mutant's edits.

    Raises:
        MutantError: a text to be replaced does not occur, or nothing changes.
    """
    code = solution
    for old, new in mutant.edits:
        if old not in code:
            raise MutantError(f"mutant {mutant.name!r}: {old!r} does not occur in the solution")
        code = code.replace(old, new)
    if code == solution:
        raise MutantError(f"mutant {mutant.name!r} changes nothing")
    return code
