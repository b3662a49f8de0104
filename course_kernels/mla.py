"""What DeepSeek's multi-head latent attention (MLA) does before attention, in one launch: queries, and the cache.

    q_out[b, h] = [ w_uk[h] q_nope[b, h]  |  turn(q_pe[b, h]) ]
    kv_cache[slot_mapping[t]] = [ k_nope[t]  |  turn(k_pe[t]) ]

The cache holds one latent vector k_nope of a token, no keys: that of head h would be w_uk[h]^T k_nope.  Its score is
q_nope . (w_uk[h]^T k_nope) = (w_uk[h] q_nope) . k_nope, so the query is multiplied ("absorbs" the weight) instead of
all the keys.  Position is a part of its own, `pe`, because a turned key could not be taken apart like this.

| tensor       | shape                     | tensor     | shape               |
|--------------|---------------------------|------------|---------------------|
| q_nope, q_pe | (B, QH, P), (B, QH, Dr)   | w_uk       | (QH, L, P)          |
| k_nope, k_pe | (Bs, KH, L), (Bs, KH, Dr) | kv_cache   | (slots, KH, L + Dr) |
| q_out        | (B, QH, L + Dr)           | cos, sin   | (positions, Dr / 2) |

In DeepSeek-V3 QH = 128, 16 on each of 8 GPUs, KH = 1, P = 128, L = 512, Dr = 64.  Bs is at least B: rows from B on, of
a prompt say, are cached as they are.

These are three jobs: the first programs multiply, the next turn queries, the last fill the cache.  They need nothing of
each other; each is too small for the GPU when decoding, and together they are launched once instead of three times.

DeepSeek-V2's report, 2024; fused as in ROCm's aiter.
"""

from functools import partial

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .kv_cache import check_cache_dtype, scale_tensor
from .qkv import check_turn
from .quant import FP8, runs_kernel, scaled_for_cache
from .rope import head_tile, load_turned, store_pairs, table_rows_of, turn_tokens


