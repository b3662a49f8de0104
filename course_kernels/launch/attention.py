"""Grids and tiles of attention: over whole sequences, and over a paged cache."""

import torch

from .gpu import Gpu, Launch, cdiv, gpu_of, next_power_of_2, sizes, warps


def attention_tiles(q: torch.Tensor) -> Launch:
    """Grid and parameters of a kernel in which a program takes BLOCK_M queries of one head. q: (B, H, Sq, D).

    A tile of queries, its output and its sums stay in registers: the wider the head, the fewer keys at a time.  Of
    heads wider than BLOCK_D a program computes one slice, and loads the others again and again.
    """
    grid, meta = _tiles(q, *(sizes().attention_tile or _forward_tile(q, _head_block(q), gpu_of(q))))
    rows_of_wave = meta["BLOCK_M"] // meta["num_warps"]
    if gpu_of(q).rdna == 3 and q.dtype != torch.float32 and meta["BLOCK_D"] > 64:
        meta["waves_per_eu"] = 2  # the compiler spills unless it is asked for so many
    if gpu_of(q).is_cdna and q.dtype != torch.float32 and min(rows_of_wave, meta["BLOCK_N"], meta["BLOCK_D"]) >= 32:
        meta["matrix_instr_nonkdim"] = 32  # half as many instructions for as many products
    return Launch(grid, meta)


def attention_backward_tiles(x: torch.Tensor) -> Launch:
    """As `attention_tiles`, for its gradients: twice as many tiles in registers. x: queries, or keys, (B, H, S, D)."""
    return _tiles(x, *(sizes().attention_tile or _backward_tile(x.dtype, _head_block(x), gpu_of(x))))


