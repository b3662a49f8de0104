"""What a kernel really did: every load and store of an interpreted launch, as a ledger, a picture, an AMD report.

with trace() as launch:
    add_kernel[(4,)](x, y, out, n, BLOCK=1024)
launch.ledger()                       # bytes read and written, against the least possible
launch.picture("out_ptr")             # which program touched which element
launch.amd_report(arch="gfx942")      # the machine code for these arguments
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gfxlab import hardware, style
from gfxlab.draw import Picture, Piece, program_map
from gfxlab.draw.layout import Layout, exists, span
from gfxlab.engine import hooks, variables
from gfxlab.engine.hooks import Access

MAX_LANES = 1 << 22  # lanes whose accesses are kept, in one `with` block; the ledger counts on


def trace(max_lanes: int = MAX_LANES, watch: Sequence[str] = ()) -> Trace:
    """Record the launches inside a `with` block. Works for kernels on CPU tensors, which are interpreted.

    Args:
        max_lanes: beyond so many lanes accesses are counted in the ledger, but no longer kept for pictures.
        watch: names of the kernel's variables whose numbers are kept at each access, in `launch.watched`.
    """
    return Trace(max_lanes, tuple(watch))


# ---- counting --------------------------------------------------------------------------------------------------------


@dataclass
class _Counts:
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
    def of(cls, name: str, tensor: torch.Tensor) -> _Counts:
        return cls(name, tensor, *(np.zeros(span(tensor), kind) for kind in (np.uint32, np.uint32, np.int32, np.bool_)))

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
        missing = np.flatnonzero(exists(self.tensor) & (self.writes == 0)) if written else np.array([], np.int64)
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
        names = " and ".join(_program_name(number, grid) for number in programs)
        return f"programs {names} both store {self._place(element)} (line {line})"

    def _place(self, element: int) -> str:
        """An element in words, with its row and column where the tensor has two dimensions."""
        layout = Layout.of(self.tensor)
        if len(layout.shape) == 1:
            return f"element {element}"
        row, column = layout.place(np.array([element]))
        return f"row {row[0]}, column {column[0]}"


@dataclass(frozen=True)
class LedgerRow:
    """One tensor. Bytes that the programs' active lanes asked for, and the least: each touched element once.

    written_again: elements written more than once; written_by_several: stored (no atomics) by more than one program;
    never_written: elements of a tensor with stores that no store reached; read_again: elements read more than once.
    conflict, first_missing: in words, the first element that two programs store, and the first that none does.
    """

    tensor: str
    read: int
    written: int
    least_read: int
    least_written: int
    masked_lanes: int
    written_again: int
    written_by_several: int
    never_written: int
    read_again: int = 0
    conflict: str = ""
    first_missing: str = ""


@dataclass(frozen=True)
class Ledger:
    """Bytes of one launch. Every active lane of every load and store counts; caches are not modelled."""

    title: str
    rows: tuple[LedgerRow, ...]

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return sum(row.read + row.written for row in self.rows)

    @property
    def least(self) -> int:
        """Bytes if each element that was read were read once, and each that was written were written once."""
        return sum(row.least_read + row.least_written for row in self.rows)

    @property
    def score(self) -> float:
        """The least possible bytes as a part of those moved: 1.0 is best."""
        return self.least / self.bytes if self.bytes else 1.0

    def __getitem__(self, tensor: str) -> LedgerRow:
        for row in self.rows:
            if row.tensor == tensor:
                return row
        raise KeyError(f"the launch has no tensor {tensor!r}; it has {', '.join(row.tensor for row in self.rows)}")

    def lower_bound(self, gpu: str | hardware.Card = "MI300X", flops: float = 0, unit: str = "fp32") -> hardware.Bound:
        """How soon a kernel that moves no byte twice can be done on `gpu`."""
        return hardware.lower_bound(self.least, flops, gpu, unit)

    def notes(self) -> list[str]:
        """What is wrong or wasteful, in sentences."""
        found = [hooks.unseen()] if hooks.unseen() else []
        for row in self.rows:
            if row.written_by_several:
                several = f"{_elements(row.written_by_several)} stored by more than one program; the last wins"
                found.append(f"{row.tensor}: {several}. First, {row.conflict}; on a GPU either may be the last.")
            elif row.written_again:
                found.append(f"{row.tensor}: {_elements(row.written_again)} written more than once.")
            if row.never_written:
                found.append(f"{row.tensor}: {_elements(row.never_written)} never written, first {row.first_missing}.")
            if row.read > row.least_read:
                times = row.read / row.least_read
                found.append(f"{row.tensor}: each element is asked for {times:.3g} times; only a cache can save that.")
        return found

    def _cells(self) -> list[tuple[str, ...]]:
        cells = [
            (r.tensor, f"{r.read:,}", f"{r.written:,}", f"{r.least_read + r.least_written:,}", f"{r.masked_lanes:,}")
            for r in self.rows
        ]
        total = [sum(getattr(row, name) for row in self.rows) for name in ("read", "written", "masked_lanes")]
        return [*cells, ("total", f"{total[0]:,}", f"{total[1]:,}", f"{self.least:,}", f"{total[2]:,}")]

    def _summary(self) -> str:
        return f"{self.bytes:,} bytes moved; {self.least:,} if each touched element moved once ({self.score:.0%})"

    def __str__(self) -> str:
        table = style.text_table([_HEAD, *self._cells()], numbers=4)
        return "\n".join([self.title, table, f"  {self._summary()}", *(f"  ! {note}" for note in self.notes())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = style.table(self._cells(), _HEAD, numbers=4) + f"<p>{self._summary()}</p>"
        return style.card(self.title, body + style.warnings(self.notes()))


_HEAD = ("tensor", "bytes read", "bytes written", "least bytes", "masked lanes")


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count:,} elements"


# ---- one launch ------------------------------------------------------------------------------------------------------


@dataclass
class TracedLaunch:
    """One launch: `name`, `grid`, `args` (name -> value as given), and what it did.

    accesses: each load, store and atomic, in order (see `gfxlab.engine.hooks.Access`). left_out: how many more
    there were than were kept. masked_everywhere: lanes of accesses that were masked off as a whole. watched: for each
    of the accesses the numbers that the watched variables held at that moment, by name, as far as they existed.
    """

    launch: hooks.Launch
    accesses: list[Access] = field(default_factory=list)
    left_out: int = 0
    masked_everywhere: int = 0
    watched: list[dict[str, np.ndarray]] = field(default_factory=list)
    _counts: dict[str, _Counts] = field(default_factory=dict, repr=False)

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
        return tuple(self._counts)

    @property
    def programs(self) -> int:
        """How many programs the grid has."""
        return int(np.prod(self.grid))

    def ledger(self) -> Ledger:
        """Bytes read and written by tensor, against the least possible; elements written twice or never."""
        rows = tuple(counts.row(self.grid) for counts in self._counts.values())
        return Ledger(f"{self.name}, grid {_grid(self.grid)}", rows)

    def picture(self, tensor: str | None = None, kind: str | None = None) -> Picture:
        """Which program touches which element of one tensor.

        Args:
            tensor: a kernel argument's name; by default the first that is stored to.
            kind: 'load', 'store' or 'atomic'; by default stores if there are any, else what there is.

        Raises:
            ValueError: no such tensor or kind, or nothing was recorded for it.
        """
        tensor = tensor or self._default_tensor()
        layout = Layout.of(self.tensor(tensor))
        if kind not in (None, "load", "store", "atomic"):
            raise ValueError(f"kind must be 'load', 'store' or 'atomic', got {kind!r}")
        kinds = [a.kind for a in self.accesses if a.tensor == tensor]
        kind = kind or next((k for k in ("store", "atomic", "load") if k in kinds), "load")
        chosen = [a for a in self.accesses if a.tensor == tensor and a.kind == kind]
        verb = {"load": "loads from", "store": "stores to", "atomic": "atomics on"}[kind]
        note = f" (first {len(self.accesses):,} accesses only)" if self.left_out else ""
        pieces = _pieces(chosen, layout, _dimensions(self.grid))
        return program_map(layout.shape, pieces, f"{self.name}: {verb} {tensor}{note}")

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor given for a kernel argument.

        Raises:
            ValueError: the launch has no tensor of this name; the message lists those that it has.
        """
        if name not in self._counts:
            raise ValueError(f"{self.name} has no tensor {name!r}; it has {', '.join(self._counts)}")
        return self._counts[name].tensor

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
        return self._counts[tensor].reads if kind == "load" else self._counts[tensor].writes

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

        known = {"grid": self.grid, "counted_bytes": self.ledger().least if self._counts else None}
        return amd_report(self.kernel, arch=arch, **{**self.args, **self.launch.meta, **known, **options})

    def __str__(self) -> str:
        more = f", {self.left_out:,} more not kept" if self.left_out else ""
        return f"{self.name}, grid {_grid(self.grid)}: {len(self.accesses):,} loads and stores{more}"

    __repr__ = __str__


