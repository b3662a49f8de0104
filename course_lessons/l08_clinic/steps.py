"""The short exercises inside lesson 08: two instruments."""

import torch
from torch import Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _wrong(got: Tensor, expected: Tensor, atol: float) -> Tensor:
    return (~((got - expected).abs() <= atol)).to(torch.int32)


def _blind_to_nan(got: Tensor, expected: Tensor, atol: float) -> Tensor:
    return ((got - expected).abs() > atol).to(torch.int32)


def _spoilt(count: int, *values: float):
    """Normal numbers, some of them off by one of these values."""

    def make(g: torch.Generator) -> Tensor:
        x = torch.zeros(count)
        x[torch.randperm(count, generator=g)[: len(values)]] = torch.tensor(values)
        return x

    return make


def _zeros(count: int):
    return lambda g: torch.zeros(count)


def _large(count: int, *signs: int):
    """Ten times the place; of the elements in the middle, the signs are these."""

    def make(g: torch.Generator) -> Tensor:
        x = 10.0 * torch.arange(1, count + 1)
        x[count // 2 : count // 2 + len(signs)] *= torch.tensor(signs)
        return x

    return make


def _painted(out: Tensor, block: int) -> None:
    out.copy_(torch.arange(len(out)) // block)


def _blank(count: int):
    return lambda g: torch.full((count,), -1, dtype=torch.int32)


STEPS = (
    step(
        "8.a",
        "mark what is wrong",
        "mark_wrong",
        _wrong,
        case("a few wrong ones", _spoilt(300, 1.0, -2.0, 0.5), _zeros(300), 1e-3),
        case("NaN", _spoilt(500, float("nan"), 1e-6), _zeros(500), 1e-3),
        case("infinity", _spoilt(256, float("inf"), -float("inf")), _zeros(256), 0.5),
        case("nothing wrong", _spoilt(100, 1e-5), _zeros(100), 1e-3),
        case("NaN was expected", _zeros(300), _spoilt(300, float("nan"), float("inf")), 1e-3),
        case("off by exactly atol", _spoilt(200, 0.5, -0.5, 0.75), _zeros(200), 0.5),
        case("signs turned round", _large(200, 1, -1, -1, 1), _large(200, -1, -1, 1, 1), 0.5),
        case("no tolerance", _spoilt(90, 1e-20), _zeros(90), 0.0),
        hints=(
            "What is NaN > 0.001? And NaN <= 0.001?",
            "Compute who is near, and mark the others.",
            "`near = tl.abs(got - expected) <= atol`, then `tl.where(near, <...>, <...>)`",
        ),
        suspects=(
            Suspect(
                "blind-to-nan", "NaN is not marked: each comparison with it is false. Turn yours round.", _blind_to_nan
            ),
        ),
    ),
    step(
        "8.b",
        "paint who owns what",
        "paint",
        _painted,
        case("whole blocks", _blank(512), 64),
        case("a last block that is not full", _blank(300), 128),
        case("one element", _blank(1), 16),
        hints=(
            "Which elements belong to program pid?",
            "Store one number to a block of places: the number must become a block first.",
            "`tl.store(out_ptr + offs, tl.zeros((BLOCK,), tl.int32) + <...>, mask=<...>)`",
        ),
        suspects=(
            Suspect(
                "places-in-place-of-programs",
                "These are the numbers of the elements. What has each block in common?",
                lambda out, block: torch.arange(len(out)).to(torch.int32),
            ),
        ),
        inplace=(0,),
    ),
)

MUTANTS = {
    "8.a": (
        Mutant(
            "greater than", (("<= atol", "> atol"), ("tl.where(near, 0, 1)", "tl.where(near, 1, 0)")), "blind-to-nan"
        ),
        Mutant(
            "store without a mask",
            (("tl.where(near, 0, 1), mask=mask)", "tl.where(near, 0, 1))"),),
            "missing-store-mask",
        ),
    ),
    "8.b": (
        Mutant("paints the places", (("tl.zeros((BLOCK,), tl.int32) + pid", "offs"),), "places-in-place-of-programs"),
        Mutant("store without a mask", ((", mask=offs < n)", ")"),), "missing-store-mask"),
    ),
}
