"""Right answers of lesson 02, written differently from the solutions."""

# ruff: noqa


# %% 2.1 | methods of blocks
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, (x * x).sum(0) / N)


def row_mean_square(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M,)](x, out, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return out


# %% 2.1 | parts added by atomics
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + row, tl.sum(x * x, axis=0) / N)


def row_mean_square(x):
    M, N = x.shape
    out = torch.zeros(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M, triton.cdiv(N, 64))](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% 2.1 | a lock around the sum
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, lock_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    part = tl.sum(x * x, axis=0) / N
    while tl.atomic_cas(lock_ptr + row, 0, 1) == 1:
        pass
    tl.store(out_ptr + row, tl.load(out_ptr + row) + part)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + row, 0)


def row_mean_square(x):
    M, N = x.shape
    out = torch.zeros(M, dtype=torch.float32, device=x.device)
    lock = torch.zeros(M, dtype=torch.int32, device=x.device)
    mean_square_kernel[(M, triton.cdiv(N, 64))](x, out, lock, x.stride(0), N, BLOCK=64)
    return out


# %% 2.1 | parts in memory, the last program adds them
@triton.jit
def mean_square_kernel(x_ptr, parts_ptr, count_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr, P: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(parts_ptr + row * parts + part, tl.sum(x * x, axis=0))
    done = tl.atomic_add(count_ptr + row, 1)
    if done == parts - 1:
        p = tl.arange(0, P)
        all_parts = tl.load(parts_ptr + row * parts + p, mask=p < parts, other=0.0)
        tl.store(out_ptr + row, tl.sum(all_parts, axis=0) / N)


def row_mean_square(x):
    M, N = x.shape
    parts = triton.cdiv(N, 64)
    scratch = torch.empty((M, parts), dtype=torch.float32, device=x.device)
    count = torch.zeros(M, dtype=torch.int32, device=x.device)
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M, parts)](x, scratch, count, out, x.stride(0), N, BLOCK=64, P=triton.next_power_of_2(parts))
    return out


# %% 2.1 | a reduction of one's own
@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.reduce(x * x, 0, plus) / N)


def row_mean_square(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M,)](x, out, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return out


# %% 2.1 | a vector of partial sums in a loop
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        squares = tl.fma(x, x, squares)
    tl.store(out_ptr + row, tl.sum(squares) / N)


def row_mean_square(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M,)](x, out, x.stride(0), N, BLOCK=64)
    return out


# %% 2.1 | a dot with itself
@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_xm + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    ones = tl.full((BLOCK, 16), 1.0, tl.float32)
    sums = tl.dot(x * x, ones, input_precision="ieee")
    tl.store(out_ptr + rows, tl.max(sums, axis=1) * (1.0 / N), mask=rows < M)


