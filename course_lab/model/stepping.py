"""Decode steps that do not ask the host: everything that changes stands in tensors, so that a GPU can record a step.

    steps = Steps(llm, batch, tokens, advance, end=llm.tokenizer.end_of_text)
    steps.record()                    # on a GPU: a captured graph
    chosen = steps()                  # (B,): the tokens of this step

`advance` prepares the next step: exercise 9.5.  The pages that the sequences will reach are in the block table before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from course_lab.model.smollm2 import Batch, SmolLM2

WARM_UP = 3  # steps before a graph is recorded: kernels are compiled and tuned in them


class Steps:
    """The steps of a batch, one a call. compiled: by `torch.compile`."""

    def __init__(
        self, llm: SmolLM2, batch: Batch, tokens: Tensor, advance: Callable, *, end: int, compiled: bool = False
    ) -> None:
        self._llm, self._batch, self._tokens, self._end = llm, batch, tokens, end
        self._advance, self._graph = advance, None
        self._step = torch.compile(self._plain, dynamic=False) if compiled else self._plain
        self.chosen = torch.empty_like(tokens)

    @torch.no_grad()
    def _plain(self) -> None:
        b = self._batch
        self.chosen.copy_(self._llm.choose(self._llm.step(self._tokens, b)))
        page = b.keys.shape[2]
        self._advance(self.chosen, self._tokens, b.positions, b.seq_lens, b.slots, b.block_table, page, self._end)

    def __call__(self) -> Tensor:
        """One step: the chosen tokens (B,), in memory that the next step writes anew."""
        if self._graph is not None:
            self._graph.replay()
        else:
            self._step()
        return self.chosen

    def record(self) -> None:
        """Record a step as a graph. The sequences are then where they were before.

        Raises:
            RuntimeError: there is no GPU, or an operation cannot be recorded.
        """
        state = (self._tokens, self._batch.positions, self._batch.seq_lens, self._batch.slots)
        before = [tensor.clone() for tensor in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        for tensor, value in zip(state, before):
            tensor.copy_(value)
        self._graph = graph


def reserved(llm: SmolLM2, sequences: int, tokens: int, page_size: int = 16, *, position: int = 0) -> Batch:
    """Room for so many tokens of each sequence, in pages of its own, and each of them at `position`."""
    config, device = llm.config, llm.device
    pages = -(-tokens // page_size)
    shape = (config.num_layers, sequences * pages, page_size, config.num_kv_heads, config.head_dim)
    keys, values = (torch.zeros(shape, dtype=llm.dtype, device=device) for _ in range(2))
    table = torch.arange(sequences * pages, dtype=torch.int32, device=device).view(sequences, pages)
    positions = torch.full((sequences,), position, device=device)
    slots = table[:, position // page_size].long() * page_size + position % page_size
    return Batch(positions, slots, table, (positions + 1).int(), keys, values)
