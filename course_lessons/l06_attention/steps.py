"""The short exercises inside lesson 06."""

import torch
from torch import Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _merged(m1: Tensor, l1: Tensor, m2: Tensor, l2: Tensor, sign=1, power=torch.exp) -> tuple[Tensor, Tensor]:
    m = torch.maximum(m1, m2)
    return m, l1 * power(sign * (m1 - m)) + l2 * power(sign * (m2 - m))


def _sums(g: torch.Generator) -> Tensor:
    return 1 + torch.rand(200, generator=g)


STEPS = (
    step(
        "6.a",
        "the distance to the largest",
        "below_maximum",
        lambda x: x - x.amax(dim=1, keepdim=True),
        case("rows of 64", (4, 64)),
        case("37 columns", (5, 37)),
        case("every element below zero", lambda g: -3 - torch.rand(4, 100, generator=g)),
        hints=(
            "Which value must the idle lanes hold, so that the maximum ignores them?",
            "The identity of a maximum is minus infinity. The result is stored under the mask.",
            '`x = tl.load(<...>, mask=mask, other=-float("inf"))`, then store `x - tl.max(<...>, axis=0)`',
        ),
        suspects=(
            Suspect(
                "identity-of-a-sum",
                "Rows without a positive element come out wrong: a zero of the idle lanes was the largest.",
                lambda x: (
                    x
                    - (
                        x.amax(dim=1, keepdim=True).clamp(min=0)
                        if x.shape[1] & (x.shape[1] - 1)
                        else x.amax(dim=1, keepdim=True)
                    )
                ),
            ),
            Suspect(
                "operands-swapped",
                "The signs are exchanged: this is the largest minus the element.",
                lambda x: x.amax(dim=1, keepdim=True) - x,
            ),
            Suspect(
                "smallest-of-the-row",
                "This is the distance to the smallest element of the row.",
                lambda x: x - (x.amin(dim=1, keepdim=True) if x.shape[1] & (x.shape[1] - 1) == 0 else -torch.inf),
            ),
        ),
    ),
    step(
        "6.b",
        "put two halves of a row together",
        "merge_sums",
        lambda m1, l1, m2, l2: _merged(m1, l1, m2, l2),
        case("two halves", (200,), _sums, (200,), _sums),
        case("the second maximum is far larger", (200,), _sums, lambda g: 80 + torch.rand(200, generator=g), _sums),
        hints=(
            "Each sum was taken relative to its own maximum. Relative to which one must both be?",
            "Relative to the larger of the two. The factor of each is `tl.exp(its maximum - the larger)`.",
            "`m = tl.maximum(m1, m2)`; `total = l1 * tl.exp(<...>) + l2 * tl.exp(<...>)`; store both",
        ),
        suspects=(
            Suspect(
                "not-rescaled",
                "The sums were added as they are, though each is relative to its own maximum.",
                lambda m1, l1, m2, l2: (torch.maximum(m1, m2), l1 + l2),
            ),
            Suspect(
                "only-one-rescaled",
                "Only the first sum was corrected. The second has a maximum of its own as well.",
                lambda m1, l1, m2, l2: (torch.maximum(m1, m2), l1 * torch.exp(m1 - torch.maximum(m1, m2)) + l2),
            ),
            Suspect(
                "relative-to-the-first",
                "The sum is relative to the first maximum, and the maximum that you return is the larger of both.",
                lambda m1, l1, m2, l2: (torch.maximum(m1, m2), l1 + l2 * torch.exp(m2 - m1)),
            ),
            Suspect(
                "grows-instead",
                "The sums grow where the maximum rises. Which way round does the exponent stand?",
                lambda m1, l1, m2, l2: _merged(m1, l1, m2, l2, sign=-1),
            ),
            Suspect(
                "base-2",
                "These are powers of two. The sums that came in are of powers of e.",
                lambda m1, l1, m2, l2: _merged(m1, l1, m2, l2, power=torch.exp2),
            ),
            Suspect(
                "results-exchanged",
                "Maximum and sum have changed places.",
                lambda *halves: _merged(*halves)[::-1],
            ),
        ),
    ),
)

MUTANTS = {
    "6.a": (
        Mutant("identity of a sum", (('-float("inf")', "0.0"),), "identity-of-a-sum"),
        Mutant("no identity", ((', other=-float("inf")', ""),), "missing-other"),
    ),
    "6.b": (
        Mutant("not rescaled", (("l1 * tl.exp(m1 - m) + l2 * tl.exp(m2 - m)", "l1 + l2"),), "not-rescaled"),
        Mutant("only one rescaled", ((" * tl.exp(m2 - m)", ""),), "only-one-rescaled"),
    ),
}
