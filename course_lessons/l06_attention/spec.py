"""The exercises of lesson 06: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import UNIT, in_float32
from course_lessons.l06_attention import reference as own
from course_lessons.makers import FAR, widened, with_gaps

# Softmax and LSE: exponentials of differences, and a sum of at most 300 of them.
_ROW = in_float32(300, size=0.1)
_LSE = in_float32(300, size=5.0)

# Attention: an error of a score is one of its exponential, and values of about 4 are weighted with them.
_ONCE = in_float32(200, size=4.0)
_LARGE = in_float32(200, size=50.0)
_VERY_LARGE = in_float32(200, size=600.0)
_HUGE = in_float32(200, size=5e4)


def _scaled_first(terms: int, largest: float) -> dict:
    """The tolerance of a softmax of elements up to `largest`, which may be taken times log2 e before the maximum is.

    Both products are rounded then, each by UNIT times itself: exp2 of their difference is off by twice that, times
    ln 2.
    """
    usual = in_float32(terms, size=0.1)
    return usual | {
        "rtol": usual["rtol"] + 2 * UNIT * largest,
        "why": f"{usual['why']}, of exponents up to {largest:g}",
    }


def _weights(dtype: torch.dtype, size: float = 0.75) -> dict:
    """The statement rounds the weights, as operand of the second product: `size` roundings remain of their sum."""
    unit = torch.finfo(dtype).eps / 2
    return {"atol": size * unit, "rtol": unit / 4, "why": "weights in 16 bits, summed in float32"}


_FLOAT16 = _weights(torch.float16)
_BFLOAT16 = _weights(torch.bfloat16, 1.5)
_TIGHT_BFLOAT16 = _weights(torch.bfloat16)
# The same of a gradient: less averages out, as its terms are products of three factors.
_GRADIENT16 = _weights(torch.float16, 1.25)
_GRADIENT_BF16 = _weights(torch.bfloat16, 1.25)
_LONG_GRADIENT = _weights(torch.bfloat16, 0.4)

Make = Callable[[Generator], tuple]
_INF = float("inf")


# ---- inputs --------------------------------------------------------------------------------------------------------


def _normal(*shape: int, generator: Generator, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


def _rows(m: int, n: int, *, dtype=torch.float32, mean=0.0, scale=1.0, strided=False) -> Make:
    """(m, n) of normally distributed values; strided: a slice of a wider matrix, so that rows lie n + 13 apart."""

    def make(generator: Generator) -> tuple:
        x = (mean + scale * torch.randn(m, n + 13 * strided, generator=generator)).to(dtype)
        return (x[:, :n],)

    return make


def _rows_without(m: int, n: int, *without: tuple[int, slice], mean: float = 0.0) -> Make:
    """As _rows, with -inf in some columns of some rows."""

    def make(generator: Generator) -> tuple:
        x = mean + torch.randn(m, n, generator=generator)
        for row, columns in without:
            x[row, columns] = -_INF
        return (x,)

    return make


def _steep(m: int, n: int) -> Make:
    """Rows that fall by 400, with noise: a maximum of any later part lies far below the row's; and one that rises."""

    def make(generator: Generator) -> tuple:
        x = torch.linspace(200.0, -200.0, n) + torch.randn(m, n, generator=generator)
        x[-1] = x[-1].flip(0)
        return (x,)

    return make


def _single(generator: Generator) -> tuple:
    """Rows of one element, whose log-sum-exp is that element."""
    return (torch.tensor([[0.0], [0.01], [-0.25]]),)


def _lowest(generator: Generator) -> tuple:
    """Two rows below anything that might stand in for -inf, the second after a block of -inf."""
    x = torch.full((2, 100), -3.4e38)
    x[1, :64] = -_INF
    return (x,)


def _falling(generator: Generator) -> tuple:
    """The last block is 500 below those before it: what is kept relative to its maximum overflows."""
    (x,) = _rows(3, 150)(generator)
    x[:, 128:] -= 500.0
    return (x,)


def _rising(m: int, n: int, order: int) -> Make:
    """Rows that rise from left to right (order 1), or fall (-1), by 20 in all."""

    def make(generator: Generator) -> tuple:
        return (torch.linspace(-10, 10, n)[::1] * order + torch.randn(m, n, generator=generator),)

    return make


def _head(sq: int, sk: int, d: int, *, dtype=torch.float32, size=1.0, mean=0.0) -> Make:
    """q, k and v of one head. size: of the scores' spread; mean: of the scores, about."""

    def make(generator: Generator) -> tuple:
        q, k, v = (_normal(rows, d, generator=generator) for rows in (sq, sk, sk))
        q, k = size * q, k
        if mean:  # a direction that all queries share, and all keys
            q[:, 0], k[:, 0] = abs(mean) ** 0.5 * d**0.25, (1 if mean > 0 else -1) * abs(mean) ** 0.5 * d**0.25
        return tuple(x.to(dtype) for x in (q, k, v))

    return make


def _around_two(sq: int, sk: int, d: int) -> Make:
    """bfloat16, values around 2: there an accumulator of 16 bits drifts, and rounded weights average out."""

    def make(generator: Generator) -> tuple:
        q, k, v = _head(sq, sk, d)(generator)
        return q.bfloat16(), k.bfloat16(), (2 + v).bfloat16()

    return make


def _long_tail(sq: int, sk: int) -> Make:
    """bfloat16; 16 keys of weight 1, then many of 0.003 that hold other values and count together. Scores of about 40.

    A sum of 16 bits loses every block of the tail, and a score of 16 bits is a wrong weight.
    """

    def make(generator: Generator) -> tuple:
        q, k, v = torch.zeros(sq, 16), torch.zeros(sk, 16), _normal(sk, 16, generator=generator) / 4
        q[:, 0], q[:, 1], q[:, 2] = 4.0, 0.0625, 15.9375
        k[:, 2], k[16:, 0], k[16:, 1], v[16:] = 10.0625, -5.8125, 1.0, v[16:] + 4.0
        return q.bfloat16(), k.bfloat16(), v.bfloat16()

    return make


