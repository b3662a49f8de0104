"""Scalar instructions (SOP1, SOP2, SOPC, SOPK): one value a wave, and the condition bit SCC.

Names and semantics: MI300 ISA, sections 12.1 to 12.4; the floating-point ones: RDNA 3.5 and RDNA 4 ISA.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F16, F32, I32, I64, U16, U32, U64
from gfxlab.simulator.core.operands import EXEC, NULL, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Op, Step, Target
from gfxlab.simulator.instructions.results import computation
from gfxlab.simulator.instructions.vector import TABLE as VECTOR
from gfxlab.simulator.instructions.vector_bits import first_bit_high, first_bit_low, reverse, sign_run
from gfxlab.simulator.instructions.vector_compare import FLOAT_TESTS, INTEGER_TESTS


@dataclass(frozen=True)
class Scalar:
    """`destination = compute(*sources)`.

    scc: "" leaves SCC alone, "nonzero" sets it where the result is not 0, "second" takes it from compute's second
    result, "only" writes nothing else. reads_scc: compute gets SCC as its last argument. accumulates: the destination
    is its first source.
    """

    compute: Callable
    reads: str | tuple[str, ...] = "u32"
    writes: str = ""
    scc: str = ""
    reads_scc: bool = False
    accumulates: bool = False

    def kinds(self, sources: int) -> tuple[str, ...]:
        return (self.reads,) * sources if isinstance(self.reads, str) else self.reads

    @property
    def result(self) -> str:
        return self.writes or (self.reads if isinstance(self.reads, str) else self.reads[0])


def _add(a, b, carry=False):
    total = np.add(a, b, dtype=U64) + carry
    return total.astype(U32), total > U64(0xFFFFFFFF)


def _subtract(a, b, borrow=False):
    difference = np.subtract(a, b, dtype=I64) - borrow
    return difference.astype(U32), difference < 0


def _overflowing(compute):
    def run(a, b):
        wide = compute(np.asarray(a, I64), np.asarray(b, I64))
        result = wide.astype(I32)
        return result, wide != result

    return run


def _lshl_add(n):
    def compute(a, b):
        total = (np.asarray(a, U64) << U64(n)) + b
        return total.astype(U32), total > U64(0xFFFFFFFF)

    return compute


def _extract(a, packed):
    """`packed`: bits 4:0 (5:0 of a pair) say where the field begins, bits 22:16 how wide it is."""
    most = U32(8 * a.dtype.itemsize - 1)
    offset, width = np.asarray(packed & most, U64), np.asarray(packed >> U32(16) & U32(0x7F), U64)
    field = np.asarray(a, U64) >> offset
    return np.where(width < 64, field & ((U64(1) << (width & U64(63))) - U64(1)), field).astype(a.dtype)


def _extract_signed(a, packed):
    bits = 8 * a.dtype.itemsize
    offset, width = (packed & U32(bits - 1)).astype(I64), np.minimum(packed >> U32(16) & U32(0x7F), bits).astype(I64)
    unused = np.minimum(64 - width, 63)
    field = (a.astype(I64) >> offset) << unused >> unused
    return np.where(width > 0, field, 0).astype(a.dtype)


def _reverse64(a):
    low, high = np.asarray(a).astype(U32), (np.asarray(a) >> U64(32)).astype(U32)
    return reverse(low).astype(U64) << U64(32) | reverse(high)


def _first_bit_low64(a):
    low, high = np.asarray(a).astype(U32), (np.asarray(a) >> U64(32)).astype(U32)
    return np.where(low != 0, first_bit_low(low), np.where(high != 0, first_bit_low(high) + U32(32), U32(0xFFFFFFFF)))


def _first_bit_high64(a):
    low, high = np.asarray(a).astype(U32), (np.asarray(a) >> U64(32)).astype(U32)
    below = np.where(low != 0, first_bit_high(low) + U32(32), U32(0xFFFFFFFF))
    return np.where(high != 0, first_bit_high(high), below)


def _groups_of_four(bits: int, spread: bool):
    """One bit for each four bits, whether one of them is set: side by side, or (spread) four times over."""

    def compute(x):
        result = x & ~x
        for place in range(bits // 4):
            some = ((x >> (4 * place)) & 15) != 0
            result = result | some * x.dtype.type(15 << 4 * place if spread else 1 << place)
        return result

    return compute


def _single_bits(cast, most: U32) -> dict[str, Scalar]:
    """Operations on one bit or on runs of bits; `most`: the highest bit's number."""
    bit = lambda n: cast(1) << (n & most).astype(cast)  # noqa: E731
    kind = f"u{int(most) + 1}"
    return {
        "bitset0": Scalar(lambda old, n: old & ~bit(n), (kind, "u32"), accumulates=True),
        "bitset1": Scalar(lambda old, n: old | bit(n), (kind, "u32"), accumulates=True),
        "bitcmp0": Scalar(lambda a, n: a & bit(n) == 0, (kind, "u32"), scc="only"),
        "bitcmp1": Scalar(lambda a, n: a & bit(n) != 0, (kind, "u32"), scc="only"),
        "bfm": Scalar(lambda n, at: (bit(n) - cast(1)) << (at & most).astype(cast), "u32", kind),
        "bcnt0_i32": Scalar(lambda a: np.bitwise_count(~a).astype(U32), kind, "u32", scc="nonzero"),
        "quadmask": Scalar(_groups_of_four(int(most) + 1, spread=False), kind, scc="nonzero"),
    }


