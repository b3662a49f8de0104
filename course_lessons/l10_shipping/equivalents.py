"""Generated mutants of lesson 10's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent

_WIDENED = "the other factor is float32, and PyTorch widens this one to it"
_CAST = "autograd casts a gradient to the dtype of what it belongs to"
_GIVEN = "the default is the stub's, and whoever calls the function may name another"
_TESTS = "other tests, which every right kernel passes and each wrong one of the check fails, are as good"
EQUIVALENT = {
    "10.1": (
        Equivalent("other-constant", r"eps=", _GIVEN),
        Equivalent("other-host-size", "`weight", "weight has one dimension, or the line above has refused it"),
        Equivalent("lost-refusal", "x.ndim == 0", "the comparison of shapes that follows refuses it in the same way"),
        Equivalent("kept-output", "_kept = ", "it has no elements: there is no memory to share"),
        Equivalent("shorter-shape", "raise ValueError", "which numbers a refusal names is its author's choice"),
    ),
    "10.2": (
        Equivalent("other-constant", r"eps=", _GIVEN),
        Equivalent("lost-conversion", "`.float` out behind `(dy|weight)`", _WIDENED),
        Equivalent("lost-conversion", "`.to` out behind `(dx|dweight)`", _CAST),
    ),
    "10.5": tuple(
        Equivalent(operator, ".", _TESTS)
        for operator in (
            "opposite-sign",
            "lost-operand",
            "other-constant",
            "lost-conversion",
            "shorter-shape",
            "lost-call",
        )
    ),
    "10.6": (
        Equivalent(
            "lost-call", "# compiles", "the first run compiles, and the median of 25 runs passes over one that does"
        ),
    ),
}
