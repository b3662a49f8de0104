"""From an element's offset in memory to its place in the tensor, and to the row and column of a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


def span(tensor: torch.Tensor) -> int:
    """Elements from the tensor's first to its last in memory, gaps included."""
    return 1 + sum(st * (n - 1) for st, n in zip(tensor.stride(), tensor.shape)) if tensor.numel() else 0


def exists(tensor: torch.Tensor) -> np.ndarray:
    """Which positions between the first and the last element belong to the tensor (a strided one has gaps)."""
    real = torch.zeros(span(tensor), dtype=torch.bool)
    torch.as_strided(real, tensor.shape, tensor.stride()).fill_(True)
    return real.numpy()


def indices(tensor: torch.Tensor, elements: np.ndarray) -> tuple[np.ndarray, ...]:
    """The index in each dimension of elements given as offsets from the tensor's first.

    Args:
        tensor: of any strides that give each element a place of its own; along a dimension of stride 0 the index is 0.
        elements: int64, of any shape; all within the tensor.
    """
    found = [np.zeros_like(elements)] * tensor.dim()
    rest = elements
    for dim in sorted(range(tensor.dim()), key=tensor.stride, reverse=True):
        if tensor.shape[dim] > 1 and tensor.stride(dim) > 0:
            found[dim], rest = np.divmod(rest, tensor.stride(dim))
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
        one_row = cls((span(tensor),), max(span(tensor), 1))
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
