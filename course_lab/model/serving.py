"""Several sequences over one paged cache: shared prefixes, copy-on-write, rows that end and make room.

Not a server: no clock, no network, no preemption.  Each turn of the loop is a step of all rows at once; a row that is
still reading its prompt is fed the prompt's next token, one that is writing the token that it chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lab.model.smollm2 import Batch, PagedKVCache, SmolLM2


@dataclass
class Served:
    """What came of it. texts: by prompt. pages: in use at most; alone: if every sequence had had pages of its own.

    steps: of the batch. read: tokens of prompts that went through the model; in_prompts: that they have in all.
    copies: pages copied before they were written. page_bytes: of one page, keys and values of all layers.
    """

    texts: list[str]
    tokens: list[list[int]]
    steps: int = 0
    pages: int = 0
    alone: int = 0
    read: int = 0
    in_prompts: int = 0
    copies: int = 0
    page_bytes: int = 0

    @property
    def bytes_saved(self) -> int:
        """By sharing, at the moment when most pages were in use."""
        return (self.alone - self.pages) * self.page_bytes

    def __str__(self) -> str:
        return (
            f"{len(self.texts)} prompts in {self.steps} steps; {self.read} of {self.in_prompts} prompt tokens read\n"
            f"{self.copies} pages copied before they were written\n"
            f"at most {self.pages} pages in use instead of {self.alone}: {self.bytes_saved:,} bytes saved"
        )


def serve(
    llm: SmolLM2,
    prompts: Sequence[Sequence[int]],
    next_slots: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor],
    *,
    rows: int = 4,
    max_new_tokens: int = 16,
    page_size: int = 16,
    pages: int = 96,
) -> Served:
    """Answer the prompts (lists of tokens), `rows` of them at a time, each with its most likely tokens.

    Their common prefix is read once, into pages that all sequences then share.  next_slots: the page allocator of
    exercise 9.4, `next_slots(block_table, seq_lens, refs, keys, values) -> slots`.

    Raises:
        ValueError: no prompt, an empty one, or too few pages for what may be wanted at once.
    """
    pool = _Pool(llm, prompts, rows, page_size, pages, max_new_tokens)
    waiting, served = list(range(len(prompts))), Served([""] * len(prompts), [[] for _ in prompts])
    served.page_bytes = 2 * pool.keys[:, 0].nbytes
    served.read, served.in_prompts = pool.prefix, sum(map(len, prompts))
    at_row: dict[int, int] = {}  # which prompt a row works on
    while waiting or at_row:
        for row in range(rows):
            if row not in at_row and waiting:
                at_row[row] = waiting.pop(0)
                pool.admit(row, prompts[at_row[row]])
        before = pool.refs.clone()
        slots = next_slots(pool.table, pool.lens, pool.refs, pool.keys, pool.values)
        served.copies += int((before - pool.refs).clamp(min=0).sum())
        pool.count(served)
        batch = Batch(pool.lens.long().clamp(min=0), slots, pool.table, pool.lens + 1, pool.keys, pool.values)
        chosen = llm.choose(llm.step(pool.tokens, batch)).tolist()
        served.steps += 1
        for row, number in list(at_row.items()):
            pool.lens[row] += 1
            if pool.lens[row] < len(prompts[number]):
                pool.tokens[row] = prompts[number][pool.lens[row]]
                served.read += 1
                continue
            served.read += not served.tokens[number]
            served.tokens[number].append(chosen[row])
            pool.tokens[row] = chosen[row]
            if chosen[row] == llm.tokenizer.end_of_text or len(served.tokens[number]) == max_new_tokens:
                pool.release(row)
                del at_row[row]
    served.texts = [llm.tokenizer.decode(tokens) for tokens in served.tokens]
    return served


class _Pool:
    """Pages, who refers to them, and the rows of the batch; a row without a sequence has length -1."""

    def __init__(self, llm, prompts, rows, page_size, pages, max_new_tokens) -> None:
        if not prompts or not all(prompts):
            raise ValueError("there is nothing to read: give at least one prompt, each of at least one token")
        config, device = llm.config, llm.device
        entries = -(-(max(map(len, prompts)) + max_new_tokens) // page_size)
        if pages < (rows + 1) * entries:
            raise ValueError(f"{pages} pages are too few: {rows} rows of {entries} and a prefix may want all of theirs")
        shape = (config.num_layers, pages, page_size, config.num_kv_heads, config.head_dim)
        self.keys, self.values = (torch.zeros(shape, dtype=llm.dtype, device=device) for _ in range(2))
        self.refs = torch.zeros(pages, dtype=torch.int32, device=device)
        self.table = torch.full((rows, entries), -1, dtype=torch.int32, device=device)
        self.lens = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.page_size, self.prefix = page_size, _common(prompts)
        self._shared = list(range(-(-self.prefix // page_size)))
        if self.prefix:
            cache = PagedKVCache.over(self.keys, self.values, self._shared)
            llm.next_token(prompts[0][: self.prefix], cache)
            self.refs[self._shared] = 1  # of the prefix itself: it stays for those who come later

    def admit(self, row: int, prompt: Sequence[int]) -> None:
        """A sequence begins with the pages of the prefix; the rest of its prompt is to be read."""
        self.table[row] = -1
        self.table[row, : len(self._shared)] = torch.tensor(self._shared, dtype=torch.int32)
        self.refs[self._shared] += 1
        self.lens[row], self.tokens[row] = self.prefix, prompt[self.prefix]

    def release(self, row: int) -> None:
        """The sequence has ended: whatever page nobody else refers to is free."""
        for page in self.table[row].tolist():
            if page >= 0:
                self.refs[page] -= 1
        self.table[row], self.lens[row] = -1, -1

    def count(self, served: Served) -> None:
        """Keep the figures of the moment when most pages would be wanted."""
        used = int((self.refs > 0).sum())
        alone = int((self.table >= 0).sum())
        if alone >= served.alone:
            served.alone, served.pages = alone, used


def _common(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts begin with; of each at least the last one is left to read."""
    count = 0
    while count < min(map(len, prompts)) - 1 and len({prompt[count] for prompt in prompts}) == 1:
        count += 1
    return count
