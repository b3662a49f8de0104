"""Scalar instructions against the pseudocode: a wave for each set of operands."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from one_instruction import execute, steps
from oracle import assembler
from oracle.bits import Bits
from oracle.interpreter import Interpreter
from oracle.judge import Exactly, constant_bits
from oracle.numbers_to_try import operand
from oracle.texts import Source

from gfxlab.simulator.core.operands import EXEC
from gfxlab.simulator.core.values import WIDE
from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.registry import Unknown, plain_name
from gfxlab.simulator.instructions.scalar import TABLE

RESULT, WAVES = 10, 48
_FIRST = (2, 4, 6)  # the sources' first registers


@dataclass(frozen=True)
class Trial:
    """A text: its sources, the type of its result ("" for SCC alone), and a constant of 16 bits."""

    name: str
    text: str
    sources: tuple[Source, ...]
    result: str
    immediate: int | None = None


def trials(names: list[str], arch: str, chance: random.Random) -> list[Trial]:
    """Of every instruction the forms that LLVM knows and the simulator executes."""
    found = [trial for name in names for trial in _forms(name, Target(arch), chance)]
    kept: dict[str, Trial] = {}
    for trial, text in zip(found, assembler.canonical([one.text for one in found], arch)):
        if text and text.split()[0] == trial.name and not isinstance(steps(text, arch)[0], Unknown):
            kept.setdefault(text, Trial(trial.name, text, trial.sources, trial.result, trial.immediate))
    return list(kept.values())


def _forms(name: str, target: Target, chance: random.Random) -> Iterator[Trial]:
    op, wide = TABLE.get(plain_name(name)), name.endswith("_b64")
    if op is None and not re.search(f"(saveexec|wrexec)_b{target.lanes}", name):
        return
    result = "" if op and op.scc == "only" else op.result if op else "u64" if wide else "u32"
    if re.match(r"s_\w+k_i32|s_cmpk|s_movk|s_cmovk", name):
        immediate = chance.choice([0x1234, 0xF234, 1, 0xFFFF])
        place = "s2" if name.startswith("s_cmpk") else f"s{RESULT}"
        sources = (Source(op.kinds(2)[0], "s", 2),) if name.startswith("s_cmpk") else ()
        yield Trial(name, f"{name} {place}, {immediate:#x}", sources, result, immediate)
        return
    for count in (1, 2, 3):
        if op is None:
            kinds = ("u64" if wide else "u32",)
        else:
            kinds = op.reads if isinstance(op.reads, tuple) else (op.reads,) * (count + op.accumulates)
            kinds = kinds[1:] if op.accumulates else kinds
        registers = tuple(Source(kind, "s", first) for kind, first in zip(kinds, _FIRST))
        yield _trial(name, registers, result, target)
        for i, source in enumerate(registers):
            numbers = [chance.choice([0, 1, 64, -1, -16]), chance.choice([0x3F9D70A4, 0xF0123456, 0x12345])]
            numbers += [chance.choice([0.5, -4.0])] if source.kind[0] == "f" or chance.random() < 0.3 else []
            for number in numbers:
                literal = isinstance(number, int) and not -16 <= number <= 64
                changed = Source(source.kind, "constant", constant=number, literal=literal)
                yield _trial(name, (*registers[:i], changed, *registers[i + 1 :]), result, target)
        if op is None or isinstance(op.reads, tuple):
            return


def _trial(name: str, sources: tuple[Source, ...], result: str, target: Target) -> Trial:
    outputs = [_pair(RESULT, result)] if result else []
    inputs = [_pair(one.register, one.kind) if one.file == "s" else one.text(target) for one in sources]
    return Trial(name, f"{name} {', '.join([*outputs, *inputs])}", sources, result)


def _pair(first: int, kind: str) -> str:
    return f"s[{first}:{first + 1}]" if kind in WIDE else f"s{first}"


class ScalarJudge:
    """text_of: an instruction's pseudocode by its name."""

    def __init__(self, arch: str, text_of: Callable[[str], str | None], chance: random.Random):
        self.target, self.text_of, self.chance = Target(arch), text_of, chance

    def judge(self, trial: Trial) -> str | None:
        """How it differs from the pseudocode, or None.

        Raises:
            Unsupported: the pseudocode cannot be followed.
        """
        text, make = self.text_of(trial.name), lambda kind: [operand(kind, self.chance) for _ in range(WAVES)]
        data = [
            [constant_bits(source)] * WAVES if source.file == "constant" else make(source.kind)
            for source in trial.sources
        ]
        old, scc = make("u64"), [self.chance.random() < 0.5 for _ in range(WAVES)]
        on = np.array([[self.chance.random() < 0.7 for _ in range(self.target.lanes)] for _ in range(WAVES)])
        S = {RESULT: _words(old, 0), RESULT + 1: _words(old, 1)}
        for source, numbers in zip(trial.sources, data):
            if source.file == "s":
                S |= {source.register: _words(numbers, 0), source.register + 1: _words(numbers, 1)}
        w = execute(trial.text, arch=self.target.arch, S=S, waves=WAVES, lanes_on=on, scc=np.array(scc, bool))
        for wave in range(WAVES):
            shown = ", ".join(hex(numbers[wave]) for numbers in data)
            mask = sum(int(bit) << lane for lane, bit in enumerate(on[wave]))
            names = self._names(trial, [numbers[wave] for numbers in data], old[wave], scc[wave], mask)
            interpreter = Interpreter(names, self.text_of)
            interpreter.run(text)
            found = int(w.S[wave, RESULT]) | int(w.S[wave, RESULT + 1]) << 32
            found_mask = int(w.S[wave, EXEC]) | (int(w.S[wave, EXEC + 1]) << 32 if self.target.lanes == 64 else 0)
            checks = [("SCC", int(w.SCC[wave]), Exactly(int(names["SCC"].truth)))]
            checks.append(("EXEC", found_mask, Exactly(names["EXEC"].bits & ((1 << self.target.lanes) - 1))))
            checks.append(("result", found, self._result(trial, interpreter, old[wave])))
            for what, number, wanted in checks:
                if not wanted(number):
                    return f"{trial.text} of {shown}, SCC {scc[wave]}: {what} {number:#x}, not {wanted.described}"
        return None

    def _names(self, trial: Trial, data: list[int], old: int, scc: bool, mask: int) -> dict[str, Bits]:
        wave64 = int(self.target.cdna)
        names = {"SCC": Bits(int(scc), 1, "u"), "EXEC": Bits(mask, 64), "VCC": Bits(0, 64)}
        width = 64 if trial.result in WIDE else 32
        names |= {"D0": Bits(old, width), "WAVE64": Bits(wave64, 1), "WAVE32": Bits(1 - wave64, 1)}
        for place, (source, number) in enumerate(zip(trial.sources, data)):
            names[f"S{place}"] = Bits(number, 64 if source.kind in WIDE else 32)
        if trial.immediate is not None:
            names[f"S{len(data)}"] = names["SIMM16"] = Bits(trial.immediate, 16)
        if re.search("fmaak|fmamk", trial.name) and len(data) == 3:
            names["SIMM32"] = names["S2"] if "fmaak" in trial.name else names["S1"]
            if "fmamk" in trial.name:
                names["S1"] = names["S2"]
        return names

    def _result(self, trial: Trial, interpreter: Interpreter, old: int):
        if not trial.result:
            return Exactly(old)
        wide = trial.result in WIDE
        bits = interpreter.names["D0"].bits & ((1 << (64 if wide else 32)) - 1)
        if "D0" not in interpreter.written:
            bits = old & ((1 << (64 if wide else 32)) - 1)
        if trial.name == "s_cvt_pk_rtz_f16_f32":
            return _Pair(bits)
        if trial.result[0] == "f":
            return _Float(bits, trial.result, bool(interpreter.approximate))
        return Exactly(bits if wide else bits | old >> 32 << 32)


class _Float:
    """Any NaN is as good as another; a transcendental function may be one place off; half a register is half a one."""

    def __init__(self, bits: int, kind: str, approximate: bool):
        self.width = 16 if kind == "f16" else 32
        self.bits, self.approximate = bits & ((1 << self.width) - 1), approximate
        self.described = hex(self.bits)

    def __call__(self, found: int) -> bool:
        found &= (1 << self.width) - 1
        x, y = (Bits(bits, self.width, "f").number for bits in (found, self.bits))
        if x != x and y != y or x == y == 0:
            return True
        return abs(found - self.bits) <= int(self.approximate)


class _Pair:
    """Two float16."""

    def __init__(self, bits: int):
        self.halves = [_Float(bits >> shift, "f16", False) for shift in (0, 16)]
        self.described = hex(bits)

    def __call__(self, found: int) -> bool:
        return all(half(found >> shift) for half, shift in zip(self.halves, (0, 16)))


def _words(numbers: list[int], word: int) -> np.ndarray:
    return np.array([number >> 32 * word & 0xFFFFFFFF for number in numbers], np.uint32)
