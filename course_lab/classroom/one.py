"""One submission graded in a process of its own: JSON in by stdin, its results out by stdout.

A Dask worker may have no child processes of Python's kind, and should not be taken along by what a child hands back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.submissions import Found, Submission
from course_lab.classroom.verdicts import Assignment, abandoned, bound_memory, grade_submission

_REFUSED = 3


def grade_one(submission: Submission, assignment: Assignment) -> str:
    """The stored form of one submission's results, as JSON.

    Raises:
        ClassroomError: nothing can be graded here, for want of a sandbox.
    """
    question = json.dumps([asdict(submission), asdict(assignment)])
    command = [sys.executable, "-m", "course_lab.classroom.one"]
    done = subprocess.run(command, input=question, capture_output=True, text=True, errors="replace")
    if done.returncode == _REFUSED:
        raise ClassroomError(done.stderr.strip().rpartition("\n")[2])
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.strip().rpartition("\n")[2][:200]
    why = f"its grader ended with {done.returncode}" + (f" ({said})" if said else "")
    return json.dumps(abandoned(submission, assignment, why))


def main() -> None:
    """Read the question, answer it."""
    from course_lab.classroom.pool import die_with_parent

    die_with_parent()
    bound_memory()
    submission, assignment = json.load(sys.stdin)
    submission["answers"] = {number: Found(**found) for number, found in submission["answers"].items()}
    submission["problems"] = tuple(submission["problems"])
    assignment |= {name: tuple(assignment[name]) for name in ("exercises", "hidden")}
    try:
        result = grade_submission(Submission(**submission), Assignment(**assignment))
    except ClassroomError as error:
        print(error, file=sys.stderr)
        sys.exit(_REFUSED)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
