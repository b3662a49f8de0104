"""What each operation of the model computes, in plain PyTorch: the defaults that a kernel can replace.

The signatures are those of the functions in ``course_kernels``, so that a kernel of the course fits in as it is. Where
``course_kernels.reference`` has the formula, it is used.

T tokens, hidden size N, QH query heads, KH key/value heads, head dimension D, B sequences (here always one).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from course_kernels.reference import (
    act_and_mul,
    add_rms_norm,
    paged_decode_attention,
    paged_kv_cache_update,
    rms_norm,
    split_qkv_rope,
)


def embedding(tokens: Tensor, weight: Tensor) -> Tensor:
    """Row ``tokens[t]`` of weight (V, N) for every t: (T,) int64 -> (T, N)."""
    return F.embedding(tokens, weight)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T``: (T, K) and weight (M, K) -> (T, M). SmolLM2 has no biases."""
    return F.linear(x, weight)


def kv_cache_update(q: None, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, positions: Tensor) -> None:
    """Write k and v (B, S, KH, D) into the caches (B, S_max, KH, D) at ``positions`` (B, S), in place.

    ``course_kernels.kv_cache_update`` can also turn q and k on the way; here that has been done, so q is None.
    """
    sequence = torch.arange(len(positions), device=positions.device)[:, None]
    k_cache[sequence, positions] = k
    v_cache[sequence, positions] = v


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> Tensor:
    """``softmax(q kᵀ * sm_scale) v``: q (B, QH, S, D), k and v (B, KH, K, D) -> (B, QH, S, D).

    Query head h reads key/value head ``h // (QH / KH)``. Causal: of K keys, the last query sees all, the one before it
    all but one, and so on. ``sm_scale`` defaults to ``D ** -0.5``.
    """
    batch, q_heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    grouped = q.reshape(batch, kv_heads, q_heads // kv_heads, queries, head_dim).float()
    scores = grouped @ k[:, :, None].float().transpose(-1, -2) * (head_dim**-0.5 if sm_scale is None else sm_scale)
    if causal:
        later = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(keys - queries + 1)
        scores = scores.masked_fill(later, float("-inf"))
    return (scores.softmax(-1) @ v[:, :, None].float()).to(q.dtype).view(q.shape)


def silu_and_mul(x: Tensor) -> Tensor:
    """``silu(gate) * up`` where x (T, 2 I) is [gate | up] -> (T, I)."""
    return act_and_mul(x, "silu")


def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest along the last dimension, largest first: (values, indices). Greedy decoding takes k = 1."""
    values, indices = torch.topk(x, k)
    return values, indices


def sample(values: Tensor, indices: Tensor, temperature: float, uniform: Tensor) -> Tensor:
    """Draw one of each row's candidates: values (B, k), largest first, and indices (B, k), uniform (B,) -> (B,) int64.

    The first one at which the sum of ``softmax(values / temperature)`` up to it is above ``uniform``, a number from
    [0, 1); the last one, should rounding leave none.
    """
    cumulative = (values.double() / temperature).softmax(-1).cumsum(-1)
    place = (cumulative <= uniform.double()[:, None]).sum(-1).clamp(max=values.shape[1] - 1)
    return indices.gather(1, place[:, None])[:, 0]


OPERATIONS: dict[str, Callable] = {
    function.__name__: function
    for function in (
        embedding,
        rms_norm,
        add_rms_norm,
        linear,
        split_qkv_rope,
        kv_cache_update,
        attention,
        silu_and_mul,
        topk,
    )
}
"""Each replaceable operation by name."""

PAGED_OPERATIONS: dict[str, Callable] = {
    function.__name__: function for function in (paged_kv_cache_update, paged_decode_attention)
}
"""What runs with a paged cache: the update instead of `split_qkv_rope` and `kv_cache_update`, the attention instead of
`attention` where a single token is read."""

SAMPLING_OPERATIONS: dict[str, Callable] = {sample.__name__: sample}
"""What runs in addition where the next token is drawn, behind `topk`."""

_ALL = {**OPERATIONS, **PAGED_OPERATIONS, **SAMPLING_OPERATIONS}


def signature(name: str) -> str:
    """How operation ``name`` is called, without the types: "rms_norm(x, weight, eps=1e-06)"."""
    plain = [p.replace(annotation=p.empty) for p in inspect.signature(_ALL[name]).parameters.values()]
    return name + str(inspect.Signature(plain))


def check_names(names: object) -> None:
    """Raise ValueError, listing the operations, for the first of ``names`` that is none of them."""
    for name in names:
        if name not in _ALL:
            raise ValueError(f"the model has no operation {name!r}; it has: {', '.join(_ALL)}")
