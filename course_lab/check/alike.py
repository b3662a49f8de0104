"""Recognise a wrong answer that no rule explains, by running the mistakes that the exercise's author thought of.

Two programs with the same wrong numbers most likely make the same mistake.  The mistakes run in a child of their own;
what they are called and how they differ from the solution is never shown, only their diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from course_lab.authoring.exercise import Exercise
from course_lab.check import client
from course_lab.check.budget import Budget
from course_lab.check.protocol import Job
from course_lab.check.sentences import ALIKE, Diagnosis
from course_lab.check.verdict import CaseRun, compare, is_plain, right_outputs, total_bytes

VAGUE = frozenset(
    {"unknown", "constant-factor", "row-factor", "half-accumulation", "not-finite"}
)  # these describe, and explain little
_SECONDS = 1.0  # of processor time, for all mistakes together; those that were not reached are no match
_FEW = 3  # wrong numbers; as many different ones among more tell little
_MOST_CASES = 2
_MOST_RIGHT = 4  # cases that the answer has right


def recognise(
    exercise: Exercise, job: Job, runs: list[CaseRun], mistakes: Iterable[tuple[str, str]], budget: Budget
) -> Diagnosis | None:
    """The one diagnosis whose mistakes give the answer's wrong numbers; None when there is none, or several.

    Args:
        job: what the child did for the check; its code and cases are replaced.
        runs: the cases as the answer did them.  A mistake must give the numbers of wrong ones, and leave right what is.
        mistakes: pairs of a diagnosis and the code of a wrong answer that must get it.
    """
    sentences = {**ALIKE, **{suspect.code: suspect.sentence for suspect in exercise.suspects}}
    known = [(name, code) for name, code in mistakes if name in sentences]
    telling = [run for run in runs if run.values_wrong and is_telling(run)][:_MOST_CASES]
    if not known or not telling:
        return None
    job = replace(job, cases=tuple(run.args for run in telling))
    answers = client.run_answers(job, [code for _, code in known], budget, seconds=_SECONDS, trusted=True)
    same = [(name, code) for (name, code), outputs in zip(known, answers) if _same(outputs, telling)]
    found = {name for name, _ in _that_spoil_nothing(same, job, runs, budget)}
    if len(found) != 1:
        return None
    (name,) = found
    return Diagnosis(name, f"An answer with this mistake gives just your numbers. {sentences[name]}")


def is_telling(run: CaseRun) -> bool:
    """Whether most of the wrong numbers are numbers: many different mistakes end in NaN, leave 0, or one number."""
    got = np.concatenate([comparison.got[comparison.wrong].ravel() for comparison in run.comparisons])
    if not bool((np.isfinite(got) & (got != 0)).mean() > 0.5):
        return False
    floating = any(comparison.expected.dtype.kind == "f" for comparison in run.comparisons)
    return not floating or len(got) <= _FEW or len(np.unique(got)) > _FEW


def _that_spoil_nothing(
    same: list[tuple[str, str]], job: Job, runs: list[CaseRun], budget: Budget
) -> list[tuple[str, str]]:
    """Those that leave right what the answer has right: where little is left of numbers, many mistakes end alike."""
    fine = sorted((run for run in runs if is_plain(run) and run.passed and run.own_launches), key=total_bytes)
    fine = fine[:_MOST_RIGHT]
    if not same or not fine:
        return same
    job = replace(job, cases=tuple(run.args for run in fine))
    answers = client.run_answers(job, [code for _, code in same], budget, trusted=True)
    return [one for one, made in zip(same, answers) if len(made) == len(fine) and all(map(right_outputs, made, fine))]


def _same(outputs: Sequence[Sequence[torch.Tensor]], runs: list[CaseRun]) -> bool:
    """Whether a mistake's outputs are those of the answer, up to rounding, in every case, and wrong."""
    return len(outputs) == len(runs) and all(same_case(*pair) for pair in zip(outputs, runs))


def same_case(outputs: Sequence[torch.Tensor], run: CaseRun) -> bool:
    """Whether these outputs are those of the answer, up to rounding, and wrong."""
    if len(outputs) != len(run.outputs):
        return False
    right = []
    for mistaken, comparison, expected, dtype in zip(outputs, run.comparisons, run.expected, run.dtypes):
        verdict = compare(expected, mistaken, comparison.tolerance, dtype)
        if verdict.problem or not comparison.close(comparison.got, verdict.got, times=2).all():
            return False
        right.append(verdict.right)
    return not all(right)