@triton.jit
def _absorb(
    q_ptr, w_ptr, out_ptr, stride_qb, stride_qh, stride_wh, stride_wl, stride_wp, tile, tokens,
    HEADS: tl.constexpr, LATENT: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of one head's product, BLOCK_M tokens by BLOCK_N elements; tiles of the same weights follow each other."""
    tiles_m = tl.cdiv(tokens, BLOCK_M)
    tiles = tiles_m * tl.cdiv(LATENT, BLOCK_N)
    head, in_head = (tile // tiles).to(tl.int64), tile % tiles
    offs_m = (in_head % tiles_m).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = (in_head // tiles_m).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask_m, mask_n = offs_m < tokens, offs_n < LATENT

    q_ptr += offs_m * stride_qb + head * stride_qh
    w_ptr += head * stride_wh + offs_n * stride_wl
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, DEPTH, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < DEPTH
        q = tl.load(q_ptr + offs_k[None, :], mask=mask_m & mask_k[None, :], other=0.0)
        w = tl.load(w_ptr + offs_k[:, None].to(tl.int64) * stride_wp, mask=mask_k[:, None] & mask_n, other=0.0)
        acc = tl.dot(q, w, acc, input_precision="ieee")
    out_ptr += (offs_m * HEADS + head) * WIDTH + offs_n
    tl.store(out_ptr, acc.to(out_ptr.dtype.element_ty), mask=mask_m & mask_n)


@triton.jit
def _turn_queries(
    q_ptr, out_ptr, cos_ptr, sin_ptr, positions_ptr, stride_qb, stride_qh, stride_p, tile, tokens, table_rows,
    HEADS: tl.constexpr, NEOX: tl.constexpr, HALF: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A tile of the heads of Q, turned, behind their products."""
    blocks_h: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    offs_t, offs_h, mask_t, mask = head_tile(tile // blocks_h, tile % blocks_h, tokens, HEADS, BLOCK_T, BLOCK_H)
    q_ptr += offs_t * stride_qb + offs_h * stride_qh
    out_ptr += (offs_t * HEADS + offs_h) * WIDTH + WIDTH - 2 * HALF
    row = table_rows_of(positions_ptr, None, offs_t, mask_t, stride_p)
    turn_tokens(q_ptr, out_ptr, cos_ptr, sin_ptr, row, mask, table_rows, NEOX, HALF, BLOCK_P)


@triton.jit
def _cache_rows(
    nope_ptr, pe_ptr, cache_ptr, slots_ptr, cos_ptr, sin_ptr, positions_ptr, scale_ptr,
    stride_nt, stride_nh, stride_pt, stride_ph, stride_cs, stride_ch, stride_p, tile, turned, rows, table_rows,
    HEADS: tl.constexpr, SLOTS: tl.constexpr, NEOX: tl.constexpr, LATENT: tl.constexpr, HALF: tl.constexpr,
    FP8_MAX: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """BLOCK_R rows of one head of K into the slots of the cache that they have."""
    offs_t, offs_h, mask_t, mask = head_tile(tile // HEADS, tile % HEADS, rows, HEADS, BLOCK_R, 1)
    slot = tl.load(slots_ptr + offs_t, mask=mask_t, other=-1).to(tl.int64)
    mask = mask & (slot >= 0) & (slot < SLOTS)
    cache_ptr += slot * stride_cs + offs_h * stride_ch
    scale = 1.0 if scale_ptr is None else tl.load(scale_ptr).to(tl.float32)
    nope_ptr += offs_t * stride_nt + offs_h * stride_nh
    for start in range(0, LATENT, BLOCK_D):
        offs_d = start + tl.arange(0, BLOCK_D)[None, None, :]
        mask_d = mask & (offs_d < LATENT)
        x = scaled_for_cache(tl.load(nope_ptr + offs_d, mask=mask_d, other=0.0), scale, FP8_MAX)
        tl.store(cache_ptr + offs_d, x.to(cache_ptr.dtype.element_ty), mask=mask_d)
    pe_ptr += offs_t * stride_pt + offs_h * stride_ph
    row = table_rows_of(positions_ptr, None, offs_t, offs_t < turned, stride_p)
    a, b = load_turned(pe_ptr, cos_ptr, sin_ptr, row, offs_t < turned, mask, table_rows, NEOX, HALF, BLOCK_P)
    a, b = scaled_for_cache(a, scale, FP8_MAX), scaled_for_cache(b, scale, FP8_MAX)
    store_pairs(cache_ptr + LATENT, a, b, mask, NEOX, HALF, BLOCK_P)


@triton.jit
def mla_kernel(
    q_nope_ptr, w_ptr, q_pe_ptr, k_nope_ptr, k_pe_ptr, cache_ptr, slots_ptr, positions_ptr, cos_ptr, sin_ptr,
    scale_ptr, out_ptr, stride_qb, stride_qh, stride_wh, stride_wl, stride_wp, stride_qpb, stride_qph,
    stride_nt, stride_nh, stride_kpt, stride_kph, stride_cs, stride_ch, stride_p,
    tokens, rows, table_rows,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DEPTH: tl.constexpr, LATENT: tl.constexpr, HALF: tl.constexpr,
    SLOTS: tl.constexpr, NEOX: tl.constexpr, FP8_MAX: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, a tile of a product, or a tile of turned queries, or some rows of the cache."""
    pid = tl.program_id(0)
    tiles = Q_HEADS * tl.cdiv(tokens, BLOCK_M) * tl.cdiv(LATENT, BLOCK_N)
    turns = tl.cdiv(tokens, BLOCK_T) * tl.cdiv(Q_HEADS, BLOCK_H)
    if pid < tiles:  # the longest first: those that start last finish soon
        _absorb(
            q_nope_ptr, w_ptr, out_ptr, stride_qb, stride_qh, stride_wh, stride_wl, stride_wp, pid, tokens,
            Q_HEADS, LATENT, DEPTH, LATENT + 2 * HALF, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
    elif pid < tiles + turns:
        _turn_queries(
            q_pe_ptr, out_ptr, cos_ptr, sin_ptr, positions_ptr, stride_qpb, stride_qph, stride_p, pid - tiles, tokens,
            table_rows, Q_HEADS, NEOX, HALF, LATENT + 2 * HALF, BLOCK_T, BLOCK_H, BLOCK_P,
        )  # fmt: skip
    else:
        _cache_rows(
            k_nope_ptr, k_pe_ptr, cache_ptr, slots_ptr, cos_ptr, sin_ptr, positions_ptr, scale_ptr,
            stride_nt, stride_nh, stride_kpt, stride_kph, stride_cs, stride_ch, stride_p,
            pid - tiles - turns, tokens, rows, table_rows,
            KV_HEADS, SLOTS, NEOX, LATENT, HALF, FP8_MAX, BLOCK_R, BLOCK_P, BLOCK_D,
        )  # fmt: skip


def _room(q_nope, w_uk, q_pe, *_, **__):
    """For q_out."""
    return q_nope.new_empty((*q_nope.shape[:2], w_uk.shape[1] + q_pe.shape[2]))


@torch_op(_room, mutates=("kv_cache",))
def mla_forward(
    q_nope: torch.Tensor,
    w_uk: torch.Tensor,
    q_pe: torch.Tensor,
    k_nope: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    style: str,
    k_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """q_out; and the cache, written. Shapes as above."""
    q_out = _room(q_nope, w_uk, q_pe)
    (tokens, q_heads, depth), (rows, kv_heads, latent), rope_dim = q_nope.shape, k_nope.shape, q_pe.shape[2]
    fp8_max = torch.finfo(kv_cache.dtype).max if kv_cache.dtype in FP8 else None
    grid, meta = launch.latents(q_nope, latent, rope_dim, rows, kv_heads)
    launch.run(
        mla_kernel, grid, q_nope, w_uk, q_pe, k_nope, k_pe, kv_cache, slot_mapping, positions, cos, sin, k_scale, q_out,
        *q_nope.stride()[:2], *w_uk.stride(), *q_pe.stride()[:2],
        *k_nope.stride()[:2], *k_pe.stride()[:2], *kv_cache.stride()[:2], positions.stride(0),
        tokens, rows, len(cos),
        Q_HEADS=q_heads, KV_HEADS=kv_heads, DEPTH=depth, LATENT=latent, HALF=rope_dim // 2,
        SLOTS=len(kv_cache), NEOX=style == "neox", FP8_MAX=fp8_max,
        BLOCK_P=triton.next_power_of_2(rope_dim // 2), **meta,
    )  # fmt: skip
    return q_out


@torch_op(_room, mutates=("kv_cache",))
def mla_reference(
    q_nope: torch.Tensor,
    w_uk: torch.Tensor,
    q_pe: torch.Tensor,
    k_nope: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    style: str,
    k_scale: torch.Tensor | None,
) -> torch.Tensor:
    """As `mla_forward`. An operator as well, since nobody can trace which slots it leaves out."""
    tensors = q_nope, w_uk, q_pe, k_nope, k_pe, kv_cache, slot_mapping, positions, cos, sin
    return reference.mla_bmm_rope_cache(*tensors, k_scale=k_scale, style=style)


@partial(remembered, writes=("kv_cache",))
def mla_bmm_rope_cache(
    q_nope: torch.Tensor,
    w_uk: torch.Tensor,
    q_pe: torch.Tensor,
    k_nope: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    k_scale: float | torch.Tensor | None = None,
    style: str = "neox",
) -> torch.Tensor:
    """Queries for attention to latent vectors, and these with their turned part into the cache, in place. No gradient.

    Args:
        q_nope: (B, QH, P); float32, float16 or bfloat16; unit stride along a head, any others.
        w_uk: (QH, L, P), the dtype of q_nope; any strides: a transposed view of the projection's weight will do.
        q_pe: (B, QH, Dr), Dr even, the dtype of q_nope; unit stride along a head.
        k_nope, k_pe: (Bs, KH, L), (Bs, KH, Dr), Bs at least B, the dtype of q_nope; unit stride along a head. Rows from
            B on are cached as they are.
        kv_cache: (slots, KH, L + Dr), the dtype of q_nope, or an fp8 type, on a GPU that GPU's (`fp8_dtype`); unit
            stride along a head, any others. Written.
        slot_mapping: (Bs,), int32 or int64, contiguous: the slot of each row; below 0, none. Where slots repeat, one of
            their rows is written.
        positions: (B,), int32 or int64: each token's row of cos and sin.
        cos, sin: (positions, Dr / 2), as from `rope_tables`; any of the three dtypes, contiguous.
        k_scale: of an fp8 cache, which holds round(clamp(k / k_scale)), latent vector and turned part alike: above 0; a
            number, or a tensor of one element in one of the three dtypes, which saves a launch.
        style: "neox" pairs i with i + Dr / 2, "gptj" 2i with 2i + 1. Turned pairs stay where they are; the code that
            DeepSeek published gathers the first elements of all pairs before the second ones, which permutes queries
            and keys alike and leaves their products as they are.

    Returns:
        (B, QH, L + Dr) in the dtype of q_nope, contiguous; sums of products are kept in float32 and rounded once.

    Raises:
        TypeError: another dtype, or several; an fp8 cache without a scale, or a scale without one.
        ValueError: shapes, devices or strides that do not fit, an unknown style, a cache whose elements share memory
            with each other or with another argument, a scale not above 0, an fp8 type that the GPU lacks, or a tensor
            that requires grad; on the CPU, and on a GPU with COURSE_KERNELS_CHECKS=1, a slot past the cache, a negative
            position or one past the tables (elsewhere nothing is written for that slot, and what would be turned
            becomes NaN).
    """
    tensors = {"q_nope": q_nope, "w_uk": w_uk, "q_pe": q_pe, "k_nope": k_nope, "k_pe": k_pe}
    checks.floating(**tensors, cos=cos, sin=sin)
    checks.same_dtype(**tensors)
    checks.are_tensors(kv_cache=kv_cache)
    if kv_cache.dtype in FP8 and k_scale is None:
        message = "kv_cache must be float32, float16 or bfloat16, or of fp8 with a k_scale"
        raise TypeError(f"{message}, got {kv_cache.dtype} without one; 1.0 changes nothing")
    check_cache_dtype({"q_nope": q_nope}, {"kv_cache": kv_cache}, {"k_scale": k_scale})
    tensors["kv_cache"] = kv_cache
    checks.not_differentiable(**tensors)
    _check_shapes(**tensors)
    checks.unit_stride(q_nope=q_nope, q_pe=q_pe, k_nope=k_nope, k_pe=k_pe, kv_cache=kv_cache)
    checks.no_overlap(kv_cache=kv_cache)
    checks.integers(slot_mapping=slot_mapping)
    checks.same_device(q_nope=q_nope, slot_mapping=slot_mapping)
    checks.shape((len(k_nope),), slot_mapping=slot_mapping)
    checks.contiguous(slot_mapping=slot_mapping)
    checks.below(len(kv_cache), "the slots of the cache", least=None, slot_mapping=slot_mapping)
    check_turn(q_pe.shape[2], style, (len(q_nope),), positions, cos=cos, sin=sin)
    read = {name: x for name, x in tensors.items() if name != "kv_cache"}
    checks.apart({"kv_cache": kv_cache}, {**read, "slot_mapping": slot_mapping, "positions": positions})
    empty = min(x.numel() for x in (w_uk, k_nope, k_pe, kv_cache)) == 0
    scale = None if k_scale is None else scale_tensor(k_scale, q_nope.device)
    update = mla_reference if empty or not runs_kernel(q_nope, kv_cache.dtype) else mla_forward
    return update(*tensors.values(), slot_mapping, positions, cos, sin, style, scale)


def _check_shapes(q_nope, w_uk, q_pe, k_nope, k_pe, kv_cache):
    """Tokens, heads and widths agree."""
    checks.rank(3, "(B, QH, P)", q_nope=q_nope)
    checks.rank(3, "(QH, L, P)", w_uk=w_uk)
    checks.rank(3, "(B, QH, Dr)", q_pe=q_pe)
    checks.rank(3, "(Bs, KH, L)", k_nope=k_nope)
    (tokens, q_heads, depth), latent, rope_dim = q_nope.shape, w_uk.shape[1], q_pe.shape[2]
    rows, kv_heads, _ = k_nope.shape
    checks.shape((q_heads, latent, depth), w_uk=w_uk)
    checks.shape((tokens, q_heads, rope_dim), q_pe=q_pe)
    checks.shape((rows, kv_heads, latent), k_nope=k_nope)
    checks.shape((rows, kv_heads, rope_dim), k_pe=k_pe)
    checks.rank(3, "(slots, KH, L + Dr)", kv_cache=kv_cache)
    checks.shape((len(kv_cache), kv_heads, latent + rope_dim), kv_cache=kv_cache)
    if rows < tokens:
        raise ValueError(f"k_nope has {rows} rows but q_nope {tokens}; the first rows belong to the queries' tokens")
