"""Grids and blocks of kernels that are bound by memory: elements, rows, groups of rows, heads.

Such a kernel runs well when every thread moves whole 16-byte vectors and has enough of them under way, when a program
has few enough threads that several programs fit beside each other and hide each other's waiting, and when there are
several programs for each compute unit.  Each function here turns the shape of x into a grid and `BLOCK_M`, `BLOCK_N`,
`num_warps` by those rules.
"""

import torch

from .gpu import LINE_BYTES, VECTOR_BYTES, Gpu, Launch, cdiv, gpu_of, next_power_of_2, sizes, warps


def few_rows(x: torch.Tensor) -> bool:
    """No more rows than compute units: each has one to itself, so what counts is how soon it is done."""
    return x.shape[0] <= gpu_of(x).compute_units


def holds_row(x: torch.Tensor) -> bool:
    """Whether a kernel that reduces each row twice holds it whole: on NVIDIA not if a third of the lanes would idle."""
    walks = _leaves_lanes_idle(x.shape[1]) and gpu_of(x).is_nvidia and not few_rows(x)
    return x.shape[1] <= sizes().max_row and not walks


def holds_wide_row(x: torch.Tensor) -> bool:
    """Whether a kernel that reduces each row once holds it whole.

    On NVIDIA two walks over the widest rows are as fast as one, if there are many. On AMD they execute twice as much:
    of RMSNorm, 16 x 8192, 42,112 wave instructions on gfx942 instead of 23,328, and 93,184 on gfx1100 instead of 49,664
    (`python -m benchmarks.machine_code.entries`).
    """
    return x.shape[1] < sizes().max_row + (few_rows(x) or gpu_of(x).is_amd)


def _leaves_lanes_idle(cols: int) -> bool:
    return sizes().max_row // 2 < cols < next_power_of_2(cols) * 2 // 3


def longest_held(x: torch.Tensor) -> int:
    """The longest row that a forward kernel without weights holds whole; NVIDIA's programs share more registers."""
    return 4 * sizes().max_row if gpu_of(x).is_nvidia else sizes().max_row


