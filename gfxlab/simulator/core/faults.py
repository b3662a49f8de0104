"""What goes wrong in a simulated launch, each as one sentence with the program, the lane and the source line."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

import numpy as np

from gfxlab.engine.hooks import OutOfBoundsError
from gfxlab.programs import format_program
from gfxlab.simulator.core.program import Decoded
from gfxlab.tracebacks import ShortTraceback

if TYPE_CHECKING:
    from gfxlab.code.compiler import Compiled
    from gfxlab.code.isa import SourceLine


class SimulationError(ShortTraceback, RuntimeError):
    """The machine code did what no launch may do, or what the simulator cannot follow.

    source: the kernel's line, where one is known. compiled: what was executed, where that was only a sample.
    """

    source: SourceLine | None = None
    compiled: Compiled | None = None


class UnknownInstruction(SimulationError, NotImplementedError):
    """An instruction that no table knows."""

    def __init__(self, instruction: Decoded):
        self.instruction = instruction
        super().__init__(
            f"the simulator does not know `{instruction.text}`{at_line(instruction)}. "
            "Add it to the table of its class in gfxlab/simulator/instructions/."
        )


class Trapped(SimulationError):
    """A program stopped the launch: its device_assert failed, or the compiler found the code unreachable."""

    def __init__(self, w, instruction: Decoded):
        self.source = instruction.source
        programs = w.programs[w.window] if w.live is None else w.programs[w.window][w.live]
        others = len(np.unique(programs, axis=0)) - 1
        more = f" (and {others} more)" if others else ""
        super().__init__(
            f"program {format_program(programs[0])}{more} stops the launch{at_line(instruction)}: an assertion of the "
            f"kernel failed (`{instruction.text}`)."
        )


class IllegalAccess(SimulationError, OutOfBoundsError):
    """A lane touched memory that belongs to no tensor of the launch; nothing was read or written."""


def at_line(instruction: Decoded) -> str:
    """` (line 12: y = tl.load(...))`, or nothing where the compiler names no line."""
    if not instruction.source:
        return ""
    code = linecache.getline(instruction.source.filename, instruction.source.line).strip()
    return f" (line {instruction.source.line}{': ' if code else ''}{code})"


def describe_lane(w, wave: int, lane: int) -> str:
    """`lane 5 of wave 1 of program 3`, for a wave of the window."""
    number = w.window.start + wave
    return f"lane {lane} of wave {number % w.waves_per_group} of program {format_program(w.programs[number])}"


def illegal_access(
    w, instruction: Decoded, kind: str, address: np.ndarray, active: np.ndarray, width: int
) -> Exception:
    """The error for the first lane that touches what it may not."""
    illegal = active & ~_allowed(w, address, width)
    wave, lane = (int(i) for i in np.argwhere(illegal)[0])
    lanes = int(illegal.sum())
    error = IllegalAccess(
        f"{describe_lane(w, wave, lane)} {kind}s {place(w, int(address[wave, lane]), width)}"
        f"{'' if lanes == 1 else f' ({lanes} lanes)'}{at_line(instruction)}, by `{instruction.text}`. "
        "Give this access a mask that switches those lanes off."
    )
    error.source = instruction.source
    return error


def _allowed(w, address: np.ndarray, width: int) -> np.ndarray:
    allowed = np.zeros(address.shape, bool)
    for region in w.memory.regions:
        allowed |= region.holds(address - region.base, width)
    return allowed


def place(w, address: int, width: int = 1) -> str:
    """`element 7 of x_ptr`, and what is wrong with it where it is none of the tensor's elements."""
    region = w.memory.region_of(address)
    if region is None or not region.spans:
        return f"address {address:#x}, which belongs to no tensor of this launch"
    offset = address - region.base
    span = region.span_at(offset)
    element = span.element(offset)
    if region.holds(np.array([offset]), width)[0]:
        return f"element {element} of {span.name}"
    if region.holds(np.array([offset]), 1)[0]:
        return f"{width} bytes from element {element} of {span.name} on, past the end of its {span.size} elements"
    inside = 0 <= element < span.element(span.stop)
    where = "before the start" if element < 0 else "between the rows" if inside else "past the end"
    return f"element {element} of {span.name}, {where} of its {span.size} elements"
