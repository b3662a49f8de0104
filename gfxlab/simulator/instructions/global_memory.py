"""Loads and stores of global memory: by 64-bit address (global_), through a resource (buffer_), scalar (s_load_).

A buffer access beyond the resource's size reads 0 and writes nothing; Triton masks lanes by giving them such an offset.
Names and semantics: MI300 ISA, chapters 8, 9 and 10; RDNA 3 ISA, chapters 9 and 11.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gfxlab.simulator.compiled import extension
from gfxlab.simulator.core import faults, values
from gfxlab.simulator.core.memory import Region
from gfxlab.simulator.core.numbers import I32, I64, U8, U16, U32
from gfxlab.simulator.core.operands import M0, NULL, Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions.common import NotInTable, Step, Target

# Bytes a lane, and for narrow types whether they are extended by their sign.
_WIDTHS = {
    "dword": (4, ""),
    "dwordx2": (8, ""),
    "dwordx3": (12, ""),
    "dwordx4": (16, ""),
    "b32": (4, ""),
    "b64": (8, ""),
    "b96": (12, ""),
    "b128": (16, ""),
    "ushort": (2, "unsigned"),
    "sshort": (2, "signed"),
    "ubyte": (1, "unsigned"),
    "sbyte": (1, "signed"),
    "u16": (2, "unsigned"),
    "i16": (2, "signed"),
    "u8": (1, "unsigned"),
    "i8": (1, "signed"),
    "short": (2, "unsigned"),
    "byte": (1, "unsigned"),
    "b16": (2, "unsigned"),
    "b8": (1, "unsigned"),
}
WHOLE_REGISTERS = ("", "unsigned", "signed")  # fillings that leave nothing of what the register held
_HALVES = re.compile(r"(?:d16_)?(hi_)?(\w+?)(?:_d16(_hi)?)?$")


def width_of(suffix: str) -> tuple[int, str]:
    """Bytes a lane and the filling for the end of a mnemonic: `dwordx4`, `u16_d16_hi`, `d16_hi_b16`, ...

    filling: "" of whole registers, "unsigned" or "signed" of one that narrow data is extended to, "low" or "high" of
    the half that it goes to; " signed" behind these: a byte is extended to the half by its sign.
    """
    if suffix in _WIDTHS:
        return _WIDTHS[suffix]
    before, plain, after = _HALVES.match(suffix).groups()
    if plain not in _WIDTHS or "d16" not in suffix:
        raise NotInTable(suffix)
    width, sign = _WIDTHS[plain]
    half = "high" if before or after else "low"
    return width, f"{half} signed" if sign == "signed" and width == 1 else half


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one load or store."""
    if name.startswith("s_"):
        return _scalar_load(name, instruction, target)
    space, direction, suffix = re.match(r"(global|buffer|flat)_(load|store)_(\w+)", name).groups()
    width, filling = width_of(suffix.removeprefix("lds_"))
    if instruction.loads_to_lds:
        address = buffer_address(instruction) if space == "buffer" else flat_address(instruction, 0)
        return _load_to_lds(instruction, address, width, filling)
    if space == "buffer":
        data, address = instruction.operands[0], buffer_address(instruction)
    else:
        data = instruction.operands[0 if direction == "load" else 1]
        address = flat_address(instruction, 1 if direction == "load" else 0)
    if direction == "load":
        step = _load(instruction, address, width, register_writer(data, width, filling, target))
        whole = filling in WHOLE_REGISTERS and data.half is None and not instruction.reaches_beyond
        return _compiled_load(step, instruction, address, width, data, filling) if whole and extension.used() else step
    step = _store(instruction, address, width, register_reader(data, width, filling))
    whole = filling != "high" and data.is_vector and not data.half and not instruction.reaches_beyond
    return _compiled_store(step, instruction, address, width, data) if whole and extension.used() else step


# ---- addresses -------------------------------------------------------------------------------------------------------

Address = Callable[[Waves], tuple[np.ndarray, np.ndarray | None]]  # int64 [wave, lane], and which lanes are in range


def flat_address(instruction: Decoded, place: int) -> Address:
    """Of a global_ access whose address operand is number `place` and whose base is the last: a register or `off`."""
    where, base = instruction.operands[place], instruction.operands[-1]
    offset = I64(instruction.modifiers.get("offset", 0))
    if base.is_scalar and base.index != NULL:
        read, first = values.reader(where, "u32"), values.reader(base, "i64")
        return lambda w: (read(w).astype(I64) + (first(w) + offset), None)
    read = values.reader(where, "i64")
    return lambda w: (read(w) + offset, None)


