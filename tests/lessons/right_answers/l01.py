"""Right answers of lesson 01, written differently from the solutions."""

# ruff: noqa


# %% 1.1 | print and device_print
@triton.jit
def scale_and_add_kernel(x_ptr, y_ptr, z_ptr, alpha, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    print("x", x)
    tl.device_print("program", tl.program_id(0))
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    print("y =", y)
    tl.device_print("both", x, y)
    tl.static_print("BLOCK", BLOCK)
    tl.store(z_ptr + offs, (alpha * x + y).to(z_ptr.dtype.element_ty), mask=mask)


def scale_and_add(x, y, alpha):
    print("host", x.shape)
    z = torch.empty_like(x)
    n = x.numel()
    scale_and_add_kernel[(triton.cdiv(n, 256),)](x, y, z, alpha, n, BLOCK=256)
    return z


# %% 1.1 | one program walks everything
@triton.jit
def scale_and_add_kernel(x_ptr, y_ptr, z_ptr, alpha, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
        tl.store(z_ptr + offs, tl.fma(x, alpha, y).to(z_ptr.dtype.element_ty), mask=mask)


def scale_and_add(x, y, alpha):
    z = torch.empty_like(x)
    scale_and_add_kernel[(1,)](x, y, z, alpha, x.numel(), BLOCK=2048)
    return z


# %% 1.1 | implicit rounding by the store
@triton.jit
def scale_and_add_kernel(x_ptr, y_ptr, z_ptr, alpha, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.cast(tl.load(x_ptr + offs, mask=mask), tl.float32)
    y = tl.cast(tl.load(y_ptr + offs, mask=mask), tl.float32)
    tl.store(z_ptr + offs, y + x * alpha, mask=mask)


def scale_and_add(x, y, alpha):
    z = torch.empty_like(x)
    n = x.numel()
    scale_and_add_kernel[(triton.cdiv(n, 256),)](x, y, z, alpha, n, BLOCK=256)
    return z


# %% 1.1 | pointers that move, cache modifiers
@triton.jit
def scale_and_add_kernel(x_ptr, y_ptr, z_ptr, alpha, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    x_ptr += first
    y_ptr += first
    z_ptr += first
    mask = lane < n - first
    x = tl.load(x_ptr + lane, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    y = tl.load(y_ptr + lane, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
    z = x * alpha
    z += y
    tl.store(z_ptr + lane, z.to(z_ptr.type.element_ty), mask=mask, cache_modifier=".cs")


def scale_and_add(x, y, alpha):
    z = torch.empty_like(x)
    n = x.numel()
    scale_and_add_kernel[(triton.cdiv(n, 256),)](x, y, z, alpha, n, BLOCK=256)
    return z


# %% 1.2 | aliased import
import triton.language as L
from triton import jit, cdiv


@jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: L.constexpr):
    offs = L.program_id(0) * BLOCK + L.arange(0, BLOCK)
    mask = offs < n
    x = L.load(x_ptr + offs, mask=mask, other=0.0).to(L.float32)
    y = L.load(y_ptr + offs, mask=mask, other=0.0).to(L.float32)
    L.store(z_ptr + offs, (x + y).to(z_ptr.dtype.element_ty), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
    return z


# %% 1.2 | names imported from triton.language
from triton.language import load, store, arange, program_id, constexpr, float32


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: constexpr):
    offs = program_id(axis=0) * BLOCK + arange(0, BLOCK)
    mask = offs < n
    x = load(x_ptr + offs, mask=mask, other=0.0).to(float32)
    y = load(y_ptr + offs, mask=mask, other=0.0).to(float32)
    store(z_ptr + offs, (x + y).to(z_ptr.dtype.element_ty), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel(), BLOCK=512)
    return z


# %% 1.2 | autotune
@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((256, 2), (1024, 4), (2048, 8))], key=["n"]
)
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(z_ptr + offs, (x + y).to(z_ptr.dtype.element_ty), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    add_kernel[grid](x, y, z, n)
    return z


# %% 1.2 | persistent grid with a loop
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0), num_stages=2):
        offs = tile * BLOCK + tl.arange(0, BLOCK)
        offs = tl.max_contiguous(tl.multiple_of(offs, BLOCK), BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask, 0.0, cache_modifier=".cg").to(tl.float32)
        y = tl.load(y_ptr + offs, mask, 0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(z_ptr + offs, x + y, mask)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(min(7, triton.cdiv(n, 128)),)](x, y, z, n, BLOCK=128, num_warps=2)
    return z


# %% 1.2 | heuristics and while
@triton.heuristics({"BLOCK": lambda args: 128 if args["n"] < 4096 else 1024})
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK * 4
    end = tl.minimum(start + BLOCK * 4, n)
    while start < end:
        offs = start + tl.arange(0, BLOCK)
        mask = offs < end
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).cast(tl.float32)
        y = tl.load(y_ptr + offs, mask=mask, other=0.0).cast(tl.float32)
        tl.store(z_ptr + offs, (x + y).cast(z_ptr.dtype.element_ty), mask=mask)
        start += BLOCK


def add(x, y):
    z = x.new_empty(x.shape)
    n = x.numel()
    add_kernel[lambda m: (triton.cdiv(n, 4 * m["BLOCK"]),)](x, y, z, n)
    return z


# %% 1.2 | elements in turn: program p takes p, p + grid, ...
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(z_ptr + offs, (x + y).to(z_ptr.dtype.element_ty), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 512),)](x, y, z, n, BLOCK=512)
    return z


