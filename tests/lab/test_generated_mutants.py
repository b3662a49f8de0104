"""Every mistake that a machine makes in a solution is rejected, or argued to be none; and what the check says of it."""

from collections import Counter

import pytest

from course_lab.authoring import generated, lessons
from course_lab.authoring.operators import generate
from course_lab.check import grade
from course_lab.check.alike import VAGUE
from gfxlab.tables import Table

EVERY = 6  # mutants are dealt out in so many parts
PARTS = range(3)  # what has been gone through so far; `course mutants --generate` runs all


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("number", [number for number in generated.numbers() if number[0] in "01234567"])
def test_every_mutant_is_killed_or_argued_about(number, part):
    judged = generated.judge(number, every=EVERY, first=part)
    assert not [str(one) for one in judged if one.survives]


def verdict(number: str, mutant) -> str:
    """ "right" where the check names this mistake or its place, "vague" where it only describes the numbers."""
    found = grade(number, mutant.code).diagnosis
    if found is None:
        return "passed"
    if found.code in (mutant.diagnosis, mutant.operator) or f"line {mutant.line}" in found.sentence:
        return "right"
    return "vague" if found.code in VAGUE else "other"


@pytest.mark.slow
def test_what_the_check_says_of_each_operator(capsys):
    """The table is printed; at most a quarter of the rejected mutants may only have their numbers described."""
    counts: Counter = Counter()
    for number in [number for number in generated.numbers() if number[0] in "01234567"]:
        for mutant in list(generate(lessons.solution(number)))[::40]:
            counts[mutant.operator, verdict(number, mutant)] += 1
    kinds = ("right", "other", "vague", "passed")
    operators = sorted({operator for operator, _ in counts})
    rows = [(operator, *(str(counts[operator, kind]) for kind in kinds)) for operator in operators]
    with capsys.disabled():
        print("\n" + Table(rows, ("operator", *kinds), numbers=4).text())
    total = {kind: sum(counts[operator, kind] for operator in operators) for kind in kinds}
    assert total["vague"] <= (sum(total.values()) - total["passed"]) / 4, total
