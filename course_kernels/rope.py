"""Rotary position embedding (RoPE): pairs of a head's elements turned by angles that grow with the token's position.

    (a, b)  ->  (a * cos - b * sin,  b * cos + a * sin),    angle of pair i at position p:  p * base^(-2i / rotary_dim)

| style  | pair i of a head of width R = rotary_dim | used by               |
|--------|------------------------------------------|-----------------------|
| `neox` | elements i and i + R/2                   | Llama, Qwen, Mistral  |
| `gptj` | elements 2i and 2i + 1                   | GPT-J, DeepSeek       |

| layout | x                     | positions, offsets                                                       |
|--------|-----------------------|--------------------------------------------------------------------------|
| `sbhd` | (S, B, heads, D)      | (S,) or (S, B)                                                           |
| `bshd` | (B, S, heads, D)      | (S,) or (B, S)                                                           |
| `thd`  | (T, heads, D)         | (T,); with cu_seqlens (sequences + 1,) positions restart in each sequence |

The backward pass is the rotation by the negative angle.  Angles must be computed in float32 or better: at position 2048
a bfloat16 angle is off by up to 8 radians.

A program turns many heads of a block of tokens, so that a token's angles are loaded once for all of them: 2 elements
move for each element of x, and the tables once.  Both elements of a pair are loaded before either is stored; so a
program may write over what it read.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.  The arguments follow ROCm's aiter.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import apply, once_differentiable, remembered, torch_op
from .backend import uses_triton

STYLES = ("neox", "gptj")
LAYOUTS = ("sbhd", "bshd", "thd")
ONE_HEAD = {"sbd": "sbhd", "bsd": "bshd", "td": "thd"}  # tokens of one head, without a dimension for it
PARTS = tl.constexpr(2**63 / math.pi)  # of a radian: 2**64 of a turn
RADIANS = tl.constexpr(math.pi / 2**31)  # of a part, where a turn has 2**32


@triton.jit
def rotate(a, b, cos, sin):
    """Each pair (a, b) turned by its angle."""
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def load_angles(cos_ptr, sin_ptr, row, table_rows, HALF: tl.constexpr, BLOCK_P: tl.constexpr):
    """cos and sin of each token's row of the tables, in float32. row: (BLOCK_T, 1, 1), int64."""
    offs_p = tl.arange(0, BLOCK_P)[None, None, :]
    mask = (row >= 0) & (row < table_rows) & (offs_p < HALF)
    nan = float("nan")  # a position that the tables lack shows in its token, and reads nothing out of bounds
    cos = tl.load(cos_ptr + row * HALF + offs_p, mask=mask, other=nan).to(tl.float32)
    sin = tl.load(sin_ptr + row * HALF + offs_p, mask=mask, other=nan).to(tl.float32)
    return cos, sin


