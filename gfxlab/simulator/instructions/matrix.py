"""The matrix units: MFMA of CDNA (a wave of 64 multiplies tiles together) and WMMA of RDNA (a wave of 32).

D = A B + C. Which lane and register hold which element of A, B, C and D is the essence of these instructions; the
functions below say it as reshapes. Layouts: AMD, "Matrix Instruction Calculator"; MI300 ISA, section 7.1; RDNA 3 ISA,
section 7.9. Products are summed in float64 and rounded once; the hardware's order of rounding is not documented.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gfxlab import hardware
from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F16, F32, F64, I32, U16, U32, float8_values, round_to_xf32
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target

_MFMA = re.compile(r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_\d+b)?_?(\w+?)(_1k)?$")
_WMMA = re.compile(r"v_wmma_(f32|i32|f16|bf16)_16x16x16_(\w+)$")
_BYTES = {"f32": 4, "xf32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "fp8": 1, "bf8": 1}


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one matrix instruction."""
    if found := _MFMA.match(name):
        result, m, n, k, types, _ = found.groups()
        return _mfma(result, (int(m), int(n), int(k)), types, instruction, target)
    if found := _WMMA.match(name):
        return _wmma(found[1], found[2], instruction, target)
    raise NotInTable(name)


@dataclass(frozen=True)
class Layout:
    """Which lane holds what of D (m, n) = A (m, k) B (k, n), a wave of `lanes`.

    operand: int [lane, i], the k of the i-th element of A (and of B) that a lane holds; its row (column) is `row`.
    row: int [lane]. result: int [lane, register], row * n + column of D.
    """

    m: int
    n: int
    k: int
    row: np.ndarray
    operand: np.ndarray
    result: np.ndarray

    @property
    def lanes(self) -> int:
        return len(self.row)