def elementwise(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel without rows: BLOCK elements a program."""
    tile = sizes().tile
    meta = {"BLOCK": tile, "num_warps": warps(tile * 2 // VECTOR_BYTES, gpu_of(x))}
    return Launch((cdiv(x.numel(), tile),), meta)


def tiles(y: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel that computes each element of y by itself, in tiles of BLOCK_M by BLOCK_N.

    The programs are numbered row by row of tiles: one axis, because the others end at 65535 on NVIDIA.  On AMD twice
    the tile by 4 waves: of SwiGLU, 64 x 8192, 121,344 wave instructions on gfx942 and 283,136 on gfx1100, with half the
    tile 147,456 and 357,888, with twice as much 119,424 and 294,016 (`python -m benchmarks.machine_code.entries`).
    """
    (rows, cols), gpu, tile, elements = y.shape, gpu_of(y), sizes().tile, VECTOR_BYTES // 2
    if gpu.is_amd and rows * cols >= 4 * tile * gpu.compute_units:
        tile, elements = 2 * tile, 2 * tile // (4 * gpu.wave)  # 4 waves, for which a tile's place is computed
    while gpu.is_nvidia and tile > sizes().smallest_tile and rows * cols < 2 * tile * gpu.compute_units:
        tile, elements = tile // 2, 4  # what counts is how soon a program is done, not how wide its loads are
    widths = [1 << i for i in range(6, tile.bit_length())]  # 64 neighbours or more: whole cache lines
    block_n = min(widths, key=lambda width: (cdiv(cols, width) * width, -width))  # the fewest idle lanes
    block_n = min(block_n, next_power_of_2(cols))
    block_m = min(tile // block_n, next_power_of_2(rows))
    num_warps = warps(max(block_m * block_n // elements, min(block_m * block_n // 2, 128)), gpu)
    grid = (cdiv(rows, block_m) * cdiv(cols, block_n),)
    return Launch(grid, {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": num_warps})


def whole_rows(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel that holds BLOCK_M whole rows of x, each in BLOCK_N >= cols lanes.

    AMD's waves have registers for twice as many elements, and half as many waves execute fewer instructions: of
    RMSNorm, 64 x 4096, 44,288 on gfx942 and 99,200 on gfx1100 with 64 elements a thread, 51,968 and 109,824 with 32
    (`python -m benchmarks.machine_code.entries`).
    """
    return _whole_rows(x, sizes().tile, (2 if gpu_of(x).is_amd else 1) * sizes().elements_per_thread)


def _whole_rows(x: torch.Tensor, tile: int, elements: int) -> Launch:
    rows, cols = x.shape
    block_n = next_power_of_2(cols)
    block_m = _rows_together(rows, block_n, tile)
    vectors = block_n * x.itemsize // VECTOR_BYTES  # with more threads than that, each would load less than a vector
    threads = block_m * block_n // elements
    if few_rows(x):
        threads = max(2 * threads, 128)
    threads = min(threads, vectors)
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps(threads, gpu_of(x))}
    return Launch((cdiv(rows, block_m),), meta)


def _rows_together(rows: int, block_n: int, tile: int, groups: int = 1) -> int:
    """How many short rows, or groups of rows, a program takes."""
    block_m = 1
    while block_m * block_n < tile and rows // (2 * block_m) * groups >= sizes().programs:
        block_m *= 2
    return block_m


def row_groups(x: torch.Tensor, group_size: int) -> Launch:
    """Grid and parameters of a kernel that cuts the rows into groups and holds the same group of BLOCK_M rows."""
    rows, cols = x.shape
    groups = cdiv(cols, group_size)
    block_n = next_power_of_2(min(group_size, cols))
    full = gpu_of(x).wave * VECTOR_BYTES // x.itemsize // block_n  # rows with a whole vector for each thread of a wave
    block_m = max(_rows_together(rows, block_n, sizes().tile, groups), min(full, next_power_of_2(rows)))
    threads = 2 * block_m * block_n // sizes().elements_per_thread  # twice as many: a gated activation has two inputs
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps(threads, gpu_of(x))}
    return Launch((cdiv(rows, block_m) * groups,), meta)


def chunks(x: torch.Tensor, k: int) -> Launch:
    """Grid and parameters of a kernel that cuts the rows into chunks and chooses k of each, in BLOCK_K lanes.

    BLOCK_K is 0 where it takes k rounds of a maximum. AMD: the 50 largest of 4 rows of 4096 take 72,200 wave
    instructions on gfx942 and 141,232 on gfx1100, by rounds 170,432 and 287,892; the 8 largest of 16 rows of 576
    37,883 and 75,918, by rounds 25,883 and 48,334. NVIDIA sorts small chunks sooner: the 50 largest of 64 rows of
    128,256 took 133 us on an H100 with chunks of 256 by one warp, 245 us with chunks of 2048; of one row 17 and 43 us.
    """
    block_k = 0 if k <= sizes().max_rounds else next_power_of_2(k)
    small = block_k and gpu_of(x).is_nvidia
    grid, meta = row_groups(x, max(sizes().smallest_tile, 2 * block_k) if small else sizes().tile)
    return Launch(grid, meta | {"BLOCK_K": block_k})


def resident_rows(x: torch.Tensor) -> Launch:
    """As `whole_rows`, but with no more programs than run at a time: each takes one tile after another."""
    (tiles,), meta = _whole_rows(x, sizes().tile // 2, sizes().elements_per_thread)
    return Launch((min(tiles, _resident(meta["num_warps"], gpu_of(x), sizes().resident_threads)),), meta)


def _resident(num_warps: int, gpu: Gpu, threads: int) -> int:
    """How many programs of this size the whole GPU runs at a time, with `threads` on each compute unit."""
    return gpu.compute_units * max(threads // (num_warps * gpu.wave), 1)


def long_rows(x: torch.Tensor, streams: int = 1, vectors: int = 1) -> Launch:
    """Grid and parameters of a kernel in which a program walks along one row of x, BLOCK_N elements at a time, twice.

    `streams` is how many tensors it reads: with two, larger blocks keep fewer rows under way, and those in the cache.
    `vectors` is how many 16-byte vectors of a 2-byte type a thread takes: more where threads have more to exchange.
    """
    gpu = gpu_of(x)
    row = next_power_of_2(x.shape[1])
    tile = sizes().tile
    largest = 4 * tile * streams if gpu.wave == 32 else 4 * tile  # 16 waves of 64 have 128 registers a thread
    block_n = min(max(row // 4, min(2 * tile * streams, row // 2)), largest)
    if x.shape[1] <= sizes().max_row and _leaves_lanes_idle(x.shape[1]):
        block_n = tile // 2
    return Launch((x.shape[0],), {"BLOCK_N": block_n, "num_warps": warps(block_n // (8 * vectors), gpu)})


def long_sums(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel in which a program walks along one row of x, once, and keeps sums only."""
    tile = sizes().tile
    return Launch((x.shape[0],), {"BLOCK_N": tile, "num_warps": warps(tile // 8, gpu_of(x))})


def column_blocks(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel in which a program walks down BLOCK_N columns of x, taking every n-th row."""
    rows, cols = x.shape
    gpu = gpu_of(x)
    block_n = sizes().tile // 2
    blocks = cdiv(cols, block_n)
    meta = {"BLOCK_N": block_n, "num_warps": warps(128, gpu)}
    return Launch((blocks, min(rows, cdiv(_resident(meta["num_warps"], gpu, sizes().max_threads), blocks))), meta)


def column_sums(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel that sums BLOCK_N columns of x, BLOCK_M rows at a time."""
    rows, cols = x.shape
    block_m, threads = min(next_power_of_2(rows), 512), 256
    block_n = 4 * sizes().tile // block_m
    if gpu_of(x).is_nvidia and block_n > 32:  # few rows: 1.64 us instead of 3.13 on an H100 (64 rows of 576)
        block_n, threads = 32, max(block_m * 32 // 16, 64)
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps(threads, gpu_of(x))}
    return Launch((cdiv(cols, block_n),), meta)


def ranked_chunks(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel that compares all pairs of BLOCK elements of a row: 64 pairs a thread."""
    rows, cols = x.shape
    return Launch((rows * cdiv(cols, 128),), {"BLOCK": 128, "num_warps": warps(256, gpu_of(x))})


def merged_chunks(x: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel that looks each of BLOCK elements of a row up in the rest of the row."""
    rows, cols = x.shape
    tile = sizes().tile
    return Launch((rows * cdiv(cols, tile),), {"BLOCK": tile, "num_warps": warps(256, gpu_of(x))})


def head_tiles(seq_len: int, heads: int, head_dim: int, x: torch.Tensor, batch: int = 1, loads: int = 2) -> Launch:
    """Blocks of tokens and of heads, and parameters, of a kernel that holds BLOCK_H whole heads of BLOCK_T tokens.

    Heads come first, since those of one token share what is loaded for it; tokens are added while programs are many.
    A head comes in so many `loads`: two halves where they are pairs. Each thread has a whole vector of each.
    """
    gpu, block_d = gpu_of(x), next_power_of_2(head_dim)
    tile = 4 * sizes().tile if gpu.is_nvidia else sizes().tile  # its programs hide less of each other's waiting
    if batch * seq_len * heads * block_d < tile * sizes().programs:
        tile = sizes().tile
    block_h = min(next_power_of_2(heads), max(tile // block_d, 1))
    block_t = _rows_together(seq_len, block_h * block_d, tile, batch * cdiv(heads, block_h))
    num_warps = warps(block_t * block_h * block_d * x.itemsize // (loads * VECTOR_BYTES), gpu)
    meta = {"BLOCK_T": block_t, "BLOCK_H": block_h, "num_warps": num_warps}
    return Launch((cdiv(seq_len, block_t), cdiv(heads, block_h)), meta)


def head_groups(seq_len: int, heads: tuple[int, ...], head_dim: int, x: torch.Tensor, batch: int = 1) -> Launch:
    """As `head_tiles`, where the heads are of several kinds, so many of each, and a program has one kind only.

    As many heads together as leave at most a quarter of the lanes without one, while every compute unit has a program.
    """
    gpu, block_d = gpu_of(x), next_power_of_2(head_dim)
    for block_h in reversed([1 << i for i in range(max(sizes().tile // block_d, 1).bit_length())]):
        blocks = sum(cdiv(kind, block_h) for kind in heads)
        if 3 * blocks * block_h <= 4 * sum(heads) and batch * seq_len * blocks >= gpu.compute_units:
            break
    block_t = _rows_together(seq_len, block_h * block_d, sizes().tile, batch * blocks)
    threads = block_t * block_h * block_d * x.itemsize // (2 * VECTOR_BYTES)  # two loads, as in `head_tiles`
    meta = {"BLOCK_T": block_t, "BLOCK_H": block_h, "num_warps": warps(threads, gpu)}
    return Launch((cdiv(seq_len, block_t), blocks), meta)


def copied_heads(meta: dict[str, int], x: torch.Tensor) -> int:
    """How many elements of each head of a tile are copied at a time: a vector for each thread, or a line of the cache.

    For heads, or parts of heads, that are wider than those the tile was made for.
    """
    threads = meta["num_warps"] * gpu_of(x).wave
    heads = meta["BLOCK_T"] * meta["BLOCK_H"]
    return max(threads * VECTOR_BYTES // x.itemsize // heads, LINE_BYTES // x.itemsize)
