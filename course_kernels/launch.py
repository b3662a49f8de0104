"""Block sizes and warps: the one home of launch parameters.

A memory-bound kernel runs well when every thread moves whole 16-byte vectors and has enough of them under way, when a
program has few enough threads that several programs fit beside each other and hide each other's waiting, and when there
are several programs for each compute unit.  Each function here turns the shape of x into a grid and `BLOCK_M`,
`BLOCK_N`, `num_warps` by those rules.

What a warp is depends on the machine: 64 threads on AMD's Instinct (gfx9), 32 on Radeon and NVIDIA.  A workgroup has at
most 1024 threads, so at most 16 or 32 warps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

VECTOR_BYTES = 16  # the widest load of one thread: global_load_dwordx4, buffer_load_b128, ld.global.v4
MAX_THREADS = 1024  # of a workgroup
ELEMENTS_PER_THREAD = 32  # of a tile held in registers; leaves room for the four other tiles of a backward pass
TILE = 2048  # elements of a program that packs several short rows
SMALLEST_TILE = 256  # elements of a program where there is too little work for all compute units
MAX_ROW = 8192  # a longer row is walked block by block: held whole, it would spill or run alone on its compute unit
PROGRAMS = 1024  # short rows are packed only while the grid keeps at least so many programs
MAX_ROUNDS = 64  # of a maximum over a row, one for each of the k largest: for a larger k the row is sorted
DOT_BYTES = 128  # of a row of a matrix unit's operand at a time: a whole cache line
LINE_BYTES = 128  # of a cache line
FEW_ROWS = 16  # of a product: a decoder's step; from there on every GPU has a matrix instruction
FEW_ROWS_HOPPER = 64  # there as many as one instruction multiplies
MAX_PARTS = 32  # of a sum that several programs share: a second kernel holds them all
RESIDENT_THREADS = 256  # of a compute unit, when programs loop over tiles: more only make more partial sums


@dataclass(frozen=True)
class Gpu:
    """What launch parameters depend on."""

    arch: str  # "gfx942", "sm_90"
    compute_units: int

    @property
    def wave(self) -> int:
        """Threads in a warp (AMD: wave)."""
        return 64 if self.arch.startswith("gfx9") else 32

    @property
    def is_amd(self) -> bool:
        """An AMD GPU: their names begin with gfx."""
        return self.arch.startswith("gfx")

    @property
    def is_nvidia(self) -> bool:
        """An NVIDIA GPU: their names begin with sm_."""
        return self.arch.startswith("sm_")


def gpu_of(tensor: torch.Tensor) -> Gpu:
    """The GPU that holds the tensor; a tensor on the CPU is launched as on the GPU that it stands for."""
    return _gpu(tensor.device.index) if tensor.is_cuda else simulated_gpu() or MI300X


MI300X = Gpu("gfx942", 304)  # what the interpreter runs is what this GPU would run


def _no_simulator() -> Gpu | None:
    return None


simulated_gpu: Callable[[], Gpu | None] = _no_simulator  # the GPU that a simulator executes; `backend` connects one


_gpus: dict[int, Gpu] = {}  # by index; torch.compile reads a dict, but runs through what functools.cache has wrapped


def _gpu(index: int) -> Gpu:
    if index not in _gpus:
        properties = torch.cuda.get_device_properties(index)
        name = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
        arch = name.split(":")[0] or f"sm_{properties.major}{properties.minor}"
        _gpus[index] = Gpu(arch, properties.multi_processor_count)
    return _gpus[index]


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


def few_rows(x: torch.Tensor) -> bool:
    """No more rows than compute units: each has one to itself, so what counts is how soon it is done."""
    return x.shape[0] <= gpu_of(x).compute_units


def holds_row(x: torch.Tensor) -> bool:
    """Whether a kernel that reduces each row twice holds it whole: on NVIDIA not if a third of the lanes would idle."""
    walks = _leaves_lanes_idle(x.shape[1]) and gpu_of(x).is_nvidia and not few_rows(x)
    return x.shape[1] <= MAX_ROW and not walks


def _leaves_lanes_idle(cols: int) -> bool:
    return MAX_ROW // 2 < cols < _next_power_of_2(cols) * 2 // 3


def longest_held(x: torch.Tensor) -> int:
    """The longest row that a forward kernel without weights holds whole; NVIDIA's programs share more registers."""
    return 4 * MAX_ROW if gpu_of(x).is_nvidia else MAX_ROW


