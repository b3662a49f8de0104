"""The short exercises inside lesson 05."""

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step

STEPS = (
    step(
        "5.a",
        "dot products of rows",
        "row_dots",
        lambda a, b: (a * b).sum(dim=1),
        case("rows of 64", (4, 64), (4, 64), atol=1e-4),
        case("rows of 100", (7, 100), (7, 100), atol=1e-4),
        case("SmolLM2's width, 576", (3, 576), (3, 576), atol=1e-4),
        hints=(
            "What do the idle lanes of a sum have to hold?",
            "Load both rows with `other=0.0`, multiply element by element, and reduce with `tl.sum`.",
            "`tl.store(c_ptr + row, tl.sum(<...> * <...>, axis=0))`",
        ),
        suspects=(Suspect("sum-of-one", "This is the sum of one row alone.", lambda a, b: a.sum(dim=1)),),
    ),
    step(
        "5.b",
        "a tile times its own transpose",
        "gram",
        lambda a: a @ a.T,
        case("16 rows of 32", (16, 32), atol=1e-4),
        case("32 rows of 32", (32, 32), atol=1e-4),
        case("20 rows of 27", (20, 27), atol=1e-4),
        hints=(
            "The product needs the tile twice, once lying on its side. Must it be loaded twice?",
            "`a.T` is the transposed block, without another load. `tl.dot` multiplies two blocks.",
            '`c = tl.dot(a, <...>, input_precision="ieee")`, then store with `(m[:, None] < M) & (m[None, :] < M)`',
        ),
        suspects=(Suspect("transposed-first", "This is the transpose times the tile.", lambda a: a.T @ a),),
    ),
)

MUTANTS = {
    "5.a": (
        Mutant("forgets b", (("tl.sum(a * b", "tl.sum(a"),), "sum-of-one"),
        Mutant("no identity", ((", other=0.0", ""),), "missing-other"),
    ),
    "5.b": (
        Mutant(
            "store without a mask", ((", c, mask=(m[:, None] < M) & (m[None, :] < M))", ", c)"),), "missing-store-mask"
        ),
        Mutant("only rows masked", ((" & (m[None, :] < M))", ")"),), "mask-too-wide"),
    ),
}