def _as_heads(make: Make) -> Make:
    """The same, as one head of one sequence."""
    return lambda generator: tuple(x[None, None] for x in make(generator))


def _far_heads(generator: Generator) -> tuple:
    """bfloat16; the heads lie 2^30 elements apart."""
    q, k, v = _heads(1, 6, 3, 5, 9, 16, dtype=torch.bfloat16)(generator)
    return spread(q, (80, FAR, 16, 1)), spread(k, (144, FAR + 8, 16, 1)), spread(v, (144, FAR + 8, 16, 1))


def _far_from_zero(sq: int, sk: int, d: int) -> Make:
    """bfloat16; `do` times the values is large beside what `delta` leaves of it, and the keys have a mean."""

    def make(generator: Generator) -> tuple:
        q, k, v = _head(sq, sk, d)(generator)
        q, k, v = q.bfloat16(), (1 + k).bfloat16(), (4 + v).bfloat16()
        o, lse = reference.flash_attention(q[None, None], k[None, None], v[None, None], return_lse=True)
        return q, k, v, o[0, 0], lse[0, 0], _normal(sq, d, generator=generator, dtype=q.dtype)

    return make


def _far(make: Make) -> Make:
    """The same inputs, the rows of the first 2^30 elements apart."""

    def far(generator: Generator) -> tuple:
        x, *rest = make(generator)
        return spread(x, (FAR, 1)), *rest

    return far


def _window(sq: int, sk: int, d: int, window: int, **kind) -> Make:
    return lambda generator: (*_head(sq, sk, d, **kind)(generator), window)


def _heads(b: int, h: int, kh: int, s: int, sk: int, d: int, *, dtype=torch.float32, size=1.0, by_token=False) -> Make:
    """q, k and v of many heads. by_token: stored with the heads of a token side by side, as in the model."""

    def make(generator: Generator) -> tuple:
        shapes = (b, h, s, d), (b, kh, sk, d), (b, kh, sk, d)
        q, k, v = (_normal(*shape, generator=generator) for shape in shapes)
        if by_token:
            q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
        return tuple(x.to(dtype) for x in (size * q, k, v))

    return make


def _low_heads(b: int, h: int, kh: int, s: int, sk: int, d: int, mean: float) -> Make:
    """All scores are about `mean`, which is negative."""

    def make(generator: Generator) -> tuple:
        q, k, v = _heads(b, h, kh, s, sk, d)(generator)
        q[..., 0], k[..., 0] = (-mean) ** 0.5 * d**0.25, -((-mean) ** 0.5) * d**0.25
        return q, k, v

    return make


def _other_layouts(generator: Generator) -> tuple:
    """q has gaps between its rows, k and v the heads of a token side by side: no two strides are alike by chance."""
    q, k, v = _heads(2, 6, 3, 19, 45, 16)(generator)
    k, v = (with_gaps(x.transpose(1, 2), 8).transpose(1, 2) for x in (k, v))
    return with_gaps(q, 5), k, v


def _far_sequences(generator: Generator) -> tuple:
    """bfloat16; the sequences lie 2^30 elements apart."""
    q, k, v = _heads(3, 2, 1, 5, 9, 16, dtype=torch.bfloat16)(generator)
    return spread(q, (FAR, 80, 16, 1)), spread(k, (FAR + 8, 160, 16, 1)), spread(v, (FAR + 8, 160, 16, 1))


def _backward(sq: int, sk: int, d: int, **kind) -> Make:
    def make(generator: Generator) -> tuple:
        q, k, v = _head(sq, sk, d, **kind)(generator)
        o, lse = reference.flash_attention(q[None, None], k[None, None], v[None, None], return_lse=True)
        return q, k, v, o[0, 0], lse[0, 0], _normal(sq, d, generator=generator, dtype=q.dtype)

    return make


# ---- results of known mistakes: softmax ------------------------------------------------------------------------------

_ZEROS = (
    "Idle lanes count: they hold 0, and a 0 is a score like any other. Which value is neither the maximum nor part of "
    "the sum?"
)
_NO_MAXIMUM = (
    "Large elements overflow: the exponential of 89 is infinite in float32. What is subtracted from a row first?"
)


def _padded(x: Tensor, value: float = 0.0) -> Tensor:
    """As a kernel sees it that loads with other=0.0, or another value."""
    block = 1 << (x.shape[-1] - 1).bit_length()
    return torch.nn.functional.pad(x.float(), (0, block - x.shape[-1]), value=value)


def _softmax_of_padded(x: Tensor, value: float = 0.0) -> Tensor:
    return _padded(x, value).softmax(-1)[:, : x.shape[1]].to(x.dtype)


def _walk(x: Tensor, step: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]], block: int = 64, fill=-_INF):
    """Maximum and sum of each row after a walk in blocks; step takes both and a block, and returns both anew."""
    row_max, row_sum = torch.full((len(x), 1), -_INF), torch.zeros(len(x), 1)
    for start in range(0, x.shape[1], block):
        part = x[:, start : start + block].float()
        part = torch.nn.functional.pad(part, (0, block - part.shape[1]), value=fill)
        row_max, row_sum = step(row_max, row_sum, part)
    return row_max, row_sum


def _lse_after(step, **kind) -> Callable[[Tensor], Tensor]:
    def formula(x: Tensor) -> Tensor:
        row_max, row_sum = _walk(x, step, **kind)
        return (row_max + row_sum.log()).squeeze(-1)

    return formula


