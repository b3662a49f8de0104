"""Vector instructions that compute in single and half precision.

Names and semantics: MI300 ISA, chapter 12; RDNA 3 ISA, chapter 16; `maximum` and `minimum`: RDNA 4 ISA.
Transcendental functions are at most one last place off, as the hardware's are, which may differ from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gfxlab.simulator.core.numbers import F16, F32, F64, I32, fma16, fma32, larger, largest, smaller, smallest
from gfxlab.simulator.instructions.common import Op


def _middle(a, b, c):
    """The median of three; the smallest when one is NaN."""
    nan = (np.isnan(a) | np.isnan(b) | np.isnan(c)) if np.asarray(a).dtype.kind == "f" else False
    median = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    return np.where(nan, smaller(smaller(a, b), c), median) if np.any(nan) else median


def _sine(function: Callable) -> Callable:
    """Of an angle in turns."""
    return lambda turn: function(np.asarray(turn, F64) * (2 * np.pi)).astype(turn.dtype)


def _in_single(function: Callable) -> Callable:
    """A function of a float16, computed in float32 and rounded again."""
    return lambda a: function(a.astype(F32)).astype(F16)


def _zero_wins(a, b):
    """The product, and 0 where one of the factors is 0, even if the other one is infinite or NaN."""
    return np.where((a == 0) | (b == 0), F32(0), a * b)


def _zero_wins_fma(a, b, c):
    return np.where((a == 0) | (b == 0), c, fma32(a, b, c))


def _lit(a, b, c):
    """v_mullit_f32: a * b, and the smallest number where b is none or c is not positive."""
    lowest = np.finfo(F32).min
    return np.where((b == lowest) | np.isneginf(b) | np.isnan(b) | ~(c > 0), lowest, a * b)


def fraction(a):
    """a - floor(a), which never rounds up to 1."""
    return np.minimum(a - np.floor(a), np.nextafter(a.dtype.type(1), a.dtype.type(0)))


def mantissa(a):
    """Between 0.5 and 1; infinity and NaN stay."""
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


def exponent(kind: type) -> Callable:
    """Of what belongs to `mantissa`; 0 of infinity and NaN."""
    return lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(kind)


_POWERS = [math.log(2) ** n / math.factorial(n) for n in range(9)]  # of Taylor's series of 2^x


def exp2(a):
    """2^a of float32: 2^(a's nearest integer) times the series of what is left, in float64 and rounded once.

    What the series lacks is less than 3e-10 of it, so that the result is at most 0.505 last places off; the hardware's
    is one (CDNA 3 ISA, V_EXP_F32). NumPy's own differs from processor to processor, and cannot be had in C.
    """
    a = np.clip(a, F32(-200), F32(200)).astype(F64)
    whole = np.rint(a)
    rest = a - whole
    series = rest * _POWERS[-1]
    for power in _POWERS[-2:0:-1]:
        series += power
        series *= rest
    series += _POWERS[0]
    return np.ldexp(series, np.nan_to_num(whole).astype(I32)).astype(F32)


def _log2(a):
    """In float64: NumPy's for float32 is up to two last places off, the hardware's one (CDNA 3 ISA, V_LOG_F32)."""
    return np.log2(a.astype(np.float64)).astype(F32)


def _mad(a, b, c):
    return a * b + c


FLOAT: dict[str, Op] = {
    "v_add_f32": Op(np.add, "f32"),
    "v_sub_f32": Op(np.subtract, "f32"),
    "v_subrev_f32": Op(lambda a, b: b - a, "f32", exact=lambda a, b: b - a),
    "v_mul_f32": Op(np.multiply, "f32"),
    "v_mul_legacy_f32": Op(_zero_wins, "f32"),
    "v_mul_dx9_zero_f32": Op(_zero_wins, "f32"),
    "v_fma_dx9_zero_f32": Op(_zero_wins_fma, "f32"),
    "v_fmac_dx9_zero_f32": Op(_zero_wins_fma, "f32", accumulates=True),
    "v_mullit_f32": Op(_lit, "f32"),
    "v_fma_f32": Op(fma32, "f32"),
    "v_fmaak_f32": Op(fma32, "f32"),
    "v_fmamk_f32": Op(fma32, "f32"),
    "v_fmac_f32": Op(fma32, "f32", accumulates=True),
    "v_mac_f32": Op(_mad, "f32", accumulates=True),
    "v_mad_f32": Op(_mad, "f32"),
    "v_madak_f32": Op(_mad, "f32"),
    "v_madmk_f32": Op(_mad, "f32"),
    "v_mad_legacy_f32": Op(lambda a, b, c: _zero_wins(a, b) + c, "f32"),
    "v_rcp_f32": Op(lambda a: F32(1) / a, "f32"),
    "v_rcp_iflag_f32": Op(lambda a: F32(1) / a, "f32"),
    "v_rsq_f32": Op(lambda a: F32(1) / np.sqrt(a), "f32"),
    "v_sqrt_f32": Op(np.sqrt, "f32"),
    "v_exp_f32": Op(exp2, "f32"),
    "v_log_f32": Op(_log2, "f32"),
    "v_exp_legacy_f32": Op(exp2, "f32"),
    "v_log_legacy_f32": Op(_log2, "f32"),
    "v_sin_f32": Op(_sine(np.sin), "f32"),
    "v_cos_f32": Op(_sine(np.cos), "f32"),
    "v_rndne_f32": Op(np.rint, "f32"),
    "v_floor_f32": Op(np.floor, "f32"),
    "v_ceil_f32": Op(np.ceil, "f32"),
    "v_trunc_f32": Op(np.trunc, "f32"),
    "v_fract_f32": Op(fraction, "f32"),
    "v_ldexp_f32": Op(lambda a, n: np.ldexp(a, n).astype(F32), ("f32", "i32")),
    "v_frexp_mant_f32": Op(mantissa, "f32"),
    "v_frexp_exp_i32_f32": Op(exponent(I32), "f32", "i32"),
    # half precision
    "v_add_f16": Op(np.add, "f16"),
    "v_sub_f16": Op(np.subtract, "f16"),
    "v_subrev_f16": Op(lambda a, b: b - a, "f16", exact=lambda a, b: b - a),
    "v_mul_f16": Op(np.multiply, "f16"),
    "v_fma_f16": Op(fma16, "f16"),
    "v_fma_legacy_f16": Op(fma16, "f16"),
    "v_fmac_f16": Op(fma16, "f16", accumulates=True),
    "v_fmaak_f16": Op(fma16, "f16"),
    "v_fmamk_f16": Op(fma16, "f16"),
    "v_mac_f16": Op(_mad, "f16", accumulates=True),
    "v_mad_f16": Op(_mad, "f16"),
    "v_mad_legacy_f16": Op(_mad, "f16"),
    "v_madak_f16": Op(_mad, "f16"),
    "v_madmk_f16": Op(_mad, "f16"),
    "v_rcp_f16": Op(lambda a: F16(1) / a, "f16"),
    "v_sqrt_f16": Op(np.sqrt, "f16"),
    "v_rsq_f16": Op(_in_single(lambda a: F32(1) / np.sqrt(a)), "f16"),
    "v_exp_f16": Op(_in_single(exp2), "f16"),
    "v_log_f16": Op(_in_single(_log2), "f16"),
    "v_rndne_f16": Op(np.rint, "f16"),
    "v_floor_f16": Op(np.floor, "f16"),
    "v_ceil_f16": Op(np.ceil, "f16"),
    "v_trunc_f16": Op(np.trunc, "f16"),
    "v_sin_f16": Op(_sine(np.sin), "f16"),
    "v_cos_f16": Op(_sine(np.cos), "f16"),
    "v_fract_f16": Op(fraction, "f16"),
    "v_frexp_mant_f16": Op(mantissa, "f16"),
    "v_frexp_exp_i16_f16": Op(exponent(np.int16), "f16", "i16"),
    "v_ldexp_f16": Op(lambda a, n: np.ldexp(a, n.astype(I32)).astype(F16), ("f16", "i16")),
}

# Minimum, maximum and median of every type. `maximum`: a NaN wins (IEEE 754-2019); `max`: a number wins.
EXTREMES: dict[str, Op] = {}
for _type in ("u32", "i32", "u16", "i16", "f32", "f16"):
    _max, _min = (larger, smaller) if _type[0] == "f" else (np.maximum, np.minimum)
    EXTREMES |= {
        f"v_max_{_type}": Op(_max, _type),
        f"v_min_{_type}": Op(_min, _type),
        f"v_max3_{_type}": Op(lambda a, b, c, f=_max: f(f(a, b), c), _type),
        f"v_min3_{_type}": Op(lambda a, b, c, f=_min: f(f(a, b), c), _type),
        f"v_maxmin_{_type}": Op(lambda a, b, c, f=_max, g=_min: g(f(a, b), c), _type),
        f"v_minmax_{_type}": Op(lambda a, b, c, f=_max, g=_min: f(g(a, b), c), _type),
        f"v_med3_{_type}": Op(_middle, _type),
    }
for _type in ("f32", "f16"):
    EXTREMES |= {
        f"v_maximum_{_type}": Op(largest, _type),
        f"v_minimum_{_type}": Op(smallest, _type),
        f"v_maximum3_{_type}": Op(lambda a, b, c: largest(largest(a, b), c), _type),
        f"v_minimum3_{_type}": Op(lambda a, b, c: smallest(smallest(a, b), c), _type),
        f"v_maximumminimum_{_type}": Op(lambda a, b, c: smallest(largest(a, b), c), _type),
        f"v_minimummaximum_{_type}": Op(lambda a, b, c: largest(smallest(a, b), c), _type),
    }
