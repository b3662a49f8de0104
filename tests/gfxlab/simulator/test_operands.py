"""What an operand means to an instruction: constants by type, parts of registers, other lanes, output modifiers."""

import numpy as np
import pytest
from exact import F16, F16_EDGES, F32, F32_EDGES, add, fma, maximum, multiply
from integers import FEW, HALVES, LONG, M32, M64, WORDS, signed
from one_instruction import execute, lanewise, wavewise
from test_double import EDGES as F64_EDGES
from test_double import F64

from gfxlab.simulator.core.operands import VCC

ONE, HALF = F64.nearest(1.0), F64.nearest(0.5)

# ---- constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, meaning",
    [
        ("1.0", ONE),
        ("-0.5", HALF | 1 << 63),
        ("0.15915494309189532", 0x3FC45F306DC9C882),
        ("64", 64),
        ("-16", M64 - 15),
        ("0x3ff80000", 0x3FF80000),
        ("0xf0000000", 0xF0000000),
    ],
)
def test_a_constant_of_64_bits(text, meaning):
    w = execute(f"v_mov_b64_e32 v[10:11], {text}\ns_mov_b64 s[10:11], {text}")
    assert int(w.V[10, 0, 0]) | int(w.V[11, 0, 0]) << 32 == meaning
    assert int(w.S[0, 10]) | int(w.S[0, 11]) << 32 == meaning


def test_a_literal_of_a_signed_number_of_64_bits_is_extended_by_its_sign():
    wavewise(
        "s_ashr_i64 s[10:11], 0xf0123456, s2",
        lambda n, status: nonzero(status, signed(0xF0123456) >> (n & 63)),
        WORDS,
        result_bits=64,
    )


def nonzero(status, value):
    status.scc = value != 0
    return value


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_literal_of_a_double_is_its_high_half(arch):
    def product(a):
        return multiply(F64, a, 0x40590000 << 32)

    encoding = "v_mul_f64_e32" if arch == "gfx1201" else "v_mul_f64"
    lanewise(f"{encoding} v[10:11], v[2:3], 0x40590000", product, F64_EDGES, arch=arch, result_bits=64, same=F64.same)


def test_comparing_with_a_float_constant():
    for text, bits in (("1.0", ONE), ("0x40590000", 0x40590000 << 32)):
        w = execute(
            f"v_cmp_eq_f64_e64 s[30:31], {text}, v[2:3]\nv_cmp_eq_u64_e64 s[32:33], {'1.0'}, v[2:3]",
            V={2: bits & M32, 3: bits >> 32},
        )
        assert w.lane_mask(30).all(), text
        assert w.lane_mask(32).all() == (bits == ONE)


PACKED = {  # what the low and the high half of a source become, for a packed f16, for a packed integer
    "1.0": (0x00003C00, 0x3F800000),
    "-4.0": (0x0000C400, 0xC0800000),
    "5": (5, 5),
    "-1": (M32, M32),
}


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("constant", PACKED)
def test_a_constant_of_a_packed_instruction_is_one_word(constant, arch):
    as_float, as_integer = PACKED[constant]
    w = execute(
        f"v_pk_max_f16 v10, v2, {constant}\nv_pk_add_u16 v11, v3, {constant}\n"
        f"v_pk_add_u16 v12, v3, {constant} op_sel_hi:[1,0]",
        arch=arch,
        V={2: 0xFC00FC00, 3: 0},
    )
    floats = [maximum(F16, 0xFC00, as_float >> s & 0xFFFF) for s in (0, 16)]
    assert int(w.V[10, 0, 0]) == floats[0] | floats[1] << 16
    assert int(w.V[11, 0, 0]) == as_integer
    assert int(w.V[12, 0, 0]) == (as_integer & 0xFFFF) * 0x10001


def test_a_float_constant_of_a_dot_product_is_one_float16():
    w = execute("v_dot2_f32_f16 v10, v2, 2.0, v3", V={2: 0x42003C00, 3: np.float32(0.5)})
    assert w.F[10, 0, 0] == 2.5


