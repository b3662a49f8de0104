"""The steps of an answer after its first token, prepared once and then repeated: what a GPU can record as a graph.

Launched one by one, the kernels of a step wait for Python.  A graph is replayed in one call; lesson 07, "A step in a
graph".  The host only reads the chosen token.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from course_lab.model import SmolLM2
from course_lab.model.smollm2 import Batch, PagedKVCache
from course_lab.model.stepping import Steps


class RecordedSteps:
    """The most likely next token of the one sequence in `cache`, whose pages are all taken at once.

    advance: prepares the next step, as exercise 9.5.  compiled: by `torch.compile`, before it is recorded.
    record: False runs the same steps without a graph, as a machine without a GPU has to.
    """

    def __init__(
        self, llm: SmolLM2, cache: PagedKVCache, advance: Callable, *, compiled: bool = False, record: bool = True
    ) -> None:
        self._cache, self._next = cache, 0
        cache.take_all()
        zero = torch.zeros(1, dtype=torch.int64, device=llm.device)
        self._tokens, positions, slots, lens = zero.clone(), zero.clone(), zero.clone(), zero.int() + 1
        # One more entry: the step that fills the last page looks up a slot for a next one, which never comes.
        table = torch.cat((cache.block_table, cache.block_table[:, -1:]), dim=1)
        self._batch = Batch(positions, slots, table, lens, cache.keys, cache.values)
        self._stand_at(0)
        self._steps = Steps(llm, self._batch, self._tokens, advance, end=llm.tokenizer.end_of_text, compiled=compiled)
        if record:
            self._steps.record()

    def __call__(self, token: int) -> int:
        """Read `token` behind what the cache holds, and choose the next one. The cache grows by one."""
        if self._cache.length != self._next or self._cache.length == 0:  # a prompt was read since the last step
            self._stand_at(self._cache.length)
            self._tokens.fill_(token)
        chosen = int(self._steps())
        self._cache.length += 1
        self._next = self._cache.length
        return chosen

    def _stand_at(self, position: int) -> None:
        """Make the next step the one of this position; between steps, `advance` does it."""
        batch, page = self._batch, self._cache.page_size
        batch.positions.fill_(position)
        batch.seq_lens.fill_(position + 1)
        batch.slots.copy_(batch.block_table[:, position // page] * page + position % page)
