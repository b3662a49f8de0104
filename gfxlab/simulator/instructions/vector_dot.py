"""Dot products within a lane: two pairs of 16-bit numbers, or four pairs of bytes, added to a third source.

Names: MI300 ISA, section 12.10; RDNA 3 ISA, section 16.6. Float sums are rounded once, at the end; the hardware's order
of rounding is not documented.
"""

from __future__ import annotations

from collections.abc import Callable

from gfxlab.simulator.core.numbers import F16, F32, F64, I32, U16, U32, from_bf16, round_to_bf16
from gfxlab.simulator.instructions.common import Op


def _half(word):
    return word.astype(U16).view(F16).astype(F64)


def _bfloat(word):
    return from_bf16(word.astype(U16)).astype(F64)


def _byte(word):
    return (word & U32(0xFF)).astype(I32)


def _signed_byte(word):
    return _byte(word ^ U32(0x80)) - I32(0x80)


def _pairs(number: Callable):
    def compute(a, b, c):
        low, high = (number(a >> U32(s)) * number(b >> U32(s)) for s in (0, 16))
        return (low + high + c).astype(F32)

    return compute


def _narrow_pairs(number: Callable, rounded: Callable):
    """The third source and the result are 16 bits wide as well."""
    wide = _pairs(number)
    return lambda a, b, c: rounded(wide(a, b, number(c))).astype(U16)


def _bytes(first: Callable, second: Callable):
    def compute(a, b, c):
        products = [first(a >> U32(s)) * second(b >> U32(s)) for s in (0, 8, 16, 24)]
        return sum(products, c)

    return compute


_FLOAT, _INTEGER = ("u32", "u32", "f32"), ("u32", "u32", "i32")
DOT: dict[str, Op] = {
    "v_dot2_f32_f16": Op(_pairs(_half), _FLOAT, "f32"),
    "v_dot2_f32_bf16": Op(_pairs(_bfloat), _FLOAT, "f32"),
    "v_dot2_f16_f16": Op(_narrow_pairs(_half, lambda x: x.astype(F16).view(U16)), ("u32", "u32", "u16"), "u16"),
    "v_dot2_bf16_bf16": Op(_narrow_pairs(_bfloat, round_to_bf16), ("u32", "u32", "u16"), "u16"),
    "v_dot4_i32_i8": Op(_bytes(_signed_byte, _signed_byte), _INTEGER, "i32"),
    "v_dot4_u32_u8": Op(_bytes(_byte, _byte), _INTEGER, "i32"),
}
# The short encodings add to their destination.
for _name, _twin in (
    ("v_dot2c_f32_f16", "v_dot2_f32_f16"),
    ("v_dot2acc_f32_f16", "v_dot2_f32_f16"),
    ("v_dot2c_f32_bf16", "v_dot2_f32_bf16"),
    ("v_dot2acc_f32_bf16", "v_dot2_f32_bf16"),
    ("v_dot4c_i32_i8", "v_dot4_i32_i8"),
):
    DOT[_name] = Op(DOT[_twin].compute, DOT[_twin].reads, DOT[_twin].writes, accumulates=True)


def dot_of_either_sign(signs: list[int]) -> Op:
    """v_dot4_i32_iu8: neg_lo says of each source whether its bytes are signed."""
    first, second = (_signed_byte if sign else _byte for sign in signs[:2])
    return Op(_bytes(first, second), _INTEGER, "i32")
