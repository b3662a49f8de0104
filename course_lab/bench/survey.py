"""Every kernel of `course_kernels` on the simulated GPUs: how far from the PyTorch reference, how fast.

`python -m course_lab.bench.survey` runs everything and writes survey.json beside this file; `make test-simulator`
does it, and the README's table is made from it.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

import course_kernels as kernels
import gfxlab
from gfxlab.simulator.context import using
from gfxlab.tables import Table

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
STORED = Path(__file__).with_name("survey.json")
_WITHOUT_FP8 = ("gfx90a", "gfx1100")

Tensors = tuple[torch.Tensor, ...]


class Inputs:
    """Random tensors of one dtype, the same ones every time; `size` scales the number of programs."""

    def __init__(self, dtype: torch.dtype, arch: str, size: int = 1):
        self.dtype, self.arch, self.size = dtype, arch, size
        self._generator = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int, grad: bool = False) -> torch.Tensor:
        x = torch.randn(shape, generator=self._generator).to(self.dtype)
        return x.requires_grad_(grad)

    def positions(self, *shape: int) -> torch.Tensor:
        return torch.randint(0, 64, shape, generator=self._generator)


def _with_gradients(function: Callable[..., torch.Tensor | Tensors], *inputs: torch.Tensor) -> Tensors:
    """The results and, under ones plus a tenth of themselves, the gradients of all inputs."""
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum((y.float() * (1 + 0.1 * y.detach().float())).sum() for y in results)
    return (*(y.detach() for y in results), *torch.autograd.grad(loss, inputs))


def _tables(dim: int) -> Tensors:
    return kernels.rope_tables(64, dim, device="cpu")


def _cached(update: Callable, *caches: torch.Tensor) -> Tensors:
    """What an update returns, and the caches that it has written."""
    returned = update(*caches)
    returned = returned if isinstance(returned, tuple) else (returned,)
    return (*returned, *caches)


def _paged(x: Inputs, layout: str) -> Tensors:
    heads = 2 * x.size
    q, k, v = x(6, 2 * heads, 64), x(7, heads, 64), x(7, heads, 64)
    slots = torch.tensor([3, 9, -1, 0, 30, 12, 17])
    group = 16 // k.element_size()
    packed = [(4, heads, 64 // group, 8, group), (4, heads, 64, 8)]
    shapes = {"flash": [(4, 8, heads, 64)] * 2, "packed": packed}[layout]
    update = kernels.paged_kv_cache_update
    arguments = slots, x.positions(6), *_tables(64)
    return _cached(lambda kc, vc: update(q, k, v, kc, vc, *arguments, layout=layout), *(x(*s) for s in shapes))


def _mla(x: Inputs) -> Tensors:
    arguments = x(5, 16, 128), x(16, 512, 128) / 12, x(5, 16, 64), x(6, 1, 512), x(6, 1, 64)
    slots, positions = torch.tensor([3, 0, -1, 7, 5, 1]), x.positions(5)
    return _cached(
        lambda cache: kernels.mla_bmm_rope_cache(*arguments, cache, slots, positions, *_tables(64)), x(8, 1, 576)
    )


def _decode(x: Inputs) -> Tensors:
    table = torch.tensor([[5, 2, 7, 1], [0, 3, 4, 6]], dtype=torch.int32).repeat(x.size, 1)
    lengths = torch.tensor([61, 17], dtype=torch.int32).repeat(x.size)
    return (kernels.paged_decode_attention(x(2 * x.size, 9, 64), x(8, 16, 3, 64), x(8, 16, 3, 64), table, lengths),)


def _long_decode(x: Inputs) -> Tensors:
    """One sequence of 1000 tokens: its keys are shared out between programs."""
    table = torch.arange(63, -1, -1, dtype=torch.int32).view(1, 64)
    lengths = torch.tensor([1000], dtype=torch.int32)
    return (kernels.paged_decode_attention(x(1, 4, 64), x(64, 16, 2, 64), x(64, 16, 2, 64), table, lengths),)


def _fp8(quantise: Callable, x: Inputs, cols: int, **options) -> Tensors:
    return quantise(x(5 * x.size, cols), dtype=kernels.fp8_dtype(x.arch), **options)


def _attention(x: Inputs, heads: tuple[int, int], seq_len: int, dim: int) -> Tensors:
    q, k, v = (x(1, h, seq_len, dim, grad=True) for h in (heads[0], heads[1], heads[1]))
    return _with_gradients(lambda q, k, v: kernels.flash_attention(q, k, v, causal=True), q, k, v)


_gates = kernels.act_and_mul

CASES: dict[str, Callable[[Inputs], Tensors]] = {
    "vector_add": lambda x: (kernels.vector_add(x(5000 * x.size), x(5000 * x.size)),),
    "softmax": lambda x: (kernels.softmax(x(5 * x.size, 577) - 20),),
    "softmax, long rows": lambda x: (kernels.softmax(x(2, 20001)),),
    "rms_norm": lambda x: _with_gradients(kernels.rms_norm, x(5 * x.size, 576, grad=True), x(576, grad=True)),
    "rms_norm, long rows": lambda x: _with_gradients(kernels.rms_norm, x(2, 20001, grad=True), x(20001, grad=True)),
    "layer_norm, long rows": lambda x: _with_gradients(
        kernels.layer_norm, x(2, 20001, grad=True), x(20001, grad=True), x(20001, grad=True)
    ),
    "add_rms_norm": lambda x: _with_gradients(
        kernels.add_rms_norm, x(5 * x.size, 576, grad=True), x(5 * x.size, 576, grad=True), x(576, grad=True)
    ),
    "layer_norm": lambda x: _with_gradients(
        kernels.layer_norm, x(5 * x.size, 577, grad=True), x(577, grad=True), x(577, grad=True)
    ),
    "activation": lambda x: _with_gradients(
        lambda a: kernels.activation(a, "gelu_tanh"), x(3 * x.size, 500, grad=True)
    ),
    "act_and_mul": lambda x: _with_gradients(lambda a: _gates(a, "gelu"), x(5 * x.size, 2 * 576, grad=True)),
    "silu_and_mul": lambda x: (kernels.silu_and_mul(x(5 * x.size, 2 * 1536)),),
    "dropout_add": lambda x: (kernels.dropout_add(x(5 * x.size, 576), x(5 * x.size, 576), 0.3, 42),),
    "quant_fp8_per_token": lambda x: _fp8(kernels.quant_fp8_per_token, x, 576),
    "quant_fp8_per_token, long rows": lambda x: kernels.quant_fp8_per_token(
        x(2, 20001), dtype=kernels.fp8_dtype(x.arch)
    ),
    "quant_fp8_per_group": lambda x: _fp8(kernels.quant_fp8_per_group, x, 576),
    "act_mul_fp8_quant": lambda x: _fp8(kernels.act_mul_fp8_quant, x, 512, kind="silu"),
    "rope, neox": lambda x: (kernels.rope(x(9 * x.size, 2, 3, 64), *_tables(64), positions=x.positions(9 * x.size)),),
    "rope, gptj": lambda x: (
        kernels.rope(x(9 * x.size, 2, 3, 64), *_tables(64), style="gptj", positions=x.positions(9 * x.size)),
    ),
    "rope, offsets": lambda x: (kernels.rope(x(9, 2, 3, 64), *_tables(64), offsets=x.positions(9) // 2),),
    "rope_2d": lambda x: (
        kernels.rope_2d(x(2 * x.size, 12, 3, 64), *(t[:3] for t in _tables(32)), *(t[:4] for t in _tables(32))),
    ),
    "split_qkv_rope": lambda x: kernels.split_qkv_rope(x(7, 15 * 64), *_tables(64), x.positions(7), 9, 3, 64),
    "concat_qk": lambda x: kernels.concat_qk(
        x(7 * x.size, 4, 64), x(7 * x.size, 4, 32), x(7 * x.size, 2, 64), x(7 * x.size, 2, 32)
    ),
    "rope_concat_qk": lambda x: kernels.rope_concat_qk(
        *(x(7 * x.size, heads, dim) for heads in (4, 2) for dim in (64, 32)), x.positions(7 * x.size), *_tables(32)
    ),
    "kv_cache_update": lambda x: _cached(
        lambda *caches: kernels.kv_cache_update(
            x(2, 3, 9, 64), x(2, 3, 3, 64), x(2, 3, 3, 64), *caches, torch.arange(6).view(2, 3), *_tables(64)
        ),
        x(2, 8, 3, 64),
        x(2, 8, 3, 64),
    ),
    "paged_kv_cache_update, flash": lambda x: _paged(x, "flash"),
    "paged_kv_cache_update, packed": lambda x: _paged(x, "packed"),
    "flash_attention": lambda x: _attention(x, (4, 2), 100, 64),
    "flash_attention, prefill": lambda x: (
        kernels.flash_attention(
            x(1, 9, 64 * x.size, 64), x(1, 3, 64 * x.size, 64), x(1, 3, 64 * x.size, 64), causal=True
        ),
    ),
    "paged_decode_attention": _decode,
    "paged_decode_attention, long": _long_decode,
    "mla_bmm_rope_cache": _mla,
    "matmul": lambda x: (kernels.matmul(x(33 * x.size, 100), x(100, 50 * x.size), activation="silu"),),
    "matmul, one row": lambda x: (kernels.matmul(x(1, 576), x(576, 200 * x.size)),),
    "linear, one row": lambda x: (kernels.linear(x(1, 576), x(50 * x.size, 576)),),
    "conv2d": lambda x: (kernels.conv2d(x(x.size, 5, 9, 9), x(8, 5, 3, 3), x(8), stride=2, padding=1),),
    "topk": lambda x: (kernels.topk(x(5 * x.size, 1000), 8)[0],),
    "topk, sorted": lambda x: (kernels.topk(x(3 * x.size, 300), 100)[0],),
}
# Sizes at which a launch has 64 programs and more: speed is compared there.
FOR_SPEED = {
    "vector_add": 32,
    "softmax": 26,
    "rms_norm": 26,
    "add_rms_norm": 26,
    "layer_norm": 26,
    "activation": 100,
    "act_and_mul": 32,
    "silu_and_mul": 26,
    "dropout_add": 46,
    "quant_fp8_per_token": 26,
    "quant_fp8_per_group": 14,
    "act_mul_fp8_quant": 26,
    "rope, neox": 30,
    "rope, gptj": 30,
    "rope_2d": 4,
    "split_qkv_rope": 1,
    "concat_qk": 2,
    "rope_concat_qk": 2,
    "kv_cache_update": 1,
    "paged_kv_cache_update, flash": 2,
    "paged_kv_cache_update, packed": 2,
    "flash_attention, prefill": 16,
    "paged_decode_attention": 11,
    "mla_bmm_rope_cache": 1,
    "matmul": 8,
    "matmul, one row": 8,
    "conv2d": 82,
    "topk": 26,
}


@dataclass(frozen=True)
class Error:
    """How far one case came out: the largest |got - expected| / (1 + |expected|), in units of the last place of 1."""

    case: str
    arch: str
    dtype: str
    worst: float


@dataclass(frozen=True)
class Speed:
    """Seconds of processor time of one call on one core, code compiled before."""

    case: str
    simulator: float
    interpreter: float

    @property
    def ratio(self) -> float:
        return self.interpreter / self.simulator


def names(arch: str) -> list[str]:
    """The cases that an architecture can run."""
    return [name for name in CASES if "fp8" not in name or arch not in _WITHOUT_FP8]


def error(name: str, arch: str, dtype: torch.dtype) -> Error:
    """Run one case on the simulator and on the PyTorch reference."""
    with kernels.use_backend("torch"):
        expected = CASES[name](Inputs(dtype, arch))
    with using(arch) as runs, kernels.use_backend("triton"):
        got = CASES[name](Inputs(dtype, arch))
    assert runs, f"{name} launched no kernel"
    worst = max(_distance(a, b) for a, b in zip(got, expected, strict=True))
    return Error(name, arch, str(dtype).removeprefix("torch."), worst)


def _distance(got: torch.Tensor, expected: torch.Tensor) -> float:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return float("inf")
    last_place = torch.finfo(got.dtype).eps
    got, expected = got.double(), expected.double()
    distance = (got - expected).abs() / (1 + expected.abs())
    return float("inf") if distance.isnan().any() else distance.max().item() / last_place


def speed(name: str, dtype: torch.dtype = torch.bfloat16, arch: str = "gfx942") -> Speed:
    """Time one case, at the size of `FOR_SPEED`, on the simulator and on the interpreter."""
    run = CASES[name]

    def seconds() -> float:
        inputs = Inputs(dtype, arch, FOR_SPEED[name])
        start = time.process_time()
        run(inputs)
        return time.process_time() - start

    with kernels.use_backend("triton"):
        with using(arch):
            seconds()  # compiles and decodes
            simulator = min(seconds() for _ in range(3))
        return Speed(name, simulator, min(seconds() for _ in range(2)))


def whole(archs: Iterable[str] = ARCHS, dtypes: Iterable[torch.dtype] = DTYPES) -> Survey:
    """Everything, with a progress bar."""
    from tqdm import tqdm

    todo = [(name, arch, dtype) for arch in archs for dtype in dtypes for name in names(arch)]
    errors = [error(*one) for one in tqdm(todo, desc="errors")]
    return Survey(errors, [speed(name) for name in tqdm(FOR_SPEED, desc="speed")])


@dataclass(frozen=True)
class Survey:
    """The errors and speeds of one run."""

    errors: list[Error]
    speeds: list[Speed]


def store(survey: Survey) -> None:
    """Write the results where `course build` finds them for the README."""
    rows = [json.dumps(asdict(row)) for row in survey.errors], [json.dumps(asdict(row)) for row in survey.speeds]
    errors, speeds = (",\n  ".join(lines) for lines in rows)
    STORED.write_text(f'{{\n "errors": [\n  {errors}\n ],\n "speeds": [\n  {speeds}\n ]\n}}\n', encoding="utf-8")


def stored() -> Survey:
    """The results of the last whole run."""
    rows = json.loads(STORED.read_text(encoding="utf-8"))
    return Survey([Error(**row) for row in rows["errors"]], [Speed(**row) for row in rows["speeds"]])


def summary(survey: Survey) -> str:
    """Markdown: for each target the worst error of all cases in each dtype; one sentence on speed."""
    dtypes = list(dict.fromkeys(one.dtype for one in survey.errors))
    rows = []
    for arch in dict.fromkeys(one.arch for one in survey.errors):
        mine = [one for one in survey.errors if one.arch == arch]
        rows.append((arch, str(len({one.case for one in mine})), *_worst(mine, dtypes)))
    ratios = sorted((speed.ratio, speed.case) for speed in survey.speeds)
    lowest, highest = ratios[0], ratios[-1]
    middle = median(ratio for ratio, _ in ratios)
    speed = (
        f"Launches of 64 programs and more run {middle:.0f} times as fast as in Triton's interpreter (the median of "
        f"{len(ratios)} kernels; from {lowest[0]:.0f} times for `{lowest[1]}` to {highest[0]:.0f} for `{highest[1]}`)."
    )
    table = Table(rows, ("target", "cases", *dtypes), numbers=1 + len(dtypes))
    return f"{table.markdown()}\n\n{textwrap.fill(speed, 120)}"


def _worst(errors: Iterable[Error], dtypes: Iterable[str]) -> list[str]:
    """The worst error in each dtype."""
    return [f"{max(one.worst for one in errors if one.dtype == dtype):.2g}" for dtype in dtypes]


def table(survey: Survey) -> str:
    """Markdown: for each case the worst error of all targets in each dtype, and the ratio of speeds."""
    ratios = {speed.case: speed.ratio for speed in survey.speeds}
    dtypes = list(dict.fromkeys(one.dtype for one in survey.errors))
    rows = []
    for case in dict.fromkeys(one.case for one in survey.errors):
        mine = [one for one in survey.errors if one.case == case]
        ratio = f"{ratios[case]:.0f}" if case in ratios else ""
        rows.append((f"`{case}`", str(len({one.arch for one in mine})), *_worst(mine, dtypes), ratio))
    head = ("case", "targets", *dtypes, "times as fast as the interpreter")
    return Table(rows, head, numbers=len(head) - 1).markdown()


def main() -> None:
    torch.set_num_threads(1)
    gfxlab.enable()  # the interpreter is timed beside the simulator
    found = whole()
    store(found)
    print(table(found))


if __name__ == "__main__":
    main()
