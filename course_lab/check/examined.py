"""The child's half of the clinic: what an answer says, and what its launcher costs and becomes.

As in `child`, the process has the answer and inputs, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from course_lab.check import answer, child
from course_lab.check.protocol import Found, Job, wire
from gfxlab.bound import Launch
from gfxlab.code import AmdError
from gfxlab.engine import dual_mode
from gfxlab.simulator import using
from gfxlab.tracing import TracedLaunch

_MOST_BYTES = 1 << 28  # of a finding


def finding(payload: dict[str, Any]) -> dict[str, Any]:
    """Run the cell and the function `payload["part"]` in it: a `Found`.  The same seed each time."""
    job = child.start(payload)
    try:
        namespace = answer.execute(job.number, job.code)
        cause, function = namespace.get("cause", ""), namespace.get(payload["part"])
        torch.manual_seed(0)
        value = function() if callable(function) else None
    except BaseException as error:  # SystemExit too
        return wire(Found(problem=child.describe(error, job.number)))
    cause = cause if isinstance(cause, str) else repr(cause)
    arguments = () if value is None else tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if value is None or not all(map(_can_be_sent, arguments)) or sum(map(_bytes, arguments)) > _MOST_BYTES:
        return wire(Found(defined=callable(function), cause=cause[:80], returned=_words(value)))
    plain = tuple(_plain(value) for value in arguments)
    return wire(Found(None, callable(function), cause[:80], _words(value), True, plain))


def _plain(value: Any) -> Any:
    """Every statement has contiguous tensors, so what was cut out of a larger one becomes contiguous."""
    return value.detach().clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value


def _can_be_sent(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and value.device.type == "cpu" and not value.is_complex()
    return type(value) in (int, float, bool, str)


def _bytes(value: Any) -> int:
    return math.prod(value.shape) * value.element_size() if isinstance(value, torch.Tensor) else 0


def _words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values: {', '.join(map(_word, value[:6]))}" if value else "an empty tuple"
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return "None" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def author_test(payload: dict[str, Any]) -> dict[str, Any]:
    """Run `payload["test"]`, the author's function of that name, on the answer's launcher: {"failed": why, or ""}."""
    job = child.start(payload)
    try:
        namespace = answer.execute(job.number, job.code)
        exec(compile(payload["test"], "<the author's test>", "exec"), namespace)
        namespace[payload["name"]]()
    except BaseException as error:
        problem = child.describe(error, job.number)
        return {"failed": f"{problem.type}: {problem.message}".strip(": ").partition("\n")[0]}
    return {"failed": ""}


def cost(payload: dict[str, Any]) -> dict[str, Any]:
    """What one call costs on a simulated GPU: {"bytes": moved by kernels and by PyTorch, "instructions": of waves}."""
    job, entry = _begin(payload)
    by_torch = _by_torch(job, entry)
    with using(payload["arch"], quiet=True, profile=True) as runs:
        entry(*_copies(job))
    moved = sum(run.loads.bytes + run.stores.bytes + run.atomics.bytes for run in runs)
    return {"bytes": moved + by_torch, "instructions": sum(run.instructions for run in runs)}


def _by_torch(job: Job, entry: Callable[..., Any]) -> int:
    """Bytes that operations of PyTorch move in the launcher, the launches themselves left out."""
    arguments = _copies(job)
    with dual_mode.cpu_launches_by(lambda launch: None), _Moved() as moved:
        entry(*arguments)
    return moved.bytes


class _Moved(TorchFunctionMode):
    """Counts what operations of PyTorch read and write; views and memory that is only set aside are free.

    `gfxlab.tracing.eager` counts operations one by one; its way of looking on takes a second to load.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [value for value in child.tensors(result)[0] if value.numel()]
        given = [value for value in args if isinstance(value, torch.Tensor)]
        name = getattr(func, "__name__", "")
        shared = {value.untyped_storage().data_ptr() for value in given}
        view = not name.endswith("_") and all(value.untyped_storage().data_ptr() in shared for value in made)
        if made and not view and "empty" not in name:
            self.bytes += sum(value.nbytes for value in (*given, *made))
        return result


def _copies(job: Job) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in job.cases[0]]


def built(payload: dict[str, Any]) -> dict[str, Any]:
    """What the launches of one call become on `payload["arch"]`: {"refused": why, or "", "spills": registers}."""
    job, entry = _begin(payload)
    launches: list[Launch] = []
    with dual_mode.cpu_launches_by(launches.append):  # what they compute is another question
        entry(*job.cases[0])
    try:
        reports = (TracedLaunch(launch).amd_report(payload["arch"]) for launch in launches)
        return {"refused": "", "spills": sum(report.vgpr_spills for report in reports)}
    except AmdError as error:
        return {"refused": str(error), "spills": 0}


def _begin(payload: dict[str, Any]) -> tuple[Job, Callable[..., Any]]:
    job = child.start(payload)
    _, entry = child.define(job)
    return job, entry
