"""Read-modify-write of global memory and LDS. Lanes take turns, so that several may meet at one address.

Names and semantics: MI300 ISA, sections 12.13 and 12.15; RDNA 3 and RDNA 4 ISA, chapter 16.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F16, U16, U32, U64, from_bf16, larger, round_to_bf16, smaller
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import global_memory, local_data
from gfxlab.simulator.instructions.common import NotInTable, Step, Target

# ---- what becomes of a number ----------------------------------------------------------------------------------------


def _count_up(old, most):
    return np.where(old >= most, old & ~old, old + old.dtype.type(1))


def _count_down(old, most):
    return np.where((old == 0) | (old > most), most, old - old.dtype.type(1))


def _add_halves(old, new):
    total = old.astype(U16).view(F16) + new.astype(U16).view(F16)
    return total.view(U16).astype(U32)


def _add_bfloats(old, new):
    return round_to_bf16(from_bf16(old.astype(U16)) + from_bf16(new.astype(U16))).astype(U32)


def _pairs(add: Callable) -> Callable:
    """Two 16-bit numbers in a word."""

    def compute(old, new):
        low, high = (add(old >> U32(s) & U32(0xFFFF), new >> U32(s) & U32(0xFFFF)) for s in (0, 16))
        return low | high << U32(16)

    return compute


_CHANGES: dict[str, Callable] = {
    "add": np.add,
    "sub": np.subtract,
    "rsub": lambda old, new: new - old,
    "inc": _count_up,
    "dec": _count_down,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "swap": lambda old, new: new,
    "max": lambda old, new: larger(old, new) if old.dtype.kind == "f" else np.maximum(old, new),
    "min": lambda old, new: smaller(old, new) if old.dtype.kind == "f" else np.minimum(old, new),
    "csub": lambda old, new: np.where(old < new, old & ~old, old - new),
    "cond_sub": lambda old, new: np.where(old >= new, old - new, old),
    "pk_add_f16": _pairs(_add_halves),
    "pk_add_bf16": _pairs(_add_bfloats),
}
# Two numbers besides the old one: compare-and-swap gets what is to be stored and what is expected.
_CHANGES_OF_TWO: dict[str, Callable] = {
    "cmpswap": lambda old, new, expected: np.where(old == expected, new, old),
    "mskor": lambda old, mask, new: old & ~mask | new,
}
_OTHER_NAMES = {  # the operation, and the type where the name does not end in one
    "umax": ("max", "u"),
    "umin": ("min", "u"),
    "smax": ("max", "i"),
    "smin": ("min", "i"),
    "fmax": ("max", "f"),
    "fmin": ("min", "f"),
    "max_num": ("max", "f"),
    "min_num": ("min", "f"),
    "sub_clamp": ("csub", "u"),
    "wrxchg": ("swap", "u"),
    "storexchg": ("swap", "u"),
    "cmpst": ("cmpswap", "u"),
    "cmpstore": ("cmpswap", "u"),
    "fcmpswap": ("cmpswap", "f"),
}


@dataclass(frozen=True)
class _Change:
    """What an atomic does: `compute` of numbers of type `kind`, which take `words` registers each."""

    compute: Callable
    kind: str
    sources: int

    @property
    def words(self) -> int:
        return values.bits_of(self.kind) // 32

    def apply(self, old: np.ndarray, sources: list[np.ndarray]) -> np.ndarray:
        """Of the bits and to the bits."""
        numpy_kind = values.numpy_type(self.kind)
        result = self.compute(*[one.view(numpy_kind) for one in (old, *sources)])
        return np.ascontiguousarray(result).view(old.dtype)


_NAME = re.compile(r"(\w+?)(?:_([uifb])(32|64))?(_x2)?$")


def _change(name: str) -> _Change:
    """By the name without memory space: add, smax_x2, add_u32, max_num_f32, pk_add_f16, cmpswap_b64, ..."""
    if name in _CHANGES:
        return _Change(_CHANGES[name], "u32", 1)
    operation, letter, bits, twice = _NAME.match(name).groups()
    operation, default = _OTHER_NAMES.get(operation, (operation, "u"))
    kind = {None: default, "b": "u"}.get(letter, letter) + (bits or ("64" if twice else "32"))
    if operation in _CHANGES:
        return _Change(_CHANGES[operation], kind, 1)
    if operation in _CHANGES_OF_TWO:
        return _Change(_CHANGES_OF_TWO[operation], kind, 2)
    raise NotInTable(name)


# ---- instructions ----------------------------------------------------------------------------------------------------


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one atomic instruction."""
    return _local(name, instruction) if name.startswith("ds_") else _global(name, instruction)


def _global(name: str, instruction: Decoded) -> Step:
    space, _, operation = name.partition("_atomic_")
    change = _change(operation)
    modifiers, operands = instruction.modifiers, instruction.operands
    returns = "sc0" in modifiers or "glc" in modifiers or str(modifiers.get("th")).endswith("_RETURN")
    if space == "buffer":
        address, data, result = global_memory.buffer_address(instruction), operands[0], operands[0]
    else:
        first = 1 if returns else 0
        address, data, result = global_memory.flat_address(instruction, first), operands[first + 1], operands[0]
    width, locks = 4 * change.words, "swap" in operation
    sources = [_number(data, place * change.words, change.words) for place in range(change.sources)]

    def run(w):
        where, inside = address(w)
        active = _active_lanes(w, inside)
        _announce(w, instruction, where, active, width)
        read = lambda at, lane: global_memory.read(w, instruction, at, lane, width, ())  # noqa: E731
        write = lambda at, lane, new: global_memory.write(w, instruction, at, lane, new, width, ())  # noqa: E731
        where = w.full(where)
        old, changed = _take_turns(where, active, change, [source(w) for source in sources], read, write)
        if locks:
            _announce_change(w, instruction, where, changed, width)
        if returns:
            _put(w, result.index, old)

    return run


