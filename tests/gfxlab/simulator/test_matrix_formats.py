"""Matrix instructions on floats of 8, 6 and 4 bits with scales, on integers of 4 bits, in blocks, with 16-bit results.

Formats: OCP, "Microscaling Formats"; which lane holds what: CDNA 4 ISA and RDNA 3 ISA, section 7.9, as formulas.
"""

import numpy as np
import pytest
from exact import BF16, E4M3, E5M2, F16, Format
from one_instruction import execute
from test_matrix import wide

GENERATOR = np.random.default_rng(5)
A, B, C, D = 16, 48, 80, 112
E2M3, E3M2, E2M1 = Format(2, 3, 1), Format(3, 2, 3), Format(2, 1, 1)
FORMATS = {  # by the number in cbsz and blgp
    0: (8, E4M3),
    1: (8, E5M2),
    2: (6, E2M3),
    3: (6, E3M2),
    4: (4, E2M1),
}


def value(number: int, code: int) -> float:
    bits, form = FORMATS[number]
    if bits == 8:
        return form.value(code)
    size = code & (1 << bits - 1) - 1  # no infinity and no NaN: the highest exponent is one like the others
    exponent, mantissa = size >> form.mantissa_bits, size & (1 << form.mantissa_bits) - 1
    fraction = mantissa / (1 << form.mantissa_bits) + (exponent > 0)
    return (-1) ** (code >> bits - 1) * fraction * 2.0 ** (max(exponent, 1) - form.bias)


def codes(number: int, shape: tuple[int, int]) -> np.ndarray:
    found = GENERATOR.integers(0, 1 << FORMATS[number][0], shape)
    return np.where(found & 0x78 == 0x78, 0x10, found) if number < 2 else found  # small numbers, and no NaN


def packed(lanes: int, places, bits: int, words: int) -> np.ndarray:
    """The registers [word, lane] in which numbers (lane, place, code) lie side by side."""
    registers = [0] * lanes
    for lane, place, code in places:
        registers[lane] |= int(code) << bits * place
    return np.array([[word >> 32 * n & 0xFFFFFFFF for word in registers] for n in range(words)], np.uint32)