@triton.jit
def compute_angles(frequency_ptr, row, HALF: tl.constexpr, BLOCK_P: tl.constexpr):
    """As `load_angles`, of position * frequency; the position may be any int64.

    Counted in parts of a turn, 2**64 to each, the product drops whole turns by overflowing, and rounds nothing else: a
    product in float32 would be off by 0.01 radians at position 100000.
    """
    offs_p = tl.arange(0, BLOCK_P)[None, None, :]
    radians = tl.load(frequency_ptr + offs_p, mask=offs_p < HALF, other=0.0).to(tl.float64)
    parts = row * (radians * PARTS).to(tl.int64)
    angle = (parts >> 32).to(tl.int32).to(tl.float32) * RADIANS  # between -pi and pi
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def load_pairs(x_ptr, mask, NEOX: tl.constexpr, HALF: tl.constexpr, BLOCK_P: tl.constexpr):
    """First and second element of each pair, in float32. x_ptr: (BLOCK_T, BLOCK_H, 1), where its part begins."""
    if NEOX:
        offs_p = tl.arange(0, BLOCK_P)[None, None, :]
        mask = mask & (offs_p < HALF)
        a = tl.load(x_ptr + offs_p, mask=mask, other=0.0)
        b = tl.load(x_ptr + HALF + offs_p, mask=mask, other=0.0)
    else:  # one wide load, taken apart in registers; two loads of every other element would be narrow
        offs_r = tl.arange(0, 2 * BLOCK_P)[None, None, :]
        x = tl.load(x_ptr + offs_r, mask=mask & (offs_r < 2 * HALF), other=0.0)
        a, b = tl.split(x.reshape(x.shape[0], x.shape[1], BLOCK_P, 2))
    return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_pairs(y_ptr, a, b, mask, NEOX: tl.constexpr, HALF: tl.constexpr, BLOCK_P: tl.constexpr):
    """The counterpart of `load_pairs`."""
    a = a.to(y_ptr.dtype.element_ty)
    b = b.to(y_ptr.dtype.element_ty)
    if NEOX:
        offs_p = tl.arange(0, BLOCK_P)[None, None, :]
        mask = mask & (offs_p < HALF)
        tl.store(y_ptr + offs_p, a, mask=mask)
        tl.store(y_ptr + HALF + offs_p, b, mask=mask)
    else:
        offs_r = tl.arange(0, 2 * BLOCK_P)[None, None, :]
        y = tl.join(a, b).reshape(a.shape[0], a.shape[1], 2 * BLOCK_P)
        tl.store(y_ptr + offs_r, y, mask=mask & (offs_r < 2 * HALF))


@triton.jit
def rotate_heads(x_ptr, y_ptr, cos, sin, mask, NEOX: tl.constexpr, HALF: tl.constexpr, BLOCK_P: tl.constexpr):
    """A tile of heads, turned. x_ptr, y_ptr: (BLOCK_T, BLOCK_H, 1), where each rotated part begins; may be the same."""
    a, b = load_pairs(x_ptr, mask, NEOX, HALF, BLOCK_P)
    a, b = rotate(a, b, cos, sin)
    store_pairs(y_ptr, a, b, mask, NEOX, HALF, BLOCK_P)


@triton.jit
def table_rows_of(positions_ptr, offsets_ptr, offs_t, mask_t, stride_p):
    """Which row of the tables each token takes: its position, plus its offset if there are any."""
    row = tl.load(positions_ptr + offs_t * stride_p, mask=mask_t, other=0).to(tl.int64)
    if offsets_ptr is not None:
        row += tl.load(offsets_ptr + offs_t, mask=mask_t, other=0).to(tl.int64)
    return row


