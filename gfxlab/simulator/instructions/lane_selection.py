"""Sources taken from another lane (DPP) or from part of a register (SDWA, op_sel), and results put into a part.

DPP, SDWA: MI300 ISA, sections 6.5 and 12; `row_xmask` and `dpp8`: RDNA 3 ISA, section 7.
"""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import U32
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Target

_PARTS = {  # SDWA: shift and mask
    "BYTE_0": (0, 0xFF),
    "BYTE_1": (8, 0xFF),
    "BYTE_2": (16, 0xFF),
    "BYTE_3": (24, 0xFF),
    "WORD_0": (0, 0xFFFF),
    "WORD_1": (16, 0xFFFF),
}


def source(operand: Operand, kind: str, place: int, instruction: Decoded, target: Target) -> values.Reader:
    """Reader of the source number `place`, with what the instruction's modifiers say about it."""
    select, high = part_of_source(kind, place, instruction)
    lanes = _from_lanes(instruction, target) if place == 0 and is_dpp(instruction) else None
    read = values.reader(operand, kind, high=high, select=select, lanes=lanes)
    return _of_dot(read, kind, place, instruction) if instruction.mnemonic.startswith("v_dot2") else read


def part_of_source(kind: str, place: int, instruction: Decoded) -> tuple[tuple[int, int] | None, bool]:
    """Of the source number `place`: shift and mask of the part that is read (SDWA), whether it is the high half."""
    modifiers = instruction.modifiers
    select = _PARTS.get(modifiers.get(f"src{place}_sel")) if kind != "mask" else None
    high = bool(modifiers.get("op_sel", (0,) * 4)[place]) if place < 3 and "op_sel" in modifiers else False
    return select, high


def _of_dot(read: values.Reader, kind: str, place: int, instruction: Decoded) -> values.Reader:
    """A source of a product of pairs: which half of the register is the first number, which the second; their signs."""
    modifiers = instruction.modifiers
    chosen = modifiers.get("op_sel", (0, 0, 0))[place], modifiers.get("op_sel_hi", (1, 1, 1))[place]
    signs = modifiers.get("neg_lo", (0, 0, 0))[place], modifiers.get("neg_hi", (0, 0, 0))[place]
    if kind == "f32":
        return (lambda w: -read(w)) if signs[0] else read
    flips = U32((signs[0] << 15 | signs[1] << 31) if "f" in kind else 0)
    if kind[0] != "2" or chosen == (0, 1) and not flips:
        return read
    low, high = (U32(16 * half) for half in chosen)
    return lambda w: ((read(w) >> low & U32(0xFFFF)) | (read(w) >> high & U32(0xFFFF)) << U32(16)) ^ flips


def destination(operand: Operand, kind: str, sources: int, instruction: Decoded, target: Target) -> values.Writer:
    """Writer of a result; `sources` is how many operands the op_sel modifier names before it."""
    part, keep = part_of_result(kind, instruction)
    if part:
        return _into_part(operand, kind, part, keep)
    op_sel = instruction.modifiers.get("op_sel", ())
    return values.writer(operand, kind, high=goes_high(sources, instruction), clear=target.cdna and not op_sel)


def part_of_result(kind: str, instruction: Decoded) -> tuple[tuple[int, int] | None, bool]:
    """Shift and mask of the part of the register that a result is put into (SDWA), and whether the rest stays."""
    modifiers = instruction.modifiers
    part = _PARTS.get(modifiers.get("dst_sel")) if kind != "mask" else None
    return part, modifiers.get("dst_unused") == "UNUSED_PRESERVE"


def goes_high(sources: int, instruction: Decoded) -> bool:
    """Whether op_sel puts a result of 16 bits into the high half; it names so many sources before."""
    op_sel = instruction.modifiers.get("op_sel", ())
    return len(op_sel) == 4 and bool(op_sel[3]) or len(op_sel) == sources + 1 and bool(op_sel[-1])


def _into_part(operand: Operand, kind: str, part: tuple[int, int], keep: bool) -> values.Writer:
    shift, bits = part
    others = U32(~(bits << shift) & 0xFFFFFFFF)
    i = operand.index

    def write(w, value):
        value = np.asarray(value)
        word = value.view(np.dtype(f"u{value.dtype.itemsize}")).astype(U32)
        word = (word & U32(bits)) << U32(shift)
        w.write(w.V[i], (w.V[i] & others) | word if keep else word)

    return write


# ---- data-parallel primitives ----------------------------------------------------------------------------------------


