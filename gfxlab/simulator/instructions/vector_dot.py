"""Dot products within a lane: pairs of 16-bit numbers, or four pairs of bytes, or eight of 4 bits, added to a third.

Names: MI300 ISA, section 12.10; RDNA 3 ISA, section 16.6. Float sums are rounded once, at the end; the hardware's order
of rounding is not documented.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gfxlab.simulator.core.numbers import (
    F16,
    F32,
    F64,
    U16,
    U32,
    from_bf16,
    round_to_bf16,
    small_float_values,
    without_denormals,
)
from gfxlab.simulator.instructions.common import Op


def _half(word):
    return word.astype(U16).view(F16).astype(F64)


def _bfloat(word):
    return from_bf16(word.astype(U16)).astype(F64)


def _pairs(number: Callable):
    def compute(a, b, c):
        low, high = (number(a >> U32(s)) * number(b >> U32(s)) for s in (0, 16))
        return (low + high + c).astype(F32)

    return compute


def _narrow_pairs(number: Callable, rounded: Callable):
    """The third source and the result are 16 bits wide as well."""
    wide = _pairs(number)
    return lambda a, b, c: rounded(wide(a, b, number(c)))


def _integers(bits: int, *signed: bool, unsigned_sum: bool = True) -> Op:
    """Products of parts of two words, each word's parts signed or not. The sum is signed if one of them is."""
    kind = "u32" if unsigned_sum and not any(signed) else "i32"
    half, part = 1 << bits - 1, (1 << bits) - 1

    def exact(a, b, c):
        total = c
        for shift in range(0, 32, bits):
            x, y = ((word >> shift) & part for word in (a, b))
            x, y = ((one ^ half) - half if sign else one for one, sign in zip((x, y), signed))
            total = total + x * y
        return total

    word = "2u16" if bits == 16 else "u32"
    return Op(exact, (word, word, kind), kind, wide=True)


_BYTES = ("fp8", "bf8")  # of gfx12: OCP's


def _bytes(first: str, second: str):
    """Four products of float8 numbers."""
    tables = small_float_values(first).astype(F64), small_float_values(second).astype(F64)

    def compute(a, b, c):
        places = (0, 8, 16, 24)
        products = [tables[0][a >> U32(s) & U32(255)] * tables[1][b >> U32(s) & U32(255)] for s in places]
        return (sum(products) + c).astype(F32)

    return compute


DOT: dict[str, Op] = {
    "v_dot2_f32_f16": Op(_pairs(_half), ("2f16", "2f16", "f32"), "f32"),
    "v_dot2_f32_bf16": Op(_pairs(_bfloat), ("2bf16", "2bf16", "f32"), "f32"),
    "v_dot2_f16_f16": Op(
        _narrow_pairs(lambda x: _half(x) if x.dtype != F16 else x.astype(F64), lambda x: x.astype(F16)),
        ("2f16", "2f16", "f16"),
        "f16",
    ),
    "v_dot2_bf16_bf16": Op(
        _narrow_pairs(_bfloat, lambda x: round_to_bf16(x).astype(U16)), ("2bf16", "2bf16", "bf16"), "bf16"
    ),
    **{f"v_dot4_f32_{a}_{b}": Op(_bytes(a, b), ("u32", "u32", "f32"), "f32") for a in _BYTES for b in _BYTES},
    "v_dot2_i32_i16": _integers(16, True, True),
    "v_dot2_u32_u16": _integers(16, False, False),
    "v_dot4_i32_i8": _integers(8, True, True),
    "v_dot4_u32_u8": _integers(8, False, False),
    "v_dot8_i32_i4": _integers(4, True, True),
    "v_dot8_u32_u4": _integers(4, False, False),
}
# The short encodings add to their destination.
for _name, _twin in (
    ("v_dot2c_f32_f16", "v_dot2_f32_f16"),
    ("v_dot2acc_f32_f16", "v_dot2_f32_f16"),
    ("v_dot2c_f32_bf16", "v_dot2_f32_bf16"),
    ("v_dot2acc_f32_bf16", "v_dot2_f32_bf16"),
    ("v_dot2c_i32_i16", "v_dot2_i32_i16"),
    ("v_dot4c_i32_i8", "v_dot4_i32_i8"),
    ("v_dot8c_i32_i4", "v_dot8_i32_i4"),
):
    DOT[_name] = replace(DOT[_twin], accumulates=True)


def flushing(op: Op) -> Op:
    """The same without denormals, as MI200 has it, where it is of float16 and float32."""
    if op.reads != ("2f16", "2f16", "f32"):
        return op

    def compute(a, b, c):
        return without_denormals(op.compute(_without(a), _without(b), without_denormals(c)))

    return replace(op, compute=compute)


def _without(word):
    """Both halves of a word, denormal float16 as 0."""
    for exponent, fraction in ((0x7C00, 0x3FF), (0x7C000000, 0x3FF0000)):
        word = np.where(word & U32(exponent), word, word & U32(0xFFFFFFFF ^ fraction))
    return word


def dot_of_either_sign(name: str, signs: list[int]) -> Op:
    """v_dot4_i32_iu8, v_dot8_i32_iu4: neg_lo says of each source whether its parts are signed; the sum always is."""
    return _integers(8 if "iu8" in name else 4, *map(bool, signs[:2]), unsigned_sum=False)
