"""The formulas of lesson 09's exercises, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from course_kernels import reference
from course_lab.model.operations import sample

top_k = reference.topk
few_rows = reference.linear
__all__ = ["advance", "few_rows", "next_slots", "sample", "top_k"]


def next_slots(
    block_table: Tensor, seq_lens: Tensor, refs: Tensor, k_cache: Tensor, v_cache: Tensor, *, choice: int = 0
) -> Tensor:
    """A slot for the next token of each sequence; a page that is full or shared is followed by the first free one,
    or another `choice` of the free ones"""
    page_size, slots = k_cache.shape[2], torch.full((len(seq_lens),), -1, dtype=torch.int64)
    for b, length in enumerate(seq_lens.tolist()):
        if length < 0:
            continue
        index, place = divmod(length, page_size)
        old = int(block_table[b, index]) if place else -1
        if place == 0 or refs[old] > 1:
            new = int((refs == 0).nonzero()[choice])
            block_table[b, index], refs[new] = new, 1
            if place:
                refs[old] -= 1
                k_cache[:, new], v_cache[:, new] = k_cache[:, old], v_cache[:, old]
        slots[b] = int(block_table[b, index]) * page_size + place
    return slots


def advance(
    chosen: Tensor,
    tokens: Tensor,
    positions: Tensor,
    seq_lens: Tensor,
    slots: Tensor,
    block_table: Tensor,
    page: int,
    end: int,
) -> None:
    """The chosen tokens become the input; sequences that go on get longer, others slot -1, length 0"""
    runs = (slots >= 0) & (chosen != end)
    tokens.copy_(chosen)
    positions += runs
    seq_lens.copy_(torch.where(runs, positions + 1, 0))
    index = torch.where(runs, positions // page, 0)
    of_page = block_table.long().gather(1, index[:, None])[:, 0]
    slots.copy_(torch.where(runs, of_page * page + positions % page, -1))
