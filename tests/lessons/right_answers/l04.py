"""Right answers of lesson 04, written differently from the solutions."""

# ruff: noqa


# %% 4.1 | all heads of a token in a loop
@triton.jit
def rope_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, half, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, BLOCK)
    mask = pair < half
    cos = tl.load(cos_ptr + token * half + pair, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + token * half + pair, mask=mask, other=0.0)
    for head in range(heads):
        base = (token * heads + head) * 2 * half
        a = tl.load(x_ptr + base + pair, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(x_ptr + base + half + pair, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + base + pair, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=mask)
        tl.store(y_ptr + base + half + pair, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=mask)


def rope(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_kernel[(T,)](x, y, cos, sin, heads, D // 2, BLOCK=triton.next_power_of_2(D // 2))
    return y


# %% 4.1 | all heads in one tile
@triton.jit
def rope_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, half, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BLOCK_H)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    mask = (h < heads) & (i < half)
    c = tl.load(cos_ptr + token * half + i, mask=i < half, other=0.0)
    s = tl.load(sin_ptr + token * half + i, mask=i < half, other=0.0)
    at = (token * heads + h) * 2 * half + i
    a = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + at + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, (a * c - b * s).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + at + half, (b * c + a * s).to(y_ptr.dtype.element_ty), mask=mask)


def rope(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    blocks = {"BLOCK_H": triton.next_power_of_2(heads), "BLOCK": triton.next_power_of_2(D // 2)}
    rope_kernel[(T,)](x, y, cos, sin, heads, D // 2, **blocks)
    return y


# %% 4.1 | the partner by its own load, a sign for each half
@triton.jit
def rope_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, half, BLOCK: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    mask = i < 2 * half
    row = (token * heads + head) * 2 * half
    partner = tl.where(i < half, i + half, i - half)
    angle = tl.where(i < half, i, i - half)
    x = tl.load(x_ptr + row + i, mask=mask, other=0.0).to(tl.float32)
    p = tl.load(x_ptr + row + partner, mask=mask, other=0.0).to(tl.float32)
    c = tl.load(cos_ptr + token * half + angle, mask=mask, other=0.0)
    s = tl.load(sin_ptr + token * half + angle, mask=mask, other=0.0)
    y = x * c + tl.where(i < half, -p, p) * s
    tl.store(y_ptr + row + i, y.to(y_ptr.dtype.element_ty), mask=mask)


def rope(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_kernel[(T, heads)](x, y, cos, sin, heads, D // 2, BLOCK=triton.next_power_of_2(D))
    return y


# %% 4.2 | one head a program, a grid of three dimensions
@triton.jit
def rope_tokens_kernel(
    x_ptr, y_ptr, p_ptr, cos_ptr, sin_ptr, xb, xs, xh, yb, ys, yh, pb, ps, half, BLOCK: tl.constexpr
):
    h, s, b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    i = tl.arange(0, BLOCK)
    mask = i < half
    row = tl.load(p_ptr + b * pb + s * ps).to(tl.int64)
    cos = tl.load(cos_ptr + row * half + i, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row * half + i, mask=mask, other=0.0).to(tl.float32)
    src = x_ptr + b * xb + s * xs + h * xh + i
    dst = y_ptr + b * yb + s * ys + h * yh + i
    u = tl.load(src, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(src + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(dst, u * cos - v * sin, mask=mask)
    tl.store(dst + half, v * cos + u * sin, mask=mask)


def rope_tokens(x, positions, cos, sin):
    B, S, heads, D = x.shape
    y = torch.empty((B, S, heads, D), dtype=x.dtype, device=x.device)
    strides = (*x.stride()[:3], *y.stride()[:3], *positions.stride())
    block = triton.next_power_of_2(D // 2)
    rope_tokens_kernel[(heads, S, B)](x, y, positions, cos, sin, *strides, D // 2, BLOCK=block)
    return y


# %% 4.2 | a flat grid of tokens, heads in a loop, positions flattened by PyTorch
@triton.jit
def rope_tokens_kernel(x_ptr, y_ptr, p_ptr, cos_ptr, sin_ptr, xb, xs, xh, S, heads, half, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    b, s = token // S, token % S
    i = tl.arange(0, BLOCK)
    mask = i < half
    row = tl.load(p_ptr + token).to(tl.int64)
    cos = tl.load(cos_ptr + row * half + i, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row * half + i, mask=mask, other=0.0).to(tl.float32)
    for h in range(heads):
        src = x_ptr + b * xb + s * xs + h.to(tl.int64) * xh + i
        dst = y_ptr + (token * heads + h) * 2 * half + i
        u = tl.load(src, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(src + half, mask=mask, other=0.0).to(tl.float32)
        tl.store(dst, (u * cos - v * sin).to(y_ptr.dtype.element_ty), mask=mask)
        tl.store(dst + half, (v * cos + u * sin).to(y_ptr.dtype.element_ty), mask=mask)


def rope_tokens(x, positions, cos, sin):
    B, S, heads, D = x.shape
    y = torch.empty((B, S, heads, D), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(D // 2)
    flat = positions.contiguous()
    rope_tokens_kernel[(B * S,)](x, y, flat, cos, sin, *x.stride()[:3], S, heads, D // 2, BLOCK=block)
    return y


# %% 4.3 | gather by xor of lanes in memory
@triton.jit
def rope_neighbours_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr, BLOCK_H: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BLOCK_H)[:, None]
    d = tl.arange(0, D)[None, :]
    base = (token * heads + h) * D
    mask = h < heads
    x = tl.load(x_ptr + base + d, mask=mask, other=0.0).to(tl.float32)
    partner = tl.load(x_ptr + base + (d ^ 1), mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * (D // 2) + d // 2)
    sin = tl.load(sin_ptr + token * (D // 2) + d // 2)
    sign = tl.where(d % 2 == 0, -1.0, 1.0)
    tl.store(y_ptr + base + d, (x * cos + sign * partner * sin).to(y_ptr.dtype.element_ty), mask=mask)


def rope_neighbours(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_neighbours_kernel[(T,)](x, y, cos, sin, heads, D=D, BLOCK_H=triton.next_power_of_2(heads))
    return y


# %% 4.3 | strided loads of even and odd elements
@triton.jit
def rope_neighbours_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, HALF: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, HALF)
    at = (token * heads + head) * 2 * HALF + 2 * i
    c, s = tl.load(cos_ptr + token * HALF + i), tl.load(sin_ptr + token * HALF + i)
    a = tl.load(x_ptr + at).to(tl.float32)
    b = tl.load(x_ptr + at + 1).to(tl.float32)
    tl.store(y_ptr + at, (a * c - b * s).to(y_ptr.dtype.element_ty))
    tl.store(y_ptr + at + 1, (b * c + a * s).to(y_ptr.dtype.element_ty))


def rope_neighbours(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_neighbours_kernel[(T, heads)](x, y, cos, sin, heads, HALF=D // 2)
    return y


# %% 4.3 | interleave instead of join
@triton.jit
def rope_neighbours_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, D // 2)
    cos = tl.load(cos_ptr + token * (D // 2) + pair)
    sin = tl.load(sin_ptr + token * (D // 2) + pair)
    for head in range(heads):
        at = (token * heads + head) * D + tl.arange(0, D)
        a, b = tl.split(tl.reshape(tl.load(x_ptr + at).to(tl.float32), (D // 2, 2)))
        y = tl.interleave(a * cos - b * sin, b * cos + a * sin)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty))


def rope_neighbours(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_neighbours_kernel[(T,)](x, y, cos, sin, heads, D=D)
    return y


# %% 4.4 | one program a head, in place
@triton.jit
def rope_inplace_kernel(x_ptr, cos_ptr, sin_ptr, heads, half, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = tl.arange(0, BLOCK)
    mask = pair < half
    cos = tl.load(cos_ptr + token * half + pair, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + token * half + pair, mask=mask, other=0.0)
    x_ptr += (token * heads + head) * 2 * half + pair
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr + half, (second * cos + first * sin).to(x_ptr.dtype.element_ty), mask=mask)
    tl.store(x_ptr, (first * cos - second * sin).to(x_ptr.dtype.element_ty), mask=mask)


def rope_inplace(x, cos, sin):
    T, heads, D = x.shape
    rope_inplace_kernel[(T, heads)](x, cos, sin, heads, D // 2, BLOCK=triton.next_power_of_2(D // 2))


# %% 4.4 | both results before either store
@triton.jit
def rope_inplace_kernel(x_ptr, cos_ptr, sin_ptr, heads, half, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    offs_h = tl.arange(0, BLOCK_H)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    mask_p = pair < half
    cos = tl.load(cos_ptr + token * half + pair, mask=mask_p, other=0.0)
    sin = tl.load(sin_ptr + token * half + pair, mask=mask_p, other=0.0)
    x_ptr += (token * heads + offs_h) * 2 * half + pair
    mask = (offs_h < heads) & mask_p
    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + half, mask=mask, other=0.0).to(tl.float32)
    one = first * cos - second * sin
    two = second * cos + first * sin
    tl.store(x_ptr + half, two.to(x_ptr.dtype.element_ty), mask=mask)
    tl.store(x_ptr, one.to(x_ptr.dtype.element_ty), mask=mask)


def rope_inplace(x, cos, sin):
    T, heads, D = x.shape
    blocks = {"BLOCK_H": triton.next_power_of_2(heads), "BLOCK": triton.next_power_of_2(D // 2)}
    rope_inplace_kernel[(T,)](x, cos, sin, heads, D // 2, **blocks)


# %% 4.4 | a fresh tensor, copied back by a second kernel
@triton.jit
def turn(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, half, BLOCK: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    mask = i < half
    at = (token * heads + head) * 2 * half + i
    c = tl.load(cos_ptr + token * half + i, mask=mask, other=0.0)
    s = tl.load(sin_ptr + token * half + i, mask=mask, other=0.0)
    a = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + at + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, a * c - b * s, mask=mask)
    tl.store(y_ptr + at + half, b * c + a * s, mask=mask)


@triton.jit
def back(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(y_ptr + offs, mask=offs < n), mask=offs < n)


def rope_inplace(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    turn[(T, heads)](x, y, cos, sin, heads, D // 2, BLOCK=triton.next_power_of_2(D // 2))
    back[(triton.cdiv(x.numel(), 512),)](y, x, x.numel(), BLOCK=512)


# %% 4.5 | one head a program, branches by its number
@triton.jit
def split_kernel(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    stride_t,
    q_heads,
    kv_heads,
    half,
    BLOCK: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    mask = i < half
    src = qkv_ptr + token * stride_t + head * 2 * half + i
    a, b = tl.load(src, mask=mask), tl.load(src + half, mask=mask)
    if head < q_heads + kv_heads:
        row = tl.load(positions_ptr + token).to(tl.int64)
        c = tl.load(cos_ptr + row * half + i, mask=mask)
        s = tl.load(sin_ptr + row * half + i, mask=mask)
        u, w = a.to(tl.float32), b.to(tl.float32)
        a, b = (u * c - w * s).to(a.dtype), (w * c + u * s).to(b.dtype)
    if head < q_heads:
        dst = q_ptr + (token * q_heads + head) * 2 * half + i
        tl.store(dst, a, mask=mask)
        tl.store(dst + half, b, mask=mask)
    elif head < q_heads + kv_heads:
        dst = k_ptr + (token * kv_heads + head - q_heads) * 2 * half + i
        tl.store(dst, a, mask=mask)
        tl.store(dst + half, b, mask=mask)
    else:
        dst = v_ptr + (token * kv_heads + head - q_heads - kv_heads) * 2 * half + i
        tl.store(dst, a, mask=mask)
        tl.store(dst + half, b, mask=mask)


def split_qkv_rope(qkv, cos, sin, positions, q_heads, kv_heads, head_dim):
    T, half = qkv.shape[0], head_dim // 2
    q = torch.empty((T, q_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    k, v = (torch.empty((T, kv_heads, head_dim), dtype=qkv.dtype, device=qkv.device) for _ in range(2))
    split_kernel[(T, q_heads + 2 * kv_heads)](
        qkv, cos, sin, positions, q, k, v, qkv.stride(0), q_heads, kv_heads, half, BLOCK=triton.next_power_of_2(half)
    )
    return q, k, v


# %% 4.6 | the sequence found by a loop over its ends
@triton.jit
def rope_packed_kernel(x_ptr, y_ptr, cu_ptr, cos_ptr, sin_ptr, sequences, heads, D, half, BLOCK: tl.constexpr):
    token, head = tl.program_id(0), tl.program_id(1)
    begin = 0
    for i in range(sequences):
        start = tl.load(cu_ptr + i).to(tl.int32)
        begin = tl.where(start <= token, start, begin)
    row = (token - begin).to(tl.int64)
    e = tl.arange(0, BLOCK)
    at = (token.to(tl.int64) * heads + head) * D
    turns = e < 2 * half
    partner = tl.where(e < half, e + half, e - half)
    angle = tl.where(e < half, e, e - half)
    x = tl.load(x_ptr + at + e, mask=e < D, other=0.0)
    p = tl.load(x_ptr + at + partner, mask=turns, other=0.0).to(tl.float32)
    c = tl.load(cos_ptr + row * half + angle, mask=turns, other=1.0)
    s = tl.load(sin_ptr + row * half + angle, mask=turns, other=0.0)
    turned = x.to(tl.float32) * c + tl.where(e < half, -p, p) * s
    tl.store(y_ptr + at + e, tl.where(turns, turned.to(x.dtype), x), mask=e < D)


def rope_packed(x, cu_seqlens, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    sequences, half = len(cu_seqlens) - 1, cos.shape[1]
    block = triton.next_power_of_2(D)
    rope_packed_kernel[(T, heads)](x, y, cu_seqlens, cos, sin, sequences, heads, D, half, BLOCK=block)
    return y


# %% 4.6 | a position for each token by a kernel of its own
@triton.jit
def find(cu_ptr, p_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    begin, end = tl.load(cu_ptr + i), tl.load(cu_ptr + i + 1)
    for start in range(begin, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        tl.store(p_ptr + t, (t - begin).to(tl.int32), mask=t < end)


@triton.jit
def turn(x_ptr, y_ptr, p_ptr, cos_ptr, sin_ptr, heads, D, half, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(p_ptr + token).to(tl.int64)
    h, e = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_D)[None, :]
    at = (token * heads + h) * D
    mask = (h < heads) & (e < half)
    c = tl.load(cos_ptr + row * half + e, mask=e < half, other=0.0)
    s = tl.load(sin_ptr + row * half + e, mask=e < half, other=0.0)
    a = tl.load(x_ptr + at + e, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + at + half + e, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + at + e, (a * c - b * s).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(y_ptr + at + half + e, (b * c + a * s).to(y_ptr.dtype.element_ty), mask=mask)
    rest = (h < heads) & (e >= 2 * half) & (e < D)
    tl.store(y_ptr + at + e, tl.load(x_ptr + at + e, mask=rest), mask=rest)


def rope_packed(x, cu_seqlens, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    p = torch.empty(T, dtype=torch.int32, device=x.device)
    find[(len(cu_seqlens) - 1,)](cu_seqlens, p, BLOCK=16)
    blocks = {"BLOCK_H": triton.next_power_of_2(heads), "BLOCK_D": triton.next_power_of_2(D)}
    turn[(T,)](x, y, p, cos, sin, heads, D, cos.shape[1], **blocks)
    return y


# %% 4.5 | strides of one's own, values first
@triton.jit
def pair_of(x_ptr, at, half, mask):
    return tl.load(x_ptr + at, mask=mask, other=0.0), tl.load(x_ptr + at + half, mask=mask, other=0.0)


@triton.jit
def split_kernel(
    qkv_ptr, cos_ptr, sin_ptr, pos_ptr, q_ptr, k_ptr, v_ptr, st, QH, KH, half, BH: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BH)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    row = tl.load(pos_ptr + token).to(tl.int64)
    cos = tl.load(cos_ptr + row * half + i, mask=i < half, other=0.0)
    sin = tl.load(sin_ptr + row * half + i, mask=i < half, other=0.0)
    width = 2 * half
    mask = (h < KH) & (i < half)
    a, b = pair_of(qkv_ptr + token * st, (QH + KH + h) * width + i, half, mask)
    tl.store(v_ptr + (token * KH + h) * width + i, a, mask=mask)
    tl.store(v_ptr + (token * KH + h) * width + half + i, b, mask=mask)
    a, b = pair_of(qkv_ptr + token * st, (QH + h) * width + i, half, mask)
    a, b = a.to(tl.float32), b.to(tl.float32)
    tl.store(k_ptr + (token * KH + h) * width + i, a * cos - b * sin, mask=mask)
    tl.store(k_ptr + (token * KH + h) * width + half + i, b * cos + a * sin, mask=mask)
    mask = (h < QH) & (i < half)
    a, b = pair_of(qkv_ptr + token * st, h * width + i, half, mask)
    a, b = a.to(tl.float32), b.to(tl.float32)
    tl.store(q_ptr + (token * QH + h) * width + i, a * cos - b * sin, mask=mask)
    tl.store(q_ptr + (token * QH + h) * width + half + i, b * cos + a * sin, mask=mask)


def split_qkv_rope(qkv, cos, sin, positions, q_heads, kv_heads, head_dim):
    T, half = qkv.shape[0], head_dim // 2
    out = [torch.empty((T, n, head_dim), dtype=qkv.dtype, device=qkv.device) for n in (q_heads, kv_heads, kv_heads)]
    blocks = {"BH": triton.next_power_of_2(max(q_heads, kv_heads)), "BLOCK": triton.next_power_of_2(half)}
    split_kernel[(T,)](qkv, cos, sin, positions, *out, qkv.stride(0), q_heads, kv_heads, half, **blocks)
    return tuple(out)


# %% 4.a | -b and a are joined, the new axis goes to the front, and the head is stored in one piece
@triton.jit
def quarter_turn_kernel(x_ptr, y_ptr, heads, D: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start = (token * heads + head) * D
    pair = tl.arange(0, D // 2)
    a = tl.load(x_ptr + start + pair)
    b = tl.load(x_ptr + start + D // 2 + pair)
    whole = tl.join(-b, a).permute(1, 0).reshape(D)
    tl.store(y_ptr + start + tl.arange(0, D), whole)


def quarter_turn(x):
    tokens, heads, D = x.shape
    y = torch.empty_like(x)
    quarter_turn_kernel[(tokens, heads)](x, y, heads, D=D)
    return y


# %% 4.b | no split: the pairs are multiplied by (1, -1) and summed along their own axis
@triton.jit
def neighbour_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + row * 2 * BLOCK + tl.arange(0, 2 * BLOCK))
    sign = 1 - 2 * tl.arange(0, 2)[None, :]
    tl.store(y_ptr + row * BLOCK + tl.arange(0, BLOCK), (x.reshape(BLOCK, 2) * sign).sum(axis=1))


def neighbour_difference(x):
    rows, half = len(x), x.shape[1] // 2
    y = torch.empty(rows, half)
    neighbour_kernel[(rows,)](x, y, BLOCK=half)
    return y


# %% 4.1 | one program takes a whole token and walks over its heads, four at a time, in blocks of two dimensions
import triton.language as L


@triton.jit
def rope_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, half, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    token = L.program_id(axis=0).to(L.int64)
    pair = L.arange(0, BLOCK)[None, :]
    c = L.load(cos_ptr + token * half + pair, mask=pair < half, other=0.0)
    s = L.load(sin_ptr + token * half + pair, mask=pair < half, other=0.0)
    for first_head in range(0, heads, HEADS):
        h = first_head + L.arange(0, HEADS)[:, None]
        live = (h < heads) & (pair < half)
        place = (token * heads + h) * 2 * half + pair
        u = L.load(x_ptr + place, mask=live, other=0.0).to(L.float32)
        w = L.load(x_ptr + place + half, mask=live, other=0.0).to(L.float32)
        L.store(y_ptr + place, (u * c - w * s).to(y_ptr.dtype.element_ty), mask=live)
        L.store(y_ptr + place + half, (w * c + u * s).to(y_ptr.dtype.element_ty), mask=live)


def rope(x, cos, sin):
    tokens, heads, D = x.shape
    result = torch.empty_like(x)
    launch = rope_kernel[lambda meta: (tokens,)]
    launch(x, result, cos, sin, heads=heads, half=D // 2, HEADS=4, BLOCK=triton.next_power_of_2(D // 2))
    return result


# %% 4.2 | the grid has one axis, a device function turns, everything is passed by keyword
@triton.jit
def turn(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def rope_tokens_kernel(
    src, dst, where, cos_ptr, sin_ptr, xb, xs, xh, yb, ys, yh, pb, ps, S, heads, half,
    HEADS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    b, s = pid // S, pid % S
    h = tl.arange(0, HEADS).to(tl.int64)[:, None]
    i = tl.arange(0, PAIRS)[None, :]
    live = (h < heads) & (i < half)
    row = tl.load(where + b * pb + s * ps).to(tl.int64) * half
    cos = tl.load(cos_ptr + row + i, mask=i < half, other=1.0).to(tl.float32)
    sin = tl.load(sin_ptr + row + i, mask=i < half, other=0.0).to(tl.float32)
    from_ = src + b * xb + s * xs + h * xh + i
    to = dst + b * yb + s * ys + h * yh + i
    u = tl.load(from_, mask=live, other=0.0).to(tl.float32)
    w = tl.load(from_ + half, mask=live, other=0.0).to(tl.float32)
    u, w = turn(u, w, cos, sin)
    tl.store(to, u.to(dst.dtype.element_ty), mask=live)
    tl.store(to + half, w.to(dst.dtype.element_ty), mask=live)


def rope_tokens(x, positions, cos, sin):
    B, S, heads, D = x.shape
    y = torch.empty(B, S, heads, D, dtype=x.dtype, device=x.device)
    names = ("xb", "xs", "xh", "yb", "ys", "yh", "pb", "ps")
    strides = dict(zip(names, (*x.stride()[:3], *y.stride()[:3], *positions.stride())))
    rope_tokens_kernel[(B * S,)](
        src=x, dst=y, where=positions, cos_ptr=cos, sin_ptr=sin, S=S, heads=heads, half=D // 2,
        HEADS=triton.next_power_of_2(heads), PAIRS=triton.next_power_of_2(D // 2), **strides,
    )  # fmt: skip
    return y


# %% 4.2 | at most 16 persistent programs share all tokens, and each goes from head to head
@triton.jit
def rope_tokens_kernel(
    x_ptr, y_ptr, positions_ptr, cos_ptr, sin_ptr, xb, xs, xh, pb, ps, B, S, heads, half, BLOCK: tl.constexpr
):
    i = tl.arange(0, BLOCK)
    live = i < half
    for token in range(tl.program_id(0), B * S, tl.num_programs(0)):
        b, s = tl.cast(token // S, tl.int64), tl.cast(token % S, tl.int64)
        p = tl.load(positions_ptr + b * pb + s * ps).to(tl.int64)
        c = tl.load(cos_ptr + p * half + i, mask=live, other=0.0).to(tl.float32)
        n = tl.load(sin_ptr + p * half + i, mask=live, other=0.0).to(tl.float32)
        x_row = x_ptr + b * xb + s * xs
        y_row = y_ptr + (b * S + s) * heads * 2 * half
        for _ in range(heads):
            u = tl.load(x_row + i, mask=live, other=0.0).to(tl.float32)
            w = tl.load(x_row + half + i, mask=live, other=0.0).to(tl.float32)
            tl.store(y_row + i, (u * c - w * n).to(y_ptr.dtype.element_ty), mask=live)
            tl.store(y_row + half + i, (w * c + u * n).to(y_ptr.dtype.element_ty), mask=live)
            x_row += xh
            y_row += 2 * half


def rope_tokens(x, positions, cos, sin):
    B, S, heads, D = x.shape
    y = torch.empty((B, S, heads, D), dtype=x.dtype, device=x.device)
    programs = min(16, B * S)
    rope_tokens_kernel[(programs,)](
        x, y, positions, cos, sin, *x.stride()[:3], *positions.stride(), B, S, heads, D // 2,
        BLOCK=triton.next_power_of_2(D // 2), num_warps=1,
    )  # fmt: skip
    return y


# %% 4.3 | the heads are loaded as a block of three dimensions (heads, pairs, 2), so nothing is reshaped
@triton.jit
def rope_neighbours_kernel(x_ptr, y_ptr, cos_ptr, sin_ptr, heads, D: tl.constexpr, BLOCK_H: tl.constexpr):
    HALF: tl.constexpr = D // 2
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BLOCK_H)[:, None, None]
    i = tl.arange(0, HALF)[None, :, None]
    e = tl.arange(0, 2)[None, None, :]
    at = (token * heads + h) * D + 2 * i + e
    live = (h < heads) & (i < HALF) & (e < 2)
    angles = token * HALF + tl.arange(0, HALF)
    cos, sin = tl.load(cos_ptr + angles)[None, :], tl.load(sin_ptr + angles)[None, :]
    even, odd = tl.load(x_ptr + at, mask=live, other=0.0).to(tl.float32).split()
    turned = tl.join(even * cos - odd * sin, odd * cos + even * sin)
    tl.store(y_ptr + at, turned.to(y_ptr.dtype.element_ty), mask=live)


def rope_neighbours(x, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    rope_neighbours_kernel[(T,)](x, y, cos, sin, heads, D=D, BLOCK_H=triton.next_power_of_2(heads))
    return y


# %% 4.4 | there is no block of heads at all: a loop goes from head to head, loads both halves and then stores both
@triton.jit
def rope_inplace_kernel(x_ptr, cos_ptr, sin_ptr, heads, half, BLOCK: tl.constexpr, DEBUG: tl.constexpr = False):
    """One program, all heads of one token, one after the other."""
    token = tl.program_id(0).to(tl.int64)
    pair = tl.arange(0, BLOCK)
    live = pair < half
    cos = tl.load(cos_ptr + token * half + pair, mask=live, other=0.0)
    sin = tl.load(sin_ptr + token * half + pair, mask=live, other=0.0)
    lower = x_ptr + token * heads * 2 * half + pair
    for _ in range(heads):
        upper = lower + half
        first = tl.load(lower, mask=live, other=0.0).to(tl.float32)
        second = tl.load(upper, mask=live, other=0.0).to(tl.float32)
        new_first = (first * cos - second * sin).to(x_ptr.dtype.element_ty)
        new_second = (second * cos + first * sin).to(x_ptr.dtype.element_ty)
        if DEBUG:
            tl.device_print("turned", first)
        tl.store(lower, new_first, mask=live)
        tl.store(upper, new_second, mask=live)
        lower += 2 * half


def rope_inplace(x, cos, sin):
    T, heads, D = x.shape
    rope_inplace_kernel[(T,)](x, cos, sin, heads, D // 2, BLOCK=triton.next_power_of_2(D // 2), num_warps=1)


# %% 4.5 | a device function moves queries, keys and values, one after the other in the same program, each from ...
@triton.jit
def move_heads(src, dst, count, cos, sin, half, TURN: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    h, i = tl.arange(0, HEADS)[:, None], tl.arange(0, BLOCK)[None, :]
    live = (h < count) & (i < half)
    at = h * 2 * half + i
    a = tl.load(src + at, mask=live, other=0.0)
    b = tl.load(src + at + half, mask=live, other=0.0)
    if TURN:
        u, w = a.to(tl.float32), b.to(tl.float32)
        a = (u * cos - w * sin).to(dst.dtype.element_ty)
        b = (w * cos + u * sin).to(dst.dtype.element_ty)
    tl.store(dst + at, a, mask=live)
    tl.store(dst + at + half, b, mask=live)


@triton.jit
def split_qkv_rope_kernel(
    qkv_ptr, cos_ptr, sin_ptr, positions_ptr, q_ptr, k_ptr, v_ptr, stride_t, q_heads, kv_heads, half,
    Q_BLOCK: tl.constexpr, KV_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)[None, :]
    angle = tl.load(positions_ptr + token).to(tl.int64) * half + i
    cos = tl.load(cos_ptr + angle, mask=i < half, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=i < half, other=0.0)
    D = 2 * half
    row = qkv_ptr + token * stride_t
    move_heads(row, q_ptr + token * q_heads * D, q_heads, cos, sin, half, True, Q_BLOCK, BLOCK)
    row += q_heads * D
    move_heads(row, k_ptr + token * kv_heads * D, kv_heads, cos, sin, half, True, KV_BLOCK, BLOCK)
    row += kv_heads * D
    move_heads(row, v_ptr + token * kv_heads * D, kv_heads, cos, sin, half, False, KV_BLOCK, BLOCK)


def split_qkv_rope(qkv, cos, sin, positions, q_heads, kv_heads, head_dim):
    T = len(qkv)
    q = torch.empty((T, q_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    k, v = (torch.empty((T, kv_heads, head_dim), dtype=qkv.dtype, device=qkv.device) for _ in range(2))
    split_qkv_rope_kernel[(T,)](
        qkv, cos, sin, positions, q, k, v, qkv.stride(0), q_heads, kv_heads, head_dim // 2,
        Q_BLOCK=triton.next_power_of_2(q_heads), KV_BLOCK=triton.next_power_of_2(kv_heads),
        BLOCK=triton.next_power_of_2(head_dim // 2),
    )  # fmt: skip
    return q, k, v


# %% 4.5 | a block of three dimensions (heads, halves, pairs), in which each element loads its partner, and ...
@triton.jit
def split_qkv_rope_kernel(
    qkv_ptr, cos_ptr, sin_ptr, positions_ptr, q_ptr, k_ptr, v_ptr,
    stride_t, q_heads, kv_heads, half, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK_H)[:, None, None]
    side = tl.arange(0, 2)[None, :, None]
    pair = tl.arange(0, BLOCK)[None, None, :]
    keys_from, values_from = q_heads, q_heads + kv_heads
    live = (head < values_from + kv_heads) & (side < 2) & (pair < half)
    d = side * half + pair
    row = qkv_ptr + token * stride_t + head * 2 * half
    own = tl.load(row + d, mask=live, other=0.0)
    partner = tl.load(row + (1 - side) * half + pair, mask=live, other=0.0).to(tl.float32)
    angle = tl.load(positions_ptr + token).to(tl.int64) * half + pair
    cos = tl.load(cos_ptr + angle, mask=pair < half, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=pair < half, other=0.0)
    signed = tl.where(side == 0, -partner, partner)
    turned = (own.to(tl.float32) * cos + signed * sin).to(own.dtype)
    out = tl.where(head < values_from, turned, own)
    tl.store(q_ptr + (token * q_heads + head) * 2 * half + d, out, mask=live & (head < keys_from))
    is_key = (head >= keys_from) & (head < values_from)
    tl.store(k_ptr + (token * kv_heads + head - keys_from) * 2 * half + d, out, mask=live & is_key)
    is_value = head >= values_from
    tl.store(v_ptr + (token * kv_heads + head - values_from) * 2 * half + d, out, mask=live & is_value)


def split_qkv_rope(qkv, cos, sin, positions, q_heads, kv_heads, head_dim):
    T = len(qkv)
    q, k, v = (qkv.new_empty((T, heads, head_dim)) for heads in (q_heads, kv_heads, kv_heads))
    split_qkv_rope_kernel[(T,)](
        qkv, cos, sin, positions, q, k, v, qkv.stride(0), q_heads, kv_heads, head_dim // 2,
        BLOCK_H=triton.next_power_of_2(q_heads + 2 * kv_heads), BLOCK=triton.next_power_of_2(head_dim // 2),
    )  # fmt: skip
    return q, k, v


# %% 4.6 | the position is the smallest distance to a start that is not behind the token, and heads and ...
@triton.jit
def position_in_sequence(cu_ptr, token, sequences, BLOCK_B: tl.constexpr):
    i = tl.arange(0, BLOCK_B)
    exists = i < sequences
    behind = token - tl.load(cu_ptr + i, mask=exists, other=0).to(tl.int64)
    return tl.min(tl.where(exists & (behind >= 0), behind, token), axis=0)


@triton.jit
def rope_packed_kernel(
    x_ptr, y_ptr, cu_ptr, cos_ptr, sin_ptr, sequences, heads, D, half,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One block of all elements of all heads; each turned one loads its partner."""
    token = tl.program_id(0).to(tl.int64)
    position = position_in_sequence(cu_ptr, token, sequences, BLOCK_B)
    h = tl.arange(0, BLOCK_H)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    live = (h < heads) & (d < D)
    turns = d < 2 * half
    at = (token * heads + h) * D
    own = tl.load(x_ptr + at + d, mask=live, other=0.0)
    partner_d = tl.where(d < half, d + half, d - half)
    partner = tl.load(x_ptr + at + partner_d, mask=live & turns, other=0.0).to(tl.float32)
    angle = position * half + tl.where(d < half, d, d - half)
    c = tl.load(cos_ptr + angle, mask=turns, other=0.0)
    s = tl.load(sin_ptr + angle, mask=turns, other=0.0)
    turned = own.to(tl.float32) * c + tl.where(d < half, -partner, partner) * s
    tl.store(y_ptr + at + d, tl.where(turns, turned.to(own.dtype), own), mask=live)


def rope_packed(x, cu_seqlens, cos, sin):
    T, heads, D = x.shape
    y = torch.empty_like(x)
    sequences = cu_seqlens.shape[0] - 1
    sizes = {"BLOCK_B": sequences, "BLOCK_H": heads, "BLOCK_D": D}
    rope_packed_kernel[(T,)](
        x, y, cu_seqlens, cos, sin, sequences, heads, D, cos.shape[1],
        **{name: triton.next_power_of_2(size) for name, size in sizes.items()},
    )  # fmt: skip
    return y