class Trace:
    """The launches of a `with trace()` block. What is asked of it is asked of the first; `[i]` selects another."""

    def __init__(self, max_lanes: int, watch: tuple[str, ...] = ()) -> None:
        self.launches: list[TracedLaunch] = []
        self.watch = watch
        self._room = max_lanes
        self._observing: Any = None

    def __enter__(self) -> Trace:
        self._observing = hooks.observe(_Observer(self))
        self._observing.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._observing.__exit__(*error)

    def __len__(self) -> int:
        return len(self.launches)

    def __iter__(self) -> Iterator[TracedLaunch]:
        return iter(self.launches)

    def __getitem__(self, index: int) -> TracedLaunch:
        if not self.launches:
            raise ValueError(
                "no launch was traced: inside `with trace() as launch:` launch a kernel on CPU tensors "
                "(on a GPU nobody watches the loads)"
            )
        return self.launches[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self[0], name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.launches)) or "no launch traced"

    __repr__ = __str__


class _Observer:
    def __init__(self, owner: Trace) -> None:
        self.owner = owner

    def on_launch(self, launch: hooks.Launch) -> None:
        counts = {name: _Counts.of(name, tensor) for name, tensor in launch.tensors.items()}
        self.owner.launches.append(TracedLaunch(launch, _counts=counts))

    def on_access(self, access: Access) -> None:
        current = self.owner.launches[-1]
        if access.tensor is None:
            current.masked_everywhere += access.mask.size
        else:
            x, y, z = access.program
            width, height, _ = current.grid
            current._counts[access.tensor].add(access, x + width * (y + height * z))
        if access.mask.size > self.owner._room:
            current.left_out += 1
            return
        self.owner._room -= access.mask.size
        current.accesses.append(access)
        current.watched.append(variables.values(self.owner.watch))


