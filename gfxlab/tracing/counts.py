"""How often each element of a tensor was read and written, counted while a launch runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gfxlab.engine.hooks import Access
from gfxlab.programs import format_program, place
from gfxlab.strides import Layout, Strided
from gfxlab.tracing.ledger import LedgerRow


@dataclass
class Counts:
    """How often each element of one tensor was read and written."""

    name: str
    tensor: torch.Tensor
    reads: np.ndarray
    writes: np.ndarray
    writer: np.ndarray  # 1 + number of the program that stored last
    shared: np.ndarray  # stored by more than one program
    masked: int = 0
    conflict: tuple[int, int, int, int] | None = None  # the first: element, both programs' numbers, line

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> Counts:
        size = Strided.of(tensor).span
        return cls(name, tensor, *(np.zeros(size, kind) for kind in (np.uint32, np.uint32, np.int32, np.bool_)))

    def add(self, access: Access, program: int) -> None:
        elements = access.elements[access.mask]
        self.masked += access.mask.size - elements.size
        if access.kind != "store":
            np.add.at(self.reads, elements, 1)
        if access.kind != "load":
            np.add.at(self.writes, elements, 1)
        if access.kind == "store":
            before = self.writer[elements]
            other = (before != 0) & (before != program + 1)
            if self.conflict is None and other.any():
                first = int(other.argmax())
                self.conflict = int(elements[first]), int(before[first]) - 1, program, access.line
            self.shared[elements] |= other
            self.writer[elements] = program + 1

    def row(self, grid: tuple[int, int, int]) -> LedgerRow:
        size = self.tensor.element_size()
        written = int((self.writes > 0).sum())
        never = Strided.of(self.tensor).exists() & (self.writes == 0)
        missing = np.flatnonzero(never) if written else np.array([], np.int64)
        return LedgerRow(
            tensor=self.name,
            read=int(self.reads.sum()) * size,
            written=int(self.writes.sum()) * size,
            least_read=int((self.reads > 0).sum()) * size,
            least_written=written * size,
            masked_lanes=self.masked,
            written_again=int((self.writes > 1).sum()),
            written_by_several=int(self.shared.sum()),
            never_written=missing.size,
            read_again=int((self.reads > 1).sum()),
            conflict=self._conflict(grid),
            first_missing=self._place(int(missing[0])) if missing.size else "",
        )

    def _conflict(self, grid: tuple[int, int, int]) -> str:
        if self.conflict is None:
            return ""
        element, *programs, line = self.conflict
        names = " and ".join(format_program(place(number, grid), grid) for number in programs)
        return f"programs {names} both store {self._place(element)} (line {line})"

    def _place(self, element: int) -> str:
        """An element in words, with its row and column where the tensor has two dimensions."""
        layout = Layout.of(self.tensor)
        if len(layout.shape) == 1:
            return f"element {element}"
        row, column = layout.place(np.array([element]))
        return f"row {row[0]}, column {column[0]}"
