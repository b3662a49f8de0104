"""The short exercises inside lesson 01."""

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step

STEPS = (
    step(
        "1.a",
        "a difference",
        "difference",
        lambda x, y: x - y,
        case("whole blocks", (512,), (512,)),
        case("a last block that is not full", (576,), (576,)),
        case("three elements", (3,), (3,)),
        hints=(
            "Which three things does the kernel do with memory, and which addresses do they have in common?",
            "Two loads and one store, all at `offs` from their own pointer, all with `mask=mask`.",
            "`x = tl.load(x_ptr + offs, mask=mask)`, then `y`, then `tl.store(z_ptr + <...>, <...>, mask=mask)`.",
        ),
        suspects=(Suspect("operands-swapped", "This is `y - x`. Which one is subtracted?", lambda x, y: y - x),),
    ),
    step(
        "1.b",
        "a table of sums",
        "outer_sum",
        lambda x, y: x[:, None] + y[None, :],
        case("whole tiles", (32,), (64,)),
        case("neither is a multiple of a block", (19,), (45,)),
        case("one row", (1,), (100,)),
        case("one column", (70,), (1,)),
        hints=(
            "Which rows exist, which columns exist, and when does a cell of the tile exist?",
            "`rows[:, None]` is a column and `cols[None, :]` a row. `*`, `+`, `<` and `&` spread both over the tile.",
            "`mask = (rows[:, None] < M) & <...>`; `tl.store(z_ptr + rows[:, None] * <row length> + cols[None, :], "
            "x[:, None] + <...>, mask=mask)`",
        ),
        suspects=(
            Suspect(
                "one-vector-twice",
                "Only one of the two vectors is in the result.",
                lambda x, y: x[:, None] + 0 * y[None, :],
            ),
        ),
    ),
)

MUTANTS = {
    "1.a": (
        Mutant("operands swapped", (("x - y", "y - x"),), "operands-swapped"),
        Mutant("store without a mask", (("x - y, mask=mask)", "x - y)"),), "missing-store-mask"),
        Mutant(
            "load without a mask", (("tl.load(y_ptr + offs, mask=mask)", "tl.load(y_ptr + offs)"),), "missing-load-mask"
        ),
    ),
    "1.b": (
        Mutant("rows not masked", (("(rows[:, None] < M) & ", ""),), "mask-too-wide"),
        Mutant(
            "no parentheses",
            (("(rows[:, None] < M) & (cols[None, :] < N)", "rows[:, None] < M & cols[None, :] < N"),),
            "missing-parentheses",
        ),
        Mutant("no mask", ((", mask=mask)\n\n", ")\n\n"),), "missing-store-mask"),
        Mutant("forgets y", (("x[:, None] + y[None, :]", "x[:, None] + 0 * y[None, :]"),), "one-vector-twice"),
    ),
}
