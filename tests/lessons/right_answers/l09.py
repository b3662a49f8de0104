"""Right answers of lesson 09, written differently from the solutions."""

# ruff: noqa


# %% 9.a | Triton's own softmax of the divided row
@triton.jit
def soften_kernel(x_ptr, y_ptr, temperature, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
    tl.store(y_ptr + row * N + cols, tl.softmax(x / temperature), mask=cols < N)


def soften(x, temperature):
    rows, N = x.shape
    y = torch.empty_like(x)
    soften_kernel[(rows,)](x, y, temperature, N, BLOCK=triton.next_power_of_2(N))
    return y


# %% 9.a | rows of any length in blocks of at most 1024: three walks, for the maximum, for the sum, for the result
@triton.jit
def soften_kernel(x_ptr, y_ptr, temperature, N, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * N
    lane = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + lane
        highest = tl.maximum(highest, tl.load(x_ptr + base + cols, mask=cols < N, other=-float("inf")))
    top = tl.max(highest, axis=0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + lane
        x = tl.load(x_ptr + base + cols, mask=cols < N, other=-float("inf"))
        sums += tl.exp((x - top) / temperature)
    total = tl.sum(sums, axis=0)
    for start in range(0, N, BLOCK):
        cols = start + lane
        x = tl.load(x_ptr + base + cols, mask=cols < N, other=-float("inf"))
        tl.store(y_ptr + base + cols, tl.exp((x - top) / temperature) / total, mask=cols < N)


def soften(x, temperature):
    rows, N = x.shape
    y = torch.empty_like(x)
    soften_kernel[(rows,)](x, y, temperature, N, BLOCK=min(1024, triton.next_power_of_2(N)))
    return y


# %% 9.a | four rows in a program, the exponential to base 2, the temperature folded into its factor
import triton.language as L


@triton.jit
def soften_kernel(x_ptr, y_ptr, factor, rows, N, ROWS: L.constexpr, BLOCK: L.constexpr):
    r = L.program_id(0).to(L.int64) * ROWS + L.arange(0, ROWS)[:, None]
    c = L.arange(0, BLOCK)[None, :]
    mask = (r < rows) & (c < N)
    # rows that do not exist are all zeros: nobody stores them
    x = L.load(x_ptr + r * N + c, mask=mask, other=0.0)
    x = L.where((c < N) | (r >= rows), x, -float("inf"))
    power = L.exp2((x - L.max(x, axis=1, keep_dims=True)) * factor)
    L.store(y_ptr + r * N + c, power / L.sum(power, axis=1, keep_dims=True), mask=mask)


def soften(x, temperature):
    rows, N = x.shape
    y = torch.empty_like(x)
    factor = math.log2(math.e) / temperature
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
    soften_kernel[grid](x, y, factor, rows, N, ROWS=4, BLOCK=triton.next_power_of_2(N))
    return y


# %% 9.b | no atomics: one program a page, which walks over the table and counts how often it finds its own number
@triton.jit
def count_kernel(table_ptr, refs_ptr, n, BLOCK: tl.constexpr):
    page = tl.program_id(0)
    found = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        entry = tl.load(table_ptr + offs, mask=offs < n, other=-1)
        found += tl.where(entry == page, 1, 0)
    tl.store(refs_ptr + page, tl.sum(found, axis=0))


def count_references(table, pages):
    refs = torch.empty(pages, dtype=torch.int32, device=table.device)
    count_kernel[(pages,)](table, refs, table.numel(), BLOCK=128)
    return refs


# %% 9.b | at most four programs, each in steps of the grid, with relaxed atomics whose mask leaves out -1
@triton.jit
def count_kernel(table_ptr, refs_ptr, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        page = tl.load(table_ptr + start + lane, mask=start + lane < n, other=-1)
        exists = page >= 0
        tl.atomic_add(refs_ptr + page, exists.to(tl.int32), mask=exists, sem="relaxed")


def count_references(table, pages):
    refs = torch.zeros(pages, dtype=torch.int32, device=table.device)
    n = table.numel()
    count_kernel[(min(4, triton.cdiv(n, 64)),)](table_ptr=table, refs_ptr=refs, n=n, BLOCK=64)
    return refs


# %% 9.b | one program an entry: a single number, a branch, a single atomic
@triton.jit
def count_kernel(table_ptr, refs_ptr):
    page = tl.load(table_ptr + tl.program_id(0))
    if page >= 0:
        tl.atomic_add(refs_ptr + page, 1)


def count_references(table, pages):
    refs = table.new_zeros(pages, dtype=torch.int32)
    count_kernel[(table.numel(),)](table, refs, num_warps=1)
    return refs


# %% 9.1 | one 64-bit key of the number's order and its lane, so that a single maximum decides both; zeros of ...
@triton.jit
def ordered(x):
    """An int32 that is larger where x is larger."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def top_k_kernel(
    x_ptr, places_ptr, values_ptr, indices_ptr, N, k, LOWEST: tl.constexpr, NOWHERE: tl.constexpr, FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    start = row * N + chunk * BLOCK
    mask = chunk * BLOCK + lane < N
    x = tl.load(x_ptr + start + lane, mask=mask, other=-float("inf")).to(tl.float32)
    # of equal numbers the lower lane has the larger key, and what was kept before stands in the order of places
    keys = tl.where(mask, (ordered(x).to(tl.int64) << 32) + (BLOCK - 1 - lane), LOWEST)
    out = (row * tl.num_programs(1) + chunk) * k
    for i in range(k):
        key = tl.max(keys, axis=0)
        exists = key > LOWEST
        at = BLOCK - 1 - (key & 0x7FFFFFFF)
        value = tl.load(x_ptr + start + at, mask=exists, other=-float("inf"))
        if FIRST:
            place = tl.where(exists, chunk * BLOCK + at, NOWHERE)
        else:
            place = tl.load(places_ptr + start + at, mask=exists, other=NOWHERE)
        tl.store(values_ptr + out + i, value)
        tl.store(indices_ptr + out + i, place)
        keys = tl.where(keys == key, LOWEST, keys)


def rounds(x, places, k):
    rows, N = x.shape
    block = min(triton.next_power_of_2(N), 1024)
    chunks = triton.cdiv(N, block)
    values = x.new_empty(rows, chunks * k)
    indices = torch.empty((rows, chunks * k), dtype=torch.int64, device=x.device)
    top_k_kernel[(rows, chunks)](
        x, places, values, indices, N, k, LOWEST=-(1 << 63), NOWHERE=1 << 40, FIRST=places is None, BLOCK=block
    )
    return (values, indices) if chunks == 1 else rounds(values, indices, k)


def top_k(x, k):
    return rounds(x, None, k)


# %% 9.1 | by rank: each number of a block of 128 is compared with each other, and the number of those before ...
@triton.jit
def top_k_kernel(
    x_ptr, places_ptr, values_ptr, indices_ptr, N, k, NOWHERE: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    offs = chunk * BLOCK + lane
    mask = offs < N
    x = tl.load(x_ptr + row * N + offs, mask=mask, other=-float("inf")).to(tl.float32)
    if FIRST:
        place = tl.where(mask, offs.to(tl.int64), NOWHERE)
    else:
        place = tl.load(places_ptr + row * N + offs, mask=mask, other=NOWHERE)
    # lanes that do not exist are -inf and stand last, so every rank below BLOCK is taken exactly once
    larger = x[None, :] > x[:, None]
    equal_and_earlier = (x[None, :] == x[:, None]) & (lane[None, :] < lane[:, None])
    rank = tl.sum((larger | equal_and_earlier).to(tl.int32), axis=1)
    out = (row * tl.num_programs(1) + chunk) * k + rank
    tl.store(values_ptr + out, x.to(values_ptr.dtype.element_ty), mask=rank < k)
    tl.store(indices_ptr + out, place, mask=rank < k)


def top_k(x, k):
    (rows, N), places, size = x.shape, None, 128
    while True:
        chunks = triton.cdiv(N, size)
        values = torch.empty((rows, chunks * k), dtype=x.dtype, device=x.device)
        indices = torch.empty((rows, chunks * k), dtype=torch.int64, device=x.device)
        constants = {"NOWHERE": 1 << 40, "FIRST": places is None, "BLOCK": min(triton.next_power_of_2(N), size)}
        top_k_kernel[(rows, chunks)](x, places, values, indices, N, k, **constants)
        if chunks == 1:
            return values, indices
        x, places, N = values, indices, chunks * k


# %% 9.1 | nothing is ever taken out: each step looks for the largest number that stands behind the one found ...
@triton.jit
def top_k_kernel(
    x_ptr, places_ptr, values_ptr, indices_ptr, N, k, NOWHERE: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    offs = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * N + offs, mask=mask, other=-float("inf")).to(tl.float32)
    place = offs.to(tl.int64)
    if not FIRST:
        place = tl.load(places_ptr + row * N + offs, mask=mask, other=NOWHERE)
    place = tl.where(mask, place, NOWHERE)
    out = (row * tl.num_programs(1) + chunk) * k
    best = tl.max(x, axis=0)
    at = tl.min(place, axis=0) - 1  # before all
    for i in range(k):
        behind = (x < best) | ((x == best) & (place > at))
        best = tl.max(tl.where(behind, x, -float("inf")), axis=0)
        at = tl.min(tl.where(behind & (x == best), place, NOWHERE), axis=0)
        tl.store(values_ptr + out + i, best.to(values_ptr.dtype.element_ty))
        tl.store(indices_ptr + out + i, at)


def one_round(x, places, k, chunks, block):
    rows, N = x.shape
    values = torch.empty((rows, chunks * k), dtype=x.dtype, device=x.device)
    indices = torch.empty((rows, chunks * k), dtype=torch.int64, device=x.device)
    first = places is None
    top_k_kernel[(rows, chunks)](x, places, values, indices, N, k, NOWHERE=1 << 40, FIRST=first, BLOCK=block)
    return values, indices


def top_k(x, k):
    block = min(triton.next_power_of_2(x.shape[1]), 2048)
    places = None
    while (chunks := triton.cdiv(x.shape[1], block)) > 1:
        x, places = one_round(x, places, k, chunks, block)
    return one_round(x, places, k, 1, triton.next_power_of_2(x.shape[1]))


# %% 9.1 | two rows in a program, a block of flags says which numbers are still there, and the results are ...
@triton.jit
def top_k_kernel(
    x_ptr, places_ptr, values_ptr, indices_ptr, rows, N, k, NOWHERE: tl.constexpr, FIRST: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    chunk = tl.program_id(1)
    offs = chunk * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = (row < rows) & (offs < N)
    x = tl.load(x_ptr + row * N + offs, mask=there, other=-float("inf")).to(tl.float32)
    if FIRST:
        place = tl.where(there, offs.to(tl.int64), NOWHERE)
    else:
        place = tl.load(places_ptr + row * N + offs, mask=there, other=NOWHERE)
    slot = tl.arange(0, KEEP)[None, :]
    values = tl.full((ROWS, KEEP), -float("inf"), tl.float32)
    indices = tl.full((ROWS, KEEP), NOWHERE, tl.int64)
    for i in range(k):
        best = tl.max(tl.where(there, x, -float("inf")), axis=1)
        at = tl.min(tl.where(there & (x == best[:, None]), place, NOWHERE), axis=1)
        values = tl.where(slot == i, best[:, None], values)
        indices = tl.where(slot == i, at[:, None], indices)
        there = there & (place != at[:, None])
    out = (row * tl.num_programs(1) + chunk) * k + slot
    mask = (row < rows) & (slot < k)
    tl.store(values_ptr + out, values.to(values_ptr.dtype.element_ty), mask=mask)
    tl.store(indices_ptr + out, indices, mask=mask)


def top_k(x, k):
    (rows, N), places = x.shape, None
    while True:
        block = min(triton.next_power_of_2(N), 1024)
        chunks = triton.cdiv(N, block)
        values = torch.empty((rows, chunks * k), dtype=x.dtype, device=x.device)
        indices = torch.empty((rows, chunks * k), dtype=torch.int64, device=x.device)
        constants = {"NOWHERE": 1 << 40, "FIRST": places is None, "ROWS": 2}
        constants |= {"BLOCK": block, "KEEP": triton.next_power_of_2(k)}
        top_k_kernel[(triton.cdiv(rows, 2), chunks)](x, places, values, indices, rows, N, k, **constants)
        if chunks == 1:
            return values, indices
        x, places, N = values, indices, chunks * k


# %% 9.2 | the running sums by an associative scan of its own, and the token is picked out of a block of ...
@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def sample_kernel(values_ptr, indices_ptr, uniform_ptr, tokens_ptr, temperature, k, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < k
    x = tl.load(values_ptr + row * k + offs, mask=mask, other=-float("inf")).to(tl.float32)
    candidates = tl.load(indices_ptr + row * k + offs, mask=mask, other=0)
    p = tl.exp((x - tl.max(x, axis=0)) / temperature)
    p = p / tl.sum(p, axis=0)
    sums = tl.associative_scan(p, 0, plus)
    passed = (sums <= tl.load(uniform_ptr + row)) & (offs < k - 1)
    i = tl.sum(passed.to(tl.int32), axis=0)
    tl.store(tokens_ptr + row, tl.sum(tl.where(offs == i, candidates, 0), axis=0))


def sample(values, indices, temperature, uniform):
    rows, k = values.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=values.device)
    block = triton.next_power_of_2(k)
    sample_kernel[(rows,)](values, indices, uniform, tokens, float(temperature), k, BLOCK=block)
    return tokens


# %% 9.2 | four rows in a program: scans and sums along axis 1, in a helper
@triton.jit
def softened(x, temperature):
    power = tl.exp((x - tl.max(x, axis=1, keep_dims=True)) / temperature)
    return power / tl.sum(power, axis=1, keep_dims=True)


@triton.jit
def sample_kernel(
    values_ptr, indices_ptr, uniform_ptr, tokens_ptr, temperature, rows, k, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < rows
    # a row that does not exist stands for the last one again: harmless to read, and never stored
    source = tl.minimum(row, rows - 1)
    offs = tl.arange(0, BLOCK)[None, :]
    x = tl.load(values_ptr + source[:, None] * k + offs, mask=offs < k, other=-float("inf")).to(tl.float32)
    sums = tl.cumsum(softened(x, temperature), axis=1)
    uniform = tl.load(uniform_ptr + source)
    passed = (sums <= uniform[:, None]) & (offs < k - 1)
    i = tl.sum(passed.to(tl.int32), axis=1)
    tl.store(tokens_ptr + row, tl.load(indices_ptr + source * k + i), mask=here)


def sample(values, indices, temperature, uniform):
    rows, k = values.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=values.device)
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
    sample_kernel[grid](
        values, indices, uniform, tokens, float(temperature), rows, k, ROWS=4, BLOCK=triton.next_power_of_2(k)
    )
    return tokens


# %% 9.2 | the first place whose sum is above the random number is found by a minimum over places, with the ...
import triton.language as L


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["k"])})
@triton.jit
def sample_kernel(logits, names, uniform, tokens, temperature, k, BLOCK: L.constexpr):
    line = L.program_id(0).to(L.int64)
    place = L.arange(0, BLOCK)
    x = L.load(logits + line * k + place, mask=place < k, other=-float("inf")).to(L.float32)
    power = L.exp((x - L.max(x, axis=0)) / temperature)
    reached = L.cumsum(power / L.sum(power, axis=0), axis=0) > L.load(uniform + line)
    first = L.min(L.where(reached & (place < k), place, k - 1), axis=0)
    L.store(tokens + line, L.load(names + line * k + first))


def sample(values, indices, temperature, uniform):
    rows, k = values.shape
    tokens = indices.new_empty(rows)
    sample_kernel[(rows,)](values, indices, uniform, tokens, float(temperature), k)
    return tokens


# %% 9.3 | no matrix unit: products of a three-dimensional block, summed along its last axis; as many rows of x ...
@triton.jit
def few_rows_kernel(
    x_ptr, weight_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.arange(0, BLOCK_M)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(weight_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        acc += tl.sum(x.to(tl.float32)[:, None, :] * w.to(tl.float32)[None, :, :], axis=2)
    mask = (m < M)[:, None] & (n < N)[None, :]
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)


def few_rows(x, weight):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    sizes = {"BLOCK_M": triton.next_power_of_2(M), "BLOCK_N": 16, "BLOCK_K": 32}
    few_rows_kernel[(triton.cdiv(N, 16),)](x, weight, y, M, N, K, **sizes)
    return y


# %% 9.3 | K is shared out among programs, which leave float32 sums in a buffer; a second kernel adds these up ...
@triton.jit
def part_kernel(
    x_ptr, weight_ptr, parts_ptr, M, N, K, PART, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.arange(0, BLOCK_M)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(1) * PART
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(first, tl.minimum(first + PART, K), BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(weight_ptr + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
    out = (tl.program_id(1).to(tl.int64) * M + m[:, None]) * N + n[None, :]
    tl.store(parts_ptr + out, acc, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def few_rows_kernel(parts_ptr, y_ptr, parts, size, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, parts):
        total += tl.load(parts_ptr + part * size + offs, mask=offs < size, other=0.0)
    tl.store(y_ptr + offs, total.to(y_ptr.dtype.element_ty), mask=offs < size)


def few_rows(x, weight):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    part = 64 * triton.cdiv(K, 64 * 4)
    count = triton.cdiv(K, part)
    parts = torch.empty((count, M, N), dtype=torch.float32, device=x.device)
    part_kernel[(triton.cdiv(N, 32), count)](x, weight, parts, M, N, K, part, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64)
    few_rows_kernel[(triton.cdiv(M * N, 256),)](parts, y, count, M * N, BLOCK=256)
    return y


# %% 9.3 | the transposed product, weight times x turned round, by a fixed number of programs that walk over ...
@triton.autotune(
    [triton.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=1)], key=["N", "K"]
)
@triton.jit
def few_rows_kernel(
    x_ptr, weight_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.arange(0, BLOCK_M)[None, :]
    for tile in range(tl.program_id(0).to(tl.int64), tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
        n = tile * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
        acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            across, down = k[None, :], k[:, None]
            w = tl.load(weight_ptr + n * K + across, mask=(n < N) & (across < K), other=0.0).to(tl.float32)
            x = tl.load(x_ptr + m * K + down, mask=(m < M) & (down < K), other=0.0).to(tl.float32)
            acc = tl.dot(w, x, acc, input_precision="ieee")
        tl.store(y_ptr + m * N + n, acc.to(y_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def few_rows(x, weight):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    few_rows_kernel[lambda meta: (min(8, triton.cdiv(N, meta["BLOCK_N"])),)](x, weight, y, M, N, K)
    return y


# %% 9.4 | lengths and last pages are loaded as blocks, the loop only decides who takes which page, and ...
@triton.jit
def allocate_kernel(
    table_ptr,
    lens_ptr,
    refs_ptr,
    slots_ptr,
    sources_ptr,
    stride_tb,
    B,
    P,
    PAGE,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pages, row = tl.arange(0, BLOCK), tl.arange(0, ROWS)
    refs = tl.load(refs_ptr + pages, mask=pages < P, other=1)
    lens = tl.load(lens_ptr + row, mask=row < B, other=-1)
    runs = lens >= 0
    lens = tl.where(runs, lens, 0)
    place = lens % PAGE
    entry = table_ptr + row * stride_tb + lens // PAGE
    old = tl.load(entry, mask=runs & (place > 0), other=-1)
    page, source = old, tl.full((ROWS,), -1, tl.int32)
    for b in range(B):
        me = row == b
        mine = tl.max(tl.where(me, old, -1), axis=0)
        copies = (mine >= 0) & (tl.sum(tl.where(pages == mine, refs, 0), axis=0) > 1)
        fresh = tl.max(tl.where(me & runs & (place == 0), 1, 0), axis=0) > 0
        takes = copies | fresh
        free = tl.min(tl.where(refs == 0, pages, BLOCK), axis=0)
        refs = tl.where(takes & (pages == free), 1, tl.where(copies & (pages == mine), refs - 1, refs))
        page = tl.where(me & takes, free, page)
        source = tl.where(me & copies, mine, source)
    tl.store(entry, page, mask=runs)
    tl.store(slots_ptr + row, tl.where(runs, page.to(tl.int64) * PAGE + place, -1), mask=row < B)
    tl.store(sources_ptr + row, source, mask=row < B)
    tl.store(refs_ptr + pages, refs, mask=pages < P)


@triton.jit
def copy_page_kernel(k_ptr, v_ptr, slots_ptr, sources_ptr, P, PAGE, SIZE, BLOCK: tl.constexpr):
    b, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)
    source = tl.load(sources_ptr + b).to(tl.int64)
    target = tl.load(slots_ptr + b) // PAGE
    offs = tl.program_id(2).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < SIZE) & (source >= 0)
    k = tl.load(k_ptr + (layer * P + source) * SIZE + offs, mask=mask)
    v = tl.load(v_ptr + (layer * P + source) * SIZE + offs, mask=mask)
    tl.store(k_ptr + (layer * P + target) * SIZE + offs, k, mask=mask)
    tl.store(v_ptr + (layer * P + target) * SIZE + offs, v, mask=mask)


def next_slots(block_table, seq_lens, refs, k_cache, v_cache):
    (layers, P, PAGE), B = k_cache.shape[:3], len(seq_lens)
    slots = torch.empty(B, dtype=torch.int64, device=seq_lens.device)
    sources = torch.empty(B, dtype=torch.int32, device=seq_lens.device)
    constants = {"ROWS": triton.next_power_of_2(B), "BLOCK": triton.next_power_of_2(P), "num_warps": 1}
    stride = block_table.stride(0)
    allocate_kernel[(1,)](block_table, seq_lens, refs, slots, sources, stride, B, P, PAGE, **constants)
    size = k_cache[0, 0].numel()
    grid = lambda meta: (B, layers, triton.cdiv(size, meta["BLOCK"]))
    copy_page_kernel[grid](k_cache, v_cache, slots, sources, P, PAGE, size, BLOCK=1024)
    return slots


# %% 9.4 | branches instead of masks, a helper that gives a page out and returns the counts, and the lowest ...
@triton.jit
def taken(refs, pages):
    """The free page with the lowest number, and the counts with a reference to it."""
    page = tl.argmax((refs == 0).to(tl.int32), axis=0)
    return page, tl.where(pages == page, 1, refs)


@triton.jit
def allocate_kernel(table_ptr, lens_ptr, refs_ptr, slots_ptr, sources_ptr, stride_tb, B, P, PAGE, BLOCK: tl.constexpr):
    pages = tl.arange(0, BLOCK)
    refs = tl.load(refs_ptr + pages, mask=pages < P, other=1)
    for b in range(B):
        length = tl.load(lens_ptr + b)
        if length >= 0:
            place = length % PAGE
            entry_ptr = table_ptr + b * stride_tb + length // PAGE
            page = tl.load(entry_ptr, mask=place > 0, other=-1)
            source = -1
            if (place == 0) | (tl.sum(tl.where(pages == page, refs, 0), axis=0) > 1):
                source = page  # -1 where there was none, and then no count is smaller
                refs = tl.where(pages == page, refs - 1, refs)
                page, refs = taken(refs, pages)
                tl.store(entry_ptr, page)
            tl.store(slots_ptr + b, page.to(tl.int64) * PAGE + place)
            tl.store(sources_ptr + b, source)
        else:
            tl.store(slots_ptr + b, -1)
            tl.store(sources_ptr + b, -1)
    tl.store(refs_ptr + pages, refs, mask=pages < P)


@triton.jit
def copy(cache_ptr, source, target, SIZE, BLOCK: tl.constexpr):
    for start in range(0, SIZE, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        tl.store(cache_ptr + target + offs, tl.load(cache_ptr + source + offs, mask=offs < SIZE), mask=offs < SIZE)


@triton.jit
def copy_page_kernel(k_ptr, v_ptr, slots_ptr, sources_ptr, P, PAGE, SIZE, BLOCK: tl.constexpr):
    source = tl.load(sources_ptr + tl.program_id(0)).to(tl.int64)
    if source >= 0:
        layer = tl.program_id(1).to(tl.int64)
        target = tl.load(slots_ptr + tl.program_id(0)) // PAGE
        copy(k_ptr, (layer * P + source) * SIZE, (layer * P + target) * SIZE, SIZE, BLOCK)
        copy(v_ptr, (layer * P + source) * SIZE, (layer * P + target) * SIZE, SIZE, BLOCK)


def next_slots(block_table, seq_lens, refs, k_cache, v_cache):
    (layers, P, PAGE), B = k_cache.shape[:3], len(seq_lens)
    slots = torch.empty(B, dtype=torch.int64, device=seq_lens.device)
    sources = torch.empty(B, dtype=torch.int32, device=seq_lens.device)
    block = triton.next_power_of_2(P)
    stride = block_table.stride(0)
    allocate_kernel[(1,)](block_table, seq_lens, refs, slots, sources, stride, B, P, PAGE, BLOCK=block, num_warps=1)
    size = k_cache[0, 0].numel()
    copy_page_kernel[(B, layers)](k_cache, v_cache, slots, sources, P, PAGE, size, BLOCK=256)
    return slots


# %% 9.4 | no loop over sequences: no page becomes free during a step, so the j-th sequence that needs a page ...
@triton.jit
def allocate_kernel(
    table_ptr,
    lens_ptr,
    refs_ptr,
    slots_ptr,
    sources_ptr,
    stride_tb,
    B,
    P,
    PAGE,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, pages = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    refs = tl.load(refs_ptr + pages, mask=pages < P, other=1)
    lens = tl.load(lens_ptr + row, mask=row < B, other=-1)
    runs = lens >= 0
    place = tl.where(runs, lens, 0) % PAGE
    entry = table_ptr + row * stride_tb + tl.where(runs, lens, 0) // PAGE
    writes = runs & (place > 0)
    old = tl.load(entry, mask=writes, other=-1)
    holds = writes[:, None] & (old[:, None] == pages[None, :])
    readers = tl.sum(tl.where(holds, refs[None, :], 0), axis=1)
    before = writes[None, :] & (old[None, :] == old[:, None]) & (row[None, :] < row[:, None])
    earlier = tl.sum(before.to(tl.int32), axis=1)
    copies = writes & (readers - earlier > 1)
    takes = copies | (runs & (place == 0))
    turn = tl.cumsum(takes.to(tl.int32), axis=0) - 1
    free = refs == 0
    number = tl.cumsum(free.to(tl.int32), axis=0) - 1
    given = takes[:, None] & free[None, :] & (turn[:, None] == number[None, :])
    page = tl.where(takes, tl.sum(tl.where(given, pages[None, :], 0), axis=1), old)
    lost = tl.sum((holds & copies[:, None]).to(tl.int32), axis=0)
    gained = tl.sum(given.to(tl.int32), axis=0)
    tl.store(entry, page, mask=takes)
    tl.store(slots_ptr + row, tl.where(runs, page.to(tl.int64) * PAGE + place, -1), mask=row < B)
    tl.store(sources_ptr + row, tl.where(copies, old, -1), mask=row < B)
    tl.store(refs_ptr + pages, refs - lost + gained, mask=pages < P)


@triton.jit
def copy_page_kernel(k_ptr, v_ptr, slots_ptr, sources_ptr, P, PAGE, SIZE, BLOCK: tl.constexpr):
    b, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)
    source = tl.load(sources_ptr + b).to(tl.int64)
    target = tl.load(slots_ptr + b) // PAGE
    end = tl.where(source >= 0, SIZE, 0)
    from_ = (layer * P + source) * SIZE
    to = (layer * P + target) * SIZE
    for start in range(0, end, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + from_ + offs, mask=offs < end)
        v = tl.load(v_ptr + from_ + offs, mask=offs < end)
        tl.store(k_ptr + to + offs, k, mask=offs < end)
        tl.store(v_ptr + to + offs, v, mask=offs < end)


def next_slots(block_table, seq_lens, refs, k_cache, v_cache):
    (layers, P, PAGE), B = k_cache.shape[:3], len(seq_lens)
    slots = torch.empty(B, dtype=torch.int64, device=seq_lens.device)
    sources = torch.empty(B, dtype=torch.int32, device=seq_lens.device)
    constants = {"ROWS": triton.next_power_of_2(B), "BLOCK": triton.next_power_of_2(P), "num_warps": 1}
    stride = block_table.stride(0)
    allocate_kernel[(1,)](block_table, seq_lens, refs, slots, sources, stride, B, P, PAGE, **constants)
    copy_page_kernel[(B, layers)](k_cache, v_cache, slots, sources, P, PAGE, k_cache[0, 0].numel(), BLOCK=512)
    return slots


# %% 9.5 | one program a sequence, with branches and single numbers
@triton.jit
def advance_kernel(chosen_ptr, tokens_ptr, positions_ptr, lens_ptr, slots_ptr, table_ptr, stride_tb, PAGE, END):
    b = tl.program_id(0).to(tl.int64)
    chosen = tl.load(chosen_ptr + b)
    goes_on = (tl.load(slots_ptr + b) >= 0) & (chosen != END)
    tl.store(tokens_ptr + b, chosen)
    if goes_on:
        position = tl.load(positions_ptr + b) + 1
        page = tl.load(table_ptr + b * stride_tb + position // PAGE).to(tl.int64)
        tl.store(positions_ptr + b, position)
        tl.store(lens_ptr + b, (position + 1).to(tl.int32))
        tl.store(slots_ptr + b, page * PAGE + position % PAGE)
    else:
        tl.store(lens_ptr + b, 0)
        tl.store(slots_ptr + b, -1)


def advance(chosen, tokens, positions, seq_lens, slots, block_table, page, end):
    stride = block_table.stride(0)
    pointers = chosen, tokens, positions, seq_lens, slots, block_table
    advance_kernel[(len(chosen),)](*pointers, stride_tb=stride, PAGE=page, END=end, num_warps=1)


# %% 9.5 | arithmetic in place of choices: a step of 1 or 0 moves the position, and lengths and slots are ...
import triton.language as L


@triton.jit
def advance_kernel(
    chosen_ptr, tokens_ptr, positions_ptr, lens_ptr, slots_ptr, table_ptr, stride_tb, B, PAGE, END, BLOCK: L.constexpr
):
    b = L.program_id(0) * BLOCK + L.arange(0, BLOCK)
    exists = b < B
    token = L.load(chosen_ptr + b, mask=exists, other=0)
    over = (L.load(slots_ptr + b, mask=exists, other=-1) < 0) | (token == END)
    step = L.where(over, 0, 1).to(L.int64)
    place = L.load(positions_ptr + b, mask=exists, other=0) + step
    row = table_ptr + b.to(L.int64) * stride_tb
    page = L.load(row + place // PAGE, mask=exists & (step > 0), other=0).to(L.int64)
    L.store(tokens_ptr + b, token, mask=exists)
    L.store(positions_ptr + b, place, mask=exists)
    L.store(lens_ptr + b, ((place + 1) * step).to(L.int32), mask=exists)
    L.store(slots_ptr + b, (page * PAGE + place % PAGE + 1) * step - 1, mask=exists)


def advance(chosen, tokens, positions, seq_lens, slots, block_table, page, end):
    B = len(chosen)
    grid = lambda meta: (triton.cdiv(B, meta["BLOCK"]),)
    advance_kernel[grid](
        chosen, tokens, positions, seq_lens, slots, block_table, block_table.stride(0), B, page, end, BLOCK=16
    )
