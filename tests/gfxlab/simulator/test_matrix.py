"""Matrix instructions: each element's lane, register and place in the register, spelled out as formulas.

A and B hold different numbers in every place, so that a wrong place gives a wrong product.
Formulas: AMD, "Matrix Instruction Calculator"; RDNA 3 ISA, section 7.9; RDNA 4 ISA, section 7.12.
"""

import numpy as np
import pytest
from exact import BF16, E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, F16, F32
from one_instruction import ACCUMULATORS, execute

GENERATOR = np.random.default_rng(3)
BITS = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "i8": 8, "u8": 8, "f64": 64}
A, B, C, D = 16, 48, 80, 112  # first registers


def code(kind: str, number: int, arch: str) -> int:
    """The bits of a small whole number."""
    forms = {"f32": F32, "xf32": F32, "f16": F16, "bf16": BF16}
    forms["fp8"], forms["bf8"] = (E4M3_FNUZ, E5M2_FNUZ) if arch == "gfx942" else (E4M3, E5M2)
    if kind in forms:
        return forms[kind].nearest(number)
    if kind == "f64":
        return int(np.float64(number).view(np.uint64))
    return number & 0xFF


def numbers(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Random whole numbers that the type holds exactly."""
    most = {"bf8": 4, "fp8": 8, "u8": 255, "i8": 128}.get(kind, 100)
    return GENERATOR.integers(0 if kind == "u8" else -most, most, shape)


def put(registers: np.ndarray, lane: int, place: int, kind: str, bits: int) -> None:
    """Write number `place` of a lane: narrow ones share a register, the first lowest."""
    per_register = max(1, 32 // BITS[kind])
    if kind == "f64":
        registers[2 * place, lane], registers[2 * place + 1, lane] = bits & 0xFFFFFFFF, bits >> 32
    else:
        registers[place // per_register, lane] |= bits << BITS[kind] * (place % per_register)


MFMA = [
    *(("gfx90a", name) for name in ("f32_32x32x8f16", "f32_16x16x16f16", "f32_32x32x8bf16_1k", "f32_16x16x16bf16_1k")),
    *(("gfx90a", name) for name in ("f32_32x32x2f32", "f32_16x16x4f32", "i32_32x32x8i8", "i32_16x16x16i8")),
    *(("gfx942", name) for name in ("f32_32x32x8_f16", "f32_16x16x16_f16", "f32_32x32x8_bf16", "f32_16x16x16_bf16")),
    *(("gfx942", name) for name in ("f32_32x32x2_f32", "f32_16x16x4_f32", "f32_32x32x4_xf32", "f32_16x16x8_xf32")),
    *(("gfx942", name) for name in ("i32_32x32x16_i8", "i32_16x16x32_i8")),
    *(("gfx942", f"f32_{m}_{a}_{b}") for m in ("32x32x16", "16x16x32") for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
    *(("gfx950", name) for name in ("f32_32x32x16_f16", "f32_16x16x32_f16", "f32_32x32x16_bf16", "f32_16x16x32_bf16")),
    *(("gfx950", name) for name in ("i32_32x32x32_i8", "i32_16x16x64_i8", "f32_32x32x16_fp8_bf8")),
]


def read_name(name: str) -> tuple[str, int, int, list[str]]:
    result, rest = name.removesuffix("_1k").split("_", 1)
    shape, *types = rest.split("_")
    m, _, k = shape.split("x")
    if not types:
        digits = len(k) - len(k.lstrip("0123456789"))
        k, types = k[:digits], [k[digits:]]
    return result, int(m), int(k), [types[0], types[-1]]


def wide(first: int, registers: int, file: str = "v") -> str:
    return f"{file}[{first}:{first + registers - 1}]" if registers > 1 else f"{file}{first}"


@pytest.mark.parametrize("arch, name", MFMA, ids=lambda x: x)
@pytest.mark.parametrize("accumulators", [False, True], ids=["v", "a"])
def test_mfma(arch, name, accumulators):
    result, m, k, (kind_a, kind_b) = read_name(name)
    pieces = 64 // m
    each = k // pieces  # numbers of k in a lane
    a, b = numbers(kind_a, (m, k)), numbers(kind_b, (k, m))
    c = GENERATOR.integers(-1000, 1000, (m, m))
    A_, B_ = (np.zeros((max(1, each * BITS[kind] // 32), 64), np.uint32) for kind in (kind_a, kind_b))
    for i in range(m):
        for j in range(k):
            put(A_, i + m * (j // each), j % each, kind_a, code(kind_a, int(a[i, j]), arch))
            put(B_, i + m * (j // each), j % each, kind_b, code(kind_b, int(b[j, i]), arch))
    C_ = np.zeros((m * m // 64, 64), np.uint32)
    place = {}
    for i in range(m):
        for j in range(m):
            register = 4 * (i // (4 * pieces)) + i % 4
            place[i, j] = register, j + m * (i // 4 % pieces)
            C_[place[i, j]] = code("f32", int(c[i, j]), arch) if result == "f32" else int(c[i, j]) & 0xFFFFFFFF
    first = (C + ACCUMULATORS, D + ACCUMULATORS) if accumulators else (C, D)
    V = {A + n: row for n, row in enumerate(A_)} | {B + n: row for n, row in enumerate(B_)}
    V |= {first[0] + n: row for n, row in enumerate(C_)}
    file, count = "a" if accumulators else "v", len(C_)
    text = f"v_mfma_{name} {wide(D, count, file)}, {wide(A, len(A_))}, {wide(B, len(B_))}, {wide(C, count, file)}"
    w = execute(text, arch=arch, V=V, lanes_on=np.arange(64) < 3)  # they ignore EXEC
    seen = (w.F if result == "f32" else w.I)[first[1] : first[1] + count, 0]
    found = np.array([[seen[place[i, j]] for j in range(m)] for i in range(m)])
    assert (found == a @ b + c).all()


@pytest.mark.parametrize("name", ["f32_16x16x128_f8f6f4", "f32_32x32x64_f8f6f4"])
@pytest.mark.parametrize("formats", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_wide_float8_mfma_choose_their_formats(name, formats):
    m, k = (16, 128) if "16x16" in name else (32, 64)
    kind_a, kind_b = (("fp8", "bf8")[f] for f in formats)
    a, b = numbers(kind_a, (m, k)), numbers(kind_b, (k, m))
    A_, B_ = np.zeros((8, 64), np.uint32), np.zeros((8, 64), np.uint32)
    for i in range(m):
        for j in range(k):
            put(A_, i + m * (j // 32), j % 32, kind_a, code(kind_a, int(a[i, j]), "gfx950"))
            put(B_, i + m * (j // 32), j % 32, kind_b, code(kind_b, int(b[j, i]), "gfx950"))
    count = m * m // 64
    text = f"v_mfma_{name} {wide(D, count)}, {wide(A, 8)}, {wide(B, 8)}, 0 cbsz:{formats[0]} blgp:{formats[1]}"
    V = {A + n: row for n, row in enumerate(A_)} | {B + n: row for n, row in enumerate(B_)}
    w = execute(text, arch="gfx950", V=V)
    product = a @ b
    for lane in range(64):
        for register in range(count):
            row = 4 * (64 // m) * (register // 4) + 4 * (lane // m) + register % 4
            assert w.F[D + register, 0, lane] == product[row, lane % m]


@pytest.mark.parametrize(
    "arch, name", [("gfx90a", "4x4x4f16"), ("gfx942", "4x4x4_16b_f16"), ("gfx942", "4x4x1_16b_f32")]
)
@pytest.mark.parametrize("cbsz, abid", [(0, 0), (4, 0), (4, 5), (2, 3)])
def test_mfma_of_small_blocks(arch, name, cbsz, abid):
    k, kind = (1, "f32") if "f32" in name else (4, "f16")
    a, b = GENERATOR.integers(-100, 100, (16, 4, k)), GENERATOR.integers(-100, 100, (16, k, 4))
    count = max(1, k * BITS[kind] // 32)
    A_, B_ = np.zeros((count, 64), np.uint32), np.zeros((count, 64), np.uint32)
    for block in range(16):
        for i in range(4):
            for j in range(k):
                put(A_, 4 * block + i, j, kind, code(kind, int(a[block, i, j]), arch))
                put(B_, 4 * block + i, j, kind, code(kind, int(b[block, j, i]), arch))
    V = {A + n: row for n, row in enumerate(A_)} | {B + n: row for n, row in enumerate(B_)}
    modifiers = (f" cbsz:{cbsz}" if cbsz else "") + (f" abid:{abid}" if abid else "")
    w = execute(f"v_mfma_f32_{name} {wide(D, 4)}, {wide(A, count)}, {wide(B, count)}, 0{modifiers}", arch=arch, V=V)
    for block in range(16):
        shared = block // 2**cbsz * 2**cbsz + abid if cbsz else block
        assert (w.F[D : D + 4, 0, 4 * block : 4 * block + 4] == a[shared] @ b[block]).all()


@pytest.mark.parametrize("signs", [(0, 0, 0), (1, 0, 0), (1, 1, 1)])
def test_mfma_of_doubles(signs):
    a, b, c = (GENERATOR.integers(-(2**20), 2**20, shape) for shape in ((16, 4), (4, 16), (16, 16)))
    A_, B_, C_ = np.zeros((2, 64), np.uint32), np.zeros((2, 64), np.uint32), np.zeros((8, 64), np.uint32)
    for i in range(16):
        for j in range(4):
            put(A_, i + 16 * j, 0, "f64", code("f64", int(a[i, j]), ""))
            put(B_, i + 16 * j, 0, "f64", code("f64", int(b[j, i]), ""))
        for j in range(16):
            put(C_, j + 16 * (i % 4), i // 4, "f64", code("f64", int(c[i, j]), ""))
    V = {A + n: row for n, row in enumerate(A_)} | {B + n: row for n, row in enumerate(B_)}
    V |= {C + n: row for n, row in enumerate(C_)}
    text = f"v_mfma_f64_16x16x4_f64 {wide(C, 8)}, {wide(A, 2)}, {wide(B, 2)}, {wide(C, 8)}"
    w = execute(f"{text} neg:[{signs[0]},{signs[1]},{signs[2]}]", V=V)
    wanted = (-1) ** (signs[0] + signs[1]) * (a @ b) + (-1) ** signs[2] * c
    for i in range(16):
        for j in range(16):
            lane = j + 16 * (i % 4)
            words = w.V[C + 2 * (i // 4) : C + 2 * (i // 4) + 2, 0, lane].copy()
            assert words.view(np.float64)[0] == wanted[i, j]


def test_xf32_multiplies_ten_bits_of_mantissa():
    one = np.full((1, 64), F32.nearest(1), np.uint32)
    V = {A: F32.nearest(1 + 2.0**-11), A + 1: F32.nearest(1 + 3 * 2.0**-11), B: one, B + 1: one}
    w = execute(f"v_mfma_f32_16x16x8_xf32 {wide(D, 4)}, {wide(A, 2)}, {wide(B, 2)}, 0", V=V)
    assert (w.F[D, 0] == 4 * (1 + (1 + 2 * 2.0**-10))).all()  # ties to even: down to 1, up to 1 + 2**-9


# ---- WMMA ------------------------------------------------------------------------------------------------------------

WMMA = [("gfx1100", "f32", kind) for kind in ("f16", "bf16")] + [("gfx1100", "i32", "iu8")]
WMMA += [("gfx1201", "f32", kind) for kind in ("f16", "bf16", "fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")]
WMMA += [("gfx1201", "i32", "iu8")]


@pytest.mark.parametrize("arch, result, types", WMMA, ids=lambda x: x)
@pytest.mark.parametrize("signs", [(1, 1), (0, 1), (0, 0)])
def test_wmma(arch, result, types, signs):
    if types != "iu8" and signs != (1, 1):
        return  # floats have their sign
    kind_a, kind_b = (["u8", "i8"][s] for s in signs) if types == "iu8" else (types.split("_")[0], types.split("_")[-1])
    a, b, c = numbers(kind_a, (16, 16)), numbers(kind_b, (16, 16)), GENERATOR.integers(-1000, 1000, (16, 16))
    each = 16 if arch == "gfx1100" else 8  # numbers of k in a lane: all of them, or half
    A_, B_ = (np.zeros((each * BITS[kind] // 32, 32), np.uint32) for kind in (kind_a, kind_b))
    for i in range(16):
        for j in range(16):
            for lane in [i, i + 16] if each == 16 else [i + 16 * (j // 8)]:
                put(A_, lane, j % each, kind_a, code(kind_a, int(a[i, j]), arch))
                put(B_, lane, j % each, kind_b, code(kind_b, int(b[j, i]), arch))

    def place(i, j):
        return (i // 2, j + 16 * (i % 2)) if arch == "gfx1100" else (i % 8, j + 16 * (i // 8))

    C_ = np.zeros((8, 32), np.uint32)
    for i in range(16):
        for j in range(16):
            C_[place(i, j)] = F32.nearest(int(c[i, j])) if result == "f32" else int(c[i, j]) & 0xFFFFFFFF
    V = {A + n: row for n, row in enumerate(A_)} | {B + n: row for n, row in enumerate(B_)}
    V |= {C + n: row for n, row in enumerate(C_)}
    modifiers = f" neg_lo:[{signs[0]},{signs[1]},0]" if types == "iu8" else ""
    text = f"v_wmma_{result}_16x16x16_{types} {wide(D, 8)}, {wide(A, len(A_))}, {wide(B, len(B_))}, {wide(C, 8)}"
    w = execute(text + modifiers, arch=arch, V=V)
    seen = (w.F if result == "f32" else w.I)[D : D + 8, 0]
    assert (np.array([[seen[place(i, j)] for j in range(16)] for i in range(16)]) == a @ b + c).all()


@pytest.mark.parametrize("result, types, registers", [("f32", "f16", 8), ("f32", "bf16", 8), ("f16", "f16", 4)])
@pytest.mark.parametrize("low, high", [((1, 0, 0), (1, 0, 0)), ((1, 0, 0), (0, 1, 0)), ((0, 0, 1), (0, 0, 0)),
                                       ((0, 0, 0), (0, 0, 1)), ((0, 1, 1), (0, 1, 1))])  # fmt: skip
def test_signs_of_wmma_operands(result, types, registers, low, high):
    """The same as without modifiers on numbers whose signs were changed before."""
    halves = GENERATOR.standard_normal((8, 32, 2)).astype(np.float32)
    words = (halves.view(np.uint32) >> 16) if types == "bf16" else halves.astype(np.float16).view(np.uint16)
    words = (words[..., 0] | words[..., 1].astype(np.uint32) << 16).astype(np.uint32)
    c = GENERATOR.standard_normal((registers, 32, 1 if result == "f32" else 2))
    c = (c.astype(np.float32) if result == "f32" else c.astype(np.float16)).view(np.uint32)[..., 0]
    text = f"v_wmma_{result}_16x16x16_{types} {wide(D, registers)}, {wide(A, 4)}, {wide(B, 4)}, {wide(C, registers)}"
    given = {A + n: words[n] for n in range(4)} | {B + n: words[4 + n] for n in range(4)}
    changed = {
        first + n: word[n] ^ np.uint32(0x8000 * low[place] | 0x80000000 * high[place])
        for place, (first, word) in enumerate([(A, words[:4]), (B, words[4:])])
        for n in range(4)
    }
    sign = np.uint32(0x80000000 if result == "f32" else 0x80008000)
    signed = (c & ~sign if high[2] else c) ^ (sign if low[2] else np.uint32(0))
    list_of = lambda bits: "[" + ",".join(map(str, bits)) + "]"  # noqa: E731
    modifiers = f" neg_lo:{list_of(low)} neg_hi:{list_of(high)}"
    w = execute(text + modifiers, arch="gfx1201", V=given | {C + n: row for n, row in enumerate(c)})
    plain = execute(text, arch="gfx1201", V=changed | {C + n: row for n, row in enumerate(signed)})
    assert np.array_equal(w.V[D : D + registers], plain.V[D : D + registers])


def test_an_addend_whose_sign_changes_goes_through_its_registers():
    text = f"v_wmma_f32_16x16x16_f16 {wide(D, 8)}, {wide(A, 4)}, {wide(B, 4)}, "
    text = f"{text}0\n{text}{wide(D, 8)} neg_lo:[0,0,1]"
    V = dict(enumerate(GENERATOR.integers(1, 9, (C, 32, 2)).astype(np.float16).view(np.uint32)[..., 0]))
    alone, together = (execute(text, arch="gfx1201", V=V, as_block=block) for block in (False, True))
    assert (alone.F[D : D + 8] == 0).all() and (together.F[D : D + 8] == 0).all()


# ---- dot products within a lane --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arch, name, kinds, modifiers",
    [
        ("gfx942", "v_dot2_f32_f16", ("f16", "f16"), ""),
        ("gfx950", "v_dot2c_f32_bf16", ("bf16", "bf16"), ""),
        ("gfx942", "v_dot2c_f32_f16", ("f16", "f16"), ""),
        ("gfx942", "v_dot4_i32_i8", ("i8", "i8"), ""),
        ("gfx942", "v_dot4c_i32_i8", ("i8", "i8"), ""),
        ("gfx1100", "v_dot4_i32_iu8", ("i8", "i8"), " neg_lo:[1,1,0]"),
        ("gfx1100", "v_dot4_i32_iu8", ("u8", "i8"), " neg_lo:[0,1,0]"),
        ("gfx1100", "v_dot4_i32_iu8", ("u8", "u8"), ""),
    ],
)
def test_dot_products_of_a_lane(arch, name, kinds, modifiers):
    lanes, terms = (64 if arch != "gfx1100" else 32), 2 if "16" in kinds[0] else 4
    a, b = (numbers(kind, (lanes, terms)) for kind in kinds)
    A_, B_ = np.zeros((1, lanes), np.uint32), np.zeros((1, lanes), np.uint32)
    for lane in range(lanes):
        for place in range(terms):
            put(A_, lane, place, kinds[0], code(kinds[0], int(a[lane, place]), arch))
            put(B_, lane, place, kinds[1], code(kinds[1], int(b[lane, place]), arch))
    start = np.int32(77) if terms == 4 else np.float32(77)
    last = ", v10" if "c_" not in name else ""
    w = execute(f"{name} v10, v2, v4{last}{modifiers}", arch=arch, V={2: A_[0], 4: B_[0], 10: start})
    assert ((w.I if terms == 4 else w.F)[10, 0] == (a * b).sum(axis=1) + 77).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_dot_products_with_16_bit_results(kind):
    a, b, c = (numbers(kind, (32, terms)) for terms in (2, 2, 1))
    packed = [np.zeros((1, 32), np.uint32) for _ in range(3)]
    for lane in range(32):
        for words, values in zip(packed, (a, b, c)):
            for place, value in enumerate(values[lane]):
                put(words, lane, place, kind, code(kind, int(value), "gfx1100"))
    w = execute(
        f"v_dot2_{kind}_{kind} v10, v2, v4, v6", arch="gfx1100", V={2 + 2 * i: x[0] for i, x in enumerate(packed)}
    )
    for lane in range(32):
        wanted = int((a[lane] * b[lane]).sum() + c[lane, 0])
        assert int(w.V[10, 0, lane]) & 0xFFFF == code(kind, wanted, "gfx1100")


# ---- several products in a block -------------------------------------------------------------------------------------

PRODUCTS = {
    "gfx942": "v_mfma_f32_16x16x16_f16 v[{d}:{d3}], v[{a}:{a1}], v[{b}:{b1}], {c}",
    "gfx1201": "v_wmma_f32_16x16x16_f16 v[{d}:{d7}], v[{a}:{a3}], v[{b}:{b3}], {c}",
}


def in_a_block(arch: str, lines: list[tuple | str]) -> str:
    """Lines as they are; (d, a, b, c) is a product, c its first register or None for 0."""
    last = 3 if arch == "gfx942" else 7
    text = []
    for line in lines:
        if not isinstance(line, str):
            d, a, b, c = line
            places = {f"{name}{i}": first + i for name, first in zip("dab", line) for i in (1, 3, 7)}
            third = 0 if c is None else f"v[{c}:{c + last}]"
            line = PRODUCTS[arch].format(d=d, a=a, b=b, c=third, **places)
        text.append(line)
    return "\n".join(text)


@pytest.mark.parametrize("arch", PRODUCTS)
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([(32, 0, 8, None), (32, 4, 12, 32), (32, 0, 8, 32)], id="a chain"),
        pytest.param([(32, 0, 8, 48), "v_mov_b32 v1, v20", (40, 0, 8, 32)], id="an operand is written in between"),
        pytest.param([(32, 0, 8, None), "v_mov_b32 v60, v34", (32, 4, 8, 32)], id="the sum is read in between"),
        pytest.param([(32, 0, 8, None), "v_mov_b32 v33, 1.0", (32, 4, 8, 32)], id="the sum is written in between"),
        pytest.param([(32, 0, 8, None), (48, 32, 8, None), (32, 4, 8, 32), (32, 32, 8, 32)], id="the sum is a factor"),
        pytest.param([(32, 0, 8, None), (48, 4, 8, 32), (32, 4, 12, 32)], id="the sum is copied by a product"),
        pytest.param([(32, 0, 8, None), (34, 4, 8, None), (32, 4, 8, 32)], id="the sum is overwritten in part"),
        pytest.param([(0, 0, 8, None), (16, 0, 8, None)], id="an operand becomes the result"),
    ],
)
def test_products_of_a_block_are_what_they_are_alone(arch, lines):
    numbers = GENERATOR.standard_normal((64, 2, 64 if arch == "gfx942" else 32, 2)).astype(np.float16)
    V = dict(enumerate(numbers.view(np.uint32)[..., 0]))
    text = in_a_block(arch, lines)
    alone, together = (execute(text, arch=arch, V=V, waves=2, as_block=block) for block in (False, True))
    assert np.array_equal(alone.V, together.V) and not together.tiles


# codes in A and B of which every other one is 0, the addend, and the sum of a product where denormals are kept
DENORMALS = {
    "f16": ((0x0200, 0x6400, 0.0, 2.0**-5), (0x8200, 0x6400, 0.0, -(2.0**-5)), (0x0400, 0x6400, 0.0, 2.0**-4)),
    "bf16": ((0x0040, 0x5F80, 0.0, 2.0**-63), (0x1A80, 0x2080, 0.0, 2.0**-136), (0x3F80, 0x3F80, 2.0**-140, 1.0)),
}
OF_FLOAT16_AND_BFLOAT16 = [
    *(("gfx90a", f"{shape}{kind}") for shape in ("32x32x8", "4x4x4") for kind in ("f16", "bf16_1k")),
    *(("gfx942", f"{shape}_{kind}") for shape in ("32x32x8", "4x4x4_16b") for kind in ("f16", "bf16")),
]


@pytest.mark.parametrize("arch, name", OF_FLOAT16_AND_BFLOAT16)
def test_mi200_takes_denormals_of_half_precision_as_zero(arch, name):
    kind, one_block = "bf16" if "bf16" in name else "f16", name.startswith("32")
    last = 15 if one_block else 3
    for a, b, addend, expected in DENORMALS[kind]:
        V = {0: a, 1: 0, 2: b, 3: 0, **{C + i: np.float32(addend) for i in range(last + 1)}}
        w = execute(f"v_mfma_f32_{name} v[{D}:{D + last}], v[0:1], v[2:3], v[{C}:{C + last}]", arch=arch, V=V)
        if one_block:
            expected *= 2  # both halves of the wave hold a part of k
        if arch == "gfx90a" and (abs(expected) < 2.0**-126 or a & 0x7FFF in (0x0200, 0x0040)):
            expected = 0.0
        assert (w.V[D : D + last + 1].view(np.float32) == expected).all()


@pytest.mark.parametrize("arch, expected", [("gfx90a", 0.0), ("gfx942", 2.0**-5)])
def test_dot_instructions_do_so_too(arch, expected):
    w = execute("v_dot2c_f32_f16 v2, v0, v1", arch=arch, V={0: 0x02000000, 1: 0x64006400, 2: 0})
    assert (w.V[2].view(np.float32) == expected).all()
