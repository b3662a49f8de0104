"""Generated mutants of lesson 01's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent

_IDLE = "no lane of these kernels looks at another one, and masked lanes are never stored"
_PROMOTED = "the other operand is float32, and Triton widens this one to it: a sum is as exact as before"
_COMMUTES = "the sum of two tensors is the same either way round"
_LAST = "the value is rounded to the same dtype at the store that follows"
_DENSE = "y is allocated without gaps, and is too small for its offsets to need more than 32 bits"

_ADDITION = (
    Equivalent("drop-other", ".", _IDLE),
    Equivalent("other-value", ".", _IDLE),
    Equivalent("swapped-loads", ".", _COMMUTES),
    Equivalent("without-float32", ".", _PROMOTED),
)
EQUIVALENT = {
    "1.1": (
        Equivalent("drop-other", ".", _IDLE),
        Equivalent("other-value", ".", _IDLE),
        Equivalent("rounds-early", "`z`", _LAST),
        Equivalent("without-float32", "y_ptr", _PROMOTED),
    ),
    "1.2": _ADDITION,
    "1.3": (Equivalent("drop-other", ".", _IDLE), Equivalent("other-value", ".", _IDLE)),
    "1.4": (
        Equivalent("drop-other", ".", _IDLE),
        Equivalent("other-value", ".", _IDLE),
        Equivalent("without-int64", "program_id", _DENSE),
    ),
    "1.5": _ADDITION,
    "1.6": (
        *_ADDITION,
        Equivalent("rounds-early", "`y`", _LAST),
    ),
}