# ---- accesses as pieces of a picture ---------------------------------------------------------------------------------


def _dimensions(grid: tuple[int, int, int]) -> int:
    """How many of the grid's three dimensions are in use."""
    return max((i + 1 for i, size in enumerate(grid) if size > 1), default=1)


def _program_name(number: int, grid: tuple[int, int, int]) -> str:
    """A program's place in the grid, in words."""
    width, height, _ = grid
    return _place_name((number % width, number // width % height, number // width // height), _dimensions(grid))


def _place_name(program: tuple[int, int, int], dimensions: int) -> str:
    return str(program[0]) if dimensions == 1 else f"({', '.join(map(str, program[:dimensions]))})"


def _grid(grid: tuple[int, int, int]) -> str:
    return " x ".join(map(str, grid[: _dimensions(grid)]))


def _pieces(accesses: list[Access], layout: Layout, dimensions: int) -> list[Piece]:
    by_program: dict[tuple[int, int, int], list[Access]] = {}
    for access in accesses:
        by_program.setdefault(access.program, []).append(access)
    pieces: list[Piece] = []
    for program, own in by_program.items():
        name = _place_name(program, dimensions)
        active = np.unique(np.concatenate([a.elements[a.mask] for a in own]))
        pieces += _runs(name, *layout.place(active), masked=False)
        pieces += _masked_runs(name, own, layout)
    return pieces


def _masked_runs(name: str, accesses: list[Access], layout: Layout) -> list[Piece]:
    """Where masked lanes point to, as far as that lies outside the tensor."""
    places: set[tuple[int, int]] = set()
    for access in accesses:
        if access.lanes is None or access.mask.all():
            continue
        rows, columns = _lane_places(access.lanes, layout)
        n_rows, n_columns = (1, *layout.shape)[-2:]
        outside = ~access.mask & ((rows < 0) | (rows >= n_rows) | (columns < 0) | (columns >= n_columns))
        places.update(zip(rows[outside].tolist(), columns[outside].tolist()))
    if not places:
        return []
    rows, columns = np.array(sorted(places)).T
    return _runs(name, rows, columns, masked=True)


def _lane_places(lanes: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every lane, where lanes past a row's end stay in that row instead of entering the next."""
    lines = lanes.reshape(-1, lanes.shape[-1]) if lanes.ndim else lanes.reshape(1, 1)
    if len(layout.shape) == 1 or layout.swapped:
        rows, columns = layout.place(lines)
    else:
        rows, first = layout.place(lines[:, :1])
        columns = first + (lines - lines[:, :1])
        rows = np.broadcast_to(rows, lines.shape)
    return rows.reshape(lanes.shape), columns.reshape(lanes.shape)


def _runs(program: str, rows: np.ndarray, columns: np.ndarray, masked: bool) -> list[Piece]:
    """Consecutive columns of a row as one piece."""
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    if not rows.size:
        return []
    starts = np.flatnonzero(np.r_[True, (np.diff(rows) != 0) | (np.diff(columns) != 1)])
    ends = np.r_[starts[1:], rows.size] - 1
    return [
        Piece(program, int(columns[a]), int(columns[b]) + 1, int(rows[a]), int(rows[a]) + 1, masked)
        for a, b in zip(starts, ends)
    ]
