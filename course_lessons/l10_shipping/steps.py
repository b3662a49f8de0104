"""The short exercises inside lesson 10."""

from dataclasses import replace

import torch
from torch import Generator, Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _weight(n: int):
    return lambda g: 1 + 0.2 * torch.randn(n, generator=g)


def _wide(rows: int, columns: int):
    """Rows that lie 9 elements further apart than they are long."""
    return lambda g: torch.randn(rows, columns + 9, generator=g)[:, :columns]


def _tiny(g: Generator) -> Tensor:
    return 1e-3 * torch.randn(3, 100, generator=g)


def _norm_and_rstd(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    rstd = torch.rsqrt(x.double().square().mean(1) + eps)
    return (x.double() * rstd[:, None] * weight.double()).float(), rstd.float()


def _mean_square(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return _norm_and_rstd(x, weight, eps)[0], x.double().square().mean(1).float()


def _root(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    y, rstd = _norm_and_rstd(x, weight, eps)
    return y, 1 / rstd


def _is_even_told(args: tuple, launches: tuple) -> str:
    """EVEN is what it is called: true where the blocks fit, and only there."""
    for launch in launches:
        n, block, even = (launch.constant(name) for name in ("n", "BLOCK", "EVEN"))
        if bool(even) != (n % block == 0):
            return f"n is {n} and BLOCK {block}, and EVEN is {even}. When does the last block fit?"
    return ""


STEPS = (
    step(
        "10.a",
        "a number for the backward pass",
        "norm_and_rstd",
        _norm_and_rstd,
        case("576 columns", (4, 576), _weight(576), 1e-5, atol=2e-5),
        case("a power of two", (5, 64), _weight(64), 1e-5, atol=2e-5),
        case("rows further apart than their width", _wide(3, 100), _weight(100), 1e-5, atol=2e-5),
        case("tiny values, where eps matters", _tiny, _weight(100), 1e-5, atol=2e-5),
        hints=(
            "The program has `rstd` in a register. How many of them does one program have, and where does row `row` of "
            "a vector lie?",
            "`rstd_ptr` has one element for each row. A single number needs no mask.",
            "`y = x * rstd * w`, `tl.store(y_ptr + row * N + cols, y, mask=mask)`, `tl.store(rstd_ptr + <...>, <...>)`",
        ),
        suspects=(
            Suspect(
                "mean-square-kept", "What is kept is the mean square. The backward pass wants `rstd`.", _mean_square
            ),
            Suspect("root-kept", "What is kept is the root, and `rstd` is 1 over it.", _root),
        ),
    ),
    replace(
        step(
            "10.b",
            "a heuristic for even sizes",
            "add_one",
            lambda x: x + 1,
            case("a multiple of the block", (2048,)),
            case("no multiple of the block", (1000,)),
            case("one element", (1,)),
            case("one block", (256,)),
            case("a block and a half", (384,)),
            hints=(
                "A heuristic is a function of the launch's arguments. Which two say whether the last block is full?",
                'Its argument is a dict: `args["n"]`, `args["BLOCK"]`. EVEN is a constant, so `if EVEN:` is '
                "decided when it is compiled.",
                '`@triton.heuristics({"EVEN": lambda args: <n is a multiple of BLOCK>})`',
            ),
        ),
        demand=_is_even_told,
    ),
)

MUTANTS = {
    "10.a": (
        Mutant(
            "keeps the mean square",
            (("tl.store(rstd_ptr + row, rstd)", "tl.store(rstd_ptr + row, total / N)"),),
            "mean-square-kept",
        ),
        Mutant(
            "keeps the root", (("tl.store(rstd_ptr + row, rstd)", "tl.store(rstd_ptr + row, 1 / rstd)"),), "root-kept"
        ),
        Mutant("every row in one place", (("rstd_ptr + row", "rstd_ptr"),), "overlapping-programs"),
    ),
    "10.b": (
        Mutant("always even", (('args["n"] % args["BLOCK"] == 0', "True"),), "demand-not-met"),
        Mutant("never even", (('args["n"] % args["BLOCK"] == 0', "False"),), "demand-not-met"),
    ),
}
