"""Which single change makes a wrong answer right?  There its mistake is.

The answer itself is changed by machine (`course_lab.authoring.operators.single_changes`) and run on the smallest
failing case; a change that makes it right there must do so in other failing cases, and spoil none that is right.  The
change is never shown: only its line, and what stands there now.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from course_lab.authoring.operators.single_changes import Repair, repairs
from course_lab.check import answer, client
from course_lab.check.budget import Budget
from course_lab.check.protocol import Job
from course_lab.check.verdict import CaseRun, is_plain, right_outputs, total_bytes

_MOST = 4  # that make one case right and are tried on others
_MOST_SHOWN = 2
_OTHERS = 3  # cases
_AT_A_TIME = 60  # changes for one child: so many small ones take a second
_SHARE = 0.7  # of the time, for the first case
_LONGEST = 60  # characters of code in a sentence


def place(
    job: Job,
    solution: str | None,
    runs: list[CaseRun],
    seconds: float,
    accesses: Collection[int] = (),
    *,
    rounded: bool = False,
) -> str:
    """Where one change makes the answer right, in a sentence; "" where none of them does.

    job: the answer's, as for the check; its cases are replaced.  solution: whose constants are tried, or None.
    seconds: of processor time.  accesses: lines of loads and stores that went elsewhere; what these are made of is
    tried first.  rounded: the numbers are nearly right; what rounds them is tried first.
    """
    tried = repairs(job.code, _constants(solution), frozenset(accesses), rounded=rounded)
    found = mend(job, tried, runs, seconds)
    if not found:
        return ""
    # what is wrong in the arithmetic, two exchanged loads may mend as well
    found = [one for one in found if "_ptr" not in one.text] or found
    lines = {one.line: one for one in reversed(found)}  # the likeliest of each
    places = [f"in line {line}: look at `{_short(one.text)}`" for line, one in sorted(lines.items())][:_MOST_SHOWN]
    return f"One change makes it right, {', or '.join(places)}."


def mend(job: Job, changes: Iterable[Repair], runs: list[CaseRun], seconds: float) -> list[Repair]:
    """The changes that make the answer right, the likeliest first; none where the time was too short to find one."""
    budget = Budget(seconds)
    plain = sorted((run for run in runs if is_plain(run)), key=total_bytes)
    wrong, right = [run for run in plain if not run.passed], [run for run in plain if run.passed and run.own_launches]
    if not wrong or wrong[0].seen.problem:
        return []
    fitting = _fitting(job, iter(changes), wrong[0], budget)
    others = [*wrong[:_OTHERS], *right[:1]]
    passes = client.at_once(*(partial(_passes, one, job, others, max(budget.left, 1.0)) for one in fitting))
    return [one for one, fine in zip(fitting, passes) if fine]


def _fitting(job: Job, changes: Iterator[Repair], run: CaseRun, budget: Budget) -> list[Repair]:
    """The first changes that make this case right; they are made as they are run, as most are never reached."""
    job, seconds, fitting = replace(job, cases=(run.args,)), _SHARE * budget.seconds, []
    while len(fitting) < _MOST and (tried := list(islice(changes, _AT_A_TIME))):
        made = client.run_answers(job, [one.code for one in tried], budget, seconds=max(seconds - budget.spent, 0.0))
        fitting += [one for one, outputs in zip(tried, made) if outputs and right_outputs(outputs[0], run)]
        if len(made) < len(tried):
            break
    return fitting[:_MOST]


def _passes(one: Repair, job: Job, runs: list[CaseRun], seconds: float) -> bool:
    """Whether the changed answer passes in all of these cases, by all that is seen of it."""
    again = [replace(run, seen=None) for run in runs]
    seen = client.run_cases(
        replace(job, code=one.code, cases=tuple(run.args for run in again)), time_limit=seconds
    ).seen
    return len(seen) == len(again) and all(replace(run, seen=one).passed for run, one in zip(again, seen))


def _constants(solution: str | None) -> frozenset[float]:
    tree = answer.parse(solution or "")
    if isinstance(tree, answer.SyntaxProblem):
        return frozenset()
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(value for value in found if isinstance(value, float))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
