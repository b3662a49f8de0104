"""From instructions to micro-operations: those whose operands are plain enough; the others stay steps of Python.

What an operation computes is decided by its entry in the tables of `instructions`, which also says of what type its
operands are; here these become words of 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gfxlab.simulator.compiled.extension import EXTENSION
from gfxlab.simulator.compiled.micro import (
    CONSTANT,
    LANE_MASK,
    LANEWISE,
    LOCAL_LOAD,
    LOCAL_STORE,
    MATRIX,
    PERMUTE,
    READ_LANE,
    SCALAR,
    SCALAR_UNIT,
    TEMPORARY,
    VECTOR,
    Micro,
    Result,
    Source,
)
from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F32
from gfxlab.simulator.core.operands import EXEC, NULL, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import dual, lane_selection, packed, scalar, vector
from gfxlab.simulator.instructions.common import Op, Step, Target
from gfxlab.simulator.instructions.local_data import LocalAccess
from gfxlab.simulator.instructions.multiplication import NO_SIGNS, Multiplication
from gfxlab.simulator.instructions.registry import Unknown, plain_name

_LANEWISE = {name: number for number, name in enumerate(EXTENSION.OPERATIONS)} if EXTENSION else {}
_SCALAR = {name: number for number, name in enumerate(EXTENSION.SCALAR_OPERATIONS)} if EXTENSION else {}
_HALVES = {number for name, number in _LANEWISE.items() if vector.TABLE[name].results[0] in ("f16", "2f16")}
_SAME_AS = {  # of the scalar unit: differ in what their operands are only
    "s_movk_i32": "s_mov_b32",
    "s_addk_i32": "s_add_i32",
    "s_mulk_i32": "s_mul_i32",
    "s_add_nc_u64": "s_add_u64",
    "s_sub_nc_u64": "s_sub_u64",
    **{f"s_cmpk_{test}_i32": f"s_cmp_{test}_i32" for test in ("eq", "lg", "lt", "le", "gt", "ge")},
    **{f"s_cmpk_{test}_u32": f"s_cmp_{test}_u32" for test in ("eq", "lg", "lt", "le", "gt", "ge")},
}
_SELECTIONS = {"op_sel", "src0_sel", "src1_sel", "dst_sel", "dst_unused"}
_DPP = {
    *("quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_bcast", "row_newbcast"),
    *("row_share", "row_xmask", "wave_shl", "wave_shr", "wave_rol", "wave_ror", "dpp8"),
    *("row_mask", "bank_mask", "bound_ctrl", "fi"),
}
_PACKED = {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"}
_EXISTS, _NAMED, _READS_ALL, _WRITES_ALL = 0x100, 0x200, 0x400, 0x800
_MOST_LANES = 64


class NotPlain(Exception):
    """This instruction has no micro-operations."""


class Translator:
    """Makes micro-operations of the instructions of one program; `tables` collects which lanes they take."""

    def __init__(self, target: Target):
        self._target = target
        self._tables: dict[bytes, int] = {}

    @property
    def tables(self) -> bytes:
        return b"".join(self._tables)

    def micros(self, instruction: Decoded, step: Step) -> list[Micro] | None:
        """Those of an instruction, which `step` does otherwise; None: there are none."""
        try:
            return list(self._micros(instruction, step))
        except NotPlain:
            return None

    def _micros(self, instruction: Decoded, step: Step) -> Iterable[Micro]:
        name = plain_name(instruction.mnemonic)
        if isinstance(step, Unknown):
            raise NotPlain
        if isinstance(step, Multiplication):
            return [_matrix(step)]
        if isinstance(step, LocalAccess):
            return [_local(step)]
        if name.startswith("v_dual_"):
            return self._dual(instruction)
        if name.startswith(("v_readfirstlane_", "v_readlane_")):
            return [_read_lane(name, instruction)]
        if name == "ds_bpermute_b32":
            return [_permute(instruction)]
        if name == "v_pk_mov_b32":
            return _in_turn(*self._move_of_pairs(instruction))
        if name.startswith("v_pk_"):
            return self._packed(name, instruction)
        if name.startswith("v_fma_mix"):
            return _mixed(name, instruction)
        if name in vector.TABLE:
            return [self._lanewise(name, vector.TABLE[name], instruction)]
        if name in scalar.TABLE:
            return [_scalar(name, instruction)]
        raise NotPlain

    # ---- lane by lane ------------------------------------------------------------------------------------------------

    def _lanewise(self, name: str, op: Op, instruction: Decoded) -> Micro:
        if name not in _LANEWISE or instruction.modifiers.keys() - _SELECTIONS - _DPP:
            raise NotPlain
        count = len(op.results)
        results, sources = instruction.operands[:count], list(instruction.operands[count:])
        if op.accumulates:
            sources.append(instruction.operands[0])
        if op.reads_vcc:
            sources.append(self._target.vcc)
        kinds = op.kinds(len(sources))
        if len(kinds) != len(sources):
            raise NotPlain
        read = [self._source(*each, instruction) for each in zip(sources, kinds, range(len(sources)))]
        written = [self._result(*each, len(sources), instruction) for each in zip(results, op.results)]
        return Micro(LANEWISE, _LANEWISE[name], tuple(sum(read, [])), tuple(sum(written, [])))

    def _source(self, operand: Operand, kind: str, place: int, instruction: Decoded) -> list[Source]:
        select, high = lane_selection.part_of_source(kind, place, instruction)
        dpp = place == 0 and lane_selection.is_dpp(instruction)
        table = self._table(instruction) if dpp else -1
        return [replace(one, lanes=table) for one in source(operand, kind, high, select)]

    def _table(self, instruction: Decoded) -> int:
        """The number of the table that says which lane each lane reads, and which of them are written."""
        lane, exists = lane_selection.lanes_read(instruction, self._target)
        table = np.zeros(_MOST_LANES, np.uint32)
        entries = lane | exists * _EXISTS | lane_selection.lanes_named(instruction, self._target) * _NAMED
        entries |= _READS_ALL if "fi" in instruction.modifiers else 0
        entries |= _WRITES_ALL if "bound_ctrl" in instruction.modifiers else 0
        table[: len(lane)] = entries
        return self._tables.setdefault(table.tobytes(), len(self._tables))

    def _result(self, operand: Operand, kind: str, sources: int, instruction: Decoded) -> list[Result]:
        everywhere = lane_selection.writes_all_lanes(instruction, self._target)
        if kind == "mask":
            if not operand.is_scalar or operand.index >= EXEC or not everywhere:
                raise NotPlain
            return [Result(LANE_MASK, operand.index)]
        if not operand.is_vector:
            raise NotPlain
        table = -1 if everywhere else self._table(instruction)
        if kind in values.WIDE:
            return [Result(VECTOR, operand.index + half, lanes=table) for half in (0, 1)]
        part, keep = lane_selection.part_of_result(kind, instruction)
        if part:
            shift, bits = part
            kept = ~(bits << shift) & 0xFFFFFFFF if keep else 0
            return [Result(VECTOR, operand.index, shift, bits, kept, table)]
        if kind not in values.NARROW:
            return [Result(VECTOR, operand.index, lanes=table)]
        high = lane_selection.goes_high(sources, instruction)
        clear = self._target.cdna and "op_sel" not in instruction.modifiers
        return [replace(half_of(operand, high, clear), lanes=table)]

    def _dual(self, instruction: Decoded) -> list[Micro]:
        halves = []
        for one in (instruction, instruction.second):
            name, op = dual.operation(one)
            halves.append(self._lanewise(name, op, one))
        return _in_turn(*halves)

    # ---- two at once -------------------------------------------------------------------------------------------------

    def _packed(self, full_name: str, instruction: Decoded) -> list[Micro]:
        operation, kind = packed.parts_of(full_name)
        name = f"v_{operation}_{kind}"
        if name not in _LANEWISE or instruction.modifiers.keys() - _PACKED:
            raise NotPlain
        op = vector.TABLE[name]
        kind = "u16" if kind == "b16" else kind
        result, *sources = instruction.operands
        if op.accumulates:
            sources = [*sources, result]
        halves = []
        for place, (chosen, signs) in enumerate(packed.selections(instruction, len(sources))):
            read = [_part(*each, kind) for each in zip(sources, chosen, signs)]
            halves.append(Micro(LANEWISE, _LANEWISE[name], tuple(read), (Result(VECTOR, result.index + place),)))
        if kind == "f32":
            return _in_turn(*halves)
        together = Micro(
            LANEWISE,
            _LANEWISE["v_pack_b32_f16"],
            tuple(Source(TEMPORARY, place, mask=0xFFFF) for place in (0, 1)),
            (Result(VECTOR, result.index),),
        )
        return [*(half.into(Result(TEMPORARY, place)) for place, half in enumerate(halves)), together]

    def _move_of_pairs(self, instruction: Decoded) -> list[Micro]:
        if instruction.modifiers.keys() - {"op_sel", "op_sel_hi"}:
            raise NotPlain
        result, *sources = instruction.operands
        chosen = instruction.modifiers.get("op_sel", (0, 0))
        return [
            Micro(
                LANEWISE,
                _LANEWISE["v_mov_b32"],
                tuple(source(packed.register(one, half), "u32")),
                (Result(VECTOR, result.index + place),),
            )
            for place, (one, half) in enumerate(zip(sources, chosen))
        ]


def overflows(micro: Micro) -> bool:
    """Whether MODE.FP16_OVFL changes what it gives."""
    return micro.kind == LANEWISE and micro.number in _HALVES


def _in_turn(first: Micro, second: Micro) -> list[Micro]:
    """Two that are issued as one: both read before either writes."""
    written = {one.index for one in first.results if one.space == VECTOR}
    if not any(second.reads(register) for register in written):
        return [first, second]
    if len(first.results) != 1:
        raise NotPlain
    move = Micro(LANEWISE, _LANEWISE["v_mov_b32"], (Source(TEMPORARY, 0),), first.results)
    if first.results[0] != Result(VECTOR, first.results[0].index):
        raise NotPlain
    return [first.into(Result(TEMPORARY, 0)), second, move]


# ---- operands --------------------------------------------------------------------------------------------------------


def source(operand: Operand, kind: str, high: bool = False, select: tuple[int, int] | None = None) -> list[Source]:
    """An operand as words: one, or two of a type of 64 bits. high, select: as in `values.reader`."""
    if kind == "mask":
        if not operand.is_scalar:
            raise NotPlain
        return [Source(LANE_MASK, operand.index)]
    if operand.is_constant:
        return _constant(values.reader(operand, kind, high=high, select=select)(None), kind)
    if not (operand.is_vector or operand.is_scalar):
        raise NotPlain
    if operand.is_scalar and operand.index == NULL:
        return [Source(CONSTANT, 0)] * (2 if kind in values.WIDE else 1)
    space = VECTOR if operand.is_vector else SCALAR
    if kind in values.WIDE:
        if operand.negate or operand.absolute or select:
            raise NotPlain
        one = operand.is_scalar and operand.count == 1
        return [Source(space, operand.index), Source(CONSTANT, 0) if one else Source(space, operand.index + 1)]
    if (operand.negate or operand.absolute) and kind in ("i32", "i16"):
        raise NotPlain
    narrow = kind in values.NARROW
    sign = 0x8000 if narrow else 0x80000000
    signs = {
        "keep": (0xFFFF if narrow else 0xFFFFFFFF) & ~(sign if operand.absolute else 0),
        "flip": sign if operand.negate else 0,
    }
    if select:
        shift, bits = select
        return [Source(space, operand.index, shift, bits, bits + 1 >> 1 if operand.sign_extend else 0, **signs)]
    return [Source(space, operand.index, 16 if narrow and (high or operand.half) else 0, **signs)]


def _constant(value: np.ndarray, kind: str) -> list[Source]:
    value = np.asarray(value)
    bits = int(value.view(np.dtype(f"u{value.itemsize}")))
    words = [bits & 0xFFFFFFFF, bits >> 32] if kind in values.WIDE else [bits]
    return [Source(CONSTANT, word) for word in words]


def half_of(operand: Operand, high: bool, clear: bool) -> Result:
    """A result of 16 bits, as `values.writer` puts it into a register."""
    if high or operand.half:
        return Result(VECTOR, operand.index, 16, 0xFFFF, 0xFFFF)
    return Result(VECTOR, operand.index, 0, 0xFFFF, 0 if clear and operand.half is None else 0xFFFF0000)


def _part(operand: Operand, half: int, negate: int, kind: str) -> Source:
    """A source of one half of a packed instruction."""
    if kind == "f32":
        (one,) = source(packed.register(operand, half), kind)
    elif operand.is_constant:
        (one,) = _constant(values.packed_reader(operand, kind, half)(None), kind)
    else:
        (one,) = source(operand, kind, high=bool(half))
    if not negate:
        return one
    if kind not in ("f16", "f32"):
        raise NotPlain
    return replace(one, flip=one.flip ^ (0x8000 if kind == "f16" else 0x80000000))


def _mixed(name: str, instruction: Decoded) -> Sequence[Micro]:
    """v_fma_mix: sources that are float16 are converted before."""
    if instruction.modifiers.keys() - {"op_sel", "op_sel_hi"}:
        raise NotPlain
    result, *operands = instruction.operands
    high = instruction.modifiers.get("op_sel", [0] * 3)
    is_half = instruction.modifiers.get("op_sel_hi", [0] * 3)
    micros, sources = [], []
    for place, operand in enumerate(operands):
        if not is_half[place]:
            sources += source(operand, "f32")
            continue
        read = tuple(source(operand, "f16", high=bool(high[place])))
        micros.append(Micro(LANEWISE, _LANEWISE["v_cvt_f32_f16"], read, (Result(TEMPORARY, place),)))
        sources.append(Source(TEMPORARY, place))
    fma = Micro(LANEWISE, _LANEWISE["v_fma_f32"], tuple(sources), (Result(VECTOR, result.index),))
    if name.endswith("f32"):
        return [*micros, fma]
    narrow = Micro(
        LANEWISE,
        _LANEWISE["v_cvt_f16_f32"],
        (Source(TEMPORARY, 3),),
        (half_of(result, "mixhi" in name, clear=False),),
    )
    return [*micros, fma.into(Result(TEMPORARY, 3)), narrow]


# ---- one value a wave ------------------------------------------------------------------------------------------------


def _scalar(name: str, instruction: Decoded) -> Micro:
    op, same = scalar.TABLE[name], _SAME_AS.get(name, name)
    if same not in _SCALAR or instruction.modifiers:
        raise NotPlain
    operands = instruction.operands
    sources = operands if op.scc == "only" or op.accumulates else operands[1:]
    kinds = op.kinds(len(sources))
    if len(kinds) != len(sources):
        raise NotPlain
    read = tuple(_scalar_source(*each) for each in zip(sources, kinds))
    written = () if op.scc == "only" else _scalar_results(operands[0], op.result)
    return Micro(SCALAR_UNIT, _SCALAR[same], read, written)


def _scalar_source(operand: Operand, kind: str) -> Source:
    if operand.is_constant:
        bits = int(values.scalar_reader(operand, kind)(None)) & (
            0xFFFFFFFFFFFFFFFF if kind in values.WIDE else 0xFFFFFFFF
        )
        return Source(CONSTANT, bits & 0xFFFFFFFF, flip=bits >> 32)
    if not operand.is_scalar or kind in values.NARROW or operand.negate or operand.absolute:
        raise NotPlain
    if operand.index == NULL:
        return Source(CONSTANT, 0)
    return Source(SCALAR, operand.index, lanes=int(kind in values.WIDE and operand.count == 2))


def _scalar_results(operand: Operand, kind: str) -> tuple[Result, ...]:
    if operand.index == NULL:
        return ()
    wide = kind in values.WIDE
    if not operand.is_scalar or operand.index >= EXEC or wide and operand.count != 2:
        raise NotPlain
    return (Result(SCALAR, operand.index),) * (2 if wide else 1)


def _read_lane(name: str, instruction: Decoded) -> Micro:
    result, operand, *lane = instruction.operands
    if instruction.modifiers or not result.is_scalar or result.index >= NULL or not operand.is_vector:
        raise NotPlain
    if lane and not lane[0].is_constant:
        raise NotPlain
    number = int(lane[0].value) if lane else -1
    if not -1 <= number < 32:
        raise NotPlain
    return Micro(READ_LANE, 0, tuple(source(operand, "u32")), (Result(SCALAR, result.index),), (number,))


def _permute(instruction: Decoded) -> Micro:
    result, address, data = instruction.operands
    if instruction.modifiers.keys() - {"offset"}:
        raise NotPlain
    read = (*source(address, "u32"), *source(data, "u32"))
    return Micro(PERMUTE, 0, read, (Result(VECTOR, result.index),), (instruction.modifiers.get("offset", 0),))


# ---- matrix products -------------------------------------------------------------------------------------------------

_LAYOUTS = {"mfma": 0, "gfx11": 1, "gfx12": 2}
_KINDS = {"f32": 0, "f16": 1, "bf16": 2}


def _matrix(step: Multiplication) -> Micro:
    shape = step.shape
    if shape is None or step.kind is not F32 or step.flushes or step.clamp or step.signs != NO_SIGNS:
        raise NotPlain
    if not set(shape.kinds) <= _KINDS.keys() or (shape.kinds[0] == "f32") != (shape.kinds[1] == "f32"):
        raise NotPlain
    pieces = {"mfma": 64 // shape.m, "gfx11": 1, "gfx12": 2}[shape.layout]
    registers = shape.k // pieces // (1 if shape.kinds[0] == "f32" else 2)
    if step.c.is_vector:
        if step.c.index != step.result.index and abs(step.c.index - step.result.index) < step.registers:
            raise NotPlain
        addend = Source(VECTOR, step.c.index)
    elif step.c.is_constant:
        addend = Source(CONSTANT, int(F32(step.c.value).view(np.uint32)))
    else:
        raise NotPlain
    extra = _LAYOUTS[shape.layout], shape.m, shape.k, *(_KINDS[kind] for kind in shape.kinds), registers, pieces
    tiles = (Source(VECTOR, one.operand.index) for one in (step.a, step.b))
    return Micro(MATRIX, 0, (*tiles, addend), (Result(VECTOR, step.result.index),), extra)


# ---- LDS -------------------------------------------------------------------------------------------------------------


def _local(step: LocalAccess) -> Micro:
    """Its number is the instruction's: what is known of an access is known by that."""
    if step.where.half or step.where.negate or step.where.absolute:
        raise NotPlain
    places = sum(((offset, register) for offset, register in zip(step.offsets, step.registers)), ())
    last = Source(VECTOR, max(step.registers) + max(1, step.width // 4) - 1)
    extra = step.width, int(step.signed), len(step.offsets), *places
    kind = LOCAL_STORE if step.writes else LOCAL_LOAD
    return Micro(kind, step.instruction.index, (Source(VECTOR, step.where.index), last), (), extra)
