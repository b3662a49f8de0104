"""Whose numbers are these?  An answer that computes what the solution with one mistake computes makes that mistake.

The mistakes are made by machine (`course_lab.authoring.operators`) and run on the smallest failing case, for a few
seconds; what fits there must fit in another failing case, and be right where the answer is right.  What a mistake does
on a case is remembered: the next wrong answer is recognised at once.  The solution is never shown: of a mistake only a
clause is, in the learner's own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from course_lab.authoring.operators import Generated, generate
from course_lab.check import client
from course_lab.check.alike import VAGUE, is_telling, same_case
from course_lab.check.budget import Budget
from course_lab.check.protocol import Job
from course_lab.check.sentences import Diagnosis
from course_lab.check.verdict import CaseRun, is_plain, right_outputs, total_bytes

# the rule saw something certain, but not its cause
DOUBTFUL = VAGUE | {
    "out-of-bounds", "between-rows", "mask-too-wide", "partly-written", "overlapping-programs", "program-id-unused",
    "shifted", "swapped-strides", "missing-int64", "wrong-stride",
}  # fmt: skip
_MOST = 8  # that fit one case and are tried on others
_RIGHT = 3  # cases of these that the answer has right
_CONFIRMING = 0.5  # seconds of processor time that are kept for it
_KEPT = 64
_Outputs = tuple[torch.Tensor, ...] | None
_seen: dict[tuple[str, str, str], list[_Outputs]] = {}  # of this process: solution, case -> outputs of each mistake


@dataclass(frozen=True)
class Question:
    """What is asked: the answer's job and cases, the exercise's solution, the names of the entry's arguments."""

    job: Job
    solution: str
    runs: list[CaseRun]
    arguments: tuple[str, ...]


def explain(found: Diagnosis, question: Question, budget: Budget) -> Diagnosis | None:
    """`found` with the mistake named whose numbers the answer has; None when there is none."""
    fitting = recognise(question, budget)
    clauses = list(dict.fromkeys(in_own_names(one.says, question) for one in fitting))
    if not clauses:
        return None
    sentence = f"Your numbers are those of a kernel that {clauses[0]}."
    if len(clauses) > 1:
        sentence = f"Your numbers are those of a kernel that {clauses[0]}, and also of one that {clauses[1]}."
    code = fitting[0].diagnosis or fitting[0].operator if found.code == "unknown" else found.code
    return Diagnosis(code, sentence if found.code in VAGUE else f"{found.sentence} {sentence}")


def recognise(question: Question, budget: Budget) -> list[Generated]:
    """The mistakes with the answer's numbers, the likeliest first."""
    wrong = sorted(
        (run for run in question.runs if is_plain(run) and run.values_wrong and is_telling(run)), key=total_bytes
    )
    if not wrong:
        return []
    mistakes = _mistakes(question.solution)
    outputs = _outputs(question, mistakes, wrong[0], budget)
    fitting = [one for one, made in zip(mistakes, outputs) if made is not None and same_case(made, wrong[0])][:_MOST]
    right = sorted((run for run in question.runs if is_plain(run) and run.passed and run.own_launches), key=total_bytes)
    others = [*[run for run in wrong[1:] if run.case.name != wrong[0].case.name][:1], *right[:_RIGHT]]
    return _confirmed(question, fitting, others, budget) if fitting and others else fitting


def _confirmed(question: Question, fitting: list[Generated], others: list[CaseRun], budget: Budget) -> list[Generated]:
    """Those that fit in the other cases as well."""
    job = replace(question.job, cases=tuple(run.args for run in others))
    made = client.run_answers(job, [one.code for one in fitting], budget, trusted=True)
    return [one for one, outputs in zip(fitting, made) if len(outputs) == len(others) and _all_fit(outputs, others)]


def _all_fit(outputs: tuple[tuple[torch.Tensor, ...], ...], runs: list[CaseRun]) -> bool:
    return all(right_outputs(made, run) if run.passed else same_case(made, run) for made, run in zip(outputs, runs))


def _outputs(question: Question, mistakes: list[Generated], run: CaseRun, budget: Budget) -> list[_Outputs]:
    """What each mistake makes of a case; None where it fails, or was not reached."""
    key = question.job.number, question.solution, run.case.name
    known = _seen.pop(key, [])
    if len(known) < len(mistakes):
        job = replace(question.job, cases=(run.args,))
        codes = [one.code for one in mistakes[len(known) :]]
        seconds = max(budget.left - _CONFIRMING, 0.0)
        made = client.run_answers(job, codes, budget, seconds=seconds, trusted=True)
        known = known + [one[0] if one else None for one in made]
    if len(_seen) >= _KEPT:
        _seen.pop(next(iter(_seen)))
    _seen[key] = known
    return known


@lru_cache(maxsize=64)
def _mistakes(solution: str) -> list[Generated]:
    return list(generate(solution))


# ---- in the learner's names ------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z_]\w*")
_KINDS: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda name: name.endswith("_ptr"), "a tensor"),
    (lambda name: name.startswith("stride"), "a stride"),
    (lambda name: "mask" in name, "a mask"),
    (str.isupper, "a size"),
    (lambda name: True, "a value"),
)


def in_own_names(says: str, question: Question) -> str:
    """The clause with names that the learner's code has; where it has none, what kind of thing is meant."""
    own = set(_NAME.findall(question.job.code)) | set(question.arguments)
    return re.sub(r"`([^`]*)`", lambda match: _own(match[1], own), says)


def _own(text: str, own: set[str]) -> str:
    strange = [name for name in _NAME.findall(text) if name not in own]
    if not strange:
        return f"`{text}`"
    stem = text.removesuffix("_ptr")
    if stem != text and stem in own:
        return f"`{stem}`"
    if _NAME.fullmatch(text):
        return next(kind for fits, kind in _KINDS if fits(text))
    return "one of its expressions"
