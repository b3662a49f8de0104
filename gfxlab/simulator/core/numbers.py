"""Arithmetic that numpy does not have: one-rounding multiply-add, and the 16- and 8-bit formats of the matrix units."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
I32, I64 = np.int32, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64

_HALFWAY_BITS = I64((1 << 29) - 1)  # of a float64, those that float32 has no room for
_HALFWAY = I64(1 << 28)
_SMALLEST_NORMAL = 2.0**-126


def fma32(a, b, c) -> np.ndarray:
    """a * b + c of float32 with one rounding."""
    total = np.asarray(np.asarray(a, F64) * b + c)  # the product is exact: 24 + 24 bits
    rounded = total.astype(F32)
    # halfway between two float32 after a first rounding: the second one may go wrong
    doubtful = np.asarray((total.view(I64) & _HALFWAY_BITS) == _HALFWAY)
    small = np.abs(rounded) <= _SMALLEST_NORMAL
    if small.any() and (denormal := small & (total != 0)).any():
        doubtful[denormal] = _between_denormals(total[denormal])
    if doubtful.any():
        a, b, c = (np.broadcast_to(np.asarray(x, F64), total.shape)[doubtful] for x in (a, b, c))
        rounded[doubtful] = _settle(a * b, c, total[doubtful])
    return rounded[()]


def _between_denormals(total) -> np.ndarray:
    """Where a float64 lies halfway between two of float32's evenly spaced denormals."""
    halves = total * 2.0**150
    return (halves == np.rint(halves)) & (halves % 2 == 1)


def _settle(product, addend, total) -> np.ndarray:
    """Round a sum that lies halfway by what its first rounding cut off (Knuth's two-sum gives it exactly)."""
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    toward = np.where(lost > 0, np.inf, -np.inf)
    return np.where(lost == 0, total, np.nextafter(total, toward)).astype(F32)


def fma64(a, b, c) -> np.ndarray:
    """a * b + c of float64 with one rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums")."""
    a, b, c = np.broadcast_arrays(np.asarray(a, F64), b, c)
    high, low = _exact_product(a, b)
    middle, rest = _exact_sum(c, low)
    total, error = _exact_sum(high, middle)
    result = total + _sum_to_odd(rest, error)
    result = np.where(result == 0, F64(0), result)  # an exact cancellation
    ordinary = (a != 0) & (b != 0) & np.isfinite(a) & np.isfinite(b)  # their product is finite, whatever numpy says
    plain = ~ordinary | ~np.isfinite(c)
    result = np.where(plain, np.where(ordinary, 1, a * b) + c, result)
    first, second, third = (np.frexp(x)[1] for x in (a, b, c))
    extreme = ~plain & np.logical_or.reduce([_far_out(e) for e in (first, second, first + second, third)])
    for place in np.flatnonzero(extreme):
        result.flat[place] = _fma_of_fractions(*(float(x.flat[place]) for x in (a, b, c)))
    return result


def _far_out(exponent) -> np.ndarray:
    """Where splitting a number overflows, or an error of rounding is a denormal."""
    return np.abs(exponent) > 900


def _fma_of_fractions(a: float, b: float, c: float) -> float:
    return nearest64(Fraction(a) * Fraction(b) + Fraction(c))


def nearest64(number: Fraction) -> float:
    """An exact number as a float64: to nearest, infinite beyond the largest; a tiny one keeps its sign."""
    try:
        rounded = abs(float(number))
    except OverflowError:
        rounded = math.inf
    return -rounded if number < 0 else rounded


def _exact_sum(a, b):
    """The rounded sum and what its rounding cut off."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _exact_product(a, b):
    """The rounded product and what its rounding cut off (Dekker): each factor is split into two of 26 bits."""
    product = np.multiply(a, b)
    (a_high, a_low), (b_high, b_low) = (_split(x) for x in (a, b))
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(x):
    spread = x * 134217729.0  # 2**27 + 1
    high = spread - (spread - x)
    return high, x - high


def _sum_to_odd(a, b):
    """a + b; where it is not exact, of its two neighbours the one whose last bit is 1."""
    total, error = _exact_sum(a, b)
    even = (np.asarray(total).view(I64) & 1) == 0
    return np.where((error != 0) & even, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def fma16(a, b, c) -> np.ndarray:
    """a * b + c of float16 with one rounding: sums that float64 cannot hold are far from halfway between float16s."""
    return (np.multiply(a, b, dtype=F64) + c).astype(F16)


def larger(a, b) -> np.ndarray:
    """IEEE 754 maximumNumber: a number wins over NaN, +0 over -0."""
    result = np.fmax(a, b)
    zero = result == 0
    if zero.any():
        return np.where(zero & ~(np.signbit(a) & np.signbit(b)) & (a == b), np.abs(result), result)
    return result


def smaller(a, b) -> np.ndarray:
    """IEEE 754 minimumNumber: a number wins over NaN, -0 over +0."""
    return -larger(-a, -b)


def largest(a, b) -> np.ndarray:
    """IEEE 754 maximum: NaN wins over a number, +0 over -0."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, larger(a, b))


