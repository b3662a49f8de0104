"""The short exercises inside lesson 03."""

import torch

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _far(g: torch.Generator) -> torch.Tensor:
    return torch.tensor([-1000.0, -100, -50, -1, 0, 1, 50, 100, 1000])


def _textbook(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)


STEPS = (
    step(
        "3.a",
        "two halves of a row",
        "add_halves",
        lambda x: x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :],
        case("halves of 64", (3, 128)),
        case("halves of 100", (5, 200)),
        case("SmolLM2's halves of 1536", (2, 3072)),
        hints=(
            "A row of `x` has 2 d elements. Which is the partner of its element c?",
            "The partner lies `d` elements further on. The mask asks whether c is inside one half.",
            "`a = tl.load(x_ptr + row * 2 * d + cols, mask=mask)`, `b` the same `+ d`, then "
            "`tl.store(y_ptr + row * <row length of y> + cols, a + b, mask=mask)`",
        ),
        suspects=(
            Suspect(
                "first-half-twice",
                "The first half was added to itself. Where does the second one begin?",
                lambda x: 2 * x[:, : x.shape[1] // 2],
            ),
        ),
    ),
    step(
        "3.b",
        "a tanh for every number",
        "tanh",
        torch.tanh,
        case("between -3 and 3", (500,)),
        case("up to 1000 in both directions", _far),
        hints=(
            "Which of the two forms of a fraction survives a large exponential: the one that has it above, or below?",
            "The text has tanh as a sigmoid of twice the argument, and `tl.sigmoid` is safe on both sides.",
            "`y = 2 * tl.sigmoid(<...>) - 1`",
        ),
        suspects=(
            Suspect(
                "overflow", "Infinity over infinity: an exponential stands on both sides of your fraction.", _textbook
            ),
            Suspect(
                "half-the-argument", "The argument of the sigmoid is not doubled.", lambda x: 2 * torch.sigmoid(x) - 1
            ),
        ),
    ),
)

MUTANTS = {
    "3.a": (
        Mutant("first half twice", (("+ d + cols", "+ cols"),), "first-half-twice"),
        Mutant("store without a mask", ((", a + b, mask=mask)", ", a + b)"),), "missing-store-mask"),
    ),
    "3.b": (
        Mutant(
            "the textbook's formula",
            (("2 * tl.sigmoid(2 * x) - 1", "(tl.exp(2 * x) - 1) / (tl.exp(2 * x) + 1)"),),
            "overflow",
        ),
        Mutant("argument not doubled", (("tl.sigmoid(2 * x)", "tl.sigmoid(x)"),), "half-the-argument"),
    ),
}
