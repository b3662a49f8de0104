"""Scalar instructions against Python's integers: results and the condition bit."""

import math

import numpy as np
import pytest
from exact import F16, F32, F32_EDGES, add, fma, multiply, subtract
from integers import LONG, M32, M64, ORDER, WORDS, highest_bit, lowest_bit, signed
from one_instruction import execute, wavewise

from gfxlab.simulator.core.operands import EXEC, VCC
from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.scalar import jump_condition


def carrying(compute):
    def reference(a, b, status):
        total = compute(a, b, int(status.scc))
        status.scc = not 0 <= total <= M32
        return total

    return reference


def overflowing(compute):
    def reference(a, b, status):
        total = compute(signed(a), signed(b))
        status.scc = total != signed(total)
        return total

    return reference


def nonzero(compute, bits=32):
    def reference(*sources):
        *values, status = sources
        result = compute(*values) & ((1 << bits) - 1)
        status.scc = result != 0
        return result

    return reference


def silent(compute):
    return lambda *sources: compute(*sources[:-1])


def first_is_chosen(choose, seen=lambda x: x):
    """SCC of equal values: set by a maximum, not by a minimum."""

    def reference(a, b, status):
        status.scc = seen(a) >= seen(b) if choose is max else seen(a) < seen(b)
        return choose(seen(a), seen(b))

    return reference


def extracted(a, packed):
    return a >> (packed & 31) & ((1 << (packed >> 16 & 0x7F)) - 1)


def extracted_signed(a, packed):
    width = packed >> 16 & 0x7F
    return signed(signed(a) >> (packed & 31), width) if 0 < width < 32 else signed(a) >> (packed & 31) if width else 0


