"""Values of AMD's pseudocode: bits of a width and a kind, with exact arithmetic that rounds once."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


class Unsupported(Exception):
    """The pseudocode says something that this interpreter cannot follow."""


@dataclass(frozen=True)
class Bits:
    """kind: u, i, f, bf, or b of bits without a type. weak: a constant that takes the width of its neighbour."""

    bits: int
    width: int
    kind: str = "b"
    weak: bool = False

    def __post_init__(self):
        object.__setattr__(self, "bits", self.bits & ((1 << self.width) - 1))

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf")

    @property
    def number(self) -> int | float:
        if self.is_float:
            return decode(self.bits, self.width, self.kind)
        if self.kind == "i" and self.bits >> (self.width - 1):
            return self.bits - (1 << self.width)
        return self.bits

    @property
    def truth(self) -> bool:
        return self.number != 0 if self.is_float else bool(self.bits)


@dataclass(frozen=True)
class Power:
    """2 ** exponent, exactly."""

    exponent: int


MANTISSA_AND_BIAS = {16: (10, 15), 32: (23, 127), 64: (52, 1023)}
_NAN = {16: 0x7E00, 32: 0x7FC00000, 64: 0x7FF8 << 48}
_CODES = {16: "e", 32: "f", 64: "d"}


def decode(bits: int, width: int, kind: str = "f") -> float:
    if kind == "bf":
        return struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0]
    return struct.unpack("<" + _CODES[width], bits.to_bytes(width // 8, "little"))[0]


def rounded(x: Fraction, mantissa: int, bias: int, toward_zero: bool = False, negative_zero: bool = False) -> int:
    """The bits nearest to an exact number in a format of IEEE 754."""
    exponent_bits = (2 * bias + 1).bit_length()
    sign = (1 if x < 0 or (x == 0 and negative_zero) else 0) << (exponent_bits + mantissa)
    x = abs(x)
    if x == 0:
        return sign
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent = max(exponent - (Fraction(2) ** exponent > x), 1 - bias)
    steps, rest = divmod(x / Fraction(2) ** (exponent - mantissa), 1)
    if not toward_zero and (rest > Fraction(1, 2) or rest == Fraction(1, 2) and steps & 1):
        steps += 1
    infinity = ((1 << exponent_bits) - 1) << mantissa
    return sign | min(((exponent + bias - 1) << mantissa) + int(steps), infinity - toward_zero)


def encode(x: float, width: int, kind: str = "f", toward_zero: bool = False) -> int:
    mantissa, bias = (7, 127) if kind == "bf" else MANTISSA_AND_BIAS[width]
    if math.isnan(x):
        return 0x7FC0 if kind == "bf" else _NAN[width]
    if math.isinf(x):
        infinity = (2 * bias + 1) << mantissa
        return infinity | (1 << (mantissa + (2 * bias + 1).bit_length()) if x < 0 else 0)
    if width == 64:
        return struct.unpack("<Q", struct.pack("<d", x))[0]
    return rounded(Fraction(x), mantissa, bias, toward_zero, math.copysign(1, x) < 0)


def floating(x: float, width: int, kind: str = "f") -> Bits:
    return Bits(encode(x, width, kind), width, kind)


def boolean(x: object) -> Bits:
    return Bits(1 if x else 0, 1, "u")


def operate(op: str, a: float, b: float) -> float:
    """A result rounded to a double; rounding it again to half its bits or fewer is safe."""
    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        return float({"+": x + y, "-": x - y, "*": x * y, "/": np.divide(x, y)}[op])


def scaled(value: Bits, power: int) -> Bits:
    x = value.number
    if not math.isfinite(x) or x == 0:
        return value
    power = max(-5000, min(5000, power))
    return Bits(rounded(Fraction(x) * Fraction(2) ** power, *MANTISSA_AND_BIAS[value.width]), value.width, "f")


def fused(a: Bits, b: Bits, c: Bits) -> Bits:
    """a * b + c with one rounding."""
    width = max(a.width, b.width, c.width)
    x, y, z = a.number, b.number, c.number
    if not all(map(math.isfinite, (x, y, z))):
        product = operate("*", x, y) if not (math.isfinite(x) and math.isfinite(y)) else 0.0
        return floating(operate("+", product, z), width)
    product = Fraction(x) * Fraction(y)
    total = product + Fraction(z)
    both_negative = math.copysign(1, x) * math.copysign(1, y) < 0 and math.copysign(1, z) < 0
    return Bits(
        rounded(total, *MANTISSA_AND_BIAS[width], negative_zero=total == product == 0 and both_negative), width, "f"
    )


def is_denormal(value: Bits) -> bool:
    mantissa, bias = MANTISSA_AND_BIAS[value.width]
    return (value.bits >> mantissa) & (2 * bias + 1) == 0 and value.bits & ((1 << mantissa) - 1) != 0


def to_integer(x: float, width: int, signed: bool) -> int:
    """Toward zero; beyond the range its nearest end, NaN is 0."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return high if x > 0 else low
    return max(low, min(high, math.trunc(x)))