def _doubled(x):
    """s_bitreplicate: each bit twice."""
    result = np.asarray(x).astype(U64)
    for distance, keep in ((16, 0xFFFF0000FFFF), (8, 0xFF00FF00FF00FF), (4, 0xF0F0F0F0F0F0F0F)):
        result = (result | result << U64(distance)) & U64(keep)
    result = (result | result << U64(2)) & U64(0x3333333333333333)
    result = (result | result << U64(1)) & U64(0x5555555555555555)
    return result | result << U64(1)


def _sign_run64(x):
    flipped = np.where(x >> U64(63) != 0, ~x, x)
    return _first_bit_high64(flipped)


def _of_vector(name):
    """The scalar twin of a vector instruction."""
    op = VECTOR[name]
    return Scalar(op.compute, op.reads, op.results[0], accumulates=op.accumulates)


TABLE: dict[str, Scalar] = {
    "s_wqm_b32": Scalar(_groups_of_four(32, spread=True), scc="nonzero"),
    "s_wqm_b64": Scalar(_groups_of_four(64, spread=True), "u64", scc="nonzero"),
    "s_movk_i32": Scalar(lambda a: a, "i16", "i32"),
    "s_cmovk_i32": Scalar(
        lambda old, new, scc: np.where(scc, new.astype(I32), old), ("i32", "i16"), reads_scc=True, accumulates=True
    ),
    "s_addk_i32": Scalar(_overflowing(np.add), ("i32", "i16"), scc="second", accumulates=True),
    "s_mulk_i32": Scalar(lambda a, b: a * b.astype(I32), ("i32", "i16"), accumulates=True),
    "s_add_u32": Scalar(_add, scc="second"),
    "s_sub_u32": Scalar(_subtract, scc="second"),
    "s_addc_u32": Scalar(_add, scc="second", reads_scc=True),
    "s_subb_u32": Scalar(_subtract, scc="second", reads_scc=True),
    "s_add_i32": Scalar(_overflowing(np.add), "i32", scc="second"),
    "s_sub_i32": Scalar(_overflowing(np.subtract), "i32", scc="second"),
    "s_add_nc_u64": Scalar(np.add, "u64"),
    "s_sub_nc_u64": Scalar(np.subtract, "u64"),
    "s_add_u64": Scalar(np.add, "u64"),
    "s_sub_u64": Scalar(np.subtract, "u64"),
    "s_mul_u64": Scalar(np.multiply, "u64"),
    "s_mul_i32": Scalar(np.multiply, "i32"),
    "s_mul_hi_u32": Scalar(lambda a, b: (np.multiply(a, b, dtype=U64) >> U64(32)).astype(U32)),
    "s_mul_hi_i32": Scalar(lambda a, b: (np.multiply(a, b, dtype=I64) >> I64(32)).astype(I32), "i32"),
    "s_absdiff_i32": Scalar(lambda a, b: np.abs(a - b), "i32", scc="nonzero"),
    "s_abs_i32": Scalar(np.abs, "i32", scc="nonzero"),
    "s_ashr_i32": Scalar(lambda a, n: a >> (n & U32(31)).astype(I32), ("i32", "u32"), scc="nonzero"),
    "s_ashr_i64": Scalar(lambda a, n: a >> (n & U32(63)).astype(I64), ("i64", "u32"), scc="nonzero"),
    "s_sext_i32_i16": Scalar(lambda a: a.astype(np.int16).astype(I32), "i32"),
    "s_sext_i32_i8": Scalar(lambda a: a.astype(np.int8).astype(I32), "i32"),
    "s_bfe_u32": Scalar(_extract, scc="nonzero"),
    "s_bfe_i32": Scalar(_extract_signed, ("i32", "u32"), scc="nonzero"),
    "s_bfe_i64": Scalar(_extract_signed, ("i64", "u32"), scc="nonzero"),
    "s_bfe_u64": Scalar(_extract, ("u64", "u32"), scc="nonzero"),
    "s_brev_b32": Scalar(reverse),
    "s_brev_b64": Scalar(_reverse64, "u64"),
    "s_ff1_i32_b32": Scalar(first_bit_low),
    "s_ff1_i32_b64": Scalar(_first_bit_low64, "u64", "u32"),
    "s_ff0_i32_b32": Scalar(lambda a: first_bit_low(~a)),
    "s_ff0_i32_b64": Scalar(lambda a: _first_bit_low64(~a), "u64", "u32"),
    "s_flbit_i32": Scalar(sign_run),
    "s_flbit_i32_i64": Scalar(_sign_run64, "u64", "u32"),
    "s_cls_i32": Scalar(sign_run),
    "s_cls_i32_i64": Scalar(_sign_run64, "u64", "u32"),
    "s_bitreplicate_b64_b32": Scalar(_doubled, "u32", "u64"),
    "s_ctz_i32_b32": Scalar(first_bit_low),
    "s_ctz_i32_b64": Scalar(_first_bit_low64, "u64", "u32"),
    "s_flbit_i32_b32": Scalar(first_bit_high),
    "s_flbit_i32_b64": Scalar(_first_bit_high64, "u64", "u32"),
    "s_clz_i32_u64": Scalar(_first_bit_high64, "u64", "u32"),
    "s_clz_i32_u32": Scalar(first_bit_high),
    "s_bcnt1_i32_b32": Scalar(lambda a: np.bitwise_count(a).astype(U32), scc="nonzero"),
    "s_bcnt1_i32_b64": Scalar(lambda a: np.bitwise_count(a).astype(U32), "u64", "u32", scc="nonzero"),
    "s_pack_ll_b32_b16": Scalar(lambda a, b: (a & U32(0xFFFF)) | b << U32(16)),
    "s_pack_lh_b32_b16": Scalar(lambda a, b: (a & U32(0xFFFF)) | (b & U32(0xFFFF0000))),
    "s_pack_hl_b32_b16": Scalar(lambda a, b: a >> U32(16) | b << U32(16)),
    "s_pack_hh_b32_b16": Scalar(lambda a, b: a >> U32(16) | (b & U32(0xFFFF0000))),
    "s_cvt_f32_i32": _of_vector("v_cvt_f32_i32"),
    "s_cvt_f32_u32": _of_vector("v_cvt_f32_u32"),
    "s_cvt_i32_f32": _of_vector("v_cvt_i32_f32"),
    "s_cvt_u32_f32": _of_vector("v_cvt_u32_f32"),
    "s_cvt_f32_f16": _of_vector("v_cvt_f32_f16"),
    "s_cvt_hi_f32_f16": Scalar(lambda a: (a >> U32(16)).astype(U16).view(F16).astype(F32), "u32", "f32"),
    "s_cvt_f16_f32": _of_vector("v_cvt_f16_f32"),
    "s_cvt_pk_rtz_f16_f32": _of_vector("v_cvt_pk_rtz_f16_f32"),
    "s_fmaak_f32": _of_vector("v_fmaak_f32"),
    "s_fmamk_f32": _of_vector("v_fmamk_f32"),
}

