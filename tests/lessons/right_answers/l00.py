"""Right answers of lesson 00, written differently from the solutions."""

# ruff: noqa


# %% 0.1 | the sum of x and x
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, x + x, mask=offs < n)


def double(x):
    y = torch.zeros_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


# %% 0.1 | a loop over blocks with a stride of the whole grid
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    while start < n:
        offs = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, offs < n, 0) * 2, offs < n)
        start += tl.num_programs(0) * BLOCK


def double(x):
    y = x.new_empty(x.shape)
    double_kernel[(3,)](x, y, x.numel(), BLOCK=32)
    return y


# %% 0.1 | the store through a helper and a flat view
@triton.jit
def twice(x):
    return 2.0 * x


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0)
    tl.store(y_ptr + offs, twice(x).to(x.dtype), mask=inside)


def double(x):
    flat = x.reshape(-1)
    y = torch.empty_like(flat)
    double_kernel[lambda meta: (triton.cdiv(flat.numel(), meta["BLOCK"]),)](flat, y, flat.numel(), BLOCK=128)
    return y.view(x.shape)


# %% 0.1 | a shift of the exponent's factor: an fma with zero
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, tl.fma(x, 2.0, 0.0).to(y_ptr.dtype.element_ty), mask=mask)


def double(x):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    double_kernel[grid](x, y, x.numel(), BLOCK=128)
    return y


# %% 0.1 | two blocks a program, static_range
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for part in tl.static_range(2):
        offs = (tl.program_id(0) * 2 + part) * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        tl.store(y_ptr + offs, 2 * x, mask=mask)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=128)
    return y


# %% 0.2 | n rounded up by hand
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, x + c, mask=mask)


def shift(x, c):
    y = torch.empty_like(x)
    n = x.numel()
    grid = ((n + 127) // 128,)
    shift_kernel[grid](x, y, c, n, BLOCK=128)
    return y


# %% 0.2 | a grid by math.ceil, one program too many for whole blocks
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, x + c, mask=mask)


def shift(x, c):
    y = torch.empty_like(x)
    n = x.numel()
    shift_kernel[(n // 128 + 1,)](x, y, c, n, BLOCK=128)
    return y


# %% 0.2 | a negative stride through memory: blocks from the end
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    offs = n - 1 - (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    mask = offs >= 0
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) + c, mask=mask)


def shift(x, c):
    y = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 128),)](x, y, c, x.numel(), BLOCK=128)
    return y


# %% 0.2 | c from memory
@triton.jit
def shift_kernel(x_ptr, y_ptr, c_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, x + tl.load(c_ptr), mask=offs < n)


def shift(x, c):
    y = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 128),)](x, y, torch.tensor([c], dtype=x.dtype), x.numel(), BLOCK=128)
    return y


# %% 0.2 | atomic_add onto zeros
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.atomic_add(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) + c, mask=mask)


def shift(x, c):
    y = torch.zeros_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 128),)](x, y, c, x.numel(), BLOCK=128)
    return y


# %% 0.3 | tl.clamp
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, tl.clamp(x, lo, hi), mask=mask)


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    clamp_kernel[(triton.cdiv(x.numel(), 128),)](x, y, lo, hi, x.numel(), BLOCK=128)
    return y


# %% 0.3 | two wheres
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.where(x < lo, lo, tl.where(x > hi, hi, x))
    tl.store(y_ptr + offs, y, mask=mask)


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    clamp_kernel[grid](x, y, lo, hi, x.numel(), BLOCK=128)
    return y


# %% 0.3 | the limits in the other order, several stores with masks of their own
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    below, above = x < lo, x > hi
    tl.store(y_ptr + offs, x, mask=mask & (below == 0) & (above == 0))
    tl.store(y_ptr + offs, tl.full((BLOCK,), lo, tl.float32), mask=mask & below)
    tl.store(y_ptr + offs, tl.full((BLOCK,), hi, tl.float32), mask=mask & above & (below == 0))


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    clamp_kernel[(triton.cdiv(x.numel(), 256),)](x, y, lo, hi, x.numel(), BLOCK=256)
    return y


# %% 0.3 | two launches, the second in place
@triton.jit
def lower(x_ptr, y_ptr, lo, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.maximum(tl.load(x_ptr + offs, mask=offs < n), lo), mask=offs < n)


@triton.jit
def upper(y_ptr, hi, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.minimum(tl.load(y_ptr + offs, mask=offs < n), hi), mask=offs < n)


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    lower[grid](x, y, lo, x.numel(), BLOCK=128)
    upper[grid](y, hi, x.numel(), BLOCK=128)
    return y


# %% 0.3 | median of three
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.maximum(tl.minimum(x, hi), lo)
    tl.store(y_ptr + offs, y, mask=mask)


def clamp(x, lo, hi):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    clamp_kernel[(max(1, triton.cdiv(x.numel(), 512)),)](x, y, float(lo), float(hi), x.numel(), BLOCK=512, num_warps=2)
    return y


# %% 0.4 | the lambda grid
@triton.jit
def distance_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.abs(x - y), mask=mask)


def distance(x, y):
    out = torch.empty_like(x)
    distance_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]), 1, 1)](x, y, out, x.numel(), BLOCK=64)
    return out


# %% 0.4 | a kernel of one's own: the larger less the smaller
@triton.jit
def mine(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, tl.maximum(x, y) - tl.minimum(x, y), mask=offs < n)


