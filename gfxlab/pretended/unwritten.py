"""Executes launches and remembers what they wrote of memory that torch.empty made, from launch to launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.pretended import memory
from gfxlab.simulator.show.run import Run


def remembered(
    execute: Callable[..., Run], compiled: Compiled, grid: tuple[int, int, int], values: Sequence[Value], **options: Any
) -> Run:
    """`execute(compiled, grid, values, **options)`, whose checks know which bytes nobody has written."""
    tensors = [value for value in values if isinstance(value.content, torch.Tensor)]
    raw = {value.name: memory.written_bytes(value.content) for value in tensors if memory.is_raw(value.content)}
    run = execute(compiled, grid, values, **{**options, "outputs": raw})
    for value in tensors:
        if value.name in raw and run.checks:
            memory.wrote(value.content, run.checks.written(value.name))
        else:
            memory.written(value.content)
    return run
