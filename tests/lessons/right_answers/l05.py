"""Right answers of lesson 05, written differently from the solutions."""

# ruff: noqa


# %% 5.1 | sum of products without dot
@triton.jit
def one_tile_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    c = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + rows * K + k, mask=rows < M, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * N + cols, mask=cols < N, other=0.0)
        c += a * b
    tl.store(c_ptr + rows * N + cols, c, mask=(rows < M) & (cols < N))


def one_tile(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    one_tile_kernel[(1,)](a, b, c, M, N, K, BLOCK=32)
    return c


# %% 5.1 | a loop over K, outer products
@triton.jit
def one_tile_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    m, n = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + m * K + k, mask=m < M, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * N + n, mask=n < N, other=0.0).to(tl.float32)
        acc += a[:, None] * b[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


def one_tile(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    one_tile_kernel[(1,)](a, b, c, M, N, K, BLOCK=32)
    return c


# %% 5.1 | four programs, a quarter each, operands widened
@triton.jit
def one_tile_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    k = tl.arange(0, BLOCK_K)
    a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k < K)[None, :], other=0.0).to(tl.float32)
    b = tl.load(b_ptr + k[:, None] * N + n, mask=(k < K)[:, None] & (n < N), other=0.0).to(tl.float32)
    tl.store(c_ptr + m * N + n, tl.dot(a, b, input_precision="ieee"), mask=(m < M) & (n < N))


def one_tile(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    one_tile_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, c, M, N, K, BLOCK=16, BLOCK_K=32)
    return c


# %% 5.2 | other tiles, a swizzled grid, pointers that move
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    sam,
    sak,
    sbk,
    sbn,
    scm,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    pid_m, pid_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP)
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * sam + offs_k[None, :].to(tl.int64) * sak
    b_ptrs = b_ptr + offs_k[:, None].to(tl.int64) * sbk + offs_n[None, :].to(tl.int64) * sbn
    step = tl.full((), BK, tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step * sak
        b_ptrs += step * sbk
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * scm + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 64),)
    matmul_kernel[grid](a, b, c, *a.stride(), *b.stride(), c.stride(0), M, N, K, BM=16, BN=64, BK=16, GROUP=2)
    return c


# %% 5.2 | a flat grid in bands, indices that wrap instead of a mask
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    am,
    ak,
    bk,
    bn,
    cm,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    G: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    band = pid // (G * tiles_n)
    rows = min(tiles_m - band * G, G)
    pid_m = band * G + (pid % (G * tiles_n)) % rows
    pid_n = (pid % (G * tiles_n)) // rows
    m = (pid_m.to(tl.int64) * BM + tl.arange(0, BM)) % M
    n = (pid_n.to(tl.int64) * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + m[:, None] * am + k[None, :] * ak
    b_ptrs = b_ptr + k[:, None] * bk + n[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=k[None, :] < K - step * BK, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < K - step * BK, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * ak
        b_ptrs += BK * bk
    m = pid_m.to(tl.int64) * BM + tl.arange(0, BM)
    n = pid_n.to(tl.int64) * BN + tl.arange(0, BN)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * cm + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 64),)
    matmul_kernel[grid](a, b, c, *a.stride(), *b.stride(), c.stride(0), M, N, K, BM=16, BN=64, BK=16, G=2)
    return c


