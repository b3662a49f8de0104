"""Launch a kernel on the simulated GPU, as `kernel[grid](...)` would on a real one.

How a launch begins (which registers hold what): LLVM, "User Guide for AMDGPU Backend", initial kernel execution state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from gfxlab import hardware
from gfxlab.bound import Grid, Launch, Specialisation, Value, bind, unwrap
from gfxlab.code import compiler
from gfxlab.engine import arguments, dual_mode
from gfxlab.latest import Latest
from gfxlab.simulator.core import program as programs
from gfxlab.simulator.core.batches import Batches
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.hostcall import KIND, WAVES, HostCalls
from gfxlab.simulator.core.memory import ARGUMENTS, GlobalMemory, LocalData, Scratch, patterns
from gfxlab.simulator.core.numbers import U8, U32, round_to_bf16
from gfxlab.simulator.core.operands import M0, MODE, TTMP
from gfxlab.simulator.core.program import Argument, Program
from gfxlab.simulator.core.progress import Progress
from gfxlab.simulator.core.state import Watcher, Waves
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.watch.checks import Checks, poison
from gfxlab.simulator.watch.profile import Profile

_BATCH_BYTES = 8 << 20  # of registers, LDS and private memory at a time: what stays in a cache is several times faster
MAX_INSTRUCTIONS = 2_000_000_000  # of all waves together: some minutes
MAX_SECONDS = 15.0


def simulate(
    kernel: Any,
    grid: Grid,
    args: Sequence[Any] = (),
    *,
    arch: str = "gfx942",
    profile: bool = True,
    checks: bool = True,
    outputs: Iterable[str] = (),
    max_instructions: int = MAX_INSTRUCTIONS,
    max_seconds: float = MAX_SECONDS,
    **kwargs: Any,
) -> Run:
    """Compile `kernel` for an AMD GPU and execute the machine code here; tensors are changed as the GPU would.

    Args:
        kernel: a @triton.jit function.
        grid: one to three numbers of programs, or a function of the arguments that gives them.
        args: the arguments of the launch; tensors on the CPU.
        arch: gfx90a, gfx942, gfx950, gfx1100 or gfx1201.
        profile: count bytes, cache lines, bank conflicts and active lanes (see `Run`).
        checks: look for races, shared stores and the like (see `Run.notes`); illegal accesses raise in any case.
        outputs: tensor arguments that the kernel only writes. They are filled with NaN (or the largest integer) first,
            and `Run.notes` tells which elements were read before they were written, or never written.
        max_instructions: give up after so many wave-instructions.
        max_seconds: after so long without a wave's ending, give up a loop that comes no nearer to its end.
        kwargs: keyword arguments of the launch: constexprs, num_warps, num_stages, ...

    Raises:
        AmdError: the kernel does not compile for `arch`; AmdLimitError: the GPU could not launch it.
        IllegalAccess: a lane touches memory outside every tensor.
        SimulationError: an unknown instruction, a barrier not reached by all waves, an endless loop.
    """
    launch = bind(kernel, args, kwargs, grid)
    return simulate_bound(
        launch,
        arch,
        profile=profile,
        checks=checks,
        outputs=outputs,
        max_instructions=max_instructions,
        max_seconds=max_seconds,
    )


def simulate_bound(
    launch: Launch, arch: str, *, outputs: Iterable[str] = (), quiet: bool = False, **options: Any
) -> Run:
    """`simulate` of a launch whose arguments are bound already; options: profile, checks, limits.

    quiet: what the kernel prints is not compiled.
    """
    compiled, values = prepare(launch, arch, quiet)
    for name in outputs:
        poison(name, launch.args.get(name))
    return execute(compiled, launch.grid, values, outputs=outputs, **options)


def prepare(launch: Launch, arch: str, quiet: bool = False) -> tuple[compiler.Compiled, list[Value]]:
    """The code for a launch, and what it is given when it runs."""
    hardware.limits(arch)
    warps = launch.keywords.get("num_warps")
    if isinstance(warps, int):  # Triton's own words for it name neither the kernel nor the number
        compiler.check_workgroup(unwrap(launch.kernel).__name__, arch, warps)
    spec = dual_mode.specialise(launch.kernel, launch.positional, launch.keywords, arch)
    return _compiled(launch.kernel, spec, arch, quiet), arguments.values(launch, spec)


_remembered: Latest[compiler.Compiled] = Latest()


def _compiled(kernel: Any, spec: Specialisation, arch: str, quiet: bool) -> compiler.Compiled:
    """Compile, or find what was compiled for the same kernel and specialisation: in a tenth of the time."""

    def find() -> compiler.Compiled:
        compiled = compiler.compile(kernel, spec, arch, num_warps=spec.options.get("num_warps", 4), quiet=quiet)
        compiler.check_lds(compiled)
        return compiled

    functions = tuple(_functions(list(spec.constexprs.values())))  # `repr` tells no two of one name apart
    return _remembered.get((unwrap(kernel), functions, arch, quiet, repr(spec)), find)


def _functions(value: Any) -> Iterator[Any]:
    """The Python functions of @triton.jit functions among a launch's constants."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from _functions(one)
    elif hasattr(value, "fn"):
        yield unwrap(value)


