"""Vector instructions against Python's integers and exact fractions."""

import math
from fractions import Fraction

import exact
import pytest
from exact import F16, F16_EDGES, F32, F32_EDGES
from integers import FEW, HALVES, LONG, M32, M64, ORDER, WORDS, highest_bit, lowest_bit, signed
from one_instruction import lanewise


def s24(value: int) -> int:
    return signed(value, 24)


def byte(high: int, low: int, choice: int) -> int:
    pair = [(high << 32 | low) >> 8 * place & 0xFF for place in range(8)]
    if choice < 8:
        return pair[choice]
    if choice < 12:
        return 0xFF * (pair[2 * (choice - 8) + 1] >> 7)
    return 0 if choice == 12 else 0xFF


def bit_field(a: int, offset: int, width: int) -> int:
    return a >> (offset & 31) & ((1 << (width & 31)) - 1)


def signed_bit_field(a: int, offset: int, width: int) -> int:
    width &= 31
    return signed(signed(a) >> (offset & 31), width) if width else 0


ONE_SOURCE = {
    "v_mov_b32_e32 v10, v2": lambda a: a,
    "v_not_b32_e32 v10, v2": lambda a: ~a,
    "v_bfrev_b32_e32 v10, v2": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32_e32 v10, v2": highest_bit,
    "v_ffbl_b32_e32 v10, v2": lowest_bit,
    "v_accvgpr_write_b32 a1, v2\nv_accvgpr_read_b32 v10, a1": lambda a: a,
    "v_mov_b32_e32 v10, 0x12345678": lambda a: 0x12345678,
    "v_mov_b32_e32 v10, -16": lambda a: -16,
    "v_mov_b32_e32 v10, 0.5": lambda a: 0x3F000000,
}
TWO_SOURCES = {
    "v_and_b32_e32 v10, v2, v4": lambda a, b: a & b,
    "v_or_b32_e32 v10, v2, v4": lambda a, b: a | b,
    "v_xor_b32_e32 v10, v2, v4": lambda a, b: a ^ b,
    "v_xnor_b32_e32 v10, v2, v4": lambda a, b: ~(a ^ b),
    "v_add_u32_e32 v10, v2, v4": lambda a, b: a + b,
    "v_sub_u32_e32 v10, v2, v4": lambda a, b: a - b,
    "v_subrev_u32_e32 v10, v2, v4": lambda a, b: b - a,
    "v_add_u32_e64 v10, v2, v4 clamp": lambda a, b: min(a + b, M32),
    "v_sub_u32_e64 v10, v2, v4 clamp": lambda a, b: max(a - b, 0),
    "v_add_i32 v10, v2, v4 clamp": lambda a, b: min(max(signed(a) + signed(b), -(1 << 31)), (1 << 31) - 1),
    "v_mul_lo_u32 v10, v2, v4": lambda a, b: a * b,
    "v_mul_hi_u32 v10, v2, v4": lambda a, b: a * b >> 32,
    "v_mul_hi_i32 v10, v2, v4": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24_e32 v10, v2, v4": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_hi_u32_u24_e32 v10, v2, v4": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_i32_i24_e32 v10, v2, v4": lambda a, b: s24(a) * s24(b),
    "v_min_u32_e32 v10, v2, v4": min,
    "v_max_u32_e32 v10, v2, v4": max,
    "v_min_i32_e32 v10, v2, v4": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32_e32 v10, v2, v4": lambda a, b: max(signed(a), signed(b)),
    "v_lshlrev_b32_e32 v10, v2, v4": lambda n, a: a << (n & 31),
    "v_lshrrev_b32_e32 v10, v2, v4": lambda n, a: a >> (n & 31),
    "v_ashrrev_i32_e32 v10, v2, v4": lambda n, a: signed(a) >> (n & 31),
    "v_bfm_b32 v10, v2, v4": lambda n, at: ((1 << (n & 31)) - 1) << (at & 31),
    "v_bcnt_u32_b32 v10, v2, v4": lambda a, b: a.bit_count() + b,
    "v_cvt_pk_u16_u32 v10, v2, v4": lambda a, b: min(a, 0xFFFF) | min(b, 0xFFFF) << 16,
}
THREE_SOURCES = {
    "v_add3_u32 v10, v2, v4, v6": lambda a, b, c: a + b + c,
    "v_or3_b32 v10, v2, v4, v6": lambda a, b, c: a | b | c,
    "v_and_or_b32 v10, v2, v4, v6": lambda a, b, c: a & b | c,
    "v_xad_u32 v10, v2, v4, v6": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32 v10, v2, v4, v6": lambda a, b, c: a & b | ~a & c,
    "v_bfe_u32 v10, v2, v4, v6": bit_field,
    "v_bfe_i32 v10, v2, v4, v6": signed_bit_field,
    "v_lshl_add_u32 v10, v2, v4, v6": lambda a, n, b: (a << (n & 31)) + b,
    "v_lshl_or_b32 v10, v2, v4, v6": lambda a, n, b: a << (n & 31) | b,
    "v_add_lshl_u32 v10, v2, v4, v6": lambda a, b, n: (a + b) << (n & 31),
    "v_mad_u32_u24 v10, v2, v4, v6": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24 v10, v2, v4, v6": lambda a, b, c: s24(a) * s24(b) + c,
    "v_min3_u32 v10, v2, v4, v6": min,
    "v_max3_i32 v10, v2, v4, v6": lambda a, b, c: max(map(signed, (a, b, c))),
    "v_med3_i32 v10, v2, v4, v6": lambda a, b, c: sorted(map(signed, (a, b, c)))[1],
    "v_med3_u32 v10, v2, v4, v6": lambda a, b, c: sorted((a, b, c))[1],
    "v_alignbit_b32 v10, v2, v4, v6": lambda a, b, n: (a << 32 | b) >> (n & 31),
    "v_alignbyte_b32 v10, v2, v4, v6": lambda a, b, n: (a << 32 | b) >> 8 * (n & 3),
    "v_sad_u32 v10, v2, v4, v6": lambda a, b, c: abs(a - b) + c,
}