def buffer_address(instruction: Decoded) -> Address:
    """Of a buffer_ access: base of the resource + a lane's offset + a scalar offset + a constant.

    A lane's offset and the constant are added in 32 bits: compilers leave a negative offset in the register where the
    constant makes it positive. The scalar offset is added later, with a carry. Source: Mesa's compiler for AMD GPUs
    (ACO, aco_optimizer.cpp) relies on both from gfx9 on; piglit tests the first on cards ("MUBUF stack addressing").
    """
    where, resource, scalar = instruction.operands[-3:]
    constant = I64(instruction.modifiers.get("offset", 0))
    lane_offset = values.reader(where, "u32") if "offen" in instruction.modifiers else None
    soffset = values.reader(scalar, "u32")
    base_low, size = (Operand("", "s", resource.index + word, 1) for word in (0, 2))
    read_size = values.reader(size, "u32")
    read_base = values.reader(Operand("", "s", base_low.index, 2), "i64")

    if extension.used() and scalar.text != "off" and (lane_offset is None or where.is_vector):
        return _compiled_buffer_address(where if lane_offset else None, resource, scalar, int(constant))

    def address(w: Waves):
        offset = w.full(lane_offset(w) + U32(constant)) if lane_offset else np.full((w.size, w.lanes), constant)
        inside = offset < read_size(w)
        base = (read_base(w) & I64((1 << 48) - 1)) + np.asarray(soffset(w)).astype(I64)
        return base + offset.astype(I64, copy=False), None if inside.all() else inside

    return address


def _compiled_buffer_address(where: Operand | None, resource: Operand, scalar: Operand, constant: int) -> Address:
    """The same by the extension."""
    register = where.index if where else -1
    fixed = scalar.is_constant or scalar.index == NULL
    added = -1 if fixed else scalar.index, int(scalar.value) & 0xFFFFFFFF if scalar.is_constant else 0

    def address(w: Waves):
        out, inside = np.empty((w.size, w.lanes), I64), np.empty((w.size, w.lanes), bool)
        every = extension.EXTENSION.buffer_address(out, inside, w.V, register, w.S, resource.index, constant, *added)
        return out, None if every else inside

    return address


# ---- registers -------------------------------------------------------------------------------------------------------


def register_writer(
    data: Operand, width: int, filling: str, target: Target
) -> Callable[[Waves, list[np.ndarray]], None]:
    """A function that puts the words that were read into the registers from `data` on."""
    i = data.index
    if filling in ("", "unsigned") and data.half is None:

        def write(w, words):
            for place, word in enumerate(words):
                w.write(w.V[i + place], word)

        return write
    if filling == "signed":
        return lambda w, words: w.write(w.I[i], _signed(words[0], width))
    half = values.writer(data, "u16", high=filling.startswith("high"), clear=False)
    if filling.endswith("signed"):
        return lambda w, words: half(w, _signed(words[0], width).astype(U16))
    return lambda w, words: half(w, words[0].astype(U16))


def _signed(word: np.ndarray, width: int) -> np.ndarray:
    """The lowest bytes of a word as a signed number, int32."""
    unsigned, signed = (U8, np.int8) if width == 1 else (U16, np.int16)
    return word.astype(unsigned).view(signed).astype(I32)


