"""The ledger of a launch: bytes read and written by tensor, against the least possible."""

from __future__ import annotations

from dataclasses import dataclass

from gfxlab import hardware, style
from gfxlab.engine import hooks
from gfxlab.tables import Table


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

    def lower_bound(
        self, gpu: str | hardware.Card = "MI300X", flops: float = 0, unit: str = "fp32"
    ) -> hardware.LeastTime:
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
                found.append(f"{row.tensor}: {_asked_again(row)}; only a cache can save that.")
        return found

    def _table(self) -> Table:
        cells = [
            (r.tensor, f"{r.read:,}", f"{r.written:,}", f"{r.least_read + r.least_written:,}", f"{r.masked_lanes:,}")
            for r in self.rows
        ]
        total = [sum(getattr(row, name) for row in self.rows) for name in ("read", "written", "masked_lanes")]
        cells += [("total", f"{total[0]:,}", f"{total[1]:,}", f"{self.least:,}", f"{total[2]:,}")]
        return Table(cells, _HEAD, numbers=4)

    def _summary(self) -> str:
        return f"{self.bytes:,} bytes moved; {self.least:,} if each touched element moved once ({self.score:.0%})"

    def __str__(self) -> str:
        notes = (f"  ! {note}" for note in self.notes())
        return "\n".join([self.title, self._table().text("  "), f"  {self._summary()}", *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = self._table().html() + f"<p>{self._summary()}</p>"
        return style.card(self.title, body + style.warnings(self.notes()))


_HEAD = ("tensor", "bytes read", "bytes written", "least bytes", "masked lanes")


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count:,} elements"


def _asked_again(row: LedgerRow) -> str:
    """How often each element is read, or, where that rounds to once, by how much too often."""
    times = f"{row.read / row.least_read:.3g}"
    if times == "1":
        return f"{row.read - row.least_read:,} bytes are read again"
    return f"each element is asked for {times} times"
