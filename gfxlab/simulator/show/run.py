"""What a simulated launch did, to be read: as text, as a card, in sentences about what is wrong and what is slow."""

from __future__ import annotations

from functools import cached_property

from gfxlab.simulator.show import run_card
from gfxlab.simulator.show.counted import Counted


class Run(Counted):
    """A simulated launch: what was counted, shown as text and as a card."""

    @cached_property
    def slow(self) -> tuple[str, ...]:
        """What would cost time on hardware, in sentences; empty when nothing stands out."""
        return run_card.slow(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong, then what is slow."""
        return run_card.notes(self)

    def table(self) -> str:
        """The kernel's lines with what each did, as text."""
        return run_card.table(self)

    def __str__(self) -> str:
        return run_card.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return run_card.card(self)
