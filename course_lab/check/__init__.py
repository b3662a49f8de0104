"""Grade answers: `%%exercise 2.1` in a notebook, `grade("2.1", code)` anywhere else.

- `answer`     the learner's text        - `child`, `evidence`, `guard`   what runs in the child process
- `grading`    the whole course of it    - `verdict`, `diagnosis`, `report`   comparing, explaining, showing
- `magics`     `%%exercise`, `%hint`, `%solution`
"""

from course_lab.check.diagnosis import Diagnosis
from course_lab.check.grading import grade
from course_lab.check.report import CaseResult, ExerciseFailed, Report

__all__ = ["CaseResult", "Diagnosis", "ExerciseFailed", "Report", "grade"]
