"""What launch parameters are worth: each call with the sizes of before, and as it is, beside one another.

The sizes of before are given to `launch.sizes_as`; what was a kernel of its own then is not here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import course_kernels as ck
from benchmarks.contest import OURS, REPEAT, draw
from course_kernels import launch
from course_kernels.attention import flash_attention_backward
from course_lab import bench

BEFORE = "before"


@dataclass(frozen=True)
class Change:
    """A call, whose name says what changed; fields of `launch.Sizes` as they were; whether its data fit a cache."""

    size: str
    before: dict[str, Any]
    call: Callable[[str], Callable[[], object]]
    small: bool = False


def _rows(function: Callable, rows: int, cols: int, device: str) -> Callable[[], object]:
    return partial(function, draw(device, rows, cols))


def _norm(rows: int, cols: int, device: str) -> Callable[[], object]:
    x, residual, weight = draw(device, rows, cols), draw(device, rows, cols, scale=2.0), draw(device, cols)
    return partial(ck.add_rms_norm, x, residual, weight)


def _product(rows: int, cols: int, depth: int, device: str) -> Callable[[], object]:
    return partial(ck.matmul, draw(device, rows, depth), draw(device, depth, cols))


def _rope(device: str) -> Callable[[], object]:
    return partial(ck.rope, draw(device, 1, 16384, 32, 128), *ck.rope_tables(16384, 128, device=device), layout="bshd")


def _gradients(width: int, device: str) -> Callable[[], object]:
    q, k, v, do = (draw(device, 4, 32, 4096, width, scale=scale) for scale in (1.0, 0.5, 2.0, 0.25))
    lse = ck.flash_attention(q, k, v, causal=True, return_lse=True)[1]
    return partial(flash_attention_backward, do, q, k, v, do, lse, True, width**-0.5)


def _topk(rows: int, device: str) -> Callable[[], object]:
    return partial(ck.topk, draw(device, rows, 128_256, dtype=torch.float32), 50)


def changes() -> list[Change]:
    """All that sizes can undo."""
    wide = {"dot_tiles": ((128, 256, 256),)}
    return [
        Change("products: 128 x 256 by 256 threads, 4096 cubed", wide, partial(_product, 4096, 4096, 4096)),
        Change("products: the same, 8192 cubed", wide, partial(_product, 8192, 8192, 8192)),
        Change(
            "64 rows times a weight: as any product, 64 x 4096 x 14336",
            {"few_rows_hopper": 16},
            partial(_product, 64, 4096, 14336),
        ),
        Change(
            "softmax: rows up to 8192 held whole, 4096 x 16384",
            {"max_row": 2048},
            partial(_rows, ck.softmax, 4096, 16384),
        ),
        Change(
            "softmax: 32 elements a thread, 1 x 4096",
            {"elements_per_thread": 64},
            partial(_rows, ck.softmax, 1, 4096),
            small=True,
        ),
        Change("add_rms_norm: walked twice, 1 x 8192", {"max_row": 8191}, partial(_norm, 1, 8192), small=True),
        Change("rope: a quarter of the heads a program, 16384 tokens", {"tile": 512}, _rope),
        Change(
            "activation: tiles of 2048, 1 x 4096",
            {"smallest_tile": 2048},
            partial(_rows, partial(ck.activation, kind="silu"), 1, 4096),
            small=True,
        ),
        Change(
            "attention's gradients: 256 threads, heads of 128",
            {"attention_tile": (64, 64, 128, 256)},
            partial(_gradients, 128),
        ),
        Change(
            "attention's gradients: 256 threads, heads of 64",
            {"attention_tile": (64, 64, 64, 256)},
            partial(_gradients, 64),
        ),
        Change("top-k: chunks of 2048, 50 of 128256, 64 rows", {"smallest_tile": 2048}, partial(_topk, 64)),
        Change("top-k: the same, one row", {"smallest_tile": 2048}, partial(_topk, 1), small=True),
    ]


def measure(device: str) -> list[bench.Measurement]:
    """Two figures of each change."""
    figures = []
    for change in changes():
        call = change.call(device)
        for name, sizes in ((BEFORE, change.before), (OURS, {})):
            with launch.sizes_as(**sizes), torch.no_grad():
                figure = bench.time(call, name=name, repeat=REPEAT, graph="warm" if change.small else "cold")
            figures.append(dataclasses.replace(figure, family="tried", size=change.size))
        torch.cuda.empty_cache()
    return figures
