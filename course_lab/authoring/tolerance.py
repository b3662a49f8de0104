"""How far a right answer may be from the exact result, derived and not chosen.

An answer is compared with the reference before its rounding, and may round any number within the tolerance.  So the
tolerance is what float32 loses on the way: more, the longer the sum.  An intermediate result in 16 bits, or a sum kept
in them, loses more than that in some element.

Source of the bounds: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.2 and 4.2.
"""

from __future__ import annotations

import math

from course_lab.authoring.exercise import Tolerance

UNIT = 2.0**-24  # the largest relative error of one rounding to float32
_ELEMENTARY = 8  # units that exp, rsqrt, a division and a few products lose together


def in_float32(terms: int = 1, *, size: float = 0.0) -> dict:
    """The tolerance of results that are computed in float32 and rounded once, as arguments of a `Case`.

    Args:
        terms: length of the longest sum. Rounding errors of either sign add up to a few times the root of it.
        size: what the largest partial result is, where others of the opposite sign cancel it; 0.0 where none do.
    """
    lost = UNIT * (_ELEMENTARY + 2 * math.sqrt(terms))
    return {"atol": lost * size, "rtol": lost, "why": f"computed in float32, sums of {terms} terms"}


def each(*tolerances: dict) -> dict:
    """Tolerances of several outputs, as arguments of a `Case`."""
    return tolerances[0] | {"tolerances": tuple(Tolerance(one["atol"], one["rtol"]) for one in tolerances)}