def row_mean_square(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    block = max(16, triton.next_power_of_2(N))
    mean_square_kernel[(triton.cdiv(M, 16),)](x, out, x.stride(0), M, N, ROWS=16, BLOCK=block)
    return out


# %% 2.2 | two rows a program, sqrt, methods
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, R: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    scale = 1 / ((x * x).sum(axis=1, keep_dims=True) / N + eps).sqrt()
    tl.store(y_ptr + rows * stride_ym + cols, (x * scale * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_kernel[(triton.cdiv(M, 2),)](
        x, weight, y, x.stride(0), y.stride(0), M, N, eps, R=2, BLOCK=triton.next_power_of_2(N)
    )
    return y


# %% 2.2 | a loop over rows by a few programs
@triton.jit
def mean_of_squares(x, N):
    return tl.sum(x * x, axis=0) / N


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
        y = x * tl.math.rsqrt(mean_of_squares(x, N) + eps) * w
        tl.store(y_ptr + row * stride_ym + cols, y, mask=mask)


def rms_norm(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_kernel[(min(M, 3),)](x, weight, y, x.stride(0), y.stride(0), M, N, eps, BLOCK=triton.next_power_of_2(N))
    return y


# %% 2.2 | the loop of 2.5 with a block of its own
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += tl.sum(x * x, axis=0)
    scale = 1.0 / tl.sqrt_rn(total / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * stride_ym + cols, x * w * scale, mask=cols < N)


def rms_norm(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=128)
    return y


# %% 2.2 | several launches: the scale of each row, then the rows
@triton.jit
def scales(x_ptr, r_ptr, stride_xm, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(r_ptr + row, tl.rsqrt(tl.sum(x * x, axis=0) / N + eps))


@triton.jit
def scaled(x_ptr, w_ptr, r_ptr, y_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < N).to(tl.float32)
    tl.store(y_ptr + row * N + cols, (x * tl.load(r_ptr + row) * w).to(y_ptr.dtype.element_ty), mask=cols < N)


def rms_norm(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    r = torch.empty(M, dtype=torch.float32, device=x.device)
    scales[(M,)](x, r, x.stride(0), N, eps, BLOCK=triton.next_power_of_2(N))
    scaled[(triton.cdiv(N, 64), M)](x, weight, r, y, x.stride(0), N, BLOCK=64)
    return y


# %% 2.2 | heuristics choose the block
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["N"])})
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    rms = tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
    tl.store(y_ptr + row * stride_ym + cols, (x / rms * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm(x, weight, eps):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rms_norm_kernel[(x.shape[0],)](x, weight, y, x.stride(0), y.stride(0), x.shape[1], eps)
    return y


# %% 2.3 | negative zero: load order, stores first y
@triton.jit
def add_rms_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, n_ptr, sx, sr, sy, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total_sq = tl.zeros([BLOCK], dtype=tl.float32)
    for c0 in tl.range(0, N, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        ok = c < N
        s = (
            tl.load(x_ptr + row * sx + c, ok, 0).to(tl.float32) + tl.load(r_ptr + row * sr + c, ok, 0).to(tl.float32)
        ).to(n_ptr.dtype.element_ty)
        tl.store(n_ptr + row * sy + c, s, ok)
        total_sq = tl.fma(s.to(tl.float32), s.to(tl.float32), total_sq)
    inv = tl.rsqrt(tl.sum(total_sq) / N + eps)
    for c0 in tl.range(0, N, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        ok = c < N
        s = tl.load(n_ptr + row * sy + c, ok, 0).to(tl.float32)
        w = tl.load(w_ptr + c, ok, 0).to(tl.float32)
        tl.store(y_ptr + row * sy + c, (s * inv * w).to(y_ptr.dtype.element_ty), ok)


def add_rms_norm(x, residual, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    new = torch.empty_like(y)
    add_rms_norm_kernel[(M,)](
        x, residual, weight, y, new, x.stride(0), residual.stride(0), y.stride(0), N, eps, BLOCK=128, num_warps=2
    )
    return y, new


# %% 2.3 | the sum in a helper, rows in a loop
@triton.jit
def normalised(total, w, N, eps):
    return total * tl.rsqrt(tl.sum(total * total, axis=0) / N + eps) * w


@triton.jit
def add_rms_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, new_ptr, sx, sr, sy, M, N, eps, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        i = row.to(tl.int64)
        x = tl.load(x_ptr + i * sx + cols, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(r_ptr + i * sr + cols, mask=mask, other=0.0).to(tl.float32)
        total = (x + r).to(x_ptr.dtype.element_ty)
        tl.store(new_ptr + i * sy + cols, total, mask=mask)
        y = normalised(total.to(tl.float32), w, N, eps)
        tl.store(y_ptr + i * sy + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, eps):
    M, N = x.shape
    y, new = (torch.empty((M, N), dtype=x.dtype, device=x.device) for _ in range(2))
    strides = x.stride(0), residual.stride(0), y.stride(0)
    block = triton.next_power_of_2(N)
    add_rms_norm_kernel[(min(M, 3),)](x, residual, weight, y, new, *strides, M, N, eps, BLOCK=block)
    return y, new


# %% 2.3 | the addition in the dtype of x
@triton.jit
def add_rms_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, new_ptr, sx, sr, sy, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    total = tl.load(x_ptr + row * sx + cols, mask=mask, other=0.0) + tl.load(
        r_ptr + row * sr + cols, mask=mask, other=0.0
    )
    tl.store(new_ptr + row * sy + cols, total, mask=mask)
    wide = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / N + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * sy + cols, (wide * scale * w).to(y_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, eps):
    M, N = x.shape
    out = torch.empty((2, M, N), dtype=x.dtype, device=x.device)
    y, new = out[0], out[1]
    strides = x.stride(0), residual.stride(0), y.stride(0)
    add_rms_norm_kernel[(M,)](x, residual, weight, y, new, *strides, N, eps, BLOCK=triton.next_power_of_2(N))
    return y, new


# %% 2.4 | one-pass mean, where by multiplication
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = (x - mean) * mask.to(tl.float32)
    variance = (centred * centred).sum() / N
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * stride_ym + cols, centred / tl.sqrt_rn(variance + eps) * w + b, mask=mask)


def layer_norm(x, weight, bias, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    layer_norm_kernel[(M,)](x, weight, bias, y, x.stride(0), y.stride(0), N, eps, BLOCK=triton.next_power_of_2(N))
    return y


# %% 2.4 | the variance by a masked difference, multiplied out
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    variance = tl.sum(tl.where(mask, (x - mean) * (x - mean), 0.0), axis=0) / N
    rstd = 1 / tl.sqrt(variance + eps)
    tl.store(y_ptr + row * stride_ym + cols, ((x - mean) * (rstd * w) + b).to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm(x, weight, bias, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    layer_norm_kernel[(M,)](x, weight, bias, y, x.stride(0), y.stride(0), N, eps, BLOCK=block)
    return y


# %% 2.4 | three walks over the row
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_xm, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        d = tl.where(cols < N, x - mean, 0.0)
        squares += d * d
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * N + cols, ((x - mean) * rstd * w + b).to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm(x, weight, bias, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    layer_norm_kernel[(M,)](x, weight, bias, y, x.stride(0), N, eps, BLOCK=256)
    return y


# %% 2.5 | cumulative and static_range
UNROLL = tl.constexpr(4)


@triton.jit
def rms_norm_long_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK * UNROLL):
        for u in tl.static_range(UNROLL):
            cols = start + u * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
            total += tl.sum(x * x)
    inv = 1.0 / tl.sqrt(total / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * stride_ym + cols, (x * inv * w).to(y_ptr.dtype.element_ty), mask=cols < N)


def rms_norm_long(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_long_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=1024)
    return y


# %% 2.5 | tl.sum inside the loop, while instead of for
@triton.jit
def rms_norm_long_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * stride_ym
    total = 0.0
    start = 0
    while start < N:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += tl.sum(x * x)
        start += BLOCK
    rstd = tl.rsqrt(total / N + eps)
    for block in range(tl.cdiv(N, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_long(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_long_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=1024)
    return y


# %% 2.5 | the second walk backwards, pointers that move
@triton.jit
def rms_norm_long_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    here = x_ptr + row * stride_xm + lane
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    left = N
    for start in range(0, N, BLOCK):
        x = tl.load(here, mask=lane < left, other=0.0).to(tl.float32)
        squares += x * x
        here += BLOCK
        left -= BLOCK
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    blocks = tl.cdiv(N, BLOCK)
    for i in range(0, blocks):
        cols = (blocks - 1 - i) * BLOCK + lane
        mask = cols < N
        x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * stride_ym + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_long(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_long_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=1024)
    return y


# %% 2.6 | a class of one's own for launching, named tuple
from typing import NamedTuple


class Grid(NamedTuple):
    rows: int
    block: int


@triton.jit
def rms_norm_short_kernel(
    x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    sq = (x * x).reshape(BLOCK_M, BLOCK_N).permute(1, 0)
    ms = tl.sum(sq, axis=0)[:, None] / N
    tl.store(
        y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :],
        (x * tl.rsqrt(ms + eps) * w).to(y_ptr.dtype.element_ty),
        mask=mask,
    )


def rms_norm_short(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    how = Grid(triton.cdiv(M, 4), 4)
    rms_norm_short_kernel[(how.rows,)](
        x, weight, y, x.stride(0), y.stride(0), M, N, eps, BLOCK_M=how.block, BLOCK_N=triton.next_power_of_2(N)
    )
    return y


# %% 2.6 | tiles of 32 rows, keep_dims
@triton.jit
def rms_norm_short_kernel(x_ptr, w_ptr, y_ptr, sx, sy, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = (tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    n = tl.arange(0, BLOCK_N)[None, :]
    mask = (m < M) & (n < N)
    x = tl.load(x_ptr + m * sx + n, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / N + eps) * w
    tl.store(y_ptr + m * sy + n, y.to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_short(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 32),)
    rms_norm_short_kernel[grid](x, weight, y, x.stride(0), N, M, N, eps, BLOCK_M=32, BLOCK_N=triton.next_power_of_2(N))
    return y


# %% 2.6 | rows along axis 1, a transposed tile
@triton.jit
def rms_norm_short_kernel(x_ptr, w_ptr, y_ptr, sx, sy, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = (tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[None, :]
    n = tl.arange(0, BLOCK_N)[:, None]
    mask = (m < M) & (n < N)
    x = tl.load(x_ptr + m * sx + n, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    tl.store(y_ptr + m * sy + n, (x * scale[None, :] * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_short(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    blocks = {"BLOCK_M": 8, "BLOCK_N": triton.next_power_of_2(N)}
    rms_norm_short_kernel[(triton.cdiv(M, 8),)](x, weight, y, x.stride(0), y.stride(0), M, N, eps, **blocks)
    return y


# %% 2.1 | tl.reduce with a function of its own
@triton.jit
def both(s1, c1, s2, c2):
    return s1 + s2, c1 + c2


@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    total, count = tl.reduce((x * x, (cols < N).to(tl.float32)), 0, both)
    tl.store(out_ptr + row, total / count)


def row_mean_square(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M,)](x, out, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return out


# %% 2.4 | mean and variance in one tl.reduce
@triton.jit
def welford(m1, s1, n1, m2, s2, n2):
    n = n1 + n2
    f = tl.where(n > 0, n2 / tl.maximum(n, 1.0), 0.0)
    d = m2 - m1
    return m1 + d * f, s1 + s2 + d * d * n1 * f, n


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean, sq, n = tl.reduce((x, tl.zeros_like(x), mask.to(tl.float32)), 0, welford)
    y = (x - mean) * tl.rsqrt(sq / n + eps) * w + b
    tl.store(y_ptr + row * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm(x, weight, bias, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    layer_norm_kernel[(M,)](x, weight, bias, y, x.stride(0), y.stride(0), N, eps, BLOCK=triton.next_power_of_2(N))
    return y


# %% 2.b | several programs share a row and keep its maximum in y under a lock
@triton.jit
def row_maximum_kernel(x_ptr, y_ptr, lock_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.max(tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf")), axis=0)
    while tl.atomic_cas(lock_ptr + row, 0, 1) == 1:
        pass
    best = tl.load(y_ptr + row, volatile=True)
    tl.store(y_ptr + row, tl.maximum(best, part))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + row, 0)


def row_maximum(x):
    M, N = x.shape
    y = torch.full((M,), -float("inf"), device=x.device)
    locks = torch.zeros(M, dtype=torch.int32, device=x.device)
    row_maximum_kernel[(M, triton.cdiv(N, 128))](x, y, locks, N, BLOCK=128)
    return y


# %% 2.c | the sums are the last column of an associative scan along the rows
@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def tile_sums_kernel(x_ptr, y_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    running = tl.associative_scan(x, 1, plus)
    last = tl.where(cols[None, :] == BLOCK_N - 1, running, 0.0)
    tl.store(y_ptr + rows, tl.sum(last, axis=1), mask=rows < M)


def tile_sums(x):
    (M, N), y = x.shape, torch.empty(len(x))
    block = triton.next_power_of_2(N)
    tile_sums_kernel[(triton.cdiv(M, 16),)](x, y, M, N, BLOCK_M=16, BLOCK_N=block)
    return y


# %% 2.1 | several programs a row add their shares of the mean with an atomic, and each reduces with a function ...
@triton.jit
def add_up(a, b):
    return a + b


@triton.jit
def mean_square_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    share = tl.reduce(x * x, 0, add_up) / N
    tl.atomic_add(out_ptr + row, share)


def row_mean_square(x):
    M, N = x.shape
    out = torch.zeros(M, dtype=torch.float32, device=x.device)
    mean_square_kernel[(M, triton.cdiv(N, 512))](x, out, x.stride(0), N, BLOCK=512)
    return out


# %% 2.2 | a tile of up to four rows a program, reduced by a method that keeps the dimension, with a grid from ...
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One program, ROWS rows."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    inside = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * stride_xm + cols, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean_square = (x * x).sum(axis=1, keep_dims=True) / N
    y = x * tl.rsqrt(mean_square + eps) * gain
    tl.store(y_ptr + rows * stride_ym + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    rows = 4 if block <= 4096 else 1

    def grid(meta):
        return (triton.cdiv(M, meta["ROWS"]),)

    rms_norm_kernel[grid](x, weight, y, x.stride(0), y.stride(0), M, N, eps, ROWS=rows, BLOCK=block)
    return y


# %% 2.3 | a row is walked twice in blocks of 256, and the rounded sum is computed again instead of being read back
@triton.jit
def rounded_sum(x_ptr, residual_ptr, cols, N):
    a = tl.load(x_ptr + cols, mask=cols < N, other=0.0)
    b = tl.load(residual_ptr + cols, mask=cols < N, other=0.0)
    return (a.to(tl.float32) + b.to(tl.float32)).to(x_ptr.dtype.element_ty)


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, w_ptr, y_ptr, new_residual_ptr, stride_xm, stride_rm, stride_ym, N, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    residual_ptr += row * stride_rm
    y_ptr += row * stride_ym
    new_residual_ptr += row * stride_ym
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total = rounded_sum(x_ptr, residual_ptr, cols, N)
        tl.store(new_residual_ptr + cols, total, mask=cols < N)
        squares += total.to(tl.float32) * total.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total = rounded_sum(x_ptr, residual_ptr, cols, N).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (total * rstd * w).to(y_ptr.dtype.element_ty), mask=cols < N)


def add_rms_norm(x, residual, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    new_residual = torch.empty_like(y)
    strides = x.stride(0), residual.stride(0), y.stride(0)
    add_rms_norm_kernel[(M,)](x, residual, weight, y, new_residual, *strides, N, eps, BLOCK=256)
    return y, new_residual


# %% 2.4 | Welford's running mean and squared deviations for each lane in a loop over blocks, and the lanes are ...
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    """One program, one row of any width."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * stride_ym
    lanes = tl.arange(0, BLOCK)
    count = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    spread = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        inside = start + lanes < N
        x = tl.load(x_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        count += inside.to(tl.float32)
        before = x - mean
        mean += tl.where(inside, before / tl.maximum(count, 1.0), 0.0)
        spread += tl.where(inside, before * (x - mean), 0.0)
    centre = tl.sum(mean * count, axis=0) / N
    apart = mean - centre
    variance = tl.sum(spread + count * apart * apart, axis=0) / N
    rstd = 1.0 / tl.sqrt(variance + eps)
    for start in range(0, N, BLOCK):
        inside = start + lanes < N
        x = tl.load(x_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = (x - centre) * rstd * w + b
        tl.store(y_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm(x, weight, bias, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    layer_norm_kernel[(M,)](x, weight, bias, y, x.stride(0), y.stride(0), N, eps, BLOCK=256)
    return y


# %% 2.5 | the second walk goes from the end of the row to its beginning, and the statistics of each block are ...
@triton.jit
def rms_norm_long_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    """One program, one row of any width, BLOCK elements at a time."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    y_ptr += row * stride_ym
    blocks = (N + BLOCK - 1) // BLOCK
    total = 0.0
    for k in range(0, blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += tl.sum(x * x, axis=0)
    root = tl.sqrt(total / N + eps)
    for k in range(0, blocks):
        cols = (blocks - 1 - k) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x / root * w).to(y_ptr.dtype.element_ty), mask=cols < N)


def rms_norm_long(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    rms_norm_long_kernel[(M,)](x, weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=1024)
    return y


# %% 2.6 | the tile is transposed, columns run along axis 0 and the sum with them, and a program has 32 rows
@triton.jit
def rms_norm_short_kernel(
    x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program, BLOCK_M rows, which are the columns of the tile."""
    r = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_N)
    inside = (c < N)[:, None] & (r < M)[None, :]
    x = tl.load(x_ptr + c[:, None] + r[None, :] * stride_xm, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=c < N, other=0.0).to(tl.float32)
    root = tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
    y = x / root[None, :] * w[:, None]
    tl.store(y_ptr + c[:, None] + r[None, :] * stride_ym, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_short(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 32),)
    strides = {"stride_xm": x.stride(0), "stride_ym": y.stride(0)}
    block_n = triton.next_power_of_2(N)
    rms_norm_short_kernel[grid](x, weight, y, M=M, N=N, eps=eps, BLOCK_M=32, BLOCK_N=block_n, **strides)
    return y
