"""The rows of a fused projection, cut into Q, K and V, with Q and K turned: Llama 3 8B."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, Case, draw, rows_of
from benchmarks.rope import TOKENS, neox

Q_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128


def formula(qkv, cos, sin, positions):
    """As PyTorch's operations."""
    heads = qkv.unflatten(-1, (-1, HEAD_DIM))
    q, k, v = heads.split([Q_HEADS, KV_HEADS, KV_HEADS], dim=1)
    cos, sin = cos[positions], sin[positions]
    return *(neox(x[None], cos, sin)[0] for x in (q, k)), v.contiguous()


def cases(sizes: str = "every"):
    """One for each number of tokens."""
    width = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM
    for tokens in rows_of(sizes, TOKENS, (64, 16384), (2,)):
        yield Case(
            "split_qkv_rope",
            f"Llama 3 8B, {tokens} tokens",
            lambda device, t=tokens: inputs(device, t, draw(device, t, width)),
            {OURS: lambda *args: ck.split_qkv_rope(*args, Q_HEADS, KV_HEADS, HEAD_DIM)},
            formula,
            bytes=2 * 2 * tokens * width + 2 * 4 * tokens * HEAD_DIM // 2 + 8 * tokens,
            eager=formula,
        )


def inputs(device, tokens, *first):
    """The given tensors, tables and positions that count from 0."""
    tables = (table.to(device) for table in ck.rope_tables(tokens, HEAD_DIM))
    return *first, *tables, torch.arange(tokens, device=device)
