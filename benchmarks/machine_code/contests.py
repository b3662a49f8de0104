"""What is compared: families at sizes that the simulator executes in seconds, the same for all contenders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

import course_kernels as ck
from benchmarks.contest import OURS, distance, draw
from benchmarks.machine_code import plain
from benchmarks.machine_code.figures import Absent, Figures, figures_of
from benchmarks.machine_code.rivals import PLAIN, RIVALS, forget, loaded
from course_kernels import launch
from gfxlab.pretended import pretend
from gfxlab.simulator.show.run import Run

ARCHS = ("gfx942", "gfx950", "gfx1100")
COMPUTE_UNITS = 4  # ours chooses tiles as for sizes that fill the GPU: these would leave most of it idle
TOLERANCE = 1e-2  # of the reference's norm, as in the contests on a GPU


@dataclass(frozen=True)
class Contest:
    """One family at one size. inputs: made on "cuda"; ours, plain: take them; flops: of matrix products."""

    family: str
    size: str
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    ours: Callable
    plain: Callable
    reference: Callable
    flops: int = 0
    only: tuple[str, ...] | None = field(default=None)  # rivals that can do this size; None: all of the family

    def contenders(self) -> Iterator[tuple[str, Callable | str]]:
        """By name; a reason in place of a function that cannot be loaded."""
        yield OURS, self.ours
        yield PLAIN, self.plain
        for name, load in RIVALS.get(self.family, {}).items():
            yield name, loaded(load)


def run(contest: Contest, arch: str) -> Iterator[Figures | Absent]:
    """Execute every contender; those that are wrong, or that fail, have no figures."""
    forget()
    with pretend(arch):  # many ask for the GPU while they are imported
        contenders = list(contest.contenders())
    for name, function in contenders:
        absent = partial(Absent, contest.family, arch, name)
        if isinstance(function, str):
            yield absent(function)
            continue
        try:
            runs, error = _executed(contest, function, arch, again=name not in (OURS, PLAIN))
        except Exception as failure:
            if name == OURS:
                raise
            yield absent(f"{type(failure).__name__}: {str(failure).strip().splitlines()[0][:160]}")
            continue
        if not error <= TOLERANCE:
            assert name != OURS, f"{contest.family}, {contest.size}, {arch}: ours is {error:.2g} from the reference"
            yield absent(f"{contest.size}: {error:.2g} from the reference")
        else:
            yield figures_of(runs, contest.family, contest.size, arch, name, contest.flops)


def _executed(contest: Contest, function: Callable, arch: str, again: bool) -> tuple[list[Run], float]:
    """The launches of one call, of the second where the first may tune itself, and how far its result is off."""
    runs: list[Run] = []
    units = launch.as_on(launch.Gpu(arch, COMPUTE_UNITS))
    with pretend(arch, seen=runs.append, profile=True), units, torch.no_grad():
        inputs = contest.inputs()
        result = function(*(x.clone() for x in inputs))
        if again and len(runs) > 1:
            runs.clear()
            result = function(*(x.clone() for x in inputs))
        results = [result] if isinstance(result, torch.Tensor) else [result[0]]
        error = distance([x.cpu() for x in results], [contest.reference(*(x.cpu().double() for x in inputs))])
    return runs, error


def _rows(family: str, rows: int, cols: int, ours: Callable, own: Callable, truth: Callable, vectors: int) -> Contest:
    def inputs() -> tuple[torch.Tensor, ...]:
        return draw("cuda", rows, cols), *(draw("cuda", cols, scale=1 + i) for i in range(vectors))

    return Contest(family, f"{rows} x {cols}", inputs, ours, own, truth)


def contests() -> list[Contest]:
    """All, in bf16."""
    reference = ck.reference
    found = [
        Contest(
            "vector_add", "262144", lambda: (draw("cuda", 1 << 18), draw("cuda", 1 << 18, scale=2.0)), ck.vector_add,
            plain.vector_add, lambda x, y: x + y,
        )
    ]  # fmt: skip
    for rows, cols in ((256, 576), (64, 4096), (16, 8192)):
        found += [
            _rows("rms_norm", rows, cols, ck.rms_norm, plain.rms_norm, reference.rms_norm, 1),
            _rows("layer_norm", rows, cols, ck.layer_norm, plain.layer_norm, reference.layer_norm, 2),
            _rows("softmax", rows, cols, ck.softmax, plain.softmax, reference.softmax, 0),
        ]
    for rows, cols in ((64, 2 * 1536), (64, 2 * 4096)):
        truth = partial(reference.act_and_mul, kind="silu")
        found.append(_rows("silu_and_mul", rows, cols, ck.silu_and_mul, plain.silu_and_mul, truth, 0))
    return [*found, *_heads(), *_products()]


def _heads() -> Iterator[Contest]:
    def inputs() -> tuple[torch.Tensor, ...]:
        return draw("cuda", 1, 256, 9, 64), *ck.rope_tables(256, 64, device="cuda")

    def ours(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return ck.rope(x, cos, sin, layout="bshd")

    def truth(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        (a, b), cos, sin = x.chunk(2, dim=-1), cos[:, None], sin[:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    yield Contest("rope", "256 tokens, 9 heads of 64", inputs, ours, plain.rope, truth)


def _products() -> Iterator[Contest]:
    def operands() -> tuple[torch.Tensor, ...]:
        return draw("cuda", 256, 512), draw("cuda", 512, 256, scale=0.1)

    yield Contest("matmul", "256 x 256 x 512", operands, ck.matmul, plain.matmul, torch.matmul, 2 * 256 * 256 * 512)

    for heads, tokens, width in ((4, 256, 64), (1, 1024, 64), (1, 512, 128)):
        yield _attention(heads, tokens, width)


def _attention(heads: int, tokens: int, width: int) -> Contest:
    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(draw("cuda", 1, heads, tokens, width, scale=scale) for scale in (1.0, 0.5, 2.0))

    truth, size = torch.nn.functional.scaled_dot_product_attention, f"{heads} heads, {tokens} x {width}"
    flops = 4 * heads * tokens * tokens * width
    return Contest("attention", size, inputs, ck.flash_attention, plain.attention, truth, flops)
