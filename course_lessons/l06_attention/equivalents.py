"""Generated mutants of lesson 06's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import LAST, NOT_STORED, PROMOTED, REPLACED, ROUNDED, WEIGHTS, ZERO

_SEEN = "a query that is stored sees no key past the last one"
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
    "6.1": (Equivalent("rounds-early", "`y`", LAST),),
    "6.2": (Equivalent("rounds-early", "`new_max`|`centre`", ROUNDED),),
    "6.3": _ONLINE,
    "6.4": (*_ONLINE, Equivalent("without-choice", r"keys_seen = \(offs_m \+ 1 \+ Sk - S\)", _SEEN)),
    "6.5": (
        *_ONLINE,
        Equivalent("half-mask", "does not ask for `offs_n < Sk`", _SEEN),
        Equivalent("without-choice", r"end = \(tl\.max\(keys_seen", _SEEN),
        Equivalent("off-by-one", "`<=` in `offs_n < Sk`", _SEEN),
    ),
    "6.6": (
        *_QUERIES,
        Equivalent("other-value", r"v = tl\.load", ZERO),
        Equivalent("rounds-early", "`ds`", "it is rounded so for the product that follows"),
        Equivalent("without-float32", "`do`", PROMOTED),
    ),
}