ADDITIONS = {
    "s_add_u32 s10, s2, s4": carrying(lambda a, b, c: a + b),
    "s_addc_u32 s10, s2, s4": carrying(lambda a, b, c: a + b + c),
    "s_sub_u32 s10, s2, s4": carrying(lambda a, b, c: a - b),
    "s_subb_u32 s10, s2, s4": carrying(lambda a, b, c: a - b - c),
    "s_add_i32 s10, s2, s4": overflowing(lambda a, b: a + b),
    "s_sub_i32 s10, s2, s4": overflowing(lambda a, b: a - b),
    "s_mul_i32 s10, s2, s4": silent(lambda a, b: a * b),
    "s_mul_hi_u32 s10, s2, s4": silent(lambda a, b: a * b >> 32),
    "s_mul_hi_i32 s10, s2, s4": silent(lambda a, b: signed(a) * signed(b) >> 32),
    "s_max_u32 s10, s2, s4": first_is_chosen(max),
    "s_min_u32 s10, s2, s4": first_is_chosen(min),
    "s_max_i32 s10, s2, s4": first_is_chosen(max, signed),
    "s_min_i32 s10, s2, s4": first_is_chosen(min, signed),
    "s_and_b32 s10, s2, s4": nonzero(lambda a, b: a & b),
    "s_or_b32 s10, s2, s4": nonzero(lambda a, b: a | b),
    "s_xor_b32 s10, s2, s4": nonzero(lambda a, b: a ^ b),
    "s_nand_b32 s10, s2, s4": nonzero(lambda a, b: ~(a & b)),
    "s_nor_b32 s10, s2, s4": nonzero(lambda a, b: ~(a | b)),
    "s_xnor_b32 s10, s2, s4": nonzero(lambda a, b: ~(a ^ b)),
    "s_andn2_b32 s10, s2, s4": nonzero(lambda a, b: a & ~b),
    "s_orn2_b32 s10, s2, s4": nonzero(lambda a, b: a | ~b),
    "s_lshl_b32 s10, s2, s4": nonzero(lambda a, n: a << (n & 31)),
    "s_lshr_b32 s10, s2, s4": nonzero(lambda a, n: a >> (n & 31)),
    "s_ashr_i32 s10, s2, s4": nonzero(lambda a, n: signed(a) >> (n & 31)),
    "s_bfm_b32 s10, s2, s4": silent(lambda n, at: ((1 << (n & 31)) - 1) << (at & 31)),
    "s_pack_ll_b32_b16 s10, s2, s4": silent(lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16),
    "s_pack_lh_b32_b16 s10, s2, s4": silent(lambda a, b: a & 0xFFFF | (b >> 16) << 16),
    "s_pack_hh_b32_b16 s10, s2, s4": silent(lambda a, b: a >> 16 | (b >> 16) << 16),
    "s_cselect_b32 s10, s2, s4": lambda a, b, status: a if status.scc else b,
    "s_absdiff_i32 s10, s2, s4": nonzero(lambda a, b: abs(signed(signed(a) - signed(b)))),
} | {f"s_lshl{n}_add_u32 s10, s2, s4": carrying(lambda a, b, c, n=n: (a << n) + b) for n in (1, 2, 3, 4)}
ONE_SOURCE = {
    "s_mov_b32 s10, s2": silent(lambda a: a),
    "s_mov_b32 s10, -5": silent(lambda a: -5),
    "s_mov_b32 s10, 1.0": silent(lambda a: 0x3F800000),
    "s_movk_i32 s10, 0x7fff": silent(lambda a: 0x7FFF),
    "s_movk_i32 s10, 0xffc0": silent(lambda a: -64),
    "s_not_b32 s10, s2": nonzero(lambda a: ~a),
    "s_abs_i32 s10, s2": nonzero(lambda a: abs(signed(a))),
    "s_brev_b32 s10, s2": silent(lambda a: int(f"{a:032b}"[::-1], 2)),
    "s_ff1_i32_b32 s10, s2": silent(lowest_bit),
    "s_flbit_i32_b32 s10, s2": silent(highest_bit),
    "s_bcnt1_i32_b32 s10, s2": nonzero(int.bit_count),
    "s_sext_i32_i16 s10, s2": silent(lambda a: signed(a, 16)),
    "s_sext_i32_i8 s10, s2": silent(lambda a: signed(a, 8)),
    "s_cmov_b32 s10, s2": lambda a, status: a if status.scc else 0x5A5AA5A5,
    "s_addk_i32 s10, 0xff80": lambda a, status: overflowing(lambda x, y: x + y)(0x5A5AA5A5, -128 & M32, status),
    "s_mulk_i32 s10, 0xfffd": silent(lambda a: 0x5A5AA5A5 * -3),
    "s_bitset1_b32 s10, s2": silent(lambda n: 0x5A5AA5A5 | 1 << (n & 31)),
    "s_bitset0_b32 s10, s2": silent(lambda n: 0x5A5AA5A5 & ~(1 << (n & 31))),
}
WIDE = {
    "s_mov_b64 s[10:11], s[2:3]": (silent(lambda a: a), LONG),
    "s_mov_b64 s[10:11], -1": (silent(lambda a: M64), LONG),
    "s_not_b64 s[10:11], s[2:3]": (nonzero(lambda a: ~a, 64), LONG),
    "s_and_b64 s[10:11], s[2:3], s[4:5]": (nonzero(lambda a, b: a & b, 64), LONG, LONG),
    "s_andn2_b64 s[10:11], s[2:3], s[4:5]": (nonzero(lambda a, b: a & ~b, 64), LONG, LONG),
    "s_xnor_b64 s[10:11], s[2:3], s[4:5]": (nonzero(lambda a, b: ~(a ^ b), 64), LONG, LONG),
    "s_lshl_b64 s[10:11], s[2:3], s4": (nonzero(lambda a, n: a << (n & 63), 64), LONG, WORDS),
    "s_lshr_b64 s[10:11], s[2:3], s4": (nonzero(lambda a, n: a >> (n & 63), 64), LONG, WORDS),
    "s_ashr_i64 s[10:11], s[2:3], s4": (nonzero(lambda a, n: signed(a, 64) >> (n & 63), 64), LONG, WORDS),
    "s_cselect_b64 s[10:11], s[2:3], s[4:5]": (lambda a, b, status: a if status.scc else b, LONG, LONG),
    "s_brev_b64 s[10:11], s[2:3]": (silent(lambda a: int(f"{a:064b}"[::-1], 2)), LONG),
    "s_bfm_b64 s[10:11], s2, s4": (silent(lambda n, at: ((1 << (n & 63)) - 1) << (at & 63)), WORDS, WORDS),
    "s_bfe_u64 s[10:11], s[2:3], s4": (
        nonzero(lambda a, p: a >> (p & 63) & ((1 << (p >> 16 & 0x7F)) - 1), 64),
        LONG,
        [0x00100004, 0x0020003F, 0x00400000, 0, 0x00010000],
    ),
}


@pytest.mark.parametrize("text", ADDITIONS)
def test_two_sources(text):
    wavewise(text, ADDITIONS[text], WORDS, WORDS)


@pytest.mark.parametrize("text", ONE_SOURCE)
def test_one_source(text):
    wavewise(text, ONE_SOURCE[text], WORDS)


@pytest.mark.parametrize("text", WIDE)
def test_64_bits(text):
    reference, *sources = WIDE[text]
    wavewise(text, reference, *sources, result_bits=64)