def _guarded(row_max: Tensor, row_sum: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    new_max = torch.maximum(row_max, part.amax(-1, keepdim=True))
    centre = torch.where(new_max == -_INF, 0.0, new_max)
    return new_max, row_sum * torch.exp(row_max - centre) + torch.exp(part - centre).sum(-1, keepdim=True)


def _unguarded(row_max: Tensor, row_sum: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    new_max = torch.maximum(row_max, part.amax(-1, keepdim=True))
    return new_max, row_sum * torch.exp(row_max - new_max) + torch.exp(part - new_max).sum(-1, keepdim=True)


def _not_rescaled(row_max: Tensor, row_sum: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    new_max = torch.maximum(row_max, part.amax(-1, keepdim=True))
    centre = torch.where(new_max == -_INF, 0.0, new_max)
    return new_max, row_sum + torch.exp(part - centre).sum(-1, keepdim=True)


def _behind(row_max: Tensor, row_sum: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    new_max = torch.maximum(row_max, part.amax(-1, keepdim=True))
    centre = torch.where(new_max == -_INF, 0.0, new_max)
    return new_max, row_sum * torch.exp(row_max - centre) + torch.exp(part - row_max).sum(-1, keepdim=True)


def _latest(row_max: Tensor, row_sum: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    new_max = part.amax(-1, keepdim=True)
    centre = torch.where(new_max == -_INF, 0.0, new_max)
    return new_max, row_sum * torch.exp(row_max - centre) + torch.exp(part - centre).sum(-1, keepdim=True)


def _centre_kept(row_max: Tensor, row_sum: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    new_max = torch.maximum(row_max, part.amax(-1, keepdim=True))
    centre = torch.where(new_max == -_INF, 0.0, new_max)
    return centre, row_sum * torch.exp(row_max - centre) + torch.exp(part - centre).sum(-1, keepdim=True)


def _last_block(x: Tensor, block: int = 64) -> Tensor:
    start = (x.shape[1] - 1) // block * block
    row_max = x.float().amax(-1, keepdim=True)
    centre = torch.where(row_max == -_INF, 0.0, row_max)
    return row_max.squeeze(-1) + torch.exp(x[:, start:].float() - centre).sum(-1).log()


# ---- results of known mistakes: attention ----------------------------------------------------------------------------


def _attended(scores: Tensor, v: Tensor) -> Tensor:
    return scores.softmax(-1) @ v.float()


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q.float() @ k.float().T * q.shape[-1] ** -0.5


def _up_to(x: Tensor, block: int, value: float = 0.0) -> Tensor:
    """x with rows of `value` added up to a whole number of blocks."""
    return torch.nn.functional.pad(x, (0, 0, 0, -len(x) % block), value=value)


def _keys_past_the_end(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attended(_scores(q, _up_to(k, 32)), _up_to(v, 32)).to(q.dtype)


def _unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attended(q.float() @ k.float().T, v).to(q.dtype)


def _base_2(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attended(_scores(q, k) * 0.6931471805599453, v).to(q.dtype)


def _undivided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    return (torch.exp(scores - scores.amax(-1, keepdim=True)) @ v.float()).to(q.dtype)


def _walked(acc_rescaled: bool, sum_rescaled: bool) -> Callable[..., Tensor]:
    """Attention block by block, with one of the two running sums (or both) left as it is when the maximum rises."""

    def formula(q: Tensor, k: Tensor, v: Tensor, block: int = 32) -> Tensor:
        row_max, row_sum, acc = torch.full((len(q), 1), -_INF), torch.zeros(len(q), 1), torch.zeros(q.shape)
        for start in range(0, len(k), block):
            scores = _scores(q, k[start : start + block])
            new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
            p, factor = torch.exp(scores - new_max), torch.exp(row_max - new_max)
            row_sum = row_sum * (factor if sum_rescaled else 1.0) + p.sum(-1, keepdim=True)
            acc = acc * (factor if acc_rescaled else 1.0) + p @ v[start : start + block].float()
            row_max = new_max
        return (acc / row_sum).to(q.dtype)

    return formula


def _many_heads(one: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], key_head=None) -> Callable[..., Tensor]:
    """A mistake of each head: `one` takes q, k, v of a head and the number of keys that each query sees."""

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (b, h, s, _), (kh, sk) = q.shape, k.shape[1:3]
        seen = torch.arange(s)[:, None] + 1 + sk - s
        choose = key_head or (lambda i, h, kh: i // (h // kh))
        heads = [
            [one(q[n, i], k[n, choose(i, h, kh)], v[n, choose(i, h, kh)], seen) for i in range(h)] for n in range(b)
        ]
        return torch.stack([torch.stack(row) for row in heads]).to(q.dtype)

    return formula


def _causal(shift: int = 0, factor: float = 1.0) -> Callable[..., Tensor]:
    def one(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        hidden = torch.arange(len(k)) >= seen + shift
        return _attended((_scores(q, k) * factor).masked_fill(hidden, -_INF), v)

    return one


def _from_the_top(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return _causal()(q, k, v, torch.arange(len(q))[:, None] + 1)


def _every_key(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return _attended(_scores(q, k), v)


def _without_scale(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return _causal(factor=q.shape[-1] ** 0.5)(q, k, v, seen)


def _tokens_side_by_side(x: Tensor) -> Tensor:
    """What lies there when the tokens of a head are taken to follow each other."""
    return torch.as_strided(x, x.shape, (*x.stride()[:2], x.shape[-1], 1))


def _whole_tiles_only(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """The loop ends where the first query of a tile sees its last key."""
    first = seen[torch.arange(len(q)) // 16 * 16]
    blocks = -(-first // 16) * 16
    return _causal()(q, k, v, torch.minimum(seen, blocks))


def _windowed(
    longer: int = 0,
    unseen: float = -_INF,
    *,
    guarded: bool = True,
    centre_kept: bool = False,
    safely_divided: bool = True,
) -> Callable[..., Tensor]:
    """A window so many keys longer, this score for what is not seen, and the guards against NaN or not."""

    def of_tile(q: Tensor, k: Tensor, v: Tensor, window: int, seen: Tensor) -> Tensor:
        first, end = max(int(seen.min()) - window, 0) // 16 * 16, min(int(seen.min()) + 15, len(k))
        keys = torch.arange(first, first + max(-(-(end - first) // 16) * 16, 0))
        exists, at = keys < len(k), keys.clamp(max=len(k) - 1)
        visible = (keys < seen) & (keys >= seen - window - longer) & exists
        o = _attended(torch.where(visible, _scores(q, k[at]), unseen), v[at] * exists[:, None])
        if safely_divided and (unseen == -_INF or not len(keys)):
            o[~visible.any(-1)] = 0.0
        if not len(keys) and not safely_divided:
            o[:] = torch.nan
        late = ~visible[:, :16].any(-1)  # sees nothing of the first block
        if not guarded and len(keys):
            o[late] = torch.nan
        if centre_kept and len(keys):  # exponentials relative to 0, or more
            o[late & (torch.where(visible, _scores(q, k[at]), -_INF).amax(-1) < -104.0)] = 0.0
        return o

    def formula(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        seen = torch.arange(len(q))[:, None] + 1 + len(k) - len(q)
        tiles = zip(q.split(16), seen.split(16), strict=True)
        return torch.cat([of_tile(tile, k, v, window, keys) for tile, keys in tiles]).to(q.dtype)

    return formula


def _gradient(
    delta=True, scale=True, log2=False, lse=True, swapped=False, by_values=False, factor: Tensor | None = None
):
    """The gradient of the queries with one of its parts left out or mistaken."""

    def formula(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse_: Tensor, do: Tensor) -> Tensor:
        s = _scores(q, k)
        exponent = s - (lse_[:, None] if lse else s.amax(-1, keepdim=True))
        p = torch.exp2(exponent) if log2 else torch.exp(exponent)
        dp = do.float() @ (k if swapped else v).float().T
        other = (do if factor is None else factor).float()
        ds = p * (dp - (o.float() * other).sum(-1, keepdim=True) * delta)
        return (ds @ (v if by_values else k).float() * (q.shape[-1] ** -0.5 if scale else 1.0)).to(q.dtype)

    return formula


def _overflowing(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor) -> Tensor:
    """Keys past the end, which are zeros: no harm is done, unless exp(0 - lse) overflows; infinity times 0 is NaN."""
    past = torch.exp(-lse) if len(k) % 16 else torch.zeros_like(lse)
    return (_gradient()(q, k, v, o, lse, do).float() + 0.0 * past[:, None]).to(q.dtype)


# ---- the exercises -------------------------------------------------------------------------------------------------

_CENTRE_KEPT = (
    "Rows far below zero vanish: their maximum was replaced by the finite stand-in, and kept. Which of the two belongs "
    "to the next block?"
)

_SOFTMAX = Exercise(
    number="6.1",
    title="Softmax of a row",
    stars=1,
    minutes=8,
    entry="softmax",
    reference=reference.softmax,
    exact=widened(reference.softmax),
    cases=(
        Case("power-of-two width", _rows(4, 64), **_ROW, again=True),
        Case("width 37", _rows(5, 37), **_ROW),
        Case("one column", _rows(3, 1), **in_float32()),
        Case("elements around -20", _rows(3, 100, mean=-20.0), **_scaled_first(100, 25.0)),
        Case("elements around 200", _rows(3, 100, mean=200.0), **_scaled_first(100, 210.0)),
        Case("some elements -inf", _rows_without(3, 50, (0, slice(0, 20)), (1, slice(30, 50))), **_ROW),
        Case("rows further apart than their width", _rows(4, 70, strided=True), **_ROW),
        Case("float16, elements around -15", _rows(3, 300, mean=-15.0, dtype=torch.float16), **_ROW),
        Case("bfloat16", _rows(3, 200, dtype=torch.bfloat16, scale=3.0), **_ROW),
        Case(
            "elements around -300, one more than a power of two",
            _rows(2, 1025, mean=-300.0),
            **_scaled_first(1025, 310.0),
        ),
        Case("elements around -20000", _rows(3, 70, mean=-2e4), **_scaled_first(70, 2e4)),
        Case("70 rows", _rows(70, 3), **_ROW),
        Case("40,000 columns", _rows(1, 40_000), **in_float32(40_000)),
        Case("rows that fall by 400, and one that rises", _steep(3, 6000), **_scaled_first(6000, 210.0)),
        Case("rows 2^30 elements apart", _far(_rows(3, 40, dtype=torch.bfloat16)), **_ROW),
    ),
    hints=(
        "Two reductions follow each other, a maximum and a sum. What must idle lanes hold so that neither notices?",
        "Load with `other=-float('inf')` and widen to float32. `tl.max(x, axis=0)` is the maximum, `tl.exp` the "
        "exponential.",
        "`numerator = tl.exp(x - <maximum>)`, `y = numerator / <sum>`, `tl.store(y_ptr + row * stride_ym + cols, "
        "y.to(y_ptr.dtype.element_ty), mask=mask)`.",
    ),
    suspects=(
        *(
            Suspect(
                "finite-padding",
                "Idle lanes count in rows far below zero: they hold a finite number, which is the largest there.",
                lambda x, value=value: _softmax_of_padded(x, value),
            )
            for value in (-100.0, -1e3, -1e4)
        ),
        Suspect("zero-padding", _ZEROS, _softmax_of_padded),
        Suspect(
            "divided-without-exp",
            "This is each element divided by the sum of its row. Softmax takes the exponentials of both.",
            lambda x: (x.float() / x.float().sum(-1, keepdim=True)).to(x.dtype),
        ),
        Suspect("no-maximum", _NO_MAXIMUM, lambda x: (x.float().exp() / x.float().exp().sum(-1, True)).to(x.dtype)),
        Suspect(
            "not-normalised",
            "The exponentials are right, but a row of the result does not add up to 1. What are they divided by?",
            lambda x: torch.exp(x.float() - x.float().amax(-1, keepdim=True)).to(x.dtype),
        ),
        Suspect(
            "log-softmax",
            "This is the logarithm of the softmax.",
            lambda x: x.float().log_softmax(-1).to(x.dtype),
        ),
    ),
)


def _loads_once(args: tuple, launches: tuple) -> str:
    """One walk over each row, in blocks of 64."""
    if any(launch.constant("BLOCK") not in (None, 64) for launch in launches):
        return "`BLOCK` is to stay 64, however wide the row is."
    elements, lanes = args[0].numel(), sum(launch.loaded("x_ptr").lanes for launch in launches)
    return f"{lanes} elements of `x` were loaded, and there are {elements}: each is to be loaded once." * (
        lanes > elements
    )


_LOGSUMEXP = Exercise(
    number="6.2",
    title="LSE in one walk",
    stars=2,
    minutes=15,
    entry="row_logsumexp",
    reference=own.row_logsumexp,
    exact=widened(own.row_logsumexp),
    demand=_loads_once,
    cases=(
        Case("one full block", _rows(3, 64), **_LSE, again=True),
        Case("three full blocks", _rows(3, 192), **_LSE),
        Case("a last block that is cut short", _rows(3, 201), **_LSE),
        Case("shorter than a block", _rows(3, 5), **_LSE),
        Case("a maximum that rises in every block", _rising(3, 300, 1), **_LSE),
        Case("a maximum that never rises", _rising(3, 300, -1), **_LSE),
        Case("elements around -20, cut short", _rows(3, 100, mean=-20.0), **_LSE),
        Case(
            "elements around -300, after a block of -inf",
            _rows_without(3, 200, (0, slice(0, 64)), mean=-300.0),
            **_LSE,
        ),
        Case("a first block of -inf", _rows_without(3, 200, (0, slice(0, 64)), (2, slice(0, 130))), **_LSE),
        Case("a last block of -inf", _rows_without(3, 200, (0, slice(128, 200)), (2, slice(64, 200))), **_LSE),
        Case("a last block far below the others", _falling, **_LSE),
        Case("a row of -inf", _rows_without(3, 100, (1, slice(None))), **_LSE),
        Case("float16, elements around 1000", _rows(3, 150, mean=1000.0, dtype=torch.float16), **_LSE),
        Case("rows further apart than their width", _rows(3, 100, strided=True), **_LSE),
        Case("elements around -20000, one more than two blocks", _rows(3, 129, mean=-2e4), **_LSE),
        Case("float16, elements around -200, cut short", _rows(3, 90, mean=-200.0, dtype=torch.float16), **_LSE),
        Case("one more than two blocks", _rows(3, 129), **_LSE),
        Case("70 rows", _rows(70, 3), **_LSE),
        Case("one element, 0 and others", _single, **in_float32(size=0.1)),
        Case("rows below -1e30", _lowest, **_LSE),
        Case("rows 2^30 elements apart", _far(_rows(3, 70, dtype=torch.float16)), **_LSE),
    ),
    hints=(
        "Which two numbers describe all that you have seen of a row? What happens to the sum when the maximum rises?",
        "`new_max = tl.maximum(row_max, tl.max(x, axis=0))`. The sum so far belongs to `row_max`; multiply it by "
        "`tl.exp(row_max - new_max)`, then add the block's exponentials relative to `new_max`. Mind `-inf - -inf`.",
        "In the loop: load with `other=-float('inf')`; `new_max = <...>`; `centre = tl.where(new_max == -float('inf'), "
        "<a finite number>, new_max)`; `row_sum = row_sum * tl.exp(row_max - centre) + tl.sum(<...>, axis=0)`; "
        "`row_max = new_max`. After it: `tl.store(out_ptr + row, row_max + tl.log(row_sum))`.",
    ),
    suspects=(
        Suspect(
            "nothing-seen-yet",
            "Rows whose first block is -inf throughout became NaN. What is -inf minus -inf?",
            _lse_after(_unguarded),
        ),
        Suspect(
            "not-rescaled",
            "The sum of earlier blocks is still relative to their own maximum. What must happen to it when the maximum "
            "rises?",
            _lse_after(_not_rescaled),
        ),
        Suspect(
            "centre-kept",
            _CENTRE_KEPT,
            _lse_after(_centre_kept),
        ),
        Suspect("zero-padding", _ZEROS, _lse_after(_guarded, fill=0.0)),
        Suspect(
            "only-last-block",
            "The sum is that of the last block. The earlier ones were overwritten instead of added to.",
            _last_block,
        ),
        Suspect(
            "missing-logarithm",
            "The maximum is right, but the sum was added to it as it is.",
            lambda x: sum(_walk(x, _guarded)).squeeze(-1),
        ),
        Suspect(
            "missing-maximum",
            "This is the logarithm of the sum relative to the maximum. The maximum itself has to be added again.",
            lambda x: _walk(x, _guarded)[1].log().squeeze(-1),
        ),
        Suspect("no-maximum", _NO_MAXIMUM, lambda x: x.float().exp().sum(-1).log()),
        Suspect(
            "sum-of-the-blocks",
            "The results of the blocks were added. The exponentials are to be added, before the logarithm is taken.",
            lambda x: sum(part.float().logsumexp(-1) for part in x.split(64, -1)),
        ),
        Suspect(
            "maximum-of-the-last-block",
            "The maximum is that of the last block alone. Where it lies far below the others, their sum is infinite.",
            _lse_after(_latest),
        ),
        Suspect(
            "base-2-logarithm",
            "The sum is one of powers of e, and its logarithm was taken to base 2.",
            lambda x: (_walk(x, _guarded)[0] + _walk(x, _guarded)[1].log2()).squeeze(-1),
        ),
        Suspect(
            "maximum-not-kept",
            "Every result is minus infinity: the running maximum stays what it was before the loop.",
            lambda x: torch.full((len(x),), -_INF),
        ),
        Suspect(
            "old-maximum",
            "The exponentials of a block are relative to the maximum before it. Which maximum does the sum have now?",
            _lse_after(_behind),
        ),
    ),
)

_PAST_THE_END = (
    "Keys past the end take part: they were loaded as zeros, and so their score is 0. When can their scores be told "
    "apart from real ones?"
)
_UNSCALED = "The scores are not divided by the root of `D`."
_BASE_2 = "Powers of 2 were taken of scores that are meant for powers of e. Which factor belongs into the scale?"

_ATTENTION = Exercise(
    number="6.3",
    title="Attention of one head",
    stars=2,
    minutes=25,
    entry="head_attention",
    reference=own.head_attention,
    exact=widened(own.head_attention),
    cases=(
        Case("one tile", _head(16, 32, 32), **_ONCE),
        Case("several tiles, none cut short", _head(32, 96, 16), **_ONCE),
        Case("37 queries and 37 keys of 64, as in SmolLM2", _head(37, 37, 64), **_ONCE, again=True),
        Case("one query", _head(1, 50, 32), **_ONCE),
        Case("one key", _head(20, 1, 16), **_ONCE),
        Case("scores far below zero", _head(18, 45, 32, mean=-30.0), **_LARGE),
        Case("scores up to 50", _head(20, 70, 64, size=15.0), **_LARGE),
        Case("head dimension 128", _head(17, 40, 128), **_ONCE),
        Case("float16", _head(18, 40, 16, dtype=torch.float16), **_FLOAT16),
        Case("bfloat16", _head(20, 45, 32, dtype=torch.bfloat16), **_BFLOAT16),
        Case("one more than a tile, scores around -200", _head(17, 33, 16, mean=-200.0), **_VERY_LARGE),
        Case("scores around -20000, in a tile of 20", _head(5, 20, 16, mean=-2e4), **_HUGE),
        Case("bfloat16, scores up to 30", _head(18, 70, 32, size=8.0, dtype=torch.bfloat16), **_TIGHT_BFLOAT16),
        Case("bfloat16, many small weights", _long_tail(4, 1072), **_TIGHT_BFLOAT16),
        Case("bfloat16, 400 keys, values around 2", _around_two(17, 400, 16), **_TIGHT_BFLOAT16),
    ),
    hints=(
        "Two sums run over the same exponentials, `row_sum` and `acc`. What do both need when a maximum rises? And "
        "which score does a key get that does not exist?",
        "Scores: `tl.dot(q, k.T, input_precision='ieee') * scale`, then `tl.where(offs_n < Sk, scores, "
        "-float('inf'))`. Maximum and sum of each row with `axis=1`; `[:, None]` makes columns of them.",
        "`new_max = tl.maximum(row_max, <...>)`, `p = tl.exp(<...>)`, `rescale = tl.exp(row_max - new_max)`, "
        "`row_sum = row_sum * rescale + <...>`, `acc = tl.dot(p.to(v.dtype), v, acc * <...>, input_precision='ieee')`, "
        "`row_max = new_max`. After the loop: divide, and store under `mask_m`.",
    ),
    suspects=(
        Suspect("keys-past-the-end", _PAST_THE_END, _keys_past_the_end),
        Suspect("missing-scale", _UNSCALED, _unscaled),
        Suspect(
            "result-scaled",
            "The result was multiplied by `scale`. It belongs to the scores, before the exponential.",
            lambda q, k, v: (_attended(q.float() @ k.float().T, v) * q.shape[-1] ** -0.5).to(q.dtype),
        ),
        Suspect(
            "scaled-twice",
            "The scores are smaller than they should be by one more factor `scale`.",
            lambda q, k, v: _attended(_scores(q, k) * q.shape[-1] ** -0.5, v).to(q.dtype),
        ),
        Suspect(
            "causal-mask",
            "Each query sees only the keys up to its own. The exercise has no causal mask.",
            lambda q, k, v: _causal()(q, k, v, torch.arange(len(q))[:, None] + 1).to(q.dtype),
        ),
        Suspect("base-mixed", _BASE_2, _base_2),
        Suspect(
            "not-divided",
            "The rows are sums, not means. What remains to be done after the last block?",
            _undivided,
        ),
        Suspect(
            "acc-not-rescaled",
            "`row_sum` follows the rising maximum, `acc` does not. It holds what the earlier blocks gave, relative to "
            "their own maximum.",
            _walked(False, True),
        ),
        Suspect(
            "sum-not-rescaled",
            "`acc` follows the rising maximum, `row_sum` does not. It holds what the earlier blocks gave, relative to "
            "their own maximum.",
            _walked(True, False),
        ),
        Suspect(
            "not-rescaled",
            "Neither `acc` nor `row_sum` follows the rising maximum. What do earlier blocks need when it rises?",
            _walked(False, False),
        ),
        Suspect(
            "key-block-not-advanced",
            "Every turn of the loop took the first block of keys. Where does `start` belong?",
            lambda q, k, v: _attended(_scores(q, k[torch.arange(len(k)) % 32]), v[torch.arange(len(v)) % 32]).to(
                q.dtype
            ),
        ),
    ),
)

_STRIDE = (
    "Tokens were taken to lie `D` apart. In the model the other heads lie between them: which number says how far?"
)


def _leaves_tiles_out(args: tuple, launches: tuple) -> str:
    """Whether fewer keys are loaded than by programs that all walk to the end, where that is tiles apart.

    Keys and values are the two tensors of which most is loaded, whatever the kernel calls them.
    """
    q, k, _ = args
    if len(launches[0].given) < 3:
        return "Of `q`, `k` and `v` the kernel got a copy, which PyTorch had made. It is to read them as they come."
    (batch, heads, rows, d), keys = q.shape, k.shape[2]
    programs = launches[0].programs
    every = programs * keys * d
    blocks = programs // (batch * heads)
    loaded = sorted((loads.lanes for loads in launches[0].loads), reverse=True)[:2]
    if blocks < 3 or keys != rows or len(loaded) < 2 or loaded[1] < every:
        return ""
    return f"Each of the {programs} programs walks over all {keys} keys. Which tiles does none of its queries see?"


_PREFILL = Exercise(
    number="6.4",
    title="Prefill",
    stars=3,
    minutes=30,
    entry="prefill_attention",
    picture="causal_map",
    reference=own.prefill_attention,
    exact=widened(own.prefill_attention),
    demand=_leaves_tiles_out,
    max_launches=1,
    cases=(
        Case("one head, one tile", _heads(1, 1, 1, 16, 16, 32), **_ONCE),
        Case("as in SmolLM2: 9 heads on 3, 21 tokens", _heads(1, 9, 3, 21, 21, 64, by_token=True), **_ONCE, again=True),
        Case("earlier keys: 10 queries, 45 keys", _heads(1, 2, 1, 10, 45, 16), **_ONCE),
        Case("two sequences, 4 heads of 128 on 2", _heads(2, 4, 2, 10, 10, 128), **_ONCE),
        Case("heads of a token side by side", _heads(2, 2, 2, 19, 19, 32, by_token=True), **_ONCE),
        Case("one token", _heads(1, 3, 1, 1, 1, 16), **_ONCE),
        Case("200 tokens", _heads(1, 2, 1, 200, 200, 16), **_ONCE),
        Case("scores up to 50", _heads(1, 1, 1, 40, 40, 32, size=12.0), **_LARGE),
        Case("float16, 4 heads on 2", _heads(1, 4, 2, 18, 18, 16, dtype=torch.float16), **_FLOAT16),
        Case("bfloat16, 20 queries, 35 keys", _heads(1, 2, 1, 20, 35, 32, dtype=torch.bfloat16), **_BFLOAT16),
        Case("two sequences, 6 heads on 3, earlier keys, other layouts", _other_layouts, **_ONCE),
        Case("scores around -200", _low_heads(1, 4, 2, 18, 35, 16, -200.0), **_VERY_LARGE),
        Case("scores around -20000", _low_heads(1, 2, 1, 17, 17, 16, -2e4), **_HUGE),
        Case("sequences 2^30 elements apart", _far_sequences, **_BFLOAT16),
        Case("heads 2^30 elements apart", _far_heads, **_BFLOAT16),
        Case("bfloat16, many small weights", _as_heads(_long_tail(4, 1072)), **_BFLOAT16),
    ),
    hints=(
        "How many keys does query `i` see? Which query of a tile sees the most, and so says where the loop may end?",
        "Move the pointers first: `k_ptr += batch * stride_kb + head // GROUP * stride_kh`, and the others likewise. "
        "`keys_seen = offs_m + 1 + Sk - S`, but never more than `Sk`. The rest is exercise 6.3 with "
        "`offs_n < keys_seen[:, None]` as mask.",
        "`end = tl.max(keys_seen, axis=0)`, `for start in range(0, end, BLOCK_N)`, loads with `offs_n[:, None] * "
        "stride_kn + offs_d`, `scores = tl.where(<...>, scores, -float('inf'))`, then online softmax. Launch: grid "
        "`(triton.cdiv(S, <...>), B * H)`, `GROUP=H // KH`; `scale` is `D**-0.5`, times log2 e for `tl.exp2`.",
    ),
    suspects=(
        Suspect(
            "mask-from-the-top",
            "Query 0 sees key 0 only, even where there are earlier keys. Which query sees the last key?",
            _many_heads(_from_the_top),
        ),
        Suspect("no-causal-mask", "Every query sees every key, also the later ones.", _many_heads(_every_key)),
        Suspect("sees-the-next-key", "Each query sees one key too many.", _many_heads(_causal(shift=1))),
        Suspect(
            "sees-not-itself", "Each query sees one key too few: its own is missing.", _many_heads(_causal(shift=-1))
        ),
        Suspect(
            "heads-shared-the-wrong-way",
            "Query heads took the wrong head of keys. Neighbours share: which heads use key head 0?",
            _many_heads(_causal(), key_head=lambda i, h, kh: i % kh),
        ),
        Suspect(
            "first-key-head-for-all",
            "All query heads took key head 0.",
            _many_heads(_causal(), key_head=lambda i, h, kh: 0),
        ),
        Suspect("missing-scale", _UNSCALED, _many_heads(_without_scale)),
        Suspect("base-mixed", _BASE_2, _many_heads(_causal(factor=0.6931471805599453))),
        Suspect("base-mixed", _BASE_2, _many_heads(_causal(factor=1.4426950408889634))),
        Suspect(
            "tokens-side-by-side",
            _STRIDE,
            lambda q, k, v: _many_heads(_causal())(_tokens_side_by_side(q), k, v),
        ),
        Suspect(
            "tokens-side-by-side",
            _STRIDE,
            lambda q, k, v: _many_heads(_causal())(q, _tokens_side_by_side(k), _tokens_side_by_side(v)),
        ),
        Suspect(
            "stops-before-the-diagonal",
            "The loop ends where the first query of a tile sees its last key. The queries below it see more.",
            _many_heads(_whole_tiles_only),
        ),
    ),
)

_STAND_IN = (
    "The window is right now. But a query that sees no key gets the mean of values that it may not see. Which weight "
    "does a score of -10000 have among its like?"
)
_NAN = "Queries that see nothing of their first block became NaN. What is -inf minus -inf?"
_ONE_SHORT = "Each query sees one key too few: the first of its window is missing."

_WINDOW = Exercise(
    number="6.5",
    title="Repair a sliding window",
    stars=2,
    minutes=15,
    entry="window_attention",
    reference=own.window_attention,
    exact=widened(own.window_attention),
    kind="repair",
    cases=(
        Case("the test it passes: 64 queries, a window of 64", _window(64, 64, 32, 64), **_ONCE),
        Case("a window of 8", _window(37, 37, 32, 8), **_ONCE, again=True),
        Case("few queries, a long window", _window(5, 80, 16, 60), **_ONCE),
        Case(
            "bfloat16, many small weights",
            lambda generator: (*_long_tail(4, 1072)(generator), 2000),
            **_TIGHT_BFLOAT16,
        ),
        Case("a window of one key, heads of 128", _window(20, 20, 128, 1), **_ONCE),
        Case("more keys than queries", _window(18, 50, 16, 20), **_ONCE),
        Case("queries that see no key", _window(40, 29, 16, 30), **_ONCE),
        Case("a tile that sees no key", _window(60, 9, 16, 8), **_ONCE),
        Case("scores far below zero", _window(40, 40, 32, 9, mean=-150.0), **_VERY_LARGE),
        Case("bfloat16, a window of 10", _window(33, 33, 32, 10, dtype=torch.bfloat16), **_BFLOAT16),
        Case(
            "one more than a tile, scores around -20000",
            _window(17, 33, 16, 17, mean=-2e4),
            **_HUGE,
        ),
    ),
    hints=(
        "Count the keys of a window of 1 by hand. And what does a query get that sees no key at all: which score does "
        "each key of the block have, which weight?",
        "`keys_seen - window` is the first key of the window. Unseen scores must be `-float('inf')`; then look for the "
        "places where -inf is subtracted from -inf, and where 0 is divided by 0.",
        "`centre = tl.where(new_max == -float('inf'), <a finite number>, new_max)` for both exponentials, `row_max = "
        "new_max` as it was, and `acc / tl.where(row_sum == 0.0, <...>, row_sum)[:, None]`.",
    ),
    suspects=(
        Suspect("window-one-short", _ONE_SHORT, _windowed(-1, -1e4, safely_divided=False)),
        Suspect("window-one-short", _ONE_SHORT, _windowed(-1, -1e4)),
        Suspect("window-one-short", _ONE_SHORT, _windowed(-1)),
        Suspect("window-one-long", "Each query sees one key too many.", _windowed(1)),
        Suspect("finite-stand-in", _STAND_IN, _windowed(0, -1e4, safely_divided=False)),
        Suspect("finite-stand-in", _STAND_IN, _windowed(0, -1e4)),
        Suspect(
            "zero-by-zero",
            "Only the queries that see no key at all are NaN now. What are they divided by?",
            _windowed(safely_divided=False),
        ),
        Suspect("nothing-seen-yet", _NAN, _windowed(guarded=False, safely_divided=False)),
        Suspect("nothing-seen-yet", _NAN, _windowed(guarded=False)),
        Suspect("centre-kept", _CENTRE_KEPT, _windowed(centre_kept=True)),
    ),
)

_GRADIENT = Exercise(
    number="6.6",
    title="The gradient of the queries",
    stars=3,
    minutes=30,
    entry="query_gradient",
    reference=own.query_gradient,
    exact=widened(own.query_gradient),
    cases=(
        Case("one tile", _backward(16, 16, 16), **_ONCE),
        Case("37 queries and 37 keys of 64, as in SmolLM2", _backward(37, 37, 64), **_ONCE, again=True),
        Case("more keys than queries, heads of 128", _backward(10, 70, 128), **_ONCE),
        Case("one key, so no gradient", _backward(20, 1, 16), **_ONCE),
        Case("scores up to 30", _backward(20, 50, 32, size=8.0), **_LARGE),
        Case("scores far below zero", _backward(18, 45, 32, mean=-150.0), **in_float32(200, size=3e3)),
        Case("float16", _backward(20, 40, 32, dtype=torch.float16), **_GRADIENT16),
        Case("bfloat16", _backward(33, 50, 64, dtype=torch.bfloat16), **_GRADIENT_BF16),
        Case(
            "one more than a tile, scores around -250", _backward(17, 33, 16, mean=-250.0), **in_float32(200, size=5e3)
        ),
        Case("bfloat16, values around 4", _far_from_zero(17, 128, 32), **_GRADIENT_BF16),
        Case("bfloat16, 300 keys", _backward(17, 300, 64, dtype=torch.bfloat16), **_LONG_GRADIENT),
    ),
    hints=(
        "Which of the numbers in the definition belong to a query alone, and can be had before the loop? Which need a "
        "product of two tiles?",
        "Before the loop: `q`, `do`, `lse`, and `delta = tl.sum(o * do, axis=1)` in float32. In it three products: `q` "
        "with `k.T`, `do` with `v.T`, and `ds` with `k`. The factor `scale` of `ds` can wait until the end.",
        "`p = tl.exp(<scores, -inf past the end> - lse[:, None])`, `dp = tl.dot(do, v.T, input_precision='ieee')`, "
        "`ds = p * (dp - <...>)`, `dq = tl.dot(ds.to(k.dtype), k, dq, input_precision='ieee')`; after it store `dq * "
        "scale`, rounded.",
    ),
    suspects=(
        Suspect(
            "delta-left-out",
            "This is the gradient without `delta`: a softmax's weights add up to 1, so if one rises, others must fall.",
            _gradient(delta=False),
        ),
        Suspect("missing-scale", "The gradient lacks the factor of the scores.", _gradient(scale=False)),
        Suspect(
            "base-mixed",
            "Powers of 2 were taken, of scores and an LSE that are meant for powers of e.",
            _gradient(log2=True),
        ),
        Suspect(
            "wrong-delta",
            "`delta` is the scalar product of `do` with something else. The definition has `o`.",
            lambda q, k, v, o, lse, do: _gradient()(q, k, v, do, lse, do),
        ),
        Suspect(
            "wrong-delta",
            "`delta` is the scalar product of `o` with something else. The definition has `do`.",
            lambda q, k, v, o, lse, do: _gradient(factor=o)(q, k, v, o, lse, do),
        ),
        Suspect(
            "values-for-keys",
            "The last product is one with `v`. The gradient of a score goes to the query by way of the keys.",
            _gradient(by_values=True),
        ),
        Suspect(
            "only-last-block",
            "Only the last block of keys is left of the sum. Where does `dq` of the earlier ones go in?",
            lambda q, k, v, o, lse, do: _gradient()(
                q, k[(len(k) - 1) // 16 * 16 :], v[(len(k) - 1) // 16 * 16 :], o, lse, do
            ),
        ),
        Suspect("keys-past-the-end", _PAST_THE_END, _overflowing),
        Suspect("keys-for-values", "`do` was multiplied by the keys. Whose gradient is `dp`?", _gradient(swapped=True)),
    ),
)

EXERCISES = (_SOFTMAX, _LOGSUMEXP, _ATTENTION, _PREFILL, _WINDOW, _GRADIENT)
