"""Generated mutants of lesson 09's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, FROM_MAX, ROUNDED, ZERO, idle

_NOT_LEFT = "a lane that is not left counts as minus infinity, whatever it holds"
EQUIVALENT = {
    "9.1": (
        Equivalent("other-value", r"x = tl\.load", _NOT_LEFT),
        Equivalent("drop-other", r"x = tl\.load", _NOT_LEFT),
        *idle(r"place = tl\.load"),
        Equivalent("without-float32", r"x = tl\.load", ROUNDED),
        Equivalent("rounds-early", "`best`", ROUNDED),
        Equivalent("without-int64", "program_id", DENSE),
    ),
    "9.2": (
        Equivalent("half-mask", "cumsum", "lanes past the end count only where all have passed, and k - 1 is the most"),
        Equivalent("without-float32", "`tl.load", FROM_MAX),
        Equivalent("without-int64", "program_id", DENSE),
    ),
    "9.3": (
        Equivalent("flat-mask", r"x = tl\.load", ZERO),
        Equivalent("other-value", r"(x|weight) = tl\.load", ZERO),
        Equivalent("without-int64", "program_id", DENSE),
    ),
    "9.5": idle(r"(chosen|slot|position) = tl\.load"),
}
