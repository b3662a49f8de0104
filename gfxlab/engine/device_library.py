"""AMD's device library (OCML, OCKL) in the interpreter: what `libdevice`'s functions compute, by the symbol's name.

`triton.language.extra.libdevice` holds functions without a body; a compiler exchanges them for its target's. Stock
interpretation runs the empty bodies, which give None. Here they are the functions of
`triton.language.extra.hip.libdevice`, whose symbols are computed in float64 and rounded once: the last bit may differ
from the library's. A function that the target does not have is refused, as the compiler refuses it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from triton.language.extra import libdevice
from triton.language.extra.hip import libdevice as of_amd
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_SYMBOL = re.compile(r"__(?:ocml|ockl|triton_hip)_(?:fast_)?(\w+?)(?:_[fu]\d\d)?$")
_LAST = 2**31 - 1


def _torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x, np.float64))).numpy()


def _round(x: np.ndarray) -> np.ndarray:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.copysign(whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0), x)


def _ilogb(x: np.ndarray) -> np.ndarray:
    """floor(log2|x|); INT_MIN of 0, INT_MAX of what is not finite."""
    return np.select([x == 0, ~np.isfinite(x)], [-_LAST - 1, _LAST], np.frexp(x)[1] - 1)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = 8 * x.dtype.itemsize
    unsigned = x.view(f"u{x.dtype.itemsize}")
    return np.array([bits - int(n).bit_length() for n in unsigned.ravel()]).reshape(x.shape)


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.longdouble(a) * np.longdouble(b) + np.longdouble(c)


_BY_NUMPY: dict[str, Callable[..., Any]] = {
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sqrt", "floor", "ceil", "trunc", "rint")},
    **{name: getattr(np, name) for name in ("hypot", "fmod", "copysign", "nextafter", "isnan", "isinf", "isfinite")},
    **{name: getattr(np, name) for name in ("signbit", "ldexp")},
    "expf": np.exp,
    "tanhf": np.tanh,
    "fdividef": np.divide,
    "fabs": np.abs,
    "iabs": np.abs,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "round": _round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "pown": np.power,
    "fma": _fused,
    "ilogb": _ilogb,
    "clz": _leading_zeros,
    "popcount": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")),
}


def _vanishing(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A Bessel function J or Y at infinity too; PyTorch has eleven digits of them, and NaN there."""
    return lambda x: np.where(np.isposinf(x), 0.0, function(x))


def _even(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: function(np.abs(x))


def _odd(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.copysign(function(np.abs(x)), x)


def _growing(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A modified Bessel function I at infinity too."""
    return lambda x: np.where(np.isposinf(x), np.inf, function(x))


_BY_TORCH = {name: getattr(torch.special, name) for name in ("erf", "erfc", "erfinv", "erfcx")} | {
    "lgamma": torch.lgamma
}
_BESSEL = {name: _vanishing(_torch(getattr(torch.special, f"bessel_{name}"))) for name in ("j0", "j1", "y0", "y1")}
_FUNCTIONS = (
    _BY_NUMPY
    | {name: _torch(function) for name, function in _BY_TORCH.items()}
    | {
        "j0": _even(_BESSEL["j0"]),
        "j1": _odd(_BESSEL["j1"]),
        "y0": _BESSEL["y0"],
        "y1": _BESSEL["y1"],
        "i0": _even(_growing(_torch(torch.special.i0))),
        "i1": _odd(_growing(_torch(torch.special.i1))),
    }
)
_IN_ITS_DTYPE = ("nextafter",)  # its steps are those of the dtype


def _create_extern_elementwise(builder, library, path, symbol, arguments, result, is_pure) -> TensorHandle:
    """InterpreterBuilder's, which stock refuses."""
    named = _SYMBOL.match(symbol)
    if named is None or named[1] not in _FUNCTIONS:
        raise NotImplementedError(f"the interpreter does not know {symbol!r}, a function of an external library")
    name, values = named[1], [argument.data for argument in arguments]
    if name not in _IN_ITS_DTYPE:
        values = [v.astype(np.float64) if np.issubdtype(v.dtype, np.floating) else v for v in values]
    with np.errstate(all="ignore"):
        computed = _FUNCTIONS[name](*values)
    scalar = result.scalar
    with np.errstate(all="ignore"):
        return TensorHandle(np.asarray(computed).astype(interpreter._get_np_dtype(scalar)), scalar)


def call(name: str, *arguments: Any) -> Any:
    """`libdevice.<name>(...)` inside an interpreted kernel.

    Raises:
        AttributeError: AMD's device library has no such function; the compiler says the same.
    """
    function = getattr(of_amd, name, None)
    if function is None:
        raise AttributeError(f"module 'triton.language.extra.hip.libdevice' has no attribute {name!r}")
    return function(*arguments)


def patch(scope: Any) -> None:
    """Give AMD's functions the interpreter's builder, until the scope ends."""
    interpreter._patch_builtin(of_amd, interpreter.interpreter_builder, scope)


@cache
def install() -> None:
    """Give libdevice's empty functions their bodies, also where a kernel's module has imported them by name."""
    InterpreterBuilder.create_extern_elementwise = _create_extern_elementwise
    for name, stub in inspect.getmembers(libdevice, inspect.isfunction):
        if stub.__module__ == libdevice.__name__ and not stub.__code__.co_freevars:
            home: dict[str, Any] = {}
            exec(f"def {name}(*given):\n    from {__name__} import call\n    return call({name!r}, *given)", home)
            stub.__code__ = home[name].__code__
