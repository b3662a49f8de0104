"""The waves in flight: registers as arrays, one numpy operation for all waves that stand at the same instruction.

Vector registers are `[register, wave, lane]`, scalar registers `[wave, register]`, so that a scalar register
broadcasts over the lanes as `S[:, i : i + 1]` and a pair of them can be read as one 64-bit number in place.
"""

from __future__ import annotations

import math

import numpy as np

from gfxlab.simulator.core.operands import ALL_DENORMALS, EXEC, FP16_OVFL, MODE, SCALARS

POISON = np.uint32(0x7FBADBAD)  # a NaN as a float, far out as an index: what registers hold before they are written


_PAGE = 4096  # bytes: addresses that far apart share a place in a processor's first cache
_APART = 1024


def _waves_apart(waves: int, lanes: int) -> int:
    """Waves of room between two registers, without which a wave's registers may all want one place of a cache."""
    each = 4 * lanes
    return ((_APART - waves * each) % _PAGE) // each


class Watcher:
    """Is told of what the waves do before it happens; these methods do nothing.

    offset: of each lane in the region, int64 [wave, lane]; address: the same in LDS. lanes: those that take part,
    None for all; what the others' numbers are is of no use. width: bytes a lane. words: what is stored, by 4 bytes.
    """

    def load(self, w: Waves, instruction, region, offset, lanes, width: int) -> None: ...
    def scalar_load(self, w: Waves, instruction, region, offset, lanes, width: int) -> None:
        """A load of one address for the whole wave; offset, lanes: [wave, 1]."""

    def store(self, w: Waves, instruction, region, offset, lanes, width: int, words) -> None: ...
    def atomic(self, w: Waves, instruction, region, offset, lanes, width: int) -> None: ...
    def changed(self, w: Waves, region, offset, lanes, width: int) -> None:
        """These lanes' exchange, or compare-and-swap, has left another number than was there. Told afterwards."""

    def local_load(self, w: Waves, instruction, address, lanes, width: int) -> None: ...
    def local_store(self, w: Waves, instruction, address, lanes, width: int, words) -> None: ...
    def local_atomic(self, w: Waves, instruction, address, lanes, width: int) -> None: ...

    def local_watch(self):
        """Who looks at LDS for this watcher, with `states`, `may_skip`, `written` as `watch.races.Races` has them.

        None: it wants to be told of every access.
        """
        return None

    def illegal(self, w: Waves, instruction, kind: str, address, lanes, width: int) -> None:
        """A "load", "store" or "update" of global memory that is about to fail; `address` counts from nowhere."""

    def beyond(self, w: Waves, instruction, kind: str, lanes, where: str) -> None:
        """A "load" or "store" that leaves its tensor and stays in the storage; `where` names the place."""

    def barrier(self, groups: np.ndarray) -> None:
        """The waves of these workgroups, bool [workgroup of the batch], have met."""


