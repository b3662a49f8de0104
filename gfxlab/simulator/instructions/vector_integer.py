"""Vector instructions that add and multiply integers. They wrap around, or under `clamp` stop at the ends of the range.

Names and semantics: MI300 ISA, chapter 12; RDNA 3 ISA, chapter 16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gfxlab.simulator.core.numbers import I32, I64, U32, U64
from gfxlab.simulator.instructions.common import Op
from gfxlab.simulator.instructions.results import saturating


def _wraps(compute: Callable, kind: str) -> Op:
    """`compute` wraps as numpy's types do; of int64 it is exact, which `clamp` needs."""
    return Op(compute, kind, clamped=saturating(compute, kind))


def _signed24(x):
    return ((x & 0xFFFFFF) ^ 0x800000) - 0x800000


def _multiply24(a, b):
    return (a & 0xFFFFFF) * (b & 0xFFFFFF)


def _multiply_signed24(a, b):
    return _signed24(a) * _signed24(b)


def _high32(a, b):
    return ((a.astype(U64) * b.astype(U64)) >> U64(32)).astype(U32)


def _high32_signed(a, b):
    return ((a.astype(I64) * b.astype(I64)) >> I64(32)).astype(I32)


# ---- carries ---------------------------------------------------------------------------------------------------------


def _carries(compute: Callable, reads: str | tuple[str, ...]) -> Op:
    """A sum in 32 bits and the bit whether it does not fit."""
    return Op(compute, reads, ("u32", "mask"), wide=True)


_WITH_CARRY = ("u32", "u32", "mask")


def _mad_u64(a, b, c):
    product = np.multiply(a, b, dtype=U64)
    total = product + c
    return total, total < product


def _mad_u64_clamped(a, b, c):
    total, carry = _mad_u64(a, b, c)
    return np.where(carry, ~U64(0), total), carry


def _mad_i64(a, b, c):
    """The second result is bit 64 of the exact sum: its sign."""
    product = np.multiply(a, b, dtype=I64)
    total = product + c
    return total, np.where((product < 0) == (c < 0), product < 0, total < 0)


def _mad_i64_clamped(a, b, c):
    total, negative = _mad_i64(a, b, c)
    limits = np.iinfo(I64)
    return np.where(negative == (total < 0), total, np.where(negative, limits.min, limits.max)), negative


# ---- sums of absolute differences ------------------------------------------------------------------------------------


def _differences(bits: int, *, masked: bool = False, shift: int = 0) -> Callable:
    """Of all parts of two words, added to a third source. masked: parts where the second one is 0 do not count."""
    part = (1 << bits) - 1

    def compute(a, b, c):
        total = c
        for at in range(0, 32, bits):
            x, y = (a >> at) & part, (b >> at) & part
            difference = np.where(x > y, x - y, y - x) << shift
            total = total + (np.where(y == 0, y, difference) if masked else difference)
        return total

    return compute


def _averages(a, b, odd):
    """v_lerp_u8: of each byte half the sum, rounded up where the third source's byte is odd."""
    total = U32(0)
    for at in (0, 8, 16, 24):
        x, y, up = (U32(255) & (word >> U32(at)) for word in (a, b, odd))
        total = total | ((x + y + (up & U32(1))) >> U32(1)) << U32(at)
    return total


def _four_windows(one: Callable) -> Callable:
    """v_qsad_pk, v_mqsad_pk: at four places of 8 bytes, with sums of 16 bits."""

    def compute(a, b, c):
        result = U64(0)
        for place in range(4):
            window = (a >> U64(8 * place)).astype(U32).astype(I64)
            total = one(window, b.astype(I64), ((c >> U64(16 * place)) & U64(0xFFFF)).astype(I64))
            result = result | (total.astype(U64) & U64(0xFFFF)) << U64(16 * place)
        return result

    return compute


