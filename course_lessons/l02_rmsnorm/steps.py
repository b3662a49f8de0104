"""The short exercises inside lesson 02."""

import torch
from torch import Generator, Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _slice(rows: int, columns: int, shift: float = 0.0):
    """Rows that lie 7 elements further apart than they are long."""
    return lambda g: (torch.randn(rows, columns + 7, generator=g) + shift)[:, :columns]


def _weight_by_row(x: Tensor, weight: Tensor) -> Tensor:
    rows = torch.full((len(x),), float("nan"))
    rows[: len(weight)] = weight[: len(x)]
    return x * rows[:, None]


def _smallest(x: Tensor) -> Tensor:
    """With idle lanes that hold minus infinity, as they should for a maximum."""
    return x.amin(dim=1).clamp(max=-torch.inf if x.shape[1] & (x.shape[1] - 1) else torch.inf)


def _negative(g: Generator) -> Tensor:
    return -5 - torch.rand(6, 100, generator=g)


STEPS = (
    step(
        "2.a",
        "a weight for each column",
        "weighted_rows",
        lambda x, weight: x * weight,
        case("rows of 64", (5, 64), (64,)),
        case("SmolLM2's width, 576", (3, 576), (576,)),
        case("rows further apart than their width", _slice(4, 100), (100,)),
        case("19 rows further apart than their width", _slice(19, 100), (100,)),
        hints=(
            "The program knows its row. Which row of `x`, and which elements of the weight, does it need?",
            "Row `row` of `x` begins at `row * stride_xm`. The weight has no rows.",
            "`x = tl.load(x_ptr + row * stride_xm + cols, mask=mask)`, `w = tl.load(w_ptr + <...>, mask=mask)`, "
            "`tl.store(y_ptr + row * N + cols, <...>, mask=mask)`",
        ),
        suspects=(
            Suspect("weight-by-row", "The weight was indexed by the row. It belongs to the columns.", _weight_by_row),
            Suspect("missing-weight", "This is `x`: the weight is missing.", lambda x, weight: x.clone()),
            Suspect("weight-added", "The weight was added. It is a factor.", lambda x, weight: x + weight),
        ),
    ),
    step(
        "2.b",
        "the largest of a row",
        "row_maximum",
        lambda x: x.amax(dim=1),
        case("a power of two", (4, 128)),
        case("576 columns", (4, 576)),
        case("every element below zero", _negative),
        case("one column", (9, 1)),
        case("elements around -20,000", lambda g: torch.randn(3, 70, generator=g) - 2e4),
        case("elements around -10^38", lambda g: 1e36 * torch.randn(3, 300, generator=g) - 1e38),
        hints=(
            "The row has 100 elements and the block 128. What do the other 28 lanes hold when the maximum is taken?",
            "They must hold the identity of a maximum: what no element is below.",
            '`x = tl.load(<...>, mask=cols < N, other=-float("inf"))`, then store `tl.max(<...>, axis=0)`',
        ),
        suspects=(
            Suspect(
                "identity-of-a-sum",
                "Where all elements are negative you return 0: from the idle lanes. What does a maximum ignore?",
                lambda x: x.amax(dim=1).clamp(min=0) if x.shape[1] & (x.shape[1] - 1) else x.amax(dim=1),
            ),
            Suspect(
                "identity-of-a-minimum",
                "Where lanes are idle you return infinity: it is what they hold. What does a maximum ignore?",
                lambda x: x.amax(dim=1).clamp(min=torch.inf if x.shape[1] & (x.shape[1] - 1) else -torch.inf),
            ),
            Suspect("smallest-of-the-row", "This is the smallest element of each row.", _smallest),
        ),
    ),
    step(
        "2.c",
        "many rows in one program",
        "tile_sums",
        lambda x: x.sum(dim=1),
        case("16 rows of 64", (16, 64)),
        case("more rows than a block", (37, 64)),
        case("12 columns", (20, 12)),
        case("150 columns", (7, 150)),
        hints=(
            "The block has rows and columns. Which of its two axes must disappear?",
            "`axis=1` adds up along the row and leaves one number for each row: `BLOCK_M` of them.",
            "`x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=<...>, other=0.0)`, then "
            "`tl.store(y_ptr + rows, tl.sum(x, axis=<...>), mask=<...>)`",
        ),
    ),
)

MUTANTS = {
    "2.a": (
        Mutant("weight by row", (("w_ptr + cols, mask=mask", "w_ptr + row"),), "weight-by-row"),
        Mutant("forgets the weight", (("x * w", "x"),), "missing-weight"),
        Mutant("rows N apart", (("row * stride_xm", "row * N"),), "between-rows"),
    ),
    "2.b": (
        Mutant("identity of a minimum", (('-float("inf")', 'float("inf")'),), "identity-of-a-minimum"),
        Mutant("identity of a sum", (('-float("inf")', "0.0"),), "identity-of-a-sum"),
        Mutant("no identity", ((', other=-float("inf")', ""),), "missing-other"),
    ),
    "2.c": (
        Mutant("rows not masked in the store", ((", mask=rows < M)", ")"),), "missing-store-mask"),
        Mutant("no identity", ((", other=0.0", ""),), "missing-other"),
    ),
}
