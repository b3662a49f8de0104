"""Right answers of lesson 07, written differently from the solutions."""

# ruff: noqa


# %% 7.1 | one program a head
@triton.jit
def append_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, positions_ptr, stride_kt, stride_vt, WIDTH, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < WIDTH
    position = tl.load(positions_ptr + token).to(tl.int64)
    tl.store(k_cache_ptr + position * WIDTH + cols, tl.load(k_ptr + token * stride_kt + cols, mask=mask), mask=mask)
    tl.store(v_cache_ptr + position * WIDTH + cols, tl.load(v_ptr + token * stride_vt + cols, mask=mask), mask=mask)


def append_kv(k, v, k_cache, v_cache, positions):
    T, KH, D = k.shape
    append_kernel[(T, triton.cdiv(KH * D, 32))](
        k, v, k_cache, v_cache, positions, k.stride(0), v.stride(0), KH * D, BLOCK=32
    )


# %% 7.1 | columns in blocks, keys and values by an axis of the grid
@triton.jit
def append_kernel(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, positions_ptr, sk, sv, WIDTH, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    to = tl.load(positions_ptr + token) * WIDTH + cols
    if tl.program_id(2) == 0:
        tl.store(k_cache_ptr + to, tl.load(k_ptr + token * sk + cols, mask=cols < WIDTH), mask=cols < WIDTH)
    else:
        tl.store(v_cache_ptr + to, tl.load(v_ptr + token * sv + cols, mask=cols < WIDTH), mask=cols < WIDTH)


def append_kv(k, v, k_cache, v_cache, positions):
    T, KH, D = k.shape
    grid = (T, triton.cdiv(KH * D, 32), 2)
    append_kernel[grid](k, v, k_cache, v_cache, positions, k.stride(0), v.stride(0), KH * D, BLOCK=32)


# %% 7.1 | a second axis of the grid for the values, several tokens a program
@triton.jit
def _move(x_ptr, cache_ptr, positions_ptr, stride, T, WIDTH, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)[None, :]
    to = tl.load(positions_ptr + t, mask=t < T, other=0)
    mask = (t < T)[:, None] & (c < WIDTH)
    x = tl.load(x_ptr + t[:, None] * stride + c, mask=mask)
    tl.store(cache_ptr + to[:, None] * WIDTH + c, x, mask=mask)


@triton.jit
def append_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, at_ptr, sk, sv, T, W, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    if tl.program_id(1) == 0:
        _move(k_ptr, k_cache_ptr, at_ptr, sk, T, W, ROWS, BLOCK)
    else:
        _move(v_ptr, v_cache_ptr, at_ptr, sv, T, W, ROWS, BLOCK)


def append_kv(k, v, k_cache, v_cache, positions):
    T, KH, D = k.shape
    width = KH * D
    grid = (triton.cdiv(T, 4), 2)
    strides = k.stride(0), v.stride(0)
    append_kernel[grid](k, v, k_cache, v_cache, positions, *strides, T, width, 4, triton.next_power_of_2(width))


# %% 7.2 | early return for padding
@triton.jit
def pages_kernel(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, stride_page, PAGE, WIDTH, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot < 0:
        return
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    to = (slot // PAGE) * stride_page + (slot % PAGE) * WIDTH + cols
    tl.store(k_cache_ptr + to, tl.load(k_ptr + token * WIDTH + cols, mask=mask), mask=mask)
    tl.store(v_cache_ptr + to, tl.load(v_ptr + token * WIDTH + cols, mask=mask), mask=mask)


def write_pages(k, v, k_cache, v_cache, slot_mapping):
    T, KH, D = k.shape
    pages_kernel[(T,)](
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping,
        k_cache.stride(0),
        k_cache.shape[1],
        KH * D,
        BLOCK=triton.next_power_of_2(KH * D),
    )


# %% 7.2 | if around the stores, a helper
@triton.jit
def copy_row(from_ptr, to_ptr, WIDTH, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(to_ptr + cols, tl.load(from_ptr + cols, mask=cols < WIDTH, other=0.0), mask=cols < WIDTH)


@triton.jit
def pages_kernel(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, stride_page, PAGE, WIDTH, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        offs = (slot // PAGE) * stride_page + (slot % PAGE) * WIDTH
        copy_row(k_ptr + token * WIDTH, k_cache_ptr + offs, WIDTH, BLOCK)
        copy_row(v_ptr + token * WIDTH, v_cache_ptr + offs, WIDTH, BLOCK)


def write_pages(k, v, k_cache, v_cache, slot_mapping):
    T, KH, D = k.shape
    block = triton.next_power_of_2(KH * D)
    pages_kernel[(T,)](k, v, k_cache, v_cache, slot_mapping, k_cache.stride(0), k_cache.shape[1], KH * D, BLOCK=block)


# %% 7.2 | the slot clamped for the address, masked for the store
@triton.jit
def pages_kernel(
    k_ptr, v_ptr, kc_ptr, vc_ptr, slots_ptr, stride_page, T, PAGE, WIDTH, R: tl.constexpr, BLOCK: tl.constexpr
):
    t = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    slot = tl.load(slots_ptr + t, mask=t < T, other=-1)
    safe = tl.maximum(slot, 0)
    c = tl.arange(0, BLOCK)[None, :]
    mask = (slot >= 0)[:, None] & (c < WIDTH)
    at = (safe // PAGE * stride_page + safe % PAGE * WIDTH)[:, None] + c
    tl.store(kc_ptr + at, tl.load(k_ptr + t[:, None] * WIDTH + c, mask=mask), mask=mask)
    tl.store(vc_ptr + at, tl.load(v_ptr + t[:, None] * WIDTH + c, mask=mask), mask=mask)


def write_pages(k, v, k_cache, v_cache, slot_mapping):
    T, KH, D = k.shape
    page, width = k_cache.shape[1], KH * D
    block = triton.next_power_of_2(width)
    grid = (triton.cdiv(T, 2),)
    pages_kernel[grid](k, v, k_cache, v_cache, slot_mapping, k_cache.stride(0), T, page, width, R=2, BLOCK=block)


# %% 7.3 | pointers chosen, one turn with an angle of zero for values
@triton.jit
def turned_store(x_ptr, out_ptr, cos, sin, exists, HALF: tl.constexpr):
    i = tl.arange(0, HALF)
    a, b = tl.load(x_ptr + i), tl.load(x_ptr + HALF + i)
    u, w = a.to(tl.float32), b.to(tl.float32)
    one, two = u * cos - w * sin, w * cos + u * sin
    if exists:
        tl.store(out_ptr + i, one.to(out_ptr.dtype.element_ty))
        tl.store(out_ptr + HALF + i, two.to(out_ptr.dtype.element_ty))


@triton.jit
def rope_cache_kernel(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, positions_ptr, cos_ptr, sin_ptr,
    stride_qt, stride_kt, stride_vt, QH: tl.constexpr, KH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    i = tl.arange(0, HALF)
    at = tl.load(positions_ptr + token) * HALF + i
    cos, sin = tl.load(cos_ptr + at), tl.load(sin_ptr + at)
    for h in range(QH):
        turned_store(
            q_ptr + token * stride_qt + h * 2 * HALF, q_out_ptr + (token * QH + h) * 2 * HALF, cos, sin, True, HALF
        )
    for h in range(KH):
        turned_store(
            k_ptr + token * stride_kt + h * 2 * HALF,
            k_cache_ptr + (slot * KH + h) * 2 * HALF,
            cos,
            sin,
            slot >= 0,
            HALF,
        )
        e = tl.arange(0, 2 * HALF)
        v = tl.load(v_ptr + token * stride_vt + h * 2 * HALF + e)
        tl.store(v_cache_ptr + (slot * KH + h) * 2 * HALF + e, v, mask=(e >= 0) & (slot >= 0))


def rope_and_cache(q, k, v, k_cache, v_cache, slot_mapping, positions, cos, sin):
    (T, QH, D), KH = q.shape, k.shape[1]
    q_out = torch.empty((T, QH, D), dtype=q.dtype, device=q.device)
    strides = q.stride(0), k.stride(0), v.stride(0)
    rope_cache_kernel[(T,)](
        q, k, v, q_out, k_cache, v_cache, slot_mapping, positions, cos, sin, *strides, QH=QH, KH=KH, HALF=D // 2
    )
    return q_out


# %% 7.3 | all heads of a token in one tile, a launch of one kernel
@triton.jit
def rope_cache_kernel(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, positions_ptr, cos_ptr, sin_ptr,
    stride_qt, stride_kt, stride_vt, QH: tl.constexpr, KH: tl.constexpr, HALF: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    position = tl.load(positions_ptr + token)
    h, i = tl.arange(0, BH)[:, None], tl.arange(0, HALF)[None, :]
    cos, sin = tl.load(cos_ptr + position * HALF + i), tl.load(sin_ptr + position * HALF + i)
    at, in_q = h * 2 * HALF + i, (h < QH) & (i < HALF)
    a = tl.load(q_ptr + token * stride_qt + at, mask=in_q, other=0.0).to(tl.float32)
    b = tl.load(q_ptr + token * stride_qt + at + HALF, mask=in_q, other=0.0).to(tl.float32)
    out = q_out_ptr + token * QH * 2 * HALF + at
    tl.store(out, (a * cos - b * sin).to(q_out_ptr.dtype.element_ty), mask=in_q)
    tl.store(out + HALF, (b * cos + a * sin).to(q_out_ptr.dtype.element_ty), mask=in_q)
    in_k = (h < KH) & (i < HALF) & (slot >= 0)
    a = tl.load(k_ptr + token * stride_kt + at, mask=in_k, other=0.0).to(tl.float32)
    b = tl.load(k_ptr + token * stride_kt + at + HALF, mask=in_k, other=0.0).to(tl.float32)
    to = slot * KH * 2 * HALF + at
    tl.store(k_cache_ptr + to, (a * cos - b * sin).to(k_cache_ptr.dtype.element_ty), mask=in_k)
    tl.store(k_cache_ptr + to + HALF, (b * cos + a * sin).to(k_cache_ptr.dtype.element_ty), mask=in_k)
    tl.store(v_cache_ptr + to, tl.load(v_ptr + token * stride_vt + at, mask=in_k), mask=in_k)
    tl.store(v_cache_ptr + to + HALF, tl.load(v_ptr + token * stride_vt + at + HALF, mask=in_k), mask=in_k)


def rope_and_cache(q, k, v, k_cache, v_cache, slot_mapping, positions, cos, sin):
    (T, QH, D), KH = q.shape, k.shape[1]
    q_out = torch.empty((T, QH, D), dtype=q.dtype, device=q.device)
    strides = q.stride(0), k.stride(0), v.stride(0)
    sizes = {"QH": QH, "KH": KH, "HALF": D // 2, "BH": triton.next_power_of_2(max(QH, KH))}
    rope_cache_kernel[(T,)](q, k, v, q_out, k_cache, v_cache, slot_mapping, positions, cos, sin, *strides, **sizes)
    return q_out


# %% 7.4 | one page after the other, two walks
@triton.jit
def decode_kernel(
    q_ptr, kc_ptr, vc_ptr, table_ptr, lens_ptr, o_ptr, stb, scale, QH, KH, PAGE, D: tl.constexpr, BN: tl.constexpr
):
    b, h = tl.program_id(1).to(tl.int64), tl.program_id(0)
    g = h // (QH // KH)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (b * QH + h) * D + d).to(tl.float32)
    length = tl.load(lens_ptr + b)
    top = -float("inf")
    for start in range(0, length, BN):
        j = start + tl.arange(0, BN)
        page = tl.load(table_ptr + b * stb + j // PAGE, mask=j < length, other=0).to(tl.int64)
        at = ((page * PAGE + j % PAGE) * KH + g)[:, None] * D + d[None, :]
        k = tl.load(kc_ptr + at, mask=(j < length)[:, None], other=0.0).to(tl.float32)
        s = tl.where(j < length, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        top = tl.maximum(top, tl.max(s, axis=0))
    total = 0.0
    acc = tl.zeros((D,), tl.float32)
    for start in range(0, length, BN):
        j = start + tl.arange(0, BN)
        page = tl.load(table_ptr + b * stb + j // PAGE, mask=j < length, other=0).to(tl.int64)
        at = ((page * PAGE + j % PAGE) * KH + g)[:, None] * D + d[None, :]
        k = tl.load(kc_ptr + at, mask=(j < length)[:, None], other=0.0).to(tl.float32)
        v = tl.load(vc_ptr + at, mask=(j < length)[:, None], other=0.0).to(tl.float32)
        p = tl.where(j < length, tl.exp(tl.sum(k * q[None, :], axis=1) * scale - top), 0.0)
        total += tl.sum(p, axis=0)
        acc += tl.sum(p[:, None] * v, axis=0)
    o = tl.where(total > 0, acc / total, 0.0)
    tl.store(o_ptr + (b * QH + h) * D + d, o.to(o_ptr.dtype.element_ty))


def paged_decode_attention(q, k_cache, v_cache, block_table, seq_lens):
    (B, QH, D), (PAGE, KH) = q.shape, k_cache.shape[1:3]
    o = torch.empty((B, QH, D), dtype=q.dtype, device=q.device)
    decode_kernel[(QH, B)](
        q, k_cache, v_cache, block_table, seq_lens, o, block_table.stride(0), D**-0.5, QH, KH, PAGE, D=D, BN=32
    )
    return o


# %% 7.4 | an early return for empty sequences
@triton.jit
def decode_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, table_ptr, lens_ptr, o_ptr, stride_tb, scale, QH, KH, PAGE,
    D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kv_head = head // (QH // KH)
    d = tl.arange(0, D)
    out = o_ptr + (sequence * QH + head) * D + d
    length = tl.load(lens_ptr + sequence)
    if length == 0:
        tl.store(out, tl.zeros((D,), o_ptr.dtype.element_ty))
        return
    q = tl.load(q_ptr + (sequence * QH + head) * D + d).to(tl.float32)
    row_max, row_sum, acc = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for start in range(0, length, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        exists = j < length
        page = tl.load(table_ptr + sequence * stride_tb + j // PAGE, mask=exists, other=0).to(tl.int64)
        row = ((page * PAGE + j % PAGE) * KH + kv_head)[:, None] * D + d[None, :]
        k = tl.load(k_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_cache_ptr + row, mask=exists[:, None], other=0.0).to(tl.float32)
        scores = tl.where(exists, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=0))
        p, rescale = tl.exp2(scores - new_max), tl.exp2(row_max - new_max)
        row_sum, row_max = row_sum * rescale + tl.sum(p, axis=0), new_max
        acc = acc * rescale + tl.sum(p[:, None] * v, axis=0)
    tl.store(out, (acc / row_sum).to(o_ptr.dtype.element_ty))


def paged_decode_attention(q, k_cache, v_cache, block_table, seq_lens):
    (B, QH, D), (PAGE, KH) = q.shape, k_cache.shape[1:3]
    o = torch.empty((B, QH, D), dtype=q.dtype, device=q.device)
    scale = math.log2(math.e) / math.sqrt(D)
    decode_kernel[(B, QH)](
        q, k_cache, v_cache, block_table, seq_lens, o, block_table.stride(0), scale, QH, KH, PAGE, D=D, BLOCK_N=16
    )
    return o


# %% 7.5 | a loop over the parts
@triton.jit
def merge_kernel(parts_ptr, lse_ptr, out_ptr, S, D, BLOCK_D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    top = float("-inf")
    for s in range(S):
        top = tl.maximum(top, tl.load(lse_ptr + row * S + s))
    top = tl.where(top == float("-inf"), 0.0, top)
    total, acc = 0.0, tl.zeros((BLOCK_D,), tl.float32)
    for s in range(S):
        weight = tl.exp2(tl.load(lse_ptr + row * S + s) - top)
        total += weight
        acc += weight * tl.load(parts_ptr + (row * S + s) * D + d, mask=d < D, other=0.0).to(tl.float32)
    out = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * D + d, out.to(out_ptr.dtype.element_ty), mask=d < D)


def merge_parts(parts, lse):
    rows, S, D = parts.shape
    out = torch.empty((rows, D), dtype=parts.dtype, device=parts.device)
    merge_kernel[(rows,)](parts, lse, out, S, D, BLOCK_D=triton.next_power_of_2(D))
    return out


# %% 7.5 | an online merge, part by part
@triton.jit
def merge_kernel(parts_ptr, lse_ptr, out_ptr, S, D, BLOCK_D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    top, total, acc = -float("inf"), 0.0, tl.zeros((BLOCK_D,), tl.float32)
    for s in range(S):
        lse = tl.load(lse_ptr + row * S + s)
        if lse > -float("inf"):
            new = tl.maximum(top, lse)
            x = tl.load(parts_ptr + (row * S + s) * D + d, mask=d < D, other=0.0).to(tl.float32)
            acc = acc * tl.exp2(top - new) + x * tl.exp2(lse - new)
            total = total * tl.exp2(top - new) + tl.exp2(lse - new)
            top = new
    out = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * D + d, out.to(out_ptr.dtype.element_ty), mask=d < D)


def merge_parts(parts, lse):
    rows, S, D = parts.shape
    out = torch.empty((rows, D), dtype=parts.dtype, device=parts.device)
    merge_kernel[(rows, triton.cdiv(D, 32))](parts, lse, out, S, D, BLOCK_D=32)
    return out


# %% 7.5 | the weights of all parts first, several rows a program
@triton.jit
def merge_kernel(
    parts_ptr, lse_ptr, out_ptr, rows, S, D, R: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    real = (r < rows)[:, None] & (s < S)[None, :]
    lse = tl.load(lse_ptr + r[:, None] * S + s[None, :], mask=real, other=-float("inf"))
    top = tl.max(lse, axis=1)
    top = tl.where(top == -float("inf"), 0.0, top)
    w = tl.exp2(lse - top[:, None])
    total = tl.sum(w, axis=1)
    at = (r[:, None, None] * S + s[None, :, None]) * D + d[None, None, :]
    x = tl.load(parts_ptr + at, mask=real[:, :, None] & (d < D)[None, None, :], other=0.0).to(tl.float32)
    out = tl.sum(x * w[:, :, None], axis=1) / tl.maximum(total, 1e-30)[:, None]
    mask = (r < rows)[:, None] & (d < D)[None, :]
    tl.store(out_ptr + r[:, None] * D + d[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


def merge_parts(parts, lse):
    rows, S, D = parts.shape
    out = torch.empty((rows, D), dtype=parts.dtype, device=parts.device)
    blocks = {"R": 2, "BLOCK_S": triton.next_power_of_2(S), "BLOCK_D": triton.next_power_of_2(D)}
    merge_kernel[(triton.cdiv(rows, 2),)](parts, lse, out, rows, S, D, **blocks)
    return out


# %% 7.6 | one head a program
@triton.jit
def pack_kernel(k_ptr, c_ptr, slots_ptr, scale, KH, D, PAGE, X: tl.constexpr, TOP: tl.constexpr, BLOCK: tl.constexpr):
    token, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots_ptr + token)
    if slot < 0:
        return
    d = tl.arange(0, BLOCK)
    y = tl.load(k_ptr + (token * KH + h) * D + d, mask=d < D, other=0.0).to(tl.float32) / scale
    y = tl.minimum(tl.maximum(y, -TOP), TOP)
    pieces = D // X
    at = (((slot // PAGE) * KH + h) * pieces + d // X) * PAGE * X + (slot % PAGE) * X + d % X
    tl.store(c_ptr + at, y.to(c_ptr.dtype.element_ty), mask=d < D)


def pack_keys(k, k_cache, slot_mapping, scale):
    T, KH, D = k.shape
    PAGE, X = k_cache.shape[3:]
    top = torch.finfo(k_cache.dtype).max
    pack_kernel[(T, KH)](k, k_cache, slot_mapping, scale, KH, D, PAGE, X=X, TOP=top, BLOCK=triton.next_power_of_2(D))


# %% 7.6 | a tile of heads, pieces and places in a piece
@triton.jit
def pack_kernel(
    k_ptr, c_ptr, slots_ptr, scale, KH, D, PAGE, X: tl.constexpr, TOP: tl.constexpr, BH: tl.constexpr, BP: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    h = tl.arange(0, BH)[:, None, None]
    p = tl.arange(0, BP)[None, :, None]
    x = tl.arange(0, X)[None, None, :]
    pieces = D // X
    mask = (h < KH) & (p < pieces) & (x < X) & (slot >= 0)
    k = tl.load(k_ptr + (token * KH + h) * D + p * X + x, mask=mask, other=0.0).to(tl.float32)
    y = tl.clamp(k / scale, -TOP, TOP)
    page, place = slot // PAGE, slot - slot // PAGE * PAGE
    tl.store(c_ptr + (((page * KH + h) * pieces + p) * PAGE + place) * X + x, y.to(c_ptr.dtype.element_ty), mask=mask)


def pack_keys(k, k_cache, slot_mapping, scale):
    T, KH, D = k.shape
    PAGE, X = k_cache.shape[3:]
    sizes = {"X": X, "BH": triton.next_power_of_2(KH), "BP": triton.next_power_of_2(D // X)}
    pack_kernel[(T,)](k, k_cache, slot_mapping, scale, KH, D, PAGE, TOP=torch.finfo(k_cache.dtype).max, **sizes)


# %% 7.a | the row is copied in pieces of 64, so the block does not grow with it
@triton.jit
def store_rows_kernel(x_ptr, cache_ptr, places_ptr, N, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    to = cache_ptr + tl.load(places_ptr + row).to(tl.int64) * N
    from_ = x_ptr + row * N
    for start in range(0, N, PIECE):
        c = start + tl.arange(0, PIECE)
        tl.store(to + c, tl.load(from_ + c, mask=c < N), mask=c < N)


def store_rows(x, cache, places):
    rows, N = x.shape
    store_rows_kernel[(rows,)](x, cache, places, N, PIECE=64)


# %% 7.b | the slot is the token's number moved by as many pages as its page of the cache is away from its page ...
@triton.jit
def slots_kernel(tokens_ptr, table_ptr, slots_ptr, n, PAGE, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    token = tl.load(tokens_ptr + i, mask=live, other=0).to(tl.int64)
    nth = token // PAGE
    page = tl.load(table_ptr + nth, mask=live, other=0).to(tl.int64)
    slot = token + (page - nth) * PAGE
    tl.store(slots_ptr + i, slot.to(slots_ptr.dtype.element_ty), mask=live)


def slots_of(tokens, table, page):
    slots = torch.empty_like(tokens)
    n = tokens.numel()
    slots_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](tokens, table, slots, n, PAGE=page, BLOCK=16)
    return slots


# %% 7.1 | a device function copies a row in pieces of 128, and the kernel calls it twice, for the key and for ...
@triton.jit
def copy_row(source, target, WIDTH, PIECE: tl.constexpr):
    for start in range(0, WIDTH, PIECE):
        c = start + tl.arange(0, PIECE)
        tl.store(target + c, tl.load(source + c, mask=c < WIDTH), mask=c < WIDTH)


@triton.jit
def append_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, positions_ptr, stride_kt, stride_vt, WIDTH, PIECE: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    place = tl.load(positions_ptr + token) * WIDTH
    copy_row(k_ptr + token * stride_kt, k_cache_ptr + place, WIDTH, PIECE)
    copy_row(v_ptr + token * stride_vt, v_cache_ptr + place, WIDTH, PIECE)


def append_kv(k, v, k_cache, v_cache, positions):
    T, KH, D = k.shape
    append_kernel[(T,)](
        k_ptr=k, v_ptr=v, k_cache_ptr=k_cache, v_cache_ptr=v_cache, positions_ptr=positions,
        stride_kt=k.stride(0), stride_vt=v.stride(0), WIDTH=KH * D, PIECE=128,
    )  # fmt: skip


# %% 7.2 | a program takes four tokens as a block of two dimensions, tokens past the end are given slot -1, and ...
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["WIDTH"])})
@triton.jit
def pages_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, stride_page, T, PAGE, WIDTH,
    TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    slot = tl.load(slots_ptr + t, mask=t < T, other=-1)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    live = (slot >= 0) & (c < WIDTH)
    from_ = t[:, None] * WIDTH + c
    to = slot // PAGE * stride_page + slot % PAGE * WIDTH + c
    tl.store(k_cache_ptr + to, tl.load(k_ptr + from_, mask=live, other=0.0), mask=live)
    tl.store(v_cache_ptr + to, tl.load(v_ptr + from_, mask=live, other=0.0), mask=live)


def write_pages(k, v, k_cache, v_cache, slot_mapping):
    T, KH, D = k.shape
    width = KH * D
    pages_kernel[(triton.cdiv(T, 4),)](
        k, v, k_cache, v_cache, slot_mapping, k_cache.stride(0), T, k_cache.shape[1], width, TOKENS=4
    )  # fmt: skip


# %% 7.3 | a head is one block of D numbers, and each number loads its partner at d ^ HALF
@triton.jit
def move_head(x_ptr, out_ptr, cos_ptr, sin_ptr, position, exists, HALF: tl.constexpr, TURN: tl.constexpr):
    """One head from x_ptr to out_ptr, turned if TURN says so; stored only where `exists` is true."""
    d = tl.arange(0, 2 * HALF)
    number = tl.load(x_ptr + d).to(tl.float32)
    if TURN:
        partner = tl.load(x_ptr + (d ^ HALF)).to(tl.float32)
        angle = position * HALF + d % HALF
        cos, sin = tl.load(cos_ptr + angle), tl.load(sin_ptr + angle)
        number = number * cos + tl.where(d < HALF, -partner, partner) * sin
    if exists:
        tl.store(out_ptr + d, number.to(out_ptr.dtype.element_ty))


@triton.jit
def rope_cache_kernel(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_cache_ptr, v_cache_ptr, slots_ptr, positions_ptr, cos_ptr, sin_ptr,
    stride_qt, stride_kt, stride_vt, QH: tl.constexpr, KH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = HALF * 2
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(positions_ptr + token)
    slot = tl.load(slots_ptr + token)
    if head < QH:
        source, target = q_ptr + token * stride_qt + head * D, q_out_ptr + (token * QH + head) * D
        move_head(source, target, cos_ptr, sin_ptr, position, True, HALF, True)
    else:
        nth = (head - QH) % KH
        place = (slot * KH + nth) * D
        if head - QH < KH:
            source = k_ptr + token * stride_kt + nth * D
            move_head(source, k_cache_ptr + place, cos_ptr, sin_ptr, position, slot >= 0, HALF, TURN=True)
        else:
            source = v_ptr + token * stride_vt + nth * D
            move_head(source, v_cache_ptr + place, cos_ptr, sin_ptr, position, slot >= 0, HALF, TURN=False)


def rope_and_cache(q, k, v, k_cache, v_cache, slot_mapping, positions, cos, sin):
    (T, QH, D), KH = q.shape, k.shape[1]
    q_out = torch.empty((T, QH, D), dtype=q.dtype, device=q.device)
    rope_cache_kernel[(T, QH + 2 * KH)](
        q, k, v, q_out, k_cache, v_cache, slot_mapping, positions, cos, sin,
        stride_qt=q.stride(0), stride_kt=k.stride(0), stride_vt=v.stride(0), QH=QH, KH=KH, HALF=D // 2,
    )  # fmt: skip
    return q_out


# %% 7.4 | the loop goes from page to page with one entry of the table each, in natural exponentials, and a ...
@triton.jit
def decode_kernel(
    q_ptr, k_cache_ptr, v_cache_ptr, table_ptr, lens_ptr, o_ptr, stride_tb, scale, QH, KH, PAGE,
    D: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kv_head = head // (QH // KH)
    d = tl.arange(0, D)[None, :]
    place = tl.arange(0, PLACES)
    q = tl.load(q_ptr + (sequence * QH + head) * D + d).to(tl.float32)
    length = tl.load(lens_ptr + sequence)
    top, total = -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for nth in range(tl.cdiv(length, PAGE)):
        page = tl.load(table_ptr + sequence * stride_tb + nth).to(tl.int64)
        there = (place < PAGE) & (nth * PAGE + place < length)
        at = ((page * PAGE + place) * KH + kv_head)[:, None] * D + d
        k = tl.load(k_cache_ptr + at, mask=there[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_cache_ptr + at, mask=there[:, None], other=0.0).to(tl.float32)
        s = tl.where(there, tl.sum(k * q, axis=1) * scale, -float("inf"))
        new = tl.maximum(top, s.max(axis=0))
        p = tl.exp(s - new)
        fade = tl.exp(top - new)
        total = total * fade + p.sum(axis=0)
        acc = acc * fade + tl.sum(p[:, None] * v, axis=0)
        top = new
    out = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(o_ptr + (sequence * QH + head) * D + tl.arange(0, D), out.to(o_ptr.dtype.element_ty))


def paged_decode_attention(q, k_cache, v_cache, block_table, seq_lens):
    (B, QH, D), (PAGE, KH) = q.shape, k_cache.shape[1:3]
    o = torch.empty((B, QH, D), dtype=q.dtype, device=q.device)
    decode_kernel[(B, QH)](
        q, k_cache, v_cache, block_table, seq_lens, o, block_table.stride(0), 1 / math.sqrt(D), QH, KH, PAGE,
        D=D, PLACES=triton.next_power_of_2(PAGE),
    )  # fmt: skip
    return o


# %% 7.5 | part by part with a running maximum, the numbers of a row shared out among programs of 32 each
@triton.jit
def merge_kernel(parts_ptr, lse_ptr, out_ptr, S, D, BLOCK_D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    live = d < D
    top, total = -float("inf"), 0.0
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for i in range(S):
        lse = tl.load(lse_ptr + row * S + i)
        part = tl.load(parts_ptr + (row * S + i) * D + d, mask=live, other=0.0).to(tl.float32)
        new = tl.maximum(top, lse)
        centre = tl.where(new == -float("inf"), 0.0, new)
        fade, weight = tl.exp2(top - centre), tl.exp2(lse - centre)
        total = total * fade + weight
        acc = acc * fade + part * weight
        top = new
    merged = tl.where(total == 0.0, 0.0, acc / tl.where(total == 0.0, 1.0, total))
    tl.store(out_ptr + row * D + d, merged.to(out_ptr.dtype.element_ty), mask=live)


def merge_parts(parts, lse):
    rows, S, D = parts.shape
    out = torch.empty((rows, D), dtype=parts.dtype, device=parts.device)
    grid = lambda meta: (rows, triton.cdiv(D, meta["BLOCK_D"]))
    merge_kernel[grid](parts, lse, out, S, D, BLOCK_D=32)
    return out


# %% 7.6 | padding leaves at once, and a head is stored as a tile of pieces and their numbers
@triton.jit
def pack_kernel(
    k_ptr, cache_ptr, slots_ptr, scale, KH, D, PAGE, X: tl.constexpr, FP8_MAX: tl.constexpr, PIECES: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        page, place = slot // PAGE, slot % PAGE
        piece, x = tl.arange(0, PIECES)[:, None], tl.arange(0, X)[None, :]
        live = (piece * X + x) < D
        source = k_ptr + token * KH * D + piece * X + x
        target = cache_ptr + page * KH * D * PAGE + (piece * PAGE + place) * X + x
        for _ in range(KH):
            scaled = tl.load(source, mask=live, other=0.0).to(tl.float32) / scale
            cut = tl.minimum(tl.maximum(scaled, -FP8_MAX), FP8_MAX)
            tl.store(target, cut.to(cache_ptr.dtype.element_ty), mask=live)
            source += D
            target += D * PAGE


def pack_keys(k, k_cache, slot_mapping, scale):
    T, KH, D = k.shape
    PAGE, X = k_cache.shape[3:]
    pack_kernel[(T,)](
        k, k_cache, slot_mapping, scale, KH, D, PAGE, X=X, FP8_MAX=torch.finfo(k_cache.dtype).max,
        PIECES=triton.next_power_of_2(D // X),
    )  # fmt: skip


# %% 7.c | 64 rows in one program, pointers that move along K, and tl.expand_dims instead of None
@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, N, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = tl.expand_dims(n < N, 1)
    k = tl.arange(0, COLS)
    w_ptrs = w_ptr + tl.expand_dims(n * K, 1) + tl.expand_dims(k, 0)
    products = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, K, COLS):
        x = tl.load(x_ptr + start + k).to(tl.float32)
        w = tl.load(w_ptrs, mask=live, other=0.0).to(tl.float32)
        products += w * tl.expand_dims(x, 0)
        w_ptrs += COLS
    tl.store(y_ptr + n, tl.sum(products, axis=1).to(y_ptr.dtype.element_ty), mask=n < N)


def linear(x, weight):
    """x (1, K) times weight (N, K), K a multiple of 64."""
    N, K = weight.shape
    y = torch.empty((1, N), dtype=x.dtype, device=x.device)
    linear_kernel[lambda meta: (triton.cdiv(N, meta["ROWS"]),)](x, weight, y, N, K, ROWS=64, COLS=64)
    return y


# %% 7.d | maximum and place come from one reduction, and what has been taken is struck out by its place
@triton.jit
def topk_kernel(x_ptr, values_ptr, places_ptr, N, k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    left = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
    values_ptr += row * k
    places_ptr += row * k
    for _ in range(k):
        best, place = tl.max(left, axis=0, return_indices=True, return_indices_tie_break_left=True)
        tl.store(values_ptr, best)
        tl.store(places_ptr, place.to(tl.int64))
        left = tl.where(cols == place, -float("inf"), left)
        values_ptr += 1
        places_ptr += 1


def topk(x, k):
    rows, N = x.shape
    values = torch.empty((rows, k), dtype=x.dtype, device=x.device)
    places = torch.empty((rows, k), dtype=torch.int64)
    topk_kernel[(rows,)](x, values, places, N, k, BLOCK=triton.next_power_of_2(N))
    return values, places
