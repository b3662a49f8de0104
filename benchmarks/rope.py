"""RoPE of one tensor of heads: Llama 3 8B (32 heads of 128) and DeepSeek (128 heads of 64, interleaved pairs)."""

import torch

import course_kernels as ck
from benchmarks.contest import OURS, Case, draw, of_liger, rows_of

MODELS = {"Llama 3 8B": (32, 128, "neox"), "DeepSeek": (128, 64, "gptj")}
TOKENS = (1, 64, 4096, 16384)


def neox(x, cos, sin):
    """(1, S, heads, D), in float32: halves of a head are pairs."""
    cos, sin = cos[None, :, None].float(), sin[None, :, None].float()
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def gptj(x, cos, sin):
    """The same with neighbours as pairs."""
    cos, sin = cos[None, :, None].float(), sin[None, :, None].float()
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)


def cases(sizes: str = "every"):
    """One for each model and number of tokens."""
    for model, (heads, head_dim, style) in MODELS.items():
        for tokens in rows_of(sizes, TOKENS, (64, 16384), (2,)):
            formula = {"neox": neox, "gptj": gptj}[style]
            liger = of_liger("rope", "LigerRopeFunction", _by_liger) if style == "neox" else {}
            yield Case(
                "rope",
                f"{model}, {tokens} tokens",
                lambda device, t=tokens, h=heads, d=head_dim: _inputs(device, t, h, d),
                {
                    **liger,
                    OURS: lambda x, c, s, *_, style=style: ck.rope(x, c, s, style=style, layout="bshd"),
                },
                lambda x, c, s, *_, f=formula: f(x, c, s),
                bytes=2 * 2 * tokens * heads * head_dim + 2 * 4 * tokens * head_dim // 2,
                eager=lambda x, c, s, *_, f=formula: f(x, c, s),
            )


def _inputs(device, tokens, heads, head_dim):
    """x, cos and sin; and what Liger takes besides: a head of keys, and tables twice as wide."""
    cos, sin = (table.to(device) for table in ck.rope_tables(tokens, head_dim))
    wide = (torch.cat([table, table], dim=-1)[None] for table in (cos, sin))
    return draw(device, 1, tokens, heads, head_dim), cos, sin, draw(device, 1, tokens, 1, head_dim), *wide


def _by_liger(function, x, _cos, _sin, key, cos, sin):
    """In place, queries and keys together: its keys are one head more to turn."""
    return function(x.transpose(1, 2), key.transpose(1, 2), cos, sin)[0].transpose(1, 2)
