"""Verdicts on what an exercise's driver only tells: made here, from arguments that the child never had.

A driver runs beside the answer, which may lie about everything in its process.  So it says what the answer did, in a
case of which it does not know what is wanted, and an exercise's `judge` decides in the parent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lab.authoring.exercise import Exercise, picked
from course_lab.check import client
from course_lab.check.budget import Budget
from course_lab.check.diagnosis import COMPLAINT
from course_lab.check.protocol import Job, OwnKernel, Problem, Seen
from course_lab.check.verdict import CaseRun

TOLD = "Told"  # the exception by which an exercise's driver says what it saw
_MAX_CHILDREN = 4  # after so many that died, what is left is not tried


@dataclass(frozen=True)
class Ask:
    """What a judge may have run besides, where answers are run."""

    exercise: Exercise
    job: Job

    @property
    def kernel(self) -> OwnKernel:
        """The kernel that the answer builds on."""
        number = picked(self.job.code)
        return next(kernel for kernel in self.job.kernels if kernel.number == number)

    def cases(self, cases: Sequence[tuple[Any, ...]]) -> list[Seen | None]:
        """The answer's driver on other cases, in an order of their own; None for what was not reached."""
        seen: list[Seen | None] = [None] * len(cases)
        order = random.sample(range(len(cases)), len(cases))
        job = replace(self.job, cases=tuple(cases[place] for place in order))
        attempt = client.run_cases(job, time_limit=self.exercise.time_limit)
        for place, one in zip(order, attempt.seen):
            seen[place] = one
        return seen

    def outputs(
        self, codes: Sequence[str], entry: str, cases: Sequence[tuple[Any, ...]]
    ) -> list[tuple[tuple[torch.Tensor, ...], ...]]:
        """What functions called `entry` make of cases, the answer not being there; a case that fails gives nothing."""
        job = Job(self.exercise.number, "", entry, tuple(cases))
        found: list[tuple[tuple[torch.Tensor, ...], ...]] = []
        for _ in range(_MAX_CHILDREN):
            left = list(codes[len(found) :])
            if not left:
                break
            budget = Budget(self.exercise.time_limit)
            made = client.run_answers(job, left, budget)[: len(left)]
            found += made if len(made) == len(left) else [*made, ()]  # the one that it died in
        return found + [()] * (len(codes) - len(found))


def in_any_order(exercise: Exercise, runs: list[CaseRun], seed: str) -> list[CaseRun]:
    """The runs as they are sent to a child: where a judge decides, their place shall not tell what is wanted."""
    if exercise.judge is None or not seed:
        return runs
    return random.Random(f"{seed}/{exercise.number}").sample(runs, len(runs))


def judge(exercise: Exercise, job: Job, runs: list[CaseRun]) -> None:
    """Put the judge's word in place of what the child saw of these runs."""
    for run in runs if exercise.judge else ():
        if run.seen is not None:
            run.seen = exercise.judge(run, Ask(exercise, job))


def told(run: CaseRun) -> str | None:
    """What the driver says that the answer did; None where it says nothing."""
    problem = run.seen.problem
    return problem.message if problem and problem.type == TOLD else None


def right(run: CaseRun) -> Seen:
    """What was seen, as a case that asks for no numbers and was met."""
    writers = (None,) * len(run.expected)
    return replace(run.seen, problem=None, outputs=run.expected, writers=writers)


def complaint(run: CaseRun, code: str, sentence: str) -> Seen:
    """What was seen, with what is wrong with it; code: the diagnosis."""
    return replace(run.seen, problem=Problem(COMPLAINT, f"{code}: {sentence}"))
