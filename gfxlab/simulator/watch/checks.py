"""What a launch does wrong although every access stays inside the tensors. Each finding is one sentence of `Run.notes`.

- An access that is aligned neither to the elements of its tensor nor to 4 bytes; of atomics, one not to 4 bytes.
- Two programs store different values to one element: the last wins, and which is last nobody knows.  Equal values do
  no harm and are not reported.  A program that has made an atomic access before may hold a lock: it is believed.
- Of tensors named as outputs: elements that are read before they are written, and elements never written.
- In LDS: races between waves, and bytes read that nobody wrote (`races`).
- Registers read that nothing wrote (`undefined`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch

from gfxlab.programs import format_program
from gfxlab.simulator.compiled import extension
from gfxlab.simulator.core import faults
from gfxlab.simulator.core.memory import GlobalMemory, Region, Shadow
from gfxlab.simulator.core.numbers import U8, U32
from gfxlab.simulator.core.program import Decoded, Program
from gfxlab.simulator.core.state import Watcher, Waves
from gfxlab.simulator.watch.notes import Notes
from gfxlab.simulator.watch.races import Races
from gfxlab.simulator.watch.undefined import undefined_reads

_BY_ATOMIC = U32(0xFFFFFFFF)  # instead of a program's number


def poison(name: str, tensor: torch.Tensor) -> None:
    """Fill a tensor with what no kernel should compute: NaN, or the largest integer.

    Raises:
        TypeError: it is no tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"outputs must name tensor arguments; {name} is {tensor!r}")
    if tensor.dtype == torch.bool:
        tensor.fill_(True)
    elif tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        tensor.view(torch.uint8).fill_(0x80 if "fnuz" in str(tensor.dtype) else 0x7F)
    elif tensor.is_floating_point():
        tensor.fill_(float("nan"))
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


