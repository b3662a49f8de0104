"""What a launch executed, under the names of AMD's profiler, beside the hardware's counts where there is a card.

from gfxlab.counters import of_run
of_run(run)["SQ_INSTS_VALU"]
"""

from gfxlab.counters.definitions import COUNTERS, Counter, of_run

__all__ = ["COUNTERS", "Counter", "of_run"]
