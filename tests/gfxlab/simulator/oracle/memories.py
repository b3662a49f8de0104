"""Loads, stores and atomics against the pseudocode: a piece of memory for each lane, so that no two lanes meet."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from one_instruction import execute, steps
from oracle import assembler
from oracle.bits import Bits, decode
from oracle.interpreter import Interpreter, Memory
from oracle.numbers_to_try import operand

from gfxlab.simulator.core.memory import GlobalMemory
from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.registry import Unknown

PIECE = 1104  # bytes a lane: room for two elements of 8 bytes that are 64 elements apart
_ADDRESS, _FIRST, _SECOND, _RESULT, _BASE, _RESOURCE = 2, 20, 24, 10, 4, 8  # registers
_WAVES = 2


@dataclass(frozen=True)
class Access:
    """A text; words of its result and of its data; offsets: one in bytes, or two in elements."""

    name: str
    text: str
    result: int
    data: int
    twice: bool


def accesses(names: list[str], arch: str) -> list[Access]:
    """Of every instruction the forms that LLVM knows."""
    alone = (name for name in names if not re.search("swizzle|permute", name))  # they know no address
    found = [one for name in alone for one in _forms(name, Target(arch))]
    known: dict[tuple, Access] = {}
    for access, text in zip(found, assembler.canonical([one.text for one in found], arch)):
        if text and text.split()[0] == access.name:
            tail = re.sub(r"v\[?\d+(:\d+)?\]?", "v", text)  # the first, shortest form of each kind of address
            known.setdefault((access.name, tail), Access(access.name, text, *_rest(access)))
    return [one for one in known.values() if not isinstance(steps(one.text, arch)[0], Unknown)]


def _rest(access: Access) -> tuple[int, int, bool]:
    return access.result, access.data, access.twice


def _span(first: int, words: int) -> str:
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def _forms(name: str, target: Target) -> Iterator[Access]:
    loads = re.search(r"_(load|read)", name)
    stores = re.search(r"_(store|write)(?!xchg)", name)
    silent = stores or name.startswith("ds") and not loads and "_rtn" not in name
    for result in (1, 2, 3, 4) if not silent else (0,):
        for data in (1, 2, 3, 4) if not loads else (0,):
            make = {"d": _ds, "g": _global, "b": _buffer}[name[0]]
            yield from make(name, result, data, target)


def _ds(name: str, result: int, data: int, target: Target) -> Iterator[Access]:
    twice = bool(re.search(r"2st64|2addr|(read|write|xchg)2", name))
    tail = "offset0:1 offset1:2" if twice else "offset:16"
    sources = [_span(_FIRST, data), _span(_SECOND, data)] if data else []
    for count in range(len(sources) + 1) if data else (0,):
        if data and not count:
            continue
        places = [_span(_RESULT, result)] if result else []
        yield Access(name, f"{name} {', '.join([*places, 'v2', *sources[:count]])} {tail}", result, data, twice)
        if result and data:
            yield Access(name, f"{name} {', '.join(['v2', *sources[:count]])} {tail}", 0, data, twice)


def _global(name: str, result: int, data: int, target: Target) -> Iterator[Access]:
    returns = ("sc0", "glc", "th:TH_ATOMIC_RETURN") if result and data else ("",)
    for address, base in ("v[2:3]", "off"), ("v2", "s[4:5]"):
        places = [_span(_RESULT, result)] if result else []
        places += [address, *([_span(_FIRST, data)] if data else []), base]
        for flag in returns:
            yield Access(name, f"{name} {', '.join(places)} offset:16 {flag}".rstrip(), result, data, False)
        if result and data:
            yield Access(name, f"{name} {', '.join(places[1:])} offset:16", 0, data, False)


def _buffer(name: str, result: int, data: int, target: Target) -> Iterator[Access]:
    scalar = "null" if target.arch.startswith("gfx12") else "0"
    if result and data and result != data and result * 2 != data:
        return
    place = _span(_FIRST if data else _RESULT, data or result)
    for flag in ("sc0", "glc", "th:TH_ATOMIC_RETURN") if result and data else ("",):
        tail = f"v2, s[8:11], {scalar} offen offset:16 {flag}".rstrip()
        yield Access(name, f"{name} {place}, {tail}", result, data, False)
    if result and data:
        yield Access(name, f"{name} {place}, v2, s[8:11], {scalar} offen offset:16", 0, data, False)


class MemoryJudge:
    """text_of: an instruction's pseudocode by its name."""

    def __init__(self, arch: str, text_of: Callable[[str], str | None], chance: random.Random):
        self.target, self.text_of, self.chance = Target(arch), text_of, chance
        self.lanes = self.target.lanes

    def judge(self, access: Access) -> str | None:
        """How it differs from the pseudocode, or None.

        Raises:
            Unsupported: the pseudocode cannot be followed.
        """
        text = self.text_of(access.name)
        kind = (re.search(r"_(bf16|f16|f32|f64)", access.name) or ("", "u32"))[1]
        shape = _WAVES, self.lanes
        before = self._numbers(kind, (*shape, PIECE // 8))
        before[1:] = before[0]  # every workgroup's LDS begins alike
        data = self._numbers(kind, (*shape, 4))  # two sources of up to two words, or one of four
        old = self._numbers("u32", (*shape, 2))
        on = np.array([[self.chance.random() < 0.9 for _ in range(self.lanes)] for _ in range(_WAVES)])
        found, memory = self._run(access, before, data, old, on)
        for wave, lane in np.ndindex(*shape):
            initial = before[wave, lane].tobytes()
            first = int.from_bytes(data[wave, lane].tobytes(), "little")
            previous = int.from_bytes(old[wave, lane].tobytes(), "little")
            if access.name.startswith("buffer") and access.data:  # the result's registers are those of the data
                previous = first & (1 << 128) - 1
            wanted_memory, wanted, mask = initial, previous, 0
            if on[wave, lane]:
                wanted_memory, wanted, mask = self._expected(access, text, initial, first, previous)
            wanted = previous & ~mask | wanted & mask if access.result else previous
            place = f"lane {lane} of wave {wave}: "
            if not _same(memory[wave, lane].tobytes(), wanted_memory, kind):
                return f"{access.text}: memory, {place}{_first_difference(memory[wave, lane].tobytes(), wanted_memory)}"
            if not _same(_bytes(found[wave, lane]), _bytes(wanted), kind):
                return f"{access.text}: {place}{int(found[wave, lane]):#x}, not {wanted:#x}"
        return None

    def _numbers(self, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        """uint64 of the kind's edges; each half of 32-bit numbers is one."""
        narrow = "f16" if kind == "f16" else "u32" if kind == "bf16" else kind
        if kind == "f64":
            make = lambda: operand("f64", self.chance)  # noqa: E731
        else:
            make = lambda: operand(narrow, self.chance) | operand(narrow, self.chance) << 32  # noqa: E731
        return np.array([make() for _ in range(int(np.prod(shape)))], np.uint64).reshape(shape)

    def _expected(self, access: Access, text: str, initial: bytes, data: int, old: int):
        memory = Memory(initial)
        width = 32 * max(access.data, 1)
        base = 0 if access.twice else 16
        names = {"MEM": memory, "DATA": Bits(data, width), "VDATA": Bits(data if access.data else 0, max(width, 128))}
        second = data >> 128
        names |= {"DATA2": Bits(second, width), "ADDR": Bits(base, 64, "u"), "ADDR_BASE": Bits(base, 64, "u")}
        names |= {"OFFSET": Bits(0, 32, "u"), "OFFSET0": Bits(1, 32, "u"), "OFFSET1": Bits(2, 32, "u")}
        names |= {"RETURN_DATA": Bits(old, 128)}
        if not access.data:
            names["VDATA"] = Bits(old, 128)
        interpreter = Interpreter(names, self.text_of)
        interpreter.run(text)
        name = "RETURN_DATA" if "RETURN_DATA" in interpreter.written else "VDATA"
        written = interpreter.written.get(name, 0)
        return bytes(memory.content), interpreter.names[name].bits if written else old, written

    def _run(self, access: Access, before, data, old, on):
        V, S = {}, {}
        lane = np.arange(self.lanes)
        data_words, old_words = data.view(np.uint32), old.view(np.uint32)
        for word in range(4):
            V[_FIRST + word] = data_words[..., word]
            V[_RESULT + word] = old_words[..., word]
        for word in range(4):
            V[_SECOND + word] = data_words[..., 4 + word]
        options = {}
        if access.name.startswith("ds_"):
            V[_ADDRESS] = np.broadcast_to(lane * PIECE, on.shape).astype(np.uint32)
            options["lds"] = before[0].view(np.uint8).reshape(-1)
        storage = torch.from_numpy(before.view(np.uint8).reshape(-1).copy())
        memory = GlobalMemory()
        base = memory.add_tensor("x", storage)
        if not options:
            place = np.arange(on.size).reshape(on.shape) * PIECE
            wide = re.search(r"v\[2:3\]", access.text)
            address = (base + place if wide else place).astype(np.uint64)
            V[_ADDRESS], V[_ADDRESS + 1] = address.astype(np.uint32), (address >> np.uint64(32)).astype(np.uint32)
            S[_BASE], S[_BASE + 1] = np.uint32(base & 0xFFFFFFFF), np.uint32(base >> 32)
            S[_RESOURCE], S[_RESOURCE + 1] = S[_BASE], S[_BASE + 1]
            S[_RESOURCE + 2], S[_RESOURCE + 3] = np.uint32(0x7FFFFFFF), np.uint32(0)
            w = execute(access.text, arch=self.target.arch, V=V, S=S, waves=_WAVES, lanes_on=on, memory=memory)
            after = storage.numpy().reshape(*on.shape, PIECE)
        else:
            w = execute(access.text, arch=self.target.arch, V=V, waves=_WAVES, lanes_on=on, **options)
            content = w.lds.content.reshape(_WAVES, -1)
            after = content[:, : PIECE * self.lanes].reshape(*on.shape, PIECE)
        first = _FIRST if access.name.startswith("buffer") and access.data else _RESULT
        found = sum(w.V[first + i].astype(object) << 32 * i for i in range(4))
        return found, after


def _bytes(number: int) -> bytes:
    return int(number).to_bytes(16, "little")


def _first_difference(found: bytes, wanted: bytes) -> str:
    at = next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b) & ~7
    return f"{found[at : at + 8].hex()} at {at}, not {wanted[at : at + 8].hex()}"


def _same(found: bytes, wanted: bytes, kind: str) -> bool:
    """Equal; where numbers are floats, any NaN is as good as another, and zeros are alike."""
    if found == wanted:
        return True
    if kind == "u32":
        return False
    size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[kind]
    for at in range(0, len(found), size):
        a, b = (int.from_bytes(x[at : at + size], "little") for x in (found, wanted))
        x, y = (decode(n, 8 * size, "bf" if kind == "bf16" else "f") for n in (a, b))
        if a != b and not (x != x and y != y) and x != y:
            return False
    return True