# floating point (gfx11.5, gfx12)
for _kind in ("f32", "f16"):
    TABLE |= {
        f"s_{name}_{_kind}": _of_vector(f"v_{name}_{_kind}")
        for name in ["add", "sub", "mul", "max", "min", "maximum", "minimum", "trunc", "floor", "ceil", "rndne"]
    }
    TABLE[f"s_max_num_{_kind}"], TABLE[f"s_min_num_{_kind}"] = TABLE[f"s_max_{_kind}"], TABLE[f"s_min_{_kind}"]
    _fma = VECTOR[f"v_fma_{_kind}"].compute
    TABLE[f"s_fmac_{_kind}"] = Scalar(lambda c, a, b, fma=_fma: fma(a, b, c), _kind, accumulates=True)

# the vector unit's functions of a scalar (gfx12)
TABLE |= {
    f"v_s_{name}_{kind}": _of_vector(f"v_{name}_{kind}")
    for name in ("exp", "log", "rcp", "rsq", "sqrt")
    for kind in ("f32", "f16")
}

_BITWISE = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
}
for _bits in (32, 64):
    _kind, _most = f"u{_bits}", U32(_bits - 1)
    _cast = U32 if _bits == 32 else U64
    TABLE |= {f"s_{name}_b{_bits}": op for name, op in _single_bits(_cast, _most).items()}
    TABLE |= {f"s_{name}_b{_bits}": Scalar(compute, _kind, scc="nonzero") for name, compute in _BITWISE.items()}
    TABLE |= {
        f"s_mov_b{_bits}": Scalar(lambda a: a, _kind),
        f"s_not_b{_bits}": Scalar(np.invert, _kind, scc="nonzero"),
        f"s_cselect_b{_bits}": Scalar(lambda yes, no, scc: np.where(scc, yes, no), _kind, reads_scc=True),
        f"s_cmov_b{_bits}": Scalar(
            lambda old, new, scc: np.where(scc, new, old), _kind, reads_scc=True, accumulates=True
        ),
        f"s_lshl_b{_bits}": Scalar(
            lambda a, n, most=_most, cast=_cast: a << (n & most).astype(cast), (_kind, "u32"), scc="nonzero"
        ),
        f"s_lshr_b{_bits}": Scalar(
            lambda a, n, most=_most, cast=_cast: a >> (n & most).astype(cast), (_kind, "u32"), scc="nonzero"
        ),
    }
