"""FlashInfer's kernels, where it is installed: what a call needs besides its tensors is planned once, as engines do."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

FLASHINFER = "FlashInfer"
WORKSPACE = 128 << 20  # bytes, as its documentation asks


class PagedDecode:
    """Attention of one new token to a paged cache, every page full; planned anew for another batch or context."""

    def __init__(self) -> None:
        self.planned: dict[torch.Size, Any] = {}

    def __call__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, table: Tensor, lens: Tensor) -> Tensor:
        """(B, QH, D). q: the same; caches: (pages, places, KH, D); table: (B, pages of a sequence)."""
        if table.shape not in self.planned:
            self.planned = {table.shape: _planned(q, k_cache, table)}
        return self.planned[table.shape].run(q, (k_cache, v_cache))


def _planned(q: Tensor, cache: Tensor, table: Tensor) -> Any:
    decode = importlib.import_module("flashinfer").BatchDecodeWithPagedKVCacheWrapper
    workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=q.device)
    wrapper = decode(workspace, use_tensor_cores=True)  # its choice where four heads share keys
    (batch, pages), (_, places, kv_heads, head_dim) = table.shape, cache.shape
    first = torch.arange(0, (batch + 1) * pages, pages, dtype=torch.int32, device=q.device)
    last = torch.full((batch,), places, dtype=torch.int32, device=q.device)
    dtypes = {"q_data_type": q.dtype, "kv_data_type": cache.dtype}
    wrapper.plan(first, table.flatten(), last, q.shape[1], kv_heads, head_dim, places, **dtypes)
    return wrapper


class PagedUpdate:
    """Queries and keys turned, keys and values written into pages: two launches, each token a sequence of its own."""

    def __init__(self) -> None:
        self.planned: dict[torch.Size, tuple[Tensor, ...]] = {}

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slots: Tensor,
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> tuple[Tensor, ...]:
        """(q, k, k_cache, v_cache), as of `course_kernels.paged_kv_cache_update`."""
        flashinfer = importlib.import_module("flashinfer")
        if slots.shape not in self.planned:
            self.planned = {slots.shape: places_of(slots, k_cache.shape[1], torch.cat((cos, sin), -1))}
        table, sequences, place, page, first, last = self.planned[slots.shape]
        turned = flashinfer.apply_rope_with_cos_sin_cache(positions, q.flatten(1), k.flatten(1), q.shape[-1], table)
        q, k = (x.view(len(x), -1, q.shape[-1]) for x in turned)
        flashinfer.append_paged_kv_cache(k, v, sequences, place, (k_cache, v_cache), page, first, last)
        return q, k, k_cache, v_cache


def places_of(slots: Tensor, places: int, table: Tensor) -> tuple[Tensor, ...]:
    """Angles; then of each token its sequence, place in the page and page, where its pages begin, and how full."""
    tokens = torch.arange(len(slots) + 1, dtype=torch.int32, device=slots.device)
    place = (slots % places).int()
    return table.float(), tokens[:-1], place, (slots // places).int(), tokens, place + 1
