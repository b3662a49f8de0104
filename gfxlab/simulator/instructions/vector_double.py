"""Double precision, and conversions to and from it."""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core.numbers import F32, F64, I32, U32, fma64, larger, smaller
from gfxlab.simulator.instructions.common import Op
from gfxlab.simulator.instructions.vector_convert import saturated

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
    "v_ldexp_f64": Op(np.ldexp, ("f64", "i32")),
    "v_cvt_f64_f32": Op(lambda a: a.astype(F64), "f32", "f64"),
    "v_cvt_f64_i32": Op(lambda a: a.astype(F64), "i32", "f64"),
    "v_cvt_f64_u32": Op(lambda a: a.astype(F64), "u32", "f64"),
    "v_cvt_f32_f64": Op(lambda a: a.astype(F32), "f64", "f32"),
    "v_cvt_i32_f64": Op(lambda a: saturated(a, I32), "f64", "i32"),
    "v_cvt_u32_f64": Op(lambda a: saturated(a, U32), "f64", "u32"),
}
# gfx12's names
DOUBLE["v_max_num_f64"], DOUBLE["v_min_num_f64"] = DOUBLE["v_max_f64"], DOUBLE["v_min_f64"]