def _tiles(x: torch.Tensor, block_m: int, block_n: int, widest: int, threads: int) -> Launch:
    gpu, (batch, heads, rows, head_dim) = gpu_of(x), x.shape
    block_d = min(widest, _head_block(x))
    few = min(block_m, max(next_power_of_2(rows), 16))  # every GPU multiplies 16 x 16
    threads, block_m = min(threads, 2 * threads * few // block_m), few  # keys are loaded by all, however few the rows
    meta = {
        "BLOCK_M": block_m,
        "BLOCK_N": min(block_n, max(next_power_of_2(rows), 64)),  # a short prompt has few keys, too
        "BLOCK_D": block_d,
        "HEADS_AT_A_TIME": gpu.dies,  # one for each, beside its own cache
        "num_warps": warps(threads, gpu),
        # AMD: of two products in a row no loads are pipelined. Elsewhere, as many as two programs' shared memory takes
        "num_stages": 1 if gpu.is_amd else 2 if block_d > 64 else 3,
    }
    if gpu.is_cdna:  # two waves a SIMD: one multiplies while the other takes exponentials
        meta |= {"waves_per_eu": 2, "matrix_instr_nonkdim": 16}
    return Launch((cdiv(rows, block_m) * batch * heads, cdiv(head_dim, block_d)), meta)


def _head_block(x: torch.Tensor) -> int:
    return max(next_power_of_2(x.shape[-1]), 16)


def paged_decode(q: torch.Tensor, kv_heads: int, tokens: int) -> Launch:
    """Grid and parameters of a kernel in which a program takes BLOCK_H heads that share keys, and a part of these.

    q: (B, QH, D).  As many parts as fill the GPU, but of 256 keys at least where sequences have the given length.
    """
    gpu, (batch, heads, _) = gpu_of(q), q.shape
    block_d = _head_block(q)
    group = heads // kv_heads
    # operands take more of a Radeon's registers
    block_h = min(max(next_power_of_2(group), 16), 16 if gpu.rdna else 64)  # every GPU multiplies 16 x 16
    block_n = 32 if q.dtype == torch.float32 or block_d > 128 else 64
    block_n = min(block_n // 2 if gpu.rdna else block_n, sizes().keys_at_a_time)
    programs = batch * kv_heads * cdiv(group, block_h)
    parts = cdiv(tokens, sizes().keys_of_a_part)
    splits = min(cdiv(4 * gpu.compute_units, programs), parts, sizes().max_splits)
    meta = {
        "BLOCK_H": block_h,
        "BLOCK_N": block_n,
        "BLOCK_D": block_d,
        "num_warps": warps(256 if gpu.wave == 64 else 128, gpu),
        "num_stages": 1 if gpu.is_amd else 2,
    }
    return Launch((programs, splits), meta)


def _forward_tile(q: torch.Tensor, block_d: int, gpu: Gpu) -> tuple[int, int, int, int]:
    """Queries, keys, elements of a head and threads: the largest tile that does not spill, found by compiling.

    Heads are cut where no tile with a whole one fits: in float32 on Radeon, which has no matrix units for it, so that
    operands take registers as well; and on gfx11, whose matrix units hold operands twice.

    On Instinct a wave takes 32 queries, in matrix instructions of 32 rows, and as many keys at a time as its registers
    hold: both leave fewer instructions for each product.  Of 1024 tokens with heads of 64 it executes 12 % fewer on
    gfx942 and 20 % on gfx950 than with matrix instructions of 16 rows and 64 keys at a time
    (`python -m benchmarks.machine_code`).  On gfx11 a wave of 32 lanes takes 16 queries: with 32, keys and values would
    come out of LDS half as often, but it spills.  Of wide heads 4 such waves store two keys' values at a time to LDS,
    so that they come out by vectors: 377,568 wave instructions for 512 tokens with heads of 128; 8 waves 543,904.
    """
    if q.dtype == torch.float32:
        if gpu.is_cdna:
            if block_d > 128:
                return 32, 16, block_d, 512  # 64 queries would spill on gfx942
            return 64, 32, block_d, 256 if block_d <= 64 else 512
        return 32 if block_d <= 64 else 16, 16, min(block_d, 128), 256
    if gpu.is_cdna:
        if block_d > 128:
            return 64, 32, block_d, 256
        keys = 64 if block_d <= 64 else 32
        return 128, 2 * keys if gpu.arch == "gfx950" else keys, block_d, 256
    if gpu.rdna == 3:
        if block_d <= 64:
            return 128, 64, block_d, 256
        if q.shape[-1] % 16:  # loaded by elements, which takes registers for their masks
            return 128, 16, 64, 256
        return (64, 16, 128, 128) if block_d == 128 else (128, 16, 128, 256)
    if gpu.is_amd:
        return (128, 64, block_d, 256) if block_d <= 128 else (64, 32, block_d, 256)
    if gpu.arch == "sm_90" and block_d == 64:  # a second group of threads: 1.28 ms instead of 1.36, not causal
        return 128, 64, block_d, 256
    return 128, 64, block_d, 128 if block_d <= 128 else 256


def _backward_tile(dtype: torch.dtype, block_d: int, gpu: Gpu) -> tuple[int, int, int, int]:
    """Rows that stay, rows that pass by, elements of a head and threads, found in the same way.

    With 128 rows that stay instead of 64 the gradients of 256 tokens with a head of 64 take 62,288 wave instructions on
    gfx942 instead of 85,056, 59,488 on gfx90a instead of 81,920, and 139,200 on gfx1201 instead of 263,968
    (`python -m benchmarks.machine_code.entries`).
    """
    if dtype == torch.float32:
        if gpu.is_cdna:
            return (64, 32, block_d, 256) if block_d <= 64 else (64, 16, 128, 512)
        return 16, 16, min(block_d, 64), 256
    if gpu.rdna == 3:
        return 64, 16, min(block_d, 64), 256
    if gpu.arch == "sm_90" and block_d <= 128:  # one group of 128 threads, which issues whole products
        return 64, 64 if block_d == 128 else 32, block_d, 128
    if block_d <= 64:
        return 128 if gpu.is_amd else 64, 32, block_d, 256
    if gpu.is_cdna:
        return 64, 32, 128, 256
    if gpu.rdna == 4:
        return 64, 16, 128, 512
    return (64, 32, block_d, 256) if block_d <= 128 else (64, 16, block_d, 512)