_CONTROLS = re.compile(
    r"quad_perm|row_(shl|shr|ror|mirror|half_mirror|bcast|newbcast|share|xmask)|wave_(shl|shr|rol|ror)|dpp8"
)


def is_dpp(instruction: Decoded) -> bool:
    """Its first source comes from other lanes. Comparisons do not say so in their name."""
    return _control(instruction) is not None


def _control(instruction: Decoded) -> str | None:
    return next(filter(_CONTROLS.fullmatch, instruction.modifiers), None)


def _lanes(target: Target) -> np.ndarray:
    return np.arange(target.lanes)


def lanes_read(instruction: Decoded, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Under DPP, for each lane the lane it reads from, and whether there is one (else that number means nothing)."""
    lane, exists = _sources(instruction, target)
    return np.clip(lane, 0, target.lanes - 1), exists


def _sources(instruction: Decoded, target: Target) -> tuple[np.ndarray, np.ndarray]:
    lane = _lanes(target)
    row, place = lane & ~15, lane & 15
    everywhere = np.ones(target.lanes, bool)
    name = _control(instruction)
    value = instruction.modifiers[name] if name else None
    match name:
        case "quad_perm":
            return (lane & ~3) | np.array(value)[lane & 3], everywhere
        case "row_shl":
            return lane + value, place + value < 16
        case "row_shr":
            return lane - value, place - value >= 0
        case "row_ror":
            return row | ((place - value) & 15), everywhere
        case "row_mirror":
            return row | (15 - place), everywhere
        case "row_half_mirror":
            return (lane & ~7) | (7 - (lane & 7)), everywhere
        case "row_bcast" if value == 15:
            return row - 1, lane > 15
        case "row_bcast":
            return np.full(target.lanes, 31), lane > 31
        case "row_newbcast" | "row_share":
            return row | value, everywhere
        case "row_xmask":
            return lane ^ value, everywhere
        case "wave_shl":
            return lane + 1, lane < target.lanes - 1
        case "wave_shr":
            return lane - 1, lane > 0
        case "wave_rol":
            return (lane + 1) % target.lanes, everywhere
        case "wave_ror":
            return (lane - 1) % target.lanes, everywhere
        case "dpp8":
            return (lane & ~7) | np.array(value)[lane & 7], everywhere
    raise NotInTable(f"the lane selection of {instruction.text}")


def _reached(w, all_are_read: bool, lane: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Whether each lane's source exists and is switched on, unless those that are off are read too (`fi`)."""
    if w.mask is None or all_are_read:
        return exists
    return exists & w.mask[:, lane]


def _from_lanes(instruction: Decoded, target: Target) -> values.Lanes:
    lane, exists = lanes_read(instruction, target)
    all_are_read = "fi" in instruction.modifiers

    def permuted(w, read):
        value = w.full(read(w))
        reached = _reached(w, all_are_read, lane, exists)
        return np.where(reached, value[:, lane], value.dtype.type(0))

    return lambda read: lambda w: permuted(w, read)


def only_reached_lanes(write: values.Writer, instruction: Decoded, target: Target) -> values.Writer:
    """Under DPP, write only the rows and banks named, and (without bound_ctrl) only lanes whose source exists.

    dpp8 has no such modifiers: all lanes are written, with 0 where the source is switched off.
    """
    if writes_all_lanes(instruction, target):
        return write
    named, (source_lane, exists) = lanes_named(instruction, target), lanes_read(instruction, target)
    bound, all_are_read = "bound_ctrl" in instruction.modifiers, "fi" in instruction.modifiers

    def run(w, value):
        written = named if bound else named & _reached(w, all_are_read, source_lane, exists)
        saved = w.mask
        active = w.full(written)
        w.mask = active if saved is None else saved & active
        write(w, value)
        w.mask = saved

    return run


def lanes_named(instruction: Decoded, target: Target) -> np.ndarray:
    """Under DPP, the lanes of the rows and banks that are written: bool [lane]."""
    modifiers, lane = instruction.modifiers, _lanes(target)
    rows, banks = modifiers.get("row_mask", 15), modifiers.get("bank_mask", 15)
    return ((rows >> (lane >> 4)) & 1 & (banks >> ((lane & 15) >> 2)) & 1).astype(bool)


def writes_all_lanes(instruction: Decoded, target: Target) -> bool:
    """Whether a result goes to every lane that is on, as it does without DPP."""
    if not is_dpp(instruction) or "dpp8" in instruction.modifiers:
        return True
    return "bound_ctrl" in instruction.modifiers and bool(lanes_named(instruction, target).all())
