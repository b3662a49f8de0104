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