def _warps(threads: int, gpu: Gpu) -> int:
    return min(max(threads, gpu.wave), MAX_THREADS) // gpu.wave


def elementwise(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel without rows: BLOCK elements a program."""
    return (_cdiv(x.numel(), TILE),), {"BLOCK": TILE, "num_warps": _warps(TILE * 2 // VECTOR_BYTES, gpu_of(x))}


def tiles(y: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that computes each element of y by itself, in tiles of BLOCK_M by BLOCK_N.

    The programs are numbered row by row of tiles: one axis, because the others end at 65535 on NVIDIA.
    """
    (rows, cols), gpu, tile, elements = y.shape, gpu_of(y), TILE, VECTOR_BYTES // 2
    while gpu.is_nvidia and tile > SMALLEST_TILE and rows * cols < 2 * tile * gpu.compute_units:
        tile, elements = tile // 2, 4  # what counts is how soon a program is done, not how wide its loads are
    widths = [1 << i for i in range(6, tile.bit_length())]  # 64 neighbours or more: whole cache lines
    block_n = min(widths, key=lambda width: (_cdiv(cols, width) * width, -width))  # the fewest idle lanes
    block_n = min(block_n, _next_power_of_2(cols))
    block_m = min(tile // block_n, _next_power_of_2(rows))
    num_warps = _warps(max(block_m * block_n // elements, min(block_m * block_n // 2, 128)), gpu)
    grid = (_cdiv(rows, block_m) * _cdiv(cols, block_n),)
    return grid, {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": num_warps}


def whole_rows(x: torch.Tensor, tile: int = TILE) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that holds BLOCK_M whole rows of x, each in BLOCK_N >= cols lanes."""
    rows, cols = x.shape
    block_n = _next_power_of_2(cols)
    block_m = _rows_together(rows, block_n, tile)
    vectors = block_n * x.itemsize // VECTOR_BYTES  # with more threads than that, each would load less than a vector
    threads = block_m * block_n // ELEMENTS_PER_THREAD
    if few_rows(x):
        threads = max(2 * threads, 128)
    threads = min(threads, vectors)
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": _warps(threads, gpu_of(x))}
    return (_cdiv(rows, block_m),), meta


def head_tiles(
    seq_len: int, heads: int, head_dim: int, x: torch.Tensor, batch: int = 1, loads: int = 2
) -> tuple[tuple[int, int], dict[str, int]]:
    """Blocks of tokens and of heads, and parameters, of a kernel that holds BLOCK_H whole heads of BLOCK_T tokens.

    Heads come first, since those of one token share what is loaded for it; tokens are added while programs are many.
    A head comes in so many `loads`: two halves where they are pairs. Each thread has a whole vector of each.
    """
    gpu, block_d = gpu_of(x), _next_power_of_2(head_dim)
    tile = 4 * TILE if gpu.is_nvidia else TILE  # its programs hide less of each other's waiting
    if batch * seq_len * heads * block_d < tile * PROGRAMS:
        tile = TILE
    block_h = min(_next_power_of_2(heads), max(tile // block_d, 1))
    block_t = _rows_together(seq_len, block_h * block_d, tile, batch * _cdiv(heads, block_h))
    num_warps = _warps(block_t * block_h * block_d * x.itemsize // (loads * VECTOR_BYTES), gpu)
    return (_cdiv(seq_len, block_t), _cdiv(heads, block_h)), {
        "BLOCK_T": block_t,
        "BLOCK_H": block_h,
        "num_warps": num_warps,
    }


def head_groups(
    seq_len: int, heads: tuple[int, ...], head_dim: int, x: torch.Tensor, batch: int = 1
) -> tuple[tuple[int, int], dict[str, int]]:
    """As `head_tiles`, where the heads are of several kinds, so many of each, and a program has one kind only.

    As many heads together as leave at most a quarter of the lanes without one, while every compute unit has a program.
    """
    gpu, block_d = gpu_of(x), _next_power_of_2(head_dim)
    for block_h in reversed([1 << i for i in range(max(TILE // block_d, 1).bit_length())]):
        blocks = sum(_cdiv(kind, block_h) for kind in heads)
        if 3 * blocks * block_h <= 4 * sum(heads) and batch * seq_len * blocks >= gpu.compute_units:
            break
    block_t = _rows_together(seq_len, block_h * block_d, TILE, batch * blocks)
    threads = block_t * block_h * block_d * x.itemsize // (2 * VECTOR_BYTES)  # two loads, as in `head_tiles`
    return (_cdiv(seq_len, block_t), blocks), {
        "BLOCK_T": block_t,
        "BLOCK_H": block_h,
        "num_warps": _warps(threads, gpu),
    }


def copied_heads(meta: dict[str, int], x: torch.Tensor) -> int:
    """How many elements of each head of a tile are copied at a time: a vector for each thread, or a line of the cache.

    For heads, or parts of heads, that are wider than those the tile was made for.
    """
    threads = meta["num_warps"] * gpu_of(x).wave
    heads = meta["BLOCK_T"] * meta["BLOCK_H"]
    return max(threads * VECTOR_BYTES // x.itemsize // heads, LINE_BYTES // x.itemsize)


def row_groups(x: torch.Tensor, group_size: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that cuts the rows into groups and holds the same group of BLOCK_M rows."""
    rows, cols = x.shape
    groups = _cdiv(cols, group_size)
    block_n = _next_power_of_2(min(group_size, cols))
    full = gpu_of(x).wave * VECTOR_BYTES // x.itemsize // block_n  # rows with a whole vector for each thread of a wave
    block_m = max(_rows_together(rows, block_n, TILE, groups), min(full, _next_power_of_2(rows)))
    threads = 2 * block_m * block_n // ELEMENTS_PER_THREAD  # twice as many: a gated activation has two inputs
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": _warps(threads, gpu_of(x))}
    return (_cdiv(rows, block_m) * groups,), meta


def _rows_together(rows: int, block_n: int, tile: int, groups: int = 1) -> int:
    """How many short rows, or groups of rows, a program takes."""
    block_m = 1
    while block_m * block_n < tile and rows // (2 * block_m) * groups >= PROGRAMS:
        block_m *= 2
    return block_m


def resident_rows(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """As `whole_rows`, but with no more programs than run at a time: each takes one tile after another."""
    (tiles,), meta = whole_rows(x, tile=TILE // 2)
    return (min(tiles, _resident(meta["num_warps"], gpu_of(x), RESIDENT_THREADS)),), meta


def long_rows(x: torch.Tensor, streams: int = 1, vectors: int = 1) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program walks along one row of x, BLOCK_N elements at a time, twice.

    `streams` is how many tensors it reads: with two, larger blocks keep fewer rows under way, and those in the cache.
    `vectors` is how many 16-byte vectors of a 2-byte type a thread takes: more where threads have more to exchange.
    """
    gpu = gpu_of(x)
    row = _next_power_of_2(x.shape[1])
    largest = 4 * TILE * streams if gpu.wave == 32 else 4 * TILE  # 16 waves of 64 have 128 registers a thread
    block_n = min(max(row // 4, min(2 * TILE * streams, row // 2)), largest)
    if x.shape[1] <= MAX_ROW and _leaves_lanes_idle(x.shape[1]):
        block_n = TILE // 2
    return (x.shape[0],), {"BLOCK_N": block_n, "num_warps": _warps(block_n // (8 * vectors), gpu)}


def long_sums(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program walks along one row of x, once, and keeps sums only."""
    return (x.shape[0],), {"BLOCK_N": TILE, "num_warps": _warps(TILE // 8, gpu_of(x))}


def column_blocks(x: torch.Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program walks down BLOCK_N columns of x, taking every n-th row."""
    rows, cols = x.shape
    gpu = gpu_of(x)
    blocks = _cdiv(cols, TILE // 2)
    meta = {"BLOCK_N": TILE // 2, "num_warps": _warps(128, gpu)}
    return (blocks, min(rows, _cdiv(_resident(meta["num_warps"], gpu, MAX_THREADS), blocks))), meta


def column_sums(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that sums BLOCK_N columns of x, BLOCK_M rows at a time."""
    rows, cols = x.shape
    block_m = min(_next_power_of_2(rows), 512)
    block_n = 4 * TILE // block_m
    return (_cdiv(cols, block_n),), {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": _warps(256, gpu_of(x))}


def ranked_chunks(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that compares all pairs of BLOCK elements of a row: 64 pairs a thread."""
    rows, cols = x.shape
    return (rows * _cdiv(cols, 128),), {"BLOCK": 128, "num_warps": _warps(256, gpu_of(x))}


def merged_chunks(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that looks each of BLOCK elements of a row up in the rest of the row."""
    rows, cols = x.shape
    return (rows * _cdiv(cols, TILE),), {"BLOCK": TILE, "num_warps": _warps(256, gpu_of(x))}


def matmul_tiles(a: torch.Tensor, rows: int, cols: int, depth: int) -> tuple[tuple[int, int], dict[str, int]]:
    """As `dot_tiles`, and how many parts to cut each sum into: several where there are few rows.

    Then next to nothing is computed.  What counts is that many bytes of the other operand are under way: as many parts
    as give four programs to each compute unit, but of 256 terms at least.  On NVIDIA one program with four loads under
    way does as much, and leaves fewer parts to add up.
    """
    gpu, ((programs,), meta) = gpu_of(a), dot_tiles(a, rows, cols, depth)
    if rows > (FEW_ROWS_HOPPER if gpu.arch == "sm_90" else FEW_ROWS):
        return (programs, 1), meta
    block_n = min(64, max(_next_power_of_2(cols), 16))
    programs = _cdiv(cols, block_n)
    parts = min(_cdiv((1 if gpu.is_nvidia else 4) * gpu.compute_units, programs), _cdiv(depth, 256), MAX_PARTS)
    meta |= {"BLOCK_M": max(_next_power_of_2(rows), 16), "BLOCK_N": block_n, "num_warps": _warps(128, gpu)}
    return (programs, parts), meta | ({"num_stages": 4} if gpu.is_nvidia else {})


def sum_of_parts(c: torch.Tensor, parts: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that adds up so many matrices shaped like c, BLOCK_N elements at a time."""
    block_m = _next_power_of_2(parts)
    threads = min(block_m * 128 * 4 // VECTOR_BYTES, 256)  # parts are in float32
    meta = {"BLOCK_M": block_m, "BLOCK_N": 128, "num_warps": _warps(threads, gpu_of(c))}
    return (_cdiv(c.numel(), 128),), meta


def dot_tiles(x: torch.Tensor, rows: int, cols: int, depth: int, batch: int = 1) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program multiplies a tile of (rows, depth) by one of (depth, cols).

    The largest tile of which there is one for each compute unit: its operands are loaded least often.  `batch` is how
    many such products there are.
    """
    gpu = gpu_of(x)
    high, wide = (max(_next_power_of_2(size), 16) for size in (rows, cols))  # every GPU multiplies 16 x 16
    tiles = [(min(m, high), min(n, wide), threads) for m, n, threads in _dot_candidates(x.dtype, gpu)]
    counts = [batch * _cdiv(rows, m) * _cdiv(cols, n) for m, n, _ in tiles]
    programs, (block_m, block_n, threads) = next(
        (pair for pair in zip(counts, tiles) if pair[0] >= gpu.compute_units), (counts[-1], tiles[-1])
    )
    stages = 2 if gpu.is_amd else 3 if block_m * block_n > 64 * 64 else 4
    meta = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": min(DOT_BYTES // x.itemsize, max(_next_power_of_2(depth), 16)),
        "GROUP_M": 8,
        "XCDS": 8 if gpu.arch in ("gfx942", "gfx950") else 1,
        "num_warps": _warps(min(threads, block_m * block_n // 16), gpu),
        "num_stages": stages,
    }
    return (programs,), meta


def latents(q: torch.Tensor, latent: int, rope_dim: int, rows: int, kv_heads: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel with three kinds of programs: products, turned queries, rows of the cache.

    q: (B, heads, depth), of which each head is multiplied by (depth, latent). The products decide how many threads a
    program has; each thread turns a whole vector of both halves of heads, or copies one of a row.
    """
    gpu, (tokens, heads, depth) = gpu_of(q), q.shape
    (tiles,), dot = dot_tiles(q, tokens, latent, depth, heads)
    lanes = dot["num_warps"] * gpu.wave * VECTOR_BYTES // q.itemsize
    rope_block = _next_power_of_2(rope_dim)
    block_h = min(_next_power_of_2(heads), max(2 * lanes // rope_block, 1))
    block_t = max(2 * lanes // (block_h * rope_block), 1)
    block_r = next(r for r in (16, 8, 4, 2, 1) if _cdiv(rows, r) * kv_heads >= gpu.compute_units or r == 1)
    meta = {name: dot[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")}
    meta |= {"BLOCK_T": block_t, "BLOCK_H": block_h, "BLOCK_R": block_r}
    meta["BLOCK_D"] = max(min(lanes // block_r, _next_power_of_2(latent)), 16)
    return (tiles + _cdiv(tokens, block_t) * _cdiv(heads, block_h) + _cdiv(rows, block_r) * kv_heads,), meta


def _dot_candidates(dtype: torch.dtype, gpu: Gpu) -> tuple[tuple[int, int, int], ...]:
    """BLOCK_M, BLOCK_N and threads, the largest tile first; more sums a thread than these take would spill."""
    small, medium = ((64, 64, 128), (32, 32, 64)), (128, 128, 256)
    if dtype == torch.float32:  # only Instinct multiplies it in matrix units: elsewhere operands take registers as well
        return (medium, *small) if gpu.arch.startswith("gfx9") else small
    if gpu.arch.startswith("gfx9"):
        return (256, 128, 512), medium, *small
    if gpu.arch == "sm_90":  # a group of 128 threads issues whole products: two such programs hide each other's waiting
        medium = 128, 128, 128
    return medium, *small


def dot_precision(x: torch.Tensor, allow_tf32: bool) -> str:
    """`input_precision` of a dot: full float32, or TF32 if that is allowed and the matrix units know it."""
    arch = gpu_of(x).arch
    return "tf32" if allow_tf32 and (arch == "gfx942" or arch.startswith("sm_")) else "ieee"


def _resident(num_warps: int, gpu: Gpu, threads: int) -> int:
    """How many programs of this size the whole GPU runs at a time, with `threads` on each compute unit."""
    return gpu.compute_units * max(threads // (num_warps * gpu.wave), 1)


def attention(q: torch.Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program takes BLOCK_M queries of one head. q: (B, H, Sq, D).

    A tile of queries, its output and its sums stay in registers: the wider the head, the fewer keys at a time.  Of
    heads wider than BLOCK_D a program computes one slice, and loads the others again and again.
    """
    return _attention(q, *_attention_tile(q.dtype, _head_block(q), gpu_of(q)))


def attention_backward(x: torch.Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """As `attention`, for its gradients: twice as many tiles in registers. x: queries, or keys, (B, H, S, D)."""
    return _attention(x, *_attention_backward_tile(x.dtype, _head_block(x), gpu_of(x)))


def _attention(
    x: torch.Tensor, block_m: int, block_n: int, block_d: int, threads: int
) -> tuple[tuple[int, int], dict[str, int]]:
    gpu, (batch, heads, rows, head_dim) = gpu_of(x), x.shape
    few = min(block_m, max(_next_power_of_2(rows), 16))  # every GPU multiplies 16 x 16
    threads, block_m = min(threads, 2 * threads * few // block_m), few  # keys are loaded by all, however few the rows
    meta = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_D": block_d,
        "HEADS_AT_A_TIME": 8 if gpu.arch in ("gfx942", "gfx950") else 1,  # one for each die, beside its own cache
        "num_warps": _warps(threads, gpu),
        # AMD: of two products in a row no loads are pipelined. Elsewhere, as many as two programs' shared memory takes
        "num_stages": 1 if gpu.is_amd else 2 if block_d > 64 else 3,
    }
    if gpu.arch.startswith("gfx9"):  # two waves a SIMD: one multiplies while the other takes exponentials
        meta |= {"waves_per_eu": 2, "matrix_instr_nonkdim": 16}
    return (_cdiv(rows, block_m) * batch * heads, _cdiv(head_dim, block_d)), meta


def _head_block(x: torch.Tensor) -> int:
    return max(_next_power_of_2(x.shape[-1]), 16)


def paged_decode(q: torch.Tensor, kv_heads: int, tokens: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program takes BLOCK_H heads that share keys, and a part of these.

    q: (B, QH, D).  As many parts as fill the GPU, but of 256 keys at least where sequences have the given length.
    """
    gpu, (batch, heads, head_dim) = gpu_of(q), q.shape
    block_d = max(_next_power_of_2(head_dim), 16)
    group = heads // kv_heads
    radeon = gpu.arch.startswith("gfx1")  # operands take more of its registers
    block_h = min(max(_next_power_of_2(group), 16), 16 if radeon else 64)  # every GPU multiplies 16 x 16
    block_n = 32 if q.dtype == torch.float32 or block_d > 128 else 64
    programs = batch * kv_heads * _cdiv(group, block_h)
    splits = min(_cdiv(4 * gpu.compute_units, programs), _cdiv(tokens, 256), 128)
    meta = {
        "BLOCK_H": block_h,
        "BLOCK_N": block_n // 2 if radeon else block_n,
        "BLOCK_D": block_d,
        "num_warps": _warps(256 if gpu.wave == 64 else 128, gpu),
        "num_stages": 1 if gpu.is_amd else 2,
    }
    return (programs, splits), meta


def _attention_tile(dtype: torch.dtype, block_d: int, gpu: Gpu) -> tuple[int, int, int, int]:
    """Queries, keys, elements of a head and threads: the largest tile that does not spill, found by compiling.

    Heads are cut where no tile with a whole one fits: in float32 on Radeon, which has no matrix units for it, so that
    operands take registers as well; and on gfx11, whose matrix units hold operands twice.
    """
    if dtype == torch.float32:
        if gpu.arch.startswith("gfx9"):
            return 64, 32 if block_d <= 128 else 16, block_d, 256 if block_d <= 64 else 512
        return 32 if block_d <= 64 else 16, 16, min(block_d, 128), 256
    if gpu.arch.startswith("gfx9"):
        return (128, 64, block_d, 256 if block_d <= 64 else 512) if block_d <= 128 else (64, 32, block_d, 256)
    if gpu.arch.startswith("gfx11"):
        return 128, 32 if block_d <= 64 else 16, min(block_d, 128), 256
    if gpu.is_amd:
        return (128, 64, block_d, 256) if block_d <= 128 else (64, 32, block_d, 256)
    return 128, 64, block_d, 128 if block_d <= 128 else 256


def _attention_backward_tile(dtype: torch.dtype, block_d: int, gpu: Gpu) -> tuple[int, int, int, int]:
    """Rows that stay, rows that pass by, elements of a head and threads, found in the same way."""
    if dtype == torch.float32:
        if gpu.arch.startswith("gfx9"):
            return (64, 32, block_d, 256) if block_d <= 64 else (64, 16, 128, 512)
        return 16, 16, min(block_d, 64), 256
    if gpu.arch.startswith("gfx11"):
        return 64, 16, min(block_d, 64), 256
    if gpu.arch == "sm_90" and block_d <= 128:  # one group of 128 threads, which issues whole products
        return 64, 64 if block_d == 128 else 32, block_d, 128
    if block_d <= 64:
        return 64, 32, block_d, 256
    if gpu.arch.startswith("gfx9"):
        return 64, 32, 128, 256
    if gpu.arch.startswith("gfx12"):
        return 64, 16, 128, 512
    return (64, 32, block_d, 256) if block_d <= 128 else (64, 16, block_d, 512)