# %% 5.2 | autotuned tiles
@triton.autotune(
    configs=[triton.Config({"BM": 16, "BN": 32, "BK": 32}), triton.Config({"BM": 32, "BN": 16, "BK": 16}, num_warps=2)],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, am, ak, bk, bn, cm, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        ka, kb = start + tl.arange(0, BK)[None, :], start + tl.arange(0, BK)[:, None]
        a = tl.load(a_ptr + m * am + ka * ak, mask=(m < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * bk + n * bn, mask=(kb < K) & (n < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + m * cm + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](
        a, b, c, *a.stride(), *b.stride(), c.stride(0), M, N, K
    )
    return c


# %% 5.2 | split along K: partial tiles in memory, a second kernel adds them
@triton.jit
def parts_kernel(a_ptr, b_ptr, p_ptr, am, ak, bk, bn, M, N, K, SPLIT: tl.constexpr, B: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)[:, None]
    n = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)[None, :]
    part = tl.program_id(2)
    acc = tl.zeros((B, B), tl.float32)
    for start in range(part * B, K, SPLIT * B):
        ka, kb = start + tl.arange(0, B)[None, :], start + tl.arange(0, B)[:, None]
        a = tl.load(a_ptr + m * am + ka * ak, mask=(m < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * bk + n * bn, mask=(kb < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(p_ptr + (part * M + m) * N + n, acc, mask=(m < M) & (n < N))


@triton.jit
def sum_kernel(p_ptr, c_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(p_ptr + part * n + offs, mask=offs < n, other=0.0)
    tl.store(c_ptr + offs, total.to(c_ptr.dtype.element_ty), mask=offs < n)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    parts = torch.empty((2, M, N), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32), 2)
    parts_kernel[grid](a, b, parts, *a.stride(), *b.stride(), M, N, K, SPLIT=2, B=32)
    sum_kernel[(triton.cdiv(M * N, 1024),)](parts, c, M * N, SPLIT=2, BLOCK=1024)
    return c


# %% 5.3 | bias as start of the accumulator, trans
@triton.jit
def linear_silu_kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + offs_m[:, None] * K + k[None, :], mask=(offs_m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + offs_n[:, None] * K + k[None, :], mask=(offs_n[:, None] < N) & (k[None, :] < K), other=0.0)
        acc += tl.dot(x, tl.trans(w), input_precision="ieee")
    total = acc + bias[None, :]
    y = total / (1 + tl.exp(-total))
    tl.store(
        y_ptr + offs_m[:, None] * N + offs_n[None, :],
        y.to(y_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def linear_silu(x, weight, bias):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    linear_silu_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](
        x, weight, bias, y, M, N, K, BLOCK_M=16, BLOCK_N=16, BLOCK_K=64
    )
    return y


# %% 5.3 | the weight loaded as it lies and transposed
@triton.jit
def linear_silu_kernel(x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k, mask=(m < M)[:, None] & (k < K), other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k, mask=(n < N)[:, None] & (k < K), other=0.0)
        acc = tl.dot(x, w.T, acc, input_precision="ieee")
    acc += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    y = acc / (1.0 + tl.exp(-acc))
    tl.store(y_ptr + m[:, None] * N + n, y.to(y_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N))


def linear_silu(x, weight, bias):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    linear_silu_kernel[grid](x, weight, bias, y, M, N, K, BM=16, BN=32, BK=64)
    return y


# %% 5.3 | tensor descriptors in a helper, activation by exp2
@triton.jit
def silu(x):
    return x / (1.0 + tl.exp2(-1.4426950408889634 * x))


@triton.jit
def linear_silu_kernel(x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)[None, :]
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    acc = tl.broadcast_to(bias, (BM, BN))
    for i in range(tl.cdiv(K, BK)):
        k = i * BK + tl.arange(0, BK)
        x = tl.load(x_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n * K + k[:, None], mask=(n < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc=acc, input_precision="ieee")
    tl.store(y_ptr + m * N + n, silu(acc).to(y_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def linear_silu(x, weight, bias):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    linear_silu_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, weight, bias, y, M, N, K, BM=32, BN=32, BK=16)
    return y


# %% 5.4 | the start of a die counted by a sum
@triton.jit
def tile_of(pid, programs, tiles_m, tiles_n, XCDS: tl.constexpr, GROUP_M: tl.constexpr):
    xcd = pid % XCDS
    tile = pid // XCDS
    for before in tl.static_range(XCDS):
        longer = (programs - before + XCDS - 1) // XCDS
        tile += tl.where(before < xcd, longer, 0)
    band = tile // (GROUP_M * tiles_n)
    place = tile - band * GROUP_M * tiles_n
    rows = tl.minimum(tiles_m - band * GROUP_M, GROUP_M)
    return band * GROUP_M + place % rows, place // rows


@triton.jit
def ordered_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, XCDS: tl.constexpr, GROUP_M: tl.constexpr
):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    pid_m, pid_n = tile_of(tl.program_id(0), tl.num_programs(0), tiles_m, tiles_n, XCDS, GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    k_a, k_b = tl.arange(0, BLOCK_K)[None, :], tl.arange(0, BLOCK_K)[:, None]
    a = tl.load(a_ptr + offs_m * K + k_a, mask=(offs_m < M) & (k_a < K), other=0.0)
    b = tl.load(b_ptr + k_b * N + offs_n, mask=(k_b < K) & (offs_n < N), other=0.0)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + offs_m * N + offs_n, c.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))


def ordered_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    ordered_matmul_kernel[grid](a, b, c, M, N, K, BLOCK=16, BLOCK_K=32, XCDS=8, GROUP_M=4)
    return c


# %% 5.5 | two pointers that move, silu by where
@triton.jit
def gated_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(1).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)[None, :]
    k = tl.arange(0, BK)
    xs = x_ptr + m * K + k[None, :]
    gs = w_ptr + n * K + k[:, None]
    us = w_ptr + (n + N) * K + k[:, None]
    gate, up = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for left in range(K, 0, -BK):
        x = tl.load(xs, mask=(m < M) & (k[None, :] < left), other=0.0)
        gate += tl.dot(x, tl.load(gs, mask=(n < N) & (k[:, None] < left), other=0.0), input_precision="ieee")
        up += tl.dot(x, tl.load(us, mask=(n < N) & (k[:, None] < left), other=0.0), input_precision="ieee")
        xs += BK
        gs += BK
        us += BK
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(y_ptr + m * N + n, y.to(y_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def gated_linear(x, gate_up):
    (M, K), N = x.shape, gate_up.shape[0] // 2
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    gated_linear_kernel[(triton.cdiv(N, 32), triton.cdiv(M, 16))](x, gate_up, y, M, N, K, BM=16, BN=32, BK=32)
    return y


# %% 5.5 | one product of both halves, a tile of rows and one of gates beside ups
@triton.jit
def gated_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    both = tl.arange(0, 2 * BN)
    n = tl.program_id(1).to(tl.int64) * BN + both // 2
    row = n + (both % 2) * N
    acc = tl.zeros((BM, 2 * BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(w_ptr + row[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    gate, up = tl.split(acc.reshape(BM, BN, 2))
    y = gate * tl.sigmoid(gate) * up
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    tl.store(
        y_ptr + m[:, None] * N + n[None, :], y.to(y_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :]
    )


def gated_linear(x, gate_up):
    (M, K), N = x.shape, gate_up.shape[0] // 2
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    gated_linear_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 16))](x, gate_up, y, M, N, K, BM=32, BN=16, BK=32)
    return y


# %% 5.6 | a row of the image a program, static_range over taps
@triton.jit
def conv3x3_kernel(x_ptr, weight_ptr, y_ptr, H, W, C, F, BW: tl.constexpr, BF: tl.constexpr, BC: tl.constexpr):
    h = tl.program_id(0).to(tl.int64)
    w = tl.program_id(1) * BW + tl.arange(0, BW)
    f = tl.program_id(2) * BF + tl.arange(0, BF)
    c = tl.arange(0, BC)
    acc = tl.zeros((BW, BF), tl.float32)
    for r in tl.static_range(3):
        for s in tl.static_range(3):
            row, col = h + r - 1, w + s - 1
            inside = (row >= 0) & (row < H) & (col >= 0) & (col < W)
            x = tl.load(x_ptr + (row * W + col)[:, None] * C + c, mask=inside[:, None] & (c < C)[None, :], other=0.0)
            at = ((r * 3 + s) * C + c)[:, None] * F + f
            k = tl.load(weight_ptr + at, mask=(c < C)[:, None] & (f < F)[None, :], other=0.0)
            acc = tl.dot(x, k, acc, input_precision="ieee")
    out = (h * W + w)[:, None] * F + f[None, :]
    tl.store(y_ptr + out, acc.to(y_ptr.dtype.element_ty), mask=(w < W)[:, None] & (f < F)[None, :])


def conv3x3(x, weight):
    (H, W, C), F = x.shape, weight.shape[3]
    y = torch.empty((H, W, F), dtype=x.dtype, device=x.device)
    grid = (H, triton.cdiv(W, 16), triton.cdiv(F, 16))
    conv3x3_kernel[grid](x, weight, y, H, W, C, F, BW=16, BF=16, BC=max(16, triton.next_power_of_2(C)))
    return y


# %% 5.6 | an unfolded matrix by a first kernel, then a product
@triton.jit
def unfold(x_ptr, u_ptr, n, H, W, C, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c, tap, pixel = i % C, i // C % 9, i // (9 * C)
    h, w = pixel // W + tap // 3 - 1, pixel % W + tap % 3 - 1
    inside = (i < n) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    tl.store(u_ptr + i, tl.load(x_ptr + (h * W + w) * C + c, mask=inside, other=0.0), mask=i < n)


@triton.jit
def product(u_ptr, w_ptr, y_ptr, M, F, K, B: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)[:, None]
    f = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        ka, kb = start + tl.arange(0, B)[None, :], start + tl.arange(0, B)[:, None]
        u = tl.load(u_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
        w = tl.load(w_ptr + kb * F + f, mask=(kb < K) & (f < F), other=0.0)
        acc = tl.dot(u, w, acc, input_precision="ieee")
    tl.store(y_ptr + m * F + f, acc.to(y_ptr.dtype.element_ty), mask=(m < M) & (f < F))


def conv3x3(x, weight):
    (H, W, C), F = x.shape, weight.shape[3]
    u = torch.empty((H * W, 9 * C), dtype=x.dtype, device=x.device)
    y = torch.empty((H, W, F), dtype=x.dtype, device=x.device)
    unfold[(triton.cdiv(u.numel(), 512),)](x, u, u.numel(), H, W, C, BLOCK=512)
    product[(triton.cdiv(H * W, 32), triton.cdiv(F, 32))](u, weight, y, H * W, F, 9 * C, B=32)
    return y


# %% 5.a | the row is walked in pieces of 128, with a sum for each lane that is added up once, after the loop
@triton.jit
def row_dots_kernel(a_ptr, b_ptr, c_ptr, K, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a_ptr += row * K
    b_ptr += row * K
    lanes = tl.zeros((PIECE,), tl.float32)
    for start in range(0, K, PIECE):
        k = start + tl.arange(0, PIECE)
        a = tl.load(a_ptr + k, mask=k < K, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k, mask=k < K, other=0.0).to(tl.float32)
        lanes += a * b
    tl.store(c_ptr + row, lanes.sum(axis=0))


def row_dots(a, b):
    rows, K = a.shape
    c = torch.empty(rows)
    row_dots_kernel[(rows,)](a, b, c, K, PIECE=128)
    return c


# %% 5.a | a program takes eight rows as a block of two dimensions, 64 columns at a time
@triton.jit
def row_dots_kernel(a_ptr, b_ptr, c_ptr, M, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for first in range(0, K, COLS):
        k = first + tl.arange(0, COLS)
        at = r[:, None] * K + k[None, :]
        live = (r[:, None] < M) & (k[None, :] < K)
        products = tl.load(a_ptr + at, mask=live, other=0).to(tl.float32)
        products *= tl.load(b_ptr + at, mask=live, other=0).to(tl.float32)
        total += tl.sum(products, axis=1)
    tl.store(c_ptr + r, total, mask=r < M)


def row_dots(a, b):
    (M, K), c = a.shape, torch.empty(len(a))
    row_dots_kernel[lambda meta: (triton.cdiv(M, meta["ROWS"]),)](a, b, c, M, K, ROWS=8, COLS=64)
    return c


# %% 5.b | without tl.dot: the tile times itself as a block of three dimensions, summed along k
@triton.jit
def gram_kernel(a_ptr, c_ptr, M, K, SIDE: tl.constexpr):
    i, j = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    a = tl.load(a_ptr + i * K + j, mask=(i < M) & (j < K), other=0.0).to(tl.float32)
    c = (a[:, None, :] * a[None, :, :]).sum(axis=2)
    tl.store(c_ptr + i * M + j, c, mask=(i < M) & (j < M))


def gram(a):
    M, K = a.shape
    c = torch.empty((M, M))
    gram_kernel[(1,)](a, c, M, K, SIDE=32)
    return c


# %% 5.1 | both operands are loaded transposed, and the product of the transposes is stored transposed
@triton.jit
def one_tile_kernel(a_ptr, b_ptr, c_ptr, M, N, K, SIDE: tl.constexpr):
    i, j = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    b_t = tl.load(b_ptr + j * N + i, mask=(i < N) & (j < K), other=0.0)  # (N, K)
    a_t = tl.load(a_ptr + j * K + i, mask=(i < K) & (j < M), other=0.0)  # (K, M)
    c_t = tl.dot(input=b_t, other=a_t, input_precision="ieee")
    tl.store(pointer=c_ptr + j * N + i, value=c_t, mask=(i < N) & (j < M))


def one_tile(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty((M, N), dtype=torch.float32)
    side = triton.next_power_of_2(max(M, N, K, 16))
    one_tile_kernel[(1,)](a, b, c, M, N, K, SIDE=side)
    return c


# %% 5.2 | a few persistent programs take the tiles in bands of four rows, and pointers move along K
@triton.jit
def place_of(tile, tiles_m, tiles_n, BAND: tl.constexpr):
    band, place = tile // (BAND * tiles_n), tile % (BAND * tiles_n)
    height = tl.minimum(tiles_m - band * BAND, BAND)
    return band * BAND + place % height, place // height


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, am, ak, bk, bn, M, N, K,
    ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, ROWS), tl.cdiv(N, COLS)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        i, j = place_of(tile, tiles_m, tiles_n, BAND)
        m = i.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        n = j.to(tl.int64) * COLS + tl.arange(0, COLS)
        k = tl.arange(0, STEP).to(tl.int64)
        a_ptrs = a_ptr + m[:, None] * am + k[None, :] * ak
        b_ptrs = b_ptr + k[:, None] * bk + n[None, :] * bn
        acc = tl.zeros((ROWS, COLS), tl.float32)
        for start in range(0, K, STEP):
            left = K - start
            a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
            b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
            acc += tl.dot(a, b, input_precision="ieee")
            a_ptrs += STEP * ak
            b_ptrs += STEP * bk
        c_ptrs = c_ptr + m[:, None] * N + n[None, :]
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    tile = {"ROWS": 32, "COLS": 64, "STEP": 32, "BAND": 4}
    tiles = triton.cdiv(M, tile["ROWS"]) * triton.cdiv(N, tile["COLS"])
    matmul_kernel[(min(tiles, 64),)](a, b, c, *a.stride(), *b.stride(), M, N, K, **tile)
    return c


# %% 5.2 | K is split among four programs that add into float32 sums by atomics; whoever comes last rounds and ...
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, sums_ptr, arrived_ptr, am, ak, bk, bn, M, N, K, SIDE: tl.constexpr, PARTS: tl.constexpr
):
    i, j, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m = i.to(tl.int64) * SIDE + tl.arange(0, SIDE)[:, None]
    n = j.to(tl.int64) * SIDE + tl.arange(0, SIDE)[None, :]
    live = (m < M) & (n < N)
    acc = tl.zeros((SIDE, SIDE), tl.float32)
    for start in range(part * SIDE, K, PARTS * SIDE):
        k = start + tl.arange(0, SIDE).to(tl.int64)
        a = tl.load(a_ptr + m * am + k[None, :] * ak, mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * bk + n * bn, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sums_ptr + m * N + n, acc, mask=live)
    tl.debug_barrier()
    before_me = tl.atomic_add(arrived_ptr + i * tl.num_programs(1) + j, 1)
    if before_me == PARTS - 1:
        total = tl.atomic_add(sums_ptr + m * N + n, tl.zeros((SIDE, SIDE), tl.float32), mask=live)
        tl.store(c_ptr + m * N + n, total.to(c_ptr.dtype.element_ty), mask=live)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    high, wide, parts = triton.cdiv(M, 32), triton.cdiv(N, 32), 4
    sums = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    arrived = torch.zeros((high, wide), dtype=torch.int32, device=a.device)
    matmul_kernel[(high, wide, parts)](a, b, c, sums, arrived, *a.stride(), *b.stride(), M, N, K, SIDE=32, PARTS=parts)
    return c


# %% 5.3 | the tile comes from an autotuner with a single configuration, the accumulator begins with the bias, ...
@triton.autotune(configs=[triton.Config({"ROWS": 16, "COLS": 64, "STEP": 64}, num_warps=4)], key=["M", "N", "K"])
@triton.jit
def linear_silu_kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr
):
    m = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLS), tl.float32) + bias[None, :]
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        total = tl.dot(x, tl.trans(w), total, input_precision="ieee")
    y = total * tl.sigmoid(total)
    live = (m < M)[:, None] & (n < N)[None, :]
    tl.store(y_ptr + m[:, None] * N + n[None, :], y.to(y_ptr.dtype.element_ty), mask=live)


def linear_silu(x, weight, bias):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)

    def grid(meta):
        return triton.cdiv(N, meta["COLS"]), triton.cdiv(M, meta["ROWS"])

    linear_silu_kernel[grid](x, weight, bias, y, M, N, K)
    return y


# %% 5.4 | where each die begins comes from tl.cumsum over the dies, and the height of a band is chosen by tl.where
@triton.jit
def tile_of(pid, programs, tiles_m, tiles_n, XCDS: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of the tile of a program."""
    dies = tl.arange(0, XCDS)
    on_die = (programs - dies + XCDS - 1) // XCDS  # programs die, die + XCDS, ... below `programs`
    behind = tl.cumsum(on_die, axis=0)
    tile = tl.sum(tl.where(dies == pid % XCDS, behind - on_die, 0), axis=0) + pid // XCDS
    per_band = GROUP_M * tiles_n
    top = tile // per_band * GROUP_M
    rows = tl.where(top + GROUP_M > tiles_m, tiles_m - top, GROUP_M)
    place = tile % per_band
    return top + place % rows, place // rows


@triton.jit
def ordered_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, XCDS: tl.constexpr, GROUP_M: tl.constexpr
):
    """One program, one tile of c."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    pid_m, pid_n = tile_of(tl.program_id(0), tl.num_programs(0), tiles_m, tiles_n, XCDS, GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    k_a, k_b = tl.arange(0, BLOCK_K)[None, :], tl.arange(0, BLOCK_K)[:, None]
    a = tl.load(a_ptr + offs_m * K + k_a, mask=(offs_m < M) & (k_a < K), other=0.0)
    b = tl.load(b_ptr + k_b * N + offs_n, mask=(k_b < K) & (offs_n < N), other=0.0)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + offs_m * N + offs_n, c.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))


def ordered_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    ordered_matmul_kernel[grid](a, b, c, M, N, K, BLOCK=16, BLOCK_K=32, XCDS=8, GROUP_M=4)
    return c


# %% 5.5 | one product of a tile whose columns are gate and up by turns, taken apart by a reshape and tl.split
@triton.jit
def gated_linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K, ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1).to(tl.int64) * COLS
    both = tl.arange(0, 2 * COLS)
    n = first + both // 2
    row = n + both % 2 * N  # even columns: gate, odd ones: up
    acc = tl.zeros((ROWS, 2 * COLS), tl.float32)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + row[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        acc = tl.dot(x, w.T, acc=acc, input_precision="ieee")
    gate, up = acc.reshape(ROWS, COLS, 2).split()
    y = gate / (1.0 + tl.exp(-gate)) * up
    out = first + tl.arange(0, COLS)
    tl.store(
        y_ptr + m[:, None] * N + out[None, :], y.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (out[None, :] < N)
    )


def with_tile(**tile):
    """The launcher, closed over the sizes of its tile."""

    def launch(x, gate_up):
        (M, K), N = x.shape, gate_up.shape[0] // 2
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        grid = lambda meta: (triton.cdiv(M, meta["ROWS"]), triton.cdiv(N, meta["COLS"]))
        gated_linear_kernel[grid](x, gate_up, y, M=M, N=N, K=K, **tile)
        return y

    return launch


tiled = with_tile(ROWS=32, COLS=16, STEP=32)


def gated_linear(x, gate_up):
    return tiled(x, gate_up)


# %% 5.6 | a grid of three axes, rows of the image, pieces of a row, filters; two nested static loops over the taps
@triton.jit
def conv3x3_kernel(
    x_ptr, weight_ptr, y_ptr, H, W, C, F, PIXELS: tl.constexpr, FILTERS: tl.constexpr, CHANNELS: tl.constexpr
):
    p = tl.program_id(0).to(tl.int64)
    q = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    f = tl.program_id(2) * FILTERS + tl.arange(0, FILTERS)
    c = tl.arange(0, CHANNELS)
    acc = tl.zeros((PIXELS, FILTERS), tl.float32)
    for r in tl.static_range(3):
        row = p + tl.zeros_like(q) + (r - 1)
        for s in tl.static_range(3):
            col = q + (s - 1)
            inside = (row >= 0) & (row < H) & (col >= 0) & (col < W)
            at = (row * W + col)[:, None] * C + c[None, :]
            x = tl.load(x_ptr + at, mask=inside[:, None] & (c[None, :] < C), other=0.0)
            taps = ((r * 3 + s) * C + c)[:, None] * F + f[None, :]
            w = tl.load(weight_ptr + taps, mask=(c[:, None] < C) & (f[None, :] < F), other=0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
    out = (p * W + q)[:, None] * F + f[None, :]
    tl.store(y_ptr + out, acc.to(y_ptr.dtype.element_ty), mask=(q[:, None] < W) & (f[None, :] < F))


def conv3x3(x, weight):
    (H, W, C), F = x.shape, weight.shape[3]
    y = torch.empty((H, W, F), dtype=x.dtype, device=x.device)
    channels = triton.next_power_of_2(max(C, 16))
    grid = (H, triton.cdiv(W, 16), triton.cdiv(F, 32))
    conv3x3_kernel[grid](x, weight, y, H, W, C, F, PIXELS=16, FILTERS=32, CHANNELS=channels)
    return y
