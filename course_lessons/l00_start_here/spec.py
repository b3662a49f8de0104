"""The exercises of lesson 00: what is asked, how it is checked, what the hints say."""

import torch

from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lessons.l00_start_here import reference as own

_EXACT = "one operation, rounded once: the result is exact"


def _vector(*shape: int, dtype: torch.dtype = torch.float32):
    return lambda generator: (torch.randn(shape, generator=generator).to(dtype),)


def _vector_and(shape: int | tuple[int, ...], *numbers: float):
    return lambda generator: (torch.randn(shape, generator=generator), *numbers)


def _two_vectors(*shape: int):
    return lambda generator: (torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))


def _large(*numbers: float, tensors: int = 1) -> Case:
    """More elements than any one block may have."""

    def make(generator: torch.Generator) -> tuple:
        return (*(torch.randn(2**20 + 77, generator=generator) for _ in range(tensors)), *numbers)

    return Case("over a million elements", make, atol=0, rtol=0, why=_EXACT)


EXERCISES = (
    Exercise(
        number="0.1",
        title="Store the result",
        stars=1,
        minutes=3,
        entry="double",
        reference=own.double,
        cases=(
            Case("one full block", _vector(128), atol=0, rtol=0, why=_EXACT, again=True),
            Case("several blocks", _vector(512), atol=0, rtol=0, why=_EXACT),
            Case("size not a multiple of the block", _vector(300), atol=0, rtol=0, why=_EXACT),
            Case("one element", _vector(1), atol=0, rtol=0, why=_EXACT),
            Case("float16", _vector(200, dtype=torch.float16), atol=0, rtol=0, why=_EXACT),
            Case("two dimensions", _vector(9, 67), atol=0, rtol=0, why=_EXACT),
            Case("20,037 elements", _vector(20_037), atol=0, rtol=0, why=_EXACT),
        ),
        large=_large(),
        hints=(
            "Which function is the counterpart of `tl.load`, and what must it be told besides the addresses?",
            "`tl.store` takes addresses, values and a mask. Addresses and mask are those of the load, with `y_ptr`.",
            "`tl.store(<addresses in y>, <two times x>, mask=<the same mask>)`",
        ),
    ),
    Exercise(
        number="0.2",
        title="Read the report, repair the launch",
        stars=1,
        minutes=5,
        entry="shift",
        reference=own.shift,
        kind="repair",
        cases=(
            Case("one full block", _vector_and(128, 1.5), atol=0, rtol=0, why=_EXACT, again=True),
            Case("several blocks", _vector_and(640, 3.0), atol=0, rtol=0, why=_EXACT),
            Case("size not a multiple of the block", _vector_and(200, -2.0), atol=0, rtol=0, why=_EXACT),
            Case("fewer elements than a block", _vector_and(60, 0.25), atol=0, rtol=0, why=_EXACT),
            Case("two dimensions", _vector_and((5, 77), -0.5), atol=0, rtol=0, why=_EXACT),
            Case("20,037 elements", _vector_and(20_037, 0.5), atol=0, rtol=0, why=_EXACT),
        ),
        large=_large(0.75),
        hints=(
            "Which elements are wrong, the first ones or the last ones? Who should have written them?",
            "Count the programs for 200 elements in blocks of 128. How many do you need, how many does the grid start?",
            "Round up instead of down: `triton.cdiv(<elements>, <block>)`.",
        ),
    ),
    Exercise(
        number="0.3",
        title="Clamp",
        stars=1,
        minutes=5,
        entry="clamp",
        reference=own.clamp,
        cases=(
            Case("some elements on either side", _vector_and(300, -0.5, 0.5), atol=0, rtol=0, why=_EXACT),
            Case("nothing to limit", _vector_and(128, -100.0, 100.0), atol=0, rtol=0, why=_EXACT),
            Case("everything above the range", _vector_and(129, -9.0, -8.0), atol=0, rtol=0, why=_EXACT),
            Case("everything below the range", _vector_and(64, 8.0, 9.0), atol=0, rtol=0, why=_EXACT),
            Case("two dimensions", _vector_and((3, 111), -1.5, 0.25), atol=0, rtol=0, why=_EXACT, again=True),
            Case("20,037 elements", _vector_and(20_037, -0.75, 0.5), atol=0, rtol=0, why=_EXACT),
        ),
        large=_large(-0.5, 0.5),
        hints=(
            "Python's `min` and `max` compare two numbers. What works on a whole block, lane by lane?",
            "`tl.maximum(a, b)` and `tl.minimum(a, b)` take the larger or smaller of each pair of elements.",
            "First raise to `lo`, then lower to `hi`: `y = tl.minimum(<...>, hi)`. Then store `y`.",
        ),
        suspects=(
            Suspect(
                "only-lower-limit",
                "Elements above `hi` came out unchanged: the upper limit is missing.",
                lambda x, lo, hi: x.clamp(min=lo),
            ),
            Suspect(
                "only-upper-limit",
                "Elements below `lo` came out unchanged: the lower limit is missing.",
                lambda x, lo, hi: x.clamp(max=hi),
            ),
            Suspect(
                "swapped-limits",
                "Every element became `hi`: the larger and the smaller are swapped.",
                lambda x, lo, hi: torch.full_like(x, hi),
            ),
            Suspect(
                "swapped-limits",
                "Every element became `lo`: `lo` and `hi` are swapped.",
                lambda x, lo, hi: torch.full_like(x, lo),
            ),
        ),
    ),
    Exercise(
        number="0.4",
        title="Write the launch",
        stars=1,
        minutes=7,
        entry="distance",
        reference=own.distance,
        cases=(
            Case("one full block", _two_vectors(256), atol=0, rtol=0, why=_EXACT, again=True),
            Case("size not a multiple of any block", _two_vectors(1000), atol=0, rtol=0, why=_EXACT),
            Case("one element", _two_vectors(1), atol=0, rtol=0, why=_EXACT),
            Case("two dimensions", _two_vectors(7, 83), atol=0, rtol=0, why=_EXACT),
            Case("100,003 elements", _two_vectors(100_003), atol=0, rtol=0, why=_EXACT, last=True),
        ),
        large=_large(tensors=2),
        hints=(
            "Three things come before the launch: output, number of elements, grid. Where do you get each?",
            "`torch.empty_like(x)` is the output, `x.numel()` the number of elements, the grid a tuple of one number.",
            "`distance_kernel[(triton.cdiv(<size>, <block>),)](x, y, <output>, <size>, BLOCK=<block>)`, then `return`.",
        ),
    ),
)
