"""The short exercises inside lesson 00."""

import torch

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step

_MASK = ", mask=mask)"

STEPS = (
    step(
        "0.a",
        "scale and shift",
        "scale_and_shift",
        lambda x, alpha, beta: alpha * x + beta,
        case("one block", (256,), 3.0, 1.0),
        case("a size that is no multiple of the block", (576,), -0.5, 2.0),
        case("one element", (1,), 2.0, -3.0),
        hints=(
            "The kernel of the text stores `alpha * x`. What has to be stored here?",
            "The addresses and the mask of the store are those of the load, but for the tensor.",
            "`tl.store(y_ptr + <...>, alpha * x + <...>, mask=<...>)`",
        ),
        minutes=2,
        suspects=(
            Suspect("missing-shift", "This is `alpha * x`: `beta` is missing.", lambda x, alpha, beta: alpha * x),
            Suspect(
                "shift-before-scale",
                "`beta` was added before the multiplication, so it was scaled as well. What comes first?",
                lambda x, alpha, beta: alpha * (x + beta),
            ),
            Suspect(
                "numbers-exchanged",
                "`alpha` and `beta` have changed places.",
                lambda x, alpha, beta: beta * x + alpha,
            ),
        ),
    ),
    step(
        "0.b",
        "choose for each element",
        "leaky",
        lambda x, slope: torch.where(x > 0, x, slope * x),
        case("slope 0.1", (300,), 0.1),
        case("slope 2", (300,), 2.0),
        case("slope 0", (129,), 0.0),
        hints=(
            "Both values can be computed for all elements. Which function then chooses?",
            "`tl.where(condition, a, b)` takes `a` where the condition holds and `b` elsewhere.",
            "`y = tl.where(x > 0, <...>, <...>)`, then store `y` with the mask.",
        ),
        minutes=2,
        suspects=(
            Suspect(
                "takes-the-larger",
                "This is the larger of the two, which differs where `slope` is above 1.",
                lambda x, s: torch.maximum(x, s * x),
            ),
            Suspect(
                "branches-swapped",
                "Positive and negative elements are exchanged.",
                lambda x, s: torch.where(x > 0, s * x, x),
            ),
        ),
    ),
)

MUTANTS = {
    "0.a": (
        Mutant("shifts first", (("alpha * x + beta", "alpha * (x + beta)"),), "shift-before-scale"),
        Mutant("forgets the shift", (("alpha * x + beta", "alpha * x"),), "missing-shift"),
        Mutant("store without a mask", (("alpha * x + beta" + _MASK, "alpha * x + beta)"),), "missing-store-mask"),
    ),
    "0.b": (
        Mutant("branches swapped", (("x, slope * x)", "slope * x, x)"),), "branches-swapped"),
        Mutant(
            "takes the larger", (("tl.where(x > 0, x, slope * x)", "tl.maximum(x, slope * x)"),), "takes-the-larger"
        ),
        Mutant("store without a mask", (("y" + _MASK, "y)"),), "missing-store-mask"),
    ),
}
