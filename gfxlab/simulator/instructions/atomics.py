"""Read-modify-write of global memory and LDS. Lanes take turns, so that several may meet at one address.

Names and semantics: MI300 ISA, sections 12.13 and 12.15.
"""

from __future__ import annotations

import re

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F32, I32, I64, U32, U64, from_bf16, larger, round_to_bf16, smaller
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import global_memory
from gfxlab.simulator.instructions.common import NotInTable, Step, Target


def _of(kind, compute):
    """Both words seen as another type of the same size."""
    return lambda old, new: np.asarray(compute(old.view(kind), new.view(kind))).view(old.dtype)


def _signed(compute, old, new):
    return _of(I32 if old.dtype == U32 else I64, compute)(old, new)


def _pairs(add):
    """Two 16-bit numbers in a word."""

    def compute(old, new):
        low, high = (add(old >> U32(s) & U32(0xFFFF), new >> U32(s) & U32(0xFFFF)) for s in (0, 16))
        return low | high << U32(16)

    return compute


def _add_half(a, b):
    total = a.astype(np.uint16).view(np.float16) + b.astype(np.uint16).view(np.float16)
    return total.view(np.uint16).astype(U32)


def _add_bf16(a, b):
    return round_to_bf16(from_bf16(a.astype(np.uint16)) + from_bf16(b.astype(np.uint16))).astype(U32)


