"""Vector instructions (VOP1, VOP2, VOP3, VOPC): the same operation in every lane.

Names and semantics: AMD, "Instinct MI300 Instruction Set Architecture", chapter 12, and "RDNA 3 ISA", chapter 16.
Transcendental functions are rounded as numpy rounds them; the hardware may differ in the last place.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import (
    F16,
    F32,
    I32,
    I64,
    U16,
    U32,
    U64,
    fma16,
    fma32,
    larger,
    largest,
    smaller,
    smallest,
)
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import lane_selection
from gfxlab.simulator.instructions.common import NotInTable, Op, Step, Target
from gfxlab.simulator.instructions.vector_compare import COMPARE
from gfxlab.simulator.instructions.vector_convert import CONVERT
from gfxlab.simulator.instructions.vector_divide import DIVIDE
from gfxlab.simulator.instructions.vector_dot import DOT, dot_of_either_sign
from gfxlab.simulator.instructions.vector_double import DOUBLE

_LOW24 = U32(0xFFFFFF)


def _shift(amount):
    return amount & U32(31)


def _signed24(x):
    return (x << I32(8)) >> I32(8)


def _high32(a, b):
    return ((a.astype(U64) * b.astype(U64)) >> U64(32)).astype(U32)


def _high32_signed(a, b):
    return ((a.astype(I64) * b.astype(I64)) >> I64(32)).astype(I32)


def _middle(a, b, c):
    """The median of three; the smallest when one is NaN."""
    nan = (np.isnan(a) | np.isnan(b) | np.isnan(c)) if np.asarray(a).dtype.kind == "f" else False
    median = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    return np.where(nan, smaller(smaller(a, b), c), median) if np.any(nan) else median


def _extract(x, offset, width):
    width = width & U32(31)
    return (x >> _shift(offset)) & ((U32(1) << width) - U32(1))


def _extract_signed(x, offset, width):
    offset, width = offset & I32(31), width & I32(31)
    unused = I32(32) - np.minimum(width, I32(32) - offset)
    return np.where(width == 0, I32(0), (x << ((unused - offset) & I32(31))) >> (unused & I32(31)))


def _reverse(x):
    x = np.asarray(x, U32)
    for width, keep in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = ((x >> U32(width)) & U32(keep)) | ((x & U32(keep)) << U32(width))
    return (x >> U32(16)) | (x << U32(16))


def _first_bit_high(x):
    """Zeros above the highest one; all ones for 0. frexp gives the position exactly: float64 holds every uint32."""
    return np.where(x == 0, U32(0xFFFFFFFF), (32 - np.frexp(np.asarray(x, np.float64))[1]).astype(U32))


def _first_bit_low(x):
    lowest = x & (~x + U32(1))
    return np.where(x == 0, U32(0xFFFFFFFF), (np.frexp(np.asarray(lowest, np.float64))[1] - 1).astype(U32))


def _align(high, low, shift):
    joined = (np.asarray(high).astype(U64) << U64(32)) | low
    return (joined >> np.asarray(shift).astype(U64)).astype(U32)


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
        field = ((high if from_high else low) >> U32(8 * source)) & U32((1 << 8 * count) - 1)
        result = result | field << U32(8 * place)
    for place in range(4):
        chosen = selector >> 8 * place & 0xFF
        if 8 <= chosen < 12:  # the sign of byte 1, 3, 5 or 7, eight times
            word = high if chosen >= 10 else low
            sign = (word >> U32(15 if chosen % 2 == 0 else 31)) & U32(1)
            result = result | sign * U32(0xFF << 8 * place)
    return result


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


def _carry_add(a, b, carry=False):
    total = np.add(a, b, dtype=U64) + carry
    return total.astype(U32), total > U64(0xFFFFFFFF)


def _borrow_sub(a, b, borrow=False):
    difference = np.subtract(a, b, dtype=I64) - borrow
    return difference.astype(U32), difference < 0


def _mad_u64(a, b, c):
    product = np.multiply(a, b, dtype=U64)
    total = product + c
    return total, total < product


def _mad_i64(a, b, c):
    total = np.multiply(a, b, dtype=I64) + c
    return total, np.zeros(np.shape(total), bool)


def _reciprocal(x):
    return F32(1) / x


def _sine(turn, function):
    return function(np.asarray(turn, np.float64) * (2 * np.pi)).astype(F32)


def _low16(compute):
    """16-bit integer arithmetic wraps at 16 bits; numpy's uint16 does just that."""
    return Op(compute, "u16")


