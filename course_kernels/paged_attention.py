"""Attention of one new token a sequence to its keys and values in a paged cache.

    o[b, h] = sum_j softmax_j(sm_scale * q[b, h] . k[j]) v[j],    j < seq_lens[b],
    k[j] = k_cache[block_table[b, j // block_size], j % block_size, h // (QH / KH)],    v[j] likewise

| tensor           | shape                           | dtype                                               |
|------------------|---------------------------------|-----------------------------------------------------|
| q, o             | (B, QH, D)                      | float32, float16 or bfloat16; D up to 256           |
| k_cache, v_cache | (num_blocks, block_size, KH, D) | dtype of q, or fp8; QH / KH query heads share a head|
| block_table      | (B, blocks of a sequence)       | int32 or int64; what lies past seq_lens is unread   |
| seq_lens         | (B,)                            | int32 or int64                                      |

The caches may be packed too, as `paged_kv_cache_update` writes them.  Numbers of an fp8 cache are multiplied by its
scale; since one scale serves a whole head, the scores and the result are multiplied instead, once each.

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
from ._call import remembered, torch_op
from .attention import LOG2_E, check_heads, finite_scale
from .kv_cache import cache_strides, check_cache_dtype, check_layout, check_pages
from .quant import FP8, runs_kernel


@triton.jit
def _load_slots(
    cache_ptr, stride_block, stride_slot, stride_x, block, slot, mask,
    HEAD_DIM: tl.constexpr, X: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row for each (block, slot) of the cache, where groups of X elements lie together."""
    offs_d = tl.arange(0, BLOCK_D)[None, :]
    if X > 1:
        stride_slot = X  # a constant, so that the compiler sees that groups are aligned
    rows = block * stride_block + slot.to(tl.int64) * stride_slot
    offs = rows[:, None] + (offs_d // X).to(tl.int64) * stride_x + offs_d % X
    return tl.load(cache_ptr + offs, mask=mask[:, None] & (offs_d < HEAD_DIM), other=0.0)


@triton.jit
def _blocks(entries_ptr, offs_n, seq_len, BLOCK_SIZE: tl.constexpr, ALIKE: tl.constexpr):
    """Block of each token, its place there, and whether it is read.

    ALIKE neighbours, which lie in one block, are read together or not at all: that, and the promise, let the compiler
    load the values of a packed cache, where tokens are neighbours in memory, by whole vectors.
    """
    first = offs_n // ALIKE * ALIKE
    mask_n = first < seq_len
    block = tl.load(entries_ptr + first // BLOCK_SIZE, mask=mask_n, other=0).to(tl.int64)
    return tl.max_constancy(block, ALIKE), offs_n % BLOCK_SIZE, mask_n


@triton.jit
def _scale_of(scale_ptr, place):
    """A head's scale; 1 where there are none."""
    return 1.0 if scale_ptr is None else tl.load(scale_ptr + place).to(tl.float32)


@triton.jit
def _heads_of_program(kv_heads, GROUP: tl.constexpr, BLOCK_H: tl.constexpr):
    """Sequence and head of the cache (int64) of this program, and which of that head's GROUP query heads it takes."""
    parts_of_group = tl.cdiv(GROUP, BLOCK_H)
    part = tl.program_id(0) % parts_of_group
    shared = (tl.program_id(0) // parts_of_group).to(tl.int64)
    return shared // kv_heads, shared % kv_heads, part * BLOCK_H + tl.arange(0, BLOCK_H)


@triton.jit
def _fold(scores, row_max, row_sum):
    """Weights of a block's keys, what all before it are multiplied by, and the maximum and sum with the block."""
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))  # each block has a key, so this is no -inf
    p = tl.exp2(scores - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    return p, rescale, new_max, row_sum * rescale + tl.sum(p, axis=1)


@triton.jit
def paged_decode_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, block_table_ptr, seq_lens_ptr, k_scale_ptr, v_scale_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_kb, stride_ks, stride_kh, stride_kx, stride_vb, stride_vs, stride_vh, stride_vx,
    stride_tb, stride_k_scale, stride_v_scale, kv_heads, sm_scale, v_factor,
    BLOCK_SIZE: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, X: tl.constexpr, ALIKE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, one part of one sequence, for up to BLOCK_H query heads that share a head of the cache."""
    batch, kv_head, in_group = _heads_of_program(kv_heads, GROUP, BLOCK_H)
    mask_h, heads, offs_d = in_group < GROUP, kv_head * GROUP + in_group, tl.arange(0, BLOCK_D)[None, :]
    mask_q = mask_h[:, None] & (offs_d < HEAD_DIM)
    q = tl.load(q_ptr + batch * stride_qb + heads[:, None] * stride_qh + offs_d, mask=mask_q, other=0.0)

    k_cache_ptr += kv_head * stride_kh
    v_cache_ptr += kv_head * stride_vh
    sm_scale *= _scale_of(k_scale_ptr, kv_head * stride_k_scale)
    v_factor *= _scale_of(v_scale_ptr, kv_head * stride_v_scale)
    split, splits = tl.program_id(1), tl.num_programs(1)
    seq_len = tl.load(seq_lens_ptr + batch).to(tl.int32)
    share = tl.cdiv(tl.cdiv(seq_len, splits), BLOCK_N) * BLOCK_N
    acc = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    row_max, row_sum = tl.full((BLOCK_H,), -float("inf"), tl.float32), tl.zeros((BLOCK_H,), tl.float32)
    for start_n in range(split * share, min((split + 1) * share, seq_len), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        block, slot, mask_n = _blocks(block_table_ptr + batch * stride_tb, offs_n, seq_len, BLOCK_SIZE, ALIKE)
        k = _load_slots(k_cache_ptr, stride_kb, stride_ks, stride_kx, block, slot, mask_n, HEAD_DIM, X, BLOCK_D)
        v = _load_slots(v_cache_ptr, stride_vb, stride_vs, stride_vx, block, slot, mask_n, HEAD_DIM, 1, BLOCK_D)
        scores = tl.dot(q, k.to(q.dtype).T, input_precision="ieee") * (sm_scale * LOG2_E)
        scores = tl.where(offs_n[None, :] < seq_len, scores, -float("inf"))
        p, rescale, row_max, row_sum = _fold(scores, row_max, row_sum)
        if ALIKE > 1:
            v = tl.where(offs_n[:, None] < seq_len, v, 0.0)  # what lies there may be NaN
        acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * rescale[:, None], input_precision="ieee")

    safe_sum = tl.where(row_sum == 0.0, 1.0, row_sum)  # a part without a key: zeros, and -inf
    part = (batch * kv_heads * GROUP + heads) * splits + split
    o = (acc * (v_factor / safe_sum)[:, None]).to(o_ptr.dtype.element_ty)
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
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    v_factor: float = 1.0,
    layout: str = "flash",
) -> torch.Tensor:
    """o. Shapes as above, scales (1,) or (KH,); nothing empty. v_factor: a scale of the values that is a number."""
    (batch, heads, head_dim), packed = q.shape, layout == "packed"
    kv_heads, block_size = k_cache.shape[1 if packed else 2], k_cache.shape[3 if packed else 1]
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    grid, meta = launch.paged_decode(q, kv_heads, block_table.shape[1] * block_size)
    splits = grid[1]
    parts = o if splits == 1 else torch.empty((batch, heads, splits, head_dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch, heads, splits), dtype=torch.float32, device=q.device)
    strides = *q.stride()[:2], *cache_strides(k_cache, v_cache, layout), block_table.stride(0)
    each_head = (0 if scale is None or scale.numel() == 1 else scale.stride(0) for scale in (k_scale, v_scale))
    launch.run(
        paged_decode_kernel, grid,
        q, k_cache, v_cache, block_table, seq_lens, k_scale, v_scale, parts, lse, *strides, *each_head,
        kv_heads, sm_scale, v_factor, BLOCK_SIZE=block_size, GROUP=heads // kv_heads, HEAD_DIM=head_dim,
        X=k_cache.shape[4] if packed else 1, ALIKE=min(k_cache.shape[4], block_size & -block_size) if packed else 1,
        **meta,
    )  # fmt: skip
    if splits > 1:
        block_s = triton.next_power_of_2(splits)
        launch.run(
            merge_parts_kernel, (batch * heads,),
            parts, lse, o, splits, HEAD_DIM=head_dim, BLOCK_S=block_s, BLOCK_D=meta["BLOCK_D"], num_warps=4,
        )  # fmt: skip
    return o


@torch_op(lambda q, *_: q.new_empty(q.shape))
def paged_decode_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    v_factor: float,
    layout: str,
) -> torch.Tensor:
    """As `paged_decode_forward`. An operator as well: it reads seq_lens on the CPU, which nobody can trace."""
    options = {"sm_scale": sm_scale, "k_scale": k_scale, "layout": layout}
    v_scale = v_factor if v_scale is None else v_scale
    return reference.paged_decode_attention(q, k_cache, v_cache, block_table, seq_lens, v_scale=v_scale, **options)


@remembered
def paged_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    sm_scale: float | None = None,
    k_scale: float | torch.Tensor | None = None,
    v_scale: float | torch.Tensor | None = None,
    layout: str = "flash",
) -> torch.Tensor:
    """Attention of one token a sequence to the first seq_lens[b] tokens of its cache. No gradient flows to it.

    Args:
        q: (B, QH, D); float32, float16 or bfloat16; D up to 256, of unit stride.
        k_cache, v_cache: `flash` both (num_blocks, block_size, KH, D); `packed` (num_blocks, KH, D / x, block_size, x)
            and (num_blocks, KH, D, block_size), x elements of the cache being 16 bytes. The dtype of q, or an fp8 type,
            on a GPU that GPU's (`fp8_dtype`). Unit stride along the last dimension, except for `packed` values. QH is a
            multiple of KH: query head h takes head h // (QH / KH).
        block_table: (B, n), int32 or int64, unit stride: token j of sequence b is in block block_table[b, j //
            block_size]. Entries past seq_lens are not read and may be anything.
        seq_lens: (B,), int32 or int64, contiguous. A sequence of length 0 gives zeros.
        sm_scale: factor of the scores; 1 / sqrt(D) if None.
        k_scale, v_scale: of fp8 caches, whose numbers are multiplied by them: above 0; each a number, or a tensor of
            one element or of KH, one for each head of the cache, in one of the three dtypes.
        layout: "flash" or "packed", as in `paged_kv_cache_update`.

    Returns:
        Shape and dtype of q, contiguous.

    Raises:
        TypeError: another dtype; caches of neither q's dtype nor fp8; fp8 without scales, or scales without fp8.
        ValueError: shapes that do not fit, D over 256, QH not a multiple of KH, an unknown layout, sm_scale not finite,
            a scale not above 0, an fp8 type that the GPU lacks, tensors on different devices, strides other than the
            above, or a tensor that requires grad. On the CPU, and on a GPU
            with COURSE_KERNELS_CHECKS=1: a length outside the table, or a block outside the cache.
    """
    caches = {"k_cache": k_cache, "v_cache": v_cache}
    check_layout(layout)
    checks.floating(q=q)
    checks.are_tensors(**caches)
    if not {k_cache.dtype, v_cache.dtype} & {*FP8}:
        checks.floating(**caches)
    checks.integers(block_table=block_table, seq_lens=seq_lens)
    checks.same_device(q=q, **caches, block_table=block_table, seq_lens=seq_lens)
    checks.not_differentiable(q=q, **caches)
    checks.rank(3, "(batch, heads, head_dim)", q=q)
    checks.rank(2, "(batch, blocks)", block_table=block_table)
    kv_heads = _kv_heads(q, k_cache, v_cache, layout)
    check_cache_dtype({"q": q}, caches, {"k_scale": k_scale, "v_scale": v_scale}, kv_heads)
    check_heads(q.shape[1], kv_heads, q.shape[2])
    slots = check_pages(kv_heads, q.shape[2], k_cache, v_cache, layout)
    checks.shape((len(q), block_table.shape[1]), block_table=block_table)
    checks.shape((len(q),), seq_lens=seq_lens)
    checks.unit_stride(q=q, block_table=block_table)
    checks.contiguous(seq_lens=seq_lens)
    _check_values(len(k_cache), slots // max(len(k_cache), 1), block_table, seq_lens)
    sm_scale, v_factor = finite_scale(sm_scale, q.shape[-1]), 1.0
    if isinstance(k_scale, (int, float)):  # a number costs nothing: it is a factor like sm_scale
        sm_scale, k_scale = sm_scale * k_scale, None
    if isinstance(v_scale, (int, float)):
        v_factor, v_scale = float(v_scale), None
    empty = min(x.numel() for x in (q, k_cache, block_table)) == 0
    decode = paged_decode_reference if empty or not runs_kernel(q, k_cache.dtype) else paged_decode_forward
    return decode(q, k_cache, v_cache, block_table, seq_lens, sm_scale, k_scale, v_scale, v_factor, layout)


def _kv_heads(q, k_cache, v_cache, layout):
    """How many heads the caches have, whose shapes are not checked any further."""
    if layout == "flash":
        checks.rank(4, "(num_blocks, block_size, heads, head_dim)", k_cache=k_cache, v_cache=v_cache)
        checks.same_shape_and_dtype(k_cache=k_cache, v_cache=v_cache)
        if q.shape[2] != k_cache.shape[3]:
            checks.same_shape_and_dtype(q=q[:0, :0], k_cache=k_cache[:0, 0, :0])
        return k_cache.shape[2]
    checks.rank(5, "(num_blocks, heads, head_dim / x, block_size, x)", k_cache=k_cache)
    return k_cache.shape[1]


def _check_values(num_blocks, block_size, block_table, seq_lens):
    if not checks.values_are_checked(seq_lens):
        return
    entries = block_table.shape[1]
    checks.below(entries * block_size + 1, "what the block table has room for", seq_lens=seq_lens)
    used = torch.arange(entries, device=seq_lens.device) * block_size < seq_lens[:, None]
    checks.below(max(num_blocks, 1), "a block of the cache", block_table=torch.where(used, block_table, 0))
