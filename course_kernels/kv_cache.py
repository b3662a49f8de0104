"""New keys and values into the cache that attention reads; keys and queries turned on the way (RoPE).

| function                | cache of keys                                   | cache of values                          |
|-------------------------|-------------------------------------------------|------------------------------------------|
| `kv_cache_update`       | (B, S_max, KH, D), a row for each position      | the same                                 |
| `paged_kv_cache_update` |                                                 |                                          |
| - layout "flash"        | (num_blocks, block_size, KH, D)                 | the same                                 |
| - layout "packed"       | (num_blocks, KH, D / x, block_size, x)          | (num_blocks, KH, D, block_size)          |

Pages ("blocks") let sequences grow without a row reserved for every position they might reach: slot s is place
s % block_size of page s // block_size, and whoever hands out the pages says which slot a token gets; -1 is none.
Packed, x elements are 16 bytes: a thread loads x elements of one key at once, its neighbour those of the next key.

A cache of fp8 takes half the memory: round(clamp(x / scale, -M, M)) is stored, M the largest number of the type.

Fused, q, k and v are read once and written once, 2 * itemsize bytes an element.  On their own the rotation would write
q and k, and the copy read k again.  A program takes some heads of one kind (Q, K or V) of a block of tokens.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, and the layouts
of vLLM; fused with the rotation as in ROCm's aiter.
"""

import math
from functools import partial

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .backend import uses_triton
from .qkv import check_turn
from .quant import FP8, checked_dtype, runs_kernel, scaled_for_cache
from .rope import check_style, head_tile, load_turned, store_pairs, table_rows_of, turn_tokens

LAYOUTS = ("flash", "packed")


