"""The exercises of lesson 05: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable, Iterable

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import in_float32
from course_lessons.l05_matmul import reference as own
from course_lessons.makers import FAR, laid_out, other_activations, widened

# Sums are in float32 and rounded once. Where terms cancel, the error of a sum is that of its largest partial sum. xf32
# keeps 10 bits of each operand and is off by 1e-2.
_ONCE = in_float32(200, size=50.0)
_LARGE = in_float32(80, size=1e5)
_LONG = in_float32(1100, size=120.0)

Make = Callable[[Generator], tuple]


# ---- inputs --------------------------------------------------------------------------------------------------------


def _randn(*shape: int, generator: Generator, dtype=torch.float32, scale=1.0) -> Tensor:
    return (scale * torch.randn(*shape, generator=generator)).to(dtype)


def _product(m: int, n: int, k: int, *, scale: float = 1.0, **kind) -> Make:
    """a (m, k) and b (k, n)."""

    def make(generator: Generator) -> tuple:
        return _randn(m, k, generator=generator, scale=scale, **kind), _randn(k, n, generator=generator, **kind)

    return make


def _cancelling(generator: Generator) -> tuple:
    """float16; the first 32 products add up to 115200, the next 32 take that away again."""
    a, b = (_randn(*shape, generator=generator) for shape in ((20, 80), (80, 24)))
    a[:, :32], a[:, 32:64], b[:64] = 60.0, -60.0, 60.0
    return a.half(), b.half()


def _transposed_weight(generator: Generator) -> tuple:
    return _randn(33, 70, generator=generator), _randn(45, 70, generator=generator).T


def _slices(generator: Generator) -> tuple:
    """Parts of larger matrices that hold NaN everywhere else."""
    wide_a, wide_b = torch.full((20, 90), torch.nan), torch.full((60, 50), torch.nan)
    a, b = wide_a[:, 7:57], wide_b[5:55, :40]
    a.copy_(_randn(20, 50, generator=generator))
    b.copy_(_randn(50, 40, generator=generator))
    return a, b


def _columns_apart(generator: Generator) -> tuple:
    """a is transposed, b has every other column of a wider matrix: no stride is 1 by chance, no two are equal."""
    a, b = _randn(35, 40, generator=generator), _randn(40, 74, generator=generator)
    return laid_out(a, 1, 0), b[:, ::2]


def _far_apart(generator: Generator) -> tuple:
    """bfloat16; rows of a and columns of b lie 2^30 elements apart."""
    a, b = _product(3, 3, 40, dtype=torch.bfloat16)(generator)
    return spread(a, (FAR, 1)), spread(b, (1, FAR + 8))


def _linear(m: int, n: int, k: int, dtype=torch.float32) -> Make:
    def make(generator: Generator) -> tuple:
        weight = _randn(n, k, generator=generator, dtype=dtype, scale=2 * k**-0.5)
        return _randn(m, k, generator=generator, dtype=dtype), weight, _randn(n, generator=generator, dtype=dtype)

    return make


def _far_out(m: int, n: int, k: int) -> Make:
    """Sums of about 200 and -200, by the bias."""

    def make(generator: Generator) -> tuple:
        x, weight, bias = _linear(m, n, k)(generator)
        return x, weight, bias + 200.0 * torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0)

    return make


def _gated(m: int, n: int, k: int, dtype=torch.float32) -> Make:
    def make(generator: Generator) -> tuple:
        weight = _randn(2 * n, k, generator=generator, dtype=dtype, scale=2 * k**-0.5)
        return _randn(m, k, generator=generator, dtype=dtype), weight

    return make


def _image(h: int, w: int, c: int, f: int, dtype=torch.float32) -> Make:
    def make(generator: Generator) -> tuple:
        weight = _randn(3, 3, c, f, generator=generator, dtype=dtype, scale=(9 * c) ** -0.5)
        return _randn(h, w, c, generator=generator, dtype=dtype), weight

    return make


# ---- results of known mistakes -------------------------------------------------------------------------------------


def _part_of_k(first: Callable[[int], int], last: Callable[[int], int]) -> Callable[..., Tensor]:
    """Only the terms from first(K) to last(K) are summed."""
    return lambda a, b: reference.matmul(a[:, first(a.shape[1]) : last(a.shape[1])], b[first(len(b)) : last(len(b))])


def _last_block(k: int) -> int:
    return (k - 1) // 32 * 32


def _summed_in_own_dtype(a: Tensor, b: Tensor, block: int = 32) -> Tensor:
    """The accumulator is rounded to the dtype of a after every step."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for part_a, part_b in zip(a.split(block, 1), b.split(block), strict=True):
        total = (total.float() + part_a.float() @ part_b.float()).to(a.dtype)
    return total


