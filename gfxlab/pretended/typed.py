"""The classes of tensors of before dtypes: torch.cuda.FloatTensor and its like."""

from __future__ import annotations

from typing import Any

import torch

_DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Bool": torch.bool,
}
_stock_default = torch.set_default_tensor_type
_stock_type = torch.Tensor.type


class _Kind(type):
    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype

    def __call__(cls, *given: Any) -> torch.Tensor:
        if not given or isinstance(given[0], int | torch.Size):
            sizes = given[0] if given and isinstance(given[0], torch.Size) else given or (0,)
            return torch.empty(sizes, dtype=cls.dtype, device="cuda")
        return torch.as_tensor(given[0], dtype=cls.dtype, device="cuda")


def classes() -> dict[str, type]:
    """By their names in torch.cuda."""
    about = {name: {"dtype": dtype, "is_cuda": True, "__module__": "torch.cuda"} for name, dtype in _DTYPES.items()}
    return {f"{name}Tensor": _Kind(f"{name}Tensor", (), one) for name, one in about.items()}


def set_default(kind: Any) -> None:
    """torch.set_default_tensor_type, which takes the device's classes too."""
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    place, _, short = name.rpartition(".")
    if place != "torch.cuda":
        torch.set_default_device(None)
        _stock_default(kind)
        return
    torch.set_default_dtype(_DTYPES[short.removesuffix("Tensor")])
    torch.set_default_device("cuda")


def converted(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    """torch.Tensor.type, which takes the device's classes too, and their names."""
    name = dtype if isinstance(dtype, str) else f"{getattr(dtype, '__module__', '')}.{getattr(dtype, '__name__', '')}"
    place, _, short = name.rpartition(".")
    if place != "torch.cuda":
        return _stock_type(tensor, dtype, non_blocking, **options)
    return tensor.to("cuda", _DTYPES[short.removesuffix("Tensor")], non_blocking)
