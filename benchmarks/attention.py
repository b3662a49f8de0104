"""Flash attention, forward. Contenders: PyTorch's backends."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import course_kernels as ck
from benchmarks.contest import OURS, Case, draw, rows_of

BACKENDS = {"torch flash": SDPBackend.FLASH_ATTENTION, "torch cuDNN": SDPBackend.CUDNN_ATTENTION}
SHAPES = [  # batch, heads, heads of k and v, tokens, width, causal
    (4, 32, 32, 4096, 128, True),
    (4, 32, 32, 4096, 128, False),
    (1, 32, 32, 16384, 128, True),
    (4, 32, 32, 4096, 64, True),
    (4, 32, 8, 4096, 128, True),
]


def reference(q, k, v, causal):
    """In float32, one head at a time."""
    group = q.shape[1] // k.shape[1]

    def of_head(q, k, v):
        scores = q @ k.T * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu_(1), -torch.inf)
        return torch.softmax(scores, -1) @ v

    sequences = zip(q, k, v)
    return torch.stack(
        [torch.stack([of_head(q[h], k[h // group], v[h // group]) for h in range(len(q))]) for q, k, v in sequences]
    )


def torchs(backend, causal):
    """One backend of PyTorch's scaled_dot_product_attention."""

    def attend(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    return attend


def cases(sizes: str = "every"):
    """One for each shape."""
    for batch, heads, kv_heads, tokens, width, causal in rows_of(sizes, SHAPES, SHAPES[:1], [(1, 2, 1, 20, 16, True)]):
        backends = {} if sizes == "tiny" else BACKENDS
        moved = 2 * 2 * batch * tokens * width * (heads + kv_heads)
        yield Case(
            "flash_attention",
            f"({batch}, {heads}/{kv_heads}, {tokens}, {width})" + (" causal" if causal else ""),
            lambda device, b=batch, h=heads, g=kv_heads, s=tokens, d=width: (
                draw(device, b, h, s, d),
                draw(device, b, g, s, d),
                draw(device, b, g, s, d, scale=0.5),
            ),
            {
                **{name: torchs(backend, causal) for name, backend in backends.items()},
                OURS: lambda q, k, v, c=causal: ck.flash_attention(q, k, v, causal=c),
            },
            lambda q, k, v, c=causal: reference(q, k, v, c),
            bytes=moved,
            flops=4 * batch * heads * tokens * tokens * width // (2 if causal else 1),
        )
