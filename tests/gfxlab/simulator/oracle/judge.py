"""Runs a trial on the simulator and holds every lane of it against the pseudocode."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass

import numpy as np
from one_instruction import execute
from oracle.bits import Bits, Unsupported, encode
from oracle.interpreter import Interpreter
from oracle.numbers_to_try import operand
from oracle.texts import PARTS, RESULT, Source, Trial

from gfxlab.simulator.core.operands import EXEC, VCC
from gfxlab.simulator.core.values import NARROW, WIDE
from gfxlab.simulator.instructions import Target

_TURN = {"f64": 0x3FC45F306DC9C882, "f32": 0x3E22F983, "f16": 0x3118}


@dataclass(frozen=True)
class Disagreement:
    """Where simulator and pseudocode differ: in the first such lane, of these operands, this was wanted and found."""

    trial: Trial
    operands: tuple[str, ...]
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.trial.text} of {', '.join(self.operands)}: {self.wanted}, not {self.found}"


class Judge:
    """text_of: an instruction's pseudocode by its name."""

    def __init__(self, arch: str, text_of, chance: random.Random):
        self.arch, self.target, self.text_of, self.chance = arch, Target(arch), text_of, chance
        self.lanes = self.target.lanes
        self.waves = 128 // self.lanes

    def judge(self, trial: Trial) -> Disagreement | None:
        """The first disagreement, or None.

        Raises:
            Unsupported: the pseudocode cannot be followed.
        """
        text = self.text_of(trial.name)
        shape = self.waves, self.lanes
        data = [self._data(source, shape) for source in trial.sources]
        old = self._data(Source("u64", "v"), shape)
        if trial.op.accumulates:
            old = self._data(Source(trial.results[0], "v"), shape)
        on = np.array([[self.chance.random() < 0.9 for _ in range(self.lanes)] for _ in range(self.waves)])
        vcc = np.array([[self.chance.random() < 0.5 for _ in range(self.lanes)] for _ in range(self.waves)])
        w = self._run(trial, data, old, on, vcc)
        for wave, lane in np.ndindex(*shape):
            wanted, found = self._lane(trial, text, w, data, old, on, vcc, wave, lane)
            if wanted is not None and not wanted(found):
                shown = tuple(hex(int(x[wave, lane])) for x in data)
                return Disagreement(trial, shown, wanted.described, f"{found:#x} in lane {lane}")
        return None

    def _data(self, source: Source, shape: tuple[int, int]) -> np.ndarray:
        """The operand's bits in every lane; a scalar register's are the same in all lanes of a wave."""
        waves, lanes = shape
        if source.file == "constant":
            return np.full(shape, constant_bits(source), object)
        if source.file == "s":
            return np.array([[operand(source.kind, self.chance)] * lanes for _ in range(waves)], object)
        kind = "u32" if source.kind == "mask" else source.kind
        return np.array([[operand(kind, self.chance) for _ in range(lanes)] for _ in range(waves)], object)

    def _run(self, trial: Trial, data: list, old: np.ndarray, on: np.ndarray, vcc: np.ndarray):
        V = {RESULT: old & 0xFFFFFFFF, RESULT + 1: old >> 32}
        S = {}
        for source, bits in zip(trial.sources, data):
            for word in range(2 if source.kind in WIDE else 1):
                part = bits >> 32 * word & 0xFFFFFFFF
                if source.file == "v":
                    V[source.register + word] = part
                elif source.file == "s":
                    S[source.register + word] = part[:, 0]
        V = {number: bits.astype(np.uint32) for number, bits in V.items()}
        S = {number: bits.astype(np.uint32) for number, bits in S.items()}
        return execute(trial.text, arch=self.arch, V=V, S=S, waves=self.waves, lanes_on=on, vcc=vcc)

    # ---- one lane ----------------------------------------------------------------------------------------------------

    def _lane(self, trial: Trial, text: str, w, data, old, on, vcc, wave: int, lane: int):
        """What is wanted (a test of what is found; None: anything), and what is found."""
        results = trial.results
        if results[0] != "mask":
            found = int(w.V[RESULT, wave, lane]) | int(w.V[RESULT + 1, wave, lane]) << 32
        else:
            place = EXEC if trial.name.startswith("v_cmpx") else VCC
            found = int(w.lane_mask(place)[wave, lane])
        before = int(old[wave, lane])
        if not on[wave, lane]:
            return (Exactly(before) if results[0] != "mask" else None), found
        source_lane, reached = self._other_lane(trial, lane, on[wave])
        if not reached and "bound_ctrl" not in trial.dpp:
            return (Exactly(before) if results[0] != "mask" else None), found
        names = self._names(trial, data, before, bool(vcc[wave, lane]), wave, lane, source_lane if reached else None)
        interpreter = Interpreter(names, self.text_of)
        interpreter.run(text)
        if results[0] == "mask":
            return Exactly(self._bit(trial, interpreter, lane)), found
        if "mask" in results:
            bit, found_bit = self._bit(trial, interpreter, lane), int(w.lane_mask(VCC)[wave, lane])
            if bit != found_bit:
                return Exactly(bit, "of VCC"), found_bit
        written = interpreter.written.get("D0", 0)
        if not written:
            raise Unsupported("nothing is written")
        return Result(trial, names["D0"].bits, written, before, self.target.cdna, interpreter.approximate), found

    def _other_lane(self, trial: Trial, lane: int, on: np.ndarray) -> tuple[int, bool]:
        if not trial.dpp:
            return lane, True
        name, _, argument = trial.dpp.partition(" ")[0].partition(":")
        row, place = lane & ~15, lane & 15
        n = int(argument) if argument.isdigit() else 0
        source, exists = {
            "quad_perm": ((lane & ~3) | (1, 3, 0, 2)[lane & 3], True),
            "row_shl": (lane + n, place + n < 16),
            "row_shr": (lane - n, place >= n),
            "row_ror": (row | (place - n & 15), True),
            "row_mirror": (row | 15 - place, True),
            "row_half_mirror": (lane & ~7 | 7 - (lane & 7), True),
            "row_newbcast": (row | n, True),
            "row_share": (row | n, True),
            "row_xmask": (lane ^ n, True),
        }[name]
        return source, exists and bool(on[source])

    def _names(self, trial: Trial, data, before: int, vcc: bool, wave: int, lane: int, source_lane) -> dict:
        wave64 = int(self.target.cdna)
        names = {"laneId": Bits(lane, 32, "u"), "WAVE64": Bits(wave64, 1), "WAVE32": Bits(1 - wave64, 1)}
        names |= {"EXEC": Bits((1 << self.lanes) - 1, 64), "VCC": Bits(int(vcc) << lane, 64), "D1": Bits(0, 64)}
        names["D0"] = (
            Bits(before >> 16 & 0xFFFF if trial.high else before, 64) if trial.results[0] != "mask" else Bits(0, 64)
        )
        for place, source in enumerate(trial.sources):
            if source.kind == "mask":
                names[f"S{place}"] = names["VCC"]
                continue
            at = source_lane if place == 0 else lane
            bits = 0 if at is None else int(data[place][wave, at])
            names[f"S{place}"] = Bits(_modified(source, bits), 64 if source.kind in WIDE else 32)
        literal = {"fmaak": 2, "madak": 2, "fmamk": 1, "madmk": 1}.get(trial.name.split("_")[1])
        if literal is not None:
            names["SIMM32"] = names["SIMM16"] = names[f"S{literal}"]
            if literal == 1:
                names["S1"] = names["S2"]
        return names

    def _bit(self, trial: Trial, interpreter: Interpreter, lane: int) -> int:
        names = interpreter.names
        if "VCC_WHOLE" in names:
            return int(names["VCC_WHOLE"].bits != 0)
        if trial.name.startswith("v_cmp"):
            exec_only = trial.name.startswith("v_cmpx") and not self.target.cdna
            return names["EXEC" if exec_only else "D0"].bits >> lane & 1
        return names["D1"].bits & 1 if "D1" in interpreter.written else names["VCC"].bits >> lane & 1


