"""Rounding upward, downward and toward zero: against fractions, on numbers that no format holds."""

from fractions import Fraction

import numpy as np
import pytest
from one_instruction import execute

from gfxlab.simulator import UnknownInstruction

NAMES = {"up": 1, "down": 2, "to zero": 3}
LANES = 64


def set_mode(single: str = "", double: str = "") -> str:
    return f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), {NAMES.get(single, 0) | NAMES.get(double, 0) << 2}\n"


def numbers(kind, seed: int) -> np.ndarray:
    """Of both signs and many sizes, some of them far apart, some tiny."""
    draw = np.random.default_rng(seed)
    size = {np.float16: 6, np.float32: 40, np.float64: 300}[kind]
    return (draw.standard_normal(LANES) * 2.0 ** draw.integers(-size, size, LANES)).astype(kind)


def neighbours(value: Fraction, kind) -> tuple[float, float]:
    """The nearest numbers of the format on both sides, infinity included; twice the same if it holds the value."""
    with np.errstate(over="ignore"):
        found = kind(float(value)) if abs(value) < Fraction(2) ** 1023 else kind(np.inf if value > 0 else -np.inf)
        exact = np.isfinite(found) and Fraction(float(found)) == value
        if exact:
            return found, found
        if not np.isinf(found) and Fraction(float(found)) < value:
            return found, np.nextafter(found, kind(np.inf))
        if not np.isinf(found) and Fraction(float(found)) > value:
            return np.nextafter(found, kind(-np.inf)), found
        inward = np.nextafter(found, kind(0))
        return (inward, found) if found > 0 else (found, inward)


def towards(value: Fraction, kind, mode: str):
    low, high = neighbours(value, kind)
    return {"up": high, "down": low, "to zero": low if value > 0 else high}[mode]


KINDS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
CASES = [
    ("v_add_{} {}", 2, lambda a, b: a + b),
    ("v_mul_{} {}", 2, lambda a, b: a * b),
    ("v_fma_{} {}", 3, lambda a, b, c: a * b + c),
]


@pytest.mark.parametrize("mode", NAMES)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text, count, exact", CASES)
def test_arithmetic_is_rounded_as_mode_says(text, count, exact, name, mode):
    kind, wide = KINDS[name], name == "f64"
    registers = [f"v[{i}:{i + 1}]" if wide else f"v{i}" for i in (10, 2, 4, 6)[: count + 1]]
    sources = [numbers(kind, seed) for seed in range(count)]
    V = {}
    for place, source in enumerate(sources):
        words = source.view(np.uint16).astype(np.uint32) if name == "f16" else source.view(np.uint32)
        V[2 + 2 * place] = words[::2] if wide else words
        V |= {3 + 2 * place: words[1::2]} if wide else {}
    setting = set_mode(single=mode) if name == "f32" else set_mode(double=mode)
    w = execute(setting + text.format(name, ", ".join(registers)), V=V)
    low, high = w.V[10, 0], w.V[11, 0]
    bits = {"f16": low.astype(np.uint16), "f32": low, "f64": low.astype(np.uint64) | high.astype(np.uint64) << 32}[name]
    wanted = [towards(exact(*map(Fraction, map(float, of))), kind, mode) for of in zip(*sources)]
    assert bits.view(kind).tolist() == [float(x) for x in wanted]


@pytest.mark.parametrize("mode", NAMES)
@pytest.mark.parametrize("text, kind, bits", [
    ("v_cvt_f16_f32 v10, v2", np.float16, "double"),
    ("v_fma_mixlo_f16 v10, v2, 1.0, 0", np.float16, "double"),
])  # fmt: skip
def test_conversions_to_float16_are_rounded_by_the_bits_of_float16(text, kind, bits, mode):
    source = numbers(np.float32, 5)
    w = execute(set_mode(**{bits: mode}) + text, V={2: source})
    wanted = [float(towards(Fraction(float(x)), kind, mode)) for x in source]
    assert (w.V[10, 0] & 0xFFFF).astype(np.uint16).view(kind).tolist() == wanted
    w = execute(set_mode(single=mode) + text, V={2: source})
    with np.errstate(over="ignore"):
        nearest = source.astype(kind).tolist()
    assert (w.V[10, 0] & 0xFFFF).astype(np.uint16).view(kind).tolist() == nearest


def test_integers_become_float32_by_the_bits_of_float32():
    w = execute(set_mode(single="to zero") + "v_cvt_f32_u32_e32 v10, v2", V={2: 0xFFFFFFFF})
    assert w.F[10, 0, 0] == np.float32(0xFFFFFF00)
    text = set_mode(double="up") + "v_cvt_f32_f64_e32 v10, v[2:3]"
    w = execute(text, V={2: 1, 3: np.array(np.float64(1)).view(np.uint64) >> 32})
    assert w.F[10, 0, 0] == np.nextafter(np.float32(1), np.float32(2))


def test_packed_and_scalar_instructions_round_too():
    tiny = np.float32(2**-40)
    V = {2: np.float32(1), 3: -np.float32(1), 4: tiny, 5: tiny}
    w = execute(set_mode("up") + "v_pk_add_f32 v[10:11], v[2:3], v[4:5]", V=V)
    assert w.F[10, 0, 0] > 1 and w.F[11, 0, 0] > -1
    S = {2: int(np.float32(1).view(np.uint32)), 3: int(tiny.view(np.uint32)), 5: 0x1000001, 10: 0x3F800000}
    upward = {  # and to nearest it is one less
        "s_add_f32 s10, s2, s3": 0x3F800001,
        "s_fmac_f32 s10, s2, s3": 0x3F800001,
        "s_fmaak_f32 s10, s2, s3, 0x3f800000": 0x3F800001,
        "s_cvt_f32_u32 s10, s5": 0x4B800001,
    }
    for text, wanted in upward.items():
        for mode, bits in ((set_mode("up"), wanted), ("s_round_mode 0x0\n", wanted - 1)):
            assert execute(mode + text, arch="gfx1201", S=S).S[0, 10] == bits, text


def test_numbers_that_cancel_leave_a_zero_of_the_rounding():
    for mode, zero in (("up", 0), ("down", 0x80000000)):
        for text in ("v_sub_f32_e32 v10, v2, v2", "v_fma_f32 v10, v2, 1.0, -v2", "v_subrev_f32_e32 v10, v2, v2"):
            assert execute(set_mode(mode) + text, V={2: np.float32(3)}).V[10, 0, 0] == zero
        assert execute(set_mode(mode) + "v_add_f32_e32 v10, v2, v2", V={2: 0}).V[10, 0, 0] == 0
        assert execute(set_mode(mode) + "v_mul_f32_e32 v10, v2, v3", V={2: 0, 3: np.float32(3)}).V[10, 0, 0] == 0


def test_what_is_rounded_twice_is_refused_by_name():
    with pytest.raises(UnknownInstruction, match="v_mac_f32"):
        execute(set_mode("up") + "v_mac_f32_e32 v10, v2, v2", arch="gfx90a")
    assert execute("s_round_mode 0x0\nv_mac_f32_e32 v10, v2, v2", arch="gfx90a", V={2: 0}) is not None
