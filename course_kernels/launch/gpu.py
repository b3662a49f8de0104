"""What launch parameters depend on: the GPU that holds a tensor, and the sizes that were found to run well.

A test asks for other sizes, or for another GPU, inside a `with` block: `sizes_as` and `as_on`.  Both hold for the whole
process, not for one thread: `torch.compile` reads a plain module attribute, but no context variable.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

VECTOR_BYTES = 16  # the widest load of one thread: global_load_dwordx4, buffer_load_b128, ld.global.v4
LINE_BYTES = 128  # of a cache line


class Launch(NamedTuple):
    """How a kernel is launched: `kernel[grid](..., **meta)`."""

    grid: tuple[int, ...]  # programs along each axis
    meta: dict[str, int]  # compile-time block sizes, `num_warps` and the like, by name


@dataclass(frozen=True)
class Sizes:
    """What the rules of this folder choose by: each a number that was found to run well."""

    max_threads: int = 1024  # of a workgroup
    elements_per_thread: int = 32  # of a tile held in registers; leaves room for the four others of a backward pass
    tile: int = 2048  # elements of a program that packs several short rows
    smallest_tile: int = 256  # elements of a program where there is too little work for all compute units
    max_row: int = 8192  # a longer row is walked block by block: whole, it would spill or run alone on its compute unit
    programs: int = 1024  # short rows are packed only while the grid keeps at least so many programs
    max_rounds: int = (
        8  # of a maximum over a chunk of a row, one for each of the k largest: for a larger k it is sorted
    )
    max_chosen: int = 64  # of the k largest of a row, chosen chunk by chunk: for a larger k the whole row is sorted
    resident_threads: int = 256  # of a compute unit, when programs loop over tiles: more only make more partial sums
    dot_bytes: int = LINE_BYTES  # of a row of a matrix unit's operand at a time
    few_rows: int = 16  # of a product: a decoder's step; from there on every GPU has a matrix instruction
    few_rows_hopper: int = 64  # there as many as one instruction multiplies
    weight_rows: int = 64  # of a program that multiplies a weight by one vector, at most; 32 on NVIDIA
    max_parts: int = 32  # of a sum that several programs share: a second kernel holds them all
    dot_tiles: tuple[tuple[int, int, int], ...] | None = None  # BLOCK_M, BLOCK_N, threads; None: those of the GPU
    attention_tile: tuple[int, int, int, int] | None = None  # queries, keys, elements of a head, threads; as above
    keys_at_a_time: int = 64  # of a paged cache, at most
    keys_of_a_part: int = 256  # of a paged cache, at least
    max_splits: int = 128  # parts of the keys of one sequence


@dataclass(frozen=True)
class Gpu:
    """What launch parameters depend on."""

    arch: str  # "gfx942", "sm_90"
    compute_units: int

    @property
    def wave(self) -> int:
        """Threads in a warp (AMD: wave)."""
        return 64 if self.is_cdna else 32

    @property
    def dies(self) -> int:
        """Dies with a cache of their own, to which AMD's hardware hands out programs in turn."""
        return 8 if self.arch in ("gfx942", "gfx950") else 1

    @property
    def is_amd(self) -> bool:
        """An AMD GPU: their names begin with gfx."""
        return self.arch.startswith("gfx")

    @property
    def is_cdna(self) -> bool:
        """AMD's Instinct."""
        return self.arch.startswith("gfx9")

    @property
    def rdna(self) -> int:
        """The generation of AMD's Radeon; 0 of other GPUs."""
        return rdna(self.arch)

    @property
    def is_nvidia(self) -> bool:
        """An NVIDIA GPU: their names begin with sm_."""
        return self.arch.startswith("sm_")


def rdna(arch: str) -> int:
    """The generation of AMD's Radeon that an architecture is: RDNA 3 is gfx11, RDNA 4 gfx12; 0 of other GPUs."""
    return {"gfx11": 3, "gfx12": 4}.get(arch[:5], 0)


MI300X = Gpu("gfx942", 304)  # what the interpreter runs is what this GPU would run

_FOR_THE_INTERPRETER = {
    "weight_rows": 1024,
    "dot_tiles": ((64, 1024, 1024), (256, 256, 1024)),
    "dot_bytes": 4 * LINE_BYTES,
    "few_rows": 0,
    "tile": 1 << 16,
    "programs": 1,
}

_FOUND = Sizes()  # what holds where nobody asks for other sizes
_sizes = _FOUND
_instead: Gpu | None = None  # of the GPU that holds a tensor
_gpus: dict[int, Gpu] = {}  # by index; torch.compile reads a dict, but runs through what functools.cache has wrapped


def sizes() -> Sizes:
    """The sizes in force."""
    return _sizes


@contextmanager
def sizes_as(**changes: object) -> Iterator[Sizes]:
    """Other sizes for the launches inside a `with` block: `with sizes_as(max_row=64):`.

    Raises:
        TypeError: `Sizes` has no field of such a name.
    """
    global _sizes
    before, _sizes = _sizes, replace(_sizes, **changes)
    try:
        yield _sizes
    finally:
        _sizes = before


@contextmanager
def as_on(gpu: Gpu) -> Iterator[Gpu]:
    """Launch as on this GPU inside a `with` block, whichever holds the tensors: `with as_on(Gpu("gfx942", 304)):`."""
    global _instead
    before, _instead = _instead, gpu
    try:
        yield gpu
    finally:
        _instead = before


@contextmanager
def few_programs() -> Iterator[None]:
    """Launch as few programs as possible inside a `with` block, each with blocks that no GPU could hold.

    For whoever interprets a whole model.  The interpreter pays for each operation of each program, and little for the
    elements of a block, as long as they stay in a cache.  On a GPU of one compute unit all rules here take their
    largest blocks; these are larger ones.
    """
    with as_on(Gpu(MI300X.arch, 1)), sizes_as(**_FOR_THE_INTERPRETER):
        yield


def overridden() -> bool:
    """Whether other sizes or another GPU are in force than those that follow from the tensors."""
    return _instead is not None or _sizes is not _FOUND


def gpu_of(tensor: torch.Tensor) -> Gpu:
    """The GPU that holds the tensor, or that it stands for: where one is simulated, that one."""
    if _instead:
        return _instead
    return simulated_gpu() or (_gpu(tensor.device.index) if tensor.is_cuda else MI300X)


def _gpu(index: int) -> Gpu:
    if index not in _gpus:
        properties = torch.cuda.get_device_properties(index)
        name = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
        arch = name.split(":")[0] or f"sm_{properties.major}{properties.minor}"
        _gpus[index] = Gpu(arch, properties.multi_processor_count)
    return _gpus[index]


def _no_simulator() -> Gpu | None:
    return None


_simulator: Callable[[], Gpu | None] = _no_simulator


def simulated_gpu() -> Gpu | None:
    """The GPU that a simulator executes now, if one does."""
    return _simulator()


# It reads a context variable, which Dynamo of PyTorch 2.11 cannot trace. The decorator for this,
# `torch.compiler.assume_constant_result`, sets the same attribute, but imports Dynamo, which takes a second.
simulated_gpu._dynamo_marked_constant = True


def connect_simulator(simulated: Callable[[], Gpu | None]) -> None:
    """From now on ask this function which GPU a simulator executes; `backend` connects one."""
    global _simulator
    _simulator = simulated


def warps(threads: int, gpu: Gpu) -> int:
    """How many warps have so many threads: one at least, and no more than a workgroup may have."""
    return min(max(threads, gpu.wave), sizes().max_threads) // gpu.wave


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()
