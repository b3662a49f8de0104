"""Block sizes and warps: the one home of launch parameters.

A memory-bound kernel runs well when every thread moves whole 16-byte vectors and keeps about 16 elements in registers,
when a program has a few hundred threads, and when there are several programs for each compute unit.  Each function here
turns the shape of x into a grid and `BLOCK_M`, `BLOCK_N`, `num_warps` by those rules.

What a warp is depends on the machine: 64 threads on AMD's Instinct (gfx9), 32 on Radeon and NVIDIA.  A workgroup has at
most 1024 threads, so at most 16 or 32 warps.
"""

from dataclasses import dataclass
from functools import cache

import torch
import triton

VECTOR_BYTES = 16  # the widest load a thread can issue: global_load_dwordx4, buffer_load_b128, ld.global.v4
ELEMENTS_PER_THREAD = 16  # of one tile; 32-bit registers, with room for a second and a third tile beside it
MAX_THREADS = 1024
TILE = 4096  # elements of a program that packs several short rows: 256 threads
MAX_ROW = 16384  # a longer row is walked block by block: held whole, it would spill
MAX_ROW_BACKWARD = 8192  # the backward pass holds four tiles at once
PROGRAMS = 512  # short rows are packed only while the grid keeps at least so many programs


@dataclass(frozen=True)
class Gpu:
    """What launch parameters depend on."""

    arch: str  # "gfx942", "sm_90"
    compute_units: int

    @property
    def wave(self) -> int:
        """Threads in a warp (AMD: wave)."""
        return 64 if self.arch.startswith("gfx9") else 32


def gpu_of(tensor: torch.Tensor) -> Gpu:
    """The GPU that holds the tensor; for a CPU tensor MI300X, so that the interpreter runs what that GPU would run."""
    return _gpu(tensor.device.index) if tensor.is_cuda else Gpu("gfx942", 304)


@cache
def _gpu(index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    name = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    arch = name.split(":")[0] or f"sm_{properties.major}{properties.minor}"
    return Gpu(arch, properties.multi_processor_count)


def _warps(threads: int, gpu: Gpu) -> int:
    return min(max(threads, gpu.wave), MAX_THREADS) // gpu.wave


def elementwise(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel without rows: BLOCK elements a program."""
    grid = (triton.cdiv(x.numel(), TILE),)
    return grid, {"BLOCK": TILE, "num_warps": _warps(TILE // ELEMENTS_PER_THREAD, gpu_of(x))}


def whole_rows(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel that holds BLOCK_M whole rows of x, each in BLOCK_N >= cols lanes."""
    rows, cols = x.shape
    block_n = triton.next_power_of_2(cols)
    block_m = 1
    while block_m * block_n < TILE and rows // (2 * block_m) >= PROGRAMS:
        block_m *= 2
    vectors = block_n * x.itemsize // VECTOR_BYTES  # with more threads than that, each would load less than a vector
    threads = min(block_m * block_n // ELEMENTS_PER_THREAD, vectors)
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": _warps(threads, gpu_of(x))}
    return (triton.cdiv(rows, block_m),), meta


def resident_rows(x: torch.Tensor) -> tuple[tuple[int], dict[str, int]]:
    """As `whole_rows`, but with no more programs than run at a time: each takes one tile after another."""
    (tiles,), meta = whole_rows(x)
    return (min(tiles, _resident(meta["num_warps"], gpu_of(x))),), meta


def long_rows(x: torch.Tensor, *, backward: bool = False) -> tuple[tuple[int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program walks along one row of x, BLOCK_N elements at a time."""
    block_n = MAX_ROW_BACKWARD if backward else MAX_ROW
    return (x.shape[0],), {"BLOCK_N": block_n, "num_warps": _warps(block_n // ELEMENTS_PER_THREAD, gpu_of(x))}


def column_blocks(x: torch.Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and parameters of a kernel in which a program walks down BLOCK_N columns of x, taking every n-th row."""
    rows, cols = x.shape
    gpu = gpu_of(x)
    meta = {"BLOCK_N": TILE, "num_warps": _warps(TILE // ELEMENTS_PER_THREAD, gpu)}
    blocks = triton.cdiv(cols, TILE)
    return (blocks, min(rows, triton.cdiv(_resident(meta["num_warps"], gpu), blocks))), meta


def _resident(num_warps: int, gpu: Gpu) -> int:
    """How many programs of this size the whole GPU runs at a time, at 1024 threads a compute unit."""
    return gpu.compute_units * max(MAX_THREADS // (num_warps * gpu.wave), 1)
