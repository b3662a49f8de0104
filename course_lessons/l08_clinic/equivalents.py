"""Generated mutants of lesson 08's repairs that are right answers, each with its reason.

A finding and a cause have operators of their own. An author's test has none: a check runs the stub's.
"""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, FITS, PROMOTED, ZERO, idle

_DENSE = Equivalent("without-int64", ".", DENSE)
_FLOAT32 = "all is float32, and rounding to float32 changes nothing"
EQUIVALENT = {
    "8.1": (_DENSE, Equivalent("swapped-operands", "`x - mean`", "the difference is squared")),
    "8.2": (_DENSE, Equivalent("rounds-early", "`total`", _FLOAT32)),
    "8.3": (
        *idle(r"k = tl\.load"),
        Equivalent("launched-twice", ".", "a row that is written twice holds what it held after the first time"),
        _DENSE,
    ),
    "8.4": (_DENSE,),
    "8.5": (_DENSE,),
    "8.6": (
        *idle(r"x = tl\.load"),
        Equivalent("rounds-early", "`(squares|scale)`", _FLOAT32),
        Equivalent("fixed-block", "1024 whatever `N`", "both loops walk a row of any width, whatever the block"),
        _DENSE,
    ),
    "8.7": (_DENSE, Equivalent("without-function", "`tl.clamp`", FITS)),
    "8.8": (*idle(), _DENSE),
    "8.9": (_DENSE,),
    "8.10": (
        Equivalent("other-value", r"(a|b) = tl\.load", ZERO),
        Equivalent("one-too-many", ".", "the tile of the last program lies outside, where no lane stores"),
        Equivalent("other-constant", '"num_stages": 1', "the pipeline has a stage less: less LDS, the same numbers"),
        _DENSE,
    ),
    "8.11": (_DENSE, Equivalent("without-float32", ".", PROMOTED)),
    "8.12": (_DENSE, Equivalent("rounds-early", "`power`", _FLOAT32)),
}