def test_counts_of_64_bits():
    wavewise("s_bcnt1_i32_b64 s10, s[2:3]", nonzero(int.bit_count), LONG)
    wavewise("s_ff1_i32_b64 s10, s[2:3]", silent(lowest_bit), LONG)
    wavewise("s_flbit_i32_b64 s10, s[2:3]", silent(lambda a: 64 - a.bit_length() if a else M32), LONG)


def test_bit_fields():
    fields = [0, 0x00080000, 0x00080004, 0x0008001C, 0x0010000F, 0x0001001F, 0x00200000, 0x00200008, 0x001F0001]
    wavewise("s_bfe_u32 s10, s2, s4", nonzero(extracted), WORDS, fields)
    wavewise("s_bfe_i32 s10, s2, s4", nonzero(extracted_signed), WORDS, fields)


@pytest.mark.parametrize("name", [*ORDER, "lg"])
def test_comparisons(name):
    compare = ORDER.get(name, lambda a, b: a != b)

    def seeing(seen):
        def reference(a, b, status):
            status.scc = compare(seen(a), seen(b))

        return reference

    wavewise(f"s_cmp_{name}_u32 s2, s4", seeing(lambda x: x), WORDS, WORDS)
    wavewise(f"s_cmp_{name}_i32 s2, s4", seeing(signed), WORDS, WORDS)

    def with_constant(seen, constant):
        def reference(a, status):
            status.scc = compare(seen(a), constant)

        return reference

    wavewise(f"s_cmpk_{name}_u32 s2, 0xffc0", with_constant(lambda x: x, 0xFFC0), [*WORDS, 0xFFC0, 0xFFFFFFC0])
    wavewise(f"s_cmpk_{name}_i32 s2, 0xffc0", with_constant(signed, -64), [*WORDS, 0xFFC0, 0xFFFFFFC0])


def test_comparisons_of_64_bits_and_of_a_bit():
    def equal(a, b, status):
        status.scc = a == b

    def bit(a, n, status):
        status.scc = a >> (n & 31) & 1

    wavewise("s_cmp_eq_u64 s[2:3], s[4:5]", equal, LONG, LONG)
    wavewise("s_bitcmp1_b32 s2, s4", bit, WORDS, WORDS)


FLOATS = {
    "s_add_f32 s10, s2, s4": lambda a, b, status: add(F32, a, b),
    "s_sub_f32 s10, s2, s4": lambda a, b, status: subtract(F32, a, b),
    "s_mul_f32 s10, s2, s4": lambda a, b, status: multiply(F32, a, b),
    "s_fmaak_f32 s10, s2, s4, 0x3f800001": lambda a, b, status: fma(F32, a, b, 0x3F800001),
    "s_fmamk_f32 s10, s2, 0x3f800001, s4": lambda a, b, status: fma(F32, a, 0x3F800001, b),
}


@pytest.mark.parametrize("text", FLOATS)
def test_floats(text):
    wavewise(text, FLOATS[text], F32_EDGES[::2], F32_EDGES, arch="gfx1201", scc=[False], same=F32.same)


def test_multiply_add_into_the_destination():
    w = execute("s_fmac_f32 s10, s2, s4", arch="gfx1201", S={10: np.float32(1), 2: np.float32(3), 4: np.float32(5)})
    assert w.S[:, 10].view(np.float32) == 16


def test_float_comparisons():
    def less(a, b, status):
        status.scc = F32.value(a) < F32.value(b)

    def not_less(a, b, status):
        status.scc = not F32.value(a) < F32.value(b)

    wavewise("s_cmp_lt_f32 s2, s4", less, F32_EDGES, F32_EDGES, arch="gfx1201")
    wavewise("s_cmp_nlt_f32 s2, s4", not_less, F32_EDGES, F32_EDGES, arch="gfx1201")


def test_functions_of_a_scalar():
    """They leave the vector registers alone, although their names begin like a vector instruction's."""
    for name, result in (("exp", 16.0), ("log", 2.0), ("rcp", 0.25), ("rsq", 0.5), ("sqrt", 2.0)):
        w = execute(f"v_s_{name}_f32 s10, s2", arch="gfx1201", S={2: np.float32(4)}, V={10: 7})
        assert w.S[0, 10:11].view(np.float32) == result and (w.V[10] == 7).all()
        half = execute(f"v_s_{name}_f16 s10, s2", arch="gfx1201", S={2: 0x4400})
        assert F16.value(int(half.S[0, 10])) == result


def test_conversions():
    def whole(a, status):
        value = F32.value(a)
        return 0 if math.isnan(value) else int(min(max(value, -(2.0**31)), 2.0**31 - 1))

    wavewise("s_cvt_i32_f32 s10, s2", whole, F32_EDGES, arch="gfx1201")
    wavewise("s_cvt_f32_i32 s10, s2", lambda a, status: F32.nearest(signed(a)), WORDS, arch="gfx1201")


