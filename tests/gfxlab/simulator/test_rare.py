"""What compilers hardly ever emit: six-bit formats, parts of float16, scalar loads through a resource, modifiers."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from assembly import launch
from exact import BF16, E4M3, E5M2, F16, F16_EDGES, F32
from one_instruction import decoded, execute, lanewise
from test_matrix_formats import codes, packed, value
from test_memory_access import on_memory, random_bytes

from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.registry import known

GENERATOR = np.random.default_rng(11)
SIX_BITS = {"fp6": 2, "bf6": 3}  # their numbers in `test_matrix_formats.FORMATS`
WIDE = {"f32": (F32, 32), "f16": (F16, 16), "bf16": (BF16, 16)}
SCALE = 0x41000000  # 8: its mantissa would not count


def in_registers(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Codes [lane, place], as words [register, lane]."""
    places = [(lane, place, code) for (lane, place), code in np.ndenumerate(numbers)]
    return packed(64, places, bits, numbers.shape[1] * bits // 32)


@pytest.mark.parametrize("kind", SIX_BITS)
@pytest.mark.parametrize("to", WIDE)
def test_thirty_two_numbers_of_six_bits_are_widened(kind, to):
    form, bits = WIDE[to]
    small = codes(SIX_BITS[kind], (64, 32))
    V = {2 + i: word for i, word in enumerate(in_registers(small, 6))} | {60: SCALE | 0x1234}
    count = bits
    w = execute(f"v_cvt_scalef32_pk32_{to}_{kind} v[10:{9 + count}], v[2:7], v60", arch="gfx950", V=V)
    wanted = np.vectorize(lambda code: form.nearest(8 * value(SIX_BITS[kind], code)))(small)
    assert (w.V[10 : 10 + count, 0] == in_registers(wanted, bits)).all()


@pytest.mark.parametrize("kind", SIX_BITS)
@pytest.mark.parametrize("origin", ["f16", "bf16", "f32"])
def test_thirty_two_numbers_are_brought_to_six_bits(kind, origin):
    """To nearest, ties to even, at the ends of the range the largest; of float32 from two blocks in turn."""
    form, bits = WIDE[origin]
    every = sorted(range(32), key=lambda code: value(SIX_BITS[kind], code))
    exact = [Fraction(value(SIX_BITS[kind], code)) for code in every]

    def nearest(number: float) -> int:
        size = abs(Fraction(number) / 8)
        close = min(range(32), key=lambda i: (abs(exact[i] - size), every[i] % 2))
        return every[close] | (32 if np.signbit(number) else 0)

    numbers = GENERATOR.choice([*map(float, exact), 0.3, 0.34375, 1.0625, 7.25, 29.0, 100.0], (64, 32)) * 8
    numbers *= GENERATOR.choice([1, -1], numbers.shape)
    written = np.vectorize(form.nearest)(numbers)
    numbers = np.vectorize(lambda code: form.value(int(code)))(written)
    if origin == "f32":
        V = {2 + i: word for i, word in enumerate(written[:, ::2].T)}
        V |= {20 + i: word for i, word in enumerate(written[:, 1::2].T)}
        text = f"v_cvt_scalef32_2xpk16_{kind}_f32 v[40:45], v[2:17], v[20:35], v60"
    else:
        V = {2 + i: word for i, word in enumerate(in_registers(written, 16))}
        text = f"v_cvt_scalef32_pk32_{kind}_{origin} v[40:45], v[2:17], v60"
    w = execute(text, arch="gfx950", V=V | {60: SCALE})
    assert (w.V[40:46, 0] == in_registers(np.vectorize(nearest)(numbers), 6)).all()


def test_a_scaled_float8_goes_to_one_half_of_a_register():
    for kind, form in (("fp8", E4M3), ("bf8", E5M2)):
        w = execute(
            f"v_cvt_scalef32_f16_{kind} v10, v2, v3 op_sel:[1,0,1]", arch="gfx950", V={2: 0x003C00, 3: SCALE, 10: 0x77}
        )
        assert (w.V[10, 0] == (F16.nearest(8 * form.value(0x3C)) << 16 | 0x77)).all()


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_parts_of_half_precision(arch):
    finite = [code for code in F16_EDGES if np.isfinite(F16.value(code))]
    how = {"arch": arch, "same": lambda found, wanted: found & 0xFFFF == wanted & 0xFFFF}  # RDNA keeps the other half
    parts = {code: np.frexp(F16.value(code)) for code in finite}
    lanewise("v_frexp_mant_f16_e32 v10, v2", lambda a: F16.nearest(float(parts[a][0])), finite, **how)
    lanewise("v_frexp_exp_i16_f16_e32 v10, v2", lambda a: int(parts[a][1]), finite, **how)

    def fraction(a: int) -> int:
        number = F16.value(a)
        return min(F16.nearest(Fraction(number) - int(np.floor(number))), 0x3BFF)

    lanewise("v_fract_f16_e32 v10, v2", fraction, [code for code in finite if F16.value(code)], **how)
    for name, wanted in (("sin", (0, 1, 0, -1)), ("cos", (1, 0, -1, 0))):
        quarters = [F16.nearest(Fraction(n, 4)) for n in range(4)]
        w = execute(f"v_{name}_f16_e32 v10, v2", arch=arch, V={2: np.resize(quarters, Target(arch).lanes)})
        assert np.allclose(w.V[10, 0, :4].astype(np.uint16).view(np.float16), wanted, atol=1e-3)


def test_averages_of_bytes():
    def average(a, b, c):
        each = [(a >> s & 255, b >> s & 255, c >> s & 1, s) for s in (0, 8, 16, 24)]
        return sum((x + y + up) // 2 << s for x, y, up, s in each)

    lanewise(
        "v_lerp_u8 v10, v2, v4, v6",
        average,
        [0, 0xFFFFFFFF, 0x01027F80],
        [0xFF00FF01, 0x00030303],
        [0, 0x010101, -1 & 0xFFFFFFFF],
    )


@pytest.mark.parametrize("first, second", itertools.product((E4M3, E5M2), repeat=2))
def test_products_of_four_float8(first, second):
    names = {E4M3: "fp8", E5M2: "bf8"}
    a, b = (GENERATOR.integers(0x20, 0x50, (64, 4)) for _ in range(2))
    V = {2: packed(64, [(i, j, a[i, j]) for i, j in np.ndindex(64, 4)], 8, 1)[0]}
    V |= {3: packed(64, [(i, j, b[i, j]) for i, j in np.ndindex(64, 4)], 8, 1)[0], 4: np.float32(3).view(np.uint32)}
    V = {i: np.broadcast_to(x, 64)[:32] for i, x in V.items()}
    w = execute(f"v_dot4_f32_{names[first]}_{names[second]} v10, v2, v3, v4", arch="gfx1201", V=V)
    wanted = [3 + sum(first.value(x) * second.value(y) for x, y in zip(*pair)) for pair in zip(a.tolist(), b.tolist())]
    assert (w.F[10, 0] == np.array(wanted[:32], np.float32)).all()


@pytest.mark.parametrize(
    "modifiers, wanted",
    [
        ("", 2 * 5 + 3 * 7 + 100),
        ("neg_lo:[1,0,0]", -2 * 5 + 3 * 7 + 100),
        ("neg_lo:[0,1,0] neg_hi:[0,1,0]", -2 * 5 - 3 * 7 + 100),
        ("neg_lo:[0,0,1] neg_hi:[0,0,1]", 2 * 5 + 3 * 7 - 100),
        ("op_sel:[1,0,0]", 3 * 5 + 3 * 7 + 100),
        ("op_sel_hi:[1,0,0]", 2 * 5 + 3 * 5 + 100),
    ],
)
@pytest.mark.parametrize(
    "arch, kind, form", [("gfx90a", "f16", F16), ("gfx1201", "f16", F16), ("gfx1100", "bf16", BF16)]
)
def test_signs_and_halves_of_a_product_of_pairs(arch, kind, form, modifiers, wanted):
    """`tl.dot(-a, b)` of few rows is such a product: the compiler folds the sign into it."""
    pair = lambda low, high: form.nearest(low) | form.nearest(high) << 16  # noqa: E731
    V = {2: pair(2.0, 3.0), 3: pair(5.0, 7.0), 4: np.float32(100).view(np.uint32)}
    w = execute(f"v_dot2_f32_{kind} v10, v2, v3, v4 {modifiers}", arch=arch, V=V)
    assert (w.F[10, 0] == wanted).all()


@pytest.mark.parametrize("arch, four", [("gfx942", "dwordx4"), ("gfx1201", "b128")])
def test_scalar_loads_through_a_resource_give_0_beyond_it(arch, four):
    data = random_bytes(64)
    memory, _, S = on_memory(data)
    for size, offset in itertools.product((64, 24, 16, 3), (0, 4, 12)):
        w = execute(f"s_buffer_load_{four} s[8:11], s[4:7], {offset:#x}", arch=arch, S=S | {6: size}, memory=memory)
        words = data.view(np.uint32)[offset // 4 :][:4]
        inside = offset + 4 * np.arange(1, 5) <= size
        assert (w.S[0, 8:12] == np.where(inside, words, 0)).all(), (size, offset)


@pytest.mark.parametrize(
    "text, arch",
    [
        ("buffer_load_dword v1, v2, s[4:7], 0 idxen", "gfx942"),
        ("buffer_load_b32 v1, v2, s[4:7], 0 offen tfe", "gfx1100"),
        ("ds_add_rtn_u32 v1, v2, v3 gds", "gfx1100"),
        (
            "v_pk_fmac_f16_sdwa v10, v2, v4 dst_sel:BYTE_3 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1",
            "gfx942",
        ),
        ("v_cvt_f32_fp8_dpp v10, v2 dpp8:[5,2,1,7,5,0,5,0]", "gfx1201"),
        ("v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15] cbsz:1", "gfx942"),
        ("v_mfma_i32_32x32x4_2b_i8 v[0:31], v40, v41, v[0:31] cbsz:2 abid:2", "gfx942"),
        ("v_add_u32_e32 v1, src_shared_base, v2", "gfx942"),
        ("v_add_f32_e64 v1, v2, v3 some_modifier:3", "gfx1100"),
    ],
)
def test_what_would_go_without_effect_is_refused(text, arch):
    """A modifier that no step looks at, or an operand that none can read, would give a wrong number silently."""
    assert not all(known(one, Target(arch)) for one in decoded(text))


@pytest.mark.parametrize(
    "text", ["global_load_dword v1, v[2:3], off sc0 sc1 nt", "global_load_dword v1, v[2:3], off scc glc"]
)
def test_hints_for_caches_are_no_such_modifiers(text):
    assert all(known(one, Target("gfx942")) for one in decoded(text))


CLOCK = """
    s_load_b64 s[4:5], s[0:1], 0x0
    s_sendmsg_rtn_b64 s[6:7], sendmsg(MSG_RTN_GET_REALTIME)
    s_branch .LBB0_1
    .LBB0_1:
    s_sendmsg_rtn_b64 s[8:9], sendmsg(MSG_RTN_GET_REALTIME)
    s_waitcnt lgkmcnt(0)
    s_sub_u32 s6, s8, s6
    v_mov_b32_e32 v0, 0
    v_mov_b32_e32 v1, s6
    global_store_b32 v0, v1, s[4:5]"""


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_the_clock_is_asked_by_a_message_and_goes_on(arch):
    x = torch.zeros(1, dtype=torch.int32)
    launch(CLOCK, x, arch=arch)
    assert x.item() > 0
    (other,) = decoded("s_sendmsg_rtn_b64 s[6:7], sendmsg(MSG_RTN_GET_DOORBELL)")
    assert not known(other, Target(arch))


def test_a_function_of_three_bits_may_be_0():
    """LLVM leaves `bitop3:0` out."""
    w = execute("v_bitop3_b32 v10, v2, v3, v4", arch="gfx950", V={2: 1, 3: 2, 4: 3, 10: 7})
    assert (w.V[10] == 0).all()


def test_a_division_of_scalars_knows_which_lanes_were_scaled():
    half = np.arange(64) < 32
    S = {0: np.float32(2.0**20).view(np.uint32), 6: 0}
    w = execute("v_div_fmas_f32 v10, 1.0, s0, s6", S=S, vcc=half)
    assert (w.F[10, 0] == np.where(half, 2.0**-44, 2.0**20)).all()
