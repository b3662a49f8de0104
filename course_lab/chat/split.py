"""Attention of one token to a long sequence in several parts: what the merge of exercise 7.5 has to merge.

A part is an attention of its own, to a stretch of the keys, and leaves the base-2 logarithm of the sum under its
softmax; lesson 07, rung 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

LONG = 512  # tokens of room from which on a sequence is cut
PARTS = 4


@triton.jit
def part_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, table_ptr, lens_ptr, parts_ptr, lse_ptr, stride_qb, stride_tb, scale,
    KH: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one part of a sequence for the GROUP query heads that share a head of the cache."""
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part, count = tl.program_id(2), tl.num_programs(2)
    member, d = tl.arange(0, BLOCK_H), tl.arange(0, D)
    mask_h = member < GROUP
    scale = tl.cast(scale, tl.float32)  # torch.compile hands a Python number over in float64
    head = kv_head * GROUP + member
    q = tl.load(q_ptr + sequence * stride_qb + head[:, None] * D + d, mask=mask_h[:, None], other=0.0).to(tl.float32)
    length = tl.load(lens_ptr + sequence)
    share = tl.cdiv(tl.cdiv(length, count), BLOCK_N) * BLOCK_N
    acc = tl.zeros((BLOCK_H, D), tl.float32)
    row_max, row_sum = tl.full((BLOCK_H,), -float("inf"), tl.float32), tl.zeros((BLOCK_H,), tl.float32)
    for start in range(part * share, tl.minimum((part + 1) * share, length), BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        exists = j < length
        page = tl.load(table_ptr + sequence * stride_tb + j // PAGE, mask=exists, other=0).to(tl.int64)
        row = ((page * PAGE + j % PAGE) * KH + kv_head)[:, None] * D + d
        k = tl.load(k_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * scale
        scores = tl.where(exists[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p, rescale = tl.exp2(scores - new_max[:, None]), tl.exp2(row_max - new_max)
        row_sum, row_max = row_sum * rescale + tl.sum(p, axis=1), new_max
        acc = acc * rescale[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
    safe = tl.where(row_sum == 0.0, 1.0, row_sum)
    out = (sequence * KH * GROUP + head) * count + part
    tl.store(parts_ptr + out[:, None] * D + d, acc / safe[:, None], mask=mask_h[:, None])
    tl.store(lse_ptr + out, row_max + tl.log2(safe), mask=mask_h)


def split_attention(
    merge: Callable, q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, seq_lens: Tensor
) -> Tensor:
    """Attention of one token of each sequence (B, QH, D) to its pages, in PARTS that `merge(parts, lse)` merges."""
    (batch, heads, depth), (_, page, kv_heads, _) = q.shape, k_cache.shape
    parts = torch.empty(batch * heads, PARTS, depth, device=q.device)
    lse = torch.empty(batch * heads, PARTS, device=q.device)
    group = heads // kv_heads
    part_kernel[(batch, kv_heads, PARTS)](
        q, k_cache, v_cache, block_table, seq_lens, parts, lse, q.stride(0), block_table.stride(0),
        depth**-0.5 / math.log(2), KH=kv_heads, GROUP=group, D=depth, PAGE=page,
        BLOCK_H=triton.next_power_of_2(group), BLOCK_N=16,
    )  # fmt: skip
    return merge(parts, lse).to(q.dtype).view(batch, heads, depth)
