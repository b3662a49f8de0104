"""LDS, the memory that a workgroup shares: ds_read, ds_write (gfx9), ds_load, ds_store (RDNA), and transposing reads.

Names and semantics: MI300 ISA, section 12.13; ds_read_b64_tr: CDNA 4 ISA.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gfxlab.simulator.compiled import extension
from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import I64, U8, U32
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.global_memory import WHOLE_REGISTERS, register_reader, register_writer, width_of

_NAME = re.compile(r"ds_(read|write|load|store)(2st64|2|_2addr_stride64|_2addr)?_(\w+)")


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one LDS access."""
    found = _NAME.match(name)
    if not found:
        raise NotInTable(name)
    direction, twice, suffix = found.groups()
    if "_tr_" in suffix:
        return _transposing_read(suffix, instruction, target)
    width, filling = width_of(suffix)
    offsets = offsets_of(instruction, twice, width)
    if direction in ("read", "load"):
        return _read(instruction, offsets, width, filling, target)
    return _write(instruction, offsets, width, filling)


def offsets_of(instruction: Decoded, twice: str | None, width: int) -> list[int]:
    """The constant offsets in bytes: one, or two counted in elements (or in 64 of them)."""
    modifiers = instruction.modifiers
    if not twice:
        return [modifiers.get("offset", 0)]
    unit = width * (64 if "64" in twice else 1)
    return [modifiers.get("offset0", 0) * unit, modifiers.get("offset1", 0) * unit]


def address_of(operand: Operand, offset: int) -> values.Reader:
    """The place in LDS that each lane names: base and constant are added in 32 bits."""
    read, constant, who = values.reader(operand, "u32"), U32(offset), object()
    if operand.is_vector:
        return lambda w: w.lds.address(w, who, read(w), constant)
    return lambda w: w.full((read(w) + constant).astype(I64))


def _load(w, instruction: Decoded, address: np.ndarray, width: int) -> list[np.ndarray]:
    for watcher in w.watchers:
        watcher.local_load(w, instruction, address, w.mask, width)
    return w.lds.read(w, instruction, address, width)


def store(w, instruction: Decoded, address: np.ndarray, words: list[np.ndarray], width: int) -> None:
    """Write the words of the active lanes to LDS."""
    for watcher in w.watchers:
        watcher.local_store(w, instruction, address, w.mask, width, words)
    w.lds.write(w, instruction, address, words, width)


@dataclass(frozen=True, eq=False)
class LocalAccess:
    """The step of an access to LDS of whole registers, by the extension.

    addresses: of each place where it reads or writes, with `offsets` the constants in them; registers: the first that
    goes there or comes from there. signed: what is narrower than a word is extended by its sign.
    """

    instruction: Decoded
    where: Operand
    offsets: Sequence[int]
    addresses: Sequence[values.Reader]
    registers: Sequence[int]
    width: int
    signed: bool = False
    readers: Sequence[values.Reader] = ()

    @property
    def writes(self) -> bool:
        """Whether it is a store."""
        return bool(self.readers)

    def places(self, w) -> list[np.ndarray]:
        """The place in LDS that each lane names, int64 [wave, lane], for each of the addresses."""
        return [address(w) for address in self.addresses]

    def __call__(self, w) -> None:
        if self.writes:
            self._store(w)
        else:
            self._load(w)

    def _load(self, w) -> None:
        places = self.places(w)
        for place in places:
            for watcher in w.watchers:
                watcher.local_load(w, self.instruction, place, w.mask, self.width)
        for place, register in zip(places, self.registers):
            w.lds.load(w, place, self.width, register, self.signed)

    def _store(self, w) -> None:
        for address, read, register in zip(self.addresses, self.readers, self.registers):
            place = address(w)
            words = read(w)
            for watcher in w.watchers:
                watcher.local_store(w, self.instruction, place, w.mask, self.width, words)
            w.lds.store(w, place, self.width, register)


def _read(instruction: Decoded, offsets: list[int], width: int, filling: str, target: Target) -> Step:
    result, where = instruction.operands
    addresses = [address_of(where, offset) for offset in offsets]
    words = max(1, width // 4)
    registers = [result.index + place * words for place in range(len(offsets))]
    if extension.used() and filling in WHOLE_REGISTERS and result.half is None and where.is_vector:
        return LocalAccess(instruction, where, offsets, addresses, registers, width, filling == "signed")
    writers = [
        register_writer(Operand("", "v", register, half=result.half), width, filling, target) for register in registers
    ]

    def run(w):
        found = [_load(w, instruction, address(w), width) for address in addresses]
        for write, value in zip(writers, found):
            write(w, value)

    return run


def _write(instruction: Decoded, offsets: list[int], width: int, filling: str) -> Step:
    where, *data = instruction.operands
    addresses = [address_of(where, offset) for offset in offsets]
    readers = [register_reader(one, width, filling) for one in data]
    whole = filling != "high" and all(one.is_vector and not one.half for one in data) and where.is_vector
    if extension.used() and whole:
        registers = [one.index for one in data]
        return LocalAccess(instruction, where, offsets, addresses, registers, width, readers=readers)

    def run(w):
        for address, read in zip(addresses, readers):
            store(w, instruction, address(w), read(w), width)

    return run


def _transposing_read(suffix: str, instruction: Decoded, target: Target) -> Step:
    """ds_read_b64_tr_b16 and its kin: 16 lanes read a tile of 16 rows and each gets a column's piece."""
    found = re.fullmatch(r"b(64|96)_tr_b(16|8|6|4)", suffix)
    if not found:
        raise NotInTable(instruction.mnemonic)
    result, where = instruction.operands
    address = address_of(where, instruction.modifiers.get("offset", 0))
    width, bits = int(found[1]) // 8, int(found[2])
    elements = 8 * width // bits  # a lane
    lane, place = np.arange(16)[:, None], np.arange(elements)[None, :]
    from_lane, from_place = (16 // elements) * place + lane // elements, lane % elements

    def run(w):
        words = np.stack(_load(w, instruction, address(w), width), axis=-1)
        read = np.unpackbits(words.view(U8), axis=-1, bitorder="little")
        read = read.reshape(w.size, w.lanes // 16, 16, elements, bits)
        turned = read[:, :, from_lane, from_place].reshape(w.size, w.lanes, 8 * width)
        turned = np.packbits(turned, axis=-1, bitorder="little").view(U32)
        for word in range(width // 4):
            w.write(w.V[result.index + word], turned[..., word])

    return run