def constant_bits(source: Source) -> int:
    """By the guides: an inline float has the operand's format; a literal is a float64's high half."""
    number, kind = source.constant, source.kind
    width = 64 if kind in WIDE else 16 if kind in NARROW else 32
    if isinstance(number, float):
        return encode(number, 32) >> 16 if kind == "bf16" else encode(number, width)
    if source.literal and kind == "f64":
        return number << 32
    if source.literal and kind == "i64" and number >> 31:
        number -= 1 << 32
    return number & ((1 << width) - 1)


def _modified(source: Source, bits: int) -> int:
    width = 64 if source.kind in WIDE else 32
    if source.part:
        shift, size = PARTS[source.part]
        bits = bits >> shift & (1 << size) - 1
        if source.extend and bits >> (size - 1):
            bits |= 0xFFFFFFFF & ~((1 << size) - 1)
    if source.kind in NARROW:
        bits, width = (bits >> 16 if source.high else bits) & 0xFFFF, 16
    sign = 1 << (width - 1)
    bits = bits & ~sign if source.absolute else bits
    return bits ^ sign if source.negate else bits


class Exactly:
    def __init__(self, bits: int, what: str = ""):
        self.bits, self.described = bits, f"{bits:#x} {what}".strip()

    def __call__(self, found: int) -> bool:
        return found & ((1 << 64) - 1) == self.bits


