"""The exercises of lesson 04: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_kernels.rope import rope_tables
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import in_float32
from course_lessons.l04_rope import reference as own
from course_lessons.makers import FAR, laid_out, widened, with_gaps

# A rotation adds two products of float32, whose elements are at most about 5, and is rounded once.
_ONCE = in_float32(2, size=5.0)

Make = Callable[[Generator], tuple]


# ---- inputs --------------------------------------------------------------------------------------------------------


def _heads(tokens: int, heads: int, dim: int, generator: Generator, dtype=torch.float32) -> Tensor:
    return torch.randn(tokens, heads, dim, generator=generator).to(dtype)


def _counted(tokens: int, heads: int, dim: int, *, dtype=torch.float32, base=10000.0, more=3) -> Make:
    """x, cos, sin; the tables have so many rows more than x has tokens."""
    return lambda generator: (_heads(tokens, heads, dim, generator, dtype), *rope_tables(tokens + more, dim, base))


def _batch(
    batch: int, tokens: int, heads: int, dim: int, *, layout="bshd", dtype=torch.float32, table=torch.float32, rows=64,
    index=torch.int64, shared=False,
) -> Make:  # fmt: skip
    """x, positions, cos, sin. layout "qkv": a slice of rows that have 7 heads more. shared: positions of stride 0."""

    def make(generator: Generator) -> tuple:
        x = torch.randn(batch, tokens, heads + 7 * (layout == "qkv"), dim, generator=generator).to(dtype)[:, :, :heads]
        if layout == "sbhd":
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        positions = torch.randint(rows, (1 if shared else batch, tokens), generator=generator, dtype=index)
        positions[-1, -1] = rows - 1  # what lies behind it is no table
        cos, sin = (angles.to(table) for angles in rope_tables(rows, dim))
        return x, positions.expand(batch, tokens), cos, sin

    return make


def _projection(
    tokens: int, q_heads: int, kv_heads: int, dim: int, *, dtype=torch.float32, rows=64, strided=False, special=False
) -> Make:
    """qkv, cos, sin, positions and the three sizes. special: an infinite and a NaN among the values."""

    def make(generator: Generator) -> tuple:
        width = (q_heads + 2 * kv_heads) * dim
        qkv = torch.randn(tokens, width + 16 * strided, generator=generator).to(dtype)[:, :width]
        if special:
            qkv[1, -1], qkv[2, -dim] = float("inf"), float("nan")
        positions = torch.randint(rows, (tokens,), generator=generator)
        positions[-1] = rows - 1
        return qkv, *rope_tables(rows, dim), positions, q_heads, kv_heads, dim

    return make


def _packed(lengths: list[int], heads: int, dim: int, rotary: int, dtype=torch.float32) -> Make:
    def make(generator: Generator) -> tuple:
        cu_seqlens = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return _heads(sum(lengths), heads, dim, generator, dtype), cu_seqlens, *rope_tables(sum(lengths), rotary)

    return make


def _placed(make: Make, place: Callable[[Tensor], Tensor]) -> Make:
    """The same inputs, the first laid out in memory as `place` says."""

    def placed(generator: Generator) -> tuple:
        x, *rest = make(generator)
        return place(x), *rest

    return placed


def _positions_by_token(make: Make) -> Make:
    """The same inputs, positions stored with those of one token side by side."""

    def placed(generator: Generator) -> tuple:
        x, positions, *rest = make(generator)
        return x, laid_out(positions, 1, 0), *rest

    return placed


# ---- results of known mistakes -------------------------------------------------------------------------------------


def _turn(x: Tensor, cos: Tensor, sin: Tensor, formula: Callable, style: str = "neox") -> Tensor:
    """Every pair (a, b) of x replaced by formula(a, b, cos, sin); cos and sin have a dimension for the heads."""
    x, cos, sin = x.double(), cos.double(), sin.double()
    a, b = x.chunk(2, dim=-1) if style == "neox" else (x[..., 0::2], x[..., 1::2])
    turned = formula(a, b, cos, sin)
    return torch.cat(turned, dim=-1) if style == "neox" else torch.stack(turned, dim=-1).flatten(-2)


def _backwards(a, b, cos, sin):
    return a * cos + b * sin, b * cos - a * sin


def _both_minus(a, b, cos, sin):
    return a * cos - b * sin, b * cos - a * sin


def _both_plus(a, b, cos, sin):
    return a * cos + b * sin, b * cos + a * sin


def _exchanged(a, b, cos, sin):
    return a * sin - b * cos, b * sin + a * cos


def _own_partner(a, b, cos, sin):
    return a * cos - a * sin, a * cos + a * sin


def _right(a, b, cos, sin):
    return a * cos - b * sin, b * cos + a * sin


def _one_after_the_other(a, b, cos, sin):
    first = a * cos - b * sin
    return first, b * cos + first * sin


_FORMULAS = (
    ("turns-backwards", "Every pair is turned the other way. Which of the two products is subtracted?", _backwards),
    (
        "uses-turned-partner",
        "The second element is computed from a first one that has been turned already. It needs the old one.",
        _one_after_the_other,
    ),
    ("not-a-rotation", "One of the two signs is wrong: such a pair changes its length.", _both_minus),
    ("not-a-rotation", "One of the two signs is wrong: such a pair changes its length.", _both_plus),
    ("cos-and-sin-exchanged", "Sine and cosine have changed places. What happens at position 0?", _exchanged),
    ("partner-missing", "The first element was taken as its own partner. Which one is it?", _own_partner),
)
_OTHER_PAIRS = (
    "other-pairs",
    "The angles are right, the pairs are those of the other style. Which two elements belong together?",
)


def _suspects(rows: Callable[..., tuple[Tensor, Tensor, Tensor]], style: str = "neox") -> tuple[Suspect, ...]:
    """The mistakes of one rotation. rows: from the arguments to x and each token's cos and sin, ready to broadcast."""

    def wrong(formula: Callable, style: str) -> Callable[..., Tensor]:
        def result(*args) -> Tensor:
            x, cos, sin = rows(*args)
            return _turn(x, cos, sin, formula, style).to(x.dtype)

        return result

    other = "gptj" if style == "neox" else "neox"
    found = [Suspect(code, sentence, wrong(formula, style)) for code, sentence, formula in _FORMULAS]
    return (*found, Suspect(*_OTHER_PAIRS, wrong(_right, other)))


