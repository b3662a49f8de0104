"""The short exercises inside lesson 04."""

import torch
from torch import Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _quarter_turn(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def _other_way(x: Tensor) -> Tensor:
    return -_quarter_turn(x)


def _unsigned(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((b, a), dim=-1)


STEPS = (
    step(
        "4.a",
        "a quarter turn",
        "quarter_turn",
        _quarter_turn,
        case("one token, one head of 64", (1, 1, 64)),
        case("five tokens, nine heads", (5, 9, 64)),
        case("heads of 128", (3, 2, 128)),
        hints=(
            "Which two elements belong together, and where in the head does each result go?",
            "The program has `a` from the first half and `b` from the second. Store both, exchanged, one negated.",
            "`tl.store(y_ptr + start + pair, <...>)` and `tl.store(y_ptr + start + D // 2 + pair, <...>)`",
        ),
        suspects=(
            Suspect(
                "other-way-round", "This is a quarter turn the other way: the sign is on the other half.", _other_way
            ),
            Suspect("missing-sign", "The halves are exchanged, and nothing is negated.", _unsigned),
        ),
    ),
    step(
        "4.b",
        "neighbours",
        "neighbour_difference",
        lambda x: x[:, 0::2] - x[:, 1::2],
        case("rows of 8", (3, 8)),
        case("rows of 64", (10, 64)),
        hints=(
            "How do you give the two elements of a pair an axis of their own?",
            "Reshape to `(BLOCK, 2)`: neighbours then lie along the last axis, which `tl.split` cuts.",
            "`a, b = tl.split(x.reshape(<...>, 2))`, then store `a - b` at `row * BLOCK + <...>`",
        ),
        suspects=(
            Suspect(
                "halves-not-neighbours",
                "The first half minus the second: those are the pairs of the other style.",
                lambda x: x[:, : x.shape[1] // 2] - x[:, x.shape[1] // 2 :],
            ),
            Suspect("operands-swapped", "The second minus the first.", lambda x: x[:, 1::2] - x[:, 0::2]),
        ),
    ),
)

MUTANTS = {
    "4.a": (
        Mutant(
            "sign on the other half",
            (("pair, -b)", "pair, b)"), ("D // 2 + pair, a)", "D // 2 + pair, -a)")),
            "other-way-round",
        ),
        Mutant("no sign", (("pair, -b)", "pair, b)"),), "missing-sign"),
    ),
    "4.b": (
        Mutant("halves", (("x.reshape(BLOCK, 2)", "x.reshape(2, BLOCK).permute(1, 0)"),), "halves-not-neighbours"),
        Mutant("operands swapped", (("a - b", "b - a"),), "operands-swapped"),
    ),
}