@triton.jit
def _turn_queries(
    q_ptr, y_ptr, cos_ptr, sin_ptr, positions_ptr, offsets_ptr, stride_qt, stride_qh, stride_p,
    batch, pid_t, pid_h, tokens, table_rows,
    HEADS: tl.constexpr, NEOX: tl.constexpr, HALF: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A tile of the heads of Q, turned."""
    offs_t, offs_h, mask_t, mask = head_tile(pid_t, pid_h, tokens, HEADS, BLOCK_T, BLOCK_H)
    q_ptr += offs_t * stride_qt + offs_h * stride_qh
    y_ptr += ((batch * tokens + offs_t) * HEADS + offs_h) * (2 * HALF)
    row = table_rows_of(positions_ptr, offsets_ptr, offs_t, mask_t, stride_p)
    turn_tokens(q_ptr, y_ptr, cos_ptr, sin_ptr, row, mask, table_rows, NEOX, HALF, BLOCK_P)


@triton.jit
def _places(
    slots_ptr, positions_ptr, batch, offs_t, mask_t, stride_p, PAGES: tl.constexpr, PAGE_SIZE: tl.constexpr
):  # fmt: skip
    """Page of each token, its place there, and whether it has one. Without slots a sequence has one page to itself."""
    if slots_ptr is None:
        page, place = batch, tl.load(positions_ptr + offs_t * stride_p, mask=mask_t, other=-1).to(tl.int64)
        exists = (place >= 0) & (place < PAGE_SIZE)
    else:
        slot = tl.load(slots_ptr + offs_t, mask=mask_t, other=-1).to(tl.int64)
        page, place = slot // PAGE_SIZE, slot % PAGE_SIZE
        exists = (slot >= 0) & (slot < PAGES * PAGE_SIZE)
    return page, place, exists


@triton.jit
def _store_elements(cache_ptr, offs_d, x, scale, mask, stride_x, X: tl.constexpr, FP8_MAX: tl.constexpr):
    """Elements offs_d of heads that begin at cache_ptr, where groups of X lie together; scaled for a cache of fp8."""
    x = scaled_for_cache(x, scale, FP8_MAX)
    offs = (offs_d // X).to(tl.int64) * stride_x + offs_d % X
    tl.store(cache_ptr + offs, x.to(cache_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _cache_turned(
    x_ptr, y_ptr, cache_ptr, cos_ptr, sin_ptr, row, scale, mask_turned, mask, mask_cached,
    stride_x, table_rows,
    NEOX: tl.constexpr, HALF: tl.constexpr, X: tl.constexpr, FP8_MAX: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A tile of heads into the cache, those of some tokens turned, and these to y_ptr as well."""
    a, b = load_turned(x_ptr, cos_ptr, sin_ptr, row, mask_turned, mask, table_rows, NEOX, HALF, BLOCK_P)
    if y_ptr is not None:
        store_pairs(y_ptr, a, b, mask & mask_turned, NEOX, HALF, BLOCK_P)
    if NEOX:
        offs_p = tl.arange(0, BLOCK_P)[None, None, :]
        mask_p = mask_cached & (offs_p < HALF)
        _store_elements(cache_ptr, offs_p, a, scale, mask_p, stride_x, X, FP8_MAX)
        _store_elements(cache_ptr, HALF + offs_p, b, scale, mask_p, stride_x, X, FP8_MAX)
    else:
        offs_d = tl.arange(0, 2 * BLOCK_P)[None, None, :]
        x = tl.join(a, b).reshape(a.shape[0], a.shape[1], 2 * BLOCK_P)
        _store_elements(cache_ptr, offs_d, x, scale, mask_cached & (offs_d < 2 * HALF), stride_x, X, FP8_MAX)


@triton.jit
def _cache_heads(
    x_ptr, y_ptr, cache_ptr, slots_ptr, positions_ptr, offsets_ptr, cos_ptr, sin_ptr, scale_ptr,
    stride_xt, stride_xh, stride_p, stride_cb, stride_cs, stride_ch, stride_cx,
    batch, pid_t, pid_h, tokens, turned, table_rows,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, NEOX: tl.constexpr,
    PAGES: tl.constexpr, PAGE_SIZE: tl.constexpr, X: tl.constexpr, FP8_MAX: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A tile of the heads of K or V into the cache, bit for bit unless there are angles or a scale."""
    offs_t, offs_h, mask_t, mask = head_tile(pid_t, pid_h, tokens, HEADS, BLOCK_T, BLOCK_H)
    page, place, exists = _places(slots_ptr, positions_ptr, batch, offs_t, mask_t, stride_p, PAGES, PAGE_SIZE)
    x_ptr += offs_t * stride_xt + offs_h * stride_xh
    if X > 1:
        stride_cs = X  # a constant, so that the compiler sees that groups are aligned
    cache_ptr += page * stride_cb + place * stride_cs + offs_h * stride_ch
    scale = 1.0 if scale_ptr is None else tl.load(scale_ptr).to(tl.float32)
    if cos_ptr is None:
        offs_d = tl.arange(0, 2 * BLOCK_P)[None, None, :]
        mask_d = offs_d < HEAD_DIM
        x = tl.load(x_ptr + offs_d, mask=mask & mask_d, other=0.0)
        _store_elements(cache_ptr, offs_d, x, scale, mask & exists & mask_d, stride_cx, X, FP8_MAX)
    else:
        if y_ptr is not None:
            y_ptr += (offs_t * HEADS + offs_h) * HEAD_DIM
        mask_turned = offs_t < turned
        row = table_rows_of(positions_ptr, offsets_ptr, offs_t, mask_turned, stride_p)
        _cache_turned(
            x_ptr, y_ptr, cache_ptr, cos_ptr, sin_ptr, row, scale, mask_turned, mask, mask & exists, stride_cx,
            table_rows, NEOX, HEAD_DIM // 2, X, FP8_MAX, BLOCK_P,
        )  # fmt: skip


@triton.jit
def kv_cache_kernel(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_out_ptr, k_cache_ptr, v_cache_ptr,
    slots_ptr, positions_ptr, offsets_ptr, cos_ptr, sin_ptr, k_scale_ptr, v_scale_ptr,
    stride_qb, stride_qt, stride_qh, stride_kb, stride_kt, stride_kh, stride_vb, stride_vt, stride_vh,
    stride_pb, stride_pt, stride_kcb, stride_kcs, stride_kch, stride_kcx,
    stride_vcb, stride_vcs, stride_vch, stride_vcx,
    tokens, turned,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, NEOX: tl.constexpr, TABLE_ROWS: tl.constexpr,
    PAGES: tl.constexpr, PAGE_SIZE: tl.constexpr, X: tl.constexpr, FP8_MAX: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK_H heads of Q, of K or of V, of BLOCK_T tokens of a sequence; the first `turned` are turned."""
    blocks, q_blocks, kv_blocks = tl.cdiv(tokens, BLOCK_T), tl.cdiv(Q_HEADS, BLOCK_H), tl.cdiv(KV_HEADS, BLOCK_H)
    batch, pid_t = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    pid_h = tl.program_id(1)
    if positions_ptr is not None:
        positions_ptr += batch * stride_pb
    if pid_h < q_blocks:
        if q_ptr is not None:
            _turn_queries(
                q_ptr + batch * stride_qb, q_out_ptr, cos_ptr, sin_ptr, positions_ptr, offsets_ptr,
                stride_qt, stride_qh, stride_pt, batch, pid_t, pid_h, turned, TABLE_ROWS,
                Q_HEADS, NEOX, HEAD_DIM // 2, BLOCK_T, BLOCK_H, BLOCK_P,
            )  # fmt: skip
    elif pid_h < q_blocks + kv_blocks:
        _cache_heads(
            k_ptr + batch * stride_kb, k_out_ptr, k_cache_ptr, slots_ptr, positions_ptr, offsets_ptr, cos_ptr, sin_ptr,
            k_scale_ptr, stride_kt, stride_kh, stride_pt, stride_kcb, stride_kcs, stride_kch, stride_kcx,
            batch, pid_t, pid_h - q_blocks, tokens, turned, TABLE_ROWS,
            KV_HEADS, HEAD_DIM, NEOX, PAGES, PAGE_SIZE, X, FP8_MAX, BLOCK_T, BLOCK_H, BLOCK_P,
        )  # fmt: skip
    else:
        _cache_heads(
            v_ptr + batch * stride_vb, None, v_cache_ptr, slots_ptr, positions_ptr, None, None, None, v_scale_ptr,
            stride_vt, stride_vh, stride_pt, stride_vcb, stride_vcs, stride_vch, stride_vcx,
            batch, pid_t, pid_h - q_blocks - kv_blocks, tokens, turned, TABLE_ROWS,
            KV_HEADS, HEAD_DIM, NEOX, PAGES, PAGE_SIZE, 1, FP8_MAX, BLOCK_T, BLOCK_H, BLOCK_P,
        )  # fmt: skip


@torch_op(lambda *_: None, mutates=("q_out", "k_out", "k_cache", "v_cache"))
def kv_cache_forward(
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    q_out: torch.Tensor | None,
    k_out: torch.Tensor | None,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor | None,
    positions: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    layout: str,
    style: str,
    offsets: torch.Tensor | None = None,
) -> None:
    """Write q_out, k_out and the caches. q, k, v: (B, S, heads, D), or with slots (T, heads, D); None is left out."""
    if slots is not None:
        q, k, v, positions = (None if x is None else x[None] for x in (q, k, v, positions))
    batch, tokens, kv_heads, head_dim = k.shape
    q_heads = 0 if q is None else q.shape[2]
    kinds = (q_heads, kv_heads, kv_heads) if q_heads else (kv_heads, kv_heads)
    (blocks_t, blocks_h), meta = launch.head_groups(tokens, kinds, head_dim, k, batch)
    fp8 = k_cache.dtype in FP8
    launch.run(
        kv_cache_kernel, (batch * blocks_t, blocks_h),
        q, k, v, q_out, k_out, k_cache, v_cache, slots, positions, offsets, cos, sin, k_scale, v_scale,
        *((0, 0, 0) if q is None else q.stride()[:3]), *k.stride()[:3], *v.stride()[:3],
        *((0, 0) if positions is None else positions.stride()), *cache_strides(k_cache, v_cache, layout),
        tokens, 0 if positions is None else positions.shape[1],
        Q_HEADS=q_heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, NEOX=style == "neox",
        TABLE_ROWS=0 if cos is None else len(cos),
        PAGES=len(k_cache), PAGE_SIZE=k_cache.shape[1 if layout == "flash" else 3],
        X=1 if layout == "flash" else k_cache.shape[4], FP8_MAX=torch.finfo(k_cache.dtype).max if fp8 else None,
        BLOCK_P=max(triton.next_power_of_2(head_dim) // 2, 1), **meta,
    )  # fmt: skip


def cache_strides(k_cache: torch.Tensor, v_cache: torch.Tensor, layout: str) -> tuple[int, ...]:
    """From page to page, place to place, head to head, and group to group of elements, for keys, then for values."""
    if layout == "flash":
        return *k_cache.stride(), *v_cache.stride()
    (k_page, k_head, k_group, k_place, _), (v_page, v_head, v_element, v_place) = k_cache.stride(), v_cache.stride()
    return k_page, k_place, k_head, k_group, v_page, v_place, v_head, v_element


@torch_op(lambda *_: None, mutates=("q_out", "k_out", "k_cache", "v_cache"))
def paged_kv_cache_reference(
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    q_out: torch.Tensor | None,
    k_out: torch.Tensor | None,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    layout: str,
    style: str,
    offsets: torch.Tensor | None = None,
) -> None:
    """The reference, writing what the kernel writes. An operator, since nobody can trace which slots it leaves out."""
    options = {"layout": layout, "k_scale": k_scale, "v_scale": v_scale, "style": style, "offsets": offsets}
    turned = reference.paged_kv_cache_update(q, k, v, k_cache, v_cache, slots, positions, cos, sin, **options)
    for out, result in zip((q_out, k_out), turned):
        if out is not None:
            out.copy_(result)


def _given(**tensors):
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _check_angles(k, cos, sin, style, positions, tokens):
    """Keys can be turned to these positions, or there are no angles."""
    check_style(style)
    if (cos is None) != (sin is None):
        raise ValueError("cos and sin belong together: give both, or neither for an update without RoPE")
    if cos is not None:
        checks.floating(k=k, cos=cos, sin=sin)
        check_turn(k.shape[-1], style, tokens, positions, cos=cos, sin=sin)


def _check_memory(caches, heads, turned, **index):
    """Nothing that is read is written, and no place twice; but one cache can hold keys that are the values as well."""
    (k_cache, v_cache), same = caches.values(), heads["k"] is heads["v"] and not turned
    written = {"k_cache": k_cache} if k_cache is v_cache and same else caches
    checks.apart(written, heads | index)


def check_scale(k: torch.Tensor, heads: int | None = None, **scale: float | torch.Tensor) -> None:
    """A number above 0, or a tensor of one on the device of k; or of one for each of so many heads.

    Raises:
        TypeError: neither a number nor a tensor of float32, float16 or bfloat16.
        ValueError: a tensor of another shape or on another device; where values are looked at, one not above 0.
    """
    ((name, value),) = scale.items()
    allowed = (
        "a tensor of one element" if heads is None else f"a tensor of one element or of {heads}, one for each head"
    )
    if isinstance(value, torch.Tensor):
        checks.floating(k=k, **scale)
        if value.numel() != 1 and value.shape != (heads,):
            raise ValueError(f"{name} must be a number or {allowed}, got shape {tuple(value.shape)}")
        if not checks.values_are_checked(value):
            return
    elif not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a float or {allowed}, got {type(value).__name__}")
    for number in value.flatten().tolist() if isinstance(value, torch.Tensor) else [value]:
        if not 0 < number < math.inf:
            raise ValueError(f"{name} must be finite and above 0, got {float(number)}")


def check_cache_dtype(
    x: dict[str, torch.Tensor],
    caches: dict[str, torch.Tensor],
    scales: dict[str, float | torch.Tensor | None],
    heads: int | None = None,
) -> None:
    """The caches hold the dtype of x; or fp8, and then there is a scale for each. All by the caller's names.

    Raises:
        TypeError: another dtype; scales without fp8, or fp8 without scales.
        ValueError: another device; a scale of another shape or not above 0; an fp8 type that the GPU lacks.
    """
    checks.are_tensors(**caches)
    checks.same_device(**x, **caches)
    checks.same_dtype(**caches)
    ((_, k),), dtype = x.items(), next(iter(caches.values())).dtype
    if dtype not in FP8:
        checks.same_dtype(**x, **caches)
        for name in _given(**scales):
            raise TypeError(f"{name} belongs to a cache of fp8, got one of {dtype}; leave it away")
        return
    checked_dtype(k, dtype)
    for name, scale in scales.items():
        if scale is None:
            raise TypeError(f"a cache of {dtype} needs {name}, a number or a tensor; 1.0 leaves what it holds as it is")
        check_scale(k, heads, **{name: scale})


def check_layout(layout: str) -> None:
    """`layout` is one of LAYOUTS.

    Raises:
        ValueError: it is not.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}; got {layout!r}")


def check_pages(kv_heads: int, head_dim: int, k_cache: torch.Tensor, v_cache: torch.Tensor, layout: str) -> int:
    """Caches of this layout for so many heads of this width. Returns how many slots they have.

    Raises:
        ValueError: another shape, or strides that no kernel walks along.
    """
    if layout == "flash":
        checks.rank(4, "(num_blocks, block_size, KH, D)", k_cache=k_cache, v_cache=v_cache)
        pages, page_size = k_cache.shape[:2]
        checks.shape((pages, page_size, kv_heads, head_dim), k_cache=k_cache, v_cache=v_cache)
        checks.unit_stride(v_cache=v_cache)
    else:
        x = launch.VECTOR_BYTES // k_cache.itemsize
        if head_dim % x:
            raise ValueError(f"layout 'packed' needs a head width that is a multiple of {x}, 16 bytes; got {head_dim}")
        checks.rank(5, f"(num_blocks, KH, D / {x}, block_size, {x})", k_cache=k_cache)
        pages, page_size = k_cache.shape[0], k_cache.shape[3]
        checks.shape((pages, kv_heads, head_dim // x, page_size, x), k_cache=k_cache)
        checks.shape((pages, kv_heads, head_dim, page_size), v_cache=v_cache)
        checks.contiguous(k_cache=k_cache[:1, :1, :1])  # the groups of a page's keys follow each other
    checks.unit_stride(k_cache=k_cache)
    return pages * page_size


@partial(remembered, writes=("k_cache", "v_cache"))
def kv_cache_update(
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    *,
    style: str = "neox",
) -> torch.Tensor | None:
    """Write k, turned, and v to their positions in the caches, in place; turn q. No gradient flows to any.

    Args:
        q: (B, S, QH, D), or None; float32, float16 or bfloat16; unit stride along a head, any others.
        k, v: (B, S, KH, D), the dtype of q.
        k_cache, v_cache: (B, S_max, KH, D), the dtype of k; unit stride along a head, any others. Written: k_cache[b,
            positions[b, s]] and v_cache[b, positions[b, s]]; where positions of a sequence repeat, by one of them.
        positions: (B, S), int32 or int64, any strides.
        cos, sin: (P, D / 2), as from `rope_tables`; any of the three dtypes, contiguous. None: nothing is turned.
        style: "neox" pairs i with i + D / 2, "gptj" 2i with 2i + 1.

    Returns:
        q, turned: shape and dtype of q, contiguous. Without cos and sin q itself; None for None.

    Raises:
        TypeError: another dtype, or several.
        ValueError: shapes, devices or strides that do not fit, an unknown style, cos without sin, a cache whose
            elements share memory with each other or with another argument, or a tensor that requires grad; on the CPU,
            and on a GPU with COURSE_KERNELS_CHECKS=1, a negative position, or one past the caches or the tables
            (elsewhere nothing is written for a token past the caches, and one past the tables becomes NaN).
    """
    heads, caches = _given(q=q, k=k, v=v), {"k_cache": k_cache, "v_cache": v_cache}
    checks.floating(**heads, **caches)
    checks.not_differentiable(**heads, **caches)
    checks.same_dtype(**heads, **caches)
    checks.rank(4, "(B, S, heads, D)", **heads)
    checks.rank(4, "(B, S_max, KH, D)", **caches)
    batch, seq_len, kv_heads, head_dim = k.shape
    checks.shape(tuple(k.shape), v=v)
    checks.shape((batch, k_cache.shape[1], kv_heads, head_dim), **caches)
    checks.unit_stride(**heads, **caches)
    checks.no_overlap(**caches)
    checks.integers(positions=positions)
    checks.same_device(k=k, positions=positions)
    checks.shape((batch, seq_len), positions=positions)
    if q is not None:
        checks.shape((batch, seq_len, q.shape[2], head_dim), q=q)
    checks.below(k_cache.shape[1], "the places of the cache", positions=positions)
    _check_angles(k, cos, sin, style, positions, (batch, seq_len))
    _check_memory(caches, heads, cos is not None, positions=positions)
    if k.numel() == 0 or not uses_triton(k):
        return reference.kv_cache_update(q, k, v, k_cache, v_cache, positions, cos, sin, style=style)
    turned_q = None if cos is None else q
    q_out = None if turned_q is None else q.new_empty(q.shape)
    kv_cache_forward(
        turned_q, k, v, q_out, None, k_cache, v_cache, None, positions, cos, sin, None, None, "flash", style
    )  # fmt: skip
    return q if cos is None else q_out


@partial(remembered, writes=("k_cache", "v_cache"))
def paged_kv_cache_update(
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    positions: torch.Tensor | None = None,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    *,
    layout: str = "flash",
    k_scale: float | torch.Tensor | None = None,
    v_scale: float | torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    style: str = "neox",
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Write k, turned, and v to their slots in paged caches, in place; turn q. No gradient flows to any.

    Args:
        q: (T, QH, D), or None; float32, float16 or bfloat16; unit stride along a head, any others.
        k, v: (T_slot, KH, D), T_slot at least T, the dtype of q. Rows from T on are cached as they are.
        k_cache, v_cache: `flash` both (num_blocks, block_size, KH, D); `packed` (num_blocks, KH, D / x, block_size, x)
            and (num_blocks, KH, D, block_size), x elements of the cache being 16 bytes. The dtype of k, or an fp8 type,
            on a GPU that GPU's (`fp8_dtype`). Unit stride along the last dimension, except for `packed` values.
        slot_mapping: (T_slot,), int32 or int64, contiguous: row t goes to place slot % block_size of block slot //
            block_size; below 0, nowhere. Where slots repeat, one of their rows is written.
        positions: (T,), int32 or int64: the row of cos and sin for each turned token. None without these: T = T_slot.
        cos, sin: (P, D / 2), as from `rope_tables`; any of the three dtypes, contiguous. None: nothing is turned.
        layout: "flash" or "packed".
        k_scale, v_scale: of an fp8 cache, which holds round(clamp(k / k_scale)): above 0; each a number, or a tensor of
            one element in one of the three dtypes, which saves a launch.
        offsets: (T,), int32 or int64, contiguous: added to the positions, which the slots do not depend on.
        style: "neox" pairs i with i + D / 2, "gptj" 2i with 2i + 1.

    Returns:
        (q_out, k_out): q and the first T rows of k, turned, contiguous. Without cos and sin q itself and a view of k;
        None for a q of None.

    Raises:
        TypeError: another dtype; a cache of neither k's dtype nor fp8; fp8 without scales, or scales without fp8.
        ValueError: shapes, devices or strides that do not fit, an unknown layout or style, cos without sin, a cache
            whose elements share memory with each other or with another argument, a scale not above 0, an fp8 type that
            the GPU lacks, or a tensor that requires grad; on the CPU, and on a GPU with COURSE_KERNELS_CHECKS=1, a slot
            past the caches, a negative position or one past the tables (elsewhere nothing is written for that slot, and
            that token becomes NaN).
    """
    heads = _given(q=q, k=k, v=v)
    check_layout(layout)
    checks.floating(**heads)
    checks.same_dtype(**heads)
    checks.rank(3, "(T, heads, D)", **heads)
    checks.shape(tuple(k.shape), v=v)
    caches = {"k_cache": k_cache, "v_cache": v_cache}
    check_cache_dtype({"k": k}, caches, {"k_scale": k_scale, "v_scale": v_scale})
    slots = check_pages(*k.shape[1:], k_cache, v_cache, layout)
    checks.no_overlap(**caches)
    checks.not_differentiable(**heads, **caches)
    checks.unit_stride(**heads)
    _check_index(q, k, slot_mapping, positions)
    _check_offsets(cos, positions, offsets)
    checks.below(slots, "the slots of the cache", least=None, slot_mapping=slot_mapping)
    rows = positions + offsets if offsets is not None and checks.values_are_checked(offsets) else positions
    _check_angles(k, cos, sin, style, rows, None if positions is None else tuple(positions.shape))
    _check_memory(caches, heads, cos is not None, slot_mapping=slot_mapping, positions=positions)
    turned_q = None if cos is None else q
    q_out = None if turned_q is None else q.new_empty(q.shape)
    k_out = None if cos is None else k.new_empty((len(positions), *k.shape[1:]))
    scales = (scale if scale is None else scale_tensor(scale, k.device) for scale in (k_scale, v_scale))
    empty = k.numel() == 0 or k_cache.numel() == 0
    update = paged_kv_cache_reference if empty or not runs_kernel(k, k_cache.dtype) else kv_cache_forward
    update(
        turned_q, k, v, q_out, k_out, k_cache, v_cache, slot_mapping, positions, cos, sin, *scales, layout,
        style, offsets,
    )  # fmt: skip
    if cos is None:
        return q, k if positions is None else k[: len(positions)]
    return q_out, k_out


def scale_tensor(scale: float | torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of one element; a number is written on the device, which waits for nothing."""
    if isinstance(scale, torch.Tensor):
        return scale
    return torch.full((1,), float(scale), dtype=torch.float32, device=device)


def _check_offsets(cos, positions, offsets):
    """One for each position, where there are angles."""
    if offsets is None:
        return
    checks.integers(offsets=offsets)
    if cos is None or positions is None:
        raise ValueError("offsets are added to the positions of turned tokens; give positions, cos and sin as well")
    checks.same_device(positions=positions, offsets=offsets)
    checks.shape(tuple(positions.shape), offsets=offsets)
    checks.contiguous(offsets=offsets)


def _check_index(q, k, slot_mapping, positions):
    """A slot for each row of k; a position for each row of q, and as many or fewer."""
    checks.integers(slot_mapping=slot_mapping)
    checks.same_device(k=k, slot_mapping=slot_mapping)
    checks.shape((len(k),), slot_mapping=slot_mapping)
    checks.contiguous(slot_mapping=slot_mapping)
    tokens = len(k)
    if positions is not None:
        checks.integers(positions=positions)
        checks.same_device(k=k, positions=positions)
        checks.rank(1, "(T,)", positions=positions)
        tokens = len(positions)
        if tokens > len(k):
            raise ValueError(f"positions has {tokens} elements but k only {len(k)} rows; at most one for each row")
    if q is not None:
        checks.shape((tokens, q.shape[1], k.shape[2]), q=q)
