"""The engines that a review asks about one launch: the simulator twice, in two orders, and the interpreter."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from gfxlab.bound import Launch, Value
from gfxlab.code.compiler import Compiled
from gfxlab.engine import dual_mode
from gfxlab.engine.hooks import Access, OutOfBoundsError, observe, poison
from gfxlab.review import meeting
from gfxlab.review.findings import Finding
from gfxlab.review.hazards import place
from gfxlab.simulator.core.faults import SimulationError
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show.run import Run

MOST_PROGRAMS = 512  # of a launch that is interpreted
MOST_INSTRUCTIONS = 5_000_000  # by waves, of a launch that is run again
FEW_INSTRUCTIONS = 300_000  # by waves, of a launch whose programs are run one by one
_MOST_LINES = 16  # whose masked lanes are poisoned one line at a time
Place = tuple[str, int]  # file and line
_LOOSE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def copies(values: list[Value]) -> list[Value]:
    """The values with tensors of their own; those that share memory go on sharing it."""
    contents = copy.deepcopy([v.content.detach() if isinstance(v.content, torch.Tensor) else v.content for v in values])
    return [replace(value, content=content) for value, content in zip(values, contents)]


def by_order(compiled: Compiled, run: Run, before: list[Value], after: list[Value], options: dict) -> Iterator[Finding]:
    """Run the launch again, program after program, the first one first and the last one first; compare bit by bit."""
    if run.instructions > MOST_INSTRUCTIONS or int(np.prod(run.grid)) < 2:
        return
    places = [place[::-1] for place in itertools.product(*(range(n) for n in run.grid[::-1]))]
    one_by_one = 1 if run.instructions < FEW_INSTRUCTIONS else None
    for order, words in ((places, "one after the other"), (places[::-1], "with the last program first")):
        other = copies(before)
        extra = {"profile": False, "checks": False, "only": order, "together": one_by_one}
        try:
            execute(compiled, run.grid, other, **{**options, **extra})
        except SimulationError as error:
            yield Finding("order", compiled.name, f"Programs {words}: {error}", *place(compiled, str(error)))
            return
        bad = [(name, a, b) for name, a, b in _pairs(after, other) if not _same_bits(a, b)]
        if bad:
            kind = "last-bits" if all(_close(a, b) for _, a, b in bad) else "order"
            name, first, second = next((p for p in bad if not _close(*p[1:])), bad[0])
            where = (
                meeting.place(compiled, run, copies(before), options)
                if run.instructions < FEW_INSTRUCTIONS
                else ("", 0)
            )
            yield Finding(kind, compiled.name, _difference(name, first, second, "all at once", words), *where)
            return


def by_interpreter(
    launch: Launch | None, compiled: Compiled, run: Run, before: list[Value], after: list[Value]
) -> Iterator[Finding]:
    """Interpret the launch with NaN, infinities and zeros in masked lanes, and compare with the machine code."""
    if launch is None or not _plain(launch, before):
        yield Finding("uncompared", compiled.name, "The interpreter is not asked: an argument is a list.")
        return
    if _follows_pointers(run):
        yield Finding("uncompared", compiled.name, "The interpreter is not asked: pointers stand in a tensor.")
        return
    if int(np.prod(run.grid)) > MOST_PROGRAMS or run.instructions > MOST_INSTRUCTIONS:
        yield Finding(
            "uncompared", compiled.name, f"The interpreter is not asked: {int(np.prod(run.grid)):,} programs."
        )
        return
    masked = _Masked()
    asked = partial(_interpreted, launch, before)
    try:
        with observe(masked):
            poisoned = {True: asked(True)}
        poisoned["infinities"] = asked("infinities")  # a maximum passes NaN over
        zeros = asked(False)
    except OutOfBoundsError as error:
        yield Finding("out-of-bounds", compiled.name, f"Interpreted: {error}", *place(compiled, str(error)))
        return
    except Exception as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        yield Finding("uncompared", compiled.name, f"The interpreter cannot run it: {type(error).__name__}: {said}")
        return
    for how, other in poisoned.items():
        if leaks := _changed(zeros, other):
            yield from _leaks(compiled.name, zeros, other, leaks, masked.without_other, partial(asked, how))
            yield from _differences(compiled.name, zeros, after, masked, leaks)
            return
    yield from _differences(compiled.name, zeros, after, masked, [])


def unguarded(kernel: str) -> Finding:
    """Of a kernel that leaves its tensor for the rest of the storage."""
    return Finding("uncompared", kernel, "The interpreter is not asked: it keeps every access inside its tensor.")


def _follows_pointers(run: Run) -> bool:
    """Whether a counted launch went to memory that it was not handed: the interpreter's guard would refuse that."""
    return bool(run.profile) and any(
        name.startswith("memory at") for moved in (run.loads, run.stores, run.atomics) for name in moved.tensors
    )


class _Masked:
    """Sees which loads without other= had masked lanes, and where each tensor is stored to: lines, in their order."""

    def __init__(self) -> None:
        self.without_other: dict[Place, None] = {}
        self.stores: dict[str | None, Place] = {}

    def on_access(self, access: Access) -> None:
        here = access.filename, access.line
        if access.kind != "load":
            self.stores.setdefault(access.tensor, here)
        elif not access.has_other and not access.mask.all():
            self.without_other[here] = None


