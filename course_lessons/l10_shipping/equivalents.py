"""Generated mutants of lesson 10's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent

_WIDENED = "the other factor is float32, and PyTorch widens this one to it"
_CAST = "autograd casts a gradient to the dtype of what it belongs to"
_GIVEN = "the default is the stub's, and whoever calls the function may name another"
EQUIVALENT = {
    "10.1": (Equivalent("other-constant", r"eps=", _GIVEN),),
    "10.2": (
        Equivalent("other-constant", r"eps=", _GIVEN),
        Equivalent("lost-conversion", "`.float` out behind `(dy|weight)`", _WIDENED),
        Equivalent("lost-conversion", "`.to` out behind `(dx|dweight)`", _CAST),
    ),
    "10.5": (
        Equivalent(
            "other-constant",
            r"eps=",
            "with which eps a test calls is its own choice: implementation and reference get it",
        ),
    ),
    "10.6": (
        Equivalent(
            "lost-call", "# compiles", "the first run compiles, and the median of 25 runs passes over one that does"
        ),
    ),
}