@pytest.mark.parametrize("text", ONE_SOURCE)
def test_one_source(text):
    lanewise(text, ONE_SOURCE[text], WORDS)


@pytest.mark.parametrize("text", TWO_SOURCES)
def test_two_sources(text):
    lanewise(text, TWO_SOURCES[text], WORDS, WORDS)


@pytest.mark.parametrize("text", THREE_SOURCES)
def test_three_sources(text):
    lanewise(text, THREE_SOURCES[text], WORDS[:12], WORDS[4:], FEW)


def test_permute_bytes():
    selectors = [0x03020100, 0x07060504, 0x0B0A0908, 0x0D0C0706, 0xFF0C0400, 0x05040100]

    def reference(high, low, selector):
        return sum(byte(high, low, selector >> 8 * place & 0xFF) << 8 * place for place in range(4))

    lanewise("v_perm_b32 v10, v2, v4, v6", reference, WORDS, WORDS, selectors)


def test_any_function_of_three_bits():
    for table in (0x00, 0x96, 0xE8, 0x27, 0xFF):

        def reference(a, b, c, table=table):
            chosen = [(a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1) for n in range(32)]
            return sum((table >> place & 1) << n for n, place in enumerate(chosen))

        lanewise(f"v_bitop3_b32 v10, v2, v4, v6 bitop3:{table:#x}", reference, FEW, FEW, FEW, arch="gfx950")


WIDE = {
    "v_lshlrev_b64 v[10:11], v2, v[4:5]": (lambda n, a: a << (n & 63), WORDS, LONG),
    "v_lshrrev_b64 v[10:11], v2, v[4:5]": (lambda n, a: a >> (n & 63), WORDS, LONG),
    "v_ashrrev_i64 v[10:11], v2, v[4:5]": (lambda n, a: signed(a, 64) >> (n & 63), WORDS, LONG),
    "v_lshl_add_u64 v[10:11], v[2:3], v4, v[6:7]": (lambda a, n, b: (a << n) + b, LONG, [0, 1, 2, 3, 4], LONG),
    "v_mov_b64_e32 v[10:11], v[2:3]": (lambda a: a, LONG),
    "v_mov_b64_e32 v[10:11], -1": (lambda a: M64, LONG),
}


@pytest.mark.parametrize("text", WIDE)
def test_64_bits(text):
    reference, *sources = WIDE[text]
    lanewise(text, reference, *sources, result_bits=64)


