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


def _table(pages: int):
    return lambda g: torch.randperm(2 * pages, generator=g)[:pages]


def _tokens(count: int):
    return lambda g: torch.arange(count)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    return (x.double() @ weight.double().T).float()


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
)

MUTANTS = {
    "7.a": (
        Mutant("places not used", (("cache_ptr + place * N", "cache_ptr + token * N"),), "places-not-used"),
        Mutant("store without a mask", ((", x, mask=mask)", ", x)"),), "missing-store-mask"),
    ),
    "7.b": (
        Mutant("page not scaled", (("page * PAGE", "page"),), "page-not-scaled"),
        Mutant("table not used", (("page * PAGE + j % PAGE", "j"),), "table-not-used"),
    ),
    "7.c": (
        Mutant("rows not masked in the store", ((", mask=rows < N)", ")"),), "missing-store-mask"),
        Mutant("overwrites", (("products += w", "products = w"),), "only-last-block"),
        Mutant("columns do not move", (("start + cols", "cols"),), "first-columns-repeated"),
    ),
}
