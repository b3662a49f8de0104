"""Operands to try: the edges of each type, and random ones."""

from __future__ import annotations

import math
import random

from exact import F16_EDGES, F32_EDGES
from integers import LONG, WORDS
from oracle.bits import encode

from gfxlab.simulator.core.values import NARROW, WIDE

_F64_EDGES = [encode(x, 64) for x in (0.0, 1.0, 0.5, 1.5, 2.5, 2.0**31, 2.0**32, 1e-40, 3.5e38, 1 / 3, 2.0**-149 * 1.5)]
_F64_EDGES += [1, (1 << 52) - 1, 1 << 52, 0x7FF << 52, 0x7FF8 << 48, (0x7FF << 52) - 1]
_EDGES = {
    "f16": F16_EDGES,
    "f32": F32_EDGES,
    "f64": [*_F64_EDGES, *(code | 1 << 63 for code in _F64_EDGES)],
    "u64": LONG,
    "i64": LONG,
}
_QUIET = {"f16": (0x7C00, 0x3FF, 0x200), "f32": (0xFF << 23, (1 << 23) - 1, 1 << 22)}
_QUIET["f64"] = (0x7FF << 52, (1 << 52) - 1, 1 << 51)


def operand(kind: str, chance: random.Random) -> int:
    """The bits of one source; of a 16-bit type the other half holds something else. Signalling NaNs are made quiet."""
    if kind in NARROW or kind[0] == "2":
        return _number(kind.lstrip("2"), chance) | _number(kind.lstrip("2"), chance) << 16
    return _number(kind, chance)


def _number(kind: str, chance: random.Random) -> int:
    width = 16 if kind in NARROW else 64 if kind in WIDE else 32
    edges = _EDGES.get(kind, WORDS)
    if chance.random() < 0.45:
        bits = chance.choice(edges)
    elif kind[0] == "f" and chance.random() < 0.5:
        bits = encode(math.ldexp(chance.uniform(-2, 2), chance.randint(-width // 3, width // 3)), width)
    else:
        bits = chance.getrandbits(width if chance.random() < 0.6 else chance.randint(1, width))
    if kind in _QUIET:
        infinity, mantissa, quiet = _QUIET[kind]
        if bits & infinity == infinity and bits & mantissa:
            bits |= quiet
    return bits & ((1 << width) - 1)
