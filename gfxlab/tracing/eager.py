"""Count what PyTorch would launch: every operation that it runs inside a block, and the bytes that each one moves.

    with eager.count() as ops:
        model.OPERATIONS["rms_norm"](x, weight, eps)
    ops.kernels, ops.bytes

PyTorch runs a formula operation by operation. On a GPU each is (at least) one kernel, which reads its inputs from
memory and writes its result there. Views cost nothing and are left out, and so is memory that is only set aside.

Bytes count each tensor that goes in and each that comes out once; an argument that is broadcast counts as it is stored.
Where an index picks rows of a table, only what is picked counts, there and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gfxlab import style
from gfxlab.tables import Table

_FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}  # memory that is only set aside
_FREE |= {"_unsafe_view", "_reshape_alias"}  # views that PyTorch does not call so

_PICKS = {"embedding", "index", "index_select", "gather"}  # what comes out is all that is read of the table
_PLACES = {"index_put", "index_put_", "index_copy_", "scatter_"}  # what is given is all that is written to it


@dataclass(frozen=True)
class Operation:
    """One operation that ran: PyTorch's name for it, the shapes and types that came out, bytes read and written."""

    name: str
    result: str
    read: int
    written: int


@dataclass
class Count:
    """The operations that ran, in order; prints as a table."""

    operations: list[Operation] = field(default_factory=list)

    @property
    def kernels(self) -> int:
        """How many kernels a GPU would launch for them, at least."""
        return len(self.operations)

    @property
    def bytes(self) -> int:
        """Bytes read and written by all of them."""
        return sum(op.read + op.written for op in self.operations)

    def _table(self) -> Table:
        rows = [(op.name, op.result, f"{op.read:,}", f"{op.written:,}") for op in self.operations]
        read, written = sum(op.read for op in self.operations), sum(op.written for op in self.operations)
        kernels = f"{self.kernels} kernel{'' if self.kernels == 1 else 's'}"
        return Table([*rows, (kernels, "", f"{read:,}", f"{written:,}")], _HEAD, numbers=2)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return style.card("What PyTorch would launch", self._table().html())


_HEAD = ("operation", "result", "bytes read", "bytes written")


class _Counting(TorchDispatchMode):
    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _FREE:
            inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            shown = ", ".join(f"{str(out.dtype).removeprefix('torch.')} {tuple(out.shape)}" for out in outputs)
            self._count.operations.append(Operation(name, shown, *_moved(name, inputs, outputs)))
        return result


def _moved(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> tuple[int, int]:
    """Bytes read and written."""
    read, written = _bytes(inputs), _bytes(outputs)
    if name not in _PICKS | _PLACES:
        return read, written
    indices = _bytes([x for x in inputs if x.dtype in (torch.int64, torch.int32)])
    if name in _PICKS:
        return indices + written, written
    values = _bytes(inputs[-1:])
    return indices + values, values


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@contextmanager
def count() -> Iterator[Count]:
    """Note every PyTorch operation inside the block: `with eager.count() as ops: ...`."""
    found = Count()
    with torch.no_grad(), _Counting(found):
        yield found
