"""What a launch did that it should not have: sentences, each once for an instruction."""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.core import faults
from gfxlab.simulator.core.program import Decoded


class Notes:
    """Collects sentences; the first of a kind for an instruction stays."""

    def __init__(self) -> None:
        self._found: dict[tuple, str] = {}

    def __iter__(self):
        return iter(self._found.values())

    def by_kind(self) -> list[tuple[str, Decoded | None, str]]:
        """(kind, instruction, sentence) of each: "shared", "misaligned", "race", "unwritten", "read too early"."""
        return [(what, instruction, sentence) for (what, instruction), sentence in self._found.items()]

    def has(self, what: str, instruction: Decoded | None) -> bool:
        """Whether an instruction has got this kind of note already."""
        return (what, instruction) in self._found

    def add(self, what: str, instruction: Decoded | None, sentence: str) -> None:
        self._found.setdefault((what, instruction), sentence)

    def add_lane(self, what: str, w, instruction: Decoded, bad: np.ndarray, says) -> None:
        """A sentence about the first lane that is `bad`, bool [wave, lane]; `says(wave, lane)` is its middle."""
        if self.has(what, instruction):
            return
        wave, lane = (int(i) for i in np.argwhere(bad)[0])
        count = int(bad.sum())
        lanes = "" if count == 1 else f" ({count} lanes)"
        who = faults.describe_lane(w, wave, lane)
        self.add(
            what,
            instruction,
            f"{who} {says(wave, lane)}{lanes}{faults.at_line(instruction)}, by `{instruction.text}`.",
        )