CARRIES = {
    "v_add_co_u32_e32 v10, vcc, v2, v4": lambda a, b, c: a + b,
    "v_addc_co_u32_e32 v10, vcc, v2, v4, vcc": lambda a, b, c: a + b + c,
    "v_sub_co_u32_e32 v10, vcc, v2, v4": lambda a, b, c: a - b,
    "v_subrev_co_u32_e32 v10, vcc, v2, v4": lambda a, b, c: b - a,
    "v_subb_co_u32_e32 v10, vcc, v2, v4, vcc": lambda a, b, c: a - b - c,
    "v_subbrev_co_u32_e32 v10, vcc, v2, v4, vcc": lambda a, b, c: b - a - c,
}
NEWER_CARRIES = {
    "v_add_co_u32 v10, vcc_lo, v2, v4": CARRIES["v_add_co_u32_e32 v10, vcc, v2, v4"],
    "v_add_co_ci_u32_e32 v10, vcc_lo, v2, v4, vcc_lo": CARRIES["v_addc_co_u32_e32 v10, vcc, v2, v4, vcc"],
    "v_sub_co_ci_u32_e32 v10, vcc_lo, v2, v4, vcc_lo": CARRIES["v_subb_co_u32_e32 v10, vcc, v2, v4, vcc"],
}


@pytest.mark.parametrize("text", [*CARRIES, *NEWER_CARRIES])
def test_carries(text):
    compute = (CARRIES | NEWER_CARRIES)[text]

    def reference(a, b, before):
        total = compute(a, b, before)
        return total & M32, not 0 <= total <= M32

    lanewise(text, reference, WORDS, WORDS, carry=(False, True), arch="gfx942" if text in CARRIES else "gfx1100")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_multiply_add_of_64_bits(arch):
    vcc = "vcc" if arch == "gfx942" else "vcc_lo"

    def unsigned(a, b, c, before):
        return (a * b + c) & M64, a * b + c > M64

    def both_signs(a, b, c):
        return signed(a) * signed(b) + c

    lanewise(
        f"v_mad_u64_u32 v[10:11], {vcc}, v2, v4, v[6:7]",
        unsigned,
        WORDS,
        FEW,
        LONG,
        carry=[False],
        result_bits=64,
        arch=arch,
    )
    lanewise(f"v_mad_i64_i32 v[10:11], {vcc}, v2, v4, v[6:7]", both_signs, WORDS, FEW, LONG, result_bits=64, arch=arch)


# ---- 16 bits: gfx9 clears the upper half of the result, RDNA keeps it ------------------------------------------------

SHORT = {
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_max_u16": max,
    "v_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)),
    "v_lshlrev_b16": lambda n, a: a << (n & 15),
    "v_lshrrev_b16": lambda n, a: a >> (n & 15),
    "v_ashrrev_i16": lambda n, a: signed(a, 16) >> (n & 15),
}


@pytest.mark.parametrize("name", SHORT)
def test_16_bits(name):
    dirty = [value | 0xABCD0000 for value in HALVES]
    reference = SHORT[name]
    lanewise(f"{name} v10, v2, v4", lambda a, b: reference(a & 0xFFFF, b & 0xFFFF) & 0xFFFF, dirty, HALVES)
    name = name.replace("add_u16", "add_nc_u16").replace("sub_u16", "sub_nc_u16")
    for place, select in (("l", 0), ("h", 16)):

        def into_half(a, b, select=select):
            kept = 0x5A5AA5A5 & ~(0xFFFF << select)
            return kept | (reference(a >> 16, b & 0xFFFF) & 0xFFFF) << select

        lanewise(f"{name} v10.{place}, v2.h, v4.l", into_half, dirty, HALVES, arch="gfx1100")


def test_op_sel_picks_halves():
    def reference(a, b):
        return 0xA5A5 | ((a >> 16) + (b & 0xFFFF) & 0xFFFF) << 16

    lanewise("v_add_nc_u16 v10, v2, v4 op_sel:[1,0,1]", reference, WORDS, WORDS, arch="gfx1100")


def test_pack_two_halves():
    lanewise("v_pack_b32_f16 v10, v2, v4", lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16, WORDS, WORDS)
    text = "v_pack_b32_f16 v10, v2, v4 op_sel:[1,0,0]"
    lanewise(text, lambda a, b: a >> 16 | (b & 0xFFFF) << 16, WORDS, WORDS)


