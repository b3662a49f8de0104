"""Generated mutants of lesson 05's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, LAST, NOT_STORED, PROMOTED, ZERO

_PRODUCT = (
    Equivalent("other-value", r"= tl\.load", ZERO),
    Equivalent("flat-mask", r"= tl\.load|mask_w =", ZERO),
    Equivalent("rounds-early", "`(c|y)`", LAST),
)
_DENSE = Equivalent("without-int64", r"pid_m|pid_n|program_id", DENSE)
EQUIVALENT = {
    "5.1": (
        *_PRODUCT,
        Equivalent("one-too-many", ".", "each program computes all of c, and a second one stores the same numbers"),
        Equivalent("grid-axis", "max\\(1 - 1, 1\\)", "a grid of one program has no shorter one"),
    ),
    "5.2": _PRODUCT,
    "5.3": (
        *_PRODUCT,
        _DENSE,
        Equivalent("drop-other", r"bias = tl\.load", NOT_STORED),
        Equivalent("without-float32", r"tl\.load\(bias_ptr", PROMOTED),
    ),
    "5.4": (*_PRODUCT, _DENSE, Equivalent("one-too-many", "axis 0", "the tile of the last program lies outside")),
    "5.5": (*_PRODUCT, _DENSE),
    "5.6": (*_PRODUCT, _DENSE),
}
