"""What DeepSeek-V3 does before attention, on one of 8 GPUs: 16 heads of 128 + 64, latent vectors of 512 + 64."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, Case, draw, rows_of
from benchmarks.rope import TOKENS, neox

HEADS, DEPTH, LATENT, ROPE = 16, 128, 512, 64


def concat_formula(q_nope, q_pe, k_nope, k_pe, positions, cos, sin):
    """As PyTorch's operations: the second part of every head is turned."""
    cos, sin = cos[positions], sin[positions]
    return tuple(torch.cat([x, neox(pe[None], cos, sin)[0]], -1) for x, pe in ((q_nope, q_pe), (k_nope, k_pe)))


def absorb_formula(q_nope, w_uk, q_pe, k_nope, k_pe, kv_cache, slots, positions, cos, sin):
    """As PyTorch's operations; the cache is written in place."""
    cos, sin = cos[positions], sin[positions]
    q = torch.einsum("thp,hlp->thl", q_nope, w_uk)
    q_pe, k_pe = (neox(x[None], cos, sin)[0] for x in (q_pe, k_pe))
    kv_cache[slots] = torch.cat([k_nope, k_pe], -1)
    return torch.cat([q, q_pe], -1), kv_cache


def absorb_ours(*inputs):
    """One launch."""
    return ck.mla_bmm_rope_cache(*inputs), inputs[5]


def cases(sizes: str = "every"):
    """For each number of tokens a prompt's Q and K, put together, and a decoder's step with its cache."""
    for tokens in rows_of(sizes, TOKENS, (64, 16384), (2,)):
        angles = 2 * 4 * tokens * ROPE // 2 + 8 * tokens
        yield Case(
            "rope_concat_qk",
            f"DeepSeek, {tokens} tokens",
            lambda device, t=tokens: _parts(device, t),
            {OURS: ck.rope_concat_qk},
            concat_formula,
            bytes=2 * tokens * (4 * HEADS * (DEPTH + ROPE) - (HEADS - 1) * ROPE) + angles,  # one turned key for all
            eager=concat_formula,
        )
        queries, keys = HEADS * (DEPTH + LATENT + 2 * ROPE), 2 * (LATENT + ROPE)
        yield Case(
            "mla_bmm_rope_cache",
            f"DeepSeek, {tokens} tokens",
            lambda device, t=tokens: _latents(device, t),
            {OURS: absorb_ours},
            absorb_formula,
            bytes=2 * tokens * (queries + keys) + 2 * HEADS * LATENT * DEPTH + angles + 8 * tokens,
            eager=absorb_formula,
        )


def _angles(device, tokens):
    """Positions that count from 0, and tables."""
    return torch.arange(tokens, device=device), *(table.to(device) for table in ck.rope_tables(tokens, ROPE))


def _parts(device, tokens):
    heads = draw(device, tokens, HEADS, DEPTH), draw(device, tokens, HEADS, ROPE)
    k_pe = draw(device, tokens, 1, ROPE).expand(-1, HEADS, -1)
    return *heads, draw(device, tokens, HEADS, DEPTH, scale=0.5), k_pe, *_angles(device, tokens)


def _latents(device, tokens):
    slots = torch.randperm(tokens, generator=torch.Generator().manual_seed(1)).to(device)
    return (
        draw(device, tokens, HEADS, DEPTH),
        draw(device, HEADS, LATENT, DEPTH, scale=DEPTH**-0.5),
        draw(device, tokens, HEADS, ROPE),
        draw(device, tokens, 1, LATENT),
        draw(device, tokens, 1, ROPE, scale=0.5),
        torch.zeros(tokens, 1, LATENT + ROPE, dtype=torch.bfloat16, device=device),
        slots,
        *_angles(device, tokens),
    )
