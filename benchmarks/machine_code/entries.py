"""What the numbers of `course_kernels/launch` are worth in AMD's code: `python -m benchmarks.machine_code.entries`.

Each number is taken smaller and larger than it is, and a kernel that depends on it is compiled and executed with each:
the reason why it stands.  Wave instructions, cache lines, registers and spills of one call, bf16.  About five minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import course_kernels as ck
from benchmarks.contest import draw
from benchmarks.machine_code.contests import ARCHS, COMPUTE_UNITS
from benchmarks.machine_code.figures import figures_of
from course_kernels import launch
from course_kernels.attention import flash_attention_backward
from gfxlab.pretended import pretend
from gfxlab.simulator.show.run import Run


@dataclass(frozen=True)
class Entry:
    """A number of `launch.Sizes`, the values that compete, and a call that depends on it. None: what is there now."""

    name: str
    values: tuple[Any, ...]
    size: str
    call: Callable[[], object]


def _decode() -> object:
    pages, table = [draw("cuda", 16, 16, 2, 64) for _ in range(2)], torch.arange(16, device="cuda").view(1, 16)
    return ck.paged_decode_attention(draw("cuda", 1, 8, 64), *pages, table, torch.tensor([256], device="cuda"))


def _gradients(width: int) -> object:
    q, k, v, do = (draw("cuda", 1, 1, 256, width, scale=scale) for scale in (1.0, 0.5, 2.0, 0.25))
    lse = torch.zeros(1, 1, 256, device="cuda")
    return flash_attention_backward(do, q, k, v, do, lse, False, width**-0.5)


def _attention(width: int) -> object:
    return ck.flash_attention(*(draw("cuda", 1, 1, 512, width, scale=scale) for scale in (1.0, 0.5, 2.0)))


def entries() -> list[Entry]:
    """All that AMD's launches depend on."""
    rms_norm, four = partial(_norm, ck.rms_norm), (512, 1024, None, 4096)
    products = ((64, 64, 128),), ((128, 128, 256),), ((256, 128, 512),), None
    narrow = (64, 64, 64, 256), (128, 32, 64, 256), (128, 64, 64, 512), None
    wide = (64, 32, 128, 256), (128, 64, 128, 256), (128, 32, 128, 512), None
    back = (32, 32, 64, 256), (64, 64, 64, 256), (128, 32, 64, 256), None
    return [
        Entry("elements_per_thread", (8, 16, None, 64), "rms_norm, 64 x 4096", partial(rms_norm, 64, 4096)),
        Entry("tile", four, "silu_and_mul, 64 x 8192", lambda: ck.silu_and_mul(draw("cuda", 64, 8192))),
        Entry("max_row", (4096, None), "rms_norm, 16 x 8192", partial(rms_norm, 16, 8192)),
        Entry("dot_tiles", products, "matmul, 256 x 256 x 512", _product),
        Entry("dot_bytes", (64, None, 256), "matmul, 256 x 256 x 512", _product),
        Entry("weight_rows", (16, None, 64), "linear, 1 x 576 by 1536", _linear),
        Entry("attention_tile", narrow, "attention, 512 x 64", partial(_attention, 64)),
        Entry("attention_tile", wide, "attention, 512 x 128", partial(_attention, 128)),
        Entry("attention_tile", back, "gradients of attention, 256 x 64", partial(_gradients, 64)),
        Entry("keys_at_a_time", (16, 32, None), "paged decode, 256 keys, 8 / 2 heads of 64", _decode),
    ]


def _product() -> object:
    return ck.matmul(draw("cuda", 256, 512), draw("cuda", 512, 256))


def _linear() -> object:
    return ck.linear(draw("cuda", 1, 576), draw("cuda", 1536, 576))


def _norm(function: Callable, rows: int, cols: int) -> object:
    return function(draw("cuda", rows, cols), draw("cuda", cols))


def rows_of(entry: Entry, arch: str) -> Iterator[str]:
    """A line of the table for each value."""
    for value in entry.values:
        runs: list[Run] = []
        sizes = {} if value is None else {entry.name: value}
        gpu = launch.as_on(launch.Gpu(arch, COMPUTE_UNITS))
        with pretend(arch, seen=runs.append, profile=True), gpu, launch.sizes_as(**sizes), torch.no_grad():
            entry.call()
        found = figures_of(runs, entry.name, entry.size, arch, "ours", 1)
        counts = f"{found.instructions:,} | {found.lines:,} | {found.vgprs} | {found.spills:,}"
        yield f"| {entry.size} | {arch} | `{entry.name}` | {_shown(value)} | {counts} |"


def _shown(value: Any) -> str:
    """As the table has it."""
    if value is None:
        return "as it is"
    numbers = value[0] if isinstance(value, tuple) and isinstance(value[0], tuple) else value
    return " x ".join(map(str, numbers)) if isinstance(numbers, tuple) else f"{numbers:,}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine_code.entries", description=__doc__)
    parser.add_argument("names", nargs="*", help="of the numbers; all if none")
    parser.add_argument("--arch", action="append", choices=ARCHS, help="all three if none")
    options = parser.parse_args(arguments)
    print("| call | target | number | value | wave instructions | lines | VGPRs | spills |")
    print("|---|---|---|---|---:|---:|---:|---:|", flush=True)
    for arch in options.arch or ARCHS:
        for entry in entries():
            if not options.names or entry.name in options.names:
                for row in rows_of(entry, arch):
                    print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
