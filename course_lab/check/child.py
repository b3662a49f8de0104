"""The child's half of a check: run an answer on inputs and hand back what it returned and what was seen.

It has inputs and the learner's code, nothing else: no reference, no expected value, no tolerance, no seed.  The fork
server imports this module (and so torch, triton and the hooks) once; each check is a fork of it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lab.check import answer, guard
from course_lab.check.evidence import Evidence
from gfxlab import sandbox
from gfxlab.engine import dual_mode, hooks
from gfxlab.simulator import SimulationError, using
from gfxlab.tracing import TracedLaunch

CASE_MARK = "\x1e"  # printed before each case, so that the parent can tell which case printed what


def run_cases(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Execute an answer, then call its entry on each case; one value for the definition, one for each case.

    payload: number, code, entry (strings), cases (a list of argument tuples), inplace (positions of arguments to hand
    back), device ("cpu" or "cuda"), poison (see `hooks.poison`; False leaves masked lanes 0, as the stock interpreter
    does), and simulate: the AMD architecture to simulate instead of interpreting.
    """
    dual_mode.enable()
    torch.set_num_threads(1)
    definition, entry = define(payload)
    yield definition
    if entry is None:
        return
    for number, args in enumerate(payload["cases"]):
        print(f"{CASE_MARK}{number}", flush=True)
        yield _run_case(entry, args, payload)


def run_answers(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Execute several answers, each on every case; for each answer {"outputs": a list of tensors for each case}.

    payload: as for `run_cases`, with "codes" instead of "code". An answer that fails has fewer outputs.
    """
    dual_mode.enable()
    torch.set_num_threads(1)
    for code in payload["codes"]:
        _, entry = define({**payload, "code": code})
        records = [_run_case(entry, args, payload) for args in payload["cases"]] if entry else []
        yield {"outputs": [record["outputs"] for record in records if record["error"] is None]}


def first_launch(payload: dict[str, Any]) -> dict[str, Any]:
    """The AMD card of the first kernel that the answer launches on the first case: {"text": ..., "html": ...}."""
    dual_mode.enable()
    _, entry = define(payload)
    stop = _StopAtLaunch()
    try:
        with hooks.observe(stop):
            entry(*payload["cases"][0])
    except _Stopped:
        pass
    report = TracedLaunch(stop.launch).amd_report(payload["arch"])
    return {"text": str(report), "html": report._repr_html_()}


class _Stopped(BaseException):
    """Ends a call at its first launch; no `except Exception` of a learner catches it."""


class _StopAtLaunch:
    def on_launch(self, launch: hooks.Launch) -> None:
        self.launch = launch
        raise _Stopped


def define(payload: dict[str, Any]) -> tuple[dict[str, Any], Callable | None]:
    """Run the cell itself: what it defines or how it failed, and the function that the check calls."""
    number = payload["number"]
    try:
        namespace = answer.execute(number, payload["code"])
    except BaseException as error:  # SystemExit too
        return {"error": _describe(error, number), "defined": []}, None
    entry = namespace.get(payload["entry"])
    defined = [name for name, value in namespace.items() if callable(value) and not name.startswith("__")]
    return {"error": None, "defined": defined}, entry if callable(entry) else None


def _run_case(entry: Callable, args: tuple, payload: dict[str, Any]) -> dict[str, Any]:
    placed = [guard.place(a, device=payload["device"]) if isinstance(a, torch.Tensor) else a for a in args]
    given = [a.tensor if isinstance(a, guard.Guarded) else a for a in placed]
    before = [_bits(a) for a in given]
    problem, result = None, None
    allocations = guard.Allocations()
    with hooks.guard("record") as faults, hooks.poison(payload.get("poison", True)):
        evidence = Evidence(answer.filename(payload["number"]), faults)
        with _engine(payload.get("simulate")) as simulated, hooks.observe(evidence), allocations:
            try:
                result = entry(*given)
            except BaseException as error:  # SystemExit too
                problem = _describe(error, payload["number"])
    outputs, returned = tensors(result)
    outputs += [given[position] for position in payload["inplace"]]
    guarded = [a for a in placed if isinstance(a, guard.Guarded)] + allocations.made
    return {
        "error": problem,
        "returned": returned,
        "outputs": outputs,
        "writers": [evidence.writers(tensor) for tensor in outputs],
        "events": evidence.event_table(),
        "launches": evidence.launches,
        "overlap": evidence.overlap,
        "wrong": [sentence for run in simulated or () for sentence in run.wrong],
        "faults": evidence.faults,
        "damage": [g.damage()[0] for g in guarded if g.damage()][:1],
        "modified": [_change(i, a, before[i], evidence) for i, a in enumerate(given) if _bits(a) != before[i]],
    }


def _engine(simulate: str | None) -> contextlib.AbstractContextManager:
    """What launches on CPU tensors run on: a simulated GPU, or as ever the interpreter."""
    return using(simulate) if simulate else contextlib.nullcontext()


def _bits(value: Any) -> bytes | None:
    if not isinstance(value, torch.Tensor):
        return None
    contiguous = value.detach().cpu().contiguous()
    return bytes(contiguous.flatten().view(torch.uint8).numpy()) if contiguous.numel() else b""


def _change(position: int, tensor: torch.Tensor, before: bytes, evidence: Evidence) -> dict[str, Any]:
    """Which element of an argument is no longer what it was, and who wrote it."""
    after, itemsize = _bits(tensor), tensor.element_size()
    first = next(i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new) // itemsize
    writers = evidence.writers(tensor)
    event = int(writers.flatten()[first]) if writers is not None else -1
    return {"position": position, "element": first, "event": event}


def tensors(result: Any) -> tuple[list[torch.Tensor], str]:
    """The tensors that the entry returned, and in words what it returned."""
    if isinstance(result, torch.Tensor):
        return [result], "a tensor"
    if isinstance(result, (tuple, list)) and all(isinstance(item, torch.Tensor) for item in result):
        return list(result), f"{len(result)} tensors"
    return [], "None" if result is None else f"{type(result).__name__} {str(result)[:60]!r}"


def _describe(error: BaseException, number: str) -> dict[str, Any]:
    """An exception in the learner's own lines. Running out of memory is no exception of theirs: it is passed on."""
    if sandbox.is_out_of_memory(error):
        raise error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == answer.filename(number)]
    line = frames[-1].lineno if frames else None
    fault = isinstance(error, SimulationError) and not isinstance(error, NotImplementedError)
    return {"fault": fault, "type": type(error).__name__, "message": str(error)[:2000], "line": line}