def where(number: int, k: int, parts: int, j: int) -> tuple[int, int]:
    """The group of lanes that holds column j of A, and the number's place in a lane."""
    if number == 4:
        return j // 32, j % 32
    half, rest = divmod(j, k // 2)
    return rest // 16, 16 * half + rest % 16


@pytest.mark.parametrize("m, k", [(16, 128), (32, 64)])
@pytest.mark.parametrize("formats", [(0, 1), (0, 4), (2, 3), (4, 2), (4, 4)])
@pytest.mark.parametrize("scaled", [False, True])
def test_small_floats(m, k, formats, scaled):
    parts = 64 // m
    a, b = codes(formats[0], (m, k)), codes(formats[1], (m, k))  # b by column
    registers = []
    for number, matrix in zip(formats, (a, b)):
        bits = FORMATS[number][0]
        places = [
            (row + m * group, place, matrix[row, j])
            for row in range(m)
            for j in range(k)
            for group, place in [where(number, k, parts, j)]
        ]
        registers.append(packed(64, places, bits, bits))
    scales = GENERATOR.integers(124, 131, (2, 64))
    x, y = (np.array([[value(n, int(c)) for c in row] for row in matrix]) for n, matrix in zip(formats, (a, b)))
    name, tail = f"v_mfma_f32_{m}x{m}x{k}_f8f6f4", ""
    if scaled:
        name, tail = name.replace("mfma", "mfma_scale"), ", v3, v4 op_sel:[1,0,0] op_sel_hi:[0,1,0]"
        factors = [np.repeat(2.0 ** (s.reshape(parts, m).T - 127), 32, axis=1) for s in scales]
        x, y = x * factors[0], y * factors[1]
    V = {A + n: row for n, row in enumerate(registers[0])} | {B + n: row for n, row in enumerate(registers[1])}
    V |= {3: scales[0] << 8, 4: scales[1] << 16}
    count = m * m // 64
    first, second = wide(A, len(registers[0])), wide(B, len(registers[1]))
    modifiers = "".join(f" {n}:{f}" for n, f in zip(("cbsz", "blgp"), formats) if f)
    w = execute(f"{name} {wide(D, count)}, {first}, {second}, 0{tail}{modifiers}", arch="gfx950", V=V)
    wanted = (x @ y.T).astype(np.float32)
    for lane in range(64):
        for register in range(count):
            row = 4 * parts * (register // 4) + 4 * (lane // m) + register % 4
            assert w.F[D + register, 0, lane] == wanted[row, lane % m]


def test_a_block_for_each_group_of_lanes():
    for name, m, blocks in (("32x32x4_2b_bf16", 32, 2), ("16x16x4_4b_bf16", 16, 4)):
        a, b = (GENERATOR.integers(-100, 100, (blocks, m, 4)) for _ in range(2))
        every = [(block, row, j) for block in range(blocks) for row in range(m) for j in range(4)]
        lanes = [[(row + m * block, j, BF16.nearest(int(x[block, row, j]))) for block, row, j in every] for x in (a, b)]
        registers = [packed(64, places, 16, 2) for places in lanes]
        V = {A + n: row for n, row in enumerate(registers[0])} | {B + n: row for n, row in enumerate(registers[1])}
        each, count = m * m // 64, m * m // 64 * blocks
        w = execute(f"v_mfma_f32_{name} {wide(D, count)}, {wide(A, 2)}, {wide(B, 2)}, 0", V=V)
        for block in range(blocks):
            wanted = a[block] @ b[block].T
            for lane in range(64):
                for register in range(each):
                    row = 4 * (64 // m) * (register // 4) + 4 * (lane // m) + register % 4
                    assert w.F[D + each * block + register, 0, lane] == wanted[row, lane % m]


def wmma_operand(matrix: np.ndarray, encode, bits: int, twice: bool) -> np.ndarray:
    k = matrix.shape[1]
    each = k if twice else k // 2
    places = [
        (row + 16 * group, j % each, encode(int(matrix[row, j])))
        for row in range(16)
        for j in range(k)
        for group in ((0, 1) if twice else (j // each,))
    ]
    return packed(32, places, bits, each * bits // 32)


@pytest.mark.parametrize("kind, form", [("f16", F16), ("bf16", BF16)])
@pytest.mark.parametrize("arch, high", [("gfx1100", 0), ("gfx1100", 1), ("gfx1201", 0)])
def test_results_of_16_bits(kind, form, arch, high):
    twice = arch == "gfx1100"
    a, b, c = (GENERATOR.integers(-3, 3, (16, 16)) for _ in range(3))
    first, second = (wmma_operand(x, form.nearest, 16, twice) for x in (a, b.T))
    count = 8 if twice else 4
    C_ = np.full((count, 32), 0x5A5A5A5A if twice else 0, np.uint32)

    def place(i, j):
        """Register, bit and lane of an element of C and D."""
        return (i // 2, 16 * high, j + 16 * (i % 2)) if twice else (i % 8 // 2, 16 * (i % 2), j + 16 * (i // 8))

    for i in range(16):
        for j in range(16):
            register, shift, lane = place(i, j)
            C_[register, lane] = C_[register, lane] & ~np.uint32(0xFFFF << shift) | form.nearest(int(c[i, j])) << shift
    V = {A + n: row for n, row in enumerate(first)} | {B + n: row for n, row in enumerate(second)}
    V |= {C + n: row for n, row in enumerate(C_)} | {D + n: 0x12345678 for n in range(count)}
    tail = " op_sel:[0,0,1]" if high else ""
    text = f"v_wmma_{kind}_16x16x16_{kind} {wide(D, count)}, {wide(A, len(first))}, {wide(B, len(second))}, "
    w = execute(text + wide(C, count) + tail, arch=arch, V=V)
    for i in range(16):
        for j in range(16):
            register, shift, lane = place(i, j)
            assert int(w.V[D + register, 0, lane]) >> shift & 0xFFFF == form.nearest(int((a @ b + c)[i, j]))
    if twice:  # the other half of each register stays
        assert (w.V[D : D + 8, 0] >> (16 * (1 - high)) & 0xFFFF == 0x12345678 >> 16 * (1 - high) & 0xFFFF).all()


@pytest.mark.parametrize("arch, k", [("gfx1100", 16), ("gfx1201", 16), ("gfx1201", 32)])
@pytest.mark.parametrize("signs", [(1, 1), (0, 1)])
def test_integers_of_4_bits(arch, k, signs):
    twice = arch == "gfx1100"
    a, b = (GENERATOR.integers(-8 if s else 0, 8 if s else 16, (16, k)) for s in signs)
    first, second = (wmma_operand(x, lambda n: n & 15, 4, twice) for x in (a, b))
    V = {A + n: row for n, row in enumerate(first)} | {B + n: row for n, row in enumerate(second)}
    text = f"v_wmma_i32_16x16x{k}_iu4 {wide(D, 8)}, {wide(A, len(first))}, {wide(B, len(second))}, 7"
    w = execute(f"{text} neg_lo:[{signs[0]},{signs[1]},0]", arch=arch, V=V)
    wanted = a @ b.T + 7
    for i in range(16):
        for j in range(16):
            register, lane = (i // 2, j + 16 * (i % 2)) if twice else (i % 8, j + 16 * (i // 8))
            assert w.I[D + register, 0, lane] == wanted[i, j]
