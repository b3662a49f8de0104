"""Values between the lanes of a wave: through scalar registers, permutes, and the LDS's crossbar.

Names and semantics: MI300 ISA, sections 12.11 and 12.13 (ds_swizzle, ds_permute); permlane: RDNA 3 ISA and CDNA 4 ISA.
"""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import U32, U64
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.scalar import writer as scalar_writer


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one cross-lane instruction."""
    for prefix, builder in _BUILDERS.items():
        if name.startswith(prefix):
            return builder(instruction, target)
    raise NotInTable(name)


def _read_lane(instruction: Decoded, target: Target) -> Step:
    result, source, lane = instruction.operands
    write = scalar_writer(result, "u32", target)
    read, which = values.reader(source, "u32"), values.scalar_reader(lane, "u32")

    def run(w):
        value = w.full(read(w))
        write(w, value[np.arange(w.size), which(w) % w.lanes])

    return run


def _read_first_lane(instruction: Decoded, target: Target) -> Step:
    result, source = instruction.operands
    write, read = scalar_writer(result, "u32", target), values.reader(source, "u32")

    def run(w):
        value = w.full(read(w))
        first = 0 if w.mask is None else w.mask.argmax(axis=1)  # lane 0 when none is active, as in the hardware
        write(w, value[np.arange(w.size), first])

    return run


def _write_lane(instruction: Decoded, target: Target) -> Step:
    result, source, lane = instruction.operands
    read, which = values.scalar_reader(source, "u32"), values.scalar_reader(lane, "u32")
    i = result.index

    def run(w):  # whatever EXEC says
        waves = np.arange(w.size) if w.live is None else np.flatnonzero(w.live)
        value, place = np.broadcast_to(read(w), w.size), np.broadcast_to(which(w) % w.lanes, w.size)
        w.V[i][waves, place[waves]] = value[waves]

    return run


def _count_below(first_lane: int):
    """v_mbcnt: how many bits of the mask belong to lanes below this one, in one half of the wave."""

    def builder(instruction: Decoded, target: Target) -> Step:
        result, mask, addend = instruction.operands
        read, add = values.reader(mask, "u32"), values.reader(addend, "u32")
        write = values.writer(result, "u32")
        lane = np.clip(np.arange(target.lanes) - first_lane, 0, 32).astype(np.uint64)
        below = ((U64(1) << lane) - U64(1)).astype(U32)
        return lambda w: write(w, np.bitwise_count(read(w) & below).astype(U32) + add(w))

    return builder


def _swap(distance: int):
    """v_permlane16_swap, v_permlane32_swap: odd groups of the first register trade with even ones of the second."""

    def builder(instruction: Decoded, target: Target) -> Step:
        a, b = (operand.index for operand in instruction.operands[:2])
        even = np.flatnonzero((np.arange(target.lanes) & distance) == 0)
        odd = even + distance

        def run(w):
            kept = w.V[b][:, even].copy()
            moved = w.V[a][:, odd].copy()
            first, second = w.V[a].copy(), w.V[b].copy()
            first[:, odd], second[:, even] = kept, moved
            w.write(w.V[a], first)
            w.write(w.V[b], second)

        return run

    return builder


def _permute_across_rows(exchange: bool):
    """v_permlane16, v_permlanex16: 16 selectors of 4 bits pick lanes of the same (or the other) row of 16.

    op_sel holds two bits of DPP: whether lanes that are switched off are read too (fi), else whether they give 0
    (bound_ctrl) or leave the result as it was.
    """

    def builder(instruction: Decoded, target: Target) -> Step:
        result, source, low, high = instruction.operands
        read = values.reader(source, "u32")
        selectors = [values.scalar_reader(o, "u32") for o in (low, high)]
        write, old = values.writer(result, "u32"), values.reader(result, "u32")
        reads_all, zero = instruction.modifiers.get("op_sel", (0, 0))[:2]
        lane = np.arange(target.lanes)
        row = (lane & ~15) ^ (16 if exchange else 0)
        shift = (4 * (lane & 7)).astype(U32)
        upper = (lane & 8) != 0

        def run(w):
            first, second = (np.broadcast_to(one(w), w.size)[:, None] for one in selectors)
            place = (np.where(upper, second, first) >> shift) & U32(15)
            source = (row + place).astype(np.int64)
            write(w, _taken(w, read(w), source, reads_all, U32(0) if zero else old(w)))

        return run

    return builder


def _taken(w, value: np.ndarray, lanes: np.ndarray, reads_all: bool, otherwise: np.ndarray) -> np.ndarray:
    """What each lane takes from the lane that `lanes` names; `otherwise` where that one is off and may not be read."""
    taken = np.take_along_axis(w.full(value), lanes, axis=1)
    if w.mask is None or reads_all:
        return taken
    return np.where(np.take_along_axis(w.mask, lanes, axis=1), taken, otherwise)


def _permute_by_lane(exchange: bool):
    """v_permlane16_var, v_permlanex16_var: each lane's own register names the lane of the same (the other) row."""

    def builder(instruction: Decoded, target: Target) -> Step:
        result, source, selector = instruction.operands
        read, which = values.reader(source, "u32"), values.reader(selector, "u32")
        write, old = values.writer(result, "u32"), values.reader(result, "u32")
        reads_all, zero = instruction.modifiers.get("op_sel", (0, 0))[:2]
        lane = np.arange(target.lanes)
        row = (lane & ~15) ^ (16 if exchange else 0)

        def run(w):
            from_lane = row + w.full(which(w) & U32(15)).astype(np.int64)
            write(w, _taken(w, read(w), from_lane, reads_all, U32(0) if zero else old(w)))

        return run

    return builder


