"""Where the elements of a strided tensor lie in memory, counted in elements from its first one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch


@dataclass(frozen=True)
class Strided:
    """A tensor's geometry: its shape, and for each dimension how many elements lie from one index to the next.

    A stride of 0 is that of an expanded dimension, whose elements are all one. None is negative.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Strided:
        return cls(tuple(tensor.shape), tuple(tensor.stride()))

    @cached_property
    def size(self) -> int:
        """How many elements it has; those of an expanded dimension count each."""
        return math.prod(self.shape)

    @cached_property
    def span(self) -> int:
        """Elements from the first to the last in memory, gaps included; 0 for an empty tensor."""
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True)) if self.size else 0

    @cached_property
    def dense(self) -> bool:
        """No gaps between the first element and the last."""
        return self.span <= math.prod(n for n, step in zip(self.shape, self.stride) if step)

    @cached_property
    def _outer_first(self) -> tuple[int, ...]:
        """The dimensions along which elements lie apart, those furthest apart first."""
        apart = [dim for dim, n in enumerate(self.shape) if n > 1 and self.stride[dim] > 0]
        return tuple(sorted(apart, key=self.stride.__getitem__, reverse=True))

    def exists(self) -> np.ndarray:
        """For each place from the first element to the last, whether an element is there; bool [span]."""
        real = torch.zeros(self.span, dtype=torch.bool, device="cpu")
        torch.as_strided(real, self.shape, self.stride).fill_(True)
        return real.numpy()

    def contains(self, places: np.ndarray) -> np.ndarray:
        """Whether an element is at each of these places, which may be any integers."""
        inside = (places >= 0) & (places < self.span)
        if self.dense:
            return inside
        rest = places
        for dim in self._outer_first:
            rest = rest - np.clip(rest // self.stride[dim], 0, self.shape[dim] - 1) * self.stride[dim]
        return inside & (rest == 0)

    def indices(self, places: np.ndarray) -> tuple[np.ndarray, ...]:
        """The index in each dimension of the elements at these places; 0 along an expanded dimension.

        Args:
            places: int64, of any shape; each is an element's, and no two elements share one.
        """
        found = [np.zeros_like(places)] * len(self.shape)
        rest = places
        for dim in self._outer_first:
            found[dim], rest = np.divmod(rest, self.stride[dim])
        return tuple(found)


@dataclass(frozen=True)
class Layout:
    """How element offsets become rows and columns: `swapped` when rows, not columns, lie side by side in memory."""

    shape: tuple[int, ...]
    step: int  # elements from one row to the next
    swapped: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """Two dimensions where memory has them (leading ones are joined), else one: the memory as it lies."""
        span = Strided.of(tensor).span
        one_row = cls((span,), max(span, 1))
        rows = tensor.flatten(0, -2) if tensor.dim() > 2 and tensor.is_contiguous() else tensor
        if rows.dim() != 2 or 1 in rows.shape:
            return one_row
        (n_rows, n_columns), (row_step, column_step) = rows.shape, rows.stride()
        if column_step == 1 and row_step >= n_columns:
            return cls((n_rows, n_columns), row_step)
        if row_step == 1 and column_step >= n_rows:
            return cls((n_rows, n_columns), column_step, swapped=True)
        return one_row

    def place(self, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of each element; with one dimension the row is 0."""
        if len(self.shape) == 1:
            return np.zeros_like(elements), elements
        major, minor = np.divmod(elements, self.step)
        return (minor, major) if self.swapped else (major, minor)
