"""The three instructions that turn a reciprocal into a correctly rounded quotient (MI300 ISA, section 12.11).

v_div_scale moves numerator or denominator into the range where the refinement is exact and marks in VCC that it did;
v_div_fmas takes the last step and undoes the scaling; v_div_fixup handles 0, infinity and NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gfxlab.simulator.core.numbers import F16, F32, F64, I32, U16, U32, U64, fma32, fma64, nearest64
from gfxlab.simulator.instructions.common import Op


@dataclass(frozen=True)
class _Format:
    """A floating-point format, and by which powers of two the guide scales it."""

    number: type
    bits: type
    mantissa: int  # bits
    scale: int = 0  # v_div_scale multiplies by 2**scale or 2**-scale
    apart: int = 0  # from this difference of the exponents on, the quotient is near the largest number
    tiny: int = 0  # a numerator with this biased exponent or a smaller one is scaled

    @property
    def width(self) -> int:
        return 8 * np.dtype(self.number).itemsize

    @property
    def most(self) -> int:
        """The exponent field of infinity and NaN."""
        return (1 << self.width - 1 - self.mantissa) - 1

    @property
    def smallest(self):
        return np.finfo(self.number).tiny

    def exponent(self, x):
        """The biased exponent field, int32."""
        return (np.asarray(x).view(self.bits) >> self.bits(self.mantissa)).astype(I32) & I32(self.most)

    def denormal(self, x):
        return (x != 0) & (np.abs(x) < self.smallest)


_SINGLE = _Format(F32, U32, 23, scale=64, apart=96, tiny=23)
_DOUBLE = _Format(F64, U64, 52, scale=128, apart=768, tiny=53)
_HALF = _Format(F16, U16, 10)


def _at(odd: np.ndarray, shape: tuple[int, ...], *sources) -> tuple[np.ndarray, list[np.ndarray]]:
    """The lanes that want more than the usual steps, bool of that shape, and the sources there."""
    odd = np.broadcast_to(odd, shape)
    return odd, [np.broadcast_to(source, shape)[odd] for source in sources]


def _scale(form: _Format):
    safe = form.most // 2 - 3

    def compute(chosen, denominator, numerator):
        top, bottom = form.exponent(numerator), form.exponent(denominator)
        difference = top - bottom
        ordinary = (top > form.tiny) & (top < form.most) & (bottom > 0) & (bottom < form.most - 3)
        ordinary &= (difference < form.apart) & (difference > -safe)
        shape = np.broadcast_shapes(np.shape(chosen), ordinary.shape)
        marked = np.zeros(shape, bool)
        if ordinary.all():
            return chosen, marked
        scaled = np.array(np.broadcast_to(chosen, shape))
        odd, sources = _at(~ordinary, shape, chosen, denominator, numerator)
        scaled[odd], marked[odd] = _scale_extremes(form, *sources)
        return scaled, marked

    return compute


def _scale_extremes(form: _Format, chosen, denominator, numerator):
    up, down = (np.ldexp(chosen, n).astype(form.number) for n in (form.scale, -form.scale))
    same_denominator = chosen.view(form.bits) == denominator.view(form.bits)
    same_numerator = chosen.view(form.bits) == numerator.view(form.bits)
    difference = form.exponent(numerator) - form.exponent(denominator)
    tiny_reciprocal = np.abs(1 / denominator.astype(F64)) < form.smallest
    # hardware looks at the exponents alone: a quotient that is just not denormal counts too
    small = difference <= 1 - form.most // 2
    tiny_quotient = small | form.denormal(numerator.astype(F64) / denominator.astype(F64))
    cases = [
        ((denominator == 0) | (numerator == 0), form.number(np.nan), True),
        (difference >= form.apart, np.where(same_denominator, up, chosen), True),
        (form.denormal(denominator), up, False),
        # the guide scales up here too, which would overflow: a quotient that grows asks for a smaller denominator
        (tiny_reciprocal & tiny_quotient, np.where(same_denominator, down, chosen), True),
        (tiny_reciprocal, down, False),
        (tiny_quotient, np.where(same_numerator, up, chosen), True),
        (form.exponent(numerator) <= form.tiny, up, False),
    ]
    conditions = [condition for condition, _, _ in cases]
    scaled = np.select(conditions, [np.broadcast_to(value, chosen.shape) for _, value, _ in cases], chosen)
    marked = np.select(conditions, [np.full(chosen.shape, mark) for _, _, mark in cases], False)
    return scaled.astype(form.number), marked


def _last_step(a, b, c, scaled):
    """In float32: the guide's multiplication by 2 ** 32 is 2 ** 64 or 2 ** -64 on hardware, by the size of the sum."""
    result = np.array(np.broadcast_arrays(fma32(a, b, c), scaled)[0])
    if scaled.any():
        odd, (a, b, c) = _at(scaled, result.shape, a, b, c)
        factor = np.where(_SINGLE.exponent(c) > 127, 2.0**64, 2.0**-64)
        result[odd] = fma32(a * factor, b, c * factor)  # exact in float64, so that the result is rounded once
    return result


