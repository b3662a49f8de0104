"""Right answers of lesson 06, written differently from the solutions."""

# ruff: noqa


# %% 6.1 | tl.softmax of several rows, max/exp/sum methods
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=float("-inf")).to(tl.float32)
    x = x - x.max(0)
    e = x.exp()
    tl.store(y_ptr + row * stride_ym + cols, (e / e.sum(0)).to(y_ptr.dtype.element_ty), mask=mask)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y


# %% 6.1 | three passes over short blocks
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        top = tl.maximum(
            top, tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        )
    top = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        total += tl.exp2((x - top) * 1.4426950408889634)
    total = tl.sum(total, 0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        tl.store(
            y_ptr + row * stride_ym + cols,
            (tl.exp2((x - top) * 1.4426950408889634) / total).to(y_ptr.dtype.element_ty),
            mask=cols < N,
        )


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=64)
    return y


# %% 6.1 | four rows a program
@triton.jit
def softmax_kernel(x_ptr, y_ptr, sx, sy, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.arange(0, BLOCK)[None, :]
    mask = (m < M) & (n < N)
    x = tl.load(x_ptr + m * sx + n, mask=mask, other=-float("inf")).to(tl.float32)
    x = tl.where(m < M, x, 0.0)
    e = tl.exp2((x - tl.max(x, axis=1)[:, None]) * 1.4426950408889634)
    y = e * (1.0 / tl.sum(e, axis=1))[:, None]
    tl.store(y_ptr + m * sy + n, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 4),)
    softmax_kernel[grid](x, y, x.stride(0), y.stride(0), M, N, ROWS=4, BLOCK=triton.next_power_of_2(N))
    return y


# %% 6.1 | idle lanes switched off by where
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    top = tl.max(tl.where(mask, x, -float("inf")), axis=0)
    e = tl.where(mask, tl.exp(x - top), 0.0)
    tl.store(y_ptr + row * stride_ym + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=mask)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y


