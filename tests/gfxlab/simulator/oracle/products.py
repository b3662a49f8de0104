"""Matrix instructions by their definition: who holds which element, and sums in exact whole numbers.

It knows nothing of how the simulator computes: every element is put into its lane, register and bits by a formula, and
D = A B + C is summed in Python's integers. Formulas: AMD, "Matrix Instruction Calculator" (its general register
layouts); CDNA 3 ISA, section 7.1 (CBSZ, ABID, BLGP); CDNA 4 ISA (scales); RDNA 3 ISA, section 7.9; RDNA 4 ISA, 7.12.

What is not specified is how a sum is rounded on the way. `Product.admits` takes a result that is the exact sum rounded
once, or off by what sums in float64 may lose; results in integers are exact.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from exact import BF16, E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, F16, F32

A, B, C, D = 16, 64, 112, 176  # first registers
SCALES = (4, 5)
BITS = {"f64": 64, "f32": 32, "xf32": 32, "i32": 32, "f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "i8": 8, "u8": 8}
BITS |= {"fp6": 6, "bf6": 6, "fp4": 4, "i4": 4, "u4": 4}
F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by the number in cbsz and blgp
_SMALL = {"fp6": (2, 3, 1), "bf6": (3, 2, 3), "fp4": (2, 1, 1)}  # bits of exponent and mantissa, bias


@dataclass(frozen=True)
class Product:
    """One matrix instruction. shape: m, n, k, blocks. lanes: of a wave. modifiers: by name, as LLVM writes them."""

    name: str
    arch: str
    shape: tuple[int, int, int, int]
    kinds: tuple[str, str]
    result: str
    modifiers: dict[str, object] = field(default_factory=dict)

    # ---- who holds what ----------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        return 64 if self.arch.startswith("gfx9") else 32

    def operand_places(self, which: int) -> dict[tuple[int, int, int], list[tuple[int, int]]]:
        """(block, row of A or column of B, k): (lane, number of the element within the lane), all that hold it."""
        m, n, depth, blocks = self.shape
        rows, lanes = (m, n)[which], self.lanes
        every = [(b, i, k) for b in range(blocks) for i in range(rows) for k in range(depth)]
        if self.arch.startswith("gfx11"):  # both halves of the wave hold everything
            return {(b, i, k): [(i, k), (i + 16, k)] for b, i, k in every}
        if lanes == 32:
            half = depth // 2
            return {(b, i, k): [(i + 16 * (k // half), k % half)] for b, i, k in every}
        each = rows * depth * blocks // 64
        if "f8f6f4" in self.name and self.kinds[which] != "fp4":  # runs of 16, from both halves of k
            half = depth // 2
            group = lambda k: (k % half // 16, 16 * (k // half) + k % 16)  # noqa: E731
        else:
            group = lambda k: divmod(k, each)  # noqa: E731
        return {(b, i, k): [(i + rows * (b + blocks * group(k)[0]), group(k)[1])] for b, i, k in every}

    def result_places(self) -> dict[tuple[int, int, int], tuple[int, int]]:
        """(block, row, column) of C and D: (number of the element within the lane, lane)."""
        m, n, _, blocks = self.shape
        every = [(b, i, j) for b in range(blocks) for i in range(m) for j in range(n)]
        if self.arch.startswith("gfx11"):
            return {(b, i, j): (i // 2, j + 16 * (i % 2)) for b, i, j in every}
        if self.lanes == 32:
            return {(b, i, j): (i % 8, j + 16 * (i // 8)) for b, i, j in every}
        if self.result == "f64":
            if m == 16:
                return {(b, i, j): (i // 4, j + 16 * (i % 4)) for b, i, j in every}
            return {(b, i, j): (0, j + 4 * b + 16 * i) for b, i, j in every}
        if m == 4:
            return {(b, i, j): (i, j + 4 * b) for b, i, j in every}
        parts, each = 64 // n, m * n // 64
        return {(b, i, j): (each * b + 4 * (i // (4 * parts)) + i % 4, j + n * (i // 4 % parts)) for b, i, j in every}

    # ---- registers ---------------------------------------------------------------------------------------------------

    def registers_of(self, which: int) -> int:
        m, n, depth, blocks = self.shape
        each = (m, n)[which] * depth * blocks // self.lanes * (2 if self.arch.startswith("gfx11") else 1)
        return max(1, each * BITS[self.kinds[which]] // 32)

    @property
    def registers(self) -> int:
        """Of C and of D."""
        m, n, _, blocks = self.shape
        numbers = m * n * blocks // self.lanes
        return 8 if self.arch.startswith("gfx11") else numbers * BITS[self.result] // 32

    def text(self) -> str:
        """The instruction as assembly."""
        range_of = lambda first, count: f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"  # noqa: E731
        operands = [range_of(D, self.registers), range_of(A, self.registers_of(0)), range_of(B, self.registers_of(1))]
        operands += [range_of(C, self.registers), *(f"v{scale}" for scale in SCALES if "scale" in self.name)]
        tail = "".join(
            f" {name}:[{','.join(map(str, value))}]"
            if isinstance(value, tuple)
            else f" {name}:{value}"
            if value
            else ""
            for name, value in self.modifiers.items()
            if value is not True
        )
        return f"{self.name} {', '.join(operands)}{tail}" + (" clamp" if self.modifiers.get("clamp") else "")

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    def run(self, execute, chance: np.random.Generator) -> list[str]:
        """Execute it on random numbers; the first disagreements, as sentences."""
        codes = [self._codes(which, chance) for which in (0, 1)]
        old = self._old(chance)
        scales = chance.integers(120, 135, (2, 64)).astype(np.uint32)
        V = {D + n: np.full(self.lanes, 0x5A5A5A5A, np.uint32) for n in range(self.registers)}
        for first, which in ((A, 0), (B, 1)):
            V |= {first + n: word for n, word in enumerate(self._packed(which, codes[which]))}
        V |= {C + n: word for n, word in enumerate(old)}
        if "scale" in self.name:
            V |= {register: scales[n] << (8 * self._byte(n)) for n, register in enumerate(SCALES)}
        w = execute(self.text(), arch=self.arch, V=V, lanes_on=np.arange(self.lanes) % 3 == 0)  # they ignore EXEC
        left, right = (self._numbers(which, codes[which], scales[which]) for which in (0, 1))
        found = w.V[D : D + self.registers, 0]
        return self._disagreements(left, right, old, found)

    def _codes(self, which: int, chance: np.random.Generator) -> dict[tuple[int, int, int], int]:
        """Random codes of finite numbers, by (block, row or column, k)."""
        kind, found = self.kinds[which], {}
        for place in self.operand_places(which):
            while True:
                code = _random(kind if self.result != "f16" else "near f16", chance)
                if code is not None and _value(kind, code, self.arch) is not None:
                    break
            found[place] = code
        return found

    def _packed(self, which: int, codes: dict) -> np.ndarray:
        """The operand's registers [register, lane]."""
        bits = BITS[self.kinds[which]]
        words = [0] * self.lanes
        for place, holders in self.operand_places(which).items():
            for lane, number in holders:
                words[lane] |= codes[place] << bits * number
        return _words(words, self.registers_of(which))

    def _old(self, chance: np.random.Generator) -> np.ndarray:
        """C's registers."""
        if self.result == "i32":
            return chance.integers(-(2**31), 2**31, (self.registers, self.lanes)).astype(np.int32).view(np.uint32)
        size = {"f64": 2, "f32": 1}.get(self.result)
        if size is None:
            narrow = chance.standard_normal((self.registers, self.lanes, 2)).astype(np.float32)
            halves = narrow.astype(np.float16).view(np.uint16) if self.result == "f16" else narrow.view(np.uint32) >> 16
            return (halves[..., 0] | halves[..., 1].astype(np.uint32) << 16).astype(np.uint32)
        numbers = chance.standard_normal((self.registers // size, self.lanes)) * 8
        if size == 1:
            return numbers.astype(np.float32).view(np.uint32)
        return numbers.view(np.uint32).reshape(-1, self.lanes, 2).swapaxes(1, 2).reshape(-1, self.lanes)

    def _byte(self, which: int) -> int:
        low, high = self.modifiers.get("op_sel", (0, 0, 0)), self.modifiers.get("op_sel_hi", (0, 0, 0))
        return low[which] + 2 * high[which]

    def _numbers(self, which: int, codes: dict, scales: np.ndarray) -> dict[tuple[int, int, int], Fraction]:
        """What is multiplied: modifiers and scales are in it."""
        rows, blocks = self.shape[which], self.shape[3]
        held = {place: _value(self.kinds[which], code, self.arch) for place, code in codes.items()}
        if "scale" in self.name:
            return {
                (b, i, k): x * Fraction(2) ** (int(scales[i + rows * (k // 32)]) - 127) for (b, i, k), x in held.items()
            }
        if self.arch.startswith("gfx9") and "f8f6f4" not in self.name:
            held = self._chosen(which, held, blocks)
        return {(b, i, k): x * self._sign(which, k) for (b, i, k), x in held.items()}

    def _chosen(self, which: int, held: dict, blocks: int) -> dict:
        """After CBSZ and ABID, which lend a block of A to others, and BLGP, which lends lanes of B."""
        if which == 0:
            group, chosen = 1 << self.modifiers.get("cbsz", 0), self.modifiers.get("abid", 0)
            return {
                (b, i, k): held[b // group * group + chosen, i, k] if group > 1 else held[b, i, k] for b, i, k in held
            }
        pattern = self.modifiers.get("blgp", 0)
        if not pattern:
            return held
        size, first = (32, 32 * (pattern - 1)) if pattern < 3 else (16, 16 * (pattern - 4))
        places = self.operand_places(1)
        by_place = {holders[0]: place for place, holders in places.items()}
        return {place: held[by_place[first + lane % size, number]] for place, ((lane, number),) in places.items()}

    def _sign(self, which: int, k: int) -> int:
        if "neg" in self.modifiers:
            return -1 if self.modifiers["neg"][which] else 1
        if "iu" in self.name or self.lanes == 64:
            return 1
        return -1 if self.modifiers.get(("neg_lo", "neg_hi")[k % 2], (0, 0, 0))[which] else 1

    def _addend(self, number: Fraction) -> Fraction:
        if "neg" in self.modifiers:
            return -number if self.modifiers["neg"][2] else number
        if "iu" in self.name or self.lanes == 64:
            return number
        number = abs(number) if self.modifiers.get("neg_hi", (0, 0, 0))[2] else number
        return -number if self.modifiers.get("neg_lo", (0, 0, 0))[2] else number

    def _disagreements(self, left: dict, right: dict, old: np.ndarray, found: np.ndarray) -> list[str]:
        wrong = []
        unit = min((x.denominator for x in (*left.values(), *right.values())), default=1)
        unit = max(unit, *(x.denominator for x in (*left.values(), *right.values())))
        m, n, depth, blocks = self.shape
        whole = [{place: int(x * unit) for place, x in side.items()} for side in (left, right)]
        for (block, i, j), place in self.result_places().items():
            terms = [whole[0][block, i, k] * whole[1][block, j, k] for k in range(depth)]
            c = self._addend(self._read(old, place))
            exact = Fraction(sum(terms), unit * unit) + c
            sizes = Fraction(sum(map(abs, terms)), unit * unit) + abs(c)
            got = self._read(found, place)
            if not self.admits(got, exact, sizes):
                wrong.append(f"{self.text()} on {self.arch}: D[{i}, {j}] of block {block} is {got}, not {float(exact)}")
        if self.arch.startswith("gfx11") and BITS[self.result] == 16:
            shift = 0 if self.modifiers.get("op_sel", (0, 0, 0))[2] else 16
            if ((found >> np.uint32(shift) & np.uint32(0xFFFF)) != 0x5A5A).any():
                wrong.append(f"{self.text()} on {self.arch} changes the other halves of D's registers")
        return wrong[:3]

    def _read(self, registers: np.ndarray, place: tuple[int, int]) -> Fraction:
        """The element of C or D that lies there; None is not a number."""
        number, lane = place
        if self.result == "f64":
            pair = registers[2 * number : 2 * number + 2, lane].astype(np.uint32)
            return Fraction(float(pair.copy().view(np.float64)[0]))
        if BITS[self.result] == 32:
            word = registers[number, lane].astype(np.uint32)
            return (
                Fraction(int(word.view(np.int32))) if self.result == "i32" else Fraction(float(word.view(np.float32)))
            )
        high = self.modifiers.get("op_sel", (0, 0, 0))[2] if self.arch.startswith("gfx11") else number % 2
        word = int(registers[number if self.arch.startswith("gfx11") else number // 2, lane])
        return Fraction({"f16": F16, "bf16": BF16}[self.result].value(word >> 16 * high & 0xFFFF))

    def admits(self, got: Fraction, exact: Fraction, sizes: Fraction) -> bool:
        """Whether a result may be the rounded sum. sizes: of the terms, added."""
        if self.result == "i32":
            low, span = -(2**31), 2**32
            return got == (
                max(low, min(-low - 1, exact)) if self.modifiers.get("clamp") else (exact - low) % span + low
            )
        lost = sizes / 2**46 if self.result == "f64" else sizes / 2**48
        if self.result == "f64":
            return abs(got - exact) <= lost
        form = {"f32": F32, "f16": F16, "bf16": BF16}[self.result]
        below, above = (Fraction(form.value(form.nearest(exact + by))) for by in (-lost, lost))
        if self.result == "bf16":  # rounded to float32 on the way
            step = abs(exact) / 2**22
            below, above = (Fraction(form.value(form.nearest(exact + by))) for by in (-lost - step, lost + step))
        return below <= got <= above


def _words(wide: list[int], count: int) -> np.ndarray:
    return np.array([[word >> 32 * n & 0xFFFFFFFF for word in wide] for n in range(count)], np.uint32)


def _random(kind: str, chance: np.random.Generator) -> int | None:
    """A random code: any of the narrow formats', of the wide ones a number near 1."""
    if kind in ("f32", "xf32"):
        return int(np.float32(chance.standard_normal()).view(np.uint32))
    if kind == "f64":
        return int(np.float64(chance.standard_normal()).view(np.uint64))
    if kind == "near f16":  # whose sums fit float16
        return int(np.float16(chance.standard_normal()).view(np.uint16))
    if kind == "bf16":
        return int(np.float32(chance.standard_normal() * 4).view(np.uint32)) >> 16
    return int(chance.integers(0, 1 << BITS[kind]))


def _value(kind: str, code: int, arch: str) -> Fraction | None:
    """The number of a code; None of what is not finite."""
    if kind in ("i8", "i4"):
        return Fraction(code - (code >> BITS[kind] - 1 << BITS[kind]))
    if kind in ("u8", "u4"):
        return Fraction(code)
    if kind == "f64":
        return Fraction(float(np.uint64(code).view(np.float64)))
    if kind in _SMALL:
        exponent_bits, mantissa_bits, bias = _SMALL[kind]
        size = code & (1 << exponent_bits + mantissa_bits) - 1
        exponent, mantissa = size >> mantissa_bits, size & (1 << mantissa_bits) - 1
        mantissa += (1 << mantissa_bits) * (exponent > 0)
        number = mantissa * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
        return -number if code >> exponent_bits + mantissa_bits else number
    if kind == "xf32":  # ten bits of mantissa, ties to even
        rest, code = code & 0x1FFF, code & ~0x1FFF
        code += 0x2000 * (rest > 0x1000 or rest == 0x1000 and code >> 13 & 1)
        kind = "f32"
    fnuz = arch == "gfx942"
    forms = {"f32": F32, "f16": F16, "bf16": BF16}
    forms |= {"fp8": E4M3_FNUZ if fnuz else E4M3, "bf8": E5M2_FNUZ if fnuz else E5M2}
    number = forms[kind].value(code)
    if arch == "gfx90a" and kind in ("f16", "bf16") and abs(number) < 2.0 ** (-14 if kind == "f16" else -126):
        number = 0.0  # AMD: MI200's MFMA flushes denormals of float16 and bfloat16
    return Fraction(number) if np.isfinite(number) else None


# ---- which instructions there are ------------------------------------------------------------------------------------

_OLD = "32x32x1:2 16x16x1:4 4x4x1:16 32x32x2:1 16x16x4:1"  # shapes m x n x k : blocks
_SHAPES = {
    "gfx90a": {
        "f32": _OLD,
        "f16": "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1",
        "bf16": "32x32x2:2 16x16x2:4 4x4x2:16 32x32x4:1 16x16x8:1",
        "bf16_1k": "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1",
        "i8": "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1",
        "f64": "16x16x4:1 4x4x4:4",
    },
    "gfx942": {
        "f32": _OLD,
        "f16": "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1",
        "bf16": "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1",
        "i8": "32x32x4:2 16x16x4:4 4x4x4:16 32x32x16:1 16x16x32:1",
        "f64": "16x16x4:1 4x4x4:4",
        "xf32": "16x16x8:1 32x32x4:1",
        **{f"{a}_{b}": "16x16x32:1 32x32x16:1" for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    },
}
_SHAPES["gfx950"] = {kind: shapes for kind, shapes in _SHAPES["gfx942"].items() if kind != "xf32"} | {
    "f16": _SHAPES["gfx942"]["f16"] + " 16x16x32:1 32x32x16:1",
    "bf16": _SHAPES["gfx942"]["bf16"] + " 16x16x32:1 32x32x16:1",
    "i8": _SHAPES["gfx942"]["i8"] + " 16x16x64:1 32x32x32:1",
}
_WMMA = {
    "gfx1100": "f32:f16 f32:bf16 f16:f16 bf16:bf16 i32:iu8 i32:iu4",
    "gfx1201": "f32:f16 f32:bf16 f16:f16 bf16:bf16 i32:iu8 i32:iu4 f32:fp8_fp8 f32:fp8_bf8 f32:bf8_fp8 f32:bf8_bf8",
}


def instructions(arch: str) -> list[Product]:
    """Every dense matrix instruction of a target, without modifiers."""
    if arch in _WMMA:
        found = [_wmma(arch, *pair.split(":"), 16) for pair in _WMMA[arch].split()]
        return found + ([_wmma(arch, "i32", "iu4", 32)] if arch == "gfx1201" else [])
    found = []
    for types, shapes in _SHAPES[arch].items():
        for shape in shapes.split():
            size, blocks = shape.split(":")
            m, n, k = map(int, size.split("x"))
            several = f"_{blocks}b" if blocks != "1" and arch != "gfx90a" else ""
            result = {"f64": "f64", "i8": "i32"}.get(types, "f32")
            name = f"v_mfma_{result}_{size}{several}{'_' if arch != 'gfx90a' else ''}{types}"
            kinds = types.removesuffix("_1k").split("_")
            found.append(Product(name, arch, (m, n, k, int(blocks)), (kinds[0], kinds[-1]), result))
    if arch == "gfx950":
        for name in ("v_mfma", "v_mfma_scale"):
            for m, k in ((16, 128), (32, 64)):
                found.append(Product(f"{name}_f32_{m}x{m}x{k}_f8f6f4", arch, (m, m, k, 1), ("fp8", "fp8"), "f32"))
    return found


def _wmma(arch: str, result: str, types: str, k: int) -> Product:
    kinds = types.replace("iu", "u").split("_")
    return Product(f"v_wmma_{result}_16x16x{k}_{types}", arch, (16, 16, k, 1), (kinds[0], kinds[-1]), result)


def forms(one: Product) -> list[Product]:
    """The instruction with each set of modifiers that means something to it."""
    make = lambda kinds=one.kinds, **modifiers: Product(  # noqa: E731
        one.name, one.arch, one.shape, kinds, one.result, modifiers
    )
    if "f8f6f4" in one.name:
        selections = [((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (0, 1, 0)), ((1, 1, 0), (1, 1, 0))]
        pairs = [(a, b) for a in range(5) for b in range(5)]
        scales = lambda n: dict(zip(("op_sel", "op_sel_hi"), selections[n % 3])) if "scale" in one.name else {}  # noqa: E731
        return [make((F8F6F4[a], F8F6F4[b]), cbsz=a, blgp=b, **scales(a + b)) for a, b in pairs]
    if "_iu" in one.name:
        bits = one.kinds[0][1:]
        signs = [(x, y) for x in (0, 1) for y in (0, 1)]
        kinds = {sign: tuple(("u", "i")[s] + bits for s in sign) for sign in signs}
        return [make(kinds[sign], neg_lo=(*sign, 0), clamp=clamp) for sign in signs for clamp in (False, True)]
    if one.lanes == 32:
        found = [make()]
        if "f16" in one.kinds[0]:  # f16 and bf16
            lists = [((1, 0, 0), (1, 0, 0)), ((1, 0, 0), (0, 1, 0)), ((0, 0, 1), (0, 0, 1)), ((0, 1, 1), (0, 1, 0))]
            found += [make(neg_lo=low, neg_hi=high) for low, high in lists]
        if BITS[one.result] == 16 and one.arch.startswith("gfx11"):
            found.append(make(op_sel=(0, 0, 1)))
        return found
    if one.result == "f64":
        return [make(), *(make(neg=signs) for signs in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)))]
    blocks = one.shape[3]
    lent = [make(cbsz=c, abid=a) for c in range(1, 5) if 1 << c <= blocks for a in (0, (1 << c) - 1)]
    return [make(), *lent, *(make(blgp=pattern) for pattern in (1, 2, 4, 5, 6, 7))]


def candidates(arch: str) -> list[Product]:
    """What might be matrix instructions of a target: every result, shape, number of blocks and type."""
    if arch in _WMMA:
        types = ("f16", "bf16", "iu8", "iu4", "fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")
        results = ("f32", "f16", "bf16", "i32")
        return [_wmma(arch, result, kind, k) for result in results for k in (8, 16, 32, 64) for kind in types]
    found = []
    for types in dict.fromkeys(kind for kinds in _SHAPES.values() for kind in kinds):
        kinds = types.removesuffix("_1k").split("_")
        result = {"f64": "f64", "i8": "i32"}.get(types, "f32")
        for m, k, blocks in itertools.product((4, 16, 32), (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 16)):
            if m * m * blocks >= 64 and m * k * blocks >= 64:
                for middle in ("", "_", f"_{blocks}b_"):
                    name = f"v_mfma_{result}_{m}x{m}x{k}{middle}{types}"
                    found.append(Product(name, arch, (m, m, k, blocks), (kinds[0], kinds[-1]), result))
    return found


def plain(name: str) -> str:
    """One spelling of a name: older ones leave out the blocks and an underscore."""
    return re.sub(r"(x\d+)(?:_\d+b)?_?(?=[a-z])", r"\1_", name).removesuffix("_1k")