# ---- parts of registers ----------------------------------------------------------------------------------------------

PARTS = {"BYTE_1": (8, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16), "DWORD": (0, 32)}


def part(word, name, extend=False):
    shift, bits = PARTS[name]
    value = word >> shift & (1 << bits) - 1
    return signed(value, bits) if extend else value


@pytest.mark.parametrize("first, second", [("WORD_0", "WORD_1"), ("BYTE_3", "WORD_0"), ("DWORD", "BYTE_1")])
def test_parts_of_words(first, second):
    tail = f"src0_sel:{first} src1_sel:{second}"
    lanewise(
        f"v_add_u32_sdwa v10, v2, v4 dst_sel:DWORD dst_unused:UNUSED_PAD {tail}",
        lambda a, b: part(a, first) + part(b, second),
        WORDS,
        WORDS,
    )
    lanewise(
        f"v_add_u32_sdwa v10, sext(v2), sext(v4) dst_sel:DWORD dst_unused:UNUSED_PAD {tail}",
        lambda a, b: part(a, first, True) + part(b, second, True),
        WORDS,
        WORDS,
    )


@pytest.mark.parametrize("name", ["BYTE_1", "BYTE_3", "WORD_1"])
def test_a_signed_part_of_a_narrow_source(name):
    lanewise(
        f"v_max_i16_sdwa v10, sext(v2), sext(v4) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{name} src1_sel:{name}",
        lambda a, b: max(part(a, name, True), part(b, name, True)) & 0xFFFF,
        WORDS,
        FEW,
    )


# ---- other lanes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_a_comparison_takes_its_first_source_from_another_lane(arch):
    lane = np.arange(32, dtype=np.uint32)
    w = execute("v_cmp_eq_u32 vcc_lo, v2, v4 row_ror:4 row_mask:0xf bank_mask:0xf", arch=arch, V={2: lane, 4: lane ^ 4})
    from_lane = lane & 16 | (lane - 4) & 15
    assert (w.lane_mask(106)[0] == (from_lane == lane ^ 4)).all()


def test_the_zero_beyond_a_row_is_negated_too():
    text = "v_mul_f32_e64_dpp v10, -v2, v4 row_shl:3 row_mask:0xf bank_mask:0xf bound_ctrl:1"
    w = execute(text, arch="gfx1100", V={2: np.float32(2), 4: np.float32(1)})
    assert w.V[10, 0, 15] == 0x80000000 and w.F[10, 0, 0] == -2


# ---- output modifiers ------------------------------------------------------------------------------------------------


def clamped(form, code):
    value = form.value(code)
    return form.nearest(min(value, 1.0)) if value > 0 else 0


def test_clamp_of_mixed_precision():
    for name, op_sel in (("f32", ""), ("f32", " op_sel_hi:[1,1,0]")):

        def one(code, half):
            return F32.nearest(F16.value(code & 0xFFFF)) if half else code

        lanewise(
            f"v_fma_mix_{name} v10, v2, v4, v6{op_sel} clamp",
            lambda a, b, c, half=bool(op_sel): clamped(F32, fma(F32, one(a, half), one(b, half), c)),
            F32_EDGES[:12],
            [0x3F800000, 0xC0003C00],
            [0, 0x3F000000, 0x7FC00000],
            same=F32.same,
        )
    lanewise(
        "v_fma_mixlo_f16 v10, v2, v4, 0 op_sel_hi:[1,1,0] clamp",
        lambda a, b: 0x5A5A0000 | clamped(F16, F16.nearest(F16.value(a) * F16.value(b))),
        F16_EDGES,
        [0x3C00, 0xBC00, 0x4000],
    )


def test_clamp_of_a_pair():
    def pair(a, b):
        sums = [add(F32, a >> s & M32, b >> s & M32) for s in (0, 32)]
        return clamped(F32, sums[0]) | clamped(F32, sums[1]) << 32

    some = [0x3F000000_BF800000, 0x7FC00000_3E800000, 0x40000000_00000001]
    lanewise("v_pk_add_f32 v[10:11], v[2:3], v[4:5] clamp", pair, some, some, result_bits=64)