for _n in (1, 2, 3, 4):
    TABLE[f"s_lshl{_n}_add_u32"] = Scalar(_lshl_add(_n), scc="second")
for _kind in ("i32", "u32"):
    TABLE[f"s_max_{_kind}"] = Scalar(lambda a, b: (np.maximum(a, b), a >= b), _kind, scc="second")
    TABLE[f"s_min_{_kind}"] = Scalar(lambda a, b: (np.minimum(a, b), a < b), _kind, scc="second")
_TESTS = (INTEGER_TESTS | {"lg": INTEGER_TESTS["ne"]}, FLOAT_TESTS)  # of integers, of floats
for _kind in ("i32", "u32", "u64", "i64", "f32", "f16"):
    for _name, _test in _TESTS[_kind[0] == "f"].items():
        TABLE[f"s_cmp_{_name}_{_kind}"] = Scalar(_test, _kind, scc="only")
for _name in ("eq", "lg", "lt", "le", "gt", "ge"):
    _test = INTEGER_TESTS["ne" if _name == "lg" else _name]
    TABLE[f"s_cmpk_{_name}_i32"] = Scalar(_test, ("i32", "i16"), scc="only")
    TABLE[f"s_cmpk_{_name}_u32"] = Scalar(_test, ("u32", "u16"), scc="only")

