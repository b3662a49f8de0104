"""Rounding upward, downward and toward zero, as MODE asks for it; to nearest is what every instruction does by itself.

MODE.FP_ROUND: bits 0 and 1 for float32, bits 2 and 3 for float16 and float64 and for what is converted from float64
(MI300 ISA, section 3.5; LLVM calls the instructions of the second kind FPDPRounding). Triton's kernels never set it,
inline assembly may: so each lane is rounded by itself, by the exact number as a fraction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gfxlab.simulator.core import faults
from gfxlab.simulator.core.numbers import F64, U32, fma16, fma32, fma64
from gfxlab.simulator.core.operands import MODE
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import Op

NEAREST, UP, DOWN, TO_ZERO = range(4)
_SUMS = {np.add: lambda a, b: a + b, np.subtract: lambda a, b: a - b}
_EXACT = _SUMS | {np.multiply: lambda a, b: a * b} | dict.fromkeys((fma16, fma32, fma64), lambda a, b, c: a * b + c)
# What cuts a number off twice, or by a rule of its own, is not rounded here.
_OTHERWISE = re.compile(r"v_(mad|mac|mullit|div_fmas|dot|cvt_pk_f16)|_legacy_|_dx9_")


def directed(op: Op, kinds: tuple[str, ...], instruction: Decoded) -> Callable | None:
    """What makes of a result that is rounded to nearest the one that MODE asks for; None where both are the same.

    It is called with the waves, the result and the sources, and raises UnknownInstruction where it cannot tell.
    """
    exact = op.exact or _EXACT.get(op.compute)
    refused = bool(_OTHERWISE.match(instruction.mnemonic) or _OTHERWISE.search(instruction.mnemonic))
    if exact is None and not refused:
        return None
    place = U32(2 if op.results[0] in ("f16", "2f16", "f64") or "f64" in kinds else 0)

    def change(w, result, sources):
        column = w.S[:, MODE] if np.ndim(result) < 2 else w.S[:, MODE : MODE + 1]
        mode = (column >> place) & U32(3)
        if not mode.any():
            return result
        if refused:
            raise faults.UnknownInstruction(instruction)
        result, mode, *sources = np.broadcast_arrays(result, mode, *sources)
        rounded = np.array(result)
        for i in np.flatnonzero(mode):
            numbers = [source.flat[i] for source in sources]
            if np.isfinite(numbers).all():
                rounded.flat[i] = _rounded(op, exact, int(mode.flat[i]), result.flat[i], numbers)
        return rounded

    return change


def _rounded(op: Op, exact: Callable, mode: int, nearest, numbers: list):
    """One number. nearest: what it is when rounded to nearest, infinite where that overflows."""
    kind = type(nearest)
    number = exact(*[Fraction(_plain(x)) for x in numbers])
    if number == 0:
        return _zero(op, mode, nearest, numbers)
    down = mode == DOWN or mode == TO_ZERO and number > 0
    if np.isinf(nearest) or (Fraction(float(nearest)) > number if down else Fraction(float(nearest)) < number):
        outward = np.isinf(nearest) and (nearest < 0) == down  # an overflow that this rounding allows
        return nearest if outward else np.nextafter(nearest, kind(-np.inf if down else np.inf))
    return nearest


def _plain(x) -> int | float:
    return int(x) if x.dtype.kind in "iu" else float(F64(x))


def _zero(op: Op, mode: int, nearest, numbers: list):
    """Rounded downward, numbers that cancel leave -0: the sum of what they are with the other sign, turned round."""
    if mode != DOWN or op.compute is np.multiply or op.exact and len(numbers) == 1:
        return nearest
    turned = [-x if place != 1 or len(numbers) == 2 else x for place, x in enumerate(numbers)]
    return -op.compute(*[np.asarray(x) for x in turned])[()]
