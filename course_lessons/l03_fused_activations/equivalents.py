"""Generated mutants of lesson 03's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, FITS, LAST, PROMOTED, ZERO, idle

_PASSED_OVER = "the gate is 0 there; 0 times anything is 0 or NaN, which tl.max passes over, and neither is stored"
_LAST = Equivalent("rounds-early", "`y`|`dx`", LAST)
_UP = Equivalent("without-float32", r"up = tl\.load|`tl\.load\(gate_ptr \+ d", PROMOTED)
EQUIVALENT = {
    "3.1": (*idle(), _LAST, Equivalent("other-host-size", "last dimension of `x`", "x has one dimension")),
    "3.2": (*idle(), _LAST, _UP, Equivalent("rows-without-gaps", "`stride_ym`", DENSE)),
    "3.3": (*idle(), _LAST, _UP),
    "3.4": (
        Equivalent("without-function", "`tl.clamp`", FITS),
        Equivalent(
            "without-float32", r"x = tl\.load", "tl.max widens bfloat16, and so its scale is float32, and x by it"
        ),
    ),
    "3.5": (
        *idle(),
        _LAST,
        Equivalent(
            "without-float32", r"tl\.load\((x|residual|dy)_ptr", "p is a float32, and a sum or quotient with it too"
        ),
    ),
    "3.6": (
        Equivalent("drop-other", r"(gate|up) = tl\.load", _PASSED_OVER),
        Equivalent("other-value", r"tl\.load\(gate_ptr", ZERO),
        _UP,
        Equivalent("without-function", "`tl.clamp`", FITS),
    ),
}
