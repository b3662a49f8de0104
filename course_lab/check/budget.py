"""How long the searches for a mistake may take together.

What counts is processor time: a machine that does other things besides must find what a quiet one finds.  The sandbox
ends what takes longer by the clock, and does not count for how long it stood in the queue for a processor.
"""

from __future__ import annotations

from dataclasses import dataclass

_LEAST = 0.2  # for what is asked last


@dataclass
class Budget:
    """seconds: of processor time, for all that is run.  spent: of these."""

    seconds: float
    spent: float = 0.0

    @property
    def left(self) -> float:
        """Seconds of processor time."""
        return max(self.seconds - self.spent, 0.0)

    @property
    def limit(self) -> float:
        """Seconds after which the sandbox ends what is asked now."""
        return max(self.left, _LEAST)
