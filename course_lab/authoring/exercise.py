"""What an exercise is: its cases, its tolerances, the mistakes it knows by name, the wrong kernels it must reject.

A lesson's `spec.py` holds the exercises and its `mutants.py` the mutants; `course_lab.check` grades answers with them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lab.authoring.patient import CAUSE, FINDING, ORDER, PRICE, TEST, Patient

AGAIN = ", called again"  # behind the name of a case whose entry is called a second time


@dataclass(frozen=True)
class Tolerance:
    """An element is right when |got - expected| <= atol + rtol * |expected|."""

    atol: float
    rtol: float


@dataclass(frozen=True)
class Case:
    """One named property of a right answer, shown as one tick.

    name: what the case is about, in the learner's words ("row width not a power of two").
    make: takes a seeded `torch.Generator` and returns the tuple of arguments for the entry (tensors, numbers, None).
    atol, rtol: an element is right when |got - expected| <= atol + rtol * |expected|.
    tolerances: one for each output (those returned, then those written in place), where they do not share one.
    again: the entry is called a second time, on another draw of `make`: equal shapes, other numbers.
    hidden: so many of the arguments, the first ones, are for the reference and the exercise's `judge` alone: the
        answer's process never has them.
    last: it takes so long that it is tried only where all others are right.
    why: where the tolerance comes from, or what the case is there to catch; for authors.
    """

    name: str
    make: Callable[[torch.Generator], tuple[Any, ...]]
    atol: float
    rtol: float
    why: str = ""
    tolerances: tuple[Tolerance, ...] = ()
    again: bool = False
    hidden: int = 0
    last: bool = False

    def tolerance(self, output: int) -> Tolerance:
        """That of one output."""
        return self.tolerances[output] if self.tolerances else Tolerance(self.atol, self.rtol)

    def calls(self) -> Iterator[Case]:
        """The case, and where the exercise wants it a second call of it: another name is another draw."""
        yield self
        if self.again:
            yield replace(self, name=self.name + AGAIN)


@dataclass(frozen=True)
class Suspect:
    """A known mistake, recognised by its result.

    code: the diagnosis, kebab-case.  sentence: what to look at, without giving the answer away.
    formula: takes the entry's arguments and returns what an answer with this mistake would return.  NaN stands for NaN.
    """

    code: str
    sentence: str
    formula: Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """A wrong answer that the check must reject with this diagnosis: the solution with some texts replaced.

    edits: pairs (old, new); each `old` must occur in the solution's code, and every occurrence is replaced.
    """

    name: str
    edits: tuple[tuple[str, str], ...]
    diagnosis: str


class UnknownPick(ValueError):
    """An answer that ships a kernel which is not offered."""


def picked(code: str) -> str | None:
    """The exercise whose kernel an answer takes by `my_kernel("2.2")`; None where there is no such line."""
    found = re.search(r"^[^#\n]*\bmy_kernel\(\s*['\"]([^'\"]*)['\"]", code, re.MULTILINE)
    return found[1] if found else None


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    number: "2.1" (lesson.exercise), or "2.a" for a short one inside the lesson.
    stars: difficulty, 1 to 3; 0 for a short one.  minutes: expected time.
    entry: name of the function that the answer must define.
    reference: takes the entry's arguments and returns the right result (a tensor or a tuple of tensors).  The answer's
        dtype must be the reference's; a float64 result means "the dtype of the first floating-point argument".
    exact: takes the same arguments and returns the same results before they are rounded, in float64: first what is
        returned, then what is written in place.  An answer is compared with these; shapes and dtypes are the
        reference's.  None compares with what `reference` returns.
    hints: three, from a question to a skeleton.
    suspects: known mistakes, the likeliest first.
    kind: "write" (fill in a stub) or "repair" (find the bug).
    inplace: positions of arguments that the entry is asked to write; what they hold afterwards is compared with what
        the reference leaves in its own copy, and changing them is no mistake.
    large: a case beyond the longest block that Triton allows, tried on answers that walk, or whose grid does not grow.
    max_launches: the most kernels that one call may launch (1 for "fuse it"); None for any number.
    no_idle: the text gives each program a block of its own: programs with nothing to do cost the card's score.
    demand: takes the arguments of a case and what was seen of its launches (`check.protocol.LaunchSeen`); returns what
        of the text was not met, in a sentence, or "".
    torch_may_finish: the returned tensor may be computed by PyTorch from what a kernel wrote (a last small sum).
    contiguous: the text asks for a contiguous result, and every returned tensor must be.
    time_limit: seconds for all cases together.
    driver: a function of a module that needs neither the lessons nor the references. The child runs it on the names
        that the answer defines, and calls what it returns in place of the entry: for what is asked for besides a
        kernel's numbers (refusals, gradients, tests). It complains by raising a class called `Finding` with "code:
        sentence", and leaves what it saw to the `judge` by raising one called `Told`.
    judge: for a driver that only tells: takes a case as it was run (`check.verdict.CaseRun`, whose `expects` holds the
        hidden arguments) and an `Ask` of `check.judged`; returns what was seen as it shall count (`judged.right`,
        `judged.complaint`).  It runs outside, so what is wanted of a case is nothing that an answer could look up.
    imports: modules that an answer or its driver needs and that take long to import: they are imported once for all of
        the exercise's checks.
    picks: for an exercise on a kernel that the learner chooses: number and exercise for each kernel that
        `my_kernel("2.2")` in the answer may name. The first is the solution's, and the exercise itself.
    kernels: the answers that `my_kernel` gives (`check.protocol.OwnKernel`), which the check fills in.
    picture: the function of `gfxlab.draw` whose picture of its heaviest launch a right answer gets ("tile_walk",
        "causal_map" ...), drawn from the kernel's usual argument names; "" is the map of programs and elements.
    patient: a kernel of the clinic, whose answer has a finding and a cause besides the repair.
    """

    number: str
    title: str
    stars: int
    minutes: int
    entry: str
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    hints: tuple[str, ...]
    suspects: tuple[Suspect, ...] = ()
    kind: str = "write"
    inplace: tuple[int, ...] = ()
    large: Case | None = None
    max_launches: int | None = None
    no_idle: bool = False
    demand: Callable[[tuple[Any, ...], tuple[Any, ...]], str] | None = None
    torch_may_finish: bool = False
    contiguous: bool = False
    time_limit: float = 10.0
    picture: str = ""
    exact: Callable[..., tuple[torch.Tensor, ...]] | None = None
    driver: Callable[[dict[str, Any]], Callable[..., Any]] | None = None
    judge: Callable[[Any, Any], Any] | None = None
    imports: tuple[str, ...] = ()
    picks: tuple[tuple[str, Exercise], ...] = ()
    kernels: tuple[Any, ...] = ()
    patient: Patient | None = None

    @property
    def ticks(self) -> tuple[str, ...]:
        """The names of all ticks that a right answer gets, the cases' among them."""
        cases = tuple(call.name for case in self.cases for call in case.calls())
        if self.patient is None:
            return cases
        targets = (
            tuple(f"{arch}, {size:,}" for arch, size in self.patient.target.must_do) if self.patient.target else ()
        )
        order = (ORDER,) if self.patient.beside_the_interpreter else ()
        return (FINDING, CAUSE, *cases, *targets, *order, TEST, PRICE)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the entry's arguments, the reference's; none where Python knows none (a builtin of PyTorch)."""
        try:
            return tuple(inspect.signature(self.reference).parameters)
        except ValueError:
            return ()

    def chosen(self, code: str) -> Exercise:
        """This exercise, for the kernel that the answer takes by `my_kernel("2.2")`; itself where there is no choice.

        Raises:
            UnknownPick: the answer takes none of `picks`.
        """
        if not self.picks:
            return self
        number, offered = picked(code), dict(self.picks)
        if number not in offered:
            wanted = " or ".join(f'my_kernel("{number}")' for number in offered)
            got = "no such line" if number is None else f"my_kernel({number!r})"
            raise UnknownPick(f"The answer begins with the kernel that it ships, {wanted}; it has {got}.")
        return replace(offered[number], picks=self.picks)

    def __post_init__(self) -> None:
        names = [case.name for case in self.cases]
        for wrong, sentence in (
            (
                not re.fullmatch(r"\d+\.(\d+|[a-z])", self.number),
                f"number must look like '2.1' or '2.a', got {self.number!r}",
            ),
            (self.stars not in (0, 1, 2, 3), f"stars must be 0 to 3, got {self.stars}"),
            (not self.entry.isidentifier(), f"entry must be a function's name, got {self.entry!r}"),
            (len(self.hints) != 3, f"three hints are needed, got {len(self.hints)}"),
            (self.kind not in ("write", "repair"), f"kind must be 'write' or 'repair', got {self.kind!r}"),
            (not names, "at least one case is needed"),
            (len(set(names)) < len(names), f"two cases have the same name: {names}"),
        ):
            if wrong:
                raise ValueError(f"exercise {self.number}: {sentence}")