class Checks(Watcher):
    """Watches the waves of one launch.

    outputs: tensors of which nothing is written yet; or, by their names, which of their bytes are: bool [bytes].
    """

    def __init__(self, program: Program, memory: GlobalMemory, grid: tuple[int, int, int], outputs: Iterable[str] = ()):
        self.notes = Notes()
        self._compiled = extension.used()
        self._bits = _common_bits_compiled if self._compiled else _common_bits
        self._program, self._grid = program, grid
        self._outputs = [(region, span) for region in memory.regions for span in region.spans if span.name in outputs]
        self._read_too_early = {region for region, _ in self._outputs}
        self._storers: dict[Region, Shadow] = {}  # by element: 1 + the number of the program that stored last
        self._changers: dict[Region, Shadow] = {}  # the same of the last exchange
        self._may_hold_lock = np.zeros(int(np.prod(grid)) + 1, bool)
        for region, span in self._outputs:
            if isinstance(outputs, Mapping):
                self._stored(region).mark(span, outputs[span.name], _BY_ATOMIC)
        self._races: Races | None = None
        self._batches: dict[Waves, tuple[np.ndarray, Races | None]] = {}

    def beyond(self, w: Waves, instruction: Decoded, kind: str, lanes: np.ndarray, where: str) -> None:
        self.notes.add_lane("beyond", w, instruction, lanes, lambda wave, lane: f"{kind}s {where}, in the same storage")

    def begin(self, w: Waves, lds: int) -> None:
        """A new batch of workgroups starts."""
        x, y, z = w.programs.T
        number = (1 + x + self._grid[0] * (y + self._grid[1] * z)).astype(U32)[:, None]
        groups = w.count // w.waves_per_group
        races = Races(self._program, groups, lds, w.waves_per_group, self.notes) if lds else None
        self._batches[w] = number, races

    def watch(self, w: Waves) -> None:
        """What follows is done by this batch."""
        self._number, self._races = self._batches[w]

    def end(self, w: Waves) -> None:
        """A batch has ended."""
        del self._batches[w]

    def finish(self, executed: np.ndarray) -> list[str]:
        """All sentences. executed: how often each block was."""
        return [*self.notes, *self._never_written(), *self._undefined(executed)]

    # ---- global memory -----------------------------------------------------------------------------------------------

    def load(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._check_alignment(w, instruction, region, offset, lanes, width, "loads")
        if region in self._read_too_early:
            self._check_written(w, instruction, region, offset, lanes, width)

    def scalar_load(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        if region in self._read_too_early:
            self._check_written(w, instruction, region, offset, lanes, width)

    def atomic(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        self._check_alignment(w, instruction, region, offset, lanes, width, "updates")
        if region in self._read_too_early:
            self._check_written(w, instruction, region, offset, lanes, width)
        number = np.broadcast_to(self._number[w.window], offset.shape)
        self._may_hold_lock[number if lanes is None else number[lanes]] = True
        cells, index = self._stored(region).at(_chosen(offset, lanes), width)
        cells[index] = _BY_ATOMIC

    def store(self, w: Waves, instruction: Decoded, region: Region, offset, lanes, width: int, words) -> None:
        self._check_alignment(w, instruction, region, offset, lanes, width, "stores")
        shadow = self._stored(region)
        if self._compiled and self._claim(w, shadow, offset, lanes, width):
            return
        at = _chosen(offset, lanes).reshape(-1)
        me = _chosen(np.broadcast_to(self._number[w.window], offset.shape), lanes).reshape(-1)
        cells, index = shadow.at(at, width)
        me = me if index.ndim == 1 else me[:, None]
        before = cells[index]
        cells[index] = me
        earlier = before.any() and ((before != 0) & (before != me)).any()
        # lanes that rise do not meet; others may, and then somebody's number is no longer there
        if earlier or (at[1:] - at[:-1] < width).any() and (cells[index] != me).any():
            values = [_chosen(word, lanes).reshape(-1) for word in words]
            self._check_values(instruction, region, at, me, values, width, shadow.unit, (before, cells[index]))

    def _claim(self, w: Waves, shadow: Shadow, offset, lanes, width: int) -> bool:
        """By the extension: note who stores, if nobody else has and does; otherwise nothing is noted."""
        shadow.split_for(self._bits(offset, lanes), width)
        number = self._number[w.window], shadow.unit.bit_length() - 1, max(1, width // shadow.unit)
        return extension.EXTENSION.claim(shadow.cells, np.ascontiguousarray(offset), lanes, *number)

    def _stored(self, region: Region) -> Shadow:
        if region not in self._storers:
            self._storers[region] = Shadow(region.bytes.u8.size, U32)
        return self._storers[region]

    def _check_alignment(self, w, instruction, region: Region, offset, lanes, width: int, does: str) -> None:
        # whole elements side by side may be taken as one: global memory of HSA is in unaligned mode, but for atomics
        unit = min(width, 4, *((region.unit,) if does != "updates" else ()))
        if unit == 1 or not (self._bits(offset, lanes) | region.base) & (unit - 1):
            return
        address = offset + region.base
        bad = (address & (unit - 1)) != 0
        bad = bad if lanes is None else bad & lanes
        if not bad.any():
            return

        def says(wave: int, lane: int) -> str:
            at = int(address[wave, lane])
            return f"{does} {width} bytes at address {at:#x} ({faults.place(w, at)}), which is no multiple of {unit}"

        self.notes.add_lane("misaligned", w, instruction, bad, says)

    def _check_written(self, w, instruction: Decoded, region: Region, offset, lanes, width: int) -> None:
        """Nothing may be read of an output before it was written."""
        cells, index = self._stored(region).at(offset if lanes is None else np.where(lanes, offset, 0), width)
        bad = cells[index] == 0
        bad = bad.any(axis=-1) if bad.ndim > offset.ndim else bad
        spans = [span for one, span in self._outputs if one is region]
        bad = bad & np.logical_or.reduce([(span.start <= offset) & (offset < span.stop) for span in spans])
        bad = bad if lanes is None else bad & lanes
        if bad.any():
            says = lambda wave, lane: (  # noqa: E731
                f"reads {faults.place(w, region.base + int(offset[wave, lane]))} before anything was stored there"
            )
            self.notes.add_lane("read too early", w, instruction, bad, says)

    def _check_values(
        self, instruction: Decoded, region: Region, offset, me, words, width: int, unit: int, owners
    ) -> None:
        """Other programs stored there, earlier or at the same time: say so if what they stored differs.

        offset: [lane], me: the program's number. owners: who stored there last, before and after, [lane, cell of unit].
        """
        mine = _by_cell(words, width, unit)
        me = me.reshape(len(offset), 1)
        for owner in owners:
            owner = owner.reshape(mine.shape[:2])
            there = _by_cell(region.bytes.gather(offset, width), width, unit)
            other = (owner != 0) & (owner != me) & (owner != _BY_ATOMIC) & ~self._may_hold_lock[me]
            odd = other[..., None] & (there != mine)
            if odd.any():
                lane, cell, byte = (int(i) for i in np.argwhere(odd)[0])
                place = int(offset[lane]) + cell * unit + byte
                self._report(instruction, region, place, {int(me[lane, 0]), int(owner[lane, cell])})
            region.bytes.scatter(offset, words, width)  # to see who wins of those that store at the same time

    def _report(self, instruction: Decoded, region: Region, place: int, programs: set[int]) -> None:
        span = region.span_at(place)
        first, second = (format_program(self._place(number)) for number in sorted(programs))
        self.notes.add(
            "shared",
            instruction,
            f"programs {first} and {second} store different values to element {span.element(place)} of {span.name}"
            f"{faults.at_line(instruction)}: the last one wins, and which is last is luck. "
            "Let one program write it, or add with tl.atomic_add.",
        )

    def _place(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self._grid
        return (number - 1) % x, (number - 1) // x % y, (number - 1) // (x * y)

    def changed(self, w: Waves, region: Region, offset, lanes, width: int) -> None:
        if region not in self._changers:
            self._changers[region] = Shadow(region.bytes.u8.size, U32)
        cells, index = self._changers[region].at(_chosen(offset, lanes), width)
        number = _chosen(np.broadcast_to(self._number[w.window], offset.shape), lanes)
        cells[index] = number if index.ndim == number.ndim else number[..., None]

    def last_change(self, region: Region, offset: int) -> tuple[int, int, int] | None:
        """The program whose exchange, or whose store, changed these bytes last, where that is known."""
        for shadow in (self._changers.get(region), self._storers.get(region)):
            if shadow is not None:
                cells, index = shadow.at(np.array([offset]), 1)
                number = int(cells[index].reshape(-1)[0])
                if 0 < number < int(_BY_ATOMIC):
                    return self._place(number)
        return None

    # ---- LDS ---------------------------------------------------------------------------------------------------------

    def local_load(self, w: Waves, instruction: Decoded, address, lanes, width: int) -> None:
        if self._races:
            self._races.local_load(w, instruction, address, lanes, width)

    def local_store(self, w: Waves, instruction: Decoded, address, lanes, width: int, words) -> None:
        if self._races:
            self._races.local_store(w, instruction, address, lanes, width, words)

    def local_atomic(self, w: Waves, instruction: Decoded, address, lanes, width: int) -> None:
        if self._races:
            self._races.local_atomic(w, instruction, address, lanes, width)

    def barrier(self, groups: np.ndarray) -> None:
        if self._races:
            self._races.barrier(groups)

    def local_watch(self) -> Races | None:
        return self._races

    # ---- at the end --------------------------------------------------------------------------------------------------

    def written(self, name: str) -> np.ndarray:
        """bool [bytes from the first to the last]: what is written of the output of that name."""
        region, span = next(pair for pair in self._outputs if pair[1].name == name)
        return self._stored(region).bytes_within(span)

    def _never_written(self) -> Iterator[str]:
        for region, span in self._outputs:
            missing = np.flatnonzero(self._stored(region).within(span) == 0)
            if missing.size:
                first = np.flatnonzero(span.exists())[missing[0]]
                what = "1 element" if missing.size == 1 else f"{missing.size:,} elements"
                yield f"{what} of {span.name} never written, of {span.size:,}; the first is element {first}."

    def _undefined(self, executed: np.ndarray) -> Iterator[str]:
        starts = [block.start for block in self._program.blocks]
        names: dict[Decoded, list[str]] = {}
        for instruction, register in undefined_reads(self._program):
            if executed[bisect_right(starts, instruction.index) - 1]:
                names.setdefault(instruction, []).append(register)
        for instruction, registers in names.items():
            yield (
                f"`{instruction.text}` reads {' and '.join(registers)}{faults.at_line(instruction)}, "
                "which no instruction before it has written."
            )


def _chosen(array: np.ndarray, lanes) -> np.ndarray:
    return array if lanes is None else array[lanes]


def _common_bits(offset: np.ndarray, lanes) -> int:
    """The bits that some offset has of the lanes that take part."""
    return int(np.bitwise_or.reduce(_chosen(offset, lanes), axis=None))


def _common_bits_compiled(offset: np.ndarray, lanes) -> int:
    """The same by the extension."""
    return extension.EXTENSION.common_bits(np.ascontiguousarray(offset), lanes)


def _by_cell(words: list[np.ndarray], width: int, unit: int) -> np.ndarray:
    """The bytes of each lane's words, uint8 [lane, cell, byte of the cell]."""
    data = np.ascontiguousarray(np.stack(words, axis=-1), dtype=U32).view(U8)
    return data[:, :width].reshape(len(data), -1, unit)
