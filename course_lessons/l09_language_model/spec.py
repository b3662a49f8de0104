"""The exercises of lesson 09: what is asked, how it is checked, what the hints say."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.tolerance import in_float32
from course_lessons.l09_language_model import reference as own
from course_lessons.makers import widened

MINIMUM_EXERCISES = 5
_EXACT = {"atol": 0.0, "rtol": 0.0, "why": "numbers are chosen or moved, not computed"}
_SUM = in_float32(600, size=80.0)

Make = Callable[[Generator], tuple]


def _randn(generator: Generator, *shape: int, dtype=torch.float32) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


# ---- 9.1 -----------------------------------------------------------------------------------------------------------


def _logits(rows: int, columns: int, k: int, *, dtype=torch.float32, forbidden: int = 0, levels: int = 0) -> Make:
    """forbidden: of each row, so many at -inf, the rest as drawn. levels: only so many different numbers."""

    def make(generator: Generator) -> tuple:
        x = 8.0 * _randn(generator, rows, columns)
        if levels:
            x = torch.randint(levels, (rows, columns), generator=generator).float() - levels // 2
        for row in x:
            row[torch.randperm(columns, generator=generator)[:forbidden]] = -torch.inf
        return x.to(dtype), k

    return make


def _rising(generator: Generator) -> tuple:
    """The largest stand at the end, in the last of three chunks, which is cut short."""
    return torch.arange(2 * 2 * 2048 + 2 * 50).float().view(2, -1), 7


def _many_candidates(generator: Generator) -> tuple:
    """What 33 chunks keep is more than one program holds, and the largest are kept by the last chunk."""
    x = _randn(generator, 1, 32 * 2048 + 70)
    x[0, -70:] += 100.0
    return x, 64


def _zeros_of_both_signs(generator: Generator) -> tuple:
    """The largest numbers of each row are zeros, every second one of them -0.0."""
    x = -1.0 - torch.rand(2, 90, generator=generator)
    x[:, 5:50:3] = torch.where(torch.arange(15) % 2 == 0, -0.0, 0.0)
    return x, 12


def _in_any_order(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = own.top_k(x, k)
    indices, order = indices.sort(-1)
    return values.gather(1, order), indices


def _last_of_equals(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = own.top_k(x.flip(-1), k)
    return values, x.shape[1] - 1 - indices


def _taken_once_more(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The largest again and again."""
    values, indices = own.top_k(x, 1)
    return values.expand(-1, k).clone(), indices.expand(-1, k).clone()


