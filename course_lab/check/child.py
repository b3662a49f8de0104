"""The child's half of a check: run an answer on inputs and hand back what it returned and what was seen.

It has inputs and the learner's code, nothing else: no reference, no expected value, no tolerance, no seed.  The fork
server imports this module (and so torch, triton and the hooks) once; each check is a fork of it.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lab.authoring.far_rows import as_given, is_spread, marks
from course_lab.check import answer, guard
from course_lab.check.evidence import Evidence
from course_lab.check.protocol import Change, Definition, Job, Problem, Seen, read, wire
from gfxlab import sandbox, transport
from gfxlab.code.errors import AmdCompileError, AmdLimitError
from gfxlab.engine import dual_mode, hooks
from gfxlab.simulator import SimulationError, using
from gfxlab.simulator.core.executor import EXECUTORS
from gfxlab.tracing import TracedLaunch

CASE_MARK = "\x1e"  # printed before each case, so that the parent can tell which case printed what


def run_cases(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Execute an answer, then call its entry on each case; one value for the definition, one for each case.

    payload: {"job": a `Job` as plain values}.
    """
    yield from map(wire, tried(start(payload)))


def tried(job: Job) -> Iterator[Definition | Seen]:
    """What an answer defines, then what it does in each case that is asked for."""
    definition, entry = define(job)
    yield definition
    if entry is None:
        return
    kept: list[tuple[torch.Tensor, bytes]] = []  # what the call before returned
    placed: list[Any] = []  # the arguments of the call before
    for number, args in enumerate(job.cases):
        print(f"{CASE_MARK}{number}", flush=True)
        placed = _place(args, placed, job)
        seen = _run_case(entry, placed, job)
        yield replace(seen, stale=any(_bits(tensor) != bits for tensor, bits in kept))
        returned = seen.outputs[: len(seen.outputs) - len(job.inplace)]
        kept = [(tensor, _bits(tensor)) for tensor in returned]


def prepare() -> None:
    """Make this process ready to run answers."""
    dual_mode.enable()
    torch.set_num_threads(1)


def start(payload: dict[str, Any]) -> Job:
    """Make this process ready to run an answer, and read what it shall do."""
    prepare()
    return read(Job, payload["job"])