INTEGER_PAIRS = {
    "add_u16": lambda a, b: a + b,
    "sub_u16": lambda a, b: a - b,
    "add_i16": lambda a, b: a + b,
    "sub_i16": lambda a, b: a - b,
    "mul_lo_u16": lambda a, b: a * b,
    "max_i16": max,
    "min_u16": min,
    "lshlrev_b16": lambda n, a: a << (n & 15) & 0xFFFF,
}


@pytest.mark.parametrize("name", INTEGER_PAIRS)
def test_clamp_of_a_pair_of_integers_saturates(name):
    is_signed = name.endswith("i16")
    least, most = (-(1 << 15), (1 << 15) - 1) if is_signed else (0, 0xFFFF)

    def half(a, b):
        a, b = (signed(x, 16) if is_signed else x for x in (a, b))
        return min(max(INTEGER_PAIRS[name](a, b), least), most) & 0xFFFF

    words = [low | HALVES[-1 - place] << 16 for place, low in enumerate(HALVES)]
    lanewise(
        f"v_pk_{name} v10, v2, v4 clamp",
        lambda a, b: half(a & 0xFFFF, b & 0xFFFF) | half(a >> 16, b >> 16) << 16,
        words,
        words,
    )


def test_clamp_of_integers_with_a_carry():
    lanewise("v_add_co_u32 v10, vcc, v2, v4 clamp", lambda a, b, _: (min(a + b, M32), a + b > M32), FEW, FEW, carry=[0])
    lanewise("v_sub_co_u32 v10, vcc, v2, v4 clamp", lambda a, b, _: (max(a - b, 0), a < b), FEW, FEW, carry=[0])


def test_clamp_and_scale_of_doubles():
    lanewise(
        "v_add_f64 v[10:11], v[2:3], v[4:5] clamp",
        lambda a, b: clamped(F64, add(F64, a, b)),
        F64_EDGES,
        [0, ONE, HALF | 1 << 63],
        result_bits=64,
    )
    twice = lambda a, b: multiply(F64, multiply(F64, a, b), F64.nearest(2.0))  # noqa: E731
    text = "v_mul_f64 v[10:11], v[2:3], v[4:5] mul:2"
    lanewise(text, twice, F64_EDGES, [ONE, HALF], result_bits=64, same=F64.same)


def test_a_scale_is_ignored_in_ieee_mode():
    text = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), {}\nv_add_f32_e64 v10, v2, 1.0 mul:2"
    for ieee, wanted in ((0, 8.0), (1, 4.0)):
        assert execute(text.format(ieee), V={2: np.float32(3)}).F[10, 0, 0] == wanted


def test_a_scaled_quotient_may_be_clamped():
    w = execute("v_div_scale_f32 v10, vcc, -v2, -v2, v4 clamp", V={2: np.float32(-3), 4: np.float32(1)})
    assert w.F[10, 0, 0] == 1 and not w.lane_mask(106).any()


# ---- MODE ------------------------------------------------------------------------------------------------------------

OVERFLOW = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), {}\n"


@pytest.mark.parametrize("text", ["v_cvt_f16_f32_e32 v10, v2", "v_fma_mixlo_f16 v10, v2, 1.0, 0"])
def test_a_float16_that_overflows(text):
    for mode, big, infinity in ((0, 0x7C00, 0x7C00), (1, 0x7BFF, 0x7C00)):
        w = execute(OVERFLOW.format(mode) + text, V={2: np.where(np.arange(64) % 2, 1e6, np.inf).astype(np.float32)})
        assert (w.V[10, 0] & 0xFFFF).tolist() == [infinity, big] * 32


