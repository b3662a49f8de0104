"""Generated mutants of lesson 09's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import idle

_NOT_LEFT = "a lane that is not left counts as minus infinity, whatever it holds"
_SLOTS = "a cache has fewer than 2^31 slots, and no memory would hold more"
EQUIVALENT = {
    "9.1": (
        Equivalent("other-value", r"x = tl\.load", _NOT_LEFT),
        Equivalent("drop-other", r"x = tl\.load", _NOT_LEFT),
    ),
    "9.4": (Equivalent("without-int64", "`page`", _SLOTS),),
    "9.5": (*idle(r"(chosen|slot|position) = tl\.load"), Equivalent("without-int64", r"page = tl\.load", _SLOTS)),
}
