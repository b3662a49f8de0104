"""Generated mutants of lesson 06's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import FROM_MAX, LAST, NOT_STORED, PROMOTED, REPLACED, ROUNDED, WEIGHTS, ZERO

_SEEN = "a query that is stored sees no key past the last one"
_EARLIER = "the loop begins with earlier keys, which the window masks; the text counts no tiles"
_CENTRE = "softmax is the same whatever is taken off all scores: any number near the maximum will do"
_QUERIES = (
    Equivalent("drop-other", r"(q|o|do|lse) = tl\.load", NOT_STORED),
    Equivalent("other-value", r"(q|o|do|lse) = tl\.load", NOT_STORED),
)
_KEYS = (
    Equivalent("drop-other", r"k = tl\.load", REPLACED),
    Equivalent("other-value", r"k = tl\.load", REPLACED),
    Equivalent("other-value", r"v = tl\.load", ZERO),
)
_ONLINE = (
    *_QUERIES,
    *_KEYS,
    Equivalent("rounds-early", r"row_max = \(tl\.full", ROUNDED),
    Equivalent("rounds-early", "`(rescale|p)`", WEIGHTS),
    Equivalent("rounds-early", "`o`", LAST),
)
EQUIVALENT = {
    "6.1": (
        Equivalent("rounds-early", "`y`", LAST),
        Equivalent("without-float32", "`tl.load", FROM_MAX),
        Equivalent("rows-without-gaps", "`stride_ym`", "y is allocated here, without gaps"),
    ),
    "6.2": (
        Equivalent("rounds-early", "`new_max`|`centre`|`row_max`", ROUNDED),
        Equivalent("without-float32", "`tl.load", FROM_MAX),
    ),
    "6.3": _ONLINE,
    "6.4": (*_ONLINE, Equivalent("without-choice", r"keys_seen = \(offs_m \+ 1 \+ Sk - S\)", _SEEN)),
    "6.5": (
        *_ONLINE,
        Equivalent("half-mask", "does not ask for `offs_n < Sk`", _SEEN),
        Equivalent("without-choice", r"end = \(tl\.max\(keys_seen", _SEEN),
        Equivalent("off-by-one", "`<=` in `offs_n < Sk`", _SEEN),
        Equivalent("rounds-early", "`new_max`", _CENTRE),
        Equivalent("lost-operand", r"first = \(tl\.maximum.* // BLOCK\)$", _EARLIER),
        Equivalent("other-size", r"- Sk, 0\) // BLOCK", _EARLIER),
        Equivalent("other-function", r"end = tl\.maximum", _SEEN),
        Equivalent("other-constant", r"row_sum == 0\.0, 10\.0", "the sum that is divided by it is 0"),
    ),
    "6.6": (
        *_QUERIES,
        Equivalent("other-value", r"(k|v) = tl\.load", ZERO),
        Equivalent("other-infinity", "`-1e4`", "a key past the end is loaded as 0, which no weight changes"),
        Equivalent("without-float32", r"o = tl\.load", PROMOTED),
        Equivalent("rounds-early", "`p`", "its product is rounded to the same 16 bits next, and one is like two"),
        Equivalent("rounds-early", "`ds`", "it is rounded so for the product that follows"),
        Equivalent("without-float32", "`do`", PROMOTED),
    ),
}
