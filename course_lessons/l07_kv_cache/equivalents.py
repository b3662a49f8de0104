"""Generated mutants of lesson 07's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, FEW_HEADS, LAST, PROMOTED, REPLACED, ZERO, idle

_WHOLE = "the block is HALF long, and no lane is past its end"
_SAME = "past the end of one head lies the next: the same number goes to the same place"
EQUIVALENT = {
    "7.1": idle(),
    "7.2": (*idle(), Equivalent("launched-twice", ".", "the same numbers go to the same places again")),
    "7.3": (
        Equivalent("half-mask", "does not ask for `i < HALF`", _WHOLE),
        Equivalent("off-by-one", "`i < HALF`", _WHOLE),
    ),
    "7.4": (
        Equivalent("drop-other", r"(k|page) = tl\.load", REPLACED),
        Equivalent("drop-mask", r"k = tl\.load", REPLACED),
        Equivalent("other-value", r"k = tl\.load", REPLACED),
        Equivalent("other-value", r"v = tl\.load", ZERO),
        Equivalent("without-float32", r"tl\.load\((q|k_cache|v_cache)_ptr", PROMOTED),
        Equivalent("other-constant", r"row_sum == 0\.0, 10\.0", "the sum that is divided by it is 0"),
        Equivalent("rounds-early", "`o`", LAST),
        Equivalent("rounds-early", "`new_max`", "softmax is the same whatever is taken off all scores"),
    ),
    "7.5": (
        Equivalent("without-float32", r"tl\.load\(parts_ptr", PROMOTED),
        Equivalent("other-value", r"parts = tl\.load", ZERO),
        Equivalent("without-int64", "program_id", DENSE),
        Equivalent("rounds-early", "`out`", LAST),
        Equivalent("other-constant", r"total == 0\.0, 10\.0", "a weight of 0 is divided by it"),
    ),
    "7.6": (
        *idle(r"k = tl\.load"),
        Equivalent("flat-mask", r"h \* D \+ d", _SAME),
        Equivalent("fixed-block", "1024 whatever `KH`", FEW_HEADS),
        Equivalent("without-int64", "program_id", DENSE),
        Equivalent("launched-twice", ".", "it stores the same once more, and the text counts no launches"),
    ),
}