_ONLY_LAST = Suspect(
    "only-last-block",
    "These are the products of the last block of `K`. Each step has replaced the sum instead of adding to it.",
    _part_of_k(_last_block, lambda k: k),
)
_HALF = Suspect(
    "half-accumulation",
    "The sum was rounded to the dtype of the operands after every step. In which dtype is the accumulator?",
    _summed_in_own_dtype,
)


def _tile(x: Tensor) -> Tensor:
    """The tile of 32 x 32 that a program holds, with zeros where x has no element."""
    return torch.nn.functional.pad(x, (0, 32 - x.shape[1], 0, 32 - x.shape[0]))


_ONE_TILE = Exercise(
    number="5.1",
    title="One tile",
    stars=1,
    minutes=10,
    entry="one_tile",
    reference=own.one_tile,
    cases=(
        Case("all sides 32", _product(32, 32, 32), **_ONCE),
        Case("three different sides, no power of two", _product(20, 27, 13), **_ONCE, again=True),
        Case("one row", _product(1, 32, 24), **_ONCE),
        Case("one element, float16", _product(1, 1, 1, dtype=torch.float16), **_ONCE),
        Case("float16, sums above 65504", _product(16, 16, 32, dtype=torch.float16, scale=3e4), **_LARGE),
        Case("bfloat16", _product(31, 17, 32, dtype=torch.bfloat16), **_ONCE),
        Case("sides of 17, 9 and 31", _product(17, 9, 31), **_ONCE),
    ),
    hints=(
        "Where does element `(m, k)` of `a` lie, and element `(k, n)` of `b`? Which places of each tile do not exist?",
        "`rows` and `cols` mean something else for each matrix: `(m, k)` for `a`, `(k, n)` for `b`, `(m, n)` for `c`. "
        "Places that do not exist must not disturb the sum. For float32, look at `input_precision` of `tl.dot`.",
        "`a = tl.load(a_ptr + rows * <length of a row> + cols, mask=(rows < <...>) & (cols < <...>), other=<...>)`, "
        '`b` likewise; `c = tl.dot(a, b, input_precision="ieee")`; `tl.store(c_ptr + <...>, c, mask=<...>)`.',
    ),
    suspects=(
        Suspect(
            "times-the-transpose",
            "This is the product with `b` transposed: row by row, not row by column.",
            lambda a, b: (_tile(a).float() @ _tile(b).float().T)[: len(a), : b.shape[1]],
        ),
        Suspect(
            "elementwise-product",
            "This is the product element by element. A matrix product sums over `K`.",
            lambda a, b: (_tile(a) * _tile(b)).float()[: len(a), : b.shape[1]],
        ),
        Suspect(
            "operands-exchanged",
            "This is `b` times `a`. A matrix product depends on the order.",
            lambda a, b: (_tile(b).float() @ _tile(a).float())[: len(a), : b.shape[1]],
        ),
        Suspect(
            "half-accumulation",
            "The product was rounded to the dtype of the operands before it was stored. What does `tl.dot` give?",
            lambda a, b: (a.float() @ b.float()).to(a.dtype).float(),
        ),
    ),
)