TABLE: dict[str, Op] = {
    # moves and bits
    "v_mov_b32": Op(lambda a: a, "u32"),
    "v_mov_b64": Op(lambda a: a, "u64"),
    "v_mov_b16": Op(lambda a: a, "u16"),
    "v_accvgpr_read_b32": Op(lambda a: a, "u32"),
    "v_accvgpr_write_b32": Op(lambda a: a, "u32"),
    "v_accvgpr_mov_b32": Op(lambda a: a, "u32"),
    "v_not_b32": Op(np.invert, "u32"),
    "v_not_b16": _low16(np.invert),
    "v_and_b32": Op(np.bitwise_and, "u32"),
    "v_or_b32": Op(np.bitwise_or, "u32"),
    "v_xor_b32": Op(np.bitwise_xor, "u32"),
    "v_xnor_b32": Op(lambda a, b: ~(a ^ b), "u32"),
    "v_and_b16": _low16(np.bitwise_and),
    "v_or_b16": _low16(np.bitwise_or),
    "v_xor_b16": _low16(np.bitwise_xor),
    "v_or3_b32": Op(lambda a, b, c: a | b | c, "u32"),
    "v_xor3_b32": Op(lambda a, b, c: a ^ b ^ c, "u32"),
    "v_and_or_b32": Op(lambda a, b, c: (a & b) | c, "u32"),
    "v_bfi_b32": Op(lambda a, b, c: (a & b) | (~a & c), "u32"),
    "v_bfe_u32": Op(_extract, "u32"),
    "v_bfe_i32": Op(_extract_signed, "i32"),
    "v_bfm_b32": Op(lambda n, at: ((U32(1) << _shift(n)) - U32(1)) << _shift(at), "u32"),
    "v_bfrev_b32": Op(_reverse, "u32"),
    "v_ffbh_u32": Op(_first_bit_high, "u32"),
    "v_ffbl_b32": Op(_first_bit_low, "u32"),
    "v_clz_i32_u32": Op(_first_bit_high, "u32"),
    "v_ctz_i32_b32": Op(_first_bit_low, "u32"),
    "v_bcnt_u32_b32": Op(lambda a, b: np.bitwise_count(a).astype(U32) + b, "u32"),
    "v_perm_b32": Op(_permute_bytes, "u32"),
    "v_alignbit_b32": Op(lambda a, b, c: _align(a, b, c & U32(31)), "u32"),
    "v_alignbyte_b32": Op(lambda a, b, c: _align(a, b, U32(8) * (c & U32(3))), "u32"),
    "v_pack_b32_f16": Op(lambda a, b: a.astype(U32) | b.astype(U32) << U32(16), "u16", "u32"),
    "v_lshlrev_b32": Op(lambda n, a: a << _shift(n), "u32"),
    "v_lshrrev_b32": Op(lambda n, a: a >> _shift(n), "u32"),
    "v_ashrrev_i32": Op(lambda n, a: a >> (n & I32(31)), "i32"),
    "v_lshlrev_b16": _low16(lambda n, a: a << (n & U16(15))),
    "v_lshrrev_b16": _low16(lambda n, a: a >> (n & U16(15))),
    "v_ashrrev_i16": Op(lambda n, a: a >> (n & np.int16(15)), "i16"),
    "v_lshlrev_b64": Op(lambda n, a: a << (n & U32(63)).astype(U64), ("u32", "u64"), "u64"),
    "v_lshrrev_b64": Op(lambda n, a: a >> (n & U32(63)).astype(U64), ("u32", "u64"), "u64"),
    "v_ashrrev_i64": Op(lambda n, a: a >> (n & U32(63)).astype(I64), ("u32", "i64"), "i64"),
    "v_lshl_add_u32": Op(lambda a, n, b: (a << _shift(n)) + b, "u32"),
    "v_lshl_or_b32": Op(lambda a, n, b: (a << _shift(n)) | b, "u32"),
    "v_add_lshl_u32": Op(lambda a, b, n: (a + b) << _shift(n), "u32"),
    "v_lshl_add_u64": Op(lambda a, n, b: (a << (n & U32(63)).astype(U64)) + b, ("u64", "u32", "u64"), "u64"),
    "v_cndmask_b32": Op(lambda no, yes, mask: np.where(mask, yes, no), ("u32", "u32", "mask")),
    "v_cndmask_b16": Op(lambda no, yes, mask: np.where(mask, yes, no), ("u16", "u16", "mask")),
    # integers
    "v_add_u32": Op(np.add, "u32"),
    "v_sub_u32": Op(np.subtract, "u32"),
    "v_subrev_u32": Op(lambda a, b: b - a, "u32"),
    "v_add_i32": Op(np.add, "i32"),
    "v_sub_i32": Op(np.subtract, "i32"),
    "v_add3_u32": Op(lambda a, b, c: a + b + c, "u32"),
    "v_xad_u32": Op(lambda a, b, c: (a ^ b) + c, "u32"),
    "v_add_u16": _low16(np.add),
    "v_sub_u16": _low16(np.subtract),
    "v_subrev_u16": _low16(lambda a, b: b - a),
    "v_add_i16": Op(np.add, "i16"),
    "v_sub_i16": Op(np.subtract, "i16"),
    "v_mad_i16": Op(lambda a, b, c: a * b + c, "i16"),
    "v_mul_lo_u16": _low16(np.multiply),
    "v_mad_u16": _low16(lambda a, b, c: a * b + c),
    "v_mul_lo_u32": Op(np.multiply, "u32"),
    "v_mul_hi_u32": Op(_high32, "u32"),
    "v_mul_hi_i32": Op(_high32_signed, "i32"),
    "v_mul_u32_u24": Op(lambda a, b: (a & _LOW24) * (b & _LOW24), "u32"),
    "v_mul_i32_i24": Op(lambda a, b: _signed24(a) * _signed24(b), "i32"),
    "v_mul_hi_u32_u24": Op(lambda a, b: _high32(a & _LOW24, b & _LOW24), "u32"),
    "v_mad_u32_u24": Op(lambda a, b, c: (a & _LOW24) * (b & _LOW24) + c, "u32"),
    "v_mad_i32_i24": Op(lambda a, b, c: _signed24(a) * _signed24(b) + c, "i32"),
    "v_mad_u64_u32": Op(_mad_u64, ("u32", "u32", "u64"), ("u64", "mask")),
    "v_mad_i64_i32": Op(_mad_i64, ("i32", "i32", "i64"), ("i64", "mask")),
    "v_add_co_u32": Op(_carry_add, "u32", ("u32", "mask")),
    "v_addc_co_u32": Op(_carry_add, ("u32", "u32", "mask"), ("u32", "mask")),
    "v_sub_co_u32": Op(_borrow_sub, "u32", ("u32", "mask")),
    "v_subb_co_u32": Op(_borrow_sub, ("u32", "u32", "mask"), ("u32", "mask")),
    "v_subrev_co_u32": Op(lambda a, b: _borrow_sub(b, a), "u32", ("u32", "mask")),
    "v_subbrev_co_u32": Op(lambda a, b, c: _borrow_sub(b, a, c), ("u32", "u32", "mask"), ("u32", "mask")),
    "v_sad_u32": Op(lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c, "u32"),
    # single precision
    "v_add_f32": Op(np.add, "f32"),
    "v_sub_f32": Op(np.subtract, "f32"),
    "v_subrev_f32": Op(lambda a, b: b - a, "f32"),
    "v_mul_f32": Op(np.multiply, "f32"),
    "v_mul_legacy_f32": Op(lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b), "f32"),
    "v_mul_dx9_zero_f32": Op(lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b), "f32"),
    "v_fma_f32": Op(fma32, "f32"),
    "v_fmaak_f32": Op(fma32, "f32"),
    "v_fmamk_f32": Op(fma32, "f32"),
    "v_fmac_f32": Op(fma32, "f32", accumulates=True),
    "v_mac_f32": Op(lambda a, b, c: a * b + c, "f32", accumulates=True),
    "v_mad_f32": Op(lambda a, b, c: a * b + c, "f32"),
    "v_madak_f32": Op(lambda a, b, c: a * b + c, "f32"),
    "v_madmk_f32": Op(lambda a, b, c: a * b + c, "f32"),
    "v_rcp_f32": Op(_reciprocal, "f32"),
    "v_rcp_iflag_f32": Op(_reciprocal, "f32"),
    "v_rsq_f32": Op(lambda a: F32(1) / np.sqrt(a), "f32"),
    "v_sqrt_f32": Op(np.sqrt, "f32"),
    "v_exp_f32": Op(np.exp2, "f32"),
    "v_log_f32": Op(np.log2, "f32"),
    "v_sin_f32": Op(lambda turn: _sine(turn, np.sin), "f32"),
    "v_cos_f32": Op(lambda turn: _sine(turn, np.cos), "f32"),
    "v_rndne_f32": Op(np.rint, "f32"),
    "v_floor_f32": Op(np.floor, "f32"),
    "v_ceil_f32": Op(np.ceil, "f32"),
    "v_trunc_f32": Op(np.trunc, "f32"),
    "v_fract_f32": Op(lambda a: np.minimum(a - np.floor(a), F32(1 - 2**-24)), "f32"),
    "v_ldexp_f32": Op(lambda a, n: np.ldexp(a, n).astype(F32), ("f32", "i32")),
    "v_frexp_mant_f32": Op(lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a), "f32"),
    "v_frexp_exp_i32_f32": Op(lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(I32), "f32", "i32"),
    # half precision
    "v_add_f16": Op(np.add, "f16"),
    "v_sub_f16": Op(np.subtract, "f16"),
    "v_subrev_f16": Op(lambda a, b: b - a, "f16"),
    "v_mul_f16": Op(np.multiply, "f16"),
    "v_fma_f16": Op(fma16, "f16"),
    "v_fmac_f16": Op(fma16, "f16", accumulates=True),
    "v_fmaak_f16": Op(fma16, "f16"),
    "v_fmamk_f16": Op(fma16, "f16"),
    "v_mac_f16": Op(lambda a, b, c: a * b + c, "f16", accumulates=True),
    "v_rcp_f16": Op(lambda a: F16(1) / a, "f16"),
    "v_sqrt_f16": Op(np.sqrt, "f16"),
    "v_rsq_f16": Op(lambda a: (F32(1) / np.sqrt(a.astype(F32))).astype(F16), "f16"),
    "v_exp_f16": Op(lambda a: np.exp2(a.astype(F32)).astype(F16), "f16"),
    "v_log_f16": Op(lambda a: np.log2(a.astype(F32)).astype(F16), "f16"),
    "v_rndne_f16": Op(np.rint, "f16"),
    "v_floor_f16": Op(np.floor, "f16"),
    "v_trunc_f16": Op(np.trunc, "f16"),
    "v_ldexp_f16": Op(lambda a, n: np.ldexp(a, n.astype(I32)).astype(F16), ("f16", "i16")),
}

