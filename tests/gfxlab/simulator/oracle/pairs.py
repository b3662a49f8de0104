"""Two results at once, against the pseudocode: packed instructions (VOP3P) and dual issue (VOPD)."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from one_instruction import execute, steps
from oracle import assembler
from oracle.bits import Bits, decode
from oracle.interpreter import Interpreter
from oracle.numbers_to_try import operand

from gfxlab.simulator.core.operands import VCC
from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.registry import Unknown

_RESULT, _OTHER, _FIRST = 10, 11, 20
# v_pk_mov is left out: the guides cut its sources to 32 bits before they choose a half
_PACKED = re.compile(r"v_pk_(?!mov)\w+_(f32|f16|[iu]16|b16)$|v_(fma|mad)_mix(|lo|hi)_f(32|16)$")
_DUAL = "fmac_f32 mul_f32 add_f32 sub_f32 subrev_f32 mul_dx9_zero_f32 mov_b32 cndmask_b32 max_f32 min_f32"
_SECOND_ONLY = ("add_nc_u32", "lshlrev_b32", "and_b32")


@dataclass(frozen=True)
class Trial:
    """A text. count: sources. bits: of the sources' registers that each place chooses, by a packed instruction."""

    name: str
    text: str
    count: int
    modifiers: tuple[tuple[str, tuple[int, ...]], ...] = ()
    absolute: tuple[int, ...] = ()
    clamp: bool = False

    def chosen(self, name: str, default: int) -> tuple[int, ...]:
        return dict(self.modifiers).get(name, (default,) * self.count)


def trials(names: list[str], arch: str, chance: random.Random) -> list[Trial]:
    """Of every packed instruction and every pair the forms that LLVM knows and the simulator executes."""
    found = [trial for name in names if _PACKED.match(name) for trial in _packed(name, chance)]
    found += [] if Target(arch).cdna else [*_duals(arch)]
    kept = {}
    for trial, text in zip(found, assembler.canonical([one.text for one in found], arch)):
        if text and not any(isinstance(step, Unknown) for step in steps(text, arch)):
            kept.setdefault(text, trial)
    return list(kept.values())


def _packed(name: str, chance: random.Random) -> Iterator[Trial]:
    wide = name.endswith(("_f32", "_b32")) and "mix" not in name
    floats, mixed = "_f" in name, "mix" in name
    for count in (2, 3):
        registers = [_span(_FIRST + 2 * i, 2 if wide else 1) for i in range(count)]
        for attempt in range(8):
            pick = partial(_bits, count, chance)
            chosen = {"op_sel": pick(), "op_sel_hi": pick()} if attempt or mixed else {}
            negated = attempt > 3 and floats and "mov" not in name
            chosen |= {"neg_lo": pick(), "neg_hi": pick()} if negated and not mixed else {}
            sources, absolute = registers, ()
            if mixed and negated:
                minus, absolute = pick(), pick()
                signs = zip(registers, minus, absolute)
                sources = [("-" if m else "") + (f"|{r}|" if a else r) for r, m, a in signs]
                chosen |= {"neg_lo": minus}
            clamp = attempt == 7 and floats and "mov" not in name
            shown = {k: v for k, v in chosen.items() if not (mixed and k == "neg_lo")}
            tail = " ".join(f"{k}:[{','.join(map(str, v))}]" for k, v in shown.items()) + (" clamp" if clamp else "")
            text = f"{name} {_span(_RESULT, 2 if wide else 1)}, {', '.join(sources)} {tail}".rstrip()
            yield Trial(name, text, count, tuple(chosen.items()), absolute, clamp)


def _bits(count: int, chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.randint(0, 1) for _ in range(count))


def _span(first: int, words: int) -> str:
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def _duals(arch: str) -> Iterator[Trial]:
    """The second half reads the old value of what the first writes."""
    newer = arch.startswith("gfx12")
    names = [name.replace("x_f", "x_num_f").replace("n_f", "n_num_f") if newer and name[:2] in ("ma", "mi") else name
             for name in _DUAL.split()]  # fmt: skip
    for first, second in itertools.product(names, [*names, *_SECOND_ONLY]):
        one = f"v_dual_{first} v{_RESULT}, v20" + ("" if first.startswith("mov") else ", v25")
        two = f"v_dual_{second} v{_OTHER}, v23" + ("" if second.startswith("mov") else f", v{_RESULT}")
        yield Trial(f"v_dual_{first} {second}", f"{one} :: {two}", 2)