INTEGER: dict[str, Op] = {
    "v_add_u32": _wraps(np.add, "u32"),
    "v_sub_u32": _wraps(np.subtract, "u32"),
    "v_subrev_u32": _wraps(lambda a, b: b - a, "u32"),
    "v_add_i32": _wraps(np.add, "i32"),
    "v_sub_i32": _wraps(np.subtract, "i32"),
    "v_add3_u32": _wraps(lambda a, b, c: a + b + c, "u32"),
    "v_xad_u32": Op(lambda a, b, c: (a ^ b) + c, "u32"),
    "v_add_u16": _wraps(np.add, "u16"),
    "v_sub_u16": _wraps(np.subtract, "u16"),
    "v_subrev_u16": _wraps(lambda a, b: b - a, "u16"),
    "v_add_i16": _wraps(np.add, "i16"),
    "v_sub_i16": _wraps(np.subtract, "i16"),
    "v_mul_lo_u16": _wraps(np.multiply, "u16"),
    "v_mad_u16": _wraps(lambda a, b, c: a * b + c, "u16"),
    "v_mad_i16": _wraps(lambda a, b, c: a * b + c, "i16"),
    "v_mad_legacy_u16": _wraps(lambda a, b, c: a * b + c, "u16"),
    "v_mad_legacy_i16": _wraps(lambda a, b, c: a * b + c, "i16"),
    "v_mad_u32_u16": Op(lambda a, b, c: a * b + c, ("u16", "u16", "u32"), "u32", wide=True),
    "v_mad_i32_i16": Op(lambda a, b, c: a * b + c, ("i16", "i16", "i32"), "i32", wide=True),
    "v_mul_lo_u32": Op(np.multiply, "u32"),
    "v_mul_hi_u32": Op(_high32, "u32"),
    "v_mul_hi_i32": Op(_high32_signed, "i32"),
    "v_mul_u32_u24": _wraps(_multiply24, "u32"),
    "v_mul_i32_i24": _wraps(_multiply_signed24, "i32"),
    "v_mul_hi_u32_u24": Op(lambda a, b: _high32(a & U32(0xFFFFFF), b & U32(0xFFFFFF)), "u32"),
    "v_mul_hi_i32_i24": Op(lambda a, b: _high32_signed(_signed24(a), _signed24(b)), "i32"),
    "v_mad_u32_u24": _wraps(lambda a, b, c: _multiply24(a, b) + c, "u32"),
    "v_mad_i32_i24": _wraps(lambda a, b, c: _multiply_signed24(a, b) + c, "i32"),
    "v_mad_u64_u32": Op(_mad_u64, ("u32", "u32", "u64"), ("u64", "mask"), clamped=_mad_u64_clamped),
    "v_mad_i64_i32": Op(_mad_i64, ("i32", "i32", "i64"), ("i64", "mask"), clamped=_mad_i64_clamped),
    "v_add_co_u32": _carries(lambda a, b: a + b, "u32"),
    "v_addc_co_u32": _carries(lambda a, b, carry: a + b + carry, _WITH_CARRY),
    "v_sub_co_u32": _carries(lambda a, b: a - b, "u32"),
    "v_subb_co_u32": _carries(lambda a, b, borrow: a - b - borrow, _WITH_CARRY),
    "v_subrev_co_u32": _carries(lambda a, b: b - a, "u32"),
    "v_subbrev_co_u32": _carries(lambda a, b, borrow: b - a - borrow, _WITH_CARRY),
    "v_sad_u32": _wraps(_differences(32), "u32"),
    "v_sad_u16": _wraps(_differences(16), "u32"),
    "v_sad_u8": _wraps(_differences(8), "u32"),
    "v_sad_hi_u8": _wraps(_differences(8, shift=16), "u32"),
    "v_msad_u8": _wraps(_differences(8, masked=True), "u32"),
    "v_lerp_u8": Op(_averages, "u32"),
    "v_qsad_pk_u16_u8": Op(_four_windows(_differences(8)), ("u64", "u32", "u64"), "u64"),
    "v_mqsad_pk_u16_u8": Op(_four_windows(_differences(8, masked=True)), ("u64", "u32", "u64"), "u64"),
}
