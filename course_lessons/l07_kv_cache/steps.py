"""The short exercises inside lesson 07."""

import torch
from torch import Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _stored(x: Tensor, cache: Tensor, places: Tensor) -> None:
    cache[places] = x


def _stored_in_order(x: Tensor, cache: Tensor, places: Tensor) -> Tensor:
    after = cache.clone()
    after[: len(x)] = x
    return after


def _places(count: int, of: int):
    return lambda g: torch.randperm(of, generator=g)[:count]


def _slots(tokens: Tensor, table: Tensor, page: int) -> Tensor:
    return table[tokens // page] * page + tokens % page


def _listed(tokens: Tensor) -> Tensor:
    return torch.arange(len(tokens))


def _table(pages: int):
    return lambda g: torch.randperm(2 * pages, generator=g)[:pages]


def _tokens(count: int):
    return lambda g: torch.arange(count)


def _some_tokens(count: int, of: int):
    """Not all, and not in order: where a token stands in the list is not its number."""
    return lambda g: torch.randperm(of, generator=g)[:count]


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    return (x.double() @ weight.double().T).float()


def _topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, places = x.sort(dim=1, descending=True, stable=True)
    return values[:, :k].contiguous(), places[:, :k].contiguous()


def _turned(results: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    return tuple(part.flip(1) for part in results)


def _distinct(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Rounds that each remove everything that equals the largest."""
    left, rounds = x.clone(), []
    for _ in range(k):
        value, place = left.max(dim=1)
        rounds.append((value, (left == value[:, None]).int().argmax(dim=1)))
        left[left == value[:, None]] = -torch.inf
    values, places = zip(*rounds)
    return torch.stack(values, 1), torch.stack(places, 1)


def _masked_scores(g: torch.Generator) -> Tensor:
    x = torch.randn(5, 70, generator=g) - 20
    x[:, ::3] = -torch.inf
    return x


STEPS = (
    step(
        "7.a",
        "rows to their places",
        "store_rows",
        _stored,
        case("in any order", (6, 192), (8, 192), _places(6, 8)),
        case("one row", (1, 192), (16, 192), _places(1, 16)),
        case("100 columns", (5, 100), (40, 100), _places(5, 40)),
        hints=(
            "Two row numbers occur: the program's own, and the one that it finds in `places`. Which is for reading?",
            "Row `token` of `x` is read, row `place` of the cache is written.",
            "`place = tl.load(places_ptr + token)`; load from `x_ptr + token * N + cols`; store to `cache_ptr + <...>`",
        ),
        suspects=(Suspect("places-not-used", "Row i went to place i: `places` was not looked up.", _stored_in_order),),
        inplace=(1,),
    ),
    step(
        "7.b",
        "from token to slot",
        "slots_of",
        _slots,
        case("pages of 8", _tokens(21), _table(3), 8),
        case("pages of 16", _tokens(300), _table(20), 16),
        case("one token", _tokens(1), _table(1), 8),
        case("some tokens, in any order, pages of 6", _some_tokens(70, 150), _table(25), 6),
        hints=(
            "In which page of its sequence is token j, and at which place in it?",
            "Page `j // PAGE` of the table, place `j % PAGE`. A page has `PAGE` slots.",
            "`page = tl.load(table_ptr + j // PAGE, mask=mask)`, then store `page * <...> + <...>`",
        ),
        suspects=(
            Suspect(
                "page-not-scaled",
                "The number of the page was added as it is. How many slots lie before page p?",
                lambda tokens, table, page: table[tokens // page] + tokens % page,
            ),
            Suspect(
                "table-not-used",
                "These are the tokens' own numbers: the table was not looked up.",
                lambda t, *_: t.clone(),
            ),
            Suspect(
                "place-in-the-list",
                "The page is that of the token's place in the list. Which number says which token it is?",
                lambda tokens, table, page: table[_listed(tokens) // page] * page + tokens % page,
            ),
        ),
    ),
    step(
        "7.c",
        "a matrix times a vector",
        "linear",
        _linear,
        case("64 rows", (1, 64), (64, 64), atol=1e-4),
        case("SmolLM2's down, cut short", (1, 1536), (100, 1536), atol=1e-3),
        case("more rows than a block", (1, 576), (1030, 576), atol=1e-3),
        hints=(
            "Row n of the weight makes result n. What does a program with a block of rows have to add up?",
            "In each turn: a piece of `x`, the same columns of all rows, their product added to `products`. After the "
            "loop one sum along the columns.",
            "`w = tl.load(w_ptr + rows[:, None] * K + (start + cols)[None, :], mask=<...>, other=0.0)`, "
            "`products += w * <...>`; at last `tl.sum(products, axis=<...>)`, stored where `rows < N`",
        ),
        suspects=(
            Suspect(
                "only-last-block",
                "Only the last 64 columns are in the sum: the earlier ones were overwritten.",
                lambda x, weight: _linear(x[:, -64:], weight[:, -64:]),
            ),
            Suspect(
                "first-columns-repeated",
                "The first 64 columns were taken again and again. What has to move on with `start`?",
                lambda x, weight: _linear(x[:, :64], weight[:, :64]) * (x.shape[1] // 64),
            ),
        ),
        minutes=7,
    ),
    step(
        "7.d",
        "the k largest",
        "topk",
        _topk,
        case("three of 100", (4, 100), 3),
        case("all of 16", (3, 16), 16),
        case("equal elements", lambda g: torch.randint(0, 5, (6, 50), generator=g).float(), 8),
        case("some scores are minus infinity", _masked_scores, 5),
        hints=(
            "After the largest has been stored: what must stand in its place so that it does not win the next round?",
            "Load the row once. In each of k rounds take `tl.max` and `tl.argmax`, store both, and put the identity of "
            "a maximum into that place with `tl.where`.",
            "`place = tl.argmax(x, axis=0)`, two stores at `row * k + i`, "
            '`x = tl.where(cols == <...>, -float("inf"), <...>)`',
        ),
        suspects=(
            Suspect(
                "largest-again",
                "The largest was taken in every round: what has been taken must not win again.",
                lambda x, k: tuple(part.expand(len(x), k) for part in _topk(x, 1)),
            ),
            Suspect(
                "smallest-first", "Value and place are right, in the wrong order.", lambda x, k: _turned(_topk(x, k))
            ),
            Suspect(
                "equal-ones-together",
                "All elements that equal the largest were taken at once. Which single one is taken in a round?",
                _distinct,
            ),
        ),
        minutes=6,
    ),
)

MUTANTS = {
    "7.a": (
        Mutant("places not used", (("cache_ptr + place * N", "cache_ptr + token * N"),), "places-not-used"),
        Mutant("store without a mask", ((", x, mask=mask)", ", x)"),), "missing-store-mask"),
    ),
    "7.b": (
        Mutant("page not scaled", (("page * PAGE", "page"),), "page-not-scaled"),
        Mutant("table not used", (("page * PAGE + j % PAGE", "j"),), "table-not-used"),
        Mutant("place in the list", (("table_ptr + j // PAGE", "table_ptr + offs // PAGE"),), "place-in-the-list"),
    ),
    "7.c": (
        Mutant("rows not masked in the store", ((", mask=rows < N)", ")"),), "missing-store-mask"),
        Mutant("overwrites", (("products += w", "products = w"),), "only-last-block"),
        Mutant("columns do not move", (("start + cols", "cols"),), "first-columns-repeated"),
    ),
    "7.d": (
        Mutant(
            "nothing taken out", (('        x = tl.where(cols == place, -float("inf"), x)\n', ""),), "largest-again"
        ),
        Mutant(
            "all equal ones taken out",
            (("cols == place,", "x == tl.max(x, axis=0),"),),
            "equal-ones-together",
        ),
        Mutant("back to front", (("row * k + i", "row * k + k - 1 - i"),), "smallest-first"),
        Mutant("no identity", ((', other=-float("inf"))', ")"),), "missing-other"),
    ),
}
