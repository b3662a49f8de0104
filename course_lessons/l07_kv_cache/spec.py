"""The exercises of lesson 07: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import in_float32
from course_lessons.l07_kv_cache import reference as own
from course_lessons.makers import FAR, vast, widened, with_gaps

_EXACT = {"atol": 0.0, "rtol": 0.0, "why": "numbers are moved, not computed"}
# A turn adds two products of elements of about 5; attention weights values of about 4 with sums of at most 100 terms.
_TURNED = in_float32(2, size=5.0)
_ATTENTION = in_float32(100, size=4.0)
_LARGE = in_float32(100, size=800.0)
_HUGE = in_float32(100, size=5e4)
_ONCE = in_float32()

Make = Callable[[Generator], tuple]


def _randn(generator: Generator, *shape: int, dtype=torch.float32) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def _apart(make: Make, *gaps: int) -> Make:
    """The same inputs; the tokens of the first ones lie further apart, each by so many heads of its own."""

    def apart(generator: Generator) -> tuple:
        args = list(make(generator))
        for position, gap in enumerate(gaps):
            args[position] = with_gaps(args[position].contiguous(), gap, dim=1)
        return tuple(args)

    return apart


def _far(make: Make, *positions: int) -> Make:
    """The same inputs, those at `positions` with 2^30 elements and more between their rows or pages."""

    def far(generator: Generator) -> tuple:
        args = list(make(generator))
        for i, position in enumerate(positions):
            x = args[position]
            args[position] = spread(x, (FAR + 64 * i, *x.contiguous().stride()[1:]))
        return tuple(args)

    return far


def _far_pages(generator: Generator) -> tuple:
    """Both caches have pages 2^30 elements apart; slots of the last page are written."""
    k, v, *caches, _ = _pages(3, 2, 16, pages=3, page=8)(generator)
    stride = (FAR, *caches[0].contiguous().stride()[1:])
    return k, v, *(spread(cache, stride) for cache in caches), torch.tensor([17, 3, 23])


def _first(count: int, many: int, generator: Generator) -> Tensor:
    """`count` of the numbers below `many`, in any order."""
    return torch.randperm(many, generator=generator)[:count]


# ---- 7.1 -----------------------------------------------------------------------------------------------------------


def _append(tokens: int, kv_heads: int, head_dim: int, *, room: int = 16, dtype=torch.float32, start=None) -> Make:
    """k and v are cut out of rows that hold more; start: positions in order from there, else in any order."""

    def make(generator: Generator) -> tuple:
        rows = _randn(generator, tokens, 4 * kv_heads, head_dim, dtype=dtype)
        caches = (_randn(generator, room, kv_heads, head_dim, dtype=dtype) for _ in range(2))
        positions = _first(tokens, room, generator) if start is None else torch.arange(start, start + tokens)
        return rows[:, kv_heads : 2 * kv_heads], rows[:, 3 * kv_heads :], *caches, positions

    return make


def _after(change: Callable[..., None]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The caches (arguments 2 and 3) after a change made to them."""

    def formula(*args) -> tuple[Tensor, Tensor]:
        change(*args)
        return args[2], args[3]

    return formula


def _in_order(k, v, k_cache, v_cache, positions) -> None:
    own.append_kv(k, v, k_cache, v_cache, torch.arange(len(k)))


def _keys_twice(k, v, k_cache, v_cache, positions) -> None:
    own.append_kv(k, k, k_cache, v_cache, positions)


def _only_keys(k, v, k_cache, v_cache, positions) -> None:
    k_cache[positions] = k


def _exchanged(k, v, k_cache, v_cache, positions) -> None:
    own.append_kv(v, k, k_cache, v_cache, positions)


def _append_extremes(generator: Generator) -> tuple:
    """Numbers that only float32 holds: no detour through 16 bits leaves them as they are."""
    k, v, *rest = _append(3, 2, 16)(generator)
    return k * 1e30, v * 1e-30, *rest


