"""Flash attention: softmax(q k^T * sm_scale) v for every head, without the matrix of scores ever leaving the chip.

    s[i, j] = sm_scale * sum_d q[i, d] * k[j, d],   lse[i] = log sum_j exp(s[i, j]),   p = exp(s - lse),   o = p v

over the keys that row i sees: all of them, or with `causal` those up to j = i + Sk - Sq, so that the last query sees
the last key.  Keys come in blocks; with each, a row's maximum may rise, and what was summed so far is rescaled (online
softmax).  exp(x) is exp2(x log2 e), and log2 e is folded into sm_scale, so that one instruction remains.

Backward, from p, recomputed block by block, and delta[i] = sum_d o[i, d] * do[i, d]:

    ds = p * (do v^T - delta) * sm_scale,    dq = ds k,    dk = ds^T q,    dv = p^T do

| tensor | shape          | dtype                                                                              |
|--------|----------------|------------------------------------------------------------------------------------|
| q, o   | (B, H, Sq, D)  | float32, float16 or bfloat16, the same for all; D up to 256                        |
| k, v   | (B, KH, Sk, D) | grouped-query attention: H / KH query heads in a row share one head of k and v     |
| lse    | (B, H, Sq)     | float32, natural logarithm                                                         |

Written out in PyTorch's operations the scores are written and read again several times: B * H * Sq * Sk elements each.
Fused, q, k, v and o are all that moves, k and v once for each BLOCK_M rows of q.  Scores, sums and o stay in float32; p
is rounded to the dtype of v, as operand of the matrix unit.

Where registers would not hold a tile of whole heads, programs share it: each computes a slice of BLOCK_D columns of the
result (the last line of each formula), from scores that each sums over the whole head, slice by slice.

Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023.
"""

import math

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._first_order import once_differentiable
from ._remembered import remembered
from ._tile_order import grouped_tile
from ._torch_op import apply, torch_op
from .backend import uses_triton

MAX_HEAD_DIM = 256
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _load_tile(ptr, stride, offs, rows, start_d, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr):
    """BLOCK_D columns, from start_d, of rows `offs` of a matrix (rows, HEAD_DIM), padded with zeros.

    Not MASKED: all these rows exist.
    """
    offs_d = start_d + tl.arange(0, BLOCK_D)[None, :]
    ptrs = ptr + offs[:, None].to(tl.int64) * stride + offs_d
    if MASKED:
        exists = (offs >= 0) & (offs < rows)
        return tl.load(ptrs, mask=exists[:, None] & (offs_d < HEAD_DIM), other=0.0)
    if HEAD_DIM % BLOCK_D > 0:
        return tl.load(ptrs, mask=offs_d < HEAD_DIM, other=0.0)
    return tl.load(ptrs)


@triton.jit
def _store_tile(ptr, tile, offs, rows, start_d, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """The counterpart of `_load_tile`, in a contiguous matrix."""
    offs_d = start_d + tl.arange(0, BLOCK_D)[None, :]
    ptrs = ptr + offs[:, None].to(tl.int64) * HEAD_DIM + offs_d
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=(offs[:, None] < rows) & (offs_d < HEAD_DIM))


@triton.jit
def _products(a, a_rows, b_rows, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr):
    """a b^T, for rows (pointer, stride, offsets, number of rows) of two matrices. a: the first ones, if BLOCK_D wide.

    Of wider heads registers hold one slice at a time, loaded when its turn comes.
    """
    if HEAD_DIM <= BLOCK_D:
        return tl.dot(a, _load_tile(*b_rows, 0, HEAD_DIM, BLOCK_D, MASKED).T, input_precision="ieee")
    products = tl.zeros((a_rows[2].shape[0], b_rows[2].shape[0]), tl.float32)
    slices = tl.num_programs(1)  # a number that the compiler knows would make it unroll, and load all in advance
    for start_d in range(0, slices * BLOCK_D, BLOCK_D):
        a = _load_tile(*a_rows, start_d, HEAD_DIM, BLOCK_D, True)
        b = _load_tile(*b_rows, start_d, HEAD_DIM, BLOCK_D, MASKED)
        products = tl.dot(a, b.T, products, input_precision="ieee")
    return products