class Result:
    """A test of the result register: equal bits; any NaN is as good as another, functions may be one place off."""

    def __init__(self, trial: Trial, bits: int, written: int, before: int, cdna: bool, approximate: bool):
        self.trial, self.kind, self.before, self.cdna = trial, trial.results[0], before, cdna
        self.approximate = approximate or re.search("rcp|rsq", trial.name)
        half = self.kind == "f16" or written.bit_length() == 16
        self.width = 64 if self.kind in WIDE else 16 if half else 32
        self.bits = self._finished(bits & written)
        self.whole = self._placed(self.bits)
        self.described = hex(self.whole)

    def __call__(self, found: int) -> bool:
        if self.kind not in WIDE:
            found &= 0xFFFFFFFF
        pair_of_halves = re.search("_b?f16_f32", self.trial.name) and self.kind in ("u32", "2f16")
        if found == self.whole or pair_of_halves and self._same_halves(found):
            return True
        shift, size = PARTS[self.trial.part[0]] if self.trial.part else (16 * self.trial.high, self.width)
        if self.kind[0] != "f" or size < self.width:
            return self.approximate or self._is_nan(self.bits)
        number = found >> shift & ((1 << self.width) - 1)
        return self._placed(number) == found and self._near(number)

    def _same_halves(self, found: int) -> bool:
        infinity = 0x7F80 if "bf16" in self.trial.name else 0x7C00
        halves = [(found >> s & 0xFFFF, self.whole >> s & 0xFFFF) for s in (0, 16)]
        return all(a == b or min(a & 0x7FFF, b & 0x7FFF) > infinity for a, b in halves)

    def _near(self, number: int) -> bool:
        sign = 1 << (self.width - 1)
        if self._is_nan(number) and self._is_nan(self.bits):
            return True
        if (number | self.bits) & ~sign == 0:  # the sign of zero of a maximum, or of what was clamped
            return self.trial.clamp or bool(re.search("max|min|med", self.trial.name))
        steps = 4 if self.trial.factor != 1 else 1
        return bool(self.approximate) and abs(number - self.bits) <= steps

    def _is_nan(self, bits: int) -> bool:
        return self.kind[0] == "f" and math.isnan(Bits(bits, self.width, "f").number)

    def _finished(self, bits: int) -> int:
        if self.trial.clamp or self.trial.factor != 1:
            x = Bits(encode(Bits(bits, self.width, "f").number * self.trial.factor, self.width), self.width, "f").number
            x = (min(x, 1.0) if x > 0 else 0.0) if self.trial.clamp else x
            return encode(x, self.width)
        return bits

    def _placed(self, bits: int) -> int:
        """The whole register with these bits of the result in it."""
        old = self.before & 0xFFFFFFFF
        if self.kind in WIDE:
            return bits
        if self.trial.part:
            shift, size = PARTS[self.trial.part[0]]
            field = (1 << size) - 1
            return (bits & field) << shift | (old & ~(field << shift) if self.trial.part[1] else 0)
        if self.kind not in NARROW:
            return bits & 0xFFFFFFFF
        if self.trial.high:
            return old & 0xFFFF | (bits & 0xFFFF) << 16
        keeps = not self.cdna or "op_sel" in self.trial.tail
        return bits & 0xFFFF | (old & 0xFFFF0000 if keeps else 0)
