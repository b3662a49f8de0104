"""The functions that AMD's pseudocode calls: of Bits, giving Bits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from oracle.bits import (
    MANTISSA_AND_BIAS,
    Bits,
    boolean,
    encode,
    floating,
    fused,
    is_denormal,
    rounded,
    scaled,
    to_integer,
)

TRANSCENDENTAL = ("sqrt", "log2", "sin", "cos", "pow")


def _absolute(a: Bits) -> Bits:
    if a.is_float:
        return Bits(a.bits & ~(1 << (a.width - 1)), a.width, a.kind)
    return Bits(abs(a.number), a.width, a.kind)


def _exponent(a: Bits) -> Bits:
    mantissa, bias = MANTISSA_AND_BIAS[a.width]
    return Bits((a.bits >> mantissa) & (2 * bias + 1), 32, "i")


def _quiet_bit(a: Bits) -> int:
    return a.bits >> (MANTISSA_AND_BIAS[a.width][0] - 1) & 1


def _whole(function: Callable) -> Callable:
    """Rounding to a whole number, which keeps the sign of zero."""

    def compute(a: Bits) -> Bits:
        x = a.number
        return floating(math.copysign(float(function(x)), x), a.width) if math.isfinite(x) else a

    return compute


def _of_float(function: Callable) -> Callable:
    return lambda a: floating(function(a.number), a.width)


def _square_root(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan if x < 0 or math.isnan(x) else x


def _logarithm(x: float) -> float:
    if math.isnan(x) or x < 0:
        return math.nan
    return -math.inf if x == 0 else x if math.isinf(x) else math.log2(x)


def _sign_extended_from(a: Bits, n: Bits) -> Bits:
    width = n.number
    if width == 0 or width >= a.width:
        return Bits(a.bits if width else 0, a.width, "i")
    x = a.bits & ((1 << width) - 1)
    return Bits(x - (1 << width) if x >> (width - 1) else x, a.width, "i")


FUNCTIONS: dict[str, Callable[..., Bits]] = {
    "fma": fused,
    "abs": _absolute,
    "sign": lambda a: Bits(a.bits >> (a.width - 1), 1, "u"),
    "exponent": _exponent,
    "mantissa": _of_float(lambda x: math.frexp(x)[0]),
    "isNAN": lambda a: boolean(math.isnan(a.number)),
    "isQuietNAN": lambda a: boolean(math.isnan(a.number) and _quiet_bit(a)),
    "isSignalNAN": lambda a: boolean(math.isnan(a.number) and not _quiet_bit(a)),
    "cvtToQuietNAN": lambda a: Bits(a.bits | 1 << (MANTISSA_AND_BIAS[a.width][0] - 1), a.width, "f"),
    "isDENORM": lambda a: boolean(is_denormal(a)),
    "isINF": lambda a: boolean(math.isinf(a.number)),
    "isEven": lambda a: boolean(math.isfinite(a.number) and a.number % 2 == 0),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "fract": _of_float(lambda x: x - math.floor(x) if math.isfinite(x) else math.nan),
    "sqrt": _of_float(_square_root),
    "log2": _of_float(_logarithm),
    "sin": _of_float(lambda x: math.sin(x) if math.isfinite(x) else math.nan),
    "cos": _of_float(lambda x: math.cos(x) if math.isfinite(x) else math.nan),
    "ldexp": lambda a, n: scaled(a, n.number),
    "signext": lambda a: Bits(Bits(a.bits, a.width, "i").number, 64, "i"),
    "signext_from_bit": _sign_extended_from,
    "max": lambda a, b: a if a.number >= b.number else b,
    "min": lambda a, b: a if a.number <= b.number else b,
    "countbits": lambda a: Bits(a.bits.bit_count(), 32, "u"),
}
_CONVERSION = re.compile(r"(u|i|f|bf)(\d+)_to_(u|i|f|bf)(\d+)")


def conversion(name: str, value: Bits, convert: Callable, toward_zero: bool) -> Bits | None:
    """f32_to_u16 and its kin; None where the name is none of them. convert: to another type, numerically."""
    found = _CONVERSION.fullmatch(name)
    if not found:
        return None
    source, source_width, kind, width = found[1], int(found[2]), found[3], int(found[4])
    same = value.is_float and value.width == source_width or not value.is_float
    typed = Bits(value.bits, source_width, source) if same else convert(value, source, source_width)
    x = typed.number
    if kind in ("f", "bf"):
        if source in ("f", "bf") or kind == "bf":
            return Bits(encode(float(x), width, kind, toward_zero), width, kind)
        return Bits(rounded(Fraction(x), *MANTISSA_AND_BIAS[width]), width, "f")
    return Bits(to_integer(x, width, kind == "i") if source in ("f", "bf") else x, width, kind)