# ---- parts of registers (SDWA) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_PRESERVE"])
@pytest.mark.parametrize("part, shift, bits", [("BYTE_0", 0, 8), ("BYTE_3", 24, 8), ("WORD_1", 16, 16)])
def test_sdwa(unused, part, shift, bits):
    mask = (1 << bits) - 1
    kept = 0x5A5AA5A5 & ~(mask << shift) if unused == "UNUSED_PRESERVE" else 0

    def into(a, b):
        return kept | ((a & b) & mask) << shift

    def out_of(a, b):
        return (a >> shift & mask) + b

    def signed_out_of(a, b):
        return signed(a >> shift & mask, bits) + b

    text = f"v_and_b32_sdwa v10, v2, v4 dst_sel:{part} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    lanewise(text, into, WORDS, WORDS)
    text = f"v_add_u32_sdwa v10, v2, v4 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{part} src1_sel:DWORD"
    lanewise(text, out_of, WORDS, WORDS)
    lanewise(text.replace("v2", "sext(v2)"), signed_out_of, WORDS, WORDS)


# ---- comparisons -----------------------------------------------------------------------------------------------------


def test_comparisons_of_integers():
    for name, compare in {**ORDER, "ne": lambda a, b: a != b}.items():
        for kind, seen in {
            "u32": lambda x: x,
            "i32": signed,
            "u16": lambda x: x & 0xFFFF,
            "i16": lambda x: signed(x, 16),
        }.items():

            def reference(a, b, before, compare=compare, seen=seen):
                return 0x5A5AA5A5, compare(seen(a), seen(b))

            lanewise(f"v_cmp_{name}_{kind}_e32 vcc, v2, v4", reference, WORDS, WORDS, carry=[True])

        def wide(a, b, before, compare=compare):
            return 0x5A5AA5A5, compare(signed(a, 64), signed(b, 64))

        lanewise(f"v_cmp_{name}_i64_e32 vcc, v[2:3], v[4:5]", wide, LONG, LONG, carry=[True])


def test_comparisons_of_floats():
    conditions = {**ORDER, "lg": lambda a, b: a < b or a > b, "o": lambda a, b: a == a and b == b}
    conditions |= {"u": lambda a, b: a != a or b != b, "neq": lambda a, b: a != b}
    conditions |= {"nlg": lambda a, b: not (a < b or a > b)}
    conditions |= {f"n{name}": lambda a, b, f=f: not f(a, b) for name, f in ORDER.items() if name != "eq"}
    for form, kind, edges in ((F32, "f32", F32_EDGES), (F16, "f16", F16_EDGES)):
        for name, compare in conditions.items():

            def reference(a, b, before, compare=compare, form=form):
                return 0x5A5AA5A5, compare(form.value(a), form.value(b))

            lanewise(f"v_cmp_{name}_{kind}_e32 vcc, v2, v4", reference, edges, edges, carry=[False])


def test_classes():
    def reference(a, wanted, before):
        value, negative = F32.value(a), bool(a >> 31)
        if math.isnan(value):
            place = 1 if a & 0x400000 else 0
        elif math.isinf(value):
            place = 2 if negative else 9
        else:
            kind = 2 if value == 0 else 1 if abs(value) < 2.0**-126 else 0
            place = 3 + kind if negative else 8 - kind
        return 0x5A5AA5A5, bool(wanted >> place & 1)

    lanewise("v_cmp_class_f32_e64 vcc, v2, v4", reference, F32_EDGES, [1 << n for n in range(10)], carry=[False])


def test_choosing_by_a_mask():
    def reference(a, b, before):
        return (b if before else a), before

    lanewise("v_cndmask_b32_e32 v10, v2, v4, vcc", reference, FEW, FEW, carry=[False, True], old=7)


# ---- floats ----------------------------------------------------------------------------------------------------------

ARITHMETIC = {
    "v_add_{}_e32 v10, v2, v4": exact.add,
    "v_sub_{}_e32 v10, v2, v4": exact.subtract,
    "v_subrev_{}_e32 v10, v2, v4": lambda form, a, b: exact.subtract(form, b, a),
    "v_mul_{}_e32 v10, v2, v4": exact.multiply,
    "v_max_{}_e32 v10, v2, v4": exact.maximum,
    "v_min_{}_e32 v10, v2, v4": exact.minimum,
    "v_mul_{}_e64 v10, -v2, |v4|": lambda form, a, b: exact.multiply(form, a ^ form.sign, b & (form.sign - 1)),
    "v_add_{}_e64 v10, -|v2|, v4": lambda form, a, b: exact.add(form, a | form.sign, b),
}