def run_answers(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Execute several answers, each on every case; for each answer {"outputs": a tuple of tensors for each case}.

    payload: as for `run_cases`, with "codes" in place of the job's code, and "seconds": no answer is begun after so
    much processor time. An answer that fails has fewer outputs. Each says what has been "spent" by then, in seconds.
    """
    job, begun = start(payload), time.process_time()
    for code in payload["codes"]:
        if time.process_time() - begun >= payload["seconds"]:
            return
        _, entry = define(replace(job, code=code))
        outputs = [_outputs(entry, _place(args, [], job), job) for args in job.cases] if entry else []
        spent = time.process_time() - begun
        yield {"outputs": tuple(made for made in outputs if made is not None), "spent": spent}


def _outputs(entry: Callable, args: list[_Placed], job: Job) -> tuple[torch.Tensor, ...] | None:
    """What a call makes when nobody looks on, which takes two thirds of the time; None where it fails."""
    given = [a.value for a in args]
    with hooks.guard("record"), hooks.poison(job.poison), _circumstances(job), _engine(job), guard.Allocations():
        try:
            result = entry(*given)
        except BaseException as error:  # SystemExit too
            describe(error, job.number)
            return None
    return (*tensors(result)[0], *(args[position].shown for position in job.inplace))


def first_launch(payload: dict[str, Any]) -> dict[str, Any]:
    """The AMD card of the first kernel that the answer launches on the first case: {"text": ..., "html": ...}."""
    job = start(payload)
    _, entry = define(job)
    stop = _StopAtLaunch()
    try:
        with hooks.observe(stop):
            entry(*job.cases[0])
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


def define(job: Job) -> tuple[Definition, Callable | None]:
    """Run the cell itself: what it defines or how it failed, and the function that the check calls."""
    driver = answer.execute_module("exercise_driver", job.driver_source).get(job.driver) if job.driver else None
    try:
        namespace = answer.execute(job.number, job.code, _given(job))
    except BaseException as error:  # SystemExit too
        return Definition(problem=describe(error, job.number)), None
    entry = namespace.get(job.entry)
    if callable(entry) and driver:
        entry = driver(namespace)
    defined = (str(name) for name, value in namespace.items() if callable(value) and not str(name).startswith("__"))
    return Definition(defined=tuple(defined)), entry if callable(entry) else None


def _given(job: Job) -> dict[str, Any]:
    """What the answer is given besides the usual names: `my_kernel`, where the exercise builds on other answers."""
    return {"my_kernel": answer.KernelGiver(job.kernels)} if job.kernels else {}


@dataclass(frozen=True)
class _Placed:
    """An argument as the answer gets it.  rows: so many rows of it lie before the first that is looked at."""

    value: Any
    rows: int = 0
    guarded: guard.Guarded | None = None

    @property
    def shown(self) -> Any:
        return self.value[self.rows :] if self.rows else self.value


def _run_case(entry: Callable, args: list[_Placed], job: Job) -> Seen:
    given, shown, begun = [a.value for a in args], [a.shown for a in args], time.monotonic()
    before = [_bits(a) for a in shown]
    problem, result = None, None
    allocations = guard.Allocations()
    with hooks.guard("record") as faults, hooks.poison(job.poison), _circumstances(job):
        sources = {answer.filename(number) for number in (job.number, *(kernel.number for kernel in job.kernels))}
        evidence = Evidence(sources, faults, given)
        with _engine(job) as simulated, hooks.observe(evidence), allocations:
            try:
                result = entry(*given)
            except BaseException as error:  # SystemExit too
                problem = describe(error, job.number)
    outputs, returned = tensors(result)
    outputs += [shown[position] for position in job.inplace]
    guarded = [a.guarded for a in args if a.guarded] + allocations.made
    return Seen(
        problem=problem,
        returned=returned,
        outputs=tuple(outputs),
        writers=tuple(evidence.writers(tensor) for tensor in outputs),
        events=tuple(evidence.events),
        launches=tuple(evidence.launches),
        overlap=evidence.overlap,
        wrong=tuple(sentence for run in simulated or () for sentence in run.wrong),
        faults=tuple(evidence.faults),
        written_over=tuple(evidence.written_over(tensor) for tensor in outputs),
        damaged=any(g.damage() for g in guarded),
        shares=tuple(_shared(tensor, given) for tensor in outputs[: len(outputs) - len(job.inplace)]),
        modified=tuple(_change(i, a, before[i], evidence) for i, a in enumerate(shown) if _bits(a) != before[i]),
        seconds=time.monotonic() - begun,
    )


def _rows_before(value: Any, job: Job) -> int:
    """How many rows lie before the first that is looked at; machine code and a GPU get the small case."""
    return marks(value)[0] if isinstance(value, torch.Tensor) and _interpreted(job) else 0


def _interpreted(job: Job) -> bool:
    return not job.simulate and job.device == "cpu"


def _place(args: tuple, before: list[_Placed], job: Job) -> list[_Placed]:
    """The arguments in memory of their own; of a second call with equal shapes in that of the first."""
    before = before if len(before) == len(args) else [_Placed(None)] * len(args)
    return [_placed(value, old, job) for value, old in zip(args, before)]


def _placed(value: Any, old: _Placed, job: Job) -> _Placed:
    """Between margins, unless these would fill what no memory is taken for."""
    if not isinstance(value, torch.Tensor) or is_spread(value):
        return _Placed(value)
    rows = _rows_before(value, job)
    whole = as_given(value) if any(marks(value)) and _interpreted(job) else value
    if rows:
        return _Placed(whole, rows)
    guarded = guard.place_again(whole, old.guarded) if old.guarded else None
    guarded = guarded or guard.place(whole, device=job.device)
    return _Placed(guarded.tensor, 0, guarded)


def _shared(returned: torch.Tensor, given: list[Any]) -> int:
    """The position of the argument in whose memory a returned tensor lies, or -1."""
    address = returned.untyped_storage().data_ptr() if returned.numel() else 0
    tensors = [(i, value) for i, value in enumerate(given) if isinstance(value, torch.Tensor) and value.numel()]
    return next((i for i, value in tensors if value.untyped_storage().data_ptr() == address), -1)


def _engine(job: Job) -> contextlib.AbstractContextManager:
    """What launches on CPU tensors run on: a simulated GPU, or as ever the interpreter."""
    if not job.simulate:
        return contextlib.nullcontext()
    return using(job.simulate, quiet=True, executor=EXECUTORS[job.order])


def _circumstances(job: Job) -> contextlib.AbstractContextManager:
    """What else hardware may do with the programs of a launch, or the configurations of a kernel."""
    stack = contextlib.ExitStack()
    if not job.simulate:
        stack.enter_context(hooks.program_order(job.order))
        stack.enter_context(hooks.at_once(job.at_once))
    if job.tuned:
        stack.enter_context(dual_mode.tuning())
    return stack


def _bits(value: Any) -> bytes | None:
    if not isinstance(value, torch.Tensor):
        return None
    contiguous = value.detach().cpu().contiguous()
    return bytes(contiguous.flatten().view(torch.uint8).numpy()) if contiguous.numel() else b""


def _change(position: int, tensor: torch.Tensor, before: bytes, evidence: Evidence) -> Change:
    """Which element of an argument is no longer what it was, and who wrote it."""
    after, itemsize = _bits(tensor), tensor.element_size()
    first = next(i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new) // itemsize
    writers = evidence.writers(tensor)
    event = int(writers.flatten()[first]) if writers is not None else -1
    return Change(position, first, event)


def tensors(result: Any) -> tuple[list[torch.Tensor], str]:
    """The tensors that the entry returned, and in words what it returned, which may be anything."""
    try:
        items = [result] if isinstance(result, torch.Tensor) else result
        if isinstance(items, (tuple, list)) and all(isinstance(item, torch.Tensor) for item in items):
            found = list(map(_plain, items))
            strange = next(filter(None, map(_strange, found)), "")
            return ([], strange) if strange else (found, "a tensor" if items is not result else f"{len(found)} tensors")
        return [], "None" if result is None else f"{type(result).__name__} {str(result)[:60]!r}"
    except BaseException as error:  # of a class of the learner's own, which does not say itself
        if sandbox.is_out_of_memory(error):
            raise
        return [], f"an object that raises {type(error).__name__} when it is looked at"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Without the methods of a class that the answer derived from it."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def _strange(tensor: torch.Tensor) -> str:
    """What it is, where it has no elements in memory that can be handed back; "" for an ordinary tensor."""
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.device.type == "meta":
        return "a tensor without memory, on the device meta"
    return "" if transport.takes(tensor.dtype) else f"a tensor of {tensor.dtype}"


def describe(error: BaseException, number: str) -> Problem:
    """An exception in the learner's own lines. Running out of memory is no exception of theirs: it is passed on."""
    if sandbox.is_out_of_memory(error):
        raise error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == answer.filename(number)]
    line = frames[-1].lineno if frames else None
    fault = isinstance(error, SimulationError) and not isinstance(error, NotImplementedError)
    refused = isinstance(error, (AmdCompileError, AmdLimitError))
    if isinstance(error, AmdCompileError) and error.filename == answer.filename(number):
        line = error.line
    return Problem(type(error).__name__, _words(error)[:2000], line, fault, refused)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of the learner's own, which cannot say itself
        return ""
