"""What lesson 10 makes of what its drivers tell: outside, where the answer cannot see what is wanted of a case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lab.check.diagnosis import COMPLAINT
from course_lab.check.judged import Ask, complaint, right, told
from course_lab.check.protocol import Problem, Seen
from course_lab.check.verdict import CaseRun

FEWEST_MUTANTS = 3
_MOST_MUTANTS = 40  # what comes after these is not tried
_LONGEST = 100_000  # characters of a mutant's code
_LAYOUT = "stride|contiguous|view|layout|dimension"
_ENDS = ("SystemExit", "KeyboardInterrupt")


# ---- the wrapper as a contract -------------------------------------------------------------------------------------


def contract(run: CaseRun, ask: Ask) -> Seen:
    """Cases: a kind ("gives", "gives nothing", "gives or refuses", "refuses") and the words of which a refusal has one.

    What is given is compared as ever.
    """
    kind, words = run.expects
    if kind == "refuses":
        return _refused(run, words)
    if kind == "gives nothing" and run.seen.problem and run.seen.problem.type not in (*_ENDS, COMPLAINT):
        return complaint(run, "empty-refused", _empty_refused(run))
    if told(run) is None:
        problem = run.seen.problem
        broken = kind == "gives or refuses" and problem and problem.type not in (*_ENDS, COMPLAINT)
        return _of_another_kind(run, "it must be given, or refused with") if broken else run.seen
    if kind == "gives or refuses":
        return _judge_refusal(run, _LAYOUT)
    name, message = _raised(run)
    return replace(run.seen, problem=Problem(name, message, run.seen.problem.line))


def _refused(run: CaseRun, words: str) -> Seen:
    problem = run.seen.problem
    if told(run) is not None:
        return _judge_refusal(run, words)
    if problem is None or problem.type == COMPLAINT:
        return complaint(run, "not-refused", f"{_shapes(run)}: it was taken. What would the kernel read there?")
    if problem.type in _ENDS:
        return run.seen
    return _of_another_kind(run, "it must be refused with")


def _of_another_kind(run: CaseRun, wanted: str) -> Seen:
    return complaint(
        run,
        "wrong-exception",
        f"{_shapes(run)}: {wanted} a ValueError or a TypeError, and {run.seen.problem.type} was raised. Callers catch "
        "these two; the others say that your code is broken.",
    )


def _judge_refusal(run: CaseRun, words: str) -> Seen:
    _, message = _raised(run)
    if run.seen.launches:
        return complaint(run, "refused-too-late", "It was refused after a kernel had run. Check first, then launch.")
    if words and not any(word in message for word in words.split("|")):
        wanted = words.replace("|", " or ")
        return complaint(
            run,
            "nameless-refusal",
            f"The refusal says {message!r}, and not what was wrong: name the value ({wanted}), so that the caller "
            "finds it.",
        )
    return right(run)


def _raised(run: CaseRun) -> tuple[str, str]:
    """Name and message of the refusal."""
    name, _, message = told(run).partition("\n")
    return name, message


def _empty_refused(run: CaseRun) -> str:
    name = run.seen.problem.type if told(run) is None else _raised(run)[0]
    shape = tuple(next(a for a in run.args if isinstance(a, torch.Tensor)).shape)
    return f"A tensor of shape {shape} has no elements, and that is no mistake: a batch may be empty. It raised {name}."


def _shapes(run: CaseRun) -> str:
    tensors = [a for a in run.args if isinstance(a, torch.Tensor)]
    return " and ".join(f"{str(a.dtype).removeprefix('torch.')} {tuple(a.shape)}" for a in tensors)


# ---- tests ---------------------------------------------------------------------------------------------------------


def suite(run: CaseRun, ask: Ask) -> Seen:
    """Cases: ("accepts" or "rejects", what the implementation is), or ("mutants", arguments that show mistakes)."""
    kind, what = run.expects
    if kind == "mutants":
        return _own_mutants(run, ask, what)
    if run.seen.problem and told(run) is None:
        return run.seen
    if kind == "accepts" and told(run) is not None:
        return complaint(run, "rejects-a-right-kernel", _rejects(run.seen, f"{what}, which is right"))
    if kind == "rejects" and told(run) is None:
        return complaint(run, "mutant-survives", f"Your tests pass {what}. Which input would show it?")
    return right(run)


def _rejects(seen: Seen, what: str) -> str:
    test, _, said = seen.problem.message.partition("\n")
    return f"{test} rejects {what}. It says {said[:160]}"


@dataclass(frozen=True)
class _Mutant:
    """A mistake of the learner's own: its name, and the kernel's code with it; problem: why it cannot be tried."""

    name: str
    code: str = ""
    problem: str = ""


def _own_mutants(run: CaseRun, ask: Ask, probes: list[tuple[Any, ...]]) -> Seen:
    """The learner's MUTANTS: texts of their own kernel replaced. Each changes a result, and their tests see it."""
    if run.seen.problem:
        return run.seen
    mutants = list(_mutants(run.seen.outputs, ask.kernel.code))
    if len(mutants) < FEWEST_MUTANTS:
        return complaint(
            run, "too-few-mutants", f"`MUTANTS` has fewer than {FEWEST_MUTANTS} mistakes: (name, old, new)."
        )
    entry, codes = ask.kernel.entry, [mutant.code for mutant in mutants if not mutant.problem]
    (right_numbers,), wrong = (ask.outputs(each, entry, probes) for each in ([ask.kernel.code], codes))
    own, *seen = ask.cases([(entry, code) for code in (ask.kernel.code, *codes)])
    if own is None or own.problem:
        said = _rejects(own, "your own kernel") if own else "your own kernel is as much as your tests got through."
        return complaint(run, "rejects-a-right-kernel", said)
    results = dict(zip(codes, zip(wrong, seen)))
    for mutant in mutants:
        if mutant.problem:
            return complaint(run, "mutant-not-applicable", f"Mutant {mutant.name!r}{mutant.problem}")
        numbers, tests = results[mutant.code]
        if _same(right_numbers, numbers):
            return complaint(
                run, "equivalent-mutant", f"Mutant {mutant.name!r} gives the same numbers: it is no mistake."
            )
        if tests is not None and tests.problem is None:
            return complaint(run, "own-mutant-survives", f"Your tests pass your own mutant {mutant.name!r}.")
    return right(run)


