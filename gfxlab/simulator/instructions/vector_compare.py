"""Vector comparisons (VOPC): one bit a lane into a pair of scalar registers; v_cmpx also switches lanes off."""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core.numbers import F32, U32
from gfxlab.simulator.instructions.common import Op


def _ordered(a, b):
    return ~(np.isnan(a) | np.isnan(b))


_INTEGERS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
# `n` before a comparison of floats is its negation, which is true for NaN.
_FLOATS = {
    **{name: compare for name, compare in _INTEGERS.items() if name != "ne"},
    "lg": lambda a, b: (a < b) | (a > b),
    "o": _ordered,
    "u": lambda a, b: ~_ordered(a, b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "nle": lambda a, b: ~(a <= b),
    "ngt": lambda a, b: ~(a > b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
}


def _is_class(x, wanted):
    """v_cmp_class_f32: bit k of `wanted` asks for the k-th class below."""
    negative, finite, zero = np.signbit(x), np.isfinite(x), x == 0
    tiny = ~zero & (np.abs(x) < F32(2.0**-126))
    normal = finite & ~zero & ~tiny
    quiet = np.isnan(x) & ((np.asarray(x).view(U32) & U32(0x400000)) != 0)
    classes = (
        np.isnan(x) & ~quiet,
        quiet,
        np.isneginf(x),
        negative & normal,
        negative & tiny,
        negative & zero,
        ~negative & zero,
        ~negative & tiny,
        ~negative & normal,
        np.isposinf(x),
    )
    result = np.zeros(np.broadcast_shapes(np.shape(x), np.shape(wanted)), bool)
    for bit, member in enumerate(classes):
        result |= member & ((wanted >> U32(bit)) & U32(1)).astype(bool)
    return result


COMPARE: dict[str, Op] = {
    f"v_cmp{x}_{name}_{kind}": Op(compare, kind, "mask")
    for x in ("", "x")
    for kind in ("u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64")
    for name, compare in (_FLOATS if kind[0] == "f" else _INTEGERS).items()
}
COMPARE |= {f"v_cmp{x}_class_f32": Op(_is_class, ("f32", "u32"), "mask") for x in ("", "x")}