# %% 1.2 | full blocks without a mask, the rest in a second kernel
@triton.jit
def whole(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def rest(x_ptr, y_ptr, z_ptr, begin, n, BLOCK: tl.constexpr):
    offs = begin + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    blocks = n // 256
    if blocks:
        whole[(blocks,)](x, y, z, BLOCK=256)
    if n % 256:
        rest[(1,)](x, y, z, blocks * 256, n, BLOCK=256)
    return z


# %% 1.2 | a two-dimensional block of a flat tensor
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    offs = tl.program_id(0) * ROWS * COLS + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    mask = offs < n
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), ROWS=8, COLS=128)
    return z


# %% 1.2 | tensor descriptors
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK]).load([start])
    y = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK]).load([start])
    tl.make_tensor_descriptor(z_ptr, [n], [1], [BLOCK]).store([start], x + y)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 256),)](x, y, z, n, BLOCK=256)
    return z


# %% 1.2 | the grid in three dimensions
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    pid = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, 256)
    add_kernel[(2, 2, triton.cdiv(blocks, 4))](x, y, z, n, BLOCK=256)
    return z


# %% 1.3 | tensor descriptor on the device for y
@triton.jit
def copy_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    m = (pid // tiles_n) * BLOCK_M
    n = (pid % tiles_n) * BLOCK_N
    offs_m = m.to(tl.int64) + tl.arange(0, BLOCK_M).expand_dims(1)
    offs_n = n.to(tl.int64) + tl.arange(0, BLOCK_N).expand_dims(0)
    inside = tl.broadcast_to(offs_m < M, (BLOCK_M, BLOCK_N)) and (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=inside, other=0)
    tl.store(y_ptr + offs_m * N + offs_n, x, mask=inside)


def copy(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    copy_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](x, y, M, N, *x.stride(), BLOCK_M=32, BLOCK_N=32)
    return y


# %% 1.3 | host tensor descriptor where it can be
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def store_tile(y, tile, m, n):
    y.store([m, n], tile)


@triton.jit
def copy_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M
    n = tl.program_id(1) * BLOCK_N
    offs_m = m + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_n = n + tl.arange(0, BLOCK_N).to(tl.int64)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask, other=0.0)
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], x, mask=mask)


