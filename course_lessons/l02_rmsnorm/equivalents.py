"""Generated mutants of lesson 02's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import COMMUTES, DENSE, LAST, PROMOTED, ROUNDED, WIDER, idle

_WEIGHT = (
    *idle(r"w = tl\.load"),
    Equivalent("without-float32", r"^\s*w = tl\.load|`tl\.load\(w_ptr", PROMOTED),
    Equivalent("rounds-early", "`y`", LAST),
)
EQUIVALENT = {
    "2.2": (*_WEIGHT, Equivalent("rows-without-gaps", "`stride_ym`", DENSE)),
    "2.3": (
        *_WEIGHT,
        Equivalent("rounds-early", "`total`|`new_residual`", ROUNDED),
        Equivalent("rows-without-gaps", "`stride_ym`", DENSE),
        Equivalent("swapped-loads", "`x_ptr` and `residual_ptr`", COMMUTES),
        Equivalent("without-float32", r"tl\.load\((x|residual)_ptr", PROMOTED),
    ),
    "2.4": (
        *_WEIGHT,
        *idle(r"b = tl\.load"),
        Equivalent("without-float32", r"tl\.load\(b_ptr", PROMOTED),
        Equivalent("rows-without-gaps", "`stride_ym`", DENSE),
    ),
    "2.5": (
        *_WEIGHT,
        *idle(r"x = tl\.load\(x_ptr \+ cols, mask=mask"),
        Equivalent("swapped-loads", "`x_ptr` and `w_ptr`", COMMUTES),
        Equivalent("without-float32", r"tl\.load\(x_ptr \+ cols, mask=mask", PROMOTED),
        Equivalent("rows-without-gaps", "`stride_ym`", DENSE),
    ),
    "2.6": (
        *_WEIGHT,
        Equivalent("fixed-block", "1024", WIDER),
        Equivalent("rows-without-gaps", "`stride_ym`", DENSE),
    ),
}
