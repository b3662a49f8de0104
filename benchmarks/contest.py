"""Check and time the contenders of a case, side by side, on the same inputs.

Every output is compared with the reference, computed from float32 copies of the inputs, before its contender is timed.
What is timed are captured graphs, for every contender: otherwise the contest would be between launch paths in Python.
Calls that move less than SMALL bytes are repeated, their data in the cache; before a larger one the cache is emptied.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from course_lab import bench
from course_lab.bench import COPY, OURS

SMALL = 32 << 20  # bytes: they fit into the L2 cache of a large GPU
REPEAT = 0.05  # seconds of calls for one figure

EAGER, TORCH, COMPILE, LIGER = "eager", "torch", "torch.compile", "Liger"

# rows x columns: one token, a batch of decoded ones, prompts; SmolLM2's width, Llama 3's, 2's and twice the first
ROWS = [(rows, cols) for rows in (1, 64, 4096, 16384) for cols in (576, 4096, 5120, 8192)]
ROWS += [(4096, 16384), (2048, 65536)]
SHORT_ROWS = [(64, 4096), (16384, 4096), (2048, 65536)]
TINY_ROWS = [(3, 40)]


@dataclass(frozen=True)
class Case:
    """One family at one size.

    inputs: makes the tensors, on a device. contenders: by name; each takes them. eager: PyTorch's operations, one by
    one; also what torch.compile gets. reference: the truth, from float32 inputs. bytes, flops: what must be moved and
    computed; without `flops` memory is the limit, and a plain copy of as many bytes competes.
    tolerance: the largest distance from the reference, as a part of its norm.
    step: takes a function of the inputs, also the reference, and returns what is run: `gradients`, for one.
    compared: takes a result, then the inputs, and returns what must equal the reference, where that is not the result.
    """

    family: str
    size: str
    inputs: Callable[[str], tuple[Any, ...]]
    contenders: dict[str, Callable]
    reference: Callable
    bytes: int
    flops: int | None = None
    eager: Callable | None = None
    tolerance: float = 1e-2
    cold: bool | None = None  # None: by its bytes
    step: Callable[[Callable], Callable] = lambda function: function
    compared: Callable = lambda result, *inputs: result


@dataclass
class Contest:
    """Runs cases and keeps their figures. timed=False only checks."""

    device: str
    timed: bool = True
    compiled: bool = True
    measurements: list[bench.Measurement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent: dict[tuple[str, str], str] = field(default_factory=dict)  # who is not installed, once for all its sizes

    def run(self, case: Case) -> None:
        """Check every contender and time those that are right.

        Raises:
            AssertionError: our own result is wrong.
        """
        inputs = case.inputs(self.device)
        expected = _tensors(case.step(case.reference)(*map(_upcast, inputs)))
        for name, function in self._contenders(case):
            function = case.step(function)
            try:
                error = distance(case.compared(function(*map(_clone, inputs)), *inputs), expected)
            except ImportError as absent:
                self.absent[case.family, name] = f"{name} is left out: {absent}"
                continue
            except Exception as failure:
                if name == OURS:
                    raise
                self._note(case, name, f"fails: {type(failure).__name__}: {str(failure).strip().splitlines()[0][:160]}")
                continue
            if not error <= case.tolerance:
                assert name != OURS, f"{case.family} {case.size}: our result is {error:.2g} from the reference"
                self._note(case, name, f"is {error:.2g} from the reference, more than {case.tolerance:g}")
            elif self.timed:
                own = list(map(_clone, inputs))  # some write in place
                self._time(case, name, lambda f=function, own=own: f(*own), error)
        if self.timed and not case.flops:
            self._time(case, COPY, bench.copy_of(case.bytes, self.device), None)

    def _contenders(self, case: Case) -> Iterator[tuple[str, Callable]]:
        if case.eager:
            yield EAGER, case.eager
            if self.compiled:
                torch._dynamo.reset()  # a compiled function of its own for every shape
                yield COMPILE, torch.compile(case.eager, dynamic=False)
        yield from case.contenders.items()

    def _time(self, case: Case, name: str, call: Callable[[], object], error: float | None) -> None:
        cold = case.bytes >= SMALL if case.cold is None else case.cold
        graph = "cold" if cold else "warm"
        try:
            figure = bench.time(call, name=name, bytes=case.bytes, flops=case.flops, repeat=REPEAT, graph=graph)
        except RuntimeError as failure:  # not every operation can be captured
            self._note(case, name, f"cannot be timed: {str(failure).strip().splitlines()[0][:160]}")
            return
        self.measurements.append(dataclasses.replace(figure, family=case.family, size=case.size, error=error))

    def _note(self, case: Case, name: str, text: str) -> None:
        self.notes.append(f"{case.family}, {case.size}: {name} {text}")


def distance(result: Any, expected: Sequence[torch.Tensor]) -> float:
    """The largest norm(result - expected) / norm(expected) of the tensors; NaN if there is one."""
    found = _tensors(result)
    assert len(found) == len(expected), f"{len(found)} results, not {len(expected)}"
    parts = []
    for x, y in zip(found, expected):
        assert x.shape == y.shape, f"shape {tuple(x.shape)}, not {tuple(y.shape)}"
        parts.append(float(torch.linalg.vector_norm(x.float() - y.float()) / torch.linalg.vector_norm(y.float())))
    return max(parts, key=lambda part: float("inf") if part != part else part)


def gradients(function: Callable) -> Callable:
    """Forward and backward: the gradients of all but the last input, which is the gradient of the result."""

    def step(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *leaves, dy = inputs
        leaves = [x.detach().requires_grad_() for x in leaves]
        return torch.autograd.grad(function(*leaves), leaves, dy)

    return step


def draw(device: str, *shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
    """Normally distributed numbers, the same in every run."""
    generator = torch.Generator(device).manual_seed(len(shape) + sum(shape))
    return (torch.randn(shape, generator=generator, device=device) * scale).to(dtype)


def of_liger(module: str, name: str, call: Callable | None = None) -> dict[str, Callable]:
    """Liger-Kernel's contender, or one that says it is not installed. call: takes its function, then the inputs."""
    try:
        apply = getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply
    except ImportError as absent:
        return {LIGER: partial(_absent, str(absent))}
    return {LIGER: apply if call is None else partial(call, apply)}


def _absent(why: str, *_: Any) -> None:
    raise ImportError(why)


def rows_of(sizes: str, every: list, short: list, tiny: list) -> list:
    """The list that is asked for: "every", "short" or "tiny"."""
    return {"every": every, "short": short, "tiny": tiny}[sizes]


def _tensors(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _upcast(x: Any) -> Any:
    return x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def _clone(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x