@pytest.mark.parametrize("text", ARITHMETIC)
@pytest.mark.parametrize("kind, form, edges", [("f32", F32, F32_EDGES), ("f16", F16, F16_EDGES)], ids=["f32", "f16"])
def test_arithmetic(text, kind, form, edges):
    reference = ARITHMETIC[text]
    lanewise(text.format(kind), lambda a, b: reference(form, a, b), edges, edges, same=form.same)


# The products' last bits decide: halfway between two results but for a far smaller addend, with both signs.
HALFWAY = [0x3F800001, 0x3F800003, 0x3FFFFFFF, 0x33800000, 0x33800001, 0x0C800000, 0x8C800000, 0x00000001, 0x80000001]


def test_multiply_add_rounds_once():
    sources = [*HALFWAY, 0x3F800000, 0xBF800000, 0x4B800000, 0x20000000, 0x1F800001, 0x007FFFFF]
    lanewise("v_fma_f32 v10, v2, v4, v6", lambda a, b, c: exact.fma(F32, a, b, c), sources, sources, sources)
    few = F32_EDGES[::3]
    lanewise("v_fma_f32 v10, v2, v4, v6", lambda a, b, c: exact.fma(F32, a, b, c), few, few, F32_EDGES, same=F32.same)
    few = F16_EDGES[::2]
    lanewise("v_fma_f16 v10, v2, v4, v6", lambda a, b, c: exact.fma(F16, a, b, c), few, few, F16_EDGES, same=F16.same)


def test_multiply_add_into_the_destination():
    def reference(a, b):
        return exact.fma(F32, a, b, 0x3F800001)

    lanewise("v_fmac_f32_e32 v10, v2, v4", reference, F32_EDGES, F32_EDGES, same=F32.same, old=0x3F800001)
    text = "v_fmaak_f32 v10, v2, v4, 0x3f800001"
    lanewise(text, reference, F32_EDGES, F32_EDGES, same=F32.same, arch="gfx1100")
    text = "v_fmamk_f32 v10, v2, 0x3f800001, v4"

    def scaled(a, b):
        return exact.fma(F32, a, 0x3F800001, b)

    lanewise(text, scaled, F32_EDGES, F32_EDGES, same=F32.same, arch="gfx1100")


def test_medians_and_extremes_of_three():
    finite = [code for code in F32_EDGES if math.isfinite(F32.value(code)) and code & 0x7FFFFFFF]

    def median(*codes):
        return sorted(codes, key=F32.value)[1]

    lanewise("v_med3_f32 v10, v2, v4, v6", median, finite[::2], finite[::3], finite[1::3])
    few = F32_EDGES[::3]

    def largest(a, b, c):
        return exact.maximum(F32, exact.maximum(F32, a, b), c)

    lanewise("v_max3_f32 v10, v2, v4, v6", largest, few, few, few, same=F32.same)

    def clamped(a, b, c):
        return exact.minimum(F32, exact.maximum(F32, a, b), c)

    for arch, name in (("gfx1100", "v_maxmin_f32"), ("gfx1201", "v_maxmin_num_f32")):
        lanewise(f"{name} v10, v2, v4, v6", clamped, few, few, few, same=F32.same, arch=arch)


def test_a_nan_wins_only_in_maximum():
    def maximum(a, b):
        nan = F32.is_nan(a) or F32.is_nan(b)
        return 0x7FC00000 if nan else exact.maximum(F32, a, b)

    lanewise("v_maximum_f32 v10, v2, v4", maximum, F32_EDGES, F32_EDGES, same=F32.same, arch="gfx1201")
    third = "v_maximum3_f32 v10, v2, v4, v6"
    few = F32_EDGES[::3]
    lanewise(third, lambda a, b, c: maximum(maximum(a, b), c), few, few, few, same=F32.same, arch="gfx950")