_CHANGES = {
    "add": np.add,
    "add_u32": np.add,
    "sub": np.subtract,
    "sub_u32": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "swap": lambda old, new: new,
    "umax": np.maximum,
    "umin": np.minimum,
    "max": np.maximum,  # what is left of max_u32 and max_u64
    "min": np.minimum,
    "max_u32": np.maximum,
    "min_u32": np.minimum,
    "smax": lambda old, new: _signed(np.maximum, old, new),
    "smin": lambda old, new: _signed(np.minimum, old, new),
    "max_i32": _of(I32, np.maximum),
    "min_i32": _of(I32, np.minimum),
    "max_i64": _of(I64, np.maximum),
    "min_i64": _of(I64, np.minimum),
    "add_f32": _of(F32, np.add),
    "max_f32": _of(F32, larger),
    "min_f32": _of(F32, smaller),
    "max_num_f32": _of(F32, larger),
    "min_num_f32": _of(F32, smaller),
    "pk_add_f16": _pairs(_add_half),
    "pk_add_bf16": _pairs(_add_bf16),
}
_WIDE = {"add", "sub", "and", "or", "xor", "swap", "umax", "umin", "max", "min", "smax", "smin", "max_i64", "min_i64"}


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one atomic instruction."""
    if name.startswith("ds_"):
        return _local(name, instruction)
    space, kind, bits, x2 = re.match(r"(global|buffer|flat)_atomic_(\w+?)(?:_(?:b|u)(32|64))?(_x2)?$", name).groups()
    wide = bool(x2) or bits == "64" or kind.endswith("_i64")
    kind, compare = _kind(kind, wide)
    modifiers = instruction.modifiers
    returns = "sc0" in modifiers or "glc" in modifiers or str(modifiers.get("th")).endswith("_RETURN")
    operands = instruction.operands
    if space == "buffer":
        address, data, result = global_memory.buffer_address(instruction), operands[0], operands[0]
    else:
        first = 1 if returns else 0
        address, data, result = global_memory.flat_address(instruction, first), operands[first + 1], operands[0]
    words = 2 if wide else 1

    def run(w):
        where, inside = address(w)
        active = _active_lanes(w, inside)
        _announce(w, instruction, where, active, 4 * words)
        read = lambda at, lane: global_memory.read(w, instruction, at, lane, 4 * words, ())  # noqa: E731
        write = lambda at, lane, new: global_memory.write(w, instruction, at, lane, new, 4 * words, ())  # noqa: E731
        old = _take_turns(w, w.full(where), active, data.index, words, kind, compare, read, write)
        if returns:
            for place in range(words):
                w.write(w.V[result.index + place], old[place])

    return run


def _announce(w, instruction: Decoded, address, active, width: int) -> None:
    """Tell the watchers once, however many turns the lanes take."""
    if w.watchers and active.any():
        for region, offset, lanes in global_memory.pieces(w, instruction, "update", w.full(address), active, width):
            for watcher in w.watchers:
                watcher.atomic(w, instruction, region, offset, lanes, width)


def _kind(kind: str, wide: bool):
    """The change and False, or None and True for compare-and-swap."""
    if kind == "cmpswap":
        return None, True
    if kind not in _CHANGES or wide and kind not in _WIDE:
        raise NotInTable(kind)
    return _CHANGES[kind], False


def _active_lanes(w, inside) -> np.ndarray:
    active = np.ones((w.size, w.lanes), bool) if w.mask is None else w.mask
    return active if inside is None else active & inside


def _joined(words: list[np.ndarray]) -> np.ndarray:
    return words[0] if len(words) == 1 else words[0].astype(U64) | words[1].astype(U64) << U64(32)


def _parted(value: np.ndarray, words: int) -> list[np.ndarray]:
    return [value] if words == 1 else [value.astype(U32), (value >> U64(32)).astype(U32)]


def _take_turns(w, address, active, data: int, words: int, change, compare: bool, read, write) -> list[np.ndarray]:
    """Change memory lane after lane where addresses meet, all others at once; returns what was there before."""
    new = _joined([w.V[data + place] for place in range(words)])
    expected = _joined([w.V[data + words + place] for place in range(words)]) if compare else None
    before = [np.zeros(address.shape, U32) for _ in range(words)]
    for turn in _turns(address, active):
        found = read(address, turn)
        old = _joined(found)
        result = np.where(old == expected, new, old) if compare else change(old, new)
        write(address, turn, _parted(np.asarray(result), words))
        for place, word in enumerate(found):
            np.copyto(before[place], word, where=turn)
    return before


def _turns(address: np.ndarray, active: np.ndarray):
    """Masks of lanes with different addresses: the first lane of each address, then the second of each, ..."""
    places = np.flatnonzero(active)
    where = address.reshape(-1)[places]
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if ordered.size else np.zeros(0, bool)
    start = np.maximum.accumulate(np.where(first, np.arange(ordered.size), 0))
    rank = np.empty(ordered.size, np.int64)
    rank[order] = np.arange(ordered.size) - start
    for turn in range(int(rank.max(initial=-1)) + 1):
        mask = np.zeros(active.size, bool)
        mask[places[rank == turn]] = True
        yield mask.reshape(active.shape)


def _local(name: str, instruction: Decoded) -> Step:
    kind = name.removeprefix("ds_").replace("_rtn", "")
    kind = re.sub(r"^(and|or|xor)_b32$", r"\1", kind).replace("wrxchg_b32", "swap").replace("storexchg_b32", "swap")
    if kind not in _CHANGES:
        raise NotInTable(name)
    returns = "_rtn" in name
    operands = instruction.operands[1:] if returns else instruction.operands
    where, data = values.reader(operands[0], "u32"), operands[1]
    offset = instruction.modifiers.get("offset", 0)

    def run(w):
        address = w.full(where(w).astype(I64) + offset)
        read = lambda at, lanes: w.lds.read(w, instruction, at, 4, lanes)  # noqa: E731
        write = lambda at, lanes, new: w.lds.write(w, instruction, at, new, 4, lanes)  # noqa: E731
        active = _active_lanes(w, None)
        for watcher in w.watchers:
            watcher.local_atomic(w, instruction, address, active, 4)
        old = _take_turns(w, address, active, data.index, 1, _CHANGES[kind], False, read, write)
        if returns:
            w.write(w.V[instruction.operands[0].index], old[0])

    return run
