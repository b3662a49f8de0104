"""Scalar instructions (SOP1, SOP2, SOPC, SOPK): one value a wave, and the condition bit SCC.

Names and semantics: MI300 ISA, sections 12.1 to 12.4; the floating-point ones: RDNA 3.5 and RDNA 4 ISA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F16, F32, I32, I64, U16, U32, U64, fma32, larger, largest, smaller, smallest
from gfxlab.simulator.core.operands import EXEC, NULL, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.vector import TABLE as VECTOR
from gfxlab.simulator.instructions.vector import _first_bit_high, _first_bit_low, _reverse
from gfxlab.simulator.instructions.vector_compare import _FLOATS, _INTEGERS


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
    offset, width = (packed & U32(31)).astype(I64), np.minimum(packed >> U32(16) & U32(0x7F), 32).astype(I64)
    unused = 64 - width
    field = (a.view(I32).astype(I64) >> offset) << np.minimum(unused, 63) >> np.minimum(unused, 63)
    return np.where(width > 0, field, 0).astype(I32)


def _reverse64(a):
    low, high = np.asarray(a).astype(U32), (np.asarray(a) >> U64(32)).astype(U32)
    return _reverse(low).astype(U64) << U64(32) | _reverse(high)


def _first_bit_low64(a):
    low, high = np.asarray(a).astype(U32), (np.asarray(a) >> U64(32)).astype(U32)
    return np.where(low != 0, _first_bit_low(low), np.where(high != 0, _first_bit_low(high) + U32(32), U32(0xFFFFFFFF)))


def _first_bit_high64(a):
    low, high = np.asarray(a).astype(U32), (np.asarray(a) >> U64(32)).astype(U32)
    below = np.where(low != 0, _first_bit_high(low) + U32(32), U32(0xFFFFFFFF))
    return np.where(high != 0, _first_bit_high(high), below)


def _bit(value):
    return lambda a, n: ((a >> (n & U32(31))) & U32(1)) == value


def _of_vector(name):
    """The scalar twin of a vector instruction."""
    return Scalar(VECTOR[name].compute, VECTOR[name].reads, VECTOR[name].results[0])


TABLE: dict[str, Scalar] = {
    "s_movk_i32": Scalar(lambda a: a, "i16", "i32"),
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
    "s_bfe_i32": Scalar(_extract_signed, "u32", "i32", scc="nonzero"),
    "s_bfe_u64": Scalar(_extract, ("u64", "u32"), scc="nonzero"),
    "s_bfm_b64": Scalar(lambda n, at: ((U64(1) << n % U64(64)) - U64(1)) << at % U64(64), ("u64", "u64")),
    "s_bfm_b32": Scalar(lambda n, at: ((U32(1) << (n & U32(31))) - U32(1)) << (at & U32(31))),
    "s_bitset0_b32": Scalar(lambda old, n: old & ~(U32(1) << (n & U32(31))), accumulates=True),
    "s_bitset1_b32": Scalar(lambda old, n: old | (U32(1) << (n & U32(31))), accumulates=True),
    "s_bitcmp0_b32": Scalar(_bit(0), scc="only"),
    "s_bitcmp1_b32": Scalar(_bit(1), scc="only"),
    "s_brev_b32": Scalar(_reverse),
    "s_brev_b64": Scalar(_reverse64, "u64"),
    "s_ff1_i32_b32": Scalar(_first_bit_low),
    "s_ff1_i32_b64": Scalar(_first_bit_low64, "u64", "u32"),
    "s_ctz_i32_b32": Scalar(_first_bit_low),
    "s_ctz_i32_b64": Scalar(_first_bit_low64, "u64", "u32"),
    "s_flbit_i32_b32": Scalar(_first_bit_high),
    "s_flbit_i32_b64": Scalar(_first_bit_high64, "u64", "u32"),
    "s_clz_i32_u64": Scalar(_first_bit_high64, "u64", "u32"),
    "s_clz_i32_u32": Scalar(_first_bit_high),
    "s_bcnt1_i32_b32": Scalar(lambda a: np.bitwise_count(a).astype(U32), scc="nonzero"),
    "s_bcnt1_i32_b64": Scalar(lambda a: np.bitwise_count(a).astype(U32), "u64", "u32", scc="nonzero"),
    "s_pack_ll_b32_b16": Scalar(lambda a, b: (a & U32(0xFFFF)) | b << U32(16)),
    "s_pack_lh_b32_b16": Scalar(lambda a, b: (a & U32(0xFFFF)) | (b & U32(0xFFFF0000))),
    "s_pack_hl_b32_b16": Scalar(lambda a, b: a >> U32(16) | b << U32(16)),
    "s_pack_hh_b32_b16": Scalar(lambda a, b: a >> U32(16) | (b & U32(0xFFFF0000))),
    # single precision (gfx11.5, gfx12)
    "s_add_f32": Scalar(np.add, "f32"),
    "s_sub_f32": Scalar(np.subtract, "f32"),
    "s_mul_f32": Scalar(np.multiply, "f32"),
    "s_fmac_f32": Scalar(lambda c, a, b: fma32(a, b, c), "f32", accumulates=True),
    "s_fmaak_f32": Scalar(fma32, "f32"),
    "s_fmamk_f32": Scalar(fma32, "f32"),
    "s_max_num_f32": Scalar(larger, "f32"),
    "s_min_num_f32": Scalar(smaller, "f32"),
    "s_maximum_f32": Scalar(largest, "f32"),
    "s_minimum_f32": Scalar(smallest, "f32"),
    "s_trunc_f32": Scalar(np.trunc, "f32"),
    "s_floor_f32": Scalar(np.floor, "f32"),
    "s_ceil_f32": Scalar(np.ceil, "f32"),
    "s_rndne_f32": Scalar(np.rint, "f32"),
    "s_cvt_f32_i32": _of_vector("v_cvt_f32_i32"),
    "s_cvt_f32_u32": _of_vector("v_cvt_f32_u32"),
    "s_cvt_i32_f32": _of_vector("v_cvt_i32_f32"),
    "s_cvt_u32_f32": _of_vector("v_cvt_u32_f32"),
    "s_cvt_f32_f16": _of_vector("v_cvt_f32_f16"),
    "s_cvt_f16_f32": _of_vector("v_cvt_f16_f32"),
}

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
    for _name, _choose in (("max", np.maximum), ("min", np.minimum)):
        TABLE[f"s_{_name}_{_kind}"] = Scalar(lambda a, b, f=_choose: (f(a, b), f(a, b) == a), _kind, scc="second")
for _kind in ("i32", "u32", "u64", "i64", "f32", "f16"):
    for _name, _test in ((_FLOATS if _kind[0] == "f" else _INTEGERS) | {"lg": _INTEGERS["ne"]}).items():
        TABLE[f"s_cmp_{_name}_{_kind}"] = Scalar(_test, _kind, scc="only")
for _name in ("eq", "lg", "lt", "le", "gt", "ge"):
    _test = _INTEGERS["ne" if _name == "lg" else _name]
    TABLE[f"s_cmpk_{_name}_i32"] = Scalar(_test, ("i32", "i16"), scc="only")
    TABLE[f"s_cmpk_{_name}_u32"] = Scalar(_test, ("u32", "u16"), scc="only")

# s_and_saveexec: the old EXEC is kept, the new one is the source combined with it.
_SAVE_EXEC = {
    "and": lambda a, e: a & e,
    "or": lambda a, e: a | e,
    "xor": lambda a, e: a ^ e,
    "andn1": lambda a, e: ~a & e,
    "andn2": lambda a, e: a & ~e,
    "orn1": lambda a, e: ~a | e,
    "orn2": lambda a, e: a | ~e,
    "nand": lambda a, e: ~(a & e),
}


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one scalar instruction."""
    if "_saveexec_" in name:
        return _save_exec(name, instruction, target)
    if name not in TABLE:
        raise NotInTable(name)
    op = TABLE[name]
    operands = instruction.operands
    sources = operands if op.scc == "only" or op.accumulates else operands[1:]
    readers = [values.scalar_reader(o, kind) for o, kind in zip(sources, op.kinds(len(sources)), strict=True)]
    compute = _computation(op, readers)
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


def _computation(op: Scalar, readers: list[values.Reader]) -> values.Reader:
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


def _save_exec(name: str, instruction: Decoded, target: Target) -> Step:
    combine = _SAVE_EXEC[name.removeprefix("s_").partition("_saveexec")[0]]
    kind = "u64" if target.lanes == 64 else "u32"
    saved, source = instruction.operands
    read, old = values.scalar_reader(source, kind), values.scalar_reader(target.exec, kind)
    keep, change = writer(saved, kind, target), writer(target.exec, kind, target)

    def run(w):
        before = old(w).copy()
        after = combine(read(w), before)
        keep(w, before)
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