def test_output_modifiers():
    def clamped(a, b):
        total = exact.add(F32, a, b)
        if F32.is_nan(total) or total >> 31:
            return 0
        return min(total, 0x3F800000)

    either_zero = lambda found, wanted: found == wanted or found << 1 & M32 == wanted == 0  # noqa: E731
    lanewise("v_add_f32_e64 v10, v2, v4 clamp", clamped, F32_EDGES, F32_EDGES, same=either_zero)
    normal = [0x3F800000, 0x40490FDB, 0xC2F60000]
    for modifier, factor in (("mul:2", 2), ("mul:4", 4), ("div:2", 0.5)):

        def scaled(a, b, factor=factor):
            return F32.nearest(Fraction(F32.value(exact.add(F32, a, b))) * Fraction(factor))

        lanewise(f"v_add_f32_e64 v10, v2, v4 {modifier}", scaled, normal, normal[:2])


def towards(rounding):
    def reference(a):
        value = F32.value(a)
        if not math.isfinite(value):
            return a
        return F32.nearest(Fraction(rounding(value)), negative_zero=bool(a >> 31))

    return reference


@pytest.mark.parametrize(
    "name, rounding", [("trunc", math.trunc), ("floor", math.floor), ("ceil", math.ceil), ("rndne", round)]
)
def test_rounding_to_whole_numbers(name, rounding):
    more = [F32.nearest(Fraction(n, 2)) for n in range(-9, 10)]
    lanewise(f"v_{name}_f32_e32 v10, v2", towards(rounding), F32_EDGES + more, same=F32.same)


def test_taking_floats_apart():
    def mantissa(a):
        value = F32.value(a)
        return F32.nearest(math.frexp(value)[0]) if math.isfinite(value) and value else a

    def exponent(a):
        value = F32.value(a)
        return math.frexp(value)[1] if math.isfinite(value) else 0

    def scaled(a, n):
        value = F32.value(a)
        if not math.isfinite(value):
            return a
        return F32.nearest(Fraction(value) * Fraction(2) ** signed(n), negative_zero=bool(a >> 31))

    def fraction(a):
        value = Fraction(F32.value(a))
        return min(F32.nearest(value - math.floor(value)), 0x3F7FFFFF)

    lanewise("v_frexp_mant_f32_e32 v10, v2", mantissa, F32_EDGES, same=F32.same)
    lanewise("v_frexp_exp_i32_f32_e32 v10, v2", exponent, F32_EDGES)
    powers = [n & M32 for n in (0, 1, -1, 23, -23, 127, -126, -149, -150, 300, -300)]
    lanewise("v_ldexp_f32 v10, v2, v4", scaled, F32_EDGES, powers, same=F32.same)
    finite = [code for code in F32_EDGES if math.isfinite(F32.value(code))]
    lanewise("v_fract_f32_e32 v10, v2", fraction, finite)


FUNCTIONS = {
    "v_exp_f32_e32": lambda x: 2.0**x,
    "v_log_f32_e32": math.log2,
    "v_rcp_f32_e32": lambda x: 1 / x,
    "v_rsq_f32_e32": lambda x: 1 / math.sqrt(x),
    "v_sqrt_f32_e32": math.sqrt,
    "v_sin_f32_e32": lambda x: math.sin(2 * math.pi * x),
    "v_cos_f32_e32": lambda x: math.cos(2 * math.pi * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_to_the_last_place(name):
    def near(found, wanted):
        return abs(F32.value(found) - F32.value(wanted)) <= 2.0**-22 * abs(F32.value(wanted)) + 2.0**-24

    sources = [0x3E800001, 0x3F000000, 0x3F800000, 0x3FC00000, 0x40490FDB, 0x41200000, 0x42480000]
    lanewise(f"{name} v10, v2", lambda a: F32.nearest(FUNCTIONS[name](F32.value(a))), sources, same=near)


def test_functions_of_what_is_not_finite():
    infinity, nan = 0x7F800000, 0x7FC00000
    for text, pairs in {
        "v_exp_f32_e32 v10, v2": {infinity: infinity, 0xFF800000: 0, nan: nan, 0x43000000: infinity},
        "v_log_f32_e32 v10, v2": {infinity: infinity, 0: 0xFF800000, 0xBF800000: nan, nan: nan},
        "v_rcp_f32_e32 v10, v2": {infinity: 0, 0xFF800000: 0x80000000, 0: infinity, 0x80000000: 0xFF800000, nan: nan},
        "v_rsq_f32_e32 v10, v2": {infinity: 0, 0: infinity, 0xBF800000: nan},
        "v_sqrt_f32_e32 v10, v2": {infinity: infinity, 0x80000000: 0x80000000, 0xBF800000: nan},
    }.items():
        lanewise(text, pairs.__getitem__, pairs, same=F32.same)
