"""Block sizes and warps: the one home of launch parameters, and of the launch itself.

Each function here turns shapes into a `Launch`: a grid, and block sizes, warps and stages by name.  What a warp is
depends on the machine: 64 threads on AMD's Instinct (gfx9), 32 on Radeon and NVIDIA.  A workgroup has at most 1024
threads, so at most 16 or 32 warps.
"""

from .attention import attention_backward_tiles, attention_tiles, paged_decode
from .dots import conv_tiles, dot_precision, dot_tiles, latents, matmul_tiles, sum_of_parts, weight_rows
from .gpu import (
    VECTOR_BYTES,
    Gpu,
    Launch,
    Sizes,
    as_on,
    connect_simulator,
    few_programs,
    gpu_of,
    overridden,
    rdna,
    simulated_gpu,
    sizes,
    sizes_as,
)
from .rows import (
    chunks,
    column_blocks,
    column_sums,
    copied_heads,
    elementwise,
    few_rows,
    head_groups,
    head_tiles,
    holds_row,
    holds_wide_row,
    long_rows,
    long_sums,
    longest_held,
    merged_chunks,
    ranked_chunks,
    resident_rows,
    row_groups,
    tiles,
    whole_rows,
)
from .run import not_transformed, run, watched_by, watcher, wrote

__all__ = [
    "VECTOR_BYTES",
    "Gpu",
    "Launch",
    "Sizes",
    "as_on",
    "attention_backward_tiles",
    "attention_tiles",
    "chunks",
    "column_blocks",
    "column_sums",
    "connect_simulator",
    "conv_tiles",
    "copied_heads",
    "dot_precision",
    "dot_tiles",
    "elementwise",
    "few_programs",
    "few_rows",
    "gpu_of",
    "head_groups",
    "head_tiles",
    "holds_row",
    "holds_wide_row",
    "latents",
    "long_rows",
    "long_sums",
    "longest_held",
    "matmul_tiles",
    "merged_chunks",
    "not_transformed",
    "overridden",
    "paged_decode",
    "ranked_chunks",
    "rdna",
    "resident_rows",
    "row_groups",
    "run",
    "simulated_gpu",
    "sizes",
    "sizes_as",
    "sum_of_parts",
    "tiles",
    "watched_by",
    "watcher",
    "weight_rows",
    "whole_rows",
    "wrote",
]


def __getattr__(name: str) -> int:
    if name == "MAX_ROW":  # notebooks that learners have saved import it
        return sizes().max_row
    raise AttributeError(f"{__name__} has no {name}")
