"""Right answers written differently from the solutions: (exercise, what is different, code)."""

# ruff: noqa: E501

ANSWERS = (
    (
        "1.1",
        "print and device_print",
        """\
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
""",
    ),
    (
        "1.2",
        "aliased import",
        """\
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
""",
    ),
    (
        "1.2",
        "names imported from triton.language",
        """\
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
""",
    ),
    (
        "1.2",
        "autotune",
        """\
@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((256, 2), (1024, 4), (2048, 8))], key=["n"])
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
""",
    ),
    (
        "1.2",
        "persistent grid with a loop",
        """\
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
""",
    ),
    (
        "1.2",
        "heuristics and while",
        """\
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
""",
    ),
    (
        "1.3",
        "tensor descriptor on the device for y",
        """\
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
""",
    ),
    (
        "1.4",
        "a program for several rows, zip of two",
        """\
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
""",
    ),
    (
        "1.6",
        "one program a row, loop over columns",
        """\
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
""",
    ),
    (
        "2.1",
        "methods of blocks",
        """\
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
""",
    ),
    (
        "2.1",
        "parts added by atomics",
        """\
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
""",
    ),
    (
        "2.1",
        "a lock around the sum",
        """\
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
""",
    ),
    (
        "2.1",
        "parts in memory, the last program adds them",
        """\
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
""",
    ),
    (
        "2.1",
        "a reduction of one's own",
        """\
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
""",
    ),
    (
        "2.2",
        "two rows a program, sqrt, methods",
        """\
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
    rms_norm_kernel[(triton.cdiv(M, 2),)](x, weight, y, x.stride(0), y.stride(0), M, N, eps, R=2, BLOCK=triton.next_power_of_2(N))
    return y
""",
    ),
    (
        "2.2",
        "a loop over rows by a few programs",
        """\
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
""",
    ),
    (
        "2.3",
        "negative zero: load order, stores first y",
        """\
@triton.jit
def add_rms_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, n_ptr, sx, sr, sy, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total_sq = tl.zeros([BLOCK], dtype=tl.float32)
    for c0 in tl.range(0, N, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        ok = c < N
        s = (tl.load(x_ptr + row * sx + c, ok, 0).to(tl.float32) + tl.load(r_ptr + row * sr + c, ok, 0).to(tl.float32)).to(n_ptr.dtype.element_ty)
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
    add_rms_norm_kernel[(M,)](x, residual, weight, y, new, x.stride(0), residual.stride(0), y.stride(0), N, eps, BLOCK=128, num_warps=2)
    return y, new
""",
    ),
    (
        "2.4",
        "one-pass mean, where by multiplication",
        """\
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
""",
    ),
    (
        "3.1",
        "sigmoid method, 2 programs of idle",
        """\
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = x * x.sigmoid()
    tl.store(y_ptr + offs, y.to(y_ptr.type.element_ty), mask=mask)


def silu(x):
    n = x.numel()
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(n, 256) + 1,)](x, y, n, BLOCK=256)
    return y
""",
    ),
    (
        "3.2",
        "where on the sign, flattened grid",
        """\
@triton.jit
def silu_and_mul_kernel(x_ptr, y_ptr, stride_xm, total, d, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    row, col = i // d, i % d
    gate = tl.load(x_ptr + row * stride_xm + col, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + d + col, mask=mask, other=0.0).to(tl.float32)
    e = tl.exp(-tl.abs(gate))
    sig = tl.where(gate >= 0, 1.0 / (1.0 + e), e / (1.0 + e))
    tl.store(y_ptr + i, (gate * sig * up).to(y_ptr.dtype.element_ty), mask=mask)


def silu_and_mul(x):
    M, d = x.shape[0], x.shape[1] // 2
    y = torch.empty((M, d), dtype=x.dtype, device=x.device)
    if y.numel():
        silu_and_mul_kernel[(triton.cdiv(M * d, 256),)](x, y, x.stride(0), M * d, d, BLOCK=256)
    return y
""",
    ),
    (
        "3.4",
        "abs and max methods",
        """\
@triton.jit
def quant_kernel(x_ptr, q_ptr, scale_ptr, stride_xm, N, FP8_MAX: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    amax = tl.maximum(x.abs().max(axis=0), 1e-10)
    scale = amax / FP8_MAX
    q = tl.clamp(x / scale, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    tl.store(q_ptr + row * N + cols, q.to(q_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row, scale)


def quant_fp8(x):
    M, N = x.shape
    q = torch.empty((M, N), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty(M, dtype=torch.float32, device=x.device)
    quant_kernel[(M,)](x, q, scale, x.stride(0), N, FP8_MAX=448.0, BLOCK=triton.next_power_of_2(N))
    return q, scale
""",
    ),
    (
        "4.1",
        "all heads of a token in a loop",
        """\
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
""",
    ),
    (
        "4.3",
        "gather by xor of lanes in memory",
        """\
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
""",
    ),
    (
        "4.4",
        "one program a head, in place",
        """\
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
""",
    ),
    (
        "5.1",
        "sum of products without dot",
        """\
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
""",
    ),
    (
        "5.2",
        "other tiles, split k with atomics in float32, one launch",
        """\
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, sam, sak, sbk, sbn, scm, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    pid_m, pid_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP)
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * sam + offs_k[None, :] * sak
    b_ptrs = b_ptr + offs_k[:, None].to(tl.int64) * sbk + offs_n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
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
""",
    ),
    (
        "5.3",
        "bias as start of the accumulator, trans",
        """\
@triton.jit
def linear_silu_kernel(x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
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
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], y.to(y_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def linear_silu(x, weight, bias):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    linear_silu_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, weight, bias, y, M, N, K, BLOCK_M=16, BLOCK_N=16, BLOCK_K=64)
    return y
""",
    ),
    (
        "6.1",
        "tl.softmax of several rows, max/exp/sum methods",
        """\
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
""",
    ),
    (
        "6.1",
        "three passes over short blocks",
        """\
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=float("-inf")).to(tl.float32))
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
        tl.store(y_ptr + row * stride_ym + cols, (tl.exp2((x - top) * 1.4426950408889634) / total).to(y_ptr.dtype.element_ty), mask=cols < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=64)
    return y
""",
    ),
    (
        "6.2",
        "two passes",
        """\
@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = float("-inf")
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        top = max(top, tl.max(x, 0))
    safe = tl.where(top == float("-inf"), 0.0, top)
    total = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - safe), 0)
    tl.store(out_ptr + row, safe + tl.log(total))


def row_logsumexp(x):
    M, N = x.shape
    out = torch.empty(M, dtype=torch.float32, device=x.device)
    logsumexp_kernel[(M,)](x, out, x.stride(0), N, BLOCK=256)
    return out
""",
    ),
    (
        "6.3",
        "two-pass attention",
        """\
@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, Sq, Sk, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
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
    tl.store(o_ptr + offs_m[:, None] * D + offs_d[None, :], (acc / total[:, None]).to(o_ptr.dtype.element_ty), mask=mask_m)


def head_attention(q, k, v):
    (Sq, D), Sk = q.shape, len(k)
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(Sq, 16),)](q, k, v, o, Sq, Sk, D**-0.5, D=D, BLOCK_M=16, BLOCK_N=16)
    return o
""",
    ),
    (
        "7.1",
        "one program a head",
        """\
@triton.jit
def append_kernel(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, positions_ptr, stride_kt, stride_vt, WIDTH, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < WIDTH
    position = tl.load(positions_ptr + token).to(tl.int64)
    tl.store(k_cache_ptr + position * WIDTH + cols, tl.load(k_ptr + token * stride_kt + cols, mask=mask), mask=mask)
    tl.store(v_cache_ptr + position * WIDTH + cols, tl.load(v_ptr + token * stride_vt + cols, mask=mask), mask=mask)


def append_kv(k, v, k_cache, v_cache, positions):
    T, KH, D = k.shape
    append_kernel[(T, triton.cdiv(KH * D, 32))](k, v, k_cache, v_cache, positions, k.stride(0), v.stride(0), KH * D, BLOCK=32)
""",
    ),
    (
        "7.2",
        "early return for padding",
        """\
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
    pages_kernel[(T,)](k, v, k_cache, v_cache, slot_mapping, k_cache.stride(0), k_cache.shape[1], KH * D, BLOCK=triton.next_power_of_2(KH * D))
""",
    ),
    (
        "7.5",
        "a loop over the parts",
        """\
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
""",
    ),
    (
        "1.3",
        "host tensor descriptor where it can be",
        """\
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
""",
    ),
    (
        "3.3",
        "min max builtins and python control flow",
        """\
@triton.jit
def gelu(x):
    return x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == "relu":
        y = max(x, 0.0)
    elif KIND == "silu":
        y = x / (1.0 + tl.exp(-x))
    elif KIND == "gelu":
        y = gelu(x)
    else:
        y = x / (1.0 + tl.exp(-2.0 * 0.7978845608028654 * x * (1.0 + 0.044715 * x * x)))
    return y


@triton.jit
def act_and_mul_kernel(x_ptr, y_ptr, stride_xm, d, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < d
    gate = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + d + cols, mask=mask, other=0.0).to(tl.float32)
    y = activate(gate, KIND) * up
    tl.store(y_ptr + row * d + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def act_and_mul(x, kind):
    M, d = x.shape[0], x.shape[1] // 2
    y = torch.empty((M, d), dtype=x.dtype, device=x.device)
    act_and_mul_kernel[(triton.cdiv(d, 256), M)](x, y, x.stride(0), d, kind, BLOCK=256)
    return y
""",
    ),
    (
        "3.5",
        "explicit philox-free: randint4x order kept, randint hash unused",
        """\
@triton.jit
def kept(seed, offs, p):
    return tl.rand(seed, offs) >= p


@triton.jit
def forward_kernel(x_ptr, residual_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    keep = kept(seed, offs, p)
    x = tl.load(x_ptr + offs, mask=mask & keep, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (residual + x / (1.0 - p)).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(dy_ptr, dx_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    dy = tl.load(dy_ptr + offs, mask=mask & kept(seed, offs, p), other=0.0).to(tl.float32)
    tl.store(dx_ptr + offs, (dy / (1.0 - p)).to(dx_ptr.dtype.element_ty), mask=mask)


def dropout_step(x, residual, dy, p, seed):
    n = x.numel()
    y, dx = torch.empty_like(x), torch.empty_like(x)
    forward_kernel[(triton.cdiv(n, 512),)](x, residual, y, n, p, seed, BLOCK=512)
    backward_kernel[(triton.cdiv(n, 1024),)](dy, dx, n, p, seed, BLOCK=1024)
    return y, dx
""",
    ),
    (
        "2.5",
        "cumulative and static_range",
        """\
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
""",
    ),
    (
        "2.6",
        "a class of one's own for launching, named tuple",
        """\
from typing import NamedTuple


class Grid(NamedTuple):
    rows: int
    block: int


@triton.jit
def rms_norm_short_kernel(x_ptr, w_ptr, y_ptr, stride_xm, stride_ym, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    sq = (x * x).reshape(BLOCK_M, BLOCK_N).permute(1, 0)
    ms = tl.sum(sq, axis=0)[:, None] / N
    tl.store(y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :], (x * tl.rsqrt(ms + eps) * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_short(x, weight, eps):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    how = Grid(triton.cdiv(M, 4), 4)
    rms_norm_short_kernel[(how.rows,)](x, weight, y, x.stride(0), y.stride(0), M, N, eps, BLOCK_M=how.block, BLOCK_N=triton.next_power_of_2(N))
    return y
""",
    ),
)