def execute(
    compiled: compiler.Compiled,
    grid: tuple[int, int, int],
    values: Sequence[Value],
    *,
    profile: bool = True,
    checks: bool = True,
    outputs: Iterable[str] = (),
    max_instructions: int = MAX_INSTRUCTIONS,
    max_seconds: float = MAX_SECONDS,
    only: Iterable[tuple[int, int, int]] | None = None,
    executor: Callable[..., Executor] = Executor,
    watchers: Iterable[Watcher] = (),
    together: int | None = None,
    elsewhere: Callable[[int], tuple[int, np.ndarray] | None] | None = None,
) -> Run:
    """Execute compiled code on a grid.

    Args:
        profile, checks, outputs, max_instructions, max_seconds: as in `simulate`, but nothing is filled.
        values: its run-time arguments in order, tensors on the CPU.
        only: the programs to run; None: the whole grid.
        executor: makes what runs a batch of waves; one that watches them, for instance.
        watchers: look on besides profile and checks.
        together: how many programs run at a time; None: as many as is quick.
        elsewhere: (first address, bytes) of the memory around an address that is no argument's, or None; kernels find
            such addresses in tensors.
    """
    program = programs.parse(compiled.asm)
    memory = GlobalMemory(elsewhere)
    if program.constants:  # first: the code knows their addresses
        memory.add_bytes("the kernel's constants", np.frombuffer(bytearray(program.constants), U8))
    calls = HostCalls(memory) if any(argument.kind == KIND for argument in program.arguments) else None
    values = [*values, *_lent(compiled, grid)]
    segment = _argument_segment(program, memory, grid, values, compiled.num_warps, calls)
    run = Run(
        compiled,
        program,
        grid,
        Profile(program) if profile else None,
        Checks(program, memory, grid, outputs) if checks else None,
        tuple(watchers),
    )
    batches = Batches(
        run,
        memory,
        only or (place[::-1] for place in itertools.product(*(range(n) for n in grid[::-1]))),
        begin=lambda places: _waves(run, memory, places, segment),
        executor=partial(executor, seconds=max_seconds, host=calls.serve if calls else None),
        groups=together or _together(program, compiled, calls),
        budget=max_instructions,
        seconds=max_seconds,
        progress=Progress(compiled.name, grid),
    )
    try:
        batches.execute()
    finally:
        if calls:
            calls.finish()
    return run


