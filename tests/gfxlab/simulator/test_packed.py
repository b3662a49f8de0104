"""Packed and mixed-precision instructions against exact arithmetic on each half."""

import itertools

import exact
import numpy as np
import pytest
from exact import F16, F16_EDGES, F32, F32_EDGES
from integers import WORDS, signed
from one_instruction import execute, lanewise

PAIRS = [low | high << 16 for low, high in zip(F16_EDGES, F16_EDGES[5:] + F16_EDGES[:5])]
TWO = {"add": exact.add, "mul": exact.multiply, "max": exact.maximum, "min": exact.minimum}
CHOICES = [
    (op_sel, op_sel_hi, neg_lo, neg_hi)
    for op_sel, op_sel_hi in itertools.product([(0, 0), (1, 0), (1, 1)], [(1, 1), (0, 1), (0, 0)])
    for neg_lo, neg_hi in [((0, 0), (0, 0)), ((1, 0), (0, 1)), ((1, 1), (1, 0))]
]


def same_halves(found: int, wanted: int) -> bool:
    return F16.same(found & 0xFFFF, wanted & 0xFFFF) and F16.same(found >> 16, wanted >> 16)


def modifiers(*choice) -> str:
    names = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
    return "".join(f" {name}:[{','.join(map(str, value))}]" for name, value in zip(names, choice))


def half(word: int, high: int, negate: int) -> int:
    return (word >> 16 * high & 0xFFFF) ^ (0x8000 if negate else 0)


@pytest.mark.parametrize("name", TWO)
def test_two_halves_of_floats(name):
    for op_sel, op_sel_hi, neg_lo, neg_hi in CHOICES:

        def reference(a, b):
            low = TWO[name](F16, half(a, op_sel[0], neg_lo[0]), half(b, op_sel[1], neg_lo[1]))  # noqa: B023
            high = TWO[name](F16, half(a, op_sel_hi[0], neg_hi[0]), half(b, op_sel_hi[1], neg_hi[1]))  # noqa: B023
            return low | high << 16

        text = f"v_pk_{name}_f16 v10, v2, v4" + modifiers(op_sel, op_sel_hi, neg_lo, neg_hi)
        lanewise(text, reference, PAIRS[::2], PAIRS[::3], same=same_halves)


def test_multiply_add_of_two_halves():
    few = PAIRS[::3]

    def reference(a, b, c):
        low = exact.fma(F16, half(a, 1, 0), half(b, 0, 1), half(c, 0, 0))
        return low | exact.fma(F16, half(a, 1, 0), half(b, 1, 0), half(c, 0, 1)) << 16

    text = "v_pk_fma_f16 v10, v2, v4, v6 op_sel:[1,0,0] op_sel_hi:[1,1,0] neg_lo:[0,1,0] neg_hi:[0,0,1]"
    lanewise(text, reference, few, few, few, same=same_halves)


def test_clamping_halves():
    def one(a, b):
        total = exact.add(F16, a, b)
        return 0 if F16.is_nan(total) or total >> 15 else min(total, 0x3C00)

    def reference(a, b):
        return one(half(a, 0, 0), half(b, 0, 0)) | one(half(a, 1, 0), half(b, 1, 0)) << 16

    positive = [code for code in PAIRS if not code & 0x80008000]
    lanewise("v_pk_add_f16 v10, v2, v4 clamp", reference, positive, positive)


