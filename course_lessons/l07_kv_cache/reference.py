"""The formulas that only the exercises of lesson 07 use, in plain PyTorch; the rest: course_kernels/reference.py."""

import math

import torch
from torch import Tensor

from course_kernels.reference import paged_kv_cache_update


def append_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, positions: Tensor) -> None:
    """k[t] and v[t] become row positions[t] of the caches"""
    k_cache[positions], v_cache[positions] = k, v


def write_pages(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """k[t] and v[t] go to slot slot_mapping[t] of paged caches, nowhere if that is negative"""
    paged_kv_cache_update(None, k, v, k_cache, v_cache, slot_mapping)


def rope_and_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
) -> Tensor:
    """q, turned; k, turned, and v into their slots of paged caches"""
    return paged_kv_cache_update(q, k, v, k_cache, v_cache, slot_mapping, positions, cos, sin)[0]


def merge_parts(parts: Tensor, lse: Tensor) -> Tensor:
    """The mean of parts (rows, S, D), weighted by 2^lse (rows, S); zeros where all are 2^-inf"""
    weights = torch.softmax(lse.double() * math.log(2), dim=-1).nan_to_num(0.0)
    return (weights[..., None] * parts.double()).sum(dim=1).to(parts.dtype)


def pack_keys(k: Tensor, k_cache: Tensor, slot_mapping: Tensor, scale: float) -> None:
    """round(clamp(k[t] / scale)) into slot slot_mapping[t] of a packed cache of fp8 (pages, KH, D / x, page_size, x)"""
    largest, keep = torch.finfo(k_cache.dtype).max, slot_mapping >= 0
    page, place = slot_mapping[keep] // k_cache.shape[3], slot_mapping[keep] % k_cache.shape[3]
    rows = (k[keep].double() / scale).clamp(-largest, largest).float().to(k_cache.dtype).view(torch.uint8)
    k_cache.view(torch.uint8)[page, :, :, place] = rows.unflatten(-1, (-1, k_cache.shape[-1]))  # fp8 has no indexing
