"""The fourth engine: the AMD machine code of a kernel, executed on this CPU.

    from gfxlab.simulator import simulate
    run = simulate(add_kernel, (4,), (x, y, out, n), BLOCK=1024, arch="gfx942")
    walk = step(add_kernel, (4,), (x, y, out, n), BLOCK=1024, program=(3,))  # what one wave does, step by step

It is functional, not timed: registers, memory, LDS and barriers behave as on the hardware; clocks and caches do not
exist.
"""

from gfxlab.simulator.context import using
from gfxlab.simulator.core.faults import IllegalAccess, SimulationError, UnknownInstruction
from gfxlab.simulator.core.launch import simulate
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.show.stepper import Walk, step

__all__ = [
    "IllegalAccess",
    "Run",
    "SimulationError",
    "UnknownInstruction",
    "Walk",
    "simulate",
    "step",
    "using",
]
