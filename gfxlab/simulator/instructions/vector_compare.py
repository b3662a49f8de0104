"""Vector comparisons (VOPC): one bit a lane into a pair of scalar registers; v_cmpx also switches lanes off."""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core.numbers import U16, U32, U64
from gfxlab.simulator.instructions.common import Op


def _ordered(a, b):
    return (a == a) & (b == b)  # only NaN differs from itself


def _always(answer: bool):
    return lambda a, b: np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), answer)


INTEGER_TESTS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
# `n` before a comparison of floats is its negation, which is true for NaN.
FLOAT_TESTS = {
    **{name: compare for name, compare in INTEGER_TESTS.items() if name != "ne"},
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
_CONSTANT = {"f": _always(False), "t": _always(True), "tru": _always(True)}
_BITS = {2: U16, 4: U32, 8: U64}


def _is_class(x, wanted):
    """v_cmp_class: bit k of `wanted` asks for the k-th class below."""
    x = np.asarray(x)
    negative, finite, zero = np.signbit(x), np.isfinite(x), x == 0
    tiny = ~zero & (np.abs(x) < np.finfo(x.dtype).tiny)
    normal = finite & ~zero & ~tiny
    bits = _BITS[x.dtype.itemsize]
    quiet = np.isnan(x) & (x.view(bits) >> bits(np.finfo(x.dtype).nmant - 1) & bits(1)).astype(bool)
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
        result |= member & (wanted >> bit & 1).astype(bool)
    return result


COMPARE: dict[str, Op] = {
    f"v_cmp{x}_{name}_{kind}": Op(compare, kind, "mask")
    for x in ("", "x")
    for kind in ("u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64")
    for name, compare in ((FLOAT_TESTS if kind[0] == "f" else INTEGER_TESTS) | _CONSTANT).items()
}
COMPARE |= {
    f"v_cmp{x}_class_{kind}": Op(_is_class, (kind, wanted), "mask")
    for x in ("", "x")
    for kind, wanted in (("f16", "u16"), ("f32", "u32"), ("f64", "u32"))
}
