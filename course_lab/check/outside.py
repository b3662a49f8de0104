"""How an access leaves its tensor: by a stride, as a whole program, by one row, the wrong way round.

A mask that lets lanes out is only one cause.  Where neighbouring lanes lie as far apart as nothing does in the tensor,
or one program begins so after the one before it, a stride is wrong, whatever the mask says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from course_lab.check.protocol import Outside, Program
from gfxlab.engine import hooks


@dataclass
class Starts:
    """Where each program of a launch began at each line. One that comes there again, in a loop, keeps its first."""

    known: dict[tuple[int, str | None, Program], int] = field(default_factory=dict)

    def note(self, access: hooks.Access) -> None:
        if access.tensor and access.lanes is not None and access.lanes.size:
            key = access.line, access.tensor, access.program
            self.known.setdefault(key, int(access.lanes.flat[0]))

    def advance(self, access: hooks.Access) -> tuple[int, Program | None]:
        """How far after its neighbour, and which: the program before along the first axis of the grid that has one."""
        at, program = (access.line, access.tensor), access.program
        for axis, number in enumerate(program):
            other = tuple(n - (place == axis) for place, n in enumerate(program))
            if number and (*at, other) in self.known and (*at, program) in self.known:
                return self.known[*at, program] - self.known[*at, other], other
        return 0, None

    def was_inside(self, access: hooks.Access, tensor: torch.Tensor) -> bool:
        """Whether the program was at this line before, and began inside the tensor then."""
        first = self.known.get((access.line, access.tensor, access.program))
        return first is not None and first != int(access.lanes.flat[0]) and 0 <= first < tensor.numel()


def look(access: hooks.Access, outside: np.ndarray, tensor: torch.Tensor, starts: Starts) -> Outside:
    """What is to be said of an access of which the lanes `outside` leave the tensor."""
    strides = tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)
    lanes = np.asarray(access.lanes)
    if len(strides) > 1:
        steps = _steps(lanes)
        for axis, step in steps.items():
            if not _leads_on(step, strides) or (step and list(steps.values()).count(step) > 1):
                return Outside("step", axis=axis, step=step, strides=strides)
        step, other = starts.advance(access)
        blocks = {length * steps.get(axis, 0) for axis, length in enumerate(lanes.shape)}
        if other is not None and step not in blocks and not _leads_on(step, strides):
            return Outside("advance", step=step, strides=strides, other=other)
    found = _of_mask(np.asarray(access.mask, bool), outside, lanes, tensor)
    return Outside("later") if found.way == "whole" and starts.was_inside(access, tensor) else found


def _steps(lanes: np.ndarray) -> dict[int, int]:
    """For each axis of the block how far apart neighbours are, where that is always the same."""
    found = {}
    for axis, length in enumerate(lanes.shape):
        if length > 1:
            steps = np.diff(lanes, axis=axis)
            if steps.size and (steps == steps.flat[0]).all():
                found[axis] = int(steps.flat[0])
    return found


def _leads_on(step: int, strides: tuple[int, ...]) -> bool:
    """Whether so many elements further lies something of the same kind: a next row, or number, or every second one."""
    return step in (0, *strides, 2 * strides[-1]) or any(stride > 1 and step % stride == 0 for stride in strides)


def _of_mask(inside: np.ndarray, outside: np.ndarray, lanes: np.ndarray, tensor: torch.Tensor) -> Outside:
    """inside, outside: the lanes that the mask lets through, by where they lead."""
    held = lanes[~(inside | outside)]
    legal = (held >= 0) & (held < tensor.numel())
    if not inside.any():
        return Outside("inverted" if held.size and legal.all() else "whole")
    for axis in range(lanes.ndim):
        others = tuple(other for other in range(lanes.ndim) if other != axis)
        out = outside.any(axis=others)
        if out.sum() == 1 and not (out & inside.any(axis=others)).any():
            return Outside("one", axis=axis)
    for axis in range(lanes.ndim):
        through = inside | outside
        if outside.any(axis=axis).any() and (through.all(axis=axis) == through.any(axis=axis)).all():
            return Outside("open", axis=axis)
    return Outside("")