def _token_rows(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, cos[: len(x), None], sin[: len(x), None]


def _position_rows(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, cos[positions.long(), None], sin[positions.long(), None]


def _angle_of_head(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    heads = torch.arange(x.shape[1]) % len(cos)
    return _turn(x, cos[heads], sin[heads], _right).to(x.dtype)


_WIDE_ROWS = (
    "table-row-too-wide",
    "Only every second row of the tables is taken. A head of `D` elements has how many angles?",
)


def _every_second(rows: Tensor, table: Tensor) -> Tensor:
    """Rows 2, 4, 6, ... where 1, 2, 3, ... are wanted; NaN past the end."""
    padded = torch.cat([table, torch.full_like(table[:1], float("nan"))])
    return padded[(2 * rows).clamp(max=len(table)), None]


def _wide_rows(style: str) -> Suspect:
    """The mistake of 4.3, where a token's row is its number."""

    def result(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows = torch.arange(len(x))
        return _turn(x, _every_second(rows, cos), _every_second(rows, sin), _right, style).to(x.dtype)

    return Suspect(*_WIDE_ROWS, result)


def _wide_rows_of_positions(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = (_every_second(positions.long(), table) for table in (cos, sin))
    return _turn(x, cos, sin, _right).to(x.dtype)


# ---- the exercises -------------------------------------------------------------------------------------------------

_HEAD = Exercise(
    number="4.1",
    title="Turn one head",
    stars=1,
    minutes=10,
    entry="rope",
    reference=partial(reference.rope, layout="thd"),
    exact=widened(partial(reference.rope, layout="thd")),
    no_idle=True,
    cases=(
        Case("one token, at position 0", _counted(1, 2, 16), **_ONCE),
        Case("several positions, SmolLM2's head of 64", _counted(5, 3, 64), **_ONCE, again=True),
        Case("40 pairs, no power of two", _counted(4, 3, 80), **_ONCE),
        Case("one pair", _counted(6, 2, 2), **_ONCE),
        Case("33 tokens", _counted(33, 1, 32), **_ONCE),
        Case("bfloat16", _counted(7, 2, 48, dtype=torch.bfloat16), **_ONCE),
        Case("17 pairs, another base", _counted(17, 2, 34, base=500.0), **_ONCE),
        Case("tables of just as many rows, 9 pairs", _counted(3, 2, 18, more=0), **_ONCE),
        Case("a head of 2064 elements", _counted(1, 1, 2064), **_ONCE),
        Case("260 tokens", _counted(260, 1, 4), **_ONCE, last=True),
    ),
    hints=(
        "Which two elements does the lane of pair `i` need, and where do they lie? When may the first one be "
        "overwritten by its result?",
        "Four loads, all at `pair` with the same mask: the angles, `x_ptr + pair` and `x_ptr + half + pair`. Two "
        "results, each from both elements, then two stores.",
        "`a = tl.load(x_ptr + pair, mask=mask, other=0.0).to(tl.float32)`, `b = tl.load(x_ptr + <...> + pair, ...)`, "
        "`tl.store(y_ptr + pair, (a * <...> - b * <...>).to(y_ptr.dtype.element_ty), mask=mask)`, and the second half.",
    ),
    suspects=(
        *_suspects(_token_rows),
        Suspect(
            "angle-of-head",
            "Each head was turned by an angle of its own. All heads of a token stand at the same position.",
            _angle_of_head,
        ),
    ),
)


def _at_count(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return reference.rope(x, cos, sin, layout="bshd", positions=torch.arange(x.shape[1]) % len(cos))


def _at_first_sequence(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return reference.rope(x, cos, sin, layout="bshd", positions=positions[:1].expand(positions.shape))


_TOKENS = Exercise(
    number="4.2",
    title="Every layout",
    stars=2,
    minutes=20,
    entry="rope_tokens",
    contiguous=True,
    reference=partial(reference.rotate_tokens, style="neox"),
    exact=widened(partial(reference.rotate_tokens, style="neox")),
    cases=(
        Case("bshd, 8 heads", _batch(2, 5, 8, 32), **_ONCE, again=True),
        Case("9 heads", _batch(2, 4, 9, 64), **_ONCE),
        Case("sbhd: a transposed tensor", _batch(3, 4, 2, 32, layout="sbhd"), **_ONCE),
        Case("a slice of wider rows", _batch(2, 3, 5, 16, layout="qkv"), **_ONCE),
        Case("40 pairs, no power of two", _batch(1, 3, 3, 80), **_ONCE),
        Case("positions of a token side by side", _positions_by_token(_batch(3, 4, 2, 16)), **_ONCE),
        Case("a head of 2064 elements", _batch(1, 2, 1, 2064, rows=8), **_ONCE),
        Case("the same positions for all sequences", _batch(3, 4, 2, 16, shared=True), **_ONCE),
        Case("positions up to 8191, int32", _batch(1, 6, 2, 32, rows=8192, index=torch.int32), **_ONCE),
        Case(
            "bfloat16, a table of bfloat16",
            _batch(2, 3, 3, 32, dtype=torch.bfloat16, table=torch.bfloat16),
            **_ONCE,
        ),
        Case("float16, 70 heads", _batch(1, 2, 70, 16, dtype=torch.float16), **_ONCE),
        Case("float32, a table of bfloat16", _batch(2, 3, 3, 32, table=torch.bfloat16), **_ONCE),
        Case("a slice of longer heads", _placed(_batch(2, 3, 3, 16), partial(with_gaps, gap=6)), **_ONCE),
        Case("heads before tokens", _placed(_batch(2, 3, 5, 16), lambda x: laid_out(x, 2, 0, 1, 3)), **_ONCE),
        Case(
            "tokens 2^30 elements apart",
            _placed(_batch(1, 3, 2, 16, dtype=torch.bfloat16), lambda x: spread(x, (0, FAR, 24, 1))),
            **_ONCE,
        ),
        Case(
            "sequences 2^30 elements apart",
            _placed(_batch(3, 2, 2, 16, dtype=torch.bfloat16), lambda x: spread(x, (FAR, 64, 24, 1))),
            **_ONCE,
        ),
    ),
    hints=(
        "Two questions: where does token `s` of sequence `b` begin, and which row of the tables is its own? Which mask "
        "do the angles need, and which one the elements?",
        "`row` comes from `positions_ptr + b * stride_pb + s * stride_ps`, as int64. The angles lie at `row * half + "
        "pair`, with a mask for pairs. Elements also need `offs_h < heads`, and their offset adds `offs_h * "
        "stride_xh`.",
        "`mask = (offs_h < heads) & (pair < half)`; `x_ptr += b * <...> + s * <...> + offs_h * <...> + pair`, the same "
        "for `y_ptr`; `first` is loaded at `x_ptr`, `second` at `x_ptr + half`; then as in 4.1.",
    ),
    suspects=(
        *_suspects(_position_rows),
        Suspect(*_WIDE_ROWS, _wide_rows_of_positions),
        Suspect(
            "position-ignored",
            "The tokens were turned by their number in the sequence. Their position stands in `positions`.",
            _at_count,
        ),
        Suspect(
            "first-sequence-everywhere",
            "All sequences were turned by the positions of the first. Which stride leads to the others?",
            _at_first_sequence,
        ),
    ),
)


def _halves_stored(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """gptj pairs, turned rightly, stored as halves."""
    y = reference.rope(x, cos, sin, layout="thd", style="gptj")
    return torch.cat([y[..., 0::2], y[..., 1::2]], dim=-1)


def _neox_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """neox pairs, turned, stored as neighbours."""
    y = reference.rope(x, cos, sin, layout="thd")
    return torch.stack(y.chunk(2, dim=-1), dim=-1).flatten(-2)


def _members_exchanged(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = reference.rope(x, cos, sin, layout="thd", style="gptj")
    return y.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


_ORDER = "The numbers are right, their order is not. After `tl.join(a, b)`, which elements are neighbours?"

_NEIGHBOURS = Exercise(
    number="4.3",
    title="Neighbours as pairs",
    stars=2,
    minutes=15,
    entry="rope_neighbours",
    reference=partial(reference.rope, layout="thd", style="gptj"),
    exact=widened(partial(reference.rope, layout="thd", style="gptj")),
    cases=(
        Case("8 heads of 32", _counted(4, 8, 32), **_ONCE, again=True),
        Case("9 heads of 64", _counted(5, 9, 64), **_ONCE),
        Case("one head, one pair", _counted(7, 1, 2), **_ONCE),
        Case("3 heads of 128", _counted(33, 3, 128), **_ONCE),
        Case("bfloat16", _counted(6, 5, 64, dtype=torch.bfloat16), **_ONCE),
        Case("70 heads of 4, another base", _counted(3, 70, 4, base=500.0), **_ONCE),
    ),
    hints=(
        "You have a block `(BLOCK_H, D)` of whole heads. Which shape gives the two elements of a pair an axis of their "
        "own?",
        "`tl.split` cuts the last axis, of length 2, and `tl.join` makes such an axis. So reshape to three axes, "
        "split, turn, join, and reshape back.",
        "`a, b = tl.split(x.reshape(BLOCK_H, <...>, 2))`, `y = tl.join(<first of each pair>, "
        "<second>).reshape(BLOCK_H, D)`, and one load and one store at `offs`, masked with `offs_h < heads`.",
    ),
    suspects=(
        Suspect("order-of-join", _ORDER, _halves_stored),
        Suspect(*_OTHER_PAIRS, _neox_interleaved),
        Suspect(
            "members-exchanged",
            "The two elements of each pair have changed places. Which one does `tl.join` put first?",
            _members_exchanged,
        ),
        *_suspects(_token_rows, "gptj"),
        _wide_rows("gptj"),
    ),
)


def _after_the_call(formula: Callable, style: str = "neox") -> Callable[..., Tensor]:
    def result(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return _turn(*_token_rows(x, cos, sin), formula, style).to(x.dtype)

    return result


def _rounded_partner(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The second half is computed from the first as it was stored."""
    a, b = x.double().chunk(2, dim=-1)
    cos, sin = (table[: len(x), None].double() for table in (cos, sin))
    first = (a * cos - b * sin).to(x.dtype)
    return torch.cat([first, (b * cos + first.double() * sin).to(x.dtype)], dim=-1)


_INPLACE = Exercise(
    number="4.4",
    title="Repair a rotation in place",
    stars=2,
    minutes=12,
    entry="rope_inplace",
    reference=own.rope_inplace,
    exact=widened(own.rope_inplace, inplace=(0,)),
    kind="repair",
    inplace=(0,),
    cases=(
        Case("the test it passes: one token, 8 heads", _counted(1, 8, 64), **_ONCE),
        Case("several positions", _counted(5, 8, 64), **_ONCE, again=True),
        Case("9 heads", _counted(4, 9, 64), **_ONCE),
        Case("12 heads, 40 pairs", _counted(3, 12, 80), **_ONCE),
        Case("bfloat16", _counted(6, 4, 32, dtype=torch.bfloat16), **_ONCE),
        Case("tables of just as many rows, 9 pairs", _counted(3, 2, 18, more=0), **_ONCE),
        Case("a head of 2064 elements", _counted(2, 1, 2064), **_ONCE),
        Case("5 heads, 9 pairs, bfloat16", _counted(9, 5, 18, dtype=torch.bfloat16, base=500.0), **_ONCE),
    ),
    hints=(
        "Follow one pair by hand through both stores, at position 1. What does memory hold at the second load of "
        "`first`? And whose heads are rows 9 to 15 of the block?",
        "Everything that a result needs must have been loaded before anything is stored. And a mask for rows compares "
        "with the number of heads that exist.",
        "`mask = (offs_h < <...>) & mask_p`; load `first` and `second` once; then two stores, `first * cos - second * "
        "sin` and `<...>`.",
    ),
    suspects=(
        Suspect(
            "uses-turned-partner",
            "The first half is right. The second was computed from a first half that had been written over already.",
            _rounded_partner,
        ),
        Suspect(
            "left-as-it-was", "`x` is what it was before the call. In place means: store to `x`.", lambda x, c, s: x
        ),
        *(
            Suspect(code, sentence, _after_the_call(formula))
            for code, sentence, formula in _FORMULAS
            if "partner" not in code
        ),
        Suspect(*_OTHER_PAIRS, _after_the_call(_right, "gptj")),
    ),
)


def _split(qkv, positions, cos, sin, q_heads, kv_heads, dim, *, turn=(True, True, False)) -> tuple[Tensor, ...]:
    """(q, k, v) with those turned that `turn` says."""
    parts = qkv.unflatten(-1, (-1, dim)).split([q_heads, kv_heads, kv_heads], dim=1)
    rotated = [reference.rotate_tokens(part, positions, cos, sin, "neox") for part in parts]
    return tuple(new if wanted else old for new, old, wanted in zip(rotated, parts, turn, strict=True))


def _turning(*turn: bool) -> Callable[..., tuple[Tensor, ...]]:
    return lambda qkv, cos, sin, positions, *sizes: _split(qkv, positions, cos, sin, *sizes, turn=turn)


def _at_index(qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    return _split(qkv, torch.arange(len(qkv)), cos, sin, *sizes)


def _values_multiplied(qkv, cos, sin, positions, q_heads, kv_heads, dim) -> tuple[Tensor, ...]:
    """Values turned by an angle of zero, where an infinite or NaN partner spoils an element."""
    q, k, v = _split(qkv, positions, cos, sin, q_heads, kv_heads, dim)
    return q, k, reference.rotate_pairs(v, torch.ones(dim // 2), torch.zeros(dim // 2), "neox").to(v.dtype)


def _keys_and_values_exchanged(qkv, cos, sin, positions, *sizes) -> tuple[Tensor, ...]:
    q, k, v = _split(qkv, positions, cos, sin, *sizes)
    return q, v, k


def _gptj_split(qkv, cos, sin, positions, *sizes) -> tuple[Tensor, ...]:
    return reference.split_qkv_rope(qkv, cos, sin, positions, *sizes, style="gptj")


_SPLIT = Exercise(
    number="4.5",
    title="Cut and turn in one launch",
    stars=3,
    minutes=30,
    entry="split_qkv_rope",
    reference=reference.split_qkv_rope,
    exact=widened(reference.split_qkv_rope),
    max_launches=1,
    cases=(
        Case("MHA: as many heads of keys as of queries", _projection(4, 4, 4, 32), **_ONCE, again=True),
        Case("SmolLM2: 9 heads of queries, 3 of keys", _projection(5, 9, 3, 64), **_ONCE),
        Case("one head of keys for eight of queries", _projection(3, 8, 1, 16), **_ONCE),
        Case("more heads of keys than of queries", _projection(3, 2, 5, 16), **_ONCE),
        Case("40 pairs, no power of two", _projection(2, 3, 1, 80), **_ONCE),
        Case("rows further apart than they are long", _projection(4, 3, 2, 16, strided=True), **_ONCE),
        Case("positions up to 8191", _projection(6, 2, 1, 32, rows=8192), **_ONCE),
        Case("infinity and NaN among the values", _projection(4, 2, 2, 16, special=True), **_ONCE),
        Case("bfloat16", _projection(4, 4, 2, 32, dtype=torch.bfloat16), **_ONCE),
        Case("float16, 70 heads", _projection(2, 50, 10, 16, dtype=torch.float16), **_ONCE),
        Case("17 heads, 17 pairs", _projection(3, 11, 3, 34), **_ONCE),
        Case("a head of 2064 elements", _projection(1, 1, 1, 2064, rows=8), **_ONCE),
        Case(
            "rows 2^30 elements apart",
            _placed(_projection(3, 2, 1, 16, dtype=torch.bfloat16), lambda x: spread(x, (FAR, 1))),
            **_ONCE,
        ),
    ),
    hints=(
        "Row number `head` of the block is a head of queries, of keys or of values. How do you tell which, and what is "
        "its number among those of its kind?",
        "Load the whole row as a tile, compute the turned pairs, and let `tl.where(head < q_heads + kv_heads, "
        "<turned>, <as it was>)` choose. Then three pairs of stores, each with a mask and a head number of its own.",
        "`k_head = head - q_heads`, stored at `(token * kv_heads + k_head) * 2 * half + pair` where `(k_head >= 0) & "
        "(k_head < <...>) & mask_p`; `v_head = k_head - <...>` in the same way.",
    ),
    suspects=(
        Suspect("values-turned", "The values were turned as well. They have no position.", _turning(True, True, True)),
        Suspect(
            "keys-not-turned", "The queries are right, and the keys were not turned.", _turning(True, False, False)
        ),
        Suspect(
            "nothing-turned",
            "The row is cut in the right places, and nothing is turned.",
            _turning(False, False, False),
        ),
        Suspect(
            "values-multiplied",
            "An infinite value has made its partner NaN: even a product with 0 is a product. Values must only be "
            "copied.",
            _values_multiplied,
        ),
        Suspect(
            "position-ignored",
            "The tokens were turned by their number. Their position stands in `positions`.",
            _at_index,
        ),
        Suspect(
            "keys-and-values-exchanged",
            "`k` holds the values and `v` the keys. Which of them come first in a row?",
            _keys_and_values_exchanged,
        ),
        Suspect(*_OTHER_PAIRS, _gptj_split),
    ),
)


def _rows_of(x: Tensor, cos: Tensor, sin: Tensor, rows: Tensor) -> Tensor:
    positions = rows.clamp(0, len(cos) - 1)
    return reference.rope(x, cos, sin, layout="thd", positions=positions, rotary_dim=2 * cos.shape[1])


def _not_restarted(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _rows_of(x, cos, sin, torch.arange(len(x)))


def _starts_too_late(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first token of a sequence still counts from the begin of the one before."""
    tokens = torch.arange(len(x))
    before = torch.where(cu_seqlens[None, :-1] < tokens[:, None], cu_seqlens[:-1], 0).amax(dim=1)
    return _rows_of(x, cos, sin, tokens - before)


def _last_part(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotary = 2 * cos.shape[1]
    return reference.rope(x, cos, sin, layout="thd", cu_seqlens=cu_seqlens, rotary_dim=rotary, nope_first=True)


def _rest_missing(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = own.rope_packed(x, cu_seqlens, cos, sin)
    y[..., 2 * cos.shape[1] :] = float("nan")  # fresh memory
    return y


def _partner_across_the_head(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs i and i + D / 2, as if the whole head turned; then the rest is copied, and what lies between is fresh."""
    half, across = cos.shape[1], x.shape[-1] // 2
    rows = reference.rope_rows(x.shape, "thd", cu_seqlens=cu_seqlens)
    c, s = (table[rows, None].double() for table in (cos, sin))
    a, b = x[..., :half].double(), x[..., across : across + half].double()
    y = torch.full(x.shape, float("nan"), dtype=torch.float64)
    y[..., :half], y[..., across : across + half] = a * c - b * s, b * c + a * s
    y[..., 2 * half :] = x[..., 2 * half :]
    return y.to(x.dtype)


def _rest_too_early(x: Tensor, cu_seqlens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The copied block begins at `half`."""
    half, y = cos.shape[1], _rest_missing(x, cu_seqlens, cos, sin)
    stop = half + (1 << (max(x.shape[-1] - 2 * half, 1) - 1).bit_length())
    y[..., half:stop] = x[..., half:stop]
    return y


_PACKED = Exercise(
    number="4.6",
    title="Packed sequences, partial rotary",
    stars=3,
    minutes=30,
    entry="rope_packed",
    reference=own.rope_packed,
    exact=widened(own.rope_packed),
    cases=(
        Case("one sequence, the whole head", _packed([6], 2, 32, 32), **_ONCE),
        Case("three sequences, the whole head", _packed([4, 2, 3], 2, 32, 32), **_ONCE, again=True),
        Case("empty sequences, also at both ends", _packed([0, 1, 11, 0, 0, 5, 0], 2, 16, 16), **_ONCE),
        Case("one sequence, 9 pairs of a head of 20", _packed([5], 3, 20, 18), **_ONCE),
        Case("a quarter of the head", _packed([3, 4], 2, 64, 16), **_ONCE),
        Case("20 of 48 elements, 17 heads", _packed([2, 5], 17, 48, 20), **_ONCE),
        Case("a head of 2100 elements, of which 2064 turn", _packed([1, 1], 1, 2100, 2064), **_ONCE),
        Case("seventy sequences of one token", _packed([1] * 70, 1, 16, 8), **_ONCE),
        Case("bfloat16", _packed([5, 3], 3, 64, 32, torch.bfloat16), **_ONCE),
        Case(
            "17 sequences, empty ones among them, 9 heads, 5 pairs", _packed([2, 0, 1] * 5 + [0, 4], 9, 27, 10), **_ONCE
        ),
    ),
    hints=(
        "Of all starts in `cu_seqlens`, which one belongs to token `t`? How can a program find it with one load and "
        "one reduction?",
        "Load the `sequences` starts as a block. The right one is the largest that is not above `token`. What must "
        "idle lanes hold so that they never win? For the rest of a head, a second tile of columns from `2 * half` on.",
        "`starts = tl.load(cu_seqlens_ptr + offs_b, mask=offs_b < sequences, other=<...>)`, `begin = tl.max(tl.where("
        "starts <= token, starts, 0), axis=0)`, `row = token - begin`; `rest = 2 * half + tl.arange(0, BLOCK_D)[None, "
        ":]`.",
    ),
    suspects=(
        Suspect(
            "positions-not-restarted",
            "The positions go on from one sequence to the next. Each sequence begins at position 0.",
            _not_restarted,
        ),
        Suspect(
            "starts-too-late",
            "The first token of each sequence was taken for the end of the one before. Does a sequence have its start?",
            _starts_too_late,
        ),
        Suspect("turns-the-last-part", "The last elements of the heads were turned, and not the first.", _last_part),
        Suspect(
            "rest-not-copied",
            "The turned elements are right. The others were never written; they belong to the result as well.",
            _rest_missing,
        ),
        Suspect(
            "rest-too-early",
            "The second element of each pair was turned, and then copied over. Where does the rest of a head begin?",
            _rest_too_early,
        ),
        Suspect(
            "partner-across-the-head",
            "The partner was taken half a *head* away. Only `2 * half` elements turn: how far away is it among them?",
            _partner_across_the_head,
        ),
        Suspect(
            "turns-backwards",
            _FORMULAS[0][1],
            lambda x, cu_seqlens, cos, sin: own.rope_packed(x, cu_seqlens, cos, -sin),
        ),
    ),
)


EXERCISES = (_HEAD, _TOKENS, _NEIGHBOURS, _INPLACE, _SPLIT, _PACKED)
