"""Generated mutants of lesson 04's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import DENSE, FEW_HEADS, LAST, PROMOTED, WIDER, idle

_SHORT = "the block is shorter than two halves, so that this load stays in its head, and its idle lanes are not stored"
_WIDER = (
    Equivalent("other-constant", r"next_power_of_2\(.*// 1\)", WIDER),
    Equivalent("fixed-block", r"1024 whatever `(heads|q_heads \+ 2 \* kv_heads)`", FEW_HEADS),
)
_TURN = (*idle(), *_WIDER, Equivalent("without-float32", ".", PROMOTED))
_FIRST_HALF = Equivalent("drop-mask", r"(a|first) = tl\.load", _SHORT)
_DENSE = Equivalent("without-int64", r"program_id|`token`|token - begin", DENSE)
_TABLE = Equivalent("without-int64", r"row = tl\.load\(positions_ptr", DENSE)
EQUIVALENT = {
    "4.1": (*_TURN, _FIRST_HALF, _DENSE),
    "4.2": (*_TURN, _TABLE),
    "4.3": (*_TURN, _DENSE, Equivalent("rounds-early", "`y`", LAST)),
    "4.4": (*_TURN, _DENSE),
    "4.5": (*_TURN, _TABLE, Equivalent("rounds-early", "`(first|second)`", LAST)),
    "4.6": (
        *_TURN,
        _DENSE,
        Equivalent("other-constant", r"D - 1 \* half", WIDER),
        Equivalent(
            "off-by-one", "`<=` in `offs_b < sequences`", "the element after the last start is behind every token"
        ),
    ),
}