_APPEND = Exercise(
    number="7.1",
    title="A row into the cache",
    stars=1,
    minutes=8,
    entry="append_kv",
    reference=own.append_kv,
    inplace=(2, 3),
    max_launches=1,
    no_idle=True,
    cases=(
        Case("SmolLM2's heads, the prompt", _append(6, 3, 64, room=18, start=0), **_EXACT, again=True),
        Case("one token, in the middle", _append(1, 3, 64, start=9), **_EXACT),
        Case("the last place of the cache", _append(1, 2, 32, start=15), **_EXACT),
        Case("positions in any order", _append(7, 2, 32), **_EXACT),
        Case("a row of 40 numbers", _append(5, 5, 8), **_EXACT),
        Case("17 heads of 64, more than 1,024 numbers", _append(2, 17, 64), **_EXACT),
        Case("float16", _append(4, 3, 16, dtype=torch.float16), **_EXACT),
        Case("bfloat16", _append(4, 3, 16, dtype=torch.bfloat16), **_EXACT),
        Case("rows of k and v not equally far apart", _apart(_append(5, 2, 16), 1, 3), **_EXACT),
        Case("large numbers, small numbers", _append_extremes, **_EXACT),
        Case("rows 2^30 elements apart", _far(_append(3, 2, 16, dtype=torch.float16), 0, 1), **_EXACT),
        Case("a cache of 2^31 numbers", vast(_append(3, 2, 16, dtype=torch.float16), 4, 2, 3), **_EXACT),
    ),
    hints=(
        "Which row does program `token` read, and which one does it write? Where does the second number come from?",
        "`tl.load(positions_ptr + token)` gives one number. Rows of `k` are `stride_kt` apart, rows of the cache "
        "`WIDTH`.",
        "`position = tl.load(<...>)`, `k = tl.load(k_ptr + <row of k> + cols, mask=mask)`, `tl.store(k_cache_ptr + "
        "<row of the cache> + cols, k, mask=mask)`, and the same for `v`.",
    ),
    suspects=(
        Suspect(
            "positions-unused",
            "The rows were stored in the order of the tokens. Each belongs to the position that `positions` names.",
            _after(_in_order),
        ),
        Suspect("keys-as-values", "The keys went into both caches.", _after(_keys_twice)),
        Suspect("values-not-stored", "The keys are right. Nothing was stored in `v_cache`.", _after(_only_keys)),
        Suspect("caches-exchanged", "Keys are in the cache of values, and values in that of keys.", _after(_exchanged)),
    ),
)


# ---- 7.2 -----------------------------------------------------------------------------------------------------------


def _pages(
    tokens: int,
    kv_heads: int,
    head_dim: int,
    *,
    pages=5,
    page=8,
    padding=0,
    gaps=False,
    slots=None,
    dtype=torch.float32,
) -> Make:
    """gaps: keys and values of a page lie side by side. padding: so many tokens have slot -1."""

    def make(generator: Generator) -> tuple:
        k, v = (_randn(generator, tokens, kv_heads, head_dim, dtype=dtype) for _ in range(2))
        both = _randn(generator, pages, 2, page, kv_heads, head_dim, dtype=dtype)
        k_cache, v_cache = (both[:, i] if gaps else both[:, i].contiguous() for i in range(2))
        mapping = _first(tokens, pages * page, generator) if slots is None else torch.tensor(slots)
        mapping[_first(padding, tokens, generator)] = -1
        return k, v, k_cache, v_cache, mapping

    return make


def _store_at(k, v, k_cache, v_cache, tokens: Tensor, page: Tensor, place: Tensor) -> None:
    k_cache[page, place], v_cache[page, place] = k[tokens], v[tokens]


def _slot_zero_left_out(k, v, k_cache, v_cache, slots) -> None:
    own.write_pages(k, v, k_cache, v_cache, torch.where(slots > 0, slots, -1))


