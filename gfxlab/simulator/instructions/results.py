"""What becomes of a result before it is written: rounding, output modifiers (omod, clamp), overflow, denormals.

omod: MI300 ISA, section 6.2.3, which IEEE mode switches off; clamp: the same; MODE: section 3.5.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F16, U16, U32
from gfxlab.simulator.core.operands import DENORMAL_RESULTS, DENORMAL_SOURCES, FP16_OVFL, IEEE, MODE
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import rounding
from gfxlab.simulator.instructions.common import Op

_SCALES = {("mul", 2): 2, ("mul", 4): 4, ("div", 2): 0.5}
_FLOATS = ("f16", "f32", "f64")
_LARGEST_HALF = F16(65504)


def computation(op: Op, readers: list[values.Reader], instruction: Decoded) -> values.Reader:
    """`op` of what the readers give, then output modifiers on its (first) result; denormals and rounding by MODE."""
    usual = _computation(op, readers, instruction)
    kinds = op.kinds(len(readers))
    if not any(kind in _FLOATS for kind in (*kinds, *op.results)):
        return usual
    flushed = [_without_denormals(read, DENORMAL_SOURCES) for read in readers]
    unusual = _computation(op, flushed, instruction, rounding.directed(op, kinds, instruction))
    unusual = _without_denormals(unusual, DENORMAL_RESULTS)
    return lambda w: unusual(w) if w.unusual else usual(w)


def _without_denormals(read: values.Reader, bits: dict[int, int]) -> values.Reader:
    """Denormals become zeros of their sign, unless the wave's MODE has the bit that belongs to the format's size."""

    def run(w):
        value = read(w)
        first = value[0] if isinstance(value, tuple) else value
        kind = np.asarray(first).dtype
        if kind.kind == "f":
            tiny = np.abs(first) < np.finfo(kind).smallest_normal
            if tiny.any():
                first = np.where(tiny & ~_mode(w, bits[kind.itemsize], first), np.copysign(kind.type(0), first), first)
        return (first, *value[1:]) if isinstance(value, tuple) else first

    return run


def _computation(
    op: Op, readers: list[values.Reader], instruction: Decoded, directed: Callable | None = None
) -> values.Reader:
    compute, kind, modifiers = op.compute, op.results[0], instruction.modifiers
    clamp = bool(modifiers.get("clamp"))
    if op.wide:
        compute = _of_exact(op, clamp)
    elif clamp and op.clamped:
        compute = op.clamped
    finish = [directed] if directed else []
    if kind in ("f16", "2f16"):
        finish.append(_without_overflow if kind == "f16" else _pair_without_overflow)
    if kind in _FLOATS:
        finish += [_scaled(factor) for (name, n), factor in _SCALES.items() if modifiers.get(name) == n]
        finish += [_between_0_and_1] if clamp else []
    if finish:
        return _finished(compute, readers, finish)
    if len(readers) == 1:
        (only,) = readers
        return lambda w: compute(only(w))
    if len(readers) == 2:
        first, second = readers
        return lambda w: compute(first(w), second(w))
    return lambda w: compute(*[read(w) for read in readers])


def _finished(compute: Callable, readers: list[values.Reader], finish: list[Callable]) -> values.Reader:
    def run(w):
        sources = [read(w) for read in readers]
        result = compute(*sources)
        first, *others = result if isinstance(result, tuple) else (result,)
        for change in finish:
            first = change(w, first, sources)
        return (first, *others) if others else first

    return run


def _mode(w, bit: int, result: np.ndarray) -> np.ndarray:
    """A bit of each wave's MODE, as [wave, 1], or as [wave] for a scalar result; of a constant the first wave's."""
    if np.ndim(result) == 0:
        return (w.S[0, MODE] & U32(bit)) != 0
    mode = w.S[:, MODE] if np.ndim(result) == 1 else w.S[:, MODE : MODE + 1]
    return (mode & U32(bit)) != 0


def _scaled(factor: float) -> Callable:
    def change(w, result, sources):
        return np.where(_mode(w, IEEE, result), result, result * result.dtype.type(factor))

    return change


def _between_0_and_1(w, result, sources):
    """NaN becomes 0 (MODE.DX10_CLAMP, which every kernel of Triton's has on)."""
    zero, one = result.dtype.type(0), result.dtype.type(1)
    return np.where(result > zero, np.minimum(result, one), zero)


def _without_overflow(w, result, sources):
    """Where MODE.FP16_OVFL is set, an infinity that comes of finite numbers becomes the largest float16."""
    if not w.saturates:
        return result
    wrong = np.isinf(result) & _mode(w, FP16_OVFL, result)
    for source in sources:
        if np.asarray(source).dtype.kind == "f":
            wrong = wrong & np.isfinite(source)
    return np.where(wrong, np.copysign(_LARGEST_HALF, result), result)


def _pair_without_overflow(w, result, sources):
    """The same for two float16 in a word, each made of one source."""
    if not w.saturates:
        return result
    halves = [(np.asarray(result) >> U32(shift)).astype(U16).view(F16) for shift in (0, 16)]
    low, high = (_without_overflow(w, half, [source]).view(U16) for half, source in zip(halves, sources))
    return low.astype(U32) | high.astype(U32) << U32(16)


def saturating(exact: Callable, kind: str) -> Callable:
    """`exact` of int64 sources, brought to the ends of the range of `kind` where it would wrap around."""
    numpy_kind = values.numpy_type(kind)
    limits = np.iinfo(numpy_kind)

    def compute(*sources):
        result = exact(*[np.asarray(source).astype(np.int64) for source in sources])
        return np.clip(result, limits.min, limits.max).astype(numpy_kind)

    return compute


def _of_exact(op: Op, clamp: bool) -> Callable:
    kind = values.numpy_type(op.results[0])
    limits = np.iinfo(kind)

    def compute(*sources):
        total = op.compute(*[np.asarray(source).astype(np.int64) for source in sources])
        result = (np.clip(total, limits.min, limits.max) if clamp else total).astype(kind)
        return (result, (total < limits.min) | (total > limits.max)) if len(op.results) > 1 else result

    return compute