# %% 6.2 | a branch where nothing has come yet
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = -float("inf"), 0.0
    for start in tl.range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        if higher > -float("inf"):
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
            top = higher
    tl.store(out_ptr + row, top + tl.log(total))


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(M,)](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% 6.2 | a running maximum in every lane
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, x)
        centre = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(top - centre) + tl.exp(x - centre)
        top = new
    most = tl.max(top, axis=0)
    centre = tl.where(most == -float("inf"), 0.0, most)
    tl.store(out_ptr + row, most + tl.log(tl.sum(total * tl.exp(top - centre), axis=0)))


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(M,)](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% 6.2 | base 2 inside, a guard by if
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    row_max = -float("inf")
    row_sum = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        if new_max > -float("inf"):
            row_sum = row_sum * tl.exp2((row_max - new_max) * 1.4426950408889634)
            row_sum += tl.sum(tl.exp2((x - new_max) * 1.4426950408889634), axis=0)
            row_max = new_max
    tl.store(out_ptr + row, row_max + tl.log2(row_sum) * 0.6931471805599453)


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(M,)](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% 6.3 | two-pass attention
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    mask_m = offs_m[:, None] < Sq
    q = tl.load(q_ptr + offs_m[:, None] * D + offs_d[None, :], mask=mask_m, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    for start in range(0, Sk, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + n[:, None] * D + offs_d[None, :], mask=(n < Sk)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        top = tl.maximum(top, tl.max(tl.where((n < Sk)[None, :], s, -float("inf")), 1))
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, Sk, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + n[:, None] * D + offs_d[None, :], mask=(n < Sk)[:, None], other=0.0)
        v = tl.load(v_ptr + n[:, None] * D + offs_d[None, :], mask=(n < Sk)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.where((n < Sk)[None, :], tl.exp(s - top[:, None]), 0.0)
        total += tl.sum(p, 1)
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
    tl.store(
        o_ptr + offs_m[:, None] * D + offs_d[None, :], (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=mask_m
    )


def head_attention(q, k, v):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, Sq, Sk, D**-0.5, D=D, BLOCK_M=16, BLOCK_N=16)
    return o


# %% 6.3 | the scale on q after the product, division before the store by reciprocal
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d, mask=(m < Sq)[:, None], other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    log2e: tl.constexpr = 1.4426950408889634
    for start in range(0, Sk, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        kt = tl.load(k_ptr + n[None, :] * D + d[:, None], mask=(n < Sk)[None, :], other=0.0)
        s = tl.dot(q, kt, input_precision="ieee") * (scale * log2e)
        s += tl.where(n < Sk, 0.0, -float("inf"))[None, :]
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, axis=1)
        v = tl.load(v_ptr + n[:, None] * D + d, mask=(n < Sk)[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = new
    o = acc * (1.0 / total)[:, None]
    tl.store(o_ptr + m[:, None] * D + d, o.to(o_ptr.dtype.element_ty), mask=(m < Sq)[:, None])


def head_attention(q, k, v):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(Sq, 32),)](q, k, v, o, Sq, Sk, D**-0.5, D=D, BLOCK_M=32, BLOCK_N=16)
    return o


# %% 6.3 | p stays in float32 for the second product
@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    d = tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + m * D + d, mask=m < Sq, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for block in range(tl.cdiv(Sk, BN)):
        n = block * BN + tl.arange(0, BN)
        k = tl.load(k_ptr + n[:, None] * D + d, mask=(n < Sk)[:, None], other=0.0)
        v = tl.load(v_ptr + n[:, None] * D + d, mask=(n < Sk)[:, None], other=0.0).to(tl.float32)
        s = tl.where((n < Sk)[None, :], tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(top - new) + tl.sum(p, 1)
        acc = acc * tl.exp(top - new)[:, None] + tl.dot(p, v, input_precision="ieee")
        top = new
    tl.store(o_ptr + m * D + d, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=m < Sq)


def head_attention(q, k, v):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, Sq, Sk, D**-0.5, D=D, BM=16, BN=32)
    return o


# %% 6.4 | batch and head on axes of their own, a loop without and one with the mask
@triton.jit
def step(q, k_ptr, v_ptr, sn, n, d, seen, Sk, scale, top, total, acc, MASKED: tl.constexpr):
    k = tl.load(k_ptr + n[:, None] * sn + d, mask=(n < Sk)[:, None], other=0.0)
    v = tl.load(v_ptr + n[:, None] * sn + d, mask=(n < Sk)[:, None], other=0.0)
    s = tl.dot(q, k.T, input_precision="ieee") * scale
    if MASKED:
        s = tl.where(n[None, :] < seen[:, None], s, -float("inf"))
    new = tl.maximum(top, tl.max(s, axis=1))
    p = tl.exp(s - new[:, None])
    alpha = tl.exp(top - new)
    total = total * alpha + tl.sum(p, axis=1)
    return new, total, tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")


@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, qb, qh, qm, kb, kh, kn, ob, oh, om, S, Sk, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    h, b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + b * qb + h * qh + m[:, None] * qm + d, mask=(m < S)[:, None], other=0.0)
    k_ptr += b * kb + (h // GROUP) * kh
    v_ptr += b * kb + (h // GROUP) * kh
    seen = tl.minimum(m + 1 + Sk - S, Sk)
    free = tl.min(seen, axis=0) // BN * BN
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, free, BN):
        n = start + tl.arange(0, BN)
        top, total, acc = step(q, k_ptr, v_ptr, kn, n, d, seen, Sk, scale, top, total, acc, False)
    for start in range(free, tl.max(seen, axis=0), BN):
        n = start + tl.arange(0, BN)
        top, total, acc = step(q, k_ptr, v_ptr, kn, n, d, seen, Sk, scale, top, total, acc, True)
    o_ptr += b * ob + h * oh
    tl.store(o_ptr + m[:, None] * om + d, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=(m < S)[:, None])


def prefill_attention(q, k, v):
    (B, H, S, D), (_, KH, Sk, _) = q.shape, k.shape
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    strides = *q.stride()[:3], *k.stride()[:3], *o.stride()[:3]
    grid = (triton.cdiv(S, 16), H, B)
    prefill_kernel[grid](q, k, v, o, *strides, S, Sk, D**-0.5, GROUP=H // KH, D=D, BM=16, BN=16)
    return o


# %% 6.4 | tiles in reverse, latest queries first
@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, qb, qh, qm, kb, kh, kn, ob, oh, om, H, S, Sk, scale,
    GROUP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    m = (tl.num_programs(1) - 1 - tl.program_id(1)) * BM + tl.arange(0, BM)
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + b * qb + h * qh + m[:, None] * qm + d, mask=(m < S)[:, None], other=0.0)
    last = tl.minimum(m + Sk - S, Sk - 1)
    tiles = tl.cdiv(tl.max(last, axis=0) + 1, BN)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for i in range(tiles):
        n = i * BN + tl.arange(0, BN)
        at = b * kb + h // GROUP * kh + n[:, None] * kn + d
        k = tl.load(k_ptr + at, mask=(n < Sk)[:, None], other=0.0)
        v = tl.load(v_ptr + at, mask=(n < Sk)[:, None], other=0.0)
        s = tl.where(n[None, :] <= last[:, None], tl.dot(q, k.T, input_precision="ieee") * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2(s - new[:, None])
        total = total * tl.exp2(top - new) + tl.sum(p, axis=1)
        acc = acc * tl.exp2(top - new)[:, None]
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = new
    at = b * ob + h * oh + m[:, None] * om + d
    tl.store(o_ptr + at, (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=(m < S)[:, None])


def prefill_attention(q, k, v):
    (B, H, S, D), (_, KH, Sk, _) = q.shape, k.shape
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    strides = *q.stride()[:3], *k.stride()[:3], *o.stride()[:3]
    scale = math.log2(math.e) / math.sqrt(D)
    grid = (B * H, triton.cdiv(S, 32))
    prefill_kernel[grid](q, k, v, o, *strides, H, S, Sk, scale, GROUP=H // KH, D=D, BM=32, BN=32)
    return o


# %% 6.5 | guards by where on the row, all blocks from the first key
@triton.jit
def window_kernel(q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, window, D: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d, mask=(m < Sq)[:, None], other=0.0)
    last = m + Sk - Sq
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, Sk, BLOCK):
        n = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + n[:, None] * D + d, mask=(n < Sk)[:, None], other=0.0)
        v = tl.load(v_ptr + n[:, None] * D + d, mask=(n < Sk)[:, None], other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        seen = (n[None, :] <= last[:, None]) & (n[None, :] > (last - window)[:, None]) & (n < Sk)[None, :]
        s = tl.where(seen, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.where(seen, tl.exp(s - new[:, None]), 0.0)
        alpha = tl.where(top == -float("inf"), 0.0, tl.exp(top - new))
        total = total * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        top = new
    o = tl.where((total > 0)[:, None], acc / total[:, None], 0.0)
    tl.store(o_ptr + m[:, None] * D + d, o.to(o_ptr.dtype.element_ty), mask=(m < Sq)[:, None])


def window_attention(q, k, v, window):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    window_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, Sq, Sk, D**-0.5, window, D=D, BLOCK=16)
    return o


# %% 6.6 | delta by a kernel of its own
@triton.jit
def delta_kernel(o_ptr, do_ptr, delta_ptr, D: tl.constexpr):
    i, d = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    o = tl.load(o_ptr + i * D + d).to(tl.float32)
    tl.store(delta_ptr + i, tl.sum(o * tl.load(do_ptr + i * D + d).to(tl.float32), axis=0))


@triton.jit
def gradient_kernel(
    q_ptr, k_ptr, v_ptr, delta_ptr, lse_ptr, do_ptr, dq_ptr, Sq, Sk, scale, D: tl.constexpr, B: tl.constexpr
):
    m = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    rows, inside = m[:, None] * D + d, (m < Sq)[:, None]
    q, do = tl.load(q_ptr + rows, mask=inside, other=0.0), tl.load(do_ptr + rows, mask=inside, other=0.0)
    delta = tl.load(delta_ptr + m, mask=m < Sq, other=0.0)
    lse = tl.load(lse_ptr + m, mask=m < Sq, other=float("inf"))
    dq = tl.zeros((B, D), tl.float32)
    for start in range(0, Sk, B):
        n = start + tl.arange(0, B)
        k = tl.load(k_ptr + n[:, None] * D + d, mask=(n < Sk)[:, None], other=0.0)
        vt = tl.load(v_ptr + n[None, :] * D + d[:, None], mask=(n < Sk)[None, :], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.where((n < Sk)[None, :], tl.exp(s - lse[:, None]), 0.0)
        ds = p * (tl.dot(do, vt, input_precision="ieee") - delta[:, None]) * scale
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    tl.store(dq_ptr + rows, dq.to(dq_ptr.dtype.element_ty), mask=inside)


def query_gradient(q, k, v, o, lse, do):
    (Sq, D), Sk = q.shape, len(k)
    dq, delta = torch.empty_like(q), torch.empty(Sq, dtype=torch.float32, device=q.device)
    delta_kernel[(Sq,)](o, do, delta, D=D)
    gradient_kernel[(triton.cdiv(Sq, 16),)](q, k, v, delta, lse, do, dq, Sq, Sk, D**-0.5, D=D, B=16)
    return dq


# %% 6.6 | keys in blocks of 32, queries of 32, base 2
@triton.jit
def gradient_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    do_ptr,
    dq_ptr,
    Sq,
    Sk,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    rows, inside = m[:, None] * D + d, (m < Sq)[:, None]
    q = tl.load(q_ptr + rows, mask=inside, other=0.0)
    do = tl.load(do_ptr + rows, mask=inside, other=0.0)
    delta = (tl.load(o_ptr + rows, mask=inside, other=0.0).to(tl.float32) * do.to(tl.float32)).sum(axis=1)
    lse = tl.load(lse_ptr + m, mask=m < Sq, other=0.0) * 1.4426950408889634
    dq = tl.zeros((BM, D), tl.float32)
    for block in range(0, tl.cdiv(Sk, BN)):
        n = block * BN + tl.arange(0, BN)
        at, real = n[:, None] * D + d, n[:, None] < Sk
        k, v = tl.load(k_ptr + at, mask=real, other=0.0), tl.load(v_ptr + at, mask=real, other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * (scale * 1.4426950408889634)
        p = tl.exp2(tl.where(n[None, :] < Sk, s - lse[:, None], -float("inf")))
        ds = p * (tl.dot(do, v.T, input_precision="ieee") - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    tl.store(dq_ptr + rows, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside)


def query_gradient(q, k, v, o, lse, do):
    (Sq, D), Sk = q.shape, len(k)
    dq = torch.empty_like(q)
    gradient_kernel[(triton.cdiv(Sq, 32),)](q, k, v, o, lse, do, dq, Sq, Sk, D**-0.5, D=D, BM=32, BN=32)
    return dq


# %% 6.1 | powers of 2, of elements that were scaled before their maximum was taken
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask).to(tl.float32) * 1.4426950408889634
    x = tl.where(mask, x, float("-inf"))
    power = tl.exp2(x - x.max(axis=0))
    tl.store(y_ptr + row * stride_ym + cols, power * (1 / power.sum(axis=0)), mask=mask)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y


# %% 6.a | four rows in one program, as a block of two dimensions whose maximum keeps its axis
@triton.jit
def below_maximum_kernel(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    live = (r < M) & (c < N)
    x = tl.load(x_ptr + r * N + c, mask=live, other=float("-inf"))
    tops = x.max(axis=1, keep_dims=True)
    tl.store(y_ptr + r * N + c, x - tops, mask=live)


def below_maximum(x):
    M, N = x.shape
    y = torch.empty(M, N)
    grid = lambda meta: (triton.cdiv(M, meta["ROWS"]),)
    below_maximum_kernel[grid](x, y, M, N, ROWS=4, COLS=triton.next_power_of_2(N))
    return y


# %% 6.b | the half with the larger maximum stays, the other is multiplied by exp of minus the distance
@triton.jit
def merge_kernel(m1_ptr, l1_ptr, m2_ptr, l2_ptr, m_ptr, l_ptr, rows, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < rows
    a, b = tl.load(m1_ptr + i, mask=live, other=0.0), tl.load(m2_ptr + i, mask=live, other=0.0)
    sum_a, sum_b = tl.load(l1_ptr + i, mask=live, other=1.0), tl.load(l2_ptr + i, mask=live, other=1.0)
    factor = tl.where(a == b, 1.0, tl.exp(-tl.abs(a - b)))
    first_wins = a >= b
    tl.store(m_ptr + i, tl.where(first_wins, a, b), mask=live)
    tl.store(l_ptr + i, tl.where(first_wins, sum_a + sum_b * factor, sum_b + sum_a * factor), mask=live)


def merge_sums(m1, l1, m2, l2):
    m, total = torch.empty_like(m1), torch.empty_like(l1)
    merge_kernel[(triton.cdiv(m1.numel(), 32),)](m1, l1, m2, l2, m, total, m1.numel(), BLOCK=32)
    return m, total


# %% 6.1 | the row is walked twice in blocks of 256, first online for maximum and sum, then to store the weights
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * stride_ym
    top = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < N, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, x.max(axis=0))
        centre = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(top - centre) + tl.exp(x - centre).sum(axis=0)
        top = new
    for start in range(0, N, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < N, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + c, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=c < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=256)
    return y


# %% 6.2 | every lane keeps a maximum and a sum of its own, and tl.reduce joins the pairs of the 64 lanes at ...
@triton.jit
def joined(m1, l1, m2, l2):
    m = tl.maximum(m1, m2)
    centre = tl.where(m == -float("inf"), 0.0, m)
    return m, l1 * tl.exp(m1 - centre) + l2 * tl.exp(m2 - centre)


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    lane = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        x = tl.load(x_ptr + start + lane, mask=start + lane < N, other=-float("inf")).to(tl.float32)
        m, l = joined(m, l, x, tl.full((BLOCK,), 1.0, tl.float32))
    top, total = tl.reduce((m, l), 0, joined)
    tl.store(out_ptr + row, top + tl.log(total))


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(M,)](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% 6.2 | four rows in one program and powers of two, with the maximum turned back into natural logarithms
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, N, BLOCK):
        c = start + tl.arange(0, BLOCK)
        live = (r[:, None] < M) & (c[None, :] < N)
        x = tl.load(x_ptr + r[:, None] * stride_xm + c[None, :], mask=live, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, axis=1))
        centre = tl.where(new > -float("inf"), new, 0.0)
        fade = tl.exp2((top - centre) * 1.4426950408889634)
        total = total * fade + tl.sum(tl.exp2((x - centre[:, None]) * 1.4426950408889634), axis=1)
        top = new
    nothing = total == 0.0
    lse = top + tl.log2(tl.where(nothing, 1.0, total)) * 0.6931471805599453
    tl.store(out_ptr + r, lse, mask=r < M)


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(triton.cdiv(M, 4),)](x, out, x.stride(0), M, N, ROWS=4, BLOCK=64)
    return out


# %% 6.3 | everything lies transposed: scores are (keys, queries), the accumulator is (D, queries); powers of two
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale_2, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    i = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, D)
    q_t = tl.load(q_ptr + i[None, :] * D + d[:, None], mask=i[None, :] < Sq, other=0.0)
    top = tl.full((QUERIES,), -float("inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((D, QUERIES), tl.float32)
    for start in range(0, Sk, KEYS):
        j = start + tl.arange(0, KEYS)
        there = (j < Sk)[:, None]
        k = tl.load(k_ptr + j[:, None] * D + d[None, :], mask=there, other=0.0)
        v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=there, other=0.0)
        s = tl.dot(k, q_t, input_precision="ieee") * scale_2
        s = tl.where(there, s, float("-inf"))
        new = tl.maximum(top, s.max(axis=0))
        fade = tl.exp2(top - new)
        p = tl.exp2(s - new[None, :])
        total = total * fade + p.sum(axis=0)
        acc = tl.dot(tl.trans(v), p.to(v.dtype), acc * fade[None, :], input_precision="ieee")
        top = new
    out = acc / total[None, :]
    tl.store(o_ptr + i[None, :] * D + d[:, None], out.to(o_ptr.dtype.element_ty), mask=i[None, :] < Sq)


def head_attention(q, k, v):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    attention_kernel[lambda meta: (triton.cdiv(Sq, meta["QUERIES"]),)](
        q, k, v, o, Sq=Sq, Sk=Sk, scale_2=1.4426950408889634 * D**-0.5, D=D, QUERIES=16, KEYS=32
    )
    return o


# %% 6.4 | persistent programs share the tiles of all heads, and a device function walks twice, without and ...
@triton.jit
def attend(
    acc, top, total, q, k_ptr, v_ptr, stride_kn, seen, Sk, scale_2, begin, end,
    D: tl.constexpr, KEYS: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, D)[None, :]
    for start in range(begin, end, KEYS):
        j = start + tl.arange(0, KEYS)
        at = j[:, None] * stride_kn + d
        if EDGE:
            k = tl.load(k_ptr + at, mask=j[:, None] < Sk, other=0.0)
            v = tl.load(v_ptr + at, mask=j[:, None] < Sk, other=0.0)
        else:
            k = tl.load(k_ptr + at)
            v = tl.load(v_ptr + at)
        s = tl.dot(q, k.T, input_precision="ieee") * scale_2
        if EDGE:
            s = tl.where(j[None, :] < seen[:, None], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2(s - new[:, None])
        fade = tl.exp2(top - new)
        total = total * fade + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        top = new
    return acc, top, total


@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, qb, qh, qm, kb, kh, kn, ob, oh, om, B, H, S, Sk, scale_2,
    GROUP: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(S, QUERIES)
    d = tl.arange(0, D)[None, :]
    for task in range(tl.program_id(0), B * H * tiles, tl.num_programs(0)):
        m0 = task % tiles * QUERIES
        row = task // tiles
        batch, head = tl.cast(row // H, tl.int64), tl.cast(row % H, tl.int64)
        m = m0 + tl.arange(0, QUERIES)
        q_at = q_ptr + batch * qb + head * qh + m[:, None] * qm + d
        q = tl.load(q_at, mask=m[:, None] < S, other=0.0)
        shared = batch * kb + head // GROUP * kh
        seen = tl.minimum(m + 1 + Sk - S, Sk)
        whole = tl.minimum(m0 + 1 + Sk - S, Sk) // KEYS * KEYS
        end = tl.minimum(m0 + QUERIES + Sk - S, Sk)
        top = tl.full((QUERIES,), -float("inf"), tl.float32)
        total = tl.zeros((QUERIES,), tl.float32)
        acc = tl.zeros((QUERIES, D), tl.float32)
        acc, top, total = attend(
            acc, top, total, q, k_ptr + shared, v_ptr + shared, kn, seen, Sk, scale_2, 0, whole, D, KEYS, False
        )
        acc, top, total = attend(
            acc, top, total, q, k_ptr + shared, v_ptr + shared, kn, seen, Sk, scale_2, whole, end, D, KEYS, True
        )
        out = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
        tl.store(o_ptr + batch * ob + head * oh + m[:, None] * om + d, out, mask=m[:, None] < S)


def prefill_attention(q, k, v):
    (B, H, S, D), (_, KH, Sk, _) = q.shape, k.shape
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    strides = *q.stride()[:3], *k.stride()[:3], *o.stride()[:3]
    programs = min(B * H * triton.cdiv(S, 32), 128)
    prefill_kernel[(programs,)](
        q, k, v, o, *strides, B, H, S, Sk, math.log2(math.e) / math.sqrt(D), GROUP=H // KH, D=D, QUERIES=32, KEYS=16
    )
    return o


# %% 6.4 | the query heads of a group share a tile: its rows are query by query the members of the group, so ...
@triton.jit
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, qb, qh, qm, kb, kh, kn, ob, oh, om, S, Sk, scale,
    GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    batch, kv_head = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    query = row // GROUP
    head = kv_head * GROUP + row % GROUP
    d = tl.arange(0, D)[None, :]
    live = query[:, None] < S
    q = tl.load(q_ptr + batch * qb + (head * qh + query * qm)[:, None] + d, mask=live, other=0.0)
    k_ptr += batch * kb + kv_head * kh
    v_ptr += batch * kb + kv_head * kh
    last = tl.minimum(query + Sk - S, Sk - 1)  # the last key that a row sees
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, tl.max(last, axis=0) + 1, KEYS):
        j = start + tl.arange(0, KEYS)
        k = tl.load(k_ptr + j[:, None] * kn + d, mask=j[:, None] < Sk, other=0.0)
        v = tl.load(v_ptr + j[:, None] * kn + d, mask=j[:, None] < Sk, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(j[None, :] <= last[:, None], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p, fade = tl.exp(s - new[:, None]), tl.exp(top - new)
        total = total * fade + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        top = new
    out = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + batch * ob + (head * oh + query * om)[:, None] + d, out, mask=live)


def prefill_attention(q, k, v):
    (B, H, S, D), (_, KH, Sk, _) = q.shape, k.shape
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    group = H // KH
    prefill_kernel[(triton.cdiv(S * group, 32), KH, B)](
        q, k, v, o, *q.stride()[:3], *k.stride()[:3], *o.stride()[:3], S, Sk, D**-0.5,
        GROUP=group, D=D, ROWS=32, KEYS=32,
    )  # fmt: skip
    return o


# %% 6.5 | unseen weights are set to 0 themselves, a device function finds a safe centre, keys come 32 at a ...
@triton.jit
def finite(m):
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def window_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, window, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    i = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    d = tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + i[:, None] * D + d, mask=i[:, None] < Sq, other=0.0)
    last = i + Sk - Sq
    begin = tl.maximum(tl.min(last, axis=0) + 1 - window, 0) // KEYS * KEYS
    end = tl.minimum(tl.max(last, axis=0) + 1, Sk)
    top = tl.full((QUERIES,), -float("inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    acc = tl.zeros((QUERIES, D), tl.float32)
    for start in range(begin, end, KEYS):
        j = start + tl.arange(0, KEYS)
        k = tl.load(k_ptr + j[:, None] * D + d, mask=j[:, None] < Sk, other=0.0)
        v = tl.load(v_ptr + j[:, None] * D + d, mask=j[:, None] < Sk, other=0.0)
        back = last[:, None] - j[None, :]
        seen = (back >= 0) & (back < window) & (j[None, :] < Sk)
        s = tl.where(seen, tl.dot(q, k.T, input_precision="ieee") * scale, -float("inf"))
        new = tl.maximum(top, s.max(axis=1))
        p = tl.where(seen, tl.exp(s - finite(new)[:, None]), 0.0)
        fade = tl.exp(top - finite(new))
        total = total * fade + p.sum(axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        top = new
    out = tl.where(total[:, None] > 0.0, acc / tl.where(total > 0.0, total, 1.0)[:, None], 0.0)
    tl.store(o_ptr + i[:, None] * D + d, out.to(o_ptr.dtype.element_ty), mask=i[:, None] < Sq)


def window_attention(q, k, v, window):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    window_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, Sq, Sk, D**-0.5, min(window, Sk), D=D, QUERIES=16, KEYS=32)
    return o


# %% 6.6 | keys and values are loaded transposed, p comes from powers of two, and the tile of dq is stored ...
@triton.jit
def query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, do_ptr, dq_ptr, Sq, Sk, scale,
    D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    LOG2_E: tl.constexpr = 1.4426950408889634
    first = tl.program_id(0) * QUERIES
    i = first + tl.arange(0, QUERIES)
    d = tl.arange(0, D)
    at = i[:, None] * D + d[None, :]
    mine = i[:, None] < Sq
    q = tl.load(q_ptr + at, mask=mine, other=0.0)
    grad = tl.load(do_ptr + at, mask=mine, other=0.0)
    o = tl.load(o_ptr + at, mask=mine, other=0.0)
    delta = tl.sum(o.to(tl.float32) * grad.to(tl.float32), axis=1)
    lse = tl.load(lse_ptr + i, mask=i < Sq, other=0.0)
    acc = tl.zeros((QUERIES, D), tl.float32)
    for start in range(0, Sk, KEYS):
        j = start + tl.arange(0, KEYS)
        there = (j < Sk)[None, :]
        k_t = tl.load(k_ptr + j[None, :] * D + d[:, None], mask=there, other=0.0)
        v_t = tl.load(v_ptr + j[None, :] * D + d[:, None], mask=there, other=0.0)
        s = tl.dot(q, k_t, input_precision="ieee") * scale
        p = tl.where(there, tl.exp2((s - lse[:, None]) * LOG2_E), 0.0)
        ds = tl.where(there, p * (tl.dot(grad, v_t, input_precision="ieee") - delta[:, None]) * scale, 0.0)
        acc = tl.dot(ds.to(k_t.dtype), tl.trans(k_t), acc, input_precision="ieee")
    out = tl.make_tensor_descriptor(dq_ptr, shape=[Sq, D], strides=[D, 1], block_shape=[QUERIES, D])
    out.store([first, 0], acc.to(dq_ptr.dtype.element_ty))


def query_gradient(q, k, v, o, lse, do):
    (Sq, D), Sk = q.shape, len(k)
    dq = torch.empty_like(q)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=q.device))
    query_gradient_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, lse, do, dq, Sq, Sk, D**-0.5, D=D, QUERIES=16, KEYS=16)
    return dq
