"""How an instruction reads its operands and writes its result: a small function each, made once when it is decoded.

A reader takes the waves and returns an array that broadcasts to `[wave, lane]`: a vector register in full, a scalar
register as `[wave, 1]`, a constant as a numpy scalar.  Types are named as in the instruction set: u32, i32, f32, f16,
bf16, u16, i16, u64, i64, f64, `mask` for one bit a lane, and 2f16, 2bf16, 2u16, 2i16 for two numbers in 32 bits.

Every source goes the same way, whatever it is: its bits (of a constant: those that its type gives it), the lane they
come from (DPP), the part of the register (SDWA, op_sel), the type, and last the sign's modifiers.
Constants: MI300 ISA, section 5.2 ("Scalar operands", literals of 64-bit operands); RDNA 3 ISA, section 7.2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gfxlab.simulator.core.numbers import F16, F32, F64, I32, I64, U16, U32, U64, round_to_bf16
from gfxlab.simulator.core.operands import NULL, Operand
from gfxlab.simulator.core.state import Waves

Reader = Callable[[Waves], np.ndarray]
Writer = Callable[[Waves, np.ndarray], None]
Lanes = Callable[[Reader], Reader]

_NUMPY = {
    "u32": U32,
    "i32": I32,
    "f32": F32,
    "u64": U64,
    "i64": I64,
    "f64": F64,
    "f16": F16,
    "bf16": U16,  # numpy has no such type: its bits
    "u16": U16,
    "i16": np.int16,
    "2f16": U32,
    "2bf16": U32,
    "2u16": U32,
    "2i16": U32,
}
NARROW = ("f16", "bf16", "u16", "i16")
WIDE = ("u64", "i64", "f64")
_SIGN = {16: U16(0x8000), 32: U32(0x80000000), 64: U64(1 << 63)}


def numpy_type(kind: str) -> type:
    """The type of the array that a reader of `kind` returns."""
    return _NUMPY[kind]


def bits_of(kind: str) -> int:
    """How many bits a value of this type has."""
    return 8 * np.dtype(_NUMPY[kind]).itemsize


def reader(
    operand: Operand,
    kind: str,
    *,
    high: bool = False,
    select: tuple[int, int] | None = None,
    lanes: Lanes | None = None,
) -> Reader:
    """A function that reads `operand` as `kind`.

    high: of a 16-bit type, take the high half. select: (shift, mask) applied to the 32 bits first (SDWA). lanes: makes
    of a reader one that takes each lane's value from another lane (DPP).
    """
    if kind == "mask":
        return lambda w, i=operand.index: w.lane_mask(i)
    read = _bits(operand, kind, high)
    if lanes is not None:
        read = lanes(read)
    if select is not None:
        read = _selected(read, *select, operand.sign_extend)
    elif kind in NARROW and not operand.is_constant and (high or operand.half):
        read = _shifted(read)
    read = _modified(operand, kind, _typed(read, operand, kind, plain=lanes is None and select is None))
    if operand.is_constant and lanes is None:
        value = read(None)
        return lambda w: value
    return read


# ---- bits ------------------------------------------------------------------------------------------------------------


def _bits(operand: Operand, kind: str, high: bool) -> Reader:
    """The operand's 32 bits (64 of a wide type), not yet cut to the type."""
    if operand.is_constant:
        value = constant(operand.value, kind)
        return lambda w: value
    if not (operand.is_vector or operand.is_scalar):
        raise LookupError(f"nothing is known about the operand {operand.text!r}")
    i = operand.index
    if operand.is_scalar and i == NULL:
        zero = U64(0) if kind in WIDE else U32(0)
        return lambda w: zero
    if kind not in WIDE:
        return (lambda w: w.S[:, i : i + 1]) if operand.is_scalar else (lambda w: w.V[i])
    if not operand.is_scalar:
        return lambda w: w.V[i].astype(U64) | w.V[i + 1].astype(U64) << U64(32)
    if operand.count == 1:  # a lane mask of 32 lanes, or one register read as 64 bits
        return lambda w: w.S[:, i : i + 1].astype(U64)
    return lambda w: w.S[:, i : i + 2].view(U64)


