"""The patients of lesson 08: cases that a repair must pass, causes to choose from, and the price of a repair.

The cases are those that the author's test lacks. None of them stands in the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from course_lab.authoring.exercise import Case, Exercise, Suspect, Tolerance
from course_lab.authoring.patient import Cause, Look, Patient, Target
from course_lessons.l08_clinic import reference

INF = float("inf")


def _randn(*shape: int, of: float = 1.0, plus: float = 0.0) -> Callable[[Generator], tuple[Tensor]]:
    return lambda g: (torch.randn(shape, generator=g) * of + plus,)


def _case(
    name: str, make: Callable[[Generator], tuple[Any, ...]], atol: float = 1e-4, rtol: float = 1e-4, again: bool = False
) -> Case:
    return Case(name, make, atol, rtol, again=again)


# ---- 8.1 variance over padded lanes --------------------------------------------------------------------------------


def _with_one_far_row(g: Generator) -> tuple[Tensor]:
    x = torch.randn((4, 100), generator=g)
    x[2] -= 3000.0
    return (x,)


def _padded_variance(x: Tensor) -> Tensor:
    idle = (1 << (x.shape[1] - 1).bit_length()) - x.shape[1]
    return reference.row_variance(x) + x.double().mean(dim=1).square() * idle / x.shape[1]


VARIANCE = Exercise(
    number="8.1",
    title="The variance of a row",
    stars=1,
    minutes=10,
    entry="row_variance",
    reference=reference.row_variance,
    kind="repair",
    cases=(
        _case("any width, any centre", _randn(4, 1100, plus=5.0), 1e-3, 1e-3, again=True),
        _case("whole blocks", _randn(3, 256, plus=-2.0), 1e-3, 1e-3),
        _case("one column", _randn(3, 1, plus=4.0), 1e-3, 1e-3),
        _case("all alike", lambda g: (torch.full((2, 3), 7.0),), 1e-3, 1e-3),
        _case("one row far away", _with_one_far_row, 1e-2, 1e-3),
    ),
    suspects=(
        Suspect(
            "padding-counted",
            "Each row is too large by a part of its squared mean. Which lanes add that part, and in which sum?",
            _padded_variance,
        ),
    ),
    hints=(
        "The symptom names two circumstances: a width, and a centre. Does your input have both?",
        "Print `x - mean` of a row of three equal numbers. How many numbers are there, and what is the last one?",
        "The lanes past the end were right for the first sum. After the subtraction they hold `-mean`. Put back what "
        "the next sum needs: `tl.where(mask, <...>, <...>)`.",
    ),
    patient=Patient(
        symptom="a variance, a norm or a count is too large, the more so the larger the mean",
        instrument="shrink the row to three equal numbers, and print the block with `tl.device_print`",
        cure="apply the mask again after each operation that makes something else of the neutral element",
        causes=(
            Cause("padded-lanes", "lanes past the end of the row take part in a sum"),
            Cause(
                "divided-by-block",
                "the sum is divided by the length of the block",
                "Both divisions are by N. And dividing by more would make the variance smaller, not larger.",
            ),
            Cause(
                "missing-other",
                "masked lanes of the load hold whatever was there",
                "The load says other=0.0, so they hold zeros, on every engine. What becomes of these zeros later?",
            ),
            Cause(
                "narrow-accumulator",
                "the numbers are added up in half precision",
                "x is float32 and so are both sums. A rounding error would not grow with the mean as this one does.",
            ),
            Cause(
                "difference-of-squares",
                "digits cancel, because two large sums are subtracted",
                "The kernel subtracts the mean before it squares: nothing large cancels.",
            ),
        ),
        price=_randn(4, 500, plus=1.0),
    ),
)

# ---- 8.2 a first block that is all -inf ----------------------------------------------------------------------------


def _masked(M: int, N: int, *spans: tuple[int, int, int], fill: float = -INF) -> Callable[[Generator], tuple[Tensor]]:
    """Normal rows; each span is (row, first column, end) of columns that do not count."""

    def make(g: Generator) -> tuple[Tensor]:
        x = torch.randn((M, N), generator=g)
        for row, first, end in spans:
            x[row, first:end] = fill
        return (x,)

    return make


def _very_low(g: Generator) -> tuple[Tensor]:
    return (torch.randn((2, 130), generator=g) - 3e6,)


def _lowest(g: Generator) -> tuple[Tensor]:
    """Two rows below anything that might stand in for -inf, the second after a block of -inf."""
    x = torch.full((2, 100), -3.4e38)
    x[1, :64] = -INF
    return (x,)


LSE = Exercise(
    number="8.2",
    title="NaN for padded prompts",
    stars=2,
    minutes=12,
    entry="row_lse",
    reference=reference.row_lse,
    kind="repair",
    cases=(
        _case("nothing masked", _randn(3, 200), again=True),
        _case("masked on the left", _masked(3, 200, (0, 0, 64), (1, 0, 130), (2, 0, 5))),
        _case("masked throughout", _masked(2, 100, (1, 0, 100))),
        _case("masked in the middle", _masked(2, 300, (0, 60, 200))),
        _case("only the last column counts", _masked(1, 193, (0, 0, 192))),
        _case("large and small scores", _randn(3, 90, of=200.0), 1e-3),
        _case("scores below -1e30", _lowest),
        Case("very low scores", _very_low, 1.0, 0.0, why="a stand-in for -inf is not far enough away"),
    ),
    suspects=(
        Suspect(
            "still-nan",
            "A row is NaN when its first block has no column that counts, and then stays so. What is subtracted there?",
            lambda x: torch.where(x[:, :64].isneginf().all(dim=1), float("nan"), reference.row_lse(x)),
        ),
        Suspect(
            "nan-covered",
            "Rows that were NaN are -inf now, and most of them have columns that count. Where does the NaN come from?",
            lambda x: torch.where(x[:, :64].isneginf().all(dim=1), -INF, reference.row_lse(x)),
        ),
    ),
    hints=(
        "How many columns must be masked until it fails? Try one more and one less than that.",
        "Put `tl.device_print` into the loop, with one row and two blocks. In which turn does the first NaN appear?",
        "While nothing was seen, `new_top` is -inf. Subtract something else then: "
        "`centre = tl.where(new_top == -float('inf'), <...>, new_top)`.",
    ),
    patient=Patient(
        symptom="NaN in whole rows whose first columns are masked",
        instrument="find the length at which it begins, then `tl.device_print` in the loop",
        cure="subtract 0 in place of the maximum as long as the maximum is -inf",
        causes=(
            Cause("inf-minus-inf", "minus infinity is subtracted from minus infinity"),
            Cause(
                "missing-other",
                "columns past the end hold whatever was there",
                "The load says other=-inf, and a row without padding is right in every width.",
            ),
            Cause(
                "log-of-zero",
                "the logarithm of 0 is taken",
                "The logarithm of 0 is -inf, which is the right result for a row of nothing. It is no NaN.",
            ),
            Cause(
                "sum-not-rescaled",
                "the sum so far is not brought to the new maximum",
                "It is: total * exp(top - new_top). Rows whose maximum comes late would be wrong, and not NaN.",
            ),
            Cause(
                "exp-overflow",
                "an exponential grows beyond float32",
                "No argument of exp is above 0. Large scores give the right result; try them.",
            ),
        ),
        price=_masked(2, 200, (0, 0, 64)),
    ),
)

# ---- 8.3 slot -1 ---------------------------------------------------------------------------------------------------


def _slots(S: int, width: int, *slots: int, dtype: torch.dtype = torch.float32):
    def make(g: Generator) -> tuple[Tensor, ...]:
        k, cache = (torch.randn((rows, width), generator=g).to(dtype) for rows in (len(slots), S))
        return k, cache, torch.tensor(slots)

    return make


def _refused_slots(k: Tensor, cache: Tensor, slots: Tensor) -> str:
    used = slots[slots >= 0]
    for wrong, why in (
        (k.shape[1] != cache.shape[1], "k and cache must have rows of one width"),
        (k.dtype != cache.dtype, "k and cache must have one dtype"),
        (len(slots) != len(k), "there must be one slot for each row of k"),
        (bool((slots < -1).any()), "a slot is -1 or a row of the cache, and none is below -1"),
        (bool((slots >= len(cache)).any()), "a slot lies past the end of the cache, which the statement rules out"),
        (len(used.unique()) < len(used), "two tokens have the same slot, which the statement rules out"),
    ):
        if wrong:
            return why
    return ""


def _padding_in(place: int) -> Callable[..., Tensor]:
    """The cache afterwards, when padding tokens go to this row of it."""

    def formula(k: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
        after = cache.clone()
        for t, slot in enumerate(slots.tolist()):
            after[slot if slot >= 0 else place] = k[t]
        return after

    return formula


def _without_slot_zero(k: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
    after = cache.clone()
    after[slots[slots > 0]] = k[slots > 0]
    return after


EXACT = {"atol": 0.0, "rtol": 0.0}

APPEND = Exercise(
    number="8.3",
    title="Another model's weights",
    stars=1,
    minutes=10,
    entry="append",
    reference=reference.append,
    kind="repair",
    inplace=(1,),
    cases=(
        _case("padding among the tokens", _slots(8, 48, 5, -1, 0, -1, 7), **EXACT),
        _case("padding first", _slots(8, 64, -1, 3), **EXACT),
        _case("more padding than tokens", _slots(4, 16, -1, 3, -1, -1, -1), **EXACT),
        _case("no padding, wide rows", _slots(6, 1100, 5, 4, 3, 2, 1, 0), **EXACT, again=True),
        _case("float16", _slots(8, 48, -1, 2, 6, dtype=torch.float16), **EXACT),
    ),
    suspects=(
        Suspect(
            "padding-in-row-zero",
            "The last padding token stands in row 0 of the cache now. It should stand nowhere.",
            _padding_in(0),
        ),
        Suspect(
            "padding-in-last-row",
            "The last padding token stands in the last row of the cache now. It should stand nowhere.",
            _padding_in(-1),
        ),
        Suspect(
            "slot-zero-left-out", "Slot 0 is a place like any other, and nothing was stored there.", _without_slot_zero
        ),
    ),
    hints=(
        "What do the batches have that fail, and the author's test has not?",
        "Compute the address by hand for a token whose slot is -1. Whose memory is that? `trace()` says it too.",
        "One comparison switches all lanes of such a program off: `mask=mask & (<...>)`.",
    ),
    patient=Patient(
        symptom="memory of somebody else changes; the kernel's own results are right",
        instrument="the guard of the interpreter, or an illegal access on the simulator",
        cure="mask the access by whether the slot exists",
        causes=(
            Cause("padding-as-address", "a number that means no place was used as a place"),
            Cause(
                "missing-store-mask",
                "lanes past the end of a row store into the next",
                "The store has a mask, and rows of any width are right as long as each token has a slot.",
            ),
            Cause(
                "int32-offset",
                "the offset is too large for 32 bits",
                "The slots are int64, and the caches that fail are small.",
            ),
            Cause(
                "two-programs-one-slot",
                "two programs store to the same row",
                "No two tokens share a slot, except -1: and the row that -1 leads to is not in the cache at all.",
            ),
        ),
        price=_slots(16, 192, 3, -1, 0, 9, 12, 15),
        refuse=_refused_slots,
        dtypes=(torch.float32, torch.float16),
    ),
)

# ---- 8.4 in place between waves ------------------------------------------------------------------------------------


def _rotated(M: int, D: int) -> Callable[[Generator], tuple[Tensor, ...]]:
    def make(g: Generator) -> tuple[Tensor, ...]:
        angle = 3.0 * torch.rand((M, D // 2), generator=g)
        return torch.randn((M, D), generator=g), angle.cos(), angle.sin()

    return make


def _refused_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> str:
    D = x.shape[1]
    if D < 2 or D & (D - 1) or D > 1024:
        return f"D is {D}, and the statement has a power of two from 2 to 1024"
    half = (len(x), D // 2)
    if tuple(cos.shape) != half or tuple(sin.shape) != half:
        return f"cos and sin must have the shape {half}"
    return "the tables hold infinities" if not (cos.isfinite().all() and sin.isfinite().all()) else ""


def _with_new_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.double().chunk(2, dim=1)
    first = a * cos - b * sin
    return torch.cat([first, b * cos + first * sin], dim=1).float()


ROTATE = Exercise(
    number="8.4",
    title="Nonsense, and not always the same",
    stars=3,
    minutes=15,
    entry="rotate",
    reference=reference.rotate,
    kind="repair",
    inplace=(0,),
    cases=(
        _case("heads of 128", _rotated(3, 128), 1e-5, 1e-5),
        _case("heads of 256", _rotated(2, 256), 1e-5, 1e-5),
        _case("heads of 64", _rotated(4, 64), 1e-5, 1e-5, again=True),
        _case("one pair", _rotated(3, 2), 1e-5, 1e-5),
        _case("the longest", _rotated(1, 1024), 1e-5, 1e-5),
    ),
    suspects=(
        Suspect(
            "turned-with-new-half",
            "The second half is turned with the *new* first half. What must be read before anything is written?",
            _with_new_half,
        ),
    ),
    hints=(
        "What runs by itself inside a program? How many lanes has one of these, and how many elements has a row?",
        "For D = 128: which lane loads element 64 as `mine`, which as `other`, and are both in one wave? "
        "`p.waves_apart(*arguments)` runs it with one wave after the other.",
        "Give both elements of a pair to one lane: `i = tl.arange(0, D // 2)`, load `a` and `b`, then store both.",
    ),
    time_limit=15.0,
    patient=Patient(
        symptom="right in the interpreter, on a GPU wrong in a way that changes from run to run",
        instrument="the simulator with its waves out of step",
        cure="let one lane own all that it reads and writes: load everything, then store",
        causes=(
            Cause(
                "partner-of-another-wave", "an element is read by a lane of one wave and overwritten by another wave"
            ),
            Cause(
                "programs-share-a-row",
                "two programs touch the same row",
                "Each program has a row of its own, and takes all of its offsets from it. The trace shows no overlap.",
            ),
            Cause(
                "stored-before-loaded",
                "the store stands before a load that still needs the old number",
                "In each lane both loads come before the store. That is why the interpreter is right.",
            ),
            Cause(
                "wrong-partner",
                "the partner of an element is computed wrongly",
                "Then the interpreter would be wrong too, in every run and for every D.",
            ),
            Cause(
                "too-many-warps",
                "4 warps are more than a workgroup may have",
                "4 waves of 64 lanes are 256 threads, and 1024 are allowed.",
            ),
        ),
        price=_rotated(4, 128),
        looks=(Look("gfx942", "forwards"), Look("gfx942", "backwards")),
        refuse=_refused_rotation,
    ),
)

# ---- 8.5 too many threads ------------------------------------------------------------------------------------------


def _long_rows(N: int) -> tuple[Tensor]:
    return (torch.randn((1, N), generator=torch.Generator().manual_seed(0)),)


def _largest_last(M: int, N: int) -> Callable[[Generator], tuple[Tensor]]:
    def make(g: Generator) -> tuple[Tensor]:
        x = torch.randn((M, N), generator=g)
        x[:, -1] = -1e4
        return (x,)

    return make


AMAX = Exercise(
    number="8.5",
    title="Invalid argument",
    stars=1,
    minutes=8,
    entry="row_amax",
    reference=reference.row_amax,
    kind="repair",
    cases=(
        _case("the largest in the last column, 40,000", _largest_last(1, 40_000), **EXACT),
        _case("the largest in the last column, 65,536", _largest_last(1, 65_536), **EXACT),
        _case("short rows", _largest_last(3, 100), **EXACT, again=True),
        _case("numbers below 1", _randn(3, 33, of=0.01), **EXACT),
        _case("one column", _randn(4, 1), **EXACT),
    ),
    suspects=(
        Suspect(
            "row-cut-short",
            "The end of long rows is left out. The launch goes through now, and the result is another.",
            lambda x: x[:, :16384].abs().amax(dim=1),
        ),
    ),
    hints=(
        "The compiler accepts it, the launch does not. What does a launch say that a kernel does not?",
        "How many lanes has a wave on an MI300X, how many on a Radeon, and how many threads may a workgroup have? "
        "`amd_report(kernel, ..., num_warps=...)` knows.",
        "`num_warps * lanes <= 1024`: the largest `num_warps` that every target takes is <...>.",
    ),
    patient=Patient(
        symptom="a launch fails with `invalid argument`, on some cards and for some sizes",
        instrument="`amd_report` with the arguments of the launch",
        cure="num_warps of at most 16 on wave64",
        causes=(
            Cause("too-many-threads", "the workgroup has more than 1024 threads"),
            Cause(
                "block-not-a-power",
                "the block is no power of two",
                "next_power_of_2 makes one of every length, and Triton would refuse it while compiling.",
            ),
            Cause(
                "too-much-lds",
                "the workgroup needs more LDS than there is",
                "A row's maximum exchanges a few numbers between waves: the report shows how little LDS that takes.",
            ),
            Cause(
                "wrong-dtype",
                "an argument has a dtype that the kernel does not take",
                "The same dtypes work for short rows.",
            ),
        ),
        price=_randn(1, 40_000),
        target=Target(_long_rows, 65_536, (("gfx942", 40_000), ("gfx942", 65_536), ("gfx1100", 40_000))),
    ),
)

# ---- 8.6 a block that spills ---------------------------------------------------------------------------------------

SCALE = Exercise(
    number="8.6",
    title="Slow on one card",
    stars=2,
    minutes=12,
    entry="scale_rows",
    reference=reference.scale_rows,
    kind="repair",
    cases=(
        _case("long rows", _randn(1, 40_000)),
        _case("very long rows", _randn(1, 65_536, of=3.0)),
        _case("short rows of small numbers", _randn(3, 100, of=1e-3), again=True),
        _case("one column more than a block", _randn(2, 8193)),
        _case("one column", _randn(4, 1)),
        _case("zeros", lambda g: (torch.zeros((2, 10)),)),
    ),
    suspects=(
        Suspect(
            "scaled-by-blocks",
            "Each block is scaled by its own sum. The sum of the whole row must be known before anything is stored.",
            lambda x: torch.cat([reference.scale_rows(part) for part in x.split(8192, dim=1)], dim=1),
        ),
    ),
    hints=(
        "No number is wrong, so look at the machine code: what does `amd_report` say for short and for long rows, on "
        "gfx942 and on gfx1100?",
        "How many elements of the row does a lane hold? They must all stay until the sum is known. Which two numbers "
        "of the launch decide that?",
        "Walk over the row twice with a block of fixed length: first add up the squares, then load again, scale and "
        "store. `for start in range(0, N, BLOCK): <...>`",
    ),
    patient=Patient(
        symptom="right, and much slower than its bytes, for long rows or on some cards only",
        instrument="`amd_report`: the line on spills",
        cure="a block of fixed length in a loop, or more warps",
        causes=(
            Cause("block-too-large", "a lane has to hold more numbers than it has registers"),
            Cause(
                "narrow-loads",
                "each load fetches 4 bytes where 16 would do",
                "The report shows the width of the loads. For rows of 65,536 they are as wide as can be.",
            ),
            Cause(
                "too-much-lds",
                "so much LDS is used that few workgroups run at a time",
                "The report shows a few bytes of LDS, for the sum.",
            ),
            Cause(
                "row-read-twice",
                "the row is read from memory twice",
                "It is read once, and that is the trouble: it has to be kept somewhere until the sum is known.",
            ),
        ),
        price=_randn(1, 40_000),
        factor=2.5,
        target=Target(
            _long_rows,
            65_536,
            (("gfx1100", 20_000), ("gfx1100", 65_536), ("gfx942", 65_536)),
            spills=True,
        ),
    ),
)

# ---- 8.7 a zero row in fp8 -----------------------------------------------------------------------------------------


def _zero_rows(M: int, N: int, *rows: int) -> Callable[[Generator], tuple[Tensor]]:
    def make(g: Generator) -> tuple[Tensor]:
        x = torch.randn((M, N), generator=g)
        x[list(rows)] = 0.0
        return (x,)

    return make


FP8_TOLERANCES = (Tolerance(0.0, 0.13), Tolerance(1e-16, 1e-5))  # one step of e4m3 where a rounding is a tie


def _fp8(name: str, make: Callable[[Generator], tuple[Tensor]], again: bool = False) -> Case:
    return Case(name, make, 0.0, 0.13, tolerances=FP8_TOLERANCES, again=again)


def _covered(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(dim=1) / reference.FP8_MAX
    return (x / scale[:, None]).nan_to_num(0.0).to(torch.float8_e4m3fn), scale


def _only_zeros_covered(x: Tensor) -> tuple[Tensor, Tensor]:
    amax = x.abs().amax(dim=1)
    scale = torch.where(amax == 0.0, 1e-10, amax) / reference.FP8_MAX
    return (x / scale[:, None]).clamp(-reference.FP8_MAX, reference.FP8_MAX).to(torch.float8_e4m3fn), scale


QUANTISE = Exercise(
    number="8.7",
    title="One word over and over",
    stars=1,
    minutes=8,
    entry="quantise",
    reference=reference.quantise,
    kind="repair",
    cases=(
        _fp8("a row of zeros", _zero_rows(4, 100, 1)),
        _fp8("nothing but zeros", _zero_rows(2, 64, 0, 1)),
        _fp8("no zeros", _zero_rows(3, 300), again=True),
        _fp8("tiny numbers", _randn(3, 64, of=1e-13)),
        _fp8("large numbers", _randn(3, 64, of=1e20)),
    ),
    suspects=(
        Suspect(
            "only-zeros-covered",
            "Rows of zeros are right now, and tiny ones are not: a magnitude counts as at least 1e-10 wherever it is "
            "smaller.",
            _only_zeros_covered,
        ),
        Suspect(
            "nan-covered",
            "q is right now, and the scale of a zero row is still 0: whoever divides by it has the NaN again.",
            _covered,
        ),
    ),
    hints=(
        "Half of the columns in the author's test are zeros. What has your token that those rows have not?",
        "What is the scale of a row of zeros, and what is the first element divided by it?",
        "A magnitude of at least 1e-10: `amax = tl.maximum(<...>, <...>)`.",
    ),
    patient=Patient(
        symptom="NaN in rows that are all zero",
        instrument="the report's first wrong element; then a row of zeros by hand",
        cure="a floor under the magnitude, before it becomes a scale",
        causes=(
            Cause("zero-by-zero", "0 is divided by 0"),
            Cause(
                "not-clamped",
                "a number above 448 is stored in 8 bits",
                "It is clamped, and no quotient is above 448 by more than a rounding.",
            ),
            Cause(
                "padded-lanes",
                "lanes past the end take part in the maximum",
                "They hold 0, which is below every magnitude. A row of any width is right, unless all of it is 0.",
            ),
            Cause(
                "wrong-flavour",
                "the GPU has another 8-bit format",
                "Then every row would be wrong on one card, and right on another.",
            ),
        ),
        price=_zero_rows(4, 100, 1),
    ),
)

# ---- 8.8 heads without a mask --------------------------------------------------------------------------------------


def _heads(T: int, H: int, D: int) -> Callable[[Generator], tuple[Tensor, ...]]:
    return lambda g: (torch.randn((T, H, D), generator=g), torch.randn((H,), generator=g))


def _refused_heads(x: Tensor, gain: Tensor) -> str:
    D = x.shape[2]
    if D & (D - 1):
        return f"D is {D}, and the statement has a power of two"
    return f"gain must have {x.shape[1]} numbers, one a head" if len(gain) != x.shape[1] else ""


HEADS = Exercise(
    number="8.8",
    title="Forty heads",
    stars=1,
    minutes=8,
    entry="scale_heads",
    reference=reference.scale_heads,
    kind="repair",
    cases=(
        _case("40 heads", _heads(3, 40, 16), again=True),
        _case("9 heads, as in SmolLM2", _heads(4, 9, 64)),
        _case("32 heads", _heads(2, 32, 16)),
        _case("one head", _heads(3, 1, 8)),
        _case("71 heads", _heads(1, 71, 4)),
    ),
    hints=(
        "What do 8, 16 and 32 have in common?",
        "How many heads has the block for 40 heads, and whose are the others? `trace()` draws it.",
        "`mask = h < H`, and with it all three accesses; `mask[:, None]` fits the two-dimensional ones.",
    ),
    patient=Patient(
        symptom="wrong, or a memory fault, where a count is no power of two",
        instrument="the guard; the picture of programs and elements",
        cure="a mask for each axis whose length is not the block's",
        causes=(
            Cause("heads-not-masked", "the block has more heads than there are, and all of them store"),
            Cause(
                "int32-offset",
                "the offset is too large for 32 bits",
                "The token is int64, and two tokens of 40 heads are enough to show the fault.",
            ),
            Cause(
                "wrong-stride",
                "the distance from one token to the next is wrong",
                "It is H * D, as it should be: a model with 32 heads is right for every token.",
            ),
            Cause(
                "grid-too-short",
                "the last token has no program",
                "The grid has one program for each token, and the last one is the one that writes past the end.",
            ),
        ),
        price=_heads(4, 40, 16),
        refuse=_refused_heads,
    ),
)

# ---- 8.9 a product in int32 ----------------------------------------------------------------------------------------


def _shard(M: int, N: int, first_row: int) -> Callable[[Generator], tuple[Tensor, int]]:
    return lambda g: (torch.randn((M, N), generator=g), first_row)


def _low_shard(g: Generator) -> tuple[Tensor, int]:
    x = torch.randn((4, 100), generator=g) - 20_000.0
    x[1::2, -1] += 100.0
    return x, 7


def _equal_largest(g: Generator) -> tuple[Tensor, int]:
    """The largest number stands at several places of a row, which are in no block of fewer columns together."""
    x = torch.rand((2, 12_000), generator=g)
    x[:, 700::5600] = 2.0
    return x, 200_000


def _last_of_equals(x: Tensor, first_row: int) -> Tensor:
    return (first_row + torch.arange(len(x)) + 1) * x.shape[1] - 1 - x.flip(1).argmax(dim=1)


def _refused_shard(x: Tensor, first_row: int) -> str:
    return "" if 0 <= first_row <= 1_000_000 else f"first_row is {first_row:,}, and the statement ends at 1,000,000"


def _wrapped(x: Tensor, first_row: int) -> Tensor:
    return reference.flat_argmax(x, first_row).to(torch.int32).to(torch.int64)


ARGMAX = Exercise(
    number="8.9",
    title="The first 65,535 rows",
    stars=2,
    minutes=10,
    entry="flat_argmax",
    reference=reference.flat_argmax,
    kind="repair",
    cases=(
        _case("far down", _shard(3, 4096, 900_000), **EXACT),
        _case("across the border", _shard(8, 32_768, 65_532), **EXACT),
        _case("the first rows", _shard(4, 100, 0), **EXACT, again=True),
        _case("all far below 0, the largest last", _low_shard, **EXACT),
        _case("past the second border", _shard(2, 16_384, 300_000), **EXACT),
        _case("an odd width, far down", _shard(3, 4099, 900_001), **EXACT),
        _case("all but the first row", _shard(5, 100, 1), **EXACT),
        _case("equal numbers: the first of them", _equal_largest, **EXACT),
    ),
    suspects=(
        Suspect(
            "last-of-equals",
            "Of equal numbers the last one was taken. The statement asks for the first.",
            _last_of_equals,
        ),
        Suspect(
            "still-wrapped",
            "Past 2^31 the index is too small by 2^32: it was made wide after the multiplication.",
            _wrapped,
        ),
        Suspect(
            "still-wrapped",
            "The index is too small by a multiple of 2^32: it was made wide after the multiplication.",
            lambda x, first_row: reference.flat_argmax(x, first_row) % 2**32,
        ),
    ),
    hints=(
        "What is the index of the last row that worked, as a power of two?",
        "In how many bits is `first_row + row` multiplied by `N`? A wrong element tells how it came about.",
        "Make one factor wide before it is multiplied: `(first_row + row).to(<...>) * N`.",
    ),
    patient=Patient(
        symptom="an index or an offset turns negative, or a fault two gigabytes away, for large sizes only",
        instrument="the report's first wrong element: expected minus got is a power of two",
        cure="make a row's number int64 before it is multiplied",
        causes=(
            Cause("int32-product", "a product is too large for 32 bits"),
            Cause(
                "ties",
                "two columns hold the same largest number",
                "Ties change the column, and the index then differs by less than N.",
            ),
            Cause(
                "padded-lanes",
                "lanes past the end win the maximum",
                "They hold -inf, and rows of every width are right near the beginning.",
            ),
            Cause(
                "float-index",
                "the index went through a float, which has too few digits",
                "No float is in it. It would be off by a little, and never negative.",
            ),
        ),
        price=_shard(4, 1000, 100),
        refuse=_refused_shard,
    ),
)

# ---- 8.10 too much LDS ---------------------------------------------------------------------------------------------


def _square(N: int) -> Callable[[Generator], tuple[Tensor, Tensor]]:
    return lambda g: tuple(torch.randn((N, N), generator=g).half() for _ in range(2))


# the sizes that models have, one more, and the other cards; all but the last have one tile, and so are compiled once
_TARGETS = (
    ("gfx942", 256), ("gfx942", 512), ("gfx942", 768), ("gfx942", 1024), ("gfx950", 256), ("gfx1100", 256),
    ("gfx942", 64),
)  # fmt: skip


def _squares(N: int) -> tuple[Tensor, Tensor]:
    return _square(N)(torch.Generator().manual_seed(0))


MATMUL = Exercise(
    number="8.10",
    title="Out of resource",
    stars=2,
    minutes=10,
    entry="square_matmul",
    reference=reference.square_matmul,
    kind="repair",
    cases=(
        _case("two tiles", _square(130), 1e-2, 1e-2),
        _case("a larger tile", _square(200), 1e-2, 1e-2),
        _case("the small tile", _square(40), 1e-2, 1e-2, again=True),
        _case("one", _square(1), 1e-2, 1e-2),
    ),
    hints=(
        "Which kind of memory do AMD's documents call LDS, and Triton *shared memory*? How much of it has each card?",
        "`amd_report` on gfx942 and on gfx950. Which sizes does the launcher choose for N = 256?",
        "A stage holds a tile of a and one of b. Fewer stages, or a smaller BLOCK_K, until it fits into 65,536 bytes: "
        "`{'BLOCK': 128, 'BLOCK_K': <...>, 'num_stages': <...>}`",
    ),
    patient=Patient(
        symptom="`out of resource: shared memory`, on some cards only",
        instrument="`amd_report`: LDS against its limit",
        cure="a smaller BLOCK_K, or fewer stages",
        causes=(
            Cause("too-much-lds", "the tiles that are held at a time need more LDS than the card has"),
            Cause(
                "too-many-threads",
                "the workgroup has more than 1024 threads",
                "8 waves of 64 lanes are 512 threads.",
            ),
            Cause(
                "too-many-registers",
                "the accumulator needs more registers than there are",
                "Then it would spill, and be slow, and not be refused. The message names another resource.",
            ),
            Cause(
                "no-matrix-unit",
                "the card has no matrix instruction for float16",
                "Both have. Without one tl.dot would be slow, and not be refused.",
            ),
        ),
        price=_square(256),
        factor=2.5,
        target=Target(_squares, 1024, _TARGETS),
    ),
)

# ---- 8.11 a narrow accumulator -------------------------------------------------------------------------------------


def _bf16(make: Callable[[Generator], Tensor]) -> Callable[[Generator], tuple[Tensor]]:
    return lambda g: (make(g).to(torch.bfloat16),)


def _largest_at_the_end(g: Generator) -> Tensor:
    x = torch.rand((2, 2049), generator=g)
    x[:, -1] = 1000.0
    return x


def _large_then_small(g: Generator) -> tuple[Tensor]:
    """Each lane of a block up to 32,768 meets one large number, and then small ones that a narrow sum loses."""
    x = torch.full((1, 262_144), 0.75)
    x[:, :32_768] = 256.0
    return (x.to(torch.bfloat16),)


ROW_SUM = Exercise(
    number="8.11",
    title="A curve that goes flat",
    stars=2,
    minutes=10,
    entry="row_sum",
    reference=reference.row_sum,
    kind="repair",
    cases=(
        _case("a million ones", _bf16(lambda g: torch.ones((1, 1_000_000))), 0.0, 1e-2),
        _case("numbers from 0 to 1", _bf16(lambda g: torch.rand((2, 200_000), generator=g)), 0.0, 1e-2),
        _case("one block, not full", _bf16(lambda g: torch.rand((3, 100), generator=g)), 0.0, 1e-2, again=True),
        _case("one more than a block, the largest last", _bf16(_largest_at_the_end), 0.0, 1e-2),
        _case("large numbers", _bf16(lambda g: 4000 * torch.rand((1, 100_000), generator=g)), 0.0, 1e-2),
        _case("large, then small", _large_then_small, 0.0, 1e-2),
    ),
    hints=(
        "What is the plainest input on which *goes flat* could be seen? How long must it be?",
        "A lane adds up every 2048th number. At which sum does adding 1 change nothing in bfloat16?",
        "The accumulator in float32, and each term too: `total += tl.load(<...>).to(<...>)`.",
    ),
    time_limit=20.0,
    patient=Patient(
        symptom="a long sum is too small, and stops growing",
        instrument="ones as input: the result is a power of two times the lanes",
        cure="accumulate in float32",
        causes=(
            Cause("narrow-accumulator", "the numbers are added up in bfloat16"),
            Cause(
                "int32-offset",
                "the offset is too large for 32 bits",
                "A million columns are far below 2^31, and the row is int64.",
            ),
            Cause(
                "blocks-left-out",
                "the loop ends too early",
                "The loop runs to N. Numbers from the end are added, as long as the sum is small.",
            ),
            Cause(
                "narrow-input",
                "bfloat16 cannot hold the numbers themselves",
                "Ones are held exactly, and their sum is wrong all the same.",
            ),
        ),
        price=_bf16(lambda g: torch.rand((1, 50_000), generator=g)),
        factor=3.0,
    ),
)

# ---- 8.12 no maximum -----------------------------------------------------------------------------------------------


def _refused_scores(x: Tensor) -> str:
    return "" if x.isfinite().all() else "it holds infinities, and the statement has finite numbers"


SOFTMAX = Exercise(
    number="8.12",
    title="A lower temperature",
    stars=1,
    minutes=8,
    entry="softmax",
    reference=reference.softmax,
    kind="repair",
    cases=(
        _case("large scores", _randn(3, 30, of=100.0)),
        _case("very low scores", _randn(3, 30, plus=-20_000.0)),
        _case("very large scores", _randn(2, 100, plus=3000.0)),
        _case("plain scores", _randn(3, 1100), again=True),
        _case("one column", _randn(3, 1, of=1000.0)),
    ),
    suspects=(
        Suspect(
            "clamped-scores",
            "Scores above a limit all count the same now. A softmax depends on their differences alone.",
            lambda x: torch.softmax(x.double().clamp(max=80.0), dim=1),
        ),
    ),
    hints=(
        "What does a lower temperature do to the scores?",
        "What is the largest number of float32, and for which x is $e^x$ above it?",
        "A softmax stays the same when all scores are lowered by the same number: `tl.exp(x - <...>)`.",
    ),
    patient=Patient(
        symptom="NaN or 0 in rows with large scores",
        instrument="scale the author's input up and down until it fails",
        cure="subtract the row's maximum before the exponential",
        causes=(
            Cause("no-maximum", "an exponential grows beyond float32"),
            Cause(
                "padded-lanes",
                "lanes past the end take part in the sum",
                "They hold -inf, and its exponential is 0: rows of every width are right.",
            ),
            Cause(
                "inf-minus-inf",
                "minus infinity is subtracted from minus infinity",
                "Nothing is subtracted here at all.",
            ),
            Cause(
                "narrow-accumulator",
                "the sum is kept in half precision",
                "It is float32, and a rounding error is no NaN.",
            ),
        ),
        price=_randn(4, 500),
        refuse=_refused_scores,
    ),
)

EXERCISES = (
    VARIANCE, LSE, APPEND, ROTATE, AMAX, SCALE, QUANTISE, HEADS, ARGMAX, MATMUL, ROW_SUM, SOFTMAX,
)  # fmt: skip
