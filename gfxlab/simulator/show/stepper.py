"""Walk through a kernel as one wave does: every instruction, what it read and what it changed.

    walk = step(add_kernel, (4,), (x, y, out, n), BLOCK=1024, program=(1, 0, 0))
    walk                       # in a notebook: a strip of frames; `walk.slider()` for a slider
    print(walk.only("tl.sum")) # the frames of one source line, as text

Only the program that is asked for runs, on copies of the tensors.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch

from gfxlab.bound import Launch, Value, bind
from gfxlab.code.compiler import Compiled
from gfxlab.simulator.core import launch
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.faults import SimulationError
from gfxlab.simulator.core.memory import GlobalMemory
from gfxlab.simulator.core.operands import EXEC, M0, NULL, TTMP, VCC, Operand
from gfxlab.simulator.core.program import Decoded, Program, is_control
from gfxlab.simulator.core.state import Watcher, Waves
from gfxlab.simulator.instructions import Target, build
from gfxlab.simulator.show import sentences, stepper_view
from gfxlab.simulator.show.steps import Scalar, Step, Steps, Touch, Vector
from gfxlab.simulator.watch import readings

LIMIT = 5000  # instructions of one wave; a walk that nobody would read to its end
_NO_RESULT = re.compile(r"ds_(write|store)|\w+_store_|s_cmp|s_bitcmp|v_cmp|s_cbranch|s_branch")
_WAYS = ("instruction", "line")


# ---- a walk that can be shown ----------------------------------------------------------------------------------------


class Frame(Step):
    """A step of the walk, shown as text."""

    @cached_property
    def sentence(self) -> str:
        """What happens here, in one or two sentences."""
        return sentences.sentence(self)

    def __str__(self) -> str:
        return stepper_view.frame_text(self)

    __repr__ = __str__


class Walk(Steps):
    """The frames of one wave, shown as text, as a strip of frames, or with a slider."""

    def slider(self) -> Any:
        """An ipywidgets slider over the frames; without ipywidgets the strip of frames that a notebook shows."""
        return stepper_view.slider(self)

    def __str__(self) -> str:
        return stepper_view.walk_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return stepper_view.walk_html(self)


# ---- recording -------------------------------------------------------------------------------------------------------


def step(
    kernel: Any,
    grid: Sequence[int],
    args: Sequence[Any] = (),
    *,
    arch: str = "gfx942",
    program: Sequence[int] = (0, 0, 0),
    wave: int = 0,
    by: str = "instruction",
    limit: int = LIMIT,
    **kwargs: Any,
) -> Walk:
    """Record what one wave of one program does. The tensors stay as they are; no other program runs.

    Args:
        kernel, grid, args, arch, kwargs: as for `simulate`.
        program: the program's number, one to three axes.
        wave: the wave's number within the program.
        by: "instruction", or "line" for one frame a visit to a line of the kernel.
        limit: stop after so many instructions of the wave.

    Raises:
        ValueError: `program` is not in the grid, the program has no such wave, or `by` is something else.
        AmdError: the kernel does not compile for `arch`.
        UnknownInstruction: the simulator cannot execute the kernel. (Other faults end the walk and are its `note`.)
    """
    launched = bind(kernel, args, kwargs, grid)
    return step_bound(launched, arch, program=program, wave=wave, by=by, limit=limit)


def step_bound(
    launched: Launch,
    arch: str,
    *,
    program: Sequence[int] = (0,),
    wave: int = 0,
    by: str = "instruction",
    limit: int = LIMIT,
) -> Walk:
    """`step` through a launch whose arguments are bound already."""
    compiled, values = launch.prepare(launched, arch)
    return step_compiled(compiled, launched.grid, values, program=program, wave=wave, by=by, limit=limit)


def step_compiled(
    compiled: Compiled,
    sizes: tuple[int, int, int],
    values: Sequence[Value],
    *,
    program: Sequence[int] = (0,),
    wave: int = 0,
    by: str = "instruction",
    limit: int = LIMIT,
    **options: Any,
) -> Walk:
    """`step` through compiled code on a grid; options: those of `execute`."""
    if by not in _WAYS:
        raise ValueError(f"by must be 'instruction' or 'line', got {by!r}")
    place = tuple(program) + (0,) * (3 - len(program))
    if not all(0 <= at < size for at, size in zip(place, sizes)):
        raise ValueError(f"program {place} is not in the grid {sizes}")
    if not 0 <= wave < compiled.num_warps:
        raise ValueError(f"a program has {compiled.num_warps} waves (num_warps), numbered from 0; got wave={wave}")
    recorder = _Recorder(wave, limit, values, compiled.sources)
    note = recorder.run(
        lambda: launch.execute(
            compiled,
            sizes,
            _copies(values),
            **{**options, "profile": False, "checks": False, "only": [place], "executor": recorder.make},
        )
    )
    walk = Walk(compiled.name, compiled.arch, place, wave, recorder.finished(), recorder.program.instructions, note)
    return by_line(walk) if by == "line" else walk


def _copies(values: Sequence[Value]) -> list[Value]:
    """The arguments with tensors that may be written; tensors that share memory go on sharing it."""
    plain = [v.content.detach() if isinstance(v.content, torch.Tensor) else v.content for v in values]
    return [dataclasses.replace(v, content=content) for v, content in zip(values, copy.deepcopy(plain))]


class _Enough(Exception):
    """The wave has taken as many steps as were asked for."""


class _WatchingExecutor(Executor):
    """An executor whose steps tell the recorder before and after each."""

    def __init__(self, program: Program, waves: Waves, budget: int, recorder: _Recorder, **limits: Any):
        super().__init__(program, waves, budget, **limits)
        target = Target(program.arch)
        inside = (program.instructions[block.start : block.stop] for block in program.blocks)
        steps = (tuple(recorder.watched(i, None if is_control(i) else build(i, target)) for i in one) for one in inside)
        self.code = tuple(dataclasses.replace(code, steps=watched) for code, watched in zip(self.code, steps))


@dataclass
class _Before:
    """The wave's state before an instruction."""

    vectors: np.ndarray
    scalars: np.ndarray
    exec: np.ndarray


