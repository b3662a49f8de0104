"""The three instructions that turn a reciprocal into a correctly rounded quotient (MI300 ISA, section 12.11).

v_div_scale moves numerator or denominator into the range where the refinement is exact and marks in VCC that it did;
v_div_fmas takes the last step and undoes the scaling; v_div_fixup handles 0, infinity and NaN.
"""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core.numbers import F32, I32, U32, fma32
from gfxlab.simulator.instructions.common import Op

_TINY = 2.0**-126  # below lie the denormals


def _exponent(x):
    """The biased exponent field."""
    return ((np.asarray(x).view(U32) >> U32(23)) & U32(0xFF)).view(I32)


def _denormal(x):
    return (x != 0) & (np.abs(x) < _TINY)


def _scale(chosen, denominator, numerator):
    top, bottom = _exponent(numerator), _exponent(denominator)
    difference = top - bottom
    ordinary = (top > 23) & (top < 255) & (bottom > 0) & (bottom < 252) & (difference < 96) & (difference > -125)
    if ordinary.all():
        return chosen, np.zeros(np.broadcast_shapes(chosen.shape, ordinary.shape), bool)
    return _scale_extremes(chosen, denominator, numerator)


def _scale_extremes(chosen, denominator, numerator):
    chosen, denominator, numerator = np.broadcast_arrays(chosen, denominator, numerator)
    quotient = numerator.astype(np.float64) / denominator.astype(np.float64)
    same_denominator = chosen.view(U32) == denominator.view(U32)
    same_numerator = chosen.view(U32) == numerator.view(U32)
    invalid = (denominator == 0) | (numerator == 0)
    huge = _exponent(numerator) - _exponent(denominator) >= 96
    tiny_reciprocal = np.abs(1 / denominator.astype(np.float64)) < _TINY
    tiny_quotient = _denormal(quotient)
    cases = [
        (invalid, np.full(chosen.shape, np.nan, F32), False),
        (huge, np.where(same_denominator, np.ldexp(chosen, 64), chosen), True),
        (_denormal(denominator), np.ldexp(chosen, 64), False),
        # the guide prints 64 here too, which would overflow: a quotient that grows asks for a smaller denominator
        (tiny_reciprocal & tiny_quotient, np.where(same_denominator, np.ldexp(chosen, -64), chosen), True),
        (tiny_reciprocal, np.ldexp(chosen, -64), False),
        (tiny_quotient, np.where(same_numerator, np.ldexp(chosen, 64), chosen), True),
        (_exponent(numerator) <= 23, np.ldexp(chosen, 64), False),
    ]
    conditions = [condition for condition, _, _ in cases]
    scaled = np.select(conditions, [value for _, value, _ in cases], chosen).astype(F32)
    marked = np.select(conditions, [np.full(chosen.shape, mark) for _, _, mark in cases], False)
    return scaled, marked


def _last_step(a, b, c, scaled):
    if not scaled.any():
        return fma32(a, b, c)
    factor = np.where(scaled, np.where(_exponent(c) > 127, 2.0**64, 2.0**-64), 1.0)
    return fma32(a * factor, b, c * factor)  # exact in float64, so that the result is rounded once


def _fix(quotient, denominator, numerator):
    top, bottom = _exponent(numerator), _exponent(denominator)
    normal = (top > 0) & (top < 255) & (bottom > 0) & (bottom < 255)
    if (normal & (top - bottom < 128)).all():
        sign = (np.asarray(denominator).view(U32) ^ np.asarray(numerator).view(U32)) & U32(0x80000000)
        return ((np.asarray(quotient).view(U32) & U32(0x7FFFFFFF)) | sign).view(F32)
    return _fix_extremes(quotient, denominator, numerator)


def _fix_extremes(quotient, denominator, numerator):
    quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), F32(-1), F32(1))
    infinite = np.isinf
    cases = [
        (np.isnan(numerator), numerator),
        (np.isnan(denominator), denominator),
        (((denominator == 0) & (numerator == 0)) | (infinite(denominator) & infinite(numerator)), F32(np.nan)),
        ((denominator == 0) | infinite(numerator), sign * F32(np.inf)),
        (infinite(denominator) | (numerator == 0), sign * F32(0)),
        (np.isnan(quotient), sign * F32(np.inf)),  # the steps before met infinity minus infinity: it is too large
    ]
    return np.select([condition for condition, _ in cases], [value for _, value in cases], sign * np.abs(quotient))


DIVIDE: dict[str, Op] = {
    "v_div_scale_f32": Op(_scale, "f32", ("f32", "mask")),
    "v_div_fmas_f32": Op(_last_step, ("f32", "f32", "f32", "mask"), "f32", reads_vcc=True),
    "v_div_fixup_f32": Op(_fix, "f32"),
}