# Minimum, maximum and median of every type. `maximum`: a NaN wins (IEEE 754-2019); `max`: a number wins.
for _type in ("u32", "i32", "u16", "i16", "f32", "f16"):
    _max, _min = (larger, smaller) if _type[0] == "f" else (np.maximum, np.minimum)
    TABLE |= {
        f"v_max_{_type}": Op(_max, _type),
        f"v_min_{_type}": Op(_min, _type),
        f"v_max3_{_type}": Op(lambda a, b, c, f=_max: f(f(a, b), c), _type),
        f"v_min3_{_type}": Op(lambda a, b, c, f=_min: f(f(a, b), c), _type),
        f"v_maxmin_{_type}": Op(lambda a, b, c, f=_max, g=_min: g(f(a, b), c), _type),
        f"v_minmax_{_type}": Op(lambda a, b, c, f=_max, g=_min: f(g(a, b), c), _type),
        f"v_med3_{_type}": Op(_middle, _type),
    }
for _type in ("f32", "f16"):
    TABLE |= {
        f"v_maximum_{_type}": Op(largest, _type),
        f"v_minimum_{_type}": Op(smallest, _type),
        f"v_maximum3_{_type}": Op(lambda a, b, c: largest(largest(a, b), c), _type),
        f"v_minimum3_{_type}": Op(lambda a, b, c: smallest(smallest(a, b), c), _type),
    }