@dataclass
class _Recorder(Watcher):
    """Takes down what one wave does; as a watcher it is told of accesses to memory."""

    wave: int
    limit: int
    values: Sequence[Value]
    sources: dict[str, dict[int, str]]
    frames: list[Frame] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    program: Program | None = None

    def run(self, launched: Callable[[], Any]) -> str:
        """Run the launch; what ended it early, as a sentence."""
        try:
            launched()
        except _Enough:
            return (
                f"The walk was cut after {self.limit:,} instructions of this wave; limit= sets how many are recorded."
            )
        except NotImplementedError:
            raise
        except SimulationError as fault:
            return f"The walk ends with a fault: {fault}"
        return ""

    def make(self, program: Program, waves: Waves, budget: int, **limits: Any) -> Executor:
        self.program, self._memory = program, waves.memory
        self._owners = np.full(-(-waves.lds.size // 4), -1, np.int16)
        waves.watchers = (self,)
        return _WatchingExecutor(program, waves, budget, self, **limits)

    def watched(self, instruction: Decoded, step: Callable | None) -> Callable[[Waves], None]:
        """The step, recorded when the wave takes part in it; None: an instruction without a result."""

        def run(w: Waves) -> None:
            at = self.wave - w.window.start
            if not 0 <= at < w.size or (w.live is not None and not w.live[at]):
                return step(w) if step else None
            before = _Before(w.V[:, at].copy(), w.S[at].copy(), w.lane_mask(EXEC)[at].copy())
            self.touches.clear()
            try:
                if step:
                    step(w)
            finally:  # an instruction that faults is the last frame
                self._record(instruction, before, w, at)

        return run

    def finished(self) -> tuple[Frame, ...]:
        """The frames, each knowing which instruction came next."""
        following = [*(frame.instruction.index for frame in self.frames[1:]), None]
        return tuple(dataclasses.replace(frame, following=after) for frame, after in zip(self.frames, following))

    # ---- told by the executor

    def load(self, w: Waves, instruction: Decoded, region, offset, lanes, width: int) -> None:
        self._access(w, "load", offset + region.base, lanes, width)

    def store(self, w: Waves, instruction: Decoded, region, offset, lanes, width: int, words) -> None:
        self._access(w, "store", offset + region.base, lanes, width)

    def atomic(self, w: Waves, instruction: Decoded, region, offset, lanes, width: int) -> None:
        self._access(w, "atomic", offset + region.base, lanes, width)

    def illegal(self, w: Waves, instruction: Decoded, kind: str, address, lanes, width: int) -> None:
        self._access(w, "atomic" if kind == "update" else kind, address, lanes, width)

    def local_load(self, w: Waves, instruction: Decoded, address, lanes, width: int) -> None:
        self._lds_access(w, "load", address, width, lanes)

    def local_store(self, w: Waves, instruction: Decoded, address, lanes, width: int, words) -> None:
        self._lds_access(w, "store", address, width, lanes)

    def local_atomic(self, w: Waves, instruction: Decoded, address, lanes, width: int) -> None:
        self._note_owners(w, address, lanes, width)
        self._lds_access(w, "atomic", address, width, lanes)

    def _access(self, w: Waves, kind: str, address, active, width: int) -> None:
        found = self._mine(w, address, active)
        if found is None:
            return
        lanes, on = found
        name, elements = "", None
        region = self._memory.region_of(int(lanes[on][0])) if on.any() else None
        if region and region.spans:
            offset = lanes - region.base
            span = max(region.spans, key=lambda span: int(((offset >= span.start) & (offset < span.stop))[on].sum()))
            name, elements = span.name, (offset - span.start) // span.itemsize
        dtype = next((v.content.dtype for v in self.values if v.name == name and name), None)
        self.touches.append(Touch(kind, "memory", lanes.copy(), on.copy(), width, name, elements, dtype))

    def _lds_access(self, w: Waves, kind: str, address, width: int, active) -> None:
        if kind == "store":
            self._note_owners(w, address, active, width)
        found = self._mine(w, address, active)
        if found is not None:
            self.touches.append(Touch(kind, "LDS", found[0].copy(), found[1].copy(), width))

    def _note_owners(self, w: Waves, address: np.ndarray, active: np.ndarray | None, width: int) -> None:
        on = np.ones(address.shape, bool) if active is None else np.broadcast_to(active, address.shape)
        waves = np.broadcast_to(np.arange(w.window.start, w.window.stop)[:, None], address.shape)
        for place in range(0, width, 4):
            words = (address[on] + place) // 4
            inside = (words >= 0) & (words < len(self._owners))
            self._owners[words[inside]] = waves[on][inside]

    def _mine(self, w: Waves, address, active) -> tuple[np.ndarray, np.ndarray] | None:
        """Addresses and active lanes of the recorded wave; None when it takes no part."""
        at = self.wave - w.window.start
        if not 0 <= at < w.size:
            return None
        address = np.broadcast_to(address, (w.size, w.lanes))[at]
        active = np.ones(w.lanes, bool) if active is None else np.broadcast_to(active, (w.size, w.lanes))[at]
        return address, active

    # ---- making a frame

    def _record(self, instruction: Decoded, before: _Before, w: Waves, at: int) -> None:
        if len(self.frames) >= self.limit:
            raise _Enough
        source = instruction.source
        self.frames.append(
            Frame(
                number=len(self.frames),
                instructions=(instruction,),
                line=source.line if source else None,
                code=self.sources.get(source.filename, {}).get(source.line, "") if source else "",
                exec_before=before.exec,
                exec_after=w.lane_mask(EXEC)[at].copy(),
                vcc=w.lane_mask(VCC)[at].copy(),
                scc=bool(w.SCC[at]),
                vectors=tuple(self._vectors(instruction, before.vectors, w.V[:, at])),
                scalars=tuple(self._scalars(instruction, before.scalars, w.S[at])),
                touches=tuple(self.touches),
                lds=self._owners.copy() if any(t.space == "LDS" for t in self.touches) else None,
            )
        )

    def _vectors(self, instruction: Decoded, before: np.ndarray, after: np.ndarray) -> Iterator[Vector]:
        written = set(np.flatnonzero((before != after).any(axis=1)).tolist()) | _target(instruction, "v")
        read = {register for operand in _operands(instruction) for register in _registers(operand, "v")}
        for register in [*sorted(written), *sorted(read - written)]:
            values = before[register].copy(), after[register].copy()
            dtype = self._dtype(instruction, register)
            kind = readings.kind_of(instruction, register in written, dtype)
            yield Vector(self._vector_name(register), *values, register in written, kind)

    def _dtype(self, instruction: Decoded, register: int) -> torch.dtype | None:
        """The tensor's dtype for a register that holds the data of an access to memory."""
        if not self.touches or self.touches[-1].space != "memory":
            return None
        flat_store = instruction.kind == "global store" and not instruction.mnemonic.startswith("buffer")
        data = instruction.operands[1 if flat_store else 0]
        return self.touches[-1].dtype if register in _registers(data, "v") else None

    def _vector_name(self, register: int) -> str:
        first = self.program.descriptor.get("accum_offset", 256)
        return f"v{register}" if register < first else f"a{register - first}"

    def _scalars(self, instruction: Decoded, before: np.ndarray, after: np.ndarray) -> Iterator[Scalar]:
        hidden = {EXEC, EXEC + 1, VCC, VCC + 1, NULL}  # shown by the lane, or nothing
        written = (set(np.flatnonzero(before != after).tolist()) | _target(instruction, "s")) - hidden
        groups = [o for o in _operands(instruction) if o.is_scalar and o.index < VCC and o.count <= 2]
        for operand in dict.fromkeys(groups):
            registers = set(_registers(operand, "s"))
            values = (_number(bits, operand) for bits in (before, after))
            place = _place(self._memory, _number(after, operand)) if operand.count == 2 else ""
            yield Scalar(operand.text, *values, bool(registers & written), place)
            written -= registers
        for register in sorted(written):
            yield Scalar(_scalar_name(register), int(before[register]), int(after[register]), True)


def _operands(instruction: Decoded) -> tuple[Operand, ...]:
    second = instruction.second
    return instruction.operands + (second.operands if second else ())


def _registers(operand: Operand, file: str) -> range:
    return range(operand.index, operand.index + operand.count) if operand.file == file else range(0)


def _target(instruction: Decoded, file: str) -> set[int]:
    """The registers that an instruction names as its result, which may keep their value."""
    without = _NO_RESULT.match(instruction.mnemonic) or not instruction.operands
    return set() if without else set(_registers(instruction.operands[0], file))


def _number(registers: np.ndarray, operand: Operand) -> int:
    return sum(int(registers[operand.index + i]) << 32 * i for i in range(operand.count))


def _scalar_name(register: int) -> str:
    return "m0" if register == M0 else f"ttmp{register - TTMP}" if register >= TTMP else f"s{register}"


def _place(memory: GlobalMemory, address: int) -> str:
    """`x_ptr + 512`, in elements, where a number is an address within a tensor of the launch."""
    region = memory.region_of(address)
    for span in region.spans if region else ():
        if span.start <= address - region.base < span.stop:
            element = span.element(address - region.base)
            return f"{span.name} + {element}" if element else span.name
    return ""


# ---- line by line ----------------------------------------------------------------------------------------------------


def by_line(walk: Walk) -> Walk:
    """The same walk, the frames that follow each other for one line of the kernel made into one."""
    runs = (tuple(frames) for _, frames in groupby(walk.frames, lambda frame: frame.line))
    return dataclasses.replace(walk, frames=tuple(_merged(number, run) for number, run in enumerate(runs)))


def _merged(number: int, frames: tuple[Frame, ...]) -> Frame:
    last, touched = frames[-1], [frame.lds for frame in frames if frame.lds is not None]
    return dataclasses.replace(
        last,
        number=number,
        instructions=tuple(i for frame in frames for i in frame.instructions),
        exec_before=frames[0].exec_before,
        vectors=_net([frame.vectors for frame in frames]),
        scalars=_net([frame.scalars for frame in frames]),
        touches=tuple(touch for frame in frames for touch in frame.touches),
        lds=touched[-1] if touched else None,
    )


def _net(steps: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Each register once: as it was first and as it is at the end; those written last come first, then those read."""
    found: dict[str, Any] = {}
    for register in (register for registers in steps for register in registers):
        known = found.pop(register.name, None)
        if known:
            kept = {"before": known.before, "written": known.written or register.written}
            register = dataclasses.replace(register, **kept)
        found[register.name] = register
    latest = [*found.values()][::-1]
    return tuple(r for r in latest if r.written) + tuple(r for r in latest if not r.written)