@triton.jit
def dense_kernel(x_ptr, y_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    store_tile(y, x.load([m, n]), m, n)


def copy(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    if x.is_contiguous() and N * x.element_size() % 16 == 0:
        dense_kernel[grid](x, y, M, N, BLOCK_M=16, BLOCK_N=16)
    else:
        copy_kernel[grid](x, y, M, N, *x.stride(), BLOCK_M=16, BLOCK_N=16)
    return y


# %% 1.3 | one program a row, a loop over columns
@triton.jit
def copy_kernel(x_ptr, y_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=cols < N)
        tl.store(y_ptr + row * N + cols, x, mask=cols < N)


def copy(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    copy_kernel[(M,)](x, y, N, x.stride(0), x.stride(1), BLOCK=32)
    return y


# %% 1.3 | flat output index, divided
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (i // N) * stride_xm + (i % N) * stride_xn, mask=i < n)
    tl.store(y_ptr + i, x, mask=i < n)


def copy(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), x.shape[1], *x.stride(), BLOCK=512)
    return y


# %% 1.3 | the tile transposed in registers, store of the transpose
@triton.jit
def copy_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    across = (offs_n[:, None] < N) & (offs_m[None, :] < M)
    x = tl.load(x_ptr + offs_n[:, None] * stride_xn + offs_m[None, :] * stride_xm, mask=across, other=0.0)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], tl.trans(x), mask=mask)


def copy(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(N, 32), triton.cdiv(M, 32))
    copy_kernel[grid](x, y, M, N, x.stride(0), x.stride(1), BLOCK_M=32, BLOCK_N=32)
    return y


# %% 1.4 | a program for several rows, zip of two
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, stride_xm, N, T, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index_ptr + i, mask=i < T, other=0).to(tl.int64)
    mask = (i < T)[:, None] & (cols < N)[None, :]
    x = tl.load(x_ptr + (row * stride_xm)[:, None] + cols[None, :], mask=mask)
    tl.store(y_ptr + (i * N)[:, None] + cols, x, mask=mask)


def gather_rows(x, index):
    T, N = index.numel(), x.size(1)
    y = x.new_empty(T, N)
    gather_kernel[(triton.cdiv(T, 4), triton.cdiv(N, 64))](x, index, y, x.stride(0), N, T, ROWS=4, BLOCK=64)
    return y


# %% 1.4 | columns in blocks, a grid of two dimensions
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, stride_xm, N, BLOCK: tl.constexpr):
    i = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index_ptr + i).to(tl.int64)
    tl.store(y_ptr + i * N + cols, tl.load(x_ptr + row * stride_xm + cols, mask=cols < N), mask=cols < N)


def gather_rows(x, index):
    T, N = len(index), x.shape[1]
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    gather_kernel[(triton.cdiv(N, 64), T)](x, index, y, x.stride(0), N, BLOCK=64)
    return y


# %% 1.4 | eight rows a program, a tile of addresses
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, stride_xm, T, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)[None, :]
    rows = tl.load(index_ptr + i, mask=i < T, other=0).to(tl.int64)
    mask = (i < T)[:, None] & (cols < N)
    x = tl.load(x_ptr + rows[:, None] * stride_xm + cols, mask=mask, other=0.0)
    tl.store(y_ptr + i[:, None] * N + cols, x, mask=mask)


def gather_rows(x, index):
    T, N = len(index), x.shape[1]
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    gather_kernel[(triton.cdiv(T, 8),)](x, index, y, x.stride(0), T, N, ROWS=8, BLOCK=triton.next_power_of_2(N))
    return y


# %% 1.5 | smaller blocks and a mask by minimum
@triton.jit
def residual_add_kernel(x_ptr, residual_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs <= n - 1
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (x + residual).to(y_ptr.dtype.element_ty), mask=mask)


