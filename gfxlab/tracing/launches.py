"""One traced launch: what it read and wrote, as a ledger, a picture, an AMD report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gfxlab.bound import Launch
from gfxlab.draw.accesses import pieces_of
from gfxlab.draw.program_maps import program_map
from gfxlab.draw.svg import Picture
from gfxlab.engine.hooks import Access
from gfxlab.programs import format_grid
from gfxlab.strides import Layout
from gfxlab.tracing.counts import Counts
from gfxlab.tracing.ledger import Ledger


@dataclass
class TracedLaunch:
    """One launch: `name`, `grid`, `args` (name -> value as given), and what it did.

    accesses: each load, store and atomic, in order (see `gfxlab.engine.hooks.Access`). left_out: how many more
    there were than were kept. masked_everywhere: lanes of accesses that were masked off as a whole. watched: for each
    of the accesses the numbers that the watched variables held at that moment, by name, as far as they existed. counts:
    of each tensor, by name.
    """

    launch: Launch
    accesses: list[Access] = field(default_factory=list)
    left_out: int = 0
    masked_everywhere: int = 0
    watched: list[dict[str, np.ndarray]] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def kernel(self) -> Any:
        """The kernel's Python function."""
        return self.launch.fn

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.launch.grid

    @property
    def args(self) -> dict[str, Any]:
        return self.launch.args

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return tuple(self.counts)

    @property
    def programs(self) -> int:
        """How many programs the grid has."""
        return int(np.prod(self.grid))

    def ledger(self) -> Ledger:
        """Bytes read and written by tensor, against the least possible; elements written twice or never."""
        rows = tuple(counts.row(self.grid) for counts in self.counts.values())
        return Ledger(f"{self.name}, grid {format_grid(self.grid)}", rows)

    def picture(
        self,
        tensor: str | None = None,
        kind: str | None = None,
        marks: Mapping[str, int] | None = None,
        columns: int | None = None,
    ) -> Picture:
        """Which program touches which element of one tensor.

        Args:
            tensor: a kernel argument's name; by default the first that is stored to.
            kind: 'load', 'store' or 'atomic'; by default stores if there are any, else what there is.
            marks: borders to show, by name: the element, or the column, before which each lies.
            columns: elements of a row of the picture, for a contiguous tensor; by default those of its last dimension.

        Raises:
            ValueError: no such tensor or kind, nothing was recorded for it, or a tensor without rows of `columns`.
        """
        tensor = tensor or self._default_tensor()
        layout = Layout.of(_in_rows(self.tensor(tensor), columns))
        if kind not in (None, "load", "store", "atomic"):
            raise ValueError(f"kind must be 'load', 'store' or 'atomic', got {kind!r}")
        kinds = [a.kind for a in self.accesses if a.tensor == tensor]
        kind = kind or next((k for k in ("store", "atomic", "load") if k in kinds), "load")
        chosen = [a for a in self.accesses if a.tensor == tensor and a.kind == kind]
        verb = {"load": "loads from", "store": "stores to", "atomic": "atomics on"}[kind]
        note = f" (first {len(self.accesses):,} accesses only)" if self.left_out else ""
        pieces = pieces_of(chosen, layout, self.grid)
        return program_map(layout.shape, pieces, f"{self.name}: {verb} {tensor}{note}", marks)

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor given for a kernel argument.

        Raises:
            ValueError: the launch has no tensor of this name; the message lists those that it has.
        """
        if name not in self.counts:
            raise ValueError(f"{self.name} has no tensor {name!r}; it has {', '.join(self.counts)}")
        return self.counts[name].tensor

    def times(self, tensor: str, kind: str = "load") -> np.ndarray:
        """How often each element was read (kind 'load') or written ('store'); an atomic does both.

        Returns:
            uint32, indexed by the element's offset from the tensor's first; a strided tensor has gaps.

        Raises:
            ValueError: no such tensor or kind.
        """
        self.tensor(tensor)
        if kind not in ("load", "store"):
            raise ValueError(f"kind must be 'load' or 'store', got {kind!r}")
        return self.counts[tensor].reads if kind == "load" else self.counts[tensor].writes

    def by_program(self, tensor: str, kind: str = "load") -> dict[tuple[int, int, int], list[Access]]:
        """The accesses of this kind to a tensor, in order, of each program that has any; in the order of the grid.

        Raises:
            ValueError: no such tensor, or no such access was recorded.
        """
        self.tensor(tensor)
        found: dict[tuple[int, int, int], list[Access]] = {}
        for access in self.accesses:
            if access.tensor == tensor and access.kind == kind:
                found.setdefault(access.program, []).append(access)
        if not found:
            raise ValueError(f"{self.name}: no {kind} of {tensor} was recorded")
        return dict(sorted(found.items(), key=lambda item: item[0][::-1]))  # x counts fastest

    def _default_tensor(self) -> str:
        stored = [a.tensor for a in self.accesses if a.kind != "load" and a.tensor]
        seen = stored or [a.tensor for a in self.accesses if a.tensor]
        if not seen:
            raise ValueError(f"{self.name} touched no element: there is nothing to draw")
        return seen[0]

    def amd_report(self, arch: str = "gfx942", **options: Any):
        """The machine code of a launch with these arguments, and what it has to move; see `amd_report`."""
        from gfxlab.code import amd_report

        known = {"grid": self.grid, "counted_bytes": self.ledger().least if self.counts else None}
        return amd_report(self.kernel, arch=arch, **{**self.args, **self.launch.meta, **known, **options})

    def __str__(self) -> str:
        more = f", {self.left_out:,} more not kept" if self.left_out else ""
        return f"{self.name}, grid {format_grid(self.grid)}: {len(self.accesses):,} loads and stores{more}"

    __repr__ = __str__


def _in_rows(tensor: torch.Tensor, columns: int | None) -> torch.Tensor:
    """The same elements in rows of so many."""
    if columns is None:
        return tensor
    if not tensor.is_contiguous() or columns < 1 or tensor.numel() % columns:
        raise ValueError(f"columns={columns}: rows of so many need a contiguous tensor, got {tuple(tensor.shape)}")
    return tensor.view(-1, columns)
