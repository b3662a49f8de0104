"""The matrix units: MFMA of CDNA (a wave of 64 multiplies tiles together) and WMMA of RDNA (a wave of 32).

D = A B + C. Which lane and register hold which element of A, B, C and D is the essence of these instructions; the
functions below say it as reshapes. Layouts: AMD, "Matrix Instruction Calculator"; MI300 ISA, section 7.1; RDNA 3 ISA,
section 7.9. Products are summed in float64 and rounded once; the hardware's order of rounding is not documented.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gfxlab import hardware
from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import (
    F16,
    F32,
    F64,
    I32,
    I64,
    U16,
    U32,
    U64,
    from_bf16,
    round_to_bf16,
    round_to_xf32,
    small_float_values,
    without_denormals,
)
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import NotInTable, Step, Target
from gfxlab.simulator.instructions.multiplication import NO_SIGNS, Multiplication, Shape, Signs, Tile

_MFMA = re.compile(r"v_mfma_(scale_)?(f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_\d+b)?_?(\w+?)(_1k)?$")
_WMMA = re.compile(r"v_wmma_(f32|i32|f16|bf16)_16x16x(16|32)_(\w+)$")
_BITS = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8, "i4": 4, "u4": 4}
_BITS |= {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one matrix instruction."""
    if found := _MFMA.match(name):
        scaled, result, m, n, k, types, _ = found.groups()
        return _mfma(result, (int(m), int(n), int(k)), types, bool(scaled), instruction, target)
    if found := _WMMA.match(name):
        return _wmma(found[1], int(found[2]), found[3], instruction, target)
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
    if (found := _MFMA.match(name)) and found[3] == found[4] in ("16", "32") and found[2] != "f64":
        m, k = int(found[3]), int(found[5])
        each = k // (64 // m)
        d = _mfma_registers(np.arange(m * m).reshape(1, m, m), m)
        return Layout(m, m, k, lane % m, lane[:, None] // m * each + np.arange(each), d[:, 0].T)
    if (found := _WMMA.match(name)) and found[1] in ("f32", "i32") and found[2] == "16":
        twice, lane, d = hardware.limits(arch).repeats_operands, lane[:32], np.arange(256).reshape(1, 16, 16)
        each = 16 if twice else 8
        first = 0 * lane if twice else lane // 16 * each
        d = (_gfx11_registers if twice else _gfx12_registers)(d)
        return Layout(16, 16, 16, lane % 16, first[:, None] + np.arange(each), d[:, 0].T)
    raise ValueError(f"{mnemonic!r} on {arch} is no matrix instruction of 16 x 16 or 32 x 32 results in 32 bits")


# ---- numbers in registers --------------------------------------------------------------------------------------------


def _decoder(kind: str, target: Target) -> Callable[[np.ndarray], list[np.ndarray]]:
    """From 32-bit words to the numbers in them: the lowest of every word, then the next of every word, and so on."""
    if target.flushes_halves and kind in ("f16", "bf16"):
        return _flushing(kind)
    if kind in ("fp8", "bf8", "fp4"):
        bits = _BITS[kind]
        table, most = small_float_values(kind, target.fnuz and bits == 8), U32((1 << bits) - 1)
        return lambda words: [table[(words >> U32(place)) & most] for place in range(0, 32, bits)]
    if kind in ("fp6", "bf6"):
        return partial(_numbers_of_6_bits, small_float_values(kind))
    return {
        "f32": lambda words: [words.view(F32)],
        "xf32": lambda words: [round_to_xf32(words)],
        "f16": lambda words: [_HALVES[words & U32(0xFFFF)], _HALVES[words >> U32(16)]],
        "bf16": lambda words: [(words << U32(16)).view(F32), (words & U32(0xFFFF0000)).view(F32)],
        "i8": lambda words: [(words.view(I32) << I32(24 - 8 * place)) >> I32(24) for place in range(4)],
        "u8": lambda words: [(words >> U32(8 * place)) & U32(0xFF) for place in range(4)],
        "i4": lambda words: [(words.view(I32) << I32(28 - 4 * place)) >> I32(28) for place in range(8)],
        "u4": lambda words: [(words >> U32(4 * place)) & U32(0xF) for place in range(8)],
    }[kind]


def _numbers_of_6_bits(table: np.ndarray, words: np.ndarray) -> list[np.ndarray]:
    """16 numbers lie in three words; each result holds one of them for every three words."""
    threes = words.reshape(-1, 3, *words.shape[1:]).astype(U64)
    numbers = []
    for first in range(0, 96, 6):
        word, shift = divmod(first, 32)
        pair = threes[:, word] | threes[:, min(word + 1, 2)] << U64(32)
        numbers.append(table[(pair >> U64(shift)) & U64(63)])
    return numbers


_BRAINS = (np.arange(1 << 16, dtype=U32) << U32(16)).view(F32)
_HALVES = np.arange(1 << 16, dtype=U16).view(F16).astype(F32)  # every float16: numpy converts them slowly


def _flushing(kind: str) -> Callable[[np.ndarray], list[np.ndarray]]:
    """The decoder of a format of 16 bits whose denormals count as 0."""
    exponent, kinds = {"f16": (0x7C00, _HALVES), "bf16": (0x7F80, _BRAINS)}[kind]
    codes = np.arange(1 << 16)
    table = np.where(codes & exponent, kinds, np.copysign(F32(0), kinds))
    return lambda words: [table[words & U32(0xFFFF)], table[words >> U32(16)]]


def _operand_types(types: str, modifiers: dict) -> tuple[str, str]:
    if types == "f8f6f4":
        formats = ("fp8", "bf8", "fp6", "bf6", "fp4")
        return tuple(formats[modifiers.get(name, 0)] for name in ("cbsz", "blgp"))
    if types in ("iu8", "iu4"):
        first, second = (("i" if sign else "u") + types[2:] for sign in modifiers.get("neg_lo", (0, 0))[:2])
        return first, second
    first, _, second = types.partition("_")
    if first not in _BITS or second and second not in _BITS:
        raise NotInTable(types)
    return first, second or first


def _by_k(w, operand: Operand, registers: int, decode, rows: int, lanes: np.ndarray | None = None) -> np.ndarray:
    """An operand as float64 [wave, k, row]: lane = row + rows * piece of k; a piece lies in consecutive registers.

    lanes: whose numbers each lane takes; its own unless given.
    """
    pieces = w.lanes // rows
    words = w.V[operand.index : operand.index + registers]
    numbers = decode(words if lanes is None else words[..., lanes])
    matrix = np.empty((w.size, pieces, len(numbers[0]), len(numbers), rows), F64)
    for place, number in enumerate(numbers):
        matrix[:, :, :, place] = number.reshape(-1, w.size, pieces, rows).transpose(1, 2, 0, 3)
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


def _finish(w, result: Operand, registers: int, c, d: np.ndarray, kind, flushes: bool) -> None:
    """D = d + c into the result's registers, in every lane of the live waves: matrix instructions ignore EXEC."""
    if flushes:
        d, c = without_denormals((d + without_denormals(c)).astype(F32)), F32(-0.0)
    place = slice(result.index, result.index + registers)
    live = True if w.live is None else w.live[None, :, None]
    if kind is I32:
        d = d.astype(I64).astype(I32)
    target = w.F[place] if kind is F32 else w.I[place]
    np.add(d, c, out=target, casting="same_kind", where=live)


# ---- MFMA ------------------------------------------------------------------------------------------------------------


def _mfma(
    result_kind: str, shape: tuple[int, int, int], types: str, scaled: bool, instruction: Decoded, target: Target
) -> Step:
    m, n, k = shape
    if result_kind == "f64" and shape in ((16, 16, 4), (4, 4, 4)):
        return _mfma_double(instruction, m)
    if m != n or m not in (4, 16, 32) or result_kind == "f64":
        raise NotInTable(instruction.mnemonic)
    lanes = None if types == "f8f6f4" else _lanes_of_b(instruction)
    if m == 4:
        return _mfma_of_small_blocks(result_kind, k, types, lanes, instruction, target)
    blocks = instruction.operands[0].count * 64 // (m * n)
    if blocks > 1:
        return _mfma_of_blocks(result_kind, m, k, blocks, types, lanes, instruction, target)
    if types != "f8f6f4" and not {"cbsz", "abid"}.isdisjoint(instruction.modifiers):
        raise NotInTable(instruction.mnemonic)
    kinds = _operand_types(types, instruction.modifiers)
    result, a, b, c, *scales = instruction.operands
    readers = [
        _tile(one, kind, m, k, types == "f8f6f4", target, theirs)
        for one, kind, theirs in ((a, kinds[0], None), (b, kinds[1], lanes))
    ]
    if scaled:
        readers = [
            _scaled(read, one, place, m, k, instruction) for place, (read, one) in enumerate(zip(readers, scales))
        ]
    # scales and lent lanes belong to one instruction: its tiles are like no others
    alone = (instruction.index, "a"), (instruction.index, "b")
    of_its_own = scaled or lanes is not None
    forms = [(kind, m, k, types == "f8f6f4", place if of_its_own else None) for kind, place in zip(kinds, alone)]
    tiles = map(Tile, (a, b), forms, readers)
    kind = I32 if result_kind == "i32" else F32
    shape = None if of_its_own or types == "f8f6f4" else Shape("mfma", m, k, kinds)
    flushes = _flushes(kinds, target)
    return Multiplication(*tiles, c, result, m * n // 64, kind, _MFMA_VIEWS[m], flushes=flushes, shape=shape)


def _flushes(kinds: tuple[str, str], target: Target) -> bool:
    return target.flushes_halves and not {"f16", "bf16"}.isdisjoint(kinds)


def _lanes_of_b(instruction: Decoded) -> np.ndarray | None:
    """Whose numbers of B each lane takes: blgp lends them from half of the wave or from a quarter (CDNA 3 ISA, 7.1)."""
    pattern = instruction.modifiers.get("blgp", 0)
    if pattern == 0:
        return None
    if pattern == 3:  # a rotation; which way is not said
        raise NotInTable(instruction.mnemonic)
    size, first = (32, 32 * (pattern - 1)) if pattern < 3 else (16, 16 * (pattern - 4))
    return first + np.arange(64) % size


def _blocks_of_a(blocks: int, instruction: Decoded) -> np.ndarray:
    """Whose A each block multiplies: 2**cbsz neighbouring blocks that of one of them, number abid."""
    shared = 1 << instruction.modifiers.get("cbsz", 0)
    if shared > blocks:
        raise NotInTable(instruction.mnemonic)
    return np.arange(blocks) & ~(shared - 1) | (instruction.modifiers.get("abid", 0) & (shared - 1))


def _mfma_of_blocks(
    result_kind: str,
    m: int,
    k: int,
    blocks: int,
    types: str,
    lanes: np.ndarray | None,
    instruction: Decoded,
    target: Target,
) -> Step:
    """Several products of m x k by k x m at once: lanes m apart hold different blocks, each lane all of k."""
    kinds = _operand_types(types, {})
    result, a, b, c = instruction.operands
    decoders = [_decoder(kind, target) for kind in kinds]
    sizes = [max(1, k * _BITS[kind] // 32) for kind in kinds]
    kind = I32 if result_kind == "i32" else F32
    registers = m * m // 64 * blocks
    read_c = _accumulator(c, registers, kind)
    flushes = _flushes(kinds, target)
    lent = _blocks_of_a(blocks, instruction)

    def run(w):
        left, right = (
            _by_k(w, o, size, decode, m, theirs).reshape(w.size, blocks, k, m)
            for o, decode, size, theirs in zip((a, b), decoders, sizes, (None, lanes))
        )
        d = np.matmul(left[:, lent].swapaxes(2, 3), right)
        d = np.concatenate([_mfma_registers(d[:, block], m) for block in range(blocks)])
        _finish(w, result, registers, read_c(w), d, kind, flushes)

    return run


def _tile(
    operand: Operand, kind: str, m: int, k: int, in_halves: bool, target: Target, lanes: np.ndarray | None
) -> Callable:
    """A reader of an operand as float64 [wave, k, row]. lanes: whose numbers each lane takes, or None.

    in_halves: a lane's numbers of 8 and 6 bits are two runs of 16, one in each half of k (f8f6f4); those of 4 bits one
    run of 32.
    """
    decode = _decoder(kind, target)
    parts = 64 // m  # lanes m apart hold different pieces of k
    registers = k // parts * _BITS[kind] // 32
    if not in_halves or kind == "fp4":
        return lambda w: _by_k(w, operand, registers, decode, m, lanes)

    def read(w):
        pieces = _by_k(w, operand, registers, decode, m).reshape(w.size, parts, 2, -1, m)
        return pieces.swapaxes(1, 2).reshape(w.size, k, m)

    return read


def _scaled(read: Callable, scale: Operand, place: int, m: int, k: int, instruction: Decoded) -> Callable:
    """Each run of 32 along k times a power of two (e8m0): a byte of the lane that has the row and the run's number."""
    low = instruction.modifiers.get("op_sel", (0, 0))[place]
    high = instruction.modifiers.get("op_sel_hi", (1, 1))[place]
    shift, read_scale = U32(8 * (low + 2 * high)), values.reader(scale, "u32")

    def run(w):
        exponent = ((w.full(read_scale(w)) >> shift) & U32(0xFF)).astype(I32)
        factor = np.where(exponent == 0xFF, np.nan, np.ldexp(1.0, exponent - 127))
        factor = np.repeat(factor.reshape(w.size, 64 // m, m), 32, axis=1)
        return read(w) * factor

    return run


def _mfma_view(m: int, registers: np.ndarray) -> np.ndarray:
    """A view of [register, wave, lane] in the order of [wave, row, column], the rows in three axes."""
    parts = 64 // m
    split = registers.reshape(-1, 4, registers.shape[1], parts, m)  # r // 4, r % 4, wave, lane // m, lane % m
    return split.transpose(2, 0, 3, 1, 4)


_MFMA_VIEWS = {m: partial(_mfma_view, m) for m in (16, 32)}


def _mfma_registers(d: np.ndarray, m: int) -> np.ndarray:
    """[wave, row, column] to [register, wave, lane]: row = 4 * (64 / m) * (r // 4) + 4 * (lane // m) + r % 4."""
    parts = 64 // m
    split = d.reshape(len(d), m // (4 * parts), parts, 4, m)  # wave, r // 4, lane // m, r % 4, lane % m
    return split.transpose(1, 3, 0, 2, 4).reshape(m * m // 64, len(d), 64)


def _mfma_of_small_blocks(
    result_kind: str, k: int, types: str, lanes: np.ndarray | None, instruction: Decoded, target: Target
) -> Step:
    """4x4xk: four lanes a block, 16 products at once.

    A: row = lane % 4, the registers hold all of k; B: column = lane % 4; D: row = register, column = lane % 4.
    """
    kinds = _operand_types(types, {})
    result, a, b, c = instruction.operands
    sizes = [k * _BITS[kind] // 32 for kind in kinds]
    decode_a, decode_b = (_decoder(kind, target) for kind in kinds)
    kind = I32 if result_kind == "i32" else F32
    read_c = _accumulator(c, 4, kind)
    flushes = _flushes(kinds, target)
    lent = _blocks_of_a(16, instruction)

    def run(w):
        left, right = (
            _by_k(w, o, size, decode, 64, theirs).reshape(w.size, k, 16, 4).swapaxes(1, 2)
            for o, size, decode, theirs in ((a, sizes[0], decode_a, None), (b, sizes[1], decode_b, lanes))
        )
        d = np.matmul(left[:, lent].swapaxes(2, 3), right)  # [wave, block, row, column]
        d = d.transpose(2, 0, 1, 3).reshape(4, w.size, 64)
        _finish(w, result, 4, read_c(w), d, kind, flushes)

    return run


def _mfma_double(instruction: Decoded, m: int) -> Step:
    """16x16x4 of float64, or four blocks of 4x4x4: lane = row + m * (block + blocks * k) of A, of B its column.

    D: 16x16: row = 4 * (pair of registers) + lane // 16; 4x4: lane = column + 4 * (block + 4 * row).
    """
    result, *sources = instruction.operands
    signs = instruction.modifiers.get("neg", [0] * 3)
    a, b, c = (replace(one, negate=bool(sign)) for one, sign in zip(sources, signs))
    readers = [values.reader(one, "f64") for one in (a, b)]
    numbers, blocks = (4, 1) if m == 16 else (1, 4)  # of D in a lane
    addends = [Operand("", "v", c.index + 2 * r, 2, negate=c.negate) if c.is_vector else c for r in range(numbers)]
    old = [values.reader(one, "f64") for one in addends]

    def run(w):
        left, right = (w.full(read(w)).reshape(w.size, 4, blocks, m).swapaxes(1, 2) for read in readers)
        d = np.matmul(left.swapaxes(2, 3), right).swapaxes(1, 2)  # [wave, row, block, column]
        d = d.reshape(w.size, numbers, 64)
        live = True if w.live is None else w.live[:, None]
        for r, total in enumerate([d[:, r] + old[r](w) for r in range(numbers)]):
            words = np.ascontiguousarray(total).view(U32).reshape(w.size, 64, 2)
            for half in (0, 1):
                np.copyto(w.V[result.index + 2 * r + half], words[..., half], where=live)

    return run


# ---- WMMA ------------------------------------------------------------------------------------------------------------


def _wmma(result_kind: str, k: int, types: str, instruction: Decoded, target: Target) -> Step:
    modifiers = instruction.modifiers
    kinds = _operand_types(types, modifiers)
    flips, signs = ((0, 0), NO_SIGNS) if types.startswith("iu") else _signs(kinds, instruction)
    decoders = [_flipped(_decoder(kind, target), flip) for kind, flip in zip(kinds, flips)]
    result, a, b, c = instruction.operands
    twice = hardware.limits(target.arch).repeats_operands
    sizes = [(k if twice else k // 2) * _BITS[kind] // 32 for kind in kinds]

    def tile(operand: Operand, decode, size: int) -> values.Reader:
        def read(w):
            matrix = _by_k(w, operand, size, decode, 16)
            return matrix[:, : matrix.shape[1] // 2] if twice else matrix

        return read

    readers = [tile(*one) for one in zip((a, b), decoders, sizes)]
    if result_kind in ("f16", "bf16"):
        to_registers = _gfx11_registers if twice else _gfx12_registers
        high = bool(modifiers.get("op_sel", (0, 0, 0))[2]) if twice else None
        return _narrow_result(
            result_kind, lambda w: to_registers(_product(*(read(w) for read in readers))), result, c, signs, high
        )
    kind = I32 if result_kind == "i32" else F32
    tiles = map(Tile, (a, b), zip(kinds, sizes, flips), readers)
    view = _gfx11_view if twice else _gfx12_view
    shape = None if any(flips) else Shape("gfx11" if twice else "gfx12", 16, k, kinds)
    return Multiplication(*tiles, c, result, 8, kind, view, "clamp" in modifiers, signs, shape=shape)


def _signs(kinds: tuple[str, str], instruction: Decoded) -> tuple[tuple[int, int], Signs]:
    """Bits of A's and B's words that change, and what becomes of C's sign.

    Of two numbers in a word neg_lo turns the lower one, neg_hi the upper one; of C neg_lo is the sign, neg_hi the
    absolute value (RDNA 3 ISA, section 7.9).
    """
    low, high = (instruction.modifiers.get(name, [0, 0, 0]) for name in ("neg_lo", "neg_hi"))
    flips = tuple(0x8000 * low[place] | 0x80000000 * high[place] for place in (0, 1))
    if any(flip and kind not in ("f16", "bf16") for kind, flip in zip(kinds, flips)):
        raise NotInTable(instruction.mnemonic)
    return flips, Signs(negate=bool(low[2]), absolute=bool(high[2]))


def _flipped(decode: Callable, flip: int) -> Callable:
    """`decode` of words in which these bits are turned."""
    return (lambda words: decode(words ^ U32(flip))) if flip else decode


def _narrow_result(kind: str, product: Callable, result: Operand, c: Operand, signs: Signs, high: bool | None) -> Step:
    """Results of 16 bits. gfx11: 8 registers, one half of each; gfx12 (high is None): 4 registers, two numbers each."""
    widen, narrow = {
        "f16": (lambda word: word.astype(U16).view(F16).astype(F64), lambda x: x.astype(F16).view(U16).astype(U32)),
        "bf16": (lambda word: from_bf16(word.astype(U16)).astype(F64), lambda x: round_to_bf16(x.astype(F32))),
    }[kind]
    constant = widen(np.asarray(values.constant(c.value, kind))) if c.is_constant else None

    def addend(w):
        if constant is not None:
            return constant
        if high is None:
            words = w.V[c.index : c.index + 4]
            return np.stack([widen(words), widen(words >> U32(16))], axis=1).reshape(8, w.size, w.lanes)
        return widen(w.V[c.index : c.index + 8] >> U32(16 * high))

    def run(w):
        codes = narrow(product(w) + signs(addend(w)))
        live = True if w.live is None else w.live[None, :, None]
        if high is None:
            target, words = w.V[result.index : result.index + 4], codes[0::2] | codes[1::2] << U32(16)
        else:
            target = w.V[result.index : result.index + 8]
            words = target & U32(0xFFFF << 16 * (not high)) | codes << U32(16 * high)
        np.copyto(target, words, where=live)

    return run


def _gfx11_view(registers: np.ndarray) -> np.ndarray:
    """A view of [register, wave, lane] in the order of [wave, row, column], the rows in two axes."""
    return registers.reshape(8, -1, 2, 16).transpose(1, 0, 2, 3)


def _gfx12_view(registers: np.ndarray) -> np.ndarray:
    """The same, for gfx12."""
    return registers.reshape(8, -1, 2, 16).transpose(1, 2, 0, 3)


def _gfx11_registers(d: np.ndarray) -> np.ndarray:
    """[wave, row, column] to [register, wave, lane]: row = 2 * r + lane // 16."""
    return d.reshape(len(d), 8, 2, 16).transpose(1, 0, 2, 3).reshape(8, len(d), 32)


def _gfx12_registers(d: np.ndarray) -> np.ndarray:
    """[wave, row, column] to [register, wave, lane]: row = r + 8 * (lane // 16)."""
    return d.reshape(len(d), 2, 8, 16).transpose(2, 0, 1, 3).reshape(8, len(d), 32)