@triton.jit
def _part_of_program(rows, heads, HEADS_AT_A_TIME: tl.constexpr, BLOCK: tl.constexpr):
    """Sequence of the batch, head (int64), head counted through the batch (int64), tile of BLOCK rows of this program.

    Divided while they are int32: a division of int64 is a function of some hundred instructions.
    """
    tiles = tl.cdiv(rows, BLOCK)
    of_batch, tile = grouped_tile(tl.program_id(0), tl.num_programs(0) // tiles, tiles, HEADS_AT_A_TIME)
    return (of_batch // heads).to(tl.int64), (of_batch % heads).to(tl.int64), of_batch.to(tl.int64), tile


@triton.jit
def _slice_of_program(HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """The first column of this program's slice of the result."""
    return 0 if HEAD_DIM <= BLOCK_D else tl.program_id(1) * BLOCK_D


@triton.jit
def _keys_seen(offs_m, seq_q, seq_k, CAUSAL: tl.constexpr):
    """How many keys, from the first, each row sees; none or fewer where there are more queries than keys."""
    return tl.minimum(offs_m + 1 + seq_k - seq_q, seq_k) if CAUSAL else offs_m * 0 + seq_k


@triton.jit
def _keys_of_tile(
    start_m, seq_q, seq_k, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Where the blocks of keys end that every row of a tile sees, and where the keys end that some row sees."""
    seen_by_first = max(_keys_seen(start_m, seq_q, seq_k, CAUSAL), 0)
    return seen_by_first // BLOCK_N * BLOCK_N, _keys_seen(start_m + BLOCK_M - 1, seq_q, seq_k, CAUSAL)


@triton.jit
def _load_lse(lse_ptr, offs_m, seq_q):
    """lse in units of log 2; +inf past the last row, so that exp2(s - lse) is 0."""
    return tl.load(lse_ptr + offs_m, mask=(offs_m >= 0) & (offs_m < seq_q), other=float("inf")) * LOG2_E


@triton.jit
def _attend(
    acc, row_max, row_sum, q, q_rows, k_ptr, v_ptr, stride_kn, stride_vn, seq_k, scale, slice_d, start, end,
    CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take keys start .. end into the running output, maximum (in units of log 2) and sum of each row."""
    for start_n in range(start, end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        scores = _products(q, q_rows, (k_ptr, stride_kn, offs_n, seq_k), HEAD_DIM, BLOCK_D, MASKED)
        if MASKED:
            keys_seen = _keys_seen(q_rows[2], q_rows[3], seq_k, CAUSAL)
            scores = tl.where(offs_n[None, :] < keys_seen[:, None], scores * scale, -float("inf"))
            new_max = tl.maximum(row_max, tl.max(scores, axis=1))
            centre = tl.where(new_max == -float("inf"), 0.0, new_max)  # a row that saw nothing yet: -inf - -inf is NaN
            p = tl.exp2(scores - centre[:, None])
        else:
            new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale)
            centre = new_max
            p = tl.exp2(scores * scale - centre[:, None])  # one multiply-add and one exponential an element
        rescale = tl.exp2(row_max - centre)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        row_max = new_max
        v = _load_tile(v_ptr, stride_vn, offs_n, seq_k, slice_d, HEAD_DIM, BLOCK_D, MASKED)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
    return acc, row_max, row_sum


@triton.jit
def flash_attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    kv_heads, seq_q, seq_k, sm_scale,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, HEADS_AT_A_TIME: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_M queries of one head: whole blocks of keys unmasked, then the rest masked."""
    batch, q_head, head, tile = _part_of_program(seq_q, kv_heads * GROUP, HEADS_AT_A_TIME, BLOCK_M)
    start_m = (tl.cdiv(seq_q, BLOCK_M) - 1 - tile) * BLOCK_M  # causal: the last have the most keys, so they begin first
    slice_d = _slice_of_program(HEAD_DIM, BLOCK_D)
    q_ptr += batch * stride_qb + q_head * stride_qh
    k_ptr += batch * stride_kb + q_head // GROUP * stride_kh
    v_ptr += batch * stride_vb + q_head // GROUP * stride_vh

    offs_m = start_m + tl.arange(0, BLOCK_M)
    whole, end = _keys_of_tile(start_m, seq_q, seq_k, CAUSAL, BLOCK_M, BLOCK_N)

    q_rows = q_ptr, stride_qm, offs_m, seq_q
    q = _load_tile(*q_rows, 0, HEAD_DIM, BLOCK_D, True)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    running = tl.zeros((BLOCK_M, BLOCK_D), tl.float32), row_max, tl.zeros((BLOCK_M,), tl.float32)
    inputs = q, q_rows, k_ptr, v_ptr, stride_kn, stride_vn, seq_k, sm_scale * LOG2_E, slice_d
    running = _attend(*running, *inputs, 0, whole, CAUSAL, HEAD_DIM, BLOCK_N, BLOCK_D, False)
    acc, row_max, row_sum = _attend(*running, *inputs, whole, end, CAUSAL, HEAD_DIM, BLOCK_N, BLOCK_D, True)

    safe_sum = tl.where(row_sum == 0.0, 1.0, row_sum)  # a row without a key: output 0, lse -inf
    _store_tile(o_ptr + head * seq_q * HEAD_DIM, acc / safe_sum[:, None], offs_m, seq_q, slice_d, HEAD_DIM, BLOCK_D)
    lse = (row_max + tl.log2(safe_sum)) * LN_2
    tl.store(lse_ptr + head * seq_q + offs_m, lse, mask=(offs_m < seq_q) & (slice_d == 0))


@triton.jit
def _key_gradients(
    dq, q, q_rows, do, do_rows, k_ptr, v_ptr, stride_kn, stride_vn, keys_seen, seq_k, lse, delta, scale, slice_d,
    start, end,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What keys start .. end add to dq, less its factor sm_scale."""
    for start_n in range(start, end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k_rows, v_rows = (k_ptr, stride_kn, offs_n, seq_k), (v_ptr, stride_vn, offs_n, seq_k)
        scores = _products(q, q_rows, k_rows, HEAD_DIM, BLOCK_D, MASKED) * scale - lse[:, None]
        if MASKED:
            scores = tl.where(offs_n[None, :] < keys_seen[:, None], scores, -float("inf"))
        p = tl.exp2(scores)
        ds = p * (_products(do, do_rows, v_rows, HEAD_DIM, BLOCK_D, MASKED) - delta[:, None])
        k = _load_tile(*k_rows, slice_d, HEAD_DIM, BLOCK_D, MASKED)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit
def _delta(o_rows, do_rows, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """sum_d o[i, d] * do[i, d] of each row."""
    delta = tl.zeros((o_rows[2].shape[0],), tl.float32)
    for start_d in range(0, HEAD_DIM, BLOCK_D):
        o = _load_tile(*o_rows, start_d, HEAD_DIM, BLOCK_D, True).to(tl.float32)
        delta += tl.sum(o * _load_tile(*do_rows, start_d, HEAD_DIM, BLOCK_D, True).to(tl.float32), axis=1)
    return delta


@triton.jit
def flash_attention_dq_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    kv_heads, seq_q, seq_k, sm_scale,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, HEADS_AT_A_TIME: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_M queries of one head: their dq, and their delta for the kernel that follows."""
    batch, q_head, head, tile = _part_of_program(seq_q, kv_heads * GROUP, HEADS_AT_A_TIME, BLOCK_M)
    start_m = (tl.cdiv(seq_q, BLOCK_M) - 1 - tile) * BLOCK_M
    slice_d = _slice_of_program(HEAD_DIM, BLOCK_D)
    q_ptr += batch * stride_qb + q_head * stride_qh
    k_ptr += batch * stride_kb + q_head // GROUP * stride_kh
    v_ptr += batch * stride_vb + q_head // GROUP * stride_vh
    of_head = head * seq_q * HEAD_DIM

    offs_m = start_m + tl.arange(0, BLOCK_M)
    keys_seen = _keys_seen(offs_m, seq_q, seq_k, CAUSAL)
    whole, end = _keys_of_tile(start_m, seq_q, seq_k, CAUSAL, BLOCK_M, BLOCK_N)

    q_rows = q_ptr, stride_qm, offs_m, seq_q
    o_rows, do_rows = (o_ptr + of_head, HEAD_DIM, offs_m, seq_q), (do_ptr + of_head, HEAD_DIM, offs_m, seq_q)
    delta = _delta(o_rows, do_rows, HEAD_DIM, BLOCK_D)
    tl.store(delta_ptr + head * seq_q + offs_m, delta, mask=(offs_m < seq_q) & (slice_d == 0))
    inputs = (
        _load_tile(*q_rows, 0, HEAD_DIM, BLOCK_D, True), q_rows, _load_tile(*do_rows, 0, HEAD_DIM, BLOCK_D, True),
        do_rows, k_ptr, v_ptr, stride_kn, stride_vn, keys_seen, seq_k, _load_lse(lse_ptr + head * seq_q, offs_m, seq_q),
        delta, sm_scale * LOG2_E, slice_d,
    )  # fmt: skip
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    dq = _key_gradients(dq, *inputs, 0, whole, HEAD_DIM, BLOCK_N, BLOCK_D, False)
    dq = _key_gradients(dq, *inputs, whole, end, HEAD_DIM, BLOCK_N, BLOCK_D, True)
    _store_tile(dq_ptr + of_head, dq * sm_scale, offs_m, seq_q, slice_d, HEAD_DIM, BLOCK_D)


@triton.jit
def _query_gradients(
    dk, dv, k, k_rows, v, v_rows, q_ptr, stride_qm, do_ptr, lse_ptr, delta_ptr, seq_q, scale, slice_d, start, end,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What queries start .. end of one head add to dk, less its factor sm_scale, and to dv."""
    offs_n, seq_k = k_rows[2], k_rows[3]
    for start_m in range(start, end, BLOCK_M):
        offs_m = start_m + tl.arange(0, BLOCK_M)
        q_rows, do_rows = (q_ptr, stride_qm, offs_m, seq_q), (do_ptr, HEAD_DIM, offs_m, seq_q)
        lse = _load_lse(lse_ptr, offs_m, seq_q)
        delta = tl.load(delta_ptr + offs_m, mask=(offs_m >= 0) & (offs_m < seq_q), other=0.0)
        scores = _products(k, k_rows, q_rows, HEAD_DIM, BLOCK_D, MASKED) * scale - lse[None, :]
        if MASKED and CAUSAL:
            keys_seen = _keys_seen(offs_m, seq_q, seq_k, CAUSAL)
            scores = tl.where(offs_n[:, None] < keys_seen[None, :], scores, -float("inf"))
        p = tl.exp2(scores)
        do = _load_tile(*do_rows, slice_d, HEAD_DIM, BLOCK_D, MASKED)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        ds = p * (_products(v, v_rows, do_rows, HEAD_DIM, BLOCK_D, MASKED) - delta[None, :])
        q = _load_tile(*q_rows, slice_d, HEAD_DIM, BLOCK_D, MASKED)
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit
def flash_attention_dkv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    kv_heads, seq_q, seq_k, sm_scale,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, HEADS_AT_A_TIME: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_N keys of one head: dk and dv, summed over the query heads that share it, in a fixed order."""
    batch, kv_head, head, tile = _part_of_program(seq_k, kv_heads, HEADS_AT_A_TIME, BLOCK_N)
    slice_d = _slice_of_program(HEAD_DIM, BLOCK_D)
    offs_n = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh, stride_kn, offs_n, seq_k
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh, stride_vn, offs_n, seq_k
    k = _load_tile(*k_rows, 0, HEAD_DIM, BLOCK_D, True)
    v = _load_tile(*v_rows, 0, HEAD_DIM, BLOCK_D, True)

    first = max(tile * BLOCK_N + seq_q - seq_k, 0) if CAUSAL else 0  # the first query that sees one of these keys
    blind = BLOCK_N - 1 if CAUSAL else 0  # so many more do not see all of them
    start = seq_q - tl.cdiv(seq_q - first, BLOCK_M) * BLOCK_M  # the last block is whole; the first may begin below 0
    whole = min(start + tl.cdiv(first + blind - start, BLOCK_M) * BLOCK_M, seq_q)
    dk, dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32), tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for i in range(GROUP):
        rows = (head * GROUP + i) * seq_q
        inputs = (
            k, k_rows, v, v_rows, q_ptr + batch * stride_qb + (kv_head * GROUP + i) * stride_qh, stride_qm,
            do_ptr + rows * HEAD_DIM, lse_ptr + rows, delta_ptr + rows, seq_q, sm_scale * LOG2_E, slice_d,
        )  # fmt: skip
        dk, dv = _query_gradients(dk, dv, *inputs, start, whole, HEAD_DIM, CAUSAL, BLOCK_M, BLOCK_D, True)
        dk, dv = _query_gradients(dk, dv, *inputs, whole, seq_q, HEAD_DIM, CAUSAL, BLOCK_M, BLOCK_D, False)
    of_head = head * seq_k * HEAD_DIM
    _store_tile(dk_ptr + of_head, dk * sm_scale, offs_n, seq_k, slice_d, HEAD_DIM, BLOCK_D)
    _store_tile(dv_ptr + of_head, dv, offs_n, seq_k, slice_d, HEAD_DIM, BLOCK_D)


@torch_op(lambda q, *_: (q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)))
def flash_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, sm_scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse. q: (B, H, Sq, D); k, v: (B, KH, Sk, D); none empty, but for Sk = 0; sm_scale not negative."""
    batch, heads, seq_q, head_dim = q.shape
    kv_heads, seq_k = k.shape[1:3]
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3]
    grid, meta = launch.attention_tiles(q)
    launch.run(
        flash_attention_kernel, grid, q, k, v, o, lse, *strides, kv_heads, seq_q, seq_k, sm_scale,
        GROUP=heads // kv_heads, HEAD_DIM=head_dim, CAUSAL=causal, **meta,
    )  # fmt: skip
    return o, lse


@torch_op(lambda do, q, k, v, *_: tuple(x.new_empty(x.shape) for x in (q, k, v)))
def flash_attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    sm_scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk and dv. do: shape of q, contiguous; o and lse: of the forward pass."""
    (_, heads, seq_q, head_dim), (_, kv_heads, seq_k, _) = q.shape, k.shape
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    delta = torch.empty_like(lse)
    numbers = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], kv_heads, seq_q, seq_k, sm_scale
    constants = {"GROUP": heads // kv_heads, "HEAD_DIM": head_dim, "CAUSAL": causal}
    grid, meta = launch.attention_backward_tiles(q)
    launch.run(flash_attention_dq_kernel, grid, q, k, v, o, do, lse, delta, dq, *numbers, **constants, **meta)
    grid, meta = launch.attention_backward_tiles(k)
    meta["BLOCK_M"], meta["BLOCK_N"] = meta["BLOCK_N"], meta["BLOCK_M"]  # here it is the keys that stay
    launch.run(flash_attention_dkv_kernel, grid, q, k, v, do, lse, delta, dk, dv, *numbers, **constants, **meta)
    return dq, dk, dv


class FlashAttention(torch.autograd.Function):
    """o and lse, of which only o is differentiable."""

    @staticmethod
    def forward(ctx, q, k, v, causal, sm_scale):
        o, lse = flash_attention_forward(q, k, v, causal, sm_scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal, ctx.sm_scale = causal, sm_scale
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, do, _dlse):
        dq, dk, dv = flash_attention_backward(do.contiguous(), *ctx.saved_tensors, ctx.causal, ctx.sm_scale)
        return dq, dk, dv, None, None


@remembered
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T * sm_scale) v for every head; differentiable in q, k and v.

    Args:
        q: (B, H, Sq, D); float32, float16 or bfloat16; D up to 256, of unit stride; any other strides.
        k, v: (B, KH, Sk, D), dtype of q, their own strides; H a multiple of KH: query head h takes head h // (H / KH).
        causal: query i sees the keys up to i + Sk - Sq only, so that the last query sees the last key (bottom-right;
            `scaled_dot_product_attention(is_causal=True)` lets query i see the keys up to i: top-left).
        sm_scale: factor of the scores; 1 / sqrt(D) if None.
        return_lse: also return the logarithm of the sum of exponentials of each query's scores.

    Returns:
        o, or (o, lse). o: shape and dtype of q, contiguous. lse: (B, H, Sq), float32, natural logarithm; no gradient
        flows through it. A query that sees no key gets zeros and -inf.

    Raises:
        TypeError: another dtype, q, k and v of several, or an sm_scale that is no number.
        ValueError: shapes that do not fit, D over 256, H not a multiple of KH, sm_scale not finite, tensors on
            different devices, or strides other than the above.
    """
    checks.floating(q=q, k=k, v=v)
    checks.rank(4, "(batch, heads, tokens, head_dim)", q=q, k=k, v=v)
    checks.same_shape_and_dtype(k=k, v=v)
    checks.shape((q.shape[0], k.shape[1], k.shape[2], q.shape[3]), k=k)
    checks.same_dtype(q=q, k=k)
    check_heads(q.shape[1], k.shape[1], q.shape[3])
    checks.unit_stride(q=q, k=k, v=v)
    sm_scale = finite_scale(sm_scale, q.shape[-1])
    if q.numel() == 0 or k.numel() == 0 or not uses_triton(q):
        return reference.flash_attention(q, k, v, causal=causal, sm_scale=sm_scale, return_lse=return_lse)
    if sm_scale < 0:  # the kernels take the maximum before they scale
        q, sm_scale = -q, -sm_scale
    o, lse = apply(FlashAttention, q, k, v, causal, sm_scale)
    return (o, lse) if return_lse else o


def check_heads(heads: int, kv_heads: int, head_dim: int) -> None:
    """The heads of q are a multiple of those of k and v, and not too wide for the kernels.

    Raises:
        ValueError: they are not.
    """
    if head_dim > MAX_HEAD_DIM:
        raise ValueError(f"head_dim must be at most {MAX_HEAD_DIM}, got {head_dim}")
    if heads % max(kv_heads, 1) or (heads and not kv_heads):
        raise ValueError(f"q's {heads} heads must be a multiple of the {kv_heads} heads of k and v")


def finite_scale(sm_scale: float | None, head_dim: int) -> float:
    """sm_scale, or what it is when none is given.

    Raises:
        TypeError: it is no number.
        ValueError: it is not finite.
    """
    if sm_scale is None:
        return head_dim**-0.5 if head_dim else 1.0
    checks.number(sm_scale=sm_scale)
    if not math.isfinite(sm_scale):
        raise ValueError(f"sm_scale must be finite, got {sm_scale}")
    return float(sm_scale)
