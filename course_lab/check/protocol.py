"""What the two processes of a check tell each other.

The parent sends a `Job`; the child answers with a `Definition`, then with a `Seen` for each case.  `wire` makes plain
values of them for `transport`, and `read` makes them again in the other process: it believes nothing of what a child
says about itself.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from course_lab.authoring.far_rows import is_spread, marked, marks, spread

Program = tuple[int, int, int]

# what moves cursors, and what shows text in another order than it has
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class ProtocolError(ValueError):
    """The other process sent something that is not what was agreed on."""


@dataclass(frozen=True)
class OwnKernel:
    """A right answer to another exercise, which this one builds on."""

    number: str
    entry: str
    code: str


@dataclass(frozen=True, eq=False)
class Job:
    """What a child shall run: the answer on each case.

    cases: argument tuples for the entry.  inplace: positions of arguments to hand back.  device: "cpu" or "cuda".
    poison: see `hooks.poison`; False leaves masked lanes 0, as the stock interpreter does.  simulate: the AMD
    architecture to simulate instead of interpreting; "" interprets.  order: of the programs in the interpreter
    ("", "reversed", "shuffled"), of the waves in the simulator ("", "forwards", "backwards": one after the other).
    at_once: the tensor in which the interpreter's programs do not see each other's stores.  tuned: autotuned kernels
    run once for each configuration, as on a GPU.
    driver, driver_source: a function and the module that holds it; see `Exercise.driver`.  kernels: the learner's
    answers that `my_kernel` gives.  imports: see `Exercise.imports`.
    """

    number: str
    code: str
    entry: str
    cases: tuple[tuple[Any, ...], ...]
    inplace: tuple[int, ...] = ()
    device: str = "cpu"
    poison: bool | str = True
    simulate: str = ""
    order: str = ""
    at_once: str = ""
    tuned: bool = False
    driver: str = ""
    driver_source: str = ""
    kernels: tuple[OwnKernel, ...] = ()
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """An exception of the answer.

    line: the learner's own.  fault: the simulated machine found it, not Python.  refused: AMD's compiler will not have
    the kernel, or the hardware would not launch it.
    """

    type: str
    message: str
    line: int | None = None
    fault: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Definition:
    """What the cell defines (names of callables), or how it failed."""

    problem: Problem | None = None
    defined: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Found:
    """What an answer to a patient says before its repair (see `patients`).

    problem: how the cell or its function failed.  defined: the function is there.  returned: in words what it returned.
    given: that can be tried; then arguments holds it, a value alone as a tuple of one.
    """

    problem: Problem | None = None
    defined: bool = False
    cause: str = ""
    returned: str = "None"
    given: bool = False
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Loads:
    """What a launch loaded of one tensor: `lanes` that were on, in all, and how many different elements they read."""

    tensor: str
    lanes: int
    elements: int


@dataclass(frozen=True)
class RaceSeen:
    """Two programs of one launch touch an element, and nothing orders them (see `races`).

    kind: "store" (both store, different values), "load" (one of them loads), or "lanes" (both are one program's, and
    two of its lanes store different values).  programs, lines: of the two accesses,
    the one that the interpreter made first comes first.
    """

    kind: str
    tensor: str
    element: int
    programs: tuple[Program, Program]
    lines: tuple[int, int]


@dataclass(frozen=True)
class LaunchSeen:
    """One launch of a kernel.

    mine: the kernel stands in the answer.  twins: two programs that stored to the same elements throughout.
    unfilled: lines whose loads left masked lanes without a value.  idle: programs that stored nothing.
    race: the first; alike: elements that several programs stored with one value.  in_place: a program stored an element
    that it, too, had loaded.  constants: arguments that are no tensors, by name.  tensors: the names of the others.
    given: of these, the ones that lie in the memory of an argument of the entry.  reached: positions of the arguments
    of the entry whose numbers the launch got, in their own memory or in a copy's.  firsts: for each program the first
    element that it stored, -1 for none; () where there are very many programs.  creeps: (line, elements that a turn of
    a loop begins after the one before, length of its block) of a store whose blocks overlap so; () where none does.
    unset: it takes from a tensor to which it stores what nobody had stored there.  lanes: two of one program stored
    different values to one element.
    """

    name: str
    grid: tuple[int, ...] = (1, 1, 1)
    mine: bool = True
    twins: tuple[Program, Program] | None = None
    unfilled: tuple[int, ...] = ()
    idle: int = 0
    race: RaceSeen | None = None
    alike: int = 0
    in_place: bool = False
    loads: tuple[Loads, ...] = ()
    constants: tuple[tuple[str, int | float | bool | str | None], ...] = ()
    tensors: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    reached: tuple[int, ...] = ()
    firsts: tuple[int, ...] = ()
    creeps: tuple[int, ...] = ()
    unset: UnsetSeen | None = None
    lanes: RaceSeen | None = None

    @property
    def programs(self) -> int:
        return math.prod(self.grid)

    def loaded(self, tensor: str) -> Loads:
        """What it loaded of the argument with this name."""
        return next((loads for loads in self.loads if loads.tensor == tensor), Loads(tensor, 0, 0))

    def constant(self, name: str) -> int | float | bool | str | None:
        """The argument with this name; None where there is none."""
        return dict(self.constants).get(name)


@dataclass(frozen=True)
class UnsetSeen:
    """A line that takes from a tensor what nobody has stored there."""

    tensor: str
    line: int


@dataclass(frozen=True)
class Outside:
    """How an access leaves its tensor.

    way: "step" (lanes that are neighbours along `axis` of the block lie `step` apart, as nothing does in the tensor),
    "advance" (so does the program begin after `other`), "inverted" (what the mask holds back lies inside, and what it
    lets through outside), "whole" (all that it lets through), "later" (the same, and not so in an earlier turn of a
    loop), "one" (a single place along `axis`), "open" (along `axis`
    it holds nothing back), or "".  strides: of the tensor's dimensions that are longer than 1.
    """

    way: str = ""
    axis: int = 0
    step: int = 0
    strides: tuple[int, ...] = ()
    other: Program | None = None


@dataclass(frozen=True)
class FaultSeen:
    """An access outside every tensor (see `hooks.Fault`).

    partial: other lanes of the same access were inside.  index: of the first element, dimension by dimension, were the
    tensor long enough along its first.
    """

    kind: str
    program: Program
    tensor: str
    size: int
    first_element: int
    lanes: int
    line: int
    partial: bool
    message: str
    index: tuple[int, ...] = ()
    outside: Outside = Outside()


@dataclass(frozen=True)
class Overlap:
    """The first element of a tensor that two programs of one launch stored."""

    tensor: str
    element: int
    line: int
    programs: tuple[Program, Program]


@dataclass(frozen=True)
class Event:
    """A store by its place: which launch, which program, which line."""

    launch: int
    program: Program
    line: int


@dataclass(frozen=True)
class Change:
    """An argument that is no longer what it was: its first changed element, and the number of the event, or -1."""

    position: int
    element: int
    event: int


@dataclass(frozen=True, eq=False)
class Seen:
    """One case of an answer, as the child saw it.

    returned: in words.  outputs: the tensors returned, then the arguments that were to be written.  writers: for each
    output the number of the event that stored each element last (-1: none), None when no kernel wrote to it.
    written_over: for each output whether PyTorch changed what a kernel had stored.
    wrong: what the simulator found dubious, in sentences.  damaged: memory beside a tensor was overwritten.
    stale: this call changed what the call before had returned.  shares: for each returned tensor the position of the
    argument in whose memory it lies, or -1.  seconds: of the call.
    """

    problem: Problem | None = None
    returned: str = "None"
    outputs: tuple[torch.Tensor, ...] = ()
    writers: tuple[torch.Tensor | None, ...] = ()
    events: tuple[Event, ...] = ()
    launches: tuple[LaunchSeen, ...] = ()
    overlap: Overlap | None = None
    wrong: tuple[str, ...] = ()
    faults: tuple[FaultSeen, ...] = ()
    written_over: tuple[bool, ...] = ()
    damaged: bool = False
    stale: bool = False
    modified: tuple[Change, ...] = ()
    shares: tuple[int, ...] = ()
    seconds: float = 0.0


def wire(value: Any) -> Any:
    """A message as plain dicts and tuples."""
    if dataclasses.is_dataclass(value):
        return {field.name: wire(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, torch.Tensor) and is_spread(value):
        return {"spread": value.contiguous(), "stride": value.stride()}
    if isinstance(value, torch.Tensor) and any(marks(value)):
        return {"marked": value, "marks": marks(value)}
    if isinstance(value, (tuple, list)):
        return type(value)(wire(item) for item in value)
    return value


def read(kind: Any, value: Any, text: Callable[[str], str] = str) -> Any:
    """The message of type `kind` that `value` is the plain form of, each string in it passed through `text`.

    Raises:
        ProtocolError: it is not.
    """
    if kind is Any:
        return _read_argument(value)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, text)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _read_either(inner, value, text)
    if origin is tuple:
        return _read_tuple(inner, value, text)
    if kind is torch.Tensor:
        value = _read_argument(value)
    if type(value) is kind or (isinstance(kind, type) and issubclass(kind, torch.Tensor) and isinstance(value, kind)):
        return text(value) if kind is str else value
    raise ProtocolError(f"{type(value).__name__} in place of {getattr(kind, '__name__', kind)}")


def _read_argument(value: Any) -> Any:
    if isinstance(value, dict) and "marked" in value:
        return marked(value["marked"], *value["marks"])
    return spread(value["spread"], value["stride"]) if isinstance(value, dict) and "spread" in value else value


def clean(text: str) -> str:
    """Text that a page, a terminal and a file can take: no escape sequences, no half characters, nothing reversed."""
    text = text.replace("\r\n", "\n").encode("utf-8", "replace").decode()
    return _CONTROL.sub(_as_escape, text)


def _as_escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _read_fields(kind: type, value: Any, text: Callable[[str], str]) -> Any:
    hints = _hints(kind)
    if not isinstance(value, dict) or set(value) != set(hints):
        raise ProtocolError(f"no {kind.__name__}")
    return kind(**{name: read(hint, value[name], text) for name, hint in hints.items()})


def _read_either(kinds: tuple[Any, ...], value: Any, text: Callable[[str], str]) -> Any:
    for kind in kinds:
        try:
            return read(kind, value, text)
        except ProtocolError:
            continue
    raise ProtocolError(f"{type(value).__name__} is none of {len(kinds)} types")


def _read_tuple(kinds: tuple[Any, ...], value: Any, text: Callable[[str], str]) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise ProtocolError(f"{type(value).__name__} in place of a tuple")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise ProtocolError(f"{len(value)} values in place of {len(kinds)}")
    return tuple(read(kind, item, text) for kind, item in zip(kinds, value))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