class Waves:
    """All waves of the workgroups that run together, and the window of them that executes now.

    `select` opens the window. Within it `V`, `I`, `F` are the vector registers as uint32, int32, float32; `S` the
    scalar registers; `SCC` the condition bit. `live` says which waves of the window take part (None: all of them),
    `mask` which lanes do (None: all of them).
    """

    def __init__(
        self,
        waves: int,
        lanes: int,
        registers: int,
        waves_per_group: int,
        *,
        programs: np.ndarray | None = None,
        memory=None,
        lds=None,
        scratch=None,
        profile=None,
        watchers: tuple[Watcher, ...] = (),
    ):
        """programs: the workgroup's number on three axes, int64 [wave, 3]; the memories: see `core.memory`."""
        self.count, self.lanes, self.waves_per_group = waves, lanes, waves_per_group
        self.programs = np.zeros((waves, 3), np.int64) if programs is None else programs
        self.memory, self.lds, self.scratch = memory, lds, scratch
        self.profile, self.watchers = profile, watchers
        self.clock = 0  # instructions issued: what time there is
        room = waves + _waves_apart(waves, lanes)
        self._v = np.full((registers, room, lanes), POISON, np.uint32)[:, :waves]
        self._s = np.full((waves, SCALARS), POISON, np.uint32)
        self._scc = np.zeros(waves, bool)
        self._exec = np.ones((waves, lanes), bool)
        self._s[:, EXEC : EXEC + 2] = 0xFFFFFFFF if lanes == 64 else (0xFFFFFFFF, 0)
        self._s[:, MODE:] = 0
        self._s[:, MODE] = ALL_DENORMALS
        self._room = np.empty(0)
        self._words_of, self._words = None, None
        self.tiles: dict = {}  # what matrix instructions of a block hand to the next, by who leaves it there
        self.saturates = False  # some wave has set MODE.FP16_OVFL
        self.unusual = False  # some wave's MODE turns some denormals into 0, or rounds otherwise than to nearest
        self.select(None)

    def select(self, active: np.ndarray | None) -> None:
        """Open the window over the waves where `active` is True; None: all."""
        low, high = 0, self.count
        if active is not None:
            places = np.flatnonzero(active)
            low, high = int(places[0]), int(places[-1]) + 1
        self.window = slice(low, high)
        whole = active is None or high - low == len(places)
        self.live = None if whole else active[low:high]
        self.V = self._v[:, low:high]
        self.I, self.F = self.V.view(np.int32), self.V.view(np.float32)
        self.S, self.SCC = self._s[low:high], self._scc[low:high]
        self._active_exec = self._exec[low:high]
        self._update_mask()

    def everything(self, chosen: np.ndarray) -> tuple[np.ndarray, ...]:
        """All that these waves, bool [wave], hold in registers, and what their memories of their own hold."""
        own = [memory.content for memory in (self.lds, self.scratch) if memory is not None]
        return (self._v[:, chosen], self._s[chosen], self._scc[chosen], self._exec[chosen], *own)

    def registers_of(self, wave: int) -> tuple[np.ndarray, ...]:
        """Copies of one wave's registers."""
        return (
            self._v[:, wave].copy(),
            self._s[wave].copy(),
            self._scc[wave].copy(),
            self._exec[wave].copy(),
        )

    def room_for_product(self, shape: tuple[int, ...]) -> np.ndarray:
        """Float64 of this shape to write a product to, which holds until the next one: fresh memory would cost more."""
        size = math.prod(shape)
        if self._room.size < size:
            self._room = np.empty(size)
        return self._room[:size].reshape(shape)

    def _update_mask(self) -> None:
        mask = self._active_exec if self.live is None else self._active_exec & self.live[:, None]
        self.mask = None if mask.all() else mask
        self._words_of = None  # the same array may hold other lanes now

    @property
    def size(self) -> int:
        """Waves in the window."""
        return len(self.S)

    @property
    def group(self) -> np.ndarray:
        """Number of each wave's workgroup within the batch, int64 [wave, 1]."""
        return np.arange(self.window.start, self.window.stop)[:, None] // self.waves_per_group

    # ---- vector registers --------------------------------------------------------------------------------------------

    def write(self, register: np.ndarray, value: np.ndarray) -> None:
        """Write one register (a view `[wave, lane]`) in the active lanes."""
        if self.mask is None:
            register[...] = value
            return
        value = np.asarray(value)
        if value.dtype != register.dtype:
            np.copyto(register, value, where=self.mask)
            return
        bits = register.view(np.uint32)  # bit by bit: numpy guesses at each lane of `where`, and is slow if that fails
        bits ^= (bits ^ value.view(np.uint32)) & self._lanes_on()

    def _lanes_on(self) -> np.ndarray:
        """The mask as words, all of whose bits are set where a lane is on: uint32 [wave, lane]."""
        if self._words_of is not self.mask:
            self._words_of, self._words = self.mask, np.negative(self.mask.astype(np.uint32))
        return self._words

    def full(self, value: np.ndarray) -> np.ndarray:
        """The value as `[wave, lane]`: np.broadcast_to, which is slow, only where it is needed."""
        shape = (len(self.S), self.lanes)
        return value if np.shape(value) == shape else np.broadcast_to(value, shape)

    # ---- scalar registers --------------------------------------------------------------------------------------------

    def write_scalar(self, column: np.ndarray, value: np.ndarray) -> None:
        """Write one column `[wave]` of scalar registers (or of SCC) in the live waves."""
        if self.live is None:
            column[...] = value
        else:
            np.copyto(column, value, where=self.live)

    def mode_changed(self) -> None:
        """Take from the MODE register what instructions ask for, after it was written."""
        self.saturates = bool((self._s[:, MODE] & np.uint32(FP16_OVFL)).any())
        usual = np.uint32(ALL_DENORMALS)
        self.unusual = bool(((self._s[:, MODE] & np.uint32(0xFF)) != usual).any())

    def lane_mask(self, index: int) -> np.ndarray:
        """The scalar registers from `index` as one bit a lane, bool [wave, lane]."""
        words = np.ascontiguousarray(self.S[:, index : index + self.lanes // 32])
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)

    def write_lane_mask(self, index: int, value: np.ndarray) -> None:
        """Write one bit a lane; lanes that are switched off read as 0. Writing EXEC changes the active lanes."""
        if self.mask is not None:
            value = value & self.mask
        value = self.full(value)
        words = np.packbits(value, axis=1, bitorder="little").view(np.uint32)
        for word in range(self.lanes // 32):
            self.write_scalar(self.S[:, index + word], words[:, word])
        if index == EXEC:
            self.exec_changed()

    def exec_changed(self) -> None:
        """Take the active lanes from the EXEC register, after it was written."""
        bits = self.lane_mask(EXEC)
        if self.live is None:
            self._active_exec[...] = bits
        else:
            np.copyto(self._active_exec, bits, where=self.live[:, None])
        self._update_mask()
