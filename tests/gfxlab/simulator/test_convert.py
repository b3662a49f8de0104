"""Conversions, among them all codes of both float8 flavours, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from exact import BF16, E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, F16, F16_EDGES, F32, F32_EDGES
from integers import HALVES, WORDS, signed
from one_instruction import execute, lanewise

from gfxlab.simulator.core.numbers import to_float8

FLOAT8 = {("fp8", False): E4M3, ("bf8", False): E5M2, ("fp8", True): E4M3_FNUZ, ("bf8", True): E5M2_FNUZ}


def whole(form, bits, sign):
    """Toward zero, to the nearest end of the range, NaN to 0."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)

    def reference(a):
        value = form.value(a)
        if math.isnan(value):
            return 0
        return high if value > high else low if value < low else math.trunc(value)

    return reference


def test_to_and_from_integers():
    more = [*F32_EDGES, *(F32.nearest(Fraction(n, 4)) for n in range(-9, 10)), 0xCF000000, 0xCF000001, 0x4F7FFFFF]
    lanewise("v_cvt_i32_f32_e32 v10, v2", whole(F32, 32, True), more)
    lanewise("v_cvt_u32_f32_e32 v10, v2", whole(F32, 32, False), more)
    lanewise("v_cvt_u16_f16_e32 v10, v2", whole(F16, 16, False), F16_EDGES)
    lanewise("v_cvt_i16_f16_e32 v10, v2", lambda a: whole(F16, 16, True)(a) & 0xFFFF, F16_EDGES)
    halfway = [*WORDS, 0x01000001, 0x01000003, 0x01FFFFFF, 0x7FFFFFC0, 0x7FFFFFBF]
    lanewise("v_cvt_f32_u32_e32 v10, v2", lambda a: F32.nearest(Fraction(a)), halfway)
    lanewise("v_cvt_f32_i32_e32 v10, v2", lambda a: F32.nearest(Fraction(signed(a))), halfway)
    lanewise("v_cvt_f16_u16_e32 v10, v2", lambda a: F16.nearest(Fraction(a)), [*HALVES, 2049, 2051, 65519, 65520])
    lanewise("v_cvt_f16_i16_e32 v10, v2", lambda a: F16.nearest(Fraction(signed(a, 16))), HALVES)
    for place in range(4):
        lanewise(f"v_cvt_f32_ubyte{place}_e32 v10, v2", lambda a, p=place: F32.nearest(a >> 8 * p & 0xFF), WORDS)