def _mutants(outputs: tuple[torch.Tensor, ...], code: str) -> Iterator[_Mutant]:
    """Those that the child read in the answer, as they change this code."""
    try:
        listed = json.loads(bytes(outputs[0].to(torch.uint8).tolist()))
        read = [(str(name), str(old), str(new)) for name, old, new in listed[:_MOST_MUTANTS]]
    except (ValueError, TypeError, IndexError, RecursionError, RuntimeError):
        return
    known: set[str] = set()
    for name, old, new in read:
        longer = code.count(old) * (len(new) - len(old)) if old else 0
        if not old or old not in code:
            yield _Mutant(name[:80], problem=f": {old[:200]!r} does not occur in your kernel.")
        elif len(code) + longer > _LONGEST:
            yield _Mutant(name[:80], problem=f" makes a kernel of more than {_LONGEST:,} characters.")
        elif (changed := code.replace(old, new)) == code or changed in known:
            yield _Mutant(name[:80], problem=" changes nothing, or the same as another one.")
        else:
            known.add(changed)
            yield _Mutant(name[:80], changed)


def _same(right: tuple[tuple[torch.Tensor, ...], ...], wrong: tuple[tuple[torch.Tensor, ...], ...]) -> bool:
    """Whether they gave the same results in every case: what raised gave none."""
    return len(right) == len(wrong) and all(map(_alike, right, wrong))


def _alike(right: tuple[torch.Tensor, ...], wrong: tuple[torch.Tensor, ...]) -> bool:
    if [(a.shape, a.dtype) for a in right] != [(a.shape, a.dtype) for a in wrong]:
        return False
    pairs = ((a.double(), b.double()) for a, b in zip(right, wrong))
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True) for a, b in pairs)