def _padding_to_the_last(k, v, k_cache, v_cache, slots) -> None:
    """As PyTorch's own indexing does."""
    for t, slot in enumerate((slots % (k_cache.shape[0] * k_cache.shape[1])).tolist()):
        k_cache[slot // k_cache.shape[1], slot % k_cache.shape[1]] = k[t]
        v_cache[slot // k_cache.shape[1], slot % k_cache.shape[1]] = v[t]


def _padding_to_slot_zero(k, v, k_cache, v_cache, slots) -> None:
    own.write_pages(k, v, k_cache, v_cache, slots.clamp(min=0))


def _first_page_only(k, v, k_cache, v_cache, slots) -> None:
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            k_cache[0, slot % k_cache.shape[1]], v_cache[0, slot % k_cache.shape[1]] = k[t], v[t]


_PADDING_STORED = (
    "A padding token was stored. Its slot is -1, which is no place in the cache: which lanes may store then?"
)

_PAGES = Exercise(
    number="7.2",
    title="Into pages",
    stars=2,
    minutes=12,
    entry="write_pages",
    reference=own.write_pages,
    inplace=(2, 3),
    cases=(
        Case("slots in any order", _pages(9, 3, 16), **_EXACT, again=True),
        Case("the first and the last slot", _pages(2, 3, 16, slots=(0, 39)), **_EXACT),
        Case("pages of 16, fewer pages than places", _pages(12, 2, 32, pages=3, page=16), **_EXACT),
        Case("keys and values of a page side by side", _pages(9, 3, 16, gaps=True), **_EXACT),
        Case("padding: slot -1", _pages(8, 3, 16, padding=3), **_EXACT),
        Case("padding, and pages with gaps", _pages(8, 2, 16, padding=2, gaps=True), **_EXACT),
        Case("nothing but padding", _pages(2, 3, 16, padding=2), **_EXACT),
        Case("a row of 40 numbers, bfloat16", _pages(6, 5, 8, dtype=torch.bfloat16), **_EXACT),
        Case("a row of 1152 numbers", _pages(3, 9, 128, pages=1), **_EXACT),
        Case("pages of 5, 33 numbers a row", _pages(9, 3, 11, pages=7, page=5), **_EXACT),
        Case("pages 2^30 elements apart", _far_pages, **_EXACT),
    ),
    hints=(
        "Which page is slot 19 in, and which place there, if pages have 8? How far from the beginning of the cache is "
        "that, if pages lie `stride_page` apart?",
        "`slot // PAGE` is the page, `slot % PAGE` the place. A row is `WIDTH` long. `slot >= 0` is one truth value; "
        "`mask & <it>` applies it to all lanes.",
        "`slot = tl.load(<...>)`, `offs = <page> * stride_page + <place> * WIDTH + cols`, then two stores with "
        "`mask=mask & (<slot exists>)`.",
    ),
    suspects=(
        Suspect("padding-stored", _PADDING_STORED, _after(_padding_to_the_last)),
        Suspect("padding-stored", _PADDING_STORED, _after(_padding_to_slot_zero)),
        Suspect(
            "slot-zero-left-out",
            "Slot 0 is a place like any other. Only negative ones are none.",
            _after(_slot_zero_left_out),
        ),
        Suspect(
            "first-page-only", "All rows went into page 0. Which page does a slot belong to?", _after(_first_page_only)
        ),
    ),
)


# ---- 7.3 -----------------------------------------------------------------------------------------------------------


def _turn(tokens: int, q_heads: int, kv_heads: int, head_dim: int, **options) -> Make:
    """q, k, v cut out of the rows of one qkv. Options: slots, padding, positions (a start), dtype."""

    def make(generator: Generator) -> tuple:
        page, pages, dtype = 8, 4, options.get("dtype", torch.float32)
        qkv = _randn(generator, tokens, q_heads + 2 * kv_heads, head_dim, dtype=dtype)
        q, k, v = qkv.split([q_heads, kv_heads, kv_heads], dim=1)
        caches = (_randn(generator, pages, page, kv_heads, head_dim, dtype=dtype) for _ in range(2))
        start = options.get("positions", 0)
        positions = torch.arange(start, start + tokens)
        slots = positions.clone() if options.get("same") else _first(tokens, pages * page, generator)
        slots[_first(options.get("padding", 0), tokens, generator)] = -1
        exponents = torch.arange(0, head_dim, 2) / head_dim
        angles = torch.outer(torch.arange(start + pages * page).float(), 1e4**-exponents)  # a row for each slot too
        return q, k, v, *caches, slots, positions, angles.cos(), angles.sin()

    return make


def _all_three(change: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """What is returned, and the caches (arguments 3 and 4) after it."""

    def formula(*args) -> tuple[Tensor, ...]:
        q_out = change(*args)
        return q_out, args[3], args[4]

    return formula


def _by_slot(q, k, v, k_cache, v_cache, slots, positions, cos, sin) -> Tensor:
    return own.rope_and_cache(q, k, v, k_cache, v_cache, slots, slots.clamp(min=0), cos, sin)


def _keys_plain(q, k, v, k_cache, v_cache, slots, positions, cos, sin) -> Tensor:
    own.write_pages(k, v, k_cache, v_cache, slots)
    return reference.rotate_tokens(q, positions, cos, sin, "neox")


def _values_turned(q, k, v, k_cache, v_cache, slots, positions, cos, sin) -> Tensor:
    v = reference.rotate_tokens(v, positions, cos, sin, "neox")
    return own.rope_and_cache(q, k, v, k_cache, v_cache, slots, positions, cos, sin)


def _queries_plain(q, *rest) -> Tensor:
    own.rope_and_cache(q, *rest)
    return q.contiguous()


def _backwards(*args) -> Tensor:
    return own.rope_and_cache(*args[:-1], -args[-1])


def _neighbours(q, k, v, k_cache, v_cache, slots, positions, cos, sin) -> Tensor:
    k = reference.rotate_tokens(k, positions, cos, sin, "gptj")
    own.write_pages(k, v, k_cache, v_cache, slots)
    return reference.rotate_tokens(q, positions, cos, sin, "gptj")


def _new_a(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The second half turned with the new first half."""
    (a, b), c, s = x.float().chunk(2, dim=-1), cos[positions][:, None], sin[positions][:, None]
    a = a * c - b * s
    return torch.cat([a, b * c + a * s], dim=-1).to(x.dtype)


def _overwritten(q, k, v, k_cache, v_cache, slots, positions, cos, sin) -> Tensor:
    own.write_pages(_new_a(k, positions, cos, sin), v, k_cache, v_cache, slots)
    return _new_a(q, positions, cos, sin)


_ROPE = Exercise(
    number="7.3",
    title="Turn and store in one launch",
    stars=2,
    minutes=30,
    entry="rope_and_cache",
    reference=own.rope_and_cache,
    exact=widened(own.rope_and_cache, inplace=(3, 4)),
    inplace=(3, 4),
    max_launches=1,
    cases=(
        Case("slots equal to positions", _turn(3, 4, 2, 32, same=True), **_TURNED),
        Case("SmolLM2's heads, slots in any order", _turn(4, 9, 3, 64), **_TURNED, again=True),
        Case("one token at position 1000", _turn(1, 9, 3, 64, positions=1000), **_TURNED),
        Case("padding: slot -1", _turn(4, 3, 1, 32, padding=2), **_TURNED),
        Case("as many key heads as query heads, of 128", _turn(3, 2, 2, 128), **_TURNED),
        Case("float16", _turn(3, 4, 1, 32, dtype=torch.float16), **_TURNED),
        Case("bfloat16", _turn(3, 4, 1, 32, dtype=torch.bfloat16), **_TURNED),
        Case("rows of q, k and v not equally far apart", _apart(_turn(4, 3, 2, 16), 1, 2, 4), **_TURNED),
        Case("rows 2^30 elements apart", _far(_turn(3, 2, 1, 16, dtype=torch.bfloat16), 0, 1, 2), **_TURNED),
        Case("a cache of 2^31 numbers", vast(_turn(3, 2, 1, 16, padding=1), 5, 3, 4, per_row=8), **_TURNED),
    ),
    hints=(
        "Three sorts of heads: where does each come from, where does it go, and which of them turn?",
        "Let `if head < QH: ... elif head < QH + KH: ... else: ...` call `move_head`, each with its own addresses. Row "
        "`slot` of the cache begins at `slot * KH * D`, and `D` is `2 * HALF`. Load both halves before you turn them.",
        "In `move_head`: `a`, `b` loaded and widened; `if TURN:` load `cos`, `sin` at `position * HALF + i` and set "
        "`a, b = <...>, <...>` in one line; two stores with `mask=(i < HALF) & exists`. In the kernel: "
        "`move_head(q_ptr + <...>, q_out_ptr + <...>, cos_ptr, sin_ptr, position, True, HALF, True)`, and so on.",
    ),
    suspects=(
        Suspect(
            "turned-by-slot",
            "The angles are those of the slot. A token turns by its position, wherever it is stored.",
            _all_three(_by_slot),
        ),
        Suspect("keys-not-turned", "The keys were stored as they came. Keys turn too.", _all_three(_keys_plain)),
        Suspect("values-turned", "The values were turned. Only queries and keys turn.", _all_three(_values_turned)),
        Suspect("queries-not-turned", "The queries are returned as they came.", _all_three(_queries_plain)),
        Suspect("turned-backwards", "Everything is turned the wrong way. Compare the signs.", _all_three(_backwards)),
        Suspect(
            "wrong-pairs",
            "Neighbours were turned together. Here element `i` belongs with element `i + D / 2`.",
            _all_three(_neighbours),
        ),
        Suspect(
            "turned-with-new-half",
            "The second half was turned with a first half that had been turned already. Which values belong there?",
            _all_three(_overwritten),
        ),
    ),
)


# ---- 7.4 -----------------------------------------------------------------------------------------------------------


def _decode(lengths: tuple[int, ...], q_heads: int, kv_heads: int, head_dim: int, *, page=8, **options) -> Make:
    """Entries of the table past the length name pages that do not exist."""

    def make(generator: Generator) -> tuple:
        dtype, most = options.get("dtype", torch.float32), max(-(-length // page) for length in lengths)
        pages = sum(-(-length // page) for length in lengths) + 1
        q = options.get("scale", 1.0) * _randn(generator, len(lengths), q_heads, head_dim)
        caches = (_randn(generator, pages, page, kv_heads, head_dim, dtype=dtype) for _ in range(2))
        free = torch.randperm(pages, generator=generator).tolist()
        table = torch.full((len(lengths), most), 10**6, dtype=torch.int32)
        for b, length in enumerate(lengths):
            for i in range(-(-length // page)):
                table[b, i] = free.pop()
        return q.to(dtype), *caches, table, torch.tensor(lengths, dtype=torch.int32)

    return make


def _nobodys_page(generator: Generator) -> tuple:
    """Page 0 belongs to no sequence, and holds NaN."""
    q, k_cache, v_cache, table, lens = _decode((21, 9), 4, 2, 16)(generator)
    caches = (torch.cat([torch.full_like(cache[:1], torch.nan), cache]) for cache in (k_cache, v_cache))
    return q, *caches, table + 1, lens


def _attention_with(q, k_cache, v_cache, table, lens, *, first_row=False, idle=False, head_map=None) -> Tensor:
    """Attention with known mistakes. idle: lanes of the last block of 16 count as keys of 0. head_map: (h, QH, KH)."""
    page, kv_heads = k_cache.shape[1:3]
    o = torch.empty(q.shape, dtype=q.dtype)
    for b, length in enumerate(lens.tolist()):
        j = torch.arange(length)
        pages = table[0 if first_row else b].long()[j // page]
        rows = [cache[pages.clamp(max=len(cache) - 1), j % page].double() for cache in (k_cache, v_cache)]
        rows = [torch.where((pages < len(k_cache))[:, None, None], x, torch.nan) for x in rows]
        if idle:
            rows = [torch.cat([x, x.new_zeros(-length % 16, *x.shape[1:])]) for x in rows]
        for h in range(q.shape[1]):
            g = head_map(h, q.shape[1], kv_heads) if head_map else h // (q.shape[1] // kv_heads)
            scores = rows[0][:, g] @ q[b, h].double() / q.shape[2] ** 0.5
            o[b, h] = (torch.softmax(scores, dim=0) @ rows[1][:, g]).to(q.dtype)
    return o


_IDLE = (
    "Lanes past the end of a sequence take part in the softmax: their score is 0, and 2 to the power of 0 is 1. Which "
    "score would the softmax ignore?"
)


def _low_scores(generator: Generator) -> tuple:
    """All scores are about -200, and the last block of each sequence is cut short."""
    q, k_cache, *rest = _decode((21, 5, 40), 4, 2, 16)(generator)
    q[..., 0], k_cache[..., 0] = 28.0, -28.0
    return q, k_cache, *rest


def _very_low_scores(generator: Generator) -> tuple:
    """All scores are about -20000: lower than any number that is merely very negative."""
    q, k_cache, *rest = _decode((21, 5, 40), 4, 2, 16)(generator)
    q[..., 0], k_cache[..., 0] = 283.0, -283.0
    return q, k_cache, *rest


def _far_table(generator: Generator) -> tuple:
    q, k_cache, v_cache, table, lengths = _decode((30, 11, 20), 4, 2, 16)(generator)
    return q, k_cache, v_cache, spread(table, (FAR, 1)), lengths


def _wide_table(generator: Generator) -> tuple:
    """The table is a slice of a wider one; what lies between its rows are pages that do not exist."""
    q, k_cache, v_cache, table, lengths = _decode((30, 11, 20), 4, 2, 16)(generator)
    wide = torch.full((3, table.shape[1] + 3), 10**6, dtype=torch.int32)
    wide[:, : table.shape[1]] = table
    return q, k_cache, v_cache, wide[:, : table.shape[1]], lengths


_ATTEND = Exercise(
    number="7.4",
    title="Repair attention over pages",
    stars=2,
    minutes=15,
    entry="paged_decode_attention",
    reference=reference.paged_decode_attention,
    exact=widened(reference.paged_decode_attention),
    kind="repair",
    cases=(
        Case("the test it passes: one sequence, 32 tokens", _decode((32,), 4, 2, 16), **_ATTENTION),
        Case("two sequences of 16, heads of 128", _decode((16, 16), 4, 2, 128), **_ATTENTION),
        Case("one sequence, 21 tokens", _decode((21,), 4, 2, 16), **_ATTENTION),
        Case("three sequences, 1, 37 and 16 tokens", _decode((1, 37, 16), 6, 2, 16), **_ATTENTION, again=True),
        Case("pages of 16, SmolLM2's heads", _decode((19, 40), 9, 3, 64, page=16), **_ATTENTION),
        Case("530 tokens", _decode((530,), 1, 1, 16, page=16), **in_float32(530, size=4.0)),
        Case("large scores", _decode((25, 9), 4, 1, 32, scale=20.0), **_LARGE),
        Case("bfloat16, pages of 5", _decode((21, 30), 4, 2, 32, page=5, dtype=torch.bfloat16), **_ATTENTION),
        Case("empty sequences among others, 17 and 33 tokens", _decode((0, 17, 0, 33), 4, 2, 16), **_ATTENTION),
        Case("scores around -200", _low_scores, **_LARGE),
        Case("a page of nobody's holds NaN", _nobodys_page, **_ATTENTION),
        Case("rows of the table further apart than they are long", _wide_table, **_ATTENTION),
        Case("rows of the table 2^30 elements apart", _far_table, **_ATTENTION),
        Case("scores around -20000", _very_low_scores, **_HUGE),
        Case("a cache of 2^31 numbers", vast(_decode((21, 9), 4, 2, 16, dtype=torch.bfloat16), 3, 1, 2), **_ATTENTION),
    ),
    hints=(
        "Which line depends on the sequence, and which one ought to? And what does a lane past the end hold when the "
        "softmax comes?",
        "Row `b` of the block table begins at `b * stride_tb`. For the second bug: 0 is what a *sum* ignores. The "
        "scores go through an exponential first.",
        "`table_ptr + <row of this sequence> + j // PAGE`, and `scores = tl.where(exists, <scores>, <what a softmax "
        "ignores>)`.",
    ),
    suspects=(
        Suspect(
            "table-of-sequence-0",
            "Every sequence reads the pages of sequence 0. Where does its own row of the block table begin?",
            lambda *args: _attention_with(*args, first_row=True),
        ),
        Suspect(
            "table-of-sequence-0",
            "Every sequence reads the pages of sequence 0. Where does its own row of the block table begin?",
            lambda *args: _attention_with(*args, first_row=True, idle=True),
        ),
        Suspect("idle-lanes-count", _IDLE, lambda *args: _attention_with(*args, idle=True)),
        Suspect(
            "wrong-kv-head",
            "Query heads look at the wrong key head. Neighbouring query heads share one.",
            lambda *args: _attention_with(*args, head_map=lambda h, q_heads, kv_heads: h % kv_heads),
        ),
        Suspect(
            "wrong-kv-head",
            "Query heads look at the wrong key head. Neighbouring query heads share one.",
            lambda *args: _attention_with(*args, head_map=lambda h, q_heads, kv_heads: 0),
        ),
    ),
)


# ---- 7.5 -----------------------------------------------------------------------------------------------------------


def _merge(rows: int, parts: int, head_dim: int, *, around=0.0, spread=2.0, empty=0, dtype=torch.float32) -> Make:
    """The last `empty` parts of the first row, and none of others, have no token."""

    def make(generator: Generator) -> tuple:
        values = _randn(generator, rows, parts, head_dim, dtype=dtype)
        lse = around + spread * _randn(generator, rows, parts)
        if empty:
            values[0, -empty:], lse[0, -empty:] = 0.0, -torch.inf
        return values, lse

    return make


def _weighted(parts: Tensor, weights: Tensor) -> Tensor:
    return (weights.double()[..., None] * parts.double()).sum(1).to(parts.dtype)


def _plain_mean(parts, lse) -> Tensor:
    return parts.double().mean(1).to(parts.dtype)


def _linear_weights(parts, lse) -> Tensor:
    return _weighted(parts, lse / lse.sum(-1, keepdim=True))


def _base_e(parts, lse) -> Tensor:
    return _weighted(parts, torch.softmax(lse.double(), -1).nan_to_num(0.0))


def _idle_parts(parts, lse) -> Tensor:
    """Lanes past the last part count as parts with an LSE of 0."""
    idle = (1 << (lse.shape[1] - 1).bit_length()) - lse.shape[1]
    padded = torch.cat([lse.double(), lse.new_zeros(len(lse), idle).double()], dim=-1)
    return _weighted(parts, torch.softmax(padded * 0.6931471805599453, -1)[:, : lse.shape[1]])


def _no_maximum(parts, lse) -> Tensor:
    powers = torch.exp2(lse)
    total = powers.sum(-1, keepdim=True)
    return _weighted(parts, powers / torch.where(total == 0, 1.0, total))


def _no_division(parts, lse) -> Tensor:
    top = lse.amax(-1, keepdim=True)
    return _weighted(parts, torch.exp2(lse - torch.where(top == -torch.inf, 0.0, top)))


def _empty_row_nan(parts, lse) -> Tensor:
    return _weighted(parts, torch.softmax(lse.double() * 0.6931471805599453, -1))


def _best_part(parts, lse) -> Tensor:
    return parts[torch.arange(len(parts)), lse.argmax(-1)]


def _one_empty_row(generator: Generator) -> tuple:
    parts, lse = _merge(4, 3, 20, around=-300.0)(generator)
    parts[2], lse[2] = 0.0, -torch.inf
    return parts, lse


_MERGE = Exercise(
    number="7.5",
    title="Merge by LSE",
    stars=2,
    minutes=15,
    entry="merge_parts",
    reference=own.merge_parts,
    exact=widened(own.merge_parts),
    cases=(
        Case("four parts of 64", _merge(6, 4, 64), **_ATTENTION, again=True),
        Case("one part", _merge(3, 1, 32), **_ATTENTION),
        Case("70 rows", _merge(70, 2, 8), **_ATTENTION),
        Case("five parts of 80", _merge(4, 5, 80), **_ATTENTION),
        Case("parts without a token", _merge(3, 4, 16, empty=2), **_ATTENTION),
        Case("a row without any token", _merge(2, 3, 16, empty=3), **_ATTENTION),
        Case("LSE around 300", _merge(3, 4, 32, around=300.0), **_ATTENTION),
        Case("LSE around -300", _merge(3, 4, 32, around=-300.0), **_ATTENTION),
        Case("float16", _merge(4, 3, 48, dtype=torch.float16), **_ATTENTION),
        Case("two parts of 1040", _merge(2, 2, 1040), **_ATTENTION),
        Case("float16, 17 parts of 65", _merge(3, 17, 65, dtype=torch.float16, spread=4.0), **_ATTENTION),
        Case("LSE around -30000, 70 parts", _merge(3, 70, 16, around=-30000.0), **_ATTENTION),
        Case("a row without any token between others, LSE around -300", _one_empty_row, **_ATTENTION),
    ),
    hints=(
        "Which part should count most, and how do you turn an LSE into a weight? What must the idle lanes of the LSE "
        "hold?",
        "It is a softmax over the parts, with `tl.exp2`: maximum, power, sum, division. Two of these four go wrong "
        "when every LSE is minus infinity.",
        "`lse = tl.load(<...>, mask=mask_s, other=<...>)`, `top = tl.max(lse, axis=0)`, `weight = tl.exp2(lse - "
        "tl.where(<top is -inf>, 0.0, top))`, divided by their sum (1 if that is 0); then `tl.sum(parts * weight[:, "
        "None], axis=0)`.",
    ),
    suspects=(
        Suspect("plain-mean", "This is the plain mean of the parts. They do not count alike.", _plain_mean),
        Suspect(
            "lse-as-weight", "The LSE is a logarithm. What has to be done to it before it is a weight?", _linear_weights
        ),
        Suspect("base-e", "The weights are powers of e. These logarithms have another base.", _base_e),
        Suspect(
            "no-maximum",
            "Powers of 2 of a large LSE are infinite, and of a very small one 0. What do you subtract first?",
            _no_maximum,
        ),
        Suspect(
            "idle-lanes-count",
            "Lanes past the last part have joined the sum. Which LSE stands for a part that has no token?",
            _idle_parts,
        ),
        Suspect("weights-not-divided", "The weights do not add up to one.", _no_division),
        Suspect(
            "parts-and-columns-swapped",
            "The parts were read as if their shape were `(rows, D, S)`. Which index has the stride 1?",
            lambda parts, lse: own.merge_parts(parts.reshape(len(parts), parts.shape[2], -1).transpose(1, 2), lse),
        ),
        Suspect(
            "nan-for-nothing",
            "A row without any token gives NaN: minus infinity less minus infinity, or 0 by 0. It should give zeros.",
            _empty_row_nan,
        ),
        Suspect("best-part-only", "Only the part with the largest LSE arrived. The others count as well.", _best_part),
    ),
)


# ---- 7.6 -----------------------------------------------------------------------------------------------------------


def _pack(tokens: int, kv_heads: int, head_dim: int, *, scale=0.25, size=3.0, padding=0, page=8, **options) -> Make:
    def make(generator: Generator) -> tuple:
        pages, x = 4, 16
        k = size * _randn(generator, tokens, kv_heads, head_dim)
        cache = _randn(generator, pages, kv_heads, head_dim // x, page, x).to(options.get("fp8", torch.float8_e4m3fn))
        slots = _first(tokens, pages * page, generator)
        slots[_first(padding, tokens, generator)] = -1
        return k.to(options.get("dtype", torch.float32)), cache, slots, scale

    return make


def _packed(write: Callable[..., None]) -> Callable[..., Tensor]:
    """The cache (argument 1) after a change made to it."""

    def formula(k, k_cache, slots, scale) -> Tensor:
        write(k, k_cache, slots, scale)
        return k_cache

    return formula


def _clamped_at(limit: float) -> Callable[..., None]:
    """What is above the largest number of e5m2 becomes infinite."""

    def write(k, k_cache, slots, scale) -> None:
        keep, page = slots >= 0, k_cache.shape[3]
        rows = (k.float() / scale).clamp(-limit, limit)[keep].unflatten(-1, (-1, k_cache.shape[-1]))
        bits = rows.to(k_cache.dtype).view(torch.uint8)
        k_cache.view(torch.uint8)[slots[keep] // page, :, :, slots[keep] % page] = bits

    return write


def _flash_order(k, k_cache, slots, scale) -> None:
    """As if the cache were (pages, page, KH, D)."""
    pages, heads, groups, page, x = k_cache.shape
    keep = slots >= 0
    largest = torch.finfo(k_cache.dtype).max
    rows = (k[keep].float() / scale).clamp(-largest, largest).to(k_cache.dtype).view(torch.uint8)
    k_cache.view(torch.uint8).view(pages * page, heads, groups * x)[slots[keep]] = rows


def _heads_whole(k, k_cache, slots, scale) -> None:
    """As if the cache were (pages, KH, page, D): a head's pieces stay together."""
    pages, heads, groups, page, x = k_cache.shape
    keep, largest = slots >= 0, torch.finfo(k_cache.dtype).max
    rows = (k[keep].float() / scale).clamp(-largest, largest).to(k_cache.dtype).view(torch.uint8)
    k_cache.view(torch.uint8).view(pages, heads, page, groups * x)[slots[keep] // page, :, slots[keep] % page] = rows


def _exact_cache(k: Tensor, k_cache: Tensor, slots: Tensor, scale: float) -> tuple[Tensor]:
    """The cache in float64, the new keys not rounded."""
    page, x = k_cache.shape[3:]
    largest, stored, cache = torch.finfo(k_cache.dtype).max, slots >= 0, k_cache.double()
    y = (k[stored].double() / scale).clamp(-largest, largest)
    cache[slots[stored] // page, :, :, slots[stored] % page] = y.unflatten(-1, (-1, x))
    return (cache,)


_PACK = Exercise(
    number="7.6",
    title="Packed keys in fp8",
    stars=3,
    minutes=25,
    entry="pack_keys",
    reference=own.pack_keys,
    exact=_exact_cache,
    inplace=(1,),
    cases=(
        Case("two heads of 32", _pack(5, 2, 32), **_ONCE, again=True),
        Case("three heads of 64", _pack(6, 3, 64), **_ONCE),
        Case("a head of 80", _pack(4, 2, 80), **_ONCE),
        Case("a head of one piece", _pack(4, 1, 16), **_ONCE),
        Case("pages of 4", _pack(7, 2, 32, page=4), **_ONCE),
        Case("a head of 1040", _pack(2, 1, 1040, page=2), **_ONCE),
        Case("a scale of 1", _pack(4, 2, 32, scale=1.0), **_ONCE),
        Case("numbers past 448 times the scale", _pack(4, 2, 32, scale=0.01, size=4.0), **_ONCE),
        Case("e5m2, numbers past 57344 times it", _pack(4, 2, 32, scale=2e-5, fp8=torch.float8_e5m2), **_ONCE),
        Case("padding: slot -1", _pack(6, 2, 32, padding=2), **_ONCE),
        Case("bfloat16", _pack(4, 2, 32, dtype=torch.bfloat16), **_ONCE),
        Case(
            "bfloat16, pages of 5, a scale of 0.3",
            _pack(9, 2, 48, dtype=torch.bfloat16, page=5, scale=0.3),
            **_ONCE,
        ),
        Case("a cache of 2^31 numbers", vast(_pack(4, 2, 32, padding=1), 2, 1, per_row=8), **_ONCE),
    ),
    hints=(
        "Number 37 of a head of 64: which piece is it in, and which number there? How many numbers of the cache lie "
        "between it and number 37 of the next token of the page?",
        "Multiply as you read the shape from the left: `((page * KH + h) * (D // X) + <piece>) * PAGE + <place>`, "
        "times `X`, plus the number in the piece. Divide by the scale and clamp in float32, before the type changes.",
        "`y = tl.clamp(<...> / scale, -FP8_MAX, FP8_MAX)`, `offs = (((page * KH + h) * (D // X) + d // X) * <...> + "
        "<...>) * X + <...>`, `tl.store(cache_ptr + offs, y.to(cache_ptr.dtype.element_ty), mask=<...>)`.",
    ),
    suspects=(
        Suspect(
            "scale-multiplied",
            "The keys were multiplied by the scale. What is stored is the key divided by it.",
            _packed(lambda k, c, s, scale: own.pack_keys(k, c, s, 1 / scale)),
        ),
        Suspect(
            "scale-forgotten",
            "The keys were stored without the scale.",
            _packed(lambda k, c, s, scale: own.pack_keys(k, c, s, 1.0)),
        ),
        Suspect(
            "not-clamped",
            "Numbers past the largest one of the type became infinite. Where do they have to be cut off?",
            _packed(_clamped_at(torch.inf)),
        ),
        Suspect(
            "clamped-at-448",
            "448 is the largest number of one of the two types. The other one reaches further.",
            _packed(_clamped_at(448.0)),
        ),
        Suspect(
            "not-packed",
            "The keys lie as in the flash layout, head by head in each slot. Here pieces of 16 come first.",
            _packed(_flash_order),
        ),
        Suspect(
            "heads-whole",
            "A head's pieces lie behind each other. Between two of them come those of the page's other tokens.",
            _packed(_heads_whole),
        ),
    ),
)

EXERCISES = (_APPEND, _PAGES, _ROPE, _ATTEND, _MERGE, _PACK)