def narrowing_sources(form):
    """Codes of float32 at and beside halfway points: near 0, near 1, at the end; and the edges of float32."""
    codes = [0, 1, 2, 3, form.infinity // 2, form.infinity // 2 + 1, form.infinity - 2, form.infinity - 1]
    values = [Fraction(form.value(code)) for code in codes if math.isfinite(form.value(code))]
    halfway = [(a + b) / 2 for a, b in zip(values, values[1:])] + [values[-1] + (values[-1] - values[-2]) / 2]
    near = [F32.nearest(x) for x in values + halfway]
    near = [code + step for code in near for step in (-1, 0, 1) if code + step >= 0]
    return [*F32_EDGES, *near, *(code | 0x80000000 for code in near)]


def test_to_half_precision():
    sources = narrowing_sources(F16)
    lanewise("v_cvt_f16_f32_e32 v10, v2", lambda a: F16.nearest(F32.value(a)), sources, same=F16.same)
    lanewise("v_cvt_f32_f16_e32 v10, v2", lambda a: F32.nearest(F16.value(a)), range(0, 1 << 16, 7), same=F32.same)
    few = sources[::5]

    def truncated(a):
        value = F32.value(a)
        if not math.isfinite(value):
            return F16.nearest(value)
        return F16.nearest(Fraction(value), negative_zero=bool(a >> 31), toward_zero=True)

    def pair(a, b):
        return truncated(a) | truncated(b) << 16

    def same(found, wanted):
        return F16.same(found & 0xFFFF, wanted & 0xFFFF) and F16.same(found >> 16, wanted >> 16)

    lanewise("v_cvt_pkrtz_f16_f32 v10, v2, v4", pair, sources, few, same=same)
    text = "v_cvt_pk_f16_f32 v10, v2, v4"

    def rounded(a, b):
        return F16.nearest(F32.value(a)) | F16.nearest(F32.value(b)) << 16

    lanewise(text, rounded, sources, few, same=same, arch="gfx950")


def test_to_and_from_bfloat16():
    sources = [*narrowing_sources(BF16), 0x3F808000, 0x3F818000, 0x7F7F7FFF, 0x7F7F8000, 0x7F80FFFF]

    def same(found, wanted):
        return BF16.same(found & 0xFFFF, wanted & 0xFFFF) and BF16.same(found >> 16, wanted >> 16)

    def pair(a, b):
        return BF16.nearest(F32.value(a)) | BF16.nearest(F32.value(b)) << 16

    lanewise("v_cvt_pk_bf16_f32 v10, v2, v4", pair, sources, sources[::5], same=same, arch="gfx950")
    widened = "v_cvt_f32_bf16_sdwa v10, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1"
    lanewise(widened, lambda a: a & 0xFFFF0000, F32_EDGES, arch="gfx950", same=F32.same)


# ---- float8 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1201"])
@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_every_code_widens(kind, arch):
    form = FLOAT8[kind, arch == "gfx942"]
    words = [code | (255 - code) << 8 | (code ^ 0x55) << 16 | (code ^ 0xAA) << 24 for code in range(256)]

    def pair(a, shift=0):
        return F32.nearest(form.value(a >> shift & 0xFF)) | F32.nearest(form.value(a >> shift + 8 & 0xFF)) << 32

    def same(found, wanted):
        return F32.same(found & 0xFFFFFFFF, wanted & 0xFFFFFFFF) and F32.same(found >> 32, wanted >> 32)

    lanewise(f"v_cvt_pk_f32_{kind}_e32 v[10:11], v2", pair, words, arch=arch, result_bits=64, same=same)
    if arch == "gfx1201":
        upper = f"v_cvt_pk_f32_{kind}_e64 v[10:11], v2 op_sel:[1,0]"
    else:
        upper = f"v_cvt_pk_f32_{kind}_sdwa v[10:11], v2 src0_sel:WORD_1"
    lanewise(upper, lambda a: pair(a, 16), words, arch=arch, result_bits=64, same=same)
    for byte in range(4):
        text = f"v_cvt_f32_{kind}_sdwa v10, v2 src0_sel:BYTE_{byte}"
        if arch == "gfx1201":
            text = f"v_cvt_f32_{kind}_e64 v10, v2 byte_sel:{byte}"
        one = lambda a, b=byte: F32.nearest(form.value(a >> 8 * b & 0xFF))  # noqa: E731
        lanewise(text, one, words, arch=arch, same=F32.same)


SATURATE = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"  # as Triton does before it converts to float8


def narrowed(form, code):
    """To nearest, ties to even; what is too large becomes the largest number (Triton sets MODE.FP16_OVFL)."""
    value = F32.value(code)
    largest = form.sign - 1 if form.fnuz else form.sign - 2 if form.finite else form.infinity - 1
    if math.isnan(value):
        return form.sign if form.fnuz else form.sign - 1
    rounded = form.nearest(Fraction(value)) & (form.sign - 1) if math.isfinite(value) else largest
    limit = Fraction(form.value(largest))
    size = min(rounded, largest) if math.isfinite(value) and abs(Fraction(value)) <= limit else largest
    return size | (form.sign if code >> 31 and (size or not form.fnuz) else 0)


@pytest.mark.parametrize("kind, fnuz", FLOAT8, ids=str)
def test_every_neighbourhood_of_a_code_narrows(kind, fnuz):
    form = FLOAT8[kind, fnuz]
    finite = [Fraction(form.value(code)) for code in range(128) if math.isfinite(form.value(code))]
    points = finite + [(a + b) / 2 for a, b in zip(finite, finite[1:])]
    codes = [F32.nearest(x) + step for x in points for step in (-1, 0, 1) if x or step >= 0]
    codes += [F32.nearest(finite[-1] * k) for k in (Fraction(17, 16), 2, 1000)] + [0x7F7FFFFF, 1, 0x7FFFFF, 0x7FC00000]
    codes += [code | 0x80000000 for code in codes]
    found = to_float8(np.array(codes, np.uint32).view(np.float32), kind, fnuz, saturate=True).tolist()
    for code, result in zip(codes, found):
        assert form.same(result, narrowed(form, code)), f"{F32.value(code)}: {result:#x}"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1201"])
@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_narrowing_writes_one_half(kind, arch):
    form = FLOAT8[kind, arch == "gfx942"]

    def pair(a, b):
        return narrowed(form, a) | narrowed(form, b) << 8

    def same(found, wanted):
        return all(
            form.same(found >> s & 0xFF, wanted >> s & 0xFF) if s in places else found >> s & 0xFF == wanted >> s & 0xFF
            for s in (0, 8, 16, 24)
        )

    finite = [code for code in F32_EDGES if code & 0x7FFFFFFF != 0x7F800000]
    places = (0, 8)
    text = f"{SATURATE}v_cvt_pk_{kind}_f32 v10, v2, v4"
    lanewise(text, lambda a, b: 0x5A5A0000 | pair(a, b), finite, finite, arch=arch, same=same)
    places = (16, 24)
    text = f"{SATURATE}v_cvt_pk_{kind}_f32 v10, v2, v4 op_sel:[0,0,1]"
    lanewise(text, lambda a, b: 0xA5A5 | pair(a, b) << 16, finite, finite, arch=arch, same=same)


def test_conversions_with_a_scale():
    values = np.linspace(-700, 700, 64, dtype=np.float32)
    w = execute(
        SATURATE + "v_cvt_scalef32_pk_fp8_f32 v10, v2, v4, v6\nv_cvt_scalef32_pk_f32_fp8 v[12:13], v10, v6",
        arch="gfx950",
        V={2: values, 4: values[::-1].copy(), 6: np.float32(4)},
    )
    assert (w.V[10][0] & 0xFF).tolist() == [
        narrowed(E4M3, int(c)) for c in (values / np.float32(4)).view(np.uint32).tolist()
    ]
    assert (w.F[12][0] == [4 * E4M3.value(int(c) & 0xFF) for c in w.V[10][0]]).all()
    assert (w.F[13][0] == [4 * E4M3.value(int(c) >> 8 & 0xFF) for c in w.V[10][0]]).all()


def test_the_scale_may_stand_where_the_result_goes():
    w = execute("v_cvt_scalef32_pk_f32_fp8 v[2:3], v4, v2", arch="gfx950", V={2: np.float32(2), 4: 0x3838})
    assert w.F[2, 0, 0] == w.F[3, 0, 0] == 2