def register_reader(data: Operand, width: int, filling: str) -> Callable[[Waves], list[np.ndarray]]:
    """A function that takes the words to be stored from the registers from `data` on."""
    i = data.index
    shift = U32(16 if filling == "high" or data.half else 0)
    if shift:
        return lambda w: [w.V[i] >> shift]
    return lambda w: [w.V[i + place] for place in range(max(1, width // 4))]


# ---- access ----------------------------------------------------------------------------------------------------------


def _active(w: Waves, inside: np.ndarray | None) -> np.ndarray | None:
    """The lanes that really access memory; None: all."""
    if inside is None:
        return w.mask
    return inside if w.mask is None else inside & w.mask


def _one_region(w: Waves, address: np.ndarray, active, width: int):
    """The region that all active lanes go to, and the offsets in it; lanes that are off get one that is harmless."""
    if active is not None:
        address = np.where(active, address, address.flat[active.argmax()])
    low, high = int(address.min()), int(address.max()) + width
    region = w.memory.whole(low, high)
    if region is not None:
        return region, address - region.base
    region = w.memory.region_of(low)
    if region is not None and region.holds(offset := address - region.base, width).all():
        return region, offset
    return None, address


def pieces(w: Waves, instruction: Decoded, kind: str, address, active, width: int):
    """Lanes that go to different storages, a storage at a time: (region, offset [wave, lane], which lanes).

    Raises:
        IllegalAccess: a lane goes to none.
    """
    region, offset = _one_region(w, address, active, width)
    if region is not None:
        return [(region, offset, active)]
    active = np.ones(address.shape, bool) if active is None else active
    left = active.copy()
    found = []
    for region in w.memory.regions:
        offset = address - region.base
        lanes = left & region.holds(offset, width)
        if lanes.any():
            found.append((region, offset, lanes))
            left &= ~lanes
    if left.any() and _found(w, instruction, kind, address, left, width):
        return pieces(w, instruction, kind, address, active, width)
    if left.any():
        for watcher in w.watchers:
            watcher.illegal(w, instruction, kind, address, active, width)
        raise faults.illegal_access(w, instruction, kind, address, active, width)
    return found


def _found(w: Waves, instruction: Decoded, kind: str, address: np.ndarray, left: np.ndarray, width: int) -> bool:
    """Whether memory lies where no tensor of the launch does; watchers hear of it where a tensor was left for it."""
    first = int(address[left][0])
    where = faults.place(w, first, width)
    if not w.memory.found(first):
        return False
    if w.memory.region_of(first) is not None:
        for watcher in w.watchers:
            watcher.beyond(w, instruction, kind, left, where)
    return True


def read(
    w: Waves, instruction: Decoded, address: np.ndarray, active: np.ndarray | None, width: int, watchers=None
) -> list[np.ndarray]:
    """The words that the active lanes read; what the others get is of no use. watchers: w.watchers unless given."""
    if active is not None and not active.any():
        return [np.zeros((w.size, w.lanes), U32)] * max(1, width // 4)
    watchers = w.watchers if watchers is None else watchers
    parts = torn(w, instruction, address, active, width)
    if parts:
        return [_read_torn(w, instruction, parts, watchers)]
    found = pieces(w, instruction, "load", w.full(address), active, width)
    for region, offset, lanes in found:
        for watcher in watchers:
            watcher.load(w, instruction, region, offset, lanes, width)
    region, offset, lanes = found[0]
    if len(found) == 1:
        return region.bytes.gather(offset, width)
    words = [np.zeros(offset.shape, U32) for _ in range(max(1, width // 4))]
    for region, offset, lanes in found:
        for word, value in zip(words, region.bytes.gather(offset[lanes], width)):
            word[lanes] = value
    return words


def write(
    w: Waves, instruction: Decoded, address: np.ndarray, active, words: list[np.ndarray], width: int, watchers=None
) -> None:
    """Store the words of the active lanes. watchers: w.watchers unless given."""
    if active is not None and not active.any():
        return
    words = [w.full(word) for word in words]
    parts = torn(w, instruction, address, active, width)
    for part in parts:
        write(w, instruction, part.address, part.lanes, [words[0] >> U32(part.shift)], part.width, watchers)
    if parts:
        return
    for region, offset, lanes in pieces(w, instruction, "store", w.full(address), active, width):
        for watcher in w.watchers if watchers is None else watchers:
            watcher.store(w, instruction, region, offset, lanes, width, words)
        chosen = slice(None) if lanes is None else lanes
        region.bytes.scatter(offset[chosen].reshape(-1), [word[chosen].reshape(-1) for word in words], width)


@dataclass(frozen=True)
class Part:
    """Some lanes of an access, and which bytes of their word they access: `width` of them from bit `shift` on."""

    address: np.ndarray
    lanes: np.ndarray
    width: int
    shift: int = 0


def torn(w: Waves, instruction: Decoded, address: np.ndarray, active, width: int) -> list[Part]:
    """The parts of an access to words of which some lie half beyond the end of a tensor; none where all lie within.

    Atomics of 16 bits are made of a load and a compare-and-swap of the aligned word around the element.
    """
    if not instruction.reaches_beyond or width != 4:
        return []
    address = w.full(address)
    active = np.ones(address.shape, bool) if active is None else active
    within = _owned(w, address, 4)
    if within[active].all():
        return []
    halves = [Part(address + s // 8, active & ~within & _owned(w, address + s // 8, 2), 2, s) for s in (0, 16)]
    rest = active & ~halves[0].lanes & ~halves[1].lanes  # lanes without any memory stay, to be refused
    return [part for part in (Part(address, rest, 4), *halves) if part.lanes.any()]


def _owned(w: Waves, address: np.ndarray, width: int) -> np.ndarray:
    """Whether all bytes at each address belong to tensors."""
    owned = np.zeros(address.shape, bool)
    for region in w.memory.regions:
        owned |= region.holds(address - region.base, width)
    return owned


def _read_torn(w: Waves, instruction: Decoded, parts: list[Part], watchers) -> np.ndarray:
    """Words of which a half may lie beyond the end of a tensor; that one reads 0."""
    word = np.zeros((w.size, w.lanes), U32)
    for part in parts:
        value = read(w, instruction, part.address, part.lanes, part.width, watchers)[0]
        word = np.where(part.lanes, value << U32(part.shift), word)
    return word


def _load(instruction: Decoded, address: Address, width: int, write_registers) -> Step:
    def run(w: Waves) -> None:
        where, inside = address(w)
        words = read(w, instruction, where, _active(w, inside), width)
        write_registers(w, words if inside is None else _zero_beyond(inside, words))

    return run


def _compiled_load(step: Step, instruction: Decoded, address: Address, width: int, data: Operand, filling: str) -> Step:
    """The same by the extension, where all lanes go to one storage; elsewhere `step`."""
    signed = filling == "signed"

    def run(w: Waves) -> None:
        where, inside, active, region = _in_one_region(w, address, width)
        if region is None:
            return step(w)
        for watcher in w.watchers:
            watcher.load(w, instruction, region, where, active, width)
        content = region.bytes.u8
        place = content.size, 0, 0, 1
        extension.EXTENSION.load(content, where, w.V, data.index, width, signed, *place, w.mask, inside)

    return run


def _in_one_region(
    w: Waves, address: Address, width: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, Region | None]:
    """Where an access goes, which lanes are in range, which of them are on, and the region of all if it is one."""
    where, inside = address(w)
    active = _active(w, inside)
    return where, inside, active, _only_region(w, where, active, width)


def _only_region(w: Waves, where: np.ndarray, active: np.ndarray | None, width: int) -> Region | None:
    """What `_one_region` finds, by the extension: if there is one, `where` then are the offsets in it."""
    low, high = extension.EXTENSION.bounds(where, active)
    if low > high:
        return None
    region = w.memory.whole(low, high + width)
    if region is None:
        region = w.memory.region_of(low)
        if region is None or not region.holds(where - region.base, width).all():
            return None
    where -= region.base
    return region


def _zero_beyond(inside: np.ndarray, words: list[np.ndarray]) -> list[np.ndarray]:
    """What lanes out of a resource's range read; by bits, for numpy guesses at each lane of `where`."""
    kept = np.negative(inside.astype(U32))
    return [word & kept for word in words]


def _store(instruction: Decoded, address: Address, width: int, read_registers) -> Step:
    def run(w: Waves) -> None:
        where, inside = address(w)
        write(w, instruction, where, _active(w, inside), read_registers(w), width)

    return run


def _compiled_store(step: Step, instruction: Decoded, address: Address, width: int, data: Operand) -> Step:
    """The same by the extension, where all lanes go to one storage; elsewhere `step`."""
    words = max(1, width // 4)

    def run(w: Waves) -> None:
        where, inside, active, region = _in_one_region(w, address, width)
        if region is None:
            return step(w)
        stored = [w.V[data.index + place] for place in range(words)]
        for watcher in w.watchers:
            watcher.store(w, instruction, region, where, active, width, stored)
        content = region.bytes.u8
        extension.EXTENSION.store(content, where, w.V, data.index, width, content.size, 0, 0, 1, active)

    return run


def _load_to_lds(instruction: Decoded, address: Address, width: int, filling: str) -> Step:
    """Straight from memory to LDS, at M0 + the constant offset + lane * width; narrow data as a word a lane."""
    constant = instruction.modifiers.get("offset", 0)
    place_of = max(4, width)

    def run(w: Waves) -> None:
        where, inside = address(w)
        words = read(w, instruction, where, _active(w, inside), width)
        if inside is not None:
            words = _zero_beyond(inside, words)
        if filling == "signed":
            words = [_signed(words[0], width).view(U32)]
        place = (w.S[:, M0 : M0 + 1] & U32(0x3FFFF)).astype(I64) + constant + np.arange(w.lanes) * place_of
        for watcher in w.watchers:
            watcher.local_store(w, instruction, place, w.mask, place_of, words)
        w.lds.write(w, instruction, place, words, place_of)

    return run


def _scalar_load(name: str, instruction: Decoded, target: Target) -> Step:
    result, base, *offset = instruction.operands
    suffix = re.sub(r"s_(buffer_)?load_", "", name)
    width = _scalar_width(suffix)
    offsets = [values.scalar_reader(one, "i64" if one.is_constant else "u32") for one in offset]
    constant = instruction.modifiers.get("offset", 0)
    from_buffer = name.startswith("s_buffer")
    first = values.scalar_reader(replace(base, count=2) if from_buffer else base, "i64")
    size = values.scalar_reader(replace(base, index=base.index + 2, count=1), "u32") if from_buffer else None

    def run(w: Waves) -> None:
        distance = np.broadcast_to(I64(constant), w.size)
        for one in offsets:
            distance = distance + one(w).astype(I64)
        if size is None:
            words = _scalar_words(w, instruction, first(w) + distance, width)
        else:
            address = (first(w) & I64((1 << 48) - 1)) + distance
            words = _words_within(w, instruction, address, size(w).astype(I64) - distance, width)
        if suffix in ("i8", "i16"):
            words = [_signed(words[0], width).view(U32)]
        for place, word in enumerate(words):
            w.write_scalar(w.S[:, result.index + place], word)

    return run


def _scalar_width(suffix: str) -> int:
    """Bytes."""
    narrow = {"dword": 4, "u16": 2, "i16": 2, "u8": 1, "i8": 1}
    if suffix in narrow:
        return narrow[suffix]
    return int(suffix.removeprefix("dwordx")) * 4 if suffix.startswith("dwordx") else int(suffix[1:]) // 8


def _words_within(
    w: Waves, instruction: Decoded, address: np.ndarray, left: np.ndarray, width: int
) -> list[np.ndarray]:
    """What stands at the address; each word that does not lie in the `left` bytes of its buffer is 0."""
    every, each, words = w.live, min(width, 4), []
    live = np.ones(w.size, bool) if every is None else every
    if (left[live] >= width).all():
        return _scalar_words(w, instruction, address, width)
    for place in range(0, width, 4):
        inside = live & (left >= place + each)
        if inside.any():
            found = _scalar_words(w, instruction, address + place, each, inside)[0]
        words.append(np.where(inside, found, U32(0)) if inside.any() else np.zeros(w.size, U32))
    return words


def _scalar_words(w: Waves, instruction: Decoded, address: np.ndarray, width: int, live=None) -> list[np.ndarray]:
    """live: the waves that really load; None: those that are executed."""
    if live is None:
        live = np.ones(w.size, bool) if w.live is None else w.live
    address = np.where(live, address, address[live.argmax()])[:, None]
    low, high = int(address.min()), int(address.max())
    region = w.memory.whole(low, high + width)
    if region is None and instruction.reaches_beyond:
        return [word[:, 0] for word in read(w, instruction, address, w.full(live[:, None]), width, ())]
    if region is None:
        words = [np.zeros(address.shape, U32) for _ in range(max(1, width // 4))]
        for region, offset, lanes in pieces(w, instruction, "load", address, None, width):
            lanes = slice(None) if lanes is None else lanes
            for word, value in zip(words, region.bytes.gather(offset[lanes], width)):
                word[lanes] = value
        return [word[:, 0] for word in words]
    offset = address - region.base
    for watcher in w.watchers:
        watcher.scalar_load(w, instruction, region, offset, live[:, None], width)
    same = offset[:1] if low == high else offset  # of a kernel's arguments all waves want the same
    return [word[:, 0] for word in region.bytes.gather(same, width)]


__all__ = [
    "build",
    "buffer_address",
    "flat_address",
    "pieces",
    "read",
    "torn",
    "register_reader",
    "register_writer",
    "width_of",
    "write",
]
