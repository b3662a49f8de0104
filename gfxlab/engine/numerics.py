"""The interpreter's numbers, repaired.

Triton's interpreter holds bfloat16 in `uint16` and fp8 in `uint8` and, in every release from 3.6 to 3.9, computes on
those bit patterns: `v + v`, `v > 1`, `tl.sum(v)` and `tl.dot(v, v)` of bfloat16 are garbage, conversions truncate
(bfloat16) or lose carries (fp8: 1.99 becomes 1.0), and a false `tl.device_assert` is ignored.  `install()` replaces
the few methods concerned: bfloat16 is computed in float32 and rounded once to nearest even, as the hardware does;
conversions are PyTorch's.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

_TORCH_DTYPE = {
    tl.float64: torch.float64,
    tl.float32: torch.float32,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
_TORCH_BITS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_FNUZ = ("fp8e4b8", "fp8e5b16")
_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
_COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)

_stock_convert_float = interpreter._convert_float
_stock_np_dtype = interpreter._get_np_dtype
_np_dtypes: dict[str, np.dtype] = {}


def _bits_as(array: np.ndarray, kind: str, bitwidth: int) -> np.ndarray:
    return array.view(np.dtype(f"{kind}{bitwidth // 8}"))


def _convert_float(data, source, target, rounding_mode):
    """Convert between floating-point types by way of torch: nearest even, saturation and NaN as torch has them."""
    if source not in _TORCH_DTYPE or target not in _TORCH_DTYPE:
        return _stock_convert_float(data, source, target, rounding_mode)
    data = np.asarray(data)
    signed = "u" if source.primitive_bitwidth == 8 else "i"  # torch has no 16-bit unsigned arithmetic type to view from
    bits = torch.from_numpy(_bits_as(data.copy(), signed, source.primitive_bitwidth))
    converted = bits.view(_TORCH_DTYPE[source]).to(_TORCH_DTYPE[target])
    out = converted.view(_TORCH_BITS[target.primitive_bitwidth]).numpy()
    return _bits_as(out, "u", target.primitive_bitwidth).reshape(data.shape)


def as_float32(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """The numbers of an interpreted block, which may hold their bits; wider ones stay as they are."""
    if dtype.primitive_bitwidth >= 32:
        return data
    return _convert_float(data, dtype, tl.float32, None).view(np.float32)


def _np_dtype(dtype: tl.dtype) -> np.dtype:
    """As Triton's function, which makes its table of all types anew for every value."""
    name = dtype.scalar.name
    if name not in _np_dtypes:
        _np_dtypes[name] = _stock_np_dtype(dtype)
    return _np_dtypes[name]


def _is_bf16_bits(handle) -> bool:
    return (
        isinstance(handle, TensorHandle)
        and handle.dtype.scalar == tl.bfloat16
        and np.asarray(handle.data).dtype == np.uint16
    )


def widen(handle):
    """bfloat16 bits as float32; anything else unchanged."""
    if not _is_bf16_bits(handle):
        return handle
    return TensorHandle((np.asarray(handle.data).astype(np.uint32) << 16).view(np.float32), tl.float32)


def _round(handle):
    """float32 rounded to bfloat16 bits."""
    return TensorHandle(_convert_float(np.asarray(handle.data, np.float32), tl.float32, tl.bfloat16, None), tl.bfloat16)


def _repaired_binary(stock):
    def binary_op(self, lhs, rhs, op):
        if op in _BITWISE or not (_is_bf16_bits(lhs) or _is_bf16_bits(rhs)):
            return stock(self, lhs, rhs, op)
        if op in _COMPARISONS:
            return TensorHandle(op(widen(lhs).data, widen(rhs).data), tl.int1)
        return _round(stock(self, widen(lhs), widen(rhs), op))

    return binary_op


def _repaired_unary(stock):
    def unary_op(self, arg, op):
        return _round(stock(self, widen(arg), op)) if _is_bf16_bits(arg) else stock(self, arg, op)

    return unary_op


def _repaired_ternary(stock):
    def ternary_op(self, first, second, third, op):
        if op is np.where or not (_is_bf16_bits(second) or _is_bf16_bits(third)):  # where only selects: bits are fine
            return stock(self, first, second, third, op)
        return _round(stock(self, widen(first), widen(second), widen(third), op))

    return ternary_op


def _repaired_fma(stock):
    def create_fma(self, x, y, z):
        return _round(stock(self, widen(x), widen(y), widen(z))) if _is_bf16_bits(z) else stock(self, x, y, z)

    return create_fma


def _repaired_dot(stock):
    def create_dot(self, a, b, accumulator, *rest):
        return stock(self, widen(a), widen(b), accumulator, *rest)

    return create_dot


def _repaired_reduction(stock):
    def reduction(self, tensor, *args, **kwargs):
        if not _is_bf16_bits(tensor.handle):
            return stock(self, tensor, *args, **kwargs)
        wide = tl.core.tensor(widen(tensor.handle), tl.block_type(tl.float32, list(tensor.shape)))
        result = stock(self, wide, *args, **kwargs)
        if isinstance(result, (tuple, list)):
            return type(result)(_narrow(item) for item in result)
        return _narrow(result)

    return reduction


def _narrow(tensor):
    """A float32 result back in bfloat16; the int32 indices of argmax unchanged."""
    if tensor.dtype.scalar != tl.float32:
        return tensor
    block = tl.block_type(tl.bfloat16, list(tensor.shape)) if tensor.shape else tl.bfloat16
    return tl.core.tensor(_round(tensor.handle), block)


@cache
def _get_bf16(self, value) -> TensorHandle:
    return self.create_fp_trunc(self.get_fp32(value), tl.bfloat16)


def to_ir(stock):
    """`tl.dtype.to_ir` that knows the fp8 types of gfx942, to which no pointer can be had in Triton 3.6 otherwise."""

    def known(self, builder):
        return getattr(builder, f"get_{self.name}_ty")() if self.name in _FNUZ else stock(self, builder)

    return known


def install() -> None:
    """Repair the interpreter of this process; calling it again does nothing."""
    interpreter._convert_float = _convert_float
    interpreter._get_np_dtype = _np_dtype
    for name, repaired in (
        ("binary_op", _repaired_binary),
        ("unary_op", _repaired_unary),
        ("ternary_op", _repaired_ternary),
        ("create_fma", _repaired_fma),
        ("create_dot", _repaired_dot),
    ):
        setattr(InterpreterBuilder, name, repaired(getattr(InterpreterBuilder, name)))
    for owner, names in ((ReduceOps, ("sum", "min_max")), (ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            setattr(owner, name, _repaired_reduction(getattr(owner, name)))
    if not hasattr(InterpreterBuilder, "get_bf16"):  # before 3.9 `x * 2` fails where x is bfloat16
        InterpreterBuilder.get_bf16 = _get_bf16
    builder = interpreter.interpreter_builder
    # a false device_assert raises; integers wrap, as they do compiled (a hash counts on it)
    builder.options = dataclasses.replace(builder.options, debug=True, sanitize_overflow=False)
