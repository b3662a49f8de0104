"""The exercises of lesson 01: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import in_float32
from course_lessons.l01_vector_add import reference as own
from course_lessons.makers import FAR, widened

# A copy, and one addition that is rounded once, have exactly one right result.
_MILLIONS = "over a million elements"
_EXACT = {"atol": 0.0, "rtol": 0.0, "why": "one rounding at most: there is exactly one right result"}
# A product and a sum may be rounded together (fused multiply-add) or one after the other.
_ONCE = in_float32(2, size=4.0)

Make = Callable[[Generator], tuple]


# ---- inputs --------------------------------------------------------------------------------------------------------


def _random(*shape: int, generator: Generator, dtype=torch.float32) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def _two(*shape: int, dtype=torch.float32) -> Make:
    return lambda g: (_random(*shape, generator=g, dtype=dtype), _random(*shape, generator=g, dtype=dtype))


def _scaled(*shape: int, alpha: float, dtype=torch.float32) -> Make:
    return lambda g: (*_two(*shape, dtype=dtype)(g), alpha)


def _some_zeros(generator: Generator) -> tuple:
    """Every third element of x is 0, so is every fifth of y."""
    x, y, alpha = _scaled(300, alpha=0.3)(generator)
    x[::3], y[::5] = 0.0, 0.0
    return x, y, alpha


def _two_with_zeros(generator: Generator) -> tuple:
    return _some_zeros(generator)[:2]


def _cancelling(generator: Generator) -> tuple:
    """bfloat16 vectors with y close to -alpha x, so that the lost bits of a rounded product are all there is."""
    x = _random(700, generator=generator)
    y = -0.3 * x + 0.002 * _random(700, generator=generator)
    return x.bfloat16(), y.bfloat16(), 0.3


def _view(m: int, n: int, of: Callable[[Tensor], Tensor], dtype=torch.float32) -> Make:
    """A view of a fresh (m, n) matrix."""
    return lambda g: (of(_random(m, n, generator=g, dtype=dtype)),)


def _table(rows: int, n: int, index: list[int] | int, *, dtype=torch.float32, index_dtype=torch.int64, gap=0) -> Make:
    """A table of `rows` rows, n wide and n + gap apart, and an index: given, or so many random ones."""

    def make(generator: Generator) -> tuple:
        x = _random(rows, n + gap, generator=generator, dtype=dtype)[:, :n]
        chosen = torch.randint(rows, (index,), generator=generator) if isinstance(index, int) else torch.tensor(index)
        return x, chosen.to(index_dtype)

    return make


def _rows(t: int, n: int, *, dtype=torch.float32, gap_x=0, gap_r=0) -> Make:
    """x, residual and bias; the rows of x lie n + gap_x apart, those of the residual n + gap_r."""

    def make(g: Generator) -> tuple:
        x = _random(t, n + gap_x, generator=g, dtype=dtype)[:, :n]
        residual = _random(t, n + gap_r, generator=g, dtype=dtype)[:, :n]
        return x, residual, _random(n, generator=g, dtype=dtype)

    return make


def _far_apart(of: Callable[[Tensor], Tensor], dtype=torch.bfloat16) -> Make:
    """A view of a (3, 40) matrix whose rows lie 2^30 elements apart: the last one begins at element 2^31."""
    return lambda g: (of(spread(_random(3, 40, generator=g, dtype=dtype), (FAR, 1))),)


def _far_table(g: Generator) -> tuple:
    """The same of a table, with an index in 32 bits."""
    return spread(_random(3, 40, generator=g), (FAR, 1)), torch.tensor([2, 0, 1, 2], dtype=torch.int32)


def _far_rows(g: Generator) -> tuple:
    x, residual, bias = _rows(3, 40, dtype=torch.bfloat16)(g)
    return spread(x, (FAR, 1)), spread(residual, (FAR + 8, 1)), bias


def _cancelling_rows(g: Generator) -> tuple:
    """The residual nearly cancels x + bias, in bfloat16."""
    x, bias = _random(6, 200, generator=g).bfloat16(), _random(200, generator=g).bfloat16()
    noise = 0.002 * _random(6, 200, generator=g)
    return x, (noise - x.float() - bias.float()).bfloat16(), bias


# ---- results of known mistakes -------------------------------------------------------------------------------------


def _in_own_dtype(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """As in a kernel that forgets .to(tl.float32): Triton takes alpha, the product and the sum to the dtype of x."""
    return torch.tensor(alpha).to(x.dtype) * x + y


def _memory(x: Tensor) -> Tensor:
    """What lies in memory from the first element of x on, for longer than anybody reads; NaN where nothing of x is."""
    memory = torch.full((2 * x.numel() + sum(n * s for n, s in zip(x.shape, x.stride())),), float("nan"), dtype=x.dtype)
    memory.as_strided(x.shape, x.stride())[: 1 if 0 in x.stride() else None] = x[: 1 if 0 in x.stride() else None]
    return memory


def _read_at(x: Tensor, offsets: Tensor) -> Tensor:
    memory = _memory(x)
    return torch.where(offsets < len(memory), memory[offsets.clamp(max=len(memory) - 1)], float("nan"))


def _read_with(stride_m: Callable[[Tensor], int], stride_n: Callable[[Tensor], int]) -> Callable[[Tensor], Tensor]:
    """The copy that a kernel makes when it walks the memory of x with these strides."""

    def formula(x: Tensor) -> Tensor:
        m, n = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None, :]
        return _read_at(x, m * stride_m(x) + n * stride_n(x))

    return formula


def _unscaled(x: Tensor, index: Tensor) -> Tensor:
    return _read_at(x, index.long()[:, None] + torch.arange(x.shape[1])[None, :])


def _own_rows(x: Tensor, index: Tensor) -> Tensor:
    """Row i instead of row index[i]; rows that do not exist load as NaN."""
    missing = torch.full((max(len(index) - len(x), 0), x.shape[1]), float("nan"), dtype=x.dtype)
    return torch.cat([x, missing])[: len(index)]


def _scattered(x: Tensor, index: Tensor) -> Tensor:
    """Row i stored as row index[i]; what nobody wrote is NaN, and rows outside are lost."""
    y = torch.full((len(index), x.shape[1]), float("nan"), dtype=x.dtype)
    for source, target in zip(_own_rows(x, index), index.tolist(), strict=True):
        if target < len(y):
            y[target] = source
    return y


def _one_row_for_all(x: Tensor, index: Tensor) -> Tensor:
    return x[index[:1].expand(len(index))]


def _stored_with_stride_of_x(x: Tensor, index: Tensor) -> Tensor:
    """Row i of y stored as far from the start as row i of x lies; what falls outside is lost."""
    rows, n = len(index), x.shape[1]
    memory = torch.full((rows * max(x.stride(0), n) + n,), float("nan"), dtype=x.dtype)
    memory.as_strided((rows, n), (x.stride(0), 1)).copy_(x[index])
    return memory[: rows * n].view(rows, n)


def _rounded_between(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    return (x + bias) + residual


def _bias_by_rows(x: Tensor, residual: Tensor, bias: Tensor) -> Tensor:
    by_rows = torch.zeros(len(x), 1, dtype=bias.dtype)
    by_rows[: len(bias), 0] = bias[: len(x)]
    return own.bias_residual_add(x, residual, by_rows)


# ---- the exercises -------------------------------------------------------------------------------------------------

_BOTH_SCALED = "This is `alpha * (x + y)`. In the definition `alpha` belongs to `x` alone."
_WRONG_FACTOR = "This is `x + alpha * y`. Which of the two does `alpha` belong to?"
_NO_FACTOR = "This is `x + y`: `alpha` is missing."
_ROUNDED_PRODUCT = (
    "The product was rounded to bfloat16 before the addition. Widen `x` and `y` to float32 straight after the loads."
)

_SCALE_AND_ADD = Exercise(
    number="1.1",
    title="Scale and add",
    stars=1,
    minutes=5,
    entry="scale_and_add",
    reference=own.scale_and_add,
    exact=lambda x, y, alpha: (alpha * x.double() + y.double(),),
    cases=(
        Case("whole blocks", _scaled(1024, alpha=2.5), **_ONCE, again=True),
        Case("size not a multiple of the block", _scaled(1000, alpha=-0.75), **_ONCE),
        Case("one element", _scaled(1, alpha=3.0), **_ONCE),
        Case("two dimensions", _scaled(5, 576, alpha=0.1), **_ONCE),
        Case("bfloat16", _scaled(576, alpha=1.5, dtype=torch.bfloat16), **_ONCE),
        Case("17,000 elements", _scaled(17_000, alpha=-2.0), **_ONCE),
        Case("alpha is 0", _scaled(300, alpha=0.0), **_ONCE),
        Case("alpha is 1, rounded once", _scaled(300, alpha=1.0, dtype=torch.bfloat16), **_ONCE),
        Case("zeros among them", _some_zeros, **_ONCE),
        Case(
            "bfloat16, y nearly cancels alpha * x",
            _cancelling,
            **_ONCE
            | {"why": "a product rounded to bfloat16 is off by 2^-9, as much as what is left after the subtraction"},
        ),
    ),
    large=Case(_MILLIONS, _scaled(2**20 + 77, alpha=1.25), **_ONCE),
    hints=(
        "What does a lane have to know before it can store `z[i]`? Say in words where each of the numbers comes from.",
        "`tl.load(<address>, mask=mask, other=0.0)` gives a block. `.to(tl.float32)` widens it. "
        "`tl.store(<address>, <block>, mask=mask)` writes one; cast it with `.to(z_ptr.dtype.element_ty)`.",
        "`x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)`, the same for `y`, then `z = <the "
        "formula>`, then "
        "`tl.store(z_ptr + offs, <z in z's dtype>, mask=mask)`.",
    ),
    suspects=(
        Suspect("scales-both", _BOTH_SCALED, lambda x, y, a: own.scale_and_add(x, a * y.float(), a).to(x.dtype)),
        Suspect("scales-other", _WRONG_FACTOR, lambda x, y, a: own.scale_and_add(y, x, a)),
        Suspect("missing-factor", _NO_FACTOR, lambda x, y, a: x + y),
        Suspect("half-accumulation", _ROUNDED_PRODUCT, _in_own_dtype),
    ),
)

_ADD = Exercise(
    number="1.2",
    title="Add, with a tail",
    stars=1,
    minutes=10,
    entry="add",
    reference=reference.vector_add,
    cases=(
        Case("whole blocks", _two(4096), **_EXACT, again=True),
        Case("SmolLM2's residual stream, 37 tokens", _two(37, 576), **_EXACT),
        Case("one more than a power of two", _two(1025), **_EXACT),
        Case("a prime number of elements", _two(2003), **_EXACT),
        Case("one element", _two(1), **_EXACT),
        Case("bfloat16", _two(7, 83, dtype=torch.bfloat16), **_EXACT),
        Case("float16, three dimensions", _two(2, 3, 100, dtype=torch.float16), **_EXACT),
        Case("zeros among them", _two_with_zeros, **_EXACT),
    ),
    large=Case(_MILLIONS, _two(2**20 + 77), **_EXACT),
    hints=(
        "Program 3 of a grid with blocks of 1024: which elements are its own? If there are 4000 elements in all, "
        "which of "
        "its lanes must stay quiet?",
        "Offsets from `tl.program_id(0)` and `tl.arange(0, BLOCK)`; a mask from comparing them with `n`; the same "
        "mask in "
        "both loads and in the store. For the grid, `triton.cdiv` rounds up.",
        "In the kernel: `offs = <first element of the program> + tl.arange(0, BLOCK)`, `mask = offs < <...>`, two "
        "loads, "
        "one store. In `add`: `add_kernel[(triton.cdiv(x.numel(), <block>),)](x, y, z, <...>, BLOCK=<block>)`.",
    ),
    suspects=(
        Suspect("one-input-twice", "This is `x + x`. Which pointers do the two loads use?", lambda x, y: x + x),
        Suspect("one-input-twice", "This is `y + y`. Which pointers do the two loads use?", lambda x, y: y + y),
        Suspect("wrong-operation", "This is `x - y`.", lambda x, y: x - y),
    ),
)


def _copied_by_the_kernel(args: tuple, launches: tuple) -> str:
    if any(launch.given for launch in launches):
        return ""
    return "The kernel copied a copy: PyTorch had made `x` contiguous before. The kernel is to walk `x` by its strides."


_COPY = Exercise(
    number="1.3",
    title="Copy any 2-D view",
    stars=2,
    minutes=15,
    entry="copy",
    contiguous=True,
    reference=own.copy,
    demand=_copied_by_the_kernel,
    no_idle=True,
    cases=(
        Case("contiguous", _view(16, 256, lambda x: x), **_EXACT, again=True),
        Case("rows and columns not multiples of a block", _view(37, 83, lambda x: x), **_EXACT),
        Case("a slice of the columns", _view(20, 100, lambda x: x[:, 3:40]), **_EXACT),
        Case("a transposed view", _view(19, 45, lambda x: x.T), **_EXACT),
        Case("every other column", _view(9, 140, lambda x: x[:, ::2]), **_EXACT),
        Case("one row repeated, stride 0", _view(1, 65, lambda x: x.expand(6, 65)), **_EXACT),
        Case("bfloat16, a transposed slice", _view(40, 30, lambda x: x[5:38].T, torch.bfloat16), **_EXACT),
        Case("one element", _view(1, 1, lambda x: x), **_EXACT),
        Case("two long rows", _view(2, 1500, lambda x: x), **_EXACT),
        Case("600 short rows", _view(600, 3, lambda x: x), **_EXACT),
        Case("rows 2^30 elements apart", _far_apart(lambda x: x), **_EXACT),
        Case("columns 2^30 elements apart", _far_apart(lambda x: x.T), **_EXACT),
    ),
    hints=(
        "Element (m, n) of `x`: how far from the first element does it lie? And where does the same element lie in "
        "`y`?",
        "`offs_m[:, None]` is a column and `offs_n[None, :]` a row; a sum of the two is a tile. Do so for the offsets "
        "in "
        "`x`, for those in `y`, and, with `&`, for the mask. The grid needs one number for each dimension.",
        "`mask = (offs_m[:, None] < M) & (<...>)`, load from `x_ptr + offs_m[:, None] * <...> + offs_n[None, :] * "
        "<...>`, "
        "store to `y_ptr + offs_m[:, None] * <row length of y> + <...>`. The grid: "
        "`(triton.cdiv(M, <BLOCK_M>), triton.cdiv(N, <BLOCK_N>))`.",
    ),
    suspects=(
        Suspect(
            "swapped-strides",
            "The row index was multiplied by the column stride, and the other way round.",
            _read_with(lambda x: x.stride(1), lambda x: x.stride(0)),
        ),
        Suspect(
            "taken-for-contiguous",
            "`x` was read as if its rows followed each other without gaps. What do its strides say?",
            _read_with(lambda x: x.shape[1], lambda x: 1),
        ),
        Suspect(
            "column-stride-unused",
            "Neighbours in a row of `x` were taken to be neighbours in memory. Which number says how far apart they "
            "are?",
            _read_with(lambda x: x.stride(0), lambda x: 1),
        ),
    ),
)

_GATHER = Exercise(
    number="1.4",
    title="Look up the rows of a table",
    stars=2,
    minutes=10,
    entry="gather_rows",
    contiguous=True,
    reference=own.gather_rows,
    cases=(
        Case("power-of-two width", _table(10, 64, [3, 9, 0, 5, 2, 7]), **_EXACT, again=True),
        Case("SmolLM2's width, 576", _table(50, 576, 12), **_EXACT),
        Case("few rows, looked up often", _table(3, 20, [2, 2, 0, 1, 2, 0, 0, 1]), **_EXACT),
        Case("rows further apart than their width", _table(12, 100, 7, gap=13), **_EXACT),
        Case("one index, the last row", _table(30, 33, [29]), **_EXACT),
        Case("one column", _table(40, 1, 20), **_EXACT),
        Case("bfloat16 table, int32 index", _table(25, 90, 9, dtype=torch.bfloat16, index_dtype=torch.int32), **_EXACT),
        Case("wider than 1024", _table(5, 1030, 3), **_EXACT),
        Case("40,000 columns", _table(4, 40_000, [3]), **_EXACT),
        Case("a long table", _table(70_000, 8, [69_999, 0, 40_000, 300]), **_EXACT),
        Case("rows 2^30 elements apart, int32 index", _far_table, **_EXACT),
    ),
    hints=(
        "Program `i` writes row `i` of `y`. Where does it find out which row of `x` to read?",
        "`index` is a tensor like any other: `tl.load(index_ptr + i)` gives one number. Which stride turns a row "
        "number "
        "into an offset, in `x` and in `y`?",
        "`row = tl.load(index_ptr + <...>).to(tl.int64)`, then load from `x_ptr + row * <...> + cols` with a mask on "
        "`cols`, "
        "then store to `y_ptr + i * <...> + cols` with the same mask.",
    ),
    suspects=(
        Suspect("index-not-used", "Row `i` was copied to row `i`: the index was not looked up.", _own_rows),
        Suspect("scatter-not-gather", "The index chose where to write. It should choose where to read.", _scattered),
        Suspect(
            "one-index-for-all",
            "Every row is the one that `index[0]` names. Which entry of the index belongs to program `i`?",
            _one_row_for_all,
        ),
        Suspect(
            "index-not-scaled",
            "A row number was used as an offset. How many elements lie between the starts of two rows?",
            _unscaled,
        ),
        Suspect(
            "stride-of-input-in-output",
            "The rows of `y` were stored as far apart as those of `x`. How long is a row of `y`?",
            _stored_with_stride_of_x,
        ),
    ),
)

_REPAIR = Exercise(
    number="1.5",
    title="Repair a residual add",
    stars=2,
    minutes=10,
    entry="residual_add",
    reference=lambda x, residual: reference.vector_add(x, residual),
    kind="repair",
    cases=(
        Case("hidden size 1024", _two(4, 1024), **_EXACT, again=True),
        Case("SmolLM2's hidden size, 576", _two(37, 576), **_EXACT),
        Case("one token", _two(1, 576), **_EXACT),
        Case("a size just above a block", _two(25, 41), **_EXACT),
        Case("two long rows", _two(2, 3000), **_EXACT),
        Case("bfloat16", _two(5, 333, dtype=torch.bfloat16), **_EXACT),
    ),
    large=Case(_MILLIONS, _two(1821, 577), **_EXACT),
    hints=(
        "Take 37 tokens of 576. How many programs does the grid start, and which is the last element that any of them "
        "owns?",
        "Once every element has a program, look at the last one. Its lanes count past the end. Which is the largest "
        "index "
        "that exists, and does the mask agree?",
        "Two lines change. In the launcher the grid must be rounded up: `triton.cdiv(<...>, <...>)`. In the kernel "
        "the mask "
        "must be false for lane `n`: compare `offs` and `n` so that `n` itself is outside.",
    ),
)

_BIAS_RESIDUAL_ADD = Exercise(
    number="1.6",
    title="Bias and residual in one pass",
    stars=3,
    minutes=20,
    entry="bias_residual_add",
    contiguous=True,
    reference=own.bias_residual_add,
    exact=widened(own.bias_residual_add),
    max_launches=1,
    cases=(
        Case("whole tiles", _rows(16, 256), **_ONCE, again=True),
        Case("SmolLM2's width, 576", _rows(13, 576), **_ONCE),
        Case("rows and columns not multiples of a block", _rows(11, 83), **_ONCE),
        Case("x is a slice of a wider matrix", _rows(9, 100, gap_x=17), **_ONCE),
        Case("the residual is a slice of a wider matrix", _rows(9, 130, gap_r=5), **_ONCE),
        Case("one token", _rows(1, 70), **_ONCE),
        Case("bfloat16", _rows(7, 129, dtype=torch.bfloat16), **_ONCE),
        Case(
            "bfloat16, the residual nearly cancels the rest",
            _cancelling_rows,
            **_ONCE | {"why": "x + bias rounded to bfloat16 is off by 2^-9, as much as what is left in the end"},
        ),
        Case("one more than a power of two, both ways", _rows(33, 257, gap_x=3, gap_r=6), **_ONCE),
        Case("two long rows", _rows(2, 4100, gap_x=4), **_ONCE),
        Case("300 short rows", _rows(300, 3, gap_r=2), **_ONCE),
        Case("rows 2^30 elements apart", _far_rows, **_ONCE),
    ),
    hints=(
        "Each of the four tensors has its own way from (t, c) to an offset. Write the four down. Which of them does "
        "not "
        "depend on t?",
        "Tiles as in exercise 1.3. The bias is a block of one dimension, loaded with the mask of the columns; "
        "`bias[None, :]` spreads it over the rows of the tile. Widen everything before you add.",
        "`mask = <rows> & <columns>`; `x` from `x_ptr + offs_m * stride_xm + offs_n`, `residual` with its own stride, "
        "`bias` "
        "from `bias_ptr + offs_n` with the column mask; `y = x + bias + residual`; store to "
        "`y_ptr + offs_m * <row length of y> + offs_n`, cast to y's dtype. The grid has two numbers.",
    ),
    suspects=(
        Suspect(
            "half-accumulation",
            "`x + bias` was rounded to bfloat16 before the residual was added. In which dtype are your sums?",
            _rounded_between,
        ),
        Suspect(
            "bias-by-rows",
            "The bias was indexed by the row. Which of the two indices does it belong to?",
            _bias_by_rows,
        ),
        Suspect("missing-bias", "This is `x + residual`: the bias is missing.", lambda x, r, b: x + r),
        Suspect("missing-residual", "This is `x + bias`: the residual is missing.", lambda x, r, b: x + b),
    ),
)

EXERCISES = (_SCALE_AND_ADD, _ADD, _COPY, _GATHER, _REPAIR, _BIAS_RESIDUAL_ADD)
