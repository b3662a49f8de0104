"""Keys, turned, and values into a paged cache, and queries turned: Llama 3 8B, one launch."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, Case, draw, rows_of
from benchmarks.flashinfer import FLASHINFER, PagedUpdate
from benchmarks.qkv import HEAD_DIM, KV_HEADS, Q_HEADS
from benchmarks.rope import TOKENS, neox

BLOCK = 16  # tokens of a page


def formula(q, k, v, k_cache, v_cache, slots, positions, cos, sin):
    """As PyTorch's operations; the caches are written in place."""
    cos, sin = cos[positions], sin[positions]
    q, k = (neox(x[None], cos, sin)[0] for x in (q, k))
    k_cache.view(-1, KV_HEADS, HEAD_DIM)[slots] = k
    v_cache.view(-1, KV_HEADS, HEAD_DIM)[slots] = v
    return q, k, k_cache, v_cache


def ours(q, k, v, k_cache, v_cache, slots, positions, cos, sin):
    """One launch."""
    return *ck.paged_kv_cache_update(q, k, v, k_cache, v_cache, slots, positions, cos, sin), k_cache, v_cache


def cases(sizes: str = "every"):
    """One for each number of tokens; slots in a random order."""
    for tokens in rows_of(sizes, TOKENS, (64, 16384), (2,)):
        heads = 2 * Q_HEADS + 2 * 2 * KV_HEADS + KV_HEADS  # q and k there and back, k and v into caches
        yield Case(
            "paged_kv_cache_update",
            f"Llama 3 8B, {tokens} tokens",
            lambda device, t=tokens: _inputs(device, t),
            {FLASHINFER: PagedUpdate(), OURS: ours},
            formula,
            bytes=2 * tokens * heads * HEAD_DIM + 2 * 4 * tokens * HEAD_DIM // 2 + 16 * tokens,
            eager=formula,
        )


def _inputs(device, tokens):
    pages = -(-tokens // BLOCK)
    cache = (torch.zeros(pages, BLOCK, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=device) for _ in range(2))
    slots = torch.randperm(pages * BLOCK, generator=torch.Generator().manual_seed(1))[:tokens].to(device)
    tables = (table.to(device) for table in ck.rope_tables(tokens, HEAD_DIM))
    heads = (draw(device, tokens, count, HEAD_DIM) for count in (Q_HEADS, KV_HEADS))
    return (
        *heads,
        draw(device, tokens, KV_HEADS, HEAD_DIM, scale=0.5),
        *cache,
        slots,
        torch.arange(tokens, device=device),
        *tables,
    )