@triton.jit
def turn_tokens(
    x_ptr, y_ptr, cos_ptr, sin_ptr, row, mask, table_rows,
    NEOX: tl.constexpr, HALF: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A tile of heads, turned by their tokens' rows of the tables. row: (BLOCK_T, 1, 1); the rest: `rotate_heads`."""
    cos, sin = load_angles(cos_ptr, sin_ptr, row, table_rows, HALF, BLOCK_P)
    rotate_heads(x_ptr, y_ptr, cos, sin, mask, NEOX, HALF, BLOCK_P)


@triton.jit
def load_turned(
    x_ptr, cos_ptr, sin_ptr, row, mask_turned, mask, table_rows,
    NEOX: tl.constexpr, HALF: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """As `load_pairs`, turned by their token's row of the tables where mask_turned, (BLOCK_T, 1, 1), says so."""
    cos, sin = load_angles(cos_ptr, sin_ptr, row, table_rows, HALF, BLOCK_P)
    a, b = load_pairs(x_ptr, mask, NEOX, HALF, BLOCK_P)
    turned_a, turned_b = rotate(a, b, cos, sin)
    return tl.where(mask_turned, turned_a, a), tl.where(mask_turned, turned_b, b)


@triton.jit
def copy_heads(x_ptr, y_ptr, mask, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    """WIDTH elements of each head of a tile, bit for bit."""
    for start in range(0, WIDTH, BLOCK_D):
        offs_d = start + tl.arange(0, BLOCK_D)[None, None, :]
        mask_d = mask & (offs_d < WIDTH)
        tl.store(y_ptr + offs_d, tl.load(x_ptr + offs_d, mask=mask_d, other=0.0), mask=mask_d)


@triton.jit
def head_tile(pid_t, pid_h, tokens, heads, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr):
    """Tokens (BLOCK_T, 1, 1) and heads (1, BLOCK_H, 1) of a tile, in int64, the mask of its tokens and its own mask."""
    offs_t = tl.cast(pid_t, tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None, None]
    offs_h = tl.cast(pid_h, tl.int64) * BLOCK_H + tl.arange(0, BLOCK_H)[None, :, None]
    mask_t = offs_t < tokens
    return offs_t, offs_h, mask_t, mask_t & (offs_h < heads)


@triton.jit
def _sequence_of(offs_t, cu_seqlens_ptr, num_seqs, BLOCK: tl.constexpr = 64):
    """The sequence of each token: the last that begins at it or before it. An empty one begins where the next does."""
    begun = tl.zeros_like(offs_t)
    for start in range(0, num_seqs, BLOCK):
        offs = start + tl.arange(0, BLOCK)[None, None, :]
        first = tl.load(cu_seqlens_ptr + offs, mask=offs < num_seqs, other=2**31 - 1)
        begun += tl.sum((first <= offs_t).to(tl.int64), axis=2, keep_dims=True)
    return begun - 1


@triton.jit
def _table_row(
    offs_t, mask_t, batch, positions_ptr, offsets_ptr, cu_seqlens_ptr,
    stride_pb, stride_ps, stride_ob, stride_os, num_seqs,
):  # fmt: skip
    """Which row of the tables each token takes: its position, given or counted, plus its offset."""
    row = offs_t
    if positions_ptr is not None:
        row = tl.load(positions_ptr + batch * stride_pb + offs_t * stride_ps, mask=mask_t, other=0).to(tl.int64)
    if cu_seqlens_ptr is not None:
        batch = _sequence_of(offs_t, cu_seqlens_ptr, num_seqs)  # offsets are those of the sequences
        row = offs_t - tl.load(cu_seqlens_ptr + batch, mask=mask_t & (batch >= 0), other=0)
    if offsets_ptr is not None:
        row += tl.load(offsets_ptr + batch * stride_ob + offs_t * stride_os, mask=mask_t & (batch >= 0), other=0)
    return row


@triton.jit
def rope_kernel(
    x_ptr, y_ptr, cos_ptr, sin_ptr, positions_ptr, offsets_ptr, cu_seqlens_ptr,
    stride_xb, stride_xs, stride_xh, stride_yb, stride_ys, stride_yh,
    stride_pb, stride_ps, stride_ob, stride_os,
    seq_len, heads, num_seqs, table_rows,
    NEOX: tl.constexpr, INVERSE: tl.constexpr, HALF: tl.constexpr, TWICE: tl.constexpr, START: tl.constexpr,
    PLAIN: tl.constexpr, PLAIN_START: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_H heads of BLOCK_T tokens of one sequence of the batch."""
    blocks = tl.cdiv(seq_len, BLOCK_T)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    pid_t = tl.program_id(0) % blocks
    offs_t, offs_h, mask_t, mask = head_tile(pid_t, tl.program_id(1), seq_len, heads, BLOCK_T, BLOCK_H)

    row = _table_row(
        offs_t, mask_t, batch, positions_ptr, offsets_ptr, cu_seqlens_ptr,
        stride_pb, stride_ps, stride_ob, stride_os, num_seqs,
    )  # fmt: skip
    if sin_ptr is None:
        cos, sin = compute_angles(cos_ptr, row, HALF, BLOCK_P)
    else:  # a table of full width is one with twice the rows, of which every other is read
        cos, sin = load_angles(cos_ptr, sin_ptr, row * TWICE, table_rows * TWICE, HALF, BLOCK_P)
    if INVERSE:
        sin = -sin

    x_ptr += batch * stride_xb + offs_t * stride_xs + offs_h * stride_xh
    y_ptr += batch * stride_yb + offs_t * stride_ys + offs_h * stride_yh
    rotate_heads(x_ptr + START, y_ptr + START, cos, sin, mask, NEOX, HALF, BLOCK_P)
    if PLAIN > 0:
        copy_heads(x_ptr + PLAIN_START, y_ptr + PLAIN_START, mask, PLAIN, BLOCK_D)


@triton.jit
def rope_2d_kernel(
    x_ptr, y_ptr, cos_h_ptr, sin_h_ptr, cos_w_ptr, sin_w_ptr,
    stride_xb, stride_xs, stride_xh, stride_yb, stride_ys, stride_yh,
    height, width, heads,
    QUARTER: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_H heads of BLOCK_T pixels of one image: half a head turned by the row, half by the column."""
    pixels = height * width
    blocks = tl.cdiv(pixels, BLOCK_T)
    image = (tl.program_id(0) // blocks).to(tl.int64)
    pid_t = tl.program_id(0) % blocks
    offs_t, offs_h, _, mask = head_tile(pid_t, tl.program_id(1), pixels, heads, BLOCK_T, BLOCK_H)
    x_ptr += image * stride_xb + offs_t * stride_xs + offs_h * stride_xh
    y_ptr += image * stride_yb + offs_t * stride_ys + offs_h * stride_yh

    cos, sin = load_angles(cos_h_ptr, sin_h_ptr, offs_t // width, height, QUARTER, BLOCK_P)
    rotate_heads(x_ptr, y_ptr, cos, sin, mask, True, QUARTER, BLOCK_P)
    cos, sin = load_angles(cos_w_ptr, sin_w_ptr, offs_t % width, width, QUARTER, BLOCK_P)
    rotate_heads(x_ptr + 2 * QUARTER, y_ptr + 2 * QUARTER, cos, sin, mask, True, QUARTER, BLOCK_P)


def batch_first(tokens: torch.Tensor, layout: str) -> torch.Tensor:
    """x, or an index shaped like its tokens, as a view (B, S, ...)."""
    if layout == "sbhd":
        return tokens.transpose(0, 1)
    return tokens if layout == "bshd" else tokens.unsqueeze(0)


class Rotation(NamedTuple):
    """What part of a head is turned, which of its elements are pairs, and where sequences lie in x."""

    style: str
    layout: str
    rotary_dim: int
    nope_first: bool


@torch_op(lambda *_: None, mutates=("y",))
def rope_forward(
    x: torch.Tensor,
    y: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor | None,
    positions: torch.Tensor | None,
    offsets: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    style: str,
    layout: str,
    rotary_dim: int,
    nope_first: bool,
    inverse: bool = False,
) -> None:
    """Write x, turned, to y, which may be x. positions: (B, S); offsets: (B, S), or (sequences, T) with cu_seqlens.

    cos and sin may be of full width. Where sin is None, cos has the frequencies, (rotary_dim / 2,).
    """
    plain = x.shape[-1] - rotary_dim
    x_view, y_view = batch_first(x, layout), batch_first(y, layout)
    batch, seq_len, heads, head_dim = x_view.shape
    block_p = triton.next_power_of_2(rotary_dim // 2)
    loads = triton.next_power_of_2(head_dim) // block_p  # halves that turn are narrower where a part of the head stays
    blocks, meta = launch.head_tiles(seq_len, heads, head_dim, x, batch, loads)
    launch.run(
        rope_kernel, (batch * blocks[0], blocks[1]), x, y, cos, sin, positions, offsets, cu_seqlens,
        *x_view.stride()[:3], *y_view.stride()[:3],
        *((0, 0) if positions is None else positions.stride()),
        *((0, 0) if offsets is None else offsets.stride()),
        seq_len, heads, 0 if cu_seqlens is None else len(cu_seqlens) - 1, len(cos),
        NEOX=style == "neox", INVERSE=inverse, HALF=rotary_dim // 2,
        TWICE=1 if sin is None else cos.shape[1] // (rotary_dim // 2), START=plain if nope_first else 0,
        PLAIN=0 if y is x else plain, PLAIN_START=0 if nope_first else rotary_dim,
        BLOCK_P=block_p, BLOCK_D=triton.next_power_of_2(max(plain, 1)), **meta,
    )  # fmt: skip


@torch_op(lambda dy, *_: dy.new_empty(dy.shape))
def rope_backward(
    dy: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor | None,
    positions: torch.Tensor | None,
    offsets: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    style: str,
    layout: str,
    rotary_dim: int,
    nope_first: bool,
) -> torch.Tensor:
    """dx: dy, turned back."""
    dx = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    dy = dy if dy.stride(-1) == 1 else dy.contiguous()
    rope_forward(dy, dx, cos, sin, positions, offsets, cu_seqlens, style, layout, rotary_dim, nope_first, True)
    return dx


@torch_op(lambda x, *_: x.new_empty(x.shape))
def rope_2d_forward(
    x: torch.Tensor, cos_h: torch.Tensor, sin_h: torch.Tensor, cos_w: torch.Tensor, sin_w: torch.Tensor
) -> torch.Tensor:
    """x, turned. x: (B, H * W, heads, D)."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    images, pixels, heads, head_dim = x.shape
    blocks, meta = launch.head_tiles(pixels, heads, head_dim, x, images, loads=4)
    launch.run(
        rope_2d_kernel, (images * blocks[0], blocks[1]),
        x, y, cos_h, sin_h, cos_w, sin_w, *x.stride()[:3], *y.stride()[:3], len(cos_h), len(cos_w), heads,
        QUARTER=head_dim // 4, BLOCK_P=triton.next_power_of_2(head_dim // 4), **meta,
    )  # fmt: skip
    return y


class Rope(torch.autograd.Function):
    """Differentiable in x. The gradient is the incoming one, turned back."""

    @staticmethod
    def forward(ctx, x, cos, sin, positions, offsets, cu_seqlens, rotation, inplace):
        ctx.save_for_backward(cos, sin, positions, offsets, cu_seqlens)
        ctx.rotation = rotation
        y = x if inplace else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if inplace:
            ctx.mark_dirty(x)
        rope_forward(x, y, cos, sin, positions, offsets, cu_seqlens, *rotation)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return rope_backward(dy, *ctx.saved_tensors, *ctx.rotation), *(None,) * 7


def rope_tables(
    max_positions: int, rotary_dim: int, base: float = 10000.0, device: torch.device | str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position's angles, computed in float64 and rounded once.

    Args:
        max_positions: P; positions 0 to P - 1.
        rotary_dim: how many elements of a head turn; even.
        base: of the geometric row of frequencies (`rope_theta` in a model's configuration).
        device: None is PyTorch's current device.

    Returns:
        (cos, sin): (P, rotary_dim / 2), float32; pair i at position p has p * base^(-2i / rotary_dim) radians.

    Raises:
        ValueError: a negative number of positions, rotary_dim not even or not above 0, or base not above 0.
    """
    if max_positions < 0:
        raise ValueError(f"max_positions must not be negative, got {max_positions}")
    if rotary_dim <= 0 or rotary_dim % 2:
        raise ValueError(
            f"rotary_dim must be even and above 0, since it counts both elements of pairs; got {rotary_dim}"
        )
    if not base > 0:
        raise ValueError(f"base must be above 0, got {base}")
    exponent = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=device) / rotary_dim
    return angle_tables(max_positions, torch.pow(base, -exponent))


def angle_tables(max_positions: int, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `rope_tables`, where pair i turns by frequencies[i] radians a position. frequencies: (pairs,), float64."""
    position = torch.arange(max_positions, dtype=torch.float64, device=frequencies.device)
    angle = position[:, None] * frequencies
    return angle.cos().float(), angle.sin().float()


def check_style(style: str) -> None:
    """`style` is one of STYLES.

    Raises:
        ValueError: it is not.
    """
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}; got {style!r}")


def check_tables(half: int, **pair: torch.Tensor) -> None:
    """cos and sin, under the caller's names, are constant tables of rows `half` wide.

    Raises:
        TypeError: of two dtypes.
        ValueError: of another shape, not contiguous, or asking for a gradient.
    """
    checks.same_shape_and_dtype(**pair)
    for name, table in pair.items():
        checks.rank(2, "(positions, pairs)", **{name: table})
        checks.shape((len(table), half), **{name: table})
    checks.contiguous(**pair)
    checks.not_differentiable(**pair)


def _check_frequencies(x, half, inv_freq):
    """inv_freq has a frequency for each pair."""
    checks.are_tensors(inv_freq=inv_freq)
    if inv_freq.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"inv_freq must be float32 or float64, got {inv_freq.dtype}; less is too coarse for angles")
    checks.same_device(x=x, inv_freq=inv_freq)
    checks.shape((half,), inv_freq=inv_freq)
    checks.contiguous(inv_freq=inv_freq)
    checks.not_differentiable(inv_freq=inv_freq)


def _check_index(x, layout, positions, offsets, cu_seqlens):
    """Shapes and devices of what says which angles a token takes."""
    index = {"positions": positions, "offsets": offsets, "cu_seqlens": cu_seqlens}
    index = {name: tensor for name, tensor in index.items() if tensor is not None}
    checks.integers(**index)
    checks.same_device(x=x, **index)
    batch, seq_len = batch_first(x, layout).shape[:2]
    if cu_seqlens is not None:
        if layout != "thd":
            raise ValueError(f"cu_seqlens belongs to layout 'thd', got layout {layout!r}")
        if positions is not None:
            raise ValueError("cu_seqlens and positions exclude each other: both say where a token stands; give one")
        if cu_seqlens.ndim != 1 or len(cu_seqlens) < 2:
            raise ValueError(f"cu_seqlens must have shape (sequences + 1,), got {tuple(cu_seqlens.shape)}")
        checks.contiguous(cu_seqlens=cu_seqlens)
        if offsets is not None:
            checks.shape((len(cu_seqlens) - 1,), offsets=offsets)
        return
    shapes = [(seq_len,)] if layout == "thd" else [(seq_len,), tuple(x.shape[:2])]
    if positions is not None:
        checks.shape(*shapes, positions=positions)
        shapes = [tuple(positions.shape)]
    if offsets is not None:
        checks.shape(*shapes, (batch,), offsets=offsets)


def _check_values(x, table_rows, layout, positions, offsets, cu_seqlens):
    """Every token's row lies in the tables; sequences follow each other from token 0 to the last."""
    what = "the rows of cos and sin"
    if positions is None and offsets is None and cu_seqlens is None:
        seq_len = batch_first(x, layout).shape[1]
        if table_rows is not None and seq_len > table_rows:
            raise ValueError(f"x has {seq_len} positions but cos and sin have {table_rows} rows; make longer tables")
        return
    if not checks.values_are_checked(x):
        return
    if cu_seqlens is not None:
        ends = cu_seqlens.tolist()
        if ends[0] != 0 or ends[-1] != len(x) or ends != sorted(ends):
            raise ValueError(f"cu_seqlens must rise from 0 to {len(x)}, the tokens of x; got {ends}")
    if table_rows is None:
        return
    if positions is not None:
        checks.below(table_rows, what, positions=positions)
    if offsets is not None or cu_seqlens is not None:
        rows = reference.rope_rows(x.shape, layout, positions, offsets, cu_seqlens)
        checks.below(table_rows, what, **{"the row (position + offset)": rows})


def _check_inplace(x):
    """x may be written."""
    checks.no_overlap(x=x)
    if x.requires_grad and x.is_leaf and torch.is_grad_enabled():
        raise ValueError("x is a leaf that requires grad and cannot be changed in place; leave inplace=True away")


@remembered
def rope(
    x: torch.Tensor,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    *,
    style: str = "neox",
    layout: str = "sbhd",
    positions: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    rotary_dim: int | None = None,
    nope_first: bool = False,
    inplace: bool = False,
    inv_freq: torch.Tensor | None = None,
    full_width: bool = False,
) -> torch.Tensor:
    """x with every head turned by its token's angles; differentiable in x.

    Args:
        x: `sbhd` (S, B, heads, D), `bshd` (B, S, heads, D) or `thd` (T, heads, D); `sbd`, `bsd` or `td` without heads;
            float32, float16 or bfloat16; unit stride along a head, any others.
        cos, sin: (P, rotary_dim / 2), as from `rope_tables`; any of the three dtypes, contiguous, without grad. None
            where inv_freq is given.
        style: "neox" pairs i with i + rotary_dim / 2, "gptj" 2i with 2i + 1. Pairs stay where they are: "gptj" heads
            come out interleaved, where DeepSeek's published code gathers all first elements before all second ones.
        layout: the order of x's dimensions.
        positions: int32 or int64; `sbhd` (S,) or (S, B), `bshd` (S,) or (B, S), `thd` (T,). None counts from 0 in each
            sequence.
        offsets: added to the position; int32 or int64; shaped like the positions, or (B,), one for each sequence of the
            batch. Where both readings of one dimension fit: like positions that are given, else (B,).
        cu_seqlens: int32 or int64, (sequences + 1,), `thd` only and without positions: sequence i has tokens
            cu_seqlens[i] to cu_seqlens[i + 1] - 1, none if these are equal. Offsets are (sequences,) then.
        rotary_dim: how many elements of a head turn; the others stay as they are. None is all.
        nope_first: the elements that stay are the first of a head, not the last.
        inplace: write to x and return it.
        inv_freq: instead of tables (rotary_dim / 2,), float32 or float64, radians a position of each pair, from -pi to
            pi: angles are computed in the kernel, for positions of any size and sign, and no table is read.
        full_width: cos and sin are (P, rotary_dim), each row twice its first half, `torch.cat([cos, cos], -1)`, as many
            models keep them.

    Returns:
        Shape and dtype of x, contiguous unless in place.

    Raises:
        TypeError: another dtype.
        ValueError: shapes, devices or strides that do not fit, an unknown style or layout, an odd rotary_dim or one
            wider than the head, cu_seqlens outside `thd` or together with positions, in place on a leaf that requires
            grad; on the CPU, and on a GPU with COURSE_KERNELS_CHECKS=1, a negative position, one past the tables
            (elsewhere that token becomes NaN), or cu_seqlens that do not rise from 0 to T.
    """
    check_style(style)
    index = {"positions": positions, "offsets": offsets, "cu_seqlens": cu_seqlens}
    if layout in ONE_HEAD:
        checks.floating(x=x)
        checks.rank(len(layout), f"{layout} with d the head's width", x=x)
        if inplace:
            _check_inplace(x)
        options = {
            "style": style,
            "layout": ONE_HEAD[layout],
            "rotary_dim": rotary_dim,
            "nope_first": nope_first,
            **index,
        }
        angles = {"inv_freq": inv_freq, "full_width": full_width}
        y = rope(x.unsqueeze(-2), cos, sin, inplace=inplace, **options, **angles)
        return x if inplace else y.squeeze(-2)
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join((*LAYOUTS, *ONE_HEAD))}; got {layout!r}")
    if (inv_freq is None) == (cos is None and sin is None):
        raise ValueError("angles come from tables or from frequencies: give cos and sin, or inv_freq")
    checks.floating(x=x, **({"cos": cos, "sin": sin} if inv_freq is None else {}))
    checks.rank(*((3, "(T, heads, D)") if layout == "thd" else (4, f"{layout} with d the head's width")), x=x)
    rotary_dim = x.shape[-1] if rotary_dim is None else checks.whole_number(rotary_dim=rotary_dim)
    if rotary_dim <= 0 or rotary_dim % 2 or rotary_dim > x.shape[-1]:
        raise ValueError(f"rotary_dim must be even, above 0 and at most the head's {x.shape[-1]}, got {rotary_dim}")
    if inv_freq is None:
        check_tables(rotary_dim if full_width else rotary_dim // 2, cos=cos, sin=sin)
    else:
        _check_frequencies(x, rotary_dim // 2, inv_freq)
        cos = inv_freq
    checks.unit_stride(x=x)
    _check_index(x, layout, positions, offsets, cu_seqlens)
    _check_values(x, len(cos) if inv_freq is None else None, layout, positions, offsets, cu_seqlens)
    if inplace:
        _check_inplace(x)
    if x.numel() == 0 or not uses_triton(x):
        options = {"style": style, "layout": layout, "rotary_dim": rotary_dim, "nope_first": nope_first}
        y = reference.rope(x, cos, sin, **options, **index)
        return x.copy_(y) if inplace else y
    views = _index_views(x, layout, **index)
    rotation = Rotation(style, layout, rotary_dim, nope_first)
    if inplace and torch.compiler.is_compiling():  # a traced autograd.Function must not change its input
        return x.copy_(Rope.apply(x, cos, sin, *views, cu_seqlens, rotation, False))
    if inplace:  # PyTorch counts what is written only there
        return Rope.apply(x, cos, sin, *views, cu_seqlens, rotation, True)
    return apply(Rope, x, cos, sin, *views, cu_seqlens, rotation, False)


def _index_views(x, layout, positions, offsets, cu_seqlens):
    """Positions and offsets as the kernel takes them: (B, S), by strides of 0 where one stands for many."""
    tokens = x.shape[:-2]
    if offsets is not None and cu_seqlens is not None:
        offsets = offsets[:, None].expand(-1, len(x))
    elif offsets is not None:
        each_sequence = reference.offsets_of_sequences(x.shape, layout, positions, offsets)
        offsets = batch_first(reference.per_token(offsets, tokens, layout, each_sequence), layout)
    if positions is not None:
        positions = batch_first(reference.per_token(positions, tokens, layout), layout)
    return positions, offsets


@remembered
def rope_2d(
    x: torch.Tensor, cos_h: torch.Tensor, sin_h: torch.Tensor, cos_w: torch.Tensor, sin_w: torch.Tensor
) -> torch.Tensor:
    """x with the first half of each head turned by its pixel's row, the second half by its column, both `neox`.

    Args:
        x: (B, H * W, heads, D), pixels row by row, D a multiple of 4; float32, float16 or bfloat16; unit stride along a
            head, any others.
        cos_h, sin_h: (H, D / 4), as from `rope_tables(H, D // 2)`; any of the three dtypes, contiguous, without grad.
        cos_w, sin_w: (W, D / 4).

    Returns:
        Shape and dtype of x.

    Raises:
        TypeError: another dtype.
        ValueError: shapes, devices or strides that do not fit, or an x that requires grad.
    """
    checks.floating(x=x, cos_h=cos_h, sin_h=sin_h, cos_w=cos_w, sin_w=sin_w)
    checks.rank(4, "(B, H * W, heads, D)", x=x)
    if x.shape[-1] == 0 or x.shape[-1] % 4:
        raise ValueError(f"x needs a head width that is a multiple of 4, two halves of pairs; got {x.shape[-1]}")
    check_tables(x.shape[-1] // 4, cos_h=cos_h, sin_h=sin_h)
    check_tables(x.shape[-1] // 4, cos_w=cos_w, sin_w=sin_w)
    if x.shape[1] != len(cos_h) * len(cos_w):
        raise ValueError(
            f"x has {x.shape[1]} pixels but the tables have {len(cos_h)} rows * {len(cos_w)} columns; "
            "x.shape[1] must be their product"
        )
    checks.unit_stride(x=x)
    checks.not_differentiable(x=x)
    if x.numel() == 0 or not uses_triton(x):
        return reference.rope_2d(x, cos_h, sin_h, cos_w, sin_w)
    return rope_2d_forward(x, cos_h, sin_h, cos_w, sin_w)