def _one_program_of_candidates(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of what the chunks kept, the first 2,048 numbers and no others."""
    return own.top_k(x[:, : max(2048 // k * 2048, 2048)], k)


def _smallest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return own.top_k(x, k, largest=False)


def _distinct(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Equal numbers are taken together, at the first one's place; then nothing is left."""
    values, indices = torch.full((len(x), k), -torch.inf, dtype=x.dtype), torch.full((len(x), k), 1 << 40)
    for r, row in enumerate(x):
        different = row.unique().flip(0)[:k]
        values[r, : len(different)] = different
        indices[r, : len(different)] = torch.stack([(row == value).nonzero()[0, 0] for value in different])
    return values, indices


_TOP_K = Exercise(
    number="9.1",
    title="The k best",
    stars=2,
    minutes=20,
    entry="top_k",
    reference=own.top_k,
    time_limit=30.0,
    cases=(
        Case("the best of 100", _logits(2, 100, 1), **_EXACT, again=True),
        Case("the best 8 of 576", _logits(2, 576, 8), **_EXACT),
        Case("all of them, sorted", _logits(1, 20, 20), **_EXACT),
        Case("more than one program can hold: 5000 numbers", _logits(2, 5000, 5), **_EXACT),
        Case("the largest in the last chunk", _rising, **_EXACT),
        Case("more candidates than one program can hold", _many_candidates, **_EXACT, last=True),
        Case("equal numbers: the lower place first", _logits(2, 300, 12, levels=4), **_EXACT),
        Case("equal numbers in different chunks", _logits(1, 4500, 6, levels=3), **_EXACT),
        Case("forbidden tokens: all but 3 of 64 at -inf", _logits(2, 64, 5, forbidden=61), **_EXACT),
        Case("float16, the best 64 of 200", _logits(2, 200, 64, dtype=torch.float16), **_EXACT),
        Case("bfloat16, with equal numbers", _logits(2, 333, 9, dtype=torch.bfloat16), **_EXACT),
        Case("zeros of both signs are equal", _zeros_of_both_signs, **_EXACT),
    ),
    hints=(
        "A maximum is one reduction. How can the second largest be found with the same reduction, and what must be "
        "remembered for it?",
        "A mask `left` of the lanes that have not been taken. In each of `k` turns: the maximum over those, then the "
        "smallest place among those that equal it.",
        "`best = tl.max(tl.where(left, x, <...>), axis=0)`, `first = tl.min(tl.where(left & <is best>, place, "
        "NOWHERE), axis=0)`, two stores at `out + i`, then take `first` out of `left`.",
    ),
    suspects=(
        Suspect("same-again", "The largest was taken again and again. Who remembers it?", _taken_once_more),
        Suspect("smallest", "These are the smallest numbers.", _smallest),
        Suspect("order-of-places", "The right numbers, in the order of their places.", _in_any_order),
        Suspect(
            "last-of-equals", "Of equal numbers the last one was taken. The lower place comes first.", _last_of_equals
        ),
        Suspect(
            "equals-together",
            "Equal numbers were taken out together with the first of them. What makes one lane different from others?",
            _distinct,
        ),
        Suspect(
            "row-cut-short",
            "Of what the chunks kept, only the first 2,048 numbers were looked at. How many can there be?",
            _one_program_of_candidates,
        ),
    ),
)


# ---- 9.2 -----------------------------------------------------------------------------------------------------------


def _candidates(
    rows: int, k: int, temperature: float, *, size: float = 3.0, around: float = 0.0, dtype=torch.float32, uniform=None
) -> Make:
    """Logits of about `size`, largest first, and the places of a vocabulary. uniform: that of every row."""

    def make(generator: Generator) -> tuple:
        values = (around + size * _randn(generator, rows, k)).sort(-1, descending=True)[0]
        indices = torch.stack([torch.randperm(49152, generator=generator)[:k] for _ in range(rows)])
        drawn = torch.rand(rows, generator=generator) if uniform is None else torch.full((rows,), uniform)
        return values.to(dtype), indices, temperature, drawn

    return make


def _on_the_edge(generator: Generator) -> tuple:
    """Four candidates that are equally likely, and random numbers that are exactly the sums of one, two and three."""
    _, indices, temperature, _ = _candidates(4, 4, 1.0)(generator)
    return torch.full((4, 4), 1.5), indices, temperature, torch.tensor([0.25, 0.5, 0.75, 0.0])


def _large_tokens(generator: Generator) -> tuple:
    """Numbers that float32 does not hold: odd ones above 2^24, and above 2^32."""
    values, indices, temperature, drawn = _candidates(8, 12, 1.0)(generator)
    return values, 2 * indices + 1 + 2 ** torch.tensor([24, 25, 31, 33] * 2)[:, None], temperature, drawn


def _few_allowed(generator: Generator) -> tuple:
    values, indices, temperature, _ = _candidates(6, 10, 1.0)(generator)
    values[:, 2:] = -torch.inf
    return values, indices, temperature, torch.tensor([0.0, 0.2, 0.5, 0.8, 0.99, 0.9999999])


def _best(values, indices, temperature, uniform) -> Tensor:
    return indices[:, 0].clone()


def _without_temperature(values, indices, temperature, uniform) -> Tensor:
    return own.sample(values, indices, 1.0, uniform)


def _multiplied(values, indices, temperature, uniform) -> Tensor:
    return own.sample(values, indices, 1 / temperature, uniform)


def _place_as_token(values, indices, temperature, uniform) -> Tensor:
    return own.sample(values, torch.arange(values.shape[1]).expand_as(indices), temperature, uniform)


def _one_behind(values, indices, temperature, uniform) -> Tensor:
    return own.sample(values, indices.roll(-1, 1).index_copy(1, torch.tensor([values.shape[1] - 1]), indices[:, -1:]),
                      temperature, uniform)  # fmt: skip


def _one_before(values, indices, temperature, uniform) -> Tensor:
    return own.sample(values, torch.cat([indices[:, :1], indices[:, :-1]], dim=1), temperature, uniform)


def _by_density(values, indices, temperature, uniform) -> Tensor:
    """The probabilities themselves compared with the random number, not their sums."""
    p = (values.double() / temperature).softmax(-1)
    place = (p <= uniform.double()[:, None]).sum(-1).clamp(max=values.shape[1] - 1)
    return indices.gather(1, place[:, None])[:, 0]


_SAMPLE = Exercise(
    number="9.2",
    title="Draw the next token",
    stars=2,
    minutes=20,
    entry="sample",
    reference=own.sample,
    time_limit=30.0,  # single numbers, one by one, may be right
    max_launches=1,
    cases=(
        Case("8 candidates, a temperature of 1", _candidates(12, 8, 1.0), **_EXACT, again=True),
        Case("40 candidates, a temperature of 0.7", _candidates(12, 40, 0.7), **_EXACT),
        Case("1,100 candidates, a temperature of 2.5", _candidates(3, 1100, 2.5), **_EXACT),
        Case("one candidate", _candidates(5, 1, 0.7), **_EXACT),
        Case("the random number is 0", _candidates(4, 16, 1.0, uniform=0.0), **_EXACT),
        Case("the random number is just below 1", _candidates(6, 9, 1.0, uniform=1 - 2**-24), **_EXACT),
        Case("the random number is exactly a sum", _on_the_edge, **_EXACT),
        Case("tokens above 2^24", _large_tokens, **_EXACT),
        Case("forbidden candidates at -inf", _few_allowed, **_EXACT),
        Case("logits around 300", _candidates(8, 12, 1.0, around=300.0), **_EXACT),
        Case("logits around -20,000", _candidates(8, 12, 1.0, around=-20000.0), **_EXACT),
        Case("a temperature of 0.01", _candidates(8, 12, 0.01, size=20.0), **_EXACT),
        Case("float16", _candidates(8, 20, 0.8, dtype=torch.float16), **_EXACT),
        Case("bfloat16", _candidates(300, 20, 0.8, dtype=torch.bfloat16), **_EXACT),
    ),
    hints=(
        "The sums of the probabilities rise from the first candidate to the last. How many of them are not above the "
        "random number?",
        "Softmax as in lesson 06: subtract the maximum, divide by the temperature, exponential, divide by the sum. "
        "`tl.cumsum(p, axis=0)` makes the sums; a count of true lanes is `tl.sum(<mask>.to(tl.int32), axis=0)`.",
        "`p = tl.exp((x - <...>) / temperature)`, `p = p / <...>`, `place = tl.sum((mask & (tl.cumsum(p, axis=0) <= "
        "uniform)).to(tl.int32), axis=0)`, but at most `k - 1`; then load the index that stands there.",
    ),
    suspects=(
        Suspect("always-best", "The first candidate was taken, whatever the random number is.", _best),
        Suspect("no-temperature", "The temperature is not in the result.", _without_temperature),
        Suspect("temperature-multiplied", "The logits were multiplied by the temperature.", _multiplied),
        Suspect("place-as-token", "This is the place among the candidates. Which token stands there?", _place_as_token),
        Suspect("one-behind", "The candidate behind the right one was taken.", _one_behind),
        Suspect("one-before", "The candidate before the right one was taken. Does a sum hold its own p?", _one_before),
        Suspect("no-sums", "Each probability was compared by itself. It is their sums that rise to 1.", _by_density),
    ),
)


# ---- 9.3 -----------------------------------------------------------------------------------------------------------


def _layer(tokens: int, depth: int, rows: int, *, dtype=torch.float32) -> Make:
    return lambda g: (_randn(g, tokens, depth, dtype=dtype), _randn(g, rows, depth, dtype=dtype))


def _weight_read_again(args: tuple, launches: tuple) -> str:
    """Whether some weights are loaded more often than once."""
    x, weight = args
    lanes = sum(launch.loaded("weight_ptr").lanes for launch in launches)
    if len(x) == 1 or lanes <= weight.numel():
        return ""
    return f"The weight has {weight.numel()} numbers, and {lanes} were loaded of it. Who could share a load?"


def _first_token(x: Tensor, weight: Tensor) -> Tensor:
    return own.few_rows(x[:1], weight).expand(len(x), -1).clone()


_FEW_ROWS = Exercise(
    number="9.3",
    title="Several tokens, one look at the weights",
    stars=2,
    minutes=20,
    entry="few_rows",
    reference=own.few_rows,
    exact=widened(own.few_rows),
    demand=_weight_read_again,
    cases=(
        Case("16 tokens, whole tiles", _layer(16, 64, 64), **_SUM),
        Case("8 tokens, SmolLM2's width", _layer(8, 576, 96), **_SUM, again=True),
        Case("3 tokens, 1,100 columns", _layer(3, 1100, 64), **in_float32(1100, size=120.0)),
        Case("one token", _layer(1, 128, 64), **_SUM),
        Case("45 rows of the weight", _layer(5, 64, 45), **_SUM),
        Case("300 rows of the weight", _layer(4, 64, 300), **_SUM),
        Case("one row, one column", _layer(2, 1, 1), **_SUM),
        Case("float16", _layer(8, 192, 50, dtype=torch.float16), **_SUM),
        Case("bfloat16", _layer(8, 200, 64, dtype=torch.bfloat16), **_SUM),
    ),
    hints=(
        "A tile of the result has all tokens, and 32 rows of the weight. What does one step along `K` load, and what "
        "is added to `acc`?",
        "Load `x` as `(BLOCK_M, BLOCK_K)` and the weight as `(BLOCK_N, BLOCK_K)`, each with a mask for both axes, and "
        "give `tl.dot` the second one turned: `weight.T`.",
        "`for start in range(0, K, BLOCK_K):` two loads with `mask=<row exists> & <column exists>, other=0.0`, `acc = "
        'tl.dot(x, <...>, acc, input_precision="ieee")`. For the store the rows of the weight run along the columns: '
        "`[None, :]`.",
    ),
    suspects=(
        Suspect("first-token-only", "All rows are those of the first token.", _first_token),
        Suspect(
            "only-last-block",
            "Only the last 64 columns are in the sum: the earlier ones were overwritten.",
            lambda x, w: own.few_rows(x[:, (x.shape[1] - 1) // 64 * 64 :], w[:, (x.shape[1] - 1) // 64 * 64 :]),
        ),
        Suspect(
            "first-columns-repeated",
            "The first 64 columns were taken again and again. What has to move on with `start`?",
            lambda x, w: sum(
                own.few_rows(x[:, :64].double(), w[:, :64].double()) * 1.0 for _ in range(-(-x.shape[1] // 64))
            ).to(x.dtype),
        ),
    ),
)


# ---- 9.4 -----------------------------------------------------------------------------------------------------------


def _pool(lengths: tuple[int, ...], *, page: int = 8, spare: int = 4, prefix: int = 0, layers: int = 2, width: int = 12,
          dtype=torch.float32) -> Make:  # fmt: skip
    """Sequences of these lengths in a pool of pages; the first `prefix` tokens of all that run are shared."""

    def make(generator: Generator) -> tuple:
        entries = max(lengths) // page + 2
        shared = -(-prefix // page)
        own_pages = [-(-max(length, 0) // page) - (shared if length >= prefix > 0 else 0) for length in lengths]
        total = shared + sum(own_pages) + spare
        order = torch.randperm(total, generator=generator).tolist()
        common = [order.pop() for _ in range(shared)]
        table = torch.full((len(lengths), entries), -1, dtype=torch.int32)
        refs = torch.zeros(total, dtype=torch.int32)
        for b, (length, more) in enumerate(zip(lengths, own_pages)):
            pages = (common if length >= prefix > 0 else []) + [order.pop() for _ in range(more)]
            table[b, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
            for one in pages:
                refs[one] += 1
        caches = (_randn(generator, layers, total, page, width, dtype=dtype) for _ in range(2))
        return table, torch.tensor(lengths, dtype=torch.int32), refs, *caches

    return make


def _used_before(*args, **kind) -> Make:
    """The same, in rows that others had: behind a sequence's pages stands the number of a page that is shared now."""

    def make(generator: Generator) -> tuple:
        table, lens, refs, *caches = _pool(*args, **kind)(generator)
        return torch.where(table < 0, refs.argmax().int(), table), lens, refs, *caches

    return make


def _many_in_use(generator: Generator) -> tuple:
    """Two sequences share their last page; more than a thousand pages are in use, and the free ones come last."""
    table, lens, refs, *caches = _pool((11, 8500, 11, 16), prefix=11, layers=1, width=1)(generator)
    order = (refs == 0).int().argsort(stable=True)
    renamed = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
    table = torch.where(table < 0, table, renamed[table.clamp(min=0)].int())
    return table, lens, refs[order], *(cache[:, order].contiguous() for cache in caches)


def _five(change: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """The slots, and the table, the references and the caches after a change made to them."""

    def formula(table, lens, refs, k_cache, v_cache) -> tuple[Tensor, ...]:
        slots = change(table, lens, refs, k_cache, v_cache)
        return slots, table, refs, k_cache, v_cache

    return formula


def _never_copies(table, lens, refs, k_cache, v_cache) -> Tensor:
    """Shared pages are written."""
    counts = refs.clone()
    slots = own.next_slots(table, lens, counts.clamp_(max=1), k_cache, v_cache)
    refs += (refs == 0) & (counts > 0)
    return slots


def _content_left(table, lens, refs, k_cache, v_cache) -> Tensor:
    return own.next_slots(table, lens, refs, k_cache.clone(), v_cache.clone())


def _keys_only(table, lens, refs, k_cache, v_cache) -> Tensor:
    return own.next_slots(table, lens, refs, k_cache, v_cache.clone())


def _first_layer_only(table, lens, refs, k_cache, v_cache) -> Tensor:
    return own.next_slots(table, lens, refs, k_cache[:1], v_cache[:1])


def _reference_kept(table, lens, refs, k_cache, v_cache) -> Tensor:
    """The old page keeps the reference of a sequence that has left it."""
    slots, page = torch.full((len(lens),), -1), k_cache.shape[2]
    for b, length in enumerate(lens.tolist()):
        if length >= 0:
            old = int(table[b, length // page]) if length % page else -1
            before = int(refs[old])
            slots[b] = own.next_slots(table[b : b + 1], lens[b : b + 1], refs, k_cache, v_cache)[0]
            if old >= 0:
                refs[old] = before
    return slots


def _entry_without_meaning(table, lens, refs, k_cache, v_cache) -> Tensor:
    """The page that stands in an entry loses a reference, also where the entry has no meaning yet."""
    before, page = table.clone(), k_cache.shape[2]
    slots = own.next_slots(table, lens, refs, k_cache, v_cache)
    for b, length in enumerate(lens.tolist()):
        if length >= 0 and length % page == 0 and before[b, length // page] >= 0:
            refs[before[b, length // page]] -= 1
    return slots


def _highest_page(table, lens, refs, k_cache, v_cache) -> Tensor:
    return own.next_slots(table, lens, refs, k_cache, v_cache, choice=-1)


_ALLOCATE = Exercise(
    number="9.4",
    title="The page allocator",
    stars=3,
    minutes=40,
    entry="next_slots",
    reference=own.next_slots,
    inplace=(0, 2, 3, 4),
    cases=(
        Case("room in each page", _pool((3, 13, 7)), **_EXACT, again=True),
        Case("full pages: the next one is taken", _pool((8, 16, 5)), **_EXACT),
        Case("new sequences, without a page", _pool((0, 0, 9)), **_EXACT),
        Case("rows without a sequence", _pool((4, -1, 8, -1)), **_EXACT),
        Case("a shared page: copied before it is written", _pool((11, 11), prefix=11), **_EXACT),
        Case("four share, the last one keeps the page", _pool((13, 13, 13, 13), prefix=13), **_EXACT),
        Case("shared full pages stay shared", _pool((16, 16, 16), prefix=16), **_EXACT),
        Case("shared prefix, own pages behind it", _pool((8, 21, 12, 30), prefix=8), **_EXACT),
        Case("pages of others behind the last one", _used_before((13, 10, -1, 16), prefix=8), **_EXACT),
        Case("some share, some do not", _pool((12, 3, 12, -1, 0, 12), prefix=12, spare=6), **_EXACT),
        Case(
            "pages of 5, one layer, bfloat16",
            _pool((7, 7, 5), prefix=7, page=5, layers=1, dtype=torch.bfloat16),
            **_EXACT,
        ),
        Case("pages of more than a block", _pool((11, 11), prefix=11, page=16, layers=3, width=50), **_EXACT),
        Case("more than a thousand pages, the last ones free", _many_in_use, **_EXACT),
        Case("pages of one number more than a block", _pool((20, 20), prefix=20, page=27, width=19), **_EXACT),
    ),
    hints=(
        "Three cases decide whether a page is taken. Which numbers say that a page is shared, and that it is free, "
        "when the counts are a block in registers?",
        "`tl.sum(tl.where(pages == old, refs, 0), axis=0)` is the count of page `old`; the lowest free page is a "
        "minimum over `tl.where(refs == 0, pages, BLOCK)`. `refs` changes in registers, for the next turn of the loop, "
        "and is stored once, after it.",
        "`takes = runs & ((place == 0) | shared)`, `refs += tl.where(<takes, and this is the free page>, 1, 0) - "
        "tl.where(<shared, and this is the old page>, 1, 0)`, then store the entry (`mask=takes`), the slot and the "
        "source. In the second kernel `if source >= 0:` and a loop over `SIZE`.",
    ),
    suspects=(
        Suspect(
            "shared-page-written",
            "A shared page was not copied: others read what is written there.",
            _five(_never_copies),
        ),
        Suspect(
            "content-not-copied",
            "The sequence got a page of its own, and nothing of the old page is in it.",
            _five(_content_left),
        ),
        Suspect("values-not-copied", "The keys of the page were copied, the values were not.", _five(_keys_only)),
        Suspect("first-layer-only", "The page was copied in the first layer alone.", _five(_first_layer_only)),
        Suspect(
            "reference-kept", "A sequence left a shared page, and the page still counts it.", _five(_reference_kept)
        ),
        Suspect(
            "kept-lost",
            "A page lost a reference, and no sequence left it. What does an entry mean where `place` is 0?",
            _five(_entry_without_meaning),
        ),
        Suspect("highest-page", "A free page was taken, but not the one with the lowest number.", _five(_highest_page)),
    ),
)


# ---- 9.5 -----------------------------------------------------------------------------------------------------------


def _between(rows: int, *, page: int = 8, ended: int = 0, ending: int = 0, crossing: bool = False, longest: int = 40):
    """ended: rows without a sequence; ending: rows that chose the end; crossing: positions at the end of a page."""

    def make(generator: Generator) -> tuple:
        end, vocabulary = 2, 1000
        chosen = torch.randint(3, vocabulary, (rows,), generator=generator)
        positions = torch.randint(0, longest, (rows,), generator=generator)
        if crossing:
            positions = positions // page * page + page - 1
        elif page <= longest:
            positions -= (positions % page == page - 1).long()
        entries = longest // page + 2
        table = torch.randperm(rows * entries, generator=generator).view(rows, entries).int()
        slots = table.gather(1, (positions // page)[:, None])[:, 0].long() * page + positions % page
        lens, order = (positions + 1).int(), torch.randperm(rows, generator=generator)
        slots[order[:ended]], lens[order[:ended]] = -1, 0
        chosen[order[ended : ended + ending]] = end
        return chosen, chosen.flip(0) + 1, positions, lens, slots, table, page, end

    return make


def _at_the_end_of_the_table(ends: bool) -> Make:
    """The last sequence has filled all pages of its row, which is the table's last; it ends now, or was over before."""

    def make(generator: Generator) -> tuple:
        chosen, tokens, positions, lens, slots, table, page, end = _between(5, longest=24)(generator)
        table = table[:, :3].contiguous()
        positions[-1], lens[-1] = 3 * page - 1, 3 * page * ends
        slots[-1] = table[-1, -1].long() * page + page - 1 if ends else -1
        chosen[-1] = end if ends else 7
        return chosen, tokens, positions, lens, slots, table, page, end

    return make


def _high_pages(generator: Generator) -> tuple:
    """Slots beyond 32 bits."""
    chosen, tokens, positions, lens, slots, table, page, end = _between(6, page=16, crossing=True)(generator)
    return chosen, tokens, positions, lens, slots + 16 * 140_000_000 * (slots >= 0), table + 140_000_000, page, end


def _narrow_slots(chosen, tokens, positions, lens, slots, table, page, end) -> None:
    own.advance(chosen, tokens, positions, lens, slots, table, page, end)
    slots.copy_(slots.int())


def _after(change: Callable[..., None]) -> Callable[..., tuple[Tensor, ...]]:
    def formula(*args) -> tuple[Tensor, ...]:
        table = torch.nn.functional.pad(args[5], (0, 1), value=2**31 - 1)  # what the interpreter reads behind it
        change(*args[:5], table, *args[6:])
        return args[1:5]

    return formula


def _old_page(chosen, tokens, positions, lens, slots, table, page, end) -> None:
    old = torch.where(slots >= 0, positions // page, 0)
    own.advance(chosen, tokens, positions, lens, slots, table, page, end)
    of_page = table.long().gather(1, old[:, None])[:, 0]
    slots.copy_(torch.where(slots >= 0, of_page * page + positions % page, -1))


def _never_ends(chosen, tokens, positions, lens, slots, table, page, end) -> None:
    own.advance(chosen, tokens, positions, lens, slots, table, page, -5)


def _both_bugs(chosen, tokens, positions, lens, slots, table, page, end) -> None:
    _old_page(chosen, tokens, positions, lens, slots, table, page, -5)


def _all_go_on(chosen, tokens, positions, lens, slots, table, page, end) -> None:
    """Rows that ended come back to life."""
    runs = chosen != end
    own.advance(chosen, tokens, positions, lens, torch.zeros_like(slots), table, page, end)
    index = torch.where(runs, positions // page, 0)
    of_page = table.long().gather(1, index[:, None])[:, 0]
    slots.copy_(torch.where(runs, of_page * page + positions % page, -1))


_ADVANCE = Exercise(
    number="9.5",
    title="Repair the step between steps",
    stars=2,
    minutes=15,
    entry="advance",
    reference=own.advance,
    kind="repair",
    inplace=(1, 2, 3, 4),
    max_launches=1,
    cases=(
        Case("the test it passes: one page each", _between(4, page=64), **_EXACT),
        Case("within pages", _between(9), **_EXACT, again=True),
        Case("from one page to the next, pages of 6", _between(7, page=6, crossing=True), **_EXACT),
        Case("sequences that end", _between(12, page=64, ending=5), **_EXACT),
        Case("rows without a sequence", _between(12, ended=5), **_EXACT),
        Case("1,100 rows, all of it, pages of 5", _between(1100, page=5, ended=99, ending=99, crossing=True), **_EXACT),
        Case("one sequence, which ends", _between(1, ending=1), **_EXACT),
        Case("the end of the table, and of its last sequence", _at_the_end_of_the_table(ends=True), **_EXACT),
        Case("the end of the table, the last sequence over", _at_the_end_of_the_table(ends=False), **_EXACT),
        Case("slots beyond 32 bits", _high_pages, **_EXACT),
        Case("pages of 1", _between(6, page=1, longest=12, crossing=True), **_EXACT),
    ),
    hints=(
        "Follow a sequence at the last place of a page: for which position is the page looked up, and for which one "
        "the place? And what becomes of a sequence that chose `END`?",
        "The new position decides about both. And a row runs on only if it has a slot *and* did not end.",
        "`runs = (slot >= 0) & <...>`, then `position = tl.where(runs, position + 1, position)`, and only then the "
        "load from the table.",
    ),
    suspects=(
        Suspect("both-bugs", "Sequences go on after their end. Follow one that chose `END`.", _after(_both_bugs)),
        Suspect(
            "page-of-old-position",
            "The page is that of the position before. What if the new token is the first one of a page?",
            _after(_old_page),
        ),
        Suspect("never-ends", "A sequence that chose the end goes on, with a slot of its own.", _after(_never_ends)),
        Suspect(
            "still-wrapped",
            "Past 2^31 the slot is too small by 2^32: a page's number was multiplied in 32 bits.",
            _after(_narrow_slots),
        ),
        Suspect("all-go-on", "Rows without a sequence got a slot.", _after(_all_go_on)),
    ),
)

EXERCISES = (_TOP_K, _SAMPLE, _FEW_ROWS, _ALLOCATE, _ADVANCE)
