"""How long the searches for a mistake may take together.

What counts is processor time: a machine that does other things besides must find what a quiet one finds.  The clock
only ends what would never end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

_PATIENCE = 4.0  # so many times its processor time a search may take by the clock
_LEAST = 0.2  # by the clock, for what is asked last


@dataclass
class Budget:
    """seconds: of processor time, for all that is run.  spent: of these."""

    seconds: float
    spent: float = 0.0
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds of processor time."""
        return max(self.seconds - self.spent, 0.0)

    @property
    def patience(self) -> float:
        """Seconds by the clock."""
        return max(_PATIENCE * self.seconds - (time.monotonic() - self.begun), _LEAST)