# s_and_saveexec: the old EXEC is kept, the new one is the source combined with it.
_WITH_EXEC = _BITWISE | {"andn1": lambda a, e: ~a & e, "orn1": lambda a, e: ~a | e}


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one scalar instruction."""
    if found := _CHANGES_EXEC.match(name):
        return _change_exec(found[1], found[2] == "save", instruction, target)
    if name not in TABLE:
        raise NotInTable(name)
    op = TABLE[name]
    operands = instruction.operands
    sources = operands if op.scc == "only" or op.accumulates else operands[1:]
    readers = [values.scalar_reader(o, kind) for o, kind in zip(sources, op.kinds(len(sources)), strict=True)]
    compute = _computation(op, readers, instruction)
    if op.scc == "only":
        return lambda w: w.write_scalar(w.SCC, compute(w))
    write = writer(operands[0], op.result, target)
    if not op.scc:
        return lambda w: write(w, compute(w))

    def run(w):
        result = compute(w)
        result, scc = result if op.scc == "second" else (result, result != 0)
        write(w, result)
        w.write_scalar(w.SCC, scc)

    return run


_FMAC = lambda c, a, b: a * b + c  # noqa: E731  of fractions: the only one that accumulates names its addend first


def _computation(op: Scalar, readers: list[values.Reader], instruction: Decoded) -> values.Reader:
    if op.result in ("f32", "f16") and not op.reads_scc and not op.scc:
        vector = VECTOR.get(f"v_{instruction.mnemonic[2:]}")
        exact = _FMAC if op.accumulates else vector.exact if vector else None
        return computation(Op(op.compute, op.kinds(len(readers)), op.result, exact=exact), readers, instruction)
    if op.reads_scc:
        return lambda w: op.compute(*[read(w) for read in readers], w.SCC)
    if len(readers) == 1:
        return lambda w, read=readers[0], compute=op.compute: compute(read(w))
    if len(readers) == 2:
        first, second = readers
        return lambda w, compute=op.compute: compute(first(w), second(w))
    return lambda w: op.compute(*[read(w) for read in readers])


def writer(operand: Operand, kind: str, target: Target) -> values.Writer:
    """A function that writes a scalar register, or a pair of them; writing EXEC changes the active lanes."""
    i = operand.index
    if i == NULL:
        return lambda w, value: None
    if kind in values.WIDE and operand.count == 2:
        write = lambda w, value: w.write_scalar(w.S[:, i : i + 2].view(U64)[:, 0], np.asarray(value).view(U64))  # noqa: E731
    elif kind == "f32":
        write = lambda w, value: w.write_scalar(w.S[:, i], np.asarray(value, F32).view(U32))  # noqa: E731
    elif kind == "f16":
        write = lambda w, value: w.write_scalar(w.S[:, i], np.asarray(value, F16).view(U16).astype(U32))  # noqa: E731
    else:
        write = lambda w, value: w.write_scalar(w.S[:, i], np.asarray(value).astype(U32, copy=False))  # noqa: E731
    if i not in (EXEC, EXEC + 1):
        return write

    def write_exec(w, value):
        write(w, value)
        w.exec_changed()

    return write_exec


_CHANGES_EXEC = re.compile(r"s_(\w+?)_(save|wr)exec_b")


def _change_exec(operation: str, saves: bool, instruction: Decoded, target: Target) -> Step:
    """s_and_saveexec and its kin keep the old EXEC, s_andn1_wrexec and its kin the new one."""
    if operation not in _WITH_EXEC:
        raise NotInTable(instruction.mnemonic)
    combine = _WITH_EXEC[operation]
    kind = "u64" if target.lanes == 64 else "u32"
    kept, source = instruction.operands
    read, old = values.scalar_reader(source, kind), values.scalar_reader(target.exec, kind)
    keep, change = writer(kept, kind, target), writer(target.exec, kind, target)

    def run(w):
        before = old(w).copy()
        after = combine(read(w), before)
        keep(w, before if saves else after)
        change(w, after)
        w.write_scalar(w.SCC, after != 0)

    return run


# ---- jumps -----------------------------------------------------------------------------------------------------------


def jump_condition(mnemonic: str, target: Target) -> Callable | None:
    """For a conditional jump, a function from the waves to `[wave]` of bool; None for one that is always taken.

    Raises:
        NotInTable: not a jump that the simulator knows.
    """
    kind = "u64" if target.lanes == 64 else "u32"
    vcc, active = values.scalar_reader(target.vcc, kind), values.scalar_reader(target.exec, kind)
    conditions = {
        "s_branch": None,
        "s_cbranch_scc0": lambda w: ~w.SCC,
        "s_cbranch_scc1": lambda w: w.SCC,
        "s_cbranch_vccz": lambda w: vcc(w) == 0,
        "s_cbranch_vccnz": lambda w: vcc(w) != 0,
        "s_cbranch_execz": lambda w: active(w) == 0,
        "s_cbranch_execnz": lambda w: active(w) != 0,
    }
    if mnemonic not in conditions:
        raise NotInTable(mnemonic)
    return conditions[mnemonic]