INTEGERS = {
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_max_u16": max,
    "v_pk_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)),
    "v_pk_lshlrev_b16": lambda n, a: a << (n & 15),
    "v_pk_lshrrev_b16": lambda n, a: a >> (n & 15),
    "v_pk_ashrrev_i16": lambda n, a: signed(a, 16) >> (n & 15),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_two_halves_of_integers(name):
    compute = INTEGERS[name]

    def reference(a, b):
        low, high = (compute(half(a, place, 0), half(b, place, 0)) & 0xFFFF for place in (0, 1))
        return low | high << 16

    def first_of_both(a, b):
        low, high = (compute(half(a, 0, 0), half(b, place, 0)) & 0xFFFF for place in (0, 1))
        return low | high << 16

    lanewise(f"{name} v10, v2, v4", reference, WORDS, WORDS)
    lanewise(f"{name} v10, v2, v4 op_sel_hi:[0,1]", first_of_both, WORDS, WORDS)
    lanewise(f"{name} v10, 3, v4 op_sel_hi:[0,1]", lambda a, b: first_of_both(3, b), [0], WORDS)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_two_single_precision_numbers(choice):
    op_sel, op_sel_hi, neg_lo, neg_hi = choice
    few = F32_EDGES[::4]
    pairs = [low | high << 32 for low, high in zip(few, few[3:] + few[:3])]

    def part(word, second, negate):
        return (word >> 32 * second & 0xFFFFFFFF) ^ (0x80000000 if negate else 0)

    def same(found, wanted):
        return F32.same(found & 0xFFFFFFFF, wanted & 0xFFFFFFFF) and F32.same(found >> 32, wanted >> 32)

    for name, compute in (("add", exact.add), ("mul", exact.multiply)):

        def reference(a, b, compute=compute):
            low = compute(F32, part(a, op_sel[0], neg_lo[0]), part(b, op_sel[1], neg_lo[1]))
            return low | compute(F32, part(a, op_sel_hi[0], neg_hi[0]), part(b, op_sel_hi[1], neg_hi[1])) << 32

        text = f"v_pk_{name}_f32 v[10:11], v[2:3], v[4:5]" + modifiers(*choice)
        lanewise(text, reference, pairs, pairs, result_bits=64, same=same)


def test_multiply_add_of_two_single_precision_numbers_in_place():
    w = execute(
        "v_pk_fma_f32 v[2:3], v[2:3], v[4:5], v[2:3] op_sel:[1,0,0] op_sel_hi:[0,1,1]",
        V={2: np.float32(2), 3: np.float32(3), 4: np.float32(5), 5: np.float32(7)},
    )
    assert w.F[2, 0, 0] == 3 * 5 + 2 and w.F[3, 0, 0] == 2 * 7 + 3  # the first result is not the second's source


def test_packed_arithmetic_with_scalars_and_constants():
    V, S = {2: np.float32(2), 3: np.float32(3)}, {4: np.float32(5), 5: np.float32(7)}
    w = execute("v_pk_mul_f32 v[10:11], v[2:3], s[4:5]\nv_pk_add_f32 v[12:13], v[2:3], 1.0 op_sel_hi:[1,0]", V=V, S=S)
    assert [w.F[i, 0, 0] for i in (10, 11, 12, 13)] == [10, 21, 3, 4]


@pytest.mark.parametrize("low, high", itertools.product((0, 1), (0, 1)))
def test_packed_move(low, high):
    V = {2: 20, 3: 30, 4: 40, 5: 50}
    w = execute(f"v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[{low},{high}]", V=V)
    assert w.V[10:12, 0, 0].tolist() == [(20, 30)[low], (40, 50)[high]]
    swapped = execute("v_pk_mov_b32 v[2:3], v[2:3], v[2:3] op_sel:[1,0]", V=V)
    assert swapped.V[2:4, 0, 0].tolist() == [30, 20]


# ---- mixed precision -------------------------------------------------------------------------------------------------


def widened(word: int, high: int) -> int:
    return F32.nearest(F16.value(word >> 16 * high & 0xFFFF))


def test_mixed_precision_reads_halves_where_op_sel_hi_says_so():
    def reference(a, b, c):
        return exact.fma(F32, widened(a, 1), b ^ 0x80000000, widened(c, 0) & 0x7FFFFFFF)

    text = "v_fma_mix_f32 v10, v2, -v4, |v6| op_sel:[1,0,0] op_sel_hi:[1,0,1]"
    lanewise(text, reference, PAIRS[::2], F32_EDGES[::3], PAIRS[::3], same=F32.same, arch="gfx1100")


@pytest.mark.parametrize("name, shift", [("v_fma_mixlo_f16", 0), ("v_fma_mixhi_f16", 16)])
def test_mixed_precision_into_one_half_rounds_to_float32_first(name, shift):
    def reference(a, b, c):
        kept = 0x5A5AA5A5 & ~(0xFFFF << shift)
        return kept | F16.nearest(F32.value(exact.fma(F32, a, widened(b, 0), c))) << shift

    finite = [code for code in F32_EDGES if code & 0x7F800000 != 0x7F800000]
    halves = [code for code in F16_EDGES if code & 0x7C00 != 0x7C00]
    text = f"{name} v10, v2, v4, v6 op_sel_hi:[0,1,0]"
    lanewise(text, reference, finite[::3], halves[::3], [code for code in finite if code & 0x7E000000], arch="gfx1100")


# ---- two at once -----------------------------------------------------------------------------------------------------


def test_dual_issue_reads_before_either_half_writes():
    V = {2: np.float32(2), 3: np.float32(3)}
    w = execute("v_dual_mov_b32 v2, v3 :: v_dual_mov_b32 v3, v2", arch="gfx1100", V=V)
    assert (w.F[2, 0, 0], w.F[3, 0, 0]) == (3, 2)
    w = execute("v_dual_add_f32 v2, v2, v3 :: v_dual_fmac_f32 v3, v2, v2", arch="gfx1100", V=V)
    assert (w.F[2, 0, 0], w.F[3, 0, 0]) == (5, 7)


def test_dual_issue_leaves_lanes_that_are_off():
    on = np.arange(32) < 5
    text = "v_dual_cndmask_b32 v2, v3, v4 :: v_dual_lshlrev_b32 v5, 1, v4"
    w = execute(text, arch="gfx1100", V={2: 1, 3: 2, 4: 3, 5: 4}, lanes_on=on, vcc=np.arange(32) % 2 == 0)
    assert w.V[2, 0].tolist() == [(3, 2)[i % 2] if i < 5 else 1 for i in range(32)]
    assert w.V[5, 0].tolist() == [6 if i < 5 else 4 for i in range(32)]