def residual_add(x, residual):
    y = torch.empty_like(x)
    n = x.numel()
    grid = (-(-n // 1024),)
    residual_add_kernel[grid](x, residual, y, n, BLOCK=1024)
    return y


# %% 1.5 | one program a row
@triton.jit
def residual_add_kernel(x_ptr, residual_ptr, y_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * N + cols
    x = tl.load(x_ptr + offs, mask=cols < N)
    residual = tl.load(residual_ptr + offs, mask=cols < N)
    tl.store(y_ptr + offs, x + residual, mask=cols < N)


def residual_add(x, residual):
    T, N = x.shape
    y = torch.empty_like(x)
    residual_add_kernel[(T,)](x, residual, y, N, BLOCK=triton.next_power_of_2(N))
    return y


# %% 1.6 | one program a row, loop over columns
@triton.jit
def bias_residual_add_kernel(x_ptr, residual_ptr, bias_ptr, y_ptr, N, stride_xm, stride_rm, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    for start in range(0, N, BLOCK):
        c = start + tl.arange(0, BLOCK)
        m = c < N
        x = tl.load(x_ptr + t * stride_xm + c, mask=m).to(tl.float32)
        r = tl.load(residual_ptr + t * stride_rm + c, mask=m).to(tl.float32)
        b = tl.load(bias_ptr + c, mask=m).to(tl.float32)
        tl.store(y_ptr + t * N + c, (x + b + r).to(y_ptr.dtype.element_ty), mask=m)


def bias_residual_add(x, residual, bias):
    T, N = x.shape
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    bias_residual_add_kernel[(T,)](x, residual, bias, y, N, x.stride(0), residual.stride(0), BLOCK=256, num_warps=1)
    return y


# %% 1.6 | residual and bias first, tiles the other way round
@triton.jit
def bias_residual_add_kernel(x_ptr, residual_ptr, bias_ptr, y_ptr, T, N, sx, sr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(1).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    inside = (m < T) & (n < N)
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    y = tl.broadcast_to(bias, (BM, BN)) + tl.load(residual_ptr + m * sr + n, mask=inside, other=0.0)
    y = y + tl.load(x_ptr + m * sx + n, mask=inside, other=0.0)
    tl.store(y_ptr + m * N + n, y, mask=inside)


def bias_residual_add(x, residual, bias):
    T, N = x.shape
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(N, 64), triton.cdiv(T, 4))
    bias_residual_add_kernel[grid](x, residual, bias, y, T, N, x.stride(0), residual.stride(0), BM=4, BN=64)
    return y


# %% 1.6 | persistent programs over tiles, autotuned
@triton.autotune(configs=[triton.Config({"BM": 4, "BN": 64}), triton.Config({"BM": 8, "BN": 32})], key=["T", "N"])
@triton.jit
def bias_residual_add_kernel(x_ptr, residual_ptr, bias_ptr, y_ptr, T, N, sx, sr, BM: tl.constexpr, BN: tl.constexpr):
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(T, BM) * across, tl.num_programs(0)):
        m = (tile // across).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
        n = (tile % across) * BN + tl.arange(0, BN)[None, :]
        inside = (m < T) & (n < N)
        x = tl.load(x_ptr + m * sx + n, mask=inside, other=0.0).to(tl.float32)
        r = tl.load(residual_ptr + m * sr + n, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + m * N + n, (x + b + r).to(y_ptr.dtype.element_ty), mask=inside)


def bias_residual_add(x, residual, bias):
    T, N = x.shape
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    bias_residual_add_kernel[(4,)](x, residual, bias, y, T, N, x.stride(0), residual.stride(0))
    return y


# %% 1.2 | kernel made in a function, more code behind it
def made(QUARTERS):
    @triton.jit
    def inner(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
        for part in tl.static_range(PARTS):
            offs = (tl.program_id(0) * PARTS + part) * BLOCK + tl.arange(0, BLOCK)
            keep = offs < n
            tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=keep) + tl.load(y_ptr + offs, mask=keep), mask=keep)

    return inner, QUARTERS


add_kernel, parts = made(4)


def add(x, y):
    z, n = torch.empty(x.shape, dtype=x.dtype, device=x.device), x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["PARTS"]),)
    add_kernel[grid](x, y, z, n, BLOCK=128, PARTS=parts)
    return z


# %% 1.b | z is written as one flat vector, and both numbers are gathered by quotient and remainder
@triton.jit
def outer_sum_kernel(x_ptr, y_ptr, z_ptr, total, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < total
    x = tl.load(x_ptr + offs // N, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs % N, mask=mask, other=0.0)
    tl.store(z_ptr + offs, x + y, mask=mask)


def outer_sum(x, y):
    z = torch.empty(len(x), len(y), dtype=x.dtype)
    total = z.numel()
    outer_sum_kernel[(triton.cdiv(total, 256),)](x, y, z, total, len(y), BLOCK=256)
    return z


# %% 1.1 | each program takes four blocks in an unrolled loop, and a helper function loads and widens
@triton.jit
def widened(ptr, offs, n):
    return tl.load(ptr + offs, mask=offs < n, other=0.0).to(tl.float32)


@triton.jit
def scale_and_add_kernel(x_ptr, y_ptr, z_ptr, alpha, n, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    for k in tl.static_range(BLOCKS):
        offs = (tl.program_id(0) * BLOCKS + k) * BLOCK + tl.arange(0, BLOCK)
        z = widened(y_ptr, offs, n) + widened(x_ptr, offs, n) * alpha
        tl.store(z_ptr + offs, z.to(z_ptr.dtype.element_ty), mask=offs < n)


def scale_and_add(x, y, alpha):
    z = torch.empty_like(x)
    n = x.numel()
    scale_and_add_kernel[(triton.cdiv(n, 4 * 256),)](x, y, z, alpha, n, BLOCK=256, BLOCKS=4)
    return z


# %% 1.2 | the addresses of the loads are held below n by a minimum, and only the store has a mask
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """One program, BLOCK elements; idle lanes read the last element again and store nothing."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    legal = tl.minimum(offs, n - 1)
    tl.store(z_ptr + offs, tl.load(x_ptr + legal) + tl.load(y_ptr + legal), mask=offs < n)


def add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 512),)](x, y, z, n, BLOCK=512)
    return z


# %% 1.2 | an autotuned kernel whose grid is a lambda, with offsets in 64 bits and keyword arguments
@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=8)], key=["n"]
)
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """One program, BLOCK elements."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    total = tl.load(x_ptr + offs, mask=inside, other=0)
    total += tl.load(y_ptr + offs, mask=inside, other=0)
    tl.store(z_ptr + offs, total, mask=inside)


def add(x, y):
    z = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x_ptr=x, y_ptr=y, z_ptr=z, n=x.numel())
    return z


# %% 1.3 | at most 64 programs in one dimension walk over the tiles, whose number is split into row and column
@triton.jit
def copy_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, tiles, across, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = (tile // across).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        n = (tile % across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        inside = (m < M) & (n < N)
        values = tl.load(x_ptr + (m * stride_xm + n * stride_xn), mask=inside)
        tl.store(y_ptr + (m * N + n), values, mask=inside)


def copy(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    across = triton.cdiv(N, 32)
    tiles = triton.cdiv(M, 8) * across
    copy_kernel[(max(1, min(tiles, 64)),)](x, y, M, N, *x.stride(), tiles, across, BLOCK_M=8, BLOCK_N=32)
    return y


# %% 1.4 | four rows a program and a loop over blocks of columns, with the stride of the index taken into account
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, stride_xm, stride_i, T, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    wanted = t < T
    source = tl.load(index_ptr + t * stride_i, mask=wanted, other=0).to(tl.int64)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = wanted[:, None] & (cols[None, :] < N)
        values = tl.load(x_ptr + source[:, None] * stride_xm + cols[None, :], mask=inside)
        tl.store(y_ptr + t[:, None] * N + cols[None, :], values, mask=inside)


def gather_rows(x, index):
    T, N = len(index), x.shape[1]
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    gather_kernel[(triton.cdiv(T, 4),)](x, index, y, x.stride(0), index.stride(0), T, N, ROWS=4, BLOCK=256)
    return y


# %% 1.5 | the border is written as at most n - 1, the grid rounds up by integer arithmetic, and a print is ...
@triton.jit
def residual_add_kernel(x_ptr, residual_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    print("program", tl.program_id(0))
    mask = offs <= n - 1
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (x + residual).to(y_ptr.dtype.element_ty), mask=mask)


def residual_add(x, residual):
    y = torch.empty_like(x)
    n = x.numel()
    grid = ((n + 1023) // 1024,)
    residual_add_kernel[grid](x, residual, y, n, BLOCK=1024)
    return y


# %% 1.6 | one program owns a row and walks along it, with the row's pointers prepared and a helper function ...
@triton.jit
def wide_load(ptr, cols, N):
    return tl.load(ptr + cols, mask=cols < N, other=0.0).to(tl.float32)


@triton.jit
def bias_residual_add_kernel(x_ptr, residual_ptr, bias_ptr, y_ptr, N, stride_xm, stride_rm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    residual_ptr += row * stride_rm
    y_ptr += row * N
    for start in tl.range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total = wide_load(x_ptr, cols, N)
        total += wide_load(bias_ptr, cols, N)
        total += wide_load(residual_ptr, cols, N)
        tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=cols < N)


def bias_residual_add(x, residual, bias):
    T, N = x.shape
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    bias_residual_add_kernel[(T,)](x, residual, bias, y, N, x.stride(0), residual.stride(0), BLOCK=256, num_warps=2)
    return y
