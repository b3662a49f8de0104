"""The launches of somebody's file, each executed once and looked at: what the commands of gfxlab are made of.

The file runs as a script on a pretended GPU. It may put its tensors on "cuda", as for a card, or leave them on the CPU.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.engine import dual_mode
from gfxlab.pretended.gpu import pretend
from gfxlab.pretended.unwritten import remembered
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.core.progress import line_on
from gfxlab.simulator.show import script
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.show.stepper import Walk, step_compiled

MAX_SECONDS = 10.0  # a loop that goes on for so long without a wave's ending is given up: somebody is waiting
Look = Callable[..., Run]  # (compiled, grid, values, **options of the simulator) -> Run


def of_file(target: str, arch: str, look: Look = execute, arguments: Sequence[str] = (), **options) -> list[Run]:
    """Run FILE or FILE:KERNEL; the runs of the kernel that was asked for, in order.

    Args:
        look: executes the launches of that kernel; those of others are executed without looking. A loop that goes on
            for `MAX_SECONDS` without a wave's ending is given up.
        options: of `look`, such as profile.

    Raises:
        ScriptError: there is no such file, it raised, or it does not launch the kernel.
        SimulationError: a launch did what it may not.
    """
    path, kernel = script.split(target)
    if dual_mode.env_interpret():
        raise script.ScriptError("TRITON_INTERPRET=1 is set: nothing can be compiled in this process. Unset it.")
    runs: list[Run] = []
    others: set[str] = set()

    def run(compiled: Compiled, grid: tuple[int, int, int], values: list[Value], **given) -> Run:
        if kernel not in ("", compiled.name):
            others.add(compiled.name)
            return remembered(execute, compiled, grid, values, **given)
        runs.append(look(compiled, grid, values, **{**given, **options}))
        return runs[-1]

    with line_on(sys.stderr), pretend(arch, _ignore, by=run, cpu_tensors=True, max_seconds=MAX_SECONDS):
        script.execute(path, arguments)
    if not runs:
        raise script.not_launched(path, kernel, others)
    return runs


def walk(target: str, arch: str, launch: int = 1, arguments: Sequence[str] = (), **options) -> Walk:
    """Walk through one launch of the kernel, the first unless `launch` says another; options: those of `step`.

    Launches before it are executed; the file is not run further.

    Raises:
        ScriptError: there is no such file, it does not launch the kernel so often, or an option asks for what is not.
    """
    path, kernel = script.split(target)
    seen: list[str] = []
    found: list[Walk] = []

    def look(compiled: Compiled, grid: tuple[int, int, int], values: list[Value], **given) -> Run:
        seen.append(compiled.name)
        if launch != (seen.count(kernel) if kernel else len(seen)):
            return execute(compiled, grid, values, **given)
        try:
            found.append(step_compiled(compiled, grid, values, **given, **options))
        except ValueError as error:  # of the options, not of the file
            raise script.ScriptError(str(error)) from error
        raise _Found

    with contextlib.suppress(_Found):
        of_file(target, arch, look, arguments)
    if not found:
        raise script.not_launched(path, kernel, set(seen), launch)
    return found[0]


class _Found(BaseException):
    """Ends the script; no `except Exception` in it gets in the way."""


def _ignore(run: Run) -> None: ...


class Firsts:
    """Looks closely at the first launch of each kernel and executes the others; `more` counts those."""

    def __init__(self, look: Look):
        self._look = look
        self.seen: dict[str, Run] = {}
        self.more: dict[str, int] = {}

    def __call__(self, compiled: Compiled, grid: tuple[int, int, int], values: list[Value], **options) -> Run:
        if compiled.name in self.seen:
            self.more[compiled.name] = self.more.get(compiled.name, 0) + 1
            return execute(compiled, grid, values, **options)
        run = self.seen[compiled.name] = self._look(compiled, grid, values, **options)
        return run
