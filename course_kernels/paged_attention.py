"""Attention of one new token a sequence to its keys and values in a paged cache.

    o[b, h] = sum_j softmax_j(sm_scale * q[b, h] . k[j]) v[j],    j < seq_lens[b],
    k[j] = k_cache[block_table[b, j // block_size], j % block_size, h // (QH / KH)],    v[j] likewise

| tensor           | shape                           | dtype                                            |
|------------------|---------------------------------|--------------------------------------------------|
| q, o             | (B, QH, D)                      | float32, float16 or bfloat16; D up to 256        |
| k_cache, v_cache | (num_blocks, block_size, KH, D) | dtype of q; QH / KH query heads share a head     |
| block_table      | (B, blocks of a sequence)       | int32 or int64; what lies past seq_lens is unread|
| seq_lens         | (B,)                            | int32 or int64                                   |

Every key and value is read once, for all the query heads that share it: the cache in use is all that moves.  A few
sequences would occupy a few compute units only, so each is split into parts, and their results are merged: part i has
o_i and l_i = log2 sum exp2(scores), and o = sum_i 2^(l_i - l) o_i with l = log2 sum_i 2^l_i.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023; the split is
Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023).
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._torch_op import torch_op
from .attention import LOG2_E, check_heads, finite_scale
from .backend import uses_triton


@triton.jit
def _load_slots(cache_ptr, stride_block, stride_slot, block, slot, mask, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """One row for each (block, slot) of the cache."""
    offs_d = tl.arange(0, BLOCK_D)[None, :]
    rows = block * stride_block + slot.to(tl.int64) * stride_slot
    return tl.load(cache_ptr + rows[:, None] + offs_d, mask=mask[:, None] & (offs_d < HEAD_DIM), other=0.0)


@triton.jit
def _heads_of_program(kv_heads, GROUP: tl.constexpr, BLOCK_H: tl.constexpr):
    """Sequence and head of the cache (int64) of this program, and which of that head's GROUP query heads it takes."""
    parts_of_group = tl.cdiv(GROUP, BLOCK_H)
    part = tl.program_id(0) % parts_of_group
    shared = (tl.program_id(0) // parts_of_group).to(tl.int64)
    return shared // kv_heads, shared % kv_heads, part * BLOCK_H + tl.arange(0, BLOCK_H)


@triton.jit
def paged_decode_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, block_table_ptr, seq_lens_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh, stride_tb,
    kv_heads, sm_scale, BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, one part of one sequence, for up to BLOCK_H query heads that share a head of the cache."""
    batch, kv_head, in_group = _heads_of_program(kv_heads, GROUP, BLOCK_H)
    mask_h = in_group < GROUP
    heads, offs_d = kv_head * GROUP + in_group, tl.arange(0, BLOCK_D)[None, :]
    mask_q = mask_h[:, None] & (offs_d < HEAD_DIM)
    q = tl.load(q_ptr + batch * stride_qb + heads[:, None] * stride_qh + offs_d, mask=mask_q, other=0.0)

    split, splits = tl.program_id(1), tl.num_programs(1)
    seq_len = tl.load(seq_lens_ptr + batch).to(tl.int32)
    share = tl.cdiv(tl.cdiv(seq_len, splits), BLOCK_N) * BLOCK_N
    acc = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    row_max, row_sum = tl.full((BLOCK_H,), -float("inf"), tl.float32), tl.zeros((BLOCK_H,), tl.float32)
    for start_n in range(split * share, min((split + 1) * share, seq_len), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        mask_n = offs_n < seq_len
        entries = block_table_ptr + batch * stride_tb + offs_n // BLOCK_SIZE
        block, slot = tl.load(entries, mask=mask_n, other=0).to(tl.int64), offs_n % BLOCK_SIZE
        k_ptr, v_ptr = k_cache_ptr + kv_head * stride_kh, v_cache_ptr + kv_head * stride_vh
        k = _load_slots(k_ptr, stride_kb, stride_ks, block, slot, mask_n, HEAD_DIM, BLOCK_D)
        v = _load_slots(v_ptr, stride_vb, stride_vs, block, slot, mask_n, HEAD_DIM, BLOCK_D)
        scores = tl.dot(q, k.T, input_precision="ieee") * (sm_scale * LOG2_E)
        scores = tl.where(mask_n[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))  # each block has a key, so this is no -inf
        p = tl.exp2(scores - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum, row_max = row_sum * rescale + tl.sum(p, axis=1), new_max
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")

    safe_sum = tl.where(row_sum == 0.0, 1.0, row_sum)  # a part without a key: zeros, and -inf
    part = (batch * kv_heads * GROUP + heads) * splits + split
    o = (acc / safe_sum[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + part[:, None] * HEAD_DIM + offs_d, o, mask=mask_q)
    tl.store(lse_ptr + part, row_max + tl.log2(safe_sum), mask=mask_h)


@triton.jit
def merge_parts_kernel(
    parts_ptr, lse_ptr, o_ptr, splits,
    HEAD_DIM: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, one head of one sequence: the mean of its parts, weighted by 2 ** lse."""
    row = tl.program_id(0).to(tl.int64)
    offs_s, offs_d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    lse = tl.load(lse_ptr + row * splits + offs_s, mask=offs_s < splits, other=-float("inf"))
    lse_max = tl.max(lse, axis=0)
    weight = tl.exp2(lse - tl.where(lse_max == -float("inf"), 0.0, lse_max))  # an empty sequence: all are 0
    total = tl.sum(weight, axis=0)
    weight /= tl.where(total == 0.0, 1.0, total)

    offs = (row * splits + offs_s[:, None]) * HEAD_DIM + offs_d[None, :]
    parts = tl.load(parts_ptr + offs, mask=(offs_s[:, None] < splits) & (offs_d[None, :] < HEAD_DIM), other=0.0)
    o = tl.sum(parts * weight[:, None], axis=0)
    tl.store(o_ptr + row * HEAD_DIM + offs_d, o.to(o_ptr.dtype.element_ty), mask=offs_d < HEAD_DIM)


@torch_op(lambda q, *_: q.new_empty(q.shape))
def paged_decode_forward(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
) -> torch.Tensor:
    """o. Shapes as above; nothing empty."""
    (batch, heads, head_dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    grid, meta = launch.paged_decode(q, kv_heads, block_table.shape[1] * block_size)
    splits = grid[1]
    parts = o if splits == 1 else torch.empty((batch, heads, splits, head_dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch, heads, splits), dtype=torch.float32, device=q.device)
    strides = *q.stride()[:2], *k_cache.stride()[:3], *v_cache.stride()[:3], block_table.stride(0)
    with torch.cuda.device_of(q):
        paged_decode_kernel[grid](
            q, k_cache, v_cache, block_table, seq_lens, parts, lse, *strides, kv_heads, sm_scale,
            BLOCK_SIZE=block_size, GROUP=heads // kv_heads, HEAD_DIM=head_dim, **meta,
        )  # fmt: skip
        if splits > 1:
            block_s = triton.next_power_of_2(splits)
            merge_parts_kernel[(batch * heads,)](
                parts, lse, o, splits, HEAD_DIM=head_dim, BLOCK_S=block_s, BLOCK_D=meta["BLOCK_D"], num_warps=4
            )
    return o


# An operator as well, since it reads seq_lens on the CPU, which nobody can trace.
_reference = torch_op(lambda q, *_, **__: q.new_empty(q.shape))(reference.paged_decode_attention)


def paged_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    sm_scale: float | None = None,
) -> torch.Tensor:
    """Attention of one token a sequence to the first seq_lens[b] tokens of its cache. No gradient flows to it.

    Args:
        q: (B, QH, D); float32, float16 or bfloat16; D up to 256, of unit stride.
        k_cache, v_cache: (num_blocks, block_size, KH, D), dtype of q, D of unit stride; QH a multiple of KH: query head
            h takes head h // (QH / KH).
        block_table: (B, n), int32 or int64, unit stride: token j of sequence b is in block block_table[b, j //
            block_size]. Entries past seq_lens are not read and may be anything.
        seq_lens: (B,), int32 or int64, contiguous. A sequence of length 0 gives zeros.
        sm_scale: factor of the scores; 1 / sqrt(D) if None.

    Returns:
        Shape and dtype of q, contiguous.

    Raises:
        TypeError: another dtype, or q and the caches of several.
        ValueError: shapes that do not fit, D over 256, QH not a multiple of KH, sm_scale not finite, tensors on
            different devices, strides other than the above, or a tensor that requires grad. On the CPU, and on a GPU
            with COURSE_KERNELS_CHECKS=1: a length outside the table, or a block outside the cache.
    """
    checks.floating(q=q, k_cache=k_cache, v_cache=v_cache)
    checks.integers(block_table=block_table, seq_lens=seq_lens)
    checks.same_device(q=q, block_table=block_table, seq_lens=seq_lens)
    checks.not_differentiable(q=q, k_cache=k_cache, v_cache=v_cache)
    checks.rank(3, "(batch, heads, head_dim)", q=q)
    checks.rank(4, "(num_blocks, block_size, heads, head_dim)", k_cache=k_cache, v_cache=v_cache)
    checks.rank(2, "(batch, blocks)", block_table=block_table)
    checks.same_shape_and_dtype(k_cache=k_cache, v_cache=v_cache)
    checks.same_shape_and_dtype(q=q[:0, :0], k_cache=k_cache[:0, 0, :0])  # head_dim and dtype
    check_heads(q.shape[1], k_cache.shape[2], q.shape[2])
    checks.shape((len(q), block_table.shape[1]), block_table=block_table)
    checks.shape((len(q),), seq_lens=seq_lens)
    checks.unit_stride(q=q, k_cache=k_cache, v_cache=v_cache, block_table=block_table)
    checks.contiguous(seq_lens=seq_lens)
    _check_values(k_cache, block_table, seq_lens)
    sm_scale = finite_scale(sm_scale, q.shape[-1])
    if min(x.numel() for x in (q, k_cache, block_table)) == 0 or not uses_triton(q):
        return _reference(q, k_cache, v_cache, block_table, seq_lens, sm_scale=sm_scale)
    return paged_decode_forward(q, k_cache, v_cache, block_table, seq_lens, sm_scale)


def _check_values(k_cache, block_table, seq_lens):
    if not checks.values_are_checked(seq_lens):
        return
    (num_blocks, block_size), entries = k_cache.shape[:2], block_table.shape[1]
    checks.below(entries * block_size + 1, "what the block table has room for", seq_lens=seq_lens)
    used = torch.arange(entries, device=seq_lens.device) * block_size < seq_lens[:, None]
    checks.below(max(num_blocks, 1), "a block of the cache", block_table=torch.where(used, block_table, 0))
