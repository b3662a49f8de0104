"""The short exercises inside lesson 09."""

import torch
from torch import Tensor

from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.authoring.lesson_steps import case, step


def _soften(x: Tensor, temperature: float) -> Tensor:
    return (x.double() / temperature).softmax(-1).float()


def _references(table: Tensor, pages: int) -> Tensor:
    return torch.bincount(table[table >= 0].flatten().long(), minlength=pages).int()


def _table(rows: int, entries: int, pages: int, shared: int = 0, empty: int = 0):
    """Entries in any order; the first `shared` columns are alike, the last `empty` ones of every other row -1."""

    def make(generator: torch.Generator) -> Tensor:
        table = torch.randint(pages, (rows, entries), generator=generator).int()
        table[:, :shared] = table[0, :shared]
        if empty:
            table[::2, -empty:] = -1
        return table

    return make


STEPS = (
    step(
        "9.a",
        "probabilities at a temperature",
        "soften",
        _soften,
        case("a temperature of 1", (3, 64), 1.0),
        case("a temperature of 0.3, 6 logits", (4, 6), 0.3),
        case("a temperature of 3, 100 logits", (2, 100), 3.0),
        case("logits far apart, at a temperature of 50", lambda g: 100 * torch.randn(3, 50, generator=g), 50.0),
        case("logits around 500", lambda g: 500 + torch.randn(2, 40, generator=g), 0.5, atol=1e-4, rtol=1e-3),
        hints=(
            "It is the softmax of lesson 06. Where in it does the division by the temperature belong?",
            "Subtract the maximum first, divide, take the exponential, divide by the sum of the row.",
            "`p = tl.exp((x - tl.max(x, axis=0)) / <...>)`, then store `p / tl.sum(<...>, axis=0)` with the mask.",
        ),
        suspects=(
            Suspect("no-temperature", "The temperature is not in the result.", lambda x, temperature: _soften(x, 1.0)),
            Suspect(
                "temperature-multiplied",
                "The logits were multiplied by the temperature.",
                lambda x, temperature: _soften(x, 1 / temperature),
            ),
            Suspect(
                "not-divided",
                "The exponentials were not divided by their sum.",
                lambda x, temperature: torch.exp((x - x.amax(-1, keepdim=True)) / temperature),
            ),
        ),
        minutes=4,
    ),
    step(
        "9.b",
        "count the references",
        "count_references",
        _references,
        case("two rows that share pages", _table(2, 6, 20, shared=3), 20),
        case("rows that have ended early", _table(6, 7, 30, empty=3), 30),
        case("many rows, one prefix", _table(40, 5, 64, shared=4), 64),
        hints=(
            "Which address belongs to a page, and what has to happen there if two lanes come at once?",
            "`tl.atomic_add(pointer, value, mask=...)` adds without losing anybody's one. Entries of -1 are no pages.",
            "`tl.atomic_add(refs_ptr + <...>, 1, mask=<there is a page>)`",
        ),
        suspects=(
            Suspect(
                "counted-once",
                "Each page counts once, however often it is in the table.",
                lambda table, pages: _references(table, pages).clamp(max=1),
            ),
        ),
    ),
)

MUTANTS = {
    "9.a": (
        Mutant("no temperature", ((" / temperature)", ")"),), "no-temperature"),
        Mutant("times the temperature", ((" / temperature)", " * temperature)"),), "temperature-multiplied"),
        Mutant("not divided by the sum", (("p / tl.sum(p, axis=0)", "p"),), "not-divided"),
        Mutant("store without a mask", ((", mask=mask)\n\n", ")\n\n"),), "missing-store-mask"),
    ),
    "9.b": (
        Mutant("-1 counted as a page", ((", mask=page >= 0)", ")"),), "padding-slot"),
        Mutant("stores instead of adding", (("tl.atomic_add(", "tl.store("),), "counted-once"),
    ),
}
