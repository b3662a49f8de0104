"""The short exercises inside lesson 03."""

import torch

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _far(g: torch.Generator) -> torch.Tensor:
    return torch.tensor([-1000.0, -100, -50, -1, 0, 1, 50, 100, 1000])


def _textbook(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(2 * x)
    return (e - 1) / (e + 1)


def _narrow(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    largest = torch.finfo(dtype).max
    return x.clamp(-largest, largest).to(dtype)


def _one_sided(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.clamp(max=torch.finfo(dtype).max).to(dtype)


def _sized(count: int):
    """Numbers far below 1 to far above what 8 bits hold."""
    return lambda g: torch.randn(count, generator=g) * torch.logspace(-3, 3.3, count)


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
        lambda x: torch.tanh(x),  # torch.tanh itself has no signature
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
                "overflow",
                "Infinity over infinity on the left: an exponential stands on both sides of your fraction.",
                lambda x: -_textbook(-x),
            ),
            Suspect(
                "not-stretched",
                "This runs from 0 to 1, as a sigmoid does. From where to where does a tanh run?",
                lambda x: torch.sigmoid(2 * x),
            ),
            Suspect(
                "half-the-argument", "The argument of the sigmoid is not doubled.", lambda x: 2 * torch.sigmoid(x) - 1
            ),
        ),
    ),
    step(
        "3.c",
        "two flavours of 8 bits",
        "narrow",
        _narrow,
        case("e4m3fnuz, an MI300X's own", _sized(300), torch.float8_e4m3fnuz, atol=0, rtol=0),
        case("e4m3fn", _sized(300), torch.float8_e4m3fn, atol=0, rtol=0),
        case("one number", _sized(1), torch.float8_e4m3fnuz, atol=0, rtol=0),
        hints=(
            "What does a conversion make of a number that the type doesn't have?",
            "Limit the numbers to -largest and largest, as in exercise 0.3, before they are converted.",
            "`y = tl.minimum(tl.maximum(x, <...>), largest)`, then store `y.to(y_ptr.dtype.element_ty)`",
        ),
        suspects=(
            Suspect(
                "limit-of-the-type",
                "Numbers beyond 240 are wrong where the type ends there: they were limited to 448, or not at all.",
                lambda x, dtype: x.clamp(-448, 448).to(dtype),
            ),
            Suspect("limit-of-the-type-below", "Large negative numbers are wrong: limit them, too.", _one_sided),
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
        Mutant("a sigmoid", (("2 * tl.sigmoid(2 * x) - 1", "tl.sigmoid(2 * x)"),), "not-stretched"),
        Mutant("argument not doubled", (("tl.sigmoid(2 * x)", "tl.sigmoid(x)"),), "half-the-argument"),
    ),
    "3.c": (
        Mutant("448 for every type", (("torch.finfo(dtype).max", "448.0"),), "limit-of-the-type"),
        Mutant("no limit", (("tl.minimum(tl.maximum(x, -largest), largest)", "x"),), "limit-of-the-type"),
        Mutant("only from above", (("tl.maximum(x, -largest)", "x"),), "limit-of-the-type-below"),
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
    ),
}
