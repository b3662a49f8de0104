"""Generated mutants of lesson 08's repairs that are right answers, each with its reason.

A finding and a cause have operators of their own. An author's test has none: a check runs the stub's.
"""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, PROMOTED, ZERO, idle

EQUIVALENT = {
    "8.2": (Equivalent("without-int64", ".", DENSE),),
    "8.3": (
        *idle(r"k = tl\.load"),
        Equivalent("launched-twice", ".", "a row that is written twice holds what it held after the first time"),
        Equivalent("without-int64", ".", DENSE),
    ),
    "8.7": (Equivalent("without-int64", ".", DENSE),),
    "8.10": (Equivalent("other-value", r"b = tl\.load", ZERO),),
    "8.11": (Equivalent("without-float32", ".", PROMOTED),),
    "8.12": (Equivalent("rounds-early", "`power`", "all is float32, and rounding to float32 changes nothing"),),
}
