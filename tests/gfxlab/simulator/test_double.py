"""Double precision against exact fractions."""

import math

import numpy as np
import pytest
from exact import F32, F32_EDGES, Format, add, fma, maximum, multiply
from integers import WORDS, signed
from one_instruction import lanewise

F64 = Format(11, 52, 1023)
EDGES = [0, 0x3FF0000000000000, 0x3FF0000000000001, 0x3FEFFFFFFFFFFFFF, 0x400921FB54442D18, 0x4340000000000001]
EDGES += [0x3CA0000000000000, 0x3C90000000000001, 0x7FF0000000000000, 0x7FF8000000000000, 0x43E0000000000000]
EDGES += [code | 1 << 63 for code in EDGES]
RANDOM = (np.random.default_rng(4).integers(0, 1 << 55, 60) + (0x3FC << 52)).tolist()


@pytest.mark.parametrize("name, compute", [("add", add), ("mul", multiply), ("max", maximum)])
def test_arithmetic(name, compute):
    text = f"v_{name}_f64 v[10:11], v[2:3], v[4:5]"
    lanewise(text, lambda a, b: compute(F64, a, b), EDGES, EDGES, result_bits=64, same=F64.same)


def test_multiply_add_rounds_once():
    text = "v_fma_f64 v[10:11], v[2:3], v[4:5], v[6:7]"
    for sources in ((EDGES, EDGES, EDGES), (RANDOM[:20], RANDOM[20:40], RANDOM[40:])):
        lanewise(text, lambda a, b, c: fma(F64, a, b, c), *sources, result_bits=64, same=F64.same)
    cancelling = [code | 1 << 63 for code in RANDOM[:10]]
    lanewise(text, lambda a, b, c: fma(F64, a, b, c), RANDOM[:10], [0x3FF0000000000001], cancelling, result_bits=64)


def test_conversions():
    def whole(a):
        value = F64.value(a)
        return 0 if math.isnan(value) else int(min(max(value, -(2.0**31)), 2.0**31 - 1))

    lanewise(
        "v_cvt_f64_f32_e32 v[10:11], v2", lambda a: F64.nearest(F32.value(a)), F32_EDGES, result_bits=64, same=F64.same
    )
    halfway = [*EDGES, 0x3FF0000010000000, 0x3FF0000030000000, 0x3FF0000010000001, 0x36A0000000000000]
    lanewise("v_cvt_f32_f64_e32 v10, v[2:3]", lambda a: F32.nearest(F64.value(a)), halfway, same=F32.same)
    lanewise("v_cvt_f64_i32_e32 v[10:11], v2", lambda a: F64.nearest(signed(a)), WORDS, result_bits=64)
    lanewise("v_cvt_f64_u32_e32 v[10:11], v2", lambda a: F64.nearest(a), WORDS, result_bits=64)
    lanewise("v_cvt_i32_f64_e32 v10, v[2:3]", whole, EDGES)


def test_the_sign_of_a_constant_and_of_a_source():
    text = "v_add_f64 v[10:11], -v[2:3], 1.0"
    lanewise(text, lambda a: add(F64, a ^ 1 << 63, F64.nearest(1.0)), EDGES, result_bits=64, same=F64.same)