def _announce(w, instruction: Decoded, address, active, width: int) -> None:
    """Tell the watchers once, however many turns the lanes take."""
    if not w.watchers or not active.any():
        return
    whole = [global_memory.Part(w.full(address), active, width)]
    for part in global_memory.torn(w, instruction, address, active, width) or whole:
        for region, offset, lanes in global_memory.pieces(
            w, instruction, "update", part.address, part.lanes, part.width
        ):
            for watcher in w.watchers:
                watcher.atomic(w, instruction, region, offset, lanes, part.width)


def _announce_change(w, instruction: Decoded, address, changed, width: int) -> None:
    """Tell the watchers who has really changed memory: it may be a lock."""
    if w.watchers and changed.any() and not instruction.reaches_beyond:
        for region, offset, lanes in global_memory.pieces(w, instruction, "update", address, changed, width):
            for watcher in w.watchers:
                watcher.changed(w, region, offset, lanes, width)


def _active_lanes(w, inside) -> np.ndarray:
    active = np.ones((w.size, w.lanes), bool) if w.mask is None else w.mask
    return active if inside is None else active & inside


def _number(operand: Operand, place: int, words: int) -> values.Reader:
    """The bits of a number in one register or two."""
    first = operand.index + place
    if words == 1:
        return lambda w: w.V[first]
    return lambda w: w.V[first].astype(U64) | w.V[first + 1].astype(U64) << U64(32)


def _put(w, index: int, words: list[np.ndarray]) -> None:
    for place, word in enumerate(words):
        w.write(w.V[index + place], word)


def _joined(words: list[np.ndarray]) -> np.ndarray:
    return words[0] if len(words) == 1 else words[0].astype(U64) | words[1].astype(U64) << U64(32)


def _parted(value: np.ndarray, words: int) -> list[np.ndarray]:
    return [value] if words == 1 else [value.astype(U32), (value >> U64(32)).astype(U32)]


def _take_turns(
    address, active, change: _Change, sources, read, write, place=None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Change memory, lane after lane where they meet; what was there before, and which lanes changed it.

    place: equal where lanes meet; the address unless given.
    """
    places = np.flatnonzero(active)
    leaders, group, rank = _meetings((address if place is None else place).reshape(-1)[places])
    first = np.zeros(active.size, bool)
    first[places[leaders]] = True
    first = first.reshape(active.shape)
    found = read(address, first)
    sources = [source.reshape(-1)[places] for source in sources]
    now = _joined(found).reshape(-1)[places[leaders]]
    old, new = np.empty(len(places), now.dtype), np.empty(len(places), now.dtype)
    for turn in range(int(rank.max(initial=-1)) + 1):
        lanes = np.flatnonzero(rank == turn) if turn or len(leaders) < len(places) else slice(None)
        old[lanes] = now[group[lanes]]
        new[lanes] = now[group[lanes]] = change.apply(old[lanes], [source[lanes] for source in sources])
    last = np.zeros(active.shape, now.dtype)
    last.reshape(-1)[places[leaders]] = now
    write(address, first, _parted(last, change.words))
    before, changed = np.zeros(active.shape, now.dtype), np.zeros(active.shape, bool)
    before.reshape(-1)[places], changed.reshape(-1)[places] = old, old != new
    return _parted(before, change.words), changed


def _meetings(where: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of lanes with these addresses: the first of each address; which of these each lane follows; and as which one."""
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if ordered.size else np.zeros(0, bool)
    start = np.maximum.accumulate(np.where(first, np.arange(ordered.size), 0))
    group, rank = np.empty(ordered.size, np.int64), np.empty(ordered.size, np.int64)
    group[order], rank[order] = np.cumsum(first) - 1, np.arange(ordered.size) - start
    return order[first], group, rank


def _local(name: str, instruction: Decoded) -> Step:
    """In LDS. The two numbers of gfx9's compare-and-swap stand the other way round."""
    returns = "_rtn" in name
    plain = name.removeprefix("ds_").replace("_rtn", "")
    twice = re.search(r"2st64|_2addr_stride64|_2addr|xchg(2)_", plain)
    change = _change(re.sub(r"2st64|_2addr_stride64|_2addr|(?<=xchg)2", "", plain))
    operands = instruction.operands[1:] if returns else instruction.operands
    offsets = local_data.offsets_of(instruction, twice[0] if twice else None, 4 * change.words)
    numbers = [_number(one, 0, change.words) for one in operands[1:]]
    if "cmpst_" in name:
        numbers.reverse()
    groups = [[number] for number in numbers] if twice else [numbers]
    accesses = [(local_data.address_of(operands[0], offset), group) for offset, group in zip(offsets, groups)]
    width = 4 * change.words

    def run(w):
        old = []
        for where, sources in accesses:
            address, active = where(w), _active_lanes(w, None)
            read = lambda at, lanes: w.lds.read(w, instruction, at, width, lanes)  # noqa: E731
            write = lambda at, lanes, new: w.lds.write(w, instruction, at, new, width, lanes)  # noqa: E731
            for watcher in w.watchers:
                watcher.local_atomic(w, instruction, address, active, width)
            place = address + w.group * (1 << 32)  # equal addresses of two workgroups are two places
            old += _take_turns(address, active, change, [source(w) for source in sources], read, write, place)[0]
        if returns:
            _put(w, instruction.operands[0].index, old)

    return run
