"""Wrong answers to the exercises of lesson 09, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_TAKEN = "left = left & (place != first)"
_DOT = 'acc = tl.dot(x, weight.T, acc, input_precision="ieee")'

MUTANTS = {
    "9.1": (
        Mutant("takes the same again", ((f"        {_TAKEN}\n", ""),), "same-again"),
        Mutant("takes equals together", ((_TAKEN, "left = left & (x != best)"),), "equals-together"),
        Mutant(
            "the last of equals",
            (
                (
                    "first = tl.min(tl.where(left & (x == best), place, NOWHERE), axis=0)",
                    "first = tl.max(tl.where(left & (x == best), place, -1), axis=0)",
                ),
            ),
            "last-of-equals",
        ),
        Mutant(
            "the smallest",
            (
                (
                    'best = tl.max(tl.where(left, x, -float("inf")), axis=0)',
                    'best = tl.min(tl.where(left, x, float("inf")), axis=0)',
                ),
            ),
            "smallest",
        ),
        Mutant(
            "two rounds and no more",
            (("chunks = triton.cdiv(N, 2048)", "chunks = triton.cdiv(N, 2048) if places is None else 1"),),
            "row-cut-short",
        ),
        Mutant("stores at the same place", (("values_ptr + out + i", "values_ptr + out"),), "partly-written"),
        Mutant("places not stored", (("        tl.store(indices_ptr + out + i, first)\n", ""),), "output-untouched"),
    ),
    "9.2": (
        Mutant("always the best", (("+ row * k + place)", "+ row * k)"),), "always-best"),
        Mutant("without the temperature", ((" / temperature)", ")"),), "no-temperature"),
        Mutant("times the temperature", ((" / temperature)", " * temperature)"),), "temperature-multiplied"),
        Mutant(
            "the place instead of the token",
            (("tl.load(indices_ptr + row * k + place)", "place.to(tl.int64)"),),
            "place-as-token",
        ),
        Mutant("one behind", (("axis=0), k - 1)", "axis=0) + 1, k - 1)"),), "one-behind"),
        Mutant("sums without the own p", (("tl.cumsum(p, axis=0) <=", "tl.cumsum(p, axis=0) - p <="),), "one-behind"),
        Mutant("no sums", (("tl.cumsum(p, axis=0) <=", "p <="),), "no-sums"),
    ),
    "9.3": (
        Mutant("overwrites", ((_DOT, 'acc = tl.dot(x, weight.T, input_precision="ieee")'),), "only-last-block"),
        Mutant(
            "columns do not move",
            (("offs_k = start + tl.arange(0, BLOCK_K)", "offs_k = tl.arange(0, BLOCK_K)"),),
            "first-columns-repeated",
        ),
        Mutant(
            "first token for all",
            (("x = tl.load(x_ptr + offs_m * K", "x = tl.load(x_ptr + offs_m * 0"),),
            "first-token-only",
        ),
        Mutant(
            "rows of the weight not masked in the load",
            (("mask=(offs_n < N) & (offs_k < K)", "mask=offs_k < K"),),
            "mask-too-wide",
        ),
        Mutant(
            "store without a mask",
            ((", mask=(offs_m < M) & (offs_n < N))", ")"),),
            "missing-store-mask",
        ),
        Mutant("the grid one short", (("triton.cdiv(N, 32)", "N // 32"),), "grid-floor-division"),
    ),
    "9.4": (
        Mutant(
            "never copies",
            (
                (
                    "takes = runs & ((place == 0) | shared)",
                    "shared = shared & False\n        takes = runs & (place == 0)",
                ),
            ),
            "shared-page-written",
        ),
        Mutant(
            "copies no content",
            (("tl.where(shared, old, -1)", "-1"),),
            "content-not-copied",
        ),
        Mutant(
            "copies keys only",
            (("            tl.store(v_ptr + (layer * P + target) * SIZE + offs, v, mask=mask)\n", ""),),
            "values-not-copied",
        ),
        Mutant(
            "first layer only", (("copy_page_kernel[(B, layers)]", "copy_page_kernel[(B, 1)]"),), "first-layer-only"
        ),
        Mutant("keeps the reference", ((" - tl.where(shared & (pages == old), 1, 0)", ""),), "reference-kept"),
        Mutant(
            "takes the highest free page",
            (
                (
                    "tl.min(tl.where(refs == 0, pages, BLOCK), axis=0)",
                    "tl.max(tl.where((refs == 0) & (pages < P), pages, -1), axis=0)",
                ),
            ),
            "highest-page",
        ),
        Mutant(
            "what stands in an entry without meaning loses a reference",
            (
                ("mask=runs & (place > 0), other=-1)", "mask=runs, other=-1)"),
                ("axis=0) > 1\n", "axis=0) > 1\n        shared = shared & (place > 0)\n"),
                ("tl.where(shared & (pages == old), 1, 0)", "tl.where(takes & (pages == old), 1, 0)"),
            ),
            "kept-lost",
        ),
        Mutant("table not written", (("        tl.store(entry_ptr, page, mask=takes)\n", ""),), "output-untouched"),
    ),
    "9.5": (
        Mutant(
            "as given, both bugs",
            (
                ("runs = (slot >= 0) & (chosen != END)", "runs = slot >= 0"),
                ("+ position // PAGE", "+ tl.where(runs, position - 1, position) // PAGE"),
            ),
            "both-bugs",
        ),
        Mutant(
            "the table is read for a sequence that is over",
            (
                ("+ position // PAGE", "+ tl.where(runs, position, position + 1) // PAGE"),
                ("mask=mask & runs, other=0)", "mask=mask & (slot >= 0), other=0)"),
            ),
            "mask-too-wide",
        ),
        Mutant("a slot in 32 bits", (("other=0).to(tl.int64)", "other=0)"),), "still-wrapped"),
        Mutant("goes on after the end", (("(slot >= 0) & (chosen != END)", "slot >= 0"),), "never-ends"),
        Mutant(
            "page of the old position",
            (("+ position // PAGE", "+ tl.where(runs, position - 1, position) // PAGE"),),
            "page-of-old-position",
        ),
        Mutant("wakes the dead", (("(slot >= 0) & (chosen != END)", "(slot >= -1) & (chosen != END)"),), "all-go-on"),
        Mutant(
            "loads of the table without a mask",
            ((", mask=mask & runs, other=0)", ")"),),
            "missing-load-mask",
        ),
        Mutant(
            "stores without a mask",
            (("tl.store(tokens_ptr + b, chosen, mask=mask)", "tl.store(tokens_ptr + b, chosen)"),),
            "missing-store-mask",
        ),
    ),
}
