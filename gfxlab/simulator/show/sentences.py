"""What one step of a walk does, in words: the meaning of the instruction, then what it did to this wave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gfxlab.code import isa
from gfxlab.code.explanations import explain
from gfxlab.simulator.core.program import Decoded, is_control, is_end, is_jump
from gfxlab.simulator.show.steps import Step, Touch

_LINE = 128  # bytes that memory moves together on CDNA


def sentence(frame: Step) -> str:
    """One or two sentences for a step of the walk."""
    parts = [
        _meaning(frame),
        *(_touched(touch) for touch in _together(frame.touches)),
        *_lanes(frame),
        *_goes_on(frame),
    ]
    return " ".join(part for part in parts if part)


def _meaning(frame: Step) -> str:
    if len(frame.instructions) > 1:
        counts = isa.mix(frame.instructions)
        return f"{len(frame.instructions)} instructions: {', '.join(f'{n} {kind}' for kind, n in counts.items())}."
    words = meaning(frame.instruction)
    return f"{words[0].upper() if words[:2].isalpha() else words[0]}{words[1:]}." if words else ""


def meaning(instruction: Decoded) -> str:
    """What an instruction is for, in a few words, as in the listing of the machine code."""
    bits = isa.width(instruction.mnemonic)
    return explain(isa.Instruction(instruction.mnemonic, "", instruction.kind, instruction.source, bits))


# ---- memory ----------------------------------------------------------------------------------------------------------


def _together(touches: tuple[Touch, ...]) -> list[Touch]:
    """Few enough to read: of a frame for a whole line only the first access of each kind to each tensor."""
    first = {}
    taking_part = [touch for touch in touches if touch.active.any()]
    for touch in taking_part or touches[:1]:
        first.setdefault((touch.kind, touch.space, touch.tensor), touch)
    return list(first.values())


def _touched(touch: Touch) -> str:
    verb = {"load": "read", "store": "write", "atomic": "update"}[touch.kind]
    on = int(touch.active.sum())
    if not on:
        return "No lane takes part."
    if touch.space == "LDS":
        return f"{_many(on, 'lane')} {verb} {_span(touch.address[touch.active], touch.width, 'byte')} of LDS."
    if touch.elements is None:
        return f"{_many(on, 'lane')} {verb} memory."
    elements = touch.elements[touch.active]
    size = max(1, touch.width // max(1, touch.dtype.itemsize if touch.dtype else touch.width))
    return (
        f"{_many(on, 'lane')} {verb} {_span(elements, size, 'element')} of {touch.tensor}: "
        f"{_many(lines(touch), 'line')} of {_LINE} bytes."
    )


def lines(touch: Touch) -> int:
    """Cache lines of 128 bytes that the access touches."""
    first, last = touch.address[touch.active] // _LINE, (touch.address[touch.active] + touch.width - 1) // _LINE
    return len(np.unique(np.concatenate([first, last])))


def _span(first: np.ndarray, length: int, what: str) -> str:
    low, high = int(first.min()), int(first.max()) + length - 1
    if low == high:
        return f"{what} {low}"
    gaps = len(np.unique(first)) * length < high - low + 1
    return f"{what}s {low} to {high}{' with gaps' if gaps else ''}"


# ---- lanes and jumps -------------------------------------------------------------------------------------------------


def _lanes(frame: Step) -> Iterator[str]:
    before, after = int(frame.exec_before.sum()), int(frame.exec_after.sum())
    if (frame.exec_before != frame.exec_after).any():
        yield f"{after} of {len(frame.exec_after)} lanes are on now, {before} were."


def _goes_on(frame: Step) -> Iterator[str]:
    last = frame.instructions[-1]
    if not is_control(last) or is_end(last) or not is_jump(last) or frame.following is None:
        return
    if frame.following == last.index + 1:
        yield "Not taken."
    else:
        back = frame.following <= last.index
        yield f"Taken: the walk goes {'back to' if back else 'on at'} instruction {frame.following}."


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
