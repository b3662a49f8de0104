"""Grids and tiles of kernels that multiply matrices."""

import torch

from .gpu import LINE_BYTES, VECTOR_BYTES, Gpu, Launch, cdiv, gpu_of, next_power_of_2, sizes, warps


def matmul_tiles(a: torch.Tensor, rows: int, cols: int, depth: int) -> Launch:
    """As `dot_tiles`, and how many parts to cut each sum into: several where there are few rows.

    Then next to nothing is computed.  What counts is that many bytes of the other operand are under way: as many parts
    as give four programs to each compute unit, but of 256 terms at least.  On NVIDIA one program with four loads under
    way does as much, and leaves fewer parts to add up.
    """
    gpu, ((programs,), meta) = gpu_of(a), dot_tiles(a, rows, cols, depth)
    if rows > (sizes().few_rows_hopper if gpu.arch == "sm_90" else sizes().few_rows):
        return Launch((programs, 1), meta)
    block_n = min(64, max(next_power_of_2(cols), 16))
    programs = cdiv(cols, block_n)
    parts = min(cdiv((1 if gpu.is_nvidia else 4) * gpu.compute_units, programs), cdiv(depth, 256), sizes().max_parts)
    meta |= {"BLOCK_M": max(next_power_of_2(rows), 16), "BLOCK_N": block_n, "num_warps": warps(128, gpu)}
    return Launch((programs, parts), meta | ({"num_stages": 4} if gpu.is_nvidia else {}))


