"""Double precision, and conversions to and from it."""

from __future__ import annotations

from functools import cache

import numpy as np

from gfxlab.simulator.core.numbers import F32, F64, I32, U32, U64, fma64, larger, largest, smaller, smallest
from gfxlab.simulator.instructions.common import Op
from gfxlab.simulator.instructions.vector_convert import itself, saturated
from gfxlab.simulator.instructions.vector_float import exponent, fraction, mantissa

_BITS_OF_TWO_OVER_PI = 1201


@cache
def _two_over_pi() -> int:
    """The first bits of 2 / pi as an integer (Machin's formula for pi)."""
    one = 1 << _BITS_OF_TWO_OVER_PI + 64

    def arctangent_of_inverse(n: int) -> int:
        total = term = one // n
        k = 1
        while term:
            term = -term // (n * n)
            k += 2
            total += term // k
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (one << _BITS_OF_TWO_OVER_PI + 1) // pi


def _pieces_of_two_over_pi(x, piece):
    """v_trig_preop: 53 bits of 2 / pi, those that matter for an angle of this size; `piece` counts 53 bits each."""
    size = (np.asarray(x).view(U64) >> U64(52)).astype(I32) & I32(0x7FF)
    shift = (piece & U32(31)).astype(I32) * 53 + np.maximum(size - 1077, 0)
    shift, size = np.broadcast_arrays(shift, size)
    result = np.empty(shift.shape, F64)
    for one in np.unique(shift):
        below = _BITS_OF_TWO_OVER_PI - 53 - int(one)
        bits = _two_over_pi() >> below if below >= 0 else _two_over_pi() << -below
        result[shift == one] = bits & ((1 << 53) - 1)
    return np.ldexp(result, -53 - shift + np.where(size >= 1968, 128, 0))


DOUBLE: dict[str, Op] = {
    "v_add_f64": Op(np.add, "f64"),
    "v_mul_f64": Op(np.multiply, "f64"),
    "v_fma_f64": Op(fma64, "f64"),
    "v_fmac_f64": Op(fma64, "f64", accumulates=True),
    "v_max_f64": Op(larger, "f64"),
    "v_min_f64": Op(smaller, "f64"),
    "v_rcp_f64": Op(lambda a: 1 / a, "f64"),
    "v_rsq_f64": Op(lambda a: 1 / np.sqrt(a), "f64"),
    "v_sqrt_f64": Op(np.sqrt, "f64"),
    "v_rndne_f64": Op(np.rint, "f64"),
    "v_floor_f64": Op(np.floor, "f64"),
    "v_ceil_f64": Op(np.ceil, "f64"),
    "v_trunc_f64": Op(np.trunc, "f64"),
    "v_fract_f64": Op(fraction, "f64"),
    "v_maximum_f64": Op(largest, "f64"),
    "v_minimum_f64": Op(smallest, "f64"),
    "v_frexp_mant_f64": Op(mantissa, "f64"),
    "v_frexp_exp_i32_f64": Op(exponent(I32), "f64", "i32"),
    "v_trig_preop_f64": Op(_pieces_of_two_over_pi, ("f64", "u32"), "f64"),
    "v_ldexp_f64": Op(np.ldexp, ("f64", "i32")),
    "v_cvt_f64_f32": Op(lambda a: a.astype(F64), "f32", "f64"),
    "v_cvt_f64_i32": Op(lambda a: a.astype(F64), "i32", "f64"),
    "v_cvt_f64_u32": Op(lambda a: a.astype(F64), "u32", "f64"),
    "v_cvt_f32_f64": Op(lambda a: a.astype(F32), "f64", "f32", exact=itself),
    "v_cvt_i32_f64": Op(lambda a: saturated(a, I32), "f64", "i32"),
    "v_cvt_u32_f64": Op(lambda a: saturated(a, U32), "f64", "u32"),
}
# gfx12's names
DOUBLE["v_max_num_f64"], DOUBLE["v_min_num_f64"] = DOUBLE["v_max_f64"], DOUBLE["v_min_f64"]