_MATMUL = Exercise(
    number="5.2",
    title="Matmul",
    stars=2,
    minutes=25,
    entry="matmul",
    picture="tile_walk",
    reference=reference.matmul,
    exact=widened(reference.matmul),
    no_idle=True,
    cases=(
        Case("one tile, one step", _product(32, 32, 32), **_ONCE),
        Case("several tiles and steps", _product(64, 96, 128), **_ONCE),
        Case("no side a multiple of a block", _product(33, 65, 129), **_ONCE, again=True),
        Case("one element, float16", _product(1, 1, 1, dtype=torch.float16), **_ONCE),
        Case("one row, as in decoding, 1,100 terms", _product(1, 70, 1100), **_LONG),
        Case("more rows and columns than one tile could hold", _product(140, 270, 9), **_ONCE),
        Case("b is a transposed weight", _transposed_weight, **_ONCE),
        Case("slices of larger matrices, NaN around them", _slices, **_ONCE),
        Case("float16, partial sums above 65504", _cancelling, **_LARGE),
        Case("bfloat16", _product(40, 34, 150, dtype=torch.bfloat16), **_ONCE),
        Case("a transposed, every other column of b", _columns_apart, **_ONCE),
        Case("rows of a and columns of b 2^30 elements apart", _far_apart, **_ONCE),
    ),
    hints=(
        "What stays in registers from the first step along `K` to the last, and what is loaded anew in each?",
        "`acc = tl.zeros(<tile>, tl.float32)` before `for start in range(0, K, BLOCK_K)`. In the loop the columns of "
        "`a` and the rows of `b` begin at `start`; both need a mask against `K`. Every index has a stride of its own.",
        "`k_a = start + offs_k[None, :]`, `k_b = start + offs_k[:, None]`; `a = tl.load(a_ptr + offs_m * stride_am + "
        "<...>, mask=(offs_m < M) & <...>, other=0.0)`; `b` likewise; `acc = tl.dot(a, b, acc, "
        'input_precision="ieee")`. The grid is `(triton.cdiv(M, 32), <...>)`.',
    ),
    suspects=(
        Suspect(
            "only-first-block",
            "Only the first 32 terms of each sum are there. The program has to walk along all of `K`.",
            _part_of_k(lambda k: 0, lambda k: 32),
        ),
        _ONLY_LAST,
        Suspect(
            "last-block-left-out",
            "What is left of `K` after the last whole block is missing. The loop has to take one more step.",
            _part_of_k(lambda k: 0, lambda k: k // 32 * 32),
        ),
        _HALF,
    ),
)


def _linear_with(after: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """`after` gets the product and the bias, both in float32."""
    return lambda x, weight, bias: after(x.float() @ weight.float().T, bias.float()).to(x.dtype)


def _steps(x: Tensor, block: int = 32) -> int:
    return -(-x.shape[1] // block)


def _silu_of_parts(x: Tensor, weight: Tensor, bias: Tensor, block: int = 32) -> Tensor:
    """SiLU after every step of the loop."""
    total = torch.zeros(len(x), len(weight))
    for part_x, part_w in zip(x.split(block, 1), weight.split(block, 1), strict=True):
        total = torch.nn.functional.silu(total + part_x.float() @ part_w.float().T)
    return (total + bias.float()).to(x.dtype)


def _as_if_not_transposed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The memory of the weight read as (K, N)."""
    flat = weight.reshape(x.shape[1], len(weight))
    return torch.nn.functional.silu(x.float() @ flat.float() + bias.float()).to(x.dtype)


_silu = torch.nn.functional.silu

_LINEAR_SILU = Exercise(
    number="5.3",
    title="A linear layer with its epilogue",
    stars=2,
    minutes=15,
    entry="linear_silu",
    reference=own.linear_silu,
    exact=widened(own.linear_silu),
    max_launches=1,
    cases=(
        Case("several tiles and steps", _linear(64, 96, 64), **_ONCE),
        Case("square weight", _linear(20, 50, 50), **_ONCE, again=True),
        Case("no side a multiple of a block", _linear(33, 45, 70), **_ONCE),
        Case("one row, 1,100 terms", _linear(1, 70, 1100), **_LONG),
        Case("one element, float16", _linear(1, 1, 1, torch.float16), **_ONCE),
        Case("float16", _linear(40, 33, 100, torch.float16), **_ONCE),
        Case("bfloat16", _linear(31, 40, 65, torch.bfloat16), **_ONCE),
        Case("bfloat16, one more than two blocks along K", _linear(65, 33, 129, torch.bfloat16), **_ONCE),
        Case("sums of about 200 and -200", _far_out(17, 30, 40), **in_float32(40, size=250.0)),
    ),
    hints=(
        "How far apart in memory are two neighbours along `K` in the weight, and how far two neighbours along `N`? "
        "And is SiLU of a sum the sum of SiLUs?",
        "Column `n` of the tile of the weight is row `n` in memory: `offs_n` gets the length of such a row. After the "
        "loop load the bias with `offs_n`, which has the shape `(1, BLOCK_N)` already. `tl.sigmoid` is in Triton.",
        "In the loop `w = tl.load(w_ptr + offs_n * <...> + k_w, mask=<...>, other=0.0)`. After it `total = acc + "
        "<bias in float32>`, `y = total * tl.sigmoid(<...>)`, and `tl.store(y_ptr + offs_m * <...> + offs_n, "
        "y.to(<...>), mask=<...>)`.",
    ),
    suspects=(
        Suspect("missing-bias", "This is the result without the bias.", _linear_with(lambda p, b: _silu(p))),
        Suspect("missing-activation", "SiLU is missing: this is the linear layer alone.", _linear_with(torch.add)),
        *other_activations(lambda function: _linear_with(lambda p, b: function(p + b))),
        Suspect(
            "bias-in-one-factor",
            "SiLU is a sum times the sigmoid of the same sum. One of the two lacks the bias.",
            _linear_with(lambda p, b: (p + b) * torch.sigmoid(p)),
        ),
        Suspect(
            "bias-in-one-factor",
            "SiLU is a sum times the sigmoid of the same sum. One of the two lacks the bias.",
            _linear_with(lambda p, b: p * torch.sigmoid(p + b)),
        ),
        Suspect(
            "bias-after-activation",
            "The bias was added after SiLU. It belongs to the sum that SiLU is taken of.",
            _linear_with(lambda p, b: _silu(p) + b),
        ),
        Suspect(
            "wrong-activation",
            "This is the sigmoid alone. SiLU multiplies it by its argument.",
            _linear_with(lambda p, b: torch.sigmoid(p + b)),
        ),
        Suspect(
            "bias-in-every-step",
            "The bias was added once in every step of the loop. How often belongs it into the sum?",
            lambda x, weight, bias: _linear_with(lambda p, b: _silu(p + _steps(x) * b))(x, weight, bias),
        ),
        Suspect(
            "activation-in-the-loop",
            "SiLU was applied to partial sums. It is not linear: what must be complete before it is applied?",
            _silu_of_parts,
        ),
        Suspect(
            "weight-not-transposed",
            "The weight was read as if it were `(K, N)`. It is stored as `(N, K)`: which index has the stride 1?",
            _as_if_not_transposed,
        ),
    ),
)


# ---- the order of tiles --------------------------------------------------------------------------------------------


def _tiles_of(m: int, n: int, *, remainder: bool, low_band: bool, xcds: int = 8, group: int = 4) -> set[tuple]:
    """The tiles that are computed by a tile_of with these parts right or wrong."""
    tiles_m, tiles_n = -(-m // 16), -(-n // 16)
    programs, found = tiles_m * tiles_n, set()
    for pid in range(programs):
        xcd, nth = pid % xcds, pid // xcds
        tile = xcd * (programs // xcds) + remainder * min(xcd, programs % xcds) + nth
        band, place = divmod(tile, group * tiles_n)
        rows = min(tiles_m - band * group, group) if low_band else group
        found.add((band * group + place % rows, place // rows))
    return found


def _only_tiles(**parts: bool) -> Callable[..., Tensor]:
    """The product where those tiles are; fresh memory, which holds NaN, elsewhere."""

    def formula(a: Tensor, b: Tensor) -> Tensor:
        right = reference.matmul(a, b)
        c = torch.full_like(right, torch.nan)
        for row, column in _tiles_of(*c.shape, **parts):
            place = slice(16 * row, 16 * row + 16), slice(16 * column, 16 * column + 16)
            c[place] = right[place]
        return c

    return formula


def _order_kept(args: tuple, launches: tuple, xcds: int = 8, group: int = 4) -> str:
    """The programs of a die, whose numbers are 8 apart, take tiles that follow each other in bands of four rows."""
    n = args[1].shape[1]
    tiles_m, tiles_n = -(-args[0].shape[0] // 16), -(-n // 16)
    firsts = launches[0].firsts if len(launches) == 1 else ()
    if len(firsts) != tiles_m * tiles_n or len(firsts) < 2 * xcds or min(firsts) < 0:
        return ""
    places = [_in_bands(first // n // 16, first % n // 16, tiles_m, tiles_n, group) for first in firsts]
    for die in range(xcds):
        taken = sorted(places[die::xcds])
        if taken[-1] - taken[0] >= len(taken):
            pair = f"Programs {die} and {die + xcds}"
            return f"{pair} run on one die, whose tiles follow each other down bands of four rows: keep that order."
    return ""


def _in_bands(row: int, column: int, tiles_m: int, tiles_n: int, group: int) -> int:
    """The place of a tile where tiles are counted in bands, column by column."""
    first = row // group * group
    return first * tiles_n + column * min(group, tiles_m - first) + row - first


_SHORT_REMAP = (
    "Some dies get one program more than others, and their last tile is taken by the next die as well. Where "
)
_SHORT_REMAP += "must a die begin so that the longer ones before it have room?"
_LOW_BAND = "In the last band some programs compute rows of tiles that do not exist, and tiles further right are left. "
_LOW_BAND += "How many rows does the last band have?"

_ORDER = Exercise(
    number="5.4",
    title="Repair an order of tiles",
    stars=2,
    minutes=15,
    entry="ordered_matmul",
    picture="tile_walk",
    reference=reference.matmul,
    exact=widened(reference.matmul),
    kind="repair",
    demand=_order_kept,
    no_idle=True,
    cases=(
        Case("like its own test: 8 rows of 4 tiles", _product(128, 64, 32), **_ONCE),
        Case("25 tiles: 8 does not divide them", _product(64, 112, 8), **_ONCE, again=True),
        Case("a last band that is lower", _product(96, 128, 16), **_ONCE),
        Case("fewer rows of tiles than a band", _product(40, 130, 20), **_ONCE),
        Case("fewer tiles than dies", _product(30, 40, 32), **_ONCE),
        Case("one tile", _product(5, 7, 11), **_ONCE),
        Case("float16, 35 tiles", _product(70, 110, 32, dtype=torch.float16), **_ONCE),
    ),
    hints=(
        "Take 25 programs and 8 dies. Which program numbers does die 0 get, which places does the formula give them, "
        "and which places does it give to die 1?",
        "The first `programs % XCDS` dies have one program more. A die begins after all programs of the dies before "
        "it. For the second bug: with 6 rows of tiles and bands of 4, how many rows has the second band?",
        "`tile = xcd * (programs // XCDS) + tl.minimum(xcd, <...>) + nth`, and `rows = tl.minimum(tiles_m - <rows of "
        "all bands before>, GROUP_M)`.",
    ),
    suspects=(
        Suspect("remap-without-remainder", _SHORT_REMAP, _only_tiles(remainder=False, low_band=False)),
        Suspect("remap-without-remainder", _SHORT_REMAP, _only_tiles(remainder=False, low_band=True)),
        Suspect("last-band-too-high", _LOW_BAND, _only_tiles(remainder=True, low_band=False)),
    ),
)


# ---- gate and up, convolution --------------------------------------------------------------------------------------


def _gate_and_up(x: Tensor, gate_up: Tensor) -> tuple[Tensor, Tensor]:
    return (x.float() @ gate_up.float().T).chunk(2, dim=1)


def _gated_with(combine: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x, gate_up: combine(*_gate_and_up(x, gate_up)).to(x.dtype)


def _interleaved(x: Tensor, gate_up: Tensor) -> Tensor:
    product = x.float() @ gate_up.float().T
    return (_silu(product[:, 0::2]) * product[:, 1::2]).to(x.dtype)


def _gated_of_parts(x: Tensor, gate_up: Tensor, block: int = 32) -> Tensor:
    """A gated product of every step, summed."""
    parts = zip(x.split(block, 1), gate_up.split(block, 1), strict=True)
    return sum(torch.mul(*_gated_step(*part)) for part in parts).to(x.dtype)


def _gated_step(x: Tensor, gate_up: Tensor) -> tuple[Tensor, Tensor]:
    gate, up = _gate_and_up(x, gate_up)
    return _silu(gate), up


def _shared_accumulator(x: Tensor, gate_up: Tensor) -> Tensor:
    """Up of the last step, added to the gate."""
    gate, _ = _gate_and_up(x, gate_up)
    last = _last_block(x.shape[1])
    _, up = _gate_and_up(x[:, last:], gate_up[:, last:])
    return (_silu(gate) * (gate + up)).to(x.dtype)


_GATED = Exercise(
    number="5.5",
    title="Gate and up in one launch",
    stars=3,
    minutes=25,
    entry="gated_linear",
    reference=own.gated_linear,
    exact=widened(own.gated_linear),
    max_launches=1,
    no_idle=True,
    cases=(
        Case("several tiles and steps", _gated(64, 64, 64), **_ONCE),
        Case("no side a multiple of a block", _gated(33, 45, 70), **_ONCE, again=True),
        Case("one row, 1,100 terms", _gated(1, 50, 1100), **_LONG),
        Case("one element, float16", _gated(1, 1, 1, torch.float16), **_ONCE),
        Case("float16", _gated(40, 40, 50, torch.float16), **_ONCE),
        Case("bfloat16", _gated(31, 36, 100, torch.bfloat16), **_ONCE),
        Case("one more than a block, along K too", _gated(65, 33, 129, torch.bfloat16), **_ONCE),
    ),
    hints=(
        "Which two columns of `x @ gate_up.T` does element `(m, n)` of the result need? Which programs have them in a "
        "plain matmul?",
        "Two accumulators, two tiles of the weight in every step, one tile of `x`. Row `n` of up is row `N + n` of "
        "`gate_up`. The activation comes after the loop.",
        "`w_gate = tl.load(w_ptr + offs_n * K + k_w, ...)`, `w_up = tl.load(w_ptr + (<...> + offs_n) * K + k_w, ...)`, "
        '`gate = tl.dot(x, w_gate, gate, input_precision="ieee")`, `up` likewise; then `gate * tl.sigmoid(gate) * '
        "<...>`. Which `N` does the mask compare with?",
    ),
    suspects=(
        Suspect(
            "gate-and-up-swapped",
            "SiLU was taken of up. The first half of the rows is the gate, and SiLU belongs to it.",
            _gated_with(lambda gate, up: _silu(up) * gate),
        ),
        Suspect(
            "missing-activation",
            "This is gate times up, without SiLU.",
            _gated_with(lambda gate, up: gate * up),
        ),
        Suspect(
            "gate-twice",
            "The gate was multiplied by itself. Where in the weight does up begin?",
            _gated_with(lambda gate, up: _silu(gate) * gate),
        ),
        Suspect("only-the-gate", "Up is missing: this is SiLU of the gate.", _gated_with(lambda gate, up: _silu(gate))),
        Suspect(
            "silu-of-the-product",
            "SiLU was taken of the product. It belongs to the gate, before the multiplication.",
            _gated_with(lambda gate, up: _silu(gate * up)),
        ),
        *other_activations(lambda function: _gated_with(lambda gate, up: function(gate) * up)),
        Suspect(
            "interleaved",
            "Gate and up were taken from neighbouring rows of the weight. They are two halves, one after the other.",
            _interleaved,
        ),
        Suspect(
            "activation-in-the-loop",
            "Gate and up of every step were multiplied and then added up. Both sums must be complete first.",
            _gated_of_parts,
        ),
        Suspect(
            "shared-accumulator",
            "The gate is right, but up began with the gate's sum. Each of the two needs an accumulator of its own.",
            _shared_accumulator,
        ),
        Suspect(
            "only-last-block",
            "These are gate and up of the last block of `K`. Each step has replaced the sums.",
            lambda x, w: own.gated_linear(x[:, _last_block(x.shape[1]) :], w[:, _last_block(x.shape[1]) :]),
        ),
    ),
)


def _taps(x: Tensor, weight: Tensor, taps: Iterable[int]) -> Tensor:
    """The convolution with these taps only."""
    kept = torch.zeros_like(weight).view(9, *weight.shape[2:])
    for tap in taps:
        kept[tap] = weight.reshape(kept.shape)[tap]
    return own.conv3x3(x, kept.view(weight.shape))


def _by_pixel(
    x: Tensor, weight: Tensor, *, by_height=False, first: int = -1, tests_columns=True, tests_pixel=False
) -> Tensor:
    """The convolution, pixel by pixel, with one thing wrong; an address outside of the tensor gives NaN."""
    (height, width, c), f = x.shape, weight.shape[3]
    m = torch.arange(height * width)
    divisor = height if by_height else width
    y = torch.zeros(height * width, f)
    for tap in range(9):
        h, w = m // divisor + tap // 3 + first, m % divisor + tap % 3 + first
        at = h * width + w
        inside = (h >= 0) & (h < height)
        if tests_columns:
            inside &= (w >= 0) & (w < width)
        if tests_pixel:  # and nothing else
            inside = (at >= 0) & (at < height * width)
        pixels = x.reshape(height * width, c).float()[at.clamp(0, height * width - 1)]
        pixels[(at < 0) | (at >= height * width)] = torch.nan
        y += torch.where(inside[:, None], pixels, 0.0) @ weight.reshape(9, c, f)[tap].float()
    return y.reshape(height, width, f).to(x.dtype)


_CONV = Exercise(
    number="5.6",
    title="A convolution without unfolding",
    stars=3,
    minutes=30,
    entry="conv3x3",
    reference=own.conv3x3,
    exact=widened(own.conv3x3),
    cases=(
        Case("8 x 8 pixels, 32 channels and filters", _image(8, 8, 32, 32), **_ONCE),
        Case("higher than wide", _image(13, 5, 16, 8), **_ONCE, again=True),
        Case("wider than high, odd channels", _image(4, 17, 7, 35), **_ONCE),
        Case("one row of pixels", _image(1, 11, 8, 8), **_ONCE),
        Case("a single pixel, float16", _image(1, 1, 3, 5, torch.float16), **_ONCE),
        Case("float16", _image(7, 6, 20, 18, torch.float16), **_ONCE),
        Case("bfloat16", _image(6, 6, 32, 16, torch.bfloat16), **_ONCE),
        Case("33 pixels, 33 filters, 17 channels", _image(3, 11, 17, 33, torch.bfloat16), **_ONCE),
    ),
    hints=(
        "Which pixel is row `m` of the product? Which pixel does the tap `(r, s)` read for it, and when does that one "
        "not exist?",
        "`offs_m // W` is the pixel's row and `offs_m % W` its column. Shift both by the tap, then test all four "
        "borders. The weight of a tap is a `(C, F)` matrix that begins at element `tap * C * F`.",
        "`h = offs_m // W + <...>`, `w = offs_m % W + <...>`, `inside = (h >= 0) & (h < H) & <...>`; `x = "
        "tl.load(x_ptr + (h * W + w) * C + c_x, mask=inside & (c_x < C), other=0.0)`; `weight = tl.load(weight_ptr + "
        '(tap * C + c_w) * F + offs_f, ...)`; `acc = tl.dot(x, weight, acc, input_precision="ieee")`.',
    ),
    suspects=(
        Suspect(
            "flipped-window",
            "The window is turned by 180 degrees. Tap `(r, s)` reads the pixel at `h + r - 1`, not `h - r + 1`.",
            lambda x, weight: own.conv3x3(x, weight.flip(0, 1)),
        ),
        Suspect(
            "rows-and-columns-swapped",
            "`r` and `s` are exchanged: `r` moves along the height, `s` along the width.",
            lambda x, weight: own.conv3x3(x, weight.transpose(0, 1)),
        ),
        Suspect(
            "wraps-around",
            "At the left and right border pixels of the neighbouring row joined in. Their address is legal: which test "
            "keeps them out?",
            lambda x, weight: _by_pixel(x, weight, tests_columns=False),
        ),
        Suspect(
            "wraps-around",
            "At the left and right border pixels of the neighbouring row joined in. Their address is legal: which test "
            "keeps them out?",
            lambda x, weight: _by_pixel(x, weight, tests_pixel=True),
        ),
        Suspect(
            "weight-transposed",
            "The weight was read as if it were `(3, 3, F, C)`. Which of the two indices has the stride 1?",
            lambda x, weight: own.conv3x3(x, weight.reshape(3, 3, weight.shape[3], -1).transpose(2, 3)),
        ),
        Suspect(
            "window-off-centre",
            "The window begins at the pixel itself. It should begin one row above and one column to the left.",
            lambda x, weight: _by_pixel(x, weight, first=0),
        ),
        Suspect(
            "divides-by-height",
            "Pixels were counted in columns of `H`. They lie row by row: how many pixels has a row?",
            lambda x, weight: _by_pixel(x, weight, by_height=True),
        ),
        Suspect(
            "only-last-block",
            "Only the last tap is there. Each step has replaced the sum instead of adding to it.",
            lambda x, weight: _taps(x, weight, [8]),
        ),
        Suspect(
            "only-centre",
            "Only the centre of the window is there: every tap read the same pixel.",
            lambda x, weight: _taps(x, weight.sum((0, 1)).expand_as(weight), [4]),
        ),
    ),
)

EXERCISES = (_ONE_TILE, _MATMUL, _LINEAR_SILU, _ORDER, _GATED, _CONV)
