"""What one call of each public function costs in Python, beside bare launches of the kernels that it launches.

A bare launch is `kernel[grid](...)` with the very arguments that the function gave it: nothing is checked, chosen or
allocated.  What the function must allocate, its results, is timed apart.  What the function costs where nothing is
remembered (`course_kernels/_remembered.py`) stands beside it.  `rms_norm` meets PyTorch and Liger-Kernel too.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import COMPILE, OURS, TORCH, draw, of_liger
from benchmarks.rms_norm import EPS, formula
from course_kernels import launch
from course_lab import bench
from course_lab.bench.standings import ALLOCATIONS, BARE, CHECKED

RMS_NORM = "rms_norm"
RMS_NORM_SIZE = "rms_norm, 1 x 576"


class _Kept:
    """Launches, kept to be made again."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], object]] = []

    def launch(self, kernel, grid, args, meta) -> None:
        """Launch and keep."""
        kernel[grid](*args, **meta)
        self.launches.append(partial(kernel[grid], *args, **meta))

    def wrote(self, tensor) -> None:
        """Which tensors are written does not matter here."""


def contenders(function: Callable[[], object]) -> dict[str, Callable[[], object]]:
    """A function without arguments, beside its own bare launches and allocations."""
    kept = _Kept()
    with launch.watched_by(kept):
        results = function()
    results = [x for x in (results if isinstance(results, tuple) else (results,)) if x is not None]

    def bare() -> None:
        for start in kept.launches:
            start()

    def allocate() -> list[torch.Tensor]:
        return [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in results]

    return {BARE: bare, ALLOCATIONS: allocate, CHECKED: function, OURS: function}


