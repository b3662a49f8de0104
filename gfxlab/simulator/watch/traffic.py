"""What one access costs in memory: segments and cache lines of global memory, cycles of the LDS's banks.

Global memory: the lanes of a wave that fall into one segment of 64 bytes (what HBM delivers at once) or one line of 128
bytes (what the L2 keeps) are served together.

LDS: 32 banks of 4 bytes, so 128 bytes a cycle.  A wave's access goes in phases whose lanes together ask for 128 bytes;
lanes of a phase that want different words of one bank wait for each other, lanes that want the same word do not.
Phases are of 32 lanes for 4 bytes a lane, 16 for 8, 8 for 12 and 16; neighbouring lanes, but for the reads of 16 bytes.
gfx950 reads 8 and 16 bytes from 64 banks, in phases of 32 and 16 lanes.
Sources: "Understanding AMD GPU LDS and Bank Conflicts" (Composable Kernel's documentation), which gives the phases of
16 bytes; those of 4 and 8 follow from 128 bytes a cycle.  gfx950: measured on an MI355X for HipKittens (HazyResearch,
`analysis/paper_experiments/phases`): reads of 8, 12 and 16 bytes, writes of 8; the rest is counted as before.
"""

from __future__ import annotations

from functools import cache

import numpy as np

SEGMENT, LINE = 64, 128
BANKS = 32  # that serve an access, but for the wide reads of gfx950


def pieces_touched(address: np.ndarray, lanes: np.ndarray | None, width: int, size: int) -> np.ndarray:
    """How many pieces of `size` bytes each wave's access touches.

    Args:
        address: int64 [wave, lane]. lanes: which of them count, None for all. width: bytes a lane.
    """
    if lanes is not None:
        return _touched_in_part(address, lanes, width, size)
    step = address[:, 1:] - address[:, :-1]
    if (step == width).all():  # neighbouring lanes side by side: only the ends matter
        return (address[:, -1] + (width - 1)) // size - address[:, 0] // size + 1
    return _touched(address if (step >= 0).all() else np.sort(address, axis=1), width, size)


def _touched(rising: np.ndarray, width: int, size: int) -> np.ndarray:
    first, last = rising // size, (rising + (width - 1)) // size
    new = last[:, 1:] - np.maximum(first[:, 1:] - 1, last[:, :-1])
    return last[:, 0] - first[:, 0] + 1 + new.sum(axis=1)


def _touched_in_part(address: np.ndarray, lanes: np.ndarray, width: int, size: int) -> np.ndarray:
    """A lane that does not count is put where the wave's highest one is, which adds no piece."""
    highest = np.where(lanes, address, -1).max(axis=1)
    filled = np.where(lanes, address, highest[:, None])
    return np.where(highest < 0, 0, pieces_touched(filled, None, width, size))


# ---- LDS -------------------------------------------------------------------------------------------------------------


_QUADS = {  # of 64 lanes, the order in which groups of four are served
    32: [quad + half for half in (0, 8) for pair in ((0, 5), (1, 4), (2, 7), (3, 6)) for quad in pair],
    64: [quad + half for half in (0, 8) for four in ((0, 3, 5, 6), (1, 2, 4, 7)) for quad in four],
}


def banks_for(width: int, reads: bool, banks: int = BANKS) -> int:
    """How many banks serve an access of `width` bytes a lane, in an LDS of `banks`."""
    return banks if reads and width in (8, 16) else BANKS


@cache
def phases(lanes: int, width: int, reads: bool, banks: int = BANKS) -> np.ndarray:
    """The lanes that are served together: int [phase, lane of the phase]."""
    together = (32 if width <= 4 else 16 if width <= 8 else 8) * banks_for(width, reads, banks) // BANKS
    order = np.arange(lanes)
    if reads and lanes == 64 and (width == 16 or width == 12 and banks == 64):
        order = order.reshape(16, 4)[_QUADS[banks if width == 16 else BANKS]].reshape(-1)
    return order.reshape(-1, together)


def bank_cycles(
    address: np.ndarray, lanes: np.ndarray | None, width: int, reads: bool, banks: int = BANKS
) -> np.ndarray:
    """Cycles of each phase, int64 [wave, phase]: 1 without a conflict, 0 where no lane counts.

    Args:
        address: int64 [wave, lane], in bytes. lanes: which of them count, None for all. width: bytes a lane.
        banks: of this LDS, as `hardware.limits` says.
    """
    groups = phases(address.shape[1], width, reads, banks)
    banks = banks_for(width, reads, banks)
    word = (address >> 2)[:, groups].reshape(-1, groups.shape[1])  # [wave and phase, lane]
    if lanes is not None:
        word, used = _only(word, lanes[:, groups].reshape(word.shape))
    words = (word[..., None] + np.arange(max(1, width // 4))).reshape(len(word), -1)
    words.sort(axis=1)
    distinct = np.ones(words.shape, bool)
    distinct[:, 1:] = words[:, 1:] != words[:, :-1]
    bank = words % banks + banks * np.arange(len(words))[:, None]
    counts = np.bincount(bank[distinct], minlength=banks * len(words)).reshape(-1, banks)
    cycles = counts.max(axis=1)
    return (cycles if lanes is None else np.where(used, cycles, 0)).reshape(len(address), -1)


def _only(word: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lanes that do not count ask for the word of the phase's first that does; and which phases have any."""
    first = np.take_along_axis(word, counts.argmax(axis=1)[:, None], axis=1)
    return np.where(counts, word, first), counts.any(axis=1)
