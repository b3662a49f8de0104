"""What a walk through a kernel is made of: the steps of one wave, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gfxlab.programs import format_program
from gfxlab.simulator.core.program import Decoded


@dataclass(frozen=True)
class Vector:
    """A vector register at one step: its bits before and after, uint32 [lane]. `written`: the step wrote it.

    kind: how the instruction takes the bits (`readings.kind_of`).
    """

    name: str
    before: np.ndarray
    after: np.ndarray
    written: bool
    kind: str = ""

    @property
    def changed(self) -> np.ndarray:
        """The lanes whose value is another now, bool [lane]."""
        return self.before != self.after


@dataclass(frozen=True)
class Scalar:
    """A scalar register, or a group of them read as one number. `place`: the tensor it points to, as text, or ""."""

    name: str
    before: int
    after: int
    written: bool
    place: str = ""


@dataclass(frozen=True)
class Touch:
    """One access to memory. kind: "load", "store", "atomic"; space: "memory" or "LDS".

    address: int64 [lane], in bytes; active: the lanes that took part; width: bytes a lane. In memory also the tensor,
    the element of it that each lane begins at, and its dtype.
    """

    kind: str
    space: str
    address: np.ndarray
    active: np.ndarray
    width: int
    tensor: str = ""
    elements: np.ndarray | None = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True)
class Step:
    """One step of the walk, or with by="line" all steps that follow each other for one line of the kernel.

    exec_before, exec_after, vcc: bool [lane]. scc: the condition bit afterwards. lds: who wrote each word of LDS last
    (a wave's number, -1 for nobody), where the step touched LDS. following: the index of the instruction executed next.
    """

    number: int
    instructions: tuple[Decoded, ...]
    line: int | None
    code: str
    exec_before: np.ndarray
    exec_after: np.ndarray
    vcc: np.ndarray
    scc: bool
    vectors: tuple[Vector, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    touches: tuple[Touch, ...] = ()
    lds: np.ndarray | None = None
    following: int | None = None

    @property
    def instruction(self) -> Decoded:
        """The (first) instruction of the step."""
        return self.instructions[0]

    def mentions(self, text: str) -> bool:
        """Whether the line of the kernel or an instruction of the frame contains this text."""
        return text in self.code or any(text in instruction.text for instruction in self.instructions)


@dataclass(frozen=True)
class Steps(Sequence):
    """The frames of one wave. `walk[i]` is a frame, `walk[2:5]` and `walk.only(...)` a part of the walk.

    note: what a reader must know, such as the limit that cut the walk or the fault that ended it.
    """

    name: str
    arch: str
    program: tuple[int, int, int]
    wave: int
    frames: tuple[Step, ...]
    code: tuple[Decoded, ...]
    note: str = ""

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, place):
        if isinstance(place, slice):
            return dataclasses.replace(self, frames=self.frames[place])
        return self.frames[place]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.frames)

    def only(self, *texts: str) -> Steps:
        """The frames whose line of the kernel, or an instruction of theirs, contains one of these texts.

        Raises:
            ValueError: there are none.
        """
        found = tuple(frame for frame in self.frames if any(frame.mentions(text) for text in texts))
        if not found:
            said = " or ".join(map(repr, texts))
            raise ValueError(f"no step of {self.name} comes from a line, or is an instruction, that contains {said}")
        return dataclasses.replace(self, frames=found)

    @property
    def title(self) -> str:
        place = f"program {format_program(self.program)}, wave {self.wave}"
        return f"{self.name} on {self.arch}: {place}"
