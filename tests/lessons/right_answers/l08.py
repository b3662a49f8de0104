"""Right answers of lesson 08, written differently from the solutions."""

# ruff: noqa


# %% 8.1 | the mean in the idle lanes
def breaking_input():
    """Arguments `(x,)` on which row_variance is wrong."""
    return torch.full((1, 3), 5.0)


cause = "padded-lanes"


@triton.jit
def variance_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(mask, x, mean) - mean
    tl.store(out_ptr + row, tl.sum(centred * centred, axis=0) / N)


def row_variance(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    variance_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out


# %% 8.1 | two walks by blocks of 256
def breaking_input():
    """Arguments `(x,)` on which row_variance is wrong."""
    return (torch.randn(4, 500) + 10.0,)


cause = "padded-lanes"


@triton.jit
def variance_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
        squares += tl.where(cols < N, (x - mean) * (x - mean), 0.0)
    tl.store(out_ptr + row, tl.sum(squares, axis=0) / N)


def row_variance(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    variance_kernel[(M,)](x, out, N, BLOCK=256)
    return out


# %% 8.2 | nothing counts where nothing is
def breaking_input():
    """Arguments `(x,)` on which row_lse is wrong."""
    x = torch.randn(2, 200)
    x[0, :64] = -float("inf")
    return (x,)


cause = "inf-minus-inf"


@triton.jit
def lse_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    top, total = -float("inf"), 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
        new_top = tl.maximum(top, tl.max(x, axis=0))
        power = tl.where(x == -float("inf"), 0.0, tl.exp(x - new_top))
        rescale = tl.where(top == -float("inf"), 0.0, tl.exp(top - new_top))
        total = total * rescale + tl.sum(power, axis=0)
        top = new_top
    tl.store(out_ptr + row, top + tl.log(total))


def row_lse(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    lse_kernel[(M,)](x, out, N, BLOCK=64)
    return out


# %% 8.2 | the whole row in one block
def breaking_input():
    """Arguments `(x,)` on which row_lse is wrong."""
    x = torch.randn(2, 200)
    x[:] = -float("inf")
    return (x,)


cause = "inf-minus-inf"


@triton.jit
def lse_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
    top = tl.max(x, axis=0)
    centre = tl.where(top == -float("inf"), 0.0, top)
    tl.store(out_ptr + row, top + tl.log(tl.sum(tl.exp(x - centre), axis=0)))


def row_lse(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    lse_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out


# %% 8.3 | a branch around the store
def breaking_input():
    """Arguments `(k, cache, slots)` on which append is wrong."""
    return torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, -1, 0])


cause = "padding-as-address"


@triton.jit
def append_kernel(k_ptr, cache_ptr, slots_ptr, WIDTH, BLOCK: tl.constexpr):
    """One program, one token."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    slot = tl.load(slots_ptr + token)
    k = tl.load(k_ptr + token * WIDTH + cols, mask=mask, other=0.0)
    if slot >= 0:
        tl.store(cache_ptr + slot * WIDTH + cols, k, mask=mask)


def append(k, cache, slots):
    T, WIDTH = k.shape
    append_kernel[(T,)](k, cache, slots, WIDTH, BLOCK=triton.next_power_of_2(WIDTH))


# %% 8.3 | the launcher leaves padding out
def breaking_input():
    """Arguments `(k, cache, slots)` on which append is wrong."""
    return torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, -1, 0])


cause = "padding-as-address"


@triton.jit
def append_kernel(k_ptr, cache_ptr, slots_ptr, WIDTH, BLOCK: tl.constexpr):
    """One program, one token."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < WIDTH
    slot = tl.load(slots_ptr + token)
    k = tl.load(k_ptr + token * WIDTH + cols, mask=mask, other=0.0)
    tl.store(cache_ptr + slot * WIDTH + cols, k, mask=mask)


def append(k, cache, slots):
    stored = slots >= 0
    k, slots = k[stored], slots[stored]
    T, WIDTH = k.shape
    append_kernel[(T,)](k, cache, slots, WIDTH, BLOCK=triton.next_power_of_2(WIDTH))


# %% 8.4 | one wave alone
def breaking_input():
    """Arguments `(x, cos, sin)` on which rotate is wrong on some engine."""
    angle = torch.rand(2, 64)
    return torch.randn(2, 128), angle.cos(), angle.sin()


cause = "partner-of-another-wave"


@triton.jit
def rotate_kernel(x_ptr, cos_ptr, sin_ptr, D: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, D)
    partner = (d + D // 2) % D
    sign = tl.where(d < D // 2, -1.0, 1.0)
    cos = tl.load(cos_ptr + row * (D // 2) + d % (D // 2))
    sin = tl.load(sin_ptr + row * (D // 2) + d % (D // 2))
    mine = tl.load(x_ptr + row * D + d)
    other = tl.load(x_ptr + row * D + partner)
    tl.store(x_ptr + row * D + d, mine * cos + sign * other * sin)


def rotate(x, cos, sin):
    M, D = x.shape
    rotate_kernel[(M,)](x, cos, sin, D=D, num_warps=1)


# %% 8.4 | a barrier between
def breaking_input():
    """Arguments `(x, cos, sin)` on which rotate is wrong on some engine."""
    angle = torch.rand(2, 64)
    return torch.randn(2, 128), angle.cos(), angle.sin()


cause = "partner-of-another-wave"


@triton.jit
def rotate_kernel(x_ptr, cos_ptr, sin_ptr, D: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, D)
    partner = (d + D // 2) % D
    sign = tl.where(d < D // 2, -1.0, 1.0)
    cos = tl.load(cos_ptr + row * (D // 2) + d % (D // 2))
    sin = tl.load(sin_ptr + row * (D // 2) + d % (D // 2))
    mine = tl.load(x_ptr + row * D + d)
    other = tl.load(x_ptr + row * D + partner)
    tl.debug_barrier()
    tl.store(x_ptr + row * D + d, mine * cos + sign * other * sin)


def rotate(x, cos, sin):
    M, D = x.shape
    rotate_kernel[(M,)](x, cos, sin, D=D, num_warps=4)


# %% 8.4 | halves split in registers
def breaking_input():
    """Arguments `(x, cos, sin)` on which rotate is wrong on some engine."""
    angle = torch.rand(2, 64)
    return torch.randn(2, 128), angle.cos(), angle.sin()


cause = "partner-of-another-wave"


@triton.jit
def rotate_kernel(x_ptr, cos_ptr, sin_ptr, D: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, D // 2)
    cos = tl.load(cos_ptr + row * (D // 2) + i)
    sin = tl.load(sin_ptr + row * (D // 2) + i)
    places = x_ptr + row * D + i[:, None] + (D // 2) * tl.arange(0, 2)[None, :]
    a, b = tl.split(tl.load(places))
    tl.store(places, tl.join(a * cos - b * sin, b * cos + a * sin))


def rotate(x, cos, sin):
    M, D = x.shape
    rotate_kernel[(M,)](x, cos, sin, D=D, num_warps=4)


# %% 8.5 | blocks of 4096 in a loop
def breaking_target():
    """A pair, such as ("gfx1100", 1000): an architecture, and an N for which the launch of row_amax fails there."""
    return "gfx942", 40_000


cause = "too-many-threads"


@triton.jit
def amax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    top = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.abs(tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)))
    tl.store(out_ptr + row, tl.max(top, axis=0))


def warps_for(block):
    return 4


def row_amax(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    block = min(triton.next_power_of_2(N), 4096)
    amax_kernel[(M,)](x, out, N, BLOCK=block, num_warps=warps_for(block))
    return out


# %% 8.6 | blocks of 2048, four waves
def breaking_target():
    """A pair, such as ("gfx1100", 1000): an architecture, and an N for which scale_rows spills there."""
    return "gfx1201", 65_536


cause = "block-too-large"


@triton.jit
def scale_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / N + 1e-6)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
        tl.store(y_ptr + row * N + cols, x * scale, mask=cols < N)


def scale_rows(x):
    M, N = x.shape
    y = torch.empty_like(x)
    scale_kernel[(M,)](x, y, N, BLOCK=min(triton.next_power_of_2(N), 2048), num_warps=4)
    return y


# %% 8.7 | a choice in place of a maximum
def breaking_input():
    """Arguments `(x,)` on which quantise is wrong."""
    x = torch.randn(3, 100)
    x[1] = 0.0
    return (x,)


cause = "zero-by-zero"


@triton.jit
def quantise_kernel(x_ptr, q_ptr, scale_ptr, N, FP8_MAX: tl.constexpr, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    amax = tl.max(tl.abs(x), axis=0)
    scale = tl.where(amax < 1e-10, 1e-10, amax) / FP8_MAX
    q = tl.clamp(x / scale, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    tl.store(q_ptr + row * N + cols, q.to(q_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row, scale)


def quantise(x):
    M, N = x.shape
    q = torch.empty((M, N), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((M,), dtype=torch.float32, device=x.device)
    quantise_kernel[(M,)](x, q, scale, N, FP8_MAX=448.0, BLOCK=triton.next_power_of_2(N))
    return q, scale


# %% 8.8 | the last head for all that are too many
def breaking_input():
    """Arguments `(x, gain)` on which scale_heads is wrong."""
    return torch.randn(2, 40, 16), torch.randn(40)


cause = "heads-not-masked"


@triton.jit
def scale_heads_kernel(x_ptr, gain_ptr, y_ptr, H, D: tl.constexpr, BLOCK_H: tl.constexpr):
    """One program, all heads of one token."""
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BLOCK_H)
    h = tl.minimum(h, H - 1)
    offs = (token * H + h)[:, None] * D + tl.arange(0, D)[None, :]
    gain = tl.load(gain_ptr + h)
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, x * gain[:, None])


def scale_heads(x, gain):
    T, H, D = x.shape
    y = torch.empty_like(x)
    scale_heads_kernel[(T,)](x, gain, y, H, D=D, BLOCK_H=triton.next_power_of_2(H))
    return y


# %% 8.9 | the columns wide from the beginning
def breaking_input():
    """Arguments `(x, first_row)` on which flat_argmax is wrong."""
    return torch.randn(2, 4096), 600_000


cause = "int32-product"


@triton.jit
def flat_argmax_kernel(x_ptr, out_ptr, first_row, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row.to(tl.int64) * N + cols, mask=cols < N, other=-float("inf"))
    best = tl.argmax(x, axis=0)
    index = tl.cast(N, tl.int64) * (first_row + row) + best
    tl.store(out_ptr + row, index)


def flat_argmax(x, first_row):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.int64, device=x.device)
    flat_argmax_kernel[(M,)](x, out, first_row, N, BLOCK=triton.next_power_of_2(N))
    return out


# %% 8.10 | shorter pieces of k, as many stages
def breaking_target():
    """A pair, such as ("gfx1100", 64): an architecture, and an N for which the launch of square_matmul fails there."""
    return "gfx942", 256


cause = "too-much-lds"


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """One program, one tile of c."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * N + k[None, :], mask=(rows < N)[:, None] & (k < N)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], mask=(k < N)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (rows < N)[:, None] & (cols < N)[None, :]
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def square_matmul(a, b):
    N = a.shape[0]
    c = torch.empty((N, N), dtype=a.dtype, device=a.device)
    tile = {"BLOCK": 32, "BLOCK_K": 32} if N <= 64 else {"BLOCK": 128, "BLOCK_K": 32, "num_stages": 4}
    blocks = triton.cdiv(N, tile["BLOCK"])
    matmul_kernel[(blocks, blocks)](a, b, c, N, **tile, num_warps=8)
    return c


# %% 8.11 | a sum for each block
def breaking_input():
    """Arguments `(x,)` on which row_sum is wrong."""
    return (torch.ones(1, 1_000_000, dtype=torch.bfloat16),)


cause = "narrow-accumulator"


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row, block by block."""
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32), axis=0)
    tl.store(out_ptr + row, total)


def row_sum(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    row_sum_kernel[(M,)](x, out, N, BLOCK=2048)
    return out


# %% 8.12 | tl.softmax by hand with powers of two
def breaking_input():
    """Arguments `(x,)` on which softmax is wrong."""
    return (100.0 * torch.randn(2, 30),)


cause = "no-maximum"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=-float("inf"))
    power = tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)
    tl.store(y_ptr + row * N + cols, power / tl.sum(power, axis=0), mask=mask)


def softmax(x):
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y


# %% 8.a | two-dimensional blocks of 8 x 64 elements, launched with keywords and a lambda as grid, and the mark ...
@triton.jit
def mark_wrong_kernel(got_ptr, expected_ptr, out_ptr, atol, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0) * (ROWS * COLS)
    at = first + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    exists = at < n
    distance = tl.load(got_ptr + at, mask=exists, other=0.0) - tl.load(expected_ptr + at, mask=exists, other=0.0)
    within = tl.abs(distance) <= atol
    tl.store(out_ptr + at, 1 - within.to(tl.int32), mask=exists)


def mark_wrong(got, expected, atol):
    n = got.numel()
    out = torch.empty(n, dtype=torch.int32, device=got.device)
    grid = lambda meta: (triton.cdiv(n, meta["ROWS"] * meta["COLS"]),)
    mark_wrong_kernel[grid](got_ptr=got, expected_ptr=expected, out_ptr=out, atol=atol, n=n, ROWS=8, COLS=64)
    return out


# %% 8.b | a program paints three neighbouring blocks, one after the other, and computes their numbers from its own
@triton.jit
def paint_kernel(out_ptr, n, BLOCK: tl.constexpr, EACH: tl.constexpr):
    first = tl.program_id(0) * EACH
    for j in tl.static_range(EACH):
        owner = first + j
        offs = owner * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, tl.zeros((BLOCK,), tl.int32) + owner, mask=offs < n)


def paint(out, block):
    n = out.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["EACH"]),)
    paint_kernel[grid](out, n, BLOCK=block, EACH=3)


# %% 8.1 | the language under another name, the block from a heuristic, and idle lanes are multiplied by 0 ...
import triton.language as L


def breaking_input():
    """Arguments `(x,)` on which row_variance is wrong."""
    rows = torch.full((3, 300), 50.0)
    rows[:, ::2] += 1.0
    return (rows,)


cause = "padded-lanes"


@triton.heuristics({"WIDTH": lambda args: triton.next_power_of_2(args["length"])})
@triton.jit
def variance_kernel(source, target, length, WIDTH: L.constexpr):
    line = L.program_id(0).to(L.int64)
    place = L.arange(0, WIDTH)
    counts = (place < length).to(L.float32)
    numbers = L.load(source + line * length + place, mask=place < length, other=0.0)
    centre = L.sum(numbers, axis=0) / length
    centred = (numbers - centre) * counts
    L.store(target + line, L.sum(centred * centred, axis=0) / length)


def row_variance(x):
    count, length = x.shape
    result = x.new_empty(count, dtype=torch.float32)
    variance_kernel[(count,)](source=x, target=result, length=length)
    return result


def test_row_variance():
    torch.manual_seed(0)
    x = torch.randn(8, 500)
    assert torch.allclose(row_variance(x), x.var(dim=1, unbiased=False), rtol=1e-3, atol=1e-3)


# %% 8.2 | each lane keeps a maximum and a sum of its own along the row, and they are brought together once ...
def breaking_input():
    """Arguments `(x,)` on which row_lse is wrong."""
    x = torch.linspace(-2.0, 2.0, 3 * 256).reshape(3, 256).clone()
    x[1, :128] = -float("inf")
    return (x,)


cause = "inf-minus-inf"


@triton.jit
def finite_or_zero(x):
    return tl.where(x == -float("inf"), 0.0, x)


@triton.jit
def lse_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tops = tl.full((BLOCK,), -float("inf"), tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
        highest = tl.maximum(tops, x)
        base = finite_or_zero(highest)
        totals = totals * tl.exp(tops - base) + tl.exp(x - base)
        tops = highest
    base = finite_or_zero(tl.max(tops, axis=0))
    total = tl.sum(totals * tl.exp(tops - base), axis=0)
    tl.store(out_ptr + row, base + tl.log(total))


def row_lse(x):
    M, N = x.shape
    out = torch.empty((M,), dtype=torch.float32, device=x.device)
    lse_kernel[(M,)](x, out, N, BLOCK=256)
    return out


def test_row_lse():
    torch.manual_seed(0)
    x = torch.randn(4, 200)
    x[:, 150:] = -float("inf")
    assert torch.allclose(row_lse(x), torch.logsumexp(x, dim=1), rtol=1e-4, atol=1e-4)


# %% 8.4 | a lane owns both elements of a pair, and a program walks over several rows in steps of the grid
def breaking_input():
    """Arguments `(x, cos, sin)` on which rotate is wrong on some engine."""
    angle = torch.linspace(0.1, 1.4, 3 * 128).reshape(3, 128)
    return torch.randn(3, 256), angle.cos(), angle.sin()


cause = "partner-of-another-wave"


@triton.jit
def turn(a, b, cos, sin):
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def rotate_kernel(x_ptr, cos_ptr, sin_ptr, M, HALF: tl.constexpr):
    i = tl.arange(0, HALF)
    for row in range(tl.program_id(0).to(tl.int64), M, tl.num_programs(0)):
        left = x_ptr + row * (2 * HALF) + i
        right = left + HALF
        cos = tl.load(cos_ptr + row * HALF + i)
        sin = tl.load(sin_ptr + row * HALF + i)
        first, second = turn(tl.load(left), tl.load(right), cos, sin)
        tl.store(left, first)
        tl.store(right, second)


def rotate(x, cos, sin):
    M, D = x.shape
    rotate_kernel[(min(M, 256),)](x, cos, sin, M, HALF=D // 2, num_warps=4)


def test_rotate():
    torch.manual_seed(0)
    x, angle = torch.randn(4, 64), torch.rand(4, 32)
    (a, b), cos, sin = x.chunk(2, dim=1), angle.cos(), angle.sin()
    expected = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=1)
    rotate(x, cos, sin)
    assert torch.allclose(x, expected, rtol=1e-4, atol=1e-4)


# %% 8.6 | two walks over the row in blocks of 4096, the second from the end to the beginning, since the end is ...
def breaking_target():
    """A pair, such as ("gfx1100", 1000): an architecture, and an N for which scale_rows spills there."""
    return "gfx1100", 60_000


cause = "block-too-large"


@triton.jit
def piece(x_ptr, start, N, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    return tl.load(x_ptr + cols, mask=cols < N, other=0.0), cols


@triton.jit
def scale_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), tl.float32)
    blocks = tl.cdiv(N, BLOCK)
    for i in range(0, blocks):
        x, cols = piece(x_ptr + row * N, i * BLOCK, N, BLOCK)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / N + 1e-6)
    for i in range(0, blocks):
        x, cols = piece(x_ptr + row * N, (blocks - 1 - i) * BLOCK, N, BLOCK)
        tl.store(y_ptr + row * N + cols, x * scale, mask=cols < N)


def scale_rows(x):
    M, N = x.shape
    y = torch.empty_like(x)
    scale_kernel[(M,)](x, y, N, BLOCK=min(4096, triton.next_power_of_2(N)), num_warps=4)
    return y


def test_scale_rows():
    torch.manual_seed(0)
    for N in (100, 4096, 40_000):
        x = torch.randn(2, N)
        expected = x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6)
        assert torch.allclose(scale_rows(x), expected, rtol=1e-4, atol=1e-4)


# %% 8.8 | a two-dimensional grid: a program has one token and as many of its heads as make 2048 numbers, masked
def breaking_input():
    """Arguments `(x, gain)` on which scale_heads is wrong."""
    return torch.randn(4, 12, 32), torch.arange(1.0, 13.0)


cause = "heads-not-masked"


@triton.jit
def scale_heads_kernel(x_ptr, gain_ptr, y_ptr, H, D: tl.constexpr, HEADS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    exists = head < H
    shift = token * H * D + head[:, None] * D + tl.arange(0, D)[None, :]
    factor = tl.load(gain_ptr + head, mask=exists, other=0.0)
    numbers = tl.load(x_ptr + shift, mask=exists[:, None], other=0.0)
    tl.store(y_ptr + shift, numbers * factor[:, None], mask=exists[:, None])


def scale_heads(x, gain):
    tokens, heads, D = x.shape
    y = torch.empty_like(x)
    grid = lambda meta: (tokens, triton.cdiv(heads, meta["HEADS"]))
    scale_heads_kernel[grid](x, gain, y, heads, D=D, HEADS=min(triton.next_power_of_2(heads), max(1, 2048 // D)))
    return y


def test_scale_heads():
    torch.manual_seed(0)
    for H in (8, 16, 32):
        x, gain = torch.randn(3, H, 16), torch.randn(H)
        assert torch.equal(scale_heads(x, gain), x * gain[:, None])


# %% 8.11 | a row is cut into parts of 65,536 numbers, whose float32 sums are added to zeros by an atomic each
def breaking_input():
    """Arguments `(x,)` on which row_sum is wrong."""
    return (torch.ones(2, 1 << 20, dtype=torch.bfloat16),)


cause = "narrow-accumulator"


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, N, PART: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * PART
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, tl.minimum(first + PART, N), BLOCK):
        cols = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + row, tl.sum(sums, axis=0), sem="relaxed")


def row_sum(x):
    M, N = x.shape
    out = torch.zeros((M,), dtype=torch.float32, device=x.device)
    row_sum_kernel[lambda meta: (M, triton.cdiv(N, meta["PART"]))](x, out, N, PART=65536, BLOCK=2048)
    return out


def test_row_sum():
    torch.manual_seed(0)
    x = torch.rand(3, 10_000).to(torch.bfloat16)
    assert torch.allclose(row_sum(x), x.float().sum(dim=1), rtol=1e-2, atol=0.0)