def _together(program: Program, compiled: compiler.Compiled, calls: HostCalls | None) -> int:
    """How many workgroups run at a time."""
    lane = 4 * program.registers + program.scratch
    group = compiled.lds + compiled.num_warps * program.lanes * lane
    most = max(1, _BATCH_BYTES // group)
    return max(1, min(most, WAVES // compiled.num_warps)) if calls else most


def _lent(compiled: compiler.Compiled, grid: tuple[int, int, int]) -> list[Value]:
    """Global memory that the compiler asked for, behind the kernel's own arguments."""
    size = compiled.global_scratch * math.prod(grid)
    return (
        [Value("the kernel's scratch memory", "*i8", torch.zeros(size, dtype=torch.uint8, device="cpu"))]
        if size
        else []
    )


# ---- the state in which a wave begins --------------------------------------------------------------------------------


def _waves(run: Run, memory: GlobalMemory, groups: Sequence[tuple[int, int, int]], arguments: int) -> Waves:
    """Waves of these workgroups, registers as the hardware sets them before they begin."""
    program, per_group = run.program, run.compiled.num_warps
    places = np.repeat(np.array(groups, np.int64), per_group, axis=0)
    waves = Waves(
        len(places),
        program.lanes,
        program.registers,
        per_group,
        programs=places,
        memory=memory,
        lds=LocalData(len(groups), run.compiled.lds, patterns(program, per_group)),
        scratch=Scratch(len(places) * program.lanes, program.scratch) if program.scratch else None,
        profile=run.profile,
        watchers=run.watchers,
    )
    first_lane = (np.arange(waves.count) % per_group)[:, None] * program.lanes
    waves.V[0] = first_lane + np.arange(program.lanes)
    facts = program.descriptor
    register = sum(
        size * facts.get(f"user_sgpr_{name}", 0)
        for name, size in (("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2))
    )
    waves.S[:, register], waves.S[:, register + 1] = U32(arguments & 0xFFFFFFFF), U32(arguments >> 32)
    waves.S[:, M0] = U32(0xFFFFFFFF)
    waves.S[:, MODE] = U32(program.mode)
    waves.mode_changed()
    if hardware.limits(program.arch).workgroup_in_traps:
        waves.S[:, TTMP + 9] = places[:, 0]
        waves.S[:, TTMP + 7] = places[:, 1] | places[:, 2] << 16
        waves.S[:, TTMP + 8] = np.arange(waves.count) % per_group << 25
        return waves
    register = facts["user_sgpr_count"]
    for axis, letter in enumerate("xyz"):
        if facts.get(f"system_sgpr_workgroup_id_{letter}"):
            waves.S[:, register] = places[:, axis]
            register += 1
    return waves


def _argument_segment(
    program: Program,
    memory: GlobalMemory,
    grid: tuple[int, int, int],
    values: Sequence[Value],
    num_warps: int,
    calls: HostCalls | None,
) -> int:
    """Lay the arguments out in memory; returns the address."""
    data = np.zeros(program.argument_bytes + 64, U8)  # scalar loads fetch more than there is
    given = iter(values)
    for argument in program.arguments:
        if argument.kind == KIND:
            content = calls.address.to_bytes(8, "little")
        elif argument.kind.startswith("hidden_"):
            content = _hidden(argument, grid, num_warps * program.lanes)
        else:  # behind the kernel's own arguments stand pointers of Triton's, which stay null
            content = _encoded(argument, memory, next(given, _NULL))
        data[argument.offset : argument.offset + argument.size] = np.frombuffer(content, U8)
    return memory.add_bytes(ARGUMENTS, data)


_NULL = Value("", "*i8", None)
_FLOATS = {"fp16": np.float16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64}


def _hidden(argument: Argument, grid: tuple[int, int, int], threads: int) -> bytes:
    sizes = {
        "hidden_block_count_x": grid[0],
        "hidden_block_count_y": grid[1],
        "hidden_block_count_z": grid[2],
        "hidden_group_size_x": threads,
        "hidden_group_size_y": 1,
        "hidden_group_size_z": 1,
    }
    return sizes.get(argument.kind, 0).to_bytes(argument.size, "little")


def _encoded(argument: Argument, memory: GlobalMemory, value: Value) -> bytes:
    """A value's bytes, by the type that the kernel was compiled for."""
    content = value.content
    if isinstance(content, torch.Tensor):
        if content.device.type != "cpu":
            raise ValueError(f"{value.name} is on {content.device}; the simulator takes tensors on the CPU")
        return memory.add_tensor(value.name, content).to_bytes(8, "little")
    if value.kind == "bf16":
        return int(round_to_bf16(np.array([content], np.float32))[0]).to_bytes(2, "little")
    if value.kind in _FLOATS:
        with np.errstate(over="ignore"):
            return _FLOATS[value.kind](content).tobytes()
    if value.kind[0] == "*" and content is not None and not isinstance(content, int):
        raise TypeError(f"{value.name} must be a tensor on the CPU, got a {type(content).__name__}")
    return (int(content or 0) & ((1 << 8 * argument.size) - 1)).to_bytes(argument.size, "little")