def test_packed_float16_overflow_by_the_half():
    for mode, big in ((0, 0x7C00), (1, 0x7BFF)):
        w = execute(OVERFLOW.format(mode) + "v_pk_add_f16 v10, v2, v2", V={2: 0x7BFF7C00})
        assert int(w.V[10, 0, 0]) == big << 16 | 0x7C00


@pytest.mark.parametrize("arch, kind, beyond, largest", [
    ("gfx942", "fp8", 0x80, 0x7F),
    ("gfx942", "bf8", 0x80, 0x7F),
    ("gfx950", "fp8", 0x7F, 0x7E),
    ("gfx950", "bf8", 0x7C, 0x7B),
    ("gfx1201", "bf8", 0x7C, 0x7B),
])  # fmt: skip
def test_a_float8_that_overflows(arch, kind, beyond, largest):
    for mode, wanted in ((0, beyond), (1, largest)):
        text = OVERFLOW.format(mode) + f"v_cvt_pk_{kind}_f32 v10, v2, v2"
        assert int(execute(text, arch=arch, V={2: np.float32(1e9)}).V[10, 0, 0]) & 0xFF == wanted


def test_reading_a_hardware_register():
    w = execute(
        OVERFLOW.format(1) + "s_getreg_b32 s10, hwreg(HW_REG_MODE, 22, 4)\ns_getreg_b32 s11, hwreg(HW_REG_HW_ID)"
    )
    assert int(w.S[0, 10]) == 2 and int(w.S[0, 11]) == 0


def test_shift_of_an_added_number():
    lanewise(
        "v_lshl_add_u64 v[10:11], v[2:3], v4, v[6:7]",
        lambda a, n, b: (a << (n & 7)) + b,
        LONG,
        [0, 1, 4, 9],
        LONG[:3],
        result_bits=64,
    )


def test_the_sign_of_an_exact_sum_stands_where_a_carry_would():
    """v_mad_i64_i32: bit 64 of the sum, which is its sign."""
    lanewise(
        "v_mad_i64_i32 v[10:11], vcc, v2, v4, v[6:7]",
        lambda a, b, c, _: (signed(a) * signed(b) + signed(c, 64), signed(a) * signed(b) + signed(c, 64) < 0),
        FEW,
        FEW,
        LONG,
        carry=[0],
        result_bits=64,
    )


# ---- denormals -------------------------------------------------------------------------------------------------------

DENORMALS = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), {}\n"
SMALLEST, TINY = 0x00800000, 0x00400000  # the smallest normal number, half of it


@pytest.mark.parametrize(
    "mode, of_tiny, of_smallest",
    [(15, SMALLEST, TINY), (14, 0, TINY), (13, SMALLEST, 0), (12, 0, 0), (3, SMALLEST, TINY)],
)
@pytest.mark.parametrize("sign", [0, 0x80000000])
def test_denormals_of_float32_are_flushed_as_mode_says(mode, of_tiny, of_smallest, sign):
    """Bit 4 of MODE keeps them in the sources, bit 5 in the result: twice a denormal, half of the smallest normal."""
    text = DENORMALS.format(mode) + "v_add_f32_e32 v10, v2, v2\nv_mul_f32_e32 v11, 0.5, v3\nv_mov_b32_e32 v12, v2"
    w = execute(text, V={2: TINY | sign, 3: SMALLEST | sign})
    assert [hex(w.V[i, 0, 0]) for i in (10, 11, 12)] == [hex(x | sign) for x in (of_tiny, of_smallest, TINY)]


def test_denormals_of_the_other_formats_have_bits_of_their_own():
    for mode, wanted in (15, 0x0002), (3, 0), (12, 0x0002):
        w = execute(DENORMALS.format(mode) + "v_add_f16_e32 v10, v2, v2", V={2: 1})
        assert w.V[10, 0, 0] == wanted
    text = "s_denorm_mode 0\ns_add_f32 s10, s2, s2\nv_cmp_eq_f32 vcc_lo, 0, v2"
    w = execute(text, arch="gfx1201", V={2: 5}, S={2: 5})
    assert w.S[0, 10] == 0 and w.lane_mask(VCC).all()
