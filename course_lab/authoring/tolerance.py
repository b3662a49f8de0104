"""How far a right answer may be from the exact result, derived and not chosen.

An answer is compared with the reference before its rounding.  What a right answer may lose is one rounding to the
dtype of the output, and what float32 loses on the way: more, the longer the sum.  An intermediate result in 16 bits, or
a sum kept in them, loses more than that in some element.

Source of the bounds: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 2.2 and 4.2.
"""

from __future__ import annotations

import math

import torch

_FLOAT32 = 2.0**-24
_ELEMENTARY = 8  # units that exp, rsqrt, a division and a few products lose together


def unit(dtype: torch.dtype) -> float:
    """The largest relative error of one rounding: half of the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def rounded_once(dtype: torch.dtype, terms: int = 1, *, size: float = 0.0, roundings: float = 1.0) -> dict:
    """The tolerance of results that are computed in float32 and rounded once to `dtype`, as arguments of a `Case`.

    Args:
        terms: length of the longest sum. Rounding errors of either sign add up to a few times the root of it.
        size: what the largest partial result is, where others of the opposite sign cancel it; 0.0 where none do.
        roundings: how often the statement itself lets a result be rounded to `dtype` on the way.
    """
    walk = 2 * math.sqrt(terms)
    rtol = (0.0 if dtype == torch.float32 else roundings * unit(dtype)) + _FLOAT32 * (_ELEMENTARY + walk)
    atol = _smallest(dtype) + _FLOAT32 * (_ELEMENTARY + walk) * size
    why = f"float32 sums of {terms} terms" + ("" if dtype == torch.float32 else f", rounded to {str(dtype)[6:]}")
    return {"atol": atol, "rtol": rtol, "why": why}


def _smallest(dtype: torch.dtype) -> float:
    """Half of the smallest subnormal number: below the normal range the error is absolute."""
    about = torch.finfo(dtype)
    return about.tiny * about.eps / 2
