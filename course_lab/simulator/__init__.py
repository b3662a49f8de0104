"""The fourth engine: the AMD machine code of a kernel, executed on this CPU.

    from course_lab.simulator import simulate
    run = simulate(add_kernel, (4,), (x, y, out, n), BLOCK=1024, arch="gfx942")
    walk = step(add_kernel, (4,), (x, y, out, n), BLOCK=1024, program=(3,))  # what one wave does, step by step

It is functional, not timed: registers, memory, LDS and barriers behave as on the hardware; clocks and caches do not
exist.
"""

from course_lab.simulator.engine import using
from course_lab.simulator.faults import IllegalAccess, SimulationError, UnknownInstruction
from course_lab.simulator.launch import simulate
from course_lab.simulator.run import Run
from course_lab.simulator.stepper import Walk, step

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