# The format that a float constant takes where an operand of this type stands: an integer sees the bits of a float of
# its size, a packed integer those of a float32.
_INLINE = {"f64": 64, "u64": 64, "i64": 64, "f16": 16, "u16": 16, "i16": 16, "2f16": 16, "bf16": 0, "2bf16": 0}
_ONE_TURN = {64: 0x3FC45F306DC9C882, 32: 0x3E22F983, 16: 0x3118, 0: 0x3E22}  # 1 / (2 pi), printed in short
_FLOATS = {64: (F64, U64), 32: (F32, U32), 16: (F16, U16)}


def constant(number: int | float, kind: str) -> np.ndarray:
    """The bits of an inline constant or of a literal as an operand of type `kind`: uint64 of wide types, else uint32.

    An integer between -16 and 64 is an inline constant and fills the operand, extended by its sign. Others are literals
    of 32 bits: the high half of a float64, a signed 64-bit integer's bits extended by the sign, else by zeros.
    """
    word = U64 if kind in WIDE else U32
    if isinstance(number, float):
        return word(_inline_float(number, _INLINE.get(kind, 32)))
    literal = not -16 <= number <= 64
    if kind == "f64" and literal and number < 1 << 32:
        number = (number & 0xFFFFFFFF) << 32
    elif kind == "i64" and literal and number < 1 << 32:
        number = (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
    return word(number & (0xFFFFFFFFFFFFFFFF if word is U64 else 0xFFFFFFFF))


def _inline_float(number: float, bits: int) -> int:
    if abs(number - 0.15915494309189532) < 1e-6:
        return _ONE_TURN[bits]
    if not bits:
        return int(round_to_bf16(F32(number)))
    as_float, as_integer = _FLOATS[bits]
    return int(as_float(number).view(as_integer))


def _selected(read: Reader, shift: int, bits: int, sign_extend: bool) -> Reader:
    """A byte or a half of 32 bits, extended to 32 again."""
    if not sign_extend:
        return lambda w: (read(w) >> U32(shift)) & U32(bits)
    unused = 32 - bits.bit_length()
    return lambda w: ((((read(w) >> U32(shift)) << U32(unused)).view(I32)) >> I32(unused)).view(U32)


def _shifted(read: Reader) -> Reader:
    return lambda w: read(w) >> U32(16)


def _typed(read: Reader, operand: Operand, kind: str, plain: bool) -> Reader:
    """The bits as the type. plain: nothing was done to them yet, so that registers have views of the right type."""
    numpy_kind = _NUMPY[kind]
    if kind in NARROW:
        return lambda w: np.asarray(read(w)).astype(U16).view(numpy_kind)
    if plain and operand.is_vector and kind == "f32":
        return lambda w, i=operand.index: w.F[i]
    if plain and operand.is_vector and kind == "i32":
        return lambda w, i=operand.index: w.I[i]
    if numpy_kind in (U32, U64):
        return read
    return lambda w: np.asarray(read(w)).view(numpy_kind)


def _modified(operand: Operand, kind: str, read: Reader) -> Reader:
    if not (operand.negate or operand.absolute):
        return read
    if kind[0] != "f":  # the sign bit of a float that an instruction moves without knowing it (v_cndmask)
        sign = _SIGN[bits_of(kind)]
        keep, flip = ~sign if operand.absolute else ~(sign & ~sign), sign if operand.negate else sign & ~sign
        return lambda w: (read(w) & keep) ^ flip
    if operand.absolute:
        return (lambda w: -np.abs(read(w))) if operand.negate else (lambda w: np.abs(read(w)))
    return lambda w: -read(w)


def packed_reader(operand: Operand, kind: str, half: int) -> Reader:
    """One half of a packed source of 16-bit numbers; a constant is one word whose high half is 0 or the sign."""
    if not operand.is_constant:
        return reader(operand, kind, high=bool(half))
    word = constant(operand.value, "2" + kind)
    value = np.asarray(word >> U32(16 * half)).astype(U16).view(_NUMPY[kind])[()]
    return lambda w: value


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
    read = reader(operand, kind)
    if operand.is_constant or operand.is_scalar and operand.index == NULL:
        return read
    return lambda w: read(w).reshape(-1)