TABLE |= COMPARE | CONVERT | DIVIDE | DOT | DOUBLE


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one vector instruction."""
    op = _operation(name, instruction)
    compute, write = phases(op, instruction, target)
    write = lane_selection.only_reached_lanes(write, instruction, target)
    return lambda w: write(w, compute(w))


def _operation(name: str, instruction: Decoded) -> Op:
    if name.startswith("v_bitop3_"):
        return _bitop3(instruction.modifiers["bitop3"], "u32" if name.endswith("b32") else "u16")
    if name == "v_dot4_i32_iu8":
        return dot_of_either_sign(instruction.modifiers.get("neg_lo", [0, 0]))
    if name not in TABLE:
        raise NotInTable(name)
    return TABLE[name]


def _bitop3(table: int, kind: str) -> Op:
    """Any function of three bits: bit 4a + 2b + c of the table is the result for the bits a, b, c."""

    def compute(a, b, c):
        result = a & ~a
        for case in range(8):
            if table >> case & 1:
                result = result | ((a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c))
        return result

    return Op(compute, kind)


def phases(op: Op, instruction: Decoded, target: Target) -> tuple[values.Reader, values.Writer]:
    """Reading and computing, then writing: two instructions issued as one read before either writes."""
    operands = instruction.operands
    results = op.results
    if instruction.mnemonic.startswith("v_cmpx") and not target.cdna:  # RDNA writes EXEC and nothing else
        operands = (target.exec, *operands)
    sources = operands[len(results) :]
    if op.accumulates:
        sources = (*sources, operands[0])
    if op.reads_vcc:
        sources = (*sources, target.vcc)
    readers = [
        lane_selection.source(operand, kind, place, instruction, target)
        for place, (operand, kind) in enumerate(zip(sources, op.kinds(len(sources)), strict=True))
    ]
    writers = [
        lane_selection.destination(operand, kind, len(sources), instruction, target)
        for operand, kind in zip(operands, results)
    ]
    if instruction.mnemonic.startswith("v_cmpx") and target.cdna:
        writers.append(values.writer(target.exec, "mask"))
        return _compute(_twice(op.compute), readers, instruction, results), _write_all(writers)
    if len(writers) > 1:
        return _compute(op.compute, readers, instruction, results), _write_all(writers)
    return _compute(op.compute, readers, instruction, results), writers[0]


def _twice(compute):
    def both(*sources):
        result = compute(*sources)
        return result, result

    return both


def _write_all(writers: list[values.Writer]) -> values.Writer:
    def write(w, results):
        for one, result in zip(writers, results):
            one(w, result)

    return write


_WRAPS = re.compile(r"v_(add|sub|subrev)(_nc)?_[ui]")
_LIMITS = {"u32": U32, "i32": I32, "u16": U16, "i16": np.int16}


def _saturated(result: np.ndarray, kind: str) -> np.ndarray:
    limits = np.iinfo(_LIMITS[kind])
    return np.clip(result, limits.min, limits.max).astype(_LIMITS[kind])


_SCALES = {("mul", 2): 2, ("mul", 4): 4, ("div", 2): 0.5}


def _compute(compute, readers: list[values.Reader], instruction: Decoded, results: tuple[str, ...]) -> values.Reader:
    """`compute` of the sources, then the output modifiers."""
    modifiers = instruction.modifiers
    scale = next((factor for (name, n), factor in _SCALES.items() if modifiers.get(name) == n), None)
    clamp = bool(modifiers.get("clamp"))
    if clamp and results[0] in _LIMITS and _WRAPS.match(instruction.mnemonic):
        return lambda w: _saturated(compute(*[np.asarray(read(w), I64) for read in readers]), results[0])
    if (scale or clamp) and results[0] not in ("f32", "f16"):
        raise NotInTable(f"{instruction.mnemonic} with clamp")
    if scale or clamp:
        return lambda w: _modified(compute(*[read(w) for read in readers]), scale, clamp)
    if len(readers) == 1:
        (only,) = readers
        return lambda w: compute(only(w))
    if len(readers) == 2:
        first, second = readers
        return lambda w: compute(first(w), second(w))
    return lambda w: compute(*[read(w) for read in readers])


def _modified(result: np.ndarray, scale: float | None, clamp: bool) -> np.ndarray:
    if scale:
        result = result * result.dtype.type(scale)
    if clamp:
        zero, one = result.dtype.type(0), result.dtype.type(1)
        result = np.clip(np.where(np.isnan(result), zero, result), zero, one)
    return result
