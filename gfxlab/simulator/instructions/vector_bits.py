"""Vector instructions that move and rearrange bits.

Names and semantics: AMD, "Instinct MI300 Instruction Set Architecture", chapter 12, and "RDNA 3 ISA", chapter 16.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from gfxlab.simulator.core.numbers import I32, I64, U16, U32, U64
from gfxlab.simulator.instructions.common import Op


def _shift(amount):
    return amount & U32(31)


def _extract(x, offset, width):
    width = width & U32(31)
    return (x >> _shift(offset)) & ((U32(1) << width) - U32(1))


def _extract_signed(x, offset, width):
    offset, width = offset & I32(31), width & I32(31)
    unused = I32(32) - np.minimum(width, I32(32) - offset)
    return np.where(width == 0, I32(0), (x << ((unused - offset) & I32(31))) >> (unused & I32(31)))


def reverse(x):
    """The 32 bits in the opposite order."""
    x = np.asarray(x, U32)
    for width, keep in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = ((x >> U32(width)) & U32(keep)) | ((x & U32(keep)) << U32(width))
    return (x >> U32(16)) | (x << U32(16))


def first_bit_high(x):
    """Zeros above the highest one; all ones for 0. frexp gives the position exactly: float64 holds every uint32."""
    return np.where(x == 0, U32(0xFFFFFFFF), (32 - np.frexp(np.asarray(x, np.float64))[1]).astype(U32))


def first_bit_low(x):
    """Zeros below the lowest one; all ones for 0."""
    lowest = x & (~x + U32(1))
    return np.where(x == 0, U32(0xFFFFFFFF), (np.frexp(np.asarray(lowest, np.float64))[1] - 1).astype(U32))


def sign_run(x):
    """How many bits from the top down equal the sign bit; all ones where all of them do."""
    return first_bit_high(np.where(x >> U32(31), ~x, x))


def _align(high, low, shift):
    joined = (np.asarray(high).astype(U64) << U64(32)) | low
    return (joined >> np.asarray(shift).astype(U64)).astype(U32)


def _choose(no, yes, mask):
    """`yes` where the mask is set: by bits, for numpy guesses at each lane of `where` and is slow if that fails."""
    return ((no ^ yes) & np.negative(mask.astype(U32))) ^ no


def _bytes_within(low: int, high: int, at: int):
    """v_ashr_pk: two numbers shifted right, brought into the range of a byte, side by side."""

    def compute(a, b, n):
        first, second = (np.clip(x >> (n & I32(31)), low, high).astype(I32).view(U32) & U32(0xFF) for x in (a, b))
        return (first | second << U32(at)).astype(U16)

    return compute


def _clipped_halves(word):
    """v_sat_pk_u8_i16: both signed halves brought into the range of an unsigned byte."""
    low, high = (np.clip((word >> U32(s)).astype(U16).view(np.int16), 0, 255).astype(U16) for s in (0, 16))
    return low | high << U16(8)


def _permute_bytes(high, low, selector):
    """v_perm_b32: each byte of the selector picks one of the eight bytes of high:low, or a constant."""
    first = int(selector.flat[0])
    if selector.size == 1 or (selector == selector.flat[0]).all():
        return _permuted(high, low, first)
    high, low, selector = np.broadcast_arrays(high, low, selector)
    result = np.empty(selector.shape, U32)
    for one in np.unique(selector):
        here = selector == one
        result[here] = _permuted(high[here], low[here], int(one))
    return result


def _permuted(high, low, selector: int):
    """The bytes that one selector picks; neighbours that stay together are moved together."""
    result = U32(_constant_bytes(selector))
    for from_high, source, place, count in _byte_runs(selector):
        result = _moved(high if from_high else low, source, place, count) | result
    for place in range(4):
        chosen = selector >> 8 * place & 0xFF
        if 8 <= chosen < 12:  # the sign of byte 1, 3, 5 or 7, eight times
            word = high if chosen >= 10 else low
            sign = (word >> U32(15 if chosen % 2 == 0 else 31)) & U32(1)
            result = result | sign * U32(0xFF << 8 * place)
    return result


def _moved(word, source: int, place: int, count: int):
    """So many bytes of a word, from byte `source` on, at byte `place`; a shift drops what lies beyond it."""
    if source > 0 and source + count == 4:
        field = word >> U32(8 * source)
        return field << U32(8 * place) if place else field
    if place + count == 4 and not source:
        return word << U32(8 * place)
    if source == place:
        return word & U32((1 << 8 * count) - 1 << 8 * source)
    field = word >> U32(8 * source) & U32((1 << 8 * count) - 1)
    return field << U32(8 * place)


def _constant_bytes(selector: int) -> int:
    """The bytes that a selector above 12 fills with ones."""
    return sum(0xFF << 8 * place for place in range(4) if selector >> 8 * place & 0xFF > 12)


@cache
def _byte_runs(selector: int) -> tuple[tuple[bool, int, int, int], ...]:
    """Runs of picked bytes: (of the high word?, first byte there, first byte of the result, how many)."""
    runs: list[tuple[bool, int, int, int]] = []
    for place in range(4):
        chosen = selector >> 8 * place & 0xFF
        if chosen >= 8:
            continue
        high, source = chosen >= 4, chosen % 4
        last = runs[-1] if runs else None
        if last and last[0] == high and last[1] + last[3] == source and last[2] + last[3] == place:
            runs[-1] = (high, last[1], last[2], last[3] + 1)
        else:
            runs.append((high, source, place, 1))
    return tuple(runs)


BITS: dict[str, Op] = {
    "v_mov_b32": Op(lambda a: a, "u32"),
    "v_mov_b64": Op(lambda a: a, "u64"),
    "v_mov_b16": Op(lambda a: a, "u16"),
    "v_accvgpr_read_b32": Op(lambda a: a, "u32"),
    "v_accvgpr_write_b32": Op(lambda a: a, "u32"),
    "v_accvgpr_mov_b32": Op(lambda a: a, "u32"),
    "v_cndmask_b32": Op(_choose, ("u32", "u32", "mask")),
    "v_cndmask_b16": Op(lambda no, yes, mask: np.where(mask, yes, no), ("u16", "u16", "mask")),
    "v_not_b32": Op(np.invert, "u32"),
    "v_not_b16": Op(np.invert, "u16"),
    "v_and_b32": Op(np.bitwise_and, "u32"),
    "v_or_b32": Op(np.bitwise_or, "u32"),
    "v_xor_b32": Op(np.bitwise_xor, "u32"),
    "v_xnor_b32": Op(lambda a, b: ~(a ^ b), "u32"),
    "v_and_b16": Op(np.bitwise_and, "u16"),
    "v_or_b16": Op(np.bitwise_or, "u16"),
    "v_xor_b16": Op(np.bitwise_xor, "u16"),
    "v_or3_b32": Op(lambda a, b, c: a | b | c, "u32"),
    "v_xor3_b32": Op(lambda a, b, c: a ^ b ^ c, "u32"),
    "v_and_or_b32": Op(lambda a, b, c: (a & b) | c, "u32"),
    "v_bfi_b32": Op(lambda a, b, c: (a & b) | (~a & c), "u32"),
    "v_bfe_u32": Op(_extract, "u32"),
    "v_bfe_i32": Op(_extract_signed, "i32"),
    "v_bfm_b32": Op(lambda n, at: ((U32(1) << _shift(n)) - U32(1)) << _shift(at), "u32"),
    "v_bfrev_b32": Op(reverse, "u32"),
    "v_ffbh_u32": Op(first_bit_high, "u32"),
    "v_ffbl_b32": Op(first_bit_low, "u32"),
    "v_ffbh_i32": Op(sign_run, "u32"),
    "v_clz_i32_u32": Op(first_bit_high, "u32"),
    "v_ctz_i32_b32": Op(first_bit_low, "u32"),
    "v_cls_i32": Op(sign_run, "u32"),
    "v_bcnt_u32_b32": Op(lambda a, b: np.bitwise_count(a).astype(U32) + b, "u32"),
    "v_perm_b32": Op(_permute_bytes, "u32"),
    "v_alignbit_b32": Op(lambda a, b, c: _align(a, b, c & U32(31)), "u32"),
    "v_alignbyte_b32": Op(lambda a, b, c: _align(a, b, U32(8) * (c & U32(3))), "u32"),
    "v_pack_b32_f16": Op(lambda a, b: a.view(U16).astype(U32) | b.view(U16).astype(U32) << U32(16), "f16", "u32"),
    "v_ashr_pk_i8_i32": Op(_bytes_within(-128, 127, 8), "i32", "u16"),
    "v_ashr_pk_u8_i32": Op(_bytes_within(0, 255, 8), "i32", "u16"),
    "v_sat_pk_u8_i16": Op(_clipped_halves, "u32", "u16"),
    "v_prng_b32": Op(lambda a: (a << U32(1)) ^ np.where(a >> U32(31), U32(197), U32(0)), "u32"),
    "v_lshlrev_b32": Op(lambda n, a: a << _shift(n), "u32"),
    "v_lshrrev_b32": Op(lambda n, a: a >> _shift(n), "u32"),
    "v_ashrrev_i32": Op(lambda n, a: a >> (n & I32(31)), "i32"),
    "v_lshlrev_b16": Op(lambda n, a: a << (n & U16(15)), "u16"),
    "v_lshrrev_b16": Op(lambda n, a: a >> (n & U16(15)), "u16"),
    "v_ashrrev_i16": Op(lambda n, a: a >> (n & np.int16(15)), "i16"),
    "v_lshlrev_b64": Op(lambda n, a: a << (n & U32(63)).astype(U64), ("u32", "u64"), "u64"),
    "v_lshrrev_b64": Op(lambda n, a: a >> (n & U32(63)).astype(U64), ("u32", "u64"), "u64"),
    "v_ashrrev_i64": Op(lambda n, a: a >> (n & U32(63)).astype(I64), ("u32", "i64"), "i64"),
    "v_lshl_add_u32": Op(lambda a, n, b: (a << _shift(n)) + b, "u32"),
    "v_lshl_or_b32": Op(lambda a, n, b: (a << _shift(n)) | b, "u32"),
    "v_add_lshl_u32": Op(lambda a, b, n: (a + b) << _shift(n), "u32"),
    "v_lshl_add_u64": Op(lambda a, n, b: (a << (n & U32(7)).astype(U64)) + b, ("u64", "u32", "u64"), "u64"),
}


def any_of_three(table: int, kind: str) -> Op:
    """v_bitop3, any function of three bits: bit 4a + 2b + c of the table is the result for the bits a, b, c."""

    def compute(a, b, c):
        result = a & ~a
        for case in range(8):
            if table >> case & 1:
                result = result | ((a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c))
        return result

    return Op(compute, kind)