def layout(mnemonic: str, arch: str) -> Layout:
    """Who holds what while this instruction multiplies.

    Raises:
        ValueError: it is not a matrix instruction of 16 x 16 or 32 x 32 results in 32 bits.
    """
    name, lane = mnemonic.removesuffix("_e64"), np.arange(64)
    if (found := _MFMA.match(name)) and found[2] == found[3] in ("16", "32") and found[1] != "f64":
        m, k = int(found[2]), int(found[4])
        each = k // (64 // m)
        d = _mfma_registers(np.arange(m * m).reshape(1, m, m), m)
        return Layout(m, m, k, lane % m, lane[:, None] // m * each + np.arange(each), d[:, 0].T)
    if (found := _WMMA.match(name)) and found[1] in ("f32", "i32"):
        twice, lane, d = hardware.limits(arch).repeats_operands, lane[:32], np.arange(256).reshape(1, 16, 16)
        each = 16 if twice else 8
        first = 0 * lane if twice else lane // 16 * each
        d = (_gfx11_registers if twice else _gfx12_registers)(d)
        return Layout(16, 16, 16, lane % 16, first[:, None] + np.arange(each), d[:, 0].T)
    raise ValueError(f"{mnemonic!r} on {arch} is no matrix instruction of 16 x 16 or 32 x 32 results in 32 bits")


# ---- numbers in registers --------------------------------------------------------------------------------------------


def _decoder(kind: str, fnuz: bool) -> Callable[[np.ndarray], list[np.ndarray]]:
    """From 32-bit words to the numbers in them: the lowest of every word, then the next of every word, and so on."""
    if kind in ("fp8", "bf8"):
        table = float8_values(kind, fnuz)
        return lambda words: [table[(words >> U32(8 * place)) & U32(0xFF)] for place in range(4)]
    return {
        "f32": lambda words: [words.view(F32)],
        "xf32": lambda words: [round_to_xf32(words)],
        "f16": lambda words: [_HALVES[words & U32(0xFFFF)], _HALVES[words >> U32(16)]],
        "bf16": lambda words: [(words << U32(16)).view(F32), (words & U32(0xFFFF0000)).view(F32)],
        "i8": lambda words: [(words.view(I32) << I32(24 - 8 * place)) >> I32(24) for place in range(4)],
        "u8": lambda words: [(words >> U32(8 * place)) & U32(0xFF) for place in range(4)],
    }[kind]


_HALVES = np.arange(1 << 16, dtype=U16).view(F16).astype(F32)  # every float16: numpy converts them slowly


def _operand_types(types: str, modifiers: dict) -> tuple[str, str]:
    if types == "f8f6f4":
        formats = ("fp8", "bf8")  # the other formats have 6 and 4 bits
        choices = [modifiers.get(name, 0) for name in ("cbsz", "blgp")]
        if max(choices) > 1:
            raise NotInTable("f6 and f4 operands")
        return formats[choices[0]], formats[choices[1]]
    if types == "iu8":
        first, second = ("i8" if sign else "u8" for sign in modifiers.get("neg_lo", (0, 0))[:2])
        return first, second
    first, _, second = types.partition("_")
    if first not in _BYTES or second and second not in _BYTES:
        raise NotInTable(types)
    return first, second or first


def _by_k(w, operand: Operand, registers: int, decode, rows: int) -> np.ndarray:
    """An operand as float64 [wave, k, row]: lane = row + rows * piece of k; a piece lies in consecutive registers."""
    pieces = w.lanes // rows
    numbers = decode(w.V[operand.index : operand.index + registers])
    matrix = np.empty((w.size, pieces, registers, len(numbers), rows), F64)
    for place, number in enumerate(numbers):
        matrix[:, :, :, place] = number.reshape(registers, w.size, pieces, rows).transpose(1, 2, 0, 3)
    return matrix.reshape(w.size, -1, rows)


def _accumulator(operand: Operand, registers: int, kind) -> Callable:
    """C as [register, wave, lane], or the constant that it is."""
    if operand.is_constant:
        value = kind(operand.value)
        return lambda w: value
    return lambda w: w.V[operand.index : operand.index + registers].view(kind)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum over k of a [wave, k, row] times b [wave, k, column]."""
    return np.matmul(a.swapaxes(1, 2), b)


def _finish(w, result: Operand, registers: int, c, d: np.ndarray, kind) -> None:
    """D = d + c into the result's registers, in every lane of the live waves: matrix instructions ignore EXEC."""
    place = slice(result.index, result.index + registers)
    if kind is I32:
        d = d.astype(I32)
    target = w.F[place] if kind is F32 else w.I[place]
    np.add(d, c, out=target, casting="same_kind", where=True if w.live is None else w.live[None, :, None])


# ---- MFMA ------------------------------------------------------------------------------------------------------------


def _mfma(result_kind: str, shape: tuple[int, int, int], types: str, instruction: Decoded, target: Target) -> Step:
    m, n, k = shape
    if m == n == 4 and result_kind != "f64":
        return _mfma_of_small_blocks(result_kind, k, types, instruction, target)
    if shape == (16, 16, 4) and result_kind == "f64":
        return _mfma_double(instruction)
    if m != n or m not in (16, 32) or result_kind == "f64":
        raise NotInTable(instruction.mnemonic)
    kinds = _operand_types(types, instruction.modifiers)
    decoders = [_decoder(kind, target.fnuz) for kind in kinds]
    result, a, b, c = instruction.operands
    parts = 64 // m  # lanes m apart hold different pieces of k
    sizes = [k // parts * _BYTES[kind] // 4 for kind in kinds]
    registers = m * n // 64
    integer = result_kind == "i32"
    kind = I32 if integer else F32
    read_c = _accumulator(c, registers, kind)

    def run(w):
        d = _product(*(_by_k(w, o, size, decode, m) for o, decode, size in zip((a, b), decoders, sizes)))
        _finish(w, result, registers, read_c(w), _mfma_registers(d, m), kind)

    return run


def _mfma_registers(d: np.ndarray, m: int) -> np.ndarray:
    """[wave, row, column] to [register, wave, lane]: row = 4 * (64 / m) * (r // 4) + 4 * (lane // m) + r % 4."""
    parts = 64 // m
    split = d.reshape(len(d), m // (4 * parts), parts, 4, m)  # wave, r // 4, lane // m, r % 4, lane % m
    return split.transpose(1, 3, 0, 2, 4).reshape(m * m // 64, len(d), 64)


def _mfma_of_small_blocks(result_kind: str, k: int, types: str, instruction: Decoded, target: Target) -> Step:
    """4x4xk: four lanes a block, 16 products at once.

    A: row = lane % 4, the registers hold all of k; B: column = lane % 4; D: row = register, column = lane % 4.
    cbsz: 2**cbsz neighbouring blocks multiply the A of one of them, number abid.
    """
    kinds = _operand_types(types, {})
    result, a, b, c = instruction.operands
    sizes = [k * _BYTES[kind] // 4 for kind in kinds]
    decode_a, decode_b = (_decoder(kind, target.fnuz) for kind in kinds)
    kind = I32 if result_kind == "i32" else F32
    read_c = _accumulator(c, 4, kind)
    shared = 1 << instruction.modifiers.get("cbsz", 0)
    block = np.arange(16) & ~(shared - 1) | instruction.modifiers.get("abid", 0)

    def run(w):
        left, right = (
            _by_k(w, o, size, decode, 64).reshape(w.size, k, 16, 4).swapaxes(1, 2)
            for o, size, decode in ((a, sizes[0], decode_a), (b, sizes[1], decode_b))
        )
        d = np.matmul(left[:, block].swapaxes(2, 3), right)  # [wave, block, row, column]
        _finish(w, result, 4, read_c(w), d.transpose(2, 0, 1, 3).reshape(4, w.size, 64), kind)

    return run


def _mfma_double(instruction: Decoded) -> Step:
    """16x16x4 of float64. A: row = lane % 16, k = lane // 16; D: row = 4 * (pair of registers) + lane // 16."""
    result, a, b, c = instruction.operands
    readers = [values.reader(one, "f64") for one in (a, b)]
    at = [Operand("", "v", o.index + 2 * r, 2) for o in (result, c) for r in range(4)]
    old = [values.reader(one if c.is_vector else c, "f64") for one in at[4:]]
    write = [values.writer(one, "f64") for one in at[:4]]

    def run(w):
        left, right = (read(w).reshape(w.size, 4, 16) for read in readers)  # [wave, k, row]
        d = _product(left, right).reshape(w.size, 4, 64)
        total = [d[:, r] + old[r](w) for r in range(4)]
        for r in range(4):
            write[r](w, total[r])

    return run


# ---- WMMA ------------------------------------------------------------------------------------------------------------


def _wmma(result_kind: str, types: str, instruction: Decoded, target: Target) -> Step:
    if result_kind not in ("f32", "i32"):
        raise NotInTable(instruction.mnemonic)
    kinds = _operand_types(types, instruction.modifiers)
    decoders = [_decoder(kind, target.fnuz) for kind in kinds]
    result, a, b, c = instruction.operands
    twice = hardware.limits(target.arch).repeats_operands
    sizes = [(16 if twice else 8) * _BYTES[kind] // 4 for kind in kinds]
    integer = result_kind == "i32"
    kind = I32 if integer else F32
    read_c = _accumulator(c, 8, kind)
    to_registers = _gfx11_registers if twice else _gfx12_registers

    def tile(w, operand, decode, size):
        matrix = _by_k(w, operand, size, decode, 16)
        return matrix[:, : matrix.shape[1] // 2] if twice else matrix

    def run(w):
        d = _product(*(tile(w, o, decode, size) for o, decode, size in zip((a, b), decoders, sizes)))
        _finish(w, result, 8, read_c(w), to_registers(d), kind)

    return run


def _gfx11_registers(d: np.ndarray) -> np.ndarray:
    """[wave, row, column] to [register, wave, lane]: row = 2 * r + lane // 16."""
    return d.reshape(len(d), 8, 2, 16).transpose(1, 0, 2, 3).reshape(8, len(d), 32)


def _gfx12_registers(d: np.ndarray) -> np.ndarray:
    """[wave, row, column] to [register, wave, lane]: row = r + 8 * (lane // 16)."""
    return d.reshape(len(d), 2, 8, 16).transpose(2, 0, 1, 3).reshape(8, len(d), 32)
