"""A patient of the clinic: a kernel that passes its author's test and is wrong, refused or slow all the same.

An exercise with a `Patient` is answered in three parts, in one cell: a finding (arguments, or a target, on which the
kernel as it was fails), the cause by name, and the repair. `check.patients` judges them. The kernel as it was is the
exercise's stub, and the author's test is the function `test_...` in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

INPUT, TARGET = "breaking_input", "breaking_target"  # the function that an answer defines
FINDING, CAUSE, TEST, PRICE = "the finding", "the cause", "the author's test", "the price"  # names of ticks
ORDER = "waves out of step"


@dataclass(frozen=True)
class Cause:
    """One of the causes to choose from. code: its name, kebab-case. says: in a sentence. refuted: what speaks against
    it, for who chose it; "" is the right one."""

    code: str
    says: str
    refuted: str = ""


@dataclass(frozen=True)
class Look:
    """An engine on which a finding is tried: the interpreter, or a simulated GPU with its waves in this order."""

    simulate: str = ""
    order: str = ""


@dataclass(frozen=True)
class Target:
    """For launches that fail or are slow: what depends on an architecture and a size.

    make: the entry's arguments for a size.  largest: size.  spills: the fault are spilled registers, and not a launch
    that is refused.  must_do: pairs of architecture and size on which a repair must do well.
    """

    make: Callable[[int], tuple[Any, ...]]
    largest: int
    must_do: tuple[tuple[str, int], ...]
    spills: bool = False


@dataclass(frozen=True)
class Patient:
    """What an exercise of the clinic has besides its cases.

    symptom, instrument, cure: its line of the field guide, each a sentence without a full stop.
    causes: four or five, one of them right.
    price: makes the arguments on which a repair is measured, on a simulated MI300X.
    factor: so many times the bytes and the instructions of the course's own repair a repair may cost.
    refuse: takes the arguments of a finding, and says in a sentence why the statement rules them out; "" if it doesn't.
    looks: the engines that show the fault; a finding must show it on one of them.
    dtypes: of floating-point arguments, where more than one will do.
    target: where the finding is a target, and not arguments.
    """

    symptom: str
    instrument: str
    cure: str
    causes: tuple[Cause, ...]
    price: Callable[[torch.Generator], tuple[Any, ...]]
    factor: float = 2.0
    refuse: Callable[..., str] = lambda *arguments: ""
    looks: tuple[Look, ...] = (Look(),)
    dtypes: tuple[torch.dtype, ...] = ()
    target: Target | None = None

    def __post_init__(self) -> None:
        right = [cause.code for cause in self.causes if not cause.refuted]
        if len(right) != 1 or len(self.causes) < 4:
            raise ValueError(f"a patient has four causes or more, one of them right, got {len(self.causes)}: {right}")
        if self.factor < 1:
            raise ValueError(f"a repair may cost at least what the course's own does, got a factor of {self.factor}")

    @property
    def part(self) -> str:
        """The function that an answer defines for its finding."""
        return TARGET if self.target else INPUT

    @property
    def beside_the_interpreter(self) -> bool:
        """Whether it takes another engine than the interpreter to see the fault."""
        return any(look.simulate for look in self.looks)

    @property
    def cause(self) -> Cause:
        """The right one."""
        return next(cause for cause in self.causes if not cause.refuted)

    @property
    def statement(self) -> str:
        """What the builder puts under an exercise's heading: the causes to choose from, and the price."""
        listed = "\n".join(f"- `{cause.code}`: {cause.says}" for cause in sorted(self.causes, key=lambda c: c.code))
        return (
            f"**Causes to choose from**\n\n{listed}\n\n**Price**: a repair may cost {self.factor:g} times the bytes "
            "and instructions of ours."
        )