def smallest(a, b) -> np.ndarray:
    """IEEE 754 minimum: NaN wins over a number, -0 over +0."""
    return -largest(-a, -b)


def round_to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 to bfloat16 bits (uint32), to nearest, ties to even; a NaN stays one."""
    bits = np.asarray(x, F32).view(U32)
    rounded = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)
    return np.where(np.isnan(x), (bits >> U32(16)) | U32(0x40), rounded)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) to float32."""
    return (bits.astype(U32) << U32(16)).view(F32)


def round_to_xf32(bits: np.ndarray) -> np.ndarray:
    """float32 bits to the nearest number with 10 bits of mantissa, which the xf32 instructions multiply."""
    return ((bits + U32(0xFFF) + ((bits >> U32(13)) & U32(1))) & U32(0xFFFFE000)).view(F32)


# ---- floats of 8, 6 and 4 bits ---------------------------------------------------------------------------------------
# Formats: Micikevicius et al., "FP8 Formats for Deep Learning" (OCP: e4m3fn, e5m2), the FNUZ flavours of CDNA 3, which
# have one more exponent step, one NaN (0x80) and no infinity, and OCP's "Microscaling Formats" (e2m3, e3m2, e2m1).

_SMALL = {"fp8": (4, 3), "bf8": (5, 2), "fp6": (2, 3), "bf6": (3, 2), "fp4": (2, 1)}  # bits of exponent and mantissa


def without_denormals(x: np.ndarray) -> np.ndarray:
    """float32 with zeros, of the same signs, for its denormals."""
    return np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32(0), x), x)


@cache
def small_float_values(kind: str, fnuz: bool = False) -> np.ndarray:
    """All numbers of a format, by their code, float32: "fp8" (e4m3), "bf8" (e5m2), "fp6", "bf6", "fp4".

    fnuz: of the formats of 8 bits, the flavour of CDNA 3.
    """
    exponent_bits, mantissa_bits = _SMALL[kind]
    bias = (1 << (exponent_bits - 1)) - (0 if fnuz else 1)
    code = np.arange(1 << exponent_bits + mantissa_bits)
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    positive = (fraction * 2.0 ** (np.maximum(exponent, 1) - bias)).astype(F32)
    if kind == "fp8" and not fnuz:
        positive[127] = np.nan
    elif kind == "bf8" and not fnuz:
        positive[124:] = (np.inf, np.nan, np.nan, np.nan)
    negative = -positive
    if fnuz:
        negative[0] = np.nan
    return np.concatenate([positive, negative])


def to_finite_float(x: np.ndarray, kind: str) -> np.ndarray:
    """float32 to the code (uint32) of a format without infinity and NaN: "fp6", "bf6" or "fp4".

    To nearest, ties to even; numbers beyond the largest and NaN become it.
    """
    sign = sum(_SMALL[kind])
    positive = small_float_values(kind)[: 1 << sign].astype(F64)
    middle = (positive[1:] + positive[:-1]) / 2
    size = np.where(np.isnan(x), np.inf, np.abs(np.asarray(x, F64)))
    code = np.searchsorted(middle, size, side="left")
    code = np.where((np.append(middle, np.nan)[code] == size) & (code % 2 == 1), code + 1, code)
    return (code | np.signbit(x).astype(U32) << U32(sign)).astype(U32)


def to_float8(x: np.ndarray, kind: str, fnuz: bool, saturate: bool | np.ndarray) -> np.ndarray:
    """float32 to a float8 code (uint32): to nearest, ties to even.

    saturate: numbers beyond the largest become the largest; else infinity where the format has one, else NaN.
    """
    mantissa, bias, largest = _limits(kind, fnuz)
    bits = np.asarray(x, F32).view(U32)
    size = bits & U32(0x7FFFFFFF)
    dropped = 23 - mantissa
    code = (size + U32((1 << dropped - 1) - 1) + (size >> U32(dropped) & U32(1))) >> U32(dropped)
    code -= U32(127 - bias << mantissa)
    denormal = size < U32(128 - bias << 23)
    if denormal.any():  # the sum's last bit is one unit of the result, so that adding rounds
        unit = U32(151 - bias - mantissa << 23)
        code = np.where(denormal, (size.view(F32) + unit.view(F32)).view(U32) - unit, code)
    nan = U32(0x80 if fnuz else 0x7F)
    infinity = nan if fnuz or largest == 0x7E else U32(largest + 1)
    over = code > U32(largest)
    if over.any():
        code = np.where(over, np.where(saturate, U32(largest), infinity), code)
    sign = bits >> U32(24) & U32(0x80)
    if fnuz:  # has one zero
        sign = np.where(code & U32(0x7F), sign, U32(0))
    return np.where(size > U32(0x7F800000), nan, code | sign)


@cache
def _limits(kind: str, fnuz: bool) -> tuple[int, int, int]:
    """Of a format of 8 bits: bits of mantissa, bias of the exponent, code of the largest number."""
    exponent_bits, mantissa = _SMALL[kind]
    finite = np.isfinite(small_float_values(kind, fnuz)[:128])
    return mantissa, (1 << exponent_bits - 1) - (not fnuz), int(np.flatnonzero(finite)[-1])
