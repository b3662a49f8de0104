"""What each instruction does, a file a class. `build` makes the function that executes one decoded instruction.

To teach the simulator a new instruction, add it to the table of its class; the names are the assembler's, without the
suffixes _e32, _e64 and _sdwa.
"""

from __future__ import annotations

from gfxlab.simulator.instructions.registry import Step, Target, Unknown, build, nothing

__all__ = ["Step", "Target", "Unknown", "build", "nothing"]
