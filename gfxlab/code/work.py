"""How much a launch moves and computes, and how soon each GPU could be done with it at best.

Counted where something has counted: bytes by the interpreter's ledger or by the simulator, FLOPs by the simulator.
Estimated elsewhere, and then the words say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from gfxlab import hardware
from gfxlab.units import format_bytes, format_flops, format_seconds

if TYPE_CHECKING:
    from gfxlab.code.isa import Instruction
    from gfxlab.simulator.show.run import Run

CARDS = ("MI210", "MI300X", "MI355X", "RX 7900 XTX", "RX 9070 XT")
_EACH_TENSOR = "estimated: every tensor of the launch once"
_CODE_ONCE = "estimated: the code as it stands, a loop counted once"
_SIMULATED = "counted by the simulator"

_FLOAT = re.compile(r"v_(?:dual_)?(pk_)?([a-z]+\d?)_(?:\w+_)?(?:bf16|f16|f32|f64)(?:_dpp|_sdwa)?$")
_FLOPS = {
    **dict.fromkeys(("add", "sub", "subrev", "mul", "max", "min", "exp", "log", "rcp", "rsq", "sqrt"), 1),
    **dict.fromkeys(("sin", "cos", "tanh", "ldexp", "div"), 1),
    **dict.fromkeys(("fma", "fmac", "fmamk", "fmaak", "mad", "mac", "max3", "min3", "maximum3", "minimum3"), 2),
    "dot2": 4,
}
_MATRIX = re.compile(r"v_\w+?_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(\w+)$")


def flops_of(text: str, lanes: int) -> tuple[int, int, str]:
    """FLOPs that one wave makes with an instruction: on the vector units, on the matrix units, and the latter's unit.

    Masked lanes count: they take as long as the others. Both halves of a dual instruction count.
    """
    vector = matrix = 0
    unit = ""
    for half in text.split("::"):
        mnemonic = half.split(maxsplit=1)[0]
        if found := _MATRIX.match(mnemonic):
            m, n, k, blocks = (int(number or 1) for number in found.groups()[:4])
            matrix, unit = 2 * m * n * k * blocks, _unit(found[5])
        elif found := _FLOAT.match(mnemonic):
            vector += _FLOPS.get(found[2], 0) * (2 if found[1] else 1) * lanes
    return vector, matrix, unit


def _unit(operands: str) -> str:
    """The rate of a card that a matrix instruction's operands go by."""
    if operands.startswith(("f32", "f64")):
        return "fp32 matrix"
    return "fp8" if operands.startswith(("fp8", "bf8", "f8", "iu8", "i8")) else "bf16"


@dataclass(frozen=True)
class Work:
    """What a whole launch has to do, `*_from` in words how that is known.

    bytes: of global memory, each touched element once. vector, matrix: FLOPs; unit: the matrix units' arithmetic
    ('bf16', 'fp8', 'fp32 matrix', or '' without any). many, many_are: the least times in `rows` are those of so many
    such launches side by side, and what they come to in words; for a launch too small to have a time of interest.
    """

    bytes: float
    bytes_from: str
    vector: float
    matrix: float
    unit: str
    flops_from: str
    many: float = 1.0
    many_are: str = ""

    @property
    def flops(self) -> float:
        return self.vector + self.matrix

    def bound(self, gpu: str | hardware.Card) -> hardware.LeastTime:
        """How soon `gpu` could be done, at the peak rates of its data sheet; the units work at the same time."""
        card = hardware.card(gpu)
        bounds = [hardware.lower_bound(self.bytes, self.vector, card, "fp32")]
        if self.matrix:
            unit = "bf16" if self.unit == "fp8" and card.fp8_matrix is None else self.unit
            bounds.append(hardware.lower_bound(self.bytes, self.matrix, card, unit))
        return max(bounds, key=lambda bound: bound.seconds)

    def rows(self) -> dict[str, str]:
        """{what: value}, in words: the amounts, then the least time on each of `CARDS`."""
        rows = {
            "bytes to move": f"{format_bytes(self.bytes)} ({self.bytes_from})",
            "arithmetic": f"{format_flops(self.flops)} ({self.flops_from})",
        }
        if self.many_are:
            rows["least times are for"] = self.many_are
        amounts = {name: self.many * getattr(self, name) for name in ("bytes", "vector", "matrix")}
        for name in CARDS:
            bound = replace(self, **amounts).bound(name)
            limit = f"{hardware.card(name).bandwidth / 1e12:g} TB/s" if bound.roof == "memory" else f"{bound.unit} rate"
            rows[f"least time, {name}"] = f"{format_seconds(bound.seconds)}, roof: {bound.roof} ({limit})"
        return rows


def estimated(
    code: Iterable[Instruction], lanes: int, waves: int, tensors: Iterable[torch.Tensor], counted_bytes: int | None
) -> Work:
    """The work of a launch of `waves` waves that run `code` once, from its machine code and its tensors.

    Args:
        counted_bytes: what the interpreter's ledger says, or None.
    """
    vector, matrix, unit = _sum((flops_of(one.text, lanes), waves) for one in code)
    return Work(*_bytes(tensors, counted_bytes), vector, matrix, unit, _CODE_ONCE)


def of_run(run: Run) -> Work:
    """The work of a simulated launch that was profiled."""
    code, lanes = run.program.instructions, run.program.lanes
    times = ((int(count), code[b.start : b.stop]) for b, count in zip(run.program.blocks, run.executed))
    vector, matrix, unit = _sum((flops_of(one.text, lanes), count) for count, block in times for one in block)
    least = sum(moved.least for moved in (run.loads, run.stores, run.atomics))
    return Work(least, _SIMULATED, vector, matrix, unit, _SIMULATED)


def _sum(parts: Iterable[tuple[tuple[int, int, str], int]]) -> tuple[int, int, str]:
    vector = matrix = 0
    units: dict[str, int] = {}
    for (one_vector, one_matrix, unit), times in parts:
        vector += one_vector * times
        matrix += one_matrix * times
        units[unit] = units.get(unit, 0) + one_matrix * times
    return vector, matrix, max(units, key=units.__getitem__) if matrix else ""


def _bytes(tensors: Iterable[torch.Tensor], counted: int | None) -> tuple[int, str]:
    """What was counted, else the bytes of the tensors, where two views of the same elements count once."""
    if counted is not None:
        return counted, "counted by the interpreter"
    return sum({(t.data_ptr(), t.nbytes): t.nbytes for t in tensors}.values()), _EACH_TENSOR
