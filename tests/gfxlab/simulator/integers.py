"""Integers at the edges of their types, and what is done with them in several tests."""

from __future__ import annotations

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
WORDS = [0, 1, 2, 31, 32, 33, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0xFFFFFF, 0x800000, 0x1234ABCD, 0x7FFFFFFF, 0x80000000]
WORDS += [0x80000001, 0xDEADBEEF, 0xFFFFFFFE, 0xFFFFFFFF]
FEW = [0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0xDEADBEEF, 0xFFFFFFFF]
LONG = [0, 1, M32, M32 + 1, 0x123456789ABCDEF0, 1 << 63, M64]
HALVES = [0, 1, 15, 16, 0x7FFF, 0x8000, 0xABCD, 0xFFFF]


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def highest_bit(a: int) -> int:
    return 32 - a.bit_length() if a else M32


def lowest_bit(a: int) -> int:
    return (a & -a).bit_length() - 1 if a else M32


ORDER = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