def _last_step_double(a, b, c, scaled):
    result = fma64(a, b, c)
    if not scaled.any():
        return result
    a, b, c, scaled = np.broadcast_arrays(a, b, c, scaled)
    power = np.where(_DOUBLE.exponent(c) > 1023, 128, -128)
    result = np.where(scaled, np.ldexp(result, power), result)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for place in np.flatnonzero(scaled & finite & (np.abs(result) <= 2.0**-1021)):  # a second rounding may go wrong
        x, y, z = (Fraction(float(one.flat[place])) for one in (a, b, c))
        result.flat[place] = nearest64((x * y + z) * Fraction(2) ** int(power.flat[place]))
    return result


def _fix(form: _Format):
    sign_bit = form.bits(1 << form.width - 1)

    def compute(quotient, denominator, numerator):
        top, bottom = form.exponent(numerator), form.exponent(denominator)
        ordinary = (top > 0) & (top < form.most) & (bottom > 0) & (bottom < form.most)
        ordinary = ordinary & (top - bottom <= form.most // 2) & ~np.isnan(quotient)
        sign = (np.asarray(denominator).view(form.bits) ^ np.asarray(numerator).view(form.bits)) & sign_bit
        result = np.asarray(((np.asarray(quotient).view(form.bits) & ~sign_bit) | sign).view(form.number))
        if not ordinary.all():
            odd, sources = _at(~ordinary, result.shape, quotient, denominator, numerator)
            result[odd] = _fix_extremes(form, *sources)
        return result

    return compute


def _fix_extremes(form: _Format, quotient, denominator, numerator):
    number = form.number
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), number(-1), number(1))
    infinite = np.isinf
    cases = [
        (np.isnan(numerator), numerator),
        (np.isnan(denominator), denominator),
        (((denominator == 0) & (numerator == 0)) | (infinite(denominator) & infinite(numerator)), number(np.nan)),
        ((denominator == 0) | infinite(numerator), sign * number(np.inf)),
        (infinite(denominator) | (numerator == 0), sign * number(0)),
        (np.isnan(quotient), sign * number(np.inf)),  # the steps before met infinity minus infinity: it is too large
    ]
    return np.select([condition for condition, _ in cases], [value for _, value in cases], sign * np.abs(quotient))


DIVIDE: dict[str, Op] = {
    "v_div_scale_f32": Op(_scale(_SINGLE), "f32", ("f32", "mask")),
    "v_div_scale_f64": Op(_scale(_DOUBLE), "f64", ("f64", "mask")),
    "v_div_fmas_f32": Op(_last_step, ("f32", "f32", "f32", "mask"), "f32", reads_vcc=True),
    "v_div_fmas_f64": Op(_last_step_double, ("f64", "f64", "f64", "mask"), "f64", reads_vcc=True),
    "v_div_fixup_f32": Op(_fix(_SINGLE), "f32"),
    "v_div_fixup_f64": Op(_fix(_DOUBLE), "f64"),
    "v_div_fixup_f16": Op(_fix(_HALF), "f16"),
    "v_div_fixup_legacy_f16": Op(_fix(_HALF), "f16"),
}