def distance(x, y):
    out = torch.empty_like(x)
    mine[(1, triton.cdiv(x.numel(), 256))](x, y, out, x.numel(), BLOCK=256)
    return out


# %% 0.4 | a grid in a list, arguments by name
@triton.jit
def distance_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.abs(x - y), mask=mask)


def distance(x, y):
    n = x.numel()
    out = torch.empty(n, dtype=x.dtype, device=x.device)
    distance_kernel[[triton.cdiv(n, 128)]](x_ptr=x, y_ptr=y, out_ptr=out, n=n, BLOCK=128)
    return out.reshape(x.shape)


# %% 0.4 | autotune on the kernel as given
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def distance_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.abs(x - y), mask=mask)


def distance(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    distance_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out


# %% 0.4 | one program for every 1000 elements, lanes left over
@triton.jit
def mine(x_ptr, y_ptr, out_ptr, n, PART: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * PART + lane
    mask = (offs < n) & (lane < PART)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    d = x - y
    tl.store(out_ptr + offs, tl.where(d < 0, -d, d), mask=mask)


def distance(x, y):
    out = torch.empty_like(x)
    mine[(triton.cdiv(x.numel(), 1000),)](x, y, out, x.numel(), PART=1000, BLOCK=1024)
    return out


# %% 0.a | a fixed grid of three programs, each of which walks over the tensor with a while loop
@triton.jit
def scale_and_shift_kernel(x_ptr, y_ptr, alpha, beta, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    while start < n:
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        tl.store(y_ptr + offs, alpha * x + beta, mask=mask)
        start += tl.num_programs(0) * BLOCK


def scale_and_shift(x, alpha, beta):
    y = torch.empty_like(x)
    scale_and_shift_kernel[(3,)](x, y, alpha, beta, x.numel(), BLOCK=256)
    return y


# %% 0.b | the factor is chosen and not the result, in a helper function, with the language imported under ...
import triton.language as L


@triton.jit
def factor(values, slope):
    return L.where(values > 0, 1.0, slope)


@triton.jit
def leaky_kernel(x_ptr, y_ptr, slope, n, BLOCK: L.constexpr):
    offs = L.program_id(0) * BLOCK + L.arange(0, BLOCK)
    mask = offs < n
    x = L.load(x_ptr + offs, mask=mask, other=0.0)
    L.store(y_ptr + offs, x * factor(x, slope), mask=mask)


def leaky(x, slope):
    y = torch.empty_like(x)
    leaky_kernel[(triton.cdiv(x.numel(), 256),)](x, y, slope, x.numel(), BLOCK=256)
    return y


# %% 0.1 | tensor descriptors where the memory begins at a multiple of 16 bytes, and pointers with a mask elsewhere
@triton.jit
def double_kernel(x_ptr, y_ptr, n, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    if ALIGNED:
        source = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        target = tl.make_tensor_descriptor(y_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
        target.store([start], source.load([start]) * 2)
    else:
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) * 2, mask=mask)


def double(x):
    y = torch.empty_like(x)
    n = x.numel()
    aligned = x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0
    if x.is_cuda:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=x.device))
    double_kernel[(triton.cdiv(n, 256),)](x, y, n, ALIGNED=aligned, BLOCK=256)
    return y


# %% 0.1 | a program's block is a tile of 8 x 32 offsets, and the number is added to itself
@triton.jit
def double_kernel(x_ptr, y_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    inner = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    offs = tl.program_id(0) * (ROWS * COLS) + inner
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + offs, x + x, mask=offs < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 8 * 32),)](x, y, x.numel(), ROWS=8, COLS=32)
    return y


# %% 0.2 | one program more than there are full blocks, which may own nothing at all, and a device_print for ...
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.device_print("program", pid)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, x + c, mask=mask)


def shift(x, c):
    y = torch.empty_like(x)
    n = x.numel()
    grid = (n // 128 + 1,)
    shift_kernel[grid](x, y, c, n, BLOCK=128)
    return y


# %% 0.3 | two nested choices take the place of minimum and maximum, and the grid is a lambda
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0)
    tl.store(y_ptr + offs, tl.where(x < lo, lo, tl.where(x > hi, hi, x)), mask=inside)


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    grid = lambda args: (triton.cdiv(args["n"], args["BLOCK"]),)
    clamp_kernel[grid](x_ptr=x, y_ptr=y, lo=lo, hi=hi, n=x.numel(), BLOCK=1024)
    return y


# %% 0.4 | the bracketed kernel is kept in a variable and called with keywords, with large blocks and eight waves
@triton.jit
def distance_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.abs(x - y), mask=mask)


def distance(x, y):
    """|x - y|, element by element."""
    result = torch.empty_like(x)
    block = 2048
    launch = distance_kernel[((x.numel() + block - 1) // block,)]
    launch(x_ptr=x, y_ptr=y, out_ptr=result, n=x.numel(), BLOCK=block, num_warps=8)
    return result


# %% 0.4 | the kernel is wrapped by autotune, and the grid follows the block that was chosen
@triton.jit
def distance_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.abs(x - y), mask=mask)


choices = [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=4)]
tuned_distance_kernel = triton.autotune(configs=choices, key=["n"])(distance_kernel)


def distance(x, y):
    """|x - y|, element by element."""
    out = torch.empty_like(x)
    n = x.numel()
    tuned_distance_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