def rivals(x: torch.Tensor, weight: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Others' RMSNorm."""
    compiled = torch.compile(formula, dynamic=False)
    return {
        TORCH: lambda: F.rms_norm(x, (x.shape[1],), weight, EPS),
        COMPILE: lambda: compiled(x, weight),
        **of_liger("rms_norm", "LigerRMSNormFunction", lambda f: f(x, weight, EPS, 0.0, "llama", False)),
    }


def calls(device: str) -> dict[str, Callable[[], object]]:
    """Every public function that launches, on one token of SmolLM2 or on as little; nothing requires grad."""
    return {**_of_rows(device), **_of_heads(device), **_of_caches(device), **_of_products(device)}


def _of_rows(device: str) -> dict[str, Callable[[], object]]:
    x, weight, seeds = draw(device, 1, 576), draw(device, 576), itertools.count(2**32)
    return {
        "vector_add": lambda: ck.vector_add(x, x),
        "softmax": lambda: ck.softmax(x),
        RMS_NORM: lambda: ck.rms_norm(x, weight, EPS),
        "add_rms_norm": lambda: ck.add_rms_norm(x, x, weight),
        "layer_norm": lambda: ck.layer_norm(x, weight, weight),
        "add_layer_norm": lambda: ck.add_layer_norm(x, x, weight, weight),
        "activation": lambda: ck.activation(x, "silu"),
        "act_and_mul": lambda: ck.act_and_mul(x, "gelu"),
        "silu_and_mul": lambda: ck.silu_and_mul(x),
        "gelu_tanh_and_mul": lambda: ck.gelu_tanh_and_mul(x),
        "dropout_add": lambda: ck.dropout_add(x, x, 0.1, next(seeds)),  # another seed each time, as is its use
        "quant_fp8_per_token": lambda: ck.quant_fp8_per_token(x),
        "quant_fp8_per_group": lambda: ck.quant_fp8_per_group(x),
        "act_mul_fp8_quant": lambda: ck.act_mul_fp8_quant(x, "silu"),
        "topk": lambda: ck.topk(x, 8),
    }


def _of_heads(device: str) -> dict[str, Callable[[], object]]:
    q, qkv, pixels = draw(device, 1, 1, 9, 64), draw(device, 1, 15 * 64), draw(device, 1, 4, 3, 64)
    position = torch.tensor([3], device=device)
    (cos, sin), quarters = ck.rope_tables(64, 64, device=device), ck.rope_tables(2, 32, device=device)
    parts = [draw(device, 1, heads, 64, scale=scale) for heads in (4, 2) for scale in (1.0, 0.5)]
    return {
        "rope": lambda: ck.rope(q, cos, sin, layout="bshd"),
        "rope, positions": lambda: ck.rope(q, cos, sin, layout="bshd", positions=position),
        "rope_2d": lambda: ck.rope_2d(pixels, *quarters, *quarters),
        "split_qkv_rope": lambda: ck.split_qkv_rope(qkv, cos, sin, position, 9, 3, 64),
        "concat_qk": lambda: ck.concat_qk(*parts),
        "rope_concat_qk": lambda: ck.rope_concat_qk(*parts, position, cos, sin),
    }


def _of_caches(device: str) -> dict[str, Callable[[], object]]:
    q, k, place = draw(device, 1, 9, 64), draw(device, 1, 3, 64), torch.tensor([3], device=device)
    cos, sin = ck.rope_tables(64, 64, device=device)
    caches, pages = ([draw(device, *shape) for _ in range(2)] for shape in ((1, 32, 3, 64), (4, 16, 3, 64)))
    table, lengths = torch.arange(4, dtype=torch.int32, device=device)[None], place.int() + 37
    shapes = (1, 4, 128), (4, 512, 128), (1, 4, 64), (1, 1, 512), (1, 1, 64), (8, 1, 576)
    latents = [draw(device, *shape) for shape in shapes]
    q4, k4, places = q[None], k[None], place[None]
    return {
        "kv_cache_update": lambda: ck.kv_cache_update(q4, k4, k4, *caches, places, cos, sin),
        "paged_kv_cache_update": lambda: ck.paged_kv_cache_update(q, k, k, *pages, place, place, cos, sin),
        "paged_decode_attention": lambda: ck.paged_decode_attention(q, *pages, table, lengths),
        "mla_bmm_rope_cache": lambda: ck.mla_bmm_rope_cache(*latents, place, place, cos, sin),
    }


def _of_products(device: str) -> dict[str, Callable[[], object]]:
    x, matrix, heads = draw(device, 1, 576), draw(device, 576, 576), draw(device, 1, 9, 16, 64)
    image, filters = draw(device, 1, 3, 8, 8), draw(device, 4, 3, 3, 3)
    return {
        "matmul": lambda: ck.matmul(x, matrix),
        "linear": lambda: ck.linear(x, matrix),
        "conv2d": lambda: ck.conv2d(image, filters),
        "flash_attention": lambda: ck.flash_attention(heads, heads, heads, causal=True),
    }


def measure(device: str) -> list[bench.Measurement]:
    """Figures of every function and of what stands beside it; the rivals last, since compiling goes on beside them."""
    figures: list[bench.Measurement] = []
    for name, function in calls(device).items():
        figures += _measured(RMS_NORM_SIZE if name == RMS_NORM else name, contenders(function))
    others = rivals(draw(device, 1, 576), draw(device, 576))
    return figures + _measured(RMS_NORM_SIZE, {name: call for name, call in others.items() if _is_installed(call)})


def _is_installed(call: Callable[[], object]) -> bool:
    try:
        call()
    except ImportError:
        return False
    return True


def _measured(size: str, contenders: dict[str, Callable[[], object]]) -> list[bench.Measurement]:
    contenders = {name: _all_looked_at(call) if name == CHECKED else call for name, call in contenders.items()}
    for call in contenders.values():
        for _ in range(10):  # what is compiled, and what is remembered
            call()
    return [dataclasses.replace(one, family="call", size=size) for one in bench.call_times(contenders)]


def _all_looked_at(call: Callable[[], object]) -> Callable[[], None]:
    """The call where nothing is remembered: sizes are asked for."""

    def checked() -> None:
        with launch.sizes_as():
            call()

    return checked
