"""Reductions and scans by a function of the kernel's own, many elements at a time.

The interpreter calls such a function once for each element, in Python: `tl.reduce` over a row of 40,000 takes it many
seconds.  The function is associative, so neighbours may be combined in pairs, all pairs at once, and their results in
pairs again.  A function that can only be called on single numbers (it has an `if` on one) is called as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import ReduceOps, ScanOps

_Arrays = list[np.ndarray]


def install() -> None:
    """Replace the two methods of this process's interpreter."""
    for owner, name, quick in ((ReduceOps, "generic_reduce", _reduced), (ScanOps, "generic_scan", _scanned)):
        setattr(owner, name, _first_quick(quick, getattr(owner, name)))


def _first_quick(quick: Callable[..., list], stock: Callable[..., list]) -> Callable[..., list]:
    def method(self: ReduceOps | ScanOps, input: tuple) -> list:
        try:
            return quick(self, input)
        except Exception:  # whatever a function raises that does not take blocks
            return stock(self, input)

    return method


def _reduced(self: ReduceOps, input: tuple) -> list:
    axis, shape = self.axis, input[0].handle.data.shape
    flat = [arg.handle.data.reshape(-1) if axis is None else np.moveaxis(arg.handle.data, axis, 0) for arg in input]
    kinds = [arg.dtype.scalar for arg in input]
    while len(flat[0]) > 1:
        pairs, rest = len(flat[0]) // 2 * 2, [data[len(data) // 2 * 2 :] for data in flat]
        made = _combined(self, [data[0:pairs:2] for data in flat], [data[1:pairs:2] for data in flat], kinds)
        flat = [np.concatenate(both) for both in zip(made, rest)]
    results = [data[0] for data in flat]
    if self.keep_dims:
        results = [
            np.reshape(data, [1] * len(shape)) if axis is None else np.expand_dims(data, axis) for data in results
        ]
    return [self.to_tensor(data, kind) for data, kind in zip(results, kinds)]


def _scanned(self: ScanOps, input: tuple) -> list:
    """Each turn every element takes in the sums of twice as many before it."""
    flat = [np.moveaxis(arg.handle.data, self.axis, 0).copy() for arg in input]
    kinds, step = [arg.dtype.scalar for arg in input], 1
    while step < len(flat[0]):
        made = _combined(self, [data[:-step] for data in flat], [data[step:] for data in flat], kinds)
        flat = [np.concatenate([data[:step], more]) for data, more in zip(flat, made)]
        step *= 2
    return [self.to_tensor(np.moveaxis(data, 0, self.axis), kind) for data, kind in zip(flat, kinds)]


def _combined(self: Any, left: _Arrays, right: _Arrays, kinds: list) -> _Arrays:
    """The function's results for all these pairs.

    Raises:
        TypeError: they are of another dtype, so single numbers would be rounded where these are not.
    """
    result = self.combine_fn.fn(*_tensors(self, left, kinds), *_tensors(self, right, kinds))
    result = result if isinstance(result, tuple) else (result,)
    if any(not isinstance(one, tl.core.tensor) or one.dtype.scalar != kind for one, kind in zip(result, kinds)):
        raise TypeError("a combining function returned another dtype than it was given")
    return [np.broadcast_to(one.handle.data, data.shape) for one, data in zip(result, left)]


def _tensors(self: Any, arrays: _Arrays, kinds: list) -> Iterator[tl.core.tensor]:
    return (self.to_tensor(np.ascontiguousarray(data), kind) for data, kind in zip(arrays, kinds))