class PairJudge:
    """text_of: an instruction's pseudocode by its name."""

    def __init__(self, arch: str, text_of: Callable[[str], str | None], chance: random.Random):
        self.target, self.text_of, self.chance = Target(arch), text_of, chance
        self.lanes = self.target.lanes

    def judge(self, trial: Trial) -> str | None:
        """How it differs from the pseudocode, or None.

        Raises:
            Unsupported: the pseudocode cannot be followed.
        """
        kind = (re.search(r"_([fiu]16|f32)", trial.name) or ("", "u32"))[1]
        kind = "f32" if "dual" in trial.name else "f16" if "mix" in trial.name else kind
        registers = (_RESULT, _OTHER, *range(_FIRST, _FIRST + 6))
        V = {place: self._numbers(kind) for place in registers}
        on = np.array([self.chance.random() < 0.9 for _ in range(self.lanes)])
        vcc = np.array([self.chance.random() < 0.5 for _ in range(self.lanes)])
        w = execute(trial.text, arch=self.target.arch, V=V, lanes_on=on, vcc=vcc)
        for lane in range(self.lanes):
            old = {place: int(numbers[lane]) for place, numbers in V.items()}
            expected = self._dual if "dual" in trial.name else self._packed
            wanted = expected(trial, old, bool(vcc[lane])) if on[lane] else (old[_RESULT], old[_OTHER])
            found = int(w.V[_RESULT, 0, lane]), int(w.V[_OTHER, 0, lane])
            if not all(_alike(a, b, kind, trial.name) for a, b in zip(found, wanted)):
                shown = {f"v{place}": hex(number) for place, number in old.items()}
                return f"{trial.text} of {shown}: {[*map(hex, found)]}, not {[*map(hex, wanted)]}"
        assert int(w.lane_mask(VCC).sum()) == int(vcc.sum())
        return None

    def _numbers(self, kind: str) -> np.ndarray:
        return np.array([operand(kind, self.chance) & 0xFFFFFFFF for _ in range(self.lanes)], np.uint32)

    def _dual(self, trial: Trial, old: dict[int, int], vcc: bool) -> tuple[int, int]:
        first, second = trial.name.removeprefix("v_dual_").split()
        return (
            self._half(first, old[_RESULT], old[20], old[25], vcc),
            self._half(second, old[_OTHER], old[23], old[_RESULT], vcc),
        )

    def _half(self, name: str, old: int, a: int, b: int, vcc: bool) -> int:
        names = {"S0": Bits(a, 32), "S1": Bits(b, 32), "D0": Bits(old, 32), "VCC": Bits(int(vcc), 64)}
        names |= {"laneId": Bits(0, 32, "u"), "WAVE64": Bits(0, 1), "WAVE32": Bits(1, 1)}
        interpreter = Interpreter(names, self.text_of)
        interpreter.run(self.text_of(f"v_{name}"))
        return names["D0"].bits & 0xFFFFFFFF

    def _packed(self, trial: Trial, old: dict[int, int], vcc: bool) -> tuple[int, int]:
        wide = trial.name.endswith(("_f32", "_b32")) and "mix" not in trial.name
        before = old[_RESULT] | old[_OTHER] << 32
        names = {"D0": Bits(before, 64 if wide else 32)}
        if "mix" in trial.name:
            names |= self._mixed_sources(trial, old)
        else:
            names |= {f"S{i}": self._source(trial, i, old, 32 if wide else 16) for i in range(trial.count)}
        interpreter = Interpreter(names, self.text_of)
        interpreter.run(self.text_of(trial.name))
        bits, written = names["D0"].bits, interpreter.written["D0"]
        bits = _clamped(bits, trial.name) if trial.clamp else bits
        bits = before & ~written | bits & written
        return bits & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF

    def _source(self, trial: Trial, i: int, old: dict[int, int], width: int) -> Bits:
        """Both halves as op_sel chooses them, their signs turned. v_pk_mov chooses by itself."""
        bits = old[_FIRST + 2 * i] | old[_FIRST + 2 * i + 1] << 32
        result, most = 0, (1 << width) - 1
        for place, (name, sign, default) in enumerate((("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1))):
            half = bits >> width * trial.chosen(name, default)[i] & most
            result |= (half ^ trial.chosen(sign, 0)[i] << (width - 1)) << width * place
        return Bits(result, 2 * width)

    def _mixed_sources(self, trial: Trial, old: dict[int, int]) -> dict[str, Bits]:
        names = {}
        for name, words in ("OPSEL", "op_sel"), ("OPSEL_HI", "op_sel_hi"):
            names[name] = Bits(sum(bit << i for i, bit in enumerate(trial.chosen(words, 0))), 3, "u")
        for i in range(trial.count):
            halves = trial.chosen("op_sel_hi", 0)[i]
            signs = 0x80008000 if halves else 0x80000000
            bits = old[_FIRST + 2 * i]
            bits = bits & ~signs if trial.absolute and trial.absolute[i] else bits
            names[f"S{i}"] = Bits(bits ^ (signs if trial.chosen("neg_lo", 0)[i] else 0), 32)
        return names


def _clamped(bits: int, name: str) -> int:
    width = 32 if name.endswith("f32") else 16
    one = {32: 0x3F800000, 16: 0x3C00}[width]
    result = 0
    for place in range(0, 64, width):
        half = bits >> place & ((1 << width) - 1)
        x = decode(half, width)
        result |= (half if 0 < x < 1 else one if x >= 1 else 0) << place
    return result


def _alike(found: int, wanted: int, kind: str, name: str) -> bool:
    """Equal; of floats any NaN is as good as another, and so is a zero's sign of a maximum or after a clamp."""
    if found == wanted or kind[0] != "f":
        return found == wanted
    width = 16 if kind == "f16" and not name.endswith("mix_f32") else 32
    for place in range(0, 32, width):
        a, b = (bits >> place & ((1 << width) - 1) for bits in (found, wanted))
        x, y = decode(a, width), decode(b, width)
        if a != b and not (x != x and y != y) and not (x == y == 0 and re.search("max|min", name)):
            return False
    return True
