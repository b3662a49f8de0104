"""How an instruction reads its operands and writes its result: a small function each, made once when it is decoded.

A reader takes the waves and returns an array that broadcasts to `[wave, lane]`: a vector register in full, a scalar
register as `[wave, 1]`, a constant as a numpy scalar.  Types are named as in the instruction set: u32, i32, f32, f16,
u16, i16, u64, i64, f64, and `mask` for one bit a lane.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gfxlab.simulator.core.numbers import F16, F32, F64, I32, I64, U16, U32, U64
from gfxlab.simulator.core.operands import NULL, Operand
from gfxlab.simulator.core.state import Waves

Reader = Callable[[Waves], np.ndarray]
Writer = Callable[[Waves, np.ndarray], None]

_NUMPY = {
    "u32": U32,
    "i32": I32,
    "f32": F32,
    "u64": U64,
    "i64": I64,
    "f64": F64,
    "f16": F16,
    "u16": U16,
    "i16": np.int16,
}
NARROW = ("f16", "u16", "i16")
WIDE = ("u64", "i64", "f64")


def reader(operand: Operand, kind: str, *, high: bool = False, select: tuple[int, int] | None = None) -> Reader:
    """A function that reads `operand` as `kind`.

    high: of a 16-bit type, take the high half. select: (shift, mask) applied to the 32 bits first (SDWA).
    """
    if kind == "mask":
        return lambda w, i=operand.index: w.lane_mask(i)
    if operand.is_constant:
        return _constant(operand, kind)
    if kind in WIDE:
        read = _wide(operand, kind)
    elif kind in NARROW or select:
        shift, bits = select or (16 if high or operand.half else 0, 0xFFFF)
        read = _part(operand, kind, shift, bits)
    else:
        read = _word(operand, kind)
    return _modified(operand, kind, read)


def _constant(operand: Operand, kind: str) -> Reader:
    number = operand.value
    if isinstance(number, float):
        # an integer instruction sees the bits of the float32
        value = _NUMPY[kind](number) if kind[0] == "f" else F32(number).view(U32).astype(_NUMPY[kind])
    elif kind in WIDE:
        value = U64(number & 0xFFFFFFFFFFFFFFFF).view(_NUMPY[kind])
    elif kind in NARROW:
        value = U16(number & 0xFFFF).view(_NUMPY[kind])
    else:
        value = U32(number & 0xFFFFFFFF).view(_NUMPY[kind])
    if kind[0] == "f":
        value = np.abs(value) if operand.absolute else value
        value = -value if operand.negate else value
    return lambda w: value


def _word(operand: Operand, kind: str) -> Reader:
    i = operand.index
    if operand.is_scalar:
        if i == NULL:
            zero = _NUMPY[kind](0)
            return lambda w: zero
        if kind == "u32":
            return lambda w: w.S[:, i : i + 1]
        return lambda w, kind=_NUMPY[kind]: w.S[:, i : i + 1].view(kind)
    if kind == "f32":
        return lambda w: w.F[i]
    return (lambda w: w.V[i]) if kind == "u32" else (lambda w: w.I[i])


def _wide(operand: Operand, kind: str) -> Reader:
    i, kind = operand.index, _NUMPY[kind]
    if operand.is_scalar:
        if operand.count == 1:  # a lane mask of 32 lanes, or one register read as 64 bits
            return lambda w: w.S[:, i : i + 1].astype(U64).view(kind)
        return lambda w: w.S[:, i : i + 2].view(kind)
    return lambda w: (w.V[i].astype(U64) | w.V[i + 1].astype(U64) << U64(32)).view(kind)


def _part(operand: Operand, kind: str, shift: int, bits: int) -> Reader:
    word = _word(operand, "u32")
    numpy_kind = _NUMPY[kind]

    def read(w: Waves) -> np.ndarray:
        value = word(w)
        value = (value >> U32(shift)) & U32(bits) if shift or bits != 0xFFFF else value
        if kind in NARROW:
            return np.asarray(value).astype(U16).view(numpy_kind)
        if operand.sign_extend:
            unused = 32 - bits.bit_length()
            value = ((value << U32(unused)).view(I32) >> I32(unused)).view(U32)
        return np.asarray(value).view(numpy_kind)

    return read


def _modified(operand: Operand, kind: str, read: Reader) -> Reader:
    if not (operand.negate or operand.absolute):
        return read
    if kind in ("u32", "u16"):  # the sign bit of a float that an instruction moves without knowing it (v_cndmask)
        sign = U32(0x80000000) if kind == "u32" else U16(0x8000)
        keep = ~sign if operand.absolute else ~U32(0) if kind == "u32" else ~U16(0)
        flip = sign if operand.negate else sign & ~sign
        return lambda w: (read(w) & keep) ^ flip
    if operand.absolute:
        return (lambda w: -np.abs(read(w))) if operand.negate else (lambda w: np.abs(read(w)))
    return lambda w: -read(w)


# ---- writing -------------------------------------------------------------------------------------------------------


def writer(operand: Operand, kind: str, *, high: bool = False, clear: bool = True) -> Writer:
    """A function that writes `operand` as `kind` in the active lanes.

    high: of a 16-bit type, write the high half. clear: a 16-bit result sets the other half to 0 (gfx9), else it stays.
    """
    i = operand.index
    if kind == "mask":
        return lambda w, value: w.write_lane_mask(i, value)
    if kind in WIDE:
        return lambda w, value: _write_wide(w, i, value)
    if kind in NARROW:
        upper = high or bool(operand.half)
        return lambda w, value: _write_half(w, i, value, upper, clear and operand.half is None and not high)
    if kind == "f32":
        return lambda w, value: w.write(w.F[i], value)
    if kind == "i32":
        return lambda w, value: w.write(w.I[i], value)
    return lambda w, value: w.write(w.V[i], value)


def _write_wide(w: Waves, i: int, value: np.ndarray) -> None:
    bits = np.asarray(value).view(U64)
    low, high = bits.astype(U32), (bits >> U64(32)).astype(U32)
    w.write(w.V[i], low)
    w.write(w.V[i + 1], high)


def _write_half(w: Waves, i: int, value: np.ndarray, high: bool, clear: bool) -> None:
    bits = np.asarray(value).view(U16).astype(U32)
    if clear:
        w.write(w.V[i], bits)
    elif high:
        w.write(w.V[i], (w.V[i] & U32(0xFFFF)) | bits << U32(16))
    else:
        w.write(w.V[i], (w.V[i] & U32(0xFFFF0000)) | bits)


def scalar_reader(operand: Operand, kind: str) -> Reader:
    """Like `reader` for a scalar instruction: arrays `[wave]`."""
    if operand.is_constant:
        return _constant(operand, kind)
    read = reader(operand, kind)
    return lambda w: read(w).reshape(-1)
