"""Vector conversions between integers and floats of 8, 16 and 32 bits."""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core.numbers import F16, F32, F64, I32, U8, U16, U32, from_bf16, round_to_bf16
from gfxlab.simulator.instructions.common import Op


def saturated(x, kind):
    """Toward zero; beyond the range the nearest end, NaN is 0."""
    limits = np.iinfo(kind)
    whole = np.trunc(np.asarray(x, np.float64))
    return np.clip(np.where(np.isnan(whole), 0, whole), limits.min, limits.max).astype(kind)


def itself(number):
    """The exact value of what is only brought into another format."""
    return number


def _half_bits(x):
    return np.asarray(x).astype(F16).view(U16).astype(U32)


def _toward_zero(x):
    """float32 to float16 bits, cutting off (v_cvt_pkrtz): step back where rounding went outward."""
    nearest = np.asarray(x, F32).astype(F16)
    outward = np.abs(nearest.astype(F32)) > np.abs(x)
    return (nearest.view(U16) - outward.astype(U16)).astype(U32)


def _pair(low, high):
    return low | high << U32(16)


def _pair_of(kind, convert=saturated):
    """Two numbers brought into the range of a 16-bit type, side by side."""
    return lambda a, b: _pair(*(convert(x, kind).view(U16).astype(U32) for x in (a, b)))


def _normalised(x, kind):
    """-1 to 1 (of an unsigned type 0 to 1) as the whole range of an integer type, to nearest."""
    limits = np.iinfo(kind)
    scaled = np.rint(np.clip(np.nan_to_num(np.asarray(x, F64)), -1 if limits.min else 0, 1) * limits.max)
    return scaled.astype(kind)


def _byte_into(x, place, word):
    """v_cvt_pk_u8_f32: to nearest, into one byte of the third source."""
    shift = (place & U32(3)) * U32(8)
    return (word & ~(U32(0xFF) << shift)) | saturated(x, U8).astype(U32) << shift


CONVERT: dict[str, Op] = {
    "v_cvt_f32_i32": Op(lambda a: a.astype(F32), "i32", "f32", exact=itself),
    "v_cvt_f32_u32": Op(lambda a: a.astype(F32), "u32", "f32", exact=itself),
    "v_cvt_i32_f32": Op(lambda a: saturated(a, I32), "f32", "i32"),
    "v_cvt_u32_f32": Op(lambda a: saturated(a, U32), "f32", "u32"),
    "v_cvt_f16_f32": Op(lambda a: np.asarray(a).astype(F16), "f32", "f16", exact=itself),
    "v_cvt_f32_f16": Op(lambda a: a.astype(F32), "f16", "f32"),
    "v_cvt_f16_u16": Op(lambda a: a.astype(F16), "u16", "f16", exact=itself),
    "v_cvt_f16_i16": Op(lambda a: a.astype(F16), "i16", "f16", exact=itself),
    "v_cvt_u16_f16": Op(lambda a: saturated(a, U16), "f16", "u16"),
    "v_cvt_i16_f16": Op(lambda a: saturated(a, np.int16), "f16", "i16"),
    "v_cvt_f32_bf16": Op(from_bf16, "bf16", "f32"),
    "v_cvt_pk_bf16_f32": Op(lambda a, b: _pair(round_to_bf16(a), round_to_bf16(b)), "f32", "u32"),
    "v_cvt_pk_f16_f32": Op(lambda a, b: _pair(_half_bits(a), _half_bits(b)), "f32", "2f16"),
    "v_cvt_pkrtz_f16_f32": Op(lambda a, b: _pair(_toward_zero(a), _toward_zero(b)), "f32", "u32"),
    "v_cvt_pk_rtz_f16_f32": Op(lambda a, b: _pair(_toward_zero(a), _toward_zero(b)), "f32", "u32"),
    "v_cvt_pk_u16_u32": Op(lambda a, b: _pair(np.minimum(a, U32(65535)), np.minimum(b, U32(65535))), "u32"),
    "v_cvt_pk_i16_i32": Op(_pair_of(np.int16), "i32", "u32"),
    "v_cvt_pk_i16_f32": Op(_pair_of(np.int16), "f32", "u32"),
    "v_cvt_pk_u16_f32": Op(_pair_of(U16), "f32", "u32"),
    "v_cvt_pk_u8_f32": Op(_byte_into, ("f32", "u32", "u32"), "u32"),
    "v_cvt_norm_i16_f16": Op(lambda a: _normalised(a, np.int16), "f16", "i16"),
    "v_cvt_norm_u16_f16": Op(lambda a: _normalised(a, U16), "f16", "u16"),
    "v_cvt_i32_i16": Op(lambda a: a.astype(I32), "i16", "i32"),
    "v_cvt_u32_u16": Op(lambda a: a.astype(U32), "u16", "u32"),
    "v_sext_i32_i16": Op(lambda a: a.astype(I32), "i16", "i32"),
}
CONVERT |= {
    f"v_cvt_f32_ubyte{place}": Op(lambda a, at=place: ((a >> U32(8 * at)) & U32(0xFF)).astype(F32), "u32", "f32")
    for place in range(4)
}
for _name in ("flr", "floor"):  # gfx9's name, and the later one
    CONVERT[f"v_cvt_{_name}_i32_f32"] = Op(lambda a: saturated(np.floor(a), I32), "f32", "i32")
for _name in ("rpi", "nearest"):
    CONVERT[f"v_cvt_{_name}_i32_f32"] = Op(lambda a: saturated(np.floor(a + F32(0.5)), I32), "f32", "i32")
for _kind in ("f16", "f32"):
    for _name in ("pknorm", "pk_norm"):
        CONVERT[f"v_cvt_{_name}_i16_{_kind}"] = Op(_pair_of(np.int16, _normalised), _kind, "u32")
        CONVERT[f"v_cvt_{_name}_u16_{_kind}"] = Op(_pair_of(U16, _normalised), _kind, "u32")
