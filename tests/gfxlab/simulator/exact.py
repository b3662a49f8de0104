"""Floating-point formats and arithmetic in exact fractions, to compare the simulator with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary format; its codes are a sign bit, the biased exponent and the mantissa, as in IEEE 754."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    fnuz: bool = False  # one NaN, where -0 would be; no infinity
    finite: bool = False  # e4m3fn: no infinity, NaN only where all bits are 1

    @property
    def sign(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    def value(self, code: int) -> float:
        """The number of a code (exact: all of them fit a float64)."""
        size = code & (self.sign - 1)
        negative = bool(code & self.sign)
        if self.fnuz and code == self.sign or self.finite and size == self.sign - 1:
            return math.nan
        if not (self.fnuz or self.finite) and size >= self.infinity:
            return math.nan if size > self.infinity else -math.inf if negative else math.inf
        exponent, mantissa = size >> self.mantissa_bits, size & ((1 << self.mantissa_bits) - 1)
        if exponent:
            mantissa |= 1 << self.mantissa_bits
        number = math.ldexp(mantissa, max(exponent, 1) - self.bias - self.mantissa_bits)
        return -number if negative else number

    def nearest(self, number: Fraction | float, negative_zero: bool = False, toward_zero: bool = False) -> int:
        """The code of a number, ties to even; beyond the largest: the code after it (infinity, where there is one)."""
        if isinstance(number, float):
            if math.isnan(number):
                return self.infinity | 1 << (self.mantissa_bits - 1)
            negative_zero = math.copysign(1, number) < 0
            if math.isinf(number):
                return self.infinity | (self.sign if number < 0 else 0)
        number = Fraction(number)
        sign = self.sign if number < 0 or number == 0 and negative_zero else 0
        size = abs(number)
        if size == 0:
            return sign
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
        exponent = max(exponent, 1 - self.bias)
        unit = Fraction(2) ** (exponent - self.mantissa_bits)
        steps, rest = divmod(size, unit)
        if not toward_zero and (2 * rest > unit or 2 * rest == unit and steps % 2):
            steps += 1
        code = ((exponent + self.bias - 1) << self.mantissa_bits) + int(steps)
        limit = self.sign - 1 if self.fnuz or self.finite else self.infinity
        return sign | min(code, limit - toward_zero)

    def is_nan(self, code: int) -> bool:
        return math.isnan(self.value(code))

    def same(self, a: int, b: int) -> bool:
        """Equal bits, or both NaN."""
        return a == b or self.is_nan(a) and self.is_nan(b)


F32 = Format(8, 23, 127)
F16 = Format(5, 10, 15)
BF16 = Format(8, 7, 127)
E4M3, E5M2 = Format(4, 3, 7, finite=True), Format(5, 2, 15)
E4M3_FNUZ, E5M2_FNUZ = Format(4, 3, 8, fnuz=True), Format(5, 2, 16, fnuz=True)

F32_EDGES = [
    *(0x00000000, 0x00000001, 0x00000003, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF),  # 0, denormals, the smallest
    *(0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000, 0x3FC00000, 0x40490FDB, 0x4B800001),  # near 1, and 2**24
    *(0x4EFFFFFF, 0x4F000000, 0x7E800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001),  # large, infinity, NaNs
]
F32_EDGES += [code | 0x80000000 for code in F32_EDGES]
F16_EDGES = [0, 1, 0x3FF, 0x400, 0x401, 0x3800, 0x3C00, 0x3C01, 0x3BFF, 0x4248, 0x7BFF, 0x7C00, 0x7E00, 0x7C01]
F16_EDGES += [code | 0x8000 for code in F16_EDGES]


def fma(form: Format, a: int, b: int, c: int) -> int:
    """a * b + c with one rounding."""
    x, y, z = form.value(a), form.value(b), form.value(c)
    if not all(map(math.isfinite, (x, y, z))):
        return form.nearest(math.nan if math.isnan(x * y) else x * y + z)
    total = Fraction(x) * Fraction(y) + Fraction(z)
    return form.nearest(total, negative_zero=bool((a ^ b) & c & form.sign) and not (x * y and z))


def add(form: Format, a: int, b: int) -> int:
    return fma(form, a, form.nearest(1.0), b)


def subtract(form: Format, a: int, b: int) -> int:
    return add(form, a, b ^ form.sign)


def multiply(form: Format, a: int, b: int) -> int:
    return fma(form, a, b, (a ^ b) & form.sign)


def divide(form: Format, a: int, b: int) -> int:
    x, y = form.value(a), form.value(b)
    sign = (a ^ b) & form.sign
    if math.isnan(x) or math.isnan(y) or x == y == 0 or math.isinf(x) and math.isinf(y):
        return form.nearest(math.nan)
    if math.isinf(x) or y == 0:
        return form.infinity | sign
    if math.isinf(y):
        return sign
    return form.nearest(Fraction(x) / Fraction(y), negative_zero=bool(sign))


def maximum(form: Format, a: int, b: int) -> int:
    """IEEE 754 maximumNumber: a number wins over NaN, +0 over -0."""
    x, y = form.value(a), form.value(b)
    if math.isnan(x) or math.isnan(y):
        return a if math.isnan(y) else b
    if x == y:
        return a & b
    return a if x > y else b


def minimum(form: Format, a: int, b: int) -> int:
    return maximum(form, a ^ form.sign, b ^ form.sign) ^ form.sign
