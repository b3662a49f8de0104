"""Attention of one new token to a paged cache: Llama 3 8B, 32 heads that share 8."""

import torch
import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import OURS, Case, draw, rows_of
from benchmarks.flashinfer import FLASHINFER, PagedDecode

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 32, 8, 128, 16
SHAPES = [(batch, tokens) for batch in (1, 64) for tokens in (4096, 32768)]


def gathered(q, k_cache, v_cache, table, lens):
    """Pages gathered into rows, then PyTorch's attention; every sequence is as long as its pages."""
    k, v = (cache[table].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
    return F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)[:, :, 0]


def reference(q, k_cache, v_cache, table, lens):
    """In float32, sequence by sequence."""
    group = q.shape[1] // k_cache.shape[2]
    o = torch.empty_like(q)
    for b in range(len(q)):
        k, v = (cache[table[b]].flatten(0, 1).transpose(0, 1) for cache in (k_cache, v_cache))
        scores = q[b].unflatten(0, (-1, group)) @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        o[b] = (torch.softmax(scores, -1) @ v).flatten(0, 1)
    return o


def cases(sizes: str = "every"):
    """One for each batch and context; pages in a random order."""
    for batch, tokens in rows_of(sizes, SHAPES, [(64, 4096)], [(2, 48)]):
        yield Case(
            "paged_decode_attention",
            f"batch {batch}, context {tokens}",
            lambda device, b=batch, t=tokens: _inputs(device, b, t),
            {FLASHINFER: PagedDecode(), OURS: ck.paged_decode_attention},
            reference,
            bytes=2 * 2 * batch * tokens * KV_HEADS * HEAD_DIM + 2 * 2 * batch * HEADS * HEAD_DIM,
            eager=gathered,
            cold=True,
        )


def _inputs(device, batch, tokens):
    pages = batch * tokens // BLOCK
    caches = (draw(device, pages, BLOCK, KV_HEADS, HEAD_DIM, scale=scale) for scale in (1.0, 0.5))
    table = torch.randperm(pages, generator=torch.Generator().manual_seed(1)).view(batch, -1).int().to(device)
    lens = torch.full((batch,), tokens, dtype=torch.int32, device=device)
    return draw(device, batch, HEADS, HEAD_DIM), *caches, table, lens
