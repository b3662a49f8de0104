"""The launches of somebody's file, simulated: the file runs as a script and brings the arguments itself.

FILE:KERNEL names a kernel of the file; FILE alone means every kernel that it launches.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gfxlab import user_errors
from gfxlab.bound import Launch
from gfxlab.engine import dual_mode
from gfxlab.simulator.context import using
from gfxlab.simulator.core.launch import simulate_bound
from gfxlab.simulator.core.progress import line_on
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.show.stepper import Walk, step_bound


class ScriptError(Exception):
    """The file cannot be run, or it does not launch the kernel."""


def split(target: str) -> tuple[Path, str]:
    """`my_file.py:my_kernel` as the file and the kernel's name, which is "" where none is given.

    Raises:
        ScriptError: there is no such file.
    """
    file, colon, kernel = target.rpartition(":")
    if not colon or not kernel.isidentifier():
        file, kernel = target, ""
    path = Path(file)
    if not path.is_file():
        raise ScriptError(f"There is no file {file}; give FILE:KERNEL, such as my_kernels.py:add_kernel.")
    return path, kernel


def runs(target: str, arch: str) -> list[Run]:
    """Run the file with every launch simulated; the runs of the kernel that was asked for.

    Raises:
        ScriptError: there is no such file, or it does not launch the kernel.
        SimulationError: a launch did what it may not.
    """
    path, kernel = split(target)
    _can_compile()
    with using(arch, profile=True) as every, line_on(sys.stderr):
        execute(path)
    found = [run for run in every if kernel in ("", run.compiled.name)]
    if not found:
        raise not_launched(path, kernel, {run.compiled.name for run in every})
    return found


def walk(target: str, arch: str, launch: int = 1, **options: Any) -> Walk:
    """Walk through one launch of the kernel, the first unless `launch` says another; options: those of `step`.

    Launches before it are simulated; the file is not run further.

    Raises:
        ScriptError: there is no such file, it does not launch the kernel so often, or an option asks for what is not.
    """
    path, name = split(target)
    _can_compile()
    seen: list[str] = []
    found: list[Walk] = []

    def run(launched: Launch) -> None:
        seen.append(launched.name)
        wanted = seen.count(name) if name else len(seen)
        if wanted == launch and name in ("", seen[-1]):
            try:
                found.append(step_bound(launched, arch, **options))
            except ValueError as error:  # of the options, not of the file
                raise ScriptError(str(error)) from error
            raise _Found
        simulate_bound(launched, arch, profile=False)

    with dual_mode.cpu_launches_by(run), contextlib.suppress(_Found):
        execute(path)
    if not found:
        raise not_launched(path, name, set(seen), launch)
    return found[0]


class _Found(BaseException):
    """Ends the script; no `except Exception` in it gets in the way."""


def _can_compile() -> None:
    if dual_mode.env_interpret():
        raise ScriptError("TRITON_INTERPRET=1 is set: nothing can be compiled in this process. Unset it.")


def not_launched(path: Path, kernel: str, others: set[str], launch: int = 1) -> ScriptError:
    what = kernel or "any kernel"
    often = f" {launch} times" if launch > 1 else ""
    instead = f"It launches {', '.join(sorted(others))}." if others else ""
    return ScriptError(
        f"{path.name} does not launch {what}{often} on CPU tensors when it runs as a script. {instead}".rstrip()
    )


def execute(path: Path, arguments: Sequence[str] = ()) -> int:
    """Run a file as `python FILE arguments` does; returns the exit status that it asks for.

    Raises:
        ScriptError: the file raised, or launched a kernel wrongly; what an instrument found goes through as it is.
    """
    try:
        with _as_program(path, arguments):
            runpy.run_path(str(path), run_name="__main__")
        return 0
    except SystemExit as end:
        return exit_status(end)
    except Exception as error:
        said = None if type(error).__module__.startswith("gfxlab.") else user_errors.sentence(error, path)
        if said is None:
            raise
        raise ScriptError(said) from error


def exit_status(end: SystemExit) -> int:
    """What Python makes of `sys.exit(...)`: a number as it is, a text is said and fails."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


@contextlib.contextmanager
def _as_program(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    before, search = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before, search
