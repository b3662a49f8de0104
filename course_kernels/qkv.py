"""What happens to the heads between projection and attention, each step in one launch.

    split_qkv_rope   cuts the rows of a projection, [all Q | all K | all V], into heads; turns those of Q and K
    concat_qk        puts the two parts of every head side by side
    rope_concat_qk   the same, and turns the second part: DeepSeek's heads have one part for the position

| tensor        | shape                  | tensor                      | shape                                       |
|---------------|------------------------|-----------------------------|---------------------------------------------|
| qkv           | (T, (QH + 2 * KH) * D) | q1, k1, or q_nope, k_nope   | (T, QH, D1), (T, KH, D1)                    |
| q; k and v    | (T, QH, D); (T, KH, D) | q2, k2, or q_pe, k_pe       | (T, QH, D2), (T, KH, D2)                    |
| cos, sin      | (P, D / 2)             | q, k                        | (T, QH, D1 + D2), (T, KH, D1 + D2)          |

Each element is read once and written once: 2 * itemsize bytes.  PyTorch, one operation at a time, reads and writes the
turned heads several times, and once more to concatenate.  What is not turned is copied bit for bit.

A program takes some heads of one kind (Q, K or V) of a block of tokens, and loads these tokens' angles once for them.

The operations are those of ROCm's aiter; heads in two parts come from DeepSeek-V2's report, 2024.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .backend import uses_triton
from .rope import check_style, check_tables, copy_heads, head_tile, table_rows_of, turn_tokens


@triton.jit
def _split_heads(
    qkv_ptr, y_ptr, cos_ptr, sin_ptr, positions_ptr, stride_xt, stride_p, pid_h, first, heads, tokens, table_rows,
    NEOX: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A tile of the heads of one kind, which begin at head `first` of a row; turned if there are positions."""
    offs_t, offs_h, mask_t, mask = head_tile(tl.program_id(0), pid_h, tokens, heads, BLOCK_T, BLOCK_H)
    x_ptr = qkv_ptr + offs_t * stride_xt + (first + offs_h) * HEAD_DIM
    y_ptr += (offs_t * heads + offs_h) * HEAD_DIM
    if positions_ptr is None:
        copy_heads(x_ptr, y_ptr, mask, HEAD_DIM, 2 * BLOCK_P)
    else:
        row = table_rows_of(positions_ptr, None, offs_t, mask_t, stride_p)
        turn_tokens(x_ptr, y_ptr, cos_ptr, sin_ptr, row, mask, table_rows, NEOX, HEAD_DIM // 2, BLOCK_P)


@triton.jit
def split_qkv_rope_kernel(
    qkv_ptr, cos_ptr, sin_ptr, positions_ptr, q_ptr, k_ptr, v_ptr,
    stride_xt, stride_p, q_heads, kv_heads, tokens, table_rows,
    NEOX: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_H heads of Q, of K or of V, of BLOCK_T tokens: Q has the first programs, V the last."""
    pid_h, q_blocks, kv_blocks = tl.program_id(1), tl.cdiv(q_heads, BLOCK_H), tl.cdiv(kv_heads, BLOCK_H)
    if pid_h < q_blocks:
        _split_heads(
            qkv_ptr, q_ptr, cos_ptr, sin_ptr, positions_ptr, stride_xt, stride_p,
            pid_h, 0, q_heads, tokens, table_rows, NEOX, HEAD_DIM, BLOCK_T, BLOCK_H, BLOCK_P,
        )  # fmt: skip
    elif pid_h < q_blocks + kv_blocks:
        _split_heads(
            qkv_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr, stride_xt, stride_p,
            pid_h - q_blocks, q_heads, kv_heads, tokens, table_rows, NEOX, HEAD_DIM, BLOCK_T, BLOCK_H, BLOCK_P,
        )  # fmt: skip
    else:
        _split_heads(
            qkv_ptr, v_ptr, None, None, None, stride_xt, 0, pid_h - q_blocks - kv_blocks,
            q_heads + kv_heads, kv_heads, tokens, table_rows, NEOX, HEAD_DIM, BLOCK_T, BLOCK_H, BLOCK_P,
        )  # fmt: skip


@triton.jit
def _join_heads(
    first_ptr, second_ptr, y_ptr, cos_ptr, sin_ptr, positions_ptr,
    stride_at, stride_ah, stride_bt, stride_bh, stride_p, pid_h, tokens, table_rows,
    HEADS: tl.constexpr, NEOX: tl.constexpr, WIDTH_A: tl.constexpr, WIDTH_B: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A tile of heads from their two parts; the second is turned if there are positions."""
    offs_t, offs_h, mask_t, mask = head_tile(tl.program_id(0), pid_h, tokens, HEADS, BLOCK_T, BLOCK_H)
    first_ptr += offs_t * stride_at + offs_h * stride_ah
    second_ptr += offs_t * stride_bt + offs_h * stride_bh
    y_ptr += (offs_t * HEADS + offs_h) * (WIDTH_A + WIDTH_B)
    copy_heads(first_ptr, y_ptr, mask, WIDTH_A, BLOCK_D)
    y_ptr += WIDTH_A
    if positions_ptr is None:
        copy_heads(second_ptr, y_ptr, mask, WIDTH_B, BLOCK_D)
    else:
        row = table_rows_of(positions_ptr, None, offs_t, mask_t, stride_p)
        turn_tokens(second_ptr, y_ptr, cos_ptr, sin_ptr, row, mask, table_rows, NEOX, WIDTH_B // 2, BLOCK_P)


@triton.jit
def concat_qk_kernel(
    q1_ptr, q2_ptr, k1_ptr, k2_ptr, cos_ptr, sin_ptr, positions_ptr, q_ptr, k_ptr,
    stride_q1t, stride_q1h, stride_q2t, stride_q2h, stride_k1t, stride_k1h, stride_k2t, stride_k2h, stride_p,
    tokens, table_rows,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, NEOX: tl.constexpr, WIDTH_1: tl.constexpr, WIDTH_2: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_H heads of Q or of K, of BLOCK_T tokens."""
    pid_h, q_blocks = tl.program_id(1), tl.cdiv(Q_HEADS, BLOCK_H)
    if pid_h < q_blocks:
        _join_heads(
            q1_ptr, q2_ptr, q_ptr, cos_ptr, sin_ptr, positions_ptr,
            stride_q1t, stride_q1h, stride_q2t, stride_q2h, stride_p, pid_h, tokens, table_rows,
            Q_HEADS, NEOX, WIDTH_1, WIDTH_2, BLOCK_T, BLOCK_H, BLOCK_P, BLOCK_D,
        )  # fmt: skip
    else:
        _join_heads(
            k1_ptr, k2_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr,
            stride_k1t, stride_k1h, stride_k2t, stride_k2h, stride_p, pid_h - q_blocks, tokens, table_rows,
            KV_HEADS, NEOX, WIDTH_1, WIDTH_2, BLOCK_T, BLOCK_H, BLOCK_P, BLOCK_D,
        )  # fmt: skip


def _split_outputs(qkv, _cos, _sin, _positions, q_heads, kv_heads, head_dim, _style):
    """Room for q, k and v."""
    return tuple(qkv.new_empty((len(qkv), heads, head_dim)) for heads in (q_heads, kv_heads, kv_heads))


@torch_op(_split_outputs)
def split_qkv_rope_forward(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    style: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(q, k, v). qkv: (T, (QH + 2 * KH) * D)."""
    tokens, kinds = len(qkv), (q_heads, kv_heads, kv_heads)
    q, k, v = outputs = _split_outputs(qkv, cos, sin, positions, q_heads, kv_heads, head_dim, style)
    grid, meta = launch.head_groups(tokens, kinds, head_dim, qkv)
    launch.run(
        split_qkv_rope_kernel, grid, qkv, cos, sin, positions, q, k, v, qkv.stride(0), positions.stride(0),
        q_heads, kv_heads, tokens, len(cos),
        NEOX=style == "neox", HEAD_DIM=head_dim, BLOCK_P=triton.next_power_of_2(head_dim // 2), **meta,
    )  # fmt: skip
    return outputs


def _concat_outputs(q1, _q2, _k1, k2, *_):
    """Room for q and k."""
    width = q1.shape[2] + k2.shape[2]
    return tuple(q1.new_empty((len(q1), heads, width)) for heads in (q1.shape[1], k2.shape[1]))


@torch_op(_concat_outputs)
def concat_qk_forward(
    q1: torch.Tensor,
    q2: torch.Tensor,
    k1: torch.Tensor,
    k2: torch.Tensor,
    positions: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    style: str | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, k); q2 and k2 turned, unless positions is None."""
    tokens, q_heads, width_1 = q1.shape
    kv_heads, width_2 = k2.shape[1:]
    q, k = outputs = _concat_outputs(q1, q2, k1, k2)
    grid, meta = launch.head_groups(tokens, (q_heads, kv_heads), width_2, q1)
    strides = [stride for x in (q1, q2, k1, k2) for stride in x.stride()[:2]]
    launch.run(
        concat_qk_kernel, grid,
        q1, q2, k1, k2, cos, sin, positions, q, k, *strides, 0 if positions is None else positions.stride(0),
        tokens, 0 if cos is None else len(cos),
        Q_HEADS=q_heads, KV_HEADS=kv_heads, NEOX=style == "neox", WIDTH_1=width_1, WIDTH_2=width_2,
        BLOCK_P=triton.next_power_of_2(max(width_2 // 2, 1)), BLOCK_D=launch.copied_heads(meta, q1), **meta,
    )  # fmt: skip
    return outputs


def check_turn(
    head_dim: int, style: str, tokens: tuple[int, ...], positions: torch.Tensor, **tables: torch.Tensor
) -> None:
    """Heads of this width can be turned: each of the tokens has a position, which lies in the tables cos and sin.

    Raises:
        TypeError: positions of another dtype, or tables of two.
        ValueError: an unknown style, an odd width, shapes or devices that do not fit; where values are looked at, a
            position outside the tables.
    """
    check_style(style)
    if head_dim % 2:
        raise ValueError(f"a head that is turned consists of pairs and must be even, got width {head_dim}")
    check_tables(head_dim // 2, **tables)
    checks.integers(positions=positions)
    checks.same_device(**tables, positions=positions)
    checks.shape(tokens, positions=positions)
    checks.below(len(next(iter(tables.values()))), "the rows of cos and sin", positions=positions)


@remembered
def split_qkv_rope(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    style: str = "neox",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut the rows of a fused projection into the heads of Q, K and V; turn those of Q and K. No gradient flows to it.

    Args:
        qkv: (T, (num_q_heads + 2 * num_kv_heads) * head_dim), in each row all heads of Q, then of K, then of V;
            float32, float16 or bfloat16; unit stride along the row.
        cos, sin: (P, head_dim / 2), as from `rope_tables`; any of the three dtypes, contiguous.
        positions: (T,), int32 or int64: each token's row of cos and sin.
        num_q_heads, num_kv_heads: QH and KH, at least 1; neither need be the larger.
        head_dim: D, even.
        style: "neox" pairs i with i + D / 2, "gptj" 2i with 2i + 1.

    Returns:
        (q, k, v): (T, QH, D), (T, KH, D), (T, KH, D), in the dtype of qkv, contiguous; v bit for bit.

    Raises:
        TypeError: another dtype, or a size that is no int.
        ValueError: shapes, devices or strides that do not fit, an unknown style, or a tensor that requires grad; on the
            CPU, and on a GPU with COURSE_KERNELS_CHECKS=1, a negative position or one past the tables (elsewhere q and
            k of that token become NaN).
    """
    checks.floating(qkv=qkv, cos=cos, sin=sin)
    checks.not_differentiable(qkv=qkv)
    checks.rank(2, "(T, (num_q_heads + 2 * num_kv_heads) * head_dim)", qkv=qkv)
    for name, size in {"num_q_heads": num_q_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}.items():
        if checks.whole_number(**{name: size}) < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    num_q_heads, num_kv_heads, head_dim = map(int, (num_q_heads, num_kv_heads, head_dim))
    checks.shape((len(qkv), (num_q_heads + 2 * num_kv_heads) * head_dim), qkv=qkv)
    checks.unit_stride(qkv=qkv)
    check_turn(head_dim, style, (len(qkv),), positions, cos=cos, sin=sin)
    sizes = num_q_heads, num_kv_heads, head_dim
    if qkv.numel() == 0 or not uses_triton(qkv):
        return reference.split_qkv_rope(qkv, cos, sin, positions, *sizes, style=style)
    return split_qkv_rope_forward(qkv, cos, sin, positions, *sizes, style)


def _check_parts(**parts: torch.Tensor) -> None:
    """Two parts of the heads of Q, then two of those of K: one dtype, and sizes that agree."""
    checks.floating(**parts)
    checks.not_differentiable(**parts)
    checks.rank(3, "(T, heads, width)", **parts)
    checks.same_dtype(**parts)
    (_, q1), (q2_name, q2), (k1_name, k1), (k2_name, k2) = parts.items()
    checks.shape((*q1.shape[:2], q2.shape[2]), **{q2_name: q2})
    checks.shape((len(q1), k1.shape[1], q1.shape[2]), **{k1_name: k1})
    checks.shape((*k1.shape[:2], q2.shape[2]), **{k2_name: k2})
    checks.unit_stride(**parts)


@remembered
def concat_qk(
    q1: torch.Tensor, q2: torch.Tensor, k1: torch.Tensor, k2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two parts of every head of Q, and of every head of K, side by side. No gradient flows to them.

    Args:
        q1, q2: (T, QH, D1), (T, QH, D2); float32, float16 or bfloat16; unit stride along a head, any others.
        k1, k2: (T, KH, D1), (T, KH, D2); the dtype of q1.

    Returns:
        (q, k): (T, QH, D1 + D2), (T, KH, D1 + D2), contiguous, bit for bit.

    Raises:
        TypeError: another dtype, or several.
        ValueError: shapes, devices or strides that do not fit, or a tensor that requires grad.
    """
    _check_parts(q1=q1, q2=q2, k1=k1, k2=k2)
    if min(x.numel() for x in (q1, q2, k1, k2)) == 0 or not uses_triton(q1):
        return reference.concat_qk(q1, q2, k1, k2)
    return concat_qk_forward(q1, q2, k1, k2, None, None, None, None)


@remembered
def rope_concat_qk(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    k_nope: torch.Tensor,
    k_pe: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    style: str = "neox",
) -> tuple[torch.Tensor, torch.Tensor]:
    """`concat_qk` with the second part of every head turned. No gradient flows to them.

    Args:
        q_nope, q_pe: (T, QH, D1), (T, QH, D2), D2 even; float32, float16 or bfloat16; unit stride along a head, any
            others.
        k_nope, k_pe: (T, KH, D1), (T, KH, D2); the dtype of q_nope.
        positions: (T,), int32 or int64: each token's row of cos and sin.
        cos, sin: (P, D2 / 2), as from `rope_tables`; any of the three dtypes, contiguous.
        style: "neox" pairs i with i + D2 / 2, "gptj" 2i with 2i + 1.

    Returns:
        (q, k): (T, QH, D1 + D2), (T, KH, D1 + D2), contiguous; the first D1 elements of a head bit for bit.

    Raises:
        TypeError: another dtype, or several.
        ValueError: shapes, devices or strides that do not fit, an unknown style, or a tensor that requires grad; on the
            CPU, and on a GPU with COURSE_KERNELS_CHECKS=1, a negative position or one past the tables (elsewhere what
            would be turned becomes NaN).
    """
    _check_parts(q_nope=q_nope, q_pe=q_pe, k_nope=k_nope, k_pe=k_pe)
    checks.floating(q_nope=q_nope, cos=cos, sin=sin)
    check_turn(q_pe.shape[2], style, (len(q_pe),), positions, cos=cos, sin=sin)
    parts = q_nope, q_pe, k_nope, k_pe
    if min(x.numel() for x in parts) == 0 or not uses_triton(q_nope):
        return reference.rope_concat_qk(*parts, positions, cos, sin, style=style)
    return concat_qk_forward(*parts, positions, cos, sin, style)