def _changed(zeros: list[Value], poisoned: list[Value]) -> list[str]:
    return [name for name, first, second in _pairs(zeros, poisoned) if not _same_bits(first, second)]


def _leaks(
    kernel: str,
    zeros: list[Value],
    poisoned: list[Value],
    leaks: list[str],
    lines: Iterable[Place],
    asked: Callable[[Place], list[Value]],
) -> Iterator[Finding]:
    """One for each load whose masked lanes alone change a result. asked: interprets with one line's loads poisoned."""
    by_line = dict.fromkeys(lines, poisoned)
    if len(by_line) > 1:
        by_line = {line: asked(line) for line in list(by_line)[:_MOST_LINES]}
    told = [(line, other, changed) for line, other in by_line.items() if (changed := _changed(zeros, other))]
    for line, other, changed in told or [(("", 0), poisoned, leaks)]:
        first, *others = changed
        where = _difference(
            first, _by_name(zeros, first), _by_name(other, first), "with 0 in masked lanes", "with poison there"
        )
        more = f" The same holds of {', '.join(others)}." if others else ""
        yield Finding("leak", kernel, f"A load without other= reaches the result: {where}{more}", *line)


def _differences(
    kernel: str, zeros: list[Value], after: list[Value], masked: _Masked, leaks: list[str]
) -> Iterator[Finding]:
    for name, machine, interpreted in _pairs(after, zeros):
        if name not in leaks and not _close(machine, interpreted) and not _is_noise(machine, zeros):
            where = _difference(name, machine, interpreted, "by the machine code", "by the interpreter")
            yield Finding("differs", kernel, where, *masked.stores.get(name, ("", 0)))


def _plain(launch: Launch, values: list[Value]) -> bool:
    """Whether each tensor of the launch, also in a tuple or a descriptor, is one of the values under its name."""
    known = {value.name for value in values if isinstance(value.content, torch.Tensor)}
    return launch.tensors.keys() <= known and not any(isinstance(value, list) for value in launch.args.values())


def _interpreted(launch: Launch, before: list[Value], how: bool | str, line: Place | None = None) -> list[Value]:
    """The values after the launch, with masked lanes poisoned: see `poison`."""
    values = copies(before)
    with poison(how, line):
        _interpret(launch, values)
    return values


def _interpret(launch: Launch, values: list[Value]) -> None:
    given = {value.name: value.content for value in values if isinstance(value.content, torch.Tensor)}
    args = {name: _with(name, value, given) for name, value in launch.args.items()}
    dual_mode.interpret(Launch(launch.kernel, (), args, args, launch.grid))


def _with(name: str, value: Any, given: Mapping[str, torch.Tensor]) -> Any:
    """An argument with the tensors given in the place of its own: see `bound.tensors` for their names."""
    if isinstance(value, torch.Tensor):
        return given[name]
    if isinstance(value, tuple):
        items = [_with(f"{name}[{i}]", item, given) for i, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if hasattr(value, "base"):  # a tensor descriptor or a TensorWrapper
        value = copy.copy(value)
        value.base = given[name]
    return value


# ---- comparing -------------------------------------------------------------------------------------------------------


def _pairs(first: list[Value], second: list[Value]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    for one, other in zip(first, second):
        if isinstance(one.content, torch.Tensor):
            yield one.name, one.content, other.content


def _by_name(values: list[Value], name: str) -> torch.Tensor:
    return next(value.content for value in values if value.name == name)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(_bits(first), _bits(second))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if not tensor.is_complex() else torch.view_as_real(tensor).double()


def _wrong(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Where two results differ by more than their dtype explains; NaN equals NaN."""
    loose = _LOOSE.get(first.dtype, 0.1 if first.is_floating_point() else 0)
    a, b = _wide(first), _wide(second)
    scale = b[torch.isfinite(b)].abs().max() if torch.isfinite(b).any() else torch.tensor(0.0)
    return ~torch.isclose(a, b, rtol=loose, atol=loose * float(scale) * 0.1, equal_nan=True)


def _close(first: torch.Tensor, second: torch.Tensor) -> bool:
    return not bool(_wrong(first, second).any())


def _is_noise(result: torch.Tensor, values: list[Value]) -> bool:
    """Whether all of a result lies below the last bits of what the launch computes with: sums that cancel out."""
    if not result.is_floating_point():
        return False
    tensors = [v.content for v in values if isinstance(v.content, torch.Tensor) and v.content.is_floating_point()]
    largest = max(float(torch.nan_to_num(_wide(t), 0, 0, 0).abs().max()) for t in tensors if t.numel())
    return float(_wide(result).abs().max()) < 16 * torch.finfo(result.dtype).eps * largest


def _difference(name: str, first: torch.Tensor, second: torch.Tensor, one: str, other: str) -> str:
    """The first element that differs, with both values."""
    bad = _wrong(first, second).reshape(-1)
    if not bad.any():
        a, b = _wide(first).reshape(-1), _wide(second).reshape(-1)
        bad = ~((a == b) | (a.isnan() & b.isnan()))
    index = int(bad.int().argmax())
    a, b = (float(_wide(t).reshape(-1)[index]) for t in (first, second))
    more = int(bad.sum())
    many = "1 element differs" if more == 1 else f"{more:,} elements differ"
    return f"{name}: {many} of {bad.numel():,}; the first is element {index}: {a:.6g} {one}, {b:.6g} {other}."
