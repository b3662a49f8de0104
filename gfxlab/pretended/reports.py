"""The AMD reports of a file's kernels: each launch is compiled as Triton's launcher would, and simulated on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import torch

from gfxlab.bound import Value
from gfxlab.code import work
from gfxlab.code.compiler import Compiled
from gfxlab.code.report import AmdReport, measure
from gfxlab.pretended import evidence
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show.run import Run


def of_file(path: Path, arch: str, count: bool = False, arguments: Sequence[str] = ()) -> dict[str, AmdReport]:
    """The report of the first launch of each kernel, by the kernel's name.

    Args:
        count: FLOPs and bytes are counted while the launch is simulated, not estimated from the code.
        arguments: what the file is given.
    """
    found: dict[str, AmdReport] = {}

    def look(compiled: Compiled, grid: tuple[int, int, int], values: list[Value], **options) -> Run:
        first = compiled.name not in found
        if first:
            report = measure(compiled)
            found[compiled.name] = replace(report, work=_estimated(report, grid, values))
        run = execute(compiled, grid, values, **{**options, "profile": first and count})
        if first and count:
            found[compiled.name] = replace(report, work=work.of_run(run))
        return run

    evidence.of_file(str(path), arch, look, arguments)
    return found


def _estimated(report: AmdReport, grid: tuple[int, int, int], values: list[Value]) -> work.Work:
    tensors = [value.content for value in values if isinstance(value.content, torch.Tensor)]
    waves = prod(grid) * report.num_warps
    return work.estimated(report.program.instructions, report.limits.wave_size, waves, tensors, None)