def _nothing(instruction: Decoded, target: Target) -> Step:
    """v_permlane64 exchanges the halves of a wave of 64, which RDNA's waves here are not."""
    return lambda w: None


def _named_lanes(address: Operand, instruction: Decoded) -> values.Reader:
    """The lane that each lane names, in bytes, int64 [wave, lane]."""
    where, offset = values.reader(address, "u32"), U32(instruction.modifiers.get("offset", 0))
    return lambda w: w.full(((where(w) + offset) >> U32(2)) % w.lanes).astype(np.int64)


def _backward_permute(instruction: Decoded, target: Target) -> Step:
    """ds_bpermute: each lane names, in bytes, the lane that it reads; ds_bpermute_fi: one that is switched off too."""
    invalid_too = "_fi_" in instruction.mnemonic
    result, address, data = instruction.operands
    lanes, read, write = _named_lanes(address, instruction), values.reader(data, "u32"), values.writer(result, "u32")

    def run(w):
        lane = lanes(w)
        value = w.full(read(w))
        taken = np.take_along_axis(value, lane, axis=1)
        if w.mask is not None and not invalid_too:  # a lane that is switched off gives 0
            taken = np.where(np.take_along_axis(w.mask, lane, axis=1), taken, U32(0))
        write(w, taken)

    return run


def _forward_permute(instruction: Decoded, target: Target) -> Step:
    """ds_permute: each lane names, in bytes, the lane that it writes; the highest lane wins."""
    result, address, data = instruction.operands
    lanes, read, write = _named_lanes(address, instruction), values.reader(data, "u32"), values.writer(result, "u32")

    def run(w):
        lane = lanes(w)
        value = w.full(read(w))
        result_value = np.zeros((w.size, w.lanes), U32)
        active = np.ones((w.size, w.lanes), bool) if w.mask is None else w.mask
        wave, place = np.nonzero(active)
        result_value[wave, lane[wave, place]] = value[wave, place]
        write(w, result_value)

    return run


_NAMED_SWIZZLE = re.compile(r"swizzle\((\w+),?(.*)\)")


def _swizzle(instruction: Decoded, target: Target) -> Step:
    result, data = instruction.operands
    read, write = values.reader(data, "u32"), values.writer(result, "u32")
    source = _swizzle_lanes(instruction, np.arange(target.lanes))

    def run(w):
        value = w.full(read(w))[:, source]
        if w.mask is not None:
            value = np.where(w.mask[:, source], value, U32(0))
        write(w, value)

    return run


def _swizzle_lanes(instruction: Decoded, lane: np.ndarray) -> np.ndarray:
    pattern = instruction.modifiers.get("offset", 0)
    if isinstance(pattern, int):
        if pattern & 0x8000:  # four lanes among themselves
            return (lane & ~3) | ((pattern >> (2 * (lane & 3))) & 3)
        keep, set_, flip = pattern & 31, (pattern >> 5) & 31, (pattern >> 10) & 31
        return (lane & ~31) | ((((lane & 31) & keep) | set_) ^ flip)
    name, rest = _NAMED_SWIZZLE.fullmatch(pattern).groups()
    numbers = [int(n, 0) for n in rest.split(",") if n.strip().lstrip("-").isdigit()]
    match name:
        case "SWAP":
            return lane ^ numbers[0]
        case "REVERSE":
            return (lane & ~(numbers[0] - 1)) | (numbers[0] - 1 - (lane & (numbers[0] - 1)))
        case "BROADCAST":
            return (lane & ~(numbers[0] - 1)) | numbers[1]
        case "QUAD_PERM":
            return (lane & ~3) | np.array(numbers)[lane & 3]
        case "BITMASK_PERM":
            return _bitmask(rest.strip().strip('"'), lane)
    raise NotInTable(instruction.text)


def _bitmask(letters: str, lane: np.ndarray) -> np.ndarray:
    """Five letters, highest bit first: 0 and 1 set the bit, p keeps it, i inverts it."""
    result = lane & ~31
    for place, letter in zip((4, 3, 2, 1, 0), letters):
        bit = (lane >> place) & 1
        result = result | ({"0": bit * 0, "1": bit * 0 + 1, "p": bit, "i": 1 - bit}[letter] << place)
    return result


_BUILDERS = {
    "v_readlane_b32": _read_lane,
    "v_readfirstlane_b32": _read_first_lane,
    "v_writelane_b32": _write_lane,
    "v_mbcnt_lo_u32_b32": _count_below(0),
    "v_mbcnt_hi_u32_b32": _count_below(32),
    "v_permlane32_swap_b32": _swap(32),
    "v_permlane16_swap_b32": _swap(16),
    "v_permlane16_var_b32": _permute_by_lane(False),
    "v_permlanex16_var_b32": _permute_by_lane(True),
    "v_permlane64_b32": _nothing,
    "v_permlane16_b32": _permute_across_rows(False),
    "v_permlanex16_b32": _permute_across_rows(True),
    "ds_bpermute_b32": _backward_permute,
    "ds_bpermute_fi_b32": _backward_permute,
    "ds_permute_b32": _forward_permute,
    "ds_swizzle_b32": _swizzle,
}
