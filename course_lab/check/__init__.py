"""Grade answers: `%%exercise 2.1` in a notebook, `grade("2.1", code)` anywhere else.

- `grading`    the whole course of a check, in the parent process
- `answer`     the learner's text
- `protocol`, `client`   what parent and child tell each other; the one way to a child
- `child`      what runs in the child process, with `guard` (memory that notices) and `evidence` (who wrote what)
- `alike` running the known mistakes, where no rule explains the numbers
- `instruments` how well a right answer does it, with `measured`, its half of the work in another child
- `verdict`, `diagnosis`, `sentences`, `report`   comparing, explaining, showing
- `magics`     `%%exercise`, `%hint`, `%solution`
- `mine`       `my_kernel`: the learner's own answers as functions
"""

from course_lab.check.grading import grade
from course_lab.check.report import CaseResult, ExerciseFailed, Report
from course_lab.check.sentences import Diagnosis
from gfxlab import sandbox

__all__ = ["CaseResult", "Diagnosis", "ExerciseFailed", "Report", "grade"]

sandbox.preload("course_lab.check.measured")  # and with it all that the children of a check need
