"""An exhaustive search for the tile of a matrix product: `python -m benchmarks.search --save FILE`, about five minutes.

`triton.autotune` times every configuration of `course_kernels.matmul`'s kernel on the GPU of this machine, for each
shape.  All of its figures are kept, not only the winner's: lesson 05 shows them.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys

import torch
import triton

from benchmarks.contest import TORCH, distance, draw
from course_kernels.matmul import matmul_kernel
from course_lab import bench

SHAPES = ((4096, 4096, 4096), (2048, 3072, 576), (512, 512, 8192))  # M, N, K; the second is SmolLM2's gate_up
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (128, 256), (256, 128))
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_warps=warps, num_stages=stages)
    for (m, n), k, warps, stages in itertools.product(TILES, (32, 64), (4, 8), (2, 3, 4))
]
GROUPS = [  # the order of the tiles alone
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": group}, num_warps=4, num_stages=3)
    for group in (1, 2, 4, 8, 16, 64)
]


def name_of(config: triton.Config) -> str:
    """`128 x 256 x 64, 8 warps, 3 stages, groups of 8`."""
    meta = config.kwargs
    tile = " x ".join(str(meta[f"BLOCK_{side}"]) for side in "MNK")
    return f"{tile}, {config.num_warps} warps, {config.num_stages} stages, groups of {meta['GROUP_M']}"


def search(m: int, n: int, k: int, configs: list, family: str) -> list[bench.Measurement]:
    """A figure for each configuration that the GPU can run, and PyTorch's.

    Raises:
        AssertionError: the winner's result is wrong.
    """
    a, b = draw("cuda", m, k), draw("cuda", n, k, scale=k**-0.5).T
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    tuned = triton.autotune(configs, key=["M", "N", "K"])(matmul_kernel)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), 1)

    tuned[grid](a, b, c, *a.stride(), *b.stride(), m, n, k, ACTIVATION=None, PRECISION="ieee", XCDS=1)
    assert distance(c, [a.float() @ b.float()]) < 1e-2, f"{name_of(tuned.best_config)} is wrong"
    times = {name_of(config): triple for config, triple in tuned.configs_timings.items()}
    times[TORCH] = triton.testing.do_bench(lambda: torch.matmul(a, b), quantiles=[0.5, 0.2, 0.8])
    work = {"flops": 2 * m * n * k, "family": family, "size": f"{m} x {n} x {k}"}
    return [
        bench.Measurement(name, *(milliseconds * 1e-3 for milliseconds in triple), **work)
        for name, triple in times.items()
        if math.isfinite(triple[0])  # infinite: it needs more than the GPU has
    ]


def main(arguments: list[str] | None = None) -> int:
    """Search, print the best of each shape, save everything; without a GPU say so."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--save", help="a JSON file for the figures")
    options = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False  # the references are float32
    try:
        results = bench.Results(bench.Machine.here())
    except bench.NothingToTime as refusal:
        print(refusal)
        return 0
    for shape in SHAPES:
        results.measurements += search(*shape, CONFIGS, "search")
    results.measurements += search(8192, 8192, 8192, GROUPS, "groups")
    for (family, size), figures in itertools.groupby(results.measurements, lambda one: (one.family, one.size)):
        print(f"{family} {size}")
        for figure in sorted(figures, key=lambda one: one.seconds)[:6]:
            print("  ", figure)
    if options.save:
        results.save(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