def weight_rows(weight: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel that multiplies a weight (rows, depth) by one vector.

    As many rows a program as leave one program to each compute unit.  AMD: a step of 256 bytes along the rows is 16
    lanes' widest loads, so that a wave adds up its rows in four steps; with fewer than 16 rows x is loaded too often
    (of a SmolLM2 token on gfx942, 13.6 million wave instructions instead of 8.4); 64 rows, where the weight has enough,
    execute 21 % less than 32.  NVIDIA wants all loads of a program under way at once, and more programs.
    """
    gpu, (rows, depth) = gpu_of(weight), weight.shape
    most = sizes().weight_rows
    candidates = [n for n in ((32, 16, 8, 4) if gpu.is_nvidia else (most, 32, 16)) if n <= most]
    block_n = next((n for n in candidates if cdiv(rows, n) >= gpu.compute_units), candidates[-1])
    block_k = 1024 if gpu.is_nvidia else 2 * LINE_BYTES // weight.itemsize
    block_k = min(block_k, next_power_of_2(depth))
    threads = block_n * block_k * weight.itemsize // (2 * VECTOR_BYTES)
    meta = {"BLOCK_N": block_n, "BLOCK_K": block_k, "num_warps": warps(min(threads, 256), gpu)}
    return Launch((cdiv(rows, block_n),), meta)


def sum_of_parts(c: torch.Tensor, parts: int) -> Launch:
    """Grid and parameters of a kernel that adds up so many matrices shaped like c, BLOCK_N elements at a time."""
    block_m = next_power_of_2(parts)
    threads = min(block_m * 128 * 4 // VECTOR_BYTES, 256)  # parts are in float32
    meta = {"BLOCK_M": block_m, "BLOCK_N": 128, "num_warps": warps(threads, gpu_of(c))}
    return Launch((cdiv(c.numel(), 128),), meta)


def dot_tiles(x: torch.Tensor, rows: int, cols: int, depth: int, batch: int = 1) -> Launch:
    """Grid and parameters of a kernel in which a program multiplies a tile of (rows, depth) by one of (depth, cols).

    The largest tile of which there is one for each compute unit: its operands are loaded least often.  `batch` is how
    many such products there are.
    """
    gpu = gpu_of(x)
    high, wide = (max(next_power_of_2(size), 16) for size in (rows, cols))  # every GPU multiplies 16 x 16
    candidates = sizes().dot_tiles or _dot_candidates(x.dtype, gpu)
    tiles = [(min(m, high), min(n, wide), threads) for m, n, threads in candidates]
    counts = [batch * cdiv(rows, m) * cdiv(cols, n) for m, n, _ in tiles]
    programs, (block_m, block_n, threads) = next(
        (pair for pair in zip(counts, tiles) if pair[0] >= gpu.compute_units), (counts[-1], tiles[-1])
    )
    stages = 2 if gpu.is_amd else 3 if block_m * block_n > 64 * 64 else 4
    meta = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": min(sizes().dot_bytes // x.itemsize, max(next_power_of_2(depth), 16)),
        "GROUP_M": 8,
        "XCDS": gpu.dies,
        "num_warps": warps(min(threads, block_m * block_n // 16), gpu),
        "num_stages": stages,
    }
    return Launch((programs,), meta)


def conv_tiles(x: torch.Tensor, pixels: int, filters: int, channels: int, taps: int) -> Launch:
    """As `dot_tiles`, of a sum over taps and channels.

    NVIDIA: a sum of a single step overlaps with nothing in its program, so that more programs must: 64 channels by 256
    filters of one tap took 49 us on an H100 with 64 filters a program, 67 us with 128.
    """
    grid, meta = dot_tiles(x, pixels, filters, channels)
    if gpu_of(x).is_nvidia and taps * channels <= meta["BLOCK_K"] and meta["BLOCK_N"] > 64:
        meta["BLOCK_N"] = 64
        grid = (cdiv(pixels, meta["BLOCK_M"]) * cdiv(filters, 64),)
    return Launch(grid, meta)


def _dot_candidates(dtype: torch.dtype, gpu: Gpu) -> tuple[tuple[int, int, int], ...]:
    """BLOCK_M, BLOCK_N and threads, the largest tile first; more sums a thread than these take would spill."""
    small, medium = ((64, 64, 128), (32, 32, 64)), (128, 128, 256)
    if dtype == torch.float32:  # only Instinct multiplies it in matrix units: elsewhere operands take registers as well
        return (medium, *small) if gpu.is_cdna else small
    if gpu.is_cdna:
        return (256, 128, 512), medium, *small
    if gpu.arch == "sm_90":  # a group of 128 threads issues whole products: two such programs hide each other's waiting
        medium = 128, 128, 128
    return medium, *small


def dot_precision(x: torch.Tensor, allow_tf32: bool) -> str:
    """`input_precision` of a dot: full float32, or TF32 if that is allowed and the matrix units know it."""
    gpu = gpu_of(x)
    return "tf32" if allow_tf32 and (gpu.arch == "gfx942" or gpu.is_nvidia) else "ieee"


def latents(q: torch.Tensor, latent: int, rope_dim: int, rows: int, kv_heads: int) -> Launch:
    """Grid and parameters of a kernel with three kinds of programs: products, turned queries, rows of the cache.

    q: (B, heads, depth), of which each head is multiplied by (depth, latent). The products decide how many threads a
    program has; each thread turns a whole vector of both halves of heads, or copies one of a row.
    """
    gpu, (tokens, heads, depth) = gpu_of(q), q.shape
    (tiles,), dot = dot_tiles(q, tokens, latent, depth, heads)
    lanes = dot["num_warps"] * gpu.wave * VECTOR_BYTES // q.itemsize
    rope_block = next_power_of_2(rope_dim)
    block_h = min(next_power_of_2(heads), max(2 * lanes // rope_block, 1))
    block_t = max(2 * lanes // (block_h * rope_block), 1)
    block_r = next(r for r in (16, 8, 4, 2, 1) if cdiv(rows, r) * kv_heads >= gpu.compute_units or r == 1)
    meta = {name: dot[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")}
    meta |= {"BLOCK_T": block_t, "BLOCK_H": block_h, "BLOCK_R": block_r}
    meta["BLOCK_D"] = max(min(lanes // block_r, next_power_of_2(latent)), 16)
    return Launch((tiles + cdiv(tokens, block_t) * cdiv(heads, block_h) + cdiv(rows, block_r) * kv_heads,), meta)