NEWER = {
    "s_add_co_u32 s10, s2, s4": ADDITIONS["s_add_u32 s10, s2, s4"],
    "s_add_co_ci_u32 s10, s2, s4": ADDITIONS["s_addc_u32 s10, s2, s4"],
    "s_sub_co_ci_u32 s10, s2, s4": ADDITIONS["s_subb_u32 s10, s2, s4"],
    "s_sub_co_i32 s10, s2, s4": ADDITIONS["s_sub_i32 s10, s2, s4"],
    "s_and_not1_b32 s10, s2, s4": ADDITIONS["s_andn2_b32 s10, s2, s4"],
    "s_or_not1_b32 s10, s2, s4": ADDITIONS["s_orn2_b32 s10, s2, s4"],
}


@pytest.mark.parametrize("text", NEWER)
def test_newer_names(text):
    wavewise(text, NEWER[text], WORDS, WORDS, arch="gfx1201")


def test_additions_of_64_bits():
    wavewise("s_add_nc_u64 s[10:11], s[2:3], s[4:5]", silent(int.__add__), LONG, LONG, arch="gfx1201", result_bits=64)
    wavewise("s_mul_u64 s[10:11], s[2:3], s[4:5]", silent(int.__mul__), LONG, LONG, arch="gfx1201", result_bits=64)


# ---- EXEC and jumps --------------------------------------------------------------------------------------------------

SAVING = {
    "and": lambda a, e: a & e,
    "or": lambda a, e: a | e,
    "xor": lambda a, e: a ^ e,
    "andn2": lambda a, e: a & ~e,
    "and_not1": lambda a, e: a & ~e,
    "and_not0": lambda a, e: ~a & e,
}


@pytest.mark.parametrize("name", SAVING)
def test_saving_exec(name):
    bits = 32 if "not" in name else 64
    arch = "gfx1100" if bits == 32 else "gfx942"
    combine, everything = SAVING[name], (1 << bits) - 1
    lanes = np.arange(bits)
    result, source = ("s10", "s2") if bits == 32 else ("s[10:11]", "s[2:3]")
    for before in (0x8000000F0F0F0001 & everything, everything, 0):
        for mask in (0x123456789ABCDEF0 & everything, 0, everything):
            on = np.array([before >> lane & 1 for lane in range(bits)], bool)
            w = execute(
                f"s_{name}_saveexec_b{bits} {result}, {source}\nv_mov_b32_e32 v0, 1",
                arch=arch,
                S={2: mask & M32, 3: mask >> 32},
                V={0: np.zeros(bits, np.uint32)},
                lanes_on=on,
            )
            words = w.S[0].tolist()
            after = combine(mask, before) & everything
            assert words[10] | (words[11] << 32 if bits == 64 else 0) == before
            assert words[EXEC] | (words[EXEC + 1] << 32 if bits == 64 else 0) == after
            assert bool(w.SCC[0]) == (after != 0)
            assert w.V[0][0].tolist() == [after >> lane & 1 for lane in lanes.tolist()]  # the next instruction obeys


def test_jumps_look_at_scc_vcc_and_exec():
    w = execute("s_nop 0", waves=2, S={VCC: [0, 1], VCC + 1: 0, EXEC: [0, 0], EXEC + 1: [0, 8]}, scc=[False, True])
    for name in ("scc1", "vccnz", "execnz"):
        assert jump_condition(f"s_cbranch_{name}", Target("gfx942"))(w).tolist() == [False, True]
    for name in ("scc0", "vccz", "execz"):
        assert jump_condition(f"s_cbranch_{name}", Target("gfx942"))(w).tolist() == [True, False]


def test_writing_half_of_exec():
    w = execute("s_mov_b32 exec_lo, 3\nv_mov_b32_e32 v0, 1", V={0: np.zeros(64, np.uint32)})
    assert w.V[0][0].tolist() == [1, 1] + [0] * 30 + [1] * 32


def test_the_null_register_keeps_nothing():
    w = execute("s_mov_b32 s10, null\ns_add_u32 null, s2, s2", arch="gfx1100", S={2: 0x80000000}, scc=[False])
    assert w.S[0, 10] == 0 and w.SCC[0]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_what_only_takes_time_changes_nothing(arch):
    w, before = (execute(text, arch=arch, S={2: 7}, V={2: 7}) for text in ("s_nop 1\nv_nop\ns_sleep 1", "s_nop 0"))
    assert all(map(np.array_equal, w.registers_of(0), before.registers_of(0)))
